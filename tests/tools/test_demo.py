"""Test the demonstration: its data, memory, model and output.

All reading goes through `to_tf`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import typer.testing
from rich.console import Console

import oocdata as ooc
from oocdata.cli import app
from oocdata.errors import MissingDependencyError, OocdataError
from oocdata.tools import demo
from oocdata.tools.demo import data as demo_data
from oocdata.tools.demo import training as demo_training
from oocdata.tools.demo.data import Clips, workspace, write
from oocdata.tools.opening import Opening

SMALL = Clips(count=10, frames=6)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write(SMALL, tmp_path_factory.mktemp("clips"))


# --- the data


def test_a_clip_is_the_same_whenever_it_is_made() -> None:
    assert np.array_equal(Clips(10).render(3), Clips(10).render(3))
    assert not np.array_equal(Clips(10).render(3), Clips(10).render(4))
    assert not np.array_equal(Clips(10).render(3), Clips(10, seed=8).render(3))


def test_digits_fly_at_constant_velocity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_data, "_DIGITS_PER_CLIP", 1)
    frames = Clips(10).render(0)
    assert frames.dtype == np.float32
    assert 0.5 < frames.max() <= 1
    steps = [(down, across) for down in range(-3, 4) for across in range(-3, 4)]
    first, *others = (
        [step for step in steps if np.array_equal(after, np.roll(before, step, (0, 1)))]
        for before, after in itertools.pairwise(frames)
    )
    assert len(first) == 1
    assert all(one == first for one in others)


def test_every_format_holds_what_was_made(written: list[str]) -> None:
    paths = written
    clips = np.stack([SMALL.render(clip) for clip in range(SMALL.count)])
    assert [Path(path).name for path in paths] == ["digits.npy", "digits.h5", "digits.zarr"]
    for path in paths:
        frames = ooc.open(path, axis=(0, 1))
        assert frames.sample_shape == (10, 6)
        assert np.asarray(frames).tobytes() == clips.tobytes()


def test_the_plans_are_larger_than_their_memory() -> None:
    for plan in (demo.Plan(), demo.Plan.quick()):
        assert plan.clips % 5 == 0
        assert 4 * prod(Clips(plan.clips).shape) > 2 * plan.memory


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'oocdata\[demo\]'"):
        demo.demo_on_digits(demo.Plan.quick(), Console())


# --- memory


GROWTH = """
import numpy as np
from oocdata.tools.demo.data import growth
with growth() as grown:
    block = np.ones(100_000_000, np.uint8)
    del block
assert grown[0] > 90_000_000, grown
with growth() as later:
    pass
assert later[0] < 50_000_000, later
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's record")
def test_growth_sees_what_is_gone_again() -> None:
    # In a process of its own: of this one, the kernel may take back what has lain unused.
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_more_memory_than_stated_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    losses = dict.fromkeys(("trained_per_second", "val_loss", "test_loss", "copy_loss"), 1.0)
    monkeypatch.setattr(demo, "train", lambda *_: {"steps": 1, **losses})
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((40, 5)))
    monkeypatch.setattr(demo, "growth", lambda: contextlib.nullcontext([100_000_000_000]))
    with pytest.raises(OocdataError, match=r"\.npy took 93\.1 GiB, and explain\(\) states"):
        demo.demo_on_file(TINY, Console(), Opening.of(tmp_path / "a.npy"))


TINY = demo.Plan(10, 2, 16 << 20, read_seconds=0.1, train_seconds=0.1, seed=1)
"""The smallest plan that runs everything."""


# --- the model


@pytest.mark.parametrize("element", [(), (9, 11), (2, 3, 9, 8)], ids=str)
def test_a_model_begins_as_a_copy_of_the_last_frame(element: tuple[int, ...]) -> None:
    model = demo_training.build(2, element, 1)
    x = np.random.default_rng(0).random((4, 2, *element), np.float32)
    assert np.array_equal(model(x), x[:, -1:])
    y = np.zeros((4, 1, *element), np.float32)
    model.run_eagerly = True  # a graph takes longer to make than this step
    model.fit(x, y, epochs=1, verbose=0)
    assert not np.array_equal(model(x), x[:, -1:])


