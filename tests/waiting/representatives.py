"""One strategy for each thing that engines must carry: tests that take long try these, not all, and with few
local steps.
"""

from __future__ import annotations

from heroes.strategies.registry import BUILT_IN


def representatives() -> list[str]:
    """The first of those that ask the same of clients and of the messages between."""
    found: dict[object, str] = {}
    for name, kind in BUILT_IN.items():
        strategy = kind()
        duties = strategy.duties(2)
        asked = bool(duties.terms), bool(duties.sends), duties.any_width > 0, duties.tries_coarser
        needs = duties.probes > 0, strategy.sampler() is not None, tuple(kind.requires)
        found.setdefault((kind.holds, *asked, *needs), name)
    return list(found.values())


def steps(name: str, tau: int) -> dict[str, int]:
    """The setting by which a strategy does, or begins with, so many local steps."""
    return {"strategy.tau" if "tau" in BUILT_IN[name].model_fields else "strategy.tau_first": tau}
