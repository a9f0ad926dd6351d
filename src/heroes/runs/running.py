"""Run a federation from a configuration, and hold what came of it."""

from __future__ import annotations

import math
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError
from torch import nn

from heroes import rounds
from heroes.assemble import assemble, at_clients, federated, stop_rule
from heroes.client.losses import Function
from heroes.client.objectives import check_names
from heroes.client.training import Trainer
from heroes.contracts import Elsewhere
from heroes.data import Dataset, Examples, FederatedData, Progress
from heroes.errors import ConfigError, DataError, RunFolderError
from heroes.federation import Federation
from heroes.messages import RoundRecord, ServerState, Tensors, plain
from heroes.models.family import Build
from heroes.report.records import read_config, read_records
from heroes.report.summary import Summary
from heroes.rounds import begin
from heroes.runs.checkpoints import read_last
from heroes.runs.folder import CHECKPOINTS, RunFolder, held, refuse_taken
from heroes.settings.config import Config, parse, to_toml
from heroes.settings.sections import BUILT_IN_METRICS
from heroes.slices.cuts import cut_out
from heroes.transport.engines import mpi
from heroes.transport.engines.faulty import behind
from heroes.transport.engines.in_process import InProcessEngine
from heroes.transport.engines.processes import cores
from heroes.transport.workers.keeping import write_model
from heroes.transport.workers.setup import Setup

OwnData = FederatedData | Dataset | tuple[Examples, Examples]


@dataclass(frozen=True)
class Run:
    """A finished run: its configuration, the last state, and the folder it wrote, if any; its records are
    read from there.
    """

    config: Config
    state: ServerState[Any]
    federation: Federation
    folder: Path | None = None
    kept: tuple[RoundRecord, ...] = ()  # the records of a run without a folder

    @cached_property
    def records(self) -> tuple[RoundRecord, ...]:
        """What happened, round by round."""
        return self.kept if self.folder is None else tuple(_records(self.folder))

    def summary(self) -> Summary:
        """The run in a dozen numbers."""
        return Summary.of([plain(record) for record in self.records])

    def model(self, width: int | None = None) -> nn.Module:
        """The trained model at a width (the complete one by default): a plain module, ready to use or to send
        to a device.
        """
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
    data: OwnData | None = None,
    loss: Function | None = None,
    metrics: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    on_round: Callable[[RoundRecord], None] | None = None,
    on_progress: Progress | None = None,
) -> Run:
    """Train a federation.

    `model` is your own `build(width) -> nn.Module`; `data` your own (train, test) examples or `Dataset`,
    shared out as the configuration says, or `FederatedData` with shares of your own. `loss` is
    your own function of (outputs, targets) for the mean over a batch; `metrics` are your own by name, the main
    one first: functions that give one number for the outputs and targets of the whole test set, which are
    kept in memory for them, or objects with the methods of `heroes.contracts.Metric`. With `out`, everything
    is written there as it happens. `on_round` hears of every round, `on_progress` of data being prepared:
    what, how much, of how much. Under MPI only rank 0 returns: the others serve it, and end the process when
    it is done (`heroes.transport.engines.mpi.Served`, a `SystemExit`).
    """
    if not isinstance(config, Config):
        raise ConfigError(
            f"config is a {type(config).__name__}; give a heroes.Config, for example heroes.recipes.digits()"
        )
    with _led(config, model, data, loss, metrics):
        if out is not None:
            refuse_taken(Path(out), overwrite)  # before anything that takes long
        config = _measured_honestly(_named_honestly(config, model, data, loss), metrics)
        federation = assemble(config, model, _shared(config, data), on_progress, loss, metrics)
        with (
            closing(federation.engine),
            nullcontext() if out is None else held(Path(out)),
        ):  # the engine may take long to close
            folder = None if out is None else RunFolder(Path(out), to_toml(config), overwrite=overwrite)
            return _train(federation, config, folder, on_round)


MAY_CHANGE = (
    "federation.rounds",
    "federation.time_budget",
    "federation.traffic_budget",
    "federation.target_accuracy",
    "federation.target",
    "federation.target_loss",
    "server.attempts",
    "engine.",
    "evaluation.",
    "checkpoint.",
)
"""What may be different when a run goes on: when it ends, who carries it and how it is watched."""


