"""`Loader`: (step, epoch) → batch."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import counted
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.blocks import Blocks, BlockTable
from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import buffers, ring
from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError, EmptyError, PositionError
from oocdata.frontends.batching import stack_batches
from oocdata.memory import DEFAULT_MEMORY, set_memory
from oocdata.runs import Run
from oocdata.testing import sample_array


def elements(batches: Iterator[Any]) -> np.ndarray:
    return np.concatenate(list(batches))


def test_epochs_differ_and_seeds_differ() -> None:
    loader = ooc.open(np.arange(100)).batches(10, shuffle=True, seed=3)
    other = ooc.open(np.arange(100)).batches(10, shuffle=True, seed=4)
    orders = [tuple(elements(x.epoch(e))) for x in (loader, other) for e in range(3)]
    assert len(set(orders)) == 6


def test_iter_gives_the_next_epoch() -> None:
    loader = ooc.open(np.arange(20)).batches(6, shuffle=True)
    unused = iter(loader)  # an epoch counts once it has begun
    assert_array_equal(elements(iter(loader)), elements(loader.epoch(0)))
    assert_array_equal(elements(iter(loader)), elements(loader.epoch(1)))
    assert_array_equal(elements(unused), elements(loader.epoch(2)))


def _stored(folder: Path, kind: str) -> View:
    array = sample_array((160, 3, 50, 50))
    if kind == "npy":
        np.save(folder / "a.npy", array)
        return ooc.open(folder / "a.npy")
    if kind == "gzip HDF5":
        with pytest.importorskip("h5py").File(folder / "a.h5", "w") as file:
            file.create_dataset("u", data=array, chunks=(8, 3, 50, 50), compression="gzip")
        return ooc.open(folder / "a.h5", "u")
    made = pytest.importorskip("zarr").create_array(
        folder / "a.zarr", shape=array.shape, dtype="f4", chunks=(8, 3, 50, 50),
        shards=(80, 3, 50, 50),
    )  # fmt: skip
    made[...] = array
    return ooc.open(folder / "a.zarr")


@pytest.mark.parametrize(("kind", "most"), [("npy", 35), ("gzip HDF5", 47), ("Zarr shard", 44)])
def test_calls_of_a_warm_batch(tmp_path: Path, kind: str, most: int) -> None:
    """Python functions called in the thread that reads a batch; each call holds the GIL."""
    if kind == "npy" and not ring._usable:
        pytest.skip("io_uring is not allowed here, and calls are counted with it")
    loader = _stored(tmp_path, kind).batches(32, shuffle="global")
    buffers._pool._reset()  # else the blocks of other tests are searched first
    for step in range(len(loader)):
        loader.batch(step)
    calls = _calls_of(lambda: loader.batch(3))
    assert len(calls) <= most, calls


def test_calls_of_a_row(tmp_path: Path) -> None:
    view = _stored(tmp_path, "npy")
    assert view[7] is not None  # opens the file
    assert len(_calls_of(lambda: view[7])) <= 12


def test_calls_of_small_batches_that_are_read_together() -> None:
    """Calls for each batch of a run: its positions, its bounds, and its tree of arrays."""
    rows = ooc.open(np.zeros((4096, 784), "u1"))
    loader = ooc.zip(rows, rows[:, :64]).batches(4, shuffle="global")
    assert loader.steps_together == 128
    batches = loader.read_requested(Run(0, 0, 128))
    assert len(_calls_of(lambda: loader.read_requested(Run(0, 1, 129)))) <= 7 * 128
    assert len(_calls_of(lambda: stack_batches(batches, loader))) <= 5 * 128


@pytest.mark.parametrize(
    "made",
    [
        lambda v: v.windows(4, 1),
        lambda v: v.next_frame(),
        lambda v: v.windows((-3, -2, -1, 0), pad=True),
        lambda v: ooc.zip({"x": v, "y": v[:, 0, 0]}),
        lambda v: ooc.concat(v[:50], v[50:]),
        lambda v: v.patches((4, 4), step=4),
        lambda v: v.patches((4, 4), per_row=3),
        lambda v: v.map(np.negative),
        lambda v: ooc.stack([v, v]),
        lambda v: ooc.mix({v[:50]: 1, v[50:]: 2}),
    ],
)
def test_calls_of_an_element_and_of_a_list_of_elements(made: Callable[[Any], Any]) -> None:
    """What the dataset alone determines is computed once."""
    dataset, places = made(ooc.open(sample_array((100, 8, 8)))), [5, 20, 11] * 10
    dataset[7], dataset.__getitems__(places)  # computed now
    assert len(_calls_of(lambda: dataset[7])) <= 50
    taken = len(_calls_of(lambda: dataset.take(places)))
    assert len(_calls_of(lambda: dataset.__getitems__(places))) <= taken + 20


def _calls_of(read: Callable[[], Any]) -> list[str]:
    """Return the Python functions that are called."""
    calls: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    buffers.trim()  # memory that was freed is recycled now, not while calls are counted
    sys.setprofile(note)
    read()
    sys.setprofile(None)
    return calls[1:]  # the first is `read`


@pytest.mark.parametrize(("step", "epoch"), [(-1, 0), (3, 0), (0, -1), (0.5, 0), (0, 1.0)])
def test_steps_out_of_range(step: int, epoch: int) -> None:
    loader = ooc.open(np.arange(9)).batches(3)
    with pytest.raises(PositionError, match="step"):
        loader.batch(step, epoch)


def test_starts_out_of_range() -> None:
    loader = ooc.open(np.arange(9)).batches(3)
    with pytest.raises(PositionError, match="start"):
        loader.epoch(0, start=4)


@dataclass(frozen=True, eq=False)
class GatedSource:
    """Lets a read through when the test allows it, and records what was requested."""

    gate: threading.Semaphore
    asked: list[int]

    shape = (1000,)
    dtype = np.dtype("i8")

    def storage(self) -> Storage:
        return Storage("gated")

    def read(self, origins: np.ndarray, extent: Extent, out: np.ndarray) -> None:
        self.asked.append(len(origins))
        assert self.gate.acquire(timeout=60)
        out[...] = origins


def test_read_ahead_is_bounded() -> None:
    source = GatedSource(threading.Semaphore(0), [])
    batches = View.of(source).batches(10).epoch(0)
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
    for thread in set(threading.enumerate()) - before:  # a thread that is reading ends afterwards
        thread.join(60)
        assert not thread.is_alive()


def test_an_error_is_raised_unchanged() -> None:
    @dataclass(frozen=True)
    class Broken:
        shape = (100,)
        dtype = np.dtype("i8")

        def storage(self) -> Storage:
            return Storage("broken")

        def read(self, origins: np.ndarray, extent: Extent, out: np.ndarray) -> None:
            rows = origins[:, 0]
            if 57 in rows:
                raise ooc.errors.DamagedChunkError("a chunk", path="a.h5", key="/u", rows=rows)
            out[...] = origins

    batches = View.of(Broken()).batches(10).epoch(0)
    for _ in range(5):
        next(batches)
    with pytest.raises(ooc.errors.DamagedChunkError, match=r"a\.h5.*'/u'.*rows 50") as caught:
        next(batches)
    assert caught.value.rows == tuple(range(50, 60))


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
        ({"batch_size": 4, "workers": 10**6}, "from 0 to 1024; got 1000000"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        ooc.open(np.arange(10)).batches(**arguments)


@pytest.mark.parametrize("shuffle", [False, True])
def test_numpy_bools_are_accepted(shuffle: bool) -> None:
    view = ooc.open(RecordingSource(np.arange(100), chunks=10))
    own, numpys = view.batches(7, shuffle=shuffle), view.batches(7, shuffle=np.bool_(shuffle))
    assert (numpys.order, numpys.reason) == (own.order, own.reason)


def test_an_empty_dataset() -> None:
    with pytest.raises(EmptyError, match="at least one element"):
        ooc.open(np.arange(10))[:0].batches(2)


class Every(ooc.Order):
    """Orders whose epochs have fewer or more places than the dataset has elements."""

    def __init__(self, places: int) -> None:
        self.places = places

    def epoch_length(self, count: int) -> int:
        return self.places

    def epoch_order(self, count: int, seed: int, epoch: int) -> Any:
        return lambda places: places % count


class Halves(Every):
    """Two lanes of a user's own, read side by side."""

    lanes = 2

    def epoch_order(self, count: int, seed: int, epoch: int) -> Any:
        return lambda places: places


