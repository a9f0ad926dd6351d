"""Many settings side by side, and the clients of a round in the order of their times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from heroes.report import load_run
from heroes.report.measures import Spread
from heroes.report.study_plots import Dots, dot_plot, ranked_times

Make = Callable[..., Path]


def test_a_dot_is_hollow_if_some_runs_have_no_number_and_the_first_row_has_a_line() -> None:
    rows = [
        Dots("ours", "heroes", (Spread((10.0, 20.0)),)),
        Dots("changed", "heroes", (Spread((30.0, None)),)),
        Dots("hopeless", "heroes", (Spread((None, None)),)),
    ]
    figure = dot_plot(rows, ("seconds",), (2.0,), "cifar10, 40 virtual s")
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "cifar10, 40 virtual s"
    line, *_ = axes.lines
    assert list(line.get_xdata()) == [30.0, 30.0]
    dots = [each.lines[0] for each in axes.containers]
    assert [(float(dot.get_xdata()[0]), dot.get_fillstyle()) for dot in dots] == [
        (30.0, "full"),
        (60.0, "none"),
    ]
    assert [text.get_text() for text in axes.texts] == ["not reached"]
    assert dot_plot([], ("seconds",), (1.0,)) is None


def test_clients_are_shown_by_their_share_of_the_slowest_ones_time(make_run: Make) -> None:
    figure = ranked_times({"whole": [load_run(make_run("one", [0.5, 0.6], waiting=4.0))], "none": []})
    assert figure is not None
    (axes,) = figure.axes
    (curve,) = axes.lines
    # of the two clients one takes 10 s and the other 4 s less
    assert np.asarray(curve.get_ydata()) == pytest.approx([60.0, 100.0])
    assert curve.get_label() == "whole: 10.0 s"
