"""What a trial came to: the score by which settings are chosen.

It is the mean score of the model over the virtual budget: at each moment that of the last test by then.
Before the first test it is 0, or the worst of all where lower is better. So speed counts as well as what is
reached in the end, rounds of different lengths are treated alike, and one lucky test decides little. A round
that ends after the budget does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from heroes.report.measures import Evaluation


def score(tests: Sequence[Evaluation], budget: float, lower_is_better: bool = False) -> float | None:
    """The mean over the budget; None if no test was made within it.

    >>> from heroes.report.measures import Evaluation
    >>> tests = [Evaluation(1, 50.0, 1.0, 0.5), Evaluation(2, 90.0, 2.0, 0.9), Evaluation(3, 120.0, 3.0, 1.0)]
    >>> round(score(tests, 100.0), 6)  # nothing until 50 s, 0.5 until 90 s, 0.9 from then on
    0.29
    """
    within = [each for each in tests if each.seconds < budget]
    if not within:
        return None
    before = max(each.score for each in within) if lower_is_better else 0.0
    ends = [*(each.seconds for each in within[1:]), budget]
    total = sum((end - each.seconds) * each.score for each, end in zip(within, ends, strict=True))
    return (within[0].seconds * before + total) / budget
