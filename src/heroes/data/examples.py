"""Examples held as tensors, and the share of them that each client owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from heroes import seeds
from heroes.errors import DataError
from heroes.messages import Integers

Bytes = npt.NDArray[np.uint8]
Transform = Callable[[Tensor, np.random.Generator | None], Tensor]


@dataclass(frozen=True)
class Examples:
    """Inputs and targets, one row each.

    Targets are class labels (whole numbers, one for each row), or numbers of any shape: floats for
    regression, rows of tokens.

    `transform` turns a batch of stored rows into model inputs on the fly: bytes into normalised images,
    positions in a text into windows. It gets a generator when the batch is for training, and may augment with
    it; without one it must not draw.
    """

    inputs: Tensor
    targets: Tensor
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.inputs, Tensor) and isinstance(self.targets, Tensor)):
            kinds = f"{type(self.inputs).__name__} and {type(self.targets).__name__}"
            raise DataError(
                f"inputs and targets must be torch tensors, not {kinds}; torch.as_tensor makes them"
            )
        if self.inputs.dim() == 0 or self.targets.dim() == 0:
            raise DataError("inputs and targets must have one row for each example, not be single numbers")
        if len(self.inputs) != len(self.targets):
            raise DataError(
                f"there are {len(self.inputs)} inputs but {len(self.targets)} targets; each input needs one "
                "target"
            )
        if len(self.inputs) == 0:
            raise DataError("there are no examples; at least one is needed")
        if self.targets.dtype.is_complex:
            raise DataError(f"targets must be whole numbers or floats, not {self.targets.dtype}")
        if self.are_classes and int(self.targets.min()) < 0:
            raise DataError(f"targets must be class numbers from 0, not {int(self.targets.min())}")

    @property
    def are_classes(self) -> bool:
        """Whether targets are class labels: whole numbers, one for each row."""
        return self.targets.dim() == 1 and not self.targets.dtype.is_floating_point

    def __len__(self) -> int:
        return len(self.targets)

    def only(self, indices: Integers) -> Examples:
        """The examples at these `indices`."""
        where = torch.from_numpy(indices)
        return Examples(self.inputs[where], self.targets[where], self.transform)

    def drawn(self, count: int, rng: np.random.Generator) -> Examples:
        """As many of the examples as `count`, drawn by `rng`, in their order; all if there are no more."""
        if count >= len(self):
            return self
        return self.only(np.sort(rng.choice(len(self), count, replace=False)))

    def batch(
        self, indices: Integers, device: torch.device, rng: np.random.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """The inputs and targets (float32 or int64) at `indices`, on `device`; augmented by `rng`, if any."""
        where = torch.from_numpy(indices)
        inputs = self.inputs[where]
        if self.transform is not None:
            inputs = self.transform(inputs, rng)
        if inputs.dim() == 4:  # images: channels last in memory, which convolutions are fastest on
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        kind = torch.float32 if self.targets.dtype.is_floating_point else torch.int64
        return inputs.to(device), self.targets[where].to(kind).to(device)


@dataclass(frozen=True)
class Shares:
    """Who owns what: client n owns the examples `order[starts[n]:starts[n + 1]]`."""

    order: Integers
    starts: Integers

    @staticmethod
    def of(parts: list[Integers]) -> Shares:
        """Shares from `parts`: the indices of every client's examples."""
        sizes = [len(part) for part in parts]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return Shares(np.concatenate(parts).astype(np.int64), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, client: int) -> Integers:
        return self.order[self.starts[client] : self.starts[client + 1]]

    @property
    def middle(self) -> float | None:
        """How many examples the median client has; None: nobody knows here."""
        return float(np.median(np.diff(self.starts)))

    def among(self, examples: Integers) -> Shares:
        """The same shares where what was shared out are these `examples`, and not all from 0 on."""
        return Shares(examples[self.order], self.starts)


@dataclass(frozen=True)
class DrawnShares:
    """Every client draws `size` examples when they are asked for, always the same ones; nothing is stored.

    `mix` says how many of each class a client gets. They come from all examples of the class, so an example
    can be in many shares; it is in the same share twice only if the class has fewer examples than the client
    is to get of it.
    """

    clients: int
    size: int
    seed: int
    by_class: Shares
    mix: Callable[[int, np.random.Generator], Integers]

    def __len__(self) -> int:
        return self.clients

    @property
    def middle(self) -> float | None:
        """How many examples every client has."""
        return float(self.size)

    def among(self, examples: Integers) -> DrawnShares:
        """The same shares where what is drawn from are these examples, and not all from 0 on."""
        return replace(self, by_class=self.by_class.among(examples))

    def __getitem__(self, client: int) -> Integers:
        rng = seeds.stream(self.seed, range(self.clients)[client])
        counts = self.mix(client, rng).tolist()
        return np.concatenate(
            [_some(self.by_class[c], count, rng) for c, count in enumerate(counts) if count]
        )


@dataclass(frozen=True)
class WholeShares:
    """Every client owns all the examples that are here: on a device that has its own and nobody else's."""

    clients: int
    size: int

    def __len__(self) -> int:
        return self.clients

    @property
    def middle(self) -> float | None:
        """What other devices have is not known."""
        return None

    def __getitem__(self, client: int) -> Integers:
        return np.arange(self.size)


def _some(pool: Integers, count: int, rng: np.random.Generator) -> Integers:
    return pool[rng.choice(len(pool), count, replace=count > len(pool))]


@dataclass(frozen=True)
class FederatedData:
    """What a federation learns from: training examples shared over clients, and a test set at the server."""

    train: Examples
    test: Examples
    shares: Shares | DrawnShares | WholeShares
    classes: int | None = None  # how many there are; None: as many as the labels show
    sample: Examples | None = None  # of the test set, for tests during a run; None: all of it

    def __post_init__(self) -> None:
        if isinstance(self.shares, WholeShares):
            return
        source = self.shares.by_class if isinstance(self.shares, DrawnShares) else self.shares
        sizes = np.diff(source.starts)
        if (sizes < 1).any():
            raise DataError(
                f"client {int(np.argmin(sizes))} has no examples; every client needs at least one"
            )
        order = source.order
        if order.min() < 0 or order.max() >= len(self.train):
            raise DataError(
                f"the shares name example {order.max()}, but there are only {len(self.train)} training "
                "examples"
            )

    def some(self, count: int, rng: np.random.Generator) -> Integers:
        """The numbers of `count` examples that clients own, drawn by `rng`; all if there are no more."""
        owned = np.arange(len(self.train))
        if not isinstance(self.shares, WholeShares):
            shares = self.shares.by_class if isinstance(self.shares, DrawnShares) else self.shares
            owned = np.unique(shares.order)
        return owned if count >= len(owned) else np.sort(rng.choice(owned, count, replace=False))

    def tested(self, sample: bool) -> Examples:
        """What a model is tested on: if `sample`, the sample that there may be, else the whole test set."""
        return self.sample if sample and self.sample is not None else self.test


def from_dataset(dataset: Dataset[Any]) -> Examples:
    """Examples from any torch Dataset.

    Args:
        dataset: its items are (input, target), where a target is a class, a number or a tensor.
    """
    length = len(dataset)  # type: ignore[arg-type]
    pairs = [dataset[i] for i in range(length)]
    if not pairs:
        raise DataError("the dataset is empty; at least one example is needed")
    try:
        inputs = torch.stack([torch.as_tensor(x) for x, _ in pairs])
        targets = torch.stack([torch.as_tensor(y) for _, y in pairs])
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the dataset's items must be pairs of an input and a target, all of one shape: {error}"
        ) from None
    return Examples(inputs, targets)
