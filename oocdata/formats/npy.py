"""``.npy``, raw binary and ``.npz`` members: a header, then numbers at known offsets.

The ``.npy`` format is NumPy's (``numpy.lib.format``, NEP 1): magic, version, header length, a
header of shape, dtype and order, then the numbers. A stored (not deflated) member of an ``.npz``
is the same bytes inside a ZIP archive (APPNOTE 4.3.7: 30 bytes of local header, the name, an extra
field).
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike

from oocdata.engines.axes import axis_numbers
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.source import Source, Storage, check_stored, unit_of
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.errors import (
    ArgumentError,
    CompressedMemberError,
    TrailingBytesError,
    TruncatedFileError,
    UnknownFormatError,
)
from oocdata.formats.dimensions import choose_key
from oocdata.index import as_count

if TYPE_CHECKING:
    import zipfile

__all__ = ["list_npz", "open_npy", "open_npz", "open_raw"]

_ZIP_STORED = 0  # APPNOTE 4.4.5


def open_npy(path: str, *, axis: int | str = 0) -> Source:
    """Open a ``.npy`` file of any header version, order and byte order.

    Errors call places along `axis` rows, here and in all functions of this module.

    Raises
    ------
    oocdata.errors.TruncatedFileError, oocdata.errors.TrailingBytesError
        If the file is not exactly as long as its header says.
    oocdata.errors.UnsupportedDtypeError
        For object arrays (pickles), text, dates.
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
    with open(path, "rb") as file:
        version = FileVersion.of(path, os.fstat(file.fileno()))
        shape, fortran, dtype = _read_header(file, path, None)
        offset = file.tell()
    held = version.nbytes - offset
    described = Storage(".npy", version.path, opened={"target": version.path})
    return _strided(version, shape, dtype, fortran, offset, held, axis, described)


def open_raw(
    path: str, *, dtype: DTypeLike, shape: Sequence[int], offset: int = 0, axis: int | str = 0
) -> Source:
    """Open raw binary: numbers in C order from byte `offset` to the end of the file.

    Parameters
    ----------
    dtype : dtype_like
        As stored; ``">f4"`` for big-endian.
    shape : sequence of int
        One entry may be -1: worked out from the length of the file.
    offset : int
        Bytes to skip.

    Raises
    ------
    oocdata.errors.TruncatedFileError, oocdata.errors.TrailingBytesError
        If dtype, shape and offset do not account for the file to the byte.
    """
    version = FileVersion.of(path)
    try:
        stored = np.dtype(_fields(dtype))
    except TypeError as error:
        raise ArgumentError(f"`dtype` must be a NumPy dtype; got {dtype!r}.") from error
    check_stored(stored, path)
    start = as_count("offset", offset, at_least=0)
    held = version.nbytes - start
    if held < 0:
        raise TruncatedFileError(
            f"`offset` must lie within the {version.nbytes} bytes of the file; got {start}.",
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
        lengths[lengths.index(-1)] = held // known if known else 0
    again: dict[str, Any] = {"target": version.path, "shape": lengths, "offset": start}
    again["dtype"] = npy_format.dtype_to_descr(stored)
    described = Storage("raw", version.path, opened=again)
    return _strided(version, tuple(lengths), stored, False, start, held, axis, described)


def _fields(dtype: Any) -> Any:
    """Return fields as NumPy takes them, lists of tuples, of what may have been JSON."""
    fields = isinstance(dtype, list | tuple) and all(isinstance(one, list | tuple) for one in dtype)
    if not fields:
        return dtype
    return [(name, _fields(kind), *map(tuple, shape)) for name, kind, *shape in dtype]


def list_npz(path: str) -> list[str]:
    """Return the names of the arrays in an ``.npz``, without their ``.npy``."""
    with _archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def open_npz(path: str, key: str | None = None, *, axis: int | str = 0) -> Source:
    """Open a stored member of an ``.npz`` (``numpy.savez``); `key` only where there are several.

    Raises
    ------
    oocdata.errors.CompressedMemberError
        If the member is deflated: its rows then have no address. The message says how to convert.
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.
    """
    name = choose_key(list_npz(path), key, path)
    with _archive(path) as archive, open(path, "rb") as file:
        version = FileVersion.of(path, os.fstat(file.fileno()))
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
        lengths = [int.from_bytes(local[at : at + 2], "little") for at in (26, 28)]
        start = member.header_offset + 30 + sum(lengths)
        file.seek(start)
        shape, fortran, dtype = _read_header(file, path, name)
        offset = file.tell()
    held = min(member.file_size, version.nbytes - start) - (offset - start)
    again = {"target": version.path, "key": name}
    described = Storage(".npz (stored)", version.path, name, opened=again)
    return _strided(version, shape, dtype, fortran, offset, held, axis, described)


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


def _strided(
    version: FileVersion,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fortran: bool,
    offset: int,
    held: int,
    axis: int | str,
    described: Storage,
) -> Source:
    about: Any = {"path": version.path, "key": described.key}
    stored = check_stored(dtype, **about)
    needed = prod(shape) * stored.itemsize
    promise = f"{needed} bytes of numbers (shape {shape}, {stored.str})"
    if held < needed:
        raise TruncatedFileError(
            f"the file must hold {promise}; got {held}. It was cut short, or its writer is not "
            "done.",
            **about,
        )
    if held > needed:
        raise TrailingBytesError(
            f"the file must end after {promise}; got {held - needed} more. "
            "The shape is wrong, or something was appended.",
            **about,
        )
    strides = contiguous_strides(shape, stored.itemsize, fortran=fortran)
    storage = replace(
        described,
        layout=f"contiguous, {'Fortran' if fortran and len(shape) > 1 else 'C'} order",
        codec="none",
        stored_bytes=needed,
        reading="each box by its byte offsets, straight into the batch",
        strides=strides,
        unit=unit_of(dtype),
        files=(version,),
    )
    (rows,) = axis_numbers(axis, len(shape), storage) if shape else (0,)
    return Strided(OpenFile(version), stored, shape, strides, offset, storage, axis=rows)
