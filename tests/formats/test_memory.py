"""Test arrays in memory, memory maps, and other objects with shape, dtype and slicing."""

from __future__ import annotations

import builtins
import os
import pickle
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import scipy.sparse
from boxes import check_boxes
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import memory_array
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.objects import RowReader
from oocdata.engines.objects import Sliced as SlicedSource
from oocdata.engines.source import RowSource, Source
from oocdata.engines.strided import Strided
from oocdata.errors import ArgumentError, SourceError, UnknownFormatError, UnsupportedDtypeError
from oocdata.formats.memory import open_array, open_object
from oocdata.testing import SourceConformance, sample_array


class TestArray(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        return open_array(array)


def mapped(path: Path, array: np.ndarray, mode: Any = "r", before: int = 24) -> np.ndarray:
    """Map an array that is stored after other bytes of a file."""
    path.write_bytes(b"x" * before + array.tobytes())
    return np.memmap(path, array.dtype, mode, before, array.shape)


def mapped_to_write(path: Path, array: np.ndarray) -> np.ndarray:
    return mapped(path, array, "r+")


def mapped_beyond_one_page(path: Path, array: np.ndarray) -> np.ndarray:
    return mapped(path, array, before=70_001)


def loaded_in_fortran_order(path: Path, array: np.ndarray) -> np.ndarray:
    with path.open("wb") as file:
        np.save(file, np.asfortranarray(array))
    return np.load(path, mmap_mode="r")


def in_fortran_order(path: Path, array: np.ndarray) -> np.ndarray:
    return np.asfortranarray(array)


def misaligned(path: Path, array: np.ndarray) -> np.ndarray:
    memory = np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:]
    return np.ndarray(array.shape, array.dtype, memory)


@pytest.mark.parametrize(
    ("store", "engine"),
    [
        (mapped, Strided),
        (mapped_to_write, Strided),
        (mapped_beyond_one_page, Strided),
        (loaded_in_fortran_order, Strided),
        (in_fortran_order, MemoryArray),
        (misaligned, MemoryArray),
    ],
)
def test_ways_of_storing(tmp_path: Path, store: Any, engine: type):
    for number, dtype in enumerate(("<f4", "|u1", "|b1", "<c8", ">f4", ">i2", ">u8")):
        array = sample_array((23, 3, 5, 4), dtype)
        source = open_array(store(tmp_path / str(number), array))
        assert isinstance(source, engine)
        check_boxes(source, array)


@dataclass
class Sliced:
    """An object with shape, dtype and slicing."""

    array: np.ndarray
    chunks: Any = None
    keys_read: list[Any] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, key: Any) -> Any:
        self.keys_read.append(key)
        return self.array[key]


class TestObjectInChunks(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        chunks = tuple(min(length, 4) for length in array.shape)
        return open_object(Sliced(array, chunks))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i2", ">c8"])
def test_boxes_of_an_object(dtype: str):
    array = sample_array((23, 3, 5, 4), dtype)
    check_boxes(open_object(Sliced(array)), array)


# --- arrays


def test_out_of_any_kind():
    array = sample_array((10, 4, 4), "<i4")
    origins, extent = np.array([[7, 0, 0], [0, 0, 0], [7, 0, 0]]), Extent.of((1, 4, 4))
    for out in (
        np.zeros((6, 1, 4, 8), "i4")[::2, :, :, 1::2],
        np.zeros((3, 4, 4, 1), "i4").transpose(0, 3, 2, 1),
    ):
        MemoryArray(array).read(origins, extent, out)
        assert_array_equal(out[:, 0], array[[7, 0, 7]])
    frozen = np.zeros((3, 1, 4, 4), "i4")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        MemoryArray(array).read(origins, extent, frozen)
    assert not frozen.any()


@pytest.mark.parametrize("scratch", [1, 100, 1 << 20])
def test_scratch_of_any_size(monkeypatch: pytest.MonkeyPatch, scratch: int):
    monkeypatch.setattr(memory_array, "_SCRATCH_BYTES", scratch)
    array = sample_array((40, 5, 6), ">i4")
    rows = np.random.default_rng(0).integers(0, 40, 77)
    for strided in (array, array[:, ::-1], np.asfortranarray(array)):
        view = View.of(open_array(strided))
        assert_array_equal(view.take(rows), strided[rows])
        assert_array_equal(view.astype("f8").take(rows), strided[rows])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (5, 0), (5, 0, 3)], ids=str)
def test_arrays_without_elements(shape: tuple[int, ...]):
    view = View.of(open_array(np.zeros(shape)))
    assert np.asarray(view).shape == shape
    assert View.of(open_object(Sliced(np.zeros(shape)))).take([]).shape == (0, *shape[1:])


