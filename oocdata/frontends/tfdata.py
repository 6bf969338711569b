"""Make a ``tf.data.Dataset`` that reads one run of steps at a time and divides it into batches.

A `tf.numpy_function` passes on the memory of an array without a copy if the array is 64-byte
aligned, as a loader's batches are. TensorFlow never frees a Python function, nor what it closes
over. So the whole process has one, which identifies a loader by a number.

A call into Python costs more than reading a small batch. So one call reads a run of steps (see
`oocdata.runs`), and TensorFlow divides it into batches, without a copy. The following runs are read
meanwhile (`oocdata.reading.ahead`), so the pipeline needs no parallel map and no prefetch.

TensorFlow prepares the functions of a dataset again for each pass, which takes as long as dozens of
batches. So decisions that could be made in the graph are made in Python, and there are two
functions, made for `tf.raw_ops` by `_graph_function`.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from oocdata.datasets.spec import leaves, map_tree
from oocdata.describe import fingerprint
from oocdata.errors import ArgumentError, needed
from oocdata.frontends import feeds
from oocdata.frontends.batching import checked_start, most_separate, stack_batches
from oocdata.frontends.shutdown import calls
from oocdata.frontends.tensors import held_spec, slices, stacked_tensors, taken_specs, unpacked
from oocdata.index import as_count
from oocdata.reading.ahead import Reader
from oocdata.runs import Pass, Passes

with needed("`to_tf` needs TensorFlow", "tensorflow"):
    import tensorflow as tf

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

atexit.register(calls.close)  # after importing TensorFlow, so that it runs before its exit hooks

_POSITION_SHAPE = (4,)
"""Shape of the array that holds an iterator's position; see `oocdata.frontends.feeds.Feed`."""

_HANDED_OUT = 2
"""Runs that TensorFlow holds: one that it divides into batches, and one in use."""

_Result = TypeVar("_Result")


