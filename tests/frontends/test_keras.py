"""Keras: each element once an epoch, a new order in each epoch, and no warnings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocdata as ooc
from oocdata.errors import ArgumentError, DamagedChunkError, SourceError
from oocdata.memory import account

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

COUNT = 103

pytestmark = pytest.mark.filterwarnings(
    # Keras warns of this for every tf.data.Dataset with fit's default.
    "ignore:`shuffle=True` was passed:UserWarning"
)


class Seen(keras.layers.Layer):
    """A layer that passes elements on and records their order."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[int] = []

    def _note(self, x: np.ndarray) -> np.ndarray:
        self.elements.extend(x.ravel().astype(int).tolist())
        return x

    def call(self, x: Any) -> Any:
        noted = tf.numpy_function(self._note, [x], tf.float32)
        return tf.ensure_shape(noted, x.shape)


@cache
def _model_and_seen() -> tuple[Any, Seen]:
    seen = Seen()
    model = keras.Sequential([keras.Input((1,)), seen, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(1e-9), loss="mse")
    return model, seen


def model_and_seen() -> tuple[Any, Seen]:
    """Return a model that has seen nothing: one for all tests, or each would trace it anew."""
    model, seen = _model_and_seen()
    seen.elements.clear()
    return model, seen


def loader(*, shuffle: bool = True, drop_remainder: bool = False, first: int = 0) -> ooc.Loader:
    rows = np.arange(first, first + COUNT, dtype="f4")[:, None]
    view = ooc.open(rows)
    return ooc.zip(view, view).batches(10, shuffle=shuffle, drop_remainder=drop_remainder)


def epochs_of(elements: list[int], length: int = COUNT) -> list[list[int]]:
    assert len(elements) % length == 0
    return [elements[start : start + length] for start in range(0, len(elements), length)]


def fit(dataset: Any, **arguments: Any) -> list[int]:
    arguments.setdefault("shuffle", False)
    model, seen = model_and_seen()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(dataset, verbose=0, **arguments)
    said = [str(w.message) for w in caught]
    assert not [words for words in said if "ran out of data" in words], said
    return list(seen.elements)


DATASETS = {"tf": lambda made: made.to_tf(), "keras": lambda made: made.to_keras()}


@pytest.mark.parametrize(("all_at_once", "steps"), [(False, None), (False, 11), (True, 11)])
def test_each_element_once_an_epoch(all_at_once: bool, steps: int | None) -> None:
    dataset = loader().to_tf(epochs=3) if all_at_once else loader().to_tf()
    elements = fit(dataset, epochs=3, steps_per_epoch=steps)
    epochs = epochs_of(elements)
    assert len(epochs) == 3
    for epoch in epochs:
        assert sorted(epoch) == list(range(COUNT))
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("kind", ["tf", "keras"])
def test_with_validation_data(kind: str) -> None:
    val = DATASETS[kind](loader(shuffle=False, first=1000))
    elements = fit(DATASETS[kind](loader()), epochs=3, validation_data=val)
    train = [element for element in elements if element < 1000]
    held_out = [element for element in elements if element >= 1000]
    assert [sorted(epoch) for epoch in epochs_of(train)] == [list(range(COUNT))] * 3
    assert epochs_of(held_out) == [list(range(1000, 1000 + COUNT))] * 3


def test_part_of_an_epoch_at_a_time() -> None:
    """steps_per_epoch below an epoch: the pass continues where fit stopped."""
    elements = fit(loader().to_tf(epochs=2), epochs=4, steps_per_epoch=5)
    assert len(elements) == 4 * 5 * 10 - 7  # the short batch of the first epoch is among them
    assert sorted(elements[:COUNT]) == list(range(COUNT))


def test_evaluate_and_predict() -> None:
    model, seen = model_and_seen()
    made = loader(shuffle=False)
    model.evaluate(made.to_tf(), verbose=0)
    assert seen.elements == list(range(COUNT))
    predicted = model.predict(made.to_tf(), verbose=0)
    assert predicted.shape == (COUNT, 1)


@pytest.mark.parametrize("kind", ["tf", "keras"])
def test_fit_raises_the_original_error(kind: str) -> None:
    def broken(x: np.ndarray, y: np.ndarray) -> Any:
        if (x >= 50).any():
            raise DamagedChunkError("chunks must decode.", path="a.h5", key="/u", rows=[55])
        return x, y

    spec = (ooc.ArraySpec((1,), np.dtype("f4")),) * 2
    view = ooc.open(np.arange(100, dtype="f4")[:, None])
    made = ooc.zip(view, view).map(broken, spec=spec).batches(10)
    model, _ = model_and_seen()
    with pytest.raises(DamagedChunkError, match=r"file 'a\.h5', dataset '/u', row 55") as caught:
        model.fit(DATASETS[kind](made), verbose=0, shuffle=False)
    assert not any("Traceback" in note for note in caught.value.__notes__)


def test_static_shapes_reach_the_model() -> None:
    view = ooc.open(np.zeros((64, 8, 8, 1), "f4"))
    shapes = []

    class Shape(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            shapes.append(tuple(x.shape))
            return x

    model = keras.Sequential([Shape(), keras.layers.Conv2D(1, 3, padding="same")])
    model.compile(loss="mse")
    model.fit(view.next_frame().batches(9).to_tf(), verbose=0)
    assert shapes[-1] == (9, 8, 8, 1)


def test_pydataset_in_plain_python() -> None:
    made = loader()
    dataset = made.to_keras()
    assert len(dataset) == len(made)
    for step in (2, 0, 10, 2):
        np.testing.assert_array_equal(dataset[step][0], made.batch(step, 0)[0])
    dataset = made.to_keras()
    dataset.on_epoch_begin()
    for step in range(len(made)):
        np.testing.assert_array_equal(dataset[step][0], made.batch(step, 0)[0])


@pytest.mark.parametrize("steps", [None, 11, 4])
def test_pydataset_epochs_are_in_order(steps: int | None) -> None:
    made = loader()
    dataset = made.to_keras()
    elements = fit(dataset, epochs=2, steps_per_epoch=steps)
    expected = np.concatenate([batch[0] for epoch in (0, 1) for batch in made.epoch(epoch)])
    assert elements == expected.ravel().astype(int).tolist()[: len(elements)]
    assert len(elements) == (80 if steps == 4 else 2 * COUNT)


@pytest.mark.parametrize("first", [0, 3])
def test_pydataset_continues_in_another_fit(first: int) -> None:
    made = loader()
    dataset = made.to_keras(start=(first, 0))
    elements = fit(dataset) + fit(dataset)
    epochs = (first, first + 1)
    expected = np.concatenate([batch[0] for epoch in epochs for batch in made.epoch(epoch)])
    assert elements == expected.ravel().astype(int).tolist()


@pytest.mark.parametrize("asked", [4, 7, 11])
def test_steps_asked_ahead_do_not_choose_the_next_epoch(asked: int) -> None:
    """A fit that ends within an epoch: how far Keras had asked ahead is a matter of chance."""
    made = loader()
    dataset = made.to_keras()
    dataset.on_epoch_begin()
    for step in range(4):
        dataset[step]
    dataset.on_epoch_end()
    for step in range(4, asked):  # the threads of Keras's prefetch
        dataset[step]
    dataset[0], dataset[1]  # another fit
    dataset.on_epoch_end()
    dataset.on_epoch_begin()
    for step in range(len(made)):
        np.testing.assert_array_equal(dataset[step][0], made.batch(step, 1)[0])


def test_functions_run_in_worker_processes_only() -> None:
    """Also on the batches that Keras inspects: a function may end its process."""

    def with_pid(x: np.ndarray) -> Any:
        import os

        return x, np.full((len(x), 1), os.getpid(), "f4")

    spec = (ooc.ArraySpec((1,), np.dtype("f4")),) * 2
    view = ooc.open(np.arange(COUNT, dtype="f4")[:, None])
    made = view.map(with_pid, spec=spec).batches(10, shuffle=True, workers=1)
    dataset, expected = made.to_keras(), view.batches(10, shuffle=True)
    for epoch in range(2):
        asked = [0, 1, 0, 1, *range(len(made))]
        inspected = [dataset[step] for step in asked[:4]]
        dataset.on_epoch_begin()
        batches = [*inspected, *(dataset[step] for step in asked[4:])]
        dataset.on_epoch_end()
        for step, (x, pids) in zip(asked, batches, strict=True):
            np.testing.assert_array_equal(x, expected.batch(step, epoch))
            assert os.getpid() not in pids


def test_a_pydataset_begins_with_an_epoch_only() -> None:
    with pytest.raises(ArgumentError, match=r"`start` must have step 0, .* got \(1, 2\)"):
        loader().to_keras(start=(1, 2))


@pytest.mark.parametrize("asked", [1, 4, 11])
def test_a_step_that_builds_a_model_begins_no_epoch(asked: int) -> None:
    """With JAX, and under a strategy, Keras takes a batch within an epoch before it trains.

    How many steps it asks for meanwhile is a matter of chance, if an epoch has more than one.
    """
    made = loader()
    dataset = made.to_keras()
    for fits in range(2):
        assert dataset.workers == 1  # Keras asks before each `fit`
        for epoch, steps in ((0, asked), (0, len(made)), (1, len(made))):
            dataset.on_epoch_begin()
            for step in range(steps):
                expected = made.batch(step, 2 * fits + epoch)[0]
                np.testing.assert_array_equal(dataset[step][0], expected)
            dataset.on_epoch_end()


def test_epochs_under_a_strategy() -> None:
    """There, each `fit` builds the model, and may ask for all steps of an epoch meanwhile."""
    made = loader()
    with tf.distribute.OneDeviceStrategy("cpu:0").scope():
        seen = Seen()
        model = keras.Sequential([keras.Input((1,)), seen, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    dataset = made.to_keras()
    model.predict(dataset, verbose=0)  # builds no model
    for epochs in (2, 1):
        model.fit(dataset, epochs=epochs, shuffle=False, verbose=0)
    expected = np.concatenate([batch[0] for epoch in range(4) for batch in made.epoch(epoch)])
    assert seen.elements == expected.ravel().astype(int).tolist()


@pytest.mark.parametrize("ahead", [0, 64], ids=["as it is", "read ahead"])
def test_a_pass_that_builds_a_model_counts_under_a_strategy(ahead: int) -> None:
    """Of `to_tf`: one epoch before each `fit` and `evaluate`, however far TensorFlow reads ahead.

    Without a strategy, a `fit` of one step reads the same of its pass, which must count.
    """
    made = loader()
    data = made.to_tf().prefetch(ahead) if ahead else made.to_tf()
    with tf.distribute.OneDeviceStrategy("cpu:0").scope():
        seen = Seen()
        model = keras.Sequential([keras.Input((1,)), seen, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(data, epochs=2, shuffle=False, verbose=0)
    model.evaluate(data, verbose=0)
    model.fit(data, epochs=1, shuffle=False, verbose=0)
    epochs = [[*made.epoch(epoch)] for epoch in (1, 2, 4, 6)]
    expected = np.concatenate([batch[0] for batches in epochs for batch in batches])
    assert seen.elements == expected.ravel().astype(int).tolist()


def test_a_pydataset_begins_the_next_epoch_with_each_fit() -> None:
    """As the dataset of `to_tf` does, also where a `fit` ended within an epoch."""
    made = loader()
    dataset = made.to_keras()

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self, in_epoch: int = 0) -> None:
            super().__init__()
            self.in_epoch = in_epoch

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = (self.epoch, batch) == (self.in_epoch, 2)

    steps = []
    stop = {"callbacks": [Stop()]}
    in_part = {"epochs": 2, "steps_per_epoch": 4, "callbacks": [Stop(in_epoch=1)]}
    for options in ({"steps_per_epoch": 4}, {"steps_per_epoch": 10}, stop, in_part, {}):
        elements = fit(dataset, **options)
        steps.append([elements[first : first + 10] for first in range(0, len(elements), 10)])
    expected = [
        [made.batch(step, epoch)[0].ravel().astype(int).tolist() for step in range(number)]
        for epoch, number in enumerate((4, 10, 3, 7, 11))
    ]
    assert steps == expected


def test_a_late_request_of_the_last_fit_changes_nothing() -> None:
    """A thread of an iterator that `fit` has left may request a step within the next epoch."""
    made = loader()
    dataset = made.to_keras()
    for epoch in range(2):
        assert dataset.workers == 1  # Keras makes an iterator
        dataset.on_epoch_end()
        dataset.on_epoch_begin()
        for step in range(4):
            if step < 2:
                with pytest.raises(ArgumentError, match="asked for step 5 after"):
                    dataset[5]
            np.testing.assert_array_equal(dataset[step][0], made.batch(step, epoch)[0])
        dataset.on_epoch_end()


def test_steps_that_keras_shuffles_are_refused() -> None:
    """Shuffled steps would decode a chunk again for each of its rows."""
    with pytest.raises(ArgumentError, match=r"Pass fit\(…, shuffle=False\)"):
        fit(loader().to_keras(), epochs=3, shuffle=True)


@pytest.mark.parametrize("count", [10, 20, 30])
def test_batches_that_keras_inspects_are_no_steps(count: int) -> None:
    """Keras inspects the first batches before each `fit`: in a short epoch, all batches."""
    rows = np.arange(count, dtype="f4")[:, None]
    made = ooc.zip(ooc.open(rows), ooc.open(rows)).batches(10, shuffle=True)
    dataset = made.to_keras()
    elements = fit(dataset, epochs=2) + fit(dataset)
    expected = np.concatenate([batch[0] for epoch in range(3) for batch in made.epoch(epoch)])
    assert elements == expected.ravel().astype(int).tolist()


def test_a_shuffle_that_starts_with_the_next_step_is_refused() -> None:
    dataset = loader(shuffle=False).to_keras()
    dataset.on_epoch_begin()
    for step in range(len(dataset)):
        dataset[step]
    dataset.on_epoch_end()
    dataset[0], dataset[1]  # as Keras inspects them
    dataset.on_epoch_begin()
    with pytest.raises(ArgumentError, match="`shuffle`"):
        dataset[2]


def test_a_refused_step_ends_reading_ahead() -> None:
    """Keras ends no epoch in which a read failed, and the exception may keep the dataset alive."""
    dataset = loader().to_keras()
    dataset.on_epoch_begin()
    before = set(threading.enumerate())
    dataset[0]
    readers = [thread for thread in threading.enumerate() if thread not in before]
    assert readers
    with pytest.raises(ArgumentError, match="shuffle"):
        dataset[5]
    for thread in readers:
        thread.join(60)
    assert not any(thread.is_alive() for thread in readers)
    del dataset


@pytest.mark.parametrize("option", ["workers", "use_multiprocessing"])
def test_keras_workers_are_refused(option: str) -> None:
    """A pool would request steps in any order, and a fork of it would begin epochs of its own."""
    stream = ooc.generate(lambda: iter(np.arange(9.0)), workers=0).batches(2)
    for dataset in (loader().to_keras(), stream.to_keras(steps=4)):
        with pytest.raises(ArgumentError, match=r"`batches\(…, workers=4\)`"):
            setattr(dataset, option, 2)
        setattr(dataset, option, getattr(dataset, option))


def test_a_pass_that_begins_in_the_middle_under_fit() -> None:
    """Keras takes the first epoch for one in which the data ran out; later epochs are complete."""
    model, seen = model_and_seen()
    made = loader()
    with pytest.warns(UserWarning, match="ran out of data"):
        model.fit(made.to_tf(start=(0, 7)), epochs=3, verbose=0, shuffle=False)
    every = np.concatenate([batch[0] for n in range(3) for batch in made.epoch(n)])
    assert seen.elements == every.ravel().astype(int).tolist()[70:]


def damaged_hdf5(folder: Path) -> ooc.View:
    """An HDF5 file in which the chunk of rows 40 to 49 does not decode."""
    h5py = pytest.importorskip("h5py")
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        rows = np.random.default_rng(0).random((100, 50), np.float32)
        u = file.create_dataset("flow/u", data=rows, chunks=(10, 50), compression="gzip")
        chunk = next(
            u.id.get_chunk_info(number)
            for number in range(10)
            if u.id.get_chunk_info(number).chunk_offset[0] == 40
        )
    with open(path, "r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * 64)
    return ooc.open(path, "flow/u")


def lost_zarr(folder: Path) -> ooc.View:
    """A Zarr array from which the chunk of rows 40 to 49 is lost after it was opened."""
    zarr = pytest.importorskip("zarr")
    path = folder / "a.zarr"
    array = zarr.create_array(path, shape=(100, 50), chunks=(10, 50), dtype="f4")
    array[...] = np.random.default_rng(0).random((100, 50), np.float32)
    view = ooc.open(path)
    (path / "c" / "4" / "0").unlink()
    return view


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (damaged_hdf5, DamagedChunkError, r"a\.h5', dataset '/flow/u', rows 40, 41"),
        (lost_zarr, SourceError, r"'c/4/0' .* was deleted\. .*a\.zarr'"),
    ],
    ids=["damaged HDF5 chunk", "lost Zarr chunk"],
)
def test_fit_raises_faults_of_real_files(
    make: Any, kind: type[Exception], words: str, tmp_path: Path
) -> None:
    made = make(tmp_path).next_frame().batches(8, shuffle=True)
    model = keras.Sequential([keras.Input((50,)), keras.layers.Dense(50)])
    model.compile(loss="mse")
    with pytest.raises(kind, match=words):
        model.fit(made.to_tf(), epochs=2, verbose=0)


ANOTHER_BACKEND = """
import gc, sys
import numpy as np, oocdata as ooc
batches = ooc.open(np.arange(10)).batches(4).to_keras()
print(batches[2].tolist())
del batches
gc.collect()
print("tensorflow" in sys.modules)
"""


def test_another_backend_needs_no_tensorflow() -> None:
    """Otherwise the collector would import TensorFlow, or fail to, in any thread."""
    command = [sys.executable, "-c", ANOTHER_BACKEND]
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[8, 9]\nFalse\n"


def test_fits_that_ctrl_c_breaks_off_hold_the_memory_of_one() -> None:
    """Neither does Keras end their epochs, nor TensorFlow free their batches."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise KeyboardInterrupt

    held, before = [], account().nbytes
    for _ in range(3):
        model, _ = model_and_seen()
        with pytest.raises(KeyboardInterrupt):
            model.fit(loader().to_keras(), verbose=0, shuffle=False, callbacks=[Stop()])
        held.append(account().nbytes - before)
    assert held == held[:1] * 3
    assert len(fit(loader().to_keras())) == COUNT
    assert account().nbytes == before


def test_passes_in_turns_pause_one_another() -> None:
    loaders = [loader(), loader(first=1000)]
    batches = [made.to_keras() for made in loaders]
    for each in batches:
        each.on_epoch_begin()
    for step in range(11):
        for made, each in zip(loaders, batches, strict=True):
            np.testing.assert_array_equal(each[step][0], made.batch(step)[0])
