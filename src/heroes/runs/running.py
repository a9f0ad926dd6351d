"""Runs and resumes a federation from a configuration: the outermost loop, which writes everything down."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from heroes import rounds
from heroes.assemble import Own, OwnData, assembled, entered, settled, stop_rule, with_file
from heroes.client.losses import Function
from heroes.contracts import Sampler, Tracker
from heroes.data import Progress
from heroes.errors import ConfigError
from heroes.federation import Federation
from heroes.messages import RoundRecord, ServerState
from heroes.models.family import Build
from heroes.report.runs import flat
from heroes.runs import configured, final
from heroes.runs.configured import brought, extended, of_folder
from heroes.runs.counting import OnClient, counted
from heroes.runs.folder import ENVIRONMENT, MODEL, RunFolder, held, refuse_taken, write_end
from heroes.runs.interrupts import finishing_first
from heroes.runs.moment import Moment
from heroes.runs.origin import origin
from heroes.runs.outcome import TEST_INPUTS, Outcome
from heroes.runs.resuming import last_state, rounds_on_record
from heroes.runs.served import Served
from heroes.runs.spending import counting_again
from heroes.runs.telling import TellingEngine
from heroes.runs.trackers import Audience, Callback, chosen
from heroes.settings import toml_files
from heroes.settings.config import Config
from heroes.strategies.base import Strategy
from heroes.transport.opening import Opener


@dataclass(frozen=True, repr=False)
class Run(Outcome):
    """A finished run: its configuration, its last state, and its folder, if any, with the records."""

    config: Config
    state: ServerState[Any]
    federation: Federation
    folder: Path | None = None
    kept: tuple[RoundRecord, ...] = ()  # the records of a run without a folder
    mended: tuple[
        str, ...
    ] = ()  # what was wrong with the folder of a finished run when `resume` came, and is right now

    @property
    def served(self) -> Served:
        return _served(self.federation, self.state)

    def trial(self) -> tuple[Tensor, str]:
        assert self.federation.inputs is not None
        return self.federation.inputs, TEST_INPUTS


def run(
    config: Config,
    *,
    model: Build | None = None,
    data: OwnData | None = None,
    strategy: Strategy | None = None,
    loss: Function | None = None,
    metrics: Mapping[str, Any] | None = None,
    sampler: Sampler | None = None,
    engine: Opener | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    track: str | Sequence[str | Tracker | Callback] = (),
    on_round: Callable[[RoundRecord], None] | None = None,
    on_client: OnClient | None = None,
    on_progress: Progress | None = None,
) -> Run:
    """Train a federation. Under MPI only rank 0 returns; the others end with `engines.mpi.Served`.

    Args:
        config: the settings, for example `heroes.recipes.digits()`.
        model: your own `build(width) -> nn.Module`.
        data: your own (train, test) examples or `Dataset`, to be shared out, or `FederatedData`.
        strategy: your own, an object of a class built on `heroes.strategies.base.Strategy`.
        loss: your own function of (outputs, targets), for the mean over a batch.
        metrics: your own by name, the main one first: functions of all test outputs and targets.
        sampler: your own `heroes.contracts.Sampler`.
        engine: what opens an engine of your own (`heroes.transport.opening`).
        out: the run folder; without one nothing is written.
        overwrite: replace a run that the folder already holds.
        track: trackers besides `tracking.trackers`, by name or your own, and functions that get a
            `heroes.runs.moment.Moment` after every round, with its record and `model(width)`.
        on_round: gets every record.
        on_client: gets the round, how many of its clients have answered, and how many were asked.
        on_progress: gets news of the data.
    """
    _check(config)
    own = with_file(Own(model, data, strategy, loss, metrics, sampler), config.model_dump())
    audience = _audience(config, track, on_progress)
    with entered(config, own, engine) as opener:
        if out is not None:
            refuse_taken(Path(out), overwrite)  # before anything that takes long
        config = own.named(config)
        with (
            assembled(config, opener, own, on_progress) as federation,
            nullcontext() if out is None else held(Path(out)),
        ):  # the engine may take long to close
            config = settled(config, federation.precision)
            folder = None if out is None else _fresh(Path(out), config, own, overwrite)
            return _train(counted(federation, on_client), config, folder, on_round, audience)


def _check(config: Config) -> None:
    if not isinstance(config, Config):
        raise ConfigError(
            f"config is a {type(config).__name__}; give a heroes.Config, for example heroes.recipes.digits()"
        )


def _fresh(path: Path, config: Config, own: Own, overwrite: bool) -> RunFolder:
    """The folder of a run that begins."""
    text, bound = toml_files.text(config), configured.bound(config)
    return RunFolder(path, text, own.origins(config), overwrite=overwrite, settings=bound)


def resume(
    folder: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    model: Build | None = None,
    data: OwnData | None = None,
    strategy: Strategy | None = None,
    loss: Function | None = None,
    metrics: Mapping[str, Any] | None = None,
    sampler: Sampler | None = None,
    engine: Opener | None = None,
    track: str | Sequence[str | Tracker | Callback] = (),
    on_round: Callable[[RoundRecord], None] | None = None,
    on_client: OnClient | None = None,
    on_progress: Progress | None = None,
) -> Run:
    """Go on with a run from its last whole checkpoint; it ends as if it had never stopped.

    A run with parts of your own (`model`, `data`, `strategy`, `loss`, `metrics`, `sampler`) needs them again,
    unless they came from a file (`own.file`); the `engine` may be another. `track`, `on_round`, `on_client`
    and `on_progress` are as in `run`.

    Args:
        folder: the run folder.
        changes: keys with new values, such as a higher `federation.rounds` for a finished run. A change of
            anything that earlier rounds depended on is refused.
    """
    path = Path(folder)
    own = brought(path, changes or {}, Own(model, data, strategy, loss, metrics, sampler))
    config = extended(path, changes or {}, own)
    audience = _audience(config, track, on_progress)
    own.check_again(config, path)
    with entered(config, own, engine) as opener, held(path):
        before, done = of_folder(path, own), rounds_on_record(path)
        with assembled(config, opener, own, on_progress) as federation:
            state = last_state(path, federation, before, config, done)
            origins, rule = own.origins(config), stop_rule(config)
            if done and state.round == len(done) and (reason := rule.reason(done[-1], done[:-1])):
                return _finished(federation, config, path, origins, state, done[-1], reason)
            federation = counting_again(counted(federation, on_client), path, done, state.round)
            text = None if before == config else toml_files.text(config)
            kept = RunFolder(path, text, origins, after=state.round, settings=configured.bound(config))
            return _train(federation, config, kept, on_round, audience, state, done)


def _finished(
    federation: Federation,
    config: Config,
    path: Path,
    origins: Mapping[str, Any],
    state: ServerState[Any],
    last: RoundRecord,
    reason: str,
) -> Run:
    """Complete the folder of a finished run and return the run; an error if nothing is missing."""
    served = _served(federation, state)
    flaw = final.flaw(path / MODEL, served.tensors, state.round)
    lacks = [] if flaw is None else [f"{MODEL} {flaw}"]
    lacks += [] if (path / ENVIRONMENT).exists() else [f"{ENVIRONMENT} was missing"]
    if not lacks:
        raise ConfigError(
            f"the run in {str(path)!r} is finished ({reason}, {state.round} rounds); more rounds would let "
            "it go on"
        )
    write_end(path, origins, served, origin(config, served, federation.inputs, last))
    federation.engine.hand_out(partial(federation.model, state), federation.strategy.widths)
    return Run(config, state, federation, path, mended=tuple(lacks))


def _served(federation: Federation, state: ServerState[Any]) -> Served:
    f = federation
    return Served(f.strategy, f.family, f.served(state), state.round, f.gather)


def _audience(
    config: Config, track: str | Sequence[str | Tracker | Callback], on_progress: Progress | None
) -> Audience:
    """The trackers of a run; their failures are reported like progress, or as warnings if nobody hears it."""

    def tell(what: str) -> None:
        if on_progress is not None:
            on_progress(what, 0, None)
        else:
            warnings.warn(what, RuntimeWarning, stacklevel=2)

    besides = [track] if isinstance(track, str) else track
    return Audience(chosen([*config.tracking.trackers, *besides]), tell)


def _train(
    federation: Federation,
    config: Config,
    folder: RunFolder | None,
    on_round: Callable[[RoundRecord], None] | None,
    audience: Audience,
    state: ServerState[Any] | None = None,
    done: Sequence[RoundRecord] = (),
) -> Run:
    """Train to the end, from a state or from the beginning, and write everything down as it happens."""
    records: list[RoundRecord] = []  # if they are written nowhere; those of a long run would take much memory
    every = config.checkpoint.every
    if audience.listens:
        federation = replace(federation, engine=TellingEngine(federation.engine, audience))
    try:
        before = done[: state.round] if state is not None else ()
        last = before[-1] if before else None
        settings, path = flat(config.model_dump()), folder.path if folder else None
        with audience.during(settings, path, before) as told:
            for step in _steps(federation, config, state, before):
                with finishing_first():
                    state, record = step
                    last = record
                    if folder is None:
                        records.append(record)
                    else:
                        folder.append(record)
                        if every and (record.round % every == 0 or record.stopped):
                            folder.checkpoint(state)
                told(Moment(record, _served(federation, state), settings, path))
                if on_round is not None:
                    on_round(record)
    finally:
        if folder is not None:
            if state is not None:
                # also when interrupted
                served = _served(federation, state)
                folder.write_model(served, origin(config, served, federation.inputs, last))
            folder.close()
    assert state is not None
    federation.engine.hand_out(partial(federation.model, state), federation.strategy.widths)
    return Run(config, state, federation, folder.path if folder else None, tuple(records))


def _steps(
    federation: Federation, config: Config, after: ServerState[Any] | None, done: Sequence[RoundRecord]
) -> Iterator[rounds.Step]:
    """The rounds of a run, from the beginning or after some."""
    e, stop = config.evaluation, stop_rule(config)
    return rounds.run(
        federation, stop, evaluate_every=e.every, every_width=e.every_width, after=after, done=done
    )
