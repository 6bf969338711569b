"""A training that is interrupted anywhere and restarted ends as if it had not been interrupted."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocdata as ooc
from oocdata.errors import ArgumentError, RestoreError, SourceError
from oocdata.frontends.saves import Save, read_save, saves_in, write_save

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

ROWS = np.random.default_rng(0).random((43, 6)).astype("f4")
STEPS = 11  # of 4, the last of 3


def test_it_says_where_and_of_what(tmp_path: Path) -> None:
    loader = ooc.open(ROWS).batches(4)
    told = repr(ooc.Resume(tmp_path / "run", loader, every=5))
    assert str(tmp_path / "run") in told
    assert "every 5 steps" in told
    assert repr(loader) in told


@pytest.fixture(autouse=True)
def deterministic() -> None:
    tf.config.experimental.enable_op_determinism()


def loader_of(rows: np.ndarray = ROWS, **options: Any) -> ooc.Loader:
    pairs = ooc.zip(ooc.open(rows), ooc.open(rows.sum(1, keepdims=True)))
    return pairs.batches(4, **{"shuffle": True, "seed": 5, **options})


def validation_data() -> Any:
    return loader_of(ROWS[:9], shuffle=False).to_tf()


class StopHere(Exception):  # noqa: N818
    pass


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
    """Raise after some steps; record the steps."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.batches: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches.append(batch)
        if len(self.batches) == self.after:
            raise StopHere


_models: dict[Any, tuple[Any, list[np.ndarray]]] = {}


def model_of(units: int = 5, make: Callable[[int], Any] | None = None) -> Any:
    """Return the model of these units, as it was first made.

    With a seed and moments. It is one model, or each `fit` would trace its training anew.
    """
    make = make or new_model
    if (make, units) not in _models:
        model = make(units)
        model.optimizer.build(model.trainable_variables)
        _models[make, units] = model, state_of(model)
    model, first = _models[make, units]
    for variable, value in zip(variables_of(model), first, strict=True):
        variable.assign(value)
    model.stop_training = False
    return model


def new_model(units: int = 5) -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.Input((6,)), keras.layers.Dense(units), keras.layers.Dropout(0.3)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-2, momentum=0.9), "mse", metrics=["mae"])
    return model


def with_all(execution: int) -> Any:
    """Return a model with all kinds of state: moments, a schedule, seeds, moving averages."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(5, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )
    rate = keras.optimizers.schedules.CosineDecay(1e-2, 40)
    optimizer = keras.optimizers.Adam(rate)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=execution)
    return model


def train(folder: Path, *, after: int = 0, every: int = 3, epochs: int = 3, **options: Any) -> Any:
    """Train as the same script would; return the model, the history and the batches."""
    model = options.pop("model", None) or model_of()
    resume = ooc.Resume(folder, options.pop("loader", None) or loader_of(), every=every)
    interrupt = Interrupt(after)
    data = options.pop("data", lambda resume: resume.to_tf())(resume)
    validation = validation_data() if options.pop("validate", False) else None
    callbacks = [*options.pop("callbacks", ()), interrupt, resume]
    history = None
    try:
        history = model.fit(
            data, epochs=epochs, validation_data=validation, callbacks=callbacks, verbose=0,
            shuffle=False, **options,
        )  # fmt: skip
    except StopHere:
        assert after
    return model, history, interrupt.batches


class StopAfterEpoch(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = True


class OwnSteps(keras.Model):  # type: ignore[misc]
    """Unpacks its input itself, as guides to Keras do."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.drop = keras.layers.Dense(4), keras.layers.Dropout(0.5)
        self.last = keras.layers.Dense(1)
        self.told = keras.metrics.Mean(name="told")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.last(self.drop(self.dense(x), training=training))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        self.told.update_state(loss)
        return {"told": self.told.result()}

    def test_step(self, data: Any) -> Any:
        x, y = data
        return {"told": self.compute_loss(x, y, self(x))}


class DictsAndWeights(OwnSteps):
    def call(self, x: Any, training: bool = False) -> Any:
        return super().call(x["rows"], training) + x["more"][:, :1]

    def train_step(self, data: Any) -> Any:
        inputs, y, weights = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, y, self(inputs, training=True), weights)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return self.compute_metrics(inputs, y, self(inputs), weights)


