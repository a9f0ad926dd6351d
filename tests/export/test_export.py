"""Models as files: written, checked against PyTorch, and described by their metadata."""

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from torch import Tensor, nn

import heroes
from heroes.errors import ConfigError, HeroesError
from heroes.export import FORMATS, Limits, Offer, export
from heroes.fleet.costs import forward_flops
from heroes.runs.running import Run


@cache
def digits() -> Run:
    return heroes.run(heroes.recipes.digits(rounds=2))


def offer(module: nn.Module, inputs: Tensor) -> Offer:
    return Offer((1,), lambda _: module, lambda _: module, lambda _: {}, inputs)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_computes_what_pytorch_does_and_says_what_it_is(name: str, tmp_path: Path) -> None:
    kind = FORMATS[name]
    for package in kind.packages:
        pytest.importorskip(package, reason=f"the format {name} needs {package}")
    run, path = digits(), tmp_path / f"phone{kind.ending}"
    made = run.export(path, width=1)
    assert (made.format, made.width, made.bytes) == (name, 1, path.stat().st_size)
    assert made.difference < 1e-5
    assert made.tried == "8 test inputs"
    about = json.loads(kind.about(path))
    assert about["experiment"] == "digits"
    assert (about["width"], about["complete_width"], about["classes"], about["round"]) == (1, 4, 10, 2)
    assert about["inputs"] == {"shape": [1, 8, 8], "dtype": "float32"}
    assert about["score"] == run.records[-1].score_by_width[1]
    one = run.trial()[0][:1].contiguous()
    assert torch.allclose(kind.outputs(path, one, lambda: run.model(1)), run.model(1)(one), atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_widest_model_within_the_limits_is_chosen(tmp_path: Path) -> None:
    run, path = digits(), tmp_path / "model.safetensors"
    whole = run.export(path)
    assert whole.width == 4
    assert run.export(path, max_bytes=whole.bytes).width == 4
    assert run.export(path, max_bytes=whole.bytes - 1).width == 3
    costs = {width: forward_flops(run.model(width), run.trial()[0][:1]) for width in run.widths}
    assert run.export(path, max_flops=costs[2]).width == 2
    with pytest.raises(
        ConfigError, match=rf"no model keeps to 10 bytes.* width 1, .*takes {costs[1]:,} FLOPs"
    ):
        run.export(path, max_bytes=10)


def test_the_widest_model_s_file_itself_must_keep_to_the_limit(tmp_path: Path) -> None:
    """Weights of width 4 would, but a traced file holds more than weights."""
    run = digits()
    weights = sum(4 * parameter.numel() for parameter in run.model(4).parameters())
    made = run.export(tmp_path / "model.pt", max_bytes=weights + 100)
    assert made.width == 3
    assert made.bytes <= weights + 100


class Wavering(nn.Module):
    """Computes something else whenever it is called from Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) + self.calls


def test_a_wrong_file_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"before")
    with pytest.raises(HeroesError, match=r"the file is wrong and was not kept: .* differ from PyTorch's by"):
        export(offer(Wavering(), torch.randn(4, 3)), path)
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(HeroesError, match=r"cannot write '[^']*folder\.pt': Is a directory"):
        export(offer(nn.Linear(3, 2), torch.randn(4, 3)), tmp_path / "folder.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.pt"]


def test_a_trace_that_holds_only_for_its_batch_is_found_wrong(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / len(x)

    with pytest.raises(HeroesError, match="the file is wrong"):
        export(offer(Counting(), torch.randn(4, 3)), tmp_path / "model.pt")


def test_a_model_with_two_outputs_is_refused_in_a_sentence(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    with pytest.raises(HeroesError, match="the model gives a tuple; only models whose output is one tensor"):
        export(offer(Two(), torch.randn(4, 3)), tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("model", None, "does not say in which format"),
        ("model.onnx", "onn", "did you mean 'onnx'?"),
    ],
)
def test_an_unknown_format_is_told(path: str, name: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        export(offer(nn.Linear(3, 2), torch.randn(4, 3)), Path(path), name)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heroes.export.formats.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs onnx, onnxscript, onnxruntime, .*heroes-fl\[onnx\]"):
        export(offer(nn.Linear(3, 2), torch.randn(4, 3)), Path("model.onnx"))


def test_no_limits_are_no_limits() -> None:
    assert Limits() == Limits(None, None)


def test_the_command_line_exports_a_run_folder(tmp_path: Path) -> None:
    heroes.run(heroes.recipes.digits(rounds=1), out=tmp_path / "run")
    call = partial(command_line.heroes, "export", str(tmp_path / "run"))
    done = call("--width", "2", "-o", str(tmp_path / "model.pt"))
    assert done.returncode == 0, done.stderr
    assert "2 of 4" in done.stdout
    assert "largest difference from PyTorch" in done.stdout
    told = call("-o", str(tmp_path / "model.safetensors"), "--json")
    facts: dict[str, Any] = json.loads(told.stdout)
    assert facts["bytes"] == (tmp_path / "model.safetensors").stat().st_size
    assert facts["difference"] < 1e-5
    wrong = call("--width", "9", "-o", str(tmp_path / "x.pt"))
    assert (wrong.returncode, "heroes serves the widths 1, 2, 3, 4" in wrong.stderr) == (2, True)
