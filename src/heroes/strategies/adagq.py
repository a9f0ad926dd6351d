"""AdaGQ: FedAvg whose uploads have as many bits as pay, and more of them on faster links.

In a round that measures, each client tells its loss on one batch before its change, after it as it travels,
and after it in half the bits. Where the coarser upload would have lowered the loss more for every second it
takes, the mean number of bits falls by one, else it rises by one: the number of levels is halved or doubled.
It falls further as the global change becomes smaller. Within a round, bits are such that all clients end
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from heroes.fields import NotNegative
from heroes.messages import Assignment, Cohort, Facts, Floats, Plan, ServerState, Tensors, Update
from heroes.planning.solving import root
from heroes.slices.cuts import Part
from heroes.slices.exchange import halved
from heroes.strategies.base import Answers, Duties, WholeModel

_BITS = (2, 4, 8, 16)  # of those that uploads can have
Bits = Literal[2, 4, 8, 16]


@dataclass(frozen=True)
class AdaMemory:
    """The mean number of bits, and how large the last global change was."""

    bits: float
    norm: float | None = None

    def fits(self, begin: AdaMemory) -> bool:
        """Whether a run that began so can have come to this."""
        return _BITS[0] <= self.bits <= _BITS[-1] and (self.norm is None or 0 <= self.norm < math.inf)


State = ServerState[AdaMemory]


class AdaGQ(WholeModel):
    """FedAvg with uploads in as many bits as pay, different for every client and round."""

    name: Literal["adagq"] = "adagq"
    """the strategy"""
    first_bits: Bits = 8
    """mean bits of a value in the first round"""
    least_bits: Bits = 2
    """fewest bits of a client"""
    most_bits: Bits = 16
    """most bits of a client"""
    by_norm: NotNegative = 1.0
    """lambda: bits that go when the global change halves"""

    tries = MappingProxyType({"strategy.first_bits": (4, 16)})
    colour = "#AA4499"
    marker = "p"

    @model_validator(mode="after")
    def _bits_in_order(self) -> Self:
        if not self.least_bits <= self.first_bits <= self.most_bits:
            raise ValueError(
                f"least_bits, first_bits, most_bits are {self.least_bits}, {self.first_bits}, "
                f"{self.most_bits}; they must not decrease in this order"
            )
        return self

    def duties(self, probes: int) -> Duties:
        return Duties(tries_coarser=True)

    def reveals(self) -> str | None:
        return "the losses that AdaGQ chooses bits by; use another strategy"

    def begin(self, seed: int) -> State:
        return replace(super().begin(seed), memory=AdaMemory(float(self.first_bits)))

    def assign(self, state: State, cohort: Cohort) -> Plan:
        """Bits with which all end together; three losses are measured at about the price of a gradient."""
        probing = state.round % self.ground.probe_every == 0
        load = self.load(cohort, gradients=int(probing))
        whole = self.sent_up(cohort, load, [32] * len(cohort), [1.0] * len(cohort))
        seconds = self.upload_seconds(cohort, whole)
        each = seconds / 32  # of one bit of every value
        wanted = self.ending_together(each, self.tau * load.mu + whole.nu - seconds, state.memory.bits)
        bits = [max(bit for bit in _BITS if bit <= max(few, self.least_bits)) for few in wanted.tolist()]
        load = self.sent_up(cohort, load, bits, [1.0] * len(cohort))
        plan = self.same_tau(state, cohort, load, self.tau, probes=probing)
        given = zip(plan.assignments, bits, strict=True)
        facts = {
            **plan.facts,
            "bits": bits,
            "mean_bits": state.memory.bits,
            "links": (whole.bytes_up / seconds).tolist(),
        }
        return Plan(tuple(replace(a, up_bits=bit) for a, bit in given), facts)

    def ending_together(self, each: Floats, besides: Floats, mean: float) -> Floats:
        """Bits of every client with which uploads end together, of this mean.

        `each` is the seconds of one bit, `besides` what comes before the upload.
        """

        def bits(deadline: float) -> Floats:
            return np.clip((deadline - besides) / each, self.least_bits, self.most_bits)

        most = float((besides + self.most_bits * each).max())
        return bits(root(lambda deadline: float(bits(deadline).mean()) - mean, 0.0, most))

    def aggregate(self, state: State, plan: Plan, answers: Answers) -> tuple[State, Facts]:
        """The mean over clients; then the mean number of bits of the next round."""
        rates: list[tuple[float, float]] = []
        clients = (a.client for a in plan.assignments)
        links = dict(zip(clients, plan.facts["links"], strict=True))
        after = self.averaged(state, self._parts(answers, links, rates))
        norm = distance(state.tensors, after.tensors)
        bits = state.memory.bits + step(rates) + self.by_norm * _doublings(state.memory.norm, norm)
        memory = AdaMemory(min(max(bits, self.least_bits), self.most_bits), norm)
        return replace(after, memory=memory), {"norm": norm}

    def _parts(
        self, answers: Answers, links: dict[int, float], rates: list[tuple[float, float]]
    ) -> Iterator[Part]:
        for assignment, update in answers:
            if (found := self._rates(assignment, update, links[assignment.client])) is not None:
                rates.append(found)
            yield self.part(assignment, update)

    def _rates(self, assignment: Assignment, update: Update, link: float) -> tuple[float, float] | None:
        """By how much the loss fell each second, as the upload travelled and if it had half the bits."""
        told = [update.measured.get(f"loss_{when}") for when in ("before", "sent", "coarser")]
        before, sent, coarser = (math.nan if loss is None else loss for loss in told)
        upload, bits = self.ground.costs.upload, assignment.up_bits
        if math.isnan(before + sent + coarser) or upload is None or bits in (None, _BITS[0]):
            return None  # in the fewest bits nothing is coarser, whatever a client says
        saved = (assignment.bytes_up - upload(assignment.selection.width, halved(bits), 1.0)) / link
        return (before - sent) / assignment.seconds, (before - coarser) / (assignment.seconds - saved)


def step(rates: Sequence[tuple[float, float]]) -> float:
    """-1 where coarser uploads would pay, 1 where they would not, 0 where nobody knows or both are equal."""
    if not rates:
        return 0.0
    now, coarser = (float(column) for column in np.median(np.array(rates), axis=0))
    return 0.0 if now == coarser else -1.0 if coarser > now else 1.0


def distance(one: Tensors, two: Tensors) -> float:
    """How far two models are apart."""
    squares = (float((two[name].double() - tensor.double()).square().sum()) for name, tensor in one.items())
    return math.sqrt(sum(squares))


def _doublings(before: float | None, now: float) -> float:
    return math.log2(now / before) if before and now else 0.0