class TwoOptimizers(OwnSteps):
    """The optimizers are built by their first step."""

    def compile(self, **options: Any) -> None:
        super().compile(**options)
        self.other = keras.optimizers.Adam(1e-2)

    def call(self, x: Any, training: bool = False) -> Any:
        raise AssertionError("nobody calls it")

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            first = self.dense(x)
            loss = tf.reduce_mean((self.last(self.drop(first, training=True)) - y) ** 2)
        for optimizer, layer in ((self.optimizer, self.dense), (self.other, self.last)):
            weights = layer.trainable_weights
            optimizer.apply(tape.gradient(loss, weights), weights)
        self.told.update_state(loss)
        return {"told": self.told.result()}


class OwnOptimizer(OwnSteps):
    """Trains with its own optimizer, as guides to GANs do; Keras makes another, never built."""

    def compile(self, **options: Any) -> None:
        super().compile(**options)
        self.other = keras.optimizers.Adam(1e-2)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        self.other.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


def built(model: Any) -> Any:
    model(ROWS[:1])
    return model


def compiled(model: Any, **options: Any) -> Any:
    model.compile(optimizer="adam", **options)
    return model


def dicts_and_weights() -> ooc.Loader:
    rows = ooc.open(ROWS)
    inputs = ooc.zip({"rows": rows, "more": ooc.open(ROWS[:, :2])})
    pairs = ooc.zip(inputs, ooc.open(ROWS.sum(1, keepdims=True)), ooc.open(ROWS[:, 0]))
    return pairs.batches(4, shuffle=True, seed=5)


UNBUILT: dict[str, Any] = {
    "own steps": (lambda: compiled(OwnSteps(), loss="mse"), loader_of),
    "dicts and weights": (
        lambda: compiled(DictsAndWeights(), loss="mse", weighted_metrics=["mae"]),
        dicts_and_weights,
    ),
    "two optimizers": (lambda: compiled(TwoOptimizers()), loader_of),
    "own optimizer": (lambda: built(compiled(OwnOptimizer())), loader_of),
}


def all_of(model: Any) -> list[np.ndarray]:
    other = model.other.variables if hasattr(model, "other") else []
    return [*state_of(model), *(np.array(variable.numpy()) for variable in other)]


