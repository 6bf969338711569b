"""The waist: (step, epoch) -> batch."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from test_sources_memory import Sliced

import oocdata as ooc
from oocdata.errors import ArgumentError, EmptyError, PositionError
from oocdata.testing import RecordingSource, sample_array


def elements(batches: Iterator[Any]) -> np.ndarray:
    return np.concatenate(list(batches))


@given(
    count=st.integers(1, 200),
    batch_size=st.integers(1, 60),
    drop=st.booleans(),
    shuffle=st.sampled_from([False, True, "global", "block", ooc.BlockShuffle(7, 3, 2)]),
    seed=st.integers(-(10**20), 10**20),
    epoch=st.integers(0, 50),
)
def test_an_epoch_is_every_element_once(
    count: int, batch_size: int, drop: bool, shuffle: Any, seed: int, epoch: int
) -> None:
    view = ooc.open(np.arange(count))
    if drop and count < batch_size:
        with pytest.raises(EmptyError, match="batch_size"):
            view.batches(batch_size, shuffle=shuffle, drop_remainder=True)
        return
    loader = view.batches(batch_size, shuffle=shuffle, seed=seed, drop_remainder=drop)
    batches = [loader.batch(step, epoch) for step in range(len(loader))]
    assert all(len(batch) == batch_size for batch in batches[:-1])
    seen = np.concatenate(batches)
    assert len(np.unique(seen)) == len(seen)
    assert len(seen) == (count // batch_size * batch_size if drop else count)
    lengths = {len(batch) for batch in batches}
    assert lengths == {loader.spec.shape[0]} or loader.spec.shape[0] is None


def test_a_batch_is_a_pure_function() -> None:
    loader = ooc.open(np.arange(100)).batches(7, shuffle=True, seed=3)
    twin = pickle.loads(pickle.dumps(loader))
    list(loader)  # iterating changes nothing about what a step holds
    for step, epoch in [(3, 0), (0, 2), (14, 5), (3, 0)]:
        assert_array_equal(loader.batch(step, epoch), twin.batch(step, epoch))


def test_epochs_differ_and_seeds_differ() -> None:
    loader = ooc.open(np.arange(100)).batches(10, shuffle=True, seed=3)
    other = ooc.open(np.arange(100)).batches(10, shuffle=True, seed=4)
    orders = [tuple(elements(x.epoch(e))) for x in (loader, other) for e in range(3)]
    assert len(set(orders)) == 6


def test_iter_gives_the_next_epoch() -> None:
    loader = ooc.open(np.arange(20)).batches(6, shuffle=True)
    unused = iter(loader)  # an epoch counts once it is begun
    assert_array_equal(elements(iter(loader)), elements(loader.epoch(0)))
    assert_array_equal(elements(iter(loader)), elements(loader.epoch(1)))
    assert_array_equal(elements(unused), elements(loader.epoch(2)))


def test_start_reads_nothing_before_it() -> None:
    source = RecordingSource(sample_array((40, 2)))
    loader = ooc.View.of(source).batches(4)
    rest = list(loader.epoch(0, start=8))
    assert sorted(row for rows in source.reads for row in rows) == list(range(32, 40))
    assert_array_equal(np.concatenate(rest), source.array[32:])
    assert list(loader.epoch(0, start=10)) == []


@pytest.mark.parametrize(("step", "epoch"), [(-1, 0), (3, 0), (0, -1), (0.5, 0), (0, 1.0)])
def test_no_such_step(step: int, epoch: int) -> None:
    loader = ooc.open(np.arange(9)).batches(3)
    with pytest.raises(PositionError, match="step"):
        loader.batch(step, epoch)


def test_no_such_start() -> None:
    loader = ooc.open(np.arange(9)).batches(3)
    with pytest.raises(PositionError, match="start"):
        loader.epoch(0, start=4)


@dataclass(frozen=True, eq=False)
class GatedSource:
    """Lets each read through only when it is told to, and counts what was asked for."""

    gate: threading.Semaphore
    asked: list[int]

    shape = (1000,)
    dtype = np.dtype("i8")
    chunk_rows = 1

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        self.asked.append(len(rows))
        assert self.gate.acquire(timeout=30)
        out[...] = rows


def test_read_ahead_is_bounded() -> None:
    source = GatedSource(threading.Semaphore(0), [])
    batches = ooc.View.of(source).batches(10).epoch(0)
    source.gate.release(3)  # the first batch, and the two that may be read ahead
    next(batches)
    source.gate.release(2)
    next(batches)
    assert len(source.asked) <= 4
    source.gate.release(1000)
    batches.close()
    assert len(source.asked) <= 5


def test_an_abandoned_epoch_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    loader = ooc.open(np.arange(1000)).batches(10)
    for batches in [loader.epoch(e) for e in range(20)]:
        next(batches)
        batches.close()
    for thread in set(threading.enumerate()) - before:  # in the midst of a read, it ends after it
        thread.join(60)
        assert not thread.is_alive()


def test_an_error_comes_out_as_itself() -> None:
    @dataclass(frozen=True)
    class Broken:
        shape = (100,)
        dtype = np.dtype("i8")
        chunk_rows = 1

        def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
            if 57 in rows:
                raise ooc.errors.DamagedChunkError("a chunk", path="a.h5", key="/u", rows=rows)
            out[...] = rows

    batches = ooc.View.of(Broken()).batches(10).epoch(0)
    for _ in range(5):
        next(batches)
    with pytest.raises(ooc.errors.DamagedChunkError, match=r"a\.h5.*'/u'.*rows 50") as caught:
        next(batches)
    assert caught.value.rows == tuple(range(50, 60))


@given(count=st.integers(1, 100), shards=st.sampled_from([1, 2, 3, 4, 6]), seed=st.integers(0, 99))
def test_shards_make_up_the_global_batches(count: int, shards: int, seed: int) -> None:
    loader = ooc.open(np.arange(count)).batches(12, shuffle=True, seed=seed)
    if count < shards:
        with pytest.raises(EmptyError):
            loader.shard(shards, 0)
        return
    parts = [loader.shard(shards, index) for index in range(shards)]
    assert len({len(part) for part in parts}) == 1
    for step in range(len(parts[0])):
        shares = [part.batch(step, 4) for part in parts]
        assert len({len(share) for share in shares}) == 1
        whole = np.concatenate(shares)
        assert_array_equal(whole, loader.batch(step, 4)[: len(whole)])
    dropped = count - sum(len(part.batch(s)) for part in parts for s in range(len(part)))
    assert 0 <= dropped < shards


def test_shards_read_only_their_own() -> None:
    source = RecordingSource(sample_array((24, 2)))
    loader = ooc.View.of(source).batches(6).shard(3, 1)
    list(loader.epoch(0))
    assert sorted(row for rows in source.reads for row in rows) == [2, 3, 8, 9, 14, 15, 20, 21]


def test_mapped_draws_depend_on_seed_epoch_and_step_alone() -> None:
    view = ooc.open(np.zeros((30, 2)))
    noisy = view.map(lambda x, rng: x + rng.random(x.shape), rng=True)
    loader = noisy.batches(10, seed=5)
    assert_array_equal(loader.batch(2, 1), loader.batch(2, 1))
    others = [loader.batch(1, 1), loader.batch(2, 0), noisy.batches(10, seed=6).batch(2, 1)]
    assert not any(np.array_equal(loader.batch(2, 1), other) for other in others)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1; got 0"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": 4, "shuffle": "rows"}, "'global', 'block'"),
        ({"batch_size": 4, "shuffle": ooc.Shuffle}, "shuffle"),
        ({"batch_size": 4, "shuffle": 1}, "got 1"),
        ({"batch_size": 4, "shuffle": 0}, "got 0"),
        ({"batch_size": 4, "seed": 1.5}, "seed"),
        ({"batch_size": 4, "workers": 1.5}, "workers"),
        ({"batch_size": 4, "workers": -1}, "workers"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ooc.open(np.arange(10)).batches(**arguments)


@pytest.mark.parametrize("shuffle", [False, True])
def test_bools_of_numpy_are_bools(shuffle: bool) -> None:
    view = ooc.open(RecordingSource(np.arange(100), chunk_rows=10))
    own, numpys = view.batches(7, shuffle=shuffle), view.batches(7, shuffle=np.bool_(shuffle))
    assert (numpys.order, numpys.reason) == (own.order, own.reason)


@pytest.mark.parametrize("kind", ["gzip", "zarr", "object"])
@pytest.mark.parametrize("shuffle", [True, "block"])
def test_rows_of_which_nothing_is_kept(tmp_path: Path, kind: str, shuffle: bool | str) -> None:
    array = np.arange(60.0).reshape(20, 3)
    if kind == "gzip":
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("u", data=array, chunks=(4, 3), compression="gzip")
        view = ooc.open(tmp_path / "a.h5")
    elif kind == "zarr":
        zarr.create_array(tmp_path / "a.zarr", data=array, chunks=(4, 3))
        view = ooc.open(tmp_path / "a.zarr")
    else:
        view = ooc.open(Sliced(array))
    loader = view[:, 0:0].batches(6, shuffle=shuffle)
    assert [batch.shape for batch in loader] == [(6, 0)] * 3 + [(2, 0)]
    assert "20 elements" in str(loader.explain())
    pairs = view[:, 3:].next_frame().batches(6, shuffle=shuffle)
    assert [(x.shape, y.shape) for x, y in pairs][-1] == ((1, 0), (1, 0))


def test_nothing_to_batch() -> None:
    with pytest.raises(EmptyError, match="at least one element"):
        ooc.open(np.arange(10))[:0].batches(2)


@pytest.mark.parametrize(("shards", "index"), [(3, 0), (2, 2), (0, 0), (2, -1)])
def test_wrong_shards(shards: int, index: int) -> None:
    with pytest.raises(ArgumentError):
        ooc.open(np.arange(10)).batches(4).shard(shards, index)


@dataclass(frozen=True)
class Vast:
    """Four terabytes in chunks; reading any of it fails."""

    shape = (10**9, 1000)
    dtype = np.dtype("f4")
    chunk_rows = 32

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        raise AssertionError("nothing is read")


class TestOrder:
    """Which order `shuffle=True` takes."""

    def test_addressable_rows(self) -> None:
        loader = ooc.open(np.arange(10)).batches(2, shuffle=True)
        assert isinstance(loader.order, ooc.Shuffle)
        assert "addressable" in str(loader.explain())

    def test_a_window_of_the_shuffle_keeps_to_the_budget(self) -> None:
        """Windows far apart: few elements start in a chunk, and the chunk is as large as ever."""

        order = ooc.View.of(Vast()).windows(4, shift=8).batches(32, shuffle=True).order
        assert isinstance(order, ooc.BlockShuffle)
        chunks = order.block * 8 // 32 * order.window
        assert chunks * 32 * 4000 <= ooc.chunk_budget() // 2

    def test_chunks_that_all_fit(self) -> None:
        view = ooc.View.of(RecordingSource(sample_array((100, 2)), chunk_rows=8))
        assert isinstance(view.batches(2, shuffle=True).order, ooc.Shuffle)

    def test_chunks_that_do_not_fit(self) -> None:
        plain = ooc.View.of(Vast())[5:].batches(32, shuffle=True)
        assert isinstance(plain.order, ooc.BlockShuffle)
        assert (plain.order.block, plain.order.first) == (32, 27)
        assert plain.explain().amplification == pytest.approx(1, abs=0.001)
        pairs = ooc.View.of(Vast())[5:].next_frame().batches(32, shuffle=True)
        assert isinstance(pairs.order, ooc.BlockShuffle)
        assert (pairs.order.block % 32, pairs.order.first) == (0, 27)
        # A pair at the end of a run needs the chunk after it.
        assert 1.01 < pairs.explain().amplification < 1.1
        for loader in (plain, pairs):
            window_bytes = loader.order.window * loader.order.block * 4000
            assert 100 << 20 < window_bytes <= 128 << 20
            assert "block shuffle" in str(loader.explain())
        whole = ooc.View.of(Vast()).batches(32, shuffle="global").explain()
        assert whole.amplification == pytest.approx(32, rel=0.01)


class TestExplain:
    def test_numbers(self) -> None:
        loader = ooc.open(np.zeros((1000, 8, 8), "f4")).next_frame().batches(10)
        said = loader.explain()
        assert (said.elements, said.steps, said.batch_size) == (999, 100, 10)
        assert said.batch_bytes == 2 * 10 * 8 * 8 * 4
        assert said.resident_bytes >= said.in_flight * said.batch_bytes
        assert said.amplification == 1
        assert said.mixing is None

    def test_words(self) -> None:
        text = str(ooc.open(np.zeros((1000, 8, 8), "f4")).batches(10, shuffle=True).explain())
        for word in (
            "1,000 elements",
            "(8, 8) float32",
            "batches of 10",
            "order",
            "memory at most",
        ):
            assert word in text

    def test_a_mapped_loader(self) -> None:
        view = ooc.open(np.zeros((100, 8), "u1")).map(lambda x: x.astype("f4"))
        assert "float32" in str(view.batches(10).explain())


def test_map_style_dataset_for_pytorch_and_grain() -> None:
    pairs = ooc.open(np.arange(10)).next_frame()
    assert pairs.__getitems__([3, 1]) == [(3, 4), (1, 2)]
    assert pairs[3] == (3, 4)
    assert len(pairs) == 9
