"""Pooling before the activation changes nothing that anybody can see."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heroes.models.pools import pool_first


def kinds(module: nn.Sequential) -> list[str]:
    return [type(layer).__name__ for layer in module]


def net(*, inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace), nn.MaxPool2d(3, 2, padding=1)),
        *(nn.Flatten(), nn.ReLU(), nn.Linear(16, 3)),
    )


def gradients(module: nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad()
    outputs = module(inputs)
    outputs.square().sum().backward()
    return [outputs.detach(), *(p.grad for p in module.parameters() if p.grad is not None)]


@pytest.mark.parametrize("inplace", [False, True])
@given(seed=st.integers(0, 2**32), zeros=st.booleans())
def test_outputs_and_gradients_have_the_same_bits(inplace: bool, seed: int, zeros: bool) -> None:
    inputs = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(seed)).round(decimals=1)  # ties
    inputs = inputs * 0.0 if zeros else inputs
    before, after = net(inplace=inplace), net(inplace=inplace)
    pool_first(after)
    assert kinds(after)[:3] == ["Conv2d", "MaxPool2d", "ReLU"]
    assert kinds(after[3]) == ["Conv2d", "MaxPool2d", "ReLU"]  # type: ignore[arg-type]
    for one, other in zip(gradients(before, inputs), gradients(after, inputs), strict=True):
        assert torch.equal(one, other)


def test_what_is_not_a_number_stays_so() -> None:
    after = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    pool_first(after)
    assert after(torch.tensor([[[[1.0, float("nan")], [0.0, 0.0]]]])).isnan().all()


def test_names_of_parameters_stay() -> None:
    after = net()
    pool_first(after)
    assert list(after.state_dict()) == list(net().state_dict())


def test_a_class_of_ones_own_is_left_alone() -> None:
    class Tapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))

    class Sequence(nn.Sequential):
        pass

    tapped, sequence = Tapped(), Sequence(nn.ReLU(), nn.MaxPool2d(2))
    for module in (tapped, sequence, nn.Sequential(tapped)):
        pool_first(module)
    assert kinds(tapped.features) == kinds(sequence) == ["ReLU", "MaxPool2d"]


def test_what_others_would_notice_is_left_alone() -> None:
    hooked = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    hooked[0].register_forward_hook(lambda *_: None)
    indexed = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True))
    bent = nn.Sequential(nn.Tanh(), nn.MaxPool2d(2))  # where it is flat, another of two equals would learn
    for module in (hooked, indexed, bent):
        pool_first(module)
        assert kinds(module)[1] == "MaxPool2d"
