"""The table that README leads with, and the one of all strategies in docs/schemes.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heroes.report import Comparison
from heroes.report.comparison import BEST, LESS_TRAFFIC, MEAN, SPEED_UP
from heroes.report.measures import Spread
from heroes.report.page import ABSENT
from heroes.report.runs import Group
from heroes.settings.tuned_files import shipped
from heroes.strategies.registry import PAPER
from heroes.studies.figures import Chapter
from heroes.studies.telling.evidence import Evidence, ours
from heroes.studies.telling.markdown import apart, grid, less_traffic
from heroes.studies.telling.pictures import common_target, drawings
from heroes.studies.telling.trust import seeds_of
from heroes.tuning.grids import label

SEEDS = 3  # fewer are no table to lead with
LEADING = ("accuracy", "field")  # the first of these figures that has them
_BY_PRICE = "By a clock that charges what steps take on a processor, and not their FLOPs"
BESIDES = {
    ("accuracy-70", "As far as the paper's target"): "As far as the paper's target",
    ("text", "tanh"): "Shakespeare, with the paper's tanh network",
    ("images", ""): "ResNet-18 on small images of 100 classes, each client lacking 40, early in training",
    ("worlds", "priced clock"): _BY_PRICE,
}
"""variants of other figures that are told in a sentence, once every row has a run, and how it begins"""


def lead(evidence: Evidence) -> list[str]:
    """What README says about results: a table once every row has three seeds, until then a sentence."""
    figures = (evidence.figures[name] for name in LEADING)
    told = next((good for of_plan in figures if (good := _told(of_plan))), [])
    if not told:
        there, of = evidence.count(LEADING[0])
        return [
            f"The comparison on CIFAR-10 has {there} of its {of} runs so far;",
            "[docs/results.md](docs/results.md) has what they came to, beside the numbers of the paper.",
        ]
    besides = [
        each for name, variant in BESIDES for each in evidence.figures[name] if each.variant == variant
    ]
    others = [*told[1:], *filter(_least, besides)]
    lines = [*_leading(told[0]), *(line for chapter in others for line in _also(chapter))]
    lines += _to_the_letter(*evidence.figures["literal"])
    shown = [
        line.replace("(pictures/", "(docs/pictures/")
        for picture in drawings(evidence, told[0].plan.name)[:1]
        for line in (picture.markdown, "")
    ]
    rest = "has the rest: what reproduces of the paper, what does not, and why."
    return [*lines, *shown, f"[docs/results.md](docs/results.md) {rest}"]


def _told(of_plan: Sequence[Chapter]) -> list[Chapter]:
    """The first variant with three seeds, then those of which every row has some; else none."""
    whole = next((each for each in of_plan if _least(each) >= SEEDS), None)
    return [] if whole is None else [whole, *(each for each in of_plan if each is not whole and _least(each))]


def _least(chapter: Chapter) -> int:
    """How many runs every row has."""
    return min(len(each.runs) for each in chapter.outcomes)


def _leading(chapter: Chapter) -> Iterator[str]:
    found = chapter.found
    if found is None:
        return
    plan = chapter.plan
    about = ", ".join(filter(None, [f"`{plan.experiment}`", chapter.variant, f"{_least(chapter)} seeds"]))
    yield from (f"{about}; no round begins after {plan.budget:,.0f} virtual seconds:", "")
    shown = [group for group in found.groups if group.strategy in PAPER]
    yield from (*grid(["", *(group.label for group in shown)], list(_measures(found, shown))), "")
    yield from (*_ratios(found), "")


def _also(chapter: Chapter) -> Iterator[str]:
    """Another variant in a sentence."""
    common = set.intersection(*({run.seed for run in each.runs} for each in chapter.outcomes))
    few = seeds_of(sorted(common)) if _least(chapter) < SEEDS else ""
    for told in _ratios(chapter.found, few) if chapter.found is not None else ():
        own = f"{chapter.variant[:1].upper()}{chapter.variant[1:]}"
        start = BESIDES.get((chapter.plan.name, chapter.variant), own)
        yield from (f"{start}: {told[0].lower()}{told[1:]}", "")


def _to_the_letter(chapter: Chapter) -> Iterator[str]:
    """What the paper's own algorithm came to, in the reading that does better."""
    if chapter.found is None or not _least(chapter):
        return
    metric = chapter.found.metric
    scores: dict[str, float] = {}
    for group in chapter.found.groups:
        spread = chapter.found.find(group.label, metric.label)
        if spread is not None and spread.mean is not None:
            scores[group.label] = spread.mean
    own = ours(chapter.found)
    letter = [score for label, score in scores.items() if label.startswith(f"{own} (paper)")]
    others = {label: score for label, score in scores.items() if not label.startswith(own)}
    if own in scores and letter and others:
        best = max(others, key=lambda label: others[label])
        ends = (max(letter), scores[own], others[best])
        at, mine, theirs = (f"{metric.short(each)}{metric.unit}" for each in ends)
        after = f"{chapter.plan.experiment} after {chapter.plan.budget:,.0f} virtual seconds"
        seeds = seeds_of(chapter.plan.seeds)
        yield f"Heroes here is not the paper's to the letter, which is at {at} on {after}."
        yield f"There ours is at {mine}, and {best}, the best of the others, at {theirs} ({seeds})."
        yield ""


