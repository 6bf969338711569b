"""What a source is: the one boundary between storage and everything above it.

A source says how rows are read; datasets say which. Because the caller supplies the memory, a
batch is written once, and because rows are plain integers, composing datasets never reads.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import (
    ArgumentError,
    MissingKeyError,
    SeveralDatasetsError,
    UnsupportedDtypeError,
    place,
)
from oocdata.index import Cut
from oocdata.sources.dimensions import axis_number

__all__ = [
    "Annotated",
    "Annotations",
    "ConvertingSource",
    "CuttableSource",
    "DescribedSource",
    "Layout",
    "Source",
    "check_axis",
    "check_dtype",
    "choose_key",
]


@runtime_checkable
class Source(Protocol):
    """Random access by row to one array in storage.

    Implementations are immutable, picklable descriptions, safe to use from several threads;
    whatever they open, they open lazily in each process.

    Attributes
    ----------
    shape : tuple of int
        ``(rows, *element)``.
    dtype : numpy.dtype
        In native byte order, as delivered.
    chunk_rows : int
        Rows stored and decoded together; 1 where each row is addressable.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        ...

    @property
    def chunk_rows(self) -> int:
        """Rows stored and decoded together."""
        ...

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]`` for every ``i``.

        Parameters
        ----------
        rows : ndarray of int64, shape (n,)
            Each within ``[0, shape[0])``; any order, repeats allowed.
        out : ndarray, shape (n, *shape[1:])
            C-contiguous, of this source's dtype.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and rows, when storage can't deliver them.
        """
        ...


@runtime_checkable
class CuttableSource(Source, Protocol):
    """A source that can read a part of each row for less than the whole row."""

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``, with one cut (int or range) for each element axis."""
        ...


@runtime_checkable
class ConvertingSource(Source, Protocol):
    """A source that can convert in the one write that fills the batch.

    ``read_into`` then takes an ``out`` of any numeric dtype, with the rules of NumPy assignment.
    """

    converts: bool


@runtime_checkable
class DescribedSource(Source, Protocol):
    """A source that can say where and how it is stored."""

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """Where and how an array is stored, for ``info`` and ``explain``.

    Attributes
    ----------
    format : str
        ``".npy"``, ``"HDF5"``, ``"Zarr v3"``, …
    path, key : str or None
        The file and the dataset inside it.
    storage : str
        A few words: ``"contiguous, C order"``, ``"chunks of (32, 3, 50, 50)"``.
    codec : str
        ``"none"``, ``"shuffle, gzip 4"``, …
    stored_bytes : int or None
        Bytes on disk; None where that is not cheap to know.
    reading : str
        How oocdata reads it, as a sentence.
    dimensions : tuple of str
        Names of the axes as stored, empty for an axis without; empty where none has a name.
    packed : str
        ``"scale_factor 0.01, add_offset 280.0, _FillValue -9999"`` where the numbers are packed or
        missing by the CF conventions; they are delivered as stored.
    axes : tuple of int or None
        The stored axis of each one that is delivered, rows first; None: all, as stored.
    """

    format: str
    path: str | None
    key: str | None
    storage: str
    codec: str
    stored_bytes: int | None
    reading: str
    dimensions: tuple[str, ...] = ()
    packed: str = ""
    axes: tuple[int, ...] | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        """Names of the axes that are delivered, rows first; empty where none has a name."""
        names = tuple(self.dimensions[axis] or None for axis in self._delivered)
        return names if any(names) else ()

    def with_row_axis(self, axis: int) -> Layout:
        """Return the layout of the same array with `axis` moved to the front."""
        axes = self._delivered
        return replace(self, axes=(axes[axis], *axes[:axis], *axes[axis + 1 :])) if axes else self

    def cut(self, cuts: Sequence[Cut]) -> Layout:
        """Return the layout of ``row[cuts]``, which an int takes an axis from."""
        axes = self._delivered
        kept = [axis for axis, cut in zip(axes[1:], cuts, strict=False) if not isinstance(cut, int)]
        return replace(self, axes=(axes[0], *kept)) if axes else self

    @property
    def _delivered(self) -> tuple[int, ...]:
        return tuple(range(len(self.dimensions))) if self.axes is None else self.axes


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


@runtime_checkable
class Annotated(Protocol):
    """A source or a reader that can say what storage says of its array."""

    def annotations(self) -> Annotations:
        """Return attributes and fill value."""
        ...


def check_dtype(
    dtype: np.dtype[Any], path: str | None = None, key: str | None = None
) -> np.dtype[Any]:
    """Return a dtype that batches can hold: bool, integers, floats, complex.

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        For objects, strings, dates, structured rows and long doubles.

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
    # Long double has no TensorFlow type and its size is the platform's.
    if dtype.kind not in "biufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        hint = (
            f"Open one of the fields {dtype.names} saved on its own."
            if dtype.names
            else "Save it again with a numeric dtype of at most 64 bits."
        )
        raise UnsupportedDtypeError(
            f"elements must be bool, integer, float or complex numbers; got {dtype}. {hint}",
            path=path,
            key=key,
        )
    return dtype


def check_axis(
    axis: int | str,
    ndim: int,
    path: str | None = None,
    key: str | None = None,
    names: Sequence[str] = (),
) -> int:
    """Return the row axis counted from the front.

    Parameters
    ----------
    axis : int or str
        Its number, or its name.
    ndim : int
    path, key : str, optional
        For the message.
    names : sequence of str
        Names of the axes, where they have some.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the array has no such axis, or no axis at all.

    Examples
    --------
    >>> check_axis(-1, 3), check_axis("lat", 3, names=("time", "lat", "lon"))
    (2, 1)
    """
    where = place(path, key)
    suffix = f" [{where}]" if where else ""
    if ndim == 0:
        raise ArgumentError(f"an array must have a row axis; got a single number.{suffix}")
    if isinstance(axis, str):
        try:
            return axis_number(axis, names, ndim)
        except ArgumentError as error:
            raise ArgumentError(f"{error}{suffix}") from None
    try:
        number = operator.index(axis)
    except TypeError:
        number = ndim
    if not -ndim <= number < ndim:
        raise ArgumentError(
            f"`axis` must be an axis of the {ndim}-dimensional array; got {axis!r}.{suffix}"
        )
    return number % ndim


def choose_key(keys: Sequence[str], key: str | None, path: str) -> str:
    """Return the key of the dataset to open: the one asked for, or the only one.

    Raises
    ------
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.

    Examples
    --------
    >>> choose_key(["/u"], None, "a.h5")
    '/u'
    """
    there = ", ".join(repr(name) for name in keys[:20]) + (", …" if len(keys) > 20 else "")
    if key is not None:
        if key not in keys:
            raise MissingKeyError(
                f"`key` must name a dataset in the file; got {key!r}. "
                f"It holds: {there or 'no dataset'}.",
                path=path,
            )
        return key
    if not keys:
        raise MissingKeyError("the file must hold a dataset; it holds none.", path=path)
    if len(keys) > 1:
        raise SeveralDatasetsError(
            f"`key` must be given, because the file holds several datasets: {there}.", path=path
        )
    return keys[0]
