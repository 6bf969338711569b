"""Parse records that are serialized ``tf.train.Example`` messages, a batch at a time.

Features of unequal length are parsed as ragged rows, all kinds alike. Those that are padded to one
length become arrays of that length; for the others, each batch is padded when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from oocdata.index import as_bounds, as_count, as_flag

with needed("`parse` needs TensorFlow", "tensorflow"):
    import tensorflow as tf

__all__ = ["Feature", "ParseExamples", "parse"]

_LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}
"""The list of a ``tf.train.Feature`` that stores a dtype."""

_DTYPES = tf.int64, tf.float32, tf.string


@dataclass(frozen=True)
class Feature:
    """A feature to parse.

    Attributes
    ----------
    name, key : str
        Its name in an element, and in a record.
    shape : tuple of int
        Shape; of a feature of unequal length, of one position.
    dtype : str
        int64, float32 or string.
    default : scalar, list or None
        Default of a feature of fixed length; padding of one of unequal length.
    form : {"dense", "ragged", "padded"}
        As in `ArraySpec`; dense with `lengths` if padded to one length.
    lengths : tuple of int
        Lengths to pad to: each batch to the smallest that holds its rows; none for the longest row.
    cut : bool
        Whether longer rows are truncated.
    is_mask : bool
        Whether this is the mask of values, instead of the values.
    """

    name: str
    key: str
    shape: tuple[int, ...]
    dtype: str
    default: Any = None
    form: Any = "dense"
    lengths: tuple[int, ...] = ()
    cut: bool = False
    is_mask: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether the feature has one length in all records."""
        return self.form == "dense" and not self.lengths

    @property
    def spec(self) -> ArraySpec:
        """Spec in an element."""
        dtype = np.dtype(bool if self.is_mask else tf.as_dtype(self.dtype).as_numpy_dtype)
        inner = () if self.is_mask else self.shape
        if self.is_fixed:
            return ArraySpec(inner, dtype)
        if self.form == "dense":
            return ArraySpec((*self.lengths, *inner), dtype)
        lengths = ", ".join(map(str, self.lengths)) or "the longest"
        padding = f"with {self.default!r} up to {lengths}" if self.form == "padded" else ""
        return ArraySpec((None, *inner), dtype, self.form, padding)

    def padded(self, rows: tf.RaggedTensor) -> tf.Tensor:
        """Return the rows of a batch as an array, or their mask."""
        lengths = rows.row_lengths()
        width = tf.maximum(tf.reduce_max(lengths), 0)  # of no rows, the least number
        if self.lengths:
            bounds = tf.constant(self.lengths, tf.int64)
            place = tf.searchsorted(bounds, width[None])[0]
            width = bounds[tf.minimum(place, len(self.lengths) - 1)]
        if self.is_mask:
            made = tf.sequence_mask(lengths, width)
        else:
            made = rows.to_tensor(self.default, shape=tf.stack([-1, width, *self.shape]))
        return tf.ensure_shape(made, (rows.shape[0], *self.spec.shape))

    def fault(self, stored: Mapping[str, Any]) -> str:
        """Return how the features stored in a record differ from this one; empty if they do not."""
        kind = stored[self.key].WhichOneof("kind") if self.key in stored else None
        if kind is None:
            if not self.is_fixed or self.default is not None:
                return ""
            return (
                f"must have the feature {self.key!r}, unless that has a default_value; it has "
                f"{', '.join(map(repr, sorted(stored))) or 'none'}"
            )
        if kind != _LISTS[self.dtype]:
            (other,) = [dtype for dtype, name in _LISTS.items() if name == kind]
            return f"must store {self.key!r} as {self.dtype}; it is stored as {other}"
        count, size = len(getattr(stored[self.key], kind).value), prod(self.shape)
        if self.is_fixed and count != size:
            return (
                f"must have {size} values of {self.key!r}, for shape {self.shape}; it has {count}"
            )
        if not self.is_fixed and count % size:
            return f"must have a multiple of {size} values of {self.key!r}; it has {count}"
        if self.lengths and not self.cut and count // size > self.lengths[-1]:
            return (
                f"must have at most {self.lengths[-1]} values in {self.key!r}, the length in "
                f"`pad`, unless cut=True; it has {count // size}"
            )
        return ""


