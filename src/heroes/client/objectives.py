"""The objective of a run: the loss that clients minimise, and the metrics to measure, the main one first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heroes.client.losses import CROSS_ENTROPY, LOSSES, Function, OwnLoss
from heroes.client.metrics import METRICS, Accuracy, Whole, own_metric
from heroes.contracts import Loss, Metric
from heroes.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Objective:
    """What is minimised and what is measured."""

    loss: Loss
    metrics: tuple[Metric | Whole, ...]


CLASSIFICATION = Objective(CROSS_ENTROPY, (Accuracy(CROSS_ENTROPY),))
"""what is meant where nothing else is said"""


def make_objective(
    name: str,
    metrics: Sequence[str],
    label_smoothing: float = 0.0,
    own_loss: Function | None = None,
    own_metrics: Mapping[str, Any] | None = None,
) -> Objective:
    """The objective of this name with these metrics; some may be the user's own."""
    if own_loss is not None and not callable(own_loss):
        raise ConfigError(f"loss is a {type(own_loss).__name__}; give a function of (outputs, targets)")
    if own_loss is None and name not in LOSSES:
        why = "heroes.run(..., loss=...) gives it" if name == "own" else did_you_mean(name, LOSSES)
        raise ConfigError(f"objective.name is {name!r}: {why}")
    loss = LOSSES[name](label_smoothing) if own_loss is None else OwnLoss(own_loss)
    own = own_metrics or {}
    return Objective(loss, tuple(_metric(metric, loss, own) for metric in metrics))


def _metric(name: str, loss: Loss, own: Mapping[str, Any]) -> Metric | Whole:
    if name in own:
        return own_metric(name, own[name])
    if name not in METRICS:
        raise ConfigError(
            f"objective.metrics has {name!r}: {did_you_mean(name, METRICS)}; or heroes.run(..., "
            f"metrics={{...}}) gives one of your own"
        )
    return METRICS[name](loss)


def check_names(own_metrics: object) -> None:
    """Raise a ConfigError if a metric of the user's has a name that is taken."""
    if not isinstance(own_metrics, Mapping):
        kind = type(own_metrics).__name__
        raise ConfigError(
            f"metrics is a {kind}; give a mapping from names to functions of (outputs, targets)"
        )
    for name in own_metrics:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"metrics has the name {name!r}; it should be a word")
        if name in METRICS:
            raise ConfigError(f"metrics has the name {name!r}, which is built in; call yours something else")
