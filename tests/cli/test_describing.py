"""`heroes model`, `heroes fleet` and `heroes data`."""

import gzip
from pathlib import Path

import pytest
from command_line import heroes


def test_a_model_is_told_by_width_and_by_layer() -> None:
    done = heroes("model", "cnn")
    assert done.returncode == 0, done.stderr
    assert "229,002" in done.stdout  # dense parameters at full width
    assert "rank ratio 0.25" in done.stdout  # that of Heroes
    assert "54,410" in heroes("model", "cnn", "--rank-ratio", "1").stdout  # composed
    assert "by layer" in done.stdout
    assert "128x128x3x3" in done.stdout


def test_a_fleet_is_told_with_its_devices_and_times(tmp_path: Path) -> None:
    done = heroes("fleet", "paper", "--clients", "100")
    assert done.returncode == 0, done.stderr
    for word in ("TX2", "AGX Xavier", "seconds of one step", "seconds of one upload", "█"):
        assert word in done.stdout
    (tmp_path / "mine.csv").write_text("device,gflops\ncamera,2\n")
    own = heroes("fleet", "mine.csv", cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    assert "camera" in own.stdout


def test_data_is_taken_listed_and_checked(tmp_path: Path) -> None:
    listed = heroes("data", "list", "--dir", str(tmp_path))
    assert listed.returncode == 0
    assert "cifar10" in listed.stdout
    assert "not here" in listed.stdout
    file = tmp_path / "works.txt.gz"
    file.write_bytes(gzip.compress(b"nothing of Shakespeare's"))
    got = heroes("data", "get", "shakespeare", "--from", str(file), "--dir", str(tmp_path / "d"))
    assert got.returncode == 0, got.stderr
    bad = heroes("data", "verify", "shakespeare", "--dir", str(tmp_path / "d"))
    assert bad.returncode == 2
    assert "shakespeare" in bad.stderr


def test_the_labels_of_the_clients_are_drawn(tmp_path: Path) -> None:
    done = heroes("data", "plot", "digits", "-o", "labels", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "labels.png").stat().st_size > 5000
    assert (tmp_path / "labels.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["model", "cnnn"], "did you mean 'cnn'?"),
        (["model", "cnn", "--rank-ratio", "0"], "--rank-ratio is 0"),
        (["fleet", "papers"], "did you mean 'paper'?"),
        (["fleet", "gone.csv"], "cannot read the fleet 'gone.csv': No such file or directory\n"),
        (["compare", "."], "'.' is a folder, but no run"),
        (["data", "get", "cifar"], "did you mean 'cifar10'?"),
        (["data", "get", "imagenet100"], "--from"),
        (["data", "get", "cifar10", "--from", "nowhere"], "nowhere"),
        (["data", "verify", "mnist", "--dir", "nowhere"], "nothing at"),
        (["data", "verify", "--dir", "nowhere"], "no data set to verify"),
        (["run", "cifar10", "--set", "data.directory=nowhere"], "heroes data get cifar10"),
        (["run", "digits", "--set", "fleet.csv=gone.csv"], "cannot read the fleet 'gone.csv'"),
        (["run", "digits", "--set", "fleet.name=mlab", "--set", "fleet.upload=[1.0, 2.0]"], "give both"),
        (["run", "digits", "--set", "data.partition=natural"], "natural"),
        (["run", "digits", "--set", "data.partition=missing"], "0 to 9"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = heroes(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
