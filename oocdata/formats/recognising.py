"""Which format a file, a folder or an object is, by what is in it.

Of what people have that is not opened as it is, one sentence says what to do with it.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from typing import IO, Literal, TypeAlias

from oocdata.errors import MissingFileError, UnknownFormatError
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

_WRITE = "and write the elements with ooc.create."
_FROM_THE_BEGINNING = "which can be read from its beginning only. Open the file that it was made of"

_FOREIGN: dict[str, tuple[bytes | str, ...]] = {
    f"a tf.data cache, snapshot or saved dataset, {_FROM_THE_BEGINNING}; or load it {_WRITE}": (
        *(".data-00000-of-00001", "dataset_spec.pb", "snapshot.metadata"),
    ),
    "netCDF of version 3. Open it through xarray: ooc.open(xarray.open_dataset(path)['name']); "
    "for speed make it netCDF4 first: nccopy -k nc4 old.nc new.nc.": (
        *(b"CDF\x01", b"CDF\x02", b"CDF\x05"),
    ),
    "GRIB. Open it through xarray (engine='cfgrib') and pass the DataArray; for speed make it "
    "netCDF4 or Zarr first, e.g. cdo -f nc4 copy old.grib new.nc.": (b"GRIB",),
    "HDF of version 4. Make it HDF5: h4toh5 old.hdf new.h5.": (b"\x0e\x03\x13\x01",),
    "a MATLAB file before version 7.3. Save it with '-v7.3', which is HDF5; or save its arrays: "
    "np.save('ds.npy', scipy.io.loadmat(path)['name']).": (b"MATLAB 5.0 ",),
    f"a table in Parquet or Arrow. Read it in parts with pyarrow {_WRITE}": (
        *(b"PAR1", b"ARROW1", ".parquet", ".feather", ".arrow"),
    ),
    "what torch.save writes, a pickle. Save the tensor as an array: "
    "np.save('ds.npy', torch.load(path, mmap=True).numpy()).": ("/data.pkl", ".pt", ".pth"),
    "safetensors. Save the tensor as an array: "
    "np.save('ds.npy', safetensors.numpy.load_file(path)['name']).": (".safetensors",),
    "a pickle, which can run any code. Load it where you trust it, and np.save the array.": (
        *(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", ".pkl", ".pickle"),
    ),
    "JSON. If it is a reference file (kerchunk), open it through xarray (engine='kerchunk') and "
    "pass the DataArray.": (".json",),
    "an icechunk repository. Open an array of a session of it: ooc.open(zarr.open_array("
    "repository.readonly_session('main').store, path='name')).": ("refs/branch.main",),
    "a compressed file. Unpack it first, e.g. gunzip -k data.h5.gz: rows in it have no address. "
    "Text and TFRecord in gzip are opened as they are.": (
        *(b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c"),
        *(".gz", ".bz2", ".xz", ".zst", ".7z", ".tar", ".tgz"),
    ),
    f"a film. Decode it once, e.g. with imageio, {_WRITE}": (
        *(b"    ftyp", ".mp4", ".avi", ".mov", ".mkv"),
    ),
}
"""What it is and what to do, by its first bytes (a space is any byte) or the end of a name."""

_NOT_AT_A_URL: dict[str, tuple[bytes | str, ...]] = {
    "text, pictures or TFRecord at a URL. Copy it to a disk first.": (
        *(".tfrecord", ".tfrecords", ".txt", ".csv", ".tsv", ".jsonl"),
        *(".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif"),
    ),
}


def format_of(path: str) -> Format:
    """Return the format of a file, a folder or an object, by what is in it.

    A pipe or a device is not opened to see what it is.
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
        _refuse_foreign(path, [*names, *below])
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
        _refuse_foreign(path, [path], head)
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
    _refuse_foreign(url, [name], at_url=True)
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
        _refuse_foreign(url, [name], head, at_url=True)
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
        _refuse_foreign(path, names)
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


def _refuse_foreign(
    path: str, names: Iterable[str], head: bytes = b"", *, at_url: bool = False
) -> None:
    """Raise if something is known that is not opened as it is.

    `names` are of the file, or of the members of a folder or an archive; `head` its first bytes, 32
    or more where it has them. `at_url`: fewer formats are opened there.
    """
    # One of several files: train.tfrecord-00003-of-00128.
    ends = [re.sub(r"(\.tf\w+)-\d+-of-\d+$", r"\1", name.lower()) for name in names]
    formats = {**_NOT_AT_A_URL, **_FOREIGN} if at_url else _FOREIGN
    marks = [(mark, what) for what, some in formats.items() for mark in some]
    by_bytes = [what for mark, what in marks if isinstance(mark, bytes) and _begins(head, mark)]
    by_name = (
        what for end in ends for mark, what in marks if isinstance(mark, str) and end.endswith(mark)
    )
    for what in (*by_bytes, *by_name):
        rule = _RULE_URL if is_url(path) else _RULE
        raise UnknownFormatError(f"{rule}; got {what}", path=path)


def _begins(head: bytes, magic: bytes) -> bool:
    return len(head) >= len(magic) and all(
        wanted in (found, 0x20) for found, wanted in zip(head, magic, strict=False)
    )


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
