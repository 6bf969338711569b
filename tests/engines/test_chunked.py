"""`Chunked` over a reader that counts which chunks are decoded, and how often."""

from __future__ import annotations

import _thread
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boxes import check_boxes
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import decoding
from oocdata.engines.cache import cache
from oocdata.engines.chunked import Chunked
from oocdata.engines.gather import boxes as gathering
from oocdata.engines.source import Source, Storage
from oocdata.errors import DamagedChunkError, SourceError, UnknownFormatError
from oocdata.testing import SourceConformance, boxes_of, sample_array


@dataclass(frozen=True, eq=False)
class CountingReader:
    """An array in memory, whose decoded chunks are counted."""

    array: NDArray[Any]
    chunk_shape: tuple[int, ...]
    own_threads: bool = False
    damaged: frozenset[int] = frozenset()
    count: Counter[tuple[int, ...]] = field(default_factory=Counter)
    calls: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype.newbyteorder("=")

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        assert len(places) == len(outs)
        self.calls.append(len(outs))
        for place, out in zip(places.tolist(), outs, strict=True):
            self.count[tuple(place)] += 1
            if place[0] in self.damaged:
                raise DamagedChunkError("must decode; it does not.", rows=[place[0]])
            steps = zip(place, self.chunk_shape, strict=True)
            out[...] = self.array[tuple(slice(at * n, (at + 1) * n) for at, n in steps)]

    def check(self) -> None:
        if self.changed:
            raise SourceError("the file must be as it was.", path="a.h5")

    def storage(self) -> Storage:
        return Storage("counting", chunks=self.chunk_shape)


