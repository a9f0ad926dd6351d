"""ExecuTorch: a program for phones and boards, with the parts that XNNPACK can do given to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from heroes.export.running import quietly

METHOD = "heroes"  # of the program: it returns the metadata, one byte an element


class ExecuTorch:
    ending = ".pte"
    packages: tuple[str, ...] = ("executorch",)
    extra = "executorch"
    fixed = True

    def packed(self, module: nn.Module, inputs: Tensor, about: str) -> bytes:
        with quietly():
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower

            exported = torch.export.export(module, (inputs,))
            constant = {METHOD: torch.frombuffer(bytearray(about.encode()), dtype=torch.uint8)}
            edge = to_edge_transform_and_lower(
                exported, partitioner=[XnnpackPartitioner()], constant_methods=constant
            )
            return bytes(edge.to_executorch().buffer)

    def outputs(self, path: Path, inputs: Tensor, blank: Callable[[], nn.Module]) -> Tensor:
        return _called(path, "forward", [inputs])

    def about(self, path: Path) -> str:
        return bytes(_called(path, METHOD, []).tolist()).decode()


def _called(path: Path, method: str, inputs: list[Tensor]) -> Tensor:
    """What a method of the program in a file returns; a copy, since the memory is the program's."""
    content = path.read_bytes()  # this and the program must outlive what is made of them
    with quietly():
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(content)
        loaded = program.load_method(method)
        found: Tensor = loaded.execute(inputs)[0].clone()
    return found
