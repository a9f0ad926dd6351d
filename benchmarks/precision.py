"""Client-steps per second of whole federations in float32 and with precision = auto, dense (FedAvg) and
composed (Heroes), against bare loops: in float32 as one writes it, in heroes' memory layout, and in bfloat16.

The jobs and the loops are those of `limit`.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from benchmarks.common import Side, ratio, save, say, show, take_turns
from benchmarks.limit import CASES, Bare, Case, Way, config_of, planned
from heroes import rounds
from heroes.assemble import Own, assembled
from heroes.data.examples import FederatedData
from heroes.models import MODELS
from heroes.transport.engines import processes

LOOPS = {
    "bare, plain": Way(channels_last=False),
    "bare": Way(),
    "bare, bfloat16": Way(bfloat16=True),
}
GOALS = {"bare, plain": 1.6, "bare, bfloat16": 0.95}  # the first for the CNN and ResNet-18 alone


def main(quick: bool = False) -> None:
    rows, figures = [], []
    for name, case in CASES.items():
        data = case.data()
        for strategy in ("fedavg", "heroes"):
            say(f"{name}, {strategy}")
            sides, steps, became = measure(case, strategy, data, turns=1 if quick else 5)
            rows += table(name, strategy, sides, steps, became)
            figures.append(
                {"case": name, "strategy": strategy, "auto": became, "steps": steps}
                | {"seconds": {side: found.turns for side, found in sides.items()}}
                | {"against_auto": {side: ratio(s, sides["heroes, auto"]) for side, s in sides.items()}}
            )
    show(
        "Client-steps per second, two processes of one thread each",
        ("", "median", "spread", "auto against it", "goal"),
        rows,
    )
    save("precision", figures)


def table(name: str, strategy: str, sides: dict[str, Side], steps: int, became: str) -> list[list[str]]:
    """A line for every side; `became` is what auto turned out to be."""
    rows = []
    for side, found in sides.items():
        against, goal = ratio(found, sides["heroes, auto"]), GOALS.get(side)
        if side == "bare, plain" and name == "RNN":
            goal = None
        verdict = "" if goal is None else f"{goal:g}: {'met' if against >= goal else 'missed'}"
        spread = f"{steps / max(found.turns):.1f} to {steps / min(found.turns):.1f}"
        label = f"{side} ({became})" if side == "heroes, auto" else side
        line = f"{name}, {strategy}: {label}"
        rows.append([line, f"{steps / found.median:.1f}", spread, f"{against:.2f}", verdict])
    return rows


def measure(case: Case, strategy: str, data: FederatedData, turns: int) -> tuple[dict[str, Side], int, str]:
    """Turns of one round each on all sides, how many steps that is, and what auto became."""
    sides: dict[str, Any] = {}
    with ExitStack() as stack:
        for asked in ("float32", "auto"):
            config = config_of(case, strategy).changed({"training.precision": asked})
            model = partial(MODELS[config.model.name], max_width=config.model.max_width, classes=case.classes)
            federation = stack.enter_context(assembled(config, processes.opened, Own(model, data)))
            state = federation.strategy.begin(0)
            sides[f"heroes, {asked}"] = partial(again, federation, state)
        plan = planned(federation, state).assignments
        for name, way in LOOPS.items():
            loop = stack.enter_context(closing(Bare(federation.family, config, data, plan, way)))
            sides[name] = loop.turn
        return take_turns(sides, turns), sum(a.tau for a in plan), federation.precision


def again(federation: rounds.Federation, state: Any) -> None:
    """Always the first round: the same clients, the same work."""
    rounds.run_round(federation, state)