def _measures(found: Comparison, groups: Sequence[Group]) -> Iterator[tuple[str, ...]]:
    metric = found.metric
    for target in found.targets[-2:]:
        for what, unit in (("seconds", " s"), ("traffic", " MB")):
            yield (
                f"{'virtual time' if what == 'seconds' else what} to {metric.target(target)}",
                *(_cell(found, group, f"{what} to {metric.name}", target, unit) for group in groups),
            )
    yield ("waiting in a round", *(_cell(found, group, "waiting", None, " s", 1) for group in groups))
    if {run.rows[-1].stopped for group in groups for run in group.runs} != {"time budget"}:
        return  # runs that stopped themselves at a target have no score to compare
    scores = (found.find(group.label, metric.label) or Spread(()) for group in groups)
    yield (f"{metric.name} in the end", *(each.text(metric.short, ABSENT, metric.unit) for each in scores))


def _cell(found: Comparison, group: Group, what: str, at: float | None, unit: str, places: int = 0) -> str:
    spread = found.find(group.label, what, at) or Spread(())
    shown = max(places, int((spread.mean or 10) < 10))  # 6 ± 0 MB would say too little
    return spread.text(lambda value: f"{value:,.{shown}f}", unit=unit)


def _ratios(found: Comparison, few: str = "") -> Iterator[str]:
    """How many times as fast, at the hardest target that has a ratio.

    `few` names the seeds that all strategies have, where those are not all seeds; the best may have more.
    """
    own = ours(found)
    for target in reversed(found.targets):
        best, mean, least, less = (
            found.find(own, what, target, against)
            for what in (SPEED_UP, LESS_TRAFFIC)
            for against in (BEST, MEAN)
        )
        if best is not None and best.mean is not None:
            times = best.text(_two, unit=" times")
            told = f"To {found.metric.target(target)} {own} is {times} as fast as the best of the others"
            if mean is not None and mean.mean is not None and less is not None and less.mean is not None:
                told += f" ({len(best.values)} seeds)" if few and len(best.values) > len(mean.values) else ""
                told += f" and {mean.mean:.2f} times as fast as all of them in the geometric mean"
                told += f", with {less_traffic(less.mean)}"
                if least is not None and least.mean is not None:
                    told += f" ({less_traffic(least.mean)} than the one that sends least)"
            yield f"{told} ({few})." if few else f"{told}."
            return


def _two(value: float) -> str:
    return f"{value:.2f}"


def field(evidence: Evidence) -> Iterator[str]:
    """All strategies side by side, the fastest first."""
    for name in ("field", "field-cifar10"):
        (chapter,) = evidence.figures[name]
        there, of = evidence.count(name)
        plan = chapter.plan
        about = f"**{plan.experiment}**, {plan.budget:,.0f} virtual seconds, {seeds_of(plan.seeds)}"
        yield from (f"{about} (`heroes reproduce {name}`):", "", *apart(plan), "")
        if there < of:
            yield from (f"{there} of {of} runs are there.", "")
        if chapter.found is not None:
            yield from (*_field(chapter, chapter.found), "")
            yield from (each.markdown for each in drawings(evidence, name))
            yield ""


def _field(chapter: Chapter, found: Comparison) -> list[str]:
    metric, target = found.metric, common_target(chapter)
    widths = found.places(f"{metric.name} at width")
    at = "" if target is None else metric.target(target)
    header = [
        "strategy",
        f"s to {at}",
        f"MB to {at}",
        "waiting",
        f"{metric.name} in the end",
        *(f"width {w:g}" for w in widths),
        "tuned",
    ]
    tuned, fixed = shipped(chapter.plan.experiment), chapter.plan.settings
    rows = {
        _rank(found, group, target): (
            *_field_row(found, group, target, widths),
            label({key: value for key, value in tuned.get(group.label, {}).items() if key not in fixed}),
        )
        for group in found.groups
    }
    return grid(header, [rows[rank] for rank in sorted(rows)])


def _rank(found: Comparison, group: Group, target: float | None) -> tuple[bool, float, str]:
    spread = found.find(group.label, f"seconds to {found.metric.name}", target)
    mean = None if spread is None else spread.mean
    return mean is None, mean or 0.0, group.label


def _field_row(
    found: Comparison, group: Group, target: float | None, widths: Sequence[float]
) -> tuple[str, ...]:
    metric = found.metric
    by_width = (found.find(group.label, f"{metric.name} at width", width) or Spread(()) for width in widths)
    return (
        f"`{group.label}`",
        _cell(found, group, f"seconds to {metric.name}", target, ""),
        _cell(found, group, f"traffic to {metric.name}", target, "", 1),
        _cell(found, group, "waiting", None, " s", 2),
        (found.find(group.label, metric.label) or Spread(())).text(metric.short, ABSENT, metric.unit),
        *(each.text(metric.short, "untrained") for each in by_width),
    )
