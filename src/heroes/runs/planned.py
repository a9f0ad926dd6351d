"""A run that is planned: its configuration, its folder, and whether it is done already. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heroes.errors import RunFolderError
from heroes.report.records import read_config, read_records
from heroes.settings.config import Config, parse
from heroes.settings.sections import EngineConfig, OwnConfig, TrackingConfig


@dataclass(frozen=True)
class Planned:
    """What to run, where it goes, and in what it differs from others of the same strategy and seed."""

    config: Config
    folder: Path
    variant: str = ""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, [self.config.strategy.name, self.variant, f"seed {self.config.seed}"]))

    @property
    def done(self) -> bool:
        """Whether the folder holds this very run, finished; another run there is an error."""
        if not self.begun:
            return False
        rows = read_records(self.folder).rows if (self.folder / "records.jsonl").exists() else ()
        return bool(rows) and rows[-1].stopped is not None

    @property
    def begun(self) -> bool:
        """Whether the folder holds this very run, finished or not; another run there is an error."""
        if not (self.folder / "config.toml").exists():
            return False
        tree = read_config(self.folder)
        if not tree:
            raise RunFolderError(f"config.toml of {str(self.folder)!r} is empty: delete that folder")
        there = parse(tree, type(self.config.strategy))
        if self.config.training.precision == "auto":  # a run says what that became
            there = there.changed({"training.precision": "auto"})
        if other := next(_in_essence(there).differs(_in_essence(self.config)), None):
            raise RunFolderError(
                f"{str(self.folder)!r} holds a run with other settings ({other} differs): choose another "
                "folder, or delete that one"
            )
        return True


def _in_essence(config: Config) -> Config:
    """The configuration without what does not change the outcome of a run: its engine, its trackers, and
    where a file of the user's own lies.
    """
    own = OwnConfig(digest=config.own.digest)
    return config.model_copy(update={"engine": EngineConfig(), "tracking": TrackingConfig(), "own": own})
