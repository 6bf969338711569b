"""``.npy``, raw binary and ``.npz`` members: a header, then rows at known offsets.

The ``.npy`` format is NumPy's (``numpy.lib.format``, NEP 1): magic, version, header length, a
header of shape, dtype and order, then the elements. A stored (not deflated) member of an ``.npz``
is the same bytes inside a ZIP archive (APPNOTE 4.3.7: 30 bytes of local header, the name, an extra
field).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike

from oocdata.errors import (
    ArgumentError,
    CompressedMemberError,
    TrailingBytesError,
    TruncatedFileError,
    UnknownFormatError,
)
from oocdata.index import as_count
from oocdata.sources.adapt import as_dtype
from oocdata.sources.extents import Extents, FileStamp, contiguous_strides
from oocdata.sources.source import Layout, Source, check_axis, check_dtype, choose_key
from oocdata.sources.strided import row_source

if TYPE_CHECKING:
    import zipfile

__all__ = ["list_npz", "open_npy", "open_npz", "open_raw"]

_ZIP_STORED = 0  # APPNOTE 4.4.5
_READING = "each row by its byte offset, straight into the batch"


def open_npy(path: str, *, axis: int | str = 0) -> Source:
    """Open a ``.npy`` file of any header version, order and byte order.

    Parameters
    ----------
    path : str
    axis : int
        The row axis.

    Returns
    -------
    Extents, or Chunks where the bytes of a row lie far apart

    Raises
    ------
    oocdata.errors.TruncatedFileError, oocdata.errors.TrailingBytesError
        If the file is not exactly as long as its header says.
    oocdata.errors.UnsupportedDtypeError
        For object arrays (pickles) and structured rows.
    oocdata.errors.UnknownFormatError
        If the header can't be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.zeros((10, 3), ">f4"))
    ...     source = open_npy(f"{folder}/a.npy")
    >>> source.shape, source.dtype
    ((10, 3), dtype('float32'))
    """
    stamp = FileStamp.of(path)
    with open(path, "rb") as file:
        shape, fortran, dtype = _read_header(file, path, None)
        offset = file.tell()
    return _extents(stamp, shape, dtype, fortran, offset, stamp.nbytes - offset, axis, ".npy", None)


def open_raw(
    path: str, *, dtype: DTypeLike, shape: Sequence[int], offset: int = 0, axis: int | str = 0
) -> Source:
    """Open raw binary: elements in C order from byte `offset` to the end of the file.

    Parameters
    ----------
    path : str
    dtype : dtype_like
        As stored; ``">f4"`` for big-endian.
    shape : sequence of int
        One entry may be -1: worked out from the length of the file.
    offset : int
        Bytes to skip.
    axis : int
        The row axis.

    Raises
    ------
    oocdata.errors.TruncatedFileError, oocdata.errors.TrailingBytesError
        If dtype, shape and offset do not account for the file to the byte.
    """
    stamp = FileStamp.of(path)
    stored = as_dtype(dtype)
    start = as_count("offset", offset, at_least=0)
    if start > stamp.nbytes:
        raise TruncatedFileError(
            f"`offset` must lie within the {stamp.nbytes} bytes of the file; got {start}.",
            path=path,
        )
    try:
        lengths = [operator.index(length) for length in shape]
    except TypeError:
        lengths = [-2]
    if lengths.count(-1) > 1 or any(length < -1 for length in lengths):
        raise ArgumentError(
            f"`shape` must be whole numbers from 0, at most one of them -1; got {shape!r}."
        )
    if -1 in lengths:
        known = prod(length for length in lengths if length != -1) * stored.itemsize
        lengths[lengths.index(-1)] = max(stamp.nbytes - start, 0) // known if known else 0
    return _extents(
        stamp, tuple(lengths), stored, False, start, stamp.nbytes - start, axis, "raw", None
    )


def list_npz(path: str) -> list[str]:
    """Return the names of the arrays in an ``.npz``, without their ``.npy``."""
    with _archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def open_npz(path: str, key: str | None = None, *, axis: int | str = 0) -> Source:
    """Open a stored member of an ``.npz`` (``numpy.savez``, not ``savez_compressed``).

    Parameters
    ----------
    path : str
    key : str, optional
        The array's name; not needed when there is one.
    axis : int
        The row axis.

    Raises
    ------
    oocdata.errors.CompressedMemberError
        If the member is deflated: its rows then have no address. The message says how to convert.
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.
    """
    stamp = FileStamp.of(path)
    name = choose_key(list_npz(path), key, path)
    with _archive(path) as archive, open(path, "rb") as file:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != _ZIP_STORED:
            raise CompressedMemberError(
                "an .npz member must be stored, not compressed, for its rows to have an address. "
                f"Convert it once: np.save({name + '.npy'!r}, np.load({path!r})[{name!r}]).",
                path=path,
                key=name,
            )
        file.seek(member.header_offset)
        local = file.read(30)
        if len(local) < 30 or local[:4] != b"PK\x03\x04":
            raise UnknownFormatError(
                "an .npz member must start with a ZIP local header.", path=path, key=name
            )
        # The local extra field may differ from the central one (NumPy pads it): read it here.
        name_length, extra_length = (
            int.from_bytes(local[26:28], "little"),
            int.from_bytes(local[28:30], "little"),
        )
        start = member.header_offset + 30 + name_length + extra_length
        file.seek(start)
        shape, fortran, dtype = _read_header(file, path, name)
        offset = file.tell()
    held = min(member.file_size, stamp.nbytes - start) - (offset - start)
    return _extents(stamp, shape, dtype, fortran, offset, held, axis, ".npz (stored)", name)


def _archive(path: str) -> zipfile.ZipFile:
    import zipfile  # with its decompressors, a tenth of what `import oocdata` takes

    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise UnknownFormatError(
            f"an .npz must be a ZIP archive; {error}. Was it cut short?", path=path
        ) from error


def _read_header(
    file: IO[bytes], path: str, key: str | None
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} is unknown")
        # Version 3 is version 2 with UTF-8 field names, which only structured rows (refused) have.
        read = (
            npy_format.read_array_header_1_0
            if version == (1, 0)
            else npy_format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
        if any(length < 0 for length in shape):
            raise ValueError(f"its shape is {shape}")
    # What a damaged header raises is anything: it is parsed as Python, by several of its modules.
    except Exception as error:
        raise UnknownFormatError(
            f"the .npy header must be readable; {error}.", path=path, key=key
        ) from error
    return shape, fortran, dtype


def _extents(
    stamp: FileStamp,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fortran: bool,
    offset: int,
    held: int,
    axis: int | str,
    kind: str,
    key: str | None,
) -> Source:
    stored = check_dtype(dtype, stamp.path, key)
    needed = prod(shape) * stored.itemsize
    promise = f"{needed} bytes of elements (shape {shape}, {stored.str})"
    if held < needed:
        raise TruncatedFileError(
            f"the file must hold {promise}; got {held}. It was cut short, or its writer is not "
            "done.",
            path=stamp.path,
            key=key,
        )
    if held > needed:
        raise TrailingBytesError(
            f"the file must end after {promise}; got {held - needed} more. "
            "The shape is wrong, or something was appended.",
            path=stamp.path,
            key=key,
        )
    layout = Layout(
        format=kind,
        path=stamp.path,
        key=key,
        storage=f"contiguous, {'Fortran' if fortran and len(shape) > 1 else 'C'} order",
        codec="none",
        stored_bytes=needed,
        reading=_READING,
    )
    row_axis = check_axis(axis, len(shape), stamp.path, key)
    strides = contiguous_strides(shape, stored.itemsize, fortran=fortran)
    return row_source(Extents(stamp, stored, shape, strides, offset, layout), row_axis)
