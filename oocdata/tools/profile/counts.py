"""Counting what is read: a dataset like another one, whose sources note what is asked of them.

Only the protocols that datasets, sources and readers share are wrapped, so it works for any of
them, and the original is left as it is.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Blocks, Dataset, Draw, Request
from oocdata.datasets.spec import Batch, Spec
from oocdata.index import Selection
from oocdata.sources.adapt import Converted, CutRows
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.readers import ChunkReader
from oocdata.sources.source import Source

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.sources.chunk_layout import Box
    from oocdata.sources.source import Layout

__all__ = ["Counts", "counted", "disk_bytes", "fresh"]


@dataclass(eq=False)
class Counts:
    """What was read so far.

    Attributes
    ----------
    rows : int
        Delivered; a row that two arrays of an element share counts twice.
    chunks : int
        Decoded.
    chunk_rows : float
        Rows in those.
    decoded_bytes : int
        Bytes in those.
    stored_bytes : float
        What was fetched for all of it, from the disk or from the page cache; estimated from how
        well the whole array compresses.
    """

    rows: int = 0
    chunks: int = 0
    chunk_rows: float = 0
    decoded_bytes: int = 0
    stored_bytes: float = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add_rows(self, rows: int, stored_bytes: float) -> None:
        """Count rows that were delivered; from any thread."""
        with self._lock:
            self.rows += rows
            self.stored_bytes += stored_bytes

    def add_chunk(self, rows: float, nbytes: int, stored_bytes: float) -> None:
        """Count a chunk that was decoded; from any thread."""
        with self._lock:
            self.chunks += 1
            self.chunk_rows += rows
            self.decoded_bytes += nbytes
            self.stored_bytes += stored_bytes

    def from_disk(self, disk_bytes: int | None) -> float:
        """Return the share of what was fetched that came from the disk.

        Examples
        --------
        >>> counts = Counts()
        >>> counts.add_rows(10, stored_bytes=1000)
        >>> counts.from_disk(250), counts.from_disk(None)
        (0.25, 0.0)
        """
        return min(1.0, (disk_bytes or 0) / self.stored_bytes) if self.stored_bytes else 0.0


def counted(loader: Loader, counts: Counts | None = None) -> tuple[Loader, Counts]:
    """Return a loader of the same batches that counts what it reads.

    It finds nothing that others have decoded, and has no worker processes: what those read could
    not be seen.

    Parameters
    ----------
    loader : Loader
    counts : Counts, optional
        To go on with.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader, counts = counted(ooc.open(np.arange(10)).batches(4))
    >>> loader.batch(1), counts.rows
    (array([4, 5, 6, 7]), 4)
    """
    counts = Counts() if counts is None else counts
    dataset = _Counted(fresh(loader.dataset), counts, {})
    return replace(loader, dataset=dataset, workers=0), counts


def fresh(dataset: Dataset) -> Dataset:
    """Return a dataset of the same rows that shares no decoded chunk with it; the same if it can't.

    A description that has been pickled and unpickled keeps nothing. Arrays are not copied.

    Examples
    --------
    >>> import oocdata as ooc
    >>> view = ooc.open(np.arange(10))
    >>> fresh(view) is view, fresh(view)[3]
    (False, np.int64(3))
    """
    beside: list[pickle.PickleBuffer] = []
    try:
        described = pickle.dumps(dataset, 5, buffer_callback=beside.append)
    except Exception:  # pickling runs anybody's code; what can't be pickled is read as it is
        return dataset
    copy: Dataset = pickle.loads(described, buffers=beside)
    return copy


def disk_bytes() -> int | None:
    """Return the bytes that this process has made the disk read; None where that is not known."""
    try:
        with open("/proc/self/io") as file:
            fields = dict(line.split(": ") for line in file.read().splitlines())
        return int(fields["read_bytes"])
    except (OSError, KeyError, ValueError):
        return None


@dataclass(frozen=True, eq=False, repr=False)
class _Counted(Dataset):
    """A dataset whose requests go to sources that count."""

    dataset: Dataset
    counts: Counts
    known: dict[int, tuple[Source, Source]]
    """Each source with the one that counts, by its identity, which stays its own while it is
    held."""

    @property
    def spec(self) -> Spec:
        return self.dataset.spec

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def blocks(self) -> Blocks:
        return self.dataset.blocks

    @property
    def is_mapped(self) -> bool:
        return self.dataset.is_mapped

    def requests(self, positions: NDArray[np.int64]) -> tuple[Request, ...]:
        return tuple(
            Request(self._counting(request.source), request.rows)
            for request in self.dataset.requests(positions)
        )

    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        return self.dataset.assemble(arrays, draw)

    def select(self, positions: Selection) -> Self:
        return replace(self, dataset=self.dataset.select(positions))

    def _counting(self, source: Source) -> Source:
        found = self.known.get(id(source))
        if found is None:
            # One for all threads: another one would find nothing of what is decoded for this one.
            counting = _CountedSource(_with_readers(source, self.counts), self.counts)
            found = self.known.setdefault(id(source), (source, counting))
        return found[1]


@dataclass(frozen=True, eq=False)
class _CountedSource:
    """Counts the rows that a source delivers."""

    source: Source
    counts: Counts

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        return self.source.chunk_rows

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        plain = self.source.chunk_rows == 1
        row_bytes = prod(self.shape[1:]) * self.dtype.itemsize
        self.counts.add_rows(len(rows), len(rows) * row_bytes if plain else 0)
        self.source.read_into(rows, out)


def _with_readers(source: Source, counts: Counts) -> Source:
    """Return a source like another one, which counts the chunks that are decoded for it."""
    if isinstance(source, Chunks) and max(source.reader.chunk_shape) > 1:
        kind = _CountedChunks if isinstance(source.reader, ChunkReader) else _CountedBoxes
        # A new one, so that it finds no chunk that is kept for the other.
        whole = prod(source.reader.shape) * source.dtype.itemsize
        stored = source.layout().stored_bytes
        share = 1.0 if stored is None or not whole else stored / whole
        columns = len(source.known.layout(source).columns)
        reader = kind(source.reader, source.axis, columns, counts, share)
        return Chunks(reader, source.axis, source.cuts)
    if isinstance(source, Concat):
        return replace(source, parts=tuple(_with_readers(part, counts) for part in source.parts))
    if isinstance(source, Converted | CutRows):
        return replace(source, source=_with_readers(source.source, counts))
    return source


@dataclass(frozen=True, eq=False)
class _CountedBoxes:
    """Counts the chunks that a reader decodes."""

    reader: Any
    axis: int
    columns: int
    """Chunks that a row is put together from: where they split the element axes too."""
    counts: Counts
    stored_share: float
    """Bytes that are stored for each one that is decoded."""

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.reader.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.reader.dtype
        return dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.reader.chunk_shape
        return shape

    def layout(self) -> Layout:
        layout: Layout = self.reader.layout()
        return layout

    def read_box(self, box: Box) -> NDArray[Any]:
        self._count([box])
        read: NDArray[Any] = self.reader.read_box(box)
        return read

    def _count(self, boxes: Sequence[Box]) -> None:
        for box in boxes:
            lengths = [part.stop - part.start for part in box]
            nbytes = prod(lengths) * self.dtype.itemsize
            rows = lengths[self.axis] / self.columns
            self.counts.add_chunk(rows, nbytes, nbytes * self.stored_share)


class _CountedChunks(_CountedBoxes):
    """Counts the chunks that a reader of several at a time decodes."""

    @property
    def own_threads(self) -> bool:
        own: bool = self.reader.own_threads
        return own

    def read_boxes(self, boxes: Sequence[Box], outs: Sequence[NDArray[Any]]) -> None:
        self._count(boxes)
        self.reader.read_boxes(boxes, outs)
