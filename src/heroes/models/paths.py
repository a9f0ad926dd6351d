"""Three ways to compute a composed layer, equal up to rounding, and the rule that picks the quickest.

`compose` builds the weight and runs the dense layer. `factored` runs every input group through the basis and
mixes the results. `columns` does the same for a convolution by matrix products over gathered patches, which
is quicker when images are small.

The rule looks at shapes and precision only, never at a clock, so that the same run takes the same path on
every machine. Its prices are seconds per unit of work, fitted to measured steps (`python -m benchmarks.paths`
measures them anew and says how often the rule is right). They are part of a run's bits, so they stay as they
are while the rule is right; what a step takes is asked of `prices`, which may be fitted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from heroes.slices.compose import Layout

Prices = Mapping[str, tuple[float, ...]]
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
    bfloat16: bool = False

    @property
    def prices(self) -> Prices:
        """What this kind of layer costs on the paths it has."""
        return (CONVOLUTION if self.layout.kernel else LINEAR)[self.bfloat16]

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
        return cost(self.amounts(path), self.prices[path])


CONVOLUTION: dict[bool, Prices] = {
    False: {
        COMPOSE: (7.3e-4, 9.4e-11, 5.5e-11, 1.1e-8),
        FACTORED: (8.1e-4, 9.7e-11, 8.3e-11, 2.1e-9, 1.0e-8),
        COLUMNS: (3.2e-4, 4.3e-11, 8.4e-11, 6.5e-9),
    },
    True: {
        COMPOSE: (6.4e-4, 3.1e-11, 2.8e-11, 3.7e-9),
        FACTORED: (6.2e-4, 2.4e-11, 4.7e-11, 1.5e-9, 5.4e-9),
        COLUMNS: (5.2e-4, 2.1e-11, 3.0e-11, 2.6e-9),
    },
}
"""by whether it is computed in bfloat16"""
LINEAR: dict[bool, Prices] = {
    False: {
        COMPOSE: (2.5e-4, 8.0e-11, 7.7e-11, 0.0),
        FACTORED: (2.0e-4, 4.5e-11, 7.9e-11, 1.4e-9, 3.3e-9),
    },
    True: {
        COMPOSE: (3.8e-4, 3.4e-11, 2.4e-11, 5.8e-10),
        FACTORED: (3.6e-4, 2.8e-11, 3.2e-11, 4.0e-10, 2.4e-9),
    },
}


def cost(amounts: Sequence[float], prices: Sequence[float]) -> float:
    """So much of everything at these prices."""
    return sum(amount * price for amount, price in zip(amounts, prices, strict=True))


@lru_cache(maxsize=1024)
def quickest(work: Work) -> str:
    """The path with the least expected time; axes that are stacked from parts are always composed."""
    layout = work.layout
    if layout.stacked:
        return COMPOSE
    return min(work.prices, key=work.seconds)
