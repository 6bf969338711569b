"""Detect the format of a file, a folder or an object from its content."""

from __future__ import annotations

import glob
import os
import stat
from collections import Counter
from pathlib import Path
from typing import IO, Literal, TypeAlias

from oocdata.engines.files import unreadable
from oocdata.errors import MissingFileError, SourceError, UnknownFormatError
from oocdata.formats.paths import is_url, open_stream, store_error_in

Format: TypeAlias = Literal["npy", "npz", "hdf5", "zarr", "text", "tfrecord", "picture"]

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NUMPY_MAGIC = b"\x93NUMPY"
_GZIP = b"\x1f\x8b\x08"
_PICTURE_MAGIC = {
    b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF87a": "GIF", b"GIF89a": "GIF",
    b"II*\x00": "TIFF", b"MM\x00*": "TIFF", b"II+\x00": "TIFF", b"MM\x00+": "TIFF",
}  # fmt: skip
_ZARR_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
_RULE = (
    "the file must be .npy, .npz, HDF5 (netCDF4), Zarr, text, TFRecord or a picture (JPEG, PNG, "
    "TIFF, WebP, BMP, GIF)"
)
_RULE_URL = "a URL must be that of a .npy, .npz, HDF5 (netCDF4) or Zarr"

_COMPRESSED = (_GZIP, b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
_FOREIGN = {
    (b"MATLAB 5",): "a MATLAB file older than version 7.3. Save it with '-v7.3', or read it whole: "
    "ooc.open(scipy.io.loadmat(path)['name']).",
    (b"CDF\x01", b"CDF\x02", b"CDF\x05"): "netCDF of version 3. Open it through xarray: "
    "ooc.open(xarray.open_dataset(path)['name']).",
    _COMPRESSED: "a compressed file. Unpack it first: gunzip -k data.h5.gz. Rows in it have no "
    "address. TFRecord, and text by its name or format='text', are opened in gzip.",
}
"""First bytes of formats that oocdata can't open, and what to do."""


def format_of(path: str) -> Format:
    """Return the format of a file, a folder or an object from its content.

    Pipes and devices are refused without opening them.
    """
    if is_url(path):
        return _format_at(path)
    if is_folder(path):
        if any(os.path.exists(os.path.join(path, name)) for name in _ZARR_METADATA):
            return "zarr"
        folder = path.rstrip("/")
        suffixes = Counter(os.path.splitext(name)[1] for name in _names_in(path))
        del suffixes[""]
        suffix = max(suffixes, key=suffixes.__getitem__, default=".npy")
        raise UnknownFormatError(
            "a directory must be a Zarr array or group (zarr.json, .zarray or .zgroup in it). "
            f"Use a glob for a directory of files: '{folder}/*{suffix}', or '{folder}/*/*.jpg' for "
            "files in folders of it.",
            path=path,
        )
    with open_stream(path) as (file, version):
        head = file.read(64)
        array_format = _array_format(file, head, path, version.nbytes)
    if array_format is not None:
        return array_format
    # Not for `import oocdata`.
    from oocdata.formats.lines import TEXT_ENDS
    from oocdata.formats.sidecar import head_of
    from oocdata.formats.tfrecord import is_tfrecord

    name = path.lower()
    is_packed = head.startswith(_GZIP)
    first = head_of(path) if is_packed else head
    if is_tfrecord(first) or ".tfrec" in os.path.basename(name):
        return "tfrecord"
    if picture_format(head):
        return "picture"
    if (name.removesuffix(".gz") if is_packed else name).endswith(TEXT_ENDS):
        return "text"
    _refuse_foreign(path, head)
    begins = f"its first bytes are {_beginning(head)!r}" if head else "it is empty"
    raise UnknownFormatError(
        f"{_RULE}; {begins}. For raw binary give `dtype` and "
        "`shape`; for lines of text give format='text'.",
        path=path,
    )


def _format_at(url: str) -> Format:
    # Not for `import oocdata`.
    from oocdata.formats.zarr.hierarchy import metadata_names
    from oocdata.stores.address import Address
    from oocdata.stores.answers import Answer
    from oocdata.stores.files import StoredFile
    from oocdata.stores.versions import fetch_small, was_requested

    address = Address.of(url)  # raises for a credential before any message can show it
    name = url.rstrip("/")
    is_file = was_requested((StoredFile, address))  # as one of several
    beginning = StoredFile.request_at(name)  # together with the objects below it
    if not is_file or beginning.exception() is not None:
        below = fetch_small([address / one for one in metadata_names("")])
        # Some servers answer any request with a page. The object itself is not waited for: a server
        # may redirect, a round trip more.
        answers = [bytes(one.data) for one in below if isinstance(one, Answer)]
        if any(data.lstrip().startswith(b"{") for data in answers):
            return "zarr"
        if isinstance(beginning.exception(), MissingFileError):
            for one in below:
                if isinstance(one, SourceError):
                    raise one  # the object may exist all the same
    beginning.result()
    with open_stream(name) as (file, version):
        head = file.read(64)
        array_format = _array_format(file, head, url, version.nbytes)
    if array_format is None:
        _refuse_foreign(url, head)
        raise UnknownFormatError(
            f"{_RULE_URL}; its first bytes are {_beginning(head)!r}. For raw binary give `dtype` "
            "and `shape`. Copy files of other formats to a disk.",
            path=url,
        )
    return array_format


def _array_format(file: IO[bytes], head: bytes, path: str, nbytes: int) -> Format | None:
    """Return the format of a file of arrays and `nbytes` bytes; None if it is none of them."""
    if head.startswith(_NUMPY_MAGIC):
        return "npy"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        names = _archive_names(file)
        if not names or any(name.endswith(".npy") for name in names):
            return "npz"
        what = "an archive without .npy. Unpack it, and open its files by a glob."
        if any(os.path.basename(name) in _ZARR_METADATA for name in names):
            what = (
                "a zipped Zarr. Unpack it, or pass its array: zarr.open_array(ZipStore(path), "
                "path=key)."
            )
        elif any(name.endswith("/data.pkl") for name in names):
            what = (
                "what torch.save writes. Convert it: np.save('ds.npy', torch.load(path, "
                "mmap=True).numpy())."
            )
        raise UnknownFormatError(f"{_RULE}; got {what}", path=path)
    # File Format Specification, II.A: HDF5 starts at byte 0, or after a user block of 512·2ⁿ bytes.
    offset = 0
    while offset < nbytes:
        file.seek(offset)
        if file.read(8) == _HDF5_SIGNATURE:
            return "hdf5"
        offset = max(512, offset * 2)
    return None


def _archive_names(file: IO[bytes]) -> list[str]:
    """Return the names of the members of a ZIP archive; none if it is damaged."""
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except zipfile.BadZipFile as error:
        if (refused := store_error_in(error)) is not None:
            raise refused from None
        return []


def picture_format(head: bytes) -> str:
    """Return the format of a picture from the first 12 bytes of its file; empty if it is none."""
    for magic, name in _PICTURE_MAGIC.items():
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP"
    return "BMP" if head[:2] == b"BM" and head[6:10] == bytes(4) else ""


def _beginning(head: bytes) -> bytes:
    """Return the bytes to quote: of text, enough to know it (``version https://git-lfs``)."""
    is_text = all(32 <= each < 127 or each in b"\r\n\t" for each in head[:24])
    return head[: 24 if is_text else 8]


def _refuse_foreign(path: str, head: bytes) -> None:
    for marks, advice in _FOREIGN.items():
        if head.startswith(marks):
            rule = _RULE_URL if is_url(path) else _RULE
            raise UnknownFormatError(f"{rule}; got {advice}", path=path)


def is_folder(path: str) -> bool:
    """Return whether a path is a folder, rather than a file; raise if it is neither.

    Opening a pipe, a socket or a device may block, and they have no offsets.
    """
    try:
        mode = os.stat(path).st_mode
    except PermissionError as error:
        raise unreadable(path, error) from error
    except (OSError, ValueError):  # no path may have a null byte
        raise MissingFileError(f"No such file.{_neighbours(path)}", path=path) from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UnknownFormatError(
            "the file must be a regular file or a folder, which can be read at any place; got a "
            "pipe, a socket or a device. Write what comes through it to a file.",
            path=path,
        )
    return stat.S_ISDIR(mode)


def hint_for_glob(pattern: str) -> str:
    """Return a hint for a glob that matches no file.

    Raises if the folder to search can't be listed, which `glob` does not report.
    """
    folder = os.path.abspath(pattern)
    while glob.has_magic(folder):
        folder = os.path.dirname(folder)
    try:
        _names_in(folder)
    except MissingFileError:
        return _missing_folder(folder)
    return ""


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise unreadable(folder, error) from error


def _missing_folder(folder: str) -> str:
    """Return a hint that names the outermost folder of an absolute path that is missing."""
    folders = [folder, *map(str, Path(folder).parents)]
    return f" There is no folder {[each for each in folders if not os.path.isdir(each)][-1]!r}."


def _neighbours(path: str) -> str:
    """Return a hint for a missing file: the dataset in a file it means, or names like its own."""
    import difflib

    for file in map(str, Path(named := path.replace("::", "/")).parents):
        if os.path.isfile(file):
            key = named[len(file) :].strip("/")
            return f" `key` names a dataset in a file: ooc.open({file!r}, {key!r})."
    folder, name = os.path.split(os.path.abspath(path))
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return _missing_folder(folder)
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(name, names, n=3)
    near = near or [each for each in names if os.path.splitext(each)[0] == name]
    return f" Nearby: {', '.join(near)}." if near else ""
