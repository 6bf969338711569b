"""tf.data: count the runs of steps → one read per run → its batches, in static shapes.

The reading function is a `tf.numpy_function`, the lean member of its family: it hands TensorFlow
the batch's own memory when that is 64-byte aligned, which a loader's batches are. TensorFlow keeps
every function it was ever given, with all it closes over, so there is one function for the process
and a loader travels as a number; the number is forgotten when its dataset goes.

A call into Python costs more than reading a small batch, so one call takes a run of steps (see
`oocdata.runs`) and TensorFlow cuts it into batches, again without a copy: a slice of a tensor that
begins at an aligned address aliases it. The runs after it are read meanwhile, as for NumPy
iteration (`oocdata.reading.ahead`), so TensorFlow needs no parallel map and no prefetch.

TensorFlow optimises the graph of a dataset anew for each pass over it, which takes as long as
dozens of batches: the fewer functions, the better. So what could be decided in the graph (has the
pass begun, is it of this loader) is decided in Python.
"""

from __future__ import annotations

import atexit
import itertools
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from oocdata.datasets.spec import ArraySpec, leaves, map_tree
from oocdata.describe import fingerprint
from oocdata.errors import ArgumentError, MissingDependencyError
from oocdata.frontends import feeds
from oocdata.frontends.batching import (
    batch_lengths,
    checked_start,
    composed_specs,
    tensor_dtype,
    tensors_of,
)
from oocdata.frontends.shutdown import calls
from oocdata.index import as_count
from oocdata.reading.ahead import Reader
from oocdata.runs import Pass, Passes

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError(
        "`to_tf` needs TensorFlow, which can't be imported here. Install it: "
        "pip install tensorflow."
    ) from error

if TYPE_CHECKING:
    from oocdata.frontends.examples import ParseExamples
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = [
    "as_it_is",
    "bounded",
    "lives_with",
    "of_passes",
    "passes",
    "stream_to_tf",
    "to_tf",
    "untuned",
    "with_cardinality",
]

atexit.register(calls.close)  # after TensorFlow was imported, so before whatever it does at exit

_PLACE = (5,)
"""Shape of an iterator's place; see `oocdata.frontends.feeds.Feed`."""

_HANDED_OUT = 2
"""Runs that TensorFlow holds besides: the one it cuts into batches, and the one in use."""

_Result = TypeVar("_Result")


