"""Many chunked arrays of one layout, read as one: each chunk is decoded once."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from boxes import check_boxes
from engines.test_chunked import CountingReader
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import oocdata as ooc
from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines.blocked import CachedRows, blocked
from oocdata.engines.cache import cache
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import Concat
from oocdata.engines.slots import Slots
from oocdata.errors import SourceError
from oocdata.testing import sample_array


def joined(
    lengths: list[int],
    row: tuple[int, ...],
    chunk: tuple[int, ...],
    axis: int = 0,
    steps: list[int] | None = None,
) -> tuple[NDArray[Any], list[CountingReader], Concat]:
    """Return an array, the readers of its parts, and their concatenation.

    `steps` are the lengths of the parts' chunks along axis 0, if they differ.
    """
    array = sample_array((sum(lengths), *row))
    parts = [np.moveaxis(part, 0, axis) for part in np.split(array, np.cumsum(lengths)[:-1])]
    shapes = [(step, *chunk[1:]) for step in steps or [chunk[0]] * len(parts)]
    readers = [CountingReader(part, shape) for part, shape in zip(parts, shapes, strict=True)]
    source = Concat(tuple(Chunked(reader) for reader in readers), axis)
    return np.moveaxis(array, 0, axis), readers, source


def decoded(readers: list[CountingReader]) -> list[int]:
    """Return how many chunks of each array were decoded, and forget it."""
    counts = [reader.count.total() for reader in readers]
    for reader in readers:
        reader.count.clear()
    return counts


@given(st.data())
def test_any_boxes(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    row = data.draw(st.sampled_from([(3,), (2, 4)]))
    shape = min(lengths), *row
    chunk = tuple(data.draw(st.integers(1, length)) for length in shape)
    longer = st.tuples(*(st.integers(chunk[0], length) for length in lengths))
    array, readers, source = joined(lengths, row, chunk, steps=list(data.draw(longer)))
    extent = Extent.of(tuple(data.draw(st.integers(1, length)) for length in shape))
    limits = [n - span for n, span in zip(array.shape, extent.lengths, strict=True)]
    origins = np.array(
        data.draw(
            st.lists(
                st.tuples(*(st.integers(0, limit) for limit in limits)), min_size=1, max_size=9
            )
        )
    )
    axes = data.draw(st.permutations(range(1 + array.ndim)))
    room = data.draw(st.integers(len(origins), 12))
    shape = room, *extent.lengths
    out = np.full([shape[axis] for axis in axes], -1, array.dtype).transpose(np.argsort(axes))
    places = np.array(data.draw(st.permutations(range(room)))[: len(origins)])
    places.sort()
    if room == len(origins):
        source.read(origins, extent, out)
    else:
        source.read_to(origins, extent, out, places)
        assert (np.delete(out, places, axis=0) == -1).all()
    for box, origin in zip(out[places], origins.tolist(), strict=True):
        cut = tuple(slice(at, at + n) for at, n in zip(origin, extent.lengths, strict=True))
        assert_array_equal(box, array[cut])
    # Also boxes that cross parts find the chunks of the others.
    assert all(set(reader.count.values()) <= {1} for reader in readers)
    decoded(readers)
    source.read_to(origins, extent, out, places)
    assert decoded(readers) == [0] * len(lengths)


@pytest.mark.parametrize("axis", [0, 1])
def test_arrays_along_any_axis(axis: int) -> None:
    array, readers, source = joined([8, 8, 8], (6,), (4, 2) if axis else (4, 6), axis)
    check_boxes(source, array)
    view = View.of(source)
    assert_array_equal(view.take(np.arange(len(view))[::-1]), array[::-1])
    assert all(set(reader.count.values()) == {1} for reader in readers)


def test_a_batch_is_decoded_at_once_whatever_the_number_of_arrays(loads: list[int]) -> None:
    array, readers, source = joined([40] * 30, (6,), (10, 6))
    rows = np.arange(5, 1200, 40)
    assert_array_equal(View.of(source).take(rows), array[rows])
    assert loads == [30]
    assert decoded(readers) == [1] * 30


@pytest.mark.parametrize("scales", [(0.5, 0.5, 0.5), (0.5, 0.25, 0.5)])
def test_packed_numbers_of_several_files(
    tmp_path: Path, loads: list[int], scales: tuple[float, ...]
) -> None:
    array, paths = written(tmp_path, [33, 40, 51])
    for path, scale in zip(paths, scales, strict=True):
        with h5py.File(path, "r+") as file:
            file["x"].attrs["scale_factor"] = scale
    dataset = ooc.open(tmp_path / "*.h5", "x", decode=True)
    rows = np.random.default_rng(0).permutation(124)
    loads.clear()
    taken = dataset.take(rows)
    assert_array_equal(taken, (array * np.repeat(scales, [33, 40, 51])[:, None])[rows])
    assert len(loads) == (1 if len(set(scales)) == 1 else 3)
    os.utime(paths[1], (1, 1))
    with pytest.raises(SourceError, match=r"1\.h5"):
        dataset.take(rows)


def test_a_chunk_takes_the_memory_of_one_of_another_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that are returned to the system and taken again cost as much as decoding."""
    array, readers, source = joined([100] * 4, (64,), (10, 64))
    monkeypatch.setattr(cache, "budget", lambda: array.nbytes // 2)  # a half of the chunks
    returned: list[int] = []
    monkeypatch.setattr(Slots, "_give_back", lambda _, slot: returned.append(slot))
    cache.forget()
    returned.clear()
    view = View.of(source)
    for start in range(400):
        rows = np.arange(start, start + 400, 97) % 400
        assert_array_equal(view.take(rows), array[rows])
    assert sum(decoded(readers)) > 40
    assert returned == []


def test_rows_that_chunks_cut_are_gathered_from_blocks_of_all_arrays() -> None:
    """As h5py chunks by default: the row of a batch is in several chunks."""
    array, readers, source = joined([40] * 5, (6,), (10, 2))
    view = View.of(source).batches(16, shuffle=True, seed=1)
    taken = [np.concatenate(list(view.epoch(0)))]
    assert_array_equal(taken[0][np.argsort(taken[0][:, 0])], array)
    assert decoded(readers) == [12] * 5
    columns = View.of(source)[:, 2:4]  # only these chunks are decoded
    cache.forget()
    assert_array_equal(columns.take(np.arange(200)), array[:, 2:4])
    assert decoded(readers) == [4] * 5


@pytest.mark.parametrize("row", [(6, 6), (6, 2)], ids=["whole rows", "cut rows"])
def test_chunks_of_different_lengths(row: tuple[int, int]) -> None:
    """As h5py chooses them for arrays of different lengths."""
    width, cut = row
    array, readers, source = joined([50, 51, 52, 7], (width,), (10, cut), steps=[10, 11, 12, 7])
    view = View.of(source)
    rows = np.random.default_rng(0).permutation(160)
    assert_array_equal(view.take(rows), array[rows])
    pieces = width // cut
    assert decoded(readers) == [5 * pieces, 5 * pieces, 5 * pieces, pieces]
    windows = view.windows(
        3, 1, episodes="none"
    )  # of both single and several rows: nothing is decoded again
    x, y = windows.take(np.arange(len(windows)))
    starts = np.arange(157)
    assert_array_equal(x, array[starts[:, None] + np.arange(3)])
    assert_array_equal(y.reshape(len(starts), width), array[starts + 3])
    assert decoded(readers) == [0] * 4


@pytest.mark.parametrize("axes", [(1,), (0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("widths", [(4, 5, 3), (5, 5, 3)], ids=["other widths", "a short last one"])
def test_chunks_of_different_lengths_along_the_second_axis(
    axes: tuple[int, ...], widths: tuple[int, int, int]
) -> None:
    """As of files with time as their second axis: chunks cut rows, and are unlike along time."""
    array = sample_array((4, 24, 6))
    parts = np.split(array, [11, 21], axis=1)
    shapes = [(width - 2, width, 2) for width in widths]
    readers = [CountingReader(part, shape) for part, shape in zip(parts, shapes, strict=True)]
    source = Concat(tuple(Chunked(reader) for reader in readers), 1)
    view = View.of(blocked(source, axes), axes)
    rows = np.moveaxis(array, axes, range(len(axes))).reshape(len(view), *view.element)
    for order in (np.arange(len(rows)), np.random.default_rng(0).permutation(len(rows))):
        assert_array_equal(view.take(order), rows[order])
    assert all(set(reader.count.values()) == {1} for reader in readers)
    grids = [
        np.ceil(np.divide(part.shape, shape)) for part, shape in zip(parts, shapes, strict=True)
    ]
    assert [len(reader.count) for reader in readers] == [grid.prod() for grid in grids]


def test_arrays_opened_twice_and_pickled_ones_share_chunks() -> None:
    array, readers, source = joined([20, 30], (6,), (10, 6))
    again = Concat(tuple(Chunked(reader) for reader in readers), 0)
    assert_array_equal(View.of(source).take(np.arange(50)), array)
    assert_array_equal(View.of(again).take(np.arange(50)), array)
    assert decoded(readers) == [2, 3]


@pytest.mark.parametrize("widths", [(6, 6), (3, 2)], ids=["whole rows", "cut rows"])
def test_chunks_of_different_shapes_are_searched_at_once(
    widths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As h5py chooses them: the lengths of 40 files differ little, those of chunks by half."""
    reads: list[int] = []
    read = Chunked.read

    def counting(self: Chunked, origins: Any, *arguments: Any) -> None:
        reads.append(len(origins))
        read(self, origins, *arguments)

    monkeypatch.setattr(Chunked, "read", counting)
    array = sample_array((40 * 60, 6))
    parts = np.split(array, 40)
    shapes = [([8, 30, 29, 30, 27][number % 5], widths[number % 2]) for number in range(40)]
    readers = [CountingReader(part, shape) for part, shape in zip(parts, shapes, strict=True)]
    rows = np.arange(50, 2340, 59)
    whole = Concat(tuple(Chunked(reader) for reader in readers), 0)
    view = View.of(blocked(whole, (0,))).windows(3, episodes=[60] * 40)
    numbers = rows - rows // 60 * 2
    starts = numbers // 58 * 60 + numbers % 58
    for _ in range(2):
        reads.clear()
        assert_array_equal(view.take(numbers), array[starts[:, None] + np.arange(3)])
    assert len(reads) == 2  # of chunks that are about equally long
    assert all(set(reader.count.values()) == {1} for reader in readers if reader.count)


@pytest.mark.parametrize("shapes", [[(5, 2), (5, 3)], [(5, 6), (5, 2)], [(4, 2), (5, 6)]], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_some_chunks_that_cut_rows(shapes: list[tuple[int, int]], axis: int) -> None:
    """Rows are whole in the cache; a part of each row takes only its chunks."""
    array = sample_array((40, 6))
    if axis:
        array, shapes = np.ascontiguousarray(array.T), [(b, a) for a, b in shapes]
    parts = np.split(array, 2, axis)
    readers = [CountingReader(part, shape) for part, shape in zip(parts, shapes, strict=True)]
    source = blocked(Concat(tuple(Chunked(reader) for reader in readers), axis), (axis,))
    assert isinstance(source, CachedRows)
    view = View.of(source, axis)
    rows = np.random.default_rng(0).permutation(40)
    assert_array_equal(view.take(rows), np.moveaxis(array, axis, 0)[rows])
    every = [-(-20 // shape[axis]) * (6 // shape[1 - axis]) for shape in shapes]
    assert decoded(readers) == every
    assert_array_equal(view.take(rows), np.moveaxis(array, axis, 0)[rows])
    assert decoded(readers) == [0, 0]
    assert_array_equal(view[:, :2].take(rows), np.moveaxis(array, axis, 0)[rows, :2])
    # Whole chunks are cached as they are.
    assert decoded(readers) == [-(-20 // n[axis]) if n[1 - axis] < 6 else 0 for n in shapes]


def test_windows_over_a_short_last_array_are_read_at_once(loads: list[int]) -> None:
    array, readers, source = joined([40] * 20 + [7], (6,), (10, 6), steps=[10] * 20 + [7])
    windows = View.of(source).windows(4, 1, episodes="none")
    starts = np.append(np.arange(3, 800, 40), 802)
    x, y = windows.take(starts)
    assert_array_equal(x, array[starts[:, None] + np.arange(4)])
    assert_array_equal(y[:, 0] if y.ndim > 2 else y, array[starts + 4])
    assert decoded(readers) == [1] * 21
    assert len(loads) == 1


def test_an_array_alone_and_in_any_group_is_decoded_once() -> None:
    array, readers, source = joined([20, 30, 40], (6,), (10, 6))
    alone = Chunked(readers[1])
    assert_array_equal(View.of(alone).take(np.arange(30)), array[20:50])
    last = Concat((Chunked(readers[2]), Chunked(readers[1])), 0)
    assert_array_equal(
        View.of(last).take(np.arange(70)), np.concatenate([array[50:], array[20:50]])
    )
    twice = Concat((Chunked(readers[0]), Chunked(readers[0])), 0)
    boxes = np.empty((4, 10, 4), array.dtype)
    twice.read(np.array([[0, 1], [10, 1], [20, 1], [30, 1]]), Extent.of((10, 4)), boxes)
    assert_array_equal(boxes.reshape(40, 4), np.tile(array[:20, 1:5], (2, 1)))
    assert_array_equal(View.of(twice).take(np.arange(40)), np.tile(array[:20], (2, 1)))
    assert_array_equal(View.of(source).take(np.arange(90)), array)
    assert decoded(readers) == [2, 3, 4]


def written(folder: Path, lengths: list[int]) -> tuple[NDArray[Any], list[Path]]:
    array = np.arange(sum(lengths) * 50, dtype="f4").reshape(-1, 50)
    paths = []
    for number, rows in enumerate(np.split(array, np.cumsum(lengths)[:-1])):
        paths.append(folder / f"{number}.h5")
        with h5py.File(paths[-1], "w") as file:
            file.create_dataset(
                "x", data=rows, chunks=(10, 50), maxshape=(None, 50), compression="gzip"
            )
    return array, paths


@pytest.mark.parametrize("order", ["global", True, False], ids=str)
def test_epochs_of_several_files(tmp_path: Path, order: Any) -> None:
    array, _ = written(tmp_path, [33, 40, 7, 51])
    dataset = ooc.open(tmp_path / "*.h5", "x")
    loader = dataset.batches(8, shuffle=order, seed=3)
    for each in (loader, pickle.loads(pickle.dumps(loader))):
        rows = np.concatenate(list(each.epoch(1)))
        assert_array_equal(rows[np.argsort(rows[:, 0])], array)
    windows = dataset.windows(3, episodes=[131])  # they cross the files
    for step, batch in enumerate(windows.batches(8).epoch(0)):
        starts = np.arange(step * 8, min(step * 8 + 8, 129))
        assert_array_equal(batch, array[starts[:, None] + np.arange(3)])


def test_an_error_names_the_file_and_its_rows(tmp_path: Path) -> None:
    array, paths = written(tmp_path, [30, 40, 50])
    with h5py.File(paths[1]) as file:
        chunk = file["x"].id.get_chunk_info(2)
    with open(paths[1], "r+b") as stored:
        stored.seek(chunk.byte_offset)
        stored.write(b"\xff" * chunk.size)
    dataset = ooc.open(tmp_path / "*.h5", "x")
    messages = []
    for rows, opened in (([3, 52, 80], dataset), ([22], ooc.open(paths[1], "x"))):
        with pytest.raises(SourceError) as caught:
            opened.take(rows)
        messages.append(
            (caught.value.path, caught.value.key, caught.value.rows, type(caught.value))
        )
    assert messages[0] == messages[1]
    assert messages[0][:2] == (str(paths[1]), "/x")
    rows = np.array([3, 45, 80, 119])  # what is whole is read
    assert_array_equal(dataset.take(rows), array[rows])


def test_a_changed_file_is_an_error_even_if_its_chunks_are_cached(tmp_path: Path) -> None:
    array, paths = written(tmp_path, [30, 40])
    dataset = ooc.open(tmp_path / "*.h5", "x")
    assert_array_equal(dataset.take(np.arange(70)), array)
    os.utime(paths[1], (1, 1))
    assert_array_equal(dataset.take([3, 29]), array[[3, 29]])
    with pytest.raises(SourceError, match=r"1\.h5"):
        dataset.take([3, 31])
