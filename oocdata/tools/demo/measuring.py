"""What the demonstration measures of a dataset: reading alone, and training on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.engines.cache import cache
from oocdata.loader import Loader
from oocdata.tools.demo.memory import PeakMemory, resident_bytes, settle
from oocdata.tools.demo.model import build, copy_last, make_progress

if TYPE_CHECKING:
    import keras

__all__ = [
    "Advance",
    "Reading",
    "Subject",
    "Training",
    "measure_reading",
    "prepared_model",
    "train",
    "warm_up",
]

Advance = Callable[[int], None]

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Subject:
    """One dataset to read and train on.

    Attributes
    ----------
    name : str
        A column's title.
    train, val, test : Dataset
        Elements ``(x, y)`` of shape ``(inputs, *element)`` and ``(1, *element)``.
    batch_size, seed : int
    disk_bytes, memory_bytes : int
        Of the whole array; 0 on disk where that isn't known.
    """

    name: str
    train: Dataset
    val: Dataset
    test: Dataset
    batch_size: int
    seed: int
    disk_bytes: int
    memory_bytes: int

    @property
    def inputs(self) -> int:
        """Frames in ``x``."""
        spec: Any = self.train.spec
        return int(spec[0].shape[0])

    @property
    def element(self) -> tuple[int, ...]:
        """Shape of a frame."""
        spec: Any = self.train.spec
        return tuple(spec[0].shape[1:])

    @property
    def loader(self) -> Loader:
        """The training part's batches, shuffled."""
        return self.train.batches(self.batch_size, shuffle=True, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over a loader by tf.data, nothing else done.

    Attributes
    ----------
    elements, seconds
        What was read in which time.
    bound : int
        Bytes that ``loader.explain()`` states.
    growth : int
        Bytes by which the resident set was larger at its peak than before oocdata read anything.
    exact : bool
        Whether the peak is the kernel's record.
    order : str
    """

    elements: int
    nbytes: int
    seconds: float
    bound: int
    growth: int
    exact: bool
    order: str


@dataclass(frozen=True, slots=True)
class Training:
    """What training came to.

    Attributes
    ----------
    steps, epochs : int
    stopped_early : bool
        Whether time ran out.
    elements_per_second : float
    growth : int
        Bytes by which the resident set was larger at its peak than with the compiled model.
    val_loss, test_loss, val_copy_last, test_copy_last : float
        Mean squared errors.
    """

    steps: int
    steps_planned: int
    stopped_early: bool
    elements_per_second: float
    growth: int
    val_loss: float
    test_loss: float
    val_copy_last: float
    test_copy_last: float
    model: keras.Model


def _forget() -> None:
    """Start from a process that keeps no chunk and no freed memory."""
    cache.forget()
    settle()


def measure_reading(loader: Loader, baseline: int, seconds: float, advance: Advance) -> Reading:
    """Read an epoch through tf.data, and more while it takes less than a second; measure it.

    Parameters
    ----------
    loader : Loader
    baseline : int
        The resident set, in bytes, before anything was read.
    seconds : float
        Reading ends after this time, wherever it is.
    advance : callable
        Called with 1 after each step of the first epoch.
    """
    explanation = loader.explain()
    _forget()
    dataset = loader.to_tf()
    elements = 0
    with PeakMemory() as memory:
        begun = perf_counter()
        taken = 0.0
        while taken < min(_LEAST_SECONDS, seconds):
            for x, _ in dataset:
                elements += int(x.shape[0])
                if elements <= len(loader.dataset):
                    advance(1)
                taken = perf_counter() - begun
                if taken > seconds:
                    break
    return Reading(
        elements=elements,
        nbytes=elements * explanation.batch_bytes // loader.batch_size,
        seconds=taken,
        bound=explanation.resident_bytes,
        growth=max(0, memory.peak - baseline),
        exact=memory.exact,
        order=explanation.order,
    )


def prepared_model(subject: Subject) -> keras.Model:
    """Return a model that TensorFlow has compiled, so that this is no part of what is measured.

    It is trained on zeros: prediction and target are zero then, and so is every gradient, which
    leaves the weights as they began.
    """
    import tensorflow as tf

    loader = subject.loader
    spec: Any = loader.spec
    whole = spec[0].shape[0] is not None
    zeros = tuple(np.zeros((1, *leaf.shape[1:]), leaf.dtype) for leaf in spec)
    dataset = tf.data.Dataset.from_tensor_slices(zeros).repeat(4 * subject.batch_size)
    dataset = dataset.batch(subject.batch_size, drop_remainder=whole)
    model = build(subject.inputs, subject.element, subject.seed)
    model.fit(dataset, validation_data=dataset, verbose=0, shuffle=False)
    return model


def warm_up(subject: Subject) -> None:
    """Have every library set itself up, so that its own memory is no part of what is measured."""
    prepared_model(subject)
    # Single elements: the batches that are measured later find no memory of these to use again.
    for _ in subject.train[:2].batches(1).to_tf():
        pass
    _forget()


def train(
    subject: Subject, epochs: int, seconds: float, most_evaluated: int, advance: Advance
) -> Training:
    """Train a model with ``fit`` and evaluate it beside copying the last frame.

    Parameters
    ----------
    subject : Subject
    epochs : int
    seconds : float
        Training ends after the step in which this much time has gone by.
    most_evaluated : int
        Elements of the validation and test part that are looked at, from the first.
    advance : callable
        Called with 1 after each training step.
    """
    size = subject.batch_size
    loader = subject.loader
    val, test = (part[:most_evaluated].batches(size) for part in (subject.val, subject.test))
    model = prepared_model(subject)
    progress = make_progress(seconds, advance)
    _forget()
    before = resident_bytes()
    with PeakMemory() as memory:
        history = model.fit(
            loader.to_tf(),
            validation_data=val.to_tf(),
            epochs=epochs,
            callbacks=[progress],
            shuffle=False,
            verbose=0,
        )
    return Training(
        steps=progress.steps,
        steps_planned=epochs * len(loader),
        stopped_early=progress.stopped_early,
        elements_per_second=progress.rate * size,
        growth=max(0, memory.peak - before),
        val_loss=float(history.history["val_loss"][-1]),
        test_loss=float(model.evaluate(test.to_tf(), verbose=0)),
        val_copy_last=_copy_last(val),
        test_copy_last=_copy_last(test),
        model=model,
    )


def _copy_last(loader: Loader) -> float:
    total = count = 0.0
    batch: Any
    for batch in loader.epoch(0):
        x, y = batch
        total += copy_last(x, y) * len(x)
        count += len(x)
    return total / count
