"""Runs of steps: every step once, in order, and the same batches however they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.engines import buffers
from oocdata.engines.buffers import ALIGNMENT
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.memory import DEFAULT_MEMORY, batch_share, set_memory
from oocdata.runs import Pass, Passes, Run, plan_ahead, steps_together

counts = st.integers(1, 40)


@given(st.integers(0, 90), st.integers(1, 200), counts, counts, st.booleans())
def test_a_pass_is_divided_into_runs(
    first: int, length: int, steps: int, together: int, last_alone: bool
) -> None:
    pass_ = Pass(first, length, steps, together, last_alone)
    runs = [pass_.run(number) for number in range(len(pass_))]
    flat = [run.epoch * steps + step for run in runs for step in range(run.start, run.stop)]
    assert flat == list(range(first, first + length))
    assert all(0 <= run.start < run.stop <= steps for run in runs)
    assert all(run.stop - run.start <= together for run in runs)
    lengths = [run.stop - run.start for run in runs]
    assert lengths[0] == 1
    assert all(each <= 8**number for number, each in enumerate(lengths))
    if last_alone:
        assert all(run.stop - run.start == 1 for run in runs if run.stop == steps)
    # Runs end at the same places wherever a pass begins; only the first ones are cut further.
    full = steps - last_alone
    ends = {steps, full, *range(together, full, together)}
    short = len(f"{together:o}")  # 1, 8, 64, … steps
    assert all(run.stop in ends for run in runs[short:-1])


@given(st.integers(1, 10**6), st.integers(0, 10**9))
def test_runs_are_bounded(steps: int, batch_bytes: int) -> None:
    together = steps_together(steps, batch_bytes)
    assert 1 <= together <= max(1, steps // 8)
    assert together == 1 or together * batch_bytes <= 32 << 20
    assert together <= 64 or (together * batch_bytes <= 8 << 20 and together <= 256)


@given(st.integers(1, 64), st.integers(1, 200 << 20), st.integers(1, 16), st.integers(0, 64))
def test_runs_in_flight_fit_the_memory(
    together: int, batch_bytes: int, parallel: int, prefetch: int
) -> None:
    ahead = plan_ahead(together, batch_bytes, parallel, prefetch)
    assert 1 <= ahead.reading <= parallel
    assert 0 <= ahead.ready * together <= prefetch
    least = (ahead.reading, ahead.ready) == (1, 0)
    assert least or ahead.batches * batch_bytes <= batch_share()


@pytest.mark.parametrize("mebibytes", [1, 8, 32, 128, 512, 4096])
def test_a_smaller_memory_reads_less_at_once(mebibytes: int) -> None:
    set_memory(mebibytes << 20)
    try:
        together = steps_together(10**6, 100_000)
        ahead = plan_ahead(together, 100_000, 2, 2)
        assert together == 1 or ahead.batches * 100_000 <= batch_share()
        assert ahead.reading == 2 or mebibytes == 1
    finally:
        set_memory(DEFAULT_MEMORY)


@pytest.mark.parametrize(
    ("size", "dtype"), [(32, "u1"), (3, "f8"), (33, "f4"), (16, "f8")], ids=str
)
def test_batches_of_any_size_share_a_read(size: int, dtype: str) -> None:
    """Labels of one byte in batches of 33: each batch still begins at a multiple of 64 bytes."""
    pixels = RecordingSource(np.arange(6400 * 9).reshape(6400, 9).astype("u1"))
    labels = RecordingSource((np.arange(6400) % 250).astype(dtype))
    both = ooc.zip(View.of(pixels), View.of(labels))
    loader = both.batches(size, shuffle="global", seed=5)
    together = loader.steps_together
    assert together > 8
    batches = loader.read(Run(2, 3, 3 + together))
    assert len(pixels.reads) == len(labels.reads) == 1
    for step, batch in enumerate(batches, start=3):
        for array, alone in zip(batch, loader.batch(step, 2), strict=True):
            assert_array_equal(array, alone)
            assert array.dtype == alone.dtype
            assert array.ctypes.data % ALIGNMENT == 0
            assert array.flags.c_contiguous
            assert array.flags.writeable


def test_a_kept_batch_keeps_its_own_memory() -> None:
    view = ooc.open(np.zeros((6400, 512)))  # 4 KiB a row
    kept = [view.batches(16).read(Run(0, 0, 8))[3] for _ in range(3)]
    for batch in kept:
        owner: Any = batch
        while type(owner) is np.ndarray:
            owner = owner.base
        # The batch keeps the run's memory alive, but pages of the other batches are released.
        assert batch.nbytes == 16 * 4096
        assert type(owner).__name__ == "_Mapping"


def test_the_last_run_of_an_epoch_has_memory_for_a_full_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shorter block would be mapped anew in each epoch."""
    cut: list[int] = []
    monkeypatch.setattr(buffers._Block, "shrink", lambda block, nbytes: cut.append(nbytes))
    rows = np.zeros((6500, 4096), "u1")
    frames = ooc.open(rows)
    loader = ooc.zip(frames, frames[:, :64]).batches(16)
    assert len(loader) % loader.steps_together
    for epoch in range(3):
        assert sum(len(x) for x, _ in loader.epoch(epoch)) == 6500
        assert sum(len(x) for x, _ in loader.to_tf()) == 6500
    large = ooc.open(np.zeros((40, 1 << 20), "u1")).batches(16)
    assert large.steps_together == 1
    for epoch in range(3):
        assert [len(batch) for batch in large.epoch(epoch)] == [16, 16, 8]
    assert cut == []


