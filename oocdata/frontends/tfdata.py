"""tf.data: ``range`` over runs of steps → one read per run → its batches, in static shapes.

The reading function is a `tf.numpy_function`, the lean member of its family: it hands TensorFlow
the batch's own memory when that is 64-byte aligned, which a loader's batches are. TensorFlow keeps
every function it was ever given, with all it closes over, so there is one function for the process
and a loader travels as a number; the number is forgotten when its dataset goes.

A call into Python costs more than reading a small batch, so one call reads a run of steps (see
`oocdata.runs`) and TensorFlow cuts it into batches, again without a copy: a slice of a tensor that
begins at an aligned address aliases it.
"""

from __future__ import annotations

import atexit
import itertools
import operator
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import leaves, map_tree
from oocdata.errors import (
    ArgumentError,
    DatasetGoneError,
    MissingDependencyError,
    PositionError,
)
from oocdata.frontends.gate import gate
from oocdata.frontends.originals import forget_originals, install, keep_original
from oocdata.index import as_count
from oocdata.runs import Pass
from oocdata.sources.buffers import empty, is_leased

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError(
        "`to_tf` needs TensorFlow, which can't be imported here. Install it: "
        "pip install tensorflow."
    ) from error

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["to_tf"]

atexit.register(gate.close)  # after TensorFlow was imported, so before whatever it does at exit


@dataclass(slots=True)
class _Feed:
    """What one dataset reads: a loader, and its first pass."""

    loader: Loader
    first: Pass
    passes: Iterator[int] = field(default_factory=itertools.count)

    def begin(self) -> int:
        """Begin the next pass; return where, in steps counted through all epochs."""
        return self.first.first + next(self.passes) * self.first.length

    def read(self, begun: int, number: int) -> list[NDArray[Any]]:
        """Read a run of a pass.

        Returns
        -------
        list of ndarray
            The full batches of each array of an element, shape (steps, batch, …); and where the
            loader has a short one, that one of each, shape (0 or 1, its length, …).
        """
        run = replace(self.first, first=begun).run(number)
        if run.start < run.stop:
            arrays = [_handed_over(array) for array in leaves(self.loader.run(run))]
        else:  # where a pass begins within an epoch, it may have fewer runs than another
            specs = leaves(self.loader.spec)
            arrays = [np.empty((0, *spec.shape[1:]), spec.dtype) for spec in specs]
        size, has_short = _batch_lengths(self.loader)
        full, rest = divmod(len(arrays[0]), size)
        parts = [array[: full * size].reshape(full, size, *array.shape[1:]) for array in arrays]
        if has_short:
            short = (min(rest, 1), rest)
            parts += [array[full * size :].reshape(*short, *array.shape[1:]) for array in arrays]
        return parts


_feeds: dict[int, _Feed] = {}
_numbers = itertools.count()


