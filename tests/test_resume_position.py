"""A position saved anywhere, restored elsewhere: the same batches, or a refusal that says why."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import differences, fingerprint, refuse_other
from oocdata.errors import RestoreError

tf = pytest.importorskip("tensorflow")

Make = Callable[[Path], ooc.Loader]

LOADERS = """
def loaders(folder):
    rows = ooc.open(f"{folder}/rows.npy")
    return {
        "a remainder": rows[:53].batches(10, shuffle=True, seed=7),
        "no remainder": rows[:53].batches(10, shuffle=True, seed=7, drop_remainder=True),
        "runs": rows[:192].batches(8, shuffle="block"),
        "runs and a remainder": rows[:134].batches(8, shuffle=True),
        "pairs": rows[:40].next_frame().batches(7),
        "mapped": ooc.zip({"a": rows[:30], "b": rows[50:80]}).map(flipped, rng=True).batches(8),
        "a shard": rows[:134].batches(8, shuffle=True).shard(2, 1),
    }

def flipped(pair, rng):
    return {"a": pair["b"] + rng.integers(1000), "b": pair["a"]}
"""
# Its functions are those of a script, as in the process that restores.
made_here: dict[str, Any] = {"ooc": ooc, "np": np, "__name__": "__main__"}
exec(LOADERS, made_here)
loaders: Callable[[Path], dict[str, ooc.Loader]] = made_here["loaders"]

RESTORE = textwrap.dedent(
    """
    import os; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import sys, pickle
    import numpy as np, tensorflow as tf, oocdata as ooc
    {loaders}
    folder, saved = sys.argv[1:]
    for name, loader in loaders(folder).items():
        every = [
            tf.nest.flatten(loader.batch(step, epoch))
            for epoch in (1, 2) for step in range(len(loader))
        ]
        every = every[3:]
        datasets = [
            loader.to_tf(start=(1, 3), epochs=2, prefetch=prefetch, parallel=parallel)
            for prefetch, parallel in ((0, 1), (5, 4))
        ]
        for done in range(len(every) + 1):
            iterator = iter(datasets[done % 2])
            path = f"{{saved}}/{{name}}/{{done}}-1"
            tf.train.Checkpoint(it=iterator).restore(path).assert_consumed()
            # All that is left, now and then; elsewhere a run and a step of the next.
            most = None if done % 7 == 0 else done + 3
            left = every[done:most]
            for number, expected in enumerate(left):
                found = tf.nest.flatten(next(iterator))
                for one, other in zip(found, expected, strict=True):
                    assert np.array_equal(one, other), (name, done, number)
            if most is None:
                assert next(iterator, None) is None, (name, done)
    print("restored")
    """
).format(loaders=textwrap.dedent(LOADERS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "rows.npy", np.arange(640 * 8 * 2.0).reshape(1280, 8)[:660])
    return folder


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of checkpoints of every step of two epochs, of several loaders."""
    saved = tmp_path_factory.mktemp("saved")
    for number, (name, loader) in enumerate(loaders(folder).items()):
        prefetch = (0, 1, 2, 8)[number % 4]
        iterator = iter(loader.to_tf(start=(1, 3), epochs=2, prefetch=prefetch))
        checkpoint = tf.train.Checkpoint(it=iterator)
        for done in range(2 * len(loader) - 3 + 1):
            checkpoint.save_counter.assign(0) if done else None
            checkpoint.save(saved / name / str(done))
            next(iterator, None)
    return saved


def test_runs_are_tried(folder: Path) -> None:
    together = {name: loader.steps_together for name, loader in loaders(folder).items()}
    assert together["runs"] > 1
    assert together["runs and a remainder"] > 1
    assert together["a remainder"] == 1


def test_a_checkpoint_is_small(saved: Path) -> None:
    sizes: dict[Path, int] = {}
    for path in saved.glob("*/*-1.*"):
        sizes[path.with_suffix("")] = sizes.get(path.with_suffix(""), 0) + path.stat().st_size
    assert len(sizes) > 140
    assert max(sizes.values()) + 200 <= 4096  # and a line in the file `checkpoint`


@pytest.mark.long
def test_every_step_in_a_fresh_process(folder: Path, saved: Path, tmp_path: Path) -> None:
    """With a copy of the data elsewhere, and another prefetch than that of those who saved."""
    shutil.copy(folder / "rows.npy", tmp_path)
    out, err = fork_server.start(RESTORE, tmp_path, saved).communicate(timeout=300)
    assert "restored" in out, err


