"""Writes src/heroes/fleet/measured.py: a few dozen quantiles of measured link and phone speeds.

    python tools/measured_fleets.py LINKS.csv PHONES.csv > src/heroes/fleet/measured.py

LINKS.csv has the columns dl_mbps and ul_mbps (M-Lab NDT); rows with an upload between 0.4209 and 0.4210 are
an artefact of the measurement and left out, as are 2.5 % at each end of either direction. PHONES.csv has the
column CPU_F_AI_Score (AI-Benchmark).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 33  # quantiles at 0, 1/32 .. 1
HEAD = '''"""Measured speeds as quantiles, made by tools/measured_fleets.py; no row of the sources is kept.

Links: Measurement Lab (M-Lab), NDT speed tests in North America, June 2022; download and upload in Mb/s,
{links:,} pairs. Phones: AI-Benchmark, CPU floating-point score of {phones} phones, relative to the
median phone. Quantiles at 0, 1/32 .. 1.
`LINK_CORRELATION` is that of the normal scores of download and upload.
"""

'''


def main(links: Path, phones: Path) -> str:
    down, up = columns(links, "dl_mbps", "ul_mbps")
    fine = ~((up > 0.4209) & (up < 0.4210)) & within(down) & within(up)
    down, up = down[fine], up[fine]
    (scores,) = columns(phones, "CPU_F_AI_Score")
    relative = scores / np.median(scores)
    parts = {
        "DOWNLOAD_MBPS": quantiles(down),
        "UPLOAD_MBPS": quantiles(up),
        "PHONE_SPEED": quantiles(relative),
    }
    body = "".join(f"{name} = (\n{lines(values)})\n" for name, values in parts.items())
    correlation = np.corrcoef(normal_scores(down), normal_scores(up))[0, 1]
    return (
        HEAD.format(links=len(down), phones=len(scores))
        + "# fmt: off\n"
        + body
        + f"LINK_CORRELATION = {correlation:.3f}\n"
    )


def lines(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    rows = [values[start : start + 11] for start in range(0, len(values), 11)]
    return "".join(f"    {', '.join(f'{value:.4g}' for value in row)},\n" for row in rows)


def columns(path: Path, *names: str) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = np.array([[float(row[name]) for name in names] for row in rows])
    return list(table.T)


def within(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    low, high = np.quantile(values, [0.025, 0.975])
    return (values >= low) & (values <= high)


def quantiles(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.quantile(values, np.linspace(0, 1, STEPS))


def normal_scores(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Each value's place in the order, as a standard normal number."""
    from statistics import NormalDist

    ranks = (np.argsort(np.argsort(values)) + 0.5) / len(values)
    return np.array([NormalDist().inv_cdf(float(rank)) for rank in ranks])


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2])), end="")  # noqa: T201