@pytest.mark.parametrize("element", [(16, 10), (3, 16, 10), (2, 4, 16, 10)])
def test_convolutions_run_over_the_last_axes(element: tuple[int, ...]) -> None:
    model = demo_training.build(2, element, seed=1)
    first = next(layer for layer in model.layers if "conv2d" in layer.name)
    assert first.output.shape[1:3] == (8, 5)


# --- scaling


def test_each_column_of_a_table_has_its_scale() -> None:
    values = np.random.default_rng(0).normal(size=(400, 3)) * [1, 1000, 0.001] + [0, 5, 70]
    values[7, 1] = np.inf
    frames = ooc.open(values)
    part = frames.windows(2, 1)
    scale, note = demo.scaling(frames, part)
    x, y = scale(*part.take(range(len(part))))
    assert x.dtype == np.float32
    assert np.allclose(x.mean((0, 1)), 0, atol=0.05)
    assert np.allclose(x.std((0, 1)), 1, atol=0.05)
    assert np.isfinite(x).all()
    assert np.isfinite(y).all()
    assert "each column by its own" in note
    assert "1 of their values are NaN or infinite" in note


def test_scaling_takes_little_memory_besides_its_result() -> None:
    """It counts as memory for reading, so copies of batches would exceed the bound of `explain`."""
    frames = ooc.open(np.random.default_rng(0).integers(0, 255, (40, 84, 84, 3), "u1"))
    part = frames.windows(2, 1)
    scale, _ = demo.scaling(frames, part)
    batch = part.take(range(len(part)))
    tracemalloc.start()
    try:
        x, y = scale(*batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * (x.nbytes + y.nbytes)


# --- the workspace


def test_temporary_files_go_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for error in (None, KeyboardInterrupt, SystemExit, ValueError):
        with contextlib.suppress(error or ValueError), workspace() as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "a").write_text("x")
            assert folder.parent == tmp_path
            if error:
                raise error
        assert not list(tmp_path.iterdir())


def test_files_go_where_sigterm_ends_the_process() -> None:
    usual = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, workspace() as folder:
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert not folder.exists()
    assert signal.getsignal(signal.SIGTERM) == usual


# --- a user's own file


def run(*arguments: str) -> typer.testing.Result:
    return typer.testing.CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)


