"""Tell what people have that is not opened as it is, and what to do with it, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["foreign_file", "foreign_members", "foreign_url"]


class _Foreign(NamedTuple):
    """A format, by the first bytes of a file, the end of its name, or what a folder or ZIP holds.

    Attributes
    ----------
    what : str
        The format, and what to do.
    magic : tuple of bytes
        A space stands for any byte.
    names : tuple of str
        Ends of the file's name, or of the name of one in the folder or archive.
    """

    what: str
    magic: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()


_WRITE = "and write the elements with ooc.create."
_FROM_THE_BEGINNING = "which can be read from its beginning only. Open the file that it was made of"

_FORMATS = (
    _Foreign(
        f"a tf.data cache, snapshot or saved dataset, {_FROM_THE_BEGINNING}; or load it {_WRITE}",
        names=(".data-00000-of-00001", "dataset_spec.pb", "snapshot.metadata"),
    ),
    _Foreign(
        f"a TFRecord, {_FROM_THE_BEGINNING}; or parse it (tf.data.TFRecordDataset) {_WRITE}",
        names=(".tfrecord", ".tfrecords", ".tfrec"),
    ),
    _Foreign(
        "netCDF of version 3. Open it through xarray: ooc.open(xarray.open_dataset(path)['name']); "
        "for speed make it netCDF4 first: nccopy -k nc4 old.nc new.nc.",
        magic=(b"CDF\x01", b"CDF\x02", b"CDF\x05"),
    ),
    _Foreign(
        "GRIB. Open it through xarray (engine='cfgrib') and pass the DataArray; for speed make it "
        "netCDF4 or Zarr first, e.g. cdo -f nc4 copy old.grib new.nc.",
        magic=(b"GRIB",),
    ),
    _Foreign(
        "HDF of version 4. Make it HDF5: h4toh5 old.hdf new.h5.", magic=(b"\x0e\x03\x13\x01",)
    ),
    _Foreign(
        "a MATLAB file before version 7.3. Save it with '-v7.3', which is HDF5; or save its "
        "arrays: np.save('ds.npy', scipy.io.loadmat(path)['name']).",
        magic=(b"MATLAB 5.0 ",),
    ),
    _Foreign(
        "TIFF. If it is not compressed, pass the array of tifffile.memmap(path), which is read "
        f"from the file; else read it page by page {_WRITE}",
        magic=(b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),
    ),
    _Foreign(
        f"a table in Parquet or Arrow. Read it in parts with pyarrow {_WRITE}",
        magic=(b"PAR1", b"ARROW1"),
        names=(".parquet", ".feather", ".arrow"),
    ),
    _Foreign(
        "what torch.save writes, a pickle. Save the tensor as an array: "
        "np.save('ds.npy', torch.load(path, mmap=True).numpy()).",
        names=("/data.pkl", ".pt", ".pth"),
    ),
    _Foreign(
        "safetensors. Save the tensor as an array: "
        "np.save('ds.npy', safetensors.numpy.load_file(path)['name']).",
        names=(".safetensors",),
    ),
    _Foreign(
        "a pickle, which can run any code. Load it where you trust it, and np.save the array.",
        magic=(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        names=(".pkl", ".pickle"),
    ),
    _Foreign(
        "JSON. If it is a reference file (kerchunk), open it through xarray (engine='kerchunk') "
        "and pass the DataArray.",
        names=(".json",),
    ),
    _Foreign(
        "text. Parse it once, e.g. np.save('ds.npy', np.loadtxt(path, delimiter=',')); or in parts "
        f"{_WRITE}",
        names=(".csv", ".tsv", ".txt"),
    ),
    _Foreign(
        "a compressed file. Unpack it first: rows in it have no address.",
        magic=(b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c"),
        names=(".gz", ".bz2", ".xz", ".zst", ".7z", ".tar", ".tgz"),
    ),
    _Foreign(
        f"a picture or a film. Decode it once, e.g. with imageio, {_WRITE}",
        magic=(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"    ftyp"),
        names=(".png", ".jpg", ".jpeg", ".gif", ".mp4", ".avi", ".mov", ".mkv"),
    ),
)

_FROM_A_DISK = (
    _Foreign(
        "HDF5 at a URL. Copy it to a disk first, or pass a dataset of "
        "h5py.File(fsspec.open(url).open()), which is slow. Zarr is read from where it is.",
        names=(".h5", ".hdf5", ".nc", ".nc4", ".he5", ".mat"),
    ),
    _Foreign(
        "a NumPy file at a URL. Copy it to a disk first, or save it as Zarr, which is read from "
        "where it is.",
        names=(".npy", ".npz"),
    ),
)
"""Formats that are opened, but not at a URL."""


def foreign_file(path: str, head: bytes) -> str:
    """Return what a file is and what to do with it, as a sentence; empty where it is not known.

    Parameters
    ----------
    path : str
    head : bytes
        Its first bytes, 32 or more where it has them.

    Examples
    --------
    >>> foreign_file("old.nc", b"CDF" + bytes([2, 0])).partition(".")[0]
    'netCDF of version 3'
    """
    known = (one.what for one in _FORMATS if any(_begins(head, magic) for magic in one.magic))
    return next(known, "") or _by_name(path, _FORMATS)


def foreign_members(names: Iterable[str]) -> str:
    """Return what a folder or an archive is, by the names of what is in it; empty if not known.

    Examples
    --------
    >>> foreign_members(["model/data.pkl", "model/version"]).partition(",")[0]
    'what torch.save writes'
    """
    return next(filter(None, (_by_name(name, _FORMATS) for name in names)), "")


def foreign_url(url: str) -> str:
    """Return what lies at a URL, by its name, where it is no Zarr; empty if not known.

    Examples
    --------
    >>> foreign_url("https://host/ds.npy").partition(".")[0]
    'a NumPy file at a URL'
    """
    name = url.partition("?")[0].partition("#")[0].rstrip("/")
    return _by_name(name, _FROM_A_DISK + _FORMATS)


def _by_name(path: str, formats: tuple[_Foreign, ...]) -> str:
    # What is in several files: train.tfrecord-00003-of-00128.
    name = re.sub(r"(\.tf\w+)-\d+-of-\d+$", r"\1", path.lower())
    return next((one.what for one in formats if one.names and name.endswith(one.names)), "")


def _begins(head: bytes, magic: bytes) -> bool:
    return len(head) >= len(magic) and all(
        wanted in (found, 0x20) for found, wanted in zip(head, magic, strict=False)
    )