def loader_of(source: RecordingSource, size: int, **options: Any) -> ooc.Loader:
    return View.of(source).batches(size, shuffle="global", seed=5, **options)


def runs_of(source: RecordingSource) -> list[list[list[int]]]:
    """Origins of each read, except reads of single rows for the array's fingerprint."""
    return [origins for origins in list(source.reads) if len(origins) > 1]


@pytest.mark.parametrize("way", [iter, lambda loader: iter(loader.to_tf())], ids=["NumPy", "tf"])
@pytest.mark.parametrize(
    ("count", "drop"), [(3200, False), (3200 - 7, False), (3200 - 7, True)], ids=str
)
def test_small_batches_share_a_read(way: Any, count: int, drop: bool) -> None:
    pytest.importorskip("tensorflow")
    source = RecordingSource(np.arange(count * 8.0).reshape(count, 8))
    loader = loader_of(source, 16, drop_remainder=drop)
    assert loader.steps_together == len(loader) // 8
    batches = list(way(loader))
    assert len(batches) == len(loader)
    short = count % 16 > 0 and not drop  # read by itself
    full = len(loader) - short
    runs = -(-full // loader.steps_together) + short
    assert len(runs_of(source)) == runs + 2  # the first is cut: 1 step, 8, and the rest
    one_by_one = [loader.batch(step) for step in range(len(loader))]
    for together, alone in zip(batches, one_by_one, strict=True):
        assert_array_equal(together, alone)
        assert np.asarray(memoryview(together)).ctypes.data % ALIGNMENT == 0


def test_runs_of_chunks_grow(tmp_path: Path) -> None:
    """The first batch of compressed chunks comes as soon as if it were read alone."""
    array = np.arange(3200 * 8.0).reshape(3200, 8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=array, chunks=(10, 8), compression="gzip")
    loader = ooc.open(tmp_path / "a.h5", "x").batches(16, shuffle="global", seed=5)
    pass_ = loader.pass_from(0)
    assert [pass_.run(number).stop for number in range(4)] == [1, 9, 25, 50]
    decoded: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        whole = FilteredChunks.read_chunks

        def counting(self: Any, places: Any, outs: Any) -> None:
            decoded.append(len(outs))
            whole(self, places, outs)

        patch.setattr(FilteredChunks, "read_chunks", counting)
        for _ in loader.epoch(0, parallel=1, prefetch=0):
            break
    assert sum(decoded) <= 16 + 8 * 16  # the run after it is read meanwhile
    assert_array_equal(np.sort(np.concatenate(list(loader.epoch(0))), axis=0), array)


def test_shards_share_reads_too() -> None:
    source = RecordingSource(np.arange(3205 * 8.0).reshape(3205, 8))
    whole = loader_of(source, 32)
    parts = [whole.shard(2, index) for index in range(2)]
    assert parts[0].steps_together > 1
    for step, both in enumerate(zip(*map(iter, parts), strict=True)):
        expected = whole.batch(step)
        assert_array_equal(np.concatenate(both), expected[: len(expected) // 2 * 2])
    for part in parts:
        assert_array_equal(np.concatenate(list(part.to_tf())), np.concatenate(list(part.epoch(0))))


@pytest.mark.parametrize(
    "make",
    [
        lambda view: view.map(lambda x: np.zeros((len(x), 100_000))).batches(16),
        lambda view: view.map(lambda x: x + 1).batches(16, workers=1),
        lambda view: View.of(RecordingSource(np.zeros((3200, 10001)))).batches(15),
        lambda view: view[:100].batches(16),
    ],
    ids=["large results of a function", "worker processes", "large and unaligned", "a short epoch"],
)
def test_steps_that_are_read_one_by_one(make: Any) -> None:
    source = RecordingSource(np.arange(3200.0))
    loader = make(View.of(source))
    assert loader.steps_together == 1
    if loader.dataset.sources() == [source] and not loader.workers:
        list(loader)
        # A map reads one more element, to infer its spec.
        assert len(source.reads) - len(loader) in (0, 1)


@pytest.mark.parametrize("nested", [False, True])
def test_a_function_gets_one_batch_at_a_time(nested: bool) -> None:
    source = RecordingSource(np.arange(3200.0))
    lengths: list[int] = []

    def add_noise(x: Any, rng: np.random.Generator) -> Any:
        lengths.append(len(x))
        x += rng.random(len(x))  # in place: the batch is its own
        return x

    dataset: Any = View.of(source).map(add_noise, rng=True, spec=ooc.ArraySpec((), "f8"))
    if nested:
        dataset = ooc.zip(dataset, View.of(source)).map(lambda x, y: x + y)
    loader = dataset.batches(15, shuffle=True, seed=3)
    assert loader.steps_together == 8
    expected = [loader.batch(step, 1) for step in range(len(loader))]
    lengths.clear()
    source.reads.clear()
    found = list(loader.epoch(1))
    for batch, alone in zip(found, expected, strict=True):
        assert_array_equal(batch, alone)
    assert sorted(lengths) == [5] + [15] * 213
    assert len(source.reads) == (2 * 29 if nested else 29)  # arguments of a run are read at once
    assert_array_equal(np.concatenate([*loader.to_tf(start=(1, 0))]), np.concatenate(expected))


def test_a_run_reads_no_step_but_its_own() -> None:
    source = RecordingSource(np.arange(3200 * 8.0).reshape(3200, 8))
    loader = View.of(source).batches(16)
    loader.read(Run(0, 3, 5))
    assert_array_equal(np.concatenate(source.rows), np.arange(48, 80))


def test_starting_within_an_epoch_reads_no_earlier_step() -> None:
    pytest.importorskip("tensorflow")
    source = RecordingSource(np.arange(3200 * 8.0).reshape(3200, 8))
    loader = View.of(source).batches(16)
    for drawn in (loader.epoch(0, start=37), loader.to_tf(start=(0, 37))):
        source.reads.clear()
        assert_array_equal(next(iter(drawn)), loader.batch(37))
        assert min(min(origins) for origins in runs_of(source)) == [37 * 16, 0]


def test_batches_of_a_run_are_separate_memory() -> None:
    view = ooc.open(np.arange(3200 * 8.0).reshape(3200, 8))
    kept = []
    for batch in view.batches(16):
        batch += 1  # yours to change
        kept.append(batch)
    assert_array_equal(np.concatenate(kept), np.arange(3200 * 8.0).reshape(3200, 8) + 1)


def test_no_batch_of_a_run_ever_changes() -> None:
    """Keep random tensors while thousands more are read into recycled memory."""
    pytest.importorskip("tensorflow")
    array = np.random.default_rng(0).random((4000, 16))
    loader = ooc.open(array).batches(8, shuffle=True, seed=1)
    assert loader.steps_together > 16
    kept = []
    rng = np.random.default_rng(2)
    for epoch in range(3):
        for step, batch in enumerate(loader.to_tf(start=(epoch, 0))):
            if rng.random() < 0.1:
                kept.append((batch, loader.positions(step, epoch)))
            if len(kept) > 40:
                batch, positions = kept.pop(int(rng.integers(40)))
                assert_array_equal(batch, array[positions])
    for batch, positions in kept:
        assert_array_equal(batch, array[positions])


def test_runs_from_a_store_are_smaller() -> None:
    assert steps_together(10_000, 1 << 20, far=True) < steps_together(10_000, 1 << 20)


def test_passes_follow_on_one_another() -> None:
    passes = Passes(lambda end: Pass(first=end, length=10, steps=10, together=2))
    assert [passes().first, passes().first] == [0, 10]
    passes.follow(Pass(first=50, length=10, steps=10, together=2))
    assert passes().first == 60