def resume(
    folder: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    model: Build | None = None,
    data: OwnData | None = None,
    loss: Function | None = None,
    metrics: Mapping[str, Any] | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
    on_progress: Progress | None = None,
) -> Run:
    """Go on with a run from its last whole checkpoint; it ends as if it had never stopped.

    `changes` are keys with new values, such as a higher `federation.rounds` for a run that is finished. A
    change of what the rounds before depended on is refused. A run with a model, data, a loss or metrics of your
    own needs them again.
    """
    path = Path(folder)
    config = extended(path, changes or {})
    owned = set(config.objective.metrics) - BUILT_IN_METRICS
    for key, own, given in (
        ("model", config.model.name == "own", model is not None),
        ("data", config.data.name == "own", data is not None),
        ("loss", config.objective.name == "own", loss is not None),
        (f"metrics ({', '.join(sorted(owned))})" if owned else "metrics", owned, set(metrics or {})),
    ):
        if own != given:
            does = "was run with your own" if own else "was not run with your own"
            raise ConfigError(
                f"{str(path)!r} {does} {key}: heroes.resume(folder, {key.partition(' ')[0]}=...) must be called "
                "accordingly"
            )
    with _led(config, model, data, loss, metrics), held(path):
        done = _records(path)
        federation = assemble(config, model, _shared(config, data), on_progress, loss, metrics)
        with closing(federation.engine):
            state = read_last(path / CHECKPOINTS, begin(federation))
            stop = stop_rule(config)
            if done and state.round == len(done) and (reason := stop.reason(done[-1])):
                raise ConfigError(
                    f"the run in {str(path)!r} is finished ({reason}, {state.round} rounds); more rounds would let it go on"
                )
            kept = RunFolder(path, to_toml(config), after=state.round)
            return _train(federation, config, kept, on_round, state)


def extended(folder: Path, changes: Mapping[str, Any]) -> Config:
    """The configuration of the run in a folder with some keys changed, if they may be."""
    before = parse(read_config(folder))
    after = before.changed(changes)
    for key in before.differs(after):
        if not key.startswith(MAY_CHANGE) or key == "engine.clock":
            raise ConfigError(
                f"{key} cannot change when a run goes on: the rounds that are done depend on it. Start a new run"
            )
    return after


def _records(folder: Path) -> list[RoundRecord]:
    """What a run wrote down, as it was before."""
    records = []
    for number, row in enumerate(read_records(folder).rows, 1):
        try:
            records.append(_RECORD.validate_python(row))
        except ValidationError as error:
            place, why = ".".join(map(str, error.errors()[0]["loc"])), error.errors()[0]["msg"]
            said = f"line {number} of {str(folder / 'records.jsonl')!r} is damaged: {place}: {why}"
            raise RunFolderError(said) from None
    return records


_RECORD = TypeAdapter(RoundRecord)


def _train(
    federation: Federation,
    config: Config,
    folder: RunFolder | None,
    on_round: Callable[[RoundRecord], None] | None,
    state: ServerState[Any] | None = None,
) -> Run:
    """Train to the end, from a state or from the beginning, and write everything down as it happens."""
    records: list[RoundRecord] = []  # if they are written nowhere; those of a long run would take much memory
    evaluation, every = config.evaluation, config.checkpoint.every
    steps = rounds.run(
        federation,
        stop_rule(config),
        evaluate_every=evaluation.every,
        every_width=evaluation.every_width,
        after=state,
    )
    kept = _kept(config, federation)
    try:
        for step in steps:
            with finishing_first():
                state, record = step
                if folder is None:
                    records.append(record)
                else:
                    folder.append(record)
                    if every and (record.round % every == 0 or record.stopped):
                        folder.checkpoint(state)
            if on_round is not None:
                on_round(record)
    finally:
        if folder is not None:
            if state is not None:
                folder.write_model(state.tensors)  # also when interrupted: nothing earned is lost
            folder.close()
    assert state is not None
    _hand_out(federation, state, *kept)
    return Run(config, state, federation, folder.path if folder else None, tuple(records))


