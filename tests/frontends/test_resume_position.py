"""A position saved in one process and restored in another: the same batches, or a clear refusal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from other_loaders import OTHERS, usual

import oocdata as ooc
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
# Its functions belong to a script, as in the process that restores.
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
            # Sometimes all remaining steps; otherwise a run and one step of the next.
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


def test_loaders_have_runs(folder: Path) -> None:
    together = {name: loader.steps_together for name, loader in loaders(folder).items()}
    assert together["runs"] > 1
    assert together["runs and a remainder"] > 1
    assert together["a remainder"] == 1


@pytest.mark.long
def test_a_checkpoint_is_small(saved: Path) -> None:
    sizes: dict[Path, int] = {}
    for path in saved.glob("*/*-1.*"):
        sizes[path.with_suffix("")] = sizes.get(path.with_suffix(""), 0) + path.stat().st_size
    assert len(sizes) > 140
    assert max(sizes.values()) + 200 <= 4096  # and a line in the file `checkpoint`


@pytest.mark.thorough
def test_every_step_in_a_fresh_process(folder: Path, saved: Path, tmp_path: Path) -> None:
    """With a copy of the data elsewhere, and another prefetch than in the process that saved."""
    shutil.copy(folder / "rows.npy", tmp_path)
    out, err = fork_server.start(RESTORE, tmp_path, saved).communicate(timeout=300)
    assert "restored" in out, err


def test_a_position_of_shards_is_counted_in_global_steps(folder: Path, tmp_path: Path) -> None:
    whole = ooc.open(folder / "rows.npy")[:320, :3].batches(16, shuffle=True)
    parts = [whole, *(whole.shard(n, n - 1) for n in (2, 16))]
    for saver, done in ((whole, 5), (parts[2], 27)):
        iterator = iter(saver.to_tf(epochs=2))
        for _ in range(done):
            next(iterator)
        path = tf.train.Checkpoint(it=iterator).save(tmp_path / "it")
        for other in parts:
            again = iter(other.to_tf(epochs=2))
            tf.train.Checkpoint(it=again).restore(path).assert_consumed()
            expected = [other.batch(step % 20, step // 20) for step in range(done, 40)]
            assert_array_equal(np.concatenate(list(again)), np.concatenate(expected))


# All others: test_fingerprint.py.
@pytest.mark.parametrize(("make", "said"), OTHERS[:1])
@pytest.mark.parametrize("done", [1, 3])  # before the first step there is no position
def test_other_data_or_descriptions_are_refused(
    folder: Path, tmp_path: Path, make: Make, said: str, done: int
) -> None:
    iterator = iter(usual(folder).to_tf())
    for _ in range(done):
        next(iterator)
    path = tf.train.Checkpoint(it=iterator).save(tmp_path / "it")
    shutil.copy(folder / "rows.npy", tmp_path)
    again = iter(make(tmp_path).to_tf())

    def restore() -> None:  # TensorFlow reads the current run at once
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


def test_passes_after_a_restored_one(folder: Path, tmp_path: Path) -> None:
    loader = usual(folder)
    steps = len(loader)
    every = [loader.batch(step % steps, step // steps) for step in range(5 * steps)]
    iterator = iter(loader.to_tf().repeat(3))
    for _ in range(steps + 4):
        next(iterator)
    path = tf.train.Checkpoint(it=iterator).save(tmp_path / "it")
    dataset = usual(folder).to_tf()  # which counts its passes from 0, as in another process
    again = iter(dataset.repeat(3))
    tf.train.Checkpoint(it=again).restore(path).assert_consumed()
    assert_array_equal([*again, *dataset], every[steps + 4 : 4 * steps])


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("done", range(3))
def test_an_iterator_that_was_restored_is_saved_again(
    tmp_path: Path, done: int, derived: bool
) -> None:
    """At every step after it was restored, so also where a run of steps ends."""
    loader = ooc.open(np.arange(42)).batches(2)  # in runs of two steps

    def begin() -> Any:
        dataset = loader.to_tf()
        return iter(dataset.map(tf.identity).prefetch(1) if derived else dataset)

    iterator = begin()
    for _ in range(done):
        next(iterator)
    path = tf.train.Checkpoint(it=iterator).save(tmp_path / "it")
    for more in range(5):
        iterator = begin()
        checkpoint = tf.train.Checkpoint(it=iterator)
        checkpoint.restore(path)
        for _ in range(more):
            next(iterator)
        saved_again = checkpoint.save(tmp_path / "again")
        iterator = begin()
        tf.train.Checkpoint(it=iterator).restore(saved_again)
        assert_array_equal(np.concatenate(list(iterator)), np.arange(2 * (done + more), 42))
