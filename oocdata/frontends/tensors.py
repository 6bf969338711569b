"""Make TensorFlow's sparse, ragged and padded batches of the arrays of a run of steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from oocdata.datasets.spec import ArraySpec, align, leaves, map_tree
from oocdata.errors import needed
from oocdata.frontends.batching import most_separate, separate_specs, tensor_dtype

with needed("`to_tf` needs TensorFlow", "tensorflow"):
    import tensorflow as tf

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream


def taken_specs(loader: Loader | Stream) -> list[tf.TensorSpec]:
    """Return the specs of the tensors that `stack_batches` makes."""
    taken: list[tf.TensorSpec] = []
    most = most_separate(loader)
    for leaf in leaves(loader.spec):
        if leaf.form in ("dense", "padded"):
            each = tf.nest.flatten(held_spec(leaf))
            taken += [tf.TensorSpec((None, *one.shape), one.dtype) for one in each]
            continue
        *long, fixed = separate_specs(leaf)
        for part in long:
            taken += [tf.TensorSpec(part.shape, tensor_dtype(part.dtype))] * most
        taken.append(tf.TensorSpec((most, *fixed.shape), tf.int64))
    return [*taken, tf.TensorSpec((1,), tf.int64)] if most else taken


def held_spec(leaf: ArraySpec) -> Any:
    """Return TensorFlow's spec of a leaf of a batch; values and lengths of one to be `unpacked`."""
    dtype = tensor_dtype(leaf.dtype)
    if leaf.form == "sparse":
        return tf.SparseTensorSpec(leaf.shape, dtype)
    if leaf.form == "ragged":
        return tf.RaggedTensorSpec(leaf.shape, dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    if leaf.form == "padded":
        values = tf.TensorSpec((None, *leaf.shape[2:]), dtype)
        return values, tf.TensorSpec((2,), tf.int64)
    return tf.TensorSpec(leaf.shape, dtype)


def slices(tensors: Iterable[Any], spec: Any) -> tf.data.Dataset:
    """Return the dataset of the batches of a run, from tensors with an axis of steps in front."""
    rest = iter(tensors)
    held = map_tree(held_spec, spec)
    return tf.data.Dataset.from_tensor_slices(map_tree(lambda _: next(rest), held))


def stacked_tensors(arrays: Sequence[tf.Tensor], spec: Any, most: int) -> Iterator[tf.Tensor]:
    """Yield tensors with an axis of steps in front, from the arrays of `stack_batches`.

    Those of sparse and ragged leaves are variants, as TensorFlow's datasets have them. Not slices
    of one tensor of all batches: TensorFlow copies those that don't end at an aligned address.
    Sparse batches of 5 MB take 1 / 1.2 of the processor's time, ragged ones of 0.5 MB 1 / 1.3;
    padded ones of 64 KB would take 1.2 times as much.
    """
    rest = iter(arrays)
    for leaf in leaves(spec):
        if leaf.form in ("dense", "padded"):
            yield from itertools.islice(rest, len(tf.nest.flatten(held_spec(leaf))))
            continue
        long = [list(itertools.islice(rest, most)) for _ in separate_specs(leaf)[:-1]]
        fixed = tf.unstack(next(rest))
        variants = itertools.starmap(partial(_variant, leaf), zip(*long, fixed, strict=True))
        yield tf.stack(list(variants))[: arrays[-1][0]]


def _variant(leaf: ArraySpec, *parts: tf.Tensor) -> tf.Tensor:
    """Return a leaf of a batch as a variant, without a copy."""
    if leaf.form == "sparse":
        return tf.io.serialize_sparse(tf.sparse.SparseTensor(*parts), tf.variant)
    values, splits = parts
    return tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[splits], rt_dense_values=values, batched_input=False
    )


def unpacked(spec: Any, *held: Any) -> Any:
    """Return an element whose padded leaves have the shape of their batch."""
    pattern: Any = map_tree(held_spec, spec)
    tree: Any = held if isinstance(pattern, tuple) else held[0]
    rest = iter(leaves(align(tree, pattern)))  # TensorFlow sorts the keys of dicts

    def tensor(leaf: ArraySpec) -> Any:
        if leaf.form != "padded":
            return next(rest)
        values, lengths = itertools.islice(rest, 2)
        shape = tf.concat([lengths, tf.constant(leaf.shape[2:], tf.int64)], 0)
        values = values[: lengths[0] * lengths[1]]
        return tf.ensure_shape(tf.reshape(values, shape), leaf.shape)

    return map_tree(tensor, spec)
