"""Basis times coefficient gives a weight, and back.

Letters, here and everywhere: p the width, I and O the input and output sizes at width 1, k the kernel
position, R the rank, a the input group, b the output group. With `basis` V (k*I, R) and `coefficient` U (p*p,
R, O),

    W[k, a*I + i, b*O + o] = sum_r V[k*I + i, r] * U[a*p + b, r, o]

Torch keeps a weight as (outputs, inputs, *kernel). An axis may be stacked from parts (the gates of an LSTM,
the Q, K and V of attention, a concatenation, whose parts may be unequal): each part is split into groups by
itself, so that a group holds the same hidden units in all parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The sizes of a composed weight at width 1, and how its two scaled axes are stacked."""

    outputs: int  # O
    inputs: int  # I
    kernel: tuple[int, ...] = ()
    output_parts: int = 1
    input_parts: int = 1
    output_sizes: tuple[int, ...] = ()  # of unequal parts
    input_sizes: tuple[int, ...] = ()

    @cached_property
    def stacked(self) -> bool:
        """Whether an axis has more than one part."""
        return self.output_parts > 1 or self.input_parts > 1 or bool(self.output_sizes or self.input_sizes)

    @cached_property
    def positions(self) -> int:
        """k: the number of kernel positions."""
        return math.prod(self.kernel)

    @cached_property
    def basis_rows(self) -> int:
        return self.positions * self.inputs

    def weight_shape(self, width: int) -> tuple[int, ...]:
        return (width * self.outputs, width * self.inputs, *self.kernel)

    def rank(self, ratio: float, max_width: int) -> int:
        """R = ratio * O, rounded, between 1 and what can matter."""
        return max(1, min(round(ratio * self.outputs), self.basis_rows, max_width**2 * self.outputs))


def compose(basis: Tensor, coefficient: Tensor, layout: Layout) -> Tensor:
    """The weight, as torch keeps it.

    >>> layout = Layout(outputs=1, inputs=1)
    >>> compose(torch.tensor([[2.0]]), torch.tensor([[[1.0]], [[2.0]], [[3.0]], [[4.0]]]), layout).tolist()
    [[2.0, 6.0], [4.0, 8.0]]
    """
    rank, t = basis.shape[1], layout.input_parts
    width = math.isqrt(coefficient.numel() // (rank * layout.outputs))
    u = as_grid(coefficient, layout, rank, width).permute(3, 1, 4, 0, 2).reshape(-1, rank)  # part, b, o, a: r
    w = (u @ basis.t()).view(width * layout.outputs, width, layout.positions, t, -1)  # outputs, a, k, part, i
    w = w.permute(0, 2, 3, 1, 4).reshape(width * layout.outputs, *layout.kernel, width * layout.inputs)
    if layout.output_sizes:
        w = w.index_select(0, part_order(layout.output_sizes, width).to(w.device))
    if layout.input_sizes:
        w = w.index_select(-1, part_order(layout.input_sizes, width).to(w.device))
    return w.movedim(-1, 1)  # channels last in memory


@lru_cache(maxsize=256)
def part_order(sizes: tuple[int, ...], width: int) -> Tensor:
    """Where each place of an axis stacked from such parts lies when the axis is ordered by groups.

    `sizes` are those at width 1; within a group, parts follow each other.

    >>> part_order((2, 1), 2).tolist()
    [0, 1, 3, 4, 2, 5]
    """
    with torch.inference_mode(False):  # it is kept, and training needs it too
        by_group = torch.arange(width * sum(sizes)).view(width, -1)
        return torch.cat([part.reshape(-1) for part in by_group.split(sizes, dim=1)])


def as_grid(coefficient: Tensor, layout: Layout, rank: int, width: int) -> Tensor:
    """The coefficient with an axis for each of a, b, r, part of the outputs, o."""
    return coefficient.view(width, width, rank, layout.output_parts, -1)


def empty_factors(layout: Layout, rank: int, width: int) -> tuple[Tensor, Tensor]:
    """Zeros for basis and coefficient (as a grid), laid out so that no path has to copy them."""
    basis = torch.zeros(rank, layout.basis_rows).t()
    parts = layout.output_parts
    coefficient = torch.zeros(parts, width, layout.outputs // parts, width, rank).permute(3, 1, 4, 0, 2)
    return basis, coefficient


def unfold(weight: Tensor, layout: Layout) -> Tensor:
    """The weight as the matrix (k*I, p*p*O) that basis and coefficient factorise."""
    width = weight.shape[0] // layout.outputs
    s, t = layout.output_parts, layout.input_parts
    if layout.output_sizes:
        weight = weight[part_order(layout.output_sizes, width).argsort()]
    if layout.input_sizes:
        weight = weight[:, part_order(layout.input_sizes, width).argsort()]
    w = weight.reshape(s, width, layout.outputs // s, t, width, layout.inputs // t, layout.positions)
    return w.permute(6, 3, 5, 4, 1, 0, 2).reshape(layout.basis_rows, width**2 * layout.outputs)


def decompose(
    weight: Tensor,
    basis: Tensor,
    coefficient: Tensor,
    layout: Layout,
    *,
    sweeps: int = 3,
    anchor: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """Basis and coefficient near the given ones whose product is near the weight.

    A factorisation is free up to an invertible R x R factor, and averaging such factors over clients is
    meaningless. So alternating least squares start from the factors that were sent out and are held to them
    by a small ridge; each half-step solves for the change.
    """
    blocks, rank, outputs = coefficient.shape
    target = unfold(weight, layout).double()
    v = basis.double()
    u = coefficient.double().permute(1, 0, 2).reshape(rank, blocks * outputs)
    for _ in range(sweeps):
        u = u + _ridge(v, target - v @ u, anchor)
        v = v + _ridge(u.T, (target - v @ u).T, anchor).T
    u_blocks = u.reshape(rank, blocks, outputs).permute(1, 0, 2)
    return v.to(basis.dtype), u_blocks.to(coefficient.dtype).contiguous()


def _ridge(factor: Tensor, residual: Tensor, anchor: float) -> Tensor:
    """The smallest change x that brings factor @ x close to the residual."""
    gram = factor.T @ factor
    ridge = (anchor * gram.diagonal().mean()).clamp(min=torch.finfo(gram.dtype).tiny)
    gram.diagonal().add_(ridge)
    change: Tensor = torch.linalg.solve(gram, factor.T @ residual)
    return change


def initial_factors(
    layout: Layout, rank: int, max_width: int, variance: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """An orthonormal basis and a Gaussian coefficient; the composed weight has the given variance."""
    rows = layout.basis_rows
    noise = torch.randn(max(rows, rank), min(rows, rank), generator=generator, dtype=torch.float64)
    orthonormal = torch.linalg.qr(noise).Q
    basis = orthonormal if rows >= rank else orthonormal.T
    row_energy = min(rows, rank) / rows  # mean squared norm of a row of the basis
    spread = math.sqrt(variance / row_energy)
    u = torch.randn(max_width**2, rank, layout.outputs, generator=generator) * spread
    return basis.float().contiguous(), u


def mean_square(weight: Tensor) -> float:
    """The variance that factors start with which stand for this weight, so that both are equally large."""
    return float(weight.detach().double().square().mean())


def orthogonality(basis: Tensor) -> Tensor:
    """mean((V^T V - I)^2), the regulariser that keeps a basis from collapsing."""
    gram = basis.T @ basis
    return (gram - torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)).square().mean()
