"""Flanc: one basis for all, and for every width a coefficient that is averaged among its own clients.

Everything but the basis (coefficients, first and last layers, norms, biases) exists once per width, named
`<tensor>@<width>`. A width that nobody trained in a round keeps its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from heroes.fields import NotNegative
from heroes.messages import Cohort, Integers, Selection, ServerState
from heroes.slices.cuts import Cut, Slice
from heroes.strategies.base import Duties, SameTau, StepLimit

if TYPE_CHECKING:
    from torch import Tensor


class Flanc(SameTau):
    """A shared basis, and a separate coefficient for every width."""

    name: Literal["flanc"] = "flanc"
    """the strategy"""
    step_limit: StepLimit = "shared"
    """mu_max: seconds a local step may take; or what a step of the complete model takes on the fastest device
    class: shared is that of the dense model, the same for all strategies, own that of the model it trains
    """
    regulariser: NotNegative = 0.1
    """weight of the orthogonality penalty on every basis"""

    holds = "factors"
    colour = "#CC79A7"
    marker = "v"
    companions: ClassVar = {"model.rank_ratio": 0.25}
    tries: ClassVar = {"model.rank_ratio": (0.25, 0.5, 1.0)}

    def duties(self, probes: int) -> Duties:
        from heroes.client.terms import Orthogonality

        return Duties(terms=(Orthogonality(self.regulariser),) if self.regulariser else ())

    def begin(self, seed: int) -> ServerState[Any]:
        """The bases that Heroes starts from, and for every width new coefficients and other tensors.

        Coefficients compose to weights as large as those of the module of that width; the rest starts as that
        module has it.
        """
        whole = self.family.initial(seed)
        tensors = {p.basis: whole[p.basis] for p in self.family.parameters if p.layout}
        for width in self.widths:
            tensors |= self._of_width(width, seed)
        return ServerState(0, tensors, None)

    def _of_width(self, width: int, seed: int) -> dict[str, Tensor]:
        import torch

        from heroes.slices.compose import initial_factors, mean_square

        values = dict(self.family.module(width, seed).named_parameters())
        generator = torch.Generator().manual_seed(seed + width)
        tensors = {}
        for p in self.family.parameters:
            value = values[p.name].detach().clone()
            if p.layout is None:
                tensors[f"{p.name}@{width}"] = value
            else:
                fresh = initial_factors(p.layout, p.rank, width, mean_square(value), generator)
                tensors[f"{p.coefficient}@{width}"] = fresh[1]
        return tensors

    def choose_widths(self, cohort: Cohort) -> Integers:
        return self.afforded(cohort, self.step_limit)

    def cut(self, selection: Selection) -> Cut:
        """The basis, and all that belongs to this width."""
        width = selection.width
        bases = {p.basis for p in self.family.parameters if p.layout}
        names = self.family.tensor_shapes(width)
        return {name: Slice(name if name in bases else f"{name}@{width}") for name in names}
