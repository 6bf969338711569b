"""What an epoch needs of storage: which share of each source, and the bytes of that."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from oocdata.choice import chunk_numbers
from oocdata.datasets.dataset import Dataset
from oocdata.sources.adapt import Converted, CutRows, layout_of, part_starts
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.extents import Extents
from oocdata.sources.slots import chunk_budget
from oocdata.sources.source import Source

__all__ = ["Needed", "all_kept", "needed", "parts_of", "sources_of", "touched"]

_MOST_ROWS = 1 << 18
"""Rows that are followed, at most; what more elements need is worked out from these."""


def sources_of(dataset: Dataset) -> list[Source]:
    """Return the different sources that elements are read from.

    Examples
    --------
    >>> import oocdata as ooc
    >>> len(sources_of(ooc.open(np.arange(10)).next_frame()))
    1
    """
    requests = dataset.requests(np.zeros(1, np.int64))
    return list({id(request.source): request.source for request in requests}.values())


def parts_of(source: Source) -> list[Source]:
    """Return what a source reads from: the files of several, what is cut or converted."""
    if isinstance(source, Concat):
        return [deeper for part in source.parts for deeper in parts_of(part)]
    if isinstance(source, Converted | CutRows):
        return parts_of(source.source)
    return [source]


@dataclass(frozen=True, slots=True)
class Needed:
    """What an epoch needs of one source, each row and each chunk once.

    Attributes
    ----------
    source : Source
    rows : float
        Different rows.
    chunks : float
        Different chunks that these lie in; as many as rows, where each row is addressable.
    """

    source: Source
    rows: float
    chunks: float

    @property
    def share(self) -> float:
        """The share of the source's chunks."""
        return self.chunks / max(1, _all_chunks(self.source))

    @property
    def stored_bytes(self) -> float:
        """Bytes of these in storage."""
        return self.share * sum(map(_stored_bytes, parts_of(self.source)))

    @property
    def decoded_bytes(self) -> float:
        """Bytes of the chunks, decoded; 0 where nothing is."""
        parts = [part.kept_chunks for part in parts_of(self.source) if isinstance(part, Chunks)]
        return self.share * sum(nbytes * number for nbytes, number in parts)

    @property
    def kept_bytes(self) -> float:
        """Bytes of small rows that are read in blocks and kept, where there are such."""
        parts = parts_of(self.source)
        return self.share * sum(part.kept_bytes for part in parts if isinstance(part, Extents))


def needed(dataset: Dataset) -> tuple[Needed, ...]:
    """Return what an epoch needs, source by source.

    Of many elements, from what the first ones need and what more of them add.

    Examples
    --------
    >>> import oocdata as ooc
    >>> from oocdata.testing import RecordingSource
    >>> view = ooc.View.of(RecordingSource(np.zeros((100, 3)), chunk_rows=10))
    >>> [(one.rows, one.chunks, one.share) for one in needed(view[5:25].next_frame())]
    [(20.0, 3.0, 0.3)]
    """
    count = len(dataset)
    rows_of_one = sum(request.rows.size for request in dataset.requests(np.zeros(1, np.int64)))
    some = min(count, max(2, _MOST_ROWS // max(1, rows_of_one)))
    whole, half = (touched(dataset, np.arange(n)) for n in (some, some // 2))
    before = {id(one.source): one for one in half}
    more = (count - some) / max(1, some - some // 2)

    def all_of(now: Needed) -> Needed:
        then = before.get(id(now.source), Needed(now.source, 0, 0))
        return Needed(
            now.source,
            min(now.source.shape[0], now.rows + more * (now.rows - then.rows)),
            min(_all_chunks(now.source), now.chunks + more * (now.chunks - then.chunks)),
        )

    return tuple(map(all_of, whole))


def all_kept(dataset: Dataset) -> bool:
    """Return whether all that an epoch decodes, or reads in blocks, is kept for the next one.

    Examples
    --------
    >>> import oocdata as ooc
    >>> all_kept(ooc.open(np.arange(10)))  # nothing is
    False
    """
    kept = sum(one.decoded_bytes + one.kept_bytes for one in needed(dataset))
    return 0 < kept <= chunk_budget()


def touched(dataset: Dataset, positions: NDArray[np.int64]) -> tuple[Needed, ...]:
    """Return the same for some elements, in any order."""
    rows: dict[int, list[NDArray[np.int64]]] = {}
    sources: dict[int, Source] = {}
    for request in dataset.requests(positions):
        sources[id(request.source)] = request.source
        rows.setdefault(id(request.source), []).append(request.rows.ravel())
    found = []
    for number, source in sources.items():
        different = np.unique(np.concatenate(rows[number]))
        chunks = np.unique(chunk_numbers(source, different))
        found.append(Needed(source, float(len(different)), float(len(chunks))))
    return tuple(found)


def _all_chunks(source: Source) -> int:
    bounds = [*part_starts(source), source.shape[0]]
    lengths = np.diff(np.asarray(bounds, np.int64))
    return int((-(-lengths // source.chunk_rows)).sum())


def _stored_bytes(part: Source) -> float:
    """Return the bytes that a source's rows take in storage, without what is cut off.

    Of rows that are addressable, as delivered; of chunks, of those that the cuts touch.
    """
    delivered = prod(part.shape) * part.dtype.itemsize
    stored = layout_of(part).stored_bytes
    if stored is None:
        return delivered
    if not isinstance(part, Chunks) or max(part.reader.chunk_shape) == 1:
        return min(stored, delivered)
    nbytes, number = part.kept_chunks
    whole = prod(part.reader.shape) * part.dtype.itemsize
    return stored * min(1.0, nbytes * number / max(1, whole))
