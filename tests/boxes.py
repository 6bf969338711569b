"""What a way of storing arrays is compared by where another test class covers its engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines.source import Source
from oocdata.testing import boxes_of


def check_boxes(source: Source, array: NDArray[Any]) -> None:
    """Compare a source with its array: all of it, rows of the first and last axis, random boxes."""
    random = np.random.default_rng(0)
    assert isinstance(source, Source)
    assert source.shape == array.shape
    assert source.dtype == array.dtype.newbyteorder("=")
    assert source.dtype.isnative
    assert_array_equal(np.asarray(View.of(source)), array)
    for axis in (0, array.ndim - 1):
        rows = random.integers(0, array.shape[axis], 9)
        assert_array_equal(View.of(source, axis).take(rows), np.moveaxis(array, axis, 0)[rows])
    for _ in range(3):
        strides = [int(stride) for stride in random.integers(1, 4, array.ndim)]
        lengths = [
            int(random.integers(1, (length - 1) // stride + 2))
            for length, stride in zip(array.shape, strides, strict=True)
        ]
        extent = Extent(tuple(lengths), tuple(strides))
        ends = [n - span + 1 for n, span in zip(array.shape, extent.spans, strict=True)]
        origins = random.integers(0, ends, (7, array.ndim))
        found = np.empty((7, *lengths), source.dtype)
        source.read(origins, extent, found)
        assert_array_equal(found, boxes_of(array, origins, extent))
