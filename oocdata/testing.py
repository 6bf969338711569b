"""Test a source of your own: a conformance class.

Subclass `SourceConformance` once for each source; NumPy is the oracle.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import ArrayLike, DTypeLike, NDArray

from oocdata.box import Extent, Ints
from oocdata.datasets.view import View
from oocdata.engines.cache import cache
from oocdata.engines.copying import read_to
from oocdata.engines.source import RowSource, Source
from oocdata.errors import PositionError
from oocdata.formats.opening import open_source

__all__ = ["SourceConformance", "boxes_of", "sample_array"]


def sample_array(shape: tuple[int, ...], dtype: str = "<f4") -> NDArray[Any]:
    """Return an array in which every element differs from its neighbours on every axis."""
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


def boxes_of(array: NDArray[Any], origins: Ints, extent: Extent) -> NDArray[Any]:
    """Return boxes of an array, cut by NumPy's slicing as the oracle, shape ``(n, *lengths)``."""
    boxes = np.empty((len(origins), *extent.lengths), array.dtype)
    for number, origin in enumerate(origins.tolist()):
        box = tuple(
            slice(start, start + span, stride)
            for start, span, stride in zip(origin, extent.spans, extent.strides, strict=True)
        )
        boxes[number] = array[box]
    return boxes


@contextmanager
def _trying(words: str) -> Iterator[None]:
    """Empty the chunk cache, so that a block reads from storage; add `words` to its exceptions."""
    cache.forget()
    try:
        yield
    except Exception as error:
        error.add_note(words)
        raise


