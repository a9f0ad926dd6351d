"""Flanc: one basis for all, a separate coefficient for every width, averaged only among clients of that
width.

Everything but the basis (coefficients, first and last layers, norms, biases) exists once per width, named
`<tensor>@<width>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heroes.fleet.costs import Costs
from heroes.messages import Assignment, Cohort, Facts, Plan, Selection, ServerState, Update
from heroes.models.family import Family
from heroes.models.layers import he_variance
from heroes.planning.loads import load_of, same_tau_plan, widths_afforded
from heroes.planning.schedule import LearningRate
from heroes.slices.blocks import grid_selection
from heroes.slices.compose import initial_factors
from heroes.slices.cuts import Cut, Overlay, Slice, overlay_mean

State = ServerState[None]


@dataclass(frozen=True)
class Flanc:
    """The scheme's settings. `step_limit` is mu_max in seconds; None: what the dense complete model takes on
    the fastest.
    """

    family: Family
    costs: Costs
    learning_rate: LearningRate
    tau: int
    step_limit: float | None
    count_download: bool = True
    overlay: Overlay = overlay_mean

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(range(1, self.family.max_width + 1))

    def begin(self, seed: int) -> State:
        """The bases that Heroes would start from; for every width fresh coefficients of He variance and the
        module's own rest.
        """
        whole = self.family.initial(seed)
        tensors = {p.basis: whole[p.basis] for p in self.family.parameters if p.layout}
        for width in self.widths:
            tensors |= self._of_width(width, seed)
        return ServerState(0, tensors, None)

    def _of_width(self, width: int, seed: int) -> dict[str, Tensor]:
        module = self.family.module(width, seed)
        values = dict(module.named_parameters())
        generator = torch.Generator().manual_seed(seed + width)
        tensors = {}
        for p in self.family.parameters:
            value = values[p.name].detach().clone()
            if p.layout is None:
                tensors[f"{p.name}@{width}"] = value
            else:
                variance = he_variance(module.get_submodule(p.sites[0][0]), p.layout, width, value)
                _, tensors[f"{p.coefficient}@{width}"] = initial_factors(
                    p.layout, p.rank, width, variance, generator
                )
        return tensors

    def cut(self, selection: Selection) -> Cut:
        """The basis, and all that belongs to this width."""
        width = selection.width
        bases = {p.basis for p in self.family.parameters if p.layout}
        return {
            name: Slice(name if name in bases else f"{name}@{width}")
            for name in self.family.tensor_shapes(width)
        }

    def serve(self, width: int) -> Selection:
        return grid_selection(tuple(range(width)), self.family.max_width)

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """Width by what the device affords, the same tau for all."""
        widths = widths_afforded(cohort, self.costs, self.step_limit)
        load = load_of(cohort, widths, self.costs, count_download=self.count_download)
        return same_tau_plan(
            state.round, cohort, load, self.learning_rate.at(state.round), self.serve, self.tau
        )

    def aggregate(
        self, state: State, plan: Plan, answers: Iterable[tuple[Assignment, Update]]
    ) -> tuple[State, Facts]:
        """The basis: the mean over all. The rest: within the width; a width without participants keeps its
        value.
        """
        tensors = self.overlay(
            state.tensors, ((self.cut(a.selection), update.tensors) for a, update in answers)
        )
        return replace(state, round=state.round + 1, tensors=tensors), {}
