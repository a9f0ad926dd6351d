"""The package as its users import it."""

import importlib.util
import runpy
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from patience import patience
from safetensors.torch import load_file
from torch import nn

import heroes

ROOT = Path(__file__).parent.parent


def few(rounds: int) -> heroes.Config:
    """The default federation with five clients in a round, in this process."""
    return heroes.recipes.digits(rounds=rounds).changed({"federation.cohort": 5, "engine.name": "in_process"})


def test_every_public_name_is_there() -> None:
    for name in heroes.__all__:
        assert getattr(heroes, name) is not None
    assert set(heroes.__all__) <= set(dir(heroes))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        heroes.nonsense  # noqa: B018


def test_reports_configuration_and_recipes_load_without_torch() -> None:
    code = (
        "import sys, heroes.report, heroes.settings.config, heroes.messages, heroes.settings.recipes, "
        "heroes.cli.commands; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=patience(240)).returncode == 0


def test_the_version_is_the_same_everywhere() -> None:
    """`make dist` compares it with what an installed wheel says."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert told == heroes.__version__
    assert f"\nversion: {told}\n" in (ROOT / "CITATION.cff").read_text()


def needed(name: str) -> set[str]:
    """The packages that come with one, itself included."""
    found, left = set[str](), [name]
    while left:
        each = left.pop()
        if each in found:
            continue
        found.add(each)
        asked = map(Requirement, metadata.requires(each) or [])
        left += [canonicalize_name(r.name) for r in asked if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


def test_a_core_install_is_fewer_than_fifteen_packages_besides_torch() -> None:
    """`make run` installs it; the extras are for the rest."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    core = set[str]().union(*(needed(canonicalize_name(Requirement(each).name)) for each in told))
    assert len(core - needed("torch")) < 15


def test_every_extra_is_in_the_table_with_what_it_weighs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "install.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = [line.split("`")[1] for line in rows]
    assert sorted(named) == sorted(set(extras) - {"dev", "dev-slow"})
    assert all(" MB" in line for line in rows)


def test_the_page_on_citing_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "cite_page.py"))["page"]()
    assert (ROOT / "docs" / "cite.md").read_text() == made, "run `make docs`"


def test_the_configuration_page_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "config_page.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(240),
    )
    assert (ROOT / "docs" / "config.md").read_text() == made.stdout, "run `make docs`"


def test_the_example_with_an_own_model_learns_and_stays_short() -> None:
    path = ROOT / "examples" / "own_model.py"
    assert len(path.read_text().splitlines()) < 60
    spec = importlib.util.spec_from_file_location("own_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.main()
    assert run.summary().accuracy > 0.8
    assert (run.config.model.name, run.config.data.name) == ("own", "own")


def test_the_trained_model_comes_out_at_any_width_and_scores_as_recorded() -> None:
    run = heroes.run(few(rounds=3))
    _, test = heroes.data.load_digits()
    for width, accuracy in run.records[-1].score_by_width.items():
        scores = run.model(width)(test.inputs)
        assert float((scores.argmax(1) == test.targets).float().mean()) == pytest.approx(accuracy, abs=0.004)


def test_an_own_torch_dataset_and_own_shares() -> None:
    train, test = heroes.data.load_digits()
    pairs = torch.utils.data.TensorDataset(train.inputs[:120], train.targets[:120])
    examples = heroes.data.from_dataset(pairs)
    shares = heroes.data.share_out("iid", examples.targets.numpy(), 6, np.random.default_rng(0), 0.0)
    config = heroes.recipes.digits(rounds=1).changed({"federation.clients": 6, "federation.cohort": 2})
    run = heroes.run(config, data=heroes.FederatedData(examples, test, shares))
    assert run.summary().rounds == 1


def test_data_that_does_not_fit_the_model_is_refused() -> None:
    flat = heroes.Examples(torch.zeros(100, 7), torch.zeros(100, dtype=torch.int64))
    with pytest.raises(heroes.HeroesError, match=r"does not take the data \(inputs of shape \(7,\)"):
        heroes.run(heroes.recipes.digits(rounds=1), data=(flat, flat))


WILD = {"training.learning_rate": 1e30, "training.clip": "none"}


def test_when_every_client_diverges_the_run_stops_with_a_reason_and_a_hint(tmp_path: Path) -> None:
    said = r"round 1 was begun 2 times .* 10 of 10 clients .* is not finite; a smaller training.learning_rate"
    with pytest.raises(heroes.HeroesError, match=said):
        heroes.run(heroes.recipes.digits(rounds=5).changed({**WILD, "server.attempts": 2}), out=tmp_path)
    assert heroes.report.read_records(tmp_path).rows == ()


def test_when_every_client_diverges_and_none_is_needed_the_model_stays_finite(tmp_path: Path) -> None:
    heroes.run(heroes.recipes.digits(rounds=1).changed({**WILD, "server.at_least": 0}), out=tmp_path)
    (row,) = heroes.report.read_records(tmp_path).rows
    assert len(row.missing) == 10
    assert row.lost == {"finite": 10}
    assert all(bool(torch.isfinite(t).all()) for t in load_file(tmp_path / "model.safetensors").values())


def test_a_width_that_is_not_served_is_refused_with_the_choices() -> None:
    run = heroes.run(few(rounds=1))
    for width in (0, 9, -1, "1", 1.0):
        with pytest.raises(heroes.HeroesError, match="heroes serves the widths 1, 2, 3, 4"):
            run.model(width)  # type: ignore[arg-type]


def test_wrong_kinds_of_arguments_are_refused_in_a_sentence() -> None:
    config = heroes.recipes.digits(rounds=1)
    train, test = heroes.data.load_digits()
    with pytest.raises(heroes.HeroesError, match="config is a str"):
        heroes.run("digits")  # type: ignore[arg-type]
    for data in ([train, test], (train.inputs, train.targets)):
        with pytest.raises(heroes.HeroesError, match="data is a"):
            heroes.run(config, data=data)  # type: ignore[arg-type]
    with pytest.raises(heroes.HeroesError, match="client 1 has no examples"):
        heroes.FederatedData(train, test, heroes.Shares(np.arange(3), np.array([0, 3, 3])))
    with pytest.raises(heroes.HeroesError, match="only 1438 training examples"):
        heroes.FederatedData(train, test, heroes.Shares(np.array([0, 5000]), np.array([0, 1, 2])))


def test_a_data_set_of_the_package_runs_as_own_data() -> None:
    run = heroes.run(few(rounds=1), data=heroes.data.load("digits"))
    assert run.config.data.name == "own"


def test_a_model_that_fails_in_any_way_is_told_so() -> None:
    class Broken(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.layer = nn.Linear(4 * width, 10)

        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise KeyError("lost")

    with pytest.raises(heroes.HeroesError, match="'lost'"):
        heroes.run(heroes.recipes.digits(rounds=1), model=Broken)


def test_width_one_is_plain_averaging_of_a_composed_model() -> None:
    run = heroes.run(few(rounds=2).changed({"model.max_width": 1}))
    assert {c.width for record in run.records for c in record.clients} == {1}
    assert isinstance(run.model(), nn.Module)


def test_the_default_federation_learns() -> None:
    """Sixteen rounds of the default reach what a shared model must; `make run` goes on to 40."""
    assert (heroes.run(heroes.recipes.digits(rounds=16)).summary().accuracy or 0) > 0.85


@pytest.mark.parametrize("train_in", ["factors", "weights"])
@pytest.mark.parametrize("blocks", ["grid", "free", "nested"])
def test_every_ablation_runs_and_learns(train_in: str, blocks: str) -> None:
    changes = {"training.train_in": train_in, "strategy.blocks": blocks, "training.learning_rate": 0.1}
    assert (heroes.run(few(rounds=5).changed(changes)).summary().loss or 9) < 2.25
