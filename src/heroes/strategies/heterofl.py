"""HeteroFL: a client trains the leading channels of the dense model; elements are averaged over holders.

The official code's extras are options: `scaler` divides hidden activations by the width's share in training,
`mask_absent_labels` keeps a client's loss from pushing down classes it does not hold (both happen in local
training), and `label_split` averages each row of the classifier only over clients that hold its class.
"""

from __future__ import annotations

from typing import Literal

from heroes.messages import Assignment, Cohort, Integers, Update
from heroes.slices.cuts import Part, Slice
from heroes.strategies.base import Duties, SameTau, StepLimit


class HeteroFL(SameTau):
    """The leading channels of the dense model, as many as a device affords."""

    name: Literal["heterofl"] = "heterofl"
    """the strategy"""
    step_limit: StepLimit = "shared"
    """mu_max: seconds a local step may take; or what a step of the complete model takes on the fastest device
    class: shared is that of the dense model, the same for all strategies, own that of the model it trains
    """
    scaler: bool = False
    """divide hidden activations by the width's share of the full width, in training; a model without a
    convolution or linear layer before its last has none to divide, and is refused
    """
    mask_absent_labels: bool = False
    """set the scores of classes that a client does not hold to zero, in training"""
    label_split: bool = False
    """average a row of the classifier only over clients that hold its class"""

    colour = "#009E73"
    marker = "^"

    def duties(self, probes: int) -> Duties:
        from heroes.client.extras import LABELS

        sends = (LABELS,) if self.label_split else ()
        return Duties(sends=sends, scaler=self.scaler, mask_absent_labels=self.mask_absent_labels)

    def reveals(self) -> str | None:
        if not self.label_split:
            return None
        return "the classes that strategy.label_split tells the server; use label_split = false"

    def choose_widths(self, cohort: Cohort) -> Integers:
        return self.afforded(cohort, self.step_limit)

    def part(self, assignment: Assignment, update: Update) -> Part:
        """What a client trained; of the classifier only the rows of its own classes, if it says which."""
        cut, tensors = super().part(assignment, update)
        rows = update.extras.get("labels") if self.label_split else None
        if rows is None:
            return cut, tensors
        classifier = self.family.classifier
        narrowed = {name: Slice(cut[name].source, ((0, rows), *cut[name].axes)) for name in classifier}
        return {**cut, **narrowed}, {
            **tensors,
            **{name: tensors[name].index_select(0, rows) for name in classifier},
        }
