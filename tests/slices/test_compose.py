"""compose, unfold, decompose and the initial factors, against their definitions."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from heroes.slices.compose import Layout, compose, decompose, initial_factors, orthogonality, unfold


def factors(layout: Layout, rank: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    basis = torch.randn(layout.basis_rows, rank, generator=generator, dtype=torch.float64)
    coefficient = torch.randn(width**2, rank, layout.outputs, generator=generator, dtype=torch.float64)
    return basis, coefficient


def by_definition(basis: Tensor, coefficient: Tensor, layout: Layout, width: int) -> Tensor:
    """W[k, a*I + i, b*O + o] = sum_r V[k*I + i, r] * U[a*p + b, r, o], one element at a time, as (k, inputs,
    outputs).
    """
    k_count, inputs, outputs = layout.positions, layout.inputs, layout.outputs
    w = torch.zeros(k_count, width * inputs, width * outputs, dtype=basis.dtype)
    axes = range(k_count), range(width), range(width), range(inputs), range(outputs), range(basis.shape[1])
    for k, a, b, i, o, r in itertools.product(*axes):
        w[k, a * inputs + i, b * outputs + o] += basis[k * inputs + i, r] * coefficient[a * width + b, r, o]
    return w


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(), (3,), (2, 3)])
def test_compose_is_the_definition_elementwise(width: int, kernel: tuple[int, ...]) -> None:
    layout = Layout(outputs=2, inputs=3, kernel=kernel)
    basis, coefficient = factors(layout, 4, width)
    weight = compose(basis, coefficient, layout)
    assert weight.shape == (2 * width, 3 * width, *kernel)
    k_in_out = weight.reshape(2 * width, 3 * width, -1).permute(2, 1, 0)
    torch.testing.assert_close(k_in_out, by_definition(basis, coefficient, layout, width))


def test_compose_by_hand() -> None:
    layout = Layout(outputs=1, inputs=2)
    basis = torch.tensor([[1.0, 0.0], [2.0, 1.0]])
    coefficient = torch.tensor([[[1.0], [10.0]], [[2.0], [20.0]], [[3.0], [30.0]], [[4.0], [40.0]]])
    # block (a, b) gives inputs 2a, 2a+1 of output b: (u0, 2*u0 + u1)
    assert compose(basis, coefficient, layout).tolist() == [[1.0, 12.0, 3.0, 36.0], [2.0, 24.0, 4.0, 48.0]]


def test_each_stacked_part_is_split_into_groups_by_itself() -> None:
    layout = Layout(outputs=6, inputs=4, output_parts=3, input_parts=2)
    basis, coefficient = factors(layout, 4, 2)
    weight = compose(basis, coefficient, layout)
    plain = by_definition(basis, coefficient, layout, 2)[0]  # groups in order, parts inside a group
    for a, b, t, s, i, o in itertools.product(range(2), range(2), range(2), range(3), range(2), range(2)):
        row, column = s * 4 + b * 2 + o, t * 4 + a * 2 + i  # part, then group, then unit
        assert weight[row, column] == pytest.approx(
            plain[a * 4 + t * 2 + i, b * 6 + s * 2 + o].item(), abs=1e-12
        )


def test_unequal_parts_are_split_into_groups_each_by_itself() -> None:
    layout = Layout(outputs=3, inputs=4, kernel=(2,), output_sizes=(2, 1), input_sizes=(1, 3))
    basis, coefficient = factors(layout, 4, 2)
    weight = compose(basis, coefficient, layout)
    plain = by_definition(basis, coefficient, layout, 2)  # groups in order, parts inside a group
    rows = [0, 1, 3, 4, 2, 5]  # part, then group, then unit: where each was in the order of groups
    columns = [0, 4, 1, 2, 3, 5, 6, 7]
    for k, row, column in itertools.product(range(2), range(6), range(8)):
        expected = plain[k, columns[column], rows[row]].item()
        assert weight[row, column, k] == pytest.approx(expected, abs=1e-12)


UNEQUAL = st.lists(st.integers(1, 3), min_size=2, max_size=3).map(tuple)
LAYOUTS = st.one_of(
    st.builds(lambda o, i: Layout(sum(o), sum(i), (2,), output_sizes=o, input_sizes=i), UNEQUAL, UNEQUAL),
    st.builds(
        lambda o, i, kernel, s, t: Layout(o * s, i * t, kernel, s, t),
        st.integers(1, 3),
        st.integers(1, 3),
        st.sampled_from([(), (2,), (3, 3)]),
        st.integers(1, 4),
        st.integers(1, 2),
    ),
)


@given(LAYOUTS, st.integers(1, 3), st.integers(1, 5))
def test_unfold_is_the_matrix_that_the_factors_make(layout: Layout, width: int, rank: int) -> None:
    basis, coefficient = factors(layout, rank, width)
    matrix = basis @ coefficient.permute(1, 0, 2).reshape(rank, -1)
    torch.testing.assert_close(unfold(compose(basis, coefficient, layout), layout), matrix)


@given(LAYOUTS, st.integers(1, 3))
def test_unfold_is_undone_by_composing_with_the_identity_basis(layout: Layout, width: int) -> None:
    weight = torch.arange(float(torch.Size(layout.weight_shape(width)).numel())).view(
        layout.weight_shape(width)
    )
    rows = layout.basis_rows
    coefficient = unfold(weight, layout).view(rows, width**2, layout.outputs).permute(1, 0, 2).contiguous()
    assert torch.equal(compose(torch.eye(rows), coefficient, layout), weight)


def test_rank_is_the_ratio_of_the_outputs_rounded_and_clamped() -> None:
    layout = Layout(outputs=10, inputs=3, kernel=(2, 2))  # 12 basis rows
    assert layout.rank(1.0, 4) == 10
    assert layout.rank(0.26, 4) == 3
    assert layout.rank(5.0, 4) == 12  # no more than basis rows
    assert layout.rank(0.01, 4) == 1  # at least one
    assert Layout(outputs=2, inputs=90).rank(30.0, 2) == 8  # no more than P*P*O columns


@pytest.mark.parametrize(("rows", "rank"), [(24, 8), (24, 24), (6, 10)])
def test_initial_basis_has_orthonormal_columns_or_rows(rows: int, rank: int) -> None:
    basis, coefficient = initial_factors(Layout(8, rows), rank, 2, 1.0, torch.Generator().manual_seed(0))
    assert basis.shape == (rows, rank)
    assert coefficient.shape == (4, rank, 8)
    gram = basis.T @ basis if rows >= rank else basis @ basis.T
    torch.testing.assert_close(gram, torch.eye(min(rows, rank)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("layout", "rank"), [(Layout(32, 16, (3, 3)), 32), (Layout(48, 64), 48), (Layout(64, 12), 40)]
)
def test_initial_weight_has_the_variance_asked_for(layout: Layout, rank: int) -> None:
    he = 2 / (layout.basis_rows * 4)
    basis, coefficient = initial_factors(layout, rank, 4, he, torch.Generator().manual_seed(1))
    weight = compose(basis, coefficient, layout)
    assert weight.var().item() == pytest.approx(he, rel=0.05)
    assert weight.mean().item() == pytest.approx(0.0, abs=0.1 * he**0.5)


def test_initial_factors_repeat_from_the_seed() -> None:
    first, again, other = (
        initial_factors(Layout(3, 4), 3, 2, 1.0, torch.Generator().manual_seed(s)) for s in (5, 5, 6)
    )
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


def test_orthogonality_by_hand() -> None:
    assert orthogonality(torch.eye(3, 2)).item() == 0.0
    # V = [[2], [1]]: V^T V - 1 = 4; two columns (1,0) and (1,0): gram all ones, two off-diagonal ones out of
    # four
    assert orthogonality(torch.tensor([[2.0], [1.0]])).item() == 16.0
    assert orthogonality(torch.tensor([[1.0, 1.0], [0.0, 0.0]])).item() == 0.5


SHAPES = [
    (Layout(4, 3, (3, 3)), 4),  # the usual case
    (Layout(5, 3), 5),  # rank above the basis rows
    (Layout(1, 9), 8),  # rank above the columns at width 1
    (Layout(8, 4, (), 4, 2), 4),  # stacked
]


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(("layout", "rank"), SHAPES)
def test_decomposing_what_the_factors_compose_returns_the_factors(
    layout: Layout, rank: int, width: int
) -> None:
    basis, coefficient = factors(layout, rank, width)
    found = decompose(compose(basis, coefficient, layout), basis, coefficient, layout)
    torch.testing.assert_close(found[0], basis)
    torch.testing.assert_close(found[1], coefficient)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(("layout", "rank"), SHAPES)
def test_decomposing_a_composable_weight_returns_it(layout: Layout, rank: int, width: int) -> None:
    start = factors(layout, rank, width)
    moved = [f + 0.1 * noise for f, noise in zip(start, factors(layout, rank, width, seed=1), strict=True)]
    weight = compose(moved[0], moved[1], layout)
    found = decompose(weight, *start, layout)
    assert (compose(*found, layout) - weight).norm() < 1e-3 * weight.norm()
    assert (found[0] - start[0]).norm() < start[0].norm()  # still near where it started


def test_decomposing_from_zero_factors_stays_finite() -> None:
    layout = Layout(2, 3)
    basis, coefficient = torch.zeros(3, 2), torch.zeros(1, 2, 2)
    found = decompose(torch.ones(2, 3), basis, coefficient, layout)
    assert all(f.isfinite().all() for f in found)


def free_svd(weight: Tensor, layout: Layout, rank: int) -> tuple[Tensor, Tensor]:
    left, values, right = torch.linalg.svd(unfold(weight, layout), full_matrices=False)
    coefficient = (values[:rank, None] * right[:rank]).reshape(rank, -1, layout.outputs).permute(1, 0, 2)
    return left[:, :rank], coefficient.contiguous()


def test_averaged_decompositions_compose_near_the_mean_weight_where_a_free_svd_does_not() -> None:
    layout, rank, width = Layout(6, 4, (3, 3)), 6, 2
    start = initial_factors(layout, rank, width, 1.0, torch.Generator().manual_seed(0))
    sent = compose(*start, layout).double()
    noise = torch.Generator().manual_seed(1)
    clients = [sent + 0.05 * torch.randn(sent.shape, generator=noise, dtype=torch.float64) for _ in range(8)]
    mean_weight = torch.stack(clients).mean(0)

    def error_of(parts: list[tuple[Tensor, Tensor]]) -> float:
        averaged = [torch.stack([part[i] for part in parts]).mean(0) for i in range(2)]
        return float(
            (compose(averaged[0].double(), averaged[1].double(), layout) - mean_weight).norm()
            / mean_weight.norm()
        )

    best = error_of([free_svd(mean_weight, layout, rank)])  # what rank R cannot express
    assert error_of([decompose(w, *start, layout) for w in clients]) < best + 0.01
    assert error_of([free_svd(w, layout, rank) for w in clients]) > 0.1
