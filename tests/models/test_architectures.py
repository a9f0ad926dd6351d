"""Models as users write them: each works, is refused with a remedy, or warns."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import CASES, Case

from heroes.assemble.clients import measure_costs
from heroes.client.training import LocalSettings, one_thread
from heroes.data import Examples
from heroes.errors import ModelError
from heroes.models.checking import remark_on_cuts
from heroes.models.family import Family
from heroes.slices.blocks import grid_selection
from heroes.slices.cuts import cut_out

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is"),
    pytest.mark.filterwarnings("ignore:Lazy modules are a new feature"),
]
ACCEPTED = {name: case for name, case in CASES.items() if not case.refused}
REFUSED = {name: case for name, case in CASES.items() if case.refused}
EVERY_ACCEPTED = pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED.keys())


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_thread():
        yield


def priced(case: Case) -> Family:
    """The family, after all that is checked before a run."""
    family = Family(case.build, 2)
    inputs = case.inputs()
    examples = Examples(inputs, torch.arange(len(inputs)) % 3)
    costs = measure_costs(family, examples, LocalSettings(batch_size=4), 32)
    assert np.all(np.diff(costs.step_flops) > 0)
    return family


@EVERY_ACCEPTED
def test_what_works_trains_at_every_width_and_equals_the_plain_model(case: Case) -> None:
    family, x = priced(case), case.inputs()
    targets = torch.arange(len(x)) % 3
    for width in (1, 2):
        part = cut_out(family.initial(1), family.cut(grid_selection(tuple(range(2 - width, 2)), 2)))
        composed, dense = family.composed(width), family.dense(width)
        composed.load(part)
        dense.load(family.plain_weights(part))
        composed.module.eval(), dense.module.eval()
        torch.testing.assert_close(composed(x), dense(x), rtol=1e-3, atol=1e-4)
        steps = torch.optim.Adam(composed.parameters.values(), lr=1e-2)
        losses = []
        for _ in range(8):
            loss = torch.nn.functional.cross_entropy(composed(x), targets)
            steps.zero_grad()
            loss.backward()
            assert all(p.grad is not None for p in composed.parameters.values())
            steps.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < losses[0]
        dense.load(family.plain_weights(composed.read()))
        torch.testing.assert_close(composed(x), dense(x), rtol=1e-3, atol=1e-3)


@EVERY_ACCEPTED
def test_a_narrow_model_is_a_part_of_the_wide_one_or_there_is_a_remark(case: Case) -> None:
    said = remark_on_cuts(Family(case.build, 2), case.inputs())
    assert said is None if case.outcome == "works" else case.warns in (said or "")


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_work_is_refused_with_a_remedy(case: Case) -> None:
    with pytest.raises(ModelError, match=re.escape(case.refused)):
        priced(case)


def test_the_documents_table_is_this_one() -> None:
    rows = dict(
        re.findall(r"^\| (.+?) \| (works|warns|refused)\b.*\|$", DOCS.read_text("utf-8"), re.MULTILINE)
    )
    assert rows == {name: case.outcome for name, case in CASES.items()}
    assert len(rows) >= 25
