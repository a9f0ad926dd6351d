"""The models of a run, as they are handed out: the global tensors, and how a width is cut out of them."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from torch import nn

from heroes.contracts import Strategy
from heroes.errors import ConfigError
from heroes.messages import Tensors
from heroes.models.family import Family
from heroes.server.asking import Gather, with_kept


@dataclass(frozen=True)
class Served:
    """The tensors that are served after a round."""

    strategy: Strategy[Any]
    family: Family
    tensors: Tensors
    round: int
    gather: Gather | None = None  # what the batch norms of a model keep; None if there are none

    @property
    def widths(self) -> tuple[int, ...]:
        return self.strategy.widths

    def module(self, width: int | None = None) -> nn.Module:
        """The trained model at a width, by default the complete one: a plain module, ready to use."""
        wanted = self.widths[-1] if width is None else width
        if wanted not in self.widths or not isinstance(wanted, Integral):
            choices = ", ".join(map(str, self.widths))
            raise ConfigError(f"width is {width!r}: {self.strategy.name} serves the widths {choices}")
        local = self.family.dense(wanted)
        tensors = with_kept(self.strategy, self.tensors, wanted, self.gather)
        local.load(self.family.plain_weights(tensors))
        return local.module.eval()

    def kept(self) -> dict[int, Tensors]:
        """What the batch norms of every width keep, for a file."""
        if self.gather is None:
            return {}
        whole = {w: with_kept(self.strategy, self.tensors, w, self.gather) for w in self.widths}
        return {w: {name: whole[w][name] for name in self.family.kept_names} for w in self.widths}
