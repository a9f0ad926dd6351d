"""The final model of a run as a file: the global tensors, and what the batch norms of every width keep.

Its metadata says where they come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from heroes.files import write_whole

ORIGIN = "heroes"  # the one entry of the metadata: several would be in another order every time
_AT = "@width"  # between the name of what a batch norm keeps and the width


@dataclass(frozen=True)
class Final:
    """What the file says of the model, and the model; `kept` is what the batch norms of a width keep."""

    origin: dict[str, Any]
    tensors: dict[str, Tensor]
    kept: dict[int, dict[str, Tensor]]


def write(
    path: Path,
    tensors: Mapping[str, Tensor],
    origin: Mapping[str, Any],
    kept: Mapping[int, Mapping[str, Tensor]],
) -> None:
    """Write the model, whole or not at all; an OSError says why it could not be."""
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    for width, of_width in kept.items():
        plain |= {f"{name}{_AT}{width}": tensor.contiguous() for name, tensor in of_width.items()}
    write_whole(path, save(plain, metadata={ORIGIN: json.dumps(origin)}))


def read(path: Path) -> Final:
    """The model of a file; a ValueError says why it cannot be read."""
    try:
        with safe_open(path, "pt") as file:
            origin = json.loads((file.metadata() or {}).get(ORIGIN, "{}"))
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        kept: dict[int, dict[str, Tensor]] = {}
        for name in [name for name in found if _AT in name]:
            of, _, width = name.rpartition(_AT)
            kept.setdefault(int(width), {})[of] = found.pop(name)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return Final(origin if isinstance(origin, dict) else {}, found, kept)


def flaw(path: Path, tensors: Mapping[str, Tensor], round_number: int) -> str | None:
    """Why the file is not these tensors after so many rounds, or None. 0.1.0 did not write the round."""
    if not path.exists():
        return "was missing"
    try:
        found = read(path)
    except ValueError:
        return "could not be read"
    if found.origin.get("round", round_number) != round_number:
        return f"was of round {found.origin['round']!r}"
    same = found.tensors.keys() == tensors.keys() and _same(found.tensors, tensors)
    return None if same else "was another model"


def _same(found: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> bool:
    return all(found[n].dtype == t.dtype and torch.equal(found[n], t) for n, t in tensors.items())
