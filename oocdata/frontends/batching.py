"""How the batches of a run of steps become tensors that TensorFlow takes without a copy."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.composed import Composed, room_for
from oocdata.datasets.spec import ArraySpec, Batch, columns_of, leaves
from oocdata.engines.buffers import empty, side_by_side
from oocdata.errors import ArgumentError, PositionError
from oocdata.index import as_count

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = [
    "apart", "batch_lengths", "checked_start", "composed_arrays", "composed_specs",
    "tensor_dtype", "tensors_of",
]  # fmt: skip


def tensor_dtype(dtype: np.dtype[Any]) -> str:
    """Return the name by which TensorFlow knows a dtype.

    Examples
    --------
    >>> tensor_dtype(np.dtype("f4")), tensor_dtype(np.dtype("S8"))
    ('float32', 'string')
    """
    return "string" if dtype.kind in "SUO" else dtype.name


def checked_start(loader: Loader, start: tuple[int, int], epochs: int) -> tuple[int, int, int]:
    """Return epoch and step of `start`, and `epochs`, as Python numbers, or raise."""
    epochs = as_count("epochs", epochs)
    try:
        epoch, step = (operator.index(part) for part in start)
    except (TypeError, ValueError):
        raise ArgumentError(f"`start` must be a pair (epoch, step); got {start!r}.") from None
    if epoch < 0 or not 0 <= step < len(loader):
        raise PositionError(
            f"`start` must be an epoch from 0 and a step within [0, {len(loader)}); got {start!r}."
        )
    return epoch, step, epochs


def batch_lengths(loader: Loader | Stream) -> tuple[int, bool]:
    """Return the elements of a full batch, and whether there is a short one too."""
    size = loader.batch_size // loader.num_shards
    return size, next(leaves(loader.spec)).shape[0] is None


def tensors_of(batches: Sequence[Batch], loader: Loader | Stream) -> list[NDArray[Any]]:
    """Return the batches of a run of steps as arrays with the steps in front.

    The full batches of each leaf, shape (steps, batch, …); and where the loader has a short batch,
    that one of each leaf, shape (0 or 1, its length, …). Leaves that are several arrays come as
    such, see `composed_arrays`.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.arange(10)).batches(4)
    >>> [part.tolist() for part in tensors_of([np.arange(4), np.arange(4, 6)], loader)]
    [[[0, 1, 2, 3]], [[4, 5]]]
    """
    size, has_short = batch_lengths(loader)
    spec = loader.dataset.spec
    columns = list(columns_of(batches, spec))
    full = len(batches) - bool(has_short and batches and len(columns[0][-1]) < size)
    parts = (slice(full), slice(full, None)) if has_short else (slice(None),)
    return apart(
        array
        for part in parts
        for column, leaf in zip(columns, leaves(spec), strict=True)
        for array in _arrays(column[part], size, leaf)
    )


def apart(arrays: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return arrays of which no two share memory, as those of ``map(lambda x: (x, x))`` do.

    TensorFlow computes in place in the memory of a tensor that nobody else refers to, and can't
    know of a second one.

    Examples
    --------
    >>> x = np.arange(3)
    >>> first, second, third = apart([x, x, np.ones(2)])
    >>> first is x, np.shares_memory(first, second)
    (True, False)
    """
    found: list[NDArray[Any]] = []
    for array in arrays:
        if any(np.may_share_memory(array, other) for other in found):
            whole = empty(array.shape, array.dtype)
            np.copyto(whole, array)
            array = whole
        found.append(array)
    return found


def _arrays(batches: Sequence[Any], size: int, spec: ArraySpec) -> list[NDArray[Any]]:
    if spec.form != "dense":
        return composed_arrays(batches, size, spec)
    array = _stacked(batches, size, spec)
    # Text as bytes, which is what TensorFlow's strings are.
    return [np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array]


