"""The house measured: how long functions and files are, what stands at the top, what imports what, and what
no module may keep. Every rule is also tried on a small house that breaks it.

Who breaks a rule changes the code, not the figure.
"""

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
FUNCTION_P90, FUNCTION_MOST, FILE_P90, TOP_MODULES = 20, 50, 250, 10
CHECKING = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
VAGUE = {"utils", "common", "misc", "helpers"}
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (*DEFINED, ast.Lambda)
CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MAKERS = {"list", "dict", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict"}
LIST_CHANGERS = {"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"}
DICT_CHANGERS = {"update", "setdefault", "popitem", "subtract"}
SET_CHANGERS = {"add", "discard", "difference_update", "intersection_update", "symmetric_difference_update"}
DEQUE_CHANGERS = {"appendleft", "extendleft", "popleft", "rotate"}
CHANGERS = LIST_CHANGERS | DICT_CHANGERS | SET_CHANGERS | DEQUE_CHANGERS
House = dict[str, str]  # a file's path from src on: its text


@pytest.fixture(scope="module")
def house() -> House:
    files = sorted((SOURCE / "heroes").rglob("*.py"))
    assert len(files) > 100, f"this is not the house: {SOURCE}"
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in files}


def p90(sizes: Iterable[int]) -> int:
    """The smallest size that nine tenths of all do not exceed."""
    ordered = sorted(sizes)
    return ordered[-(-9 * len(ordered) // 10) - 1]


def functions(house: House) -> dict[str, int]:
    """The lines of every function, without its decorators."""
    return {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, text in house.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, DEFINED)
    }


def files(house: House) -> dict[str, int]:
    return {path: len(text.splitlines()) for path, text in house.items()}


def above(sizes: dict[str, int], limit: int) -> list[str]:
    """Those larger than the limit, the largest first."""
    large = sorted((size, name) for name, size in sizes.items() if size > limit)
    return [f"{name}: {size} lines" for size, name in reversed(large)]


def top_modules(house: House) -> list[str]:
    return [path for path in house if path.count("/") == 1 and not path.endswith("/__init__.py")]


def vague_names(house: House) -> list[str]:
    return [path for path in house if VAGUE & set(path.removesuffix(".py").split("/"))]


def module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def inside(node: ast.AST, closed: tuple[type[ast.AST], ...] = FUNCTIONS) -> Iterator[ast.AST]:
    """Everything below a node; what is closed is named and not entered."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, closed):
            yield from inside(child, closed)


class Runtime(ast.NodeTransformer):
    """Takes out what only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if ast.unparse(node.test) in CHECKING else node


def imports(path: str, text: str, known: set[str]) -> Iterator[str]:
    """What a module imports when it is imported itself. `from package import module` is the module: the
    package around it is loaded with whatever is inside.
    """
    for node in inside(Runtime().visit(ast.parse(text))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = path.removesuffix(".py").split("/")[: -node.level] if node.level else []
            home = ".".join([*around, *([node.module] if node.module else [])])
            names = [f"{home}.{alias.name}" for alias in node.names]
            yield from (name if name in known else home for name in names)


def graph(house: House) -> dict[str, set[str]]:
    """Every module and the modules of the house that it imports."""
    known = {module(path) for path in house}
    return {module(path): known & set(imports(path, text, known)) for path, text in house.items()}


def circle(house: House) -> str:
    """One circle of imports, if there is any."""
    try:
        TopologicalSorter(graph(house)).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return ""


def containers(tree: ast.Module) -> set[str]:
    """The names of the module's own lists, dictionaries and sets."""
    names = set()
    for node in inside(tree, (*FUNCTIONS, ast.ClassDef)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        made = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in MAKERS
        if made or isinstance(value, CONTAINERS):
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def root(node: ast.expr) -> str | None:
    """The name in `name`, `name[1]` and `name[1][2]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def changed(node: ast.AST) -> list[str | None]:
    """The names of what this node changes."""
    if isinstance(node, ast.Global):
        return list(node.names)
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return [root(node)]
    called = node.func if isinstance(node, ast.Call) else None
    return [root(called.value)] if isinstance(called, ast.Attribute) and called.attr in CHANGERS else []


def bound(function: ast.AST) -> set[str]:
    """The names that are the function's own: arguments and what it assigns to."""
    own = {node.arg for node in inside(function) if isinstance(node, ast.arg)}
    return own | {n.id for n in inside(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def changes(scope: ast.AST, names: set[str], within: bool = False) -> Iterator[tuple[int, str]]:
    """Where functions change one of these names, or declare any name global."""
    for node in inside(scope):
        if isinstance(node, FUNCTIONS):
            yield from changes(node, names - bound(node), True)
        elif within:
            for name in changed(node):
                if name is not None and (name in names or isinstance(node, ast.Global)):
                    yield getattr(node, "lineno", 0), name


def changed_state(house: House) -> list[str]:
    found = []
    for path, text in house.items():
        tree = ast.parse(text)
        found += [f"{path}:{line} changes {name}" for line, name in changes(tree, containers(tree))]
    return found


def listed(offenders: Iterable[str]) -> str:
    return "\n  ".join(["", *offenders])


def test_functions_are_short(house: House) -> None:
    sizes = functions(house)
    found = p90(sizes.values())
    assert found <= FUNCTION_P90, f"function p90 is {found} lines, not {FUNCTION_P90}:" + listed(
        above(sizes, FUNCTION_P90)
    )


def test_no_function_is_long(house: House) -> None:
    offenders = above(functions(house), FUNCTION_MOST)
    assert not offenders, f"functions of more than {FUNCTION_MOST} lines:" + listed(offenders)


def test_files_are_short(house: House) -> None:
    sizes = files(house)
    found = p90(sizes.values())
    assert found <= FILE_P90, f"file p90 is {found} lines, not {FILE_P90}:" + listed(above(sizes, FILE_P90))


def test_few_modules_are_at_the_top(house: House) -> None:
    found = top_modules(house)
    assert len(found) <= TOP_MODULES, f"{len(found)} modules at the top, not {TOP_MODULES}:" + listed(found)


def test_no_import_circle(house: House) -> None:
    found = circle(house)
    assert not found, f"modules import each other in a circle: {found}"


def test_every_module_says_what_it_is_for(house: House) -> None:
    offenders = vague_names(house)
    assert not offenders, "names that say nothing:" + listed(offenders)


def test_no_function_changes_what_its_module_keeps(house: House) -> None:
    offenders = changed_state(house)
    assert not offenders, "module-level state that changes:" + listed(offenders)


def test_nine_tenths_are_counted_from_below() -> None:
    assert p90(range(1, 11)) == 9  # 9 of 10
    assert p90(range(1, 12)) == 10  # 10 of 11: nine would be too few
    assert p90([7]) == 7


def test_a_function_is_as_long_as_its_lines_without_decorators() -> None:
    text = "@cache\ndef f():\n    def g():\n        return 1\n\n    return g\n"
    sizes = functions({"heroes/a.py": text})
    assert sizes == {"heroes/a.py:2 f": 5, "heroes/a.py:3 g": 2}
    assert above(sizes, 2) == ["heroes/a.py:2 f: 5 lines"]
    assert files({"heroes/a.py": text}) == {"heroes/a.py": 6}


def test_packages_are_not_modules_at_the_top_and_vague_names_are_found_anywhere() -> None:
    small = dict.fromkeys(
        ["heroes/__init__.py", "heroes/a.py", "heroes/data/misc.py", "heroes/utils/b.py"], ""
    )
    assert top_modules(small) == ["heroes/a.py"]
    assert vague_names(small) == ["heroes/data/misc.py", "heroes/utils/b.py"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("import heroes.room.b", "import heroes.room.a"),
        ("from heroes.room import b", "from heroes.room.a import thing"),
        ("from . import b", "from .a import thing"),
        ("try:\n    import heroes.room.b\nexcept ImportError:\n    pass", "from ..room import a"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import heroes.room.b", "import heroes.room.a"),
        ("if not TYPE_CHECKING:\n    import heroes.room.b", "import json, heroes.room.a"),
    ],
)
def test_a_circle_is_found(one: str, other: str) -> None:
    small = {"heroes/room/__init__.py": "", "heroes/room/a.py": one, "heroes/room/b.py": other}
    assert set(circle(small).split(" <- ")) == {"heroes.room.a", "heroes.room.b"}


def test_a_module_that_asks_its_package_for_a_name_is_in_a_circle_with_it() -> None:
    small = {
        "heroes/room/__init__.py": "from heroes.room.a import f",
        "heroes/room/a.py": "from heroes.room import f",
    }
    assert set(circle(small).split(" <- ")) == {"heroes.room", "heroes.room.a"}


@pytest.mark.parametrize(
    "back",
    [
        "import json",
        "if TYPE_CHECKING:\n    import heroes.room.a",
        "if typing.TYPE_CHECKING:\n    from heroes.room import a",
        "def f():\n    import heroes.room.a",
    ],
)
def test_what_is_imported_later_or_for_types_only_makes_no_circle(back: str) -> None:
    package = "from heroes.room.a import thing"
    small = {"heroes/room/__init__.py": package, "heroes/room/a.py": "from heroes.room import b"}
    assert circle({**small, "heroes/room/b.py": back}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "X = []\ndef f():\n    X.append(1)",
        "X: dict[str, int] = {}\ndef f():\n    X['a'] = 1",
        "X = {'a': []}\nclass C:\n    def f(self):\n        X['a'].append(1)",
        "X = set()\nf = lambda: X.add(1)",
        "X = collections.defaultdict(int)\ndef f():\n    X['a'] += 1",
        "X = [1]\ndef f():\n    def g():\n        del X[0]",
        "X = 1\ndef f():\n    global X\n    X = 2",
        "if True:\n    X = {1}\nasync def f():\n    X.discard(1)",
    ],
)
def test_state_that_changes_is_found(text: str) -> None:
    found = changed_state({"heroes/a.py": text})
    assert len(found) == 1
    assert found[0].startswith("heroes/a.py:")
    assert found[0].endswith("changes X")


@pytest.mark.parametrize(
    "text",
    [
        "X = {}\nX['a'] = 1\nX.update(b=2)\ndef f():\n    return X['a']",
        "X = []\ndef f(X):\n    X.append(1)",
        "X = []\ndef f():\n    X = [1]\n    X.append(2)\n    return lambda: X.pop()",
        "class C:\n    X = []\n    def f(self):\n        self.X.append(1)",
        "X = ()\ndef f():\n    return [*X]",
    ],
)
def test_constants_and_locals_are_no_state(text: str) -> None:
    assert changed_state({"heroes/a.py": text}) == []
