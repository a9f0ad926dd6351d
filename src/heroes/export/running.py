"""Runs a module as exported files are run: for its outputs alone."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import torch
from torch import Tensor, nn

from heroes.errors import HeroesError


@torch.no_grad()
def evaluated(module: nn.Module, inputs: Tensor) -> Tensor:
    """What a module makes of inputs, in evaluation mode."""
    outputs = module.eval()(inputs)
    if not isinstance(outputs, Tensor):
        raise HeroesError(
            f"the model gives a {type(outputs).__name__}; only models whose output is one tensor can be "
            "exported"
        )
    return outputs


def plain(inputs: Tensor) -> Tensor:
    """The same numbers in the ordinary memory layout, which converters expect."""
    return inputs.contiguous(memory_format=torch.contiguous_format)


@contextmanager
def quietly() -> Iterator[None]:
    """Without what converters say of each step, of packages they could use, and of newer ways."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
