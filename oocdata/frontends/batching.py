"""Convert the batches of a run of steps to arrays that TensorFlow takes without a copy."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.multi_array import MultiArrayBatch, aligned_length
from oocdata.datasets.spec import ArraySpec, Batch, columns_of, leaves
from oocdata.engines.buffers import empty, side_by_side
from oocdata.errors import ArgumentError, PositionError
from oocdata.index import as_count

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream


def tensor_dtype(dtype: np.dtype[Any]) -> str:
    """Return TensorFlow's name of a dtype."""
    return "string" if dtype.kind in "SUO" else dtype.name


def checked_start(loader: Loader, start: tuple[int, int], epochs: int) -> tuple[int, int, int]:
    """Check `start` and `epochs`; return epoch, step and epochs as Python integers."""
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


def stack_batches(batches: Sequence[Batch], loader: Loader | Stream) -> list[NDArray[Any]]:
    """Return the batches of a run, all of one length, as arrays with an axis of steps in front.

    Each leaf is an array of shape (steps, batch, …); sparse, ragged and padded leaves are several
    arrays each, see `composed_arrays`.
    """
    size, spec = loader.batch_size // loader.num_shards, loader.dataset.spec
    return without_aliases(
        array
        for column, leaf in zip(columns_of(batches, spec), leaves(spec), strict=True)
        for array in _leaf_arrays(column, size, leaf)
    )


def without_aliases(arrays: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the arrays, copying each that shares memory with an earlier one.

    A mapped function may return one array twice, as ``lambda x: (x, x)`` does. But TensorFlow
    computes in place in the memory of a tensor with a single reference.
    """
    distinct: list[NDArray[Any]] = []
    for array in arrays:
        if any(np.may_share_memory(array, other) for other in distinct):
            copy = empty(array.shape, array.dtype)
            np.copyto(copy, array)
            array = copy
        distinct.append(array)
    return distinct


def _leaf_arrays(batches: Sequence[Any], size: int, spec: ArraySpec) -> list[NDArray[Any]]:
    dense = spec.form == "dense"
    arrays = [_stack(batches, size, spec)] if dense else composed_arrays(batches, size, spec)
    # Strings of TensorFlow are bytes.
    return [np.char.encode(each, "utf-8") if each.dtype.kind == "U" else each for each in arrays]


def composed_specs(spec: ArraySpec, length: int | None) -> list[ArraySpec]:
    """Return the specs of the arrays that represent a leaf of a batch of `length` elements."""
    int64 = np.dtype(np.int64)
    if spec.form == "sparse":
        return [ArraySpec((None, 2), int64), ArraySpec((None,), spec.dtype), ArraySpec((2,), int64)]
    if spec.form == "ragged":
        splits = ArraySpec((None if length is None else length + 1,), int64)
        return [ArraySpec((None, *spec.shape[1:]), spec.dtype), splits]
    if spec.form == "padded":
        return [ArraySpec((None, *spec.shape[1:]), spec.dtype), ArraySpec((2,), int64)]
    return [ArraySpec((length, *spec.shape), spec.dtype)]


def composed_arrays(
    batches: Sequence[MultiArrayBatch], size: int, spec: ArraySpec
) -> list[NDArray[Any]]:
    """Return sparse, ragged or padded batches as arrays with an axis of steps in front.

    The arrays are those of `composed_specs`: arrays of varying length, shape (steps, longest, …),
    and one of fixed length.
    """
    *long_specs, fixed_spec = composed_specs(spec, size)
    parts = [_parts(batch) for batch in batches]
    arrays = [
        _stack_unequal(
            [long[at] for long, _ in parts], replace(long_spec, shape=long_spec.shape[1:])
        )
        for at, long_spec in enumerate(long_specs)
    ]
    shape = parts[0][1].shape if parts else fixed_spec.shape
    fixed_arrays = empty((len(batches), *shape), np.int64)
    for at, (_, fixed) in enumerate(parts):
        fixed_arrays[at] = fixed
    return [*arrays, fixed_arrays]


def _parts(
    batch: MultiArrayBatch | NDArray[Any],
) -> tuple[tuple[NDArray[Any], ...], Ints]:
    """Return a batch's arrays of varying length, and its array of fixed length.

    For a padded array, the latter holds its first two lengths.
    """
    if isinstance(batch, MultiArrayBatch):
        return batch.arrays
    return (batch.reshape(-1, *batch.shape[2:]),), np.array(batch.shape[:2])


def _stack_unequal(arrays: Sequence[NDArray[Any]], spec: ArraySpec) -> NDArray[Any]:
    """Stack arrays of different lengths; no copy if each begins a buffer of equal size.

    A copy took up to 1.29 times the processor's time (batches of 128 sparse rows of 1,000 numbers).
    """
    whole = [array.base for array in arrays if isinstance(array.base, np.ndarray)]
    text = spec.dtype.kind == "U"  # is encoded, with what follows the rows
    if (
        len(whole) == len(arrays) > 0
        and not text
        and all(
            base.dtype == array.dtype
            and base.shape == whole[0].shape
            and base.shape[1:] == spec.shape
            and base.ctypes.data == array.ctypes.data
            for base, array in zip(whole, arrays, strict=True)
        )
    ):
        return _stack(whole, len(whole[0]), spec)
    longest = max(map(len, arrays), default=0)
    # `aligned_length` rounds the length up so that each step begins at an aligned address.
    copy = empty((len(arrays), aligned_length(longest), *spec.shape), spec.dtype)  # type: ignore[arg-type]
    if spec.dtype.hasobject or text:
        copy.fill("" if text else b"")  # TensorFlow takes no None
    for step, array in enumerate(arrays):
        copy[step, : len(array)] = array
    return copy


def _stack(arrays: Sequence[NDArray[Any]], size: int, spec: ArraySpec) -> NDArray[Any]:
    """Stack arrays of one shape; no copy if they are adjacent in memory.

    The result is aligned, of native byte order and has no other owner, so TensorFlow may alias it:
    pairs of rows of 60 KB then take 1 / 1.5 of the processor's time. Without arrays, the result has
    shape (0, size, …).
    """
    if not arrays:
        return np.empty((0, size, *spec.shape), spec.dtype)  # type: ignore[arg-type]
    first = arrays[0]
    if first.dtype == spec.dtype and first.dtype.isnative:
        together = side_by_side(arrays)
        if together is not None:
            return together
    # Results of mapped functions, or small batches with padding between them. NumPy copies without
    # the GIL; TensorFlow would hold it.
    copy = empty((len(arrays), *first.shape), spec.dtype)
    for step, array in enumerate(arrays):
        np.copyto(copy[step], array)
    return copy