def as_it_is(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Keep AutoGraph, which never forgets what it saw, from a function and all that it calls."""
    kept: Callable[..., _Result] = tf.autograph.experimental.do_not_convert(function)
    return kept


@as_it_is  # or a user's tf.function would have 120 functions of ours converted, which takes seconds
def to_tf(
    loader: Loader,
    *,
    start: tuple[int, int],
    epochs: int,
    parallel: int,
    prefetch: int,
    service: str | None = None,
    job_name: str | None = None,
) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` of a loader's batches; see `oocdata.Loader.to_tf`."""
    _, step, epochs = checked_start(loader, start, epochs)
    parallel = as_count("parallel", parallel)
    prefetch = as_count("prefetch", prefetch, at_least=0)
    if service is not None and loader.dataset.is_composed:
        raise ArgumentError(
            "`service` must be None for sparse and ragged batches, which this process reads; got "
            f"{service!r}."
        )
    if service is not None:
        from oocdata.frontends.service import to_service

        return to_service(
            loader, service, job_name, start=start, epochs=epochs, parallel=parallel,
            prefetch=prefetch,
        )  # fmt: skip
    if job_name is not None:
        raise ArgumentError(
            f"`job_name` must be None without `service`, whose jobs it names; got {job_name!r}."
        )
    length, records = epochs * len(loader), loader.in_tf
    parsing = None if records is loader else loader.dataset.fn
    begin = passes(records, start, epochs)
    more = {"steps": str(len(loader)), "steps of a pass": str(length)}
    dataset = of_passes(records, begin, more, parallel=parallel, prefetch=prefetch, parsing=parsing)
    return with_cardinality(dataset, length, always=step == 0)


def passes(loader: Loader, start: tuple[int, int], epochs: int) -> Passes:
    """Return the passes over a loader: each of so many epochs, the first cut off at `start`.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> begin = passes(ooc.open(np.arange(50)).batches(10), (3, 4), epochs=2)
    >>> [(over.first, over.length) for over in (begin(), begin(), begin())]
    [(19, 6), (25, 10), (35, 10)]
    """
    epoch, step, epochs = checked_start(loader, start, epochs)
    first = epoch * len(loader) + step

    def begin(end: int) -> Pass:
        return loader.over(*divmod(max(first, end), len(loader)), epochs)

    return Passes(begin)


@as_it_is
def stream_to_tf(stream: Stream, prefetch: int) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` of a stream's batches; see `oocdata.Stream.to_tf`."""
    begin = Passes(lambda end: stream.over(end // stream.over(0).steps))
    dataset = of_passes(stream, begin, {}, parallel=1, prefetch=prefetch)
    if stream.steps is None:
        return untuned(dataset)
    return with_cardinality(dataset, stream.steps, always=True)


def of_passes(
    loader: Loader | Stream,
    begin: Passes,
    more: dict[str, str],
    *,
    parallel: int,
    prefetch: int,
    parsing: ParseExamples | None = None,
) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` that reads, each time it is iterated over, the next pass.

    Parameters
    ----------
    loader : Loader or Stream
    begin : Passes
        Called when the first element of a pass is asked for, in any thread.
    more : dict of str
        What else a restored iterator must share, besides the loader's fingerprint.
    parallel, prefetch : int
        As in `oocdata.Loader.to_tf`.
    parsing : ParseExamples, optional
        Of the records that the loader reads, in the graph, those of a run at once: batch by batch,
        records of 1 KB in batches of 32 took 2.3 times the processor's time, of 100 KB 1.3 times.

    Returns
    -------
    tf.data.Dataset
        Of unknown cardinality.
    """
    spec = loader.spec
    text = fingerprint(loader, **more)
    parallel = as_count("parallel", parallel)
    prefetch = as_count("prefetch", prefetch, at_least=0)
    reader = Reader(loader, parallel, prefetch, _HANDED_OUT, lambda run: tensors_of(run, loader))
    number = feeds.add(feeds.Feed(loader, begin, text, reader))

    size, has_short = batch_lengths(loader)
    elements = list(leaves(loader.dataset.spec))
    parts = [[part for leaf in elements for part in composed_specs(leaf, size)]]
    if has_short:
        parts.append([part for leaf in elements for part in composed_specs(leaf, None)])
    shapes = [(None, *part.shape) for part in itertools.chain.from_iterable(parts)]
    names = tuple(tensor_dtype(part.dtype) for part in parts[0])
    composed, each = loader.dataset.is_composed, len(names)
    read = _reader(names * (2 if has_short else 1))
    feed, own = tf.constant(number, tf.int64), tf.constant(text)

    # A pass is begun by whoever asks for its first element, not by whoever makes an iterator: `fit`
    # makes two an epoch and uses one. The place of an iterator is the state of `scan`, with the
    # number of steps of a run and the loader that it belongs to: an iterator that is restored goes
    # on with its own runs, however this process would cut them, or not at all.
    @as_it_is
    def run(state: tuple[tf.Tensor, tf.Tensor], number: tf.Tensor) -> Any:
        place, *arrays = read(feed, *state, number)
        place = tf.ensure_shape(place, _PLACE)
        return (place, own), (place, number, tuple(map(tf.ensure_shape, arrays, shapes)))

    @as_it_is
    def is_run(place: tf.Tensor, number: tf.Tensor, arrays: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return number < place[3]

    @as_it_is
    def batches(place: tf.Tensor, number: tf.Tensor, arrays: tuple[tf.Tensor, ...]) -> Any:
        def cut(some: tuple[tf.Tensor, ...]) -> tf.data.Dataset:
            rest = iter(some)
            tree = some if composed else map_tree(lambda _: next(rest), spec)
            tree = tree if parsing is None else parsing.tensors(tree)
            return tf.data.Dataset.from_tensor_slices(tree)  # not `unbatch`, which copies each

        dataset = cut(arrays[:each])
        return dataset.concatenate(cut(arrays[each:])) if has_short else dataset

    unbegun = tf.constant(-1, tf.int64, _PLACE)
    dataset = tf.data.Dataset.range(feeds.BEGINNING, tf.int64.max).scan((unbegun, own), run)
    dataset = dataset.take_while(is_run)
    dataset = dataset.flat_map(batches)
    if composed:  # in a row until here: TensorFlow sorts the names of dicts
        dataset = dataset.map(as_it_is(lambda *arrays: _composed(arrays, spec)))
    options = bounded()
    options.experimental_symbolic_checkpoint = True
    dataset = dataset.with_options(options)
    lives_with(dataset, feeds.forget, number)
    return dataset


def _composed(arrays: tuple[tf.Tensor, ...], spec: Any) -> Any:
    """Return an element with sparse, ragged and padded tensors made of their parts, in a row."""
    rest = iter(arrays)

    def made(leaf: ArraySpec) -> Any:
        if leaf.form == "ragged":
            values, splits = itertools.islice(rest, 2)
            return tf.RaggedTensor.from_row_splits(values[: splits[-1]], splits, validate=False)
        if leaf.form == "padded":
            values, counts = itertools.islice(rest, 2)
            shape = tf.concat([counts, tf.constant(leaf.shape[2:], tf.int64)], 0)
            values = values[: counts[0] * counts[1]]
            return tf.ensure_shape(tf.reshape(values, shape), leaf.shape)
        if leaf.form == "dense":
            return next(rest)
        indices, values, counts = itertools.islice(rest, 3)
        length, width = leaf.shape
        rows = tf.constant(length, tf.int64) if length is not None else counts[1]
        shape = tf.stack([rows, tf.constant(width, tf.int64)])
        return tf.sparse.SparseTensor(indices[: counts[0]], values[: counts[0]], shape)

    return map_tree(made, spec)


def bounded() -> tf.data.Options:
    """Return the options of a dataset that reads only its own batches, and not many ahead."""
    options = tf.data.Options()
    # Sharding by data would read every batch in every worker and throw most away: Loader.shard does
    # it.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # TensorFlow would put a prefetch of its own at the end, which grows to hundreds of batches.
    options.experimental_optimization.inject_prefetch = False
    return options


def with_cardinality(dataset: tf.data.Dataset, length: int, *, always: bool) -> tf.data.Dataset:
    """Return a dataset whose passes are of so many steps; the first too, where `always`.

    One that begins in the middle is shorter, which TensorFlow does not allow a dataset of known
    cardinality; then it is told to `fit`, which asks the object, and not to what is derived of it.
    """
    if always:
        return untuned(dataset.apply(tf.data.experimental.assert_cardinality(length)))
    dataset = untuned(dataset)
    dataset.cardinality = lambda: tf.constant(length, tf.int64)
    return dataset


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset whose own iterators are not autotuned; datasets made from it are, as ever.

    There is nothing to tune: no buffer, no parallel call. And TensorFlow (2.21) may fail to wake
    its tuner when an iterator is deleted. Then the thread that deletes it waits, holding the GIL,
    until the tuner would have woken: for up to as long as the pass took, at most a minute. It
    happened after every third to sixth pass of 0.5 to 5 s, which so took 1.2 to 1.4 times as long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    made = dataset.with_options(tf.data.Options())
    kind: Any = type(made)
    made.__class__, made.untuned = _with_own_iterators(kind), dataset.with_options(options)
    return made


@lru_cache
def _with_own_iterators(kind: Any) -> Any:
    """Return a class of datasets which iterate over what they have as `untuned`."""
    return type(kind.__name__, (kind,), {"__iter__": lambda self: iter(self.untuned)})


def lives_with(dataset: tf.data.Dataset, forget: Callable[[int], object], number: int) -> None:
    """Forget a number once the dataset is gone, or the function that it is made in.

    Inside a ``tf.function`` the dataset is a name for a node of the graph, gone once it is traced.
    """
    owner: Any = dataset
    if not tf.executing_eagerly():
        owner = tf.compat.v1.get_default_graph()
        while getattr(owner.outer_graph, "building_function", False):
            owner = owner.outer_graph
    weakref.finalize(owner, forget, number).atexit = False


@lru_cache(maxsize=64)
def _reader(dtypes: tuple[str, ...]) -> Any:
    """Return the graph function that reads a run into arrays of these dtypes.

    One for each combination of dtypes: TensorFlow never forgets a function.
    """
    outputs = [tf.int64, *(tf.as_dtype(dtype) for dtype in dtypes)]
    scalar = tf.TensorSpec((), tf.int64)
    signature = [scalar, tf.TensorSpec(_PLACE, tf.int64), tf.TensorSpec((), tf.string), scalar]

    @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]
    def read(feed: tf.Tensor, place: tf.Tensor, saved: tf.Tensor, number: tf.Tensor) -> Any:
        inputs = [feed, place, saved, number]
        return tf.numpy_function(feeds.read, inputs, outputs, stateful=False)

    return read