def test_lanes_of_an_order_of_the_users_own() -> None:
    rows = ooc.open(np.arange(8))
    loader = rows.batches(4, shuffle=Halves(8))
    assert [batch.tolist() for batch in loader.epoch(0)] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert [batch.tolist() for batch in loader.shard(2, 1).epoch(0)] == [[4, 5], [6, 7]]
    with pytest.raises(ArgumentError, match="a multiple of the order's lanes, 2; got 3"):
        rows.batches(3, shuffle=Halves(8))
    assert rows[:7].batches(2, shuffle=Halves(7)).positions(3).tolist() == [6]


def test_no_epoch_is_without_batches() -> None:
    rows = ooc.open(np.arange(10))
    with pytest.raises(EmptyError, match=r"at most the 3 elements of an epoch .* got 4"):
        rows.batches(4, shuffle=Every(3), drop_remainder=True)
    with pytest.raises(EmptyError, match=r"at most the 10 elements of an epoch .* got 11"):
        rows.batches(11, drop_remainder=True)


def test_a_batch_is_longer_than_the_dataset_whose_elements_come_again() -> None:
    rows = ooc.open(np.arange(3))
    loader = rows.batches(4, shuffle=Every(10), drop_remainder=True)
    assert elements(loader.epoch(0)).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    mixed = ooc.mix({rows: 1, ooc.open(np.arange(10, 12)): 1}, length=16)
    loader = mixed.batches(8, drop_remainder=True)
    assert elements(loader.epoch(0)).tolist() == elements(mixed.batches(8).epoch(0)).tolist()
    assert len(loader) == 2


