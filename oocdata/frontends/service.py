"""tf.data service: one epoch, read by many machines.

What is sent to the cluster is a graph of a few kilobytes: a description (JSON), an epoch, and parts
of its steps, which tf.data service deals out to the workers (dynamic sharding). Each reads its own
in runs, in its own process (`oocdata.frontends.serving`). So a batch is what `Loader.batch` gives,
wherever it was read; only the order in which batches come depends on who was quicker.

Each epoch is a job of its own, so that its number can be told to the workers and no batch of the
next one comes before it is complete; `oocdata.frontends.delivery` says when it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from oocdata.datasets.spec import ArraySpec, leaves, map_tree
from oocdata.describe import as_json
from oocdata.describe.content import digest
from oocdata.errors import ArgumentError
from oocdata.frontends import feeds
from oocdata.frontends.address import reached
from oocdata.frontends.batching import batch_lengths, tensor_dtype
from oocdata.frontends.delivery import ATTEMPTS, Delivery
from oocdata.frontends.serving import READ, TICK
from oocdata.frontends.tfdata import (
    as_it_is,
    bounded,
    lives_with,
    passes,
    with_cardinality,
)
from oocdata.order.order import laned
from oocdata.threads import silent

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["steps_dealt", "to_service"]

_REFRESH_MILLISECONDS = 100
"""How often a trainer asks the dispatcher who reads for it; TensorFlow's second delays an epoch."""

_DYNAMIC = b"\x08\x01"
"""``ProcessingModeDef(sharding_policy=DYNAMIC)`` (tensorflow/core/protobuf/data_service.proto)."""

_ENDLESS = 2**40

_WINDOWS_DEALT = 4
"""A window is decoded once more where a border between two readers cuts it."""

_FEWEST_DEALT = 16
"""Parts of an epoch, at least: so that no reader has much more to do than another."""

_MOST_DEALT = 4096
"""Parts of an epoch, or not many more: the graph holds where each begins."""


