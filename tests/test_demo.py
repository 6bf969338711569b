"""The demonstration: its data and physics, its checks (and that they fail), and the whole of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import typer.testing

import oocdata as ooc
from oocdata.cli import app
from oocdata.errors import ArgumentError, MissingDependencyError, OocdataError, SourceError
from oocdata.memory import memory_limit
from oocdata.tools import demo
from oocdata.tools.demo import checks as demo_checks
from oocdata.tools.demo import data as demo_data
from oocdata.tools.demo import file as demo_file
from oocdata.tools.demo import model as demo_model
from oocdata.tools.demo.data import Clips, check_disk, checksums, write_formats
from oocdata.tools.demo.workspace import Signals, memory_of, workspace

SMALL = Clips(count=10, frames=6)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> demo_data.Written:
    return write_formats(SMALL, tmp_path_factory.mktemp("clips"))


# --- the data


def test_a_clip_is_the_same_whenever_it_is_made() -> None:
    assert np.array_equal(Clips(10).render(3), Clips(10).render(3))
    assert not np.array_equal(Clips(10).render(3), Clips(10).render(4))
    assert not np.array_equal(Clips(10).render(3), Clips(10, seed=8).render(3))


def test_digits_keep_their_light_and_stay_in_the_field() -> None:
    # Linear interpolation keeps the sum of an image wherever it is drawn: nothing leaves the field.
    drawn = demo_data._interpolation(np.linspace(0, 64 - 26, 50), 64)
    assert drawn.shape == (50, 64, 8)
    assert np.allclose(drawn.sum(axis=1), 3, atol=1e-5)
    frames = Clips(10).render(0)
    assert frames.dtype == np.float32
    assert frames.min() == 0
    assert 0.5 < frames.max() <= 1


def test_walls_reflect() -> None:
    line = demo_data._reflected(np.array([5.0, 9.0, 13.0, 22.0, 31.0, -2.0]), 10.0)
    assert line.tolist() == [5.0, 9.0, 7.0, 2.0, 9.0, 2.0]


def test_parts_share_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    clips = Clips(100)
    parts = (range(60), range(60, 80), range(80, 100))
    used = [{digit for clip in part for digit in clips.choice(clip)} for part in parts]
    assert sum(map(len, used)) == len(set.union(*used)) == 1797
    before = clips.render(70)
    clips.digits[clips.choice(70)] = 0
    assert not clips.render(70).any()
    assert before.any()
    assert clips.render(50).any()


def test_every_format_holds_what_was_made(written: demo_data.Written) -> None:
    frames = np.concatenate([SMALL.render(clip) for clip in range(SMALL.count)])
    assert np.array_equal(checksums(frames), written.sums)
    for path in written.paths.values():
        assert np.asarray(ooc.open(path)).tobytes() == frames.tobytes()
    assert np.array_equal(np.load(written.paths[".npy"]), frames)
    assert written.disk_bytes(".npy") == frames.nbytes + 128
    assert 0 < written.disk_bytes("HDF5") < frames.nbytes
    assert 0 < written.disk_bytes("Zarr v3") < frames.nbytes


def test_the_full_plan_is_larger_than_its_bound_and_fits_on_the_disk() -> None:
    for plan in (demo.Plan.full(7), demo.Plan.quick(7)):
        assert plan.clips % 5 == 0
        nbytes = Clips(plan.clips).nbytes
        assert nbytes > plan.reading_bytes
        assert 3 * nbytes <= demo_data.DISK_LIMIT


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OocdataError, match=r"must have 44\.7 TiB free"):
        check_disk(tmp_path, Clips(50_000_000))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'oocdata\[demo\]'"):
        demo.demo_on_digits(demo.Plan.quick(7), tmp_path / "a.png", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'oocdata\[demo\]'"):
        demo.prepare(tmp_path / "a.png")


# --- the checks find what they are for


def _train(path: Path) -> ooc.Windows:
    episodes = np.full(SMALL.count, SMALL.frames)
    return ooc.open(path).windows(2, 1, episodes=episodes)


@pytest.mark.parametrize("name", [".npy", "HDF5", "Zarr v3"])
def test_every_frame_is_checked(written: demo_data.Written, name: str) -> None:
    loader = _train(written.paths[name]).batches(7, shuffle=True, seed=3)
    steps: list[int] = []
    assert demo_checks.check_elements(loader, written.sums, steps.append) == 40
    assert len(steps) == len(loader) == 6
    assert demo_checks.check_frames(loader, SMALL) == 7
    assert demo_checks.check_order(loader) == 40
    wrong = written.sums.copy()
    wrong[17] ^= 1
    with pytest.raises(SourceError, match=r"rows? 17") as caught:
        demo_checks.check_elements(loader, wrong, steps.append)
    assert set(caught.value.rows or ()) == {17}


def test_frames_made_again_with_another_seed_differ(written: demo_data.Written) -> None:
    loader = _train(written.paths[".npy"]).batches(7, shuffle=True, seed=3)
    with pytest.raises(SourceError, match="bit for bit"):
        demo_checks.check_frames(loader, Clips(SMALL.count, SMALL.frames, seed=8))


def test_an_order_that_repeats_is_found(written: demo_data.Written) -> None:
    class Twice:
        def positions(
            self, count: int, start: int, stop: int, *, seed: int, epoch: int
        ) -> np.ndarray[Any, Any]:
            return np.arange(start, stop) // 2

    loader = _train(written.paths[".npy"]).batches(7, shuffle=Twice())
    with pytest.raises(SourceError, match="each element once"):
        demo_checks.check_order(loader)
    with pytest.raises(SourceError, match="each element once"):
        demo_checks.check_elements(loader, written.sums, lambda count: None)


def test_rows_are_compared_with_the_own_library(tmp_path: Path) -> None:
    values = np.arange(60, dtype=">i4").reshape(5, 12)
    np.save(tmp_path / "a.npy", values)
    view = ooc.open(tmp_path / "a.npy", axis=1)
    words = "8 rows are bit for bit what {} reads"
    assert demo_checks.check_rows(view, str(tmp_path / "a.npy")) == words.format("NumPy")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = values
    again = ooc.open(tmp_path / "a.h5", "u", axis=1)
    assert demo_checks.check_rows(again, str(tmp_path / "a.h5")) == words.format("h5py")
    with pytest.raises(SourceError, match="own library"):
        demo_checks.check_rows(again[:, 1:], str(tmp_path / "a.h5"))
    assert demo_checks.check_rows(view, str(tmp_path / "*.npy")) is None


# --- memory


PEAK = """
import numpy as np
from oocdata.tools.demo import memory
before = memory.resident_bytes()
with memory.PeakMemory() as seen:
    block = np.ones(100_000_000, np.uint8)
    del block
