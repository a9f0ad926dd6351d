"""Run a federation from a configuration, and hold what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from heroes import rounds
from heroes.assemble import assemble, federated, stop_rule
from heroes.config import Config, to_toml
from heroes.data import Dataset, Examples, FederatedData, Progress
from heroes.errors import ConfigError, DataError
from heroes.messages import RoundRecord, ServerState, plain
from heroes.models.family import Build
from heroes.report.summary import Summary
from heroes.rounds import Federation
from heroes.run_folder import RunFolder, refuse_taken
from heroes.submodels import cut_out


@dataclass(frozen=True)
class Run:
    """A finished run: its configuration, its records, the last state, and the folder it wrote, if any."""

    config: Config
    records: tuple[RoundRecord, ...]
    state: ServerState[Any]
    federation: Federation
    folder: Path | None = None

    def summary(self) -> Summary:
        """The run in a dozen numbers."""
        return Summary.of([plain(record) for record in self.records])

    def model(self, width: int | None = None) -> nn.Module:
        """The trained model at a width (the complete one by default): a plain module, ready to use or to send to a device."""
        strategy = self.federation.strategy
        wanted = strategy.widths[-1] if width is None else width
        if wanted not in strategy.widths:
            choices = ", ".join(map(str, strategy.widths))
            raise ConfigError(f"width is {width!r}: {self.config.strategy.name} serves the widths {choices}")
        tensors = cut_out(self.state.tensors, strategy.cut(strategy.serve(wanted)))
        local = self.federation.family.dense(wanted)
        local.load(self.federation.family.plain_weights(tensors))
        return local.module.eval()


def run(
    config: Config,
    *,
    model: Build | None = None,
    data: FederatedData | Dataset | tuple[Examples, Examples] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    on_round: Callable[[RoundRecord], None] | None = None,
    on_progress: Progress | None = None,
) -> Run:
    """Train a federation.

    `model` is your own `build(width) -> nn.Module`; `data` your own (train, test) examples or `Dataset`, shared out as the
    configuration says, or `FederatedData` with shares of your own. With `out`, everything is written there as it happens.
    `on_round` hears of every round, `on_progress` of data being prepared: what, how much, of how much.
    """
    if not isinstance(config, Config):
        raise ConfigError(f"config is a {type(config).__name__}; give a heroes.Config, for example heroes.recipes.digits()")
    if out is not None:
        refuse_taken(Path(out), overwrite)  # before anything that takes long
    config = _named_honestly(config, model, data)
    federation = assemble(config, model, _shared(config, data), on_progress)
    folder = RunFolder(Path(out), to_toml(config), overwrite=overwrite) if out is not None else None
    try:
        state, records = _train(federation, config, folder, on_round)
    finally:
        federation.engine.close()
        if folder is not None:
            folder.close()
    return Run(config, records, state, federation, folder.path if folder else None)


def _train(
    federation: Federation, config: Config, folder: RunFolder | None, on_round: Callable[[RoundRecord], None] | None
) -> tuple[ServerState[Any], tuple[RoundRecord, ...]]:
    records: list[RoundRecord] = []
    state: ServerState[Any] | None = None
    steps = rounds.run(
        federation, stop_rule(config), evaluate_every=config.evaluation.every, every_width=config.evaluation.every_width
    )
    try:
        for step in steps:
            state, record = step
            records.append(record)
            if folder is not None:
                folder.append(record)
            if on_round is not None:
                on_round(record)
    finally:
        if folder is not None and state is not None:
            folder.write_model(state.tensors)  # also when interrupted: nothing earned is lost
    assert state is not None
    return state, tuple(records)


def _shared(config: Config, data: object) -> FederatedData | None:
    """The user's data, shared out if it is not yet."""
    if data is None or isinstance(data, FederatedData):
        return data
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Examples) for part in data):
        data = Dataset(*data)
    if not isinstance(data, Dataset):
        raise DataError(f"data is a {type(data).__name__}; give (train, test) as heroes.Examples, or heroes.FederatedData")
    return federated(config, data)


def _named_honestly(config: Config, model: Build | None, data: object) -> Config:
    """A run with the user's own parts says so, since its configuration alone cannot repeat it."""
    own = {key: "own" for key, part in (("model.name", model), ("data.name", data)) if part is not None}
    return config.changed(own) if own else config
