"""``.npy``, raw binary and ``.npz`` members: a header, then numbers at known offsets.

The ``.npy`` format is NumPy's (``numpy.lib.format``, NEP 1): magic, version, header length, a
header of shape, dtype and order, then the numbers. A stored (not deflated) member of an ``.npz``
is the same bytes inside a ZIP archive (APPNOTE 4.3.7: 30 bytes of local header, the name, an extra
field).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from math import prod
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.dtypes import described_dtype, is_small_float, named_dtype
from oocdata.engines.files import Version
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
from oocdata.formats.patterns import Key, datasets, is_pattern, matches_of
from oocdata.formats.stored import absolute, file_of, opened, refused_in, version_of
from oocdata.index import as_count
from oocdata.memory import cache_share

if TYPE_CHECKING:
    import zipfile

__all__ = ["as_fields", "list_npz", "open_npy", "open_npz", "open_raw"]

_ZIP_STORED = 0  # APPNOTE 4.4.5
_ZIP_METHODS = {8: "deflate", 12: "bzip2", 14: "lzma", 93: "zstd"}


def open_npy(
    path: str, *, axis: int | str = 0, whole: bool = True, dtype: DTypeLike | None = None
) -> Source:
    """Open a ``.npy`` file of any header version, order and byte order.

    Errors call places along `axis` rows, here and in all functions of this module. A file that need
    not be `whole` may be cut short, or be too long; any other must be as long as its header says.
    `dtype` says which small float of ml_dtypes is meant by the raw bytes as which NumPy saves it.
    """
    with opened(path) as (file, version):
        shape, fortran, stored = _read_header(file, path, None)
        offset = file.tell()
    held = version.nbytes - offset
    again: dict[str, Any] = {"target": version.path}
    if dtype is not None:
        meant = _dtype_of(dtype)
        if not is_small_float(meant) or stored != np.dtype(f"V{meant.itemsize}"):
            raise ArgumentError(
                "`dtype` must be given for raw binary files only, or be 'bfloat16' or "
                f"'float8_e4m3fn' for a .npy of raw bytes; got {dtype!r} for one of {stored}. Use "
                ".astype to convert."
            )
        stored, again["dtype"] = meant, meant.name
    described = Storage(".npy", version.path, opened=again)
    return _strided(version, shape, stored, fortran, offset, held, axis, described, whole)


def _dtype_of(given: Any) -> np.dtype[Any]:
    try:
        return named_dtype(as_fields(given))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"`dtype` must be a NumPy dtype; got {given!r}.") from error


def open_raw(
    path: str,
    *,
    dtype: DTypeLike,
    shape: Sequence[int],
    offset: int = 0,
    axis: int | str = 0,
    whole: bool = True,
) -> Source:
    """Open raw binary: numbers in C order from byte `offset` to the end of the file.

    One entry of `shape` may be -1: worked out from the length of the file. Dtype, shape and offset
    must account for the file to the byte, if it must be `whole`; see `open_npy`.
    """
    version = version_of(path)
    stored = _dtype_of(dtype)
    check_stored(stored, path)
    start = as_count("offset", offset, at_least=0)
    held = version.nbytes - start
    if held < 0 and whole:
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
        lengths[lengths.index(-1)] = max(0, held) // known if known else 0
    again: dict[str, Any] = {"target": version.path, "shape": lengths, "offset": start}
    again["dtype"] = described_dtype(stored)
    described = Storage("raw", version.path, opened=again)
    return _strided(version, tuple(lengths), stored, False, start, held, axis, described, whole)


def as_fields(dtype: Any) -> Any:
    """Return fields as NumPy takes them, lists of tuples, of what may have been JSON."""
    fields = isinstance(dtype, list | tuple) and all(isinstance(one, list | tuple) for one in dtype)
    if not fields:
        return dtype
    return [(name, as_fields(kind), *map(tuple, shape)) for name, kind, *shape in dtype]


def list_npz(path: str) -> list[str]:
    """Return the names of the arrays in an ``.npz``, without their ``.npy``."""
    with opened(path) as (file, _), _zip(file, path) as archive:
        names = dict.fromkeys(archive.namelist())  # once each: of a name the last member counts
        return [name.removesuffix(".npy") for name in names if name.endswith(".npy")]


def open_npz(path: str, key: Key | None = None, *, axis: int | str = 0) -> Source:
    """Open a member of an ``.npz``; `key` only where there are several.

    A stored one (``numpy.savez``) is read by byte offsets; a compressed one is decoded whole, and
    refused if it is larger than the cache. A pattern, or several keys, is one array of several
    members.
    """
    names = list_npz(path)
    if key is None or (isinstance(key, str) and (key in names or not is_pattern(key))):
        return _open_member(path, choose_key(names, key, path), axis)
    members = [_open_member(path, name, axis) for name in matches_of(key, names, path)]
    return datasets(members, axis, key, {"target": absolute(path)})


def _open_member(path: str, name: str, axis: int | str) -> Source:
    with opened(path) as (file, version), _zip(file, path) as archive:
        member = archive.getinfo(f"{name}.npy")
        file.seek(member.header_offset)
        local = file.read(30)
        if len(local) < 30 or local[:4] != b"PK\x03\x04":
            raise UnknownFormatError(
                "an .npz member must start with a ZIP local header.", path=path, key=name
            )
        # The local extra field may differ from the central one (NumPy pads it): read it here.
        lengths = [int.from_bytes(local[at : at + 2], "little") for at in (26, 28)]
        start = member.header_offset + 30 + sum(lengths)
        if member.compress_type != _ZIP_STORED:
            return _compressed(archive, member, start, version, name, axis)
        file.seek(start)
        shape, fortran, dtype = _read_header(file, path, name)
        offset = file.tell()
    held = min(member.file_size, version.nbytes - start) - (offset - start)
    again = {"target": version.path, "key": name}
    described = Storage(".npz (stored)", version.path, name, opened=again)
    return _strided(version, shape, dtype, fortran, offset, held, axis, described)


def _compressed(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    start: int,
    version: Version,
    name: str,
    axis: int | str,
) -> Source:
    """Return the source of a compressed member, which begins there and is decoded as one chunk."""
    from oocdata.formats.deflated import DeflatedMember

    if member.file_size > cache_share():
        raise CompressedMemberError(
            "a compressed .npz member must fit into the cache, because it can only be decoded as a "
            f"whole; it has {member.file_size:,} bytes, and the cache {cache_share():,}. Unpack it "
            f"once: zipfile.ZipFile({version.path!r}).extract({member.filename!r}); or give more "
            f"memory: ooc.set_memory({2 * member.file_size}).",
            path=version.path,
            key=name,
        )
    try:
        packed = archive.open(member)
    except (RuntimeError, NotImplementedError) as error:  # encrypted; a method that Python lacks
        raise UnknownFormatError(
            f"an .npz member must be readable; {error}.", path=version.path, key=name
        ) from error
    with packed as file:
        shape, fortran, dtype = _read_header(file, version.path, name)
        skipped = file.tell()
    described = Storage(
        ".npz (compressed)",
        version.path,
        name,
        layout="one chunk",
        codec=_ZIP_METHODS.get(member.compress_type, "unknown"),
        stored_bytes=member.compress_size,
        reading="the whole array, decoded once and kept within the budget",
        chunks=tuple(max(1, length) for length in shape),
        files=(version,),
        opened={"target": version.path, "key": name},
    )
    stored = _checked(dtype, shape, member.file_size - skipped, described)
    axis_numbers(axis, len(shape), described)
    native = stored.newbyteorder("=")
    part = member.header_offset, start + member.compress_size
    return Chunked(
        DeflatedMember(
            version, member.filename, part, shape, native, stored, fortran, skipped, described,
            file_of(version),
        )
    )  # fmt: skip


def _zip(file: IO[bytes], path: str) -> zipfile.ZipFile:
    import zipfile  # with its decompressors, a tenth of what `import oocdata` takes

    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise refused_in(error) or UnknownFormatError(
            f"an .npz must be a ZIP archive; {error}. Was it cut short?", path=path
        ) from error


def _read_header(
    file: IO[bytes], path: str, key: str | None
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} is unknown")
        if version == (3, 0):
            # Version 2 in UTF-8, which NumPy reads as Latin-1 here: names of fields in escapes.
            text = file.read(int.from_bytes(file.read(4), "little")).decode()
            header = text.encode("ascii", "backslashreplace")
            file = BytesIO(len(header).to_bytes(4, "little") + header)
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
        raise refused_in(error) or UnknownFormatError(
            f"the .npy header must be readable; {error}.", path=path, key=key
        ) from error
    return shape, fortran, dtype


def _strided(
    version: Version,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fortran: bool,
    offset: int,
    held: int,
    axis: int | str,
    described: Storage,
    whole: bool = True,
) -> Source:
    stored = _checked(dtype, shape, held, described, whole)
    strides = contiguous_strides(shape, stored.itemsize, fortran=fortran)
    storage = replace(
        described,
        layout=f"contiguous, {'Fortran' if fortran and len(shape) > 1 else 'C'} order",
        codec="none",
        stored_bytes=prod(shape) * stored.itemsize,
        reading="each box by its byte offsets, straight into the batch",
        strides=strides,
        unit=unit_of(dtype),
        files=(version,),
    )
    (rows,) = axis_numbers(axis, len(shape), storage) if shape else (0,)
    return Strided(file_of(version), stored, shape, strides, offset, storage, axis=rows)


def _checked(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    held: int,
    described: Storage,
    whole: bool = True,
) -> np.dtype[Any]:
    """Return the dtype if the bytes that are there are those that it and the shape promise."""
    about: Any = {"path": described.path, "key": described.key}
    stored = check_stored(dtype, **about)
    needed = prod(shape) * stored.itemsize
    promise = f"{needed} bytes of numbers (shape {shape}, {stored.str})"
    if whole and held < needed:
        raise TruncatedFileError(
            f"the file must hold {promise}; got {held}. It was cut short, or its writer is not "
            "done.",
            **about,
        )
    if whole and held > needed:
        raise TrailingBytesError(
            f"the file must end after {promise}; got {held - needed} more. "
            "The shape is wrong, or something was appended.",
            **about,
        )
    return stored
