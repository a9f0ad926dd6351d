"""In what models are computed: float32, or bfloat16 where that is faster."""

from __future__ import annotations

import torch

ENOUGH = 1e9
"""FLOPs of a step of the complete model from which bfloat16 gains; below, casts cost more than they save"""
_OF_CPU = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def in_hardware(device: torch.device) -> bool:
    """Whether this device computes in bfloat16 itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in _OF_CPU)


def settled(asked: str, device: torch.device, flops: float) -> str:
    """What `asked` means on this device for a model whose steps have so many FLOPs."""
    if asked != "auto":
        return asked
    return "bfloat16" if flops >= ENOUGH and in_hardware(device) else "float32"


def remark(precision: str, device: torch.device) -> str | None:
    """What a user should know who trains like this here."""
    if precision != "bfloat16" or in_hardware(device):
        return None
    return (
        f"training.precision is bfloat16, but the {device.type} of this machine has no bfloat16 in hardware: "
        "clients train in it all the same, slowly"
    )
