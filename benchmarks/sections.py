"""The sections: every case.

Sizes are chosen so that a round takes the fast ways about a second or two, and so that compressed
data is many times larger than what may be kept decoded.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.case import Case
from benchmarks.section import Section

__all__ = ["SECTIONS"]

FRAME = (3, 50, 50)
TF, NUMPY = "oocdata to_tf", "oocdata NumPy"
COPY = ("limit: copy, 1 thread", "limit: copy, 2 threads")
DECODE = tuple(f"limit: decode, {name}" for name in ("zlib", "zlib-ng", "libdeflate", "isal"))
BULK = "limit: TensorStore in bulk"

WORK_A = Case("work-a", "npy", 20_000, FRAME, "f8", 32, pairs=True)
SMALL = Case("mnist", "npy", 60_000, (28, 28), "u1", 256)
GZIP = Case(
    "gzip",
    "hdf5",
    200_000,
    (1024,),
    "f4",
    32,
    32,
    "gzip+shuffle",
    order="block",
)
ZSTD = replace(GZIP, name="zstd", format="zarr", codec="zstd")
SHARDED = replace(ZSTD, name="zstd-sharded", shard_rows=2048)
FRAMES = Case("npy", "npy", 20_000, FRAME, "f8", 32)
SPARSE = Case("rows-1e9", "npy sparse", 10**9, (4,), "u1", 256)


def _small(name: str, case: Case) -> Section:
    return Section(
        name,
        f"Small rows: {case.rows:,} of 784 bytes",
        (case,),
        graph=True,
    )


def _streams() -> tuple[Case, ...]:
    sizes = (1, 4, 16)
    frames = replace(FRAMES, rows=5_000)
    chunks = replace(GZIP, rows=100_000)
    return (
        *(replace(frames, name=f"npy-x{n}", rows=frames.rows * n) for n in sizes),
        *(replace(chunks, name=f"gzip-x{n}", rows=chunks.rows * n) for n in sizes),
    )


_LAYOUTS = (
    FRAMES,
    replace(FRAMES, name="hdf5-contiguous", format="hdf5"),
    replace(FRAMES, name="hdf5-chunks", format="hdf5", chunk_rows=32),
    replace(FRAMES, name="zarr-chunks", format="zarr", chunk_rows=32),
)

SECTIONS = {
    section.name: section
    for section in (
        Section("pairs", "Work A: shuffled next-frame pairs", (WORK_A,)),
        Section(
            "pairs-256",
            "Work A at batch 256",
            (replace(WORK_A, name="work-a-256", batch=256),),
        ),
        _small("small", SMALL),
        _small("small-1m", replace(SMALL, name="small-1m", rows=1_000_000)),
        Section(
            "large",
            "Large rows: 400 of 3 MB",
            (Case("large", "npy", 400, (1024, 1024, 3), "u1", 32),),
        ),
        Section(
            "layouts",
            "The same rows, uncompressed, in other files",
            _LAYOUTS,
            ways=(
                TF,
                NUMPY,
                COPY[0],
                COPY[1],
                "h5py, index list",
                "h5py, row by row",
                "zarr, oindex",
                "zarr, slices",
                "zarr with zarrs, oindex",
                "zarr with zarrs, slices",
                "TensorStore, index list",
                BULK,
            ),
        ),
        Section(
            "cold",
            "Cold: random rows of 60 KB, none in the page cache",
            (replace(FRAMES, name="cold", cache="cold"),),
        ),
        Section(
            "gzip",
            "HDF5, gzip and shuffle, chunks of 32 rows of 4 KB, block shuffle",
            (GZIP,),
        ),
        Section(
            "zarr",
            "Zarr v3, zstd, chunks of 32 rows of 4 KB, plain and sharded, block shuffle",
            (ZSTD, SHARDED),
        ),
        Section(
            "global",
            "Compressed chunks, full shuffle",
            tuple(
                replace(case, name=f"{case.name}-global", order="global")
                for case in (GZIP, ZSTD, SHARDED)
            ),
            ways=(
                TF,
                NUMPY,
                "h5py, index list",
                "h5py, row by row",
                "zarr, oindex",
                "zarr with zarrs, oindex",
                "TensorStore, index list",
                "TensorStore, index list, cache",
            ),
        ),
        Section(
            "sparse",
            "10⁹ rows: opening the file and one shuffled batch",
            (replace(SPARSE, name="rows-1e6", rows=10**6), SPARSE),
            ways=(TF, NUMPY, "limit: tf.data alone", "Grain"),
            first_batch_only=True,
        ),
        Section(
            "streaming",
            "One, four and sixteen times the data: memory",
            _streams(),
            ways=(TF, NUMPY),
            whole=True,
        ),
    )
}
"""All sections, by name."""
