"""Parse records that are serialized ``tf.train.Example`` messages, a batch at a time.

Features of unequal length are parsed as ragged rows, all kinds alike; `pad` makes arrays of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.parsed import Parsed
from oocdata.datasets.ragged import RaggedBatch
from oocdata.datasets.spec import ArraySpec
from oocdata.errors import ArgumentError, SourceError, needed
from oocdata.index import as_count, as_flag

with needed("`parse` needs TensorFlow", "tensorflow"):
    import tensorflow as tf

_DTYPES = tf.int64, tf.float32, tf.string


@dataclass(frozen=True)
class Feature:
    """A feature to parse, with its name in an element and its key in a record.

    `form` is "fixed" or "ragged", or "padded" or "mask" for ragged rows as an array, or their mask.
    """

    name: str
    key: str
    shape: tuple[int, ...]  #: of ragged rows, the shape of one position
    dtype: str  #: int64, float32 or string
    default: Any  #: padding of ragged rows; may be None
    form: str
    length: int = 0  #: to pad to
    cut: bool = False  #: whether longer rows are truncated

    @property
    def spec(self) -> ArraySpec:
        """The feature's array in an element."""
        dtype = np.dtype(tf.as_dtype(self.dtype).as_numpy_dtype)
        if self.form == "ragged":
            return ArraySpec((None, *self.shape), dtype, "ragged")
        if self.form == "mask":
            return ArraySpec((self.length,), np.dtype(np.bool_))
        length = (self.length,) if self.form == "padded" else ()
        return ArraySpec((*length, *self.shape), dtype)

    @property
    def stored(self) -> Any:
        """The feature to pass to ``tf.io.parse_example``."""
        if self.form == "fixed":
            return tf.io.FixedLenFeature(self.shape, self.dtype, self.default)
        inner = [tf.io.RaggedFeature.UniformRowLength(length) for length in self.shape]
        return tf.io.RaggedFeature(self.dtype, self.key, inner, row_splits_dtype=tf.int64)

    def made_of(self, stored: Any) -> Any:
        """Return the rows of a batch as the element has them, from what was stored."""
        if self.form == "fixed":
            return stored
        values = tf.reshape(stored.flat_values, (-1, *self.shape))
        rows = tf.RaggedTensor.from_row_splits(values, stored.row_splits, validate=False)
        if self.form == "ragged":
            return rows
        lengths, most = rows.row_lengths(), tf.constant(self.length, tf.int64)
        if not self.cut:
            message = f"more values in `{self.key}` than the {self.length} of `pad`; see `cut`"
            fits = tf.debugging.assert_less_equal(lengths, most, message)
            with tf.control_dependencies([] if fits is None else [fits]):
                lengths = tf.identity(lengths)
                rows = rows.with_values(tf.identity(values))
        if self.form == "mask":
            return tf.sequence_mask(lengths, most)
        return rows.to_tensor(self.default, shape=(None, self.length, *self.shape))


@dataclass(frozen=True)
class ParseExamples:
    """A function that parses a batch of records with ``tf.io.parse_example``; see `Parsed`."""

    features: tuple[Feature, ...]

    @property
    def spec(self) -> dict[str, ArraySpec]:
        """Spec of a parsed element."""
        return {feature.name: feature.spec for feature in self.features}

    def tensors(self, records: tf.Tensor) -> tuple[Any, ...]:
        """Return the features of records, shape (steps, batch), for `to_tf`.

        Each tensor has an axis of steps in front; that of ragged rows is a ``tf.RaggedTensor``.
        """
        tensors: list[Any] = []
        with tf.device("CPU"):
            steps, batch = tf.unstack(tf.shape(records, tf.int64))
            for made in self._parsed(tf.reshape(records, [-1])).values():
                if isinstance(made, tf.RaggedTensor):
                    splits = tf.range(steps + 1) * batch
                    tensors.append(tf.RaggedTensor.from_row_splits(made, splits, validate=False))
                else:
                    shape = tf.concat([tf.shape(records), tf.shape(made)[1:]], 0)
                    stacked = tf.reshape(made, shape)
                    tensors.append(tf.ensure_shape(stacked, (*records.shape, *made.shape[1:])))
        return tuple(tensors)

    def _parsed(self, records: tf.Tensor) -> dict[str, Any]:
        """Return the features of records, shape (n,)."""
        features = {feature.name: feature.stored for feature in self.features}
        stored = tf.io.parse_example(records, features)
        return {each.name: each.made_of(stored[each.name]) for each in self.features}

    def __call__(self, records: NDArray[Any]) -> dict[str, Any]:
        """Return the features of records, shape (n,), as arrays and `RaggedBatch`."""
        with tf.device("CPU"):
            return {
                name: RaggedBatch(tensor.flat_values.numpy(), tensor.row_splits.numpy())
                if isinstance(tensor, tf.RaggedTensor)
                else tensor.numpy()
                for name, tensor in self._parsed(records).items()
            }

    def fault(self, record: bytes) -> str:
        """Return why a record can't be parsed, in TensorFlow's words; empty if it can."""
        try:
            self(np.array([record], object))
        except tf.errors.OpError as error:
            text: str = error.message.rpartition("}} ")[2].partition(" [Op:")[0]
            return text.splitlines()[0].removeprefix("Name: <unknown>, ").rstrip(".")
        except UnicodeDecodeError:  # TensorFlow puts the record's bytes into its message
            return "Could not parse example input"
        return ""