def steps_dealt(loader: Loader) -> int:
    """Return how many neighbouring steps one reader is dealt at a time.

    Steps of a block shuffle's window are made of the same chunks: one reader decodes them.
    """
    together, each = loader.steps_together, len(loader) // _MOST_DEALT
    order = laned(loader.order)
    if order is not None:
        window = order.elements_mixed(len(loader.dataset)) // loader.batch_size
        each = max(each, min(_WINDOWS_DEALT * window, -(-len(loader) // _FEWEST_DEALT)))
    return max(together, each // together * together)


def to_service(
    loader: Loader,
    service: str,
    job_name: str | None,
    *,
    start: tuple[int, int],
    epochs: int,
    parallel: int,
    prefetch: int,
) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` of a loader's batches, read by a cluster.

    See `oocdata.Loader.to_tf`.
    """
    address = reached(service)
    if job_name is not None and not (isinstance(job_name, str) and job_name):
        raise ArgumentError(f"`job_name` must be a name, or None; got {job_name!r}.")
    shared, steps, spec = job_name is not None, len(loader), loader.spec
    begin = passes(loader, start, epochs)
    # The cluster's workers are the processes that read. Each dataset's loader is opened anew there;
    # but trainers that share a job must ask for the same.
    description = as_json(replace(loader, workers=0))
    asked = [description, job_name or uuid.uuid4().hex]
    name = f"{job_name}/{digest(description)}"  # or training and validation might share batches
    number = feeds.add(Delivery(steps, steps_dealt(loader), begin, shared))
    feed = tf.constant(number, tf.int64)

    @as_it_is
    def whole_pass(_: tf.Tensor) -> tf.data.Dataset:
        begun = tf.ensure_shape(tf.numpy_function(_begin, [feed], tf.int64), ())
        # A first pass that begins within an epoch ends where it would if it began with it.
        every = tf.data.Dataset.range(begun // steps, begun // steps + epochs)
        return every.flat_map(as_it_is(lambda epoch: whole_epoch(begun, epoch)))

    def whole_epoch(begun: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
        @as_it_is
        def missing(attempt: tf.Tensor) -> tf.Tensor:
            parts = tf.numpy_function(_missing, [feed, begun, epoch, attempt], tf.int64)
            return tf.ensure_shape(parts, (None, 2))

        @as_it_is
        def read(parts: tf.Tensor) -> tf.data.Dataset:
            found = _batches(loader, asked, epoch, parts, parallel)
            if shared:
                job = tf.strings.join([name, tf.as_string(begun), tf.as_string(epoch)], "/")
                return _read_by(address, found, job).map(alone)
            # Without end: each worker that finds nothing more to read says so, again and again.
            found = found.concatenate(tf.data.Dataset.range(_ENDLESS).map(tick))
            # Until all are here, or must be lost. (`take` right behind `filter`: a map between
            # them would read ahead, and be waited for while the filter finds nothing.)
            count = tf.reduce_sum(parts[:, 1] - parts[:, 0])
            found = _read_by(address, found, "").map(arrived)
            found = found.take_while(as_it_is(lambda goes_on, step, batch: goes_on))
            found = found.filter(as_it_is(lambda goes_on, step, batch: step >= 0)).take(count)
            return found.map(alone)

        @as_it_is
        def arrived(step: tf.Tensor, batch: Any) -> Any:
            goes_on = tf.numpy_function(_arrived, [feed, begun, epoch, step], tf.bool)
            return tf.ensure_shape(goes_on, ()), step, batch

        # One attempt after the other: what is missing is known when the last one is over.
        attempts = tf.data.Dataset.range(ATTEMPTS + 1).map(missing)
        attempts = attempts.filter(as_it_is(lambda parts: tf.shape(parts)[0] > 0))
        return attempts.flat_map(read)

    @as_it_is
    def tick(number: tf.Tensor) -> Any:
        (step,) = tf.raw_ops.PyFuncStateless(input=[number], token=TICK, Tout=[tf.int64])
        return tf.ensure_shape(step, ()), map_tree(_no_batch, spec)

    @as_it_is
    def alone(*found: Any) -> Any:
        arrays = leaves(found[-1])
        return map_tree(lambda leaf: tf.ensure_shape(next(arrays)[0], leaf.shape), spec)

    # It says that options are not known while a graph is made; they are not looked at.
    with silent("To make it possible to preserve tf.data options"):
        dataset = tf.data.Dataset.range(1).flat_map(whole_pass)
    dataset = dataset.prefetch(prefetch) if prefetch else dataset
    dataset = dataset.with_options(bounded())
    lives_with(dataset, feeds.forget, number)
    if not shared:
        dataset = with_cardinality(dataset, epochs * steps, always=tuple(start)[1] == 0)
    return dataset


def _batches(
    loader: Loader, asked: list[str], epoch: tf.Tensor, parts: tf.Tensor, parallel: int
) -> tf.data.Dataset:
    """Return steps, each with its batch, as a worker reads them of the parts that it is dealt.

    Each array has an axis in front, of length 1.
    """
    spec = loader.spec
    size, has_short = batch_lengths(loader)
    sizes = (size, None) if has_short else (size,)
    shapes = [(None, length, *leaf.shape[1:]) for length in sizes for leaf in leaves(spec)]
    dtypes = [tf.as_dtype(tensor_dtype(leaf.dtype)) for _ in sizes for leaf in leaves(spec)]
    slices = tf.data.Dataset.from_tensor_slices

    @as_it_is
    def runs(part: tf.Tensor) -> tf.data.Dataset:
        starts = tf.data.Dataset.range(part[0], part[1], loader.steps_together)
        end = part[1]
        return starts.map(as_it_is(lambda at: (at, tf.minimum(at + loader.steps_together, end))))

    @as_it_is
    def read(start: tf.Tensor, stop: tf.Tensor) -> Any:
        inputs = [*asked, epoch, start, stop]
        arrays = tf.raw_ops.PyFuncStateless(input=inputs, token=READ, Tout=dtypes)
        return start, stop, tuple(map(tf.ensure_shape, arrays, shapes))

    @as_it_is
    def cut(start: tf.Tensor, stop: tf.Tensor, arrays: tuple[tf.Tensor, ...]) -> tf.data.Dataset:
        rest = iter(tf.expand_dims(array, 1) for array in arrays)
        short = start + tf.shape(arrays[0], tf.int64)[0]
        full = slices((tf.range(start, short), map_tree(lambda _: next(rest), spec)))
        if not has_short:
            return full
        last = (tf.range(short, stop), map_tree(lambda _: next(rest), spec))
        return full.concatenate(slices(last))

    return slices(parts).flat_map(runs).map(read, num_parallel_calls=parallel).flat_map(cut)


def _read_by(address: str, dataset: tf.data.Dataset, job: Any) -> tf.data.Dataset:
    """Return a dataset as the cluster reads it.

    `tf.data.experimental.service.distribute` does this too, for names of jobs that are known
    beforehand and do not change with the epoch.
    """
    spec = dataset.element_spec
    # Numbers do not get much smaller by compression, nor come sooner.
    number = tf.data.experimental.service.register_dataset(address, dataset, compression=None)
    variant = tf.raw_ops.DataServiceDatasetV4(
        dataset_id=number,
        processing_mode=_DYNAMIC,
        address=address.removeprefix("grpc://"),
        protocol="grpc",
        job_name=job,
        consumer_index=-1,
        num_consumers=-1,
        max_outstanding_requests=-1,
        iteration_counter=tf.raw_ops.DummyIterationCounter(),
        output_types=[leaf.dtype for leaf in tf.nest.flatten(spec)],
        output_shapes=[tf.TensorShape(leaf.shape) for leaf in tf.nest.flatten(spec)],
        uncompress_fn=_nothing_to_uncompress(),
        task_refresh_interval_hint_ms=_REFRESH_MILLISECONDS,
    )
    return tf.data.experimental.from_variant(variant, spec)


def _no_batch(leaf: ArraySpec) -> tf.Tensor:
    return tf.zeros([0, *(length or 0 for length in leaf.shape)], leaf.dtype)


@lru_cache(maxsize=1)
def _nothing_to_uncompress() -> Any:
    """Return the function that the op must have, and does not call."""
    signature = [tf.TensorSpec((), tf.variant)]
    return tf.function(lambda held: held, input_signature=signature).get_concrete_function()


def _called(method: Callable[..., Any]) -> Callable[..., NDArray[Any]]:
    """Return what TensorFlow calls with the number of a delivery, and with tensors."""
    return lambda feed, *numbers: np.asarray(feeds.called(feed, method, *map(int, numbers)))


_begin = _called(Delivery.begin)
_missing = _called(Delivery.missing)
_arrived = _called(Delivery.arrived)
