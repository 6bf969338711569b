"""Make a whole array one row: each of many files, or datasets, is an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.axis_views import AxisView
from oocdata.engines.chunked import Chunked, ChunkReader
from oocdata.engines.columns import is_sparse
from oocdata.engines.decoded import Decoded
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.prefetch import Fetch
from oocdata.engines.ragged_rows import is_ragged
from oocdata.engines.source import Source, Storage
from oocdata.engines.strided import Strided
from oocdata.engines.wrapped import Relabelled
from oocdata.errors import ArgumentError, SourceError


def single_row(source: Source) -> Source:
    """Return an array with an axis of length 1 before its own.

    Arrays at byte offsets, and arrays in chunks, stay what they are: those of many files are read
    together.
    """
    storage, shape = source.storage(), (1, *source.shape)
    if is_ragged(source) or is_sparse(source) or source.dtype.hasobject:
        raise ArgumentError(
            "`axis` must name the row axis of rows of unequal length, text, or sparse rows; got "
            "None. Leave it out."
        )
    if type(source) is MemoryArray:
        return MemoryArray(source.array[np.newaxis], _described(storage))
    if isinstance(source, Decoded):  # number by number, whatever the axes
        return replace(source, source=single_row(source.source))
    if isinstance(source, Chunked):
        chunk = (1, *source.reader.chunk_shape)
        return Chunked(
            _SingleRowChunks(source.reader, shape, chunk, source.dtype, source.own_threads)
        )
    if type(source) is Strided and source.chunk_offsets is None:
        strides = (source.stored.itemsize * prod(source.shape), *source.strides)
        described = _described(storage, None if storage.strides is None else strides)
        return Strided(source.file, source.stored, shape, strides, source.offset, described)
    maps = tuple((axis + 1, range(length)) for axis, length in enumerate(source.shape))
    return Relabelled(AxisView(source, maps, shape, source.dtype), _described(storage))


def _described(storage: Storage, strides: tuple[int, ...] | None = None) -> Storage:
    """Return the storage of an array as one row; `opened` then makes it one again."""
    return replace(
        storage,
        chunks=None if storage.chunks is None else (1, *storage.chunks),
        strides=strides,
        parts=(0,),
        parts_axis=0,
        part_names=(),
        episodes=False,
        dimensions=("", *storage.dimensions) if storage.dimensions else (),
        columns=None,
        opened=None if storage.opened is None else {**storage.opened, "axis": None},
    )


@dataclass(frozen=True)
class _SingleRowChunks:
    """The chunks of an array as one row; a `oocdata.engines.chunked.ChunkReader`."""

    reader: ChunkReader
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    own_threads: bool

    def storage(self) -> Storage:
        return _described(self.reader.storage())

    def check(self) -> None:
        self.reader.check()

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        try:
            self.reader.read_chunks(places[:, 1:], [out[0, ...] for out in outs])
        except SourceError as error:
            error.count = None
            error.set_rows([0])
            raise

    def fetches(self, places: Ints) -> list[Fetch]:
        fetches = getattr(self.reader, "fetches", None)
        return [] if fetches is None else fetches(places[:, 1:])
