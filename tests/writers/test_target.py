"""Chunks and shards of new arrays, and their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oocdata.writers.target import (
    Target,
    _full_shape,
    _shards,
    default_chunks,
    format_by_suffix,
    target_key,
    with_chunks,
)


@pytest.mark.parametrize(
    ("shape", "itemsize", "chunks"),
    [
        ((20_000, 3, 50, 50), 8, (4, 3, 50, 50)),
        ((100, 1024, 1024, 512), 4, (1, 512, 1024, 512)),  # a row of 2 GiB
    ],
)
def test_default_chunks(shape: Any, itemsize: int, chunks: Any) -> None:
    assert default_chunks(shape, itemsize) == chunks


@pytest.mark.parametrize(
    ("chunks", "shape", "itemsize", "shards"),
    [
        ((20_000, 16), (20_000, 4096), 4, (20_000, 416)),
        ((4, 3, 50, 50), (20_000, 3, 50, 50), 8, (556, 3, 50, 50)),
    ],
)
def test_shards(chunks: Any, shape: Any, itemsize: int, shards: Any) -> None:
    assert _shards(chunks, shape, itemsize) == shards


def test_a_shard_of_one_chunk_is_no_shard() -> None:
    def chosen(rows: int) -> Target:
        shape = (rows, 64, 64)
        target = Target(format="zarr", key=None, shape=shape, dtype=np.dtype("f4"))
        return with_chunks(target, None)

    assert (chosen(1000).chunks, chosen(1000).shards) == ((16, 64, 64), (1008, 64, 64))
    assert (chosen(9).chunks, chosen(9).shards) == ((9, 64, 64), None)


@pytest.mark.parametrize("given", [32, (32, 3, 50, 50)])
def test_chunks_by_rows_or_by_axes(given: Any) -> None:
    assert _full_shape(given, (3, 50, 50)) == (32, 3, 50, 50)


def test_names() -> None:
    assert format_by_suffix("run/ds.h5") == "hdf5"
    assert target_key("hdf5", None) == "/data"
    assert target_key("zarr", None) is None
    assert target_key("hdf5", "flow/u") == "/flow/u"
