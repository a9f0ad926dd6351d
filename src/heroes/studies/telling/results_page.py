"""`docs/results.md`: the paper's figures beside ours, what reproduces and why, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heroes.report import Comparison, compare
from heroes.report.comparison import BEST, LESS_TRAFFIC, MEAN, SPEED_UP
from heroes.report.measures import Spread, ratio
from heroes.report.page import ABSENT
from heroes.report.runs import RunData
from heroes.report.summary import final_score
from heroes.studies.figures import Chapter
from heroes.studies.telling import ablation, motivation, trust
from heroes.studies.telling.behind import behind
from heroes.studies.telling.claims import point_by_point, verdicts
from heroes.studies.telling.evidence import Evidence, ours
from heroes.studies.telling.markdown import apart, grid, less_traffic, page, percent, table
from heroes.studies.telling.pictures import drawings
from heroes.studies.telling.verdicts import listed

TITLES = {
    "accuracy": "CIFAR-10: accuracy, waiting, resources",
    "accuracy-70": "CIFAR-10: as far as 70 %",
    "noniid": "CIFAR-10: uneven data",
    "text": "Shakespeare",
    "images": "Images of 100 classes",
    "motivation": "Motivation: composition and adaptive steps",
    "literal": "The paper's algorithm to the letter",
    "ablation": "What the ablation teaches",
    "worlds": "Other worlds",
}
_ABOUT = """\
Made by `make results` from the runs in `results/` and from nothing else; what the paper says is in
[paper.toml](../src/heroes/studies/paper.toml). Seconds are virtual, traffic is both ways, accuracy is the
complete model's on the test set. A target is reached when the mean of the last three tests is there.
Numbers are means ± standard deviations over seeds; ratios are between runs with the same seed, with their
geometric mean and range. [studies.md](studies.md) says how to make the runs, [study.md](study.md) how
settings were found, and [schemes.md](schemes.md) has all strategies side by side.

