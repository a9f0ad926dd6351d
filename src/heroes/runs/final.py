"""The final model of a run as a file: the global tensors, and in its metadata where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from heroes.files import write_whole

ORIGIN = "heroes"  # the one entry of the metadata: several would be in another order every time


def write(path: Path, tensors: Mapping[str, Tensor], origin: Mapping[str, Any]) -> None:
    """Write the model, whole or not at all; an OSError says why it could not be."""
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(plain, metadata={ORIGIN: json.dumps(origin)}))


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the file says of the model, and the model; a ValueError says why it cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            origin = json.loads((file.metadata() or {}).get(ORIGIN, "{}"))
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return origin if isinstance(origin, dict) else {}, found


def flaw(path: Path, tensors: Mapping[str, Tensor], round_number: int) -> str | None:
    """Why the file is not these tensors after so many rounds, or None. 0.1.0 did not write the round."""
    if not path.exists():
        return "was missing"
    try:
        origin, found = read(path)
    except ValueError:
        return "could not be read"
    if origin.get("round", round_number) != round_number:
        return f"was of round {origin['round']!r}"
    return None if found.keys() == tensors.keys() and _same(found, tensors) else "was another model"


def _same(found: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> bool:
    return all(found[n].dtype == t.dtype and torch.equal(found[n], t) for n, t in tensors.items())
