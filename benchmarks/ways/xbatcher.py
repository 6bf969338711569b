"""xbatcher: batches of an xarray object, each a contiguous run; only their order is shuffled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.files import KEY
from benchmarks.ways.way import way

__all__: list[str] = []


def _array(case: Case, path: Path) -> Any:
    import xarray

    if case.format == "zarr":
        # chunks=None: without dask, as nothing here is to be computed lazily.
        return xarray.open_zarr(path, consolidated=False, chunks=None)[KEY]
    dims = ["row", *(f"axis{number}" for number in range(len(case.element)))]
    return xarray.DataArray(np.load(path, mmap_mode="r"), dims=dims)


@way(
    "xbatcher",
    "xarray",
    "xbatcher",
    "torch",
    applies=lambda case: case.format in ("npy", "zarr"),
)
def map_dataset(case: Case, path: Path) -> Any:
    import torch
    from torch.utils.data import DataLoader
    from xbatcher import BatchGenerator
    from xbatcher.loaders.torch import MapDataset

    array = _array(case, path)
    whole = dict(zip(array.dims[1:], case.element, strict=True))

    def batches(rows: slice) -> Any:
        size = {"row": case.batch, **whole}
        return BatchGenerator(array.isel(row=rows), input_dims=size, preload_batch=False)

    def tensor(batch: Any) -> Any:
        values = batch.values
        # A run of a mapping is a view: fetched here, as the others fetch theirs.
        return torch.from_numpy(values if values.flags.owndata else np.array(values))

    x = batches(slice(0, case.elements))
    y = batches(slice(1, case.elements + 1)) if case.pairs else None
    dataset = MapDataset(x, y, transform=tensor, target_transform=tensor)
    return DataLoader(dataset, batch_size=None, shuffle=True)
