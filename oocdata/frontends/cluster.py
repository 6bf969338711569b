"""The graph that a cluster of readers gets: runs of steps, dealt out one by one.

It is a few kilobytes: a description (JSON), an epoch, and numbers of runs, which tf.data service
deals out to the workers (dynamic sharding). What a number means is worked out where it is read, by
`oocdata.frontends.serving` in the worker's own process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from oocdata.datasets.spec import ArraySpec, leaves, map_tree
from oocdata.frontends.batching import batch_lengths
from oocdata.frontends.pyfunctions import call
from oocdata.frontends.serving import READ, TICK
from oocdata.frontends.tfdata import as_it_is
from oocdata.order import BlockShuffle

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["Cluster", "steps_dealt"]

_REFRESH_MILLISECONDS = 100
"""How often a trainer asks the dispatcher who reads for it; TensorFlow's second delays an epoch."""

_DYNAMIC = b"\x08\x01"
"""``ProcessingModeDef(sharding_policy=DYNAMIC)`` (tensorflow/core/protobuf/data_service.proto)."""

_ENDLESS = 2**40

_WINDOWS_DEALT = 4
"""A window is decoded once more where a border between two readers cuts it."""

_FEWEST_DEALT = 16
"""Parts of an epoch, at least: so that no reader has much more to do than another."""


def steps_dealt(loader: Loader) -> int:
    """Return how many neighbouring steps one reader is dealt at a time.

    Steps of a block shuffle's window are made of the same chunks: one reader decodes them.
    """
    together = loader.steps_together
    if not isinstance(loader.order, BlockShuffle):
        return together
    window = loader.order.elements_mixed(len(loader.dataset)) // loader.batch_size
    most = -(-len(loader) // _FEWEST_DEALT)
    return max(together, min(_WINDOWS_DEALT * window, most) // together * together)


@dataclass(frozen=True)
class Cluster:
    """What the graphs that are sent to a cluster have in common.

    Attributes
    ----------
    loader : Loader
    description : str
        Of the loader; see `oocdata.describe.as_json`.
    address : str
        Of the dispatcher, ``"grpc://HOST:PORT"``.
    opening : str
        Tells one dataset from the next, for each of which workers open the files anew.
    parallel : int
        Runs that a worker reads at a time.
    """

    loader: Loader
    description: str
    address: str
    opening: str
    parallel: int

    def batches(
        self, epoch: tf.Tensor, steps: tf.Tensor, job: Any, *, ticks: bool
    ) -> tf.data.Dataset:
        """Return stretches of steps, each step with its batch, as the workers read them.

        Each array has an axis in front, of length 1. With `ticks`, each worker that finds nothing
        more to read says so, again and again: step -1, and arrays of length 0. Then the dataset is
        without end.
        """
        spec = self.loader.spec
        size, has_short = batch_lengths(self.loader)
        sizes = (size, None) if has_short else (size,)
        shapes = [(None, length, *leaf.shape[1:]) for length in sizes for leaf in leaves(spec)]
        dtypes = [tf.as_dtype(leaf.dtype) for _ in sizes for leaf in leaves(spec)]
        together = tf.constant(self.loader.steps_together, tf.int64)

        @as_it_is
        def read(number: tf.Tensor) -> Any:
            inputs = [self.description, self.opening, epoch, steps, together, number]
            run, *arrays = call(READ, inputs, [tf.int64, *dtypes])
            return tf.ensure_shape(run, (2,)), tuple(map(tf.ensure_shape, arrays, shapes))

        @as_it_is
        def cut(run: tf.Tensor, arrays: tuple[tf.Tensor, ...]) -> tf.data.Dataset:
            rest = iter(tf.expand_dims(array, 1) for array in arrays)
            slices = tf.data.Dataset.from_tensor_slices
            short = run[0] + tf.shape(arrays[0], tf.int64)[0]
            full = slices((tf.range(run[0], short), map_tree(lambda _: next(rest), spec)))
            if not has_short:
                return full
            last = (tf.range(short, run[1]), map_tree(lambda _: next(rest), spec))
            return full.concatenate(slices(last))

        # Dealt out are numbers: the graph stays small, however long the epoch is.
        runs = tf.reduce_sum((steps[:, 1] - steps[:, 0] + together - 1) // together)
        each = steps_dealt(self.loader) // self.loader.steps_together

        @as_it_is
        def dealt(part: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.range(part * each, tf.minimum(part * each + each, runs))

        dataset = tf.data.Dataset.range((runs + each - 1) // each).flat_map(dealt)
        dataset = dataset.map(read, num_parallel_calls=self.parallel).flat_map(cut)
        if not ticks:
            return self._read(dataset, job)

        @as_it_is
        def tick(number: tf.Tensor) -> Any:
            (step,) = call(TICK, [number], [tf.int64])
            nothing = map_tree(_no_batch, spec)
            return tf.ensure_shape(step, ()), nothing

        return self._read(dataset.concatenate(tf.data.Dataset.range(_ENDLESS).map(tick)), job)

    @property
    def alone(self) -> Callable[..., Any]:
        """The function that leaves a batch, of what `batches` gives."""
        spec = self.loader.spec

        @as_it_is
        def alone(*batch: Any) -> Any:
            arrays = iter(leaves(batch))
            return map_tree(lambda leaf: tf.ensure_shape(next(arrays)[0], leaf.shape), spec)

        return alone

    def _read(self, dataset: tf.data.Dataset, job: Any) -> tf.data.Dataset:
        """Return a dataset as the cluster reads it.

        `tf.data.experimental.service.distribute` does this too, for names of jobs that are known
        beforehand and do not change with the epoch.
        """
        spec = dataset.element_spec
        # Numbers do not get much smaller by compression, nor come sooner.
        number = tf.data.experimental.service.register_dataset(
            self.address, dataset, compression=None
        )
        shapes = [tf.TensorShape(leaf.shape) for leaf in tf.nest.flatten(spec)]
        variant = tf.raw_ops.DataServiceDatasetV4(
            dataset_id=number,
            processing_mode=_DYNAMIC,
            address=self.address.removeprefix("grpc://"),
            protocol="grpc",
            job_name=job,
            consumer_index=-1,
            num_consumers=-1,
            max_outstanding_requests=-1,
            iteration_counter=tf.raw_ops.DummyIterationCounter(),
            output_types=[leaf.dtype for leaf in tf.nest.flatten(spec)],
            output_shapes=shapes,
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
