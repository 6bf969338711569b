"""Open AnnData's groups for sparse matrices and categories as one array each.

AnnData stores a sparse matrix as a group of three arrays and a categorical column as a group of
two, in HDF5 (h5ad) or Zarr, and names the encoding in attributes (AnnData, "on-disk format",
"Sparse arrays" and "Categorical arrays").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.engines.sparse import SparseRows
from oocdata.engines.wrapped import Relabelled
from oocdata.errors import ArgumentError, UnknownFormatError, error_location
from oocdata.formats.dimensions import as_text
from oocdata.formats.names import all_values, read_all
from oocdata.formats.opening import attributes_of_group, first_field, open_source

__all__ = ["Group", "column_names", "is_one_array", "merge_groups", "open_group"]

_MEMBERS = {"csr_matrix": "indptr", "categorical": "codes"}
"""Encodings of groups that are opened as one array, with an array that such a group contains."""

_TABLES = {"X": "var", "layers": "var", "raw.X": "raw.var"}
"""Tables whose index names the columns of a matrix, or of those in a group; the last is legacy."""

_NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
_REFUSED = ("csc_matrix", *_NULLABLE)


@dataclass(frozen=True)
class Group:
    """A group of a file, of any format."""

    path: str  #: absolute
    key: str
    attributes: Mapping[str, Any]
    member: Callable[[str], Source]  #: opens an array of the group by its name


def is_one_array(attributes: Mapping[str, Any] | None) -> bool:
    """Return whether a group's attributes have an encoding that `open_group` opens or refuses.

    Examples
    --------
    >>> is_one_array({"encoding-type": "csr_matrix", "shape": [3, 4]}), is_one_array({})
    (True, False)
    """
    return attributes is not None and _encoding(attributes) in (*_MEMBERS, *_REFUSED)


def merge_groups(
    names: Iterable[str], attributes_of: Callable[[str], Mapping[str, Any] | None]
) -> list[str]:
    """Return the sorted names of arrays, with one name for each group that is one array.

    `attributes_of` is called only for groups with an array of a telling name.

    Examples
    --------
    >>> names = ["X/data", "X/indices", "X/indptr", "obs/codes"]
    >>> merge_groups(names, lambda group: {"encoding-type": "csr_matrix"} if group == "X" else {})
    ['X', 'obs/codes']
    """
    listed = list(names)
    parents = {
        parent
        for parent, _, name in (each.rpartition("/") for each in listed)
        if name in _MEMBERS.values()
    }
    groups = {parent for parent in parents if _encoding(attributes_of(parent) or {}) in _MEMBERS}
    return sorted(groups | {name for name in listed if name.rpartition("/")[0] not in groups})


def open_group(group: Group, axis: Any) -> Source:
    """Open a group as one array; reads metadata only.

    Raises `UnknownFormatError` for matrices stored by columns and for nullable (masked) arrays.
    """
    kind, key = _encoding(group.attributes), group.key
    with error_location(group.path, key):
        if kind in _NULLABLE:
            raise UnknownFormatError(
                f"`key` must name one array; this {kind} group holds values and a mask of those "
                "that are missing. Open both, and choose the rows that are there: "
                f"ooc.open(path, '{key}/values')[~np.asarray(ooc.open(path, '{key}/mask'))]."
            )
        if kind == "csc_matrix":
            raise UnknownFormatError(
                "a sparse matrix must be stored by rows (csr_matrix); this one is stored by "
                "columns (csc_matrix), so that each row is spread over it. Write it by rows once: "
                "adata.X = adata.X.tocsr()."
            )
        return _categories(group) if kind == "categorical" else _sparse(group, axis)


def column_names(path: str, key: str) -> Callable[[], NDArray[Any] | None] | None:
    """Return a function that reads the names of the columns of `X` or a layer, as in `Storage`.

    None for an array of another name.
    """
    if not key:  # a Zarr array that was opened by its own path
        path, _, key = path.rpartition("/")
    group, _, name = key.strip("/").rpartition("/")
    if name not in _TABLES:
        group, _, name = group.rpartition("/")
    return partial(_index, path, f"{group}/{_TABLES[name]}") if name in _TABLES else None


def _index(path: str, table: str) -> NDArray[Any] | None:
    """Return the index of a data frame; None if there is none at this name."""
    name = as_text(attributes_of_group(path, table).get("_index"))
    if not name:
        return first_field(path, table)
    try:
        index = open_source(path, f"{table}/{name}")
    except UnknownFormatError:  # texts with a mask
        index = open_source(path, f"{table}/{name}/values")
    names = read_all(index)
    return np.char.encode(names, "utf-8") if names.dtype.kind == "U" else names


def _encoding(attributes: Mapping[str, Any]) -> str:
    """Return the encoding of a group; AnnData before 0.7 used the attributes of h5sparse."""
    legacy = as_text(attributes.get("h5sparse_format"))
    return as_text(attributes.get("encoding-type")) or (legacy and f"{legacy}_matrix")


def _sparse(group: Group, axis: Any) -> Source:
    """Return the dense rows of a CSR matrix."""
    attribute = group.attributes.get("shape", group.attributes.get("h5sparse_shape"))
    shape = np.asarray(() if attribute is None else attribute)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise UnknownFormatError(
            f"a sparse matrix must have an attribute `shape` of two lengths; got {attribute!r}."
        )
    rows, columns = map(int, shape)
    data, indices, indptr = map(group.member, ("data", "indices", "indptr"))
    storages = [source.storage() for source in (data, indices, indptr)]
    sizes = [storage.stored_bytes for storage in storages]
    count = data.shape[0] if data.shape else 0
    density = count / max(1, rows * columns)
    storage = replace(
        _described(group, storages[0]),
        layout=f"CSR, nnz {count:,} ({density:.2%}); {storages[0].layout}",
        stored_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        reading=f"sparse rows into dense ones; {storages[0].reading}",
        files=tuple(dict.fromkeys(file for storage in storages for file in storage.files)),
        version="".join(storage.version for storage in storages),
        annotations=partial(Annotations, {}, 0),
        columns=column_names(group.path, group.key),
    )
    if axis_numbers(axis, 2, storage)[0] != 0:
        raise ArgumentError(
            f"`axis` must be 0 for a matrix that is stored by rows; got {axis!r}. A column of it "
            f"is spread over the file. [file '{group.path}', dataset '{group.key}']"
        )
    return SparseRows(data, indices, indptr, (rows, columns), storage)


def _categories(group: Group) -> Source:
    """Return the codes of a categorical column, in which -1 stands for a missing value."""
    codes = group.member("codes")
    storage = replace(
        codes.storage(),
        key=group.key,
        layout=f"codes of categories, {codes.storage().layout}",
        opened=_described(group, codes.storage()).opened,
        categorical=True,
        annotations=partial(_category_names, group.path, f"{group.key}/categories"),
    )
    return Relabelled(codes, storage)


def _category_names(path: str, key: str) -> Annotations:
    """Return the names of the categories, as annotations."""
    return Annotations({"categories": tuple(all_values(open_source(path, key)))})


def _described(group: Group, member: Storage) -> Storage:
    """Return the storage of an array of the group, changed to that of the group."""
    opened = None if member.opened is None else {**member.opened, "key": group.key}
    return replace(
        member, key=group.key, chunks=None, strides=None, offset=0, dimensions=(), opened=opened
    )