def test_the_users_array_is_never_handed_out():
    array = sample_array((10, 4))
    view = View.of(open_array(array))
    for batch in (view.take([1, 2]), view.take(range(10)), np.asarray(view), view[2:5].take([0])):
        assert not np.shares_memory(batch, array)
        assert batch.flags.writeable
    view[3][...] = 99
    assert array[3, 0] == 12


def test_masked_arrays_are_refused_rather_than_unmasked():
    masked = np.ma.masked_array(np.arange(3.0), [False, True, False])
    with pytest.raises(UnsupportedDtypeError, match=r"mask.*filled"):
        open_array(masked)
    with pytest.raises(SourceError, match=r"masked"):
        View.of(open_object(Sliced(masked))).take([0, 1])


@pytest.mark.parametrize(
    "array", [np.array([{}]), np.zeros(3, "V4"), np.zeros(3, "M8[s]"), np.zeros(2, [("a", "f4")])]
)
def test_dtypes_that_batches_cannot_hold(array: np.ndarray):
    with pytest.raises(UnsupportedDtypeError, match="elements must be"):
        open_object(Sliced(array))
    if array.dtype.kind == "O" or array.dtype == "V4":
        with pytest.raises(UnsupportedDtypeError, match="elements must be"):
            open_array(array)


def test_no_row_axis():
    for opened in (open_array, lambda array: open_object(Sliced(array))):
        with pytest.raises(ArgumentError, match="row axis"):
            View.of(opened(np.array(3.0)))


# --- memmaps


KEYS = st.tuples(
    *[st.builds(slice, st.integers(-4, 4), st.none(), st.sampled_from([1, 2, -1, -3]))] * 3
)


@given(KEYS, st.permutations(range(3)), st.sampled_from(["r", "r+", "c"]), KEYS)
def test_views_of_memmaps(
    tmp_path_factory: pytest.TempPathFactory, key: Any, axes: Any, mode: Any, again: Any
):
    array = sample_array((9, 8, 7), ">i2")
    path = tmp_path_factory.mktemp("map") / "a.bin"
    path.write_bytes(bytes(100) + array.tobytes())
    mapped = np.memmap(path, ">i2", mode, 100, array.shape)[key].transpose(axes)[again]
    oracle = array[key].transpose(axes)[again]
    assert_array_equal(np.asarray(View.of(open_array(mapped))), oracle)
    flipped = View.of(open_array(mapped), 1)[::-1]
    assert_array_equal(np.asarray(flipped), np.moveaxis(oracle, 1, 0)[::-1])


def test_private_changes_of_a_memmap_are_seen(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros((5, 3)))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="c")
    view = View.of(open_array(mapped))
    mapped[2] = 7
    assert view[2].tolist() == [7, 7, 7]


def test_changes_through_a_memmap_are_seen_even_after_it_was_flushed(tmp_path: Path):
    mapped = np.memmap(tmp_path / "a.bin", "f4", "w+", shape=(5, 3))
    view = View.of(open_array(mapped))
    mapped[2] = 7
    assert view[2].tolist() == [7, 7, 7]
    mapped.flush()
    copy = pickle.loads(pickle.dumps(view))
    mapped[2] = 8
    assert copy[2].tolist() == [8, 8, 8]


