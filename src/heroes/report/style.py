"""How figures are made, styled and saved, with one colour for each strategy. Only here is matplotlib set up.

Colours are safe for the colour-blind. pyplot, which has global state, is not used. matplotlib is loaded when
the first figure is made.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from heroes.errors import HeroesError, printable
from heroes.report.files import write_whole
from heroes.report.runs import Group
from heroes.strategies import registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis
    from matplotlib.figure import Figure

SPARE = ("#000000", "#56B4E9", "#999999")  # of Okabe and Ito's palette, for those without a look of their own
SPARE_MARKERS = ("P", "X", "*", "p", "h")
DASHES = ("-", "--", ":", "-.")
HATCHES = ("", "///", "...", "xxx")
COMPUTE, START, TRANSFER, PAUSE, WAITING = "#404040", "#9C8AB8", "#56B4E9", "#E8C468", "#DDDDDD"
WIDTH = 5.4  # inches; narrow, so that the text can still be read when a phone shrinks it
DOTS_PER_INCH = 160
LONGEST_TITLE, LONGEST_LABEL = 80, 60  # characters
_WIDE_TITLE = 60  # characters; from here on a title is set smaller, to fit above its axes
MISSING = "figures need matplotlib; install it with: pip install 'heroes-fl[report]'"


def look(strategy: str) -> tuple[str, str]:
    """The colour and marker of a strategy, the same in every figure; spare ones if it has none."""
    known = registry.look(strategy)
    if known is not None:
        return known
    number, place = divmod(crc32(strategy.encode(errors="backslashreplace")), len(SPARE))
    return SPARE[place], SPARE_MARKERS[number % len(SPARE_MARKERS)]


def colour(strategy: str) -> str:
    return look(strategy)[0]


def marker(strategy: str) -> str:
    return look(strategy)[1]


def dashes(group: Group) -> str:
    """The line style of a group; variants of a strategy share its colour but not its lines."""
    return DASHES[group.variant % len(DASHES)]


def hatch(group: Group) -> str:
    return HATCHES[group.variant % len(HATCHES)]


def new_figure(height: float = 3.4, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure with its axes, row by row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise HeroesError(MISSING) from None
    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def words(text: str, most: int = LONGEST_LABEL) -> str:
    """Make any text safe for a figure: shortened, not read as mathematics, not hidden from legends.

    >>> words("$x^$"), words("_mine")
    ('\\\\$x^\\\\$', ' _mine')
    """
    plain = printable(text, most).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def dress(axes: Axes, title: str, x: str, y: str, *, grid: bool = True) -> None:
    """Give axes a title, labels and a light frame."""
    axes.set_title(words(title, LONGEST_TITLE), fontsize=11 if len(title) < _WIDE_TITLE else 9, loc="left")
    axes.set_xlabel(words(x))
    axes.set_ylabel(words(y))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(color="#E5E5E5", linewidth=0.8)


def whole_numbers(axis: XAxis) -> None:
    """Put ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def legend(figure: Figure, axes: Axes) -> None:
    """Put a legend below the figure, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = 1 if longest > 34 else 2 if longest > 16 else 3
    if labels:
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(columns, len(labels)),
            frameon=False,
            fontsize=9,
        )


def as_bytes(figure: Figure, kind: str, about: str | None = None) -> bytes:
    """The content of an svg or png file of the figure; the same figure gives the same bytes.

    `about` is kept in the file, as it stands.
    """
    import matplotlib

    content = io.BytesIO()
    metadata = {"Date" if kind == "svg" else "Software": None, **({"Description": about} if about else {})}
    with matplotlib.rc_context({"svg.hashsalt": "heroes", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for the letter
        figure.savefig(content, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and as SVG; `stem` is the path without its ending."""
    return [
        write_whole(stem.with_name(f"{stem.name}.{kind}"), as_bytes(figure, kind)) for kind in ("png", "svg")
    ]
