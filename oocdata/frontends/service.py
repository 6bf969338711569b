"""tf.data service: one epoch, read by many machines.

What is sent to the cluster is a graph that deals out runs of steps and reads each in a worker's own
process (`oocdata.frontends.cluster`). So a batch is what `Loader.batch` gives, wherever it was
read; only the order in which batches come depends on who was quicker.

Each epoch is a job of its own, so that its number can be told to the workers and no batch of the
next one comes before it is complete; `oocdata.frontends.delivery` says when it is.
"""

from __future__ import annotations

import itertools
import uuid
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from oocdata.describe import as_json
from oocdata.errors import ArgumentError, DatasetGoneError
from oocdata.frontends.address import reached
from oocdata.frontends.cluster import Cluster
from oocdata.frontends.delivery import ATTEMPTS, Delivery
from oocdata.frontends.originals import forget_originals, passed_on
from oocdata.frontends.pyfunctions import call, register
from oocdata.frontends.shutdown import calls
from oocdata.frontends.tfdata import as_it_is, lives_with, passes, with_cardinality

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["to_service"]

_BEGIN, _MISSING = "oocdata.service.begin", "oocdata.service.missing"
_ARRIVED = "oocdata.service.arrived"

_deliveries: dict[int, Delivery] = {}
_numbers = itertools.count()


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
    for name, function in _FUNCTIONS.items():
        register(name, function)
    number = next(_numbers)
    steps = len(loader)
    begin = passes(loader, start, epochs)
    _deliveries[number] = Delivery(steps, begin, shared=job_name is not None)
    feed = tf.constant(number, tf.int64)
    # The cluster's workers are the processes that read. Each dataset's loader is opened anew there;
    # but trainers that share a job must ask for the same.
    description = as_json(replace(loader, workers=0))
    cluster = Cluster(loader, description, address, job_name or uuid.uuid4().hex, parallel)

    @as_it_is
    def whole_pass(one: tf.Tensor) -> tf.data.Dataset:
        (begun,) = call(_BEGIN, [feed, one], [tf.int64], in_turn=True)
        begun = tf.ensure_shape(begun, ())
        # A first pass that begins within an epoch ends where it would if it began with it.
        every = tf.data.Dataset.range(begun // steps, begun // steps + epochs)
        return every.flat_map(as_it_is(lambda epoch: whole_epoch(begun, epoch)))

    def whole_epoch(begun: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
        @as_it_is
        def missing(attempt: tf.Tensor) -> tf.Tensor:
            inputs = [feed, begun, epoch, attempt]
            (steps,) = call(_MISSING, inputs, [tf.int64], in_turn=True)
            return tf.ensure_shape(steps, (None, 2))

        @as_it_is
        def read(steps: tf.Tensor) -> tf.data.Dataset:
            shared = job_name is not None
            names = [job_name or "", tf.as_string(begun), tf.as_string(epoch)]
            job = tf.strings.join(names, "/") if shared else ""
            found = cluster.batches(epoch, steps, job, ticks=not shared).map(arrived)
            if not shared:
                # Until all are here, or must be lost. (`take` right behind `filter`: a map between
                # them would read ahead, and be waited for while the filter finds nothing.)
                count = tf.reduce_sum(steps[:, 1] - steps[:, 0])
                found = found.take_while(as_it_is(lambda goes_on, step, batch: goes_on))
                found = found.filter(as_it_is(lambda goes_on, step, batch: step >= 0)).take(count)
            return found.map(as_it_is(lambda goes_on, step, batch: batch))

        @as_it_is
        def arrived(step: tf.Tensor, batch: Any) -> Any:
            (goes_on,) = call(_ARRIVED, [feed, begun, epoch, step], [tf.bool], in_turn=True)
            return tf.ensure_shape(goes_on, ()), step, batch

        # One attempt after the other: what is missing is known when the last one is over.
        attempts = tf.data.Dataset.range(ATTEMPTS + 1).map(missing)
        attempts = attempts.filter(as_it_is(lambda steps: tf.shape(steps)[0] > 0))
        return attempts.flat_map(read).map(cluster.alone)

    with warnings.catch_warnings():
        # It says that options are not known while a graph is made; they are not looked at.
        warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options")
        dataset = tf.data.Dataset.range(1).flat_map(whole_pass)
    dataset = dataset.prefetch(prefetch) if prefetch else dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)
    if job_name is None:
        dataset = with_cardinality(dataset, epochs * steps, always=tuple(start)[1] == 0)
    lives_with(dataset, _forget, number)
    return dataset


def _forget(number: int) -> None:
    _deliveries.pop(number, None)
    forget_originals(number)


def _called(method: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return what TensorFlow calls for a method of `Delivery`: with a number, and more numbers."""

    def function(feed: Any, *numbers: Any) -> list[Any]:
        with calls:
            try:
                delivery = _deliveries[int(feed)]
            except KeyError:
                raise DatasetGoneError(
                    "an iterator must not outlive the dataset that `to_tf` returned. "
                    "Keep a reference to it."
                ) from None
            try:
                return [np.asarray(method(delivery, *map(int, numbers)))]
            except Exception as error:
                raise passed_on(error, int(feed)) from error

    return function


def _begin(delivery: Delivery, _: int) -> np.int64:
    return np.int64(delivery.begin())


_FUNCTIONS = {
    _BEGIN: _called(_begin),
    _MISSING: _called(Delivery.missing),
    _ARRIVED: _called(Delivery.arrived),
}
