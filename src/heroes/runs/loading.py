"""Reads a run from its folder, finished or not, with the model of its last round that was kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heroes import seeds
from heroes.assemble import Own, OwnData, for_serving, gathering_again, trial_inputs
from heroes.errors import ConfigError, HeroesError, RunFolderError
from heroes.messages import RoundRecord
from heroes.models.family import Build
from heroes.runs import checkpoints, configured, final
from heroes.runs.folder import CHECKPOINTS, MODEL
from heroes.runs.outcome import TEST_INPUTS, Outcome
from heroes.runs.served import Served
from heroes.server.asking import Gather, begun
from heroes.settings.config import Config
from heroes.strategies.base import Strategy

DRAWN = 8  # inputs, where the data is not here


@dataclass(frozen=True, repr=False)
class Loaded(Outcome):
    """A run as its folder has it."""

    config: Config
    folder: Path
    own: Own
    kept: tuple[RoundRecord, ...] = ()

    @cached_property
    def served(self) -> Served:
        """From model.safetensors, or from the last checkpoint if that is newer."""
        found = _final(self.folder / MODEL)
        about = {} if found is None else found.origin
        strategy = for_serving(self.config, self.own, _mapping(about.get("arguments")))
        again = gathering_again(self.config, self.own, strategy.family)
        newest = next(iter(checkpoints.found(self.folder / CHECKPOINTS)), None)
        said = about.get("round")  # 0.1.0 did not write it
        done = said if isinstance(said, int) else len(self.records)
        if found is None or (newest is not None and int(newest.stem.removeprefix("round-")) > done):
            return self._checkpointed(strategy, again)
        begin = strategy.begin(0).tensors
        if {n: t.shape for n, t in found.tensors.items()} != {n: t.shape for n, t in begin.items()}:
            raise RunFolderError(
                f"{str(self.folder / MODEL)!r} holds other tensors than the model and the strategy of its "
                "run have: it was replaced, or `model` is not the one that was trained"
            )
        gather = again and (_as_kept(found, strategy) or again)
        return Served(strategy, strategy.family, found.tensors, done, gather)

    def _checkpointed(self, strategy: Strategy, gather: Gather | None) -> Served:
        begin = begun(strategy, seeds.number(self.config.seed, "model"))
        state = checkpoints.read_last(self.folder / CHECKPOINTS, begin, configured.bound(self.config))
        if state is begin:
            raise RunFolderError(f"the run in {str(self.folder)!r} has no model yet: it has no checkpoint")
        average = self.config.evaluation.average and state.averaged
        return Served(strategy, strategy.family, average or state.tensors, state.round, gather)

    def trial(self) -> tuple[Tensor, str]:
        """Test inputs; where the data is not here, drawn numbers of the shape that the model's file says."""
        try:
            return trial_inputs(self.config, self.own), TEST_INPUTS
        except HeroesError:
            found = _final(self.folder / MODEL)
            known = None if found is None else _mapping(found.origin.get("inputs"))
            if known is None:
                raise
            return _drawn(known), "drawn inputs, since the data is not here"


def load(
    folder: str | Path,
    *,
    model: Build | None = None,
    data: OwnData | None = None,
    strategy: Strategy | None = None,
    own: str | Path | None = None,
) -> Loaded:
    """A run from its folder, finished or not.

    Records, summary and frames need nothing else. The model of an unfinished run is that of its last
    checkpoint.

    Args:
        folder: the run folder.
        model: the `build(width)` of a run with a model of your own.
        data: the data of a run with data of your own; needed only where the folder does not say what the
            model takes, and better than drawn numbers to check exported files on.
        strategy: the object of a run with a strategy of your own.
        own: the Python file with parts of your own, if the one that the run began with has changed or moved.
    """
    path, parts = Path(folder), Own(model, data, strategy)
    if own is not None:
        parts = configured.brought(path, {"own.file": str(own)}, parts)
    else:
        with suppress(ConfigError):  # a file of the user's own may be gone; what needs it will say so
            parts = configured.brought(path, {}, parts)
    return Loaded(configured.of_folder(path, parts), path, parts)


def _final(path: Path) -> final.Final | None:
    """What model.safetensors says and holds; None if it is not there."""
    if not path.exists():
        return None
    try:
        return final.read(path)
    except ValueError as error:
        raise RunFolderError(
            f"cannot read {str(path)!r}: {error}; heroes resume writes it again from the last checkpoint"
        ) from None


def _as_kept(found: final.Final, strategy: Strategy) -> Gather | None:
    """What the batch norms keep, as the file has it; None if it has not all of it."""
    for width in strategy.widths:
        shapes = {name: tuple(tensor.shape) for name, tensor in found.kept.get(width, {}).items()}
        if shapes != strategy.family.kept_shapes(width):
            return None
    return lambda _, width: found.kept[width]


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None


def _drawn(known: Mapping[str, Any]) -> Tensor:
    """Inputs of a shape and type: normal, or whole numbers up to the largest that was seen."""
    rng = torch.Generator().manual_seed(0)
    try:
        shape, kind = (DRAWN, *map(int, known["shape"])), getattr(torch, known["dtype"])
        if "largest" in known:
            return torch.randint(int(known["largest"]) + 1, shape, generator=rng, dtype=kind)
        return torch.randn(shape, generator=rng, dtype=kind)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise RunFolderError(f"{MODEL} does not say what the model takes: {error}") from None
