"""Builds wheel and sdist, checks them, and uses the wheel in an empty environment: `make dist`.

That environment is made anew in the given folder. Commands run in a folder of their own, and see nothing of
this repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
IN_WHEEL = (
    "heroes/py.typed",
    "heroes/data/digits.npz",
    "heroes/report/watch.html",
    "heroes/settings/tuned/digits.toml",
    "heroes/studies/plans/pace-digits.toml",
    "heroes/cli/templates/own_parts.py",
)
IN_SDIST = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "src/heroes/__init__.py",
    "tests/conftest.py",
)
TRIES = (
    "run digits --rounds 3 --out run --quiet",
    "show run",
    "report run -o report.html",
    "export run --width 1 -o model.pt",
    "flower init app --own",
)
MADE = ("run/model.safetensors", "report.html", "model.pt", "app/own_parts.py")


def main(empty: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    shutil.rmtree(DIST, ignore_errors=True)
    _call([sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT], ROOT, quiet=True)
    wheel, sdist = DIST / f"heroes_fl-{version}-py3-none-any.whl", DIST / f"heroes_fl-{version}.tar.gz"
    _call([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], ROOT)
    _check_contents(wheel, sdist)
    _call([sys.executable, "-m", "venv", "--clear", empty], ROOT)
    pip = [empty / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    _call([*pip, "-c", ROOT / "constraints.txt", f"heroes-fl[report] @ {wheel.as_uri()}"], ROOT)
    with tempfile.TemporaryDirectory(prefix="heroes-dist-") as folder:
        _try(empty.absolute() / "bin", Path(folder), version)
    _say(f"{wheel.name} and {sdist.name} are good")


def _check_contents(wheel: Path, sdist: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        top = sdist.name.removesuffix(".tar.gz")
        source = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    lacks = [f"{wheel.name} lacks {name}" for name in IN_WHEEL if name not in names]
    lacks += [f"{sdist.name} lacks {name}" for name in IN_SDIST if name not in source]
    if lacks:
        sys.exit("\n".join(lacks))


def _try(programs: Path, folder: Path, version: str) -> None:
    """Use what was installed, as somebody does who has nothing else."""
    where = _call([programs / "python", "-c", "import heroes; print(heroes.__file__)"], folder, quiet=True)
    if not Path(where.strip()).is_relative_to(programs.parent):
        sys.exit(f"heroes was imported from {where.strip()}, not from the wheel")
    told = _call([programs / "heroes", "--version"], folder, quiet=True).strip()
    if told != f"heroes {version}":
        sys.exit(f"heroes --version says {told!r} instead of 'heroes {version}'")
    for line in TRIES:
        _say(f"heroes {line}")
        _call([programs / "heroes", *line.split()], folder, quiet=True)
    if missing := [name for name in MADE if not (folder / name).is_file()]:
        sys.exit(f"these were not written: {', '.join(missing)}")


def _call(command: list[str | Path], folder: Path, quiet: bool = False) -> str:
    """Run a command and return what it says, or show it; end where it fails."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=clean,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout or ''}{' '.join(map(str, command))} ended with {done.returncode}")
    return done.stdout or ""


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
