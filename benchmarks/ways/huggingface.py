"""Hugging Face datasets: rows converted to Arrow, then read as its TensorFlow guide shows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.files import blocks
from benchmarks.ways.way import way

__all__: list[str] = []

_ROWS_AT_ONCE = 256


def _features(case: Case) -> Any:
    import datasets

    kind = np.dtype(case.dtype).name
    arrays = {2: datasets.Array2D, 3: datasets.Array3D, 4: datasets.Array4D}
    if len(case.element) in arrays:
        column = arrays[len(case.element)](case.element, kind)
    else:
        column = datasets.List(datasets.Value(kind), length=case.element[0])
    return datasets.Features(dict.fromkeys(("x", "y")[: 1 + case.pairs], column))


def convert(case: Case, path: Path) -> Path:
    """Write an Arrow file with a column of rows, or two for pairs: rows are then stored twice."""
    from datasets.arrow_writer import ArrowWriter

    arrow = path.with_name(f"{path.name}{'-pairs' * case.pairs}.arrow")
    with ArrowWriter(path=str(arrow), features=_features(case)) as writer:
        last: np.ndarray | None = None
        for _, rows in blocks(case):
            x = rows
            if case.pairs:
                x = rows if last is None else np.concatenate([last[np.newaxis], rows])
                last = rows[-1]
            for start in range(0, len(x) - case.pairs, _ROWS_AT_ONCE):
                stop = min(start + _ROWS_AT_ONCE, len(x) - case.pairs)
                columns = {"x": x[start:stop]}
                if case.pairs:
                    columns["y"] = x[start + 1 : stop + 1]
                writer.write_batch({name: list(column) for name, column in columns.items()})
        writer.finalize()
    return arrow


@way(
    "Hugging Face",
    "tensorflow",
    "datasets",
    applies=lambda case: case.format == "npy",
    tf_data=True,
    convert=convert,
)
def to_tf_dataset(case: Case, path: Path) -> Iterable[Any]:
    import datasets

    dataset = datasets.Dataset.from_file(str(path))
    batches: Iterable[Any] = dataset.to_tf_dataset(
        columns="x",
        label_cols="y" if case.pairs else None,
        batch_size=case.batch,
        shuffle=True,
        prefetch=True,
    )
    return batches


@way(
    "Hugging Face, NumPy format",
    "datasets",
    applies=lambda case: case.format == "npy",
    convert=convert,
)
def numpy_format(case: Case, path: Path) -> Iterable[Any]:
    import datasets

    dataset = datasets.Dataset.from_file(str(path)).with_format("numpy", dtype=np.dtype(case.dtype))

    class Epochs:
        epoch = 0

        def __iter__(self) -> Any:
            self.epoch += 1
            # An index of the rows in random order; flattening it would rewrite the file.
            shuffled = dataset.shuffle(seed=self.epoch, keep_in_memory=True)
            for batch in shuffled.iter(batch_size=case.batch):
                yield (batch["x"], batch["y"]) if case.pairs else batch["x"]

    return Epochs()
