"""Which format a file, a folder or an object is, by what is in it."""

from __future__ import annotations

import glob
import os
from typing import IO, Literal, TypeAlias

from oocdata.errors import MissingFileError, UnknownFormatError
from oocdata.formats.foreign import foreign
from oocdata.formats.stored import is_url, opened, refused_in

__all__ = ["Format", "format_of", "picture_format", "refuse_stream"]

Format: TypeAlias = Literal["npy", "npz", "hdf5", "zarr", "text", "tfrecord", "picture"]

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NUMPY_MAGIC = b"\x93NUMPY"
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


def format_of(path: str) -> Format:
    """Return the format of a file, a folder or an object, by what is in it.

    Raises
    ------
    oocdata.errors.MissingFileError
        The message lists files of a similar name.
    oocdata.errors.UnknownFormatError
        The message lists what can be opened. A pipe or a device is not opened to see what it is.
    """
    if is_url(path):
        return _format_at(path)
    if not os.path.exists(path):
        raise MissingFileError(f"No such file.{_neighbours(path)}", path=path)
    refuse_stream(path)
    if os.path.isdir(path):
        if any(os.path.exists(os.path.join(path, name)) for name in _ZARR_METADATA):
            return "zarr"
        inner = ("*/snapshot.metadata", "refs/branch.main")
        below = [name for one in inner for name in glob.glob(one, root_dir=path)]
        # Any folder may hold some JSON beside its data.
        names = [name for name in os.listdir(path) if not name.endswith(".json")]
        _refuse_foreign(foreign([*names, *below]), path)
        raise UnknownFormatError(
            "a directory must be a Zarr array or group (zarr.json, .zarray or .zgroup in it). "
            f"Use a glob for a directory of files: '{os.path.join(path, '*.npy')}'.",
            path=path,
        )
    with opened(path) as (file, version):
        head = file.read(64)
        found = _array_format(file, head, path, version.nbytes)
    if found is not None:
        return found
    # Not for `import oocdata`.
    from oocdata.formats.gzipped import head_of, is_gzip
    from oocdata.formats.lines import TEXT_ENDS
    from oocdata.formats.tfrecord import is_tfrecord

    packed = is_gzip(path)
    if is_tfrecord(head_of(path) if packed else head) or ".tfrec" in os.path.basename(path).lower():
        return "tfrecord"
    if picture_format(head):
        return "picture"
    text = path.lower().removesuffix(".gz" if packed else "").endswith(TEXT_ENDS)
    if not (packed and text):
        _refuse_foreign(foreign([path], head), path)
    if text:
        return "text"
    begins = f"its first bytes are {head[:8]!r}" if head else "it is empty"
    raise UnknownFormatError(
        f"{_RULE}; {begins}. For raw binary give `dtype` and "
        "`shape`; for lines of text, format='text'.",
        path=path,
    )


def _format_at(url: str) -> Format:
    """Return the format of what lies at a URL: an object, or several that are a Zarr hierarchy."""
    # Not for `import oocdata`.
    from oocdata.stores.address import Address
    from oocdata.stores.looking import probe

    name = url.rstrip("/")
    Address.of(name)  # or an error, before anything of it is told
    _refuse_foreign(foreign([name], url=True), url)
    there, error = probe(name, _ZARR_METADATA)
    if there:
        return "zarr"
    if error is not None:
        raise error
    with opened(name) as (file, version):
        head = file.read(64)
        found = _array_format(file, head, url, version.nbytes)
    if found == "zarr":
        raise UnknownFormatError(
            f"{_RULE_URL}; got a zipped Zarr. Unpack it there, or copy it to a disk.", path=url
        )
    if found is None:
        _refuse_foreign(foreign([name], head, url=True), url)
        raise UnknownFormatError(
            f"{_RULE_URL}; its first bytes are {head[:8]!r}. For raw binary give `dtype` and "
            "`shape`. Copy files of other formats to a disk.",
            path=url,
        )
    return found


def _array_format(file: IO[bytes], head: bytes, path: str, nbytes: int) -> Format | None:
    """Return the format of a file of arrays, of which HDF5 may begin within so many bytes."""
    if head.startswith(_NUMPY_MAGIC):
        return "npy"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        names = _archive_names(file)
        if any(os.path.basename(name) in _ZARR_METADATA for name in names):
            return "zarr"
        _refuse_foreign(foreign(names), path)
        return "npz"
    # HDF5 file format specification, section II.A: at 0, or after a user block of 512·2ⁿ.
    place = 0
    while place < nbytes:
        file.seek(place)
        if file.read(8) == _HDF5_SIGNATURE:
            return "hdf5"
        place = max(512, place * 2)
    return None


def _archive_names(file: IO[bytes]) -> list[str]:
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except zipfile.BadZipFile as error:
        if (refused := refused_in(error)) is not None:
            raise refused from None
        return []


def picture_format(head: bytes) -> str:
    """Return the format of a picture file by its first 12 bytes; empty where it is none.

    Examples
    --------
    >>> picture_format(b"GIF89a......"), picture_format(b"BMW, a car..")
    ('GIF', '')
    """
    for magic, name in _PICTURE_MAGIC.items():
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP"
    return "BMP" if head[:2] == b"BM" and head[6:10] == bytes(4) else ""


def _refuse_foreign(found: str, path: str) -> None:
    """Raise if something is known that is not opened as it is."""
    if found:
        rule = _RULE_URL if is_url(path) else _RULE
        raise UnknownFormatError(f"{rule}; got {found}", path=path)


def refuse_stream(path: str) -> None:
    """Refuse a pipe, a socket or a device: opening it may wait for ever, and it has no places."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UnknownFormatError(
            "the file must be a regular file or a folder, which can be read at any place; got a "
            "pipe, a socket or a device. Write what comes through it to a file.",
            path=path,
        )


def _neighbours(path: str) -> str:
    import difflib

    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f" There is no folder '{folder}' either."
    near = difflib.get_close_matches(os.path.basename(path), os.listdir(folder), n=3)
    return f" Nearby: {', '.join(near)}." if near else ""
