"""Make a `keras.utils.PyDataset` of a loader or a stream, for any Keras backend."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from oocdata.datasets.spec import Batch, leaves, map_tree
from oocdata.errors import ArgumentError, EmptyError, needed
from oocdata.frontends.batching import checked_start, without_aliases
from oocdata.frontends.originals import error_for_tensorflow, forget_originals
from oocdata.index import as_count

with needed("`to_keras` needs Keras", "keras"):
    import keras

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset
    from oocdata.loader import Loader
    from oocdata.stream import Generated, Stream

_INSPECTED = 2
"""Batches at which Keras looks to find their shapes."""

_last: weakref.ref[Batches] | None = None
"""The batches that began to read ahead last. After Ctrl-C, Keras ends no epoch, and TensorFlow
frees no batches: they are paused when others begin."""


class _OrderedBatches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches that one thread requests in order; they are read ahead here, not by Keras's pool.

    Keras looks at the first batches before it trains, asks for steps ahead that it may not use, and
    with ``steps_per_epoch`` it continues in the middle of an epoch. So a pass over the batches
    begins with the first step that Keras requests within an epoch of its own, and ends when it has
    requested all, requests one again, or makes another iterator. A pass that Keras has begun to
    build a model comes again.

    Each pass is read by a loader of its own, with which the worker processes end: TensorFlow never
    frees this object.
    """

    def __init__(self, dataset: Dataset | Generated, steps: int, epoch: int = 0) -> None:
        if dataset.is_multi_array or any(leaf.dtype.hasobject for leaf in leaves(dataset.spec)):
            raise ArgumentError(
                "`to_keras` must be given arrays of numbers; these are sparse or ragged, or hold "
                "bytes of unequal length. `to_tf` takes them."
            )
        super().__init__()
        self._steps = steps
        self._lock = threading.Lock()
        self._ahead: Iterator[Batch] | None = None
        self._asked: set[int] = set()
        """Steps of the current pass that Keras has requested."""
        self._seen: dict[int, Batch] = {}
        """Batches of worker processes or generators that were inspected, by step; they come again
        in the next pass."""
        self._epoch = self._first = epoch
        """The epoch of the current or next pass, and of the pass when Keras made its iterator."""
        self._begun = self._in_epoch = False
        self._opened = self._built = False
        """Whether Keras has made an iterator and neither begun nor ended an epoch since; whether it
        is in an epoch that it began before it ended one."""
        weakref.finalize(self, forget_originals, id(self)).atexit = False

    def _refuse(self, value: object) -> None:
        if value not in (1, False):
            raise ArgumentError(
                "Keras's `workers` must be 1 and its `use_multiprocessing` False for these "
                f"batches, which are read ahead anyway; got {value!r}. To read in worker "
                "processes: `batches(…, workers=4)`, or `generate(…, workers=4)`."
            )

    def _open(self) -> int:
        """Note that Keras makes an iterator, for `fit` or `predict`: only then does it ask this."""
        with self._lock:
            self._opened, self._built = True, False
            self._in_epoch = False  # Keras does not end an epoch that a callback stops
            self._end_pass()
            self._first = self._epoch
        return 1

    workers = property(_open, _refuse)
    use_multiprocessing = property(lambda self: False, _refuse)

    def __len__(self) -> int:
        return self._steps

    def on_epoch_begin(self) -> None:
        """Note that Keras begins an epoch; called by Keras."""
        with self._lock:
            # Keras ends an epoch before `fit` begins the first one. So if it began one, that was to
            # build a model, with any number of steps, which come again.
            if self._built:
                self._end_pass()
                self._epoch = self._first
            self._built, self._opened = self._opened, False
            self._begun = self._in_epoch = True

    def on_epoch_end(self) -> None:
        """Note that Keras has ended its epoch, maybe to continue; called by Keras."""
        with self._lock:
            self._opened = self._in_epoch = False

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of a step of the current epoch."""
        try:
            with self._lock:
                batch = self._batch(step)
            arrays = iter(without_aliases(leaves(batch)))
            return map_tree(lambda _: next(arrays), batch)
        except BaseException as error:
            self._ahead = None  # the exception may keep this object
            if step in self._asked:  # Keras ends no epoch in which a read failed
                self._in_epoch = False
            in_graph = self._begun and threading.current_thread() is not threading.main_thread()
            if in_graph and keras.backend.backend() == "tensorflow":
                raise error_for_tensorflow(error, id(self)) from error
            raise

    def _batch(self, step: int) -> Batch:
        if step in self._asked:  # Keras has broken off that pass
            self._end_pass()
        if not (self._in_epoch or self._asked):
            return self._inspected(step)
        at = len(self._asked)
        self._check_order(at, step)
        self._asked.add(step)
        batch = self._next(at, step)
        if len(self._asked) == len(self):
            self._end_pass()
        return batch

    def _end_pass(self) -> None:
        """End the current pass, if it has begun."""
        if self._asked:
            self._epoch += 1
            self._ahead, self._asked, self._seen = None, set(), {}

    def _check_order(self, at: int, step: int) -> None:
        """Raise if Keras may not request a step as number `at` of a pass; nothing has changed."""

    def _inspected(self, step: int) -> Batch:
        """Return a batch of the next pass, at which Keras looks before it begins one."""
        raise NotImplementedError

    def _next(self, at: int, step: int) -> Batch:
        """Return batch `at` of the current pass, which Keras has requested as `step`."""
        raise NotImplementedError


class Batches(_OrderedBatches):
    """A loader's batches by step, epoch after epoch."""

    def __init__(self, loader: Loader, start: tuple[int, int]) -> None:
        epoch, step, _ = checked_start(loader, start, 1)
        super().__init__(loader.dataset, len(loader), epoch)
        self.loader = loader
        if step:
            raise ArgumentError(
                "`start` must have step 0, because each epoch of a PyDataset has equally many "
                f"steps; got {start!r}. `to_tf` begins within an epoch."
            )

    def on_epoch_end(self) -> None:
        """Note that Keras has ended its epoch; called by Keras."""
        super().on_epoch_end()
        with self._lock:
            self._ahead = None

    def _inspected(self, step: int) -> Batch:
        # By the worker processes too: a function may end its process.
        if self.loader.workers and step == len(self._seen) < _INSPECTED:
            self._seen[step] = self._read(step)
        return self._seen[step] if step in self._seen else self.loader.batch(step, self._epoch)

    def _check_order(self, at: int, step: int) -> None:
        # A thread of an iterator that `fit` has left may request a step after the next one began.
        if self._in_epoch and step != at:
            raise ArgumentError(
                "`shuffle` must be False in `fit` on a loader's batches: Keras asked for step "
                f"{step} after {at} others, and the loader's own order, which is cheap to read, "
                "would be lost. Pass fit(…, shuffle=False); the loader shuffles: "
                "`batches(…, shuffle=True)`."
            )

    def _next(self, at: int, step: int) -> Batch:
        if not self._in_epoch:  # Keras's threads may request steps after one: without reading ahead
            return self._inspected(step)
        return self._seen.pop(step) if step in self._seen else self._read(step)

    def _read(self, step: int) -> Batch:
        global _last
        if self._ahead is None:
            if _last is not None and (other := _last()) is not None:
                other.pause()
            self._ahead = replace(self.loader).epoch(self._epoch, start=step)
            _last = weakref.ref(self)
        return next(self._ahead)

    def pause(self) -> None:
        """Stop reading ahead, which frees its memory, unless a batch is being read now.

        The next step begins to read ahead anew.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._ahead = None
            finally:
                self._lock.release()


class StreamBatches(_OrderedBatches):
    """A stream's batches in order, whatever step Keras requests; new generators for each pass."""

    def __init__(self, stream: Stream, steps: int | None) -> None:
        if steps is None and stream.steps is None:
            raise ArgumentError(
                "`steps` must be given, as nobody knows how many batches the generators make; or "
                "tell `generate` the `length` of all together."
            )
        count = as_count("steps", stream.steps if steps is None else steps)
        super().__init__(stream.dataset, count)
        self.stream = stream

    def _inspected(self, step: int) -> Batch:
        self._seen[step] = batch = self._next(step, step)
        return batch

    def _next(self, at: int, step: int) -> Batch:
        batch = self._seen.pop(step, None)
        if batch is None:
            self._ahead = self._ahead or replace(self.stream).epoch(self._epoch)
            batch = next(self._ahead, None)
        if batch is None:
            raise EmptyError(
                f"`steps` must be at most the batches that the generators make; they ended before "
                f"step {step} of {len(self)}"
                f"{', and the remainder is dropped' * self.stream.drop_remainder}."
            )
        return batch
