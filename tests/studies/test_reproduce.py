"""The evaluation: every plan can be run at every scale, a figure is made from what is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hand_kept import keep_all
from typer.testing import CliRunner

from heroes.cli.app import app
from heroes.cli.commands import run as _run  # noqa: F401 (registers the commands)
from heroes.cli.reproducing import FIGURES
from heroes.errors import ConfigError
from heroes.studies import plans
from heroes.studies.figures import plan_of
from heroes.studies.kept import Key, Store, key_of

SMALL = """
about = "Two strategies."
experiment = "digits"
seeds = [3]
budget = 100
targets = [0.1]

[settings]
"federation.clients" = 6
"federation.cohort" = 2
"model.max_width" = 2

[runs."ours"]

[runs."theirs"]
strategy = "fedavg"

[variants."32 bits"]
"exchange.up_bits" = 32

[variants."8 bits"]
"exchange.up_bits" = 8

[scales.smoke]
budget = 4

[scales.smoke.settings]
"data.test_limit" = 50
"""


@pytest.fixture
def figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "worlds.toml").write_text(SMALL)
    monkeypatch.setattr(plans, "FIGURES", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.timeout(900)  # four runs and a dozen pictures
def test_a_figure_is_run_once_and_written_with_tables_pictures_and_a_page(figure: Path) -> None:
    command = ["reproduce", "worlds", "--scale", "smoke", "--jobs", "1"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "8 bits: Speed-up of ours" in done.output
    out = figure / "runs" / "reproduce"
    assert len(list((out / "results").glob("*.json.gz"))) == 4
    page = (out / "worlds" / "page.html").read_text()
    assert page.count("<h2>") == 2
    assert "theirs" in page
    assert list((out / "worlds").rglob("accuracy-time.svg"))
    again = CliRunner().invoke(app, [*command, "--tables"])
    assert again.exit_code == 0
    assert "kept after" not in again.output


def test_several_figures_have_one_page_that_leads_to_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "results")
    for name in ("text", "images"):
        keep_all(store, plan_of(name), seeds=1)
    done = CliRunner().invoke(app, ["reproduce", "text", "images", "motivation", "--tables", "--quiet"])
    assert done.exit_code == 0, done.output
    out = tmp_path / "runs/reproduce"
    leads = re.findall(r'href="([^"]+/[^"]+)">(\w+)<', (out / "index.html").read_text())
    assert leads == [("text/page.html", "text"), ("images/page.html", "images")]
    assert all((out / address).is_file() for address, _ in leads)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wrlds"], "there is no figure 'wrlds'.*worlds"),
        (["worlds", "--scale", "tiny"], "the scale is 'tiny'"),
        (["worlds", "--tables"], "no run of worlds is kept"),
        (["worlds", "--seeds", "x"], "--seeds has 'x'"),
    ],
)
def test_a_mistake_is_a_sentence(figure: Path, words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["reproduce", *words])
    assert isinstance(done.exception, ConfigError)
    with pytest.raises(ConfigError, match=said):
        raise done.exception


@pytest.mark.parametrize("scale", plans.SCALES)
@pytest.mark.parametrize("name", sorted(set(FIGURES.values())))
def test_every_figure_can_be_run_at_every_scale(name: str, scale: str) -> None:
    plan = plans.read_file(plans.FIGURES / f"{name}.toml").at(scale)
    rows = [row for variant in plan.variants for row in plans.rows(plan, variant)]
    assert rows
    if scale != "smoke":
        seeds = {config.seed for row in rows for config in row.configs}
        assert seeds <= {3, 4, 5}  # which no decision has seen


@pytest.mark.parametrize("scale", ["smoke", "full"])
def test_the_longer_figure_shares_the_runs_of_the_other(scale: str) -> None:
    def keys(name: str) -> set[Key]:
        plan = plan_of(name, scale)
        return {key_of(c) for v in plan.variants for row in plans.rows(plan, v) for c in row.configs}

    assert keys("accuracy-70") <= keys("accuracy")
