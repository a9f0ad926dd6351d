"""Safetensors: the plain module's parameters and buffers by name, for `module.load_state_dict`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from heroes.export.running import evaluated

KEY = "heroes"


class Safetensors:
    ending = ".safetensors"
    packages: tuple[str, ...] = ("safetensors",)
    extra = "export"
    fixed = False

    def packed(self, module: nn.Module, inputs: Tensor, about: str) -> bytes:
        """A tensor that two layers share is written for both."""
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()}
        return save(tensors, metadata={KEY: about})

    def outputs(self, path: Path, inputs: Tensor, blank: Callable[[], nn.Module]) -> Tensor:
        module = blank()
        module.load_state_dict(load_file(path))
        return evaluated(module, inputs)

    def about(self, path: Path) -> str:
        with safe_open(path, "pt") as file:
            return str((file.metadata() or {}).get(KEY, ""))