@pytest.mark.parametrize(("shards", "index"), [(3, 0), (2, 2), (0, 0), (2, -1)])
def test_wrong_shards(shards: int, index: int) -> None:
    with pytest.raises(ArgumentError):
        ooc.open(np.arange(10)).batches(4).shard(shards, index)


def test_more_shards_than_elements() -> None:
    with pytest.raises(EmptyError, match="at most the 3 elements; got 4"):
        ooc.open(np.arange(3)).batches(4).shard(4, 0)


@pytest.fixture
def small_memory() -> Iterator[None]:
    set_memory(4 << 20)
    yield
    set_memory(DEFAULT_MEMORY)


class TestDecoding:
    """Count the chunks decoded in an epoch, with a cache of 2 MiB."""

    ROWS, CHUNK, ELEMENT = 20_000, 32, 64  # 5 MiB in 625 chunks of 8 KiB

    def view(self) -> tuple[View, Counter[tuple[int, ...]]]:
        array = np.arange(self.ROWS, dtype="f4")[:, None] * np.ones(self.ELEMENT, "f4")
        return counted(array, self.CHUNK, self.ELEMENT)

    @pytest.mark.usefixtures("small_memory")
    @pytest.mark.parametrize(("size", "ranks"), [(256, 1), (32, 2), (256, 8)])
    def test_ranks_decode_their_share(self, size: int, ranks: int) -> None:
        view, decoded = self.view()
        order = ooc.BlockShuffle(self.CHUNK, 64, lanes=16)
        whole = view.batches(size, shuffle=order, seed=3)
        chunks, seen = self.ROWS // self.CHUNK, []
        for index in range(ranks):
            decoded.clear()
            rank = whole.shard(ranks, index)
            seen += [row for step in range(len(rank)) for row in rank.batch(step)[:, 0].tolist()]
            assert decoded.total() <= chunks / ranks + 16 / ranks + 1
            # The loader's estimate equals the count.
            reported = rank.explain().amplification * len(seen) / (index + 1) / self.CHUNK
            assert reported == pytest.approx(decoded.total(), rel=0.02)  # one is cached
        assert sorted(seen) == list(range(self.ROWS // ranks * ranks)) or ranks > 1
        assert len(set(seen)) == len(seen) > self.ROWS - size

    @pytest.mark.usefixtures("small_memory")
    def test_the_default_order_decodes_each_chunk_once(self) -> None:
        view, decoded = self.view()
        loader = view.batches(32, shuffle="block", seed=3)
        assert isinstance(loader.order, ooc.BlockShuffle)
        order = replace(loader.order, blocks_mixed=128)  # half of this cache
        loader = view.batches(32, shuffle=order, seed=3)
        for step in range(len(loader)):
            loader.batch(step)
        lanes = loader.steps.lanes
        assert lanes >= 8
        assert decoded.total() < self.ROWS // self.CHUNK + lanes
        assert max(decoded.values()) <= 2

    @pytest.mark.usefixtures("small_memory")
    @pytest.mark.parametrize(
        "choose",
        [
            pytest.param(lambda n: np.sort(np.arange(2 * n) % n), id="sorted repeats"),
            pytest.param(lambda n: np.roll(np.arange(n), n // 2 + 5), id="swapped halves"),
            pytest.param(lambda n: np.flatnonzero(np.arange(n) % 7 < 4), id="a mask"),
            pytest.param(
                lambda n: np.random.default_rng(0).choice(n, n, replace=True), id="balanced classes"
            ),
        ],
    )
    @pytest.mark.parametrize("windows", [False, True])
    def test_index_arrays_keep_locality(self, choose: Any, windows: bool) -> None:
        view, decoded = self.view()
        dataset = view.windows(2, 1) if windows else view
        chosen = dataset[choose(len(dataset))]
        assert isinstance(chosen.blocks, Blocks | BlockTable)
        loader = chosen.batches(32, shuffle="block", seed=3)
        assert isinstance(loader.order, ooc.BlockShuffle)
        # The blocks that fit half of this cache: 128 chunks, and chunks that windows extend into.
        mixed = 100 * loader.order.blocks.number(len(chosen)) // (self.ROWS // self.CHUNK)
        order = replace(loader.order, blocks_mixed=mixed, lanes=4)
        loader = chosen.batches(32, shuffle=order, seed=3)
        for step in range(len(loader)):
            loader.batch(step)
        assert decoded.total() < (1.25 if windows else 1.01) * self.ROWS // self.CHUNK

    @pytest.mark.usefixtures("small_memory")
    def test_a_global_shuffle_decodes_and_reports_more(self) -> None:
        view, decoded = self.view()
        loader = view.batches(32, shuffle="global", seed=3)
        for step in range(len(loader)):
            loader.batch(step)
        again = decoded.total() / (self.ROWS / self.CHUNK)
        # Single steps are read here; `explain` counts runs of several steps, which share chunks.
        assert again > 10
        assert 0.4 * again < loader.explain().amplification < 1.1 * again


def vast(*shape: int, chunks: tuple[int, ...]) -> View:
    """Return a view of four terabytes in chunks; any read fails."""
    return View.of(Vast(shape, chunks))


@dataclass(frozen=True)
class Vast:
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype = np.dtype("f4")

    def storage(self) -> Storage:
        return Storage("vast", chunks=self.chunks)

    def read(self, origins: np.ndarray, extent: Extent, out: np.ndarray) -> None:
        raise AssertionError("nothing is read")


VAST = {"shape": (10**9, 1000), "chunks": (32, 1000)}


class TestOrder:
    """The order that `shuffle` means."""

    def test_addressable_rows(self) -> None:
        loader = ooc.open(np.arange(10)).batches(2, shuffle=True)
        assert isinstance(loader.order, ooc.Shuffle)
        assert "addressable" in str(loader.explain())

    def test_it_does_not_depend_on_memory(self) -> None:
        view = View.of(Vast(**VAST))
        before = view.batches(32, shuffle=True)
        set_memory(16 << 20)
        try:
            after = view.batches(32, shuffle=True)
            assert after.order == before.order
            assert_array_equal(after.positions(7, 1), before.positions(7, 1))
        finally:
            set_memory(DEFAULT_MEMORY)

    def test_windows_far_apart_mix_as_many_bytes(self) -> None:
        """Few elements start in a chunk, but chunks are of full size."""
        order = View.of(Vast(**VAST)).windows(4, shift=8).batches(32, shuffle=True).order
        assert isinstance(order, ooc.BlockShuffle)
        assert isinstance(order.blocks, Blocks)
        chunks = order.blocks.length * 8 // 32 * order.blocks_mixed
        assert chunks * 32 * 4000 <= 128 << 20

    def test_chunks_that_do_not_fit(self) -> None:
        plain = View.of(Vast(**VAST))[5:].batches(32, shuffle=True)
        assert isinstance(plain.order, ooc.BlockShuffle)
        assert plain.order.blocks == Blocks(32, 27)
        explained = plain.explain()
        assert explained.amplification == pytest.approx(1, abs=0.02)
        pairs = View.of(Vast(**VAST))[5:].next_frame().batches(32, shuffle=True)
        assert isinstance(pairs.order, ooc.BlockShuffle)
        assert (pairs.order.blocks.length % 32, pairs.order.blocks.first) == (0, 27)
        # A pair at the end of a run needs the chunk after it.
        explained_pairs = pairs.explain()
        assert 1.01 < explained_pairs.amplification < 1.1
        for loader, reported in ((plain, explained), (pairs, explained_pairs)):
            assert 100 << 20 < loader.order.elements_mixed(10**9) * 4000 <= 128 << 20
            assert "block shuffle" in str(reported)
        whole = View.of(Vast(**VAST)).batches(32, shuffle="global").explain()
        assert whole.amplification == pytest.approx(32, rel=0.02)

    @pytest.mark.parametrize(("size", "lanes"), [(32, 32), (256, 64), (48, 16), (33, 1), (1, 1)])
    def test_lanes_suit_the_batch_size(self, size: int, lanes: int) -> None:
        loader = View.of(Vast(**VAST)).batches(size, shuffle=True)
        assert loader.order.lanes == lanes

    @pytest.mark.parametrize(
        ("rows", "chunk", "lanes"), [(10_000, 500, 2), (3_200, 32, 8), (40, 32, 1)]
    )
    def test_few_blocks_have_few_lanes(self, rows: int, chunk: int, lanes: int) -> None:
        """A border between lanes cuts a block, which is decoded twice."""
        view = vast(rows, 1000, chunks=(chunk, 1000))
        assert view.batches(64, shuffle="block").order.lanes == lanes

    def test_large_chunks_have_few_lanes(self) -> None:
        """Each lane holds a chunk of 40 MB."""
        order = vast(10**6, 1000, chunks=(10_000, 1000)).batches(32, shuffle=True).order
        assert (order.blocks_mixed, order.lanes) == (3, 2)

    def test_ranks_that_do_not_share_the_lanes(self) -> None:
        loader = View.of(Vast(**VAST)).batches(48, shuffle=True)
        with pytest.raises(ArgumentError, match=r"one of \[1, 2, 4, 8, 16\].*got 3"):
            loader.shard(3, 0)
        assert len(loader.shard(16, 3).positions(0)) == 3

    def test_lanes_of_a_given_order(self) -> None:
        order = ooc.BlockShuffle(32, 64, lanes=8)
        loader = View.of(Vast(**VAST)).batches(24, shuffle=order)
        assert loader.order == order
        with pytest.raises(ArgumentError, match=r"`batch_size` must be a multiple of .* 8; got 12"):
            View.of(Vast(**VAST)).batches(12, shuffle=order)


def noisy(view: Any, batched: bool) -> Any:
    return view.map(lambda x, rng: x + rng.random(x.shape), rng=True, batched=batched)


@pytest.mark.parametrize("shuffle", [False, "global", ooc.BlockShuffle(4, 8, lanes=8)])
def test_ranks_draw_for_themselves(shuffle: Any) -> None:
    """Batched functions differ between ranks; functions of elements depend on the element."""
    view = ooc.open(np.zeros((64, 3)))
    batched = noisy(view, True).batches(16, shuffle=shuffle, seed=5)
    shares = [batched.shard(4, index).batch(1, 2) for index in range(4)]
    assert len({share.tobytes() for share in shares}) == 4
    single = noisy(view, False).batches(16, shuffle=shuffle, seed=5)
    shares = [single.shard(4, index).batch(1, 2) for index in range(4)]
    assert_array_equal(np.concatenate(shares), single.batch(1, 2))


class TestExplain:
    def test_numbers(self) -> None:
        loader = ooc.open(np.zeros((1000, 8, 8), "f4")).next_frame().batches(10)
        reported = loader.explain()
        assert (reported.elements, reported.steps, reported.batch_size) == (999, 100, 10)
        assert reported.batch_bytes == 2 * 10 * 8 * 8 * 4
        assert reported.resident_bytes >= reported.in_flight * reported.batch_bytes
        assert reported.amplification == 1
        assert reported.lanes == 1
        assert reported.mixing is None

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


class Halved:
    """A user's function that happens to have an attribute `tensors`."""

    tensors = 3

    def __call__(self, batch: Any) -> Any:
        return batch / 2


def test_a_function_with_a_tensors_attribute() -> None:
    loader = ooc.open(np.arange(8.0)).map(Halved()).batches(4)
    assert loader.tf_loader is loader


@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_a_batch_much_larger_than_the_dataset(shuffle: Any) -> None:
    rows = np.arange(800.0).reshape(100, 8)
    loader = ooc.open(rows).batches(10**13, shuffle=shuffle)  # 640 TB, if they were there
    for epoch in range(2):
        (batch,) = loader.epoch(epoch)
        assert_array_equal(batch, rows[loader.positions(0, epoch)])
    assert str(loader.explain()).startswith("100 elements of (8,) float64\nin 1 batch")


def test_a_loader_is_no_array():
    loader = ooc.open(np.arange(10)).batches(4)
    with pytest.raises(ArgumentError, match=r"np\.asarray\(view\) or loader\.batch\(0\)"):
        np.asarray(loader)  # NumPy would make an array of one object
