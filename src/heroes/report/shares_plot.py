"""A picture of how a data set is shared out: which classes each client has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heroes.messages import Integers
from heroes.report.style import dress, new_figure, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def label_distribution(counts: Integers, title: str) -> Figure:
    """Draw a map of `counts`, which has a row for each client and a column for each class."""
    clients, classes = counts.shape
    figure, (axes,) = new_figure(height=min(8.0, max(2.6, classes * 0.16)))
    image = axes.imshow(counts.T, aspect="auto", cmap="cividis", interpolation="nearest", origin="lower")
    dress(axes, title, f"client (0 to {clients - 1})", "class", grid=False)
    whole_numbers(axes.xaxis)
    bar = figure.colorbar(image, ax=axes)
    bar.set_label("examples")
    return figure
