"""The final model where it is used: a file for one device, at the width that the device holds."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors.torch import save

from heroes.messages import Tensors
from heroes.models.family import Family


def write_model(family: Family, width: int, tensors: Tensors, path: Path) -> None:
    """Write the model of this width, whole or not at all, as `build(width)` can load it."""
    model = family.dense(width)
    model.load(family.plain_weights(tensors))
    state = {name: value.detach().contiguous().clone() for name, value in model.module.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.write_bytes(save(state))
    os.replace(draft, path)