def without_autograph(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Exclude a function from AutoGraph, which never frees what it converts.

    Also what it calls, and the functions that it gives to datasets.
    """
    wrapped: Callable[..., _Result] = tf.autograph.experimental.do_not_convert(function)
    return wrapped


@without_autograph  # else a user's tf.function converts 120 functions here, for seconds
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
    _, _, epochs = checked_start(loader, start, epochs)
    parallel = as_count("parallel", parallel)
    prefetch = as_count("prefetch", prefetch, at_least=0)
    if service is not None and loader.dataset.is_multi_array:
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
    length, records = epochs * len(loader), loader.tf_loader
    begin = passes(records, start, epochs)
    extra = {"steps": str(len(loader)), "steps of a pass": str(length)}
    dataset = dataset_of_passes(
        records, begin, extra, parallel=parallel, prefetch=prefetch,
        parsed=None if records is loader else loader,
    )  # fmt: skip
    return with_cardinality(dataset, length)


def passes(loader: Loader, start: tuple[int, int], epochs: int) -> Passes:
    """Return the passes over a loader, of `epochs` epochs each; the first one begins at `start`."""
    epoch, step, epochs = checked_start(loader, start, epochs)
    first = epoch * len(loader) + step

    def begin(end: int) -> Pass:
        return loader.pass_from(*divmod(max(first, end), len(loader)), epochs)

    return Passes(begin)


@without_autograph
def stream_to_tf(stream: Stream, prefetch: int) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` of a stream's batches; see `oocdata.Stream.to_tf`."""
    prefetch = as_count("prefetch", prefetch, at_least=0)
    begin = Passes(lambda end: stream.pass_from(end // stream.pass_from(0).steps))
    dataset = dataset_of_passes(stream, begin, {}, parallel=1, prefetch=prefetch)
    if stream.steps is not None:
        # Not `with_cardinality`: only a read after the last batch finds that there are more.
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(stream.steps))
    return without_autotuning(dataset)


def dataset_of_passes(
    loader: Loader | Stream,
    begin: Passes,
    extra: dict[str, str],
    *,
    parallel: int,
    prefetch: int,
    parsed: Loader | None = None,
) -> tf.data.Dataset:
    """Return a dataset, of unknown cardinality, each of whose iterations reads the next pass.

    `begin` is called when the first element of a pass is requested, in any thread. `extra` has
    values, besides the loader's fingerprint, that must be equal when an iterator is restored. The
    loader `parsed`, of the same records, parses a run at a time in the graph (batch by batch,
    records of 1 KB in batches of 32 took 2.3 times the processor's time).
    """
    text = fingerprint(loader, **extra)
    reader = Reader(loader, parallel, prefetch, _HANDED_OUT, lambda run: stack_batches(run, loader))
    number = feeds.add(feeds.Feed(begin, text, reader))

    delivered: Any = loader if parsed is None else parsed
    spec, taken = delivered.spec, taken_specs(loader)
    held: Any = map_tree(held_spec, spec)

    def batches(*arrays: tf.Tensor) -> tf.Tensor:
        arrays = tuple(map(tf.ensure_shape, arrays, [each.shape for each in taken]))
        if parsed is None:
            tensors = stacked_tensors(arrays, spec, most_separate(loader))
        else:
            tensors = delivered.dataset.fn.tensors(*arrays)
        # Not `unbatch`, which copies each batch.
        return tf.data.experimental.to_variant(slices(tensors, spec))

    # A pass begins when its first element is requested, not when an iterator is made: `fit` makes
    # two iterators an epoch and uses one. The state of a scan is the iterator's position, which
    # includes the length of runs, and the fingerprint of its loader: so a restored iterator
    # continues with the same runs, whatever their length here, or raises.
    not_begun = tf.constant(-1, tf.int64, _POSITION_SHAPE)
    feed, own_fingerprint = tf.constant(number, tf.int64), tf.constant(text)
    numbers = tf.data.Dataset.range(feeds.BEGINNING, tf.int64.max)
    runs = tf.raw_ops.ScanDataset(
        input_dataset=tf.data.experimental.to_variant(numbers),
        initial_state=[not_begun, own_fingerprint],
        other_arguments=[feed, own_fingerprint],
        f=_read_function(tuple(each.dtype for each in taken)),
        output_types=[each.dtype for each in taken],
        output_shapes=[each.shape for each in taken],
        preserve_cardinality=False,  # so that StopIteration ends it
    )
    # TensorFlow's datasets hold sparse and ragged tensors as variants.
    flat = [
        each if isinstance(each, tf.TensorSpec) else tf.TensorSpec(None, tf.variant)
        for each in tf.nest.flatten(held)
    ]
    variant = tf.raw_ops.FlatMapDataset(
        input_dataset=runs,
        other_arguments=[],
        f=_graph_function(batches, taken),
        output_types=[each.dtype for each in flat],
        output_shapes=[each.shape for each in flat],
    )
    dataset = tf.data.experimental.from_variant(variant, held)
    if any(leaf.form == "padded" for leaf in leaves(spec)):
        dataset = dataset.map(without_autograph(partial(unpacked, spec)))
    options = bounded_options()
    options.experimental_symbolic_checkpoint = True
    dataset = dataset.with_options(options)
    forget_after(dataset, feeds.forget, number)
    return dataset


def bounded_options() -> tf.data.Options:
    """Return dataset options that disable automatic sharding and the automatic prefetch."""
    options = tf.data.Options()
    # TensorFlow's sharding reads every batch in every worker and drops most; use Loader.shard.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # TensorFlow would add a prefetch at the end, which grows to hundreds of batches.
    options.experimental_optimization.inject_prefetch = False
    return options


def with_cardinality(dataset: tf.data.Dataset, length: int) -> tf.data.Dataset:
    """Return a dataset with a known cardinality, `length`, whose passes may be shorter.

    The first one is, if it begins within an epoch, and one of which `ignore_errors` skips batches:
    `assert_cardinality` would raise at its end, again and again.
    """
    # TensorFlow counts it as infinite. It comes first: as the second input of `concatenate`, a save
    # of a restored iterator, where a run of steps ended, began the pass again (TensorFlow 2.21).
    empty = dataset.take(0).repeat()
    return without_autotuning(empty.concatenate(dataset).take(length))


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset whose own iterators are not autotuned; datasets derived from it still are.

    There is nothing to tune. And TensorFlow (2.21) may fail to wake its autotuning thread when an
    iterator is deleted: the deleting thread then waits, holding the GIL, as long as the pass took
    (every third to sixth pass of 0.5 to 5 s took 1.2 to 1.4 times as long).
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    tuned = dataset.with_options(tf.data.Options())
    kind: Any = type(tuned)
    tuned.__class__, tuned.untuned = _iterating_untuned(kind), dataset.with_options(options)
    return tuned


@lru_cache
def _iterating_untuned(kind: Any) -> Any:
    """Return a subclass of a dataset class that iterates over, and reduces, its `untuned`."""

    def reduce(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self.untuned.reduce(*arguments, **keywords)

    return type(
        kind.__name__, (kind,), {"__iter__": lambda self: iter(self.untuned), "reduce": reduce}
    )


def forget_after(dataset: tf.data.Dataset, forget: Callable[[int], object], number: int) -> None:
    """Call ``forget(number)`` once the dataset is gone, or the function in whose graph it was made.

    (There, the dataset object is gone once the function is traced.)
    """
    owner: Any = dataset
    if not tf.executing_eagerly():
        owner = tf.compat.v1.get_default_graph()
        # (A `tf.Graph`, of TensorFlow 1, has no outer graph.)
        while getattr(outer := getattr(owner, "outer_graph", None), "building_function", False):
            owner = outer
    weakref.finalize(owner, forget, number).atexit = False


def _graph_function(function: Callable[..., Any], signature: Sequence[tf.TensorSpec]) -> Any:
    """Return the graph function of a dataset, for `tf.raw_ops`.

    The attribute marks a function that runs on one device. TensorFlow places and optimises others
    anew in each pass: passes over ten batches took 20 ms of the processor's time, and take 9.
    """
    graph = tf.function(
        function,
        input_signature=signature,
        autograph=False,
        experimental_attributes={"experimental_ints_on_device": True},
    )
    return graph.get_concrete_function()


@lru_cache(maxsize=64)
def _read_function(dtypes: tuple[tf.DType, ...]) -> Any:
    """Return the function of a scan that reads a run into arrays of these dtypes; kept for ever."""
    number, text = tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.string)
    position = tf.TensorSpec(_POSITION_SHAPE, tf.int64)

    def read(position: Any, saved: Any, number: Any, feed: Any, fingerprint: Any) -> Any:
        inputs = [feed, position, saved, number]
        outputs = [tf.int64, *dtypes]
        position, *arrays = tf.numpy_function(feeds.read, inputs, outputs, stateful=False)
        return position, fingerprint, *arrays

    return _graph_function(read, [position, text, number, number, text])
