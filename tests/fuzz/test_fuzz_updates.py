"""Whatever a client sends: the model stays whole and finite, and every update either counts or is named with
its cause.
"""

from __future__ import annotations

from random import Random

import torch
from fuzzing import HOSTILE, TEXTS
from hypothesis import strategies as st

from heroes.client.extras import LABELS, SKETCH, SKETCHED
from heroes.messages import Assignment, Lost, Selection, Update
from heroes.server.defence import Defence
from heroes.server.pairing import Expected, Pairing
from heroes.slices.cuts import Slice
from heroes.slices.overlays import overlay_mean

WHOLE = {"w": torch.zeros(4, 3), "b": torch.ones(3)}
CUT = {"w": Slice("w", ((0, torch.tensor([0, 2])),)), "b": Slice("b")}
EXPECTED = Expected({"w": (2, 3), "b": (3,)}, sends=(SKETCH, LABELS), classes=3)
PLAN = [
    Assignment(7, c, "board", Selection(1, (0,), (0,)), 3, 0.1, 1.0, 0.0, 1.0, 10, 10, nonce=100 + c)
    for c in range(4)
]
CAUSES = {
    "unknown",
    "round",
    "nonce",
    "twice",
    "names",
    "samples",
    "extras",
    "type",
    "shape",
    "finite",
    "silent",
    "failed",
    "outlier",
}


def honest(client: int) -> dict:
    return {
        "client": client,
        "round": 7,
        "tensors": {"w": torch.full((2, 3), 0.5), "b": torch.full((3,), 1.5)},
        "samples": 10,
        "loss": 0.5,
        "measured": {"smoothness": 1.0, "variance": 2.0, "gradient": 3.0, "lipschitz": 4.0},
        "extras": {"sketch": torch.ones(SKETCHED), "labels": torch.tensor([0, 2])},
        "residuals": None,
        "nonce": 100 + client,
    }


def tensor(rng: Random):
    """A tensor that nobody asked for."""
    shape = rng.choice([(2, 3), (3,), (3, 2), (), (0,), (6,), (1, 2, 3), (2, 3, 1)])
    kind = rng.choice(
        [torch.float32] * 4
        + [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
    )
    value = rng.choice([0.0, 1.0, -1e38, 3.4e38, float("inf"), float("-inf"), float("nan"), 1e-45])
    made = torch.full(shape, value).to(kind)
    return made.t() if made.dim() == 2 and rng.random() < 0.2 else made


def anything(rng: Random):
    return rng.choice(
        [None, True, *HOSTILE, *TEXTS, (), (1, 2), (0, 0), [3], {"w": 1}, tensor(rng), {"w": tensor(rng)}]
    )


def spoil(rng: Random, fields: dict) -> None:
    name = rng.choice(["tensors"] * 4 + list(fields))
    if name == "tensors" and isinstance(fields["tensors"], dict):
        fields["tensors"] = dict(fields["tensors"])
        key = rng.choice(["w", "b", *TEXTS])
        fields["tensors"][key] = tensor(rng) if rng.random() < 0.9 else anything(rng)
        if rng.random() < 0.1:
            fields["tensors"].pop(rng.choice(list(fields["tensors"])))
    elif name == "loss":
        fields["loss"] = anything(rng)
    elif name == "measured":
        fields["measured"] = {word: anything(rng) for word in rng.sample([*TEXTS, "variance"], 2)}
    elif name == "residuals":
        fields["residuals"] = {key: tensor(rng) for key in rng.sample(["w", "b", "x"], 2)}
    elif name == "extras":
        key = rng.choice(["sketch", "labels", *TEXTS])
        fields["extras"] = {key: tensor(rng) if rng.random() < 0.8 else anything(rng)}
    elif name in ("client", "round", "nonce", "samples"):
        fields[name] = rng.choice([value for value in (*HOSTILE, True, "1", None) if value == value])


def arriving(rng: Random):
    for client in rng.choices(range(5), k=rng.randrange(9)):
        if rng.random() < 0.1:
            yield Lost(client, "gone")
            continue
        fields = honest(client)
        for _ in range(rng.randrange(3)):
            spoil(rng, fields)
        yield Update(**fields)


def updates(number: int) -> None:
    rng = Random(number)
    pairing = Pairing(PLAN, arriving(rng), lambda _: EXPECTED)
    good = Defence(rng.choice([None, 0.1, "auto"]), guard=rng.random() < 0.5).screen(
        pairing, WHOLE, lambda _: CUT, pairing.refuse
    )
    after = overlay_mean(WHOLE, ((CUT, update.tensors) for _, update in good))
    for name, value in after.items():
        assert value.shape == WHOLE[name].shape
        assert value.dtype == torch.float32
        assert bool(torch.isfinite(value).all())
    assert {lost.cause for lost in pairing.lost} <= CAUSES
    missing = {lost.client for lost in pairing.lost if lost.cause != "unknown"}
    assert {a.client for a in PLAN} <= missing | pairing.answered.keys()
    assert all(type(samples) is int and samples > 0 for samples, _ in pairing.answered.values())


def test_updates(fuzz):
    fuzz(updates, st.integers(0, 2**64 - 1))
