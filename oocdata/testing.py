"""What a third-party source needs to be tested: a conformance class and a recording double.

Subclass `SourceConformance` once for each backend; NumPy is the oracle.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.errors import PositionError
from oocdata.sources.source import Source

__all__ = ["RecordingSource", "SourceConformance", "sample_array"]


def sample_array(shape: tuple[int, ...], dtype: str = "<f4") -> NDArray[Any]:
    """Return an array in which every element differs from its neighbours on every axis.

    Examples
    --------
    >>> sample_array((2, 3), "i4")
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    kind = np.dtype(dtype)
    values: NDArray[Any] = np.arange(int(np.prod(shape))).reshape(shape)
    if kind.kind == "b":
        values = values % 3 == 0
    elif kind.kind == "c":
        values = values - 1j * values
    elif kind.itemsize == 1:
        # A prime modulus: no period that could hide a swapped axis behind an 8-bit dtype.
        values = values % 127
    return values.astype(kind)


@dataclass(frozen=True, eq=False)
class RecordingSource:
    """An array in memory that remembers what was read: proves that composing reads nothing.

    Examples
    --------
    >>> source = RecordingSource(sample_array((10, 2)))
    >>> View.of(source)[3:].next_frame().take([0])[0].shape
    (1, 2)
    >>> source.reads
    [[3], [4]]
    """

    array: NDArray[Any]
    chunk_rows: int = 1
    reads: list[list[int]] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.array.dtype

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]`` and remember `rows`."""
        self.reads.append(rows.tolist())
        out[...] = self.array[rows]


class SourceConformance:
    """What every source must do. Subclass it and define `make`.

    Attributes
    ----------
    dtypes : tuple of str
        Stored dtypes to try.
    axes : tuple of int
        Row axes to try on a four-dimensional array.

    Examples
    --------
    >>> class TestMine(SourceConformance):
    ...     def make(self, folder, array, axis=0):
    ...         return RecordingSource(np.moveaxis(array, axis, 0))
    """

    dtypes: tuple[str, ...] = ("<f4", "<f8", "|u1", "<i2", "|b1", "<c8", "<u8")
    axes: tuple[int, ...] = (0, 1, 3)
    shape: tuple[int, ...] = (23, 3, 5, 4)

    def make(self, folder: Path, array: NDArray[Any], axis: int = 0) -> Source:
        """Store `array` by means other than oocdata and return the source that reads it."""
        raise NotImplementedError("a conformance class must define `make`")

    def read(self, source: Source, rows: list[int] | NDArray[np.int64]) -> NDArray[Any]:
        """Read rows into memory filled with a pattern that would show."""
        wanted = np.asarray(rows, np.int64)
        out = np.empty((len(wanted), *source.shape[1:]), source.dtype)
        out.view(np.uint8)[...] = 0xA5
        source.read_into(wanted, out)
        return out

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrise by the class's own tables, so a subclass can narrow them."""
        if "stored_dtype" in metafunc.fixturenames:
            metafunc.parametrize("stored_dtype", self.dtypes)
        if "row_axis" in metafunc.fixturenames:
            metafunc.parametrize("row_axis", self.axes)

    def test_shape_and_native_dtype(self, tmp_path: Path, stored_dtype: str) -> None:
        array = sample_array(self.shape, stored_dtype)
        source = self.make(tmp_path, array)
        assert isinstance(source, Source)
        assert source.shape == array.shape
        assert source.dtype == array.dtype.newbyteorder("=")
        assert source.dtype.isnative
        assert source.chunk_rows >= 1
        assert_array_equal(self.read(source, np.arange(len(array))), array)

    @pytest.mark.parametrize(
        "rows",
        [[0], [22], [], [22, 0, 11], [5, 5, 5], [3, 4, 5, 6], [6, 5, 4], [0, 22, 1, 21, 1, 0]],
        ids=str,
    )
    def test_rows_in_any_order(self, tmp_path: Path, rows: list[int]) -> None:
        array = sample_array(self.shape)
        assert_array_equal(
            self.read(self.make(tmp_path, array), rows), array[np.asarray(rows, int)]
        )

    def test_row_axis(self, tmp_path: Path, row_axis: int) -> None:
        array = sample_array(self.shape)
        source = self.make(tmp_path, array, axis=row_axis)
        moved = np.moveaxis(array, row_axis, 0)
        assert source.shape == moved.shape
        rows = np.random.default_rng(1).integers(0, len(moved), 9)
        assert_array_equal(self.read(source, rows), moved[rows])

    @pytest.mark.parametrize(
        "cut",
        [
            (slice(None), slice(1, 4)),
            (1,),
            (slice(None), slice(None), -1),
            (slice(None, None, -1), slice(4, 0, -2), slice(0, 4, 3)),
            (0, 0, 0),
            (slice(1, 1),),
        ],
        ids=str,
    )
    def test_cuts(self, tmp_path: Path, cut: tuple[int | slice, ...], row_axis: int) -> None:
        array = sample_array((9, 10, 11, 8))
        moved = np.moveaxis(array, row_axis, 0)
        view = View.of(self.make(tmp_path, array, axis=row_axis))[(slice(None), *cut)]
        expected = moved[(slice(None), *cut)]
        assert view.shape == expected.shape
        rows = np.random.default_rng(2).integers(0, len(moved), 12)
        assert_array_equal(view.take(rows), expected[rows])
        again = view[(slice(None), *[slice(None, None, -1)] * (view.ndim - 1))]
        assert_array_equal(
            again.take(rows),
            expected[rows][(slice(None), *[slice(None, None, -1)] * (view.ndim - 1))],
        )

    @pytest.mark.parametrize("wanted", ["f4", "f8", "i8"])
    def test_conversion(self, tmp_path: Path, wanted: str) -> None:
        array = sample_array(self.shape, "<u2")
        view = View.of(self.make(tmp_path, array)).astype(wanted)
        assert view.dtype == np.dtype(wanted)
        assert_array_equal(view.take([3, 1, 3]), array[[3, 1, 3]].astype(wanted))

    def test_one_dimension(self, tmp_path: Path) -> None:
        array = sample_array((100,), "<i8")
        source = self.make(tmp_path, array)
        assert_array_equal(self.read(source, [99, 0, 50, 51]), array[[99, 0, 50, 51]])

    def test_pickle(self, tmp_path: Path) -> None:
        array = sample_array(self.shape)
        source = self.make(tmp_path, array)
        self.read(source, [0])  # an open handle must not travel
        copy = pickle.loads(pickle.dumps(source))
        assert_array_equal(self.read(copy, [7, 2]), array[[7, 2]])

    def test_threads(self, tmp_path: Path) -> None:
        array = sample_array((64, 8, 8))
        source = self.make(tmp_path, array)
        rng = np.random.default_rng(3)
        batches = [rng.integers(0, 64, 16) for _ in range(64)]
        with ThreadPoolExecutor(4) as pool:
            for rows, got in zip(
                batches, pool.map(lambda rows: self.read(source, rows), batches), strict=True
            ):
                assert_array_equal(got, array[rows])

    def test_positions_never_wrap(self, tmp_path: Path) -> None:
        view = View.of(self.make(tmp_path, sample_array(self.shape)))
        for wrong in (23, -24):
            with pytest.raises(PositionError, match="within"):
                view.take([wrong])
