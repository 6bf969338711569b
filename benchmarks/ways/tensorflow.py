"""tf.data by hand, as the guide "Build TensorFlow input pipelines" and its neighbours show it.

Positions are fully shuffled, calls into Python run in parallel where they may, and batches are
fetched ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.ways.stored import Stored
from benchmarks.ways.way import way

__all__: list[str] = []


def _arrays(batch: Any) -> list[np.ndarray]:
    return list(batch) if isinstance(batch, tuple) else [batch]


def _shaped(case: Case, arrays: list[Any], *leading: int | None) -> Any:
    import tensorflow as tf

    shaped = tuple(tf.ensure_shape(array, (*leading, *case.element)) for array in arrays)
    return shaped if case.pairs else shaped[0]


def _positions(case: Case) -> Any:
    """Return a dataset of one tensor, all positions in an order of its own in each epoch.

    `shuffle` with a buffer for all of them gives the same, but takes seconds to fill a million.
    """
    import tensorflow as tf

    once = tf.data.Dataset.range(1)
    return once.map(lambda _: tf.random.shuffle(tf.range(case.elements, dtype=tf.int64)))


@way("from_generator", "tensorflow", tf_data=True)
def from_generator(case: Case, path: Path) -> Any:
    import tensorflow as tf

    stored = Stored(case, path)
    rng = np.random.default_rng(1)

    def elements() -> Iterator[Any]:
        for position in rng.permutation(case.elements).tolist():
            yield stored.element(position)

    spec = tf.TensorSpec(case.element, np.dtype(case.dtype))
    signature = (spec, spec) if case.pairs else spec
    dataset = tf.data.Dataset.from_generator(elements, output_signature=signature)
    return dataset.batch(case.batch).prefetch(tf.data.AUTOTUNE)


@way("per-element py_function", "tensorflow", tf_data=True)
def per_element(case: Case, path: Path) -> Any:
    import tensorflow as tf

    stored = Stored(case, path)
    dtypes = [np.dtype(case.dtype)] * (1 + case.pairs)

    def read(position: Any) -> list[np.ndarray]:
        return _arrays(stored.element(int(position)))

    def element(position: Any) -> Any:
        return _shaped(case, tf.py_function(read, [position], dtypes))

    dataset = _positions(case).unbatch()
    dataset = dataset.map(element, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(case.batch).prefetch(tf.data.AUTOTUNE)


def _vectorised(case: Case, path: Path, call: Callable[..., Any]) -> Any:
    import tensorflow as tf

    stored = Stored(case, path)
    dtypes = [np.dtype(case.dtype)] * (1 + case.pairs)

    def read(positions: Any) -> list[np.ndarray]:
        return _arrays(stored.batch(np.asarray(positions)))

    def batch(positions: Any) -> Any:
        return _shaped(case, call(read, [positions], dtypes), None)

    dataset = _positions(case).rebatch(case.batch)
    dataset = dataset.map(batch, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)


@way("vectorised py_function", "tensorflow", tf_data=True)
def vectorised_py_function(case: Case, path: Path) -> Any:
    import tensorflow as tf

    return _vectorised(case, path, tf.py_function)


@way("vectorised numpy_function", "tensorflow", tf_data=True)
def vectorised_numpy_function(case: Case, path: Path) -> Any:
    import tensorflow as tf

    return _vectorised(case, path, tf.numpy_function)


@way("limit: tf.data alone", "tensorflow", kind="limit", applies=lambda case: not case.stamped)
def tf_data_alone(case: Case, path: Path) -> Any:
    """What a dataset of this kind costs before anything is read: building it, and one call."""
    import tensorflow as tf

    batch = np.zeros((case.batch, *case.element), case.dtype)

    def read(step: Any) -> Any:
        (made,) = tf.numpy_function(lambda step: [batch], [step], [batch.dtype])
        return tf.ensure_shape(made, batch.shape)

    dataset = tf.data.Dataset.range(-(-case.elements // case.batch))
    return dataset.map(read, num_parallel_calls=2).prefetch(2)
