"""Keras: train through any interruption, as if there had been none.

A position is two integers, so all that must be kept together is it and the model's variables; and
the batches that follow are what they would have been. Keras's `BackupAndRestore` keeps the weights
and the epoch: after a save within an epoch, it trains that epoch from its beginning once more.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oocdata.describe import fingerprint, refuse_other
from oocdata.errors import ArgumentError, MissingDependencyError, RestoreError
from oocdata.frontends.saves import (
    Save,
    Values,
    assign,
    assign_rates,
    lacking,
    read_save,
    saves_in,
    values_of,
    write_save,
)
from oocdata.index import as_count, as_path
from oocdata.loader import Loader
from oocdata.runs import Pass, Passes

try:
    import keras
except ImportError as error:
    raise MissingDependencyError(
        "`Resume` needs Keras, which can't be imported here. Install it: pip install keras."
    ) from error

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["Resume"]

_EPOCH_IS_OVER = object()
"""True, as ``model.stop_training``; and told from what other callbacks set."""


class Resume(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Saves a training as it goes, and goes on from the last save: the same command again.

    Model, optimizers, metrics and position are saved together, in one file that is whole or not
    there. ``fit`` goes on at the saved step; the steps since then are repeated, with the same
    batches and the same random numbers.

    Parameters
    ----------
    folder : path
        Of this training alone. To train anew, delete it or give another one.
    loader : Loader
        The training data. A save is refused with another loader than it was made with; how many
        read, in how many shards, and where the data lie may change.
    every : int, optional
        Steps between saves within an epoch. At the end of an epoch there is always one.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule.
    oocdata.errors.RestoreError
        From ``fit``: if the last save is damaged, or of another loader or model.

    Notes
    -----
    Give ``fit`` the dataset of `to_tf`, no ``steps_per_epoch``, and this callback after the others.
    In an epoch that goes on, Keras counts batches from 0, so its progress bar ends early; the logs
    of the epoch are those of all its steps. Where variables are made by the first batch (of a model
    that is not built, of metrics), one step more is taken to make them, and what it changes is
    restored.

    Saved: ``model.variables`` (weights, and the seeds of dropout and its like), the variables of
    all optimizers that are attributes of the model (moments, steps, learning rate), and, within an
    epoch, of its metrics. Not saved: what other callbacks remember (``EarlyStopping``,
    ``ReduceLROnPlateau``: their patience begins anew), ``History``, random numbers that are drawn
    from no `keras.random.SeedGenerator` of the model, and a `tf.Variable` that Keras doesn't track.

    Examples
    --------
    >>> import tempfile, numpy as np, keras, oocdata as ooc
    >>> pairs = ooc.zip(ooc.open(np.ones((100, 3), "f4")), ooc.open(np.ones((100, 1), "f4")))
    >>> loader = pairs.batches(10, shuffle=True)
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     resume = ooc.Resume(folder, loader, every=5)
    ...     data = resume.to_tf()
    ...     history = model.fit(data, epochs=2, callbacks=[resume], shuffle=False, verbose=0)
    ...     resume.start
    (2, 0)
    """

    def __init__(
        self, folder: str | os.PathLike[str], loader: Loader, *, every: int | None = None
    ) -> None:
        super().__init__()
        if keras.backend.backend() != "tensorflow":
            # Others keep the variables elsewhere while they train, or don't say where an epoch is.
            raise ArgumentError(
                "`Resume` must run with Keras on TensorFlow; its backend is "
                f"{keras.backend.backend()!r}. Save (epoch, step) with the model in a loop over "
                "`loader.epoch(epoch, start=step)`."
            )
        if not isinstance(loader, Loader):  # what generators yield has no position to go on from
            raise ArgumentError(
                f"`loader` must be a Loader: `.batches(size)` of a dataset; got {loader!r}."
            )
        self.folder = Path(as_path("folder", folder))
        self.loader = loader
        self.every = None if every is None else as_count("every", every)
        self._fingerprint = fingerprint(loader, steps=str(len(loader)))
        self._restored: Save | None = None
        self._next: Pass = loader.over(0)
        """What passes over the dataset read in this epoch. (Keras makes iterators that it does
        not use, and under a strategy each is read from in a thread, sooner or later.)"""
        self._begun = False
        """Whether one has begun in this epoch."""
        self._epoch = self._first = self._step = self._saved = 0
        """The epoch; and of its steps: where this run began, how many are done, and saved."""
        self._stop = False
        self._rates: list[Any] | None = None
        """What could be restored of a model whose variables the first step makes; else None."""
        self._unmade: Save | None = None
        """What is to be restored after that step."""

    @property
    def start(self) -> tuple[int, int]:
        """The (epoch, step) that training goes on with: that of the last save, or (0, 0)."""
        save = self._last_save(with_values=False)
        return (0, 0) if save is None else (save.epoch, save.step)

    def to_tf(self, *, parallel: int = 2, prefetch: int = 2) -> tf.data.Dataset:
        """Return the ``tf.data.Dataset`` to train on: each pass is the epoch that ``fit`` is in.

        Parameters
        ----------
        parallel, prefetch : int
            As in `oocdata.Loader.to_tf`.

        Returns
        -------
        tf.data.Dataset
            With static shapes, and the cardinality of a whole epoch.
        """
        from oocdata.frontends.tfdata import of_passes, with_cardinality

        dataset = of_passes(
            self.loader, Passes(self._begin), {"steps": str(len(self.loader))},
            parallel=parallel, prefetch=prefetch,
        )  # fmt: skip
        return with_cardinality(dataset, len(self.loader), always=False)

    def stop(self, *_: object) -> None:
        """Save after the step that is running, and end ``fit``.

        Takes what a signal handler gets: ``signal.signal(signal.SIGTERM, resume.stop)``.
        """
        self._stop = True

    def _begin(self, _: int) -> Pass:
        self._begun = True
        return self._next

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the last save, if there is one."""
        if self.params.get("steps") not in (None, len(self.loader)):
            raise ArgumentError(
                f"`fit` must take the {len(self.loader)} steps of an epoch from the dataset; got "
                f"{self.params['steps']}. Leave out `steps_per_epoch`."
            )
        self._stop = False
        self._restored = self._last_save()
        self._rates = self._unmade = None
        if self._restored is not None:
            # Where Keras's own callback says so.
            self.model._initial_epoch = self._restored.epoch
            if lacking(self.model, _groups(self._restored)):
                self._rates = assign_rates(self.model, self._restored.values)
            else:
                self._restore(self._restored)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Say where the epoch begins."""
        self.model._initial_epoch = None  # `fit` has read it, and may end by an exception
        save, self._restored = self._restored, None
        self._epoch, self._first, before = epoch, 0, 0
        if save is not None:
            if epoch != save.epoch:
                raise RestoreError(
                    f"`fit` must go on with epoch {save.epoch}, from 0, as saved in "
                    f"'{self.folder}'; it began with {epoch}. Leave out `initial_epoch`, or delete "
                    "the folder."
                )
            self._first = save.step
            if self._rates is not None:
                self._unmade, before = save, self._steps_before(save)
            elif save.step:
                # Once more: Keras has reset the metrics, and other callbacks, e.g. of the learning
                # rate, take this for the beginning of the epoch.
                self._restore(save)
        self._step = self._saved = self._first
        over, self._begun = self.loader.over(epoch, self._first), False
        self._next = replace(over, first=over.first - before, length=over.length + before)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Have the next call of the training function make the variables that are missing.

        Keras makes them of what ``fit`` is given, which may be mapped, in the way of this model. So
        steps before the saved one are trained on once more, and whatever that changes is restored.
        """
        save, self._unmade = self._unmade, None
        if save is None:
            return
        model, train = self.model, self.model.train_function

        def first(iterator: Any) -> Any:
            model.train_function = train
            # Of other callbacks, which change rates at the beginning of an epoch.
            kept = [] if save.step else [(rate, rate.numpy()) for rate in self._rates or ()]
            train(iterator)
            model.reset_metrics()
            self._restore(save)
            for rate, value in kept:
                rate.assign(value)
            return train(iterator)

        model.train_function = first

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps that are done, and save."""
        if not self._begun:
            raise ArgumentError(
                "`fit` must be given the dataset of this callback's `to_tf`; it was given another "
                "one."
            )
        steps = len(self.loader)
        # With `steps_per_execution`, the last execution of an epoch may be of fewer.
        self._step = min(self._first + batch + 1, steps)
        if self._stop or (self.every and self._saved + self.every <= self._step < steps):
            if self._step < steps:
                self._save(self._epoch, self._step)
            if self._stop:
                self.model.stop_training = True
        known = self.params.get("steps")
        if self._step == steps and (known is None or batch + 1 < known):
            # Keras would ask for more. This is how to end an epoch early without a warning.
            self.model.stop_training = self.model.stop_training or _EPOCH_IS_OVER

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save, with the next epoch as position."""
        if self.model.stop_training is _EPOCH_IS_OVER:
            self.model.stop_training = False
        if self._step == len(self.loader):
            self._save(epoch + 1, 0)
        elif not self.model.stop_training:
            raise ArgumentError(
                f"`fit` must train on all {len(self.loader)} steps of an epoch; it took "
                f"{self._step}. Leave out `steps_per_epoch`."
            )

    def on_train_end(self, logs: Any = None) -> None:
        """Leave the model as it is; another ``fit`` of it begins where it is told to."""
        self.model._initial_epoch = None

    def _last_save(self, with_values: bool = True) -> Save | None:
        for path in saves_in(self.folder):
            save = read_save(path, with_values=with_values)
            refuse_other(save.fingerprint, self._fingerprint, f" (in '{path}')")
            return save
        return None

    def _save(self, epoch: int, step: int) -> None:
        write_save(self.folder, Save(epoch, step, self._fingerprint, values_of(self.model)))
        self._saved = step

    def _steps_before(self, save: Save) -> int:
        """Return how many steps make the variables that are missing."""
        steps = int(self.model.steps_per_execution)
        done = save.epoch * len(self.loader) + save.step
        if steps > done:
            raise RestoreError(
                f"`steps_per_execution` must be at most {done}, the steps that were done before "
                f"the save in '{self.folder}', where the first batch makes variables; got {steps}. "
                "Build the model before `fit`, or go on with fewer."
            )
        return steps

    def _restore(self, save: Save) -> None:
        try:
            assign(self.model, _groups(save))
        except ValueError as error:
            raise RestoreError(
                f"the model must have the variables it was saved with in '{self.folder}'; {error}. "
                "Make and compile it as it was then, and build it before `fit`; or delete the "
                "folder to start anew."
            ) from error


def _groups(save: Save) -> Values:
    """Return what is restored: at the beginning of an epoch, metrics hold what validation left."""
    return {group: save.values[group] for group in save.values if group != "metrics" or save.step}
