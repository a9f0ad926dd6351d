"""Three ways to compute a composed layer, equal up to rounding, and the rule that picks the quickest.

`compose` builds the weight and runs the dense layer. `factored` runs every input group through the basis and
mixes the results. `columns` does the same for a convolution by matrix products over gathered patches, which
is quicker when images are small.

The rule looks at shapes only, never at a clock, so that the same run takes the same path on every machine.
Its prices are seconds per unit of work, fitted to measured steps (`python -m benchmarks.paths` measures and
fits them anew). Dense layers have prices too, for those who ask what a step takes (`prices`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from heroes.slices.compose import Layout

COMPOSE, FACTORED, COLUMNS = "compose", "factored", "columns"


@dataclass(frozen=True)
class Work:
    """What a layer is given: its sizes, and at how many positions (pixels or rows) it is computed."""

    layout: Layout
    rank: int
    width: int
    inputs: int
    """input positions"""
    outputs: int
    """output positions"""

    def amounts(self, path: str) -> tuple[float, ...]:
        """How much there is of everything that takes time on this path, in the prices' order."""
        layout, p, rank = self.layout, self.width, self.rank
        grid = p * p * layout.outputs
        through_basis = self.outputs * layout.basis_rows * p * rank
        mixed = self.outputs * grid * rank
        if path == COMPOSE:
            dense = self.outputs * layout.basis_rows * grid
            return 1.0, dense, layout.basis_rows * grid * rank, layout.basis_rows * grid
        moved = self.inputs * layout.inputs * p + self.outputs * rank * p
        if path == FACTORED:
            return 1.0, through_basis, mixed, moved, layout.basis_rows * rank
        return 1.0, through_basis, mixed, self.outputs * layout.basis_rows * p

    def seconds(self, path: str) -> float:
        """What a training step of this layer takes, about."""
        return _priced(self.amounts(path), (CONVOLUTION if self.layout.kernel else LINEAR)[path])


CONVOLUTION = {
    COMPOSE: (7.3e-4, 9.4e-11, 5.5e-11, 1.1e-8),
    FACTORED: (8.1e-4, 9.7e-11, 8.3e-11, 2.1e-9, 1.0e-8),
    COLUMNS: (3.2e-4, 4.3e-11, 8.4e-11, 6.5e-9),
}
LINEAR = {
    COMPOSE: (2.5e-4, 8.0e-11, 7.7e-11, 0.0),
    FACTORED: (2.0e-4, 4.5e-11, 7.9e-11, 1.4e-9, 3.3e-9),
}


PLAIN_CONVOLUTION = (3.2e-4, 7.9e-11, 1.8e-9, 6.9e-9)
PLAIN_LINEAR = (5.4e-5, 6.8e-11, 7.9e-10, 1.2e-9)
"""Of dense layers: for the layer, a product, a value in or out, and a weight."""


def plain_amounts(flops: float, values: int, weights: int) -> tuple[float, ...]:
    """How much there is of everything that takes time in a dense layer, in the prices' order.

    Values are those that go in and come out.
    """
    return 1.0, flops / 6, values, weights  # a product and its two gradients are six FLOPs


def plain_seconds(convolution: bool, flops: float, values: int, weights: int) -> float:
    """What a training step of a dense layer takes, about."""
    return _priced(plain_amounts(flops, values, weights), PLAIN_CONVOLUTION if convolution else PLAIN_LINEAR)


def _priced(amounts: tuple[float, ...], prices: tuple[float, ...]) -> float:
    return sum(amount * price for amount, price in zip(amounts, prices, strict=True))


@lru_cache(maxsize=1024)
def quickest(work: Work) -> str:
    """The path with the least expected time; axes that are stacked from parts are always composed."""
    layout = work.layout
    if layout.stacked:
        return COMPOSE
    return min(CONVOLUTION if layout.kernel else LINEAR, key=work.seconds)
