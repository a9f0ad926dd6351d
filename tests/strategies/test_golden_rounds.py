"""Three rounds of the tiny federation, pinned, for the strategies besides those of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from heroes.strategies.registry import BUILT_IN, PAPER


@dataclass(frozen=True)
class Golden:
    """What the rounds came to; clients are (client, width, tau), norms those of four tensors in the end."""

    clients: list[list[tuple[int, int, int]]]
    traffic: list[int]
    loss: list[float]
    seconds: list[float]
    waiting: list[float]
    norms: list[float]


WHOLE = [
    [(1, 3, 6), (2, 3, 6), (7, 3, 6), (8, 3, 6)],
    [(3, 3, 6), (4, 3, 6), (10, 3, 6), (11, 3, 6)],
    [(2, 3, 6), (3, 3, 6), (6, 3, 6), (10, 3, 6)],
]
AFFORDED = [
    [(1, 3, 6), (2, 2, 6), (7, 1, 6), (8, 2, 6)],
    [(3, 3, 6), (4, 3, 6), (10, 1, 6), (11, 3, 6)],
    [(2, 2, 6), (3, 3, 6), (6, 3, 6), (10, 1, 6)],
]
TIMED = [
    [(1, 3, 11), (2, 3, 4), (7, 3, 2), (8, 3, 5)],
    [(3, 3, 6), (4, 3, 7), (10, 3, 2), (11, 3, 7)],
    [(2, 3, 4), (3, 3, 9), (6, 3, 7), (10, 3, 2)],
]
OF_WHOLE = [56400, 112800, 169200], [0.396336, 0.760282, 1.155068], [0.154166, 0.169705, 0.181666]
OF_AFFORDED = [34400, 80800, 121200], [0.123567, 0.270833, 0.404584], [0.019359, 0.028346, 0.026982]
OF_TIMED = [56400, 112800, 169200], [0.194704, 0.347125, 0.517085], [0.019907, 0.007609, 0.014678]


def golden(
    clients: list[list[tuple[int, int, int]]],
    cost: tuple[list[int], list[float], list[float]],
    loss: list[float],
    norms: list[float],
) -> Golden:
    traffic, seconds, waiting = cost
    return Golden(clients, traffic, loss, seconds, waiting, norms)


OORT = [
    [(1, 3, 6), (2, 3, 6), (7, 3, 6), (8, 3, 6)],
    [(4, 3, 6), (9, 3, 6), (10, 3, 6), (11, 3, 6)],
    [(0, 3, 6), (3, 3, 6), (5, 3, 6), (6, 3, 6)],
]
PYRAMID = [
    [(1, 3, 23), (2, 3, 10), (7, 3, 6), (8, 3, 12)],
    [(4, 3, 26), (9, 3, 20), (10, 3, 6), (11, 3, 18)],
    [(0, 3, 6), (3, 3, 20), (5, 3, 12), (6, 3, 16)],
]
GOLDEN = {
    "adagq": golden(
        WHOLE,
        ([34526, 67302, 100953], [0.410563, 0.790916, 1.198979], [0.16832, 0.195427, 0.198917]),
        [0.983673, 0.689968, 0.374219],
        [2.134360, 2.122048, 1.947593, 0.337956],
    ),
    "flexcom": golden(
        WHOLE,
        ([31240, 62609, 93890], [0.38023, 0.732491, 1.110419], [0.158022, 0.183972, 0.185331]),
        [0.983673, 0.822728, 0.664553],
        [1.869045, 1.766728, 1.382278, 0.272338],
    ),
    "oort": golden(
        OORT,
        ([56400, 112800, 169200], [0.396336, 0.760282, 1.125694], [0.154166, 0.175632, 0.159975]),
        [0.983673, 0.661855, 0.365018],
        [2.084132, 2.122061, 2.009764, 0.299029],
    ),
    "pyramidfl": golden(
        PYRAMID,
        ([48350, 96700, 145050], [0.390026, 0.749288, 1.110655], [0.005365, 0.008434, 0.00831]),
        [0.741674, 0.139871, 0.0424],
        [2.5163, 2.819889, 3.341215, 0.280264],
    ),
    "fedadam": golden(WHOLE, OF_WHOLE, [0.983673, 0.954165, 0.924701], [1.727252, 1.51555, 0.9517, 0.558115]),
    "fedavgm": golden(
        WHOLE, OF_WHOLE, [0.983673, 0.665137, 0.247076], [2.617081, 2.871297, 3.015529, 0.304268]
    ),
    "feddropout": golden(
        AFFORDED, OF_AFFORDED, [1.0562, 0.81255, 0.631711], [2.058847, 2.151479, 1.894665, 0.279658]
    ),
    "fednova": golden(
        TIMED, OF_TIMED, [1.003133, 0.732906, 0.445936], [2.020361, 2.013978, 1.82033, 0.316949]
    ),
    "fedprox": golden(
        TIMED, OF_TIMED, [1.003366, 0.680789, 0.386039], [2.072522, 2.098641, 1.964824, 0.292618]
    ),
    "fedrolex": golden(
        AFFORDED, OF_AFFORDED, [1.08177, 0.842343, 0.645403], [2.033688, 2.089333, 1.837978, 0.264173]
    ),
    "fedyogi": golden(
        WHOLE, OF_WHOLE, [0.983673, 0.954165, 0.92478], [1.727201, 1.515455, 0.951593, 0.558226]
    ),
    "fjord": golden(
        AFFORDED, OF_AFFORDED, [1.114792, 1.041801, 0.976905], [1.805212, 1.643487, 1.161655, 0.238185]
    ),
}


def test_all_are_pinned() -> None:
    assert GOLDEN.keys() == BUILT_IN.keys() - set(PAPER)


@pytest.mark.parametrize("name", GOLDEN)
def test_three_golden_rounds(world, name):
    state, entries = world.three_rounds(world.strategy(name))
    wanted = GOLDEN[name]
    assert [[(c.client, c.width, c.tau) for c in entry.clients] for entry in entries] == wanted.clients
    assert [entry.traffic for entry in entries] == wanted.traffic
    for what in ("loss", "seconds", "waiting"):
        assert [getattr(entry, what) for entry in entries] == pytest.approx(getattr(wanted, what), rel=1e-3)
    norms = [float(state.tensors[name].norm()) for name in ("0.weight", "2.weight", "4.weight", "4.bias")]
    assert norms == pytest.approx(wanted.norms, rel=1e-3)