def serve(
    model: Build | None = None,
    data: OwnData | None = None,
    loss: Function | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> NoReturn:
    """What ranks other than 0 do under MPI: everything that rank 0 says. It ends with
    `heroes.transport.engines.mpi.Served`.
    """

    def service(text: str) -> mpi.Service:
        config = parse(tomllib.loads(text))
        here = config.changed({"engine.name": "in_process"})
        federation = assemble(here, model, _shared(config, data), None, loss, metrics)
        engine = behind(federation.engine)
        assert isinstance(engine, InProcessEngine)
        return mpi.Service(_setup(engine.trainer, engine.data, config), *_kept(config, federation))

    mpi.serve(service)


def prepare(text: str, client: int) -> tuple[Trainer, FederatedData]:
    """What a client somewhere else trains with, from the server's configuration as text."""
    return _prepared(text)


@lru_cache(maxsize=2)
def _prepared(text: str) -> tuple[Trainer, FederatedData]:
    """Kept from one message to the next, for whichever clients this process has."""
    return at_clients(parse(tomllib.loads(text)))


def _setup(trainer: Trainer, data: FederatedData, config: Config) -> Setup:
    return Setup(trainer.family, trainer.settings, trainer.device, data, config.evaluation.batch_size)


@contextmanager
def _led(
    config: Config,
    model: Build | None,
    data: OwnData | None,
    loss: Function | None,
    metrics: Mapping[str, Any] | None,
) -> Iterator[None]:
    """Under MPI rank 0 goes on, and the others are told to stop when it ends, however it ends. They never
    come out of here.

    With Flower there is its simulation inside, unless a grid is in use already.
    """
    if config.engine.name == "mpi":
        if mpi.rank() > 0:
            serve(model, data, loss, metrics)
        with mpi.leading():
            yield
    elif config.engine.name == "flower":
        from heroes.transport.engines import flower  # loaded here, where it is needed

        if not flower.linked() and any(part is not None for part in (model, data, loss, metrics)):
            raise ConfigError(
                "engine.name is 'flower': its simulation has no parts of your own; a deployed app may have them "
                "(heroes flower init DIR --own), and so has engine.name = 'processes'"
            )
        with (
            nullcontext()
            if flower.linked()
            else flower.simulated(config.federation.clients, prepare, _workers(config))
        ):
            yield
    else:
        yield


def _workers(config: Config) -> int:
    """How many processes the simulation may have: no more than there are clients in a round."""
    return min(
        config.engine.workers or cores(), math.ceil(config.federation.cohort * config.server.oversample)
    )


def _kept(config: Config, federation: Federation) -> tuple[int, Path | None]:
    """At which width this rank keeps the final model, and where; nowhere at 0."""
    path, width = config.engine.model_out, config.engine.model_width
    if config.engine.name != "mpi" or path is None:
        return 0, None
    widths = federation.strategy.widths
    named = "engine.model_width" if width else "HEROES_WIDTH"
    wanted = str(width or os.environ.get("HEROES_WIDTH", widths[-1]))
    if wanted not in map(str, widths):
        choices = ", ".join(map(str, widths))
        raise ConfigError(f"{named} is {wanted!r}: {config.strategy.name} serves the widths {choices}")
    return int(wanted), Path(path.replace("{rank}", str(mpi.rank())))


def _hand_out(federation: Federation, state: ServerState[Any], width: int, path: Path | None) -> None:
    """Every rank of MPI and every node of Flower gets the model that it would use, if there is a place for
    it.
    """
    strategy, engine = federation.strategy, behind(federation.engine)

    def tensors(width: int) -> Tensors:
        return cut_out(state.tensors, strategy.cut(strategy.serve(width)))

    if isinstance(engine, mpi.MpiEngine) and path is not None:
        engine.ranks.hand_out(tensors)
        write_model(federation.family, width, tensors(width), path)
    elif isinstance(engine, Elsewhere):
        engine.hand_out(tensors, strategy.widths)


@contextmanager
def finishing_first() -> Iterator[None]:
    """What is begun inside is finished before Ctrl-C is heard; a second Ctrl-C is heard at once."""
    pressed: list[int] = []

    def hear(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    main = threading.current_thread() is threading.main_thread()
    polite = [
        s
        for s in (signal.SIGINT, signal.SIGTERM)
        if main and signal.getsignal(s) is signal.default_int_handler
    ]
    for number in polite:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number in polite:
            signal.signal(number, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


def _shared(config: Config, data: object) -> FederatedData | None:
    """The user's data, shared out if it is not yet."""
    if data is None or isinstance(data, FederatedData):
        return data
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Examples) for part in data):
        data = Dataset(*data)
    if not isinstance(data, Dataset):
        raise DataError(
            f"data is a {type(data).__name__}; give (train, test) as heroes.Examples, or heroes.FederatedData"
        )
    return federated(config, data)


def _named_honestly(config: Config, model: object, data: object, loss: object) -> Config:
    """A run with the user's own parts says so, since its configuration alone cannot repeat it."""
    parts = {"model.name": model, "data.name": data, "objective.name": loss}
    own = {key: "own" for key, part in parts.items() if part is not None}
    return config.changed(own) if own else config


def _measured_honestly(config: Config, metrics: Mapping[str, Any] | None) -> Config:
    """The user's own metrics come first, then those that the configuration names or its loss suits."""
    if not metrics:
        return config
    check_names(metrics)
    named = config.objective.metrics or (() if config.objective.name == "own" else config.objective.measured)
    return config.changed({"objective.metrics": tuple(dict.fromkeys([*metrics, *named]))})
