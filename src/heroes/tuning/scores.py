"""What a trial came to: the score by which settings are chosen.

It is the mean score of the model over the last fifth of the virtual budget: at each moment that of the last
test by then. Rounds of different lengths are treated alike, and one lucky test decides little. A round that
ends after the budget does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from heroes.report.measures import Evaluation

TAIL = 0.2  # of the budget


def score(tests: Sequence[Evaluation], budget: float) -> float | None:
    """The mean over the last fifth of the budget; None if no test was made within the budget.

    >>> from heroes.report.measures import Evaluation
    >>> tests = [Evaluation(1, 50.0, 1.0, 0.5), Evaluation(2, 95.0, 2.0, 0.9), Evaluation(3, 120.0, 3.0, 1.0)]
    >>> round(score(tests, 100.0), 6)  # 0.5 from 80 s to 95 s, 0.9 from then on
    0.6
    """
    within = [each for each in tests if each.seconds < budget]
    if not within:
        return None
    begin = max((1 - TAIL) * budget, within[0].seconds)
    ends = [*(each.seconds for each in within[1:]), budget]
    pieces = [
        (max(0.0, end - max(begin, each.seconds)), each.score) for each, end in zip(within, ends, strict=True)
    ]
    return sum(length * value for length, value in pieces) / sum(length for length, _ in pieces)
