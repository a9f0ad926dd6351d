"""`docs/study.md`: every study, what its runs came to, and which setting is the default now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heroes.settings.config import flat
from heroes.settings.recipes import recipe
from heroes.strategies.registry import DEFAULT
from heroes.studies.plans import Plan, meant_for
from heroes.studies.tables import Outcome, table
from heroes.studies.telling.evidence import Evidence
from heroes.studies.telling.markdown import apart, page
from heroes.studies.telling.markdown import table as shown_table

_ABOUT = """\
Made by `make results` from the runs in `results/` and from nothing else. A study is a question and the runs
that answer it ([studies.md](studies.md)). What is decided here rests on seeds from 100 on, which no
figure of [results.md](results.md) has. `rank-seeds` and `precision-heroes` look at decisions on the
seeds of the figures, and that FedAvg had too few steps on CIFAR-10 was first seen there, before
`steps-cifar10` chose them.
Seconds and megabytes are to the first test at which the mean of the last three is at the target, averaged
over the seeds that got there; waiting is the share of a round; by width is the accuracy in the end, the
narrowest model first. `heroes tune` chose rates and steps on held-out examples:
[digits](../results/tune/digits.md) has all trials."""


def study_page(evidence: Evidence) -> str:
    """The text of the page."""
    lines = ["# What the studies came to", "", *_ABOUT.splitlines()]
    for plan, by_variant in evidence.studies:
        lines += [
            "",
            f"## {plan.name}",
            "",
            plan.about,
            "",
            f"`heroes study {plan.name}`",
            "",
            *apart(plan),
            "",
        ]
        lines += [line for variant, rows in by_variant.items() for line in _table(plan, rows, variant)]
        lines += [*_defaults(plan), "", *([plan.lesson] if plan.lesson else [])]
    return page(lines)


def _table(plan: Plan, rows: Sequence[Outcome], variant: str) -> Iterator[str]:
    yield from shown_table(table(plan, rows, variant))
    short = [f"{each.label} {each.wanted - len(each.runs)}" for each in rows if len(each.runs) < each.wanted]
    if short:
        yield from (f"Missing runs: {', '.join(short)}.", "")


def _defaults(plan: Plan) -> Iterator[str]:
    """What the experiment's own settings are where the rows of the study differ."""
    tried = _tried(plan)
    if not tried:
        return
    now = {key: _default(plan, key) for key in tried}
    told = ", ".join(f"`{key} = {value}`" for key, value in now.items())
    rows = [label for label in plan.table if _settings(plan, label, tried) == now]
    like = f", which is the row *{rows[0]}*" if rows else ", which is none of these rows"
    yield f"Default on {plan.experiment} now: {told}{like}."


def _tried(plan: Plan) -> list[str]:
    """The settings that the study gives the default strategy, in all rows or in some."""
    rows = [row for row in plan.table.values() if row.get("strategy", DEFAULT) == DEFAULT]
    if not rows:
        return []
    own = plan.settings.get(DEFAULT, {})
    assert isinstance(own, dict)
    return list(dict.fromkeys(key for given in (*rows, own) for key in given if key != "strategy"))


def _settings(plan: Plan, label: str, keys: Sequence[str]) -> Mapping[str, Any]:
    """What these settings are in a row."""
    given = {**meant_for(DEFAULT, plan.settings), **plan.table[label]}
    return {key: _plain(given[key]) if key in given else _default(plan, key) for key in keys}


def _default(plan: Plan, key: str) -> str:
    return _plain(dict(flat(recipe(plan.experiment).model_dump(mode="json"))).get(key))


def _plain(value: Any) -> str:
    """
    >>> _plain(0.0), _plain(20), _plain("own"), _plain(None)
    ('0', '20', 'own', 'none')
    """
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
