"""TorchScript: a traced module that runs without Python and without the model's code."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from heroes.export.running import evaluated, quietly

FILE = "heroes.json"  # inside the archive


class TorchScript:
    ending = ".pt"
    packages: tuple[str, ...] = ("torch",)
    extra = "export"
    fixed = False

    def packed(self, module: nn.Module, inputs: Tensor, about: str) -> bytes:
        file = io.BytesIO()
        with quietly(), torch.no_grad():
            traced = torch.jit.trace(module, (inputs,), check_trace=False)
            torch.jit.save(traced, file, _extra_files={FILE: about})
        return file.getvalue()

    def outputs(self, path: Path, inputs: Tensor, blank: Callable[[], nn.Module]) -> Tensor:
        with quietly():
            return evaluated(torch.jit.load(str(path), map_location="cpu"), inputs)

    def about(self, path: Path) -> str:
        found = {FILE: ""}
        with quietly():
            torch.jit.load(str(path), map_location="cpu", _extra_files=found)
        text: str | bytes = found[FILE]
        return text.decode() if isinstance(text, bytes) else text
