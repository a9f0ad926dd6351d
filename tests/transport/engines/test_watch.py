"""Who is silent for how long, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from heroes.transport.engines.mpi.watch import Watch


@dataclass
class Observed:
    """Ranks 1 and 2, watched with a patience of 10 seconds."""

    now: float = 100.0
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = Watch([1, 2], now=lambda: self.now)
        self.watch.patience = 10.0

    def pass_by(self, seconds: float, *heard: int) -> list[int]:
        """A quarter of a second at a time, in which these ranks say something; who is lost meanwhile."""
        lost = []
        for _ in range(round(4 * seconds)):
            self.now += 0.25
            assert self.watch.look()
            for rank in heard:
                self.watch.hear(rank)
            lost += self.watch.lost()
        return lost


def test_a_rank_is_lost_once_after_so_many_seconds_without_a_word() -> None:
    observed = Observed()
    observed.pass_by(1, 1, 2)
    assert observed.pass_by(10, 1) == []
    assert observed.pass_by(0.25, 1) == [2]
    assert observed.pass_by(100, 1) == []


def test_a_rank_that_was_never_heard_is_still_to_come() -> None:
    assert Observed().pass_by(1000, 1) == []


def test_a_rank_that_has_left_is_not_waited_for_even_if_it_says_goodbye() -> None:
    observed = Observed()
    observed.pass_by(1, 1, 2)
    observed.watch.leave(2)
    observed.watch.hear(2)
    assert observed.pass_by(100, 1) == []


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    observed = Observed()
    observed.pass_by(1, 1, 2)
    observed.now += 3600
    assert observed.watch.look()
    assert not observed.watch.quiet(1)
    assert observed.watch.lost() == []


def test_a_rank_is_quiet_long_before_it_is_lost_and_until_it_is_heard() -> None:
    observed = Observed()
    observed.pass_by(1, 1, 2)
    observed.pass_by(3, 1)
    assert [observed.watch.quiet(rank) for rank in (1, 2)] == [False, True]
    observed.pass_by(0.25, 1, 2)
    assert not observed.watch.quiet(2)


def test_ranks_are_asked_twice_a_second_but_not_again_before_they_answer() -> None:
    observed = Observed()
    assert observed.watch.ask() == [1, 2]
    asked = []
    for _ in range(8):
        observed.pass_by(0.25, 1)
        asked += observed.watch.ask()
    assert asked == [1, 1, 1, 1]
    observed.pass_by(0.25, 1, 2)
    assert observed.watch.ask() == [2]
