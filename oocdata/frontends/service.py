"""Read the batches of one epoch on many machines, with tf.data service.

The cluster receives a graph of a few kilobytes: a description (JSON), an epoch, and parts of its
steps, which tf.data service deals out to the workers (dynamic sharding). Each worker reads its
parts run by run (`oocdata.frontends.serving`). Each epoch is a job of its own, so that its number
can be passed to the workers, and no batch of the next epoch comes before it is complete; see
`oocdata.frontends.delivery`.
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
from oocdata.frontends.address import dispatcher_address
from oocdata.frontends.batching import tensor_dtype
from oocdata.frontends.delivery import ATTEMPTS, Delivery
from oocdata.frontends.serving import READ, TICK
from oocdata.frontends.tfdata import (
    bounded_options,
    forget_after,
    passes,
    with_cardinality,
)
from oocdata.threads import silent

if TYPE_CHECKING:
    from oocdata.loader import Loader

_REFRESH_MILLISECONDS = 100
"""How often a trainer asks the dispatcher for its workers. TensorFlow's default, a second, delays
every epoch."""

_DYNAMIC = b"\x08\x01"
"""``ProcessingModeDef(sharding_policy=DYNAMIC)`` (tensorflow/core/protobuf/data_service.proto)."""

_ENDLESS = 2**40

_WINDOWS_PER_PART = 4
"""Windows of a block shuffle in a part: chunks of a window are decoded twice if a border between
parts cuts it."""

_FEWEST_PARTS = 16
"""Fewest parts of an epoch, so that no worker has much more to do than another."""

_MOST_PARTS = 4096
"""Approximate limit on the parts of an epoch: the graph holds the bounds of each."""


def steps_per_part(loader: Loader) -> int:
    """Return how many neighbouring steps are dealt to a worker at a time.

    Steps in one window of a block shuffle share chunks, so one worker should read them.
    """
    together, each = loader.steps_together, len(loader) // _MOST_PARTS
    if loader.order.lanes is not None:
        window = loader.order.elements_mixed(len(loader.dataset)) // loader.batch_size
        each = max(each, min(_WINDOWS_PER_PART * window, -(-len(loader) // _FEWEST_PARTS)))
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
    """Return a dataset of a loader's batches that a cluster reads; see `oocdata.Loader.to_tf`."""
    address = dispatcher_address(service)
    if job_name is not None and not (isinstance(job_name, str) and job_name):
        raise ArgumentError(f"`job_name` must be a name, or None; got {job_name!r}.")
    shared, steps, spec = job_name is not None, len(loader), loader.spec
    begin = passes(loader, start, epochs)
    # `workers=0`, because the cluster's workers read. Each dataset is opened anew there, hence the
    # random part; but trainers that share a job must send equal requests.
    description = as_json(replace(loader, workers=0))
    request = [description, job_name or uuid.uuid4().hex]
    name = f"{job_name}/{digest(description)}"  # so that training and validation don't share a job
    short = steps - 1 if next(leaves(spec)).shape[0] is None else -1
    number = feeds.add(Delivery(steps, steps_per_part(loader), begin, shared, short))
    feed = tf.constant(number, tf.int64)

    def whole_pass(_: tf.Tensor) -> tf.data.Dataset:
        begun = tf.ensure_shape(tf.numpy_function(_begin, [feed], tf.int64), ())
        # A first pass that begins within an epoch ends where one that begins with it ends.
        numbers = tf.data.Dataset.range(begun // steps, begun // steps + epochs)
        return numbers.flat_map(lambda epoch: whole_epoch(begun, epoch))

    def whole_epoch(begun: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
        def missing(attempt: tf.Tensor) -> tf.Tensor:
            parts = tf.numpy_function(_missing, [feed, begun, epoch, attempt], tf.int64)
            return tf.ensure_shape(parts, (None, 2))

        def read(parts: tf.Tensor) -> tf.data.Dataset:
            dataset = _batches(loader, request, epoch, parts, parallel)
            if shared:
                job = tf.strings.join([name, tf.as_string(begun), tf.as_string(epoch)], "/")
                return _read_by(address, dataset, job).map(single_batch)
            # Without end: a worker with nothing more to read reports that again and again.
            dataset = dataset.concatenate(tf.data.Dataset.range(_ENDLESS).map(tick))
            # Until all steps have arrived, or count as lost. (`take` directly after `filter`: a map
            # between them would read ahead, and block while the filter finds nothing.)
            count = tf.reduce_sum(parts[:, 1] - parts[:, 0])
            dataset = _read_by(address, dataset, "").map(arrived)
            dataset = dataset.take_while(lambda goes_on, step, batch: goes_on)
            dataset = dataset.filter(lambda goes_on, step, batch: step >= 0).take(count)
            return dataset.map(single_batch)

        def arrived(step: tf.Tensor, batch: Any) -> Any:
            goes_on = tf.numpy_function(_arrived, [feed, begun, epoch, step], tf.bool)
            return tf.ensure_shape(goes_on, ()), step, batch

        # One attempt after the other: an attempt must end before the missing steps are known.
        attempts = tf.data.Dataset.range(ATTEMPTS + 1).map(missing)
        return attempts.filter(lambda parts: tf.shape(parts)[0] > 0).flat_map(read)

    def tick(number: tf.Tensor) -> Any:
        (step,) = tf.raw_ops.PyFuncStateless(input=[number], token=TICK, Tout=[tf.int64])
        return tf.ensure_shape(step, ()), map_tree(_no_batch, spec)

    def single_batch(*element: Any) -> Any:
        arrays = leaves(element[-1])
        return map_tree(lambda leaf: tf.ensure_shape(next(arrays)[0], leaf.shape), spec)

    # TensorFlow warns that options are unknown while a graph is traced; they are not needed.
    with silent("To make it possible to preserve tf.data options"):
        dataset = tf.data.Dataset.range(1).flat_map(whole_pass)
    dataset = dataset.prefetch(prefetch) if prefetch else dataset
    dataset = dataset.with_options(bounded_options())
    forget_after(dataset, feeds.forget, number)
    if not shared:
        dataset = with_cardinality(dataset, epochs * steps)
    return dataset


def _batches(
    loader: Loader, request: list[str], epoch: tf.Tensor, parts: tf.Tensor, parallel: int
) -> tf.data.Dataset:
    """Return a dataset of (step, batch), as a worker reads them for the parts it is dealt.

    Each array has an axis of length 1 in front.
    """
    spec = loader.spec
    shapes = [(None, *leaf.shape) for leaf in leaves(spec)]
    dtypes = [tf.as_dtype(tensor_dtype(leaf.dtype)) for leaf in leaves(spec)]
    slices = tf.data.Dataset.from_tensor_slices

    def runs(part: tf.Tensor) -> tf.data.Dataset:
        first, end, together = part[0], part[1], loader.steps_together
        starts = tf.data.Dataset.range(first, end, together)
        return starts.map(lambda at: (at, tf.minimum(at + together, end)))

    def read(start: tf.Tensor, stop: tf.Tensor) -> Any:
        inputs = [*request, epoch, start, stop]
        arrays = tf.raw_ops.PyFuncStateless(input=inputs, token=READ, Tout=dtypes)
        return start, tuple(map(tf.ensure_shape, arrays, shapes))

    def cut(start: tf.Tensor, arrays: tuple[tf.Tensor, ...]) -> tf.data.Dataset:
        rest = iter(tf.expand_dims(array, 1) for array in arrays)
        stop = start + tf.shape(arrays[0], tf.int64)[0]
        return slices((tf.range(start, stop), map_tree(lambda _: next(rest), spec)))

    return slices(parts).flat_map(runs).map(read, num_parallel_calls=parallel).flat_map(cut)


def _read_by(address: str, dataset: tf.data.Dataset, job: Any) -> tf.data.Dataset:
    """Return a dataset that the cluster reads.

    `tf.data.experimental.service.distribute` does this too, but only for job names that are known
    in advance and are the same in each epoch.
    """
    spec = dataset.element_spec
    # Compression makes arrays neither much smaller nor faster to transfer.
    number = tf.data.experimental.service.register_dataset(address, dataset, compression=None)
    variant = tf.raw_ops.DataServiceDatasetV4(
        dataset_id=number,
        processing_mode=_DYNAMIC,
        address=address,
        protocol="grpc",
        job_name=job,
        consumer_index=-1,
        num_consumers=-1,
        max_outstanding_requests=-1,
        iteration_counter=tf.raw_ops.DummyIterationCounter(),
        output_types=[leaf.dtype for leaf in tf.nest.flatten(spec)],
        output_shapes=[tf.TensorShape(leaf.shape) for leaf in tf.nest.flatten(spec)],
        uncompress_fn=_no_uncompression(),
        task_refresh_interval_hint_ms=_REFRESH_MILLISECONDS,
    )
    return tf.data.experimental.from_variant(variant, spec)


def _no_batch(leaf: ArraySpec) -> tf.Tensor:
    return tf.zeros([0, *(length or 0 for length in leaf.shape)], leaf.dtype)


@lru_cache(maxsize=1)
def _no_uncompression() -> Any:
    """Return the function that the op requires and does not call."""
    signature = [tf.TensorSpec((), tf.variant)]
    return tf.function(lambda variant: variant, input_signature=signature).get_concrete_function()


def _caller(method: Callable[..., Any]) -> Callable[..., NDArray[Any]]:
    """Return a function for TensorFlow to call, with the number of a delivery, and tensors."""
    return lambda feed, *numbers: np.asarray(feeds.call(feed, method, *map(int, numbers)))


_begin = _caller(Delivery.begin)
_missing = _caller(Delivery.missing)
_arrived = _caller(Delivery.arrived)