def _as_text(default: Any) -> Any:
    """Return bytes as text if they are UTF-8: the same to TensorFlow, and valid in JSON."""
    if isinstance(default, list):
        return [_as_text(element) for element in default]
    with suppress(AttributeError, UnicodeDecodeError):
        return default.decode()
    return default


def parse(
    records: Dataset,
    features: Mapping[str, Any],
    pad: int | Mapping[str, int] | None = None,
    cut: bool = False,
    mask: bool = False,
) -> Parsed:
    """Return the dataset of the features of records; see `oocdata.View.parse`."""
    if records.spec != ArraySpec((), np.dtype(object)):
        raise ArgumentError(
            "`parse` must be called on records, one a row, as TFRecord files have; got "
            f"{records!r}."
        )
    if not isinstance(features, Mapping) or not features:
        raise ArgumentError(
            f"`features` must be a dict of tf.io.FixedLenFeature and others by name; got "
            f"{features!r}."
        )
    cut, mask = as_flag("cut", cut), as_flag("mask", mask)
    made = [_feature(str(name), feature) for name, feature in features.items()]
    unequal = [feature.name for feature in made if feature.form == "ragged"]
    lengths = pad if isinstance(pad, Mapping) else dict.fromkeys(unequal, pad)
    if not set(lengths) <= set(unequal) or (pad is not None and not unequal):
        raise ArgumentError(f"`pad` must name features of unequal length, {unequal}; got {pad!r}.")
    for place, feature in reversed([*enumerate(made)]):
        if (length := lengths.get(feature.name)) is not None:
            length = as_count("pad", length)
            padded = replace(feature, form="padded", length=length, cut=cut)
            masks = [replace(padded, name=f"{feature.name}_mask", form="mask")] if mask else []
            made[place : place + 1] = [padded, *masks]
    names = [feature.name for feature in made]
    if len(set(names)) < len(names):
        raise ArgumentError(f"`features` must leave the names of masks free; got {names}.")
    function = ParseExamples(tuple(made))
    try:
        function(np.zeros(0, object))
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise ArgumentError(
            f"`features` must be such as tf.io.parse_example takes; {error}"
        ) from error
    parsed = Parsed(records, function, batched=True, rng=False)
    if len(parsed):  # wrong features are found at once, usually
        with suppress(SourceError):
            parsed.take([0])
    return parsed


def _feature(name: str, feature: Any) -> Feature:
    """Return one of the features that are passed to `parse`, checked."""
    key, default = name, None
    shape: Any = ()
    if isinstance(feature, tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature):
        shape, default = feature.shape, feature.default_value
    elif isinstance(feature, tf.io.RaggedFeature):
        key = feature.value_key or name
        shape = [getattr(partition, "length", None) for partition in feature.partitions]
    kinds: Any = (tf.io.FixedLenFeature, tf.io.FixedLenSequenceFeature)
    kinds += (tf.io.RaggedFeature, tf.io.VarLenFeature)
    form = "fixed" if isinstance(feature, tf.io.FixedLenFeature) else "ragged"
    shape = tf.TensorShape(shape)
    known = shape.is_fully_defined() and (form == "fixed" or prod(shape))
    missing = getattr(feature, "allow_missing", True)
    if not (isinstance(feature, kinds) and missing and known) or feature.dtype not in _DTYPES:
        raise ArgumentError(
            "`features` must be FixedLenFeature, VarLenFeature, RaggedFeature, or "
            "FixedLenSequenceFeature with allow_missing=True, of known shapes, and of int64, "
            f"float32 or string; got {feature} for {name!r}. Others are parsed after the pipeline: "
            "loader.to_tf().map(lambda records: tf.io.parse_example(records, features))."
        )
    dtype = tf.as_dtype(feature.dtype)
    if default is None and form == "ragged":
        default = "" if dtype == tf.string else dtype.as_numpy_dtype(0).item()
    elif default is not None:
        # As objects: NumPy's bytes dtype drops trailing zeros.
        default = np.asarray(default, object if dtype == tf.string else None).tolist()
        default = _as_text(default)
    return Feature(name, key, tuple(shape), dtype.name, default, form)
