"""Parse records that are serialized ``tf.train.Example`` messages, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.map import GraphFunction, Map
from oocdata.datasets.spec import ArraySpec
from oocdata.errors import ArgumentError, MapError, needed

with needed("`parse` needs TensorFlow", "tensorflow"):
    import tensorflow as tf

__all__ = ["Feature", "ParseExamples", "parse"]


@dataclass(frozen=True)
class Feature:
    """A feature of fixed length: the arguments of ``tf.io.FixedLenFeature``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    default: Any = None


@dataclass(frozen=True)
class ParseExamples(GraphFunction):
    """A function that parses a batch of records with ``tf.io.parse_example``."""

    features: tuple[Feature, ...]

    @property
    def spec(self) -> dict[str, ArraySpec]:
        """Spec of a parsed element."""
        return {
            feature.name: ArraySpec(
                feature.shape, np.dtype(tf.as_dtype(feature.dtype).as_numpy_dtype)
            )
            for feature in self.features
        }

    def tensors(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the features of records of any shape, each of shape (*records.shape, *shape)."""
        features = {
            feature.name: tf.io.FixedLenFeature(feature.shape, feature.dtype, feature.default)
            for feature in self.features
        }
        with tf.device("CPU"):
            parsed = tf.io.parse_example(tf.reshape(records, [-1]), features)
            return {
                feature.name: tf.reshape(
                    parsed[feature.name], tf.concat([tf.shape(records), feature.shape], 0)
                )
                for feature in self.features
            }

    def __call__(self, records: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the features of records, each of shape (n, *shape)."""
        try:
            tensors = self.tensors(records)
        except tf.errors.OpError as error:
            reason = error.message.rpartition("Name: <unknown>, ")[2].partition(" [Op:")[0]
            raise MapError(
                f"each record must be a tf.train.Example with these features; {reason}"
            ) from error
        return {name: tensor.numpy() for name, tensor in tensors.items()}


def _as_text(default: Any) -> Any:
    """Return bytes as text if they are UTF-8: the same to TensorFlow, and valid in JSON."""
    if isinstance(default, list):
        return [_as_text(element) for element in default]
    with suppress(AttributeError, UnicodeDecodeError):
        return default.decode()
    return default


def parse(records: Dataset, features: Mapping[str, Any]) -> Map:
    """Return the dataset of the features of records; see `oocdata.View.parse`."""
    if records.spec != ArraySpec((), np.dtype(object)):
        raise ArgumentError(
            "`parse` must be called on records, one a row, as TFRecord files have; got "
            f"{records!r}."
        )
    if not isinstance(features, Mapping) or not features:
        raise ArgumentError(
            f"`features` must be a dict of tf.io.FixedLenFeature by name; got {features!r}."
        )
    parsed_features = []
    for name, feature in features.items():
        if not isinstance(feature, tf.io.FixedLenFeature):
            raise ArgumentError(
                "`features` must be tf.io.FixedLenFeature, of which an array can be made; got "
                f"{type(feature).__name__} for {name!r}. Others are parsed after the pipeline: "
                "loader.to_tf().map(lambda records: tf.io.parse_example(records, features))."
            )
        shape = tf.TensorShape(feature.shape)
        if not shape.is_fully_defined() or feature.dtype not in (tf.int64, tf.float32, tf.string):
            raise ArgumentError(
                "`features` must have known shapes, and one of the dtypes that a tf.train.Example "
                f"stores: int64, float32 and string; got {feature} for {name!r}."
            )
        default = feature.default_value
        if default is not None:
            text = tf.as_dtype(feature.dtype) == tf.string
            # As objects: NumPy's bytes dtype drops trailing zeros.
            default = np.asarray(default, object if text else None).tolist()
            default = _as_text(default)
        parsed_features.append(
            Feature(str(name), tuple(shape), tf.as_dtype(feature.dtype).name, default)
        )
    function = ParseExamples(tuple(parsed_features))
    return Map(records, function, batched=True, rng=False, given=function.spec)
