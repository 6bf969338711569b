"""Arrays as each format stores them, written into one folder.

``LAYOUTS`` names each: a function that writes it and returns its path in the folder, the arguments
of `oocdata.open`, and the array as it is read back. ``KINDS`` are the few that tests of links,
counts and processes take: one of each way to ask for bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numcodecs
import numpy as np
import zarr

__all__ = ["KINDS", "LAYOUTS", "Layout", "numbers", "write_kinds"]

KINDS = {
    "npy": ("a.npy", None),
    "contiguous": ("a.h5", "plain"),
    "gzip": ("a.h5", "gzip"),
    "zarr": ("a.zarr", None),
    "shards": ("shards.zarr", None),
}
"""File and dataset of each kind."""


def write_kinds(folder: Path, rows: np.ndarray, each: int, shard: int) -> None:
    """Write the same rows in all kinds: in chunks of `each` rows, in shards of `shard`."""
    chunks = (each, *rows.shape[1:])
    np.save(folder / "a.npy", rows)
    with h5py.File(folder / "a.h5", "w") as file:
        file["plain"] = rows
        file.create_dataset("gzip", data=rows, chunks=chunks, compression="gzip")
    zarr.create_array(folder / "a.zarr", data=rows, chunks=chunks)
    shards = (shard, *rows.shape[1:])
    zarr.create_array(folder / "shards.zarr", data=rows, chunks=chunks, shards=shards)


class Layout(NamedTuple):
    name: str | list[str]
    array: np.ndarray
    options: dict[str, Any] = {}  # noqa: RUF012  # none is changed


def numbers(shape: tuple[int, ...] = (60, 6, 5), dtype: str = "f4", seed: int = 0) -> np.ndarray:
    """Return numbers that compress a little, no two rows alike."""
    made = np.random.default_rng(seed).integers(0, 200, shape).astype(dtype)
    made.reshape(len(made), -1)[:, 0] = np.arange(len(made))
    return made


def npy(order: Any, dtype: str) -> Callable[[Path, str], Layout]:
    def write(folder: Path, name: str) -> Layout:
        array = numbers()
        np.save(folder / f"{name}.npy", np.asarray(array, dtype, order))
        return Layout(f"{name}.npy", array)

    return write


def npz(save: Any) -> Callable[[Path, str], Layout]:
    def write(folder: Path, name: str) -> Layout:
        array = numbers()
        save(folder / f"{name}.npz", x=array, y=array[:3])
        return Layout(f"{name}.npz", array, {"key": "x"})

    return write


def raw(folder: Path, name: str) -> Layout:
    array = numbers(dtype="i2")
    (folder / f"{name}.bin").write_bytes(b"A header.." + array.tobytes())
    return Layout(f"{name}.bin", array, {"dtype": "i2", "shape": (-1, 6, 5), "offset": 10})


def several_npy(folder: Path, name: str) -> Layout:
    array = numbers()
    for number, part in enumerate(np.array_split(array, [13, 40])):
        np.save(folder / f"{name}{number}.npy", part)
    return Layout([f"{name}{number}.npy" for number in range(3)], array)


def hdf5(user_block: int = 0, **storage: Any) -> Callable[[Path, str], Layout]:
    def write(folder: Path, name: str) -> Layout:
        array = numbers()
        with h5py.File(folder / f"{name}.h5", "w", userblock_size=user_block) as file:
            file["another"] = np.arange(7)
            file.create_dataset("group/u", data=array, **storage)
        return Layout(f"{name}.h5", array, {"key": "group/u"})

    return write


def hdf5_big_endian(folder: Path, name: str) -> Layout:
    array = numbers(dtype="i4")
    with h5py.File(folder / f"{name}.h5", "w") as file:
        file.create_dataset("u", data=array, dtype=">i4", chunks=(7, 3, 5), compression="gzip")
    return Layout(f"{name}.h5", array)


def hdf5_compact(folder: Path, name: str) -> Layout:
    array = numbers((60, 6, 5), "i1")
    with h5py.File(folder / f"{name}.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(array.shape)
        made = h5py.h5d.create(file.id, b"u", h5py.h5t.NATIVE_INT8, space, properties)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
    return Layout(f"{name}.h5", array)


def hdf5_pattern(**storage: Any) -> Callable[[Path, str], Layout]:
    def write(folder: Path, name: str) -> Layout:
        array = numbers()
        with h5py.File(folder / f"{name}.h5", "w") as file:
            for number, part in enumerate(np.array_split(array, [13, 40])):
                file.create_dataset(f"demos/{number}/x", data=part, **storage)
        return Layout(f"{name}.h5", array, {"key": "demos/*/x"})

    return write


def hdf5_text(folder: Path, name: str) -> Layout:
    words = [f"word {number}" for number in range(60)]
    with h5py.File(folder / f"{name}.h5", "w") as file:
        file.create_dataset("u", data=words, dtype=h5py.string_dtype())
    return Layout(f"{name}.h5", np.array(words, "S"))


def hdf5_fixed_text(folder: Path, name: str) -> Layout:
    words = np.array([f"word {number}".encode() for number in range(60)])
    with h5py.File(folder / f"{name}.h5", "w") as file:
        file["u"] = words
    return Layout(f"{name}.h5", words)


def hdf5_holes(folder: Path, name: str) -> Layout:
    array = numbers()
    array[10:30] = -1
    with h5py.File(folder / f"{name}.h5", "w") as file:
        made = file.create_dataset(
            "u", array.shape, "f4", chunks=(10, 6, 5), compression="gzip", fillvalue=-1
        )
        made[:10], made[30:] = array[:10], array[30:]
    return Layout(f"{name}.h5", array, {"missing": "fill"})


def netcdf_packed(folder: Path, name: str) -> Layout:
    import netCDF4

    stored = numbers(dtype="i2")
    with netCDF4.Dataset(folder / f"{name}.nc", "w") as file:
        for axis, length in zip("tyx", stored.shape, strict=True):
            file.createDimension(axis, length)
        made = file.createVariable("u", "i2", tuple("tyx"), zlib=True, chunksizes=(8, 6, 5))
        made.set_auto_maskandscale(False)
        made.scale_factor, made.add_offset = np.float32(0.5), np.float32(3)
        made[...] = stored
    array = (stored * np.float32(0.5) + np.float32(3)).astype("f4")
    return Layout(f"{name}.nc", array, {"key": "u", "decode": True})


def zarr_array(
    shape: tuple[int, ...] = (60, 6, 5), dtype: str = "f4", **storage: Any
) -> Callable[[Path, str], Layout]:
    def write(folder: Path, name: str) -> Layout:
        array = numbers(shape, dtype)
        zarr.create_array(folder / f"{name}.zarr", data=array, **storage)
        return Layout(f"{name}.zarr", array)

    return write


def zarr_holes(version: Any, **storage: Any) -> Callable[[Path, str], Layout]:
    def write(folder: Path, name: str) -> Layout:
        array = numbers()
        array[8:24] = -1
        zarr.create_array(
            folder / f"{name}.zarr",
            data=array,
            chunks=(8, 6, 5),
            fill_value=-1,
            zarr_format=version,
            **storage,
        )
        return Layout(f"{name}.zarr", array, {"missing": "fill"})

    return write


def zarr_group(version: Any, consolidated: bool) -> Callable[[Path, str], Layout]:
    def write(folder: Path, name: str) -> Layout:
        array = numbers()
        group = zarr.create_group(folder / f"{name}.zarr", zarr_format=version)
        group.create_array("inner/u", data=array, chunks=(8, 6, 5))
        group.create_array("v", data=array[:3], chunks=(8, 6, 5))
        if consolidated:
            zarr.consolidate_metadata(str(folder / f"{name}.zarr"))
        return Layout(f"{name}.zarr", array, {"key": "inner/u"})

    return write


def zarr_text(folder: Path, name: str) -> Layout:
    words = np.array([f"word {number}" for number in range(60)])
    made = zarr.create_array(folder / f"{name}.zarr", shape=(60,), chunks=(8,), dtype="str")
    made[:] = words
    return Layout(f"{name}.zarr", words.astype("S"))


WHOLE_ROWS = {"chunks": (8, 6, 5)}
CUT_ROWS = {"chunks": (7, 4, 3)}

LAYOUTS: dict[str, Callable[[Path, str], Layout]] = {
    "npy": npy("C", "<f4"),
    "npy-fortran": npy("F", "<f4"),
    "npy-big-endian": npy("C", ">f4"),
    "npy-fortran-big-endian": npy("F", ">f8"),
    "npz-stored": npz(np.savez),
    "raw": raw,
    "npy-several": several_npy,
    "hdf5-contiguous": hdf5(),
    "hdf5-chunked": hdf5(**WHOLE_ROWS),
    "hdf5-cut": hdf5(**CUT_ROWS),
    "hdf5-gzip": hdf5(**WHOLE_ROWS, compression="gzip"),
    "hdf5-gzip-cut": hdf5(**CUT_ROWS, compression="gzip", shuffle=True, fletcher32=True),
    "hdf5-lzf": hdf5(**WHOLE_ROWS, compression="lzf", shuffle=True),
    "hdf5-scaleoffset": hdf5(**WHOLE_ROWS, scaleoffset=2),
    "hdf5-single-rows": hdf5(chunks=(1, 6, 5)),
    "hdf5-user-block": hdf5(1024, **WHOLE_ROWS),
    "hdf5-latest": hdf5(**WHOLE_ROWS, compression="gzip", maxshape=(None, 6, 5)),
    "hdf5-big-endian": hdf5_big_endian,
    "hdf5-compact": hdf5_compact,
    "hdf5-pattern": hdf5_pattern(),
    "hdf5-pattern-gzip": hdf5_pattern(chunks=(5, 6, 5), compression="gzip"),
    "hdf5-text": hdf5_text,
    "hdf5-fixed-text": hdf5_fixed_text,
    "hdf5-holes": hdf5_holes,
    "netcdf-packed": netcdf_packed,
    "zarr-v3": zarr_array(**WHOLE_ROWS),
    "zarr-v3-cut": zarr_array(**CUT_ROWS),
    "zarr-v3-raw": zarr_array(**WHOLE_ROWS, compressors=None),
    "zarr-v3-big-endian": zarr_array(dtype=">i4", **WHOLE_ROWS),
    "zarr-v3-many-axes": zarr_array((60, 2, 3, 5), chunks=(8, 1, 3, 5)),
    "zarr-shards": zarr_array(chunks=(4, 6, 5), shards=(16, 6, 5)),
    "zarr-shards-cut": zarr_array(chunks=(4, 3, 5), shards=(16, 6, 5), compressors=None),
    "zarr-v2": zarr_array(**WHOLE_ROWS, zarr_format=2),
    "zarr-v2-fortran": zarr_array(**CUT_ROWS, zarr_format=2, order="F"),
    "zarr-v2-raw": zarr_array(**WHOLE_ROWS, zarr_format=2, compressors=None),
    "zarr-v2-lzma": zarr_array(**WHOLE_ROWS, zarr_format=2, compressors=numcodecs.LZMA()),
    "zarr-v2-nested": zarr_array(
        **WHOLE_ROWS, zarr_format=2, chunk_key_encoding={"name": "v2", "separator": "/"}
    ),
    "zarr-v2-holes": zarr_holes(2),
    "zarr-v3-holes": zarr_holes(3),
    "zarr-shards-holes": zarr_holes(3, shards=(16, 6, 5)),
    "zarr-group": zarr_group(3, consolidated=False),
    "zarr-group-consolidated": zarr_group(3, consolidated=True),
    "zarr-v2-group": zarr_group(2, consolidated=False),
    "zarr-v2-group-consolidated": zarr_group(2, consolidated=True),
    "zarr-text": zarr_text,
}
