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
    """The settings by which a strategy does so many local steps, or begins with them and does few more."""
    if "tau" in BUILT_IN[name].model_fields:
        return {"strategy.tau": tau}
    return {"strategy.tau_first": tau, "strategy.tau_max": 2 * tau}
