"""What a model is and where it comes from, as files of it say: in `model.safetensors` and exported ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from heroes import __version__
from heroes.messages import RoundRecord
from heroes.models.family import Build
from heroes.runs.served import Served
from heroes.settings.config import Config


def origin(config: Config, served: Served, inputs: Tensor | None, last: RoundRecord | None) -> dict[str, Any]:
    """What the global tensors are; `last` is the record of their round, if there is one.

    The `arguments` rebuild the model without the data.
    """
    arguments, complete = _arguments(served.family.build), served.widths[-1]
    known = _common(config, served) | {
        "what": "the global tensors of a federation; heroes.load(folder).model(width) makes a module of them",
        "width": complete,
        "widths": list(served.widths),
    }
    known |= {} if arguments is None else {"arguments": arguments, "classes": arguments.get("classes")}
    known |= {} if inputs is None else {"inputs": _kind(inputs)}
    return known | ({} if last is None else _scored(last, complete, complete))


def of_width(
    config: Config, served: Served, inputs: Tensor, last: RoundRecord | None, width: int
) -> dict[str, Any]:
    """What the model of one width is, for a file that holds it alone."""
    module = served.module(width)
    known = _common(config, served) | {
        "what": f"the model of width {width} of a federation",
        "width": width,
        "complete_width": served.widths[-1],
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "inputs": _kind(inputs),
        "classes": (_arguments(served.family.build) or {}).get("classes"),
    }
    return known | ({} if last is None else _scored(last, width, served.widths[-1]))


def _common(config: Config, served: Served) -> dict[str, Any]:
    return {
        "experiment": config.experiment,
        "strategy": served.strategy.name,
        "seed": config.seed,
        "round": served.round,
        "model": config.model.name,
        "version": __version__,
    }


def _kind(inputs: Tensor) -> dict[str, Any]:
    """Shape and type of one example, and for whole numbers the largest that was seen."""
    known = {"shape": list(inputs.shape[1:]), "dtype": str(inputs.dtype).removeprefix("torch.")}
    return known if inputs.is_floating_point() else {**known, "largest": int(inputs.max())}


def _arguments(build: Build) -> dict[str, Any] | None:
    """What a named model is built with besides its width; None for one of the user's own."""
    plain = (bool, int, float, str, type(None))
    if not isinstance(build, partial) or build.args:
        return None
    return dict(build.keywords) if all(isinstance(v, plain) for v in build.keywords.values()) else None


def _scored(last: RoundRecord, width: int, complete: int) -> dict[str, Any]:
    """The main metric at a width, where it was tested."""
    tested: Mapping[str, float] = last.scores_by_width.get(width, last.scores if width == complete else {})
    return {"metric": last.metric, "score": tested[last.metric]} if last.metric in tested else {}
