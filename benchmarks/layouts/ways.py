"""The ways to train from a layout: ours, the maker's, the single-cell loaders, the limit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.layouts.layout import Elements, Layout, LayoutCase, keys_read
from benchmarks.layouts.table import LAYOUTS
from benchmarks.ways.limits import THREADS, Epochs
from benchmarks.ways.way import way

__all__ = ["BESIDE", "LIMIT", "MAKERS", "OURS"]

OURS, BESIDE, LIMIT = "oocdata, training", "oocdata, beside", "limit: decode and copy"
MAKERS = ("maker's loop", "maker's loop, PyTorch")
_COPIED, _BLOCK = 32 << 20, 4 << 20


def _applies(which: Callable[[Layout], bool]) -> Callable[[Any], bool]:
    return lambda case: isinstance(case, LayoutCase) and which(LAYOUTS[case.name])


def _loader(case: LayoutCase) -> Any:
    layout = LAYOUTS[case.name]
    dataset, weights = layout.ours(case.target), None
    if layout.weights is not None:
        weights = np.random.default_rng(0).random(len(dataset)) + layout.weights
    return dataset.batches(case.batch, shuffle=layout.shuffle, seed=1, weights=weights)


def _bound(case: Any, path: Path) -> int:
    return int(_loader(case).explain().resident_bytes)


_USED = ("oocdata", "tensorflow", "h5py", "zarr")


@way(OURS, *_USED, kind="ours", applies=_applies(bool), bound=_bound)
def ours(case: Any, path: Path) -> Iterable[Any]:
    batches: Iterable[Any] = _loader(case).to_tf()
    return batches


def _has_other(layout: Layout) -> bool:
    return layout.beside is not None


@way(BESIDE, *_USED, applies=_applies(_has_other))
def beside(case: Any, path: Path) -> Iterable[Any]:
    make = LAYOUTS[case.name].beside
    assert make is not None
    loader = make(case.target).batches(case.batch, shuffle=True, seed=1)
    batches: Iterable[Any] = loader.to_tf()
    return batches


def _elements(case: LayoutCase) -> Elements:
    layout = LAYOUTS[case.name]
    return Elements(layout, case.target, memory=layout.loads)


def _has_maker(layout: Layout) -> bool:
    return layout.maker and layout.beside is None


def _batches(elements: Elements, batch: int, rng: np.random.Generator) -> Iterator[Any]:
    """Yield batches of random rows, for makers who read a batch at once."""
    order = rng.permutation(len(elements))
    for start in range(0, len(order), batch):
        yield elements.batch(order[start : start + batch])


@way(MAKERS[0], "tensorflow", "h5py", "zarr", applies=_applies(_has_maker))
def generator(case: Any, path: Path) -> Any:
    """Read element by element in a generator: what the maker's dataset becomes in tf.data."""
    import tensorflow as tf

    elements, rng = _elements(case), np.random.default_rng(1)
    one_by_one = not LAYOUTS[case.name].whole_batches
    first = elements[0] if one_by_one else elements.batch(np.arange(2))
    lead = 0 if one_by_one else 1
    signature = tuple(
        tf.TensorSpec((*[None] * lead, *array.shape[lead:]), array.dtype) for array in first
    )

    def made() -> Iterator[Any]:
        if not one_by_one:
            yield from _batches(elements, case.batch, rng)
            return
        for position in rng.permutation(len(elements)).tolist():
            yield elements[position]

    dataset = tf.data.Dataset.from_generator(made, output_signature=signature)
    return (dataset.batch(case.batch) if one_by_one else dataset).prefetch(tf.data.AUTOTUNE)


@way(MAKERS[1], "torch", "h5py", "zarr", applies=_applies(_has_maker))
def data_loader(case: Any, path: Path) -> Any:
    """PyTorch's DataLoader with as many processes as the maker has, two at most."""
    import torch
    from torch.utils.data import DataLoader

    layout, elements = LAYOUTS[case.name], _elements(case)
    if layout.whole_batches:
        rng = np.random.default_rng(1)

        class Sampled:
            def __iter__(self) -> Iterator[Any]:
                for batch in _batches(elements, case.batch, rng):
                    yield [torch.from_numpy(array) for array in batch]

        return Sampled()
    workers = 0 if layout.loads else layout.workers
    # Spawned: neither HDF5 nor Zarr's event loop survives a fork.
    more = {"multiprocessing_context": "spawn", "persistent_workers": True} if workers else {}
    return DataLoader(elements, case.batch, shuffle=True, num_workers=workers, **more)


def _of_cells(layout: Layout) -> bool:
    return layout.file == "h5ad"


def _sparse(case: LayoutCase) -> bool:
    return case.name.endswith("sparse")


