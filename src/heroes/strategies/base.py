"""What every strategy is built on: its settings are its fields, and what a run gives it is its ground.

A strategy is one class in one file. Its fields are its section of the configuration; its class attributes say
what it holds and how it looks in plots; its methods decide who trains what for how long, and how answers
become the next model. It is frozen and remembers nothing: what must survive a round is in the state.

Importing a strategy does not import torch, so that a configuration can be read without it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator

from heroes.errors import HeroesError
from heroes.fields import Positive, Section, Whole
from heroes.messages import Assignment, Cohort, Facts, Floats, Integers, Plan, Selection, ServerState, Update
from heroes.planning.loads import Costs, LearningRate, Load, assignments, load_of, widths_afforded
from heroes.planning.pacing import Deadline, Limits, mean_deadline, step_intervals
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import Cut, Overlay, Part

if TYPE_CHECKING:
    from heroes.client.extras import Extra
    from heroes.client.terms import Term
    from heroes.contracts import Sampler
    from heroes.models.family import Family

Answers = Iterable[tuple[Assignment, Update]]
StepLimit = Annotated[
    Positive | Literal["shared", "own"],
    BeforeValidator(lambda given: "shared" if given == "auto" else given),  # its name before there were two
]


@dataclass(frozen=True)
class Ground:
    """What a run gives a strategy to stand on.

    `overlay` lays answers over the global tensors: by the mean, or a more robust way. `probes` is the number
    of batches that the configuration grants for estimates, made every `probe_every` rounds. `momentum` is
    that of the clients' SGD, 0 for another optimiser, and `stride` how far a step goes for its learning rate
    beside one of SGD. `one_pass` is how many steps the median client needs to see all its examples, None
    where that is not known. `up_bits` is that of `exchange`.
    """

    family: Family
    costs: Costs
    learning_rate: LearningRate
    overlay: Overlay
    rounds: int = 1
    time_budget: float | None = None
    count_download: bool = True
    probes: int = 0
    probe_every: int = 1
    momentum: float = 0.0
    stride: float = 1.0
    one_pass: float | None = None
    up_bits: int = 32


@dataclass(frozen=True)
class Duties:
    """What a strategy asks of its clients besides plain training.

    Args:
        probes: batches on which they measure their loss.
        terms: what is added to the loss.
        sends: what goes back besides the tensors.
        scaler: multiply hidden activations by what a narrow model lacks in width.
        mask_absent_labels: leave classes that a client does not hold out of its loss.
        any_width: share of steps that train the leading part of a client's slice, at a width drawn from 1
            to its own, instead of all of it.
        distil: train what a client holds on the labels in every step, and a narrower part that is drawn on
            what the whole says.
        tries_coarser: measure on one batch what the loss was, what it is after the change as it travels, and
            what it would be in half the bits.
    """

    probes: int = 0
    terms: tuple[Term, ...] = ()
    sends: tuple[Extra, ...] = ()
    scaler: bool = False
    mask_absent_labels: bool = False
    any_width: float = 0.0
    distil: bool = False
    tries_coarser: bool = False


class Strategy(Section):
    """A way to train a federation. By default it serves every width and averages over holders."""

    name: str = ""
    """the strategy"""

    holds: ClassVar[Literal["weights", "factors"]] = "weights"
    """what the global model consists of: dense weights, or basis and coefficient of every composed layer"""
    colour: ClassVar[str] = ""
    """in plots; one of the spare colours where it is empty"""
    marker: ClassVar[str] = "P"
    """in plots, as matplotlib names it"""
    tuned: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """for an experiment by name: settings of any section that suit it, if its file of tuned ones has none"""
    literal: ClassVar[Mapping[str, Any]] = {}
    """the settings that follow the publication to the letter, where they are not the defaults"""
    companions: ClassVar[Mapping[str, Any]] = {}
    """settings of other sections to start from with this strategy, where the experiment says nothing"""
    absent: ClassVar[Mapping[str, Any]] = {}
    """what a key means in a run folder of an earlier version, which has not got it, if not the default"""
    unforeseen: ClassVar[frozenset[str]] = frozenset()
    """its settings that matter only where nobody knows beforehand how fast clients are in a round"""
    tries: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """what `heroes tune` tries besides rates, steps and step limits: keys of any section, with values"""
    requires: ClassVar[Mapping[str, Any]] = {}
    """settings of other sections without which it would be another strategy, such as the server's optimiser;
    a configuration that takes the strategy takes them too, and refuses others
    """

    def on(self, ground: Ground) -> Self:
        """The same strategy, ready to run.

        Args:
            ground: what the run gives it.
        """
        ready = self.model_copy()
        ready.__dict__["ground"] = ground  # no field, and found sooner than what pydantic keeps as private
        return ready

    @cached_property
    def ground(self) -> Ground:
        """What the run gave it."""
        raise HeroesError(f"strategy {self.name!r} is in no run yet; strategy.on(ground) puts it there")

    @property
    def family(self) -> Family:
        """The model family that is trained."""
        return self.ground.family

    # what it asks of clients, and what they tell

    def duties(self, probes: int) -> Duties:
        """What clients do besides training: here nothing.

        Args:
            probes: the batches that the configuration grants for estimates.
        """
        return Duties()

    def sampler(self) -> Sampler | None:
        """Who chooses the clients, if the strategy does; None leaves it to `federation.sampler`."""
        return None

    def reveals(self) -> str | None:
        """What clients reveal that noise on their changes cannot hide, and what to do; or None."""
        return None

    @property
    def idle(self) -> frozenset[str]:
        """Its settings that are not read, as the others are: runs that differ in them alone are the same."""
        return frozenset()

    @property
    def steps_key(self) -> str | None:
        """The setting that says how many local steps clients do, in every round or the first; or None."""
        return next((name for name in ("tau", "tau_first") if name in type(self).model_fields), None)

    # the model

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths it can serve, narrowest first; the last is the complete model."""
        return tuple(range(1, self.family.max_width + 1))

    def begin(self, seed: int) -> ServerState[Any]:
        """The state before the first round.

        Args:
            seed: what the initial tensors are drawn from.
        """
        whole = self.family.initial if self.holds == "factors" else self.family.initial_weights
        return ServerState(0, whole(seed), None)

    def selection(self, width: int) -> Selection:
        """The part of the global model that is the model of a width: here its leading channel groups.

        Args:
            width: one of `widths`.
        """
        return grid_selection(tuple(range(width)), self.family.max_width)

    def cut(self, selection: Selection) -> Cut:
        """Where the tensors of a selection lie in the global tensors.

        Args:
            selection: what a client holds, or what is served at a width.
        """
        if self.holds == "factors":
            return self.family.cut(selection)
        return self.family.cut_weights(selection.groups)

    # a round

    def choose_widths(self, cohort: Cohort) -> Integers:
        """The width of every client, in the cohort's order: here the complete model for all.

        Args:
            cohort: who takes part, with speeds and links as far as they are known.
        """
        return np.full(len(cohort), self.family.max_width, dtype=np.int64)

    def afforded(self, cohort: Cohort, step_limit: StepLimit) -> Integers:
        """For every client the largest width whose step keeps to a limit.

        Args:
            cohort: who takes part.
            step_limit: seconds, or what a step of the complete model takes on the fastest devices: of the
                dense one (`shared`) or of the strategy's (`own`).
        """
        return widths_afforded(cohort, self.ground.costs, step_limit)

    def load(self, cohort: Cohort, gradients: int = 0, widths: Integers | None = None) -> Load:
        """What a round costs the clients, in seconds a step and a transfer, and in bytes.

        Args:
            cohort: who takes part.
            gradients: how many a client computes besides those of its steps.
            widths: what each holds; None for `choose_widths`.
        """
        held, ground = self.choose_widths(cohort) if widths is None else widths, self.ground
        return load_of(cohort, held, ground.costs, gradients=gradients, count_download=ground.count_download)

    @abstractmethod
    def assign(self, state: ServerState[Any], cohort: Cohort) -> Plan:
        """What every client does in this round, in the cohort's order.

        Args:
            state: the model, and what the strategy remembers, after the round before.
            cohort: who takes part.
        """

    def same_tau(
        self,
        state: ServerState[Any],
        cohort: Cohort,
        load: Load,
        tau: int,
        rule: str = "fixed",
        probes: bool = True,
    ) -> Plan:
        """A plan by which everyone trains what is selected for it for equally many steps.

        Args:
            state: after the round before.
            cohort: who takes part.
            load: what the round costs them.
            tau: the steps.
            rule: why so many, for the record.
            probes: whether clients measure in this round what `duties` asks for.
        """
        taus = [tau] * len(cohort)
        return Plan(self.given(state, cohort, load, taus, probes), {"tau_star": float(tau), "rule": rule})

    def own_taus(self, state: ServerState[Any], cohort: Cohort, load: Load, tau: int, tau_max: int) -> Plan:
        """A plan by which everyone does as many steps as end with the round.

        Args:
            state: after the round before.
            cohort: who takes part.
            load: what the round costs them.
            tau: the steps of the average client, which say how long the round is.
            tau_max: the most that anyone does.
        """
        seconds = mean_deadline(load.mu, load.nu, tau, 1, tau_max)
        steps = step_intervals(load.mu, load.nu, Deadline(seconds), 0.0, Limits(tau, 1, tau_max))
        given = self.given(state, cohort, load, steps.high.tolist(), stragglers=steps.straggler.tolist())
        return Plan(given, {"tau_star": float(tau), "rule": "time", "deadline": seconds})

    def given(
        self,
        state: ServerState[Any],
        cohort: Cohort,
        load: Load,
        taus: Sequence[int],
        probes: bool = True,
        stragglers: Sequence[bool] | None = None,
    ) -> tuple[Assignment, ...]:
        """What every client is given: what is selected for it, and so many steps.

        Args:
            state: after the round before.
            cohort: who takes part.
            load: what the round costs them; its widths are theirs.
            taus: the steps of each.
            probes: whether clients measure in this round what `duties` asks for.
            stragglers: which of them cannot keep up, for the record; None for nobody.
        """
        each = zip(load.widths.tolist(), cohort.clients.tolist(), strict=True)
        selections = [self.select_for(client, state, width) for width, client in each]
        rate = self.ground.learning_rate.at(state.round)
        return assignments(state.round + 1, cohort, load, rate, selections, taus, stragglers, probes)

    def sent_up(self, cohort: Cohort, load: Load, bits: Sequence[int], shares: Sequence[float]) -> Load:
        """The load of a round in which uploads differ.

        Args:
            cohort: who takes part.
            load: what the round costs with the uploads that `exchange` says.
            bits: the bits a value of each client's upload.
            shares: the share of its values that each sends.
        """
        assert self.ground.costs.upload is not None
        each = zip(load.widths.tolist(), bits, shares, strict=True)
        sizes = [self.ground.costs.upload(width, bit, share) for width, bit, share in each]
        return load.sending(cohort, np.array(sizes, dtype=np.int64))

    def upload_seconds(self, cohort: Cohort, load: Load) -> Floats:
        """The seconds that each client's upload takes; where only a whole transfer is known, that.

        Args:
            cohort: who takes part.
            load: what the round costs them.
        """
        return np.where(np.isfinite(cohort.upload), load.bytes_up / cohort.upload, load.transfer)

    def select_for(self, client: int, state: ServerState[Any], width: int) -> Selection:
        """What one client trains in this round: here what all of its width do.

        Args:
            client: its number.
            state: after the round before.
            width: its width.
        """
        return self.select(state, width)

    def select(self, state: ServerState[Any], width: int) -> Selection:
        """What clients of a width train in this round: here what is served at that width.

        Args:
            state: after the round before.
            width: their width.
        """
        return self.selection(width)

    def aggregate(
        self, state: ServerState[Any], plan: Plan, answers: Answers
    ) -> tuple[ServerState[Any], Facts]:
        """The state after the round, and what to record of it.

        Args:
            state: after the round before.
            plan: what `assign` said.
            answers: assignments with what came back, in the plan's order, one at a time; whoever was lost is
                not among them.
        """
        return self.averaged(state, (self.part(*answer) for answer in answers)), {}

    def part(self, assignment: Assignment, update: Update) -> Part:
        """What one answer adds to the model, and where.

        Args:
            assignment: what the client was given.
            update: what it sent back.
        """
        return self.cut(assignment.selection), update.tensors

    def averaged(self, state: ServerState[Any], parts: Iterator[Part]) -> ServerState[Any]:
        """The state of the next round: every element is the mean over its holders, or its old value.

        Args:
            state: after the round before.
            parts: what the answers add, one at a time.
        """
        return replace(state, round=state.round + 1, tensors=self.ground.overlay(state.tensors, parts))


class SameTau(Strategy):
    """A strategy under which everyone does the same number of local steps in every round."""

    tau: Whole = 10
    """local steps of everyone in every round"""

    def assign(self, state: ServerState[Any], cohort: Cohort) -> Plan:
        return self.same_tau(state, cohort, self.load(cohort), self.tau)


class WholeModel(SameTau):
    """A strategy under which everyone trains the complete dense model."""

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.family.max_width,)
