"""What a run came to, whether it has just ended or was read from its folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from heroes.errors import printable
from heroes.export import Exported, Limits, Offer, export
from heroes.messages import RoundRecord
from heroes.report.metrics import Metric
from heroes.report.records import read_records
from heroes.report.summary import Summary
from heroes.report.tables import pairs_html
from heroes.runs import frames
from heroes.runs.origin import of_width
from heroes.runs.served import Served
from heroes.settings.config import Config

TEST_INPUTS = "test inputs"


class Outcome(ABC):
    """A run: its configuration, its records, its models."""

    config: Config
    folder: Path | None
    kept: tuple[RoundRecord, ...]  # the records of a run without a folder

    @property
    @abstractmethod
    def served(self) -> Served:
        """The global tensors as they are handed out."""

    @abstractmethod
    def trial(self) -> tuple[Tensor, str]:
        """A few inputs as the model takes them, and what they are: of the test set if it is there."""

    @cached_property
    def records(self) -> tuple[RoundRecord, ...]:
        """What happened, round by round."""
        return self.kept if self.folder is None else read_records(self.folder).rows

    def summary(self) -> Summary:
        """The run in a dozen numbers."""
        return Summary.of(self.records, self.config.strategy.duties(0).any_width > 0)

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths at which the model can be had, narrowest first."""
        return self.served.widths

    def model(self, width: int | None = None) -> nn.Module:
        """The trained model: a plain module, ready to use.

        Args:
            width: one of `widths`; by default the complete model.
        """
        return self.served.module(width)

    def to_frame(self) -> Any:
        """The rounds as a pandas.DataFrame."""
        return frames.by_round(self.records)

    def clients_frame(self) -> Any:
        """Every client of every round as a pandas.DataFrame."""
        return frames.by_client(self.records)

    def export(
        self,
        path: str | Path,
        width: int | None = None,
        *,
        format: str | None = None,
        max_bytes: int | None = None,
        max_flops: float | None = None,
    ) -> Exported:
        """Write the model as a file for elsewhere, and check it against PyTorch on test inputs.

        Args:
            path: the file; its ending means a format, if none is given.
            width: of the model; by default the widest that keeps to the limits.
            format: safetensors, torchscript, onnx, executorch or litert.
            max_bytes: the file is no larger.
            max_flops: one example costs no more FLOPs in a forward pass.
        """
        served, (inputs, tried) = self.served, self.trial()
        if width is not None:
            served.module(width)  # an error if it is not served
        last = next((row for row in self.records if row.round == served.round), None)
        offer = Offer(
            widths=served.widths if width is None else (width,),
            module=served.module,
            blank=lambda wanted: served.family.dense(wanted).module,
            about=lambda wanted: of_width(self.config, served, inputs, last, wanted),
            inputs=inputs,
            tried=tried,
        )
        return export(offer, Path(path), format, Limits(max_bytes, max_flops))

    def __repr__(self) -> str:
        found, config = self.summary(), self.config
        score = f"{found.metric} {Metric(found.metric).text(found.score)}"
        where = "" if self.folder is None else f", {str(self.folder)!r}"
        name = f"{config.experiment}, {config.strategy.name}, seed {config.seed}"
        return printable(f"<{type(self).__name__}: {name}, {found.rounds} rounds, {score}{where}>", 300)

    def _repr_html_(self) -> str:
        name = f"{self.config.experiment}, {self.config.strategy.name}, seed {self.config.seed}"
        return pairs_html([("run", name), *self.summary().lines()])