def test_large_rows_are_cut() -> None:
    view = ooc.open(np.zeros((4, 3, 300, 40), "u1"))
    assert demo._middle(view).element == (3, 256, 40)
    assert demo._middle(ooc.open(np.zeros((4, 20_000), "u1"))).element == (16_384,)
    assert demo._middle(ooc.open(np.zeros(4))).element == ()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train eagerly, because tracing takes longer than these steps."""
    build = demo_training.build

    def build_eager(*arguments: Any) -> Any:
        model = build(*arguments)
        model.run_eagerly = True
        return model

    monkeypatch.setattr(demo_training, "build", build_eager)


def test_demo_on_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # A wave that moves by one place from row to row, some of it missing.
    place = np.arange(120)[:, None, None] + np.arange(12)[:, None] + np.arange(10)
    wave = (1000 * np.sin(place / 3)).astype("i2").astype("f4")
    wave[5, 3, 3] = np.nan
    with h5py.File("mine.h5", "w") as file:
        file.create_dataset("u", data=wave, chunks=(10, 12, 10), compression="gzip")
        file["v"] = wave[:3]
    found = demo.demo_on_file(TINY, Console(), Opening.of("mine.h5", "u"))
    said = capsys.readouterr().out
    assert str(found) in said
    assert max(len(line) for line in said.splitlines() if "ooc.open(" not in line) <= 80
    words = " ".join(said.split())
    assert "mine.h5 u" in words
    assert "120 rows of (12, 10)" in words
    assert "of their values are NaN or infinite" in words
    assert [path.name for path in tmp_path.iterdir()] == ["mine.h5"]  # nothing unasked
    (one,) = json.loads(json.dumps(found.to_json()))["arrays"]
    assert one["array_bytes"] == wave.nbytes
    assert one["name"] == "HDF5"
    assert one["elements_per_second"] > 0
    assert one["steps"] >= 1


def test_trajectories_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_measured", lambda *_: None)  # they are told of before
    np.save(tmp_path / "runs.npy", np.random.default_rng(0).random((10, 12, 9, 9), np.float32))
    demo.demo_on_file(TINY, Console(), Opening.of(tmp_path / "runs.npy"))
    assert "axis=(0, 1) makes it two axes" in capsys.readouterr().out
    demo.demo_on_file(TINY, Console(), Opening.of(tmp_path / "runs.npy", axis=(0, 1)))
    said = capsys.readouterr().out
    assert "look like" not in said
    assert "10 × 12 rows of (9, 9)" in " ".join(said.split())


@pytest.mark.parametrize(("rows", "windows"), [(20, "127, 43, 42"), (2, "11, 3, 4")])
def test_each_of_several_files_is_a_series_if_it_is_long_enough(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rows: int,
    windows: str,
) -> None:
    monkeypatch.setattr(demo, "_measured", lambda *_: None)
    for number in range(12):
        np.save(tmp_path / f"{number}.npy", np.zeros((rows, 9, 9), np.float32))
    demo.demo_on_file(TINY, Console(), Opening.of(f"{tmp_path}/*.npy"))
    assert f"the next one: {windows} windows" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(
            np.random.default_rng(0).integers(0, 255, (30, 10, 12, 3), np.uint8),
            marks=pytest.mark.long,
        ),
        np.zeros(30, "?"),
        pytest.param(np.random.default_rng(0).random((30, 20)), marks=pytest.mark.long),
    ],
    ids=["image", "constant bool", "row"],
)
def test_demo_on_any_shape(tmp_path: Path, eager: None, values: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "mine.npy", values)
    found = demo.demo_on_file(TINY, Console(), Opening.of(tmp_path / "mine.npy"))
    (one,) = found.arrays
    assert np.isfinite([one["val_loss"], one["test_loss"]]).all()
    if not values.any():
        assert "no better" in str(found)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros((30, 4), "c8"), "must be of real numbers"),
        (np.full(30, "a"), "must be numbers"),
        (np.zeros((30, 0)), "hold none"),
        (np.zeros((3, 4)), "must"),
        (np.full((30, 4), np.nan), "hold none"),
    ],
)
def test_demo_on_a_file_that_does_not_suit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: np.ndarray[Any, Any],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", values)
    result = run("demo", "mine.npy", "--quick")
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("oocdata: ")
    assert words in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npy"]


# --- the whole of it


def _command(*arguments: str) -> list[str]:
    installed = Path(sys.executable).with_name("oocdata")
    if installed.exists():
        return [str(installed), "demo", *arguments]
    return [sys.executable, "-c", "from oocdata.cli import main; main()", "demo", *arguments]


@pytest.mark.long
def test_quick_demo_from_a_shell(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        _command("--quick", "--json"),
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert max(map(len, done.stderr.splitlines())) <= 82  # the lines of code are as long
    words = " ".join(done.stderr.split())
    assert "copying the last frame" in words
    assert [one["name"] for one in found["arrays"]] == [".npy", "HDF5", "Zarr v3"]
    for one in found["arrays"]:
        assert one["memory"] <= one["bound"] < one["array_bytes"]
        assert one["test_loss"] < 0.8 * one["copy_loss"]
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
    assert not list(temporary.iterdir())


@pytest.mark.long
def test_demo_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        _command("--quick"),
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "write .npy" in line:
            break
    assert list(temporary.iterdir())
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.endswith("oocdata: stopped.\n")
    assert not list(temporary.iterdir())
