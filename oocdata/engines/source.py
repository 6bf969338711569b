"""Define `Source`, the interface between storage and datasets.

A source reads boxes into the caller's memory and describes how its array is stored; datasets choose
the boxes. No module outside this folder and `oocdata.formats` tests for a source's class.

Sources of this package may do more, by methods that are looked up by name:

==========================  ======================================================================
`read_to`                   write boxes to any places of a batch; see `copying.read_to`
`has_runs`, `read_runs`     read runs of unequal length along axis 0; see `ragged.read_ragged`
`below`, `read_boxes`       of a source made of others: these, and the boxes that it reads of them
`runs_below`                the same for runs; see `ragged.boxes_of_runs`
`fetches`                   the byte ranges that boxes need from a store; see `prefetch.fetches`
`check`                     raise if the file has changed
==========================  ======================================================================
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints

if TYPE_CHECKING:
    from oocdata.engines.files import Version


@dataclass(frozen=True, slots=True)
class Annotations:
    """Metadata of a stored array, read on demand.

    Attributes are as the format's library returns them, without names of dimensions: None for one
    that can't be read, or that does not hold for the numbers as delivered. Elements that were never
    written have the fill value.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill_value: Any = None


@dataclass(frozen=True, slots=True)
class Storage:
    """How an array is stored: all that code outside the engines and formats may know of it.

    - `format`: ``".npy"``, ``"HDF5"``, ``"Zarr v3"``, …
    - `path`, `key`: The file and the dataset in it.
    - `layout`: A few words: ``"contiguous, C order"``, ``"chunks of (32, 3, 50, 50)"``.
    - `codec`: ``"none"``, ``"shuffle, gzip 4"``, …
    - `stored_bytes`: Bytes on disk; None where finding out is expensive.
    - `reading`: How oocdata reads it, in words.
    - `chunks`: Shape of the chunks that are decoded as a whole, one length per axis as stored. None
      where every byte is addressable, so that a box costs only its own bytes.
    - `chunk_bytes`: Bytes decoded per chunk, where that is not the size of its numbers. For sparse
      rows, `chunks` and `chunk_bytes` are averages, because neighbouring rows share a decoded
      chunk.
    - `strides`: Bytes from one position to the next along each axis, where the whole array is one
      strided block of one file.
    - `offset`: Byte offset of that block in the file.
    - `parts`: Position along `parts_axis` at which each part (a file, or a dataset of a file)
      begins; ``(0,)`` for one part. An empty part begins where the next part does.
    - `parts_axis`: Axis along which the parts follow one another.
    - `part_names`: File and dataset of each part; empty for a single part.
    - `episodes`: Whether each part is an episode by default: datasets of several keys are, files of
      a list are not.
    - `dimensions`: Names of the axes as stored, ``""`` for an axis without a name; empty if no axis
      has one.
    - `directions`: Of axes with a coordinate, by name, whether it ``"rises"`` or ``"falls"``;
      without rows.
    - `packed`: ``"scale_factor 0.01, add_offset 280.0, _FillValue -9999"`` where the numbers are
      packed or masked by the CF conventions; they are delivered as stored.
    - `unit`: ``"datetime64[ns]"`` where dates are delivered as the integers that are stored;
      ``array.view(unit)`` converts them to dates.
    - `units`: Physical units of the numbers, as the file has them; empty for times, and where
      unknown.
    - `categorical`: Whether the integers are codes of names, which `annotations` reads.
    - `columns`: Reads the names of the positions along axis 1, such as genes; None if there are
      none.
    - `files`: Versions of the files that are read, as of opening; empty for objects in memory.
    - `version`: Identifies the content where `files` does not cover all of it (a Zarr array is a
      folder of objects); empty where it does, or where nothing identifies the content.
    - `opened`: Keyword arguments of `oocdata.open` (JSON), without ``axis``, that open the array
      again in any process; None for an array that exists in this process only.
    - `chunk_scratch`: Bytes of scratch memory for decoding one chunk, besides the chunk; 0: twice
      the chunk's size.
    - `row_files`: Paths of the rows' files, where each row is a file of its own; else empty.
    - `table_bytes`: Bytes of tables (such as chunk offsets) that the source keeps in memory after
      its first read.
    - `row_sizes`: For rows of bytes of unequal length, the number of rows in each size class; see
      `oocdata.engines.byte_rows.size_counts`. Empty for other rows.
    - `cached_whole`: Sizes in bytes of arrays that are cached besides `chunks`, each as far as
      there is room; see `oocdata.engines.cache.Cache.kept`.
    - `scratch_bytes`: Bytes of scratch memory that a read takes besides `out`, where that is much.
    - `annotations`: Reads the attributes and the fill value.
    """

    format: str
    path: str | None = None
    key: str | None = None
    layout: str = "unknown"
    codec: str = "unknown"
    stored_bytes: int | None = None
    reading: str = ""
    chunks: tuple[int, ...] | None = None
    chunk_bytes: int | None = None
    strides: tuple[int, ...] | None = None
    offset: int = 0
    parts: tuple[int, ...] = field(default=(0,), repr=False)
    parts_axis: int = 0
    part_names: tuple[tuple[str | None, str | None], ...] = field(default=(), repr=False)
    episodes: bool = False
    dimensions: tuple[str, ...] = ()
    directions: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    packed: str = ""
    unit: str = ""
    units: str = ""
    categorical: bool = False
    columns: Callable[[], NDArray[Any] | None] | None = field(
        default=None, compare=False, repr=False
    )
    files: tuple[Version, ...] = field(default=(), repr=False)
    version: str = ""
    opened: Mapping[str, Any] | None = None
    chunk_scratch: int = 0
    row_files: Sequence[str] = field(default=(), repr=False)
    table_bytes: int = 0
    row_sizes: tuple[int, ...] = field(default=(), repr=False)
    cached_whole: tuple[int, ...] = field(default=(), repr=False)
    scratch_bytes: int = 0
    annotations: Callable[[], Annotations] = field(default=Annotations, compare=False, repr=False)

    def place(self, row: int, axis: int = 0) -> tuple[str | None, str | None, int]:
        """Return the file and the dataset of a place along an axis, and the place in it."""
        if len(self.parts) == 1 or axis != self.parts_axis:
            return self.path, self.key, row
        part = bisect_right(self.parts, row) - 1
        return *self.part_names[part], row - self.parts[part]

    @property
    def cache(self) -> str:
        """Path of the folder that caches data fetched from a store; empty without one."""
        return next((file.cache for file in self.files if file.cache), "")

    @property
    def single_rows(self) -> bool:
        """Whether each row is a whole file or dataset, as ``axis=None`` opens them."""
        return (self.opened or {}).get("axis", 0) is None

    @property
    def is_remote(self) -> bool:
        """Whether the bytes are in a store, behind a slow link."""
        return any("://" in file.path for file in self.files)


