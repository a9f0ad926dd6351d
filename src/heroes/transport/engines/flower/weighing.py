"""How much memory a node takes: all its processes, what they share counted once."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePath

_PROC = Path("/proc")
_STARTERS = {b"flower", b"flower-supernode", b"flower-superexec"}  # words in the commands that start a node


def node_memory() -> dict[str, int]:
    """What an answer says of memory: the bytes this node's processes hold; nothing if nobody can tell.

    A page that several share counts in parts (the proportional set size), so the sum counts it once.
    """
    try:
        parents = {int(path.name): _parent(path) for path in _PROC.iterdir() if path.name.isdigit()}
        return {"memory": sum(map(_bytes, _family(_top(parents), parents)))}
    except (OSError, ValueError, IndexError):
        return {}


def _top(parents: dict[int, int]) -> int:
    """The process that a node began with: the furthest ancestor of this one that is a node's."""
    found = int((_PROC / "self").readlink().name)
    while _starts_nodes(above := parents.get(found, 0)):
        found = above
    return found


def _starts_nodes(number: int) -> bool:
    try:
        words = (_PROC / str(number) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(PurePath(word.decode(errors="replace")).name.encode() in _STARTERS for word in words[:4])


def _family(top: int, parents: dict[int, int]) -> list[int]:
    """This process and all that come from it."""
    children = defaultdict(list)
    for number, above in parents.items():
        children[above].append(number)
    found = [top]
    for number in found:
        found += children[number]
    return found


def _parent(path: Path) -> int:
    """The process above; 0 if there is none any more."""
    try:
        return int((path / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _bytes(number: int) -> int:
    try:
        lines = (_PROC / str(number) / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
