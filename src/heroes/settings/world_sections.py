"""The sections of a configuration about the simulated world: its devices and links, and what goes wrong."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from heroes.fields import Positive, Range, Section, Share


class FleetConfig(Section):
    """The simulated world: devices and links."""

    name: str = "boards"
    """the kind of fleet"""
    upload: Range | None = None
    """range of upload speeds in Mb/s, instead of the fleet's own"""
    download: Range | None = None
    """range of download speeds in Mb/s, instead of the fleet's own"""
    shares: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    """how many clients each of the fleet's devices has, relative to the others', instead of the fleet's own;
    in the order of the fleet
    """
    jitter: Annotated[float, Field(ge=0, le=0.5)] | None = None
    """relative deviation of step times, instead of the fleet's own"""
    csv: str | None = None
    """a file with a fleet of your own: device, gflops, and optionally share, upload_mbps, download_mbps,
    joules_per_flop, joules_per_byte_up, joules_per_byte_down
    """
    count_download: bool = True
    """whether the clock counts downloads"""
    cost: Literal["flops", "priced"] = "flops"
    """what a step is charged by: its FLOPs, or prices fitted to measured steps of dense and composed layers,
    as equivalent FLOPs; the complete dense model costs the same both ways
    """
    foresight: Literal["exact", "expected"] = "exact"
    """what a plan is made with: the very speeds and links of the round, or running means of what a client did
    before, at first what its device class usually does; the clock charges the round's own either way
    """

    @model_validator(mode="after")
    def _ranges_in_order(self) -> Self:
        for name in ("upload", "download"):
            pair = getattr(self, name)
            if pair is not None and pair[0] > pair[1]:
                raise ValueError(
                    f"{name} is {list(pair)}; the first number must not be larger than the second"
                )
        return self


class FaultsConfig(Section):
    """What goes wrong in a simulation; rates are a client's chances in a round, drawn from the seed."""

    dropout: Share = 0.0
    """a client is gone before it trains"""
    upload_loss: Share = 0.0
    """a client trains and is gone before its update is in"""
    crash: Share = 0.0
    """a client fails half-way through its training"""
    stall: Share = 0.0
    """a client takes stall_factor times as long to train"""
    stall_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 10.0
    """how much longer a stalled client trains"""
    garbage: Share = 0.0
    """a client sends an update that makes no sense"""
    silent: bool = False
    """whether the server hears nothing of a client that is gone, and waits for it until the round's deadline
    """
    attackers: Share = 0.0
    """share of all clients that are hostile, in every round they take part in"""
    attack: Literal["flip", "scale", "noise"] = "flip"
    """what hostile clients send, attack_scale times: their change reversed, their change, or noise"""
    attack_scale: Positive = 10.0
    """how many times as large as an honest change a hostile one is"""
    availability: Literal["always", "day_night"] = "always"
    """when clients can be asked: always, or for a part of every day that begins at another time for each"""
    day: Positive = 86400.0
    """day_night: virtual seconds of a day"""
    awake: Annotated[float, Field(gt=0, le=1)] = 0.5
    """day_night: part of the day in which a client can be asked"""

    @model_validator(mode="after")
    def _one_fault_at_most(self) -> Self:
        total = self.dropout + self.upload_loss + self.crash + self.stall + self.garbage
        if total > 1 + 1e-9:
            raise ValueError(
                f"dropout, upload_loss, crash, stall and garbage add up to {total:g}; they must not exceed 1"
            )
        return self
