"""The sections: every case, with the figures that are asked for (CHANGELOG and README quote them).

Sizes are chosen so that a round takes the fast ways about a second or two, and so that compressed
data is many times larger than what may be kept decoded.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.case import Case
from benchmarks.section import Section
from benchmarks.targets import as_fast, faster, first_batch, more_memory, of_bound
from benchmarks.ways.keras import WORKERS

__all__ = ["SECTIONS"]

FRAME = (3, 50, 50)
TF, NUMPY = "oocdata to_tf", "oocdata NumPy"
COPY = ("limit: copy, 1 thread", "limit: copy, 2 threads")
DECODE = tuple(f"limit: decode, {name}" for name in ("zlib", "zlib-ng", "libdeflate", "isal"))
DISK = ("limit: disk, buffered", "limit: disk, O_DIRECT")
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
_OPEN = "10⁹ rows: open and first batch"
SPARSE = Case("rows-1e9", "npy sparse", 10**9, (4,), "u1", 256)


def _pairs(name: str, case: Case) -> Section:
    return Section(
        name,
        "Work A: shuffled next-frame pairs",
        (case,),
        targets=(
            faster("over from_generator", 12, TF, "from_generator"),
            faster("over the per-element recipe", 12, TF, "per-element py_function"),
            faster("over PyDataset", 4, TF, "PyDataset, 1 worker", f"PyDataset, {WORKERS} workers"),
            faster("over Grain", 4, TF, "Grain", "Grain, 2 threads"),
            faster("over PyTorch's in-process batched loader", 1.1, TF, "PyTorch, in process"),
        ),
    )


def _small(name: str, case: Case) -> Section:
    return Section(
        name,
        f"Small rows: {case.rows:,} of 784 bytes",
        (case,),
        graph=True,
        targets=(
            faster("over from_generator", 20, TF, "from_generator"),
            faster("over from_generator, in a graph", 20, TF, "from_generator", consumer="graph"),
            faster("of np.take from the mapping, to_tf", 0.5, TF, COPY[0], case=case.name),
            faster("of np.take from the mapping, NumPy", 0.5, NUMPY, COPY[0], case=case.name),
        ),
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
        _pairs("pairs", WORK_A),
        Section(
            "pairs-256",
            "Work A at batch 256",
            (replace(WORK_A, name="work-a-256", batch=256),),
            targets=(faster("of np.take in two threads", 0.6, TF, COPY[1]),),
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
            targets=tuple(
                as_fast(way, case.name, "npy", 0.9) for case in _LAYOUTS[1:] for way in (TF, NUMPY)
            ),
        ),
        Section(
            "cold",
            "Cold: random rows of 60 KB, none in the page cache",
            (replace(FRAMES, name="cold", cache="cold"),),
            targets=(
                faster("of the disk's sequential read, to_tf", 0.75, TF, *DISK),
                faster("of the disk's sequential read, NumPy", 0.75, NUMPY, *DISK),
            ),
        ),
        Section(
            "gzip",
            "HDF5, gzip and shuffle, chunks of 32 rows of 4 KB, block shuffle",
            (GZIP,),
            targets=(
                faster("over h5py's index list, to_tf", 120, TF, "h5py, index list"),
                faster("over h5py's index list, NumPy", 120, NUMPY, "h5py, index list"),
                faster("of the best codec in two threads, to_tf", 0.9, TF, *DECODE),
                faster("of the best codec in two threads, NumPy", 0.9, NUMPY, *DECODE),
            ),
        ),
        Section(
            "zarr",
            "Zarr v3, zstd, chunks of 32 rows of 4 KB, plain and sharded, block shuffle",
            (ZSTD, SHARDED),
            targets=tuple(
                target
                for case in (ZSTD.name, SHARDED.name)
                for way in (TF, NUMPY)
                for target in (
                    faster(f"{case}: over zarr oindex, {way}", 100, way, "zarr, oindex", case=case),
                    faster(f"{case}: of TensorStore in bulk, {way}", 0.8, way, BULK, case=case),
                )
            ),
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
            targets=(
                faster("over h5py's index list", 5, TF, "h5py, index list", case="gzip-global"),
                *(
                    target
                    for case in ("zstd-global", "zstd-sharded-global")
                    for target in (
                        faster(f"{case}: over zarr oindex", 5, TF, "zarr, oindex", case=case),
                        faster(
                            f"{case}: over TensorStore's index list",
                            1,
                            TF,
                            "TensorStore, index list",
                            "TensorStore, index list, cache",
                            case=case,
                        ),
                    )
                ),
            ),
        ),
        Section(
            "sparse",
            "10⁹ rows: opening the file and one shuffled batch",
            (replace(SPARSE, name="rows-1e6", rows=10**6), SPARSE),
            ways=(TF, NUMPY, "limit: tf.data alone", "Grain"),
            first_batch_only=True,
            targets=(
                first_batch(_OPEN, NUMPY, SPARSE.name, 100),
                first_batch(_OPEN, TF, SPARSE.name, 100),
                more_memory(NUMPY, "rows-1e6", "rows-1e9", 4),
                more_memory(TF, "rows-1e6", "rows-1e9", 4),
            ),
        ),
        Section(
            "streaming",
            "One, four and sixteen times the data: memory",
            _streams(),
            ways=(TF, NUMPY),
            whole=True,
            targets=tuple(
                target
                for way in (TF, NUMPY)
                for name in ("npy", "gzip")
                for target in (
                    more_memory(way, f"{name}-x1", f"{name}-x16", 8),
                    of_bound(way, f"{name}-x16"),
                )
            ),
        ),
    )
}
"""All sections, by name."""
