"""The ways to feed a model, each as its own documentation recommends, behind one signature.

A way gets a case and a file and returns something to iterate over again and again: an epoch of
shuffled pairs in batches. What it imports, it imports inside: each way runs in a process of its
own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from benchmarks.case import Case

__all__ = ["WAYS", "Way"]

Way = Callable[[Case, str], Iterable[Any]]


def oocdata_tf(case: Case, path: str) -> Iterable[Any]:
    import oocdata as ooc

    return ooc.open(path).next_frame().batches(case.batch, shuffle=True, seed=1).to_tf()


def oocdata_numpy(case: Case, path: str) -> Iterable[Any]:
    import oocdata as ooc

    return ooc.open(path).next_frame().batches(case.batch, shuffle=True, seed=1)


def from_generator(case: Case, path: str) -> Iterable[Any]:
    import tensorflow as tf

    array = np.load(path, mmap_mode="r")
    rng = np.random.default_rng(1)

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in rng.permutation(case.pairs):
            yield array[i], array[i + 1]

    spec = tf.TensorSpec(case.element, np.dtype(case.dtype))
    dataset = tf.data.Dataset.from_generator(pairs, output_signature=(spec, spec))
    return dataset.batch(case.batch).prefetch(tf.data.AUTOTUNE)


def per_element_py_function(case: Case, path: str) -> Iterable[Any]:
    import tensorflow as tf

    array = np.load(path, mmap_mode="r")
    dtype = tf.as_dtype(np.dtype(case.dtype))

    def read(i: Any) -> tuple[np.ndarray, np.ndarray]:
        return array[i], array[i + 1]

    def pair(i: Any) -> tuple[Any, Any]:
        x, y = tf.py_function(lambda i: read(i.numpy()), [i], [dtype, dtype])
        return tf.ensure_shape(x, case.element), tf.ensure_shape(y, case.element)

    dataset = tf.data.Dataset.range(case.pairs).shuffle(case.pairs, seed=1)
    dataset = dataset.map(pair, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(case.batch).prefetch(tf.data.AUTOTUNE)


def _pydataset(case: Case, path: str, workers: int) -> Iterable[Any]:
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Pairs(keras.utils.PyDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(workers=workers)
            self.array = np.load(path, mmap_mode="r")
            self.rng = np.random.default_rng(1)
            self.on_epoch_end()

        def __len__(self) -> int:
            return -(-case.pairs // case.batch)

        def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
            some = np.sort(self.order[step * case.batch : (step + 1) * case.batch])
            return self.array[some], self.array[some + 1]

        def on_epoch_end(self) -> None:
            self.order = self.rng.permutation(case.pairs)

    class Epochs:
        """What `fit` does with it: a tf.data.Dataset made once, a hook at the end of an epoch."""

        def __init__(self) -> None:
            self.pairs = Pairs()
            self.dataset = PyDatasetAdapter(self.pairs).get_tf_dataset()

        def __iter__(self) -> Iterator[Any]:
            yield from self.dataset
            self.pairs.on_epoch_end()

    return Epochs()


def pydataset_1(case: Case, path: str) -> Iterable[Any]:
    return _pydataset(case, path, 1)


def pydataset_2(case: Case, path: str) -> Iterable[Any]:
    return _pydataset(case, path, 2)


def _copy(case: Case, path: str, threads: int) -> Iterable[Any]:
    """The limit: rows copied from a mapping into buffers that are there already, nothing else."""
    array = np.load(path, mmap_mode="r")
    rows = np.ndarray((case.rows,), f"V{case.row_bytes}", array)
    order = np.random.default_rng(1).permutation(case.pairs)
    starts = range(0, case.pairs, case.batch)

    def work(number: int) -> None:
        buffers = [np.zeros(case.batch, rows.dtype) for _ in range(2)]
        for start in starts[number::threads]:
            some = order[start : start + case.batch]
            for shift, buffer in enumerate(buffers):
                np.take(rows, some + shift, out=buffer[: len(some)], mode="clip")

    class Copies:
        def __iter__(self) -> Iterator[int]:
            team = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
            for thread in team:
                thread.start()
            for thread in team:
                thread.join()
            yield case.pairs

    return Copies()


def limit_1(case: Case, path: str) -> Iterable[Any]:
    return _copy(case, path, 1)


def limit_2(case: Case, path: str) -> Iterable[Any]:
    return _copy(case, path, 2)


WAYS: dict[str, Way] = {
    "oocdata to_tf": oocdata_tf,
    "oocdata NumPy": oocdata_numpy,
    "from_generator": from_generator,
    "per-element py_function": per_element_py_function,
    "PyDataset, 1 worker": pydataset_1,
    "PyDataset, 2 workers": pydataset_2,
    "limit: copy, 1 thread": limit_1,
    "limit: copy, 2 threads": limit_2,
}
