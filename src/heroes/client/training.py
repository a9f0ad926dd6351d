"""The client's whole job: load a slice, run tau steps on its own data, report what it saw."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, repeat

import numpy as np
import torch
from torch import Tensor, nn

from heroes import seeds
from heroes.client.extras import Extra, Seen
from heroes.client.objectives import CLASSIFICATION, Objective
from heroes.client.optimisers import Sgd
from heroes.client.probing import Batch, Probe, estimate, probe
from heroes.client.terms import Term
from heroes.contracts import LocalOptimiser
from heroes.data.examples import Examples
from heroes.errors import ExchangeError, said
from heroes.messages import LEAST_PART, Assignment, Integers, Lost, Task, Tensors, Update
from heroes.models.family import Family, LocalModel
from heroes.models.pools import pool_first
from heroes.models.statistics import at_hand
from heroes.slices.cuts import cut_out
from heroes.slices.exchange import UP_BITS, halved
from heroes.slices.uploads import Upload, pack_update, pack_with_feedback, unpack_update

_TICK = 1e-9  # seconds; no step takes less


@dataclass(frozen=True)
class LocalSettings:
    """How clients train, the same for all of them.

    Args:
        train_in: "factors" trains basis and coefficient through the composition; "weights" trains the
            composed weights and decomposes them afterwards; "dense" is for strategies without composition.
        terms: added to the loss at every step.
        clip: the largest norm of a gradient.
        precision: in what models are computed, "float32" or "bfloat16"; what is moved stays float32.
        sends: what goes back besides the tensors.
        up_bits, up_share: of a value on its way up, and of a change's values that travel, where a task does
            not say otherwise.
        scaler, mask_absent_labels: HeteroFL's extras.
        any_width: share of steps at a width drawn from 1 to the client's own.
        tries_coarser: tell the losses before and after the change as it travels, and in half the bits.
        utility: tell how useful the client is to the model, for a sampler that goes by it.
        distil: in such a step the widest learns the labels, and the narrower one what the widest says.
    """

    batch_size: int = 32
    objective: Objective = CLASSIFICATION
    terms: tuple[Term, ...] = ()
    optimiser: LocalOptimiser = field(default_factory=Sgd)
    clip: float | None = None
    precision: str = "float32"
    train_in: str = "factors"
    probes: int = 2
    up_bits: int = 32
    up_share: float = 1.0
    scaler: bool = False
    mask_absent_labels: bool = False
    any_width: float = 0.0
    distil: bool = False
    utility: bool = False
    tries_coarser: bool = False
    sends: tuple[Extra, ...] = ()


class Trainer:
    """Trains tasks, one after the other. Keeps one model per width."""

    def __init__(self, family: Family, settings: LocalSettings, device: torch.device | None = None) -> None:
        self.family = family
        self.settings = settings
        self.device = device or torch.device("cpu")
        self._models: dict[tuple[str, int], LocalModel] = {}

    def answer(self, task: Task, examples: Examples, share: Integers) -> Update | Lost:
        """One client's round, or what went wrong in it, so that one client does not end a run."""
        try:
            return self.train(task, examples, share)
        except Exception as error:  # the user's model and transform can fail in any way
            return Lost(task.assignment.client, said(error))

    def train(self, task: Task, examples: Examples, share: Integers) -> Update:
        """One client's round, as the server will see it."""
        update = self.trained(task, examples, share)
        packed, residuals = self.packed(task, update.tensors)
        tensors = update.tensors if packed is None else unpack_update(packed, task.tensors)
        return replace(update, tensors=tensors, residuals=residuals)

    def trained(self, task: Task, examples: Examples, share: Integers) -> Update:
        """One client's round, before anything is rounded."""
        settings, assignment = self.settings, task.assignment
        width = assignment.selection.width
        targets = examples.targets[torch.from_numpy(share)]
        labels = tuple(torch.unique(targets).tolist()) if settings.mask_absent_labels else ()
        clock = OwnClock(assignment.until)
        with own_randomness(task.seed):
            rng = np.random.default_rng(task.seed)
            size = max(1, int(settings.batch_size * assignment.batch))
            batches = draw_batches(share, size, assignment.most_steps, rng)
            batches[-1] = part_of(batches[-1], assignment.last)
            probes = draw_batches(
                share, settings.batch_size, settings.probes if assignment.probes else 0, rng
            )
            probe_batches = [examples.batch(indices, self.device) for indices in probes]
            before = self._probe(width, task.tensors, probe_batches)
            told = Utility(len(share) // len(batches[0])) if settings.utility else None
            losses, trained = self._descend(
                task, (examples.batch(i, self.device, rng) for i in clock.watched(batches)), labels, told
            )
            after = self._probe(width, trained, probe_batches)
        answer = self.family.factors(trained, task.tensors) if settings.train_in == "weights" else trained
        return Update(
            client=assignment.client,
            round=assignment.round,
            tensors=answer,
            samples=len(share),
            loss=losses / math.ceil(clock.steps),
            measured={
                **(estimate(before, after) if before and after else {}),
                **(self._tried(task, answer, examples, share) if settings.tries_coarser else {}),
                **(told.measured(min(len(share), math.ceil(clock.steps) * len(batches[0]))) if told else {}),
            },
            extras=sent_along(settings.sends, Seen(targets, before)),
            nonce=assignment.nonce,
            steps=None if assignment.until is None else clock.steps,
        )

    def packed(self, task: Task, tensors: Tensors) -> tuple[Upload | None, Tensors | None]:
        """Trained tensors in the configured bits, and what rounding leaves out; None if not packed."""
        (bits, share), feedback = self.fineness(task.assignment), task.residuals
        if (bits, share) == (32, 1.0) and feedback is None:
            return None, None
        try:
            if feedback is None:
                seed = seeds.number(task.seed, "upload")
                return pack_update(tensors, task.tensors, bits, seed, share), None
            return pack_with_feedback(tensors, task.tensors, bits, feedback, share)
        except ExchangeError:  # not finite: the server will see that and say so
            return None, feedback

    def _tried(self, task: Task, trained: Tensors, examples: Examples, share: Integers) -> dict[str, float]:
        """The loss on one batch before the change, after it as it travels, and after it in half the bits."""
        bits, kept = self.fineness(task.assignment)
        finite = all(bool(torch.isfinite(tensor).all()) for tensor in trained.values())
        if not task.assignment.probes or bits == UP_BITS[-1] or not finite:
            return {}
        (indices,) = draw_batches(share, self.settings.batch_size, 1, seeds.stream(task.seed, "tried"))
        batch = examples.batch(indices, self.device)
        seed = seeds.number(task.seed, "upload")
        told = {"loss_before": self._loss_of(task, batch, task.tensors)}
        for name, few in (("loss_sent", bits), ("loss_coarser", halved(bits))):
            packed = pack_update(trained, task.tensors, few, seed, kept)
            told[name] = self._loss_of(task, batch, unpack_update(packed, task.tensors))
        return told

    @torch.no_grad()
    def _loss_of(self, task: Task, batch: Batch, tensors: Tensors) -> float:
        model = self.loaded(tensors, task.assignment.selection.width)
        at_hand(model.module)
        return float(self.settings.objective.loss.each(model(batch[0]), batch[1]).mean())

    def fineness(self, assignment: Assignment) -> tuple[int, float]:
        """Bits of a value and share of values that travel up."""
        return assignment.up_bits or self.settings.up_bits, assignment.up_share or self.settings.up_share

    def model(self, kind: str, width: int) -> LocalModel:
        """The resident model of this kind ("dense" or "composed") and width."""
        key = kind, width
        if key not in self._models:
            make: Callable[[int], LocalModel] = getattr(self.family, kind)
            self._models[key] = make(width)
            self._models[key].bfloat16 = self.settings.precision == "bfloat16"
            _lay_out(self._models[key].module.to(self.device))
            pool_first(self._models[key].module)
            if self.settings.scaler:
                scale_activations(self._models[key].module, self.family.max_width / width)
        return self._models[key]

    def loaded(self, tensors: Tensors, width: int) -> LocalModel:
        """The resident model that takes the strategy's tensors, loaded with these, ready to test."""
        model = self.model("dense" if self.settings.train_in == "dense" else "composed", width)
        model.load(tensors)
        return model

    def _probe(self, width: int, tensors: Mapping[str, Tensor], batches: list[Batch]) -> Probe | None:
        return (
            probe(
                self.model("dense", width),
                self.family.plain_weights(tensors),
                batches,
                self.settings.objective.loss.mean,
            )
            if batches
            else None
        )

    def _descend(
        self, task: Task, batches: Iterator[Batch], labels: tuple[int, ...], told: Utility | None
    ) -> tuple[float, dict[str, Tensor]]:
        """Run the optimiser; the sum of the losses of all steps, and the tensors at the end."""
        settings, assignment = self.settings, task.assignment
        factors = settings.train_in == "factors"
        widest, widths = assignment.selection.width, self._widths(task)
        model = self.model("composed" if factors else "dense", widest)
        received = task.tensors if factors else self.family.plain_weights(task.tensors)
        model.load(received)
        model.train()
        parameters = [p for p in model.parameters.values() if p.requires_grad]
        step = settings.optimiser.begin(parameters)
        total = torch.zeros((), device=self.device)
        for inputs, targets in batches:
            loss, mean, scores = self._loss(model, widest, next(widths), inputs, targets, labels)
            total += mean
            if told is not None:
                told.add(settings.objective.loss.each(scores.detach(), targets))
            for term in settings.terms:
                loss = loss + term(model, received)
            loss.backward()
            if settings.clip is not None:
                nn.utils.clip_grad_norm_(parameters, settings.clip, foreach=True)
            step(assignment.learning_rate)
            for parameter in parameters:
                parameter.grad = None
        return float(total), model.read()

    def _loss(
        self,
        model: LocalModel,
        widest: int,
        width: int,
        inputs: Tensor,
        targets: Tensor,
        labels: tuple[int, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What a step lowers, the loss on the labels that it tells of, and the scores behind that."""
        aim = self.settings.objective.loss
        scores = self._scores(model, widest, width, inputs, labels)
        if width == widest or not self.settings.distil:
            loss = aim.mean(scores, targets)
            return loss, loss.detach(), scores
        teacher = self._scores(model, widest, widest, inputs, labels)
        loss = aim.mean(teacher, targets)
        said, wanted = (aim.aligned(given, targets)[0] for given in (scores, teacher.detach()))
        return loss + nn.functional.cross_entropy(said, wanted.softmax(1)), loss.detach(), teacher

    def _widths(self, task: Task) -> Iterator[int]:
        """The width of every step."""
        widest, share = task.assignment.selection.width, self.settings.any_width
        if not share:
            return repeat(widest)
        rng = np.random.default_rng(seeds.number(task.seed, "widths"))
        return (int(rng.integers(1, widest + 1)) if rng.random() < share else widest for _ in count())

    def _scores(
        self, model: LocalModel, widest: int, width: int, inputs: Tensor, labels: tuple[int, ...]
    ) -> Tensor:
        """What the model, or its leading part of this width, makes of a batch in training."""
        scores = model(inputs) if width == widest else self._of_part(model, widest, width, inputs)
        if not self.settings.mask_absent_labels:
            return scores
        held = torch.zeros(scores.shape[1], device=scores.device)
        held[list(labels)] = 1.0
        return scores * held

    def _of_part(self, model: LocalModel, widest: int, width: int, inputs: Tensor) -> Tensor:
        """The scores of a model of this width that has its values from the leading part of a wider one."""
        factors = self.settings.train_in == "factors"
        part = self.model("composed" if factors else "dense", width)
        part.train()
        whole = {name: p.reshape(model.shapes[name]) for name, p in model.parameters.items()}
        cut = self.family.cut_within(widest, width, "factors" if factors else "weights")
        return part(inputs, cut_out(whole, cut))


@dataclass
class OwnClock:
    """A client's own clock, which starts when its work does. Without `until` it stops nobody."""

    until: float | None = None
    steps: float = 0.0  # done so far
    begun: float = field(default_factory=lambda: time.perf_counter())

    def watched(self, batches: Iterable[Integers]) -> Iterator[Integers]:
        """The batches that there is time for, at least one; of the last perhaps a part."""
        first = time.perf_counter()
        for batch in batches:
            fits = 1.0
            if self.steps and self.until is not None:
                now = time.perf_counter()
                a_step = max(now - first, _TICK) / self.steps
                fits = (self.until - (now - self.begun)) / a_step
                if fits < LEAST_PART:
                    return
            yield part_of(batch, fits)
            self.steps += min(fits, 1.0)
            if fits < 1.0:
                return


def part_of(batch: Integers, share: float) -> Integers:
    """So much of a batch, at least one example."""
    return batch[: max(1, int(share * len(batch)))]


@dataclass
class Utility:
    """How useful a client is to the model: by the squared losses of the first pass over its examples."""

    batches: int  # of a pass
    squares: float = 0.0
    count: int = 0

    def add(self, losses: Tensor) -> None:
        """The losses of the next batch, one for each prediction."""
        if self.batches > 0:
            self.batches -= 1
            self.squares += float(losses.double().square().sum())
            self.count += losses.numel()

    def measured(self, examples: int) -> dict[str, float]:
        """What a client tells that trained on so many of its examples."""
        return {"utility": examples * math.sqrt(self.squares / self.count)} if self.count else {}


def sent_along(extras: tuple[Extra, ...], seen: Seen) -> dict[str, Tensor]:
    """What a client sends besides its tensors, by name."""
    made = {extra.name: extra.make(seen) for extra in extras}
    return {name: tensor for name, tensor in made.items() if tensor is not None}


@torch.no_grad()
def _lay_out(module: nn.Module) -> None:
    """Channels last in memory, which convolutions are fastest on.

    `contiguous` would leave a weight with one input channel as it is, whose strides then say channels first,
    and so would be all that its layer computes.
    """
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last)


def scaled_layers(module: nn.Module) -> Sequence[nn.Module]:
    """What the scaler scales: the outputs of all convolutions and linear layers but the last."""
    layers: list[nn.Module] = [
        m for m in module.modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd))
    ]
    return layers[:-1]


def scale_activations(module: nn.Module, factor: float) -> None:
    """Multiply the outputs of the layers that can be scaled, in training only."""
    for layer in scaled_layers(module):
        layer.register_forward_hook(lambda m, _, out: out * factor if m.training else out)


def draw_batches(share: Integers, batch_size: int, count: int, rng: np.random.Generator) -> list[Integers]:
    """`count` batches in shuffled passes, no example twice in a batch; smaller if there are few."""
    size = min(batch_size, len(share))
    per_pass = len(share) // size
    batches: list[Integers] = []
    while len(batches) < count:
        shuffled = rng.permutation(share)[: per_pass * size].reshape(per_pass, size)
        batches.extend(shuffled)
    return batches[:count]


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside, because sums depend on how many threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Inside, torch's global generator (dropout) draws from this seed; it is restored afterwards."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
