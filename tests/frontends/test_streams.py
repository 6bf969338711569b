"""Generators in tf.data and Keras: every yielded element once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.errors import ArgumentError, EmptyError, MapError, RestoreError, WorkerError

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

COUNT = 103

pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")


def _pairs() -> Any:
    # Inside a function, so that it is pickled by value and workers need not import TensorFlow.
    def pairs(num_shards: int, index: int) -> Iterator[tuple[Any, Any]]:
        for number in range(index, 103, num_shards):
            yield np.full((2,), number, "f4"), number

    return pairs


pairs = _pairs()


def without_end() -> Iterator[tuple[Any, Any]]:
    number = 0
    while True:
        yield np.full((2,), number, "f4"), np.float32(number)
        number += 1


class Notes(keras.callbacks.Callback):
    """Records the steps of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps[-1] += 1


class Batches(keras.layers.Layer):
    """A layer that records the first number of each element."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[int] = []

    def call(self, x: Any) -> Any:
        def note(array: Any) -> Any:
            self.elements.extend(array[:, 0].astype(int).tolist())
            return array

        return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)


def fitted(data: Any, **options: Any) -> tuple[list[int], list[int]]:
    """Return the elements that a model was trained on, and the steps of each epoch."""
    seen, notes = Batches(), Notes()
    model = keras.Sequential([keras.Input((2,)), seen, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(1e-9), loss="mse")
    model.fit(data, verbose=0, callbacks=[notes], **options)
    return seen.elements, notes.steps


# The other two pairs: test_fit_takes_each_epoch_whole, and tests/reading/test_generators.py.
@pytest.mark.parametrize(("workers", "drop"), [(0, True), (2, False)])
def test_each_pass_has_each_element_once(workers: int, drop: bool) -> None:
    stream = ooc.generate(pairs, workers=workers, shard=True).batches(8, drop_remainder=drop)
    dataset = stream.to_tf()
    length = 8 if drop else None
    assert dataset.element_spec == (
        tf.TensorSpec((length, 2), tf.float32), tf.TensorSpec((length,), tf.int64),
    )  # fmt: skip
    for _ in range(2):
        batches = list(dataset.as_numpy_iterator())
        numbers = np.concatenate([number for _, number in batches])
        assert [len(number) for _, number in batches] == [8] * 12 + [7] * (not drop)
        assert len(numbers) == len(set(numbers.tolist()))
        if not drop:
            assert_array_equal(np.sort(numbers), np.arange(COUNT))
        for frames, number in batches:
            assert_array_equal(frames[:, 1], number)
    for got, truth in zip(batches, stream, strict=True):
        assert_array_equal(got[1], truth[1])


def test_fit_takes_each_epoch_whole() -> None:
    generated = ooc.generate(pairs, workers=0, shard=True, length=COUNT)
    for data in (generated.batches(10).to_tf(), generated.batches(10).to_keras()):
        elements, steps = fitted(data, epochs=3, shuffle=False)
        assert elements == list(range(COUNT)) * 3
        assert steps == [11] * 3


def test_a_length_is_the_cardinality() -> None:
    for drop, steps in ((False, 11), (True, 10)):
        generated = ooc.generate(pairs, workers=0, shard=True, length=COUNT)
        dataset = generated.batches(10, drop_remainder=drop).to_tf()
        assert dataset.cardinality() == len(list(dataset)) == steps
    even = ooc.generate(pairs, workers=0, shard=True, length=COUNT + 7).batches(10)
    assert even.to_tf().element_spec[1].shape == (10,)
    with pytest.raises(MapError, match="there were 103"):
        list(even.to_tf())
    fewer = ooc.generate(pairs, workers=0, shard=True, length=COUNT - 3).batches(10)
    with pytest.raises(MapError, match="there were more"):
        list(fewer.to_tf())


def test_fit_continues_with_endless_generators() -> None:
    spec = (ooc.ArraySpec((2,), np.dtype("f4")), ooc.ArraySpec((), np.dtype("f4")))
    stream = ooc.generate(without_end, spec, workers=0).batches(4, drop_remainder=True)
    elements, steps = fitted(stream.to_tf(), epochs=3, steps_per_epoch=5)
    assert steps == [5] * 3
    assert elements == list(range(60))


@pytest.mark.parametrize("shuffle", [False, True])
def test_keras_gets_the_batches_in_order(shuffle: bool) -> None:
    batches = ooc.generate(pairs, workers=0, shard=True).batches(10).to_keras(steps=4)
    assert len(batches) == 4
    elements, steps = fitted(batches, epochs=3, shuffle=shuffle)
    assert steps == [4] * 3
    assert elements == [*range(40)] * 3 or (
        shuffle and sorted(elements) == sorted([*range(40)] * 3)
    )


def test_each_epoch_of_keras_draws_anew() -> None:
    def draws(rng: np.random.Generator) -> Iterator[Any]:
        for number in rng.integers(1 << 20, size=12):
            yield np.full(2, number, "f4"), np.float32(number)

    stream = ooc.generate(draws, workers=0, rng=True, length=12).batches(4)
    batches = stream.to_keras()
    elements = fitted(batches, epochs=2, shuffle=False)[0] + fitted(batches, shuffle=False)[0]
    expected = [batch[1] for epoch in range(3) for batch in stream.epoch(epoch)]
    assert elements == np.concatenate(expected).tolist()


@pytest.mark.parametrize(("steps", "epochs"), [(3, 2), (2, 6)])
def test_keras_takes_parts_of_an_epoch_of_generators(steps: int, epochs: int) -> None:
    """With `steps_per_epoch`, the generators go on from one epoch of Keras to the next."""
    batches = ooc.generate(pairs, workers=0, shard=True).batches(10).to_keras(steps=6)
    elements, _ = fitted(batches, epochs=epochs, steps_per_epoch=steps, shuffle=False)
    assert elements == [*range(60)] * (steps * epochs // 6)


@pytest.mark.parametrize("builds", [False, True], ids=["another fit", "a build"])
def test_steps_of_a_pass_that_was_broken_off_are_not_taken_for_the_next(builds: bool) -> None:
    """Keras, which may shuffle the steps, ends no epoch that a callback stops.

    Under a strategy it begins an epoch to build the model, and ends it before the first one.
    """
    batches = ooc.generate(pairs, workers=0, shard=True, length=103).batches(10).to_keras()
    assert batches.workers == 1  # Keras asks before each `fit`
    for step in (0, 1):  # and looks at these
        assert batches[step][0][0, 0] == 10 * step
    for steps in ([5, 7, 0], [8, 3, 7, 0, 1, 10, 2, 4, 5, 6, 9]):
        batches.on_epoch_begin()
        found = [number for step in steps for number in batches[step][1].tolist()]
        if len(steps) < len(batches):
            assert (batches.on_epoch_end() if builds else batches.workers) in (None, 1)
    batches.on_epoch_end()
    assert sorted(found) == list(range(103))


def test_epochs_under_a_strategy() -> None:
    """Keras shuffles the steps, and begins each `fit` with a pass that it breaks off."""
    batches = ooc.generate(pairs, workers=0, shard=True, length=103).batches(10).to_keras()
    with tf.distribute.OneDeviceStrategy("cpu:0").scope():
        elements = [element for _ in range(2) for element in fitted(batches, epochs=2)[0]]
    for epoch in range(4):
        assert sorted(elements[103 * epoch : 103 * (epoch + 1)]) == list(range(103))


def test_generators_that_end_too_soon() -> None:
    batches = ooc.generate(pairs, workers=0, shard=True).batches(10).to_keras(steps=12)
    with pytest.raises(EmptyError, match="they ended before step 11 of 12"):
        fitted(batches, shuffle=False)
    few = ooc.generate(lambda: iter(range(3)), workers=0).batches(4, drop_remainder=True)
    with pytest.raises(EmptyError, match=r"before step 0 of 2, and the remainder is dropped\."):
        few.to_keras(2)[0]
    with pytest.raises(EmptyError, match=r"at most the 3 elements of an epoch .* got 4"):
        ooc.generate(lambda: iter(range(3)), workers=0, length=3).batches(4, drop_remainder=True)
    with pytest.raises(ArgumentError, match="`steps` must be given"):
        ooc.generate(pairs, workers=0, shard=True).batches(10).to_keras()


def test_validation_data() -> None:
    val = ooc.generate(pairs, workers=0, shard=True, length=COUNT).batches(10)
    elements, _ = fitted(
        val.to_keras(), shuffle=False, epochs=2, validation_data=val.to_tf(),
    )  # fmt: skip
    assert elements == list(range(COUNT)) * 4


def test_fit_raises_the_original_exception() -> None:
    def make() -> Iterator[Any]:
        yield from ((np.zeros(2, "f4"), 0) for _ in range(20))
        raise LookupError("no more scenes")

    for data in (
        ooc.generate(make, workers=1).batches(8).to_tf(),
        ooc.generate(make, workers=1).batches(8).to_keras(9),
    ):
        with pytest.raises(LookupError, match="no more scenes") as caught:
            fitted(data)
        assert "in make" in "".join(caught.value.__notes__)


def test_ignored_errors_end_the_pass() -> None:
    def make() -> Iterator[int]:
        yield from range(13)
        raise LookupError

    dataset = ooc.generate(make, workers=0).batches(4).to_tf().ignore_errors()
    for _ in range(2):
        assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == [
            [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11],
        ]  # fmt: skip


def test_fit_raises_the_error_of_a_killed_worker() -> None:
    def make() -> Iterator[Any]:
        yield from ((np.zeros(2, "f4"), 0) for _ in range(20))
        os.kill(os.getpid(), 9)

    spec = (ooc.ArraySpec((2,), np.dtype("f4")), ooc.ArraySpec((), np.dtype("i8")))
    with pytest.raises(WorkerError, match="SIGKILL"):
        fitted(ooc.generate(make, spec, workers=1).batches(8).to_tf())


def test_iterators_cannot_be_restored(tmp_path: Path) -> None:
    dataset = ooc.generate(pairs, workers=0, shard=True).batches(8).to_tf()
    iterator = iter(dataset)
    next(iterator), next(iterator)
    path = tf.train.Checkpoint(iterator).write(str(tmp_path / "saved"))
    del iterator
    again = iter(dataset)
    with pytest.raises(RestoreError, match="generators must be read from the first on"):
        tf.train.Checkpoint(again).read(path)


def test_text_is_a_tensor_of_strings() -> None:
    stream = ooc.generate(lambda: iter(["a", "bü", ""]), workers=0).batches(2)
    dataset = stream.to_tf()
    assert dataset.element_spec == tf.TensorSpec((None,), tf.string)
    assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == [
        [b"a", "bü".encode()], [b""],
    ]  # fmt: skip
    with pytest.raises(ArgumentError, match="arrays of numbers"):
        stream.to_keras(2)


def test_generators_without_elements() -> None:
    stream = ooc.generate(lambda: iter([]), tf.TensorSpec((), tf.float32), workers=0).batches(2)
    assert list(stream) == list(stream.to_tf()) == []
    with pytest.raises(EmptyError, match="ended before step 0 of 1"):
        stream.to_keras(1)[0]
