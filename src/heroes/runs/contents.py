"""What a checkpoint holds: all that the server remembers, as tensors and JSON text.

Whatever a file from outside says is checked; what cannot be right is a ValueError.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Annotated, Any

import torch
from pydantic import Field, FiniteFloat, NonNegativeInt, TypeAdapter, ValidationError
from safetensors.torch import save
from torch import Tensor

from heroes.errors import RunFolderError
from heroes.messages import LARGEST, ServerState

VERSION = 1
_SHOWN = 60  # characters of a wrong value in a message
_Above = Annotated[FiniteFloat, Field(gt=0)]
_Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
_Measured = tuple[_Above, FiniteFloat, _Above, FiniteFloat, FiniteFloat]


@dataclass(frozen=True)
class _Values:
    """What the metadata of a checkpoint holds as JSON. 0.1.0 had no measurements, samplers and settings."""

    round: _Count
    seconds: Annotated[float, Field(ge=0, lt=LARGEST, strict=True)]
    bytes_up: _Count
    bytes_down: _Count
    clients: tuple[_Count, ...]
    memory: Any = None
    measured: Mapping[NonNegativeInt, _Measured] = field(default_factory=dict)
    sampler: Any = None


def _checked(values: Mapping[str, Any]) -> _Values:
    """The description of a checkpoint, every number of it possible."""
    names = _Values.__dataclass_fields__
    known = TypeAdapter(_Values).validate_python({key: v for key, v in values.items() if key in names})
    json.dumps(known.sampler, allow_nan=False)  # a ValueError where that is not finite
    return known


def _told(error: ValidationError) -> str:
    """The first thing that is wrong, by its key, in a few words."""
    first = error.errors(include_url=False, include_context=False)[0]
    given = repr(first["input"])
    shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
    return f"{'.'.join(map(str, first['loc']))} is {shown}: {first['msg'].replace('Input', 'it')}"


def packed(state: ServerState[Any], settings: Mapping[str, Any]) -> bytes:
    """A checkpoint as the bytes of a file."""
    values = {
        "version": VERSION,
        "round": state.round,
        "seconds": state.seconds,
        "bytes_up": state.bytes_up,
        "bytes_down": state.bytes_down,
        "memory": None if state.memory is None else asdict(state.memory),
        "clients": list(state.residuals),  # their order is part of the state
        "measured": {str(client): known for client, known in state.measured.items()},
        "sampler": state.sampler,
        "settings": dict(settings),
    }
    text = json.dumps(values)
    tensors = {f"model:{name}": tensor for name, tensor in state.tensors.items()}
    for client, residuals in state.residuals.items():
        tensors |= {f"residual:{client}:{name}": tensor for name, tensor in residuals.items()}
    for kind, moments in state.moments.items():
        tensors |= {f"moment:{kind}:{name}": tensor for name, tensor in moments.items()}
    tensors |= {f"average:{name}": tensor for name, tensor in state.averaged.items()}
    plain = _apart(tensors)
    return save(plain, metadata={"state": text, "digest": digest(text, plain)})


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each in memory of its own: the average of what nobody trained is the very tensor of the model."""
    apart: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.contiguous()
        apart[name] = plain.clone() if plain.untyped_storage().data_ptr() in seen else plain
        seen.add(plain.untyped_storage().data_ptr())
    return apart


def state_of(
    described: Mapping[str, Any], tensors: Mapping[str, Tensor], begin: ServerState[Any]
) -> ServerState[Any]:
    """The state in a checkpoint of the run that began so."""
    try:
        return _state(_checked(described), tensors, begin)
    except ValidationError as error:
        raise ValueError(_told(error)) from None


def _state(values: _Values, tensors: Mapping[str, Tensor], begin: ServerState[Any]) -> ServerState[Any]:
    model = _called("model:", tensors)
    if _kinds(model) != _kinds(begin.tensors):
        raise ValueError("its tensors are not those of the configured model and strategy")
    average = _called("average:", tensors)
    if average and _kinds(average) != _kinds(begin.tensors):
        raise ValueError("its moving average is not one of the configured model")
    moments = _by_kind("moment", _called("moment:", tensors), begin)
    left = _by_kind("residual", _called("residual:", tensors), begin)
    if strange := set(left) - set(map(str, values.clients)):
        raise ValueError(f"it has residuals of {min(strange)!r}, a client that is not in its list")
    return ServerState(
        round=values.round,
        tensors={name: model[name] for name in begin.tensors},  # their order is part of the state
        memory=_memory(values.memory, begin.memory),
        seconds=values.seconds,
        bytes_up=values.bytes_up,
        bytes_down=values.bytes_down,
        residuals={client: left.get(str(client), {}) for client in values.clients},
        measured=values.measured,
        sampler=values.sampler,
        moments=moments,
        averaged={name: average[name] for name in begin.tensors} if average else {},
    )


def _memory(found: Any, begin: Any) -> Any:
    """What the strategy remembers.

    Its class may have a method `fits(begin)`, which says whether a run that began so can have come to it.
    """
    if begin is None:
        return None
    _check_whole_numbers(found)
    _check_version(found, begin)
    memory = TypeAdapter(type(begin)).validate_python(found)
    fits = getattr(memory, "fits", None)
    if callable(fits) and not fits(begin):
        raise ValueError("what its strategy remembers cannot be of a run with this configuration")
    return memory


def _check_version(found: Any, begin: Any) -> None:
    """Refuse what lacks something that the strategy remembers now."""
    needed = [f.name for f in fields(begin) if f.default is MISSING and f.default_factory is MISSING]
    lacking = [name for name in needed if isinstance(found, Mapping) and name not in found]
    if lacking:
        raise RunFolderError(
            f"it was written by a heroes whose strategy did not remember {lacking[0]!r} yet, so this heroes "
            "cannot go on as it would have; use the version in environment.json, or start a new run with "
            "--overwrite"
        )


def _check_whole_numbers(value: Any) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number in what its strategy remembers does not fit into 64 bits")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_whole_numbers(inner)


def _by_kind(what: str, found: Mapping[str, Tensor], begin: ServerState[Any]) -> dict[str, dict[str, Tensor]]:
    """Tensors like the model's, by kind or client and then by name, in the order of the model's."""
    for place, tensor in found.items():
        kind, _, name = place.partition(":")
        if name not in begin.tensors:
            raise ValueError(f"it has a {what} {kind!r} of {name!r}, a tensor that the model does not have")
        shape = tuple(begin.tensors[name].shape)
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
            given = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise ValueError(
                f"its {what} {kind!r} of {name!r} is {given} instead of float32 of shape {shape}"
            )
    kinds = sorted({place.partition(":")[0] for place in found})
    return {
        kind: {name: found[f"{kind}:{name}"] for name in begin.tensors if f"{kind}:{name}" in found}
        for kind in kinds
    }


def _called(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """What guards a checkpoint."""
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
