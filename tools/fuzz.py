"""Coverage-guided fuzzing of the readers that take bytes, by atheris; the targets are those of the fuzz
tests.

    python tools/fuzz.py [TARGET ...]      all of them by default; FUZZ_RUNS inputs each (10,000)

Inputs start from valid files and are kept between runs in .fuzz/, where an input that breaks a target is left
too.
"""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "fuzz"))
with atheris.instrument_imports(include=["heroes", "tomllib", "csv"]):
    import fuzz_targets

HOME = Path(".fuzz")


def seeds(name: str) -> list[bytes]:
    """Valid inputs to start from."""
    import numpy as np
    import torch

    from heroes.messages import ServerState
    from heroes.runs import checkpoints
    from heroes.settings.config import Config, to_toml

    idx = b"\0\0\x08\x03" + b"\0\0\0\x02" * 3 + bytes(8)
    batch = {b"labels": [1, 2], b"data": np.zeros((2, 3), dtype=np.uint8), b"batch_label": b"x"}
    state = ServerState(7, {"b": torch.ones(2, 3), "a": torch.zeros(())}, fuzz_targets.BEGIN.memory)
    return {
        "idx": [idx, gzip.compress(idx), b"\0\0\x08\x01\0\0\0\x02ab"],
        "cifar_pickle": [pickle.dumps(batch, protocol=protocol) for protocol in range(6)],
        "config": [
            to_toml(Config()).encode(),
            b'experiment = "mine"\nbase = "digits"\n[strategy]\nname = "fedavg"\n',
        ],
        "fleet": [b"device,gflops,share,upload_mbps,download_mbps\nphone,10,3,1,20\nboard,0.5,1,,\n"],
        "checkpoint": [checkpoints._packed(state)],
    }[name]


def fuzz(name: str) -> None:
    """One target in this process; libFuzzer ends it."""
    corpus = HOME / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(seeds(name)):
        (corpus / f"seed-{number}").write_bytes(content)
    options = [
        f"-runs={os.environ.get('FUZZ_RUNS', '10000')}",
        "-max_len=8192",
        "-timeout=30",
        "-rss_limit_mb=3000",
    ]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={corpus}-", str(corpus)], fuzz_targets.TARGETS[name]
    )
    atheris.Fuzz()


def main(names: list[str]) -> int:
    """Every target in a process of its own; the last lines that libFuzzer writes say inputs and coverage."""
    failed = 0
    for name in names or list(fuzz_targets.TARGETS):
        done = subprocess.run(
            [sys.executable, __file__, "--one", name], capture_output=True, text=True, errors="replace"
        )
        lines = [line for line in done.stderr.splitlines() if "cov:" in line or "Done" in line]
        sys.stdout.write(f"{name}: {' '.join(lines[-2:])}\n")
        if done.returncode:
            failed = 1
            sys.stdout.write(done.stdout + done.stderr[-4000:])
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        fuzz(sys.argv[2])
    sys.exit(main(sys.argv[1:]))
