"""Which axes are stacked from parts: the gates of an LSTM, the Q, K and V of attention, a concatenation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from heroes.errors import ModelError

Parts = int | tuple[int, ...]
"""So many equal parts, or the sizes of unequal ones."""


def stacked(
    module: nn.Module, outputs: int | Sequence[int] = 1, inputs: int | Sequence[int] = 1
) -> nn.Module:
    """Declare that a layer's output (or input) axis is stacked from parts, and return the layer.

    A number says how many equal parts there are: a fused projection `nn.Linear(e * width, 3 * e * width)` for
    Q, K and V is `stacked(nn.Linear(...), outputs=3)`. A list gives the sizes of unequal ones: a convolution
    that reads 16 and 8 channels per width, one after the other, is `stacked(nn.Conv2d(24 * width, ...),
    inputs=[16 * width, 8 * width])`. A norm over them is told by `outputs`. Each part is then split into
    channel groups by itself. Torch's own recurrent layers, cells and attention need no declaration.

    Args:
        module: the layer.
        outputs: the parts of its output axis.
        inputs: the parts of its input axis.
    """
    module._heroes_parts = _given("outputs", outputs), _given("inputs", inputs)  # type: ignore[assignment]
    return module


def _given(side: str, parts: int | Sequence[int]) -> Parts:
    numbers = (parts,) if isinstance(parts, int) else tuple(parts)
    if not numbers or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in numbers):
        raise ModelError(
            f"stacked({side}={parts!r}): give how many equal parts there are, or a list of their sizes"
        )
    return parts if isinstance(parts, int) else numbers


def stacked_parts(module: nn.Module, parameter: str) -> tuple[Parts, Parts]:
    """From which parts the first two axes of this module's parameter, outputs and inputs, are stacked."""
    outputs, inputs = _known(module, parameter)
    said: tuple[Parts, Parts] = getattr(module, "_heroes_parts", (1, 1))
    inner = isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and not _reads_input(parameter)
    found = (outputs if said[0] == 1 else said[0]), (inputs if said[1] == 1 or inner else said[1])
    return (found[1], found[0]) if _is_turned(module, parameter) else found


def _is_turned(module: nn.Module, parameter: str) -> bool:
    """Whether torch keeps this weight with the inputs first."""
    kinds = (nn.Embedding, nn.EmbeddingBag, nn.modules.conv._ConvTransposeNd)
    return isinstance(module, kinds) and parameter.startswith("weight")


def _known(module: nn.Module, parameter: str) -> tuple[int, int]:
    """What is known of torch's own layers."""
    if isinstance(module, (nn.LSTMCell, nn.GRUCell)):
        return 4 if isinstance(module, nn.LSTMCell) else 3, 1
    if isinstance(module, nn.RNNBase) and not parameter.startswith("weight_hr"):
        gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1)
        deeper = parameter.startswith("weight_ih_l") and not _reads_input(parameter)
        return gates, 2 if module.bidirectional and deeper else 1
    if isinstance(module, nn.MultiheadAttention) and parameter.startswith("in_proj"):
        return 3, 1
    return 1, 1


def _reads_input(parameter: str) -> bool:
    """Whether a recurrent layer applies this parameter to its inputs, not to what is hidden in it."""
    return parameter.startswith("weight_ih") and (
        parameter.startswith("weight_ih_l0") or not parameter.startswith("weight_ih_l")
    )


def in_units(parts: Parts, size: int) -> tuple[int, ...] | None:
    """The sizes of the parts of an axis of this size; None where they do not fill it.

    >>> in_units(3, 12), in_units((4, 2), 12), in_units((4, 3), 12)
    ((4, 4, 4), (8, 4), None)
    """
    shares = (1,) * parts if isinstance(parts, int) else parts
    if any(size * share % sum(shares) for share in shares):
        return None
    return tuple(size * share // sum(shares) for share in shares)
