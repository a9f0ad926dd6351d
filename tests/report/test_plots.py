"""Figures: what they show, in which colour, and when there is nothing to show."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from patience import patience

from heroes.errors import RunFolderError
from heroes.report import (
    RunData,
    compare,
    comparison_pictures,
    group_runs,
    load_run,
    load_runs,
    run_pictures,
    save_figure,
)
from heroes.report.plots import (
    resources_to_targets,
    score_against_energy,
    score_against_skew,
    score_against_time,
    score_against_traffic,
    waiting_per_round,
)
from heroes.report.run_plots import block_counters, round_timeline, widths_and_steps
from heroes.report.style import SPARE, as_bytes, colour, look
from heroes.strategies.registry import BUILT_IN

Make = Callable[..., Path]


def lines(figure: Figure) -> dict[str, tuple[list[float], list[float], str]]:
    """The labelled lines of a figure: x, y and colour."""
    found = {}
    for line in figure.axes[0].get_lines():
        if not str(line.get_label()).startswith("_"):
            x, y = (list(np.asarray(each, float)) for each in line.get_data())
            found[str(line.get_label())] = (x, y, to_hex(line.get_color()).upper())
    return found


def labels(figure: Figure) -> list[tuple[str, str]]:
    return [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]


def test_one_run_is_drawn_as_it_is(make_run: Make) -> None:
    figure = score_against_time(group_runs([load_run(make_run("one", [0.25, None, 0.5]))]))
    assert figure is not None
    assert lines(figure) == {"heroes": ([10.0, 30.0], [25.0, 50.0], "#0072B2")}
    assert labels(figure) == [("virtual time (s)", "test accuracy (%)")]


def test_seeds_become_their_mean_with_the_deviation_shaded(rivals: list[RunData]) -> None:
    figure = score_against_traffic(group_runs(rivals))
    assert figure is not None
    drawn = lines(figure)
    assert list(drawn) == ["heroes", "fedavg", "flanc"]
    assert drawn["heroes"][0] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert drawn["heroes"][1] == pytest.approx([40.0, 55.0, 45.0, 65.0, 70.0, 75.0])
    assert labels(figure) == [("traffic, both ways (MB)", "test accuracy (%)")]
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(65 + 450**0.5)


def test_the_mean_is_drawn_only_where_all_seeds_are_known(make_run: Make) -> None:
    folders = [make_run("a", [0.2, 0.4, 0.6], seed=0), make_run("b", [0.4, 0.6], seed=1, seconds=12.0)]
    figure = score_against_time(group_runs(load_runs(folders)))
    assert figure is not None
    x, y, _ = lines(figure)["heroes"]
    assert x == [12.0, 20.0, 24.0]
    assert y == pytest.approx([(24 + 40) / 2, (40 + 40 + 20 * 8 / 12) / 2, (48 + 60) / 2])


def test_every_strategy_has_its_own_colour_everywhere(rivals: list[RunData]) -> None:
    found = compare(rivals, targets=[0.5])
    time, bars = score_against_time(found.groups), resources_to_targets(found)
    assert time is not None
    assert bars is not None
    for label, (_, _, shade) in lines(time).items():
        assert shade == look(label)[0]
    for axes in bars.axes:
        shades = {
            container.get_label(): to_hex(container[0].get_facecolor()).upper()
            for container in axes.containers[::1]
            if _bar(container)
        }
        assert shades == {label: look(label)[0] for label in ("heroes", "fedavg", "flanc")}
    assert len(set(map(look, ("heroes", "fedavg", "flanc")))) == 3
    assert colour("something new") == colour("something new")
    assert colour("something new") in SPARE


def _bar(container: object) -> bool:
    return type(container).__name__ == "BarContainer"


def test_variants_of_a_strategy_share_the_colour_and_differ_in_the_line(make_run: Make) -> None:
    folders = [make_run("a", [0.5, 0.6]), make_run("b", [0.4, 0.6], strategy__blocks="grid")]
    figure = score_against_time(group_runs(load_runs(folders)))
    assert figure is not None
    first, second = figure.axes[0].get_lines()
    assert first.get_color() == second.get_color()
    assert first.get_linestyle() != second.get_linestyle()


def test_waiting_round_by_round(rivals: list[RunData]) -> None:
    figure = waiting_per_round(group_runs(rivals))
    assert figure is not None
    assert lines(figure)["fedavg"][:2] == ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [8.0] * 6)
    assert labels(figure) == [("round", "mean waiting of a client (s)")]


def test_bars_that_are_too_short_to_be_seen_have_their_value_above(make_run: Make) -> None:
    slow = make_run("slow", [0.1] * 110 + [0.6] * 3, strategy__name="fedavg")
    figure = resources_to_targets(compare(load_runs([slow, make_run("fast", [0.6] * 3)]), targets=[0.5]))
    assert figure is not None
    heights = [bar.get_height() for each in figure.axes[0].containers if _bar(each) for bar in each]
    assert [text.get_text() for text in figure.axes[0].texts] == [f"{min(heights):,.0f}"]
    assert max(heights) > 33 * min(heights) > 0


def test_bars_say_what_was_not_reached(rivals: list[RunData]) -> None:
    figure = resources_to_targets(compare(rivals, targets=[0.5, 0.7]))
    assert figure is not None
    heights = {
        str(each.get_label()): [bar.get_height() for bar in each]
        for each in figure.axes[0].containers
        if _bar(each)
    }
    assert heights == {"heroes": [35.0, 50.0], "fedavg": [150.0, 0.0], "flanc": [60.0, 0.0]}
    assert sorted(text.get_text() for text in figure.axes[0].texts) == [
        "1 of 2",
        "1 of 2",
        "not reached",
        "not reached",
    ]
    assert labels(figure) == [
        ("target accuracy", "virtual time (s)"),
        ("target accuracy", "traffic, both ways (MB)"),
    ]


def test_score_against_skew_joins_the_levels_of_a_strategy(make_run: Make) -> None:
    folders = [
        make_run(
            f"{strategy}{gamma}{seed}",
            [0.5, 0.9 - gamma / 200 + seed / 10],
            strategy=strategy,
            data__gamma=float(gamma),
            seed=seed,
        )
        for strategy in ("heroes", "flanc")
        for gamma in (80, 20)
        for seed in (0, 1)
    ]
    figure = score_against_skew(load_runs(folders))
    assert figure is not None
    errorbars = figure.axes[0].containers
    assert [each.get_label() for each in errorbars] == ["heroes", "flanc"]
    x, y = errorbars[0].lines[0].get_data()
    assert list(x) == [20.0, 80.0]
    assert list(y) == pytest.approx([85.0, 55.0])
    assert "main class (%)" in labels(figure)[0][0]
    early = score_against_skew(load_runs(folders), at_seconds=15)
    assert early is not None
    assert list(early.axes[0].containers[0].lines[0].get_data()[1]) == pytest.approx([50.0, 50.0])


def test_a_skew_is_told_with_the_time_by_which_all_runs_ended(make_run: Make) -> None:
    def drawn(*budgets: float) -> str:
        runs = [
            load_run(make_run(f"{budgets}{gamma}", [0.5], data__gamma=gamma, federation__time_budget=budget))
            for gamma, budget in zip((20.0, 80.0), budgets, strict=True)
        ]
        ended = [replace(run, rows=(replace(run.rows[-1], stopped="time budget"),)) for run in runs]
        figure = score_against_skew(ended)
        assert figure is not None
        return str(figure.axes[0].get_title(loc="left"))

    assert drawn(300.0, 300.0) == "Test accuracy after 300 virtual s against skew of the data"
    assert drawn(300.0, 200.0) == "Test accuracy at the end against skew of the data"


def test_the_dirichlet_level_has_a_logarithmic_axis_and_gamma_does_not_matter_there(make_run: Make) -> None:
    folders = [
        make_run(f"a{alpha}", [0.5], data__partition="dirichlet", data__alpha=alpha) for alpha in (0.1, 1.0)
    ]
    figure = score_against_skew(load_runs(folders))
    assert figure is not None
    assert figure.axes[0].get_xscale() == "log"
    other = [
        make_run(f"g{gamma}", [0.5], data__partition="dirichlet", data__gamma=gamma) for gamma in (10.0, 20.0)
    ]
    assert score_against_skew(load_runs(other)) is None


def test_a_round_seen_from_inside(rivals: list[RunData]) -> None:
    figure = round_timeline(rivals[0], 2)
    assert figure is not None
    assert figure.axes[0].get_title(loc="left") == "Round 2 of heroes, seed 0"
    bars = {str(each.get_label()): [bar.get_width() for bar in each] for each in figure.axes[0].containers}
    assert bars == {"compute": [6.0, 5.0], "transfer": [4.0, 4.0], "waiting": [0.0, 1.0]}
    assert figure.axes[0].get_yticklabels()[1].get_text() == "0 · board-1 · width 1 · τ 5"
    assert round_timeline(rivals[0], 99) is None


def test_start_and_pauses_of_deployed_clients_are_bars_of_their_own(rivals: list[RunData]) -> None:
    last = rivals[0].rows[-1]
    clients = tuple(replace(client, start_seconds=2.0, pause_seconds=3.0) for client in last.clients)
    figure = round_timeline(replace(rivals[0], rows=(replace(last, clients=clients),)))
    assert figure is not None
    bars = {str(each.get_label()): [bar.get_width() for bar in each] for each in figure.axes[0].containers}
    assert (bars["start"], bars["pause"]) == ([2.0, 2.0], [3.0, 3.0])


def test_counters_become_a_square_per_snapshot(make_run: Make) -> None:
    run = load_run(make_run("one", [0.5] * 9))
    figure = block_counters(run, snapshots=3)
    assert figure is not None
    squares = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in squares] == ["round 1", "round 5", "round 9"]
    assert [text.get_text() for text in squares[1].texts] == ["50", "40", "40", "60"]
    assert np.asarray(squares[0].images[0].get_array()) == pytest.approx(np.array([[10, 8], [8, 12]]) / 9.5)
    assert figure.axes[-1].get_ylabel() == "counter relative to the round's mean"


def test_widths_and_steps_by_device(rivals: list[RunData]) -> None:
    figure = widths_and_steps(rivals[0])
    assert figure is not None
    bars = {str(each.get_label()): [bar.get_width() for bar in each] for each in figure.axes[0].containers}
    assert bars == {"width 1": [0.0, 100.0], "width 2": [100.0, 0.0]}
    assert labels(figure)[1] == ("τ: local steps in a round", "device class")


def test_many_devices_are_shown_together(rivals: list[RunData]) -> None:
    template = rivals[0].rows[0].clients[0]
    clients = tuple(replace(template, device=f"phone-{number:02}") for number in range(40))
    row = replace(rivals[0].rows[0], clients=clients)
    figure = widths_and_steps(RunData(Path(), "", "heroes", 0, "digits", {}, (row,)))
    assert figure is not None
    names = [tick.get_text() for tick in figure.axes[1].get_yticklabels()]
    assert len(names) == 12
    assert "others" in names


def test_without_data_there_is_no_figure(make_run: Make) -> None:
    plain = load_run(make_run("plain", [None, None], strategy="fedavg"))
    bare = RunData(
        plain.path,
        "",
        "fedavg",
        0,
        "digits",
        plain.config,
        tuple(replace(row, clients=(), facts={}) for row in plain.rows),
    )
    groups = group_runs([bare])
    assert score_against_time(groups) is None
    assert score_against_traffic([]) is None
    assert waiting_per_round([]) is None
    assert score_against_skew([bare]) is None
    assert run_pictures(bare) == []
    assert [each.name for each in comparison_pictures(compare([bare]))] == ["waiting"]


def test_figures_are_saved_twice_and_always_the_same(rivals: list[RunData], tmp_path: Path) -> None:
    figures = [score_against_time(group_runs(rivals)) for _ in range(2)]
    assert figures[0] is not None
    assert figures[1] is not None
    paths = save_figure(figures[0], tmp_path / "deep" / "time.v1")
    assert [path.name for path in paths] == ["time.v1.png", "time.v1.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes() == as_bytes(figures[1], "svg")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write"):
        save_figure(figures[0], tmp_path / "file" / "time")


def test_without_matplotlib_one_sentence_says_what_to_install(rivals: list[RunData]) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\n"
        "from heroes.report import load_run, write_page, compare\n"
        f"run = load_run({str(rivals[0].path)!r}); compare([run]).lines()\n"
        "write_page([run], Path('/dev/null'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=patience(240)
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "figures need matplotlib; install it with: pip install 'heroes-fl[report]'"
    )


def test_the_report_is_imported_without_matplotlib_and_without_torch() -> None:
    code = "import sys, heroes.report; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=patience(240)).returncode == 0


def test_axes_of_real_time_are_called_so(make_run: Make) -> None:
    run = load_run(make_run("real", [0.4, 0.5, 0.6], clock="wall"))
    figures = [
        score_against_time(group_runs([run])),
        round_timeline(run),
        resources_to_targets(compare([run])),
    ]
    assert [labels(figure)[0] for figure in figures if figure is not None] == [
        ("wall time (s)", "test accuracy (%)"),
        ("wall time in the round (s)", "client"),
        ("target accuracy", "wall time (s)"),
    ]


def test_an_error_is_drawn_as_it_is_on_an_axis_from_zero(houses: list[RunData]) -> None:
    figure = score_against_time(group_runs(houses))
    assert figure is not None
    assert lines(figure)["ours"][:2] == ([10.0, 20.0, 30.0, 40.0, 50.0], [0.8, 0.5, 0.5, 0.2, 0.2])
    assert lines(figure)["ours"][2] in SPARE
    assert labels(figure) == [("virtual time (s)", "test rmse")]
    assert figure.axes[0].get_title(loc="left") == "Test rmse against time"
    assert figure.axes[0].get_ylim()[0] == 0
    bars = resources_to_targets(compare(houses, targets=[0.3, 0.5]))
    assert bars is not None
    assert [tick.get_text() for tick in bars.axes[0].get_xticklabels()] == ["0.5", "0.3"]
    assert labels(bars)[0] == ("target rmse", "virtual time (s)")


@pytest.mark.parametrize(
    ("scores", "scale", "bottom"),
    [([900.0, 40.0], "log", None), ([5.0, 1.0], "linear", 0.0), ([5.0, 4.5], "linear", None)],
)
def test_an_axis_begins_where_it_shows_most(
    make_run: Make, scores: list[float], scale: str, bottom: float | None
) -> None:
    run = load_run(make_run("text", scores, metric="perplexity", lower=True))
    figure = score_against_traffic(group_runs([run]))
    assert figure is not None
    low, _ = figure.axes[0].get_ylim()
    assert figure.axes[0].get_yscale() == scale
    assert low == bottom if bottom is not None else 0.5 * min(scores) < low < min(scores)


@pytest.mark.parametrize(
    ("scores", "limits"), [([0.12, 0.42], (10, 50)), ([0.31, 0.66], (30, 80)), ([0.5, 0.97], (50, 100))]
)
def test_shares_fill_their_axis(make_run: Make, scores: list[float], limits: tuple[float, float]) -> None:
    figure = score_against_time(group_runs([load_run(make_run("text", scores))]))
    assert figure is not None
    assert figure.axes[0].get_ylim() == limits


def test_pictures_are_called_by_the_metric_in_letters_that_file_names_have(make_run: Make) -> None:
    run = load_run(make_run("odd", [1.0, 2.0], metric="../top 5"))
    assert [each.name for each in comparison_pictures(compare([run]))][:2] == ["top-5-time", "top-5-traffic"]


def lab(colour: str) -> np.ndarray:
    """A colour in CIELAB, where distances are what eyes see."""
    rgb = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_all_strategies_can_be_told_apart() -> None:
    looks = {name: look(name) for name in BUILT_IN}
    for (one, (first, mark)), (two, (second, other)) in combinations(looks.items(), 2):
        apart = float(np.linalg.norm(lab(first) - lab(second)))
        assert apart > 20, (one, two, apart)
        assert apart > 30 or mark != other, (one, two, apart)


def test_energy_is_drawn_where_it_is_known(make_run: Make) -> None:
    runs = [
        load_run(make_run("h", [0.5, 0.5, 0.5], joules=5.0)),
        load_run(make_run("a", [0.5, 0.5, 0.5], strategy="fedavg")),
    ]
    figure = score_against_energy(group_runs(runs))
    assert figure is not None
    assert list(lines(figure)) == ["heroes"]
    assert lines(figure)["heroes"][0] == [5.0, 10.0, 15.0]
    bars = resources_to_targets(compare(runs, targets=[0.5]))
    assert bars is not None
    assert [axes.get_ylabel() for axes in bars.axes][2] == "energy of all clients, estimated (J)"
    assert [text.get_text() for text in bars.axes[2].texts] == ["not known"]
    assert score_against_energy(group_runs(runs[1:])) is None
