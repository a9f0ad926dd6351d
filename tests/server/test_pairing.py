"""What came back against what was planned: plan order restored, every broken update named and kept out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heroes.client.extras import LABELS, SKETCH, SKETCHED
from heroes.messages import Assignment, Lost, Selection, Update
from heroes.server.pairing import Expected, Pairing
from heroes.slices.cuts import Slice
from heroes.slices.overlays import overlay_mean

EXPECTED = Expected({"w": (3,)}, sends=(SKETCH, LABELS), classes=2)
NONCE = 2**62 + 1


def planned(client: int) -> Assignment:
    return Assignment(
        7, client, "laptop", Selection(1, (0,), (0,)), 3, 0.1, 1.0, 0.0, 1.0, 10, 10, nonce=NONCE
    )


def answer(client: int, value: float = 1.0, loss: float = 0.5) -> Update:
    return Update(client, 7, {"w": torch.full((3,), value)}, samples=10 + client, loss=loss, nonce=NONCE)


def why(pairing: Pairing) -> list[tuple[int, str]]:
    """Who is missing and why, without the cause."""
    return [(lost.client, lost.reason) for lost in pairing.lost]


def pair(clients, updates) -> tuple[list[tuple[Assignment, Update]], Pairing]:
    pairing = Pairing([planned(c) for c in clients], iter(updates), lambda _: EXPECTED)
    return list(pairing), pairing


@given(st.permutations(range(6)))
def test_updates_are_handed_on_in_plan_order_whatever_order_they_arrive_in(order):
    clients = [40, 3, 25, 7, 0, 11]
    generator = torch.Generator().manual_seed(1)
    values = {c: torch.randn(3, generator=generator) * 10.0**n for n, c in enumerate(clients)}
    arriving = [replace(answer(clients[n]), tensors={"w": values[clients[n]]}) for n in order]
    pairs, pairing = pair(clients, arriving)
    assert [(a.client, u.client) for a, u in pairs] == [(c, c) for c in clients]
    assert pairing.lost == []
    cut = {"w": Slice("w")}
    whole = {"w": torch.zeros(3)}
    in_order = overlay_mean(whole, [(cut, {"w": values[c]}) for c in clients])
    assert torch.equal(overlay_mean(whole, [(cut, u.tensors) for _, u in pairs])["w"], in_order["w"])


def test_the_answers_samples_and_losses_are_noted():
    _, pairing = pair([4, 5], [answer(5, loss=2.0), answer(4, loss=1.0)])
    assert pairing.answered == {4: (14, 1.0), 5: (15, 2.0)}


@pytest.mark.parametrize(
    ("told", "tau", "last"),
    [
        *((5.0, 5, 1.0), (2.4, 3, 0.4), (6.0, 6, 1.0)),
        *((told, 3, 1.0) for told in (None, 0.5, 6.1, -2.0, math.nan, math.inf)),
    ],
)
def test_steps_count_as_a_client_tells_them_if_they_were_up_to_it_and_can_be_right(told, tau, last):
    plan = [replace(planned(4), until=3.0), planned(5)]
    arriving = [replace(answer(client), steps=told) for client in (4, 5)]
    pairing = Pairing(plan, iter(arriving), lambda _: EXPECTED)
    (own, _), (asked, _) = pairing
    assert (own.tau, own.last) == (tau, pytest.approx(last))
    assert (asked.tau, asked.last) == (3, 1.0)
    assert pairing.done == (own, asked)


def test_an_update_is_handed_on_as_soon_as_its_turn_comes():
    asked = []

    def arriving():
        for client in (1, 2, 3):
            asked.append(client)
            yield answer(client)

    pairs = iter(Pairing([planned(c) for c in (1, 2, 3)], arriving(), lambda _: EXPECTED))
    assert next(pairs)[1].client == 1
    assert asked == [1]


@given(st.permutations(range(5)), st.sets(st.integers(0, 4)))
def test_clients_that_never_answer_are_lost_and_the_others_counted(order, silent):
    pairs, pairing = pair(range(5), [answer(c) for c in order if c not in silent])
    assert [u.client for _, u in pairs] == [c for c in range(5) if c not in silent]
    assert sorted(lost.client for lost in pairing.lost) == sorted(silent)
    assert {lost.reason for lost in pairing.lost} <= {"no answer"}


BROKEN = {
    ("w is not finite", "finite"): answer(1, value=math.nan),
    ("w has shape (1, 3) instead of (3,)", "shape"): replace(answer(1), tensors={"w": torch.ones(1, 3)}),
    ("w is torch.float64 instead of torch.float32", "type"): replace(
        answer(1), tensors={"w": torch.ones(3).double()}
    ),
    ("w is list instead of torch.float32", "type"): replace(answer(1), tensors={"w": [1.0, 1.0, 1.0]}),
    ("tensor names differ: v", "names"): replace(answer(1), tensors={"w": torch.ones(3), "v": torch.ones(3)}),
    ("tensor names differ: w", "names"): replace(answer(1), tensors={}),
    ("it says it has 0 samples", "samples"): replace(answer(1), samples=0),
    ("it says it has -3 samples", "samples"): replace(answer(1), samples=-3),
    ("it says it has 2.5 samples", "samples"): replace(answer(1), samples=2.5),
    (f"it says it has {10**30} samples", "samples"): replace(answer(1), samples=10**30),
    ("its labels are not classes from 0 to 1", "extras"): replace(
        answer(1), extras={"labels": torch.tensor([0, 2])}
    ),
    ("it sent 'diary', which nobody asked for", "extras"): replace(
        answer(1), extras={"diary": torch.ones(1)}
    ),
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("reason", "cause"), BROKEN)
def test_a_broken_update_is_recorded_with_its_reason_and_not_handed_on(reason, cause, place):
    updates = [answer(0), answer(2)]
    updates.insert(place, BROKEN[reason, cause])
    pairs, pairing = pair([0, 1, 2], updates)
    assert [u.client for _, u in pairs] == [0, 2]
    assert pairing.lost == [Lost(1, reason, cause, arrived=True)]
    assert 1 not in pairing.answered


def test_a_late_answer_is_refused_and_does_not_use_up_the_clients_turn():
    late = replace(answer(1), round=6)
    pairs, pairing = pair([0, 1], [late, answer(0), answer(1), late])
    assert [u.client for _, u in pairs] == [0, 1]
    assert pairing.lost == [Lost(1, "answers round 6 in round 7", "round", arrived=True)] * 2
    _, alone = pair([1], [late])
    assert why(alone) == [(1, "answers round 6 in round 7"), (1, "no answer")]


def test_an_answer_to_another_assignment_is_refused():
    forged = replace(answer(1), nonce=NONCE - 1)
    pairs, pairing = pair([1], [forged, answer(1)])
    assert [u.nonce for _, u in pairs] == [NONCE]
    assert pairing.lost == [Lost(1, "answers another assignment: its nonce is wrong", "nonce", arrived=True)]


@given(st.permutations(range(4)))
def test_a_loss_with_a_reason_is_recorded_with_that_reason_in_plan_order(order):
    arriving = {
        0: answer(0),
        1: Lost(1, "its worker was killed"),
        2: answer(2, value=math.nan),
        3: Lost(3, "took too long"),
    }
    pairs, pairing = pair(range(4), [arriving[c] for c in order])
    assert [u.client for _, u in pairs] == [0]
    assert why(pairing) == [(1, "its worker was killed"), (2, "w is not finite"), (3, "took too long")]
    assert [lost.cause for lost in pairing.lost] == ["failed", "finite", "failed"]
    assert pairing.answered == {0: (10, 0.5)}


def test_a_loss_of_nobody_who_was_asked_and_a_second_word_about_a_client():
    _, pairing = pair([0], [Lost(9, "gone"), answer(0), Lost(0, "gone")])
    assert why(pairing) == [(9, "unknown client"), (0, "answered twice")]
    assert not any(lost.arrived for lost in pairing.lost)


def test_a_client_that_is_lost_does_not_hold_up_the_others():
    updates = iter([Lost(0, "gone"), answer(1), answer(2)])
    pairs = iter(Pairing([planned(c) for c in (0, 1, 2)], updates, lambda _: EXPECTED))
    assert next(pairs)[1].client == 1
    assert next(updates).client == 2


def test_infinite_tensors_are_kept_out_too():
    pairs, pairing = pair([0], [answer(0, value=-math.inf)])
    assert (pairs, why(pairing)) == ([], [(0, "w is not finite")])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 10**400, "much"])
def test_measurements_that_cannot_be_are_dropped_and_the_update_is_not(bad):
    wrong = replace(answer(0), loss=bad, measured={"smoothness": bad, "variance": 0.25, "lipschitz": bad})
    pairs, pairing = pair([0], [wrong])
    assert math.isnan(pairs[0][1].loss)
    assert pairs[0][1].measured == {"variance": 0.25}
    assert (pairing.lost, pairing.answered) == ([], {0: (10, None)})


SOUND = torch.ones(SKETCHED)


@pytest.mark.parametrize(
    "sketch", [torch.ones(SKETCHED - 1), torch.ones(SKETCHED, 1), SOUND.double(), SOUND * math.nan]
)
def test_an_update_with_a_sketch_that_cannot_be_is_refused(sketch):
    pairs, pairing = pair([0], [replace(answer(0), extras={"sketch": sketch})])
    assert pairs == []
    assert [(lost.client, lost.cause, lost.arrived) for lost in pairing.lost] == [(0, "extras", True)]
    assert "its sketch is" in pairing.lost[0].reason
    pairs, _ = pair([0], [replace(answer(0), extras={"sketch": SOUND})])
    assert torch.equal(pairs[0][1].extras["sketch"], SOUND)


def test_residuals_of_the_wrong_size_are_dropped_and_the_update_is_not():
    pairs, _ = pair(
        [0, 1],
        [
            replace(answer(0), residuals={"w": torch.ones(4)}),
            replace(answer(1), residuals={"w": torch.ones(3)}),
        ],
    )
    assert [update.residuals is None for _, update in pairs] == [True, False]


def test_an_answer_can_be_taken_back():
    _, pairing = pair([0, 1], [answer(0), answer(1)])
    pairing.refuse(1, "too large", "outlier")
    assert pairing.answered == {0: (10, 0.5)}
    assert pairing.lost == [Lost(1, "too large", "outlier", arrived=True)]


def test_a_client_nobody_asked_is_recorded_and_not_handed_on():
    pairs, pairing = pair([0], [answer(9), answer(0)])
    assert [u.client for _, u in pairs] == [0]
    assert pairing.lost == [Lost(9, "unknown client", "unknown", arrived=True)]


@pytest.mark.parametrize("arrivals", [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 0, 1]])
def test_of_two_answers_of_one_client_the_first_counts(arrivals):
    seen: dict[int, int] = {}
    updates = []
    for client in arrivals:
        updates.append(answer(client, value=float(seen.get(client, 0))))
        seen[client] = seen.get(client, 0) + 1
    twice = max(seen, key=lambda client: seen[client])
    pairs, pairing = pair([0, 1], updates)
    assert [(u.client, u.tensors["w"].tolist()) for _, u in pairs] == [(0, [0.0] * 3), (1, [0.0] * 3)]
    assert pairing.lost == [Lost(twice, "answered twice", "twice", arrived=True)]


def test_a_client_whose_numbers_turned_nan_leaves_the_model_finite():
    updates = [answer(0, value=2.0), answer(1, value=math.nan, loss=math.nan), answer(2, value=4.0)]
    pairing = Pairing([planned(c) for c in range(3)], iter(updates), lambda _: EXPECTED)
    after = overlay_mean({"w": torch.zeros(3)}, (({"w": Slice("w")}, u.tensors) for _, u in pairing))
    assert after["w"].tolist() == [3.0, 3.0, 3.0]
    assert why(pairing) == [(1, "w is not finite")]


def test_answers_to_other_assignments_are_listed_in_plan_order_whatever_order_they_come_in(world):
    plan = [world.assignment(client, nonce=5) for client in (1, 2, 3)]
    wrong = [Update(client, 1, {}, 10, nonce=6) for client in (3, 1)]
    found = []
    for updates in (wrong, wrong[::-1]):
        pairing = Pairing(plan, iter(updates), lambda a: Expected({}))
        assert list(pairing) == []
        found.append([(lost.client, lost.cause) for lost in pairing.lost])
    assert found[0] == found[1] == [(1, "nonce"), (3, "nonce"), (1, "silent"), (2, "silent"), (3, "silent")]
