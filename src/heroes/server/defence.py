"""Defends against updates that are well-formed and wrong: clips norms, refuses outliers, replaces the mean.

Median, trimmed mean and guard look at all updates of a round at once, so they keep them all in memory;
clipping to a given norm takes them one at a time, as the mean does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch
from torch import Tensor

from heroes.messages import Assignment, Tensors, Update
from heroes.slices.cuts import Cut, Overlay, Part, cut_out
from heroes.slices.overlays import holders, overlay_mean

Answer = tuple[Assignment, Update]
_ENOUGH = 3  # holders of a value, below which its median says nothing about one of them


@dataclass(frozen=True)
class Defence:
    """What is done with updates before they are combined. `clip` is a norm; "auto" is the round's median."""

    clip: float | str | None = None
    guard: bool = False
    guard_factor: float = 3.0

    def screen(
        self,
        answers: Iterable[Answer],
        whole: Tensors,
        cut: Callable[[Assignment], Cut],
        refuse: Callable[[int, str, str], None],
    ) -> Iterator[Answer]:
        """The answers that may enter the model, clipped; `refuse` hears of the others, and why."""
        if self.guard:
            seen = list(answers)
            against = dict(outliers(seen, whole, cut, self.guard_factor))
            for client, reason in against.items():
                refuse(client, reason, "outlier")
            answers = [
                (assignment, update) for assignment, update in seen if assignment.client not in against
            ]
        limit = self.clip
        if limit == "auto":
            answers = list(answers)
            limit = median([norm(change(update, cut_out(whole, cut(a)))) for a, update in answers] or [0.0])
        for assignment, update in answers:
            bounded = (
                update if limit is None else clipped(update, cut_out(whole, cut(assignment)), float(limit))
            )
            yield assignment, bounded


def change(update: Update, sent: Tensors) -> dict[str, Tensor]:
    """How a client moved the slice it got."""
    return {name: tensor - sent[name] for name, tensor in update.tensors.items()}


def norm(tensors: Tensors) -> float:
    """The length of all tensors as one vector, in double precision."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))


def clipped(update: Update, sent: Tensors, limit: float) -> Update:
    """The update with its change shortened to `limit`, if it is longer."""
    moved = change(update, sent)
    length = norm(moved)
    if length <= limit:
        return update
    return replace(
        update, tensors={name: sent[name] + step * (limit / length) for name, step in moved.items()}
    )


def outliers(
    answers: Sequence[Answer], whole: Tensors, cut: Callable[[Assignment], Cut], factor: float
) -> Iterator[tuple[int, str]]:
    """The clients whose updates do not agree with the others', and why.

    There are two questions. Is the change, for the number of values it has, more than `factor` times as large
    as the median one? And does it point away from the others, that is from their coordinate-wise median where
    at least three hold a value? Below three updates nobody is an outlier.
    """
    if len(answers) < _ENOUGH:
        return
    cuts = [cut(assignment) for assignment, _ in answers]
    moves = [change(update, cut_out(whole, its)) for (_, update), its in zip(answers, cuts, strict=True)]
    sizes = [norm(move) / math.sqrt(sum(tensor.numel() for tensor in move.values())) for move in moves]
    usual = median(sizes)
    zeros = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    counts = holders(whole, cuts)
    middle = overlay_median(zeros, zip(cuts, moves, strict=True))
    trusted = {
        name: tensor * (counts[name] >= _ENOUGH) if name in counts else tensor
        for name, tensor in middle.items()
    }
    for (assignment, _), move, size, its in zip(answers, moves, sizes, cuts, strict=True):
        if size > factor * usual:
            yield assignment.client, f"its change is {size / usual:.1f} times as large as the median one"
        elif _dot(move, cut_out(trusted, its)) < 0:
            yield assignment.client, "its change points away from the others'"


def overlay(combine: str, trim: float) -> Overlay:
    """How updates become one: the mean, the median or the trimmed mean."""
    choices: dict[str, Overlay] = {"mean": overlay_mean, "median": overlay_median}
    return partial(overlay_trimmed, trim=trim) if combine == "trimmed_mean" else choices[combine]


def overlay_median(whole: Mapping[str, Tensor], parts: Iterable[Part]) -> dict[str, Tensor]:
    """Every element becomes the median over the parts that hold it, or keeps its value if none does."""
    return _overlay_sorted(whole, parts, lambda count: (count - 1) // 2)


def overlay_trimmed(whole: Mapping[str, Tensor], parts: Iterable[Part], *, trim: float) -> dict[str, Tensor]:
    """Every element becomes the mean over its holders without the lowest and highest `trim` of them."""
    return _overlay_sorted(whole, parts, lambda count: (count * trim).floor())


def _overlay_sorted(
    whole: Mapping[str, Tensor], parts: Iterable[Part], left_out: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """The mean of sorted values without the first and last `left_out(number of holders)` of them."""
    seen = list(parts)
    counts = holders(whole, (cut for cut, _ in seen))
    return {
        name: _of_sorted(name, old, seen, counts[name], left_out) if name in counts else old
        for name, old in whole.items()
    }


def _of_sorted(
    name: str, old: Tensor, seen: Sequence[Part], count: Tensor, left_out: Callable[[Tensor], Tensor]
) -> Tensor:
    values = [
        _laid_out(old, name, cut, tensors)
        for cut, tensors in seen
        if any(p.source == name for p in cut.values())
    ]
    ordered = torch.stack(values).sort(dim=0).values  # those that do not hold it are infinite, at the end
    low = left_out(count.clamp(min=1.0))
    place = torch.arange(len(values), dtype=torch.float32).reshape(-1, *[1] * old.dim())
    inside = (place >= low) & (place < count - low)
    total = torch.where(inside, ordered, torch.zeros(())).sum(dim=0, dtype=torch.float64)
    mean = (total / inside.sum(dim=0).clamp(min=1)).to(old.dtype)
    return torch.where(count > 0, mean, old)


def _laid_out(old: Tensor, name: str, cut: Cut, tensors: Mapping[str, Tensor]) -> Tensor:
    """One client's values at their places in the global tensor, infinity elsewhere."""
    own = {piece_name: piece for piece_name, piece in cut.items() if piece.source == name}
    blank = torch.full_like(old, torch.inf)
    return overlay_mean({name: blank}, [(own, tensors)])[name]


def _dot(one: Tensors, other: Tensors) -> float:
    return sum(float((tensor.double() * other[name].double()).sum()) for name, tensor in one.items())