def to_tf(
    loader: Loader, *, start: tuple[int, int], epochs: int, parallel: int, prefetch: int
) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` of a loader's batches; see `oocdata.Loader.to_tf`."""
    first = _first_pass(loader, start, as_count("epochs", epochs))
    parallel = as_count("parallel", parallel)
    prefetch = as_count("prefetch", prefetch, at_least=0)
    install()
    spec = loader.spec
    number = next(_numbers)
    _feeds[number] = _Feed(loader, first)

    size, has_short = _batch_lengths(loader)
    shapes = [
        (None, length, *leaf.shape[1:])
        for length in ((size, None) if has_short else (size,))
        for leaf in leaves(spec)
    ]
    names = tuple(leaf.dtype.name for leaf in leaves(spec))
    read = _reader(names * (2 if has_short else 1))
    feed = tf.constant(number, tf.int64)

    # Nothing here is for AutoGraph, which keeps what it has looked at.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def run(begun: tf.Tensor, number: tf.Tensor) -> Any:
        return tuple(map(tf.ensure_shape, read(feed, begun, number), shapes))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def batches(*arrays: tf.Tensor) -> tf.data.Dataset:
        rest = iter(arrays)
        # Not `unbatch`, which copies every batch.
        slices = tf.data.Dataset.from_tensor_slices
        dataset = slices(map_tree(lambda _: next(rest), spec))
        if has_short:
            dataset = dataset.concatenate(slices(map_tree(lambda _: next(rest), spec)))
        return dataset

    # A pass is begun by whoever asks for its first element, not by whoever makes an iterator: `fit`
    # makes two an epoch and uses one. Which pass it is stays in the iterator, as the state of
    # `scan`.
    begun = _beginner()

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def place(base: tf.Tensor, number: tf.Tensor) -> Any:
        return begun(feed, base, number)

    dataset = tf.data.Dataset.range(first.most_runs).scan(tf.constant(-1, tf.int64), place)
    dataset = dataset.map(run, num_parallel_calls=parallel, deterministic=True)
    ready = prefetch // first.together  # in whole runs; others lie ready among those being read
    dataset = dataset.prefetch(ready) if ready else dataset
    dataset = dataset.flat_map(batches)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(first.length))
    options = tf.data.Options()
    # Sharding by data would read every batch in every worker and throw most away: Loader.shard does
    # it.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_symbolic_checkpoint = True
    # Both numbers above are given; now and then it would turn the parallel reading down to one.
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    weakref.finalize(_owner(dataset), _forget, number).atexit = False
    return dataset


def _owner(dataset: tf.data.Dataset) -> Any:
    """Return what must live for a dataset to be read: itself, or the function it is made in.

    Inside a ``tf.function`` the dataset is a name for a node of the graph, gone once it is traced.
    """
    if tf.executing_eagerly():
        return dataset
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph.outer_graph, "building_function", False):
        graph = graph.outer_graph
    return graph


def _forget(number: int) -> None:
    _feeds.pop(number, None)
    forget_originals(number)


def _first_pass(loader: Loader, start: tuple[int, int], epochs: int) -> Pass:
    try:
        epoch, step = (operator.index(part) for part in start)
    except (TypeError, ValueError):
        raise ArgumentError(f"`start` must be a pair (epoch, step); got {start!r}.") from None
    steps = len(loader)
    if epoch < 0 or not 0 <= step < steps:
        raise PositionError(
            f"`start` must be an epoch from 0 and a step within [0, {steps}); got {start!r}."
        )
    return Pass(epoch * steps + step, epochs * steps - step, steps, loader.steps_together)


def _batch_lengths(loader: Loader) -> tuple[int, bool]:
    """Return the elements of a full batch, and whether there is a short one too."""
    size = loader.batch_size // loader.num_shards
    return size, next(leaves(loader.spec)).shape[0] is None


@lru_cache(maxsize=1)
def _beginner() -> Any:
    """Return the function that says where a run's pass began, and begins it at need."""
    signature = [tf.TensorSpec((), tf.int64)] * 3

    @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]
    def begun(feed: tf.Tensor, base: tf.Tensor, number: tf.Tensor) -> Any:
        def begin() -> tf.Tensor:
            # `number` is passed so that no graph optimiser can take the call for a constant.
            first = tf.numpy_function(_begin, [feed, number], tf.int64, stateful=False)
            return tf.ensure_shape(first, ())

        base = tf.cond(base < 0, begin, lambda: base)
        return base, (base, number)

    return begun


@lru_cache(maxsize=64)
def _reader(dtypes: tuple[str, ...]) -> Any:
    """Return the graph function that reads a run into arrays of these dtypes.

    One for each combination of dtypes: TensorFlow never forgets a function.
    """
    outputs = [tf.as_dtype(dtype) for dtype in dtypes]

    signature = [tf.TensorSpec((), tf.int64)] * 3

    @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]
    def read(feed: tf.Tensor, begun: tf.Tensor, number: tf.Tensor) -> Any:
        return tf.numpy_function(_read, [feed, begun, number], outputs, stateful=False)

    return read


def _feed(number: Any) -> _Feed:
    try:
        return _feeds[int(number)]
    except KeyError:
        gone = DatasetGoneError(
            "an iterator must not outlive the dataset that `to_tf` returned. "
            "Keep a reference to it."
        )
        keep_original(gone, int(number))
        raise gone from None


def _begin(feed: Any, number: Any) -> Any:
    """Begin the next pass of a feed: called by TensorFlow once for each pass."""
    with gate:
        return np.int64(_feed(feed).begin())


def _read(feed: Any, begun: Any, number: Any) -> list[NDArray[Any]]:
    """Read a run of steps: called by TensorFlow, in its own threads."""
    # A list, always: TensorFlow leaks a bare array without axes.
    with gate:
        try:
            return _feed(feed).read(int(begun), int(number))
        except StopIteration as error:
            # As it is, it would end the dataset in silence; a generator does the same (PEP 479).
            wrapped = RuntimeError(f"reading a batch raised StopIteration: {error}")
            wrapped.__cause__ = error
            keep_original(wrapped, int(feed))
            raise wrapped from error
        except BaseException as error:
            keep_original(error, int(feed))
            raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _handed_over(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that TensorFlow may alias: aligned, native, and nobody else's to change."""
    if is_leased(array) and array.flags.c_contiguous and array.dtype.isnative:
        return array
    # What a mapped function made: copied here without the GIL, where TensorFlow would copy with it.
    copy = empty(array.shape, array.dtype.newbyteorder("="))
    np.copyto(copy, array)
    return copy
