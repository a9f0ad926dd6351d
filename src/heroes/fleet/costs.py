"""What things cost: floating-point operations counted from the real module, bytes from the real tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper
from torch.utils.module_tracker import ModuleTracker

MeanLoss = Callable[[Tensor, Tensor], Tensor]


def free(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss that costs no FLOPs, as those that work element by element do."""
    return outputs.sum()


def step_flops(module: nn.Module, inputs: Tensor, targets: Tensor, mean_loss: MeanLoss = free) -> int:
    """FLOPs of one local step, forward and backward, of this module on this batch.

    Torch's counter does not see into fused kernels (LSTM, attention): they are run in their plain form while
    it counts.
    """
    return flops_by_module(module, inputs, targets, mean_loss)[""]


def flops_by_module(
    module: nn.Module, inputs: Tensor, targets: Tensor, mean_loss: MeanLoss = free
) -> dict[str, int]:
    """The same for every module inside, by its path; the empty path is the whole."""
    module.train()
    with _plain_kernels(), ModuleTracker() as tracker, _Counter(tracker) as counter:
        mean_loss(module(inputs), targets).backward()
    module.zero_grad(set_to_none=True)
    root = f"{type(module).__name__}."
    inside = {
        name.removeprefix(root): flops for name, flops in counter.flops.items() if name.startswith(root)
    }
    return {"": counter.flops["Global"], **inside}


def forward_flops(module: nn.Module, inputs: Tensor) -> int:
    """FLOPs of one forward pass in evaluation mode, with gradients on: without, fused kernels hide some."""
    module.eval()
    with _plain_kernels(), ModuleTracker() as tracker, _Counter(tracker) as counter:
        module(inputs)
    return int(counter.flops["Global"])


class _Counter(TorchDispatchMode):
    """Counts FLOPs by torch's formulas, for every module that the tracker is in.

    Torch's own `FlopCounterMode` does this too, but to use it imports torch's compiler, which takes seconds.
    """

    def __init__(self, tracker: ModuleTracker) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracker = tracker
        self.flops: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kind = func._overloadpacket
        if kind not in _FORMULAS and func is not torch.ops.prim.device.default:
            with self:  # what it is made of is counted, if it is made of something
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        if kind in _FORMULAS:
            flops = int(_FORMULAS[kind](*args, **kwargs, out_val=out))
            self.flops.update(dict.fromkeys(self.tracker.parents, flops))
        return out


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
    """The FLOPs of a convolution's gradients, each as many as the forward pass takes.

    Torch's own formula ignores that groups share the work. Shapes in; `settings` are bias, stride, padding,
    dilation, transposed, output padding, groups and which gradients are wanted.
    """
    transposed, (to_input, to_weight, _bias) = settings[4], settings[7]
    positions = math.prod((x if transposed else gradient)[2:])
    return 2 * x[0] * positions * math.prod(weight) * (int(to_input) + int(to_weight))


_FORMULAS = {**flop_registry, torch.ops.aten.convolution_backward: shape_wrapper(_convolution_backward)}