def test_a_position_of_shards_is_counted_in_global_steps(folder: Path, tmp_path: Path) -> None:
    whole = ooc.open(folder / "rows.npy")[:640, :3].batches(16, shuffle=True)
    parts = [whole, *(whole.shard(n, n - 1) for n in (2, 16))]
    for saver in parts[::2]:
        for done in (0, 1, 5, 47):
            iterator = iter(saver.to_tf(epochs=2))
            for _ in range(done):
                next(iterator)
            path = tf.train.Checkpoint(it=iterator).save(tmp_path / "it")
            for other in parts:
                again = iter(other.to_tf(epochs=2))
                tf.train.Checkpoint(it=again).restore(path).assert_consumed()
                expected = [other.batch(step % 40, step // 40) for step in range(done, 80)]
                assert_array_equal(np.concatenate(list(again)), np.concatenate(expected))


def square(x: np.ndarray) -> np.ndarray:
    return x * x


def halve(x: np.ndarray) -> np.ndarray:
    return x / 2


def usual(folder: Path, **changes: Any) -> ooc.Loader:
    options: dict[str, Any] = {"batch_size": 10, "shuffle": "global", "seed": 7, **changes}
    return ooc.open(folder / "rows.npy")[:100].batches(options.pop("batch_size"), **options)


def other_file(folder: Path) -> ooc.Loader:
    """Return a loader of a file of the same size, shape and dtype."""
    rows = np.load(folder / "rows.npy")
    rows[300:] += 1
    np.save(folder / "other.npy", rows)
    return ooc.open(folder / "other.npy")[:100].batches(10, shuffle="global", seed=7)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (other_file, "content` differs"),
        (lambda f: usual(f, seed=8), "`seed` was 7, and is 8"),
        (lambda f: usual(f, batch_size=9), "`batch_size` was 10, and is 9"),
        (lambda f: usual(f, shuffle=False), "`order` was shuffle, and is sequential"),
        (lambda f: usual(f, shuffle=ooc.BlockShuffle(5, 2)), "is block_shuffle"),
        (lambda f: usual(f, drop_remainder=True), "`drop_remainder` was False, and is True"),
        (
            lambda f: ooc.open(f / "rows.npy")[1:101].batches(10, shuffle="global", seed=7),
            "`dataset.rows` was 0:100:1, and is 1:101:1",
        ),
        (
            lambda f: ooc.open(f / "rows.npy")[np.arange(99, -1, -1)].batches(10),
            "`dataset.rows` was 0:100:1, and is #",
        ),
        (lambda f: ooc.open(f / "rows.npy")[:100, :3].batches(10), "`elements` was (8,) float64"),
        (lambda f: ooc.open(f / "rows.npy").astype("f4")[:100].batches(10), "is (8,) float32"),
        (
            lambda f: ooc.open(f / "rows.npy")[:101].next_frame().batches(10),
            "`dataset` was view, and is windows",
        ),
        (lambda f: ooc.open(f / "rows.npy")[:100].map(square).batches(10), "view, and is map"),
    ],
)
@pytest.mark.parametrize("done", [0, 3])
def test_other_data_or_descriptions_are_refused(
    folder: Path, tmp_path: Path, make: Make, said: str, done: int
) -> None:
    iterator = iter(usual(folder).to_tf())
    for _ in range(done):
        next(iterator)
    path = tf.train.Checkpoint(it=iterator).save(tmp_path / "it")
    shutil.copy(folder / "rows.npy", tmp_path)
    again = iter(make(tmp_path).to_tf())

    def restore() -> None:  # TensorFlow looks at the run that it is in at once
        tf.train.Checkpoint(it=again).restore(path)
        next(again)

    with pytest.raises(RestoreError) as caught:
        restore()
    assert said in str(caught.value)


def test_another_number_of_epochs_is_refused(folder: Path, tmp_path: Path) -> None:
    iterator = iter(usual(folder).to_tf(epochs=2))
    next(iterator)
    path = tf.train.Checkpoint(it=iterator).save(tmp_path / "it")
    again = iter(usual(folder).to_tf(epochs=3))
    with pytest.raises(RestoreError, match="`steps of a pass` was 20, and is 30"):
        tf.train.Checkpoint(it=again).restore(path)


