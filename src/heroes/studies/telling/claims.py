"""The claims of the paper in tables: whether each holds, and its numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heroes.report import Comparison
from heroes.report.comparison import LESS_TRAFFIC, MEAN, SPEED_UP
from heroes.report.measures import ratio
from heroes.report.page import ABSENT
from heroes.strategies.registry import DEFAULT
from heroes.studies.figures import Chapter
from heroes.studies.telling import motivation
from heroes.studies.telling.evidence import Evidence
from heroes.studies.telling.markdown import grid, less_traffic, percent
from heroes.studies.telling.paper import Point, Said, paper
from heroes.studies.telling.verdicts import Compared, Gain, verdict, why

Line = tuple[str, ...]


def verdicts(evidence: Evidence) -> list[str]:
    """What reproduces, what does not, and why."""
    rows = [row for point in paper().points for row in _judged(point, evidence)]
    rows += [*motivation.judged(evidence), *_overall(evidence)]
    table = grid(("the paper says", "where", "in our runs", "reproduces", "why"), rows)
    return [*table, "", *_letters(evidence)]


def _letters(evidence: Evidence) -> Iterator[str]:
    """Which variants the letters of the table stand for."""
    told = {point.plan: _compared(point, evidence.figures[point.plan]) for point in paper().points}
    for name, shown in told.items():
        if len(shown) > 1:
            named = [f"{_letter(each.chapter)} {each.chapter.variant}" for each in shown]
            yield f"- `{name}`: {'; '.join(named)}."


def _letter(chapter: Chapter) -> str:
    """A short name of a variant: (a) for the first; nothing where there is only one."""
    variants = list(chapter.plan.variants)
    return f"({chr(ord('a') + variants.index(chapter.variant))})" if len(variants) > 1 else ""


def _judged(point: Point, evidence: Evidence) -> Iterator[Line]:
    """What our runs say about a point, in every variant in which it can be looked at."""
    shown = _compared(point, evidence.figures[point.plan])
    gains = ["; ".join(f"{name} {_gain(point, gain)}" for name, gain in each.gains.items()) for each in shown]
    told = [list(map(str, each)) for each in (gains, map(verdict, shown), map(why, shown))]
    if len(point.variants) != 1:  # else the claim names it
        told = [[_of(c.chapter, text) for c, text in zip(shown, each, strict=True) if text] for each in told]
    gains, holds, reasons = told[0], told[1], [*told[2], _differs(shown)]
    yield (_claimed(point), point.where, *map(_stacked, (gains, holds, reasons)))


def _stacked(texts: Sequence[str]) -> str:
    """Several lines in a cell."""
    return "<br>".join(filter(None, texts))


def _compared(point: Point, of_plan: Sequence[Chapter]) -> list[Compared]:
    shown = [each for each in of_plan if not point.variants or each.variant in point.variants]
    return [Compared(point, chapter) for chapter in shown]


def _of(chapter: Chapter, told: str) -> str:
    """What is told of a variant, its letter first."""
    return f"{_letter(chapter)} {told or ABSENT}".lstrip()


def _claimed(point: Point) -> str:
    rivals = ", ".join(f"{name} {_size(point, gain)}" for name, gain in point.rivals.items())
    return f"{point.claim}: {rivals}"


def _differs(compared: Sequence[Compared]) -> str:
    """What is different about our runs, with the settings filled in."""
    if not compared:  # at another scale a variant may be left out
        return ""
    text, plan = compared[0].point.differs, compared[0].chapter.plan
    runs = [run for each in compared for outcome in each.chapter.outcomes for run in outcome.runs]
    for key, value in (runs[0].settings if runs else {}).items():
        text = text.replace(f"{{{key}}}", str(value))
    return text.replace("{budget}", f"{plan.budget:,.0f}") if runs and plan.budget else ""


def _size(point: Point, gain: float) -> str:
    return f"{100 * gain:+.1f} points" if point.higher_is_better else f"{ratio(gain)}x"


def _gain(point: Point, gain: Gain) -> str:
    """Our gain; the target if it is not the paper's."""
    if point.higher_is_better:
        ahead = gain.spread.text(lambda value: f"{100 * value:.1f}", "not measured", " points")
        return f"+{ahead}" if (gain.spread.mean or 0.0) > 0 else ahead
    at = "" if gain.at is None else f" at {percent(gain.at)}"
    return gain.spread.text(ratio, "not reached", "x") + at


