"""keras.utils.PyDataset: a batch by its number, as Keras's documentation shows it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.ways.stored import Stored
from benchmarks.ways.way import way

__all__: list[str] = []

WORKERS = os.cpu_count() or 2


def _pydataset(case: Case, path: Path, workers: int) -> Iterable[Any]:
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Elements(keras.utils.PyDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(workers=workers)
            self.stored = Stored(case, path)
            self.rng = np.random.default_rng(1)
            self.on_epoch_end()

        def __len__(self) -> int:
            return -(-case.elements // case.batch)

        def __getitem__(self, step: int) -> tuple[np.ndarray, ...]:
            some = self.order[step * case.batch : (step + 1) * case.batch]
            batch = self.stored.batch(some)
            return batch if case.pairs else (batch,)

        def on_epoch_end(self) -> None:
            self.order = self.rng.permutation(case.elements)

    class Epochs:
        """What `fit` does with it: a tf.data.Dataset made once, hooks around an epoch."""

        def __init__(self) -> None:
            self.elements = Elements()
            self.begin()

        def begin(self) -> None:
            self.adapter = PyDatasetAdapter(self.elements)
            self.dataset = self.adapter.get_tf_dataset()

        def __iter__(self) -> Iterator[Any]:
            self.adapter.on_epoch_begin()
            stopped = True
            try:
                yield from self.dataset
                stopped = False
            finally:
                self.adapter.on_epoch_end()
                if stopped:
                    # Batches of the old order wait in its queue, for an epoch that `fit` would
                    # have gone on with.
                    self.begin()

    return Epochs()


@way("PyDataset, 1 worker", "tensorflow", "keras")
def one_worker(case: Case, path: Path) -> Iterable[Any]:
    return _pydataset(case, path, 1)


@way(f"PyDataset, {WORKERS} workers", "tensorflow", "keras")
def several_workers(case: Case, path: Path) -> Iterable[Any]:
    return _pydataset(case, path, WORKERS)
