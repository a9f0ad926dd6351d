"""The longest first, nothing twice, nothing left out, and never far ahead of the plan."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from heroes.transport.workers.queue import Queue


def test_a_plan_within_the_window_goes_longest_first():
    queue = Queue([2.0, 9.0, 2.0, 5.0], window=8)
    assert [queue.take(busy=True) for _ in range(5)] == [1, 3, 0, 2, None]


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 5), st.integers()
)
def test_all_places_are_done_once_and_few_answers_wait(costs, window, workers, seed):
    draw = random.Random(seed)
    queue, doing, done, back = Queue(costs, window), [], [], 0
    while not queue.finished:
        while len(doing) < workers and (place := queue.take(busy=bool(doing))) is not None:
            doing.append(place)
        place = doing.pop(draw.randrange(len(doing)))
        if back < 5 and draw.random() < 0.2:  # its worker died before it began
            back += 1
            queue.put_back(place)
            continue
        done.append(place)
        queue.done(place)
        assert len(done) - queue.turn <= 2 * window + workers
    assert sorted(done) == list(range(len(costs)))


def test_when_one_answer_is_long_in_coming_the_others_wait_for_it():
    queue = Queue([9.0] + [1.0] * 99, window=4)
    handed_out = 1
    assert queue.take(busy=False) == 0
    while (place := queue.take(busy=True)) is not None:
        handed_out += 1
        queue.done(place)
    assert handed_out == 1 + 8
    queue.done(0)
    assert queue.take(busy=True) is not None
