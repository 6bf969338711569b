"""Build and train the small next-frame model of the demonstration.

The network predicts the change from the last frame to the next one, and the weights of its last
layer start at zero. So training starts at the baseline, a copy of the last frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from oocdata.datasets.dataset import Dataset
from oocdata.loader import Loader

if TYPE_CHECKING:
    import keras

INPUTS = 2
"""Frames that the model sees; two show a velocity."""

_FILTERS = 24
_LEARNING_RATE = 2e-3
_EVALUATED = 1024


def build(height: int, width: int, seed: int) -> keras.Model:
    """Return a compiled model from ``(INPUTS, height, width)``, both even, to ``(1, …)``."""
    import keras
    from keras import layers, ops

    keras.utils.set_random_seed(seed)
    frames = keras.Input((INPUTS, height, width))
    last = frames[:, -1:]
    steps = frames[:, 1:] - frames[:, :-1]
    x = ops.moveaxis(ops.concatenate([last, steps], axis=1), 1, -1)  # time becomes channels
    x = layers.Conv2D(_FILTERS, 4, strides=2, padding="same", activation="relu")(x)
    for _ in range(2):
        x = layers.Conv2D(_FILTERS, 3, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(1, 4, strides=2, padding="same", kernel_initializer="zeros")(x)
    model = keras.Model(frames, last + ops.moveaxis(x, -1, 1), name="next_frame")
    model.compile(keras.optimizers.Adam(_LEARNING_RATE), "mse")
    return model


def train(
    loader: Loader, held_out: Sequence[Dataset], seconds: float, advance: Callable[[int], None]
) -> dict[str, float]:
    """Train a new model with ``fit`` for at most an epoch, and evaluate it.

    Return the steps, elements a second and mean squared errors: of the model in validation and
    test, and of the last frame as a forecast of the next one.
    """
    import keras

    spec: Any = loader.spec
    height, width = spec[0].shape[2:]
    model = build(height, width, loader.seed)
    val, test = (part[:_EVALUATED].batches(loader.batch_size).to_tf() for part in held_out)
    copy_loss = model.evaluate(test, verbose=0)  # the untrained model copies the last frame
    ends: list[float] = []  # of steps; the first step compiles, and is not counted

    def end_step(batch: int, logs: Any) -> None:
        ends.append(perf_counter())
        model.stop_training = ends[-1] - ends[0] > seconds
        advance(1)

    history = model.fit(
        loader.to_tf(),
        validation_data=val,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=end_step)],
        shuffle=False,
        verbose=0,
    )
    rate = (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 else 0.0
    return {
        "steps": len(ends),
        "trained_per_second": rate * loader.batch_size,
        "val_loss": history.history["val_loss"][-1],
        "test_loss": model.evaluate(test, verbose=0),
        "copy_loss": copy_loss,
    }