@pytest.mark.parametrize(
    "derive",
    [
        lambda m: m + 1,
        lambda m: m.copy(),
        lambda m: m[[1, 0, 2]],
        lambda m: m[m[:, 0] >= 0],
        lambda m: m.astype("f8"),
        lambda m: m[1:].copy()[::-1],
        lambda m: m.view(">i4"),
        lambda m: m.view("u1"),
        lambda m: m.reshape(-1, 2),
        lambda m: m[:, :, None],
        lambda m: m.T,
        lambda m: np.broadcast_to(m[0], (4, 3)),
        lambda m: np.broadcast_to(m[0], (4, 3), subok=True),
        lambda m: np.lib.stride_tricks.sliding_window_view(m, 3, axis=0),
        lambda m: m.view(np.ndarray)[1:],
        lambda m: m[1:3].reshape(3, 2)[::-1],
        lambda m: m.ravel(),
        lambda m: m.flatten(),
        lambda m: np.concatenate([m, m]),
    ],
)
def test_what_is_made_of_a_memmap(tmp_path: Path, derive: Any):
    np.save(tmp_path / "a.npy", sample_array((4, 3), "<i4"))
    derived = derive(np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert_array_equal(np.asarray(View.of(open_array(derived))), np.asarray(derived))


def test_a_memmap_of_a_deleted_file(tmp_path: Path):
    np.save(tmp_path / "a.npy", sample_array((4, 3)))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    (tmp_path / "a.npy").unlink()
    assert_array_equal(np.asarray(View.of(open_array(mapped))), mapped)


def test_a_memmap_of_a_replaced_file(tmp_path: Path):
    """A map keeps the rows of the old file."""
    np.save(tmp_path / "a.npy", np.arange(5))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    np.save(tmp_path / "b.npy", np.arange(5) + 100)
    os.replace(tmp_path / "b.npy", tmp_path / "a.npy")
    assert_array_equal(np.asarray(View.of(open_array(mapped))), mapped)


def test_a_system_without_a_list_of_maps(tmp_path: Path, monkeypatch: Any):
    """Without the list, rows are read through the map."""
    np.save(tmp_path / "a.npy", np.arange(5))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    real = builtins.open

    def without(path: Any, *arguments: Any, **named: Any) -> Any:
        if path == "/proc/self/maps":
            raise FileNotFoundError(path)
        return real(path, *arguments, **named)

    monkeypatch.setattr(builtins, "open", without)
    source = open_array(mapped)
    assert isinstance(source, MemoryArray)
    assert_array_equal(np.asarray(View.of(source)), np.arange(5))


# --- objects


class Watched(Sliced):
    """An object that is not thread-safe."""

    inside = 0
    most = 0

    def __getitem__(self, key: Any) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        sleeping.wait(0.0005)
        found = self.array[key]
        self.inside -= 1
        return found


sleeping = threading.Event()


@pytest.mark.parametrize("chunks", [None, (4, 3)])
def test_an_object_is_called_by_one_thread_at_a_time(chunks: Any):
    array = sample_array((64, 3))
    target = Watched(array, chunks)
    # Also where it was opened twice.
    views = [View.of(open_object(target)) for _ in range(2)]
    batches = [np.arange(start, 64, 7) for start in range(7)] * 3
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda n: views[n % 2].take(batches[n]), range(len(batches))))
    for rows, batch in zip(batches, got, strict=True):
        assert_array_equal(batch, array[rows])
    assert target.most == 1


