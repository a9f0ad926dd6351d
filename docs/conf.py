"""The documentation site: `make site` builds it from these pages and the docstrings, by Sphinx and MyST.

The pages are read on the forge, too. What is different there is done here: README.md, CONTRIBUTING.md and
CHANGELOG.md stand at the root of the repository, and are pages of the site.
"""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import heroes

DOCS = Path(__file__).parent.resolve()
ROOT = DOCS.parent
FIRST_SCREEN_ENDS = "## On the command line"
AT_THE_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#]+)")

project = "heroes"
author = "The heroes developers"
version = release = heroes.__version__
html_title = f"heroes {release}"
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_heading_anchors = 4
default_role = "code"  # docstrings have single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_use_rtype = False


def at_home(text: str) -> str:
    """A file of the root with links as a page in docs/ has them.

    >>> at_home("[a](docs/a.md#b) [c](examples/c.py) [d](#d) [e](https://e)")
    '[a](a.md#b) [c](../examples/c.py) [d](#d) [e](https://e)'
    """
    return LINK.sub(lambda found: _from_docs(found[1]), text)


def _from_docs(target: str) -> str:
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def in_site(text: str, folder: Path = DOCS) -> str:
    """A page of this folder whose links to files of the root lead to their pages, or to the files themselves.

    >>> in_site("[a](../CONTRIBUTING.md#b) [c](../examples/c.py) [d](../results/d.md) [e](e.md)")
    '[a](contributing.md#b) [c](../examples/c.py) [d](path:../results/d.md) [e](e.md)'
    """
    return LINK.sub(lambda found: _in_site(found[1], folder), text)


def _in_site(target: str, folder: Path) -> str:
    if (page := AT_THE_ROOT.get(target.removeprefix("../"))) is not None:
        return page
    outside = not (folder / target).resolve().is_relative_to(DOCS)
    return f"path:{target}" if outside and target.endswith(".md") else target


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """What Sphinx reads as this page."""
    home = {page.removesuffix(".md"): file for file, page in AT_THE_ROOT.items()}.get(name)
    if home is not None:
        text = at_home((ROOT / home).read_text(encoding="utf-8"))
        source[0] = text.split(FIRST_SCREEN_ENDS)[0] + source[0] if name == "index" else text
    source[0] = in_site(source[0], (DOCS / name).parent)


def signed(
    app: Sphinx, what: str, name: str, found: Any, options: Any, arguments: str, returned: str
) -> tuple[str, str] | None:
    """Protocols have no arguments of their own."""
    return ("", "") if what == "class" and getattr(found, "_is_protocol", False) else None


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", signed)
    app.connect("source-read", read)
