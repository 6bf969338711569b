"""Define `ArraySpec`, and functions of trees (tuples and dicts) of specs and arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.engines.dtypes import check_dtype, named_dtype
from oocdata.errors import ArgumentError, MapError, UnsupportedDtypeError
from oocdata.index import as_lengths, is_masked

Form: TypeAlias = Literal["dense", "sparse", "ragged", "padded"]


@dataclass(frozen=True, slots=True, repr=False)
class ArraySpec:
    """Shape and dtype of one array of an element.

    Attributes
    ----------
    shape : tuple of int or None
        None for a batch axis of variable length, and for the length of ragged rows.
    dtype : numpy.dtype
        Object dtype for ``bytes`` objects of variable length.
    form : {"dense", "sparse", "ragged", "padded"}
        Form in a batch: an array, a `SparseBatch`, a `RaggedBatch`, or an array whose second axis
        has another length in each batch.
    padding : str
        Value and lengths of padded rows, in words.

    Examples
    --------
    >>> frame = ArraySpec((3, 50, 50), np.dtype("f8"))
    >>> frame, frame.nbytes
    ((3, 50, 50) float64, 60000)
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]
    form: Form = "dense"
    padding: str = ""

    def __post_init__(self) -> None:
        dtype: Any = self.dtype
        if not isinstance(dtype, np.dtype):  # e.g. "float32" or np.float32
            object.__setattr__(self, "dtype", as_dtype(dtype))
        if type(self.shape) is not tuple:
            lengths = as_lengths("shape", self.shape).tolist()
            object.__setattr__(self, "shape", tuple(lengths))

    @property
    def nbytes(self) -> int:
        """Size of one dense array in bytes; None axes count as 1."""
        return prod(1 if length is None else length for length in self.shape) * self.dtype.itemsize

    @property
    def kind(self) -> str:
        """Name of the dtype; ``"bytes"`` for ``bytes`` objects."""
        return "bytes" if self.dtype.hasobject else str(self.dtype)

    def __repr__(self) -> str:
        lengths = ", ".join("None" if length is None else str(length) for length in self.shape)
        shape = f"({lengths}{',' if len(self.shape) == 1 else ''})"
        form = f", {self.form} {self.padding}".rstrip() if self.form != "dense" else ""
        return f"{shape} {self.kind}{form}"


Spec: TypeAlias = ArraySpec | tuple["Spec", ...] | dict[str, "Spec"]
"""Specs of an element's arrays: one, or a tuple or dict of them, nested to any depth."""

Batch: TypeAlias = NDArray[Any] | tuple["Batch", ...] | dict[str, "Batch"]
"""A tree of arrays with the structure of a `Spec`."""


_NODES = (tuple, dict)
_Leaf = TypeVar("_Leaf")
_Tree: TypeAlias = _Leaf | tuple["_Tree[_Leaf]", ...] | dict[str, "_Tree[_Leaf]"]


def map_tree(function: Callable[[Any], _Leaf], tree: Any) -> _Tree[_Leaf]:
    """Return a tree of tuples and dicts with a function applied to each leaf."""
    if isinstance(tree, tuple):
        return tuple([map_tree(function, part) for part in tree])
    if isinstance(tree, dict):
        return {name: map_tree(function, part) for name, part in tree.items()}
    return function(tree)


def align(tree: _Tree[_Leaf], pattern: Any) -> _Tree[_Leaf]:
    """Return a tree with dicts in the order of a pattern's; raise ValueError if they differ."""
    if not (isinstance(pattern, _NODES) or isinstance(tree, _NODES)):
        return tree
    if isinstance(pattern, tuple) and isinstance(tree, tuple):
        return tuple([align(one, other) for one, other in zip(tree, pattern, strict=True)])
    if isinstance(pattern, dict) and isinstance(tree, dict) and tree.keys() == pattern.keys():
        return {name: align(tree[name], part) for name, part in pattern.items()}
    raise ValueError("trees differ")