def test_an_object_that_two_threads_open_at_once_has_one_lock(monkeypatch: pytest.MonkeyPatch):
    target, opened = Sliced(sample_array((64, 3))), []
    other = threading.Thread(target=lambda: opened.append(open_object(target)))

    class Reference(weakref.KeyedRef):
        """Created while one thread registers its lock; the other opens the object now."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            if other.ident is None:
                other.start()
                other.join(0.2)  # it may wait for the registration

    monkeypatch.setattr(weakref, "KeyedRef", Reference)
    opened.append(open_object(target))
    other.join()
    first, second = opened
    assert first._lock is second._lock


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_an_object_is_read_does_not_hang():
    entered, go = threading.Event(), threading.Event()

    class Slow(Sliced):
        def __getitem__(self, key: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                entered.set()
                go.wait()
            return self.array[key]

    view = View.of(open_object(Slow(sample_array((10, 3)))))
    thread = threading.Thread(target=view.take, args=([3],))
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if view[4].tolist() == [12, 13, 14] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go.set()
    thread.join()


def test_only_what_is_asked_for_is_read():
    target = Sliced(sample_array((20, 4, 6)))
    view = View.of(open_object(target))[:, 1:3, ::2]
    view.take([3, 4, 5, 9, 4])
    assert target.keys_read == [
        (slice(3, 6), slice(1, 3), slice(0, 5)),
        (slice(9, 10), slice(1, 3), slice(0, 5)),
    ]


@pytest.mark.parametrize(
    "chunks", [None, True, (0, 3), (5,), ((5, 5), (3,)), (2.5, 3), "auto", (-1, 3), [5, 3]], ids=str
)
def test_chunks_of_a_foreign_kind_are_not_believed(chunks: Any):
    source = open_object(Sliced(sample_array((10, 3)), chunks))
    assert isinstance(source, SlicedSource)
    assert source.storage().chunks is None
    assert_array_equal(np.asarray(View.of(source)), sample_array((10, 3)))


@pytest.mark.parametrize("target", [3, None, {"a": 1}, b"a.npy", object(), {1, 2}, open])
def test_objects_that_are_not_arrays(target: Any):
    with pytest.raises(
        UnknownFormatError, match=rf"`target` must be .* got {type(target).__name__}"
    ):
        open_object(target)


@pytest.mark.parametrize("shape", [3, (3, "x"), (-1, 3), (float("nan"), 3)])
def test_objects_without_a_shape_of_whole_numbers(shape: Any) -> None:
    target = type("Odd", (Sliced,), {"shape": shape})(np.zeros((3, 3)))
    with pytest.raises(ArgumentError, match=r"`shape` of Odd must be whole numbers"):
        ooc.open(target)


def test_an_array_of_dask_whose_length_is_unknown() -> None:
    array = dask.array.arange(12, chunks=5)
    with pytest.raises(ArgumentError, match=r"got \(nan,\).*compute_chunk_sizes"):
        ooc.open(array[array > 6])


def test_sparse_matrices_and_texts_are_refused_with_a_hint():
    """They had the shape, dtype and slicing of an array, or were called a pickle."""
    for make in (scipy.sparse.csr_matrix, scipy.sparse.coo_array):
        with pytest.raises(
            UnknownFormatError, match=r"a sparse one.* convert it: target\.toarray\(\)"
        ):
            open_object(make(np.eye(3)))
    with pytest.raises(UnsupportedDtypeError, match=r"array of objects.*array\.astype\(str\)"):
        open_array(np.array(["a", "longer"], object))


def test_a_dtype_that_numpy_does_not_know():
    class Torch(Sliced):
        dtype = "torch.float32"  # type: ignore[assignment]

    with pytest.raises(UnsupportedDtypeError, match=r"torch\.float32"):
        open_object(Torch(np.zeros(3)))


@pytest.mark.parametrize(
    ("wrong_getitem", "message"),
    [
        (
            lambda self, key: self.array[0],
            r"must give float32 of shape \(1, 4\) .* of shape \(4,\)",
        ),
        (lambda self, key: self.array[key].astype("f8"), "must give float32 .*got float64"),
        (lambda self, key: 1 // 0, r"must give \[2:3, 0:4\]; it raised ZeroDivisionError"),
        (lambda self, key: None, "must give"),
    ],
)
def test_objects_that_do_not_keep_their_word(wrong_getitem: Any, message: str):
    liar = type("Liar", (Sliced,), {"__getitem__": wrong_getitem})(sample_array((10, 4)))
    with pytest.raises(SourceError, match=message):
        View.of(open_object(liar)).take([2])


def test_a_view_is_such_an_object():
    array = sample_array((10, 4))
    view = View.of(open_object(View.of(open_array(array))[::-1]))
    assert_array_equal(view.take([3, 0]), array[::-1][[3, 0]])


def test_conversion_rules_are_those_of_numpy():
    array = np.array([1.5, -2.5, 300.0, np.nan])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for dtype_name in ("f4", "?", "c8", "i8"):
            for source in (open_array(array), open_object(Sliced(array))):
                got = View.of(source).astype(dtype_name).take(range(4))
                assert_array_equal(got, array.astype(dtype_name))


def test_windows_of_neighbours_are_one_slice():
    target = Sliced(sample_array((30, 4)))
    source = open_object(target)
    out = np.empty((4, 3, 4), "f4")
    source.read(np.array([[6, 0], [9, 0], [12, 0], [2, 0]]), Extent.of((3, 4)), out)
    assert_array_equal(out, [target.array[at : at + 3] for at in (6, 9, 12, 2)])
    assert [key[0] for key in target.keys_read] == [slice(2, 5), slice(6, 15)]


class Rows:
    """A user-defined source."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.keys_read: list[list[int]] = []

    def read_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
        assert out.flags.c_contiguous
        assert out.dtype == self.dtype
        assert out.shape == (len(rows), *self.shape[1:])
        assert rows.dtype == np.int64
        self.keys_read.append(rows.tolist())
        out[...] = self.array[rows]


class TestRows(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> RowSource:
        return Rows(array)


def test_whole_rows_are_read_straight_into_the_batch():
    rows = Rows(sample_array((10, 3, 4)))
    view = View.of(RowReader(rows))
    assert_array_equal(view.take([7, 2]), rows.array[[7, 2]])
    x = view.windows(2, stride=3).take([1, 4])
    assert_array_equal(x, rows.array[[[1, 4], [4, 7]]])
    assert rows.keys_read[0] == [7, 2]
    assert [row for rows in rows.keys_read[1:] for row in rows] == [1, 4, 4, 7]


def test_the_rows_of_a_chunk_that_fails_are_named() -> None:
    class Failing:
        shape, dtype, chunks = (40, 3), np.dtype("f4"), (10, 3)

        def __getitem__(self, box: tuple[slice, ...]) -> np.ndarray:
            if box[0].start == 20:
                raise OSError("gone")
            return np.zeros([part.stop - part.start for part in box], "f4")

    with pytest.raises(SourceError, match="gone") as caught:
        View.of(open_object(Failing())).take([3, 27])
    assert caught.value.rows == tuple(range(20, 30))


def test_sparse_matrices_are_refused_where_they_are_opened() -> None:
    matrix = scipy.sparse.csr_array(np.eye(3))
    with pytest.raises(UnknownFormatError, match=r"got a sparse one, csr_array.*toarray\(\)"):
        ooc.open(matrix)
