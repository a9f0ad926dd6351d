"""What a trial came to: the score by which settings are chosen.

It is the mean score of the model over the virtual budget, on straight lines from test to test. At the start
it is 0, or the worst of all where lower is better. So speed counts as well as what is reached in the end,
rounds of different lengths are treated alike, and one lucky test decides little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heroes.report.measures import Evaluation


def score(tests: Sequence[Evaluation], budget: float, lower_is_better: bool = False) -> float | None:
    """The mean over the budget; None if no test was made within it.

    >>> from heroes.report.measures import Evaluation
    >>> tests = [Evaluation(1, 50.0, 1.0, 0.5), Evaluation(2, 90.0, 2.0, 0.9), Evaluation(3, 110.0, 3.0, 1.0)]
    >>> round(score(tests, 100.0), 6)  # rises to 0.5 in 50 s, to 0.9 in 40 s, to 0.95 in 10 s
    0.4975
    """
    within = [each for each in tests if each.seconds < budget]
    if not within:
        return None
    before = max(each.score for each in within) if lower_is_better else 0.0
    times = [0.0, *(each.seconds for each in tests)]
    scores = [before, *(each.score for each in tests)]
    moments = [time for time in times if time < budget] + [budget]
    return float(np.trapezoid(np.interp(moments, times, scores), moments)) / budget