def leaves(tree: Any) -> Iterator[Any]:
    """Iterate over the leaves of a tree in order."""
    if isinstance(tree, _NODES):
        parts = tree.values() if isinstance(tree, dict) else tree
        return itertools.chain.from_iterable(map(leaves, parts))
    return iter((tree,))


def is_column(spec: Spec) -> bool:
    """Return whether an element is one dense value, perhaps with axes of length 1."""
    return isinstance(spec, ArraySpec) and spec.form == "dense" and {*spec.shape, 1} == {1}


def batches_of(columns: Iterator[Iterable[Any]], spec: Spec) -> list[Batch]:
    """Return the batch of each step, from the arrays of each leaf of all steps."""
    if isinstance(spec, ArraySpec):
        return list(next(columns))
    parts = spec.values() if isinstance(spec, dict) else spec
    steps = zip(*[batches_of(columns, part) for part in parts], strict=True)
    if isinstance(spec, dict):
        return [dict(zip(spec, step, strict=True)) for step in steps]
    return list(steps)


def elements_of(batch: Batch, spec: Spec, count: int) -> list[Any]:
    """Return the elements of a batch, as views of its arrays."""
    return batches_of((map(leaf.__getitem__, range(count)) for leaf in leaves(batch)), spec)


def columns_of(batches: Sequence[Batch], spec: Spec) -> Iterator[Sequence[Any]]:
    """Yield the arrays of all steps for each leaf; the inverse of `batches_of`."""
    if isinstance(spec, ArraySpec):
        yield batches
        return
    for name, part in spec.items() if isinstance(spec, dict) else enumerate(spec):
        column = [batch[name] for batch in batches]  # type: ignore[index]  # as in the spec
        yield from columns_of(column, part)


def as_spec(tree: Any) -> Spec:
    """Return the `Spec` of a tree of objects with shape and dtype (arrays, tensor specs)."""

    def leaf(value: Any) -> ArraySpec:
        if isinstance(value, ArraySpec):
            return value
        try:
            kind = getattr(value.dtype, "as_numpy_dtype", value.dtype)
            return ArraySpec(tuple(int(length) for length in value.shape), np.dtype(kind))
        except (AttributeError, TypeError) as error:
            raise ArgumentError(
                "`spec` must hold things with a shape and a dtype, in tuples and dicts; got "
                f"{value!r}. Write ooc.ArraySpec((3, 4), np.dtype('f4'))."
            ) from error

    return map_tree(leaf, tree)


def batched_spec(spec: Spec, length: int | None) -> Spec:
    """Return the spec of batches of a length, which is None if it varies."""
    return map_tree(lambda leaf: replace(leaf, shape=(length, *leaf.shape)), spec)


def as_leaf(value: Any) -> NDArray[Any]:
    """Return a function's result as an array in native byte order; text as a ``bytes`` object.

    TensorFlow ignores byte order, and would misread other arrays.
    """
    if isinstance(value, (str, bytes)):
        return np.array(value.encode() if isinstance(value, str) else bytes(value), object)
    array = np.asarray(value)
    unclear = array.dtype.hasobject and not all(type(one) is bytes for one in array.flat)
    if unclear or is_masked(value):
        raise MapError(
            "a function must make arrays of numbers, or of bytes as objects, without masked "
            f"values; one made {array.dtype}. Replace masked values: array.filled(0); text becomes "
            "bytes by .encode(); leave out None."
        )
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def spec_of(tree: Any, axes: int = 0) -> Spec:
    """Return the spec of a tree of arrays, without their first `axes` axes."""
    return map_tree(lambda array: ArraySpec(array.shape[axes:], array.dtype), tree)


def as_dtype(argument: DTypeLike) -> np.dtype[Any]:
    """Return an argument as a dtype; raise if batches can't have it."""
    dtype = named_dtype(argument)
    if dtype.kind in "SUOmM":
        raise UnsupportedDtypeError(f"`dtype` must be one of numbers; got {dtype}.")
    return check_dtype(dtype)