@way("scDataset", "scdataset", "anndata", "torch", applies=_applies(_of_cells))
def sc_dataset(case: Any, path: Path) -> Any:
    """Blocks of 16 cells, many batches a fetch, as its README recommends."""
    import anndata
    from scdataset import BlockShuffling, scDataset
    from torch.utils.data import DataLoader

    dataset = scDataset(
        anndata.read_h5ad(case.target, backed="r"),
        BlockShuffling(block_size=16),
        case.batch,
        fetch_factor=64,
        fetch_callback=_matrix,
        batch_transform=None if _sparse(case) else _dense,
    )
    return DataLoader(dataset, batch_size=None, collate_fn=_as_it_is)


def _matrix(cells: Any, rows: Any) -> Any:
    return cells.X[rows]


def _dense(rows: Any) -> Any:
    return rows.toarray()


def _as_it_is(batch: Any) -> Any:
    return batch


def _annbatch_convert(case: Any, path: Path) -> Path:
    from annbatch import DatasetCollection

    out = path.parent / f"{path.name}.annbatch.zarr"
    DatasetCollection(str(out)).add_adatas([case.target])
    return out


# It needs Python 3.12: the variable names an interpreter that has it.
@way(
    "annbatch, its own Zarr",
    "annbatch",
    applies=_applies(_of_cells),
    convert=_annbatch_convert,
    python="ANNBATCH_PYTHON",
)
def annbatch(case: Any, path: Path) -> Any:
    """Its default chunks, shuffled, decoded by zarrs where that is installed, as it recommends."""
    import zarr
    from annbatch import DatasetCollection, Loader

    if find_spec("zarrs"):
        import zarrs  # noqa: F401  # enters its pipeline

        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    options = {"chunk_size": 64, "preload_nchunks": 128, "batch_size": case.batch}
    loader = Loader(shuffle=True, preload_to_gpu=False, **options)
    loader.use_collection(DatasetCollection(str(path)))

    class Cells:
        def __iter__(self) -> Iterator[Any]:
            for batch in loader:
                yield batch["X"] if _sparse(case) else batch["X"].toarray()

    return Cells()


@way(LIMIT, "h5py", "numcodecs", "imagecodecs", kind="limit", applies=_applies(bool))
def limit(case: Any, path: Path) -> Iterable[Any]:
    """Decode every chunk once and copy the bytes of all elements once, in two threads.

    What is not compressed is copied out of the mapped files.
    """
    stored = path.parent / case.file_name
    files = [p for p in sorted(stored.rglob("*")) if p.is_file() and "expected" not in p.name]
    keys = keys_read(LAYOUTS[case.name], case.target)
    chunks = [chunk for file in files for chunk in _chunks(file, keys)]
    source = np.ones(_COPIED, np.uint8)
    largest = max(files, key=lambda file: file.stat().st_size)
    if not chunks and largest.stat().st_size > _COPIED:
        source = np.memmap(largest, np.uint8, "r")
    share = case.elements * case.element_bytes // THREADS
    buffers = [np.zeros(_BLOCK, np.uint8) for _ in range(THREADS)]

    def work(number: int) -> None:
        for chunk in chunks[number::THREADS]:
            chunk()
        at, left = number * (len(source) // THREADS), share
        while left > 0:
            part = source[at % len(source) :][: min(_BLOCK, left)]
            np.copyto(buffers[number][: len(part)], part)
            at, left = at + len(part), left - len(part)

    return Epochs(case.elements, work, THREADS)


def _chunks(file: Path, keys: set[str]) -> list[Callable[[], Any]]:
    """Return calls that decode the compressed chunks of a file, of the arrays that are read."""
    if file.suffix in (".h5", ".hdf5", ".h5ad"):
        return _hdf5_chunks(file, {key.rpartition("/")[2] for key in keys})
    of_key = any(f".zarr/{key}/" in str(file) for key in keys)
    if of_key and not file.name.startswith((".", "zarr.")):
        import numcodecs

        return [lambda: numcodecs.blosc.decompress(file.read_bytes())]
    return []


def _hdf5_chunks(path: Path, names: set[str]) -> list[Callable[[], Any]]:
    import h5py
    import imagecodecs

    calls: list[Callable[[], Any]] = []
    codecs = {"gzip": imagecodecs.deflate_decode, "lzf": imagecodecs.lzf_decode}

    def visit(name: str, item: Any) -> None:
        packed = isinstance(item, h5py.Dataset) and item.compression in codecs
        if not packed or name.rpartition("/")[2] not in names:
            return
        decode = codecs[item.compression]
        nbytes = int(np.prod(item.chunks)) * item.dtype.itemsize

        def note(chunk: Any) -> None:
            def call() -> None:
                stored = os.pread(opened, chunk.size, chunk.byte_offset)
                if not chunk.filter_mask:  # else it did not become smaller
                    decode(stored, out=nbytes)

            calls.append(call)

        item.id.chunk_iter(note)

    opened = os.open(path, os.O_RDONLY)
    with h5py.File(path, "r") as file:
        file.visititems(visit)
    if not calls:
        os.close(opened)
    return calls
