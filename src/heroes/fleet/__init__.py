"""The simulated world: devices and links, what a step and a transfer cost on them, and the virtual clock."""

from heroes.fleet.availability import Connected, DayAndNight, Everybody
from heroes.fleet.clock import FixedClock, VirtualClock
from heroes.fleet.costs import step_flops
from heroes.fleet.devices import FLEETS, Device, Fleet, FleetKind, read_fleet
from heroes.fleet.energy import LTE, WIFI
from heroes.fleet.faults import Faults
from heroes.fleet.foresight import Foreseen, Today
from heroes.fleet.wall import MeasuredFleet, WallClock

__all__ = [
    "FLEETS",
    "Connected",
    "Costs",
    "DayAndNight",
    "Device",
    "Everybody",
    "Faults",
    "FixedClock",
    "Fleet",
    "FleetKind",
    "Foreseen",
    "LTE",
    "MeasuredFleet",
    "Today",
    "VirtualClock",
    "WIFI",
    "WallClock",
    "read_fleet",
    "step_flops",
]
