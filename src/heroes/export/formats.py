"""The formats, by name, and what each must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from heroes.errors import ConfigError, HeroesError, did_you_mean, said
from heroes.export.executorch import ExecuTorch
from heroes.export.litert import LiteRt
from heroes.export.onnx import Onnx
from heroes.export.safetensors import Safetensors
from heroes.export.torchscript import TorchScript


class Format(Protocol):
    """A kind of file that a model goes into.

    `packages` must be installed for it, which the extra `extra` of heroes does. `fixed` files take one
    example at a time; the others any number.
    """

    ending: str
    packages: tuple[str, ...]
    extra: str
    fixed: bool

    def packed(self, module: nn.Module, inputs: Tensor, about: str) -> bytes:
        """The file of a module that takes such inputs; `about` is text that goes into its metadata."""

    def outputs(self, path: Path, inputs: Tensor, blank: Callable[[], nn.Module]) -> Tensor:
        """What the model in a file makes of these inputs; `blank` builds the untrained module."""

    def about(self, path: Path) -> str:
        """The text in the file's metadata."""


FORMATS: Mapping[str, Format] = {
    "safetensors": Safetensors(),
    "torchscript": TorchScript(),
    "onnx": Onnx(),
    "executorch": ExecuTorch(),
    "litert": LiteRt(),
}


def chosen(name: str | None, path: Path) -> tuple[str, Format]:
    """The format of this name, or the one that the file's ending means, with its packages there."""
    by_ending = {kind.ending: known for known, kind in FORMATS.items()}
    name = name or by_ending.get(path.suffix)
    if name is None:
        endings = ", ".join(f"{ending} ({known})" for ending, known in by_ending.items())
        raise ConfigError(f"{str(path)!r} does not say in which format: end it by {endings}, or say --format")
    if name not in FORMATS:
        raise ConfigError(f"--format is {name!r}: {did_you_mean(name, FORMATS)}")
    kind = FORMATS[name]
    lacking = [package for package in kind.packages if find_spec(package) is None]
    if lacking:
        raise ConfigError(
            f"the format {name} needs {', '.join(lacking)}, not installed here: "
            f"pip install 'heroes-fl[{kind.extra}]'"
        )
    return name, kind


@contextmanager
def converting(name: str) -> Iterator[None]:
    """What goes wrong inside is one sentence: converters can fail in any way."""
    try:
        yield
    except HeroesError:
        raise
    except Exception as error:
        raise HeroesError(f"the model cannot be made a file of the format {name}: {said(error)}") from error
