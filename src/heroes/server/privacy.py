"""Client-level differential privacy: a client's change is bounded, and noise hides whether it took part.

Every change is clipped to norm C, and Gaussian noise of deviation z C is laid on the sum of changes, so that
a value held by n clients gets noise of deviation z C / n. How much privacy that spends is counted by Google's
dp-accounting for sampling without replacement: neighbours differ in one client's data, so one client can move
the sum by 2 C, and the accountant is told z / 2.

That clients are drawn at random helps to hide them only while nobody knows who was drawn. With randomness of
the system nobody does; with the seed, epsilon is a study's: what the same run would spend whose draws and
noise are secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heroes import seeds
from heroes.errors import ConfigError
from heroes.messages import Tensors
from heroes.slices.cuts import Cut
from heroes.slices.overlays import holders

_ORDERS = (*range(2, 17), 20, 24, 28, 32, 40, 48, 64, 96, 128, 256, 512)  # of the Renyi divergence


@dataclass(frozen=True)
class Privacy:
    """`drawn` of `clients` take part in every round; `sampled` says that they are drawn at random out of all
    of them, which helps to hide them. `repeated` rounds were done before a run was interrupted, and done
    again.
    """

    clip: float
    noise: float
    delta: float
    clients: int
    drawn: int
    seed: int | None  # of noise and draws; None is the system's randomness
    sampled: bool = True
    repeated: int = 0

    def __post_init__(self) -> None:
        try:
            import dp_accounting  # noqa: F401 (better now than after the first round)
        except ImportError:
            raise ConfigError(
                "privacy.noise needs an accountant; say pip install 'heroes-fl[privacy]'"
            ) from None

    @property
    def source(self) -> str:
        """Where randomness comes from, as records have it."""
        return "system" if self.seed is None else "seed"

    def stream(self, *names: str | int) -> np.random.Generator:
        """Of the seed, or of the system: then it is another one every time."""
        return np.random.default_rng() if self.seed is None else seeds.stream(self.seed, *names)

    def noised(self, tensors: Tensors, cuts: Iterable[Cut], round_number: int) -> dict[str, Tensor]:
        """The tensors after a round with noise on what the holders of these cuts have changed."""
        rng = self.stream("privacy", round_number)
        counts = holders(tensors, cuts)
        return {
            name: self._noised(tensor, counts[name], rng) if name in counts else tensor
            for name, tensor in tensors.items()
        }

    def _noised(self, tensor: Tensor, count: Tensor, rng: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(rng.standard_normal(tuple(tensor.shape))) * (self.noise * self.clip)
        return torch.where(count > 0, tensor + noise / count.clamp(min=1.0), tensor.double()).to(tensor.dtype)

    def epsilon(self, rounds: int) -> float:
        """The privacy spent after so many rounds, at `delta`."""
        import dp_accounting as dp
        from dp_accounting.rdp import RdpAccountant

        event: dp.DpEvent = dp.GaussianDpEvent(self.noise / 2)
        if self.sampled:
            event = dp.SampledWithoutReplacementDpEvent(self.clients, self.drawn, event)
        accountant = RdpAccountant(_ORDERS, dp.NeighboringRelation.REPLACE_ONE)
        accountant.compose(event, rounds + self.repeated)
        return float(accountant.get_epsilon(self.delta))
