"""HeteroFL: each client trains the leading channels of the dense model, as many as its device affords; the
mean over holders.

The official code's extras are options: `scaler` divides hidden activations by the width's share in training,
`mask_absent_labels` keeps a client's loss from pushing down classes it does not hold (both happen in local
training), and `label_split` averages each row of the classifier only over clients that hold its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from heroes.fleet.costs import Costs
from heroes.messages import Assignment, Cohort, Facts, Plan, Selection, ServerState, Tensors, Update
from heroes.models.family import Family
from heroes.planning.loads import load_of, same_tau_plan, widths_afforded
from heroes.planning.schedule import LearningRate
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import Cut, Overlay, Slice, overlay_mean

State = ServerState[None]


@dataclass(frozen=True)
class HeteroFL:
    """The scheme's settings. `step_limit` is mu_max in seconds; None: what the dense complete model takes on
    the fastest.
    """

    family: Family
    costs: Costs
    learning_rate: LearningRate
    tau: int
    step_limit: float | None
    label_split: bool = False
    count_download: bool = True
    overlay: Overlay = overlay_mean

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(range(1, self.family.max_width + 1))

    def begin(self, seed: int) -> State:
        return ServerState(0, self.family.initial_weights(seed), None)

    def cut(self, selection: Selection) -> Cut:
        """The leading indices along every axis that grows with the width."""
        return self.family.cut_weights(selection.groups)

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
        """Element by element the plain mean over the clients that hold it."""
        return replace(
            state, round=state.round + 1, tensors=self.overlay(state.tensors, self._parts(answers))
        ), {}

    def _parts(self, answers: Iterable[tuple[Assignment, Update]]) -> Iterator[tuple[Cut, Tensors]]:
        for assignment, update in answers:
            cut = self.cut(assignment.selection)
            yield self._own_rows(cut, update) if "labels" in update.extras else (cut, update.tensors)

    def _own_rows(self, cut: Cut, update: Update) -> tuple[Cut, Tensors]:
        """Keep of the classifier only the rows of the classes that the client holds."""
        rows = update.extras["labels"]
        narrowed: dict[str, Slice] = dict(cut)
        tensors: Mapping[str, torch.Tensor] = dict(update.tensors)
        for name in self.family.classifier:
            narrowed[name] = Slice(cut[name].source, ((0, rows), *cut[name].axes))
            tensors = {**tensors, name: update.tensors[name].index_select(0, rows)}
        return narrowed, tensors
