"""Arrays in memory, memmaps, and foreign objects."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, SourceError, UnknownFormatError, UnsupportedDtypeError
from oocdata.sources import memory
from oocdata.sources.chunks import Chunks
from oocdata.sources.extents import Extents
from oocdata.sources.memory import Memory, open_array, open_object
from oocdata.sources.source import Source
from oocdata.testing import SourceConformance, sample_array


class TestArray(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        return open_array(array, axis=axis)


class TestFortranArray(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        return open_array(np.asfortranarray(array), axis=axis)


class TestBigEndianArray(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        return open_array(array.astype(array.dtype.newbyteorder(">")), axis=axis)


class TestMisalignedArray(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        memory = np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:]
        return open_array(np.ndarray(array.shape, array.dtype, memory), axis=axis)


class TestMemmap(SourceConformance):
    mode: Any = "r"
    before = 24

    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        (folder / "a.bin").write_bytes(b"x" * self.before + array.tobytes())
        mapped = np.memmap(folder / "a.bin", array.dtype, self.mode, self.before, array.shape)
        source = open_array(mapped, axis=axis)
        assert isinstance(source, Extents)
        return source


class TestMemmapBeyondOnePage(TestMemmap):
    before = 70_001


class TestMemmapToWrite(TestMemmap):
    mode = "r+"


class TestLoadedFortranMemmap(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        np.save(folder / "a.npy", np.asfortranarray(array))
        return open_array(np.load(folder / "a.npy", mmap_mode="r"), axis=axis)


@dataclass
class Sliced:
    """Something with shape, dtype and slicing."""

    array: np.ndarray
    chunks: Any = None
    asked: list[Any] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, key: Any) -> Any:
        self.asked.append(key)
        return self.array[key]


class TestObject(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        return open_object(Sliced(array), axis=axis)


class TestObjectInChunks(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        chunks = tuple(min(length, 4) for length in array.shape)
        return open_object(Sliced(array, chunks), axis=axis)


class TestObjectBigEndian(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        return open_object(Sliced(array.astype(array.dtype.newbyteorder(">"))), axis=axis)


# --- arrays


def test_out_of_any_kind():
    array = sample_array((10, 4, 4), "<i4")
    for out in (np.zeros((6, 4, 8), "i4")[::2, :, 1::2], np.zeros((3, 4, 4), "i4").swapaxes(1, 2)):
        Memory(array).read_into(np.array([7, 0, 7]), out)
        assert_array_equal(out, array[[7, 0, 7]])
    frozen = np.zeros((2, 4, 4), "i4")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        Memory(array).read_into(np.array([1, 2]), frozen)
    assert not frozen.any()


@pytest.mark.parametrize("scratch", [1, 100, 1 << 20])
def test_scratch_of_any_size(monkeypatch: pytest.MonkeyPatch, scratch: int):
    monkeypatch.setattr(memory, "_SCRATCH_BYTES", scratch)
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
    "array", [np.array([{}]), np.array(["a"]), np.zeros(3, "M8[s]"), np.zeros(2, [("a", "f4")])]
)
def test_dtypes_that_batches_cannot_hold(array: np.ndarray):
    for opened in (open_array, lambda array: open_object(Sliced(array))):
        with pytest.raises(UnsupportedDtypeError, match="elements must be"):
            opened(array)


def test_no_row_axis():
    for opened in (open_array, lambda array: open_object(Sliced(array))):
        with pytest.raises(ArgumentError, match="row axis"):
            opened(np.array(3.0))


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
    flipped = View.of(open_array(mapped, axis=1))[::-1]
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


# --- objects


def test_only_what_is_asked_for_is_read():
    target = Sliced(sample_array((20, 4, 6)))
    view = View.of(open_object(target))[:, 1:3, ::2]
    view.take([3, 4, 5, 9, 4])
    assert target.asked == [
        (slice(3, 6), slice(1, 3), slice(0, 5)),
        (slice(9, 10), slice(1, 3), slice(0, 5)),
    ]


@pytest.mark.parametrize(
    "chunks", [None, True, (0, 3), (5,), ((5, 5), (3,)), (2.5, 3), "auto", (-1, 3), [5, 3]], ids=str
)
def test_chunks_of_a_foreign_kind_are_not_believed(chunks: Any):
    source = open_object(Sliced(sample_array((10, 3)), chunks))
    assert isinstance(source, Chunks)
    assert source.chunk_rows == 1
    assert_array_equal(np.asarray(View.of(source)), sample_array((10, 3)))


@pytest.mark.parametrize("target", [3, None, {"a": 1}, b"a.npy", object(), {1, 2}, open])
def test_objects_that_are_not_arrays(target: Any):
    with pytest.raises(
        UnknownFormatError, match=rf"`target` must be .* got {type(target).__name__}"
    ):
        open_object(target)


def test_a_dtype_that_numpy_does_not_know():
    class Torch(Sliced):
        dtype = "torch.float32"  # type: ignore[assignment]

    with pytest.raises(UnsupportedDtypeError, match=r"torch\.float32"):
        open_object(Torch(np.zeros(3)))


@pytest.mark.parametrize(
    ("lie", "said"),
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
def test_objects_that_do_not_keep_their_word(lie: Any, said: str):
    liar = type("Liar", (Sliced,), {"__getitem__": lie})(sample_array((10, 4)))
    with pytest.raises(SourceError, match=said):
        View.of(open_object(liar)).take([2])


def test_a_view_is_such_an_object():
    array = sample_array((10, 4))
    view = View.of(open_object(View.of(open_array(array))[::-1]))
    assert_array_equal(view.take([3, 0]), array[::-1][[3, 0]])


def test_conversion_rules_are_those_of_numpy():
    array = np.array([1.5, -2.5, 300.0, np.nan])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for wanted in ("f4", "?", "c8", "i8"):
            for source in (open_array(array), open_object(Sliced(array))):
                got = View.of(source).astype(wanted).take(range(4))
                assert_array_equal(got, array.astype(wanted))
