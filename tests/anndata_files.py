"""Files in AnnData's layout, written by h5py and zarr from its documented format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp
import zarr

CELL_TYPES = ("B cell", "T cell", "Zelle ü")


def random_csr(rows: int, columns: int, density: float = 0.1, seed: int = 0) -> sp.csr_matrix:
    """Rows of unlike lengths, some empty."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 100, (rows, columns)).astype("f4")
    dense[rng.random((rows, columns)) > density * 2 * rng.random((rows, 1))] = 0
    dense[:: max(2, rows // 5)] = 0
    return sp.csr_matrix(dense)


def _encoded(parent: Any, name: str, kind: str, **attributes: Any) -> Any:
    group = parent.create_group(name)
    group.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0", **attributes})
    return group


def _put(group: Any, name: str, array: np.ndarray, **options: Any) -> None:
    if isinstance(group, h5py.Group):
        # AnnData writes the arrays of a matrix so, and h5py chooses chunks for them.
        group.create_dataset(name, data=array, **options)
    else:
        made = group.create_array(name, shape=array.shape, dtype=array.dtype, **options)
        made[...] = array


def write_matrix(parent: Any, name: str, matrix: Any, **options: Any) -> None:
    """Write a sparse matrix; `options` are those of its three arrays."""
    group = _encoded(parent, name, f"{matrix.format}_matrix", shape=list(matrix.shape))
    for part in ("data", "indices", "indptr"):
        _put(group, part, getattr(matrix, part), **options)


def write_categories(parent: Any, name: str, codes: np.ndarray) -> None:
    """Write a column of categories."""
    group = _encoded(parent, name, "categorical", ordered=False)
    _put(group, "codes", codes)
    _put_texts(group, "categories", CELL_TYPES)


def write_genes(parent: Any, genes: Sequence[str], index: str = "_index") -> None:
    """Write the group `var`, with the names of genes as its index."""
    var = _encoded(parent, "var", "dataframe", **{"_index": index, "column-order": []})
    _put_texts(var, index, genes)


def _put_texts(group: Any, name: str, texts: Sequence[str]) -> None:
    if isinstance(group, h5py.Group):
        group.create_dataset(name, data=list(texts), dtype=h5py.string_dtype())
    else:
        group.create_array(name, shape=(len(texts),), dtype=str)[:] = np.array(texts)


def write_file(path: Path, matrix: sp.csr_matrix, **options: Any) -> str:
    """Write an h5ad file, or its Zarr form by the suffix; return its path."""
    if path.suffix == ".zarr":
        root = zarr.open_group(path, mode="w", zarr_format=options.pop("zarr_format", 3))
        _fill(root, matrix, options)
    else:
        with h5py.File(path, "w") as file:
            _fill(file, matrix, options)
    return str(path)


def _fill(file: Any, matrix: sp.csr_matrix, options: dict[str, Any]) -> None:
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    write_matrix(file, "X", matrix, **options)
    obs = _encoded(file, "obs", "dataframe", **{"_index": "_index", "column-order": ["cell_type"]})
    count = matrix.shape[0]
    write_categories(obs, "cell_type", (np.arange(count) % 4 - 1).astype("i1"))
    _put(obs, "n_genes", np.diff(matrix.indptr).astype("i8"))
