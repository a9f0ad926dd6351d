"""Pages and figures of names that nobody expects, of thousands of clients, and on a disk without room."""

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import record

from heroes.errors import RunFolderError
from heroes.messages import ClientRecord
from heroes.report import RunData, compare, group_runs, load_run, save_figure, write_page, write_whole
from heroes.report.plots import score_against_time
from heroes.report.run_plots import round_timeline, widths_and_steps
from heroes.report.style import as_bytes

Make = Callable[..., Path]
ODD = {
    "mathematics": "$x^$",
    "more mathematics": r"$\frac{$ and \$",
    "half a letter": "\ud800",
    "many letters": "L" * 100_000,
    "commands": "\x1b]0;owned\x07\r\n",
    "left out of legends": "_nolegend_",
    "letters without a picture": "数字 \U0001f980",
    "nothing": "",
}


def called(run: RunData, name: str) -> RunData:
    """The run with this name for everything that has one."""
    clients = tuple(replace(each, device=name) for each in run.rows[0].clients)
    rows = tuple(
        replace(row, clients=clients, metric=name, scores={name: 0.5}, lost={name: 1}, clock=name)
        for row in run.rows
    )
    config = {"strategy": {"name": name}, "seed": 0, "experiment": name, "data": {"name": name}}
    return replace(
        run, label=name, strategy=name, experiment=name, config=config, rows=rows, environment={name: name}
    )


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_any_name_is_drawn_and_written(make_run: Make, tmp_path: Path, name: str) -> None:
    run = called(load_run(make_run("run", [0.5, 0.6])), name)
    found = compare([run])
    page = write_page([run], tmp_path / "report.html", found).read_text(encoding="utf-8")
    assert "\x1b" not in page
    assert len(page) < 3_000_000
    assert max(map(len, found.lines())) < 20_000
    write_whole(tmp_path / "comparison.csv", found.as_csv())
    assert (tmp_path / "comparison.csv").read_bytes().decode("utf-8")


def test_names_are_no_mathematics_and_stand_in_legends(make_run: Make) -> None:
    runs = [called(load_run(make_run(f"run-{n}", [0.5, 0.6])), name) for n, name in enumerate(("$x^$", "_a"))]
    same = [replace(run, rows=runs[0].rows) for run in runs]
    figure = score_against_time(group_runs(same))
    assert figure is not None
    as_bytes(figure, "svg")
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == [r"\$x^\$ (name=\$x^\$)", " _a (name=_a)"]  # \$ is how matplotlib is told to draw a $
    timeline = round_timeline(runs[0])
    assert timeline is not None
    assert r"\$x^\$ · width 1" in timeline.axes[0].get_yticklabels()[1].get_text()


def test_long_names_that_begin_alike_stay_different_devices(make_run: Make) -> None:
    run = load_run(make_run("run", [0.5]))
    clients = tuple(replace(run.rows[0].clients[0], device="L" * 1000 + end) for end in "ABC")
    figure = widths_and_steps(replace(run, rows=(replace(run.rows[0], clients=clients),)))
    assert figure is not None
    assert [len(each) for each in figure.axes[0].containers] == [3]


def many(count: int) -> tuple[ClientRecord, ...]:
    one = record(1).clients[0]
    return tuple(replace(one, client=n, compute_seconds=float(n), tau=1 + n % 7) for n in range(count))


def drawn(run: RunData, clients: Sequence[ClientRecord]) -> tuple[list[int], str]:
    figure = round_timeline(replace(run, rows=(replace(run.rows[0], clients=tuple(clients)),)))
    assert figure is not None
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    return [int(name.split(" ")[0]) for name in names], figure.axes[0].get_ylabel()


def test_of_thousands_of_clients_the_fastest_and_the_slowest_are_drawn(make_run: Make) -> None:
    run = load_run(make_run("run", [0.5]))
    shown, said = drawn(run, many(2000))
    assert shown == [*range(20), *range(1980, 2000)]
    assert said == "40 of 2,000 clients shown: the fastest and the slowest"
    assert drawn(run, many(40)) == ([*range(39, -1, -1)], "client")


def test_outliers_of_the_same_number_are_one_dot(make_run: Make) -> None:
    run = load_run(make_run("run", [0.5]))
    clients = tuple(replace(each, tau=500 if each.client % 100 == 0 else 10) for each in many(2000))
    figure = widths_and_steps(replace(run, rows=(replace(run.rows[0], clients=clients),)))
    assert figure is not None
    assert max(len(line.get_xdata()) for line in figure.axes[1].lines if line.get_marker() == "o") == 1


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Like a disk with so much room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_a_page_and_a_figure_are_whole_or_not_there(make_run: Make, tmp_path: Path) -> None:
    run = load_run(make_run("run", [0.5, 0.6]))
    out = tmp_path / "out"
    page = write_page([run], out / "report.html")
    before, figure = page.read_bytes(), score_against_time(group_runs([run]))
    assert figure is not None
    writers: list[Callable[[], Any]] = [
        lambda: write_page([run], out / "report.html"),
        lambda: write_page([run], out / "new.html"),
        lambda: save_figure(figure, out / "figure"),
        lambda: write_whole(out / "comparison.json", "x" * 10_000),
    ]
    for write in writers:
        with room_for(5_000), pytest.raises(RunFolderError, match="cannot write"):
            write()
    assert [path.name for path in out.iterdir()] == ["report.html"]
    assert page.read_bytes() == before


def test_what_is_no_file_is_written_to_and_links_stay(tmp_path: Path) -> None:
    write_whole(Path(os.devnull), "nothing")
    assert not Path(os.devnull).is_file()
    (tmp_path / "link").symlink_to(tmp_path / "page")
    write_whole(tmp_path / "link", "half: \ud800")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_text() == r"half: \ud800"
    with pytest.raises(RunFolderError, match="cannot write"):
        write_whole(tmp_path, "a folder")
