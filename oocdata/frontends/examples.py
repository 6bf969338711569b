"""Records that are serialized ``tf.train.Example`` messages, parsed a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.map import InGraph, Map
from oocdata.datasets.spec import ArraySpec
from oocdata.errors import ArgumentError, MapError, MissingDependencyError

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingDependencyError(
        "`parse` needs TensorFlow, which can't be imported here. Install it: "
        "pip install tensorflow."
    ) from error

__all__ = ["Feature", "ParseExamples", "parse"]


@dataclass(frozen=True)
class Feature:
    """One feature of fixed length: the arguments of ``tf.io.FixedLenFeature``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    default: Any = None


@dataclass(frozen=True)
class ParseExamples(InGraph):
    """A function of records: ``tf.io.parse_example`` of all of a batch at once."""

    features: tuple[Feature, ...]

    @property
    def spec(self) -> dict[str, ArraySpec]:
        """What an element is afterwards."""
        return {
            one.name: ArraySpec(one.shape, np.dtype(tf.as_dtype(one.dtype).as_numpy_dtype))
            for one in self.features
        }

    def tensors(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the features of records of any shape, (*records.shape, *shape) each."""
        wanted = {
            one.name: tf.io.FixedLenFeature(one.shape, one.dtype, one.default)
            for one in self.features
        }
        with tf.device("CPU"):
            found = tf.io.parse_example(tf.reshape(records, [-1]), wanted)
            return {
                one.name: tf.reshape(found[one.name], tf.concat([tf.shape(records), one.shape], 0))
                for one in self.features
            }

    def __call__(self, records: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the features of records, shape (n, *shape) each."""
        try:
            found = self.tensors(records)
        except tf.errors.OpError as error:
            told = error.message.rpartition("Name: <unknown>, ")[2].partition(" [Op:")[0]
            raise MapError(
                f"each record must be a tf.train.Example with these features; {told}"
            ) from error
        return {name: tensor.numpy() for name, tensor in found.items()}


def _as_text(default: Any) -> Any:
    """Return what is bytes as text where it is UTF-8: the same to TensorFlow, and JSON has it."""
    if isinstance(default, list):
        return [_as_text(one) for one in default]
    with suppress(AttributeError, UnicodeDecodeError):
        return default.decode()
    return default


def parse(records: Dataset, features: Mapping[str, Any]) -> Map:
    """Return the features of records; see `oocdata.View.parse`."""
    if records.spec != ArraySpec((), np.dtype(object)):
        raise ArgumentError(
            "`parse` must be called on records, one a row, as TFRecord files have; got "
            f"{records!r}."
        )
    if not isinstance(features, Mapping) or not features:
        raise ArgumentError(
            f"`features` must be a dict of tf.io.FixedLenFeature by name; got {features!r}."
        )
    made = []
    for name, feature in features.items():
        if not isinstance(feature, tf.io.FixedLenFeature):
            raise ArgumentError(
                "`features` must be tf.io.FixedLenFeature, of which an array can be made; got "
                f"{type(feature).__name__} for {name!r}. Others are parsed after the pipeline: "
                "loader.to_tf().map(lambda records: tf.io.parse_example(records, features))."
            )
        shape = tuple(int(length) for length in tf.TensorShape(feature.shape).as_list())
        default = feature.default_value
        if default is not None:
            text = tf.as_dtype(feature.dtype) == tf.string
            # Not NumPy's own bytes, which lose zeros at the end.
            default = np.asarray(default, object if text else None).tolist()
            default = _as_text(default)
        made.append(Feature(str(name), shape, tf.as_dtype(feature.dtype).name, default))
    function = ParseExamples(tuple(made))
    return Map(records, function, batched=True, rng=False, given=function.spec)
