"""The pictures of the pages: which there are, what they are drawn from, and writing those that changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from heroes.report import Comparison, write_whole
from heroes.report.measures import Spread, mean_waiting
from heroes.report.plots import (
    resources_to_targets,
    score_against_skew,
    score_against_time,
)
from heroes.report.runs import Group, RunData
from heroes.report.study_plots import Dots, dot_plot, ranked_times
from heroes.report.style import as_bytes
from heroes.studies.figures import Chapter
from heroes.studies.tables import waiting as waiting_share
from heroes.studies.telling.evidence import Evidence
from heroes.studies.telling.markdown import percent
from heroes.studies.telling.trust import seeds_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("png", "svg")
_SIGNS = {"Γ": "gamma", "%": "percent"}


@dataclass(frozen=True)
class Drawing:
    """A picture: its name, what it shows, the kept runs behind it, and how it is drawn."""

    name: str
    caption: str
    runs: tuple[RunData, ...]
    draw: Callable[[], Figure | None]

    @property
    def markdown(self) -> str:
        return f"[![{self.caption}](pictures/{self.name}.png)](pictures/{self.name}.svg)"

    @property
    def digest(self) -> str:
        """Changes with the runs; the files of the picture have it inside."""
        content = [(run.path.name, run.row, crc32(run.path.read_bytes())) for run in self.runs]
        return f"made from {crc32(repr((self.name, sorted(content))).encode()):08x}"


def slug(text: str) -> str:
    """A name as a part of a file's name.

    >>> slug("by device, Γ = 40"), slug("30 % drop out")
    ('by-device-gamma-40', '30-percent-drop-out')
    """
    for sign, word in _SIGNS.items():
        text = text.replace(sign, word)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def drawings(evidence: Evidence, *figures: str) -> list[Drawing]:
    """All pictures of these figures, or of every figure, that can be drawn from what is kept."""
    chosen = figures or tuple(evidence.figures)
    every = [each for name in chosen for each in _of_plan(name, evidence.figures[name])]
    return [each for each in every if each.runs]


def together(name: str, of_plan: Sequence[Chapter]) -> list[Drawing]:
    """The pictures of a plan that are not about one variant as any comparison is."""
    return [each for each in _of_plan(name, of_plan) if each.runs] if name in _SPECIAL else []


_WITH_WAITING = ("accuracy", "accuracy-70")


def _of_plan(name: str, of_plan: Sequence[Chapter]) -> Iterator[Drawing]:
    if name in _SPECIAL:
        yield from _SPECIAL[name](of_plan)
        return
    for chapter in of_plan:
        yield from _curves(chapter, waiting=name in _WITH_WAITING)


def _curves(chapter: Chapter, waiting: bool) -> Iterator[Drawing]:
    found = chapter.found
    if found is None or len(found.groups) < 2:  # a curve alone compares nothing
        return
    stem = "-".join(filter(None, [chapter.plan.name, slug(chapter.variant)]))
    about = ", ".join(filter(None, [chapter.plan.experiment, chapter.variant]))
    runs = _runs(found)
    yield Drawing(
        f"{stem}-time",
        f"{about}: accuracy over virtual time",
        runs,
        partial(score_against_time, found.groups, f"{about}, {_seeds(runs)}"),
    )
    if not waiting:
        return
    both = f"{about}: time and traffic to targets"
    yield Drawing(f"{stem}-resources", both, runs, partial(resources_to_targets, found))
    waited = f"{about}: how long clients wait, in seconds and as a share of the round"
    yield Drawing(f"{stem}-waiting", waited, runs, partial(_waiting_dots, found.groups))


def _waiting_dots(groups: Sequence[Group]) -> Figure | None:
    rows = [
        Dots(group.label, group.strategy, tuple(Spread(tuple(map(of, group.runs))) for of in _WAITS))
        for group in groups
    ]
    return dot_plot(rows, ("mean waiting in a round (s)", "waiting, of the round (%)"), (1.0, 100.0))


_WAITS = (mean_waiting, waiting_share)


def _seeds(runs: Sequence[RunData]) -> str:
    return seeds_of(sorted({run.seed for run in runs}))


def _runs(found: Comparison) -> tuple[RunData, ...]:
    return tuple(run for group in found.groups for run in group.runs)


def _skews(of_plan: Sequence[Chapter]) -> Iterator[Drawing]:
    """One picture for each way of sharing data out that was tried at several levels."""
    runs = [run for each in of_plan if each.found and _of_data(each) for run in _runs(each.found)]
    for partition in dict.fromkeys(str(run.settings["data.partition"]) for run in runs):
        chosen = tuple(run for run in runs if run.settings["data.partition"] == partition)
        if len({run.settings["data.gamma"] for run in chosen}) > 1:
            about = f"{of_plan[0].plan.experiment}, partition {partition}: accuracy as data differs more"
            yield Drawing(f"noniid-{slug(partition)}", about, chosen, partial(score_against_skew, chosen))


def _of_data(chapter: Chapter) -> bool:
    """Whether a variant differs by its data and nothing else."""
    return all(key.startswith("data.") for key in chapter.plan.variants[chapter.variant])


def _times(of_plan: Sequence[Chapter]) -> Iterator[Drawing]:
    for chapter in of_plan:
        yield from _curves(chapter, waiting=False)
        shown = {each.label: each.runs for each in chapter.outcomes if each.runs and each.label in RANKED}
        runs = tuple(run for members in shown.values() for run in members)
        about = "How long the clients of a round take, fastest first: fixed and adaptive steps"
        yield Drawing("motivation-times", about, runs, partial(ranked_times, shown))


RANKED = ("Whole model", "Enhanced composition", "Enhanced, adaptive steps")
"""the rows of the motivation whose clients' times are shown; the last one adapts steps"""


