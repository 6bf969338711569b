"""Groups that are one array: sparse matrices and categories as AnnData stores them.

An h5ad file or its Zarr form keeps a sparse matrix as a group of three arrays and a column of
categories as a group of two, and says so in attributes (AnnData, "on-disk format", "Sparse arrays"
and "Categorical arrays"). Here such a group is opened as one array, whichever format holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from oocdata.engines.axes import sample_axes
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.engines.sparse import SparseRows
from oocdata.engines.wrapped import Relabelled
from oocdata.errors import ArgumentError, UnknownFormatError, concerning
from oocdata.formats.dimensions import as_text

__all__ = ["Group", "is_one_array", "joined", "open_group"]

_MEMBERS = {"csr_matrix": "indptr", "categorical": "codes"}
"""An array that each kind of group has that is opened as one."""

_NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
_REFUSED = ("csc_matrix", *_NULLABLE)


@dataclass(frozen=True)
class Group:
    """A group of a file."""

    path: str
    key: str
    attributes: Mapping[str, Any]  #: as the format's library gives them
    member: Callable[[str], Source]  #: opens an array of the group by its name
    values: Callable[[str], Any]  #: returns all values of an array, text too; can be pickled


def is_one_array(attributes: Mapping[str, Any] | None) -> bool:
    """Return whether a group with these attributes is opened as one array, or refused as one.

    Examples
    --------
    >>> is_one_array({"encoding-type": "csr_matrix", "shape": [3, 4]}), is_one_array({})
    (True, False)
    """
    return attributes is not None and _encoding(attributes) in (*_MEMBERS, *_REFUSED)


def joined(
    names: Iterable[str], attributes_of: Callable[[str], Mapping[str, Any] | None]
) -> list[str]:
    """Return names of arrays, sorted; of a group that is one array, only that of the group.

    `attributes_of` is called for few groups.

    Examples
    --------
    >>> names = ["X/data", "X/indices", "X/indptr", "obs/codes"]
    >>> joined(names, lambda group: {"encoding-type": "csr_matrix"} if group == "X" else {})
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
    """Open a group that is one array; reads metadata only.

    A matrix that is stored by columns is refused, and so are numbers with a mask.
    """
    kind, key = _encoding(group.attributes), group.key
    with concerning(group.path, key):
        if kind in _NULLABLE:
            raise UnknownFormatError(
                f"`key` must name one array; this {kind} group holds values and a mask of those "
                "that are missing. Open both, and choose the rows that are there: "
                f"ooc.open(path, '{key}/values')[~np.asarray(ooc.open(path, '{key}/mask'))]."
            )
        if kind == "csc_matrix":
            raise UnknownFormatError(
                "a sparse matrix must be stored by rows (csr_matrix); this one is stored by "
                "columns (csc_matrix), so that one row lies all over it. Write it by rows once: "
                "adata.X = adata.X.tocsr()."
            )
        return _categories(group) if kind == "categorical" else _sparse(group, axis)


def _encoding(attributes: Mapping[str, Any]) -> str:
    """Return what a group is encoded as; files before AnnData 0.7 have attributes of h5sparse."""
    before = as_text(attributes.get("h5sparse_format"))
    return as_text(attributes.get("encoding-type")) or (before and f"{before}_matrix")


def _sparse(group: Group, axis: Any) -> Source:
    given = group.attributes.get("shape", group.attributes.get("h5sparse_shape"))
    shape = np.asarray(() if given is None else given)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise UnknownFormatError(
            f"a sparse matrix must have an attribute `shape` of two lengths; got {given!r}."
        )
    rows, columns = map(int, shape)
    data, indices, indptr = map(group.member, ("data", "indices", "indptr"))
    each = [source.storage() for source in (data, indices, indptr)]
    sizes = [one.stored_bytes for one in each]
    count = data.shape[0] if data.shape else 0
    share = count / max(1, rows * columns)
    storage = replace(
        _described(group, each[0]),
        layout=f"CSR, nnz {count:,} ({share:.2%}); {each[0].layout}",
        stored_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        reading=f"sparse rows into dense ones; {each[0].reading}",
        files=tuple(dict.fromkeys(file for one in each for file in one.files)),
        version="".join(one.version for one in each),
        annotations=partial(Annotations, {}, 0),
    )
    if sample_axes(axis, 2, storage)[0] != 0:
        raise ArgumentError(
            f"`axis` must be 0 for a matrix that is stored by rows; got {axis!r}. A column of it "
            f"lies all over the file. [file '{group.path}', dataset '{group.key}']"
        )
    return SparseRows(data, indices, indptr, (rows, columns), storage)


def _categories(group: Group) -> Source:
    """Return the codes of a column of categories; -1 is a missing one."""
    codes = group.member("codes")
    storage = replace(
        codes.storage(),
        key=group.key,
        layout=f"codes of categories, {codes.storage().layout}",
        opened=_described(group, codes.storage()).opened,
        annotations=partial(_named, group.values),
    )
    return Relabelled(codes, storage)


def _named(values: Callable[[str], Any]) -> Annotations:
    """Return what the codes of a column of categories mean."""
    return Annotations({"categories": tuple(values("categories"))})


def _described(group: Group, member: Storage) -> Storage:
    """Return the storage of one of its arrays, as that of the group."""
    opened = None if member.opened is None else {**member.opened, "key": group.key}
    return replace(
        member, key=group.key, chunks=None, strides=None, offset=0, dimensions=(), opened=opened
    )
