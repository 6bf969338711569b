"""Open the members of ``.npz`` archives.

A stored (not compressed) member has the bytes of a ``.npy`` inside a ZIP archive, after a local
header of 30 bytes, the name and an extra field (APPNOTE 4.3.7).
"""

from __future__ import annotations

import zipfile
from typing import IO, Self

from oocdata.engines.files import FileVersion, Version
from oocdata.engines.source import Source, Storage
from oocdata.errors import UnknownFormatError, error_location
from oocdata.formats.npy import open_contiguous, open_npy, read_header
from oocdata.formats.paths import open_stream, store_error_in
from oocdata.formats.sidecar import unpacked
from oocdata.formats.tree import Array, Tree

_ZIP_METHODS = {8: "deflate", 12: "bzip2", 14: "lzma", 93: "zstd"}


class NpzTree(Tree):
    """The arrays of an ``.npz``, named without the ending ``.npy``.

    A stored member (``numpy.savez``) is read by byte offsets. A compressed member is unpacked once,
    beside the file.
    """

    def __enter__(self) -> Self:
        super().__enter__()
        opened = self._opened.enter_context
        self._file, self._version = opened(open_stream(self.path))
        try:
            self._archive = opened(zipfile.ZipFile(self._file))
        except zipfile.BadZipFile as error:
            raise store_error_in(error) or UnknownFormatError(
                f"an .npz must be a ZIP archive; {error}. Was it cut short?"
            ) from error
        return self

    def names(self) -> list[str]:
        """Return the names of the members."""
        # Of several members of a name the last counts.
        names = dict.fromkeys(self._archive.namelist())
        return [name.removesuffix(".npy") for name in names if name.endswith(".npy")]

    def array(self, name: str) -> Array | None:
        """Return the metadata of a member; see `Tree`."""
        member = self.look(name)
        if not isinstance(member, str):
            return None
        shape, _, dtype = read_header(self._stream(member), member)
        return Array(shape, dtype)

    def _stream(self, member: str) -> IO[bytes]:
        try:
            return self._archive.open(f"{member}.npy")
        except Exception as error:  # damaged, encrypted, or of an unknown method
            raise store_error_in(error) or UnknownFormatError(
                f"a member of an .npz must be readable; {error}.", key=member
            ) from error

    def open_array(self, name: str, axis: int | str) -> Source:
        """Open a member; see `Tree`."""
        name, file, version = str(self.look(name)), self._file, self._version
        member = self._archive.getinfo(f"{name}.npy")
        with self._stream(name):
            start = file.tell()  # after the local header, which may be longer than the central one
        if member.compress_type != zipfile.ZIP_STORED:
            return _unpacked(member, version, name, axis)
        file.seek(start)
        shape, fortran, dtype = read_header(file, name)
        offset = file.tell()
        nbytes = min(member.file_size, version.nbytes - start) - (offset - start)
        reopen = {"target": version.path, "key": name}
        storage = Storage(".npz (stored)", version.path, name, opened=reopen)
        return open_contiguous(version, shape, dtype, fortran, offset, nbytes, axis, storage)


def _unpacked(member: zipfile.ZipInfo, version: Version, name: str, axis: int | str) -> Source:
    """Open a compressed member, unpacked once to a sidecar file; its CRC-32 is verified then."""
    if not isinstance(version, FileVersion):
        raise UnknownFormatError(
            "a member of an .npz at a URL must not be compressed, so that rows have addresses; "
            "this one is. Copy the file to a disk, or write it by numpy.savez.",
            key=name,
        )
    with error_location(version.path, name):
        plain = unpacked(
            version,
            f"unpacked{member.header_offset}",
            lambda packed: zipfile.ZipFile(packed).open(member.filename),  # noqa: SIM115
        )
        source = open_npy(plain.path, axis=axis)
    return source.with_storage(
        format=".npz (compressed)",
        path=version.path,
        key=name,
        layout=f"{source.storage().layout}, unpacked to {plain.path}",
        codec=_ZIP_METHODS.get(member.compress_type, "unknown"),
        stored_bytes=member.compress_size,
        files=(version,),
        opened={"target": version.path, "key": name},
    )