def parts_of(loader: ooc.Loader) -> dict[str, str]:
    parts: dict[str, str] = json.loads(fingerprint(loader))
    return parts


class TestFingerprint:
    @pytest.mark.parametrize("place", [0, 1, 250, 659])
    def test_arrays_in_memory(self, place: int) -> None:
        array = np.arange(660 * 4.0).reshape(660, 4)
        other = array.copy()
        other[place:] += 1
        one, copy, two = (
            parts_of(ooc.open(each).batches(10)) for each in (array, array.copy(), other)
        )
        assert one == copy
        assert differences(one, two) == ["`dataset.source.content` differs"]

    @pytest.mark.parametrize("kind", ["npy", "h5", "gzip", "zarr2", "zarr3", "sharded", "parts"])
    def test_files(self, tmp_path: Path, kind: str) -> None:
        array = np.random.default_rng(0).integers(0, 9, (200, 6)).astype("f4")
        other = array.copy()
        other[90:] = array[90:][::-1]
        found = []
        for name, values in (("one", array), ("two", other)):
            (tmp_path / name).mkdir()
            target = write(tmp_path / name, kind, values)
            found.append(parts_of(ooc.open(target).batches(10)))
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        copied = target.replace("two", "copy")
        os.utime(tmp_path / "copy")
        assert parts_of(ooc.open(copied).batches(10)) == found[0]
        assert differences(*found) == ["`dataset.source.content` differs"]

    def test_which_part_of_the_rows_is_meant(self, folder: Path) -> None:
        rows = ooc.open(folder / "rows.npy")
        one, two = (parts_of(rows[:, part].batches(10)) for part in (slice(3), slice(1, 4)))
        assert differences(one, two) == ["`dataset.cuts` was 0:3:1, and is 1:4:1"]

    def test_functions(self, folder: Path) -> None:
        rows = ooc.open(folder / "rows.npy")
        one, two = (parts_of(rows.map(fn).batches(10)) for fn in (square, halve))
        assert differences(one, two) == [
            f"`dataset.fn` was {__name__}:square, and is {__name__}:halve"
        ]

    def test_whether_a_spec_was_tried_makes_no_difference(self, folder: Path) -> None:
        first, then = ooc.open(folder / "rows.npy").map(square), ooc.open(folder / "rows.npy")
        _ = first.spec
        assert parts_of(first[:50].batches(5)) == parts_of(then.map(square)[:50].batches(5))

    def test_workers_and_shards_are_no_part_of_it(self, folder: Path) -> None:
        rows = ooc.open(folder / "rows.npy")
        one = parts_of(rows.batches(10))
        assert parts_of(rows.batches(10, workers=2)) == one
        assert parts_of(rows.batches(10).shard(2, 1)) == one

    def test_a_long_one_still_fits_and_still_differs(self) -> None:
        def loader(last: int) -> ooc.Loader:
            rows = ooc.open(np.arange(3000.0))
            parts = [rows[number : 2000 + number] for number in range(99)]
            return ooc.zip(*parts, rows[last : 2000 + last]).batches(10, seed=last)

        one, two = (fingerprint(loader(last)) for last in (0, 1))
        assert len(one) <= 2048
        with pytest.raises(RestoreError, match="`seed` was 0, and is 1; `more` differs"):
            refuse_other(one, two)


def write(folder: Path, kind: str, array: np.ndarray) -> str:
    """Write an array, and return what opens it."""
    if kind == "npy":
        np.save(folder / "a.npy", array)
        return str(folder / "a.npy")
    if kind == "parts":
        for number in range(20):
            np.save(folder / f"part{number}.npy", array[10 * number : 10 * number + 10])
        return str(folder / "*.npy")
    if kind in ("h5", "gzip"):
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "a.h5", "w") as file:
            chunks = {"chunks": (20, 6), "compression": "gzip"} if kind == "gzip" else {}
            file.create_dataset("u", data=array, **chunks)
        return str(folder / "a.h5")
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(
        folder / "a.zarr", shape=array.shape, chunks=(20, 6), dtype=array.dtype,
        zarr_format=2 if kind == "zarr2" else 3, shards=(40, 6) if kind == "sharded" else None,
    )  # fmt: skip
    made[:] = array
    return str(folder / "a.zarr")
