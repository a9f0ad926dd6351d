"""How examples are shared out: nobody empty, nothing twice, proportions as asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heroes import seeds
from heroes.data import PARTITIONS, share_out
from heroes.errors import DataError

LEVELS = {"iid": 0.0, "gamma": 40.0, "dirichlet": 0.3, "missing": 2.0, "natural": 0.0, "by_device": 40.0}
LEVELS |= {"gamma_all": 40.0, "classes": 2.0, "shards": 2.0}


def shared(name, labels, clients, level=None, seed=0, owners=None, device_of=None):
    """Unless told, every example has an owner of its own, and clients have three kinds of device in turn."""
    return share_out(
        name,
        labels,
        clients,
        seeds.stream(seed, "partition"),
        LEVELS[name] if level is None else level,
        owners=np.arange(len(labels)) if owners is None else owners,
        device_of=np.arange(clients) % 3 if device_of is None else device_of,
    )


def counts_of(shares, labels, classes):
    return np.stack([np.bincount(labels[shares[n]], minlength=classes) for n in range(len(shares))])


def test_the_levels_above_name_every_partition():
    assert LEVELS.keys() == PARTITIONS.keys()


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    labels = np.array(draw(st.lists(st.integers(0, 5), min_size=1, max_size=150)))
    return labels, draw(st.integers(1, len(labels)))


@given(st.sampled_from(["iid", "dirichlet"]), labelled(), st.floats(0.01, 100.0), st.integers(0, 5))
def test_iid_and_dirichlet_use_every_example_once_and_leave_nobody_empty(name, case, level, seed):
    labels, clients = case
    shares = shared(name, labels, clients, level, seed)
    assert len(shares) == clients
    assert all(len(shares[n]) > 0 for n in range(clients))
    assert sorted(np.concatenate([shares[n] for n in range(clients)]).tolist()) == list(range(len(labels)))


@given(labelled(), st.integers(0, 5))
def test_iid_shares_differ_in_size_by_one_at_most(case, seed):
    labels, clients = case
    sizes = np.diff(shared("iid", labels, clients, seed=seed).starts)
    assert sizes.max() - sizes.min() <= 1


@given(st.sampled_from(["gamma", "by_device"]), labelled(), st.floats(0.0, 100.0), st.integers(0, 5))
def test_gamma_shares_are_disjoint_equal_in_size_and_not_empty(name, case, level, seed):
    labels, clients = case
    try:
        shares = shared(name, labels, clients, level, seed)
    except DataError:
        assume(False)
    everything = np.concatenate([shares[n] for n in range(clients)])
    assert len(set(everything.tolist())) == len(everything)
    assert set(everything.tolist()) <= set(range(len(labels)))
    sizes = np.diff(shares.starts)
    assert sizes.min() == sizes.max() >= 1


@given(st.integers(2, 6), st.integers(1, 25), st.floats(0.0, 100.0))
def test_gamma_keeps_its_proportions_up_to_whole_examples(classes, clients, level):
    labels = np.repeat(np.arange(classes), 60)
    shares = shared("gamma", labels, clients, level)
    for n in range(clients):
        counts = np.bincount(labels[shares[n]], minlength=classes)
        size = counts.sum()
        main = n % classes
        assert abs(counts[main] - level / 100 * size) <= 0.5
        others = np.delete(counts, main)
        assert others.max() - others.min() <= 1


def test_gamma_by_hand():
    labels = np.repeat(np.arange(5), 100)
    shares = shared("gamma", labels, 10, 40.0)
    counts = np.stack([np.bincount(labels[shares[n]], minlength=5) for n in range(10)])
    # all of it: 40 % of 50 are 20, 30 are left for four classes
    assert counts.sum(axis=1).tolist() == [50] * 10
    assert counts.diagonal().tolist() == [20] * 5
    assert set(counts[0, 1:].tolist()) == {7, 8}


def test_gamma_gives_smaller_shares_when_a_class_is_rare():
    labels = np.array([0] * 90 + [1] * 10)
    shares = shared("gamma", labels, 2, 80.0)
    counts = np.stack([np.bincount(labels[shares[n]], minlength=2) for n in range(2)])
    assert counts.sum(axis=0)[1] <= 10
    assert counts.tolist() == [[8, 2], [2, 8]]  # client 1 wants 80 % of the rare class


def test_gamma_of_one_class_gives_everyone_the_same_number():
    assert np.diff(shared("gamma", np.zeros(10, dtype=np.int64), 3, 40.0).starts).tolist() == [3, 3, 3]


def test_gamma_that_cannot_be_met_says_so():
    labels = np.array([0] * 9 + [1])
    with pytest.raises(DataError, match="use fewer clients"):
        shared("gamma", labels, 10, 100.0)


@given(labelled(), st.floats(0.0, 100.0), st.integers(0, 5))
def test_gamma_all_deals_every_example_out_and_the_main_class_leads_as_far_as_it_goes(case, level, seed):
    found, clients = case
    labels = np.unique(found, return_inverse=True)[1]
    shares = shared("gamma_all", labels, clients, level, seed)
    assert sorted(np.concatenate([shares[n] for n in range(clients)]).tolist()) == list(range(len(labels)))
    supply = np.bincount(labels)
    counts = counts_of(shares, labels, len(supply))
    sizes, main = counts.sum(axis=1), np.arange(clients) % len(supply)
    assert sizes.max() - sizes.min() <= 1
    fair = (supply // np.maximum(np.bincount(main, minlength=len(supply)), 1))[main]
    assert (counts[np.arange(clients), main] >= np.minimum(np.rint(level / 100 * sizes), fair)).all()


@given(st.integers(2, 6), st.integers(1, 8), st.integers(1, 20), st.floats(0.0, 100.0))
def test_gamma_all_keeps_the_proportions_of_gamma_where_classes_are_even(classes, turns, size, level):
    labels = np.tile(np.arange(classes), turns * size)
    clients = classes * turns
    counts = counts_of(shared("gamma_all", labels, clients, level), labels, classes)
    own = np.arange(clients)[:, None] % classes == np.arange(classes)
    assert np.abs(counts[own] - round(level / 100 * size)).max() <= 1
    assert counts[~own].max() - counts[~own].min() <= 3


def test_gamma_all_by_hand_with_a_rare_class():
    labels = np.repeat([0, 1, 2], [4, 28, 28])
    counts = counts_of(shared("gamma_all", labels, 3, 50.0), labels, 3)
    assert counts.tolist() == [[4, 8, 8], [0, 10, 10], [0, 10, 10]]


def test_gamma_all_of_sixty_thousand_examples_is_quick_and_exact():
    labels = seeds.stream(0, "labels").integers(0, 100, 60_000)
    counts = counts_of(shared("gamma_all", labels, 1000, 60.0), labels, 100)
    assert (counts.sum(axis=1) == 60).all()
    assert (counts[np.arange(1000), np.arange(1000) % 100] >= 36).all()


def test_dirichlet_is_less_even_at_small_levels():
    labels = np.repeat(np.arange(10), 100)

    def unevenness(level):
        shares = shared("dirichlet", labels, 10, level)
        return np.std([np.bincount(labels[shares[n]], minlength=10) for n in range(10)])

    assert unevenness(0.1) > 3 * unevenness(100.0)


@pytest.mark.parametrize("name", LEVELS)
def test_shares_depend_on_the_seed_and_nothing_else(name):
    labels = np.arange(200) % 4
    one, same, other = (shared(name, labels, 7, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.order, same.order)
    assert np.array_equal(one.starts, same.starts)
    assert not np.array_equal(one.order, other.order)


@pytest.mark.parametrize("name", LEVELS)
def test_as_many_clients_as_examples_get_one_each(name):
    labels = np.arange(12) % 4
    level = {"gamma": 100.0, "by_device": 100.0, "missing": 3.0, "classes": 1.0, "shards": 1.0}.get(name)
    labels = np.arange(12) // 4 if name == "by_device" else labels
    assert np.diff(shared(name, labels, 12, level).starts).tolist() == [1] * 12


@pytest.mark.parametrize("name", LEVELS)
def test_more_clients_than_examples_is_refused(name):
    with pytest.raises(
        DataError, match="clients is 11, but there are 10 examples to share; use at most 10 c"
    ):
        shared(name, np.zeros(10, dtype=np.int64), 11)


@given(labelled(), st.integers(0, 5), st.integers(0, 5))
def test_missing_shares_are_disjoint_lack_the_classes_asked_for_and_have_the_rest_equally(case, level, seed):
    labels, clients = case
    classes, labels = np.unique(labels, return_inverse=True)
    try:
        shares = shared("missing", labels, clients, level, seed)
    except DataError:
        assume(False)
    everything = np.concatenate([shares[n] for n in range(clients)])
    assert len(set(everything.tolist())) == len(everything)
    counts = counts_of(shares, labels, len(classes))
    assert ((counts == 0).sum(axis=1) == level).all()
    had = counts[counts > 0]
    assert had.max() - had.min() <= 1
    lacked = (counts == 0).sum(axis=0)
    assert lacked.max() - lacked.min() <= 1


def test_missing_uses_everything_when_classes_are_even():
    labels = np.repeat(np.arange(10), 60)
    counts = counts_of(shared("missing", labels, 20, 4), labels, 10)
    assert (counts.sum(axis=0) == 60).all()  # 12 clients have each class: five examples each
    assert set(counts.ravel().tolist()) == {0, 5}
    assert len({tuple(row > 0) for row in counts}) > 10  # not the same few sets again and again


def test_missing_nothing_is_iid():
    labels = np.repeat(np.arange(4), 50)
    assert (counts_of(shared("missing", labels, 10, 0), labels, 4) == 5).all()


@pytest.mark.parametrize("level", [4, 2.5, -1])
def test_missing_all_classes_or_half_a_class_is_refused(level):
    with pytest.raises(DataError, match="number of classes that a client lacks, 0 to 3"):
        shared("missing", np.arange(40) % 4, 4, level)


def test_missing_that_cannot_be_met_says_so():
    with pytest.raises(DataError, match=r"data\.phi 0: .*federation\.clients is 6; use fewer clients"):
        shared("missing", np.array([0] * 30 + [1]), 6, 0)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(0, 5), st.data())
def test_natural_gives_a_client_all_that_its_owner_made(owners, seed, data):
    owners = np.array(owners)
    there = np.unique(owners)
    clients = data.draw(st.integers(1, len(there)))
    shares = shared("natural", np.zeros(len(owners), dtype=np.int64), clients, seed=seed, owners=owners)
    made_by = [owners[shares[n]] for n in range(clients)]
    assert all(len(set(made.tolist())) == 1 for made in made_by)
    assert all(len(made) == (owners == made[0]).sum() for made in made_by)
    assert len({int(made[0]) for made in made_by}) == clients
    if clients == len(there):
        assert sorted(shares.order.tolist()) == list(range(len(owners)))


def test_natural_needs_owners_and_enough_of_them():
    labels = np.zeros(6, dtype=np.int64)
    with pytest.raises(DataError, match="this data does not say"):
        share_out("natural", labels, 2, seeds.stream(0))
    with pytest.raises(DataError, match=r"clients is 3, but .* there are 2 owners.*; use at most 2"):
        shared("natural", labels, 3, owners=np.array([0, 0, 0, 1, 1, 1]))
    with pytest.raises(DataError, match="6 examples but 2 owners"):
        shared("natural", labels, 2, owners=np.array([0, 1]))


@given(st.integers(2, 10), st.lists(st.integers(0, 3), min_size=1, max_size=20), st.floats(20.0, 100.0))
def test_by_device_keeps_its_proportions_and_ties_the_main_class_to_the_device(classes, devices, level):
    labels, device_of = np.repeat(np.arange(classes), 100), np.array(devices)
    shares = shared("by_device", labels, len(devices), level, device_of=device_of)
    counts = counts_of(shares, labels, classes)
    size = counts[0].sum()
    assert (counts.sum(axis=1) == size).all()
    assume(level / 100 * size - (1 - level / 100) * size / (classes - 1) > 2)  # else no class stands out
    main = counts.argmax(axis=1)
    assert (np.abs(counts.max(axis=1) - level / 100 * size) <= 0.5).all()
    by_kind = [set(main[device_of == kind].tolist()) for kind in sorted(set(devices))]
    if classes >= len(by_kind):
        # no two kinds of device share a main class
        assert sum(map(len, by_kind)) == len(set().union(*by_kind))
        # weak ones have the first classes
        assert [min(kinds) for kinds in by_kind] == sorted(min(kinds) for kinds in by_kind)


def test_by_device_by_hand():
    labels = np.repeat(np.arange(4), 100)
    counts = counts_of(shared("by_device", labels, 4, 70.0, device_of=np.array([1, 0, 0, 1])), labels, 4)
    assert counts.sum(axis=1).tolist() == [100] * 4
    assert counts.argmax(axis=1).tolist() == [2, 0, 1, 3]
    assert counts.max(axis=1).tolist() == [70] * 4


def test_by_device_needs_a_device_for_every_client():
    labels = np.arange(40) % 4
    with pytest.raises(DataError, match="needs the device class"):
        share_out("by_device", labels, 4, seeds.stream(0))
    with pytest.raises(DataError, match="device class of 3 clients, but there are 4"):
        shared("by_device", labels, 4, device_of=np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize(
    ("name", "level", "key"),
    [
        ("gamma", 101.0, "gamma"),
        ("gamma_all", 101.0, "gamma"),
        ("by_device", -1.0, "gamma"),
        ("dirichlet", 0.0, "alpha"),
        ("missing", 40, "phi"),
    ],
)
def test_levels_out_of_range_are_refused_by_the_key_to_change(name, level, key):
    with pytest.raises(DataError, match=rf"^data\.{key} is {level:g}; "):
        shared(name, np.arange(40) % 4, 4, level)


def test_an_unknown_partition_is_refused_with_the_nearest_name():
    with pytest.raises(DataError, match=r"data\.partition is 'gama': did you mean 'gamma'"):
        share_out("gama", np.zeros(10, dtype=np.int64), 2, seeds.stream(0), 40.0)


@pytest.mark.parametrize("targets", [np.linspace(0.0, 1.0, 12), np.zeros((12, 3), dtype=np.int64)])
def test_targets_that_are_no_classes_are_shared_out_only_where_labels_do_not_matter(targets):
    for name in ("gamma", "dirichlet", "missing", "by_device"):
        with pytest.raises(
            DataError, match=rf"data\.partition is '{name}', .* of shape \(12.*\); use iid, or nat"
        ):
            share_out(name, targets, 3, seeds.stream(0), device_of=np.zeros(3, dtype=np.int64))
    assert [len(share_out("iid", targets, 3, seeds.stream(0))[n]) for n in range(3)] == [4, 4, 4]
    owners = np.repeat(np.arange(3), 4)
    natural = share_out("natural", targets, 3, seeds.stream(0), owners=owners)
    assert [natural[n].tolist() for n in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    drawn = share_out("iid", targets, 50, seeds.stream(0), examples_per_client=5)
    assert len(set(drawn[49].tolist())) == 5


def test_every_client_has_so_many_classes_and_every_example_is_somebodys():
    labels = np.repeat(np.arange(5), [40, 30, 20, 20, 10])
    shares = shared("classes", labels, 10, 2.0)
    counts = counts_of(shares, labels, 5)
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert counts.sum(axis=0).tolist() == [40, 30, 20, 20, 10]
    assert ((counts > 0).sum(axis=0) == 4).all()  # as many clients have each class
    assert sorted(shares.order.tolist()) == list(range(120))


def test_classes_that_nobody_has_are_left_out():
    labels = np.repeat(np.arange(6), 10)
    shares = shared("classes", labels, 2, 2.0)
    assert [len(shares[n]) for n in range(2)] == [20, 20]


def test_classes_that_cannot_be_met_say_so():
    with pytest.raises(DataError, match=r"data\.classes_per_client is 3; .* it is 1 to 2"):
        shared("classes", np.array([0, 1] * 9), 2, 3.0)
    with pytest.raises(DataError, match="6 clients would share a class of 2 examples"):
        shared("classes", np.array([0] * 18 + [1] * 2), 6, 2.0)


@given(labelled(), st.integers(1, 3), st.integers(0, 5))
def test_shards_are_of_one_size_and_use_every_example(case, level, seed):
    labels, clients = case
    assume(level * clients <= len(labels))
    shares = shared("shards", labels, clients, level, seed)
    assert sorted(shares.order.tolist()) == list(range(len(labels)))
    sizes = np.diff(shares.starts)
    assert sizes.max() - sizes.min() <= level


def test_two_shards_hold_two_classes_at_most_where_classes_are_even():
    labels = np.tile(np.arange(10), 20)
    counts = counts_of(shared("shards", labels, 10), labels, 10)
    assert ((counts > 0).sum(axis=1) <= 2).all()
    assert (counts.sum(axis=1) == 20).all()
    with pytest.raises(DataError, match=r"3 clients with data\.shards = 2 each need 6 examples or more"):
        shared("shards", np.zeros(5, dtype=int), 3)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "classes"])
@pytest.mark.parametrize("kind", ["lognormal", "power"])
def test_sizes_may_be_uneven_and_every_example_is_used(name, kind):
    labels = np.tile(np.arange(4), 500)
    level = {"dirichlet": 100.0, "classes": 4.0}.get(name)
    shares = share_out(name, labels, 20, seeds.stream(0, "x"), level, size_kind=kind, skew=1.5)
    sizes = np.sort(np.diff(shares.starts))
    assert sizes.sum() == 2000
    assert sizes[0] >= 1
    assert sizes[-1] > 5 * sizes[10]  # the largest, and one in the middle


def test_power_law_by_hand_and_what_has_no_sizes():
    shares = share_out("iid", np.zeros(1002, dtype=int), 2, seeds.stream(0, "x"), size_kind="power", skew=2.0)
    assert sorted(np.diff(shares.starts).tolist()) == [201, 801]
    with pytest.raises(DataError, match=r"data\.sizes is 'power', but data\.partition = 'shards' says"):
        share_out("shards", np.zeros(99, dtype=int), 2, seeds.stream(0, "x"), size_kind="power")
    with pytest.raises(DataError, match=r"data\.examples_per_client gives everybody the same number"):
        share_out("iid", np.zeros(99, int), 2, seeds.stream(0, "x"), size_kind="power", examples_per_client=3)
    with pytest.raises(DataError, match=r"data\.sizes is 'powr': did you mean 'power'"):
        share_out("iid", np.zeros(99, dtype=int), 2, seeds.stream(0, "x"), size_kind="powr")


def test_clients_that_draw_may_have_a_few_classes_each():
    labels = np.tile(np.arange(5), 20)
    shares = share_out("classes", labels, 1000, seeds.stream(0, "x"), 2.0, examples_per_client=9)
    counts = counts_of(shares, labels, 5)
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert (counts.sum(axis=1) == 9).all()
