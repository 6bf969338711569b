"""``python -m benchmarks.generators``: a generator in Python, ours beside from_generator and Keras.

Each element is a frame of 30 KB that takes a loop in Python of the length that is given. Each way
has a process of its own; they take turns, an epoch each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.taking_turns import Batches, measured, parser, passes, serve, table

__all__ = ["WAYS", "main"]

_BATCH = 32


def _made(number: int, work: int) -> tuple[Any, int]:
    position, velocity = 0.0, 1.0 + int(number)
    for _ in range(work):
        velocity -= 0.001 * position
        position += 0.001 * velocity
    return np.full((3, 50, 50), position, "f4"), number


def _scenes(count: int, work: int, num_shards: int = 1, index: int = 0) -> Iterator[Any]:
    for number in range(index, count, num_shards):
        yield _made(number, work)


def _ours(count: int, work: int, workers: int) -> Any:
    import oocdata as ooc

    make = partial(_scenes, count, work)
    return ooc.generate(make, workers=workers, shard=True, length=count).batches(_BATCH)


def _numpy(count: int, work: int) -> Batches:
    return _ours(count, work, 2).__iter__


def _to_tf(count: int, work: int, workers: int = 2) -> Batches:
    return passes(_ours(count, work, workers), to_tf=True)


def _mapped(count: int, work: int) -> Batches:
    import oocdata as ooc

    numbers = ooc.open(np.arange(count)).map(partial(_made, work=work), batched=False)
    return passes(numbers.batches(_BATCH, shuffle=True, workers=2), to_tf=True)


def _from_generator(count: int, work: int) -> Batches:
    import tensorflow as tf

    spec = (tf.TensorSpec((3, 50, 50), tf.float32), tf.TensorSpec((), tf.int64))
    dataset = tf.data.Dataset.from_generator(lambda: _scenes(count, work), output_signature=spec)
    dataset = dataset.batch(_BATCH).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset


def _keras(count: int, work: int, **options: Any) -> Batches:
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Scenes(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return -(-count // _BATCH)

        def __getitem__(self, step: int) -> Any:
            some = range(step * _BATCH, min(count, (step + 1) * _BATCH))
            frames, numbers = zip(*(_made(number, work) for number in some), strict=True)
            return np.stack(frames), np.array(numbers)

    adapter = PyDatasetAdapter(Scenes(**options))  # what `fit` reads it by

    def batches() -> Iterator[Any]:
        adapter.on_epoch_begin()
        yield from adapter.get_tf_dataset()
        adapter.on_epoch_end()

    return batches


WAYS: dict[str, Callable[[int, int], Batches]] = {
    "oocdata to_tf": _to_tf,
    "oocdata NumPy": _numpy,
    "oocdata, no worker": partial(_to_tf, workers=0),
    "oocdata, numbers mapped": _mapped,
    "from_generator": _from_generator,
    "PyDataset": _keras,
    "PyDataset, 2 processes": partial(_keras, workers=2, use_multiprocessing=True),
}


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a way does not deliver every element."""
    line = parser("benchmarks.generators", __doc__, "elements of an epoch", 6_400, files=False)
    line.add_argument("--work", type=int, default=10_000, help="rounds of Python for each (10,000)")
    options = line.parse_args(arguments)
    if options.way:
        serve(WAYS[options.way](options.count, options.work), lambda batch: len(batch[1]))
        return 0
    given = ["--count", str(options.count), "--work", str(options.work)]
    found = measured("benchmarks.generators", WAYS, given, options.rounds)
    print(f"{options.count:,} elements of {options.work:,} rounds of Python\n")
    return table(found, "element", lambda _: "oocdata to_tf", options.count)


if __name__ == "__main__":
    raise SystemExit(main())
