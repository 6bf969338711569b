"""What a source is: the one boundary between storage and everything above it.

A source reads boxes into the caller's memory, and says how its array is stored. Datasets say which
boxes. Nobody outside this folder and `oocdata.formats` asks a source for its class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import UnsupportedDtypeError

if TYPE_CHECKING:
    from oocdata.engines.files import Version

__all__ = [
    "Annotations", "Boxes", "RowSource", "Source", "Storage", "check_dtype", "check_stored",
    "stored_boxes", "stored_sources", "unit_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Annotations:
    """What storage says of an array beside its layout, read when it is asked for.

    Attributes
    ----------
    attributes : mapping of str
        As the format's library gives them, names of dimensions left out; None for one that can't
        be read, or that is not true of what is delivered.
    fill_value : number or None
        What was never written reads as.
    """

    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill_value: Any = None


@dataclass(frozen=True, slots=True)
class Storage:
    """How an array is stored: all that anyone outside the engines and formats may ask.

    Attributes
    ----------
    format : str
        ``".npy"``, ``"HDF5"``, ``"Zarr v3"``, …
    path, key : str or None
        The file and the dataset in it.
    layout : str
        A few words: ``"contiguous, C order"``, ``"chunks of (32, 3, 50, 50)"``.
    codec : str
        ``"none"``, ``"shuffle, gzip 4"``, …
    stored_bytes : int or None
        Bytes on disk; None where that is not cheap to know.
    reading : str
        How oocdata reads it, in words.
    chunks : tuple of int or None
        The grid of what is decoded together, one length an axis as stored; None where every byte
        has an address, so that any box costs only its own bytes.
    chunk_bytes : int or None
        Bytes that are decoded for one place of that grid, where they are not those of its numbers.
        Of sparse rows the grid and these are averages: neighbours in it share a decoded chunk.
    strides : tuple of int or None
        Bytes from one place to the next along each axis, where the whole array is one strided
        block of one file.
    offset : int
        Where that block begins in the file, in bytes.
    parts : tuple of int
        Where each part (a file, a dataset of a file) of several begins along `parts_axis`; ``(0,)``
        for one. A part without rows begins where the next one does.
    parts_axis : int
    part_names : tuple of (str or None, str or None)
        File and dataset of each part; empty where there is one.
    episodes : bool
        Whether each part is an episode unless something else is said: datasets of several keys are,
        files of a list are not.
    dimensions : tuple of str
        Names of the axes as stored, empty for an axis without; empty where none has a name.
    packed : str
        ``"scale_factor 0.01, add_offset 280.0, _FillValue -9999"`` where the numbers are packed or
        missing by the CF conventions; they are delivered as stored.
    unit : str
        ``"datetime64[ns]"`` where dates are delivered as the integers that they are stored as;
        ``array.view(unit)`` makes them dates.
    files : tuple of Version
        The files whose bytes are read, as they were when opened; empty for objects.
    version : str
        What tells this content from an earlier one where `files` are not all that is read (a Zarr
        array is a folder of objects); empty where they are, or nothing does.
    opened : mapping or None
        Keyword arguments of `oocdata.open` (JSON) that open the array again in any process, without
        ``axis``; None for what lives in this process alone.
    chunk_scratch : int
        Bytes that decoding one chunk may take besides it; 0: twice those of the chunk.
    row_files : sequence of str
        Where each row is a file of its own, their paths; empty where it is not.
    table_bytes : int
        Bytes of tables (where chunks lie) that the source keeps once it was read.
    row_sizes : tuple of int
        Of rows of bytes of unequal length, how many there are of each size class; see
        `oocdata.engines.byte_rows.size_counts`. Empty for other rows.
    cached_whole : tuple of int
        Bytes of arrays that are cached besides what `chunks` says, each as a whole where it fits;
        see `oocdata.engines.blocked.fits`.
    scratch_bytes : int
        Bytes that a read takes besides the memory that it writes to, where they are many.
    annotations : callable
        Reads the attributes and the fill value.
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
    parts: tuple[int, ...] = (0,)
    parts_axis: int = 0
    part_names: tuple[tuple[str | None, str | None], ...] = field(default=(), repr=False)
    episodes: bool = False
    dimensions: tuple[str, ...] = ()
    packed: str = ""
    unit: str = ""
    files: tuple[Version, ...] = ()
    version: str = ""
    opened: Mapping[str, Any] | None = None
    chunk_scratch: int = 0
    row_files: Sequence[str] = field(default=(), repr=False)
    table_bytes: int = 0
    row_sizes: tuple[int, ...] = field(default=(), repr=False)
    cached_whole: tuple[int, ...] = field(default=(), repr=False)
    scratch_bytes: int = 0
    annotations: Callable[[], Annotations] = field(default=Annotations, compare=False, repr=False)

    @property
    def cache(self) -> str:
        """The folder in which what is fetched of a store is kept; empty without one."""
        return next((file.cache for file in self.files if file.cache), "")

    @property
    def is_remote(self) -> bool:
        """Whether bytes lie in a store, from where it takes long to have them."""
        return any("://" in file.path for file in self.files)


