"""FedAvg: everyone trains the whole dense model for the same number of steps; the new model is the mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from heroes.fleet.costs import Costs
from heroes.messages import Assignment, Cohort, Facts, Plan, Selection, ServerState, Update
from heroes.models.family import Family
from heroes.planning.loads import load_of, same_tau_plan
from heroes.planning.schedule import LearningRate
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import Cut, Overlay, overlay_mean

State = ServerState[None]


@dataclass(frozen=True)
class FedAvg:
    """The scheme's settings."""

    family: Family
    costs: Costs
    learning_rate: LearningRate
    tau: int
    count_download: bool = True
    overlay: Overlay = overlay_mean

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.family.max_width,)

    def begin(self, seed: int) -> State:
        return ServerState(0, self.family.initial_weights(seed), None)

    def cut(self, selection: Selection) -> Cut:
        """Everything."""
        return self.family.cut_weights(selection.groups)

    def serve(self, width: int) -> Selection:
        return grid_selection(tuple(range(width)), self.family.max_width)

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """The whole model and the same tau for all."""
        widths = np.full(len(cohort), self.family.max_width, dtype=np.int64)
        load = load_of(cohort, widths, self.costs, count_download=self.count_download)
        return same_tau_plan(
            state.round, cohort, load, self.learning_rate.at(state.round), self.serve, self.tau
        )

    def aggregate(
        self, state: State, plan: Plan, answers: Iterable[tuple[Assignment, Update]]
    ) -> tuple[State, Facts]:
        """The plain mean over clients."""
        tensors = self.overlay(
            state.tensors, ((self.cut(a.selection), update.tensors) for a, update in answers)
        )
        return replace(state, round=state.round + 1, tensors=tensors), {}
