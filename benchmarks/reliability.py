"""What drop-out and hostile clients cost in accuracy: digits, Heroes, 40 rounds, three seeds, with and
without defences.

Accuracy is the mean of the last three evaluations, which are five rounds apart. Runs that are done are kept
beside the results, so that an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from statistics import fmean, stdev
from typing import Any

from benchmarks.common import RESULTS, save, say, show
from heroes import recipes, run
from heroes.errors import TrainingError
from heroes.messages import RoundRecord
from heroes.report.style import as_bytes, dress, legend, new_figure
from heroes.transport.engines.processes import cores

SEEDS = (0, 1, 2)
# rounds of the plain mean under attack: it is lost long before, and a huge loss asks for very many steps
SHORT = 15
DROPOUT = (0.0, 0.1, 0.2, 0.3, 0.5)
ATTACKERS = (0.0, 0.1, 0.2, 0.3)
DEFENCES: dict[str, dict[str, Any]] = {
    "mean": {"federation.rounds": SHORT},
    "clip": {"robust.clip": "auto"},
    "trimmed mean": {"robust.combine": "trimmed_mean", "robust.trim": 0.3},
    "median": {"robust.combine": "median"},
    "guard": {"robust.guard": True},
}
DROPOUT_COSTS, ATTACK_COSTS = 0.03, 0.05  # the goals: 30 % drop-out, 20 % attackers with the guard
PARTIAL = RESULTS / "reliability.partial.json"
PICTURES = RESULTS.parent.parent / "docs" / "pictures"
Case = Mapping[str, Any]


def main(quick: bool) -> None:
    seeds = SEEDS[:1] if quick else SEEDS
    cases = {**_dropout_cases(), **_attack_cases()}
    if quick:
        cases = {
            name: case
            for name, case in cases.items()
            if name in ("clean", "drop-out 0.3", "flip 0.2 mean", "flip 0.2 guard")
        }
    done = _all(
        {f"{name} | {seed}": {**case, "seed": seed} for name, case in cases.items() for seed in seeds}, quick
    )
    found = {name: [done[f"{name} | {seed}"] for seed in seeds] for name in cases}
    clean = fmean(found["clean"])
    _show(
        "Drop-out",
        {name: found[name] for name in found if name == "clean" or name.startswith("drop-out")},
        clean,
    )
    _show("Hostile clients", {name: found[name] for name in found if not name.startswith("drop-out")}, clean)
    dropped, guarded = clean - fmean(found["drop-out 0.3"]), clean - fmean(found["flip 0.2 guard"])
    say(f"30 % drop-out costs {100 * dropped:.2f} points (goal {100 * DROPOUT_COSTS:g})")
    say(f"20 % attackers with the guard cost {100 * guarded:.2f} points (goal {100 * ATTACK_COSTS:g})")
    if not quick:
        save("reliability", {"accuracy": found})
        _draw(found)
        PARTIAL.unlink(missing_ok=True)


def _dropout_cases() -> dict[str, Case]:
    return {"clean" if not rate else f"drop-out {rate}": {"faults.dropout": rate} for rate in DROPOUT}


def _attack_cases() -> dict[str, Case]:
    """The curve of three defences over the share of attackers, and every defence against both attacks at one
    fifth.
    """
    wanted = [("flip", share, name) for share in ATTACKERS for name in ("mean", "median", "guard")]
    wanted += [("flip", 0.2, name) for name in DEFENCES] + [
        ("scale", 0.2, name) for name in ("mean", "median", "guard")
    ]
    return {
        f"{attack} {share} {name}": {"faults.attackers": share, "faults.attack": attack, **DEFENCES[name]}
        for attack, share, name in dict.fromkeys(wanted)
        if share or name != "mean"
    }


def _all(jobs: Mapping[str, Case], quick: bool) -> dict[str, float]:
    done: dict[str, float] = {} if quick or not PARTIAL.exists() else json.loads(PARTIAL.read_text())
    with ProcessPoolExecutor(cores()) as pool:
        running = {
            pool.submit(_accuracy, dict(case)): name for name, case in jobs.items() if name not in done
        }
        for job in as_completed(running):
            done[running[job]] = job.result()
            say(f"{len(done)} of {len(jobs)}: {running[job]}: {100 * job.result():.2f} %")
            if not quick:
                PARTIAL.write_text(json.dumps(done))
    return done


def _accuracy(changes: dict[str, Any]) -> float:
    common = {
        "federation.rounds": 40,
        "engine.name": "in_process",
        "evaluation.every": 5,
        "evaluation.every_width": False,
    }
    scored: list[float] = []

    def note(record: RoundRecord) -> None:
        scored.extend([] if record.accuracy is None else [record.accuracy])

    with suppress(TrainingError):  # driven out of the numbers there are: what was measured until then counts
        run(recipes.digits().changed(common | changes), on_round=note)
    return fmean(scored[-3:]) if scored else 0.0


def _show(title: str, found: Mapping[str, Sequence[float]], clean: float) -> None:
    rows = [
        (
            name,
            f"{100 * fmean(each):.2f} %",
            f"{100 * stdev(each):.2f}" if len(each) > 1 else "",
            f"{100 * (fmean(each) - clean):+.2f}",
        )
        for name, each in found.items()
    ]
    show(title, ("case", "accuracy", "deviation", "against clean"), rows)


def _draw(found: Mapping[str, Sequence[float]]) -> None:
    figure, (axes,) = new_figure()
    rates = [("clean" if not rate else f"drop-out {rate}", rate) for rate in DROPOUT]
    _line(axes, [100 * rate for _, rate in rates], [found[name] for name, _ in rates], "drop-out", "#0072B2")
    for defence, colour in (("mean", "#D55E00"), ("median", "#009E73"), ("guard", "#CC79A7")):
        names = [
            "clean" if not share and defence == "mean" else f"flip {share} {defence}" for share in ATTACKERS
        ]
        _line(
            axes,
            [100 * share for share in ATTACKERS],
            [found[name] for name in names],
            f"attackers, {defence}",
            colour,
        )
    dress(
        axes,
        "Digits under drop-out and attack",
        "clients that drop out, or are hostile (%)",
        "test accuracy (%)",
    )
    axes.set_ylim(0, 102)
    legend(figure, axes)
    (PICTURES / "reliability.png").write_bytes(as_bytes(figure, "png"))


def _line(
    axes: Any, where: Sequence[float], values: Sequence[Sequence[float]], label: str, colour: str
) -> None:
    axes.plot(where, [100 * fmean(each) for each in values], marker="o", color=colour, label=label)
    for at, each in zip(where, values, strict=True):
        axes.plot([at] * len(each), [100 * value for value in each], ".", color=colour, alpha=0.4)