assert seen.peak - before > 90_000_000, (seen.peak, before)
with memory.PeakMemory() as later:
    pass
assert later.peak - before < 50_000_000, (later.peak, before)
"""

WITHOUT = """
import numpy as np
from oocdata.tools.demo import memory
memory._reset_peak = lambda: False
before = memory.resident_bytes()
with memory.PeakMemory() as seen:
    block = np.ones(100_000_000, np.uint8)
assert not seen.exact
assert seen.peak - before > 90_000_000, (seen.peak, before)
del block
assert abs(memory._by_psutil() - memory.resident_bytes()) < 50_000_000
"""


@pytest.mark.parametrize("code", [PEAK, WITHOUT], ids=["", "without the kernel's record"])
def test_peak_memory_sees_what_is_gone_again(code: str) -> None:
    # In a process of its own: of this one, the kernel may take back what has lain unused.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- the model


@pytest.mark.parametrize(
    "element", [(), (5,), (9, 11), (3, 16, 10), (10, 16, 3), (2, 3, 9, 8), (7, 3)], ids=str
)
def test_a_model_begins_as_a_copy_of_the_last_frame(element: tuple[int, ...]) -> None:
    model = demo_model.build(2, element, seed=1)
    x = np.random.default_rng(0).random((4, 2, *element), np.float32)
    assert np.array_equal(model(x), x[:, -1:])
    y = np.zeros((4, 1, *element), np.float32)
    model.run_eagerly = True  # a graph takes longer to make than this step
    model.fit(x, y, epochs=1, verbose=0)
    assert not np.array_equal(model(x), x[:, -1:])


@pytest.mark.parametrize("element", [(16, 10), (3, 16, 10), (16, 10, 3), (2, 2, 16, 10)], ids=str)
def test_convolutions_run_over_height_and_width(element: tuple[int, ...]) -> None:
    model = demo_model.build(2, element, seed=1)
    first = next(layer for layer in model.layers if "conv2d" in layer.name)
    assert first.output.shape[1:3] == (8, 5)


def test_the_model_that_is_set_up_on_zeros_has_not_moved(written: demo_data.Written) -> None:
    from oocdata.tools.demo.measuring import Subject, prepared_model

    part = _train(written.paths[".npy"])
    subject = Subject("npy", part, part, part, batch_size=7, seed=1, disk_bytes=0, memory_bytes=0)
    prepared = prepared_model(subject).get_weights()
    fresh = demo_model.build(2, (64, 64), seed=1).get_weights()
    assert all(np.array_equal(a, b) for a, b in zip(prepared, fresh, strict=True))


# --- the workspace


def test_temporary_files_go_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for error in (None, KeyboardInterrupt, SystemExit, ValueError):
        with contextlib.suppress(error or ValueError), workspace(None) as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "a").write_text("x")
            assert folder.parent == tmp_path
            if error:
                raise error
        assert not list(tmp_path.iterdir())


def test_kept_files_stay_and_nothing_is_overwritten(tmp_path: Path) -> None:
    with workspace(tmp_path / "new") as folder:
        (folder / "a").write_text("x")
    assert (tmp_path / "new" / "a").read_text() == "x"
    with pytest.raises(ArgumentError, match="new or empty folder"), workspace(tmp_path / "new"):
        pass


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_is_not_lost(number: signal.Signals, kind: type[BaseException]) -> None:
    usual = signal.getsignal(number)
    with pytest.raises(kind), Signals() as signals:  # noqa: PT012  # one story
        with contextlib.suppress(kind):  # as Python does inside a finaliser
            os.kill(os.getpid(), number)
        with pytest.raises(kind):
            signals.check()
        raise TypeError("as Keras makes of an interruption")
    assert signal.getsignal(number) == usual


def test_the_cache_gets_its_budget_back() -> None:
    usual = memory_limit()
    with contextlib.suppress(ValueError), memory_of(5 << 20):
        assert memory_limit() == 5 << 20
        raise ValueError
    assert memory_limit() == usual


# --- a user's own file


def run(*arguments: str) -> typer.testing.Result:
    return typer.testing.CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)


def test_scaling_counts_what_is_no_number() -> None:
    scale = demo_file.Scale(2.0, 4.0)
    x, y = scale(np.array([2.0, np.inf, 6.0], "f4"), np.array([np.nan], "f4"))
    assert (x.tolist(), y.tolist(), scale.replaced) == ([0.0, 0.0, 1.0], [0.0], 2)


def test_large_rows_are_cut() -> None:
    view = ooc.open(np.zeros((4, 3, 300, 40), "u1"))
    assert demo_file._cut(view).element == (3, 256, 40)
    assert demo_file._cut(ooc.open(np.zeros((4, 20_000), "u1"))).element == (16_384,)
    assert demo_file._cut(ooc.open(np.zeros(4))).element == ()


@pytest.mark.long
def test_demo_on_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A wave that moves by one place from row to row, some of it missing.
    place = np.arange(120)[:, None, None] + np.arange(12)[:, None] + np.arange(10)
    wave = (1000 * np.sin(place / 3)).astype("i2").astype("f4")
    wave[5, 3, 3] = np.nan
    with h5py.File("mine.h5", "w") as file:
        file.create_dataset("u", data=wave, chunks=(10, 12, 10), compression="gzip")
        file["v"] = wave[:3]
    result = run("demo", "mine.h5", "--key", "u", "--episodes", "40", "--quick")
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "mine.h5, /u: 120 rows of (12, 10) float32" in words
    assert "8 rows are bit for bit what h5py reads" in words
    assert "values read were NaN or infinite" in words
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert _losses(result.stdout, "test loss")[0] < _losses(result.stdout, "  copying")[1]
    assert (tmp_path / "oocdata-demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_demo_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", np.random.default_rng(0).random((60, 9, 9), np.float32))
    result = run("demo", "mine.npy", "--quick", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["picture"] == "oocdata-demo.png"
    (one,) = found["arrays"]
    assert one["memory_bytes"] == 60 * 81 * 4
    assert one["reading"]["elements"] > 0
    assert one["training"]["test_loss"] > 0
    assert "validation loss" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).integers(0, 255, (30, 10, 12, 3), np.uint8),
        np.random.default_rng(0).random((30, 20)),
        np.arange(30) % 7 > 3,
        np.zeros((30, 9, 9), "f2"),
    ],
    ids=["image", "row", "bool", "constant"],
)
def test_demo_on_any_shape(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "mine.npy", values)
    output = tmp_path / "out.png"
    result = run("demo", str(tmp_path / "mine.npy"), "--quick", "--output", str(output))
    assert result.exit_code == 0, result.output
    assert "what NumPy reads" in result.stdout
    assert output.exists()


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        (np.zeros((30, 4), "c8"), [], "real numbers"),
        (np.zeros((30, 0)), [], "hold none"),
        (np.zeros((3, 4)), [], "must"),
        (np.full((30, 4), np.nan), [], "all NaN"),
        (np.zeros((30, 4)), ["--output", "none/a.png"], "--output"),
        (np.zeros((30, 4)), ["--output", "a.jpg"], "must end in .png"),
        (np.zeros((30, 4)), ["--episodes", "1"], "must"),
    ],
)
def test_demo_on_a_file_that_does_not_suit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: np.ndarray[Any, Any],
    options: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", values)
    result = run("demo", "mine.npy", "--quick", *options)
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("oocdata: ")
    assert words in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npy"]


# --- the whole of it


def _losses(text: str, label: str) -> list[float]:
    """All numbers of the rows that begin with a label, in order of the rows."""
    rows = [line for line in text.splitlines() if line.startswith(label)]
    return [float(number) for line in rows for number in re.findall(r"\d\.\d{6}", line)]


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
        _command("--quick", "--keep", "kept"),
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 80
    words = " ".join(done.stdout.split())
    assert "an epoch delivered each of 3,240 elements exactly once" in words
    assert "32 frames of a shuffled batch are bit for bit" in words
    model, copies = _losses(done.stdout, "test loss"), _losses(done.stdout, "  copying")[3:]
    assert len(model) == len(copies) == 3
    assert all(loss < 0.8 * copy for loss, copy in zip(model, copies, strict=True))
    assert (tmp_path / "oocdata-demo.png").read_bytes().startswith(b"\x89PNG")
    assert not list(temporary.iterdir())
    for name in ("digits.npy", "digits.h5", "digits.zarr"):
        assert ooc.open(tmp_path / "kept" / name).shape == (6000, 64, 64)


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
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.endswith("oocdata: stopped.\n")
    assert not list(temporary.iterdir())
