"""What people have that is not opened as it is: how it is known, and what to do with it.

One table. A file is known by its first bytes where its format has some, by what is in a folder or
a ZIP archive, or else by the end of its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = [
    "FOREIGN",
    "Foreign",
    "foreign_beside",
    "foreign_file",
    "foreign_members",
    "foreign_url",
]

_WRITE = "write its elements with ooc.create"


@dataclass(frozen=True, slots=True)
class Foreign:
    """Something that is not opened as it is.

    Attributes
    ----------
    what : str
    hint : str
        What to do, as a sentence.
    magic : tuple of bytes
        Any of these begins a file; a space stands for any byte.
    members : tuple of str
        Ends of names, one of which is in such a folder or ZIP archive.
    suffixes : tuple of str
        Ends of the file's name.
    fits : function, optional
        Whether a file's first bytes and its length go with `magic`, where that is short.
    """

    what: str
    hint: str
    magic: tuple[bytes, ...] = ()
    members: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    fits: Callable[[bytes, int], bool] | None = None


_BUNDLE = Foreign(
    "a tf.data cache (or a TensorFlow checkpoint), which can be read from its beginning only",
    f"Open the file that it was made from; or iterate over the dataset and {_WRITE}.",
    suffixes=(".data-00000-of-00001",),
)

FOREIGN = (
    _BUNDLE,
    Foreign(
        "what tf.data.Dataset.save writes, which can be read from its beginning only",
        f"Open the file that it was made from; or load it (tf.data.Dataset.load) and {_WRITE}.",
        members=("dataset_spec.pb",),
        suffixes=("dataset_spec.pb",),
    ),
    Foreign(
        "a tf.data snapshot, which can be read from its beginning only",
        f"Open the file that it was made from; or iterate over the dataset and {_WRITE}.",
        members=("snapshot.metadata",),
        suffixes=("snapshot.metadata",),
    ),
    Foreign(
        "a TFRecord, which can be read from its beginning only",
        f"Open the file that it was made from; or parse it (tf.data.TFRecordDataset) and {_WRITE}.",
        suffixes=(".tfrecord", ".tfrecords", ".tfrec"),
    ),
    Foreign(
        "netCDF of version 3",
        "Open it through xarray: ooc.open(xarray.open_dataset(path)['name']); for speed make it "
        "netCDF4 first: nccopy -k nc4 old.nc new.nc.",
        magic=(b"CDF\x01", b"CDF\x02", b"CDF\x05"),
    ),
    Foreign(
        "GRIB",
        "Open it through xarray (engine='cfgrib') and pass the DataArray; for speed make it "
        "netCDF4 or Zarr first, e.g. cdo -f nc4 copy old.grib new.nc.",
        magic=(b"GRIB",),
    ),
    Foreign("HDF of version 4", "Make it HDF5: h4toh5 old.hdf new.h5.", (b"\x0e\x03\x13\x01",)),
    Foreign(
        "a MATLAB file before version 7.3",
        "Save it with '-v7.3', which is HDF5; or save its arrays: "
        "np.save('ds.npy', scipy.io.loadmat(path)['name']).",
        magic=(b"MATLAB 5.0 MAT-file", b"MATLAB 5.0 "),
    ),
    Foreign(
        "TIFF",
        "If it is not compressed, pass the array of tifffile.memmap(path), which is read from the "
        "file; else write it with ooc.create, page by page.",
        magic=(b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),
    ),
    Foreign(
        "a table in Parquet",
        f"Read it in parts (pyarrow.parquet.ParquetFile.iter_batches) and {_WRITE}.",
        magic=(b"PAR1",),
        suffixes=(".parquet",),
    ),
    Foreign(
        "a table in Arrow",
        f"Read it in parts (pyarrow.ipc.open_file) and {_WRITE}.",
        magic=(b"ARROW1",),
        suffixes=(".feather", ".arrow"),
    ),
    Foreign(
        "what torch.save writes, a pickle",
        "Save the tensor as an array: np.save('ds.npy', torch.load(path, mmap=True).numpy()).",
        members=("/data.pkl",),
        suffixes=(".pt", ".pth"),
    ),
    Foreign(
        "safetensors",
        "Save the tensor as an array: "
        "np.save('ds.npy', safetensors.numpy.load_file(path)['name']).",
        magic=(b'        {"',),
        suffixes=(".safetensors",),
        # The length of the header that begins here.
        fits=lambda head, nbytes: 8 + int.from_bytes(head[:8], "little") <= nbytes,
    ),
    Foreign(
        "a pickle, which can run any code",
        "Load it where you trust it, and np.save the array.",
        magic=(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        suffixes=(".pkl", ".pickle"),
    ),
    Foreign(
        "JSON",
        "If it is a reference file (kerchunk), open it through xarray (engine='kerchunk') and pass "
        "the DataArray.",
        suffixes=(".json",),
    ),
    Foreign(
        "text",
        f"Parse it once, e.g. np.save('ds.npy', np.loadtxt(path, delimiter=',')), or in parts and "
        f"{_WRITE}.",
        suffixes=(".csv", ".tsv", ".txt"),
    ),
    Foreign(
        "a compressed file",
        "Unpack it first: rows in it have no address.",
        magic=(b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c"),
        suffixes=(".gz", ".bz2", ".xz", ".zst", ".7z", ".tar", ".tgz"),
    ),
    Foreign(
        "a picture or a film",
        f"Decode it once, e.g. with imageio, and {_WRITE}.",
        magic=(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"    ftyp"),
        suffixes=(".png", ".jpg", ".jpeg", ".gif", ".mp4", ".avi", ".mov", ".mkv"),
    ),
)
"""All that is known; the first that fits is meant."""

_REMOTE = {
    "HDF5": (
        (".h5", ".hdf5", ".nc", ".nc4", ".he5", ".mat"),
        "or pass a dataset of h5py.File(fsspec.open(url).open()), which is slow",
    ),
    "a NumPy file": ((".npy", ".npz"), "or save it as Zarr"),
}
"""Formats that are opened from a disk: ends of names, and what else can be done."""


def foreign_file(path: str, head: bytes, nbytes: int) -> Foreign | None:
    """Return what a file is, by its first bytes and its name; None where that is not known.

    Parameters
    ----------
    path : str
    head : bytes
        Its first bytes, 32 or more where it has them.
    nbytes : int
        Its length.

    Examples
    --------
    >>> foreign_file("old.nc", b"CDF" + bytes([2, 0]), 5).what
    'netCDF of version 3'
    """
    for one in FOREIGN:
        begins = any(_begins(head, magic) for magic in one.magic)
        if begins and (one.fits is None or one.fits(head, nbytes)):
            return one
    return _by_name(path)


def foreign_members(names: Iterable[str]) -> Foreign | None:
    """Return what a folder or an archive is, by the names of what is in it.

    Examples
    --------
    >>> foreign_members(["model/data.pkl", "model/version"]).what
    'what torch.save writes, a pickle'
    """
    held = tuple(names)
    for one in FOREIGN:
        if one.members and any(name.endswith(one.members) for name in held):
            return one
    return None


def foreign_beside(path: str) -> Foreign | None:
    """Return what a path stands for that is the beginning of the names of several files.

    Examples
    --------
    >>> foreign_beside("nowhere") is None
    True
    """
    stem = path.removesuffix(".index")
    ends = (".index", ".data-00000-of-00001")
    return _BUNDLE if all(os.path.isfile(f"{stem}{end}") for end in ends) else None


def foreign_url(url: str) -> Foreign | None:
    """Return what lies at a URL, by its name, where it is no Zarr.

    Examples
    --------
    >>> foreign_url("https://host/ds.npy").what
    'a NumPy file at a URL'
    """
    name = url.partition("?")[0].partition("#")[0].rstrip("/")
    for what, (suffixes, hint) in _REMOTE.items():
        if name.lower().endswith(suffixes):
            return Foreign(
                f"{what} at a URL",
                f"Copy it to a disk first; {hint}. Zarr is read from where it is.",
            )
    return _by_name(name)


def _by_name(path: str) -> Foreign | None:
    # What is in several files: train.tfrecord-00003-of-00128.
    name = re.sub(r"(\.tf\w+)-\d+-of-\d+$", r"\1", os.path.basename(path).lower())
    return next((one for one in FOREIGN if one.suffixes and name.endswith(one.suffixes)), None)


def _begins(head: bytes, magic: bytes) -> bool:
    return len(head) >= len(magic) and all(
        wanted in (found, 0x20) for found, wanted in zip(head, magic, strict=False)
    )
