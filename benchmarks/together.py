"""Steps of several clients in one call, by `torch.func.vmap`, against steps of one client after the other.

Heroes trains clients one after the other; this is what it would gain by stacking those of one width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.common import ratio, save, show, take_turns
from benchmarks.peer_job import JOBS, Job

CLIENTS = (2, 5, 10, 25)
STEPS = 60  # of one client, or of all of them together, that make a turn; fewer of a large job


def main(quick: bool = False) -> None:
    torch.set_num_threads(1)
    rows, figures = [], []
    for name, job in JOBS.items():
        small = job.batch <= 10
        counts, steps = (CLIENTS if small else CLIENTS[:2]), (4 if quick else STEPS if small else STEPS // 8)
        sides: dict[str, Callable[[], object]] = {"one": partial(_one, job, steps)}
        for count in counts:
            sides[str(count)] = partial(_together, job, count, steps)
        found = take_turns(sides, 2 if quick else 7)
        gains = {count: ratio(found[str(count)], found["one"]) / count for count in counts}
        rows += [(name, str(count), f"{gain:.2f}") for count, gain in gains.items()]
        figures += [{"job": name, "clients": count, "ratio": gain} for count, gain in gains.items()]
    note = "Time of a client's step against that of a client alone; below 1 is a gain."
    show("Clients in one call, one thread", ("job", "clients", "ratio"), rows, note)
    save("together", figures)


def _one(job: Job, steps: int) -> None:
    model = job.model(channels_last=False)
    optimiser = torch.optim.SGD(model.parameters(), job.learning_rate, job.momentum, foreach=True)
    inputs, targets = _batch(job)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimiser.step()


def _together(job: Job, clients: int, steps: int) -> None:
    models = [job.model(channels_last=False) for _ in range(clients)]
    blank = models[0]
    weights, _ = stack_module_state(models)  # type: ignore[arg-type]
    values = {name: weight.detach() for name, weight in weights.items()}
    momenta = [torch.zeros_like(value) for value in values.values()]
    inputs, targets = (torch.stack([part] * clients) for part in _batch(job))
    gradients = vmap(grad(partial(_loss, blank)))
    for _ in range(steps):
        found = gradients(values, inputs, targets)
        torch._foreach_mul_(momenta, job.momentum)
        torch._foreach_add_(momenta, list(found.values()))
        torch._foreach_add_(list(values.values()), momenta, alpha=-job.learning_rate)


def _loss(blank: nn.Module, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(functional_call(blank, weights, (inputs,)), targets)


def _batch(job: Job) -> tuple[Tensor, Tensor]:
    return torch.randn(job.batch, *job.shape), torch.randint(0, 10, (job.batch,))
