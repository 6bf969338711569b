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
from math import prod
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import oocdata as ooc
from oocdata.errors import MissingDependencyError, OocdataError
from oocdata.tools import demo
from oocdata.tools.demo import data as demo_data
from oocdata.tools.demo import training as demo_training
from oocdata.tools.demo.data import Clips, workspace, write

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
        demo.demo(demo.Plan.quick(), Console())


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


def test_more_memory_than_stated_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = dict.fromkeys(("trained_per_second", "val_loss", "test_loss", "copy_loss"), 1.0)
    monkeypatch.setattr(demo, "train", lambda *_: {"steps": 1, **losses})
    monkeypatch.setattr(demo, "growth", lambda: contextlib.nullcontext([100_000_000_000]))
    with pytest.raises(OocdataError, match=r"\.npy took 93\.1 GiB, and explain\(\) states"):
        demo.demo(TINY, Console())


TINY = demo.Plan(10, 2, 16 << 20, read_seconds=0.1, train_seconds=0.1, seed=1)
"""The smallest plan that runs everything."""


# --- the model


def test_a_model_begins_as_a_copy_of_the_last_frame() -> None:
    model = demo_training.build(16, 10, 1)
    x = np.random.default_rng(0).random((4, 2, 16, 10), np.float32)
    assert np.array_equal(model(x), x[:, -1:])
    y = np.zeros((4, 1, 16, 10), np.float32)
    model.run_eagerly = True  # a graph takes longer to make than this step
    model.fit(x, y, epochs=1, verbose=0)
    assert not np.array_equal(model(x), x[:, -1:])


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