@dataclass(frozen=True)
class ParseExamples:
    """A function that parses a batch of records with ``tf.io.parse_example``; a `Parser`."""

    features: tuple[Feature, ...]

    @property
    def spec(self) -> dict[str, ArraySpec]:
        """Spec of a parsed element."""
        return {feature.name: feature.spec for feature in self.features}

    @property
    def ragged(self) -> ParseExamples:
        """Parser of the features of unequal length alone, as ragged rows."""
        ragged = [
            replace(feature, form="ragged", lengths=())
            for feature in self.features
            if not feature.is_fixed and not feature.is_mask
        ]
        return ParseExamples(tuple(ragged))

    @property
    def pads_batches(self) -> bool:
        """Whether a batch is complete only after `padded`."""
        return any(feature.form == "padded" for feature in self.features)

    def tensors(self, records: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the features of records, shape (steps, batch), for `to_tf`.

        Each tensor has an axis of steps in front; ragged rows are two, values and row splits. Rows
        that are padded to another length in each batch are ragged here; see `padded`.
        """
        tensors: list[tf.Tensor] = []
        with tf.device("CPU"):
            steps, batch = tf.unstack(tf.shape(records, tf.int64))
            for made in self._parsed(tf.reshape(records, [-1])).values():
                if isinstance(made, tf.RaggedTensor):
                    places = tf.range(steps)[:, None] * batch + tf.range(batch + 1)
                    splits = tf.gather(made.row_splits, places)
                    ends = tf.concat([splits[:, 0], made.row_splits[-1:]], 0)
                    by_step = tf.RaggedTensor.from_row_splits(made.values, ends, validate=False)
                    size = records.shape[1]
                    splits = tf.ensure_shape(
                        splits - splits[:, :1], (None, None if size is None else size + 1)
                    )
                    tensors += [by_step.to_tensor(), splits]
                else:
                    shape = tf.concat([tf.shape(records), tf.shape(made)[1:]], 0)
                    stacked = tf.reshape(made, shape)
                    tensors.append(tf.ensure_shape(stacked, (*records.shape, *made.shape[1:])))
        return tuple(tensors)

    def padded(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch with the rows padded whose length differs from batch to batch."""
        with tf.device("CPU"):
            return {
                feature.name: feature.padded(batch[feature.name])
                if feature.form == "padded"
                else batch[feature.name]
                for feature in self.features
            }

    def _parsed(self, records: tf.Tensor) -> dict[str, Any]:
        """Return the features of records, shape (n,), as `tensors` does."""
        stored = tf.io.parse_example(
            records,
            {
                feature.name: tf.io.FixedLenFeature(feature.shape, feature.dtype, feature.default)
                if feature.is_fixed
                else tf.io.RaggedFeature(feature.dtype, feature.key, row_splits_dtype=tf.int64)
                for feature in self.features
            },
        )
        parsed = {}
        for feature in self.features:
            tensor = stored[feature.name]
            if not feature.is_fixed:
                tensor = _rows(feature, tensor)
                tensor = feature.padded(tensor) if feature.form == "dense" else tensor
            parsed[feature.name] = tensor
        return parsed

    def __call__(self, records: NDArray[Any]) -> dict[str, Any]:
        """Return the features of records, shape (n,), as arrays and `RaggedBatch`."""
        batch = self.padded(self._parsed(records))
        return {
            name: RaggedBatch(tensor.flat_values.numpy(), tensor.row_splits.numpy())
            if isinstance(tensor, tf.RaggedTensor)
            else tensor.numpy()
            for name, tensor in batch.items()
        }

    def fault(self, record: bytes) -> str:
        """Return why a record can't be parsed; empty if it can."""
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

        try:
            self._parsed(np.array([record], object))
        except tf.errors.OpError as error:
            reason = error.message.rpartition("}} ")[2].partition(" [Op:")[0]
        except UnicodeDecodeError:  # TensorFlow puts the record's bytes into its message
            reason = ""
        else:
            return ""
        try:
            stored = tf.train.Example.FromString(record).features.feature
        except DecodeError:
            return "a record must be a tf.train.Example; this one is other bytes"
        faults = filter(None, (feature.fault(stored) for feature in self.features))
        return f"a record {next(faults, f'must be parsed by TensorFlow; {reason}')}."


def _rows(feature: Feature, flat: tf.RaggedTensor) -> tf.RaggedTensor:
    """Return ragged rows of a feature's shape, made of rows of single values; checks lengths."""
    size, splits = prod(feature.shape), flat.row_splits
    if feature.shape:
        whole = tf.debugging.assert_equal(splits % size, tf.zeros_like(splits))
        with tf.control_dependencies([] if whole is None else [whole]):
            splits = splits // size
    if feature.lengths and not feature.cut:
        fits = tf.debugging.assert_less_equal(
            splits[1:] - splits[:-1],
            tf.constant(feature.lengths[-1], tf.int64),
            f"a record has more values in `{feature.key}` than `pad` allows; iterate over the "
            "loader to find its row",
        )
        with tf.control_dependencies([] if fits is None else [fits]):
            splits = tf.identity(splits)
    values = tf.reshape(flat.values, (-1, *feature.shape))
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


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
    pad: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None,
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
    checked = [_feature(str(name), feature) for name, feature in features.items()]
    unequal = [feature.name for feature in checked if not feature.is_fixed]
    by_name = pad if isinstance(pad, Mapping) else dict.fromkeys(unequal, pad)
    if not set(by_name) <= set(unequal) or (pad is not None and not unequal):
        raise ArgumentError(f"`pad` must name features of unequal length, {unequal}; got {pad!r}.")
    made: list[Feature] = []
    for feature in checked:
        to = by_name.get(feature.name)
        if to is not None:
            several = as_bounds("pad", to) if isinstance(to, Sequence) else ()
            lengths = several or (as_count("pad", to),)
            feature = replace(
                feature, form="padded" if several else "dense", lengths=lengths,
                cut=as_flag("cut", cut),
            )  # fmt: skip
        made.append(feature)
        if as_flag("mask", mask) and not feature.is_fixed and feature.form != "ragged":
            made.append(replace(feature, name=f"{feature.name}_mask", is_mask=True))
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
    parsed = Parsed(records, function, batched=True, rng=False, given=function.spec)
    if len(parsed):  # wrong features are found at once, usually
        with suppress(SourceError):
            parsed.take([0])
    return parsed


def _feature(name: str, feature: Any) -> Feature:
    """Return one of the features that are passed to `parse`, checked."""
    shape: Any = ()
    key, default, form = name, None, "ragged"
    if isinstance(feature, tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature):
        shape, default, form = feature.shape, feature.default_value, "dense"
    if isinstance(feature, tf.io.FixedLenSequenceFeature):
        form = "padded"
    elif isinstance(feature, tf.io.RaggedFeature):
        key = feature.value_key or name
        shape = [getattr(partition, "length", None) for partition in feature.partitions]
    elif not isinstance(feature, tf.io.FixedLenFeature | tf.io.VarLenFeature):
        raise ArgumentError(
            "`features` must be tf.io.FixedLenFeature, VarLenFeature, RaggedFeature or "
            f"FixedLenSequenceFeature; got {type(feature).__name__} for {name!r}. Others are "
            "parsed after the pipeline: "
            "loader.to_tf().map(lambda records: tf.io.parse_example(records, features))."
        )
    shape = tf.TensorShape(shape)
    known = shape.is_fully_defined() and (form == "dense" or prod(shape))
    missing = getattr(feature, "allow_missing", True)
    if not (missing and known) or feature.dtype not in _DTYPES:
        raise ArgumentError(
            "`features` must have known shapes, one of the dtypes that a tf.train.Example stores, "
            "int64, float32 and string, and sequences allow_missing=True; got "
            f"{feature} for {name!r}."
        )
    dtype = tf.as_dtype(feature.dtype)
    if default is None and form != "dense":
        default = "" if dtype == tf.string else dtype.as_numpy_dtype(0).item()
    elif default is not None:
        # As objects: NumPy's bytes dtype drops trailing zeros.
        default = np.asarray(default, object if dtype == tf.string else None).tolist()
        default = _as_text(default)
    return Feature(name, key, tuple(shape), dtype.name, default, form)