def composed_specs(spec: ArraySpec, length: int | None) -> list[ArraySpec]:
    """Return the arrays that a leaf of a batch of so many elements is.

    Examples
    --------
    >>> rows = ArraySpec((None, 3), np.dtype("f4"), "ragged")
    >>> [str(one) for one in composed_specs(rows, 32)]
    ['(None, 3) float32', '(33,) int64']
    """
    whole = np.dtype(np.int64)
    if spec.form == "sparse":
        return [ArraySpec((None, 2), whole), ArraySpec((None,), spec.dtype), ArraySpec((2,), whole)]
    if spec.form == "ragged":
        splits = ArraySpec((None if length is None else length + 1,), whole)
        return [ArraySpec((None, *spec.shape[1:]), spec.dtype), splits]
    if spec.form == "padded":
        return [ArraySpec((None, *spec.shape[1:]), spec.dtype), ArraySpec((2,), whole)]
    return [ArraySpec((length, *spec.shape), spec.dtype)]


def composed_arrays(batches: Sequence[Composed], size: int, spec: ArraySpec) -> list[NDArray[Any]]:
    """Return batches that are several arrays as arrays with the steps in front.

    Those of `composed_specs`: the long ones, shape (steps, most, …), and the fixed one.

    Examples
    --------
    >>> from oocdata.datasets.sparse import SparseBatch
    >>> batch = SparseBatch(np.array([[0, 2], [1, 0]]), np.array([5, 7]), (2, 3))
    >>> spec = ArraySpec((3,), np.dtype("i8"), "sparse")
    >>> indices, values, counts = composed_arrays([batch], 2, spec)
    >>> values[0, :2].tolist(), counts.tolist()
    ([5, 7], [[2, 2]])
    """
    *several, fixed = composed_specs(spec, size)
    each = [_parts(batch) for batch in batches]
    arrays = [
        _with_room([long[place] for long, _ in each], replace(one, shape=one.shape[1:]))
        for place, one in enumerate(several)
    ]
    lengths = each[0][1].shape if each else fixed.shape
    together = empty((len(batches), *lengths), np.int64)
    for place, (_, one) in enumerate(each):
        together[place] = one
    return [*arrays, together]


def _parts(batch: Composed | NDArray[Any]) -> tuple[tuple[NDArray[Any], ...], NDArray[np.int64]]:
    """Return the long arrays of a batch, and the fixed one; of a padded array, how it is cut."""
    if isinstance(batch, Composed):
        return batch.long, batch.fixed
    return (batch.reshape(-1, *batch.shape[2:]),), np.array(batch.shape[:2])


def _with_room(arrays: Sequence[NDArray[Any]], spec: ArraySpec) -> NDArray[Any]:
    """Return arrays of unlike lengths as one: no copy where each begins memory of one length."""
    rooms = [array.base for array in arrays if isinstance(array.base, np.ndarray)]
    if len(rooms) == len(arrays) > 0 and all(
        room.dtype == array.dtype
        and room.shape == rooms[0].shape
        and room.shape[1:] == spec.shape
        and room.ctypes.data == array.ctypes.data
        for room, array in zip(rooms, arrays, strict=True)
    ):
        return _stacked(rooms, len(rooms[0]), spec)
    most = max(map(len, arrays), default=0)
    # Each step's begin at an aligned address.
    copy = empty((len(arrays), room_for(most), *spec.shape), spec.dtype)  # type: ignore[arg-type]
    for place, array in enumerate(arrays):
        copy[place, : len(array)] = array
    return copy


def _stacked(arrays: Sequence[NDArray[Any]], size: int, spec: ArraySpec) -> NDArray[Any]:
    """Return arrays of one shape as one, where they lie so: no copy.

    It is aligned, native, and nobody else's to change, so that TensorFlow may alias it: pairs of
    rows of 60 KB take 1 / 1.5 of the processor's time so. Of no arrays, each would be of `size`
    elements.
    """
    if not arrays:
        return np.empty((0, size, *spec.shape), spec.dtype)  # type: ignore[arg-type]
    first = arrays[0]
    if first.dtype == spec.dtype and first.dtype.isnative:
        together = side_by_side(arrays)
        if together is not None:
            return together
    # What a mapped function made, or small batches with padding between them: copied here without
    # the GIL, where TensorFlow would copy with it.
    copy = empty((len(arrays), *first.shape), spec.dtype)
    for place, array in enumerate(arrays):
        np.copyto(copy[place], array)
    return copy
