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
from heroes.server.asking import taken


@dataclass(frozen=True)
class Served:
    """The tensors that are served after a round."""

    strategy: Strategy[Any]
    family: Family
    tensors: Tensors
    round: int

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
        tensors = taken(self.strategy, self.tensors, self.strategy.selection(wanted))
        local.load(self.family.plain_weights(tensors))
        return local.module.eval()