class SourceConformance:
    """Tests that every source must pass. Subclass it and define `make`.

    Attributes
    ----------
    dtypes : tuple of str
        Stored dtypes to test. Two tests store ``<u2`` and ``<i8`` whatever these are.

    Examples
    --------
    >>> class Rows:
    ...     def __init__(self, array):
    ...         self.array, self.shape, self.dtype = array, array.shape, array.dtype
    ...     def read_rows(self, rows, out):
    ...         out[:] = self.array[rows]
    >>> class TestRows(SourceConformance):
    ...     def make(self, folder, array):
    ...         return Rows(array)
    """

    dtypes: tuple[str, ...] = ("<f4", "<f8", "|u1", "<i2", "|b1", "<c8", "<u8")
    shape: tuple[int, ...] = (23, 3, 5, 4)

    def make(self, folder: Path, array: NDArray[Any]) -> Source | RowSource:
        """Store `array` by other means than oocdata, and return the source that reads it."""
        raise NotImplementedError("a conformance class must define `make`")

    def _open(self, folder: Path, array: NDArray[Any]) -> Source:
        return open_source(self.make(folder, array))

    def read(
        self, source: Source, origins: ArrayLike, extent: Extent, dtype: DTypeLike | None = None
    ) -> NDArray[Any]:
        """Read boxes into memory filled with a pattern that reveals bytes that were not written."""
        boxes = np.asarray(origins, np.int64).reshape(-1, len(source.shape))
        out = np.empty((len(boxes), *extent.lengths), dtype or source.dtype)
        out.view(np.uint8)[...] = 0xA5
        source.read(boxes, extent, out)
        return out

    def _check_boxes(self, source: Source, array: NDArray[Any], rng: np.random.Generator) -> None:
        """Compare boxes of random extents and origins, read into memory of several layouts."""
        shape = array.shape
        lengths = [int(rng.integers(1, length + 1)) for length in shape]
        lengths = [1 if rng.random() < 0.3 else length for length in lengths]
        strides = [
            int(rng.integers(1, (n - 1) // (length - 1) + 1)) if length > 1 else 1
            for n, length in zip(shape, lengths, strict=True)
        ]
        extent = Extent(tuple(lengths), tuple(strides))
        origins = np.stack(
            [rng.integers(0, n - s + 1, 7) for n, s in zip(shape, extent.spans, strict=True)],
            axis=1,
        )
        expected = boxes_of(array, origins, extent)
        assert_array_equal(self.read(source, origins, extent), expected)
        # Into a transposed and reversed view, as datasets with another order of axes need.
        order = rng.permutation(4)
        memory = np.zeros((7, *[lengths[axis] for axis in order]), np.float64)
        view = memory.transpose(0, *[1 + int(at) for at in np.argsort(order)])[..., ::-1]
        source.read(origins, extent, view)
        assert_array_equal(view, expected)
        # Into some places of a larger batch; the others must stay unchanged.
        places = np.sort(rng.permutation(16)[:7])
        others = np.setdiff1d(np.arange(16), places)
        turned = np.full((16, *memory.shape[1:]), 77, np.float64)
        turned = turned.transpose(0, *[1 + int(at) for at in np.argsort(order)])[..., ::-1]
        for batch in (np.full((16, *lengths), 77, source.dtype), turned):
            read_to(source, origins, extent, batch, places)
            assert_array_equal(batch[places], expected)
            assert (batch[others] == 77).all()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrise by the class's `dtypes`, so that a subclass can narrow it."""
        if "stored_dtype" in metafunc.fixturenames:
            metafunc.parametrize("stored_dtype", self.dtypes)

    def test_shape_and_native_dtype(self, tmp_path: Path, stored_dtype: str) -> None:
        array = sample_array(self.shape, stored_dtype)
        source = self._open(tmp_path, array)
        assert source.shape == array.shape
        assert source.dtype == array.dtype.newbyteorder("=")
        assert source.dtype.isnative
        whole = self.read(source, [[0] * array.ndim], Extent.of(array.shape))
        assert_array_equal(whole[0], array)

    def test_rows_in_any_order(self, tmp_path: Path) -> None:
        array = sample_array(self.shape)
        source = self._open(tmp_path, array)
        orders = [[22, 0, 11], [5, 5, 5], [3, 4, 5, 6], [6, 5, 4], [0, 22, 1, 21, 1, 0]]
        for rows in ([0], [22], [], *orders):
            with _trying(f"rows {rows}"):
                origins = [[row, 0, 0, 0] for row in rows]
                found = self.read(source, origins, Extent.of((1, *self.shape[1:])))
                assert_array_equal(found[:, 0], array[np.asarray(rows, int)])

    def test_random_boxes(self, tmp_path: Path) -> None:
        array = sample_array((9, 10, 11, 8))
        source = self._open(tmp_path, array)
        for seed in range(12):
            with _trying(f"seed {seed}"):
                self._check_boxes(source, array, np.random.default_rng(seed))

    def test_conversion(self, tmp_path: Path) -> None:
        array = sample_array(self.shape, "<u2")
        whole = View.of(self._open(tmp_path, array))
        for dtype in ("f4", "f8", "i8"):
            with _trying(f"as {dtype}"):
                view = whole.astype(dtype)
                assert view.dtype == np.dtype(dtype)
                assert_array_equal(view.take([3, 1, 3]), array[[3, 1, 3]].astype(dtype))

    def test_sample_axes(self, tmp_path: Path) -> None:
        array = sample_array(self.shape)
        source = self._open(tmp_path, array)
        for axis in ((0,), (1,), (0, 1), (3, 0), (1, 0, 2)):
            with _trying(f"sample axes {axis}"):
                view = View.of(source, axis)
                moved = np.moveaxis(array, axis, range(len(axis)))
                expected = moved.reshape(-1, *moved.shape[len(axis) :])
                rows = np.random.default_rng(1).integers(0, len(expected), 9)
                assert view.shape == expected.shape
                assert_array_equal(view.take(rows), expected[rows])

    def test_one_dimension(self, tmp_path: Path) -> None:
        array = sample_array((100,), "<i8")
        source = self._open(tmp_path, array)
        found = self.read(source, [[99], [0], [50], [51]], Extent.of((1,)))
        assert_array_equal(found[:, 0], array[[99, 0, 50, 51]])

    def test_empty_boxes_read_nothing(self, tmp_path: Path) -> None:
        source = self._open(tmp_path, sample_array(self.shape))
        assert self.read(source, [[0, 0, 0, 0]], Extent.of((1, 0, 5, 4))).shape == (1, 1, 0, 5, 4)

    def test_pickle(self, tmp_path: Path) -> None:
        array = sample_array(self.shape)
        source = self._open(tmp_path, array)
        View.of(source).take([0])  # an open file must not be pickled
        copy = pickle.loads(pickle.dumps(source))
        assert_array_equal(View.of(copy).take([7, 2]), array[[7, 2]])

    def test_threads(self, tmp_path: Path) -> None:
        array = sample_array((64, 8, 8))
        view = View.of(self._open(tmp_path, array))
        rng = np.random.default_rng(3)
        batches = [rng.integers(0, 64, 16) for _ in range(64)]
        with ThreadPoolExecutor(4) as pool:
            for rows, got in zip(batches, pool.map(view.take, batches), strict=True):
                assert_array_equal(got, array[rows])

    def test_positions_never_wrap(self, tmp_path: Path) -> None:
        view = View.of(self._open(tmp_path, sample_array(self.shape)))
        for wrong in (23, -24):
            with pytest.raises(PositionError, match="within"):
                view.take([wrong])
