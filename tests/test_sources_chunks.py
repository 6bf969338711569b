"""The chunks engine over a reader that counts: which boxes are read, and how often."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.errors import DamagedChunkError
from oocdata.sources.chunks import ChunkReader, Chunks
from oocdata.sources.slots import DEFAULT_BUDGET, chunk_budget, set_chunk_budget
from oocdata.sources.source import Layout, Source
from oocdata.testing import SourceConformance, sample_array


@dataclass(frozen=True, eq=False)
class CountingReader:
    """An array in memory, read by boxes that are remembered."""

    array: np.ndarray
    chunk_shape: tuple[int, ...]
    boxes: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    damaged: frozenset[int] = frozenset()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype.newbyteorder("=")

    def read_box(self, box: tuple[slice, ...]) -> np.ndarray:
        assert len(box) == self.array.ndim
        for part, length in zip(box, self.shape, strict=True):
            assert 0 <= part.start < part.stop <= length
            assert part.step is None
        self.boxes.append(tuple((part.start, part.stop) for part in box))
        if box[0].start in self.damaged:
            raise DamagedChunkError("must decode; it does not.", rows=[box[0].start])
        return self.array[box].astype(self.dtype)

    def layout(self) -> Layout:
        return Layout("counting", None, None, "chunks", "none", None, "by boxes")


def counted(
    shape: tuple[int, ...], chunks: tuple[int, ...], axis: int = 0, **options: Any
) -> tuple[np.ndarray, CountingReader, View]:
    reader = CountingReader(sample_array(shape), chunks, **options)
    return np.moveaxis(reader.array, axis, 0), reader, View.of(Chunks.of(reader, axis))


@pytest.fixture
def few_slots() -> Iterator[None]:
    """A budget so small that every lease must be cut up."""
    usual = chunk_budget()
    set_chunk_budget(1)
    yield
    set_chunk_budget(usual)


class TestSingleRows(SourceConformance):
    chunk = 1

    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        chunks = tuple(min(length, self.chunk) for length in array.shape)
        return Chunks.of(CountingReader(array, chunks), axis)


class TestChunks(TestSingleRows):
    chunk = 4


@pytest.mark.usefixtures("few_slots")
class TestChunksInFewSlots(TestSingleRows):
    chunk = 4


class TestOneChunk(TestSingleRows):
    chunk = 1000


@dataclass(frozen=True, eq=False)
class InPlaceReader(CountingReader):
    """Decodes straight into the places it is given, as HDF5 and Zarr readers do."""

    own_threads: bool = False
    calls: list[int] = field(default_factory=list)

    def read_boxes(self, boxes: Sequence[tuple[slice, ...]], outs: Sequence[np.ndarray]) -> None:
        assert len(boxes) == len(outs)
        self.calls.append(len(boxes))
        for box, out in zip(boxes, outs, strict=True):
            out[...] = self.read_box(box)


class TestChunksInPlace(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        chunks = tuple(min(length, 3) for length in array.shape)
        reader = InPlaceReader(array, chunks)
        assert isinstance(reader, ChunkReader)
        return Chunks.of(reader, axis)


@pytest.mark.parametrize("own_threads", [False, True])
def test_chunks_are_dealt_out_in_portions_or_all_at_once(own_threads: bool):
    array = sample_array((400, 8192))  # 32 KiB a row
    reader = InPlaceReader(array, (4, 8192), own_threads=own_threads)
    view = View.of(Chunks.of(reader, 0))
    rows = np.random.default_rng(0).permutation(400)[:100]
    assert_array_equal(view.take(rows), array[rows])
    chunks = len(set(rows // 4))
    assert sum(reader.calls) == chunks
    if own_threads:
        assert reader.calls == [chunks]
    else:
        assert max(reader.calls) * array[:4].nbytes <= 1 << 20
        assert len(reader.calls) >= 8


def test_each_chunk_is_decoded_once_a_batch():
    array, reader, view = counted((103, 6), (10, 6))
    rows = np.random.default_rng(0).integers(0, 103, 200)
    assert_array_equal(view.take(rows), array[rows])
    assert sorted(reader.boxes) == [
        ((start, min(start + 10, 103)), (0, 6)) for start in range(0, 103, 10)
    ]


def test_the_next_batch_finds_the_chunks_decoded():
    array, reader, view = counted((100, 6), (10, 6))
    view.take([0, 55, 57])
    assert_array_equal(view.take([56, 3, 50]), array[[56, 3, 50]])
    assert len(reader.boxes) == 2
    set_chunk_budget(chunk_budget())  # forgets what is kept
    view.take([3])
    assert len(reader.boxes) == 3


def test_single_rows_are_joined_into_runs_and_not_kept():
    array, reader, view = counted((100, 6), (1, 1))
    rows = [7, 5, 6, 6, 20, 99, 98]
    for _ in range(2):
        assert_array_equal(view.take(rows), array[rows])
    assert reader.boxes == [((5, 8), (0, 6)), ((20, 21), (0, 6)), ((98, 100), (0, 6))] * 2


def test_chunks_of_one_row_are_kept_too():
    """A frame is the target of one pair and the input of the next."""
    array, reader, view = counted((100, 6), (1, 6))
    x, y = view.next_frame().take([7, 8, 9])
    assert_array_equal(np.concatenate([x, y]), array[[7, 8, 9, 8, 9, 10]])
    assert sorted(box[0][0] for box in reader.boxes) == [7, 8, 9, 10]


def test_only_the_chunks_of_a_cut_are_decoded():
    array, reader, view = counted((40, 30, 20), (10, 5, 20))
    cut = view[:, 12, 3:9:2]
    assert_array_equal(cut.take([5, 25]), array[[5, 25], 12, 3:9:2])
    assert sorted(reader.boxes) == [((start, start + 10), (10, 15), (0, 20)) for start in (0, 20)]


def test_all_rows_in_one_chunk_and_many_columns_stay_chunk_by_chunk():
    array, reader, view = counted((400, 12, 12), (400, 1, 1))
    set_chunk_budget(16 * 400 * 4)
    try:
        assert_array_equal(view.take([5, 399]), array[[5, 399]])
        assert all(box[1:] == ((i, i + 1), (j, j + 1)) for box in reader.boxes
                   for i, j in [(box[1][0], box[2][0])])  # fmt: skip
        assert len(reader.boxes) == 144
    finally:
        set_chunk_budget(DEFAULT_BUDGET)


def test_two_cuts_do_not_share_a_box_by_mistake():
    array, _, view = counted((40, 30), (10, 30))
    for cut in (slice(0, 5), slice(5, 10), slice(0, 10, 5), slice(None), slice(None, None, -1)):
        assert_array_equal(view[:, cut].take([3, 12]), array[[3, 12]][:, cut])


def test_two_arrays_do_not_share_a_chunk_by_mistake():
    one, _, first = counted((40, 3), (10, 3))
    second = View.of(Chunks.of(CountingReader(one + 1000, (10, 3)), 0))
    assert_array_equal(first.take([3]), one[[3]])
    assert_array_equal(second.take([3]), one[[3]] + 1000)


def test_what_is_handed_out_is_not_the_cache():
    array, _, view = counted((40, 3), (10, 3))
    for rows in ([3, 4], range(10), [0]):
        batch = view.take(rows)
        assert batch.flags.writeable
        batch[...] = -1
        assert_array_equal(view.take(rows), array[np.asarray(rows)])


def test_a_damaged_chunk_is_named_and_the_others_are_read():
    array, reader, view = counted((100, 6), (10, 6), damaged=frozenset([30, 40]))
    with pytest.raises(DamagedChunkError, match=r"rows? [34]0"):
        view.take([3, 33, 44, 55])
    assert_array_equal(view.take([3, 55, 99]), array[[3, 55, 99]])
    with pytest.raises(DamagedChunkError):  # again, and not from the cache
        view.take([33])
    assert reader.boxes.count(((30, 40), (0, 6))) == 2


def test_many_batches_at_a_time_decode_a_chunk_once():
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
    assert set(Counter(reader.boxes).values()) == {1}


@pytest.mark.usefixtures("few_slots")
def test_many_batches_at_a_time_in_few_slots():
    array, _, view = counted((200, 8), (5, 3))
    start = threading.Barrier(6)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(20):
            rows = rng.integers(0, 200, 16)
            assert_array_equal(view.take(rows), array[rows])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@given(st.data())
def test_any_rows_of_any_chunks(data: st.DataObject):
    shape = data.draw(st.tuples(st.integers(1, 25), st.integers(1, 5), st.integers(1, 6)))
    chunks = data.draw(st.tuples(*[st.integers(1, length + 2) for length in shape]))
    axis = data.draw(st.integers(0, 2))
    oracle, reader, view = counted(shape, chunks, axis)
    key = (
        slice(None),
        *(
            data.draw(
                st.one_of(
                    st.integers(-length, length - 1),
                    st.builds(
                        slice,
                        st.integers(-9, 9),
                        st.one_of(st.none(), st.integers(-9, 9)),
                        st.sampled_from([1, 2, 3, -1, -2]),
                    ),
                )
            )
            for length in view.element
        ),
    )
    rows = np.array(data.draw(st.lists(st.integers(0, len(oracle) - 1), max_size=12)), int)
    for _ in range(2):
        assert_array_equal(view[key].take(rows), oracle[key][rows])
    if max(chunks) > 1:
        assert max(Counter(reader.boxes).values(), default=1) == 1


def test_an_interrupt_anywhere_leaves_no_chunk_that_never_comes(monkeypatch: pytest.MonkeyPatch):
    """Between being promised and being decoded, say: who waits for it would wait for ever."""
    array, _, view = counted((100, 6), (10, 6))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Chunks, "_decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            view.take([3, 55])
    assert_array_equal(view.take([3, 55]), array[[3, 55]])


def test_more_chunks_than_a_lease_may_hold_and_small_pieces(monkeypatch: pytest.MonkeyPatch):
    from oocdata.sources import chunks

    monkeypatch.setattr(chunks, "_SCRATCH_BYTES", 100)  # four rows at a time
    array, _, view = counted((400, 3, 2), (5, 2, 2))
    set_chunk_budget(40 * 400)
    try:
        rows = np.random.default_rng(0).integers(0, 400, 300)
        assert_array_equal(view.take(rows), array[rows])
        assert_array_equal(view.astype("f8").take(rows), array[rows])
        assert_array_equal(view[:, 1, ::-1].take(rows), array[rows][:, 1, ::-1])
    finally:
        set_chunk_budget(DEFAULT_BUDGET)
