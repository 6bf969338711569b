"""Open AnnData's groups for sparse matrices and categories as one array each.

AnnData stores a sparse matrix as a group of three arrays and a categorical column as a group of
two, in HDF5 (h5ad) or Zarr, and names the encoding in attributes (AnnData, "on-disk format",
"Sparse arrays" and "Categorical arrays").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.copying import all_values, read_all
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.engines.sparse import SparseRows
from oocdata.engines.wrapped import Relabelled
from oocdata.errors import ArgumentError, UnknownFormatError, error_location
from oocdata.formats.dimensions import as_text

if TYPE_CHECKING:
    from oocdata.formats.tree import Tree

_MEMBERS = {"csr_matrix": "indptr", "categorical": "codes"}
"""Encodings of groups that are opened as one array, with an array that such a group contains."""

_TABLES = {"X": "var", "layers": "var", "raw.X": "raw.var"}
"""Tables whose index names the columns of a matrix, or of those in a group; the last is legacy."""

_NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
_H5SPARSE = "h5sparse_format"
"""Attribute with the encoding in files of AnnData before 0.7."""
_OLD = "a file of AnnData before 0.7 must be saved anew: anndata.read_h5ad(path).write(new_path)."
_REFUSED = ("csc_matrix", _H5SPARSE, *_NULLABLE)


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a file, of any format."""

    attributes: Mapping[str, Any]

    @property
    def is_array(self) -> bool:
        """Whether it has an encoding that `open_group` opens, or refuses."""
        return _encoding(self.attributes) in (*_MEMBERS, *_REFUSED)


def merge_groups(
    names: Iterable[str], attributes_of: Callable[[str], Mapping[str, Any]]
) -> list[str]:
    """Return the sorted names of arrays, with one name for each group that is one array.

    `attributes_of` is called only for groups with an array of a telling name.
    """
    listed = list(names)
    parents = {
        parent
        for parent, _, name in (each.rpartition("/") for each in listed)
        if name in _MEMBERS.values()
    }
    groups = {parent for parent in parents if _encoding(attributes_of(parent)) in _MEMBERS}
    return sorted(groups | {name for name in listed if name.rpartition("/")[0] not in groups})


def open_group(tree: Tree, key: str, attributes: Mapping[str, Any], axis: Any) -> Source:
    """Open a group with the given key and attributes as one array; reads metadata only.

    Raises `UnknownFormatError` for matrices stored by columns, nullable (masked) arrays, and old
    files.
    """
    kind = _encoding(attributes)
    with error_location(tree.path, key):
        if kind == _H5SPARSE:
            raise UnknownFormatError(_OLD)
        if kind in _NULLABLE:
            raise UnknownFormatError(
                f"`key` must name one array; this {kind} group holds two, '{key}/values' and "
                f"'{key}/mask' of the values that are missing. Open both."
            )
        if kind == "csc_matrix":
            raise UnknownFormatError(
                "a sparse matrix must be stored by rows (csr_matrix); this one is stored by "
                "columns (csc_matrix), so that each row is spread over it. Write it by rows once: "
                "adata.X = adata.X.tocsr()."
            )
        if kind == "categorical":
            return _categories(tree, key)
        return _sparse(tree, key, attributes, axis)


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
    from oocdata.formats.opening import tree_of  # which imports this module

    with tree_of(path) as tree:
        if not (name := as_text(tree.attributes(table).get("_index"))):
            array = tree.array(table) if tree.look(table) else None
            if array is not None and array.dtype.names:
                raise UnknownFormatError(_OLD, path=path, key=table)
            return None
        try:
            index = tree.open(f"{table}/{name}")
        except UnknownFormatError:  # texts with a mask
            index = tree.open(f"{table}/{name}/values")
    names = read_all(index)
    return np.char.encode(names, "utf-8") if names.dtype.kind == "U" else names


def _encoding(attributes: Mapping[str, Any]) -> str:
    return _H5SPARSE if _H5SPARSE in attributes else as_text(attributes.get("encoding-type"))


def _sparse(tree: Tree, key: str, attributes: Mapping[str, Any], axis: Any) -> Source:
    attribute = attributes.get("shape")
    shape = np.asarray(() if attribute is None else attribute)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise UnknownFormatError(
            f"a sparse matrix must have an attribute `shape` of two lengths; got {attribute!r}."
        )
    rows, columns = map(int, shape)
    data, indices, indptr = (
        tree.open(f"{key}/{member}") for member in ("data", "indices", "indptr")
    )
    storages = [source.storage() for source in (data, indices, indptr)]
    sizes = [storage.stored_bytes for storage in storages]
    count = data.shape[0] if data.shape else 0
    density = count / max(1, rows * columns)
    storage = replace(
        _described(key, storages[0]),
        layout=f"CSR, nnz {count:,} ({density:.2%}); {storages[0].layout}",
        stored_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        reading=f"sparse rows into dense ones; {storages[0].reading}",
        files=tuple(dict.fromkeys(file for storage in storages for file in storage.files)),
        version="".join(storage.version for storage in storages),
        annotations=partial(Annotations, {}, 0),
        columns=column_names(tree.path, key),
    )
    if axis_numbers(axis, 2, storage)[0] != 0:
        raise ArgumentError(
            f"`axis` must be 0 for a matrix that is stored by rows; got {axis!r}. A column of it "
            f"is spread over the file. [file '{tree.path}', dataset '{key}']"
        )
    return SparseRows(data, indices, indptr, (rows, columns), storage)


def _categories(tree: Tree, key: str) -> Source:
    """Return the codes of a categorical column, in which -1 stands for a missing value."""
    codes = tree.open(f"{key}/codes")
    storage = replace(
        codes.storage(),
        key=key,
        layout=f"codes of categories, {codes.storage().layout}",
        opened=_described(key, codes.storage()).opened,
        categorical=True,
        annotations=partial(_category_names, tree.path, f"{key}/categories"),
    )
    return Relabelled(codes, storage)


def _category_names(path: str, key: str) -> Annotations:
    from oocdata.formats.opening import tree_of  # which imports this module

    with tree_of(path) as tree:
        names = tree.open(key)
    return Annotations({"categories": tuple(all_values(names))})


def _described(key: str, member: Storage) -> Storage:
    """Return the storage of an array of a group, changed to that of the group."""
    opened = None if member.opened is None else {**member.opened, "key": key}
    return replace(
        member, key=key, chunks=None, strides=None, offset=0, dimensions=(), opened=opened
    )