def counted(
    shape: tuple[int, ...], chunks: tuple[int, ...], **options: Any
) -> tuple[NDArray[Any], CountingReader, View]:
    reader = CountingReader(sample_array(shape), chunks, **options)
    return reader.array, reader, View.of(Chunked(reader))


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Set a budget so small that every read is done in parts."""
    monkeypatch.setattr(cache, "budget", lambda: getattr(request, "param", 1))
    return


@contextmanager
def gathered(pieces: bool) -> Iterator[None]:
    """Gather all boxes by pieces, or by points."""
    with pytest.MonkeyPatch.context() as patched:
        for limit in ("_POINTS_PER_PIECE", "_CUT_POINTS_PER_PIECE"):
            patched.setattr(gathering, limit, 0 if pieces else 1 << 40)
        gathering.plan_points.cache_clear()
        yield
    gathering.plan_points.cache_clear()


class TestChunks(SourceConformance):
    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        chunks = tuple(min(length, 4) for length in array.shape)
        return Chunked(CountingReader(array, chunks))

    def test_pickle(self, tmp_path: Path) -> None:
        pytest.skip("another process counts for itself")


@pytest.mark.usefixtures("budget")
class TestChunksOneAtATime(TestChunks):
    dtypes = ("<f4",)


@pytest.mark.parametrize("pieces", [False, True], ids=["by points", "by pieces"])
@pytest.mark.parametrize("own_threads", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_boxes_of_chunks(chunk: int, own_threads: bool, pieces: bool) -> None:
    array, _, view = counted(
        (23, 3, 5, 4), tuple(min(n, chunk) for n in (23, 3, 5, 4)), own_threads=own_threads
    )
    with gathered(pieces):
        check_boxes(view.source, array)


def test_each_chunk_is_decoded_once_a_batch_and_found_by_the_next():
    array, reader, view = counted((103, 6), (10, 6))
    rows = np.random.default_rng(0).integers(0, 103, 200)
    for _ in range(2):
        assert_array_equal(view.take(rows), array[rows])
    assert reader.count == {(number, 0): 1 for number in range(11)}


def test_chunks_of_one_row_are_cached_too():
    """A frame is the target of one pair and the input of the next."""
    array, reader, view = counted((100, 6), (1, 6))
    x, y = view.next_frame().take([7, 8, 9])
    assert_array_equal(np.concatenate([x, y]), array[[7, 8, 9, 8, 9, 10]])
    assert reader.count == {(row, 0): 1 for row in (7, 8, 9, 10)}


@pytest.mark.parametrize("pieces", [False, True], ids=["by points", "by pieces"])
@pytest.mark.parametrize("limit", [1 << 20, 1], ids=["at once", "in parts"])
def test_only_the_chunks_that_boxes_cover_are_decoded(
    limit: int, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patches decode each chunk that a box touches, once."""
    monkeypatch.setattr(cache, "budget", lambda: limit)
    reader = CountingReader(sample_array((20, 64, 96)), (1, 16, 32))
    source, extent = Chunked(reader), Extent((1, 16, 16), (1, 1, 1))
    rng = np.random.default_rng(0)
    origins = np.stack([rng.integers(0, n, 40) for n in (20, 49, 81)], axis=1)
    out = np.empty((40, *extent.lengths), "f4")
    with gathered(pieces):
        source.read(origins, extent, out)
    assert_array_equal(out, boxes_of(reader.array, origins, extent))
    covered = {
        (row, i, j)
        for row, y, x in origins.tolist()
        for i in range(y // 16, (y + 15) // 16 + 1)
        for j in range(x // 32, (x + 15) // 32 + 1)
    }
    assert set(reader.count) == covered
    if limit > 1:
        assert set(reader.count.values()) == {1}


def test_only_the_chunks_of_a_cropped_view_are_decoded():
    array, reader, view = counted((40, 30, 20), (10, 5, 20))
    cut = view[:, 12, 3:9:2]
    assert_array_equal(cut.take([5, 25]), array[[5, 25], 12, 3:9:2])
    assert reader.count == {(0, 2, 0): 1, (2, 2, 0): 1}


def test_windows_along_a_chunked_axis():
    array, reader, view = counted((40, 6), (8, 6))
    got = view.windows(5).take([3, 6, 30])
    assert_array_equal(got, [array[start : start + 5] for start in (3, 6, 30)])
    assert reader.count == {(0, 0): 1, (1, 0): 1, (3, 0): 1, (4, 0): 1}


def test_windows_of_several_sample_axes_decode_their_frames_once():
    array = sample_array((4, 10, 3, 2))
    reader = CountingReader(array, (1, 1, 3, 2))
    windows = View.of(Chunked(reader), (0, 1)).windows(3)
    assert_array_equal(windows.take([0, 1]), [array[0, :3], array[0, 1:4]])
    assert reader.count == {(0, time, 0, 0): 1 for time in range(4)}


@pytest.mark.parametrize("length", [3, 90], ids=["short", "long"])
def test_short_and_long_windows(length: int):
    array, _, view = counted((500, 5), (100, 2))
    starts = np.random.default_rng(0).integers(0, 500 - length, 20)
    got = view.windows(length).take(starts)
    assert_array_equal(got, [array[start : start + length] for start in starts])


@pytest.mark.parametrize("budget", [40 * 400], indirect=True)
@pytest.mark.usefixtures("budget")
def test_more_chunks_than_may_be_pinned_and_small_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gathering, "_SCRATCH_BYTES", 100)  # four rows at a time
    array, _, view = counted((400, 3, 2), (5, 2, 2))
    rows = np.random.default_rng(0).integers(0, 400, 300)
    assert_array_equal(view.take(rows), array[rows])
    assert_array_equal(view.astype("f8").take(rows), array[rows])
    assert_array_equal(view[:, 1, ::-1].take(rows), array[rows][:, 1, ::-1])
    starts = rows[rows < 395]
    got = view.windows(4).take(starts)
    assert_array_equal(got, np.stack([array[starts + place] for place in range(4)], axis=1))


def test_a_few_new_chunks_are_decoded_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are gathered in one go, and no chunk that is needed is evicted."""
    array, reader, view = counted((4 * 40, 4), (4, 4))
    monkeypatch.setattr(cache, "budget", lambda: 16 * array[:4].nbytes)
    cache.forget()
    view.take(np.arange(4 * 16))
    gathers: list[int] = []
    take = gathering._take
    monkeypatch.setattr(
        gathering, "_take", lambda *given: (gathers.append(len(given[2])), take(*given))
    )
    reader.count.clear()
    rows = np.array([0, 71, 3, 39, 20, 64, 0, 12])
    assert_array_equal(view.take(rows), array[rows])
    assert reader.count == {(16, 0): 1, (17, 0): 1}
    assert gathers == [len(rows)]
    assert_array_equal(view.take(rows[::-1]), array[rows[::-1]])
    assert reader.count.total() == 2


@pytest.mark.parametrize(
    ("budget", "chunk"),
    [
        *((40, chunk) for chunk in [(7, 1), (7, 2), (1, 1), (400, 1)]),
        *((budget, chunk) for budget in (3 * 28, 16 * 28) for chunk in [(7, 1), (7, 2)]),
        (1 << 20, (7, 1)),
    ],
    indirect=["budget"],
    ids=str,
)
@pytest.mark.usefixtures("budget")
def test_columns_of_single_numbers(monkeypatch: pytest.MonkeyPatch, chunk: tuple[int, int]):
    """They are gathered column by column, some elements at a time."""
    monkeypatch.setattr(gathering, "_SCRATCH_BYTES", 100)
    array, _, view = counted((400, 5), chunk)
    rows = np.random.default_rng(0).integers(0, 400, 30)
    for wanted, expected in (
        (view, array),
        (view[:, ::-2], array[:, ::-2]),
        (view[:, 1:3], array[:, 1:3]),
    ):
        assert_array_equal(wanted.take(rows), expected[rows])
        assert_array_equal(wanted.astype("f8").take(rows), expected[rows])
        starts = rows[rows < 395]
        got = wanted.windows(4).take(starts)
        assert_array_equal(got, np.stack([expected[starts + place] for place in range(4)], axis=1))


def test_two_crops_do_not_share_a_plan():
    array, _, view = counted((40, 30), (10, 30))
    for cut in (slice(0, 5), slice(5, 10), slice(0, 10, 5), slice(None), slice(None, None, -1)):
        assert_array_equal(view[:, cut].take([3, 12]), array[[3, 12]][:, cut])


def test_plans_of_random_crops_are_forgotten():
    """Each crop has a plan of its own, by its origin."""
    reader = CountingReader(sample_array((4, 99, 99)), (1, 33, 33))
    source, extent, out = Chunked(reader), Extent((1, 8, 8), (1, 1, 1)), np.empty((1, 1, 8, 8))
    for y in range(90):
        for x in range(0, 90, 30):
            source.read(np.array([[2, y, x]]), extent, out)
    assert gathering.plan_points.cache_info().currsize <= 64


def test_two_arrays_do_not_share_a_chunk_and_two_opens_of_one_do():
    reader = CountingReader(sample_array((40, 3)), (10, 3))
    other = CountingReader(reader.array + 1000, (10, 3))
    views = [View.of(Chunked(one)) for one in (reader, other, reader)]
    for view, array in zip(views, (reader.array, other.array, reader.array), strict=True):
        assert_array_equal(view.take([3]), array[[3]])
    assert reader.count == other.count == {(0, 0): 1}


def test_batches_do_not_alias_the_cache():
    array, _, view = counted((40, 3), (10, 3))
    for rows in ([3, 4], range(10), [0]):
        batch = view.take(rows)
        batch[...] = -1
        assert_array_equal(view.take(rows), array[np.asarray(rows)])


def test_a_read_of_all_chunks_begins_where_the_last_one_stands(monkeypatch: pytest.MonkeyPatch):
    """Two threads that each read all of a long array share the chunks, wherever they begin."""
    array, reader, view = counted((800, 4), (10, 4))
    monkeypatch.setattr(cache, "budget", lambda: array.nbytes // 2)  # a read is in 8 parts
    rows = np.random.default_rng(0).permutation(800)
    assert_array_equal(view.take(rows), array[rows])
    assert reader.count.total() == 80
    assert_array_equal(view.take(rows), array[rows])
    assert reader.count.total() == 80 + 70  # the last part was cached


def test_a_read_stands_where_it_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another read that begins meanwhile shares these chunks, not those decoded before."""
    array, _, view = counted((64, 3), (1, 3))
    monkeypatch.setattr(cache, "budget", lambda: array.nbytes // 2)
    chunked: Any = view.source
    decode, stands = CountingReader.read_chunks, []

    def read_chunks(self: CountingReader, places: NDArray[np.int64], outs: Any) -> None:
        stands.append((chunked.cached.reading, int(places[0, 0])))
        decode(self, places, outs)

    monkeypatch.setattr(CountingReader, "read_chunks", read_chunks)
    assert_array_equal(view.take(np.arange(64)), array)
    assert stands == [(first, first) for first in range(0, 64, 8)]


def test_a_damaged_chunk_is_named_and_the_others_are_read():
    array, reader, view = counted((100, 6), (10, 6), damaged=frozenset([3, 4]))
    with pytest.raises(DamagedChunkError, match=r"rows? [34]\]"):
        view.take([3, 33, 44, 55])
    assert_array_equal(view.take([3, 55, 99]), array[[3, 55, 99]])
    reader.count.clear()
    with pytest.raises(DamagedChunkError):  # again, and not from the cache
        view.take([33])
    assert reader.count == {(3, 0): 1}


def test_a_changed_file_is_an_error_with_rows_even_if_all_is_cached():
    array, reader, view = counted((100, 6), (10, 6))
    assert_array_equal(view.take([7, 4]), array[[7, 4]])
    reader.changed.append(1)
    with pytest.raises(SourceError, match="rows 7, 4") as caught:
        view.take([7, 4])
    assert caught.value.rows == (7, 4)


def test_parallel_batches_decode_a_chunk_once():
    array, reader, view = counted((200, 8), (20, 8))
    start = threading.Barrier(6)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(20):
            rows = rng.integers(0, 200, 16)
            assert_array_equal(view.take(rows), array[rows])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert set(reader.count.values()) == {1}


def test_a_grid_of_more_chunks_than_forty_bits_number():
    """The chunks of two arrays, numbered from 2**40, are not mistaken for one another."""
    memory = np.lib.stride_tricks.as_strided(sample_array((5,)), (1 << 30, 1 << 15, 5), (0, 0, 4))
    sources = [Chunked(CountingReader(memory, (1, 1, 5))) for _ in "ab"]
    out = np.empty((2, 1, 1, 5), "f4")
    origins = np.array([[(1 << 30) - 1, 5, 0], [1 << 25, (1 << 15) - 1, 0]])
    for source in sources:
        source.read(origins, Extent.of((1, 1, 5)), out)
        places = {tuple(place) for place in origins.tolist()}
        assert {(*place[:2], 0) for place in places} == set(source.reader.count)
        assert_array_equal(out[:, 0, 0], [memory[0, 0]] * 2)


class Endless(CountingReader):
    shape = (1 << 31, 1 << 31, 2)  # type: ignore[assignment]


def test_a_grid_of_more_chunks_than_there_are_numbers():
    with pytest.raises(UnknownFormatError, match="chunks"):
        Chunked(Endless(np.zeros((1, 1, 1)), (1, 1, 1)))


@given(st.data())
def test_any_boxes_of_any_chunks(data: st.DataObject):
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple))
    chunks = data.draw(st.tuples(*[st.integers(1, length) for length in shape]))
    lengths = data.draw(st.tuples(*[st.integers(1, length) for length in shape]))
    strides = tuple(
        data.draw(st.integers(1, (n - 1) // (length - 1))) if length > 1 else 1
        for n, length in zip(shape, lengths, strict=True)
    )
    extent = Extent(lengths, strides)
    most = [n - span for n, span in zip(shape, extent.spans, strict=True)]
    origin = st.tuples(*[st.integers(0, n) for n in most])
    origins = np.array(data.draw(st.lists(origin, min_size=1, max_size=6)), np.int64)
    if data.draw(st.booleans()):
        origins[:, 1:] = origins[:1, 1:]
    reader = CountingReader(sample_array(shape, "i4"), chunks)
    source = Chunked(reader)
    expected = boxes_of(reader.array, origins, extent)
    with gathered(data.draw(st.booleans())), pytest.MonkeyPatch.context() as patched:
        patched.setattr(gathering, "_POINTS_AT_ONCE", data.draw(st.sampled_from([9, 1 << 14])))
        if data.draw(st.booleans()):
            patched.setattr(cache, "budget", lambda: prod(chunks) * 4 * 8)
        out = np.empty(expected.shape, data.draw(st.sampled_from(["i4", "f8"])))
        source.read(origins, extent, out)
        assert_array_equal(out, expected)
        order = data.draw(st.permutations(range(out.ndim)))
        turned = np.zeros([out.shape[axis] for axis in order], "i4").transpose(np.argsort(order))
        source.read(origins, extent, turned)
        assert_array_equal(turned, expected)
    steps = np.indices(lengths).reshape(len(shape), -1).T * strides
    covered = {tuple(place) for at in origins for place in ((at + steps) // chunks).tolist()}
    assert set(reader.count) == covered


def test_an_interrupt_ends_the_wait_and_decoding_continues():
    array, reader, view = counted((100, 6), (10, 6))
    decode, ended = CountingReader.read_chunks, threading.Event()

    def slow(self: CountingReader, *arguments: Any) -> None:
        _thread.interrupt_main()
        for _ in range(100):
            sum(range(10_000))
        decode(self, *arguments)
        ended.set()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CountingReader, "read_chunks", slow)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            view.take([3, 55])
            ended.wait(30)  # the interrupt may come as late as here
        assert ended.wait(30)
    assert_array_equal(view.take([3, 55]), array[[3, 55]])
    assert reader.count == {(0, 0): 1, (5, 0): 1}
    assert view.source.cached.slots.pinned() == set()  # type: ignore[attr-defined]


def test_a_thread_in_hdf5_waits_for_no_other(monkeypatch: pytest.MonkeyPatch):
    """In a callback of h5py, the thread that decodes the chunk may wait for HDF5's lock."""
    array, reader, view = counted((100, 6), (10, 6))
    monkeypatch.setattr("oocdata.engines.decoding.holds_hdf5", lambda: True)
    monkeypatch.setattr("oocdata.engines.slots.in_decoding_thread", None)
    assert_array_equal(view.take([3, 55]), array[[3, 55]])
    assert reader.count == {(0, 0): 1, (5, 0): 1}
    assert view.source.cached.used_bytes == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunk", [(10, 64), (10, 40)], ids=["whole rows", "rows cut by chunks"])
@pytest.mark.parametrize("scattered", [False, True])
def test_two_threads_copy_the_boxes_of_a_large_batch(
    monkeypatch: pytest.MonkeyPatch, scattered: bool, chunk: tuple[int, int]
) -> None:
    array, _, _ = counted((1000, 64), chunk)
    source, both = Chunked(CountingReader(array, chunk)), threading.Barrier(2)
    take: Any = gathering._take

    def together(*args: Any) -> None:
        both.wait(60)  # broken if one thread copies all
        take(*args)

    monkeypatch.setattr(gathering, "_take", together)
    monkeypatch.setattr(gathering, "_TASK_BYTES", 16 * 256)
    monkeypatch.setattr(gathering, "cores", lambda: 2)
    monkeypatch.setattr(decoding, "cores", lambda: 2)
    rows = np.random.default_rng(0).integers(0, 1000, 33)
    origins = np.stack([rows, np.zeros_like(rows)], axis=1)
    places = np.arange(33) * 2 if scattered else None
    out = np.zeros((66 if scattered else 33, 1, 64), "f4")
    source.read(origins, Extent.of((1, 64)), out, places)
    assert_array_equal(out[:: 2 if scattered else 1, 0], array[rows])


def test_calls_of_a_warm_read():
    array, _, _ = counted((1000, 64), (10, 64))
    source = Chunked(CountingReader(array, (10, 64)))
    rows = np.random.default_rng(0).integers(0, 1000, 32)
    origins = np.stack([rows, np.zeros_like(rows)], axis=1)
    extent, out = Extent.of((1, 64)), np.empty((32, 1, 64), "f4")
    source.read(origins, extent, out)
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, _: calls.update([event]))
    source.read(origins, extent, out)
    sys.setprofile(None)
    assert calls["call"] + calls["c_call"] <= 48
    assert_array_equal(out[:, 0], array[rows])
