"""ONNX, by torch's exporter; run by ONNX Runtime. The file takes any number of examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from heroes.export.running import quietly

KEY = "heroes"


class Onnx:
    ending = ".onnx"
    packages: tuple[str, ...] = ("onnx", "onnxscript", "onnxruntime")
    extra = "onnx"
    fixed = False

    def packed(self, module: nn.Module, inputs: Tensor, about: str) -> bytes:
        with quietly():
            program = torch.onnx.export(
                module,
                (inputs,),
                dynamo=True,
                verbose=False,
                input_names=["inputs"],
                output_names=["outputs"],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            )
        assert program is not None
        model = program.model_proto
        model.metadata_props.add(key=KEY, value=about)
        return bytes(model.SerializeToString())

    def outputs(self, path: Path, inputs: Tensor, blank: Callable[[], nn.Module]) -> Tensor:
        from onnxruntime import InferenceSession

        (found,) = InferenceSession(str(path)).run(None, {"inputs": inputs.numpy()})
        return torch.from_numpy(found)

    def about(self, path: Path) -> str:
        import onnx

        return next((each.value for each in onnx.load(path).metadata_props if each.key == KEY), "")
