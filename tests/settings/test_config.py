"""Every wrong value gets one clear sentence; what is written is what was meant."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heroes.errors import ConfigError
from heroes.settings.config import Config, keys, parse, parse_setting, to_toml
from heroes.strategies.registry import BUILT_IN

WRONG = {
    "experiment": [3],
    "seed": [-1, 1.5, "x", 2**63],
    "federation.clients": [0, -3, 2.5, "many"],
    "federation.cohort": [0, 41, "x"],
    "federation.rounds": [0, -1, 0.5],
    "federation.time_budget": [0, -1.0, "soon", float("inf")],
    "federation.traffic_budget": [0, -5.0, "x"],
    "federation.target_accuracy": [0, 1.5, "high"],
    "federation.target": ["x", float("nan"), float("inf")],
    "federation.target_loss": [0, -1.0, "x"],
    "federation.patience": [0, 2.5, "x"],
    "federation.sampler": [7],
    "objective.name": ["crossentropy", 7],
    "objective.label_smoothing": [-0.1, 1.0, "x"],
    "objective.metrics": ["f1", [7]],
    "objective.proximal": [-0.1, "x"],
    "data.name": [7],
    "data.partition": [7],
    "data.gamma": [-1.0, 101.0, "x"],
    "data.alpha": [0.0, -1.0, "x"],
    "data.phi": [-1, 2.5],
    "data.classes_per_client": [0, 2.5, "x"],
    "data.shards": [0, 2.5, "x"],
    "data.sizes": ["even", 7],
    "data.skew": [0.0, -1.0, "x"],
    "data.examples_per_client": [0, 2.5, "x"],
    "data.directory": [7],
    "data.source": [7],
    "data.test": [7],
    "data.test_share": [0.0, 1.0, "x"],
    "data.target": [7],
    "data.targets": ["number", 7],
    "data.owner": [7],
    "data.categories": ["age", [7]],
    "data.ignore": ["age", [7]],
    "data.text": [7],
    "data.length": [4, 70_000, "x"],
    "data.augment": ["x"],
    "data.size": [4, 2000],
    "data.classes": ["n01440764", [7]],
    "data.writers": [7],
    "data.minimum_windows": [0],
    "data.roles": [0, "all"],
    "data.test_limit": [0],
    "data.validation": [-0.1, 1.0, "x"],
    "model.name": [7],
    "model.max_width": [0, 65, "x"],
    "model.rank_ratio": [0, -1.0, float("nan")],
    "model.norm": ["layer", 3],
    "model.small_images": ["x"],
    "model.cell": ["lstmm"],
    "training.batch_size": [0, "x"],
    "training.learning_rate": [0, -0.1, "x"],
    "training.learning_rate_decay": [0, 1.1],
    "training.learning_rate_floor": [-0.1],
    "training.momentum": [-0.1, 1.0],
    "training.weight_decay": [-1.0],
    "training.optimiser": ["adam", 7],
    "training.beta2": [1.0, -0.1],
    "training.epsilon": [0.0, -1.0],
    "training.clip": [0, -1.0, "x"],
    "training.regulariser": [-1.0],
    "training.train_in": ["factor", 1],
    "training.probes": [-1, 1, 65],
    "training.probe_every": [0, "x"],
    "training.device": ["gpu"],
    "training.precision": ["bf16", "float16", 16],
    **{
        f"faults.{rate}": [-0.1, 1.1, "x"]
        for rate in ("dropout", "upload_loss", "crash", "stall", "garbage", "attackers")
    },
    "faults.stall_factor": [0.5, "x"],
    "faults.silent": ["x", 3],
    "faults.attack": ["flop"],
    "faults.attack_scale": [0, -1.0],
    "faults.availability": ["sometimes"],
    "faults.day": [0, -5.0],
    "faults.awake": [0, 1.5],
    "server.deadline": [0, -1.0, "soon"],
    "server.deadline_factor": [0, -1.0, "x"],
    "server.at_least": [-1, 11, "x"],
    "server.attempts": [0, 1.5],
    "server.oversample": [0.5, 4.1, "x"],
    "optimiser.name": ["adan", 1],
    "optimiser.rate": [0, -1.0, "fast"],
    "optimiser.momentum": [-0.1, 1, "x"],
    "optimiser.beta2": [-0.1, 1, "x"],
    "optimiser.epsilon": [0, -1.0, "x"],
    "robust.clip": [0, -1.0, "automatic"],
    "robust.combine": ["average"],
    "robust.trim": [-0.1, 0.5],
    "robust.guard": ["x"],
    "robust.guard_factor": [1, "x"],
    "privacy.noise": [-1.0, "x"],
    "privacy.clip": [0, -1.0],
    "privacy.delta": [0, 1],
    "privacy.source": ["dice"],
    "strategy.name": ["hero"],
    "strategy.blocks": ["gird"],
    "strategy.adaptive_tau": ["yes", 1],
    "strategy.pace": ["fast"],
    "strategy.drift": [0, -1.0, "x"],
    "strategy.thrift": [-0.1, 0.6, "x"],
    "strategy.passes": [0, -1.0, "x"],
    "strategy.useful": [-0.1, 1.5, "x"],
    "strategy.deadline": ["median"],
    "strategy.tau_first": [0, 600],
    "strategy.tau_min": [0, 30],
    "strategy.tau_max": [0, 5],
    "strategy.rho": [-1.0, "automatic"],
    "strategy.step_limit": [0, "fast"],
    "strategy.patience": [-0.1, 1.1, "x"],
    "strategy.fill": [2, "x"],
    "strategy.own_clock": [2, "x"],
    "strategy.by_steps": [-1.1, 1.1, "x"],
    "strategy.threshold": [0, "x"],
    "strategy.any_width": [-0.1, 1.5, "x"],
    "exchange.up_bits": [3, "8", 64],
    "exchange.down_bits": [2, "x"],
    "exchange.error_feedback": ["yes"],
    "exchange.sparsity": [-0.1, 1, "x"],
    "fleet.name": [7],
    "fleet.upload": [[5.0, 1.0], [1.0], [0.0, 1.0], 3],
    "fleet.download": [[5.0, 1.0], "x"],
    "fleet.shares": [[], [1.0, 0.0], [-1.0], 3],
    "fleet.jitter": [-0.1, 0.6],
    "fleet.csv": [7],
    "fleet.count_download": ["x"],
    "fleet.cost": ["price", 1],
    "fleet.foresight": ["perfect", True],
    "evaluation.sample": [0, 1.5, "all"],
    "evaluation.every": [0],
    "evaluation.batch_size": [0],
    "evaluation.every_width": ["x"],
    "evaluation.average": [-0.1, 1, "x"],
    "evaluation.lookback": [-0.1, 1.1, "x"],
    "checkpoint.every": [-1, 0.5, "x"],
    "own.file": [7],
    "own.digest": [7],
    "engine.name": ["in_proces"],
    "engine.workers": [-1, 1.5, "x"],
    "engine.devices": [[-1], ["cuda:0"], 1.5],
    "engine.start": ["forks", 1],
    "engine.task_seconds": [0, -1.0, "x"],
    "engine.wait_seconds": [0, -1.0, "x"],
    "engine.clock": ["walls", 1],
    "engine.model_out": [7],
    "engine.model_width": [0, 1.5, "x"],
    "tracking.trackers": [3, [7]],
}


CASES = [("heroes", key, value) for key, values in WRONG.items() for value in values]
CASES += [
    (name, f"strategy.{key}", "nonsense")
    for name, kind in BUILT_IN.items()
    for key in kind.model_fields
    if key != "name"
]


def test_every_key_has_wrong_values_here() -> None:
    assert set(WRONG) == {key for key, *_ in keys()}


@pytest.mark.parametrize(("strategy", "key", "value"), CASES)
def test_a_wrong_value_is_refused_in_one_sentence_that_names_the_key_and_the_value(
    strategy: str, key: str, value: object
) -> None:
    with pytest.raises(ConfigError) as error:
        Config().with_strategy(strategy).changed({key: value})
    text = str(error.value)
    section, _, name = key.partition(".")
    assert text.startswith(section)
    assert name in text
    assert str(value) in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("training.momentun", "did you mean 'momentum'?"),
        ("strategi.blocks", "did you mean 'strategy'?"),
        ("sead", "did you mean 'seed'?"),
        ("seed.deep", "'seed' is not a section"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(key: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="unknown key") as error:
        Config().changed({key: 1})
    assert hint in str(error.value)


def test_a_strategy_section_without_a_name_or_with_a_wrong_one_lists_the_strategies() -> None:
    for section in ({"blocks": "grid"}, {"name": "x"}):
        with pytest.raises(
            ConfigError, match=rf"^strategy\.name is .*Choices: {', '.join(sorted(BUILT_IN))}$"
        ):
            parse({"strategy": section})


def test_a_section_given_as_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"it should be a section, \[federation\]"):
        parse({"federation": 3})


def test_another_strategy_starts_at_its_own_defaults_and_refuses_the_others_keys() -> None:
    config = Config().changed({"strategy.name": "fedavg", "strategy.tau": 7})
    assert config.strategy.model_dump() == {"name": "fedavg", "tau": 7}
    with pytest.raises(ConfigError, match=r"unknown key 'strategy\.blocks': Choices: name, tau"):
        config.changed({"strategy.blocks": "grid"})
    assert config.with_strategy("fedavg") is config


def test_changing_leaves_the_original_alone() -> None:
    config = Config()
    assert config.changed({"training.momentum": 0.5}).training.momentum == 0.5
    assert config.training.momentum == 0.9


@pytest.mark.parametrize(
    "name", [name for name, kind in BUILT_IN.items() if "step_limit" in kind.model_fields]
)
def test_step_limits_have_two_names_or_seconds_and_the_old_name_of_the_shared_one_loads(name: str) -> None:
    config = Config().with_strategy(name)
    for written, read in (("shared", "shared"), ("own", "own"), (2, 2.0), ("auto", "shared")):
        changed = config.changed({"strategy.step_limit": written})
        assert changed.strategy.model_dump()["step_limit"] == read
        assert parse(tomllib.loads(to_toml(changed))) == changed
    assert config.strategy.model_dump()["step_limit"] == ("own" if name == "heroes" else "shared")
    with pytest.raises(ConfigError, match=r"strategy\.step_limit is 'owm': .*own"):
        config.changed({"strategy.step_limit": "owm"})


def test_noise_cannot_protect_the_estimates_that_some_paces_need() -> None:
    assert Config().changed({"privacy.noise": 1.0}).privacy.noise == 1.0
    with pytest.raises(ConfigError, match=r"privacy\.noise is 1\.0: .*use strategy\.pace = 'thrifty'"):
        Config().changed({"privacy.noise": 1.0, "strategy.pace": "calibrated"})


def test_none_unsets_what_may_be_unset_and_nothing_else() -> None:
    assert Config().changed({"training.clip": "none"}).training.clip is None
    with pytest.raises(ConfigError):
        Config().changed({"training.momentum": "none"})


@given(
    st.builds(
        dict,
        seed=st.integers(0, 2**63 - 1),
        experiment=st.text(min_size=1, max_size=20),
        gamma=st.floats(0, 100),
        clip=st.one_of(st.none(), st.floats(1e-6, 1e6)),
        upload=st.one_of(st.none(), st.tuples(st.floats(0.1, 1.0), st.floats(1.0, 9.0))),
        rho=st.one_of(st.just("auto"), st.floats(0, 1e9)),
    )
)
def test_what_is_written_reads_back_the_same(values: dict[str, object]) -> None:
    names = {"gamma": "data.gamma", "clip": "training.clip", "upload": "fleet.upload", "rho": "strategy.rho"}
    config = Config().changed({names.get(key, key): value for key, value in values.items()})
    assert parse(tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a.b=1", ("a.b", 1)),
        ("a.b=0.5", ("a.b", 0.5)),
        ("a.b=true", ("a.b", True)),
        ("a.b=word", ("a.b", "word")),
        ("a.b='quoted'", ("a.b", "quoted")),
        ("a.b=[1.0, 2.0]", ("a.b", [1.0, 2.0])),
    ],
)
def test_settings_of_the_command_line(text: str, meant: tuple[str, object]) -> None:
    assert parse_setting(text) == meant


@pytest.mark.parametrize("text", ["novalue", "=3", ""])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        parse_setting(text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine.clock": "wall"}, "only flower has clients"),
        ({"engine.name": "flower", "engine.clock": "wall", "faults.dropout": 0.1}, "belong to virtual time"),
        ({"engine.name": "flower", "exchange.error_feedback": True}, "residuals cannot follow a client"),
    ],
)
def test_flower_refuses_what_it_cannot_do(changes, says):
    with pytest.raises(ConfigError, match=says):
        Config().changed(changes)
