"""The pretend world: devices and links, what a step and a transfer cost on them, and the virtual clock."""

from heroes.fleet.clock import FixedClock, VirtualClock
from heroes.fleet.costs import Costs, step_flops
from heroes.fleet.devices import FLEETS, Device, Fleet, FleetKind

__all__ = ["FLEETS", "Costs", "Device", "FixedClock", "Fleet", "FleetKind", "VirtualClock", "step_flops"]