**Heroes here is this package's, not the paper's to the letter.** Clients get leading blocks rather than the
least trained ones, steps are not chosen by the convergence bound, factors are trained and not the weights
composed of them, the basis has a quarter of the rank, messages have 6 and 4 bits, and the server has
momentum and an average; [algorithm.md](algorithm.md#what-the-default-does-otherwise-than-the-paper) has all
of it, and why. The tables of 32 bits are without bits, momentum and average. The paper's algorithm to the
letter is *Heroes (paper)* in [a section of its own](#the-papers-algorithm-to-the-letter) and in [the
ablation](#what-the-ablation-teaches)."""
_BEHIND = """\
Every strategy that took less time or energy or sent less than Heroes with at least one seed, to the hardest
target that both reached: what it took beside Heroes, in the mean and from seed to seed. Which settings of
Heroes do better than its defaults [the ablation](#what-the-ablation-teaches) says."""
_RULES = """\
*Yes: better than every rival with every seed. Even: not the same with all seeds. By less than in the paper:
below nine tenths of its gain. So far: runs are missing. Where a rival did not reach the paper's target, the
hardest one that both reached counts; far lower is one below half of it.*"""
_DETAILS = ("Seconds", "Traffic", "Test accuracy of the final")  # tables of a comparison that are shown
_GLANCES = {SPEED_UP: "How many times as fast Heroes is", LESS_TRAFFIC: "How many times less it sends"}
_NAMES = {BEST: "the one that sends least", MEAN: "all in the geometric mean"}


def results_page(evidence: Evidence) -> str:
    """The text of the page."""
    lines = ["# What the experiments came to", "", _ABOUT, "", *_missing(evidence), ""]
    lines += ["## What reproduces, what does not, and why", "", *verdicts(evidence), "", _RULES]
    lines += ["", "## Where Heroes is not ahead", "", _BEHIND, "", *behind(evidence)]
    for name, title in TITLES.items():
        lines += ["", f"## {title}", "", *_section(name, evidence)]
    return page([*lines, "", "## How far to trust each number", "", *trust.lines(evidence)])


def _missing(evidence: Evidence) -> Iterator[str]:
    """How many runs are there, and which figures lack some."""
    counts = {name: evidence.count(name) for name in evidence.figures}
    short = [f"`{name}` {there} of {of}" for name, (there, of) in counts.items() if there < of]
    if short:
        yield f"**Runs are missing.** There are {', '.join(short)}; `heroes reproduce` makes the rest."
    if evidence.strays:
        yield (
            f"{evidence.strays} of the {len(evidence.store.runs)} kept runs are in no table: no figure and "
            "no study asks for their settings any more."
        )


def _section(name: str, evidence: Evidence) -> Iterator[str]:
    of_plan = evidence.figures[name]
    plan = of_plan[0].plan
    yield from (plan.about, "", trust.how(name, evidence), "", *apart(plan), "")
    yield from (plan.lesson, "") if plan.lesson else ()
    yield from point_by_point(name, of_plan)
    if not evidence.runs(name):
        return
    if name == "worlds":
        yield from _at_a_glance(of_plan, evidence)
    yield from _TOLD.get(name, _every_variant)(of_plan)
    for each in drawings(evidence, name):
        yield from (each.markdown, "")


def _every_variant(of_plan: Sequence[Chapter]) -> Iterator[str]:
    """All tables of every variant that has runs."""
    for chapter in of_plan:
        if chapter.found is None:
            yield from (f"No run of *{chapter.variant}* is there yet.", "")
            continue
        if chapter.variant:
            yield from (f"### {chapter.variant[0].upper()}{chapter.variant[1:]}", "")
        yield from (_bits(chapter), "")
        details = [each for each in chapter.found.details() if each.title.startswith(_DETAILS)]
        for shown in [*chapter.found.leading(), *details]:
            yield from table(shown)
        yield from _saved(chapter.found)
        yield from absent([chapter])


def _at_a_glance(of_plan: Sequence[Chapter], evidence: Evidence) -> Iterator[str]:
    """The ratios of all worlds, below those of the world that all other figures are of."""
    plan, usual = of_plan[0].plan, evidence.figures["accuracy"][0]
    same = [run for each in usual.outcomes for run in each.runs if run.seed in plan.seeds]
    shown = {"as it is in `accuracy`": compare(same, targets=plan.targets)} if same else {}
    shown |= {chapter.variant: chapter.found for chapter in of_plan if chapter.found}
    for what, title in _GLANCES.items():
        ratios = [each for found in shown.values() for each in found.measures if each.what == what]
        names = list(dict.fromkeys(each.against for each in ratios))
        rows = [(name, *(_hardest(found, what, each) for each in names)) for name, found in shown.items()]
        yield from (f"**{title}**", "", *grid(["", *names], rows), "")
    targets = " or ".join(map(percent, plan.targets))
    yield from (f"*To the hardest target that both reached; {ABSENT}: that one did not reach {targets}.*", "")


def _hardest(found: Comparison, what: str, against: str) -> str:
    """A ratio at the hardest target that has one; it is named if there is a harder one."""
    known = found.hardest(ours(found), what, against)
    if known is None:
        return ABSENT
    target, spread = known
    at = "" if target == found.targets[-1] else f" at {found.metric.target(target)}"
    return f"{spread.text(ratio, unit='x')}{at}"


def _bits(chapter: Chapter) -> str:
    """In how many bits the rows send."""
    rows: dict[tuple[Any, Any], list[str]] = {}
    for each in chapter.outcomes:
        if each.runs:
            settings = each.runs[0].settings
            bits = settings["exchange.down_bits"], settings["exchange.up_bits"]
            rows.setdefault(bits, []).append(each.label)
    told = [f"{listed(names)} {down} and {up}" for (down, up), names in rows.items()]
    return f"Bits of a number, down and up: {'; '.join(told)}."


def absent(of_plan: Sequence[Chapter]) -> Iterator[str]:
    """Which rows lack runs."""
    short = {chapter.variant: "; ".join(chapter.absent) for chapter in of_plan if chapter.absent}
    if short:
        told = [f"{variant}: {rows}" if variant else rows for variant, rows in short.items()]
        yield from (f"Missing: {'. '.join(told)}.", "")


def _saved(found: Comparison) -> Iterator[str]:
    """The ratios of traffic as shares, at the hardest target that has some."""
    less = [each for each in found.measures if each.what == LESS_TRAFFIC and each.spread.mean is not None]
    for target in reversed(found.targets):
        means = {each.against: each.spread.mean or 1.0 for each in less if each.at == target}
        if means:
            parts = [f"{less_traffic(mean)} than {_NAMES.get(name, name)}" for name, mean in means.items()]
            yield from (f"To {found.metric.target(target)} Heroes has {', '.join(parts)}.", "")
            return


def _levels(of_plan: Sequence[Chapter]) -> Iterator[str]:
    """The score in the end of every row, one column for each variant."""
    shown = {chapter.variant: chapter.found for chapter in of_plan if chapter.found}
    there = {group.label for found in shown.values() for group in found.groups}
    labels = [label for label in of_plan[0].plan.table if label in there]
    levels = [name for name in shown if of_plan[0].plan.variants[name].keys() == {"data.gamma"}]
    ends = levels[:1] + levels[-1:] if len(levels) > 1 else []
    rows = [
        (label, *(_last(found, label) for found in shown.values()), *_drop(label, [shown[e] for e in ends]))
        for label in labels
    ]
    header = ["", *shown, *([f"from {ends[0]} to {ends[1]}"] if ends else [])]
    yield from (_bits(of_plan[0]), "", "**Test accuracy in the end**", "", *grid(header, rows), "")
    yield from absent(of_plan)


def _last(found: Comparison, label: str) -> str:
    spread = found.find(label, found.metric.label) or Spread(())
    return spread.text(found.metric.short, "no runs", found.metric.unit)


def _drop(label: str, ends: Sequence[Comparison]) -> Iterator[str]:
    """What a row loses from the first to the last, seed by seed."""
    if ends:
        first, last = (_by_seed(found, label) for found in ends)
        pairs = [(first[seed], last[seed]) for seed in first if seed in last]
        lost = Spread(tuple(None if a is None or b is None else b - a for a, b in pairs))
        yield lost.text(lambda value: f"{100 * value:.1f}", ABSENT, " points")


def _by_seed(found: Comparison, label: str) -> dict[int, float | None]:
    runs = [run for group in found.groups if group.label == label for run in group.runs]
    return {run.seed: final_score(run.rows) for run in runs}


def _motivation(of_plan: Sequence[Chapter]) -> Iterator[str]:
    yield from motivation.lines(of_plan)
    yield from absent(of_plan)


def _ablation(of_plan: Sequence[Chapter]) -> Iterator[str]:
    yield from ablation.lines(of_plan)
    yield from absent(of_plan)


def _text(of_plan: Sequence[Chapter]) -> Iterator[str]:
    yield from _every_variant(of_plan)
    for chapter in of_plan:
        if chapter.found is not None:
            told = [f"{group.label} {_passes(group.runs)}" for group in chapter.found.groups]
            about = "How often the windows of a run's clients had been trained on in the end"
            yield from (f"{about}, {chapter.variant}: {', '.join(told)}.", "")


def _passes(runs: Sequence[RunData]) -> str:
    """How many times clients trained on all that they have, those of a run taken together."""
    return Spread(tuple(map(_passes_of, runs))).text(lambda value: f"{value:.2f}", "not known", "x")


def _passes_of(run: RunData) -> float | None:
    clients = [client for row in run.rows for client in row.clients]
    there = sum({each.client: each.samples or 0 for each in clients}.values())
    seen = run.settings["training.batch_size"] * sum(each.tau * each.batch for each in clients)
    return seen / there if there else None


_TOLD: dict[str, Callable[[Sequence[Chapter]], Iterator[str]]] = {
    "noniid": _levels,
    "ablation": _ablation,
    "motivation": _motivation,
    "text": _text,
}
