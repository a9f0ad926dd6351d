"""The claims of the paper in tables: whether each holds, and its numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heroes.report import Comparison
from heroes.report.comparison import LESS_TRAFFIC, MEAN, SPEED_UP
from heroes.report.measures import ratio
from heroes.report.page import ABSENT
from heroes.report.runs import RunData
from heroes.studies.figures import Chapter
from heroes.studies.telling import motivation
from heroes.studies.telling.evidence import Evidence, ours
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
            named = [f"{_letter(each)} {each.chapter.variant}" for each in shown]
            yield f"- `{name}`: {'; '.join(named)}."


def _letter(compared: Compared) -> str:
    """A short name of a variant: (a) for the first that is looked at; nothing where there is only one."""
    variants = list(compared.point.variants or compared.chapter.plan.variants)
    return _numbered(variants.index(compared.chapter.variant)) if len(variants) > 1 else ""


def _numbered(place: int) -> str:
    """
    >>> _numbered(1)
    '(b)'
    """
    return f"({chr(ord('a') + place)})"


def _judged(point: Point, evidence: Evidence) -> Iterator[Line]:
    """What our runs say about a point, in every variant in which it can be looked at."""
    shown = _compared(point, evidence.figures[point.plan])
    gains = ["; ".join(f"{name} {_gain(point, gain)}" for name, gain in each.gains.items()) for each in shown]
    told = [list(map(str, each)) for each in (gains, map(verdict, shown), map(why, shown))]
    if len(point.variants) != 1:  # else the claim names it
        told = [[_of(_letter(c), text) for c, text in zip(shown, each, strict=True) if text] for each in told]
    gains, holds, reasons = told[0], told[1], [*told[2], _differs(shown)]
    yield (_claimed(point), point.where, *map(_stacked, (gains, holds, reasons)))


def _stacked(texts: Sequence[str]) -> str:
    """Several lines in a cell."""
    return "<br>".join(filter(None, texts))


def _compared(point: Point, of_plan: Sequence[Chapter]) -> list[Compared]:
    shown = [each for each in of_plan if not point.variants or each.variant in point.variants]
    return [Compared(point, chapter) for chapter in shown]


def _of(letter: str, told: str) -> str:
    """What is told of a variant, its letter first."""
    return f"{letter} {told or ABSENT}".lstrip()


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
        ahead = gain.spread.text(lambda value: f"{100 * value:.1f}", "not tested by then", " points")
        return f"+{ahead}" if (gain.spread.mean or 0.0) > 0 else ahead
    at = "" if gain.at is None else f" at {percent(gain.at)}"
    return gain.spread.text(ratio, "not reached", "x") + at


def _overall(evidence: Evidence) -> Iterator[Line]:
    """The two numbers of the abstract, beside the geometric means over the baselines."""
    said = paper().said
    claim = (
        f"About {said.speed_up:.2f}x as fast as the others on ImageNet-100 to 50 % (the abstract: up to), "
        f"with about {percent(said.saved, 1)} less traffic"
    )
    told, holds = [], []
    for place, chapter in enumerate(evidence.figures["accuracy"]):
        means, word = ("", "no runs yet") if chapter.found is None else _means(chapter.found, said)
        told.append(_of(_numbered(place), means))
        holds.append(_of(_numbered(place), word))
    yield (claim, said.saved_where, _stacked(told), _stacked(holds), said.differs)


def _means(found: Comparison, said: Said) -> tuple[str, str]:
    """The means at the hardest target that all reached, and whether they are as large as the paper says."""
    own = ours(found)
    for target in reversed(found.targets):
        speed, less = (found.find(own, what, target, MEAN) for what in (SPEED_UP, LESS_TRAFFIC))
        if speed is not None and less is not None and speed.mean and less.mean:
            saved, at = 1 - 1 / less.mean, found.metric.target(target)
            holds = [speed.mean >= said.speed_up, saved >= said.saved]
            words = "yes" if all(holds) else "in part" if speed.mean > 1 and saved > 0 else "no"
            told = f"to {at} in the geometric mean {speed.mean:.2f}x as fast, {less_traffic(less.mean, 1)}"
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
    runs = [run for each in compared.chapter.outcomes if each.label == name for run in each.runs]
    if not runs:
        return "no runs"
    missing = "not tested by then" if point.higher_is_better else _ended(runs) or "not reached"
    return compared.value(name).text(lambda value: _number(point, value / scale), missing)


def _ended(runs: Sequence[RunData]) -> str:
    """Where runs ended by their own target, if all did: they were not meant to go on."""
    goals = [run.settings.get("federation.target_accuracy") for run in runs]
    meant = all(str(run.rows[-1].stopped).startswith("target") for run in runs)
    return f"ended at {percent(goals[0])}" if meant and isinstance(goals[0], float) else ""


def _number(point: Point, value: float | None) -> str:
    """A number of a point, in its unit; of traffic in gigabytes."""
    if value is None:
        return ""
    if point.higher_is_better:
        return f"{100 * value:.1f} %"
    if point.kind == "traffic":
        return f"{value:.2f} GB"
    return f"{value:,.0f} s" if point.kind == "seconds" else f"{value:.2f} s"