@runtime_checkable
class Source(Protocol):
    """Random access by box to one array in storage.

    Immutable, picklable where its file has a path, and thread-safe. Files are opened lazily in each
    process, and closed with the source.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array as stored, with N axes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """As delivered, in native byte order."""

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]`` for every ``i``.

        Parameters
        ----------
        origins : ndarray of int64, shape (n, N)
            Every box lies within the array; any order, repeats allowed.
        extent : Extent
            Extent of all boxes.
        out : ndarray, shape ``(n, *extent.lengths)``
            The caller's memory: axes in the order of storage, any strides (a transposed or reversed
            view), any numeric dtype (NumPy's rules of assignment).

        Raises
        ------
        oocdata.errors.SourceError
            If storage can't deliver the boxes; names file, dataset and rows (positions along the
            first axis on which boxes differ, or axis 0). The content of `out` is then undefined.
        """

    def storage(self) -> Storage:
        """Return how the array is stored."""


class WithStorage:
    """A source with a storage description in `_storage`, an attribute or a cached property."""

    def storage(self: Any) -> Storage:
        description: Storage = self._storage
        return description


class Keyed:
    """An object that equals others of its class with the same key."""

    _key: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


@runtime_checkable
class RowSource(Protocol):
    """A user-defined source that reads rows along axis 0 and nothing else."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """In native byte order."""

    def read_rows(self, rows: Ints, out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` is C-contiguous, of this source's dtype."""


Boxes: TypeAlias = tuple[Source, Ints, Extent]
"""A source, the origins of boxes in it, and their extent."""


def stored_boxes(source: Source, origins: Ints, extent: Extent) -> Iterator[Boxes]:
    """Yield the boxes of stored arrays that reading boxes of a source reads.

    For a source made of others, these are boxes of the others; for a field, the rows that hold it.
    """
    if not hasattr(source, "below"):
        yield source, origins, extent
        return
    for inner in cast(Any, source).read_boxes(origins, extent):
        yield from stored_boxes(*inner)


def stored_sources(sources: Iterable[Source]) -> list[Source]:
    """Return the stored arrays that sources are made of, without duplicates."""
    unique: dict[int, Source] = {}
    for source in sources:
        below = getattr(source, "below", None)
        stored = [source] if below is None else stored_sources(below)
        unique.update((id(array), array) for array in stored)
    return list(unique.values())
