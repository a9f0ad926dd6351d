"""What things cost: floating-point operations counted from the real module, bytes from the real tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heroes.messages import Floats, Integers


@dataclass(frozen=True)
class Costs:
    """Per width, index p - 1: FLOPs of one local step, FLOPs of one probe gradient, bytes each way."""

    step_flops: Floats
    probe_flops: Floats
    bytes_up: Integers
    bytes_down: Integers


def step_flops(module: nn.Module, inputs: Tensor, targets: Tensor) -> int:
    """FLOPs of one local step, forward and backward, of this module on this batch.

    Torch's counter does not see into fused kernels (LSTM, attention): they are run in their plain form while it counts.
    """
    return flops_by_module(module, inputs, targets)[""]


def flops_by_module(module: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, int]:
    """The same for every module inside, by its path; the empty path is the whole."""
    module.train()
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward})
    with _plain_kernels(), counter:
        F.cross_entropy(module(inputs), targets).backward()
    module.zero_grad(set_to_none=True)
    root = type(module).__name__
    counts = {name: sum(operations.values()) for name, operations in counter.get_flop_counts().items()}
    inside = {name.removeprefix(f"{root}."): int(flops) for name, flops in counts.items() if name.startswith(f"{root}.")}
    return {"": int(counter.get_total_flops()), **inside}


@contextmanager
def _plain_kernels() -> Iterator[None]:
    fused = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mkldnn.enabled = fused


def _convolution_backward(
    gradient: list[int], x: list[int], weight: list[int], *settings: Any, out_shape: Any = None, **_: Any
) -> int:
    """The gradients of a convolution cost as much as its forward each; torch's own formula ignores that groups share the work.

    Shapes in; `settings` are bias, stride, padding, dilation, transposed, output padding, groups and which gradients are wanted.
    """
    transposed, (to_input, to_weight, _bias) = settings[4], settings[7]
    positions = math.prod((x if transposed else gradient)[2:])
    return 2 * x[0] * positions * math.prod(weight) * (int(to_input) + int(to_weight))
