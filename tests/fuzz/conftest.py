"""Every fuzz target is one test that takes `fuzz`: a short run in the normal tier, a long one among the slow
tests.

Long runs try new inputs every time. HEROES_FUZZ_SEED repeats one, HEROES_FUZZ_INPUTS says how many inputs
(10,000), and HEROES_FUZZ_OUT names a JSON file that the numbers of inputs are written to.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import fuzzing
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

SMOKE = 200
SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]
Fuzz = Callable[..., None]


@pytest.fixture(params=["smoke", pytest.param("slow", marks=SLOW)])
def fuzz(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Fuzz:
    """A function that tries a target with many inputs from a strategy, within bounded memory."""
    slow = request.param == "slow"
    count = int(os.environ.get("HEROES_FUZZ_INPUTS", "10000")) if slow else SMOKE
    start = int(os.environ.get("HEROES_FUZZ_SEED") or random.SystemRandom().randrange(2**32)) if slow else 0

    def run(target: Callable[[Any], None], inputs: st.SearchStrategy[Any]) -> None:
        tried = 0

        @seed(start)
        @settings(
            max_examples=count,
            deadline=timedelta(seconds=30),  # an input that takes so long is one that hangs
            derandomize=False,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs)
        def attempt(value: Any) -> None:
            nonlocal tried
            tried += 1
            try:
                target(value)
            except Exception as error:
                error.add_note(f"the input was {value!r:.4000}")
                raise

        began = time.monotonic()
        try:
            with fuzzing.address_space():
                attempt()
        except BaseException as error:
            error.add_note(
                f"repeat it by HEROES_FUZZ_SEED={start} HEROES_FUZZ_INPUTS={count}"
                if slow
                else "the short run"
            )
            raise
        finally:
            name = f"{request.path.stem.removeprefix('test_fuzz_')}: {request.node.name}"
            record_property("fuzz", [name, tried, round(time.monotonic() - began, 1), start])

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many inputs were tried."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, ())]
    found = [
        value for report in reports for key, value in getattr(report, "user_properties", ()) if key == "fuzz"
    ]
    long = [entry for entry in found if entry[0].endswith("[slow]")]
    for name, tried, seconds, start in long:
        terminalreporter.write_line(f"{name}: {tried} inputs in {seconds} s, HEROES_FUZZ_SEED={start}")
    if found and (out := os.environ.get("HEROES_FUZZ_OUT")):
        Path(out).write_text(
            json.dumps({name: {"inputs": n, "seconds": s, "seed": at} for name, n, s, at in found}, indent=1)
        )