def _ablation(of_plan: Sequence[Chapter]) -> Iterator[Drawing]:
    return _dots(of_plan, "ablation", "what each change to Heroes does")


def _field(of_plan: Sequence[Chapter]) -> Iterator[Drawing]:
    return _dots(of_plan, of_plan[0].plan.name, "all strategies")


def _dots(of_plan: Sequence[Chapter], name: str, about: str) -> Iterator[Drawing]:
    for chapter in of_plan:
        there = [each for each in chapter.outcomes if each.runs]
        if there and (target := common_target(chapter)) is not None:
            runs = tuple(run for each in there for run in each.runs)
            caption = f"{chapter.plan.experiment}, {about}: time to {percent(target)} and accuracy in the end"
            yield Drawing(name, caption, runs, partial(_drawn_dots, chapter, target))


def common_target(chapter: Chapter) -> float | None:
    """The hardest target that at least two thirds of the rows reached, or else the easiest."""
    found = chapter.found
    if found is None or not found.targets:
        return None
    what = f"seconds to {found.metric.name}"
    reached = {
        t: sum(bool((s := found.find(g.label, what, t)) and s.reached) for g in found.groups)
        for t in found.targets
    }
    enough = [target for target in found.targets if 3 * reached[target] >= 2 * len(found.groups)]
    return enough[-1] if enough else found.targets[0]


def _drawn_dots(chapter: Chapter, target: float) -> Figure | None:
    found = chapter.found
    if found is None:
        return None
    metric, empty = found.metric, Spread(())
    whats = ((f"seconds to {metric.name}", target), (metric.label, None))
    rows = [
        Dots(
            group.label,
            group.strategy,
            tuple(found.find(group.label, what, at) or empty for what, at in whats),
        )
        for group in found.groups
    ]
    runs = f"{chapter.plan.budget:,.0f} virtual s, {_seeds(_runs(found))}"
    panels = (f"virtual s to {metric.target(target)}", metric.axis)
    return dot_plot(rows, panels, (1.0, metric.scale), f"{chapter.plan.experiment}, {runs}")


_SPECIAL: dict[str, Callable[[Sequence[Chapter]], Iterator[Drawing]]] = {
    "noniid": _skews,
    "motivation": _times,
    "ablation": _ablation,
    "field": _field,
    "field-cifar10": _field,
}


def write_drawings(all_of_them: Sequence[Drawing], folder: Path) -> list[Path]:
    """Write the pictures whose runs have changed since they were drawn; say which."""
    written = []
    for each in all_of_them:
        paths = [folder / f"{each.name}.{kind}" for kind in KINDS]
        if all(drawn_from(path, each) for path in paths):
            continue
        figure = each.draw()
        if figure is not None:
            written += [
                write_whole(path, as_bytes(figure, kind, each.digest))
                for path, kind in zip(paths, KINDS, strict=True)
            ]
    return written


def drawn_from(path: Path, drawing: Drawing) -> bool:
    """Whether the file is there, and was drawn from these very runs."""
    return path.is_file() and drawing.digest.encode() in path.read_bytes()