def variables_of(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def state_of(model: Any) -> list[np.ndarray]:
    return [np.array(variable.numpy()) for variable in variables_of(model)]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def whole() -> list[np.ndarray]:
    """Return the final state of a training without interruption and without `Resume`."""
    tf.config.experimental.enable_op_determinism()
    model = model_of()
    model.fit(loader_of().to_tf(), epochs=3, verbose=0, shuffle=False)
    return state_of(model)


@pytest.fixture(scope="module")
def whole_with_all() -> tuple[list[np.ndarray], dict[str, list[float]]]:
    """Return the same for the model with all kinds of state, and its history."""
    tf.config.experimental.enable_op_determinism()
    model = model_of(1, with_all)
    history = model.fit(
        loader_of().to_tf(), epochs=3, validation_data=validation_data(), verbose=0, shuffle=False
    )
    return state_of(model), history.history


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a training that was stopped after a save."""
    folder = tmp_path_factory.mktemp("stopped")
    train(folder, after=7)
    return folder


class TestContinues:
    @pytest.mark.parametrize("execution", [1, 3])
    def test_as_if_never_interrupted(
        self, tmp_path: Path, whole_with_all: Any, execution: int
    ) -> None:
        for after in (4, 0):
            made = model_of(execution, with_all)
            model, history, _ = train(tmp_path, after=after, model=made, validate=True)
        assert same(state_of(model), whole_with_all[0])
        # The logs of an epoch cover all its steps, whenever they were trained on.
        for name, values in history.history.items():
            assert values == whole_with_all[1][name][-len(values) :]

    def test_at_the_saved_step(self, tmp_path: Path) -> None:
        train(tmp_path, after=STEPS + 5)
        resume = ooc.Resume(tmp_path, loader_of())
        assert resume.start == (1, 3)
        _, history, batches = train(tmp_path)
        assert batches == [*range(STEPS - 3), *range(STEPS)]
        assert history.epoch == [1, 2]
        assert resume.start == (3, 0)

    def test_a_finished_training_is_not_repeated(
        self, tmp_path: Path, whole: list[np.ndarray]
    ) -> None:
        train(tmp_path)
        model, history, batches = train(tmp_path)
        assert same(state_of(model), whole)
        assert batches == []
        assert history.epoch == []
        # And the training can be extended: `fit` of this model obeys `initial_epoch` again.
        _, history, _ = train(tmp_path, epochs=4, model=model)
        assert history.epoch == [3]
        assert model.fit(loader_of().to_tf(), verbose=0, shuffle=False).epoch == [0]

    def test_twice_in_one_process(self, tmp_path: Path, whole: list[np.ndarray]) -> None:
        """As in a notebook: `fit` again with the same objects."""
        resume, model = ooc.Resume(tmp_path, loader_of(), every=2), model_of()
        data = resume.to_tf()
        for after in (1, 7, 0):  # before a save, and after one
            callbacks = [Interrupt(after), resume]
            try:
                model.fit(data, epochs=3, callbacks=callbacks, verbose=0, shuffle=False)
            except StopHere:
                model = model_of()
        assert same(state_of(model), whole)

    def test_a_model_without_variables_yet(self, tmp_path: Path) -> None:
        def unbuilt() -> Any:
            keras.utils.set_random_seed(3)
            layers = [keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
            model = keras.Sequential(layers)
            model.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
            return model

        expected = train(tmp_path / "whole", model=unbuilt(), epochs=1)
        train(tmp_path / "parts", model=unbuilt(), epochs=1, after=8)
        found = train(tmp_path / "parts", model=unbuilt(), epochs=1)
        assert same(state_of(found[0]), state_of(expected[0]))
        assert found[1].history == expected[1].history

    @pytest.mark.parametrize(
        ("kind", "after"),
        [
            ("own steps", 8),
            ("own steps", STEPS),
            ("dicts and weights", 8),
            ("two optimizers", 8),
            ("own optimizer", 8),
        ],
    )
    def test_variables_created_by_the_first_batch(
        self, tmp_path: Path, kind: str, after: int
    ) -> None:
        """With every kind of model that `fit` takes, also if other callbacks set rates."""
        make, loader = UNBUILT[kind]

        class Halve(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                rate = self.model.optimizer.learning_rate
                rate.assign(rate / 2)

        def trained(folder: str, after: int = 0) -> Any:
            keras.utils.set_random_seed(3)
            model, callbacks = make(), [Halve()]
            if after == STEPS:  # the save is written at the end of the epoch, before this
                after, callbacks = 0, [Halve(), StopAfterEpoch()]
            return train(
                tmp_path / folder, model=model, loader=loader(), callbacks=callbacks, epochs=2,
                after=after,
            )  # fmt: skip

        expected = trained("whole")
        trained("parts", after)
        found = trained("parts")
        assert same(all_of(found[0]), all_of(expected[0]))
        told = {
            name: values[-2 if after == 8 else -1 :] for name, values in expected[1].history.items()
        }
        assert found[1].history == told

    def test_variables_created_by_an_execution_of_more_steps_than_were_done(
        self, tmp_path: Path
    ) -> None:
        def trained(folder: str, execution: int, after: int = 0) -> Any:
            model = new_model()
            model.compile("adam", "mse", metrics=["mae"], steps_per_execution=execution)
            return train(tmp_path / folder, model=model, after=after, epochs=1)

        expected = trained("whole", 1)
        trained("parts", 1, after=4)
        found = trained("parts", 5)
        assert same(state_of(found[0]), state_of(expected[0]))
        assert found[1].history == expected[1].history

    def test_a_dataset_mapped_to_other_shapes(self, tmp_path: Path) -> None:
        def trained(folder: str, after: int = 0) -> Any:
            keras.utils.set_random_seed(3)
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
            model.compile("adam", "mse", metrics=["mae"])
            classes = ooc.open(np.arange(len(ROWS), dtype="i4") % 3)
            loader = ooc.zip(ooc.open(ROWS), classes).batches(4, shuffle=True)

            def data(resume: ooc.Resume) -> Any:
                return resume.to_tf().map(lambda x, y: (x, tf.one_hot(y, 3)))

            return train(
                tmp_path / folder, model=model, loader=loader, data=data, epochs=2, after=after
            )

        expected = trained("whole")
        trained("parts", after=8)
        found = trained("parts")
        assert same(state_of(found[0]), state_of(expected[0]))
        assert found[1].history == expected[1].history

    def test_a_mapped_dataset(self, tmp_path: Path) -> None:
        """With the same number of steps, as `fit` is told by its cardinality."""

        def data(parallel: int, prefetch: int) -> Any:  # which may change
            return lambda resume: resume.to_tf(parallel=parallel, prefetch=prefetch).map(
                lambda x, y: (x * 2, y)
            )

        expected = state_of(train(tmp_path / "whole", data=data(2, 2))[0])
        train(tmp_path / "parts", data=data(1, 0), after=STEPS + 8)
        found = train(tmp_path / "parts", data=data(4, 9))
        assert same(state_of(found[0]), expected)
        assert found[2] == [*range(STEPS - 6), *range(STEPS)]

    def test_rates_that_callbacks_set(self, tmp_path: Path) -> None:
        class Halve(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                rate = self.model.optimizer.learning_rate
                rate.assign(rate / 2)

        def with_rates(folder: Path, after: int = 0) -> Any:
            return train(folder, after=after, callbacks=[Halve()])[0]

        expected = state_of(with_rates(tmp_path / "whole"))
        for after in (8, 0):
            found = with_rates(tmp_path / "parts", after)
        assert same(state_of(found), expected)
        assert float(found.optimizer.learning_rate.numpy()) == pytest.approx(1e-2 / 8)

    def test_a_signal_ends_the_training_after_a_save(
        self, tmp_path: Path, whole: list[np.ndarray]
    ) -> None:
        resume, model = ooc.Resume(tmp_path, loader_of()), model_of()

        class Signal(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if (self.model.optimizer.iterations.numpy(), batch) == (STEPS + 4, 4):
                    os.kill(os.getpid(), signal.SIGTERM)

        former = signal.signal(signal.SIGTERM, resume.stop)
        try:
            model.fit(
                resume.to_tf(), epochs=3, callbacks=[Signal(), resume], verbose=0, shuffle=False
            )
        finally:
            signal.signal(signal.SIGTERM, former)
        assert resume.start == (1, 5)
        assert same(state_of(train(tmp_path)[0]), whole)

    def test_other_callbacks_may_stop_the_training(self, tmp_path: Path) -> None:
        class Stop(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.model.stop_training = True

        train(tmp_path, after=8)
        _, history, _ = train(tmp_path, callbacks=[Stop()])
        assert history.epoch == [0]
        assert ooc.Resume(tmp_path, loader_of()).start == (1, 0)

    def test_mixed_precision(self, tmp_path: Path) -> None:
        def mixed() -> Any:
            keras.utils.set_random_seed(3)
            layers = [keras.Input((6,)), keras.layers.Dense(1, dtype="mixed_float16")]
            model = keras.Sequential(layers)
            model.compile(keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam()), "mse")
            return model

        expected = state_of(train(tmp_path / "whole", model=mixed(), epochs=1)[0])
        for after in (7, 0):
            found = train(tmp_path / "parts", model=mixed(), epochs=1, after=after)[0]
        assert same(state_of(found), expected)

    def test_another_fit_begins_at_its_initial_epoch(self, tmp_path: Path) -> None:
        """Also after a fit that continued and ended by an exception."""
        train(tmp_path, after=STEPS + 5)
        model, _, batches = train(tmp_path, after=2)
        assert batches == [0, 1]
        assert model.fit(loader_of().to_tf(), verbose=0, shuffle=False).epoch == [0]

    def test_an_unused_pass(self, tmp_path: Path) -> None:
        """Keras makes iterators that it does not use; under a strategy, threads read from them."""
        resume, loader = ooc.Resume(tmp_path, loader_of()), loader_of()
        resume.set_model(model_of())
        data = resume.to_tf()
        for epoch in (0, 1):
            resume.on_epoch_begin(epoch)
            for _ in range(2):
                for found, expected in zip(next(iter(data)), loader.batch(0, epoch), strict=True):
                    np.testing.assert_array_equal(found, expected)


class TestRefuses:
    def test_fit_without_the_callback(self, tmp_path: Path) -> None:
        """It would train on epoch 0 in each epoch, and save nothing."""
        resume = ooc.Resume(tmp_path, loader_of())
        data = resume.to_tf()
        next(iter(data))
        next(iter(data))  # looking at batches is no training
        with pytest.raises(ArgumentError, match=r"`callbacks` of `fit` must hold the Resume"):
            model_of().fit(resume.to_tf(), epochs=3, verbose=0, shuffle=False)

    @pytest.mark.parametrize(
        ("options", "error", "said"),
        [
            ({"loader": loader_of(seed=6)}, RestoreError, "`seed` was 5, and is 6"),
            ({"loader": loader_of(seed=6)}, RestoreError, "start anew in another folder"),
            ({"loader": loader_of(ROWS + 1)}, RestoreError, "content` differs"),
            ({"model": lambda: model_of(6)}, RestoreError, r"was kernel float32 \(6, 5\), and is"),
            ({"initial_epoch": 2, "fresh": True}, None, ""),
            ({"data": lambda resume: loader_of().to_tf()}, ArgumentError, "`to_tf`"),
            ({"steps_per_epoch": 5}, ArgumentError, "Leave out `steps_per_epoch`"),
            ({"steps_per_epoch": STEPS}, ArgumentError, "Leave out `steps_per_epoch`"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:.*ran out of data")
    def test_saves_of_another_loader_or_model(
        self, tmp_path: Path, stopped: Path, options: dict[str, Any], error: Any, said: str
    ) -> None:
        if options.pop("fresh", False):
            assert train(tmp_path, **options)[1].epoch == [2]
            return
        shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
        if "model" in options:
            options["model"] = options["model"]()
        with pytest.raises(error, match=said):
            train(tmp_path, **options)

    def test_another_initial_epoch(self, stopped: Path) -> None:
        with pytest.raises(RestoreError, match="Leave out `initial_epoch`"):
            train(stopped, initial_epoch=2)

    def test_another_optimizer(self, stopped: Path) -> None:
        model = new_model()
        model.compile("sgd", "mse", metrics=["mae"])
        with pytest.raises(RestoreError, match="of the optimizer was"):
            train(stopped, model=model)

    def test_a_wrong_every(self, tmp_path: Path) -> None:
        with pytest.raises(ArgumentError, match="`every`"):
            ooc.Resume(tmp_path, loader_of(), every=0)

    def test_the_dataset_of_the_loader_itself(self, tmp_path: Path) -> None:
        resume = ooc.Resume(tmp_path, loader_of())
        with pytest.raises(ArgumentError, match=r"Write fit\(resume\.to_tf\(\)"):
            new_model().fit(loader_of().to_tf(), verbose=0, shuffle=False, callbacks=[resume])

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda data: data.rebatch(1), "got an unknown number.*`rebatch`"),
            (lambda data: data.concatenate(data), f"got {2 * STEPS}.*`concatenate`"),
            (lambda data: data.unbatch().batch(99), "got an unknown number.*`batch`"),
            (lambda data: data.batch(2), f"got {STEPS // 2 + 1}.*`batch`"),
            (lambda data: data.take(3), "got 3"),
            (lambda data: data.filter(lambda x, y: True), "got an unknown number"),
        ],
    )
    def test_a_dataset_of_other_steps(self, tmp_path: Path, change: Any, said: str) -> None:
        """Before the first step, even where there may happen to be as many."""
        model = model_of(2)
        with pytest.raises(ArgumentError, match=said):
            train(tmp_path, data=lambda resume: change(resume.to_tf()), model=model)
        assert model.optimizer.iterations.numpy() == 0
        assert ooc.Resume(tmp_path, loader_of()).start == (0, 0)

    def test_an_argument_that_is_no_loader(self, tmp_path: Path) -> None:
        made: Any = ooc.generate(lambda: iter([1]), workers=0).batches(2)
        for given in (loader_of().dataset, made):
            with pytest.raises(ArgumentError, match=r"`loader` must be .*; got <(Zip|Stream)"):
                ooc.Resume(tmp_path, given)

    def test_a_file_for_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(RestoreError, match="is a file"):
            train(tmp_path / "file")


def some_save(epoch: int = 0, step: int = 7) -> Save:
    bfloat16 = tf.constant([1.5, -2], tf.bfloat16).numpy()
    model = {
        "kernel": np.arange(12.0).reshape(3, 4),
        "rate": np.asarray(np.float32(7.0)),
        "nothing": np.zeros((0, 2), "i8"),
    }
    optimizer = [("flags", np.ones(2, "?")), ("rounded", bfloat16)]
    return Save(epoch, step, "{}", {"model": [*model.items()], "optimizer": optimizer})


def assert_same_values(found: Save, save: Save) -> None:
    for group, values in save.values.items():
        for (name, one), (other_name, other) in zip(found.values[group], values, strict=True):
            assert (name, one.dtype, one.shape) == (other_name, other.dtype, other.shape)
            assert np.array_equal(one, other)


class TestSaves:
    def test_a_save_is_read_as_written(self, tmp_path: Path) -> None:
        found = read_save(write_save(tmp_path / "new" / "folder", some_save()))
        assert (found.epoch, found.step) == (0, 7)
        assert_same_values(found, some_save())

    def test_the_last_two_are_kept(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").touch()
        for place in ((0, 9), (0, 10), (1, 0), (2, 0)):
            path = write_save(tmp_path, some_save(*place))
            assert saves_in(tmp_path)[0] == path
        assert {each.name for each in tmp_path.iterdir()} == {
            "mine.txt", "save-000001-000000000.npz", "save-000002-000000000.npz",
        }  # fmt: skip

    def test_every_damaged_byte_is_noticed_or_harmless(self, tmp_path: Path) -> None:
        path = write_save(tmp_path, some_save())
        whole = path.read_bytes()
        noticed = 0
        for place in range(0, len(whole), 3):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
            try:
                found = read_save(path)
            except RestoreError as error:
                assert "Delete it" in str(error)  # noqa: PT017
                noticed += 1
            else:  # a harmless byte, e.g. of the time in a ZIP header
                assert_same_values(found, some_save())
                assert (found.epoch, found.step, found.fingerprint) == (0, 7, "{}")
        assert noticed > len(whole) // 3 // 2

    def test_a_file_that_is_cut_short(self, tmp_path: Path) -> None:
        path = write_save(tmp_path, some_save())
        whole = path.read_bytes()
        for length in range(0, len(whole), 61):
            path.write_bytes(whole[:length])
            with pytest.raises(RestoreError, match=r"Delete it to go on from the save before it"):
                read_save(path)

    def test_a_file_of_another_program(self, tmp_path: Path) -> None:
        for arrays in ({"a": np.zeros(3)}, {"about": np.frombuffer(b'{"format": 3}', "u1")}):
            np.savez(tmp_path / "save-000001-000000000.npz", **arrays)
            with pytest.raises(RestoreError, match="written by oocdata"):
                train(tmp_path)

    @pytest.mark.parametrize("at", ["savez", "fsync", "replace"])
    def test_a_failure_while_writing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
    ) -> None:
        """A full disk, for example. (For saves interrupted by a kill, see test_resume_kill.py.)"""
        former = write_save(tmp_path, some_save(0, 7))

        def fail(*_: object, **__: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(np if at == "savez" else os, at, fail)
        with pytest.raises(
            SourceError, match=r"no space left\. Is the disk full\? .*save-000000-0{8}9"
        ):
            write_save(tmp_path, some_save(0, 9))
        monkeypatch.undo()
        assert saves_in(tmp_path) == [former]
        assert read_save(former).step == 7
        write_save(tmp_path, some_save(0, 9))
        assert not list(tmp_path.glob("*.tmp"))

    def test_a_folder_that_can_not_be_written_to(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An error before the first step, not at the end of the first epoch."""

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        steps: list[int] = []
        counting = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda at, _: steps.append(at)
        )
        monkeypatch.setattr(Path, "touch", refuse)
        with pytest.raises(SourceError, match=rf"Permission denied\. \[file '{tmp_path}'\]"):
            train(tmp_path, callbacks=[counting])
        assert steps == []

    def test_a_save_is_synced_before_it_is_renamed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []

        def noting(name: str) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(*arguments: Any) -> Any:
                calls.append(name)
                return real(*arguments)

            return call

        for name in ("fsync", "replace"):
            monkeypatch.setattr(os, name, noting(name))
        write_save(tmp_path, some_save())
        assert calls == ["fsync", "replace", "fsync"]  # the file, its name, the folder
