"""A Keras callback that resumes an interrupted training exactly where it was.

A position is two integers. So it is enough to save them together with the model's variables, and
the batches that follow are the same as without the interruption. Keras's `BackupAndRestore` saves
weights and epoch: after a save within an epoch, it trains that epoch again from its beginning.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oocdata.describe import check_fingerprint, fingerprint
from oocdata.errors import ArgumentError, RestoreError, needed
from oocdata.frontends.saves import (
    Save,
    Values,
    assign,
    assign_rates,
    has_missing_variables,
    make_folder,
    read_save,
    saves_in,
    values_of,
    write_save,
)
from oocdata.index import as_count, as_path
from oocdata.loader import Loader
from oocdata.runs import Pass, Passes

with needed("`Resume` needs Keras", "keras"):
    import keras

if TYPE_CHECKING:
    import tensorflow as tf

_EPOCH_IS_OVER = object()
"""A true value for ``model.stop_training``, which can be told from values that other callbacks
set."""


class Resume(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Keras callback that saves a training as it goes, and continues from the last save.

    After an interruption, run the same script again: ``fit`` continues at the saved step, and
    repeats later steps with the same batches and the same random numbers. Model, optimizers,
    metrics and position are saved together, in one file that is written atomically.

    Parameters
    ----------
    folder : path
        A folder for this training alone. To start anew, delete it or pass another one.
    loader : Loader
        The training data. A save can't be restored with a loader that gives other batches; the
        number of workers and of shards, and the location of the data, may change.
    every : int, optional
        Steps between saves within an epoch. There is always a save at the end of an epoch.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an argument breaks its rule.
    oocdata.errors.RestoreError
        From ``fit``: if the last save is damaged, or belongs to another loader or model.
    oocdata.errors.SourceError
        From ``fit``, before the first step: if the folder can't be written to.

    Notes
    -----
    Pass the dataset of `to_tf` to ``fit``, without ``steps_per_epoch``, and this callback after all
    others. The dataset may be mapped, but each element must stay one step, without ``rebatch``. In
    the epoch that is continued, Keras counts batches from 0, so its progress bar ends early; the
    logs of the epoch cover all its steps. If the first batch creates variables (of a model that is
    not built, of metrics), the first step is run twice, and the effects of the first are undone.

    Saved: ``model.variables`` (weights, and the seeds of layers such as dropout), the variables of
    all optimizers that are attributes of the model (moments, steps, learning rate), and, within an
    epoch, the variables of its metrics. Not saved: the state of other callbacks (the patience of
    ``EarlyStopping`` and ``ReduceLROnPlateau`` starts again), ``History``, random numbers that
    don't come from a `keras.random.SeedGenerator` of the model, and a `tf.Variable` that Keras
    doesn't track.

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
            # Other backends keep variables elsewhere during training, or don't report epochs.
            raise ArgumentError(
                "`Resume` must run with Keras on TensorFlow; its backend is "
                f"{keras.backend.backend()!r}. Save (epoch, step) with the model in a loop over "
                "`loader.epoch(epoch, start=step)`."
            )
        if not isinstance(loader, Loader):  # a stream of generators has no position
            raise ArgumentError(
                f"`loader` must be a Loader: `.batches(size)` of a dataset; got {loader!r}."
            )
        self.folder = Path(as_path("folder", folder))
        self.loader = loader
        self.every = None if every is None else as_count("every", every)
        self._fingerprint = fingerprint(loader, steps=str(len(loader)))
        self._restored: Save | None = None
        self._pass: Pass = loader.pass_from(0)
        """The steps that every iterator over the dataset reads in this epoch. (Keras makes
        iterators that it does not use; under a strategy, threads read from each.)"""
        self._begun = False
        """Whether an iterator has begun to read in this epoch."""
        self._epoch = self._first = self._step = self._saved = 0
        """The epoch, and in it: the step where `fit` began, steps done, and steps saved."""
        self._is_counted = False
        """Whether the steps of the dataset were counted, as `fit` does before it sets callbacks."""
        self._stop = False
        self._rates: list[Any] | None = None
        """Learning rates restored before the first step creates the other variables, or None."""
        self._pending: Save | None = None
        """The save to restore after that step."""

    def __repr__(self) -> str:
        every = f"{self.every} steps" if self.every else "epoch"
        return f"<Resume in {str(self.folder)!r}, saved every {every}: {self.loader!r}>"

    @property
    def start(self) -> tuple[int, int]:
        """The (epoch, step) at which training continues: that of the last save, or (0, 0)."""
        save = self._last_save(with_values=False)
        return (0, 0) if save is None else (save.epoch, save.step)

    def to_tf(self, *, parallel: int = 2, prefetch: int = 2) -> tf.data.Dataset:
        """Return the ``tf.data.Dataset`` to train on: each pass reads the epoch that ``fit`` is in.

        Parameters
        ----------
        parallel, prefetch : int
            As in `oocdata.Loader.to_tf`.

        Returns
        -------
        tf.data.Dataset
            With static shapes, and the cardinality of a whole epoch.
        """
        from oocdata.frontends.tfdata import dataset_of_passes, with_cardinality

        steps = len(self.loader)
        passes = dataset_of_passes(
            self.loader, Passes(self._begin), {"steps": str(steps)},
            parallel=parallel, prefetch=prefetch,
        )  # fmt: skip
        dataset = with_cardinality(passes, steps)
        count = dataset.cardinality

        def cardinality() -> tf.Tensor:
            self._is_counted = True
            return count()

        dataset.cardinality = cardinality
        return dataset

    def stop(self, *_: object) -> None:
        """Save after the step that is running, and end ``fit``.

        Can be used as a signal handler: ``signal.signal(signal.SIGTERM, resume.stop)``.
        """
        self._stop = True

    def _begin(self, end: int) -> Pass:
        if end and self._is_counted and self.model is None:
            # Else `fit` would train on epoch 0 again and again, and save nothing.
            raise ArgumentError(
                "`callbacks` of `fit` must hold the Resume whose dataset it trains on. Write "
                "fit(resume.to_tf(), callbacks=[resume]); without it, fit(loader.to_tf())."
            )
        self._begun = True
        return self._pass

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the last save, if there is one."""
        steps = self.params.get("steps")
        if steps != len(self.loader):
            raise ArgumentError(
                f"`fit` must take the {len(self.loader)} steps of an epoch from the dataset; got "
                f"{steps or 'an unknown number'}. Leave out `steps_per_epoch`, and `rebatch`, "
                "`batch` or `concatenate` of the dataset."
            )
        self._stop = False
        self._restored = self._last_save()
        make_folder(self.folder)  # now, and not at the end of the first epoch
        self._rates = self._pending = None
        if self._restored is not None:
            # Keras's `BackupAndRestore` sets the first epoch in the same way.
            self.model._initial_epoch = self._restored.epoch
            if has_missing_variables(self.model, _groups(self._restored)):
                self._rates = assign_rates(self.model, self._restored.values)
            else:
                self._restore(self._restored)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the steps that the dataset reads in this epoch; restore a save that begins in it."""
        self.model._initial_epoch = None  # `fit` has read it; reset here in case `fit` raises
        save, self._restored = self._restored, None
        self._epoch, self._first = epoch, 0
        if save is not None:
            if epoch != save.epoch:
                raise RestoreError(
                    f"`fit` must go on with epoch {save.epoch}, from 0, as saved in "
                    f"'{self.folder}'; it began with {epoch}. Leave out `initial_epoch`, or delete "
                    "the folder."
                )
            self._first = save.step
            if self._rates is not None:
                self._pending = save
            elif save.step:
                # Again, because Keras has reset the metrics, and other callbacks (e.g. of the
                # learning rate) have handled this as the beginning of an epoch.
                self._restore(save)
        self._step = self._saved = self._first
        self._pass, self._begun = self.loader.pass_from(epoch, self._first), False

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Let the first step create the variables that are missing.

        Keras creates variables from the data of ``fit``, which may be mapped, and in the model's
        own training step. So the model is trained on the first batch twice, and the effects of the
        first time are undone.
        """
        save, self._pending = self._pending, None
        if save is None:
            return
        model, train = self.model, self.model.train_function

        def train_twice(iterator: Any) -> Any:
            model.train_function = train
            # Other callbacks may have changed the rates at the beginning of the epoch.
            rates = [] if save.step else [(rate, rate.numpy()) for rate in self._rates or ()]
            batches = list(islice(iterator, int(model.steps_per_execution)))
            train(iter(batches))
            model.reset_metrics()
            self._restore(save)
            for rate, value in rates:
                rate.assign(value)
            return train(iter(batches))

        model.train_function = train_twice

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps done, and save if it is time."""
        if not self._begun:
            raise ArgumentError(
                "`fit` must be given the dataset of this callback's `to_tf`; it was given another "
                "one. Write fit(resume.to_tf(), callbacks=[resume])."
            )
        steps = len(self.loader)
        # With `steps_per_execution`, the last execution of an epoch may have fewer steps.
        self._step = min(self._first + batch + 1, steps)
        if self._stop or (self.every and self._saved + self.every <= self._step < steps):
            if self._step < steps:
                self._save(self._epoch, self._step)
            if self._stop:
                self.model.stop_training = True
        if self._step == steps and batch + 1 < steps:
            # Keras counts from 0 and would request more. This ends the epoch without a warning.
            self.model.stop_training = self.model.stop_training or _EPOCH_IS_OVER

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save with the next epoch as position."""
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
        """Reset the initial epoch, for another ``fit`` of the model."""
        self.model._initial_epoch = None

    def _last_save(self, with_values: bool = True) -> Save | None:
        for path in saves_in(self.folder):
            save = read_save(path, with_values=with_values)
            anew = "start anew in another folder"
            check_fingerprint(save.fingerprint, self._fingerprint, f" (in '{path}')", anew)
            return save
        return None

    def _save(self, epoch: int, step: int) -> None:
        write_save(self.folder, Save(epoch, step, self._fingerprint, values_of(self.model)))
        self._saved = step

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
    """Return the values to restore: no metrics between epochs, when they hold validation's."""
    return {group: save.values[group] for group in save.values if group != "metrics" or save.step}