@runtime_checkable
class Source(Protocol):
    """Random access by box to one array in storage.

    Immutable, picklable where its file has a path, safe to use from several threads. It opens its
    files lazily in each process, and they are closed with it.

    Attributes
    ----------
    shape : tuple of int
        Of the array as stored: N axes.
    dtype : numpy.dtype
        In native byte order, as delivered.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array as stored."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        ...

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]`` for every ``i``.

        Parameters
        ----------
        origins : ndarray of int64, shape (n, N)
            Every box lies within the array; any order, repeats allowed.
        extent : Extent
            Of all boxes.
        out : ndarray, shape ``(n, *extent.lengths)``
            The caller's memory: axes in the order of storage, of any strides (a transposed or
            reversed view), of any numeric dtype (the rules of NumPy's assignment).

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows (places along the first axis on which boxes differ, or
            axis 0), when storage can't deliver them. What `out` holds then is undefined.
        """
        ...

    def storage(self) -> Storage:
        """Return how the array is stored."""
        ...


@runtime_checkable
class RowSource(Protocol):
    """A source of the user's own: rows along axis 0, and nothing else.

    Attributes
    ----------
    shape : tuple of int
        ``(rows, *element)``.
    dtype : numpy.dtype
        Native byte order.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        ...

    def read_rows(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` is C-contiguous, of this source's dtype."""
        ...


Boxes: TypeAlias = tuple[Source, NDArray[np.int64], Extent]
"""Boxes of a source: their origins, and their extent."""


def stored_boxes(source: Source, origins: NDArray[np.int64], extent: Extent) -> Iterator[Boxes]:
    """Yield the boxes of the arrays as stored that are read for boxes of a source.

    Of what is put together from several, those of each; of a field, the rows that hold it.
    """
    if not hasattr(source, "below"):
        yield source, origins, extent
        return
    for inner in cast(Any, source).read_boxes(origins, extent):
        yield from stored_boxes(*inner)


def stored_sources(sources: Iterable[Source]) -> list[Source]:
    """Return the arrays as stored that sources are put together from, each once."""
    found: dict[int, Source] = {}
    for source in sources:
        below = getattr(source, "below", None)
        stored = [source] if below is None else stored_sources(below)
        found.update((id(one), one) for one in stored)
    return list(found.values())


def check_dtype(
    dtype: np.dtype[Any], path: str | None = None, key: str | None = None
) -> np.dtype[Any]:
    """Return a dtype that batches can hold: bool, numbers, text of fixed length.

    Of floats, bfloat16 and float8_e4m3fn of ml_dtypes too.

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        For objects, dates, structured rows and long doubles.

    Examples
    --------
    >>> check_dtype(np.dtype(">f4"))
    dtype('>f4')
    """
    if dtype.kind == "O":
        raise UnsupportedDtypeError(
            "elements must be numbers of a fixed size; got an object array, which is a pickle and "
            "can't be read by row. Save it again with a numeric dtype.",
            path=path,
            key=key,
        )
    if (dtype.kind in "SU" and dtype.itemsize) or is_small_float(dtype):
        return dtype
    # Long double has no TensorFlow type and its size is the platform's.
    long = dtype.itemsize > (16 if dtype.kind == "c" else 8)
    if dtype.kind not in "biufc" or dtype.isbuiltin == 2 or long:
        hint = (
            f"Choose one of the fields {dtype.names}: view[{dtype.names[0]!r}]; several side by "
            "side with ooc.zip."
            if dtype.names
            else "Save it again with a numeric dtype of at most 64 bits; a small float of "
            "ml_dtypes in a .npy is named by `dtype`, such as dtype='bfloat16'."
            if dtype in (np.dtype("V1"), np.dtype("V2"))
            else f"Save it again as {dtype.base}, with axes of {dtype.shape} after its own."
            if dtype.subdtype
            else "Save it again with a numeric dtype of at most 64 bits."
        )
        raise UnsupportedDtypeError(
            "elements must be bool, integer, float or complex numbers, or text of a fixed length; "
            f"got {dtype}. {hint}",
            path=path,
            key=key,
        )
    return dtype


def check_stored(
    dtype: np.dtype[Any], path: str | None = None, key: str | None = None
) -> np.dtype[Any]:
    """Return a dtype that can be opened: one that batches can hold, or rows with such a field.

    Dates become integers; see `unit_of`.

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        For any other.

    Examples
    --------
    >>> check_stored(np.dtype([("at", "M8[s]"), ("speed", "f4")])).names
    ('at', 'speed')
    >>> check_stored(np.dtype(">M8[s]"))
    dtype('>i8')
    """
    if dtype.names and dtype.hasobject:
        raise UnsupportedDtypeError(
            f"every field must have a fixed size; got {dtype}, where some are objects, or text of "
            "varying length. Save the fields of numbers on their own.",
            path=path,
            key=key,
        )
    if unit_of(dtype):
        return np.dtype(np.int64).newbyteorder(dtype.byteorder)
    return dtype if _has_numbers(dtype) else check_dtype(dtype, path, key)


def unit_of(dtype: np.dtype[Any]) -> str:
    """Return the dtype of dates or spans of time in native byte order; empty for any other.

    Examples
    --------
    >>> unit_of(np.dtype(">M8[s]")), unit_of(np.dtype("f4"))
    ('datetime64[s]', '')
    """
    return dtype.name if dtype.kind in "mM" else ""


def _has_numbers(dtype: np.dtype[Any]) -> bool:
    """Return whether rows have a field, or a field of a field, that batches can hold."""
    if dtype.fields is None:
        try:
            check_dtype(np.dtype(np.int64) if unit_of(dtype) else dtype.base)
        except UnsupportedDtypeError:
            return False
        return dtype.subdtype is None
    return any(_has_numbers(kind.base) for kind, *_ in dtype.fields.values())
