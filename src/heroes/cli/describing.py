"""`heroes model` and `heroes fleet`: what a model weighs and what a fleet can do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from heroes.cli.app import app
from heroes.cli.console import out_console, print_table, status
from heroes.errors import ConfigError, did_you_mean
from heroes.messages import Floats
from heroes.report import Table

if TYPE_CHECKING:
    from torch import Tensor

    from heroes.fleet import Device
    from heroes.models.family import Family

Width = Annotated[int, typer.Option("--max-width", min=1, max=64, help="P: the width of the complete model.")]
Rank = Annotated[
    float | None,
    typer.Option(
        "--rank-ratio", help="Rank of a basis, relative to the outputs at width 1; by default that of Heroes."
    ),
]
Batch = Annotated[int, typer.Option("--batch-size", min=1, help="Examples in a batch.")]
BARS = " ▁▂▃▄▅▆▇█"


@app.command("model")
def model_command(
    name: Annotated[str, typer.Argument(help="The model (see `heroes list models`).")],
    max_width: Width = 4,
    rank_ratio: Rank = None,
    batch_size: Batch = 32,
) -> None:
    """Print sizes and FLOPs of a model, dense and composed, by width and by layer."""
    with status("counting"):
        from heroes.models.sizes import by_layer, by_width

        family, inputs, targets = _family(name, max_width, rank_ratio, batch_size)
        widths, layers = by_width(family, inputs, targets), by_layer(family, inputs, targets)
    header = ("width", "dense parameters", "composed", "dense MFLOPs a step", "composed", "composed / dense")
    rows = [
        (
            str(w.width),
            f"{w.dense_parameters:,}",
            f"{w.composed_parameters:,}",
            f"{w.dense_flops / 1e6:,.1f}",
            f"{w.composed_flops / 1e6:,.1f}",
            f"{w.composed_flops / w.dense_flops:.2f}",
        )
        for w in widths
    ]
    title = f"{name}, batch {batch_size}, rank ratio {family.rank_ratio:g}: by width"
    print_table(Table(title, header, tuple(rows)))
    columns = ("parameter", "kind", "shape", "rank", "dense", "composed", "dense MFLOPs", "composed")
    lines = [
        (
            layer.name,
            layer.kind,
            "x".join(map(str, layer.shape)),
            str(layer.rank or ""),
            f"{layer.dense_parameters:,}",
            f"{layer.composed_parameters:,}",
            "" if layer.dense_flops is None else f"{layer.dense_flops / 1e6:,.1f}",
            "" if layer.composed_flops is None else f"{layer.composed_flops / 1e6:,.1f}",
        )
        for layer in layers
    ]
    print_table(Table(f"by layer, at width {max_width}", columns, tuple(lines)))


@app.command("fleet")
def fleet_command(
    name: Annotated[
        str, typer.Argument(help="A fleet (see `heroes list fleets`) or the path of a CSV file.")
    ],
    model: Annotated[str, typer.Option(help="The model whose steps and uploads are timed.")] = "cnn",
    clients: Annotated[int, typer.Option(min=1, help="How many clients to draw.")] = 1000,
    max_width: Width = 4,
    rank_ratio: Rank = None,
    batch_size: Batch = 32,
) -> None:
    """Describe a fleet: its devices, and step and upload times of a composed model at every width."""
    with status("counting"):
        from heroes.fleet import FLEETS, Fleet, read_fleet
        from heroes.models.sizes import by_width
        from heroes.slices.exchange import tensors_bytes

        if name not in FLEETS and Path(name).suffix != ".csv":
            raise ConfigError(
                f"unknown fleet {name!r}: {did_you_mean(name, FLEETS)}; or give the path of a CSV file"
            )
        fleet = Fleet(FLEETS[name] if name in FLEETS else read_fleet(Path(name)), clients, seed=0)
        cohort = fleet.status(np.arange(clients), 1)
        family, inputs, targets = _family(model, max_width, rank_ratio, batch_size)
        sizes = by_width(family, inputs, targets)
        uploads = [tensors_bytes(family.tensor_shapes(size.width).values(), 32) for size in sizes]
    out_console.print(f"{name}: {fleet.kind.summary}", markup=False)
    counts = np.bincount(fleet.device_of, minlength=len(fleet.kind.devices))
    devices = [
        (device.name, f"{device.flops / 1e9:g}", str(count), *_joules(device))
        for device, count in zip(fleet.kind.devices, counts, strict=True)
    ]
    columns = ("device", "GFLOP/s", "clients", "J/GFLOP", "J/MB up", "J/MB down")
    print_table(Table(f"devices of {clients} clients", columns, tuple(devices)))
    steps = [(str(s.width), *_spread(s.composed_flops / cohort.speed)) for s in sizes]
    print_table(
        Table(
            f"seconds of one step of {model}, rank ratio {family.rank_ratio:g}",
            ("width", *_HEAD),
            tuple(steps),
        )
    )
    times = [(str(s.width), *_spread(size / cohort.upload)) for s, size in zip(sizes, uploads, strict=True)]
    print_table(Table("seconds of one upload", ("width", *_HEAD), tuple(times)))


def _joules(device: Device) -> tuple[str, ...]:
    """What a device's FLOPs and bytes cost."""
    if device.joules_per_flop is None:
        return ("not known",) * 3
    prices = 1e9 * device.joules_per_flop, *(1e6 * each for each in device.joules_per_byte)
    return tuple(f"{joules:.3g}" for joules in prices)


_HEAD = ("10 %", "median", "90 %", "least", "most", "from least to most (logarithmic)")


def _spread(values: Floats) -> tuple[str, ...]:
    """Quantiles and a small histogram."""
    low, high = float(values.min()), float(values.max())
    edges = np.geomspace(low, high * (1 + 1e-9), 25) if high > low else np.array([low, high + 1.0])
    counts, _ = np.histogram(values, edges)
    bars = "".join(BARS[int(np.ceil(8 * count / counts.max()))] for count in counts)
    marks = [float(np.quantile(values, place)) for place in (0.1, 0.5, 0.9)]
    return (*(f"{mark:.3g}" for mark in [*marks, low, high]), bars)


def _family(
    name: str, max_width: int, rank_ratio: float | None, batch_size: int
) -> tuple[Family, Tensor, Any]:
    import torch

    from heroes.models import MODELS, SAMPLES
    from heroes.models.family import Family
    from heroes.strategies.heroes import Heroes

    if rank_ratio is None:
        rank_ratio = Heroes.companions["model.rank_ratio"]

    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}: {did_you_mean(name, MODELS)}")
    if rank_ratio <= 0:
        raise ConfigError(f"--rank-ratio is {rank_ratio:g}: it should be greater than 0")
    build = partial(MODELS[name], max_width=max_width) if name != "digits_cnn" else MODELS[name]
    return (
        Family(build, max_width, rank_ratio),
        SAMPLES[name](batch_size),
        torch.zeros(batch_size, dtype=torch.int64),
    )