def _overall(evidence: Evidence) -> Iterator[Line]:
    """The two numbers of the abstract, beside the geometric means over the baselines."""
    said = paper().said
    claim = f"Up to {said.speed_up:.2f}x as fast, about {percent(said.saved, 1)} less traffic"
    told, holds = [], []
    for chapter in evidence.figures["accuracy"]:
        means, word = ("", "no runs yet") if chapter.found is None else _means(chapter.found, said)
        told.append(_of(chapter, means))
        holds.append(_of(chapter, word))
    yield (claim, said.saved_where, _stacked(told), _stacked(holds), "")


def _means(found: Comparison, said: Said) -> tuple[str, str]:
    """The means at the hardest target that all reached, and whether they are as large as the paper says."""
    own = next((group.label for group in found.groups if group.strategy == DEFAULT), "")
    for target in reversed(found.targets):
        speed, less = (found.find(own, what, target, MEAN) for what in (SPEED_UP, LESS_TRAFFIC))
        if speed is not None and less is not None and speed.mean and less.mean:
            saved, at = 1 - 1 / less.mean, found.metric.target(target)
            holds = [speed.mean >= said.speed_up, saved >= said.saved]
            words = "yes" if all(holds) else "in part" if speed.mean > 1 and saved > 0 else "no"
            told = f"to {at} on average {speed.mean:.2f}x as fast, {less_traffic(less.mean, 1)}"
            return told, words
    return "", "not told: no target was reached by all"


def point_by_point(name: str, of_plan: Sequence[Chapter]) -> Iterator[str]:
    """The paper's numbers that a plan has runs for, beside ours."""
    for point in paper().points:
        compared = [each for each in _compared(point, of_plan) if each.chapter.found]
        if point.plan == name:
            at = "" if point.target is None else f" to {percent(point.target)}"
            yield from (f"**{point.claim}** ({point.kind}{at})", "", *_beside(point, compared), "")


def _beside(point: Point, compared: Sequence[Compared]) -> list[str]:
    header = ["", f"paper, {point.where}", f"{point.ours} is better by"]
    header += [text for each in compared for text in (f"ours, {each.chapter.variant}".rstrip(", "), "by")]
    return grid(header, [_beside_row(point, name, compared) for name in (point.ours, *point.rivals)])


def _beside_row(point: Point, name: str, compared: Sequence[Compared]) -> list[str]:
    cells = [name, _number(point, point.values.get(name))]
    cells.append(_size(point, point.rivals[name]) if name in point.rivals else "")
    for each in compared:
        gain = each.gains.get(name)
        cells += [_ours(each, name), "" if gain is None else _gain(point, gain)]
    return cells


def _ours(compared: Compared, name: str) -> str:
    point, scale = compared.point, 1000 if compared.point.kind == "traffic" else 1
    if not any(each.runs for each in compared.chapter.outcomes if each.label == name):
        return "no runs"
    return compared.value(name).text(lambda value: _number(point, value / scale))


def _number(point: Point, value: float | None) -> str:
    """A number of a point, in its unit; of traffic in gigabytes."""
    if value is None:
        return ""
    if point.higher_is_better:
        return f"{100 * value:.1f} %"
    if point.kind == "traffic":
        return f"{value:.2f} GB"
    return f"{value:,.0f} s" if point.kind == "seconds" else f"{value:.2f} s"
