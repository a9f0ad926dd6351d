"""Writes a model of a run as a file, and checks it: the file must make of test inputs what PyTorch does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heroes.errors import ConfigError, HeroesError
from heroes.export.formats import Format, chosen, converting
from heroes.export.running import evaluated, plain
from heroes.files import draft_of, write_whole
from heroes.fleet.costs import forward_flops

TOLERANCE = 1e-4  # of the largest output, if that is above 1


@dataclass(frozen=True)
class Limits:
    """What a file may weigh, and what one example may cost: FLOPs of a forward pass."""

    bytes: int | None = None
    flops: float | None = None


@dataclass(frozen=True)
class Exported:
    """A file that was written and checked: `difference` is the largest between its outputs and PyTorch's."""

    path: Path
    format: str
    width: int
    bytes: int
    difference: float
    tried: str  # on what
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Offer:
    """The models to choose from: `module` makes a trained one, `blank` an untrained one, `about` describes
    it. `inputs` are a few examples as the model takes them, and `tried` says what they are.
    """

    widths: Sequence[int]
    module: Callable[[int], nn.Module]
    blank: Callable[[int], nn.Module]
    about: Callable[[int], Mapping[str, Any]]
    inputs: Tensor
    tried: str = "inputs"


def export(offer: Offer, path: Path, format: str | None = None, limits: Limits | None = None) -> Exported:
    """Write the widest of the models on offer that keeps to the limits; a wrong file is an error and is
    removed.
    """
    name, kind = chosen(format, path)
    limits, weights = limits or Limits(), -1
    for width in sorted(offer.widths, reverse=True):
        module, inputs = offer.module(width).cpu().eval(), plain(offer.inputs)
        flops, weights = forward_flops(module, inputs[:1]), _weight(module)
        if limits.flops is not None and flops > limits.flops:
            continue
        if limits.bytes is not None and weights > limits.bytes:
            continue
        about = {**offer.about(width), "flops": flops}
        with converting(name):
            content = kind.packed(module, inputs[:1] if kind.fixed else inputs, json.dumps(about))
        if limits.bytes is None or len(content) <= limits.bytes:
            difference = _written(kind, name, path, content, module, inputs, partial(offer.blank, width))
            tried = f"{len(inputs)} {offer.tried}"
            return Exported(path, name, width, len(content), difference, tried, about)
    raise _too_large(offer, limits, weights, flops)


def _weight(module: nn.Module) -> int:
    """Bytes of its parameters."""
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


def _too_large(offer: Offer, limits: Limits, weights: int, flops: int) -> ConfigError:
    wanted = [f"{limits.bytes:,} bytes" if limits.bytes is not None else ""]
    wanted += [f"{limits.flops:,.0f} FLOPs" if limits.flops is not None else ""]
    narrowest = min(offer.widths)
    which = (
        f"that of width {narrowest}" if len(offer.widths) == 1 else f"the narrowest, of width {narrowest},"
    )
    return ConfigError(
        f"no model keeps to {' and '.join(filter(None, wanted))}: {which} "
        f"has {weights:,} bytes of weights and takes {flops:,} FLOPs an example"
    )


def _written(
    kind: Format,
    name: str,
    path: Path,
    content: bytes,
    module: nn.Module,
    inputs: Tensor,
    blank: Callable[[], nn.Module],
) -> float:
    """Write the file under another name, check it, and give it its own; returns the difference."""
    draft = draft_of(path).with_suffix(path.suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(draft, content)
        with converting(name):
            difference = _difference(kind, draft, module, inputs, blank)
        draft.replace(path)
    except OSError as error:
        raise HeroesError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            draft.unlink()
    return difference


def _difference(
    kind: Format, path: Path, module: nn.Module, inputs: Tensor, blank: Callable[[], nn.Module]
) -> float:
    """The largest difference between the outputs of file and module, alone and in batches."""
    batches = list(inputs.split(1)) if kind.fixed else [inputs[:1], inputs]
    wanted = torch.cat([evaluated(module, batch) for batch in batches])
    found = torch.cat([kind.outputs(path, batch, blank) for batch in batches])
    if found.shape != wanted.shape:
        shapes = f"{tuple(found.shape)}, not {tuple(wanted.shape)}"
        raise HeroesError(f"the file is wrong and was not kept: its outputs are of shape {shapes}")
    difference = float((found - wanted).abs().max())
    allowed = TOLERANCE * max(1.0, float(wanted.abs().max()))
    if not difference <= allowed:
        raise HeroesError(
            f"the file is wrong and was not kept: its outputs differ from PyTorch's by {difference:.3g}, "
            f"more than {allowed:.3g}"
        )
    return difference
