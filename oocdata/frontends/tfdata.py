"""tf.data: count the runs of steps → one read per run → its batches, in static shapes.

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
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oocdata.datasets.spec import leaves, map_tree
from oocdata.errors import ArgumentError, MissingDependencyError
from oocdata.frontends import feeds
from oocdata.frontends.gate import gate
from oocdata.frontends.handover import batch_lengths, first_pass
from oocdata.frontends.identity import as_text, identity
from oocdata.frontends.originals import install
from oocdata.index import as_count
from oocdata.runs import Pass
from oocdata.workers.pool import TASKS
from oocdata.workers.reader import Reader

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError(
        "`to_tf` needs TensorFlow, which can't be imported here. Install it: "
        "pip install tensorflow."
    ) from error

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["of_passes", "owner", "to_tf"]

atexit.register(gate.close)  # after TensorFlow was imported, so before whatever it does at exit


_HANDED_OUT = 2
"""Runs that TensorFlow holds besides: the one it cuts into batches, and the one in use."""


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
    first = first_pass(loader, start, as_count("epochs", epochs))
    begun = itertools.count()

    def begin() -> Pass:
        return replace(first, first=first.first + next(begun) * first.length)

    extent = {"steps of a pass": str(first.length)}
    dataset = of_passes(loader, begin, extent, parallel=parallel, prefetch=prefetch)
    return dataset.apply(tf.data.experimental.assert_cardinality(first.length))


def of_passes(
    loader: Loader,
    begin: Callable[[], Pass],
    extent: dict[str, str],
    *,
    parallel: int,
    prefetch: int,
) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` that reads, each time it is iterated over, the next pass.

    Parameters
    ----------
    loader : Loader
    begin : callable
        Returns the next `Pass`; called when its first element is asked for, in any thread.
    extent : dict of str
        What else a restored iterator must share, besides the `identity` of the loader.
    parallel, prefetch : int
        As in `oocdata.Loader.to_tf`.

    Returns
    -------
    tf.data.Dataset
        Of unknown cardinality.
    """
    parallel = as_count("parallel", parallel)
    prefetch = as_count("prefetch", prefetch, at_least=0)
    install()
    spec = loader.spec
    text = as_text({**identity(loader), "steps": str(len(loader)), **extent})
    parallel = max(parallel, TASKS * loader.workers)
    ready = prefetch // loader.steps_together  # in whole runs; others lie ready among those read
    reader = Reader(loader, parallel + ready + _HANDED_OUT)
    number = feeds.add(feeds.Feed(loader, begin, text, reader))

    size, has_short = batch_lengths(loader)
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
    def run(over: tf.Tensor, number: tf.Tensor) -> Any:
        return tuple(map(tf.ensure_shape, read(feed, over, number), shapes))

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
    # `scan`, with the number of steps of a run and what it belongs to: an iterator that is restored
    # goes on with its own runs, however this process would cut them, or not at all.
    begun = _beginner()
    own = tf.constant(text)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def place(state: tuple[tf.Tensor, tf.Tensor], number: tf.Tensor) -> Any:
        over = begun(feed, own, *state, number)
        return (over, own), (over, number)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def is_run(over: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        return number < over[-1]

    unbegun = tf.constant(-1, tf.int64, [4])
    dataset = tf.data.Dataset.range(feeds.BEGINNING, tf.int64.max).scan((unbegun, own), place)
    dataset = dataset.take_while(is_run)
    dataset = dataset.map(run, num_parallel_calls=parallel, deterministic=True)
    # Of none, too: where a checkpoint goes depends on the nodes that there are.
    dataset = dataset.prefetch(ready)
    dataset = dataset.flat_map(batches)
    options = tf.data.Options()
    # Sharding by data would read every batch in every worker and throw most away: Loader.shard does
    # it.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_symbolic_checkpoint = True
    # Both numbers above are given; now and then it would turn the parallel reading down to one.
    options.autotune.enabled = False
    if loader.workers:
        # Calls that wait for a process would keep the model from the threads that both share.
        options.threading.private_threadpool_size = parallel + 1
    dataset = dataset.with_options(options)
    weakref.finalize(owner(dataset), feeds.forget, number).atexit = False
    return dataset


def owner(dataset: tf.data.Dataset) -> Any:
    """Return what must live for a dataset to be read: itself, or the function it is made in.

    Inside a ``tf.function`` the dataset is a name for a node of the graph, gone once it is traced.
    """
    if tf.executing_eagerly():
        return dataset
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph.outer_graph, "building_function", False):
        graph = graph.outer_graph
    return graph


@lru_cache(maxsize=1)
def _beginner() -> Any:
    """Return the function that says which pass a run is of, and begins it at need.

    A pass is four numbers there: see `oocdata.frontends.feeds.Feed.enter`.
    """
    scalar, text = tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.string)
    signature = [scalar, text, tf.TensorSpec((4,), tf.int64), text, scalar]

    @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]
    def begun(
        feed: tf.Tensor, own: tf.Tensor, over: tf.Tensor, saved: tf.Tensor, number: tf.Tensor
    ) -> Any:
        def begin() -> tf.Tensor:
            # `number` is passed so that no graph optimiser can take the call for a constant.
            first = tf.numpy_function(
                feeds.begin, [feed, over, saved, number], tf.int64, stateful=False
            )
            return tf.ensure_shape(first, (4,))

        return tf.cond((over[0] < 0) | (saved != own), begin, lambda: over)

    return begun


@lru_cache(maxsize=64)
def _reader(dtypes: tuple[str, ...]) -> Any:
    """Return the graph function that reads a run into arrays of these dtypes.

    One for each combination of dtypes: TensorFlow never forgets a function.
    """
    outputs = [tf.as_dtype(dtype) for dtype in dtypes]

    signature = [tf.TensorSpec(shape, tf.int64) for shape in ((), (4,), ())]

    @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]
    def read(feed: tf.Tensor, over: tf.Tensor, number: tf.Tensor) -> Any:
        return tf.numpy_function(feeds.read, [feed, over, number], outputs, stateful=False)

    return read
