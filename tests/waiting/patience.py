"""How long tests wait: HEROES_TEST_PATIENCE=4 lets all of them wait four times as long."""

import os


def patience(seconds: float) -> float:
    """A limit of so many seconds, on a machine that is as busy as HEROES_TEST_PATIENCE says."""
    return seconds * float(os.environ.get("HEROES_TEST_PATIENCE") or 1)
