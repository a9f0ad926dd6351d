"""Trackers that write for programs of others: TensorBoard, MLflow, Weights & Biases.

Each is an extra, which is imported when the tracker is made, before a run begins. None of them sends anything
to another machine unless its own environment variables say so.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heroes.errors import ConfigError
from heroes.messages import RoundRecord
from heroes.runs.frames import NUMBERS

_NO_NAME = re.compile(r"[^\w\-. /]")  # what MLflow does not take in the name of a metric
_LONGEST_VALUE = 500  # characters of a parameter in MLflow


def numbers(record: RoundRecord) -> dict[str, float]:
    """What can be drawn of a round, by name; every metric of the test is below `test/`."""
    values = {name: getattr(record, name) for name in (*NUMBERS, "epsilon")}
    values |= {"clients": len(record.clients), "lost": sum(record.lost.values())}
    values |= {f"test/{name}": score for name, score in record.scores.items()}
    return {name: float(value) for name, value in values.items() if value is not None}


def needed(name: str, folder: Path | None) -> Path:
    """The run folder that a tracker writes into; an error if there is none."""
    if folder is None:
        raise ConfigError(f"the tracker {name!r} needs a run folder; give out=...")
    return folder


class TensorBoard:
    """Writes event files into `tensorboard` in the run folder: tensorboard --logdir runs"""

    def __init__(self) -> None:
        with _extra("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._open = SummaryWriter
        self._writer: Any = None

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        place = needed("tensorboard", folder) / "tensorboard"
        self._writer = self._open(str(place), purge_step=1)  # of a run that goes on, all is written again
        table = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
        self._writer.add_text("settings", f"| key | value |\n|---|---|\n{table}")
        for record in done:
            self.round(record)

    def round(self, record: RoundRecord) -> None:
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record.round)
        self._writer.flush()

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()


class MLflow:
    """Writes to the store that MLFLOW_TRACKING_URI names, else into `mlflow.db` in the run folder."""

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with _extra("mlflow"):
            import mlflow
        self._mlflow = mlflow
        self._client: Any = None
        self._run = ""

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        where = os.environ.get("MLFLOW_TRACKING_URI")
        if not where:
            where = f"sqlite:///{needed('mlflow', folder).resolve() / 'mlflow.db'}"
        self._client = self._mlflow.MlflowClient(where)
        label = "" if folder is None else str(folder.resolve())
        before = self._before(settings, label) if done else None
        self._run = before or self._new(settings, label)
        for record in () if before else done:
            self.round(record)

    def _experiment(self, settings: Mapping[str, Any]) -> str:
        name = f"heroes {settings['experiment']}"
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _before(self, settings: Mapping[str, Any], label: str) -> str | None:
        """The run in the store that this folder began, if it is there: it goes on."""
        runs = self._client.search_runs([self._experiment(settings)], order_by=["attributes.start_time DESC"])
        found = [each for each in runs if label and each.data.tags.get("heroes.folder") == label]
        if not found:
            return None
        self._client.set_terminated(found[0].info.run_id, "RUNNING")
        return str(found[0].info.run_id)

    def _new(self, settings: Mapping[str, Any], label: str) -> str:
        name = f"{settings['strategy.name']}-{settings['seed']}"
        made = self._client.create_run(
            self._experiment(settings), run_name=name, tags={"heroes.folder": label}
        )
        param = self._mlflow.entities.Param
        every = [param(key, str(value)[:_LONGEST_VALUE]) for key, value in settings.items()]
        for start in range(0, len(every), 100):  # what one call takes
            self._client.log_batch(made.info.run_id, params=every[start : start + 100])
        return str(made.info.run_id)

    def round(self, record: RoundRecord) -> None:
        now, metric = int(1000 * time.time()), self._mlflow.entities.Metric
        values = numbers(record).items()
        told = [metric(_NO_NAME.sub("_", name), value, now, record.round) for name, value in values]
        self._client.log_batch(self._run, metrics=told)

    def end(self) -> None:
        if self._run:
            self._client.set_terminated(self._run)


class Wandb:
    """Writes a run of Weights & Biases into `wandb` in the run folder; WANDB_MODE=online sends it."""

    def __init__(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        with _extra("wandb"):
            import wandb
        self._wandb = wandb
        self._run: Any = None

    def begin(self, settings: Mapping[str, Any], folder: Path | None, done: Sequence[RoundRecord]) -> None:
        place = needed("wandb", folder)
        before = _runs_of_wandb(place) if done else []
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "heroes"),
            name=f"{settings['experiment']}-{settings['strategy.name']}-{settings['seed']}",
            dir=str(place),
            config=dict(settings),
            id=before[-1].name.rpartition("-")[2] if before else None,
            resume="allow" if before else None,
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=self._wandb.Settings(silent=True, console="off"),
        )
        for record in () if before else done:
            self.round(record)

    def round(self, record: RoundRecord) -> None:
        self._run.log(numbers(record), step=record.round)

    def end(self) -> None:
        if self._run is not None:
            self._run.finish()


def _runs_of_wandb(folder: Path) -> list[Path]:
    """The folders of earlier parts of a run, oldest first; their names have a time and the run's id."""
    return sorted((folder / "wandb").glob("*run-*-*"), key=lambda path: path.name.partition("run-")[2])


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Import what a tracker needs; if it is missing, an error says how to have it."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"the tracker {name!r} cannot be used: {error}; install it with: pip install 'heroes-fl[{name}]'"
        ) from None
