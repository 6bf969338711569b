"""Tell what people have that is not opened as it is, and what to do with it, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["foreign"]

_WRITE = "and write the elements with ooc.create."
_FROM_THE_BEGINNING = "which can be read from its beginning only. Open the file that it was made of"

_FORMATS: dict[str, tuple[bytes | str, ...]] = {
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


def foreign(names: Iterable[str], head: bytes = b"", *, url: bool = False) -> str:
    """Return what something is and what to do with it; empty where it is not known.

    Parameters
    ----------
    names : iterable of str
        Of the file, or of the members of a folder or an archive.
    head : bytes
        The file's first bytes, 32 or more where it has them.
    url : bool
        Whether it lies at a URL, where fewer formats are opened.

    Examples
    --------
    >>> foreign(["old.nc"], b"CDF" + bytes([2, 0])).partition(".")[0]
    'netCDF of version 3'
    >>> foreign(["reviews.txt"], url=True).partition(".")[0]
    'text, pictures or TFRecord at a URL'
    """
    # One of several files: train.tfrecord-00003-of-00128.
    ends = [re.sub(r"(\.tf\w+)-\d+-of-\d+$", r"\1", name.lower()) for name in names]
    formats = {**_NOT_AT_A_URL, **_FORMATS} if url else _FORMATS
    by_bytes = (
        what
        for what, marks in formats.items()
        if any(isinstance(mark, bytes) and _begins(head, mark) for mark in marks)
    )
    by_name = (
        what
        for end in ends
        for what, marks in formats.items()
        if any(isinstance(mark, str) and end.endswith(mark) for mark in marks)
    )
    return next(by_bytes, "") or next(by_name, "")


def _begins(head: bytes, magic: bytes) -> bool:
    return len(head) >= len(magic) and all(
        wanted in (found, 0x20) for found, wanted in zip(head, magic, strict=False)
    )
