"""Gathers what the batch norms of a model need for tests: see `heroes.models.statistics`."""

from __future__ import annotations

import torch
from torch import Tensor

from heroes.client.evaluation import testing
from heroes.client.training import one_thread
from heroes.messages import Tensors
from heroes.models.family import Family
from heroes.models.statistics import KEPT, at_hand, keepers, kept_names


class Gathering:
    """Makes the statistics of models of any width from one batch of inputs, always the same, in float32."""

    def __init__(self, family: Family, inputs: Tensor) -> None:
        self.family = family
        self.inputs = inputs

    @torch.no_grad()
    def __call__(self, tensors: Tensors, width: int) -> Tensors:
        """The statistics of the model that has these tensors, by name; none if it keeps none."""
        local = self.family.dense(width)
        local.load(self.family.plain_weights(tensors))
        module = at_hand(local.module.to(self.inputs.device))
        norms = keepers(module)
        for norm in norms.values():
            norm.momentum = 1.0  # nothing of before
        with one_thread(), testing():
            local.exactly(self.inputs)
        found = (getattr(norm, name) for norm in norms.values() for name in KEPT)
        return dict(zip(kept_names(module), (value.cpu() for value in found), strict=True))
