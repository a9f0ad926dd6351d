"""Where a run can go on from: all that the server remembers after a round, in one file.

A checkpoint is a safetensors file; its metadata holds the rest as JSON, and a digest of everything. It is
written beside its place, flushed to the disk and renamed, so that a file with the right name is whole. The
last two are kept. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, FiniteFloat, NonNegativeInt, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from heroes.errors import RunFolderError
from heroes.messages import ServerState

VERSION = 1
_Above = Annotated[FiniteFloat, Field(gt=0)]
KEPT = 2
_MEASURED = TypeAdapter(dict[NonNegativeInt, tuple[_Above, FiniteFloat, _Above, FiniteFloat, FiniteFloat]])
_NAME = re.compile(r"round-(\d{7,})\.safetensors")


def write(folder: Path, state: ServerState[Any]) -> Path:
    """Put a checkpoint into the folder, and remove those that are no longer needed."""
    path = folder / f"round-{state.round:07}.safetensors"
    draft = path.with_suffix(".part")
    try:
        folder.mkdir(exist_ok=True)
        with draft.open("wb") as file:
            file.write(_packed(state))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _flush_folder(folder)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise RunFolderError(
            f"cannot write the checkpoint {str(path)!r}: {error.strerror}; the one before it is kept"
        ) from None
    for old in found(folder)[KEPT:]:
        with suppress(OSError):
            old.unlink()
    return path


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: int(path.stem.removeprefix("round-")), reverse=True)


def remove_all(folder: Path) -> None:
    """Take away the checkpoints of a run that is replaced."""
    for path in found(folder):
        path.unlink()


def read_last(folder: Path, begin: ServerState[Any]) -> ServerState[Any]:
    """The state in the newest whole checkpoint, or `begin` if there is none yet."""
    reasons = []
    for path in found(folder):
        try:
            return read(path, begin)
        except RunFolderError as error:
            reasons.append(str(error))
    if reasons:
        raise RunFolderError(f"no checkpoint of the run can be used: {reasons[0]}")
    return begin


def read(path: Path, begin: ServerState[Any]) -> ServerState[Any]:
    """The state in a checkpoint."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError, ValueError) as error:
        raise RunFolderError(f"cannot read the checkpoint {str(path)!r}: {error}") from None
    text = metadata.get("state", "")
    if metadata.get("digest") != _digest(text, tensors):
        raise RunFolderError(f"the checkpoint {str(path)!r} is damaged: its digest is wrong")
    try:
        values = json.loads(text)
        if values["version"] != VERSION:
            raise RunFolderError(
                f"the checkpoint {str(path)!r} has version {values['version']!r}; this heroes reads {VERSION}"
            )
        return _state(values, tensors, begin)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, ValidationError) as error:
        raise RunFolderError(f"the checkpoint {str(path)!r} is damaged: {error}") from None


def _packed(state: ServerState[Any]) -> bytes:
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
    }
    text = json.dumps(values)
    tensors = {f"model:{name}": tensor for name, tensor in state.tensors.items()}
    for client, residuals in state.residuals.items():
        tensors |= {f"residual:{client}:{name}": tensor for name, tensor in residuals.items()}
    for kind, moments in state.moments.items():
        tensors |= {f"moment:{kind}:{name}": tensor for name, tensor in moments.items()}
    tensors |= {f"average:{name}": tensor for name, tensor in state.averaged.items()}
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    return save(plain, metadata={"state": text, "digest": _digest(text, plain)})


def _state(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], begin: ServerState[Any]
) -> ServerState[Any]:
    model = _called("model:", tensors)
    if _kinds(model) != _kinds(begin.tensors):
        raise ValueError("its tensors are not those of the configured model and strategy")
    average = _called("average:", tensors)
    if average and _kinds(average) != _kinds(begin.tensors):
        raise ValueError("its moving average is not one of the configured model")
    if int(values["round"]) < 0:
        raise ValueError(f"its round is {values['round']!r}; it should be 0 or more")
    residuals: dict[int, dict[str, Tensor]] = {int(client): {} for client in values["clients"]}
    for name, tensor in tensors.items():
        if name.startswith("residual:"):
            _, client, own = name.split(":", 2)
            residuals[int(client)][own] = tensor
    memory = (
        None if begin.memory is None else TypeAdapter(type(begin.memory)).validate_python(values["memory"])
    )
    return ServerState(
        round=int(values["round"]),
        tensors={name: model[name] for name in begin.tensors},  # their order is part of the state
        memory=memory,
        seconds=float(values["seconds"]),
        bytes_up=int(values["bytes_up"]),
        bytes_down=int(values["bytes_down"]),
        residuals=residuals,
        measured=_MEASURED.validate_python(values.get("measured", {})),
        sampler=values.get("sampler"),
        moments=_moments(_called("moment:", tensors), begin),
        averaged={name: average[name] for name in begin.tensors} if average else {},
    )


def _moments(found: Mapping[str, Tensor], begin: ServerState[Any]) -> dict[str, dict[str, Tensor]]:
    """The moments of the server optimiser, by kind and tensor, in the order of the model's tensors."""
    for place, tensor in found.items():
        kind, _, name = place.partition(":")
        if name not in begin.tensors:
            raise ValueError(f"it has a moment {kind!r} of {name!r}, a tensor that the model does not have")
        shape = tuple(begin.tensors[name].shape)
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
            what = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise ValueError(f"its moment {kind!r} of {name!r} is {what} instead of float32 of shape {shape}")
    kinds = sorted({place.partition(":")[0] for place in found})
    return {
        kind: {name: found[f"{kind}:{name}"] for name in begin.tensors if f"{kind}:{name}" in found}
        for kind in kinds
    }


def _called(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, named without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _flush_folder(folder: Path) -> None:
    """Flush the folder, without which a rename may be lost; not every system can do that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
