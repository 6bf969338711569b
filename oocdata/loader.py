"""Define `Loader`, which maps (step, epoch) to a batch.

NumPy iteration, tf.data and Keras all read through `Loader.batch` and `Loader.read`. So a position
to resume from is two integers, and sharding never changes what a global batch holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from oocdata import registry
from oocdata.box import Ints
from oocdata.choice import choose_order
from oocdata.cost import cached_bytes
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.parsed import Parsed
from oocdata.datasets.request import ArrayRequest, prefetching, read_columns
from oocdata.datasets.spec import Batch, Spec, batched_spec, batches_of, leaves
from oocdata.engines import buffers
from oocdata.engines.dtypes import check_dtype
from oocdata.errors import ArgumentError, EmptyError, PositionError, without_methods
from oocdata.index import as_count, as_flag, as_shard, as_whole
from oocdata.order import Order, Sequential
from oocdata.order.mixture import Mixture
from oocdata.order.steps import Steps
from oocdata.order.weighted import Weighted
from oocdata.runs import MOST_WORKERS, Ahead, Epochs, Pass, Run, plan_ahead, steps_together
from oocdata.threads import cached_property

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from oocdata.engines.prefetch import Link
    from oocdata.explain import Explanation
    from oocdata.tools.profile import Profile

_COPIED_BYTES = 256 << 10
"""Arrays whose batches are not a multiple of the alignment are read several steps at a time, and
copied to aligned memory, up to this size of a batch."""

_MAPPED_STEPS, _MAPPED_BYTES = 8, 4 << 20
"""Most steps of a run of mapped functions, and bytes of their arguments and results: through
`to_tf`, batches of 32 small pictures (100 KB as float32) come 3.2 times as fast as one by one."""

_MOST_SEPARATE = 32
"""Most steps of a run whose batches are several arrays each, which TensorFlow takes one by one."""

_RUNS_IN_A_WINDOW = 4
"""Runs of steps in a window of a block shuffle, at least: when a run ends in one window, the chunks
of the window before it are no longer needed."""


def make_loader(
    dataset: Dataset,
    batch_size: int,
    shuffle: bool | str | Order,
    seed: int,
    weights: ArrayLike | Dataset | None,
    bucket: Sequence[int] | None,
    drop_remainder: bool,
    workers: int,
) -> Loader:
    """Check the arguments of `Dataset.batches` and return the loader."""
    size = as_count("batch_size", batch_size)
    processes = as_count("workers", workers, at_least=0, at_most=MOST_WORKERS)
    seed = as_whole("seed", seed)
    if len(dataset) == 0:
        raise EmptyError("a dataset must hold at least one element to make batches; it holds none.")
    for source in dataset.sources():
        if source.dtype.names:  # a compound dtype of which no field was selected
            check_dtype(source.dtype, source.storage().path, source.storage().key)
    drop = as_flag("drop_remainder", drop_remainder)
    order, reason = choose_order(dataset, shuffle, size, weights, bucket)
    loader = Loader(dataset, size, order, seed, drop, reason, processes)
    if len(loader) == 0:
        raise EmptyError(
            f"`batch_size` must be at most the {loader.steps.length} elements of an epoch when the "
            f"remainder is dropped; got {size}."
        )
    forms = {leaf.form for leaf in leaves(dataset.spec)} if dataset.is_multi_array else set()
    if processes and not forms <= {"dense", "padded"}:
        raise ArgumentError(
            "`workers` must be 0 for sparse and ragged batches, which threads read; got "
            f"{processes}."
        )
    if processes:
        registry.call("check_workers", loader)
    return loader


@without_methods(
    {
        "prefetch": "; oocdata's own is .to_tf(prefetch=…)",
        "repeat": "; oocdata's own is .to_tf(epochs=…); iterating again is the next epoch",
        "map": "; map the dataset, before .batches, or what .to_tf() returns",
        "shape": "; `fit` takes .to_tf() or .to_keras()",
        "shuffle": "; oocdata's own is .batches(size, shuffle=True) of the dataset",
    }
)
@dataclass(frozen=True, eq=False, repr=False)
class Loader(Epochs):
    """Batches of a dataset, by (step, epoch).

    Made by `Dataset.batches`. Each iteration over a loader gives the batches of the next epoch, as
    NumPy arrays; `to_tf` and `to_keras` give them to TensorFlow and Keras.

    Attributes
    ----------
    dataset : Dataset
    batch_size : int
        Elements of a global batch: the batch of all ranks together.
    order : Order
    seed : int
    drop_remainder : bool
    reason : str
        Why this order was chosen.
    workers : int
        Worker processes that read; 0 reads in threads of this process.
    num_shards, index : int
        The number of ranks, and which of them this loader reads for.

    Examples
    --------
    >>> import oocdata as ooc
    >>> loader = ooc.open(np.arange(10)).batches(4)
    >>> [batch.tolist() for batch in loader]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    dataset: Dataset
    batch_size: int
    order: Order
    seed: int
    drop_remainder: bool
    reason: str = ""
    workers: int = 0
    num_shards: int = 1
    index: int = 0

    def __repr__(self) -> str:
        return f"<Loader: {len(self)} batches of {self.batch_size} from {self.dataset!r}>"

    def __len__(self) -> int:
        """Return the number of steps in an epoch."""
        return self.steps.number

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise ArgumentError(
            f"an array must be made of a dataset, or of one batch; got {self!r}. Write "
            "np.asarray(view) or loader.batch(0)."
        )

    @cached_property
    def steps(self) -> Steps:
        """The positions of each step."""
        return Steps(
            self.order, len(self.dataset), self.batch_size, self.seed, self.drop_remainder,
            self.num_shards, self.index,
        )  # fmt: skip

    @property
    def spec(self) -> Spec:
        """Shape and dtype of each array of a batch; the batch axis is None if the last is short."""
        full = self.batch_size // self.num_shards
        length = None if self.steps.used % self.batch_size else full
        return batched_spec(self.dataset.spec, length)

    @property
    def largest_batch(self) -> int:
        """Largest number of elements that this loader reads for a batch."""
        return min(self.batch_size, self.steps.length) // self.num_shards

    @cached_property
    def array_bytes(self) -> list[int]:
        """Bytes of each array of a batch that this loader reads; an upper bound for ragged rows."""
        share = self.largest_batch
        # `times` is how often the largest row may occur in one batch.
        times = share if isinstance(self.order, Weighted) else 1
        if isinstance(self.order, Mixture) and self.dataset.is_multi_array:
            # A member may restart within a batch, and yield its largest row again.
            times = 2 if self.batch_size <= min(self.order.counts) else share
        return [times * nbytes for nbytes in self.dataset.array_bytes(-(-share // times))]

    def input_bytes(self, steps: int = 1) -> int:
        """Return the bytes of intermediate buffers that reading a run needs besides its batches."""
        return self.dataset.input_bytes(steps * self.largest_batch)

    @cached_property
    def text_bytes(self) -> int:
        """Bytes of a batch's strings as TensorFlow holds them, whatever their stored length.

        A string takes 24 bytes; if it is longer than 22 bytes, also memory of its own from malloc.
        """
        nbytes = 0
        for leaf in leaves(self.dataset.spec):
            if leaf.dtype.kind in "SU" and (itemsize := leaf.dtype.itemsize):
                count = self.batch_bytes // itemsize
                if leaf.form == "dense":
                    count = self.largest_batch * prod(leaf.shape)
                own = 0 if itemsize <= 22 else -(-(itemsize + 1) // 16) * 16 + 16
                nbytes += count * (24 + own)
        return nbytes

    @property
    def steps_together(self) -> int:
        """Number of steps that iteration reads at once; see `oocdata.runs`."""
        return self._together(None)

    @cached_property
    def most_together(self) -> int:
        """Number of steps that iteration reads at once if memory is no limit."""
        return self._together(1 << 62)

    def _together(self, share: int | None) -> int:
        """Return the number of steps to read at once, with `share` bytes for batches in flight."""
        far = self.dataset.is_refetched
        if self.dataset.is_mapped:
            nbytes = self.batch_bytes + self.input_bytes()
            together = steps_together(len(self), nbytes, share=share, far=far)
            together = min(together, _MAPPED_STEPS, max(1, _MAPPED_BYTES // max(1, nbytes)))
            return 1 if self.workers else together  # slow functions: each process takes a step
        if any(size % buffers.ALIGNMENT and size > _COPIED_BYTES for size in self.array_bytes):
            return 1
        order = self.order
        scattered = order.lanes is None and not isinstance(order, Sequential) and self.chunked
        together = steps_together(
            len(self), self.batch_bytes + self.text_bytes, share=share, share_chunks=scattered,
            far=far,
        )  # fmt: skip
        if self.dataset.is_multi_array:
            together = min(together, _MOST_SEPARATE)
        if order.lanes is None:
            return together
        mixed = order.elements_mixed(len(self.dataset))
        return max(1, min(together, mixed // (_RUNS_IN_A_WINDOW * self.batch_size)))

    @cached_property
    def chunked(self) -> bool:
        """Whether any source decodes chunks."""
        return any(source.storage().chunks is not None for source in self.dataset.sources())

    @cached_property
    def cached(self) -> bool:
        """Whether reading fills a chunk cache, here or in worker processes."""
        if self.workers:
            return True
        return any(cached_bytes(source, source.storage()) for source in self.dataset.sources())

    @property
    def tf_loader(self) -> Loader:
        """The loader that `to_tf` reads: of raw records, if TensorFlow parses them in its graph."""
        parsed = self.dataset
        return replace(self, dataset=parsed.source) if isinstance(parsed, Parsed) else self

    def ahead(self, parallel: int = 2, prefetch: int = 2) -> Ahead:
        """Return how many runs iteration keeps in flight; see `oocdata.runs.plan_ahead`."""
        return plan_ahead(
            self.steps_together, self.batch_bytes, parallel, prefetch,
            cached=self.cached,
        )  # fmt: skip

    def positions(self, step: int, epoch: int = 0) -> Ints:
        """Return the dataset positions of the elements of a batch, shape (batch,).

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step.
        """
        step, epoch = self._checked(step, epoch, len(self) - 1, "step")
        return self.steps.positions(step, epoch).copy()

    def _checked(self, step: int, epoch: int, last: int, name: str) -> tuple[int, int]:
        """Return a step and an epoch as Python integers, which do not overflow as NumPy's do."""
        try:
            step, epoch = operator.index(step), operator.index(epoch)
            is_valid = 0 <= step <= last and epoch >= 0
        except TypeError:
            is_valid = False
        if not is_valid:
            raise PositionError(
                f"`{name}` must be a whole number from 0 to {last}, and `epoch` of at least 0; got "
                f"`{name}` {step!r} and `epoch` {epoch!r}."
            )
        return step, epoch

    def batch(self, step: int, epoch: int = 0) -> Any:
        """Read one batch: a pure function of (step, epoch).

        Parameters
        ----------
        step : int
            0 ≤ step < len(self).
        epoch : int
            Counted from 0.

        Returns
        -------
        ndarray, tuple or dict of ndarray
            Arrays with a leading batch axis, 64-byte aligned. The caller owns them, and may keep or
            change them.

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step.
        oocdata.errors.SourceError
            If storage can't deliver a row; the message names the file, the dataset and the rows.
        """
        steps = self.steps
        if not (type(step) is type(epoch) is int and 0 <= step < steps.number and epoch >= 0):
            step, epoch = self._checked(step, epoch, len(self) - 1, "step")
        (positions,) = steps.run(step, step + 1, epoch)
        return self.dataset.read(positions, Draw(self.seed, epoch, step, steps.lane, positions))

    def read(self, run: Run) -> list[Batch]:
        """Read a run of at least one step; return the batch of each, as `batch` does.

        Each batch keeps only its own memory alive.
        """
        if not self.dataset.is_remote:
            return self.read_requested(run)
        with self.prefetched(run):
            return self.read_requested(run)

    def prefetched(self, run: Run) -> AbstractContextManager[Sequence[Link]]:
        """Return a context manager that keeps a run's requests to stores in flight."""
        return prefetching(self.requests(run))

    def requests(self, run: Run) -> tuple[ArrayRequest, ...]:
        """Return the boxes of the elements of a run; reads nothing."""
        positions = np.concatenate(self.steps.run(run.start, run.stop, run.epoch))
        # No mapped function draws from it: all randomness here is keyed by position.
        draw = Draw(self.seed, run.epoch, run.start, self.steps.lane, positions)
        return self.dataset.requests(positions, draw)

    def read_requested(self, run: Run) -> list[Batch]:
        """Read a run of steps whose bytes in stores have been requested; see `read`."""
        dataset = self.dataset
        if not dataset.is_mapped:
            return batches_of(self._columns(run), dataset.spec)
        arrays = None if dataset.has_requests_by_part else zip(*self._columns(run), strict=True)
        batches = []
        for step in range(run.start, run.stop):
            positions = self.steps.positions(step, run.epoch)
            draw = Draw(self.seed, run.epoch, step, self.steps.lane, positions)
            if arrays is None:
                batches.append(dataset.read_requested(positions, draw))
            else:
                batches.append(dataset.assemble(iter(next(arrays)), positions, draw))
        return batches

    def _columns(self, run: Run) -> Iterator[list[Any]]:
        """Read a run of steps; yield for each array of `requests` those of all steps."""
        lengths = self.steps.lengths(run.start, run.stop)
        # Room for a full run, although the last run of an epoch may be shorter.
        room = (run.most or self.steps_together) * self.largest_batch
        return read_columns(self.requests(run), lengths, room)

    def pass_from(self, epoch: int, start: int = 0, epochs: int = 1) -> Pass:
        """Return the pass over `epochs` epochs that begins at step `start` of the first."""
        steps = len(self)
        return Pass(
            epoch * steps + start, epochs * steps - start, steps, self.steps_together,
            last_alone=bool(self.steps.used % self.batch_size),
        )  # fmt: skip

    def reader(self) -> Callable[[Run], list[Batch]]:
        """Return the function that reads runs, in any order and from any thread: `read`."""
        return self.read

    def epoch(
        self, epoch: int, start: int = 0, *, parallel: int = 2, prefetch: int = 2
    ) -> Iterator[Any]:
        """Iterate over the batches of one epoch from step `start`; earlier steps are not read.

        Batches are read ahead, in threads or in worker processes, within the memory that
        `oocdata.set_memory` allows.

        Parameters
        ----------
        epoch, start : int
        parallel : int
            Runs of steps read at a time.
        prefetch : int
            Batches kept ready besides, rounded down to whole runs.

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step (`start` may be one past the last step).

        Examples
        --------
        >>> import oocdata as ooc
        >>> loader = ooc.open(np.arange(10)).batches(4)
        >>> [batch.tolist() for batch in loader.epoch(0, start=1)]
        [[4, 5, 6, 7], [8, 9]]
        """
        start, epoch = self._checked(start, epoch, len(self), "start")
        parallel = as_count("parallel", parallel)
        prefetch = as_count("prefetch", prefetch, at_least=0)
        return registry.call("epoch", self, epoch, start, parallel=parallel, prefetch=prefetch)

    def shard(self, num_shards: int, index: int) -> Loader:
        """Return the loader of one rank's part of every global batch, for data-parallel training.

        The global batches are the same for every `num_shards`. A rank reads only its own part; with
        a block shuffle, it decodes only its own share of the chunks. Elements of a short last batch
        that can't be divided evenly are dropped, so all ranks take the same steps with batches of
        the same sizes.

        Parameters
        ----------
        num_shards : int
            Number of ranks. Must divide the batch size, and the lanes of a block shuffle.
        index : int
            0 ≤ index < num_shards.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the batch can't be divided evenly, or this loader is a shard already.

        Examples
        --------
        >>> import oocdata as ooc
        >>> loader = ooc.open(np.arange(8)).batches(4)
        >>> [loader.shard(2, i).batch(1).tolist() for i in range(2)]
        [[4, 5], [6, 7]]
        """
        shards, place = as_shard(num_shards, index)
        if self.num_shards != 1:
            raise ArgumentError("`shard` must be called on a whole loader; this one is a shard.")
        lanes = self.steps.lanes  # of a block shuffle; otherwise each element of a batch is one
        if lanes % shards:
            allowed = [number for number in range(1, lanes + 1) if lanes % number == 0]
            raise ArgumentError(
                "`num_shards` must divide the batch size, and the lanes of a block shuffle: one of "
                f"{allowed}; got {shards}."
            )
        sharded = replace(self, num_shards=shards, index=place)
        if len(sharded) == 0:
            raise EmptyError(
                f"`num_shards` must be at most the {len(self.dataset)} elements; got {shards}."
            )
        return sharded

    def describe(self) -> dict[str, Any]:
        """Return the loader's description as JSON data, from which its fingerprint is computed."""
        return registry.call("describe", self)

    def explain(self, *, parallel: int = 2, prefetch: int = 2) -> Explanation:
        """Return an explanation to print: what is read and how, the order, memory, and advice.

        Parameters
        ----------
        parallel, prefetch : int
            The values that you will pass to `to_tf` or `epoch`.
        """
        return registry.call("explain", self, parallel, prefetch)

    def profile(
        self,
        model_step: Callable[..., object] | None = None,
        *,
        seconds: float = 5.0,
        to_tf: bool = False,
    ) -> Profile:
        """Measure whether the model or the data is the bottleneck; return a report to print.

        Times the data alone, the model alone on one repeated batch, and both together, in
        alternating rounds. The epoch that the next iteration reads stays the same. The model is
        called for real: a training step changes its weights, so profile a copy, or profile before
        you train.

        Parameters
        ----------
        model_step : callable, optional
            What a training loop does with a batch, e.g. ``model.train_on_batch``. It gets the parts
            of a tuple as separate arguments, as functions of `map` do, and anything else as one
            argument. A few untimed calls come first, so that tracing is not measured.
        seconds : float
            Approximate duration. A read or a step that has begun is not interrupted.
        to_tf : bool
            Take the batches from ``to_tf()`` instead of plain iteration.

        Returns
        -------
        Profile

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument breaks its rule.
        oocdata.errors.SourceError
            If storage can't deliver a row. Exceptions of `model_step` are passed on.

        Examples
        --------
        >>> import oocdata as ooc
        >>> found = ooc.open(np.zeros((1000, 8))).batches(10).profile(seconds=0.1)
        >>> found.verdict, found.data_rate > 0
        ('alone', True)
        """
        return registry.call("profile", self, model_step, seconds=seconds, to_tf=to_tf)

    def to_tf(
        self,
        *,
        start: tuple[int, int] = (0, 0),
        epochs: int = 1,
        parallel: int = 2,
        prefetch: int = 2,
        sparse: bool = False,
        service: str | None = None,
        job_name: str | None = None,
    ) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` of batches, for ``model.fit`` or any training loop.

        Each new iteration continues with the following epochs, so every epoch of ``fit`` sees each
        element once, in a new order. With ``steps_per_epoch``, ``fit`` draws all its epochs from
        one iteration: then pass ``epochs`` here too.

        The prefetch that TensorFlow adds by default to the end of a pipeline is disabled, because
        it grows to hundreds of batches. After a slow ``map`` of your own, add ``.prefetch(2)``.

        Parameters
        ----------
        start : (epoch, step)
            Where the first pass begins; nothing before it is read. A saved iterator can be restored
            into a dataset with the same `start`, or with another one if the steps are 0 in both.
        epochs : int
            Epochs in one pass, which ends with epoch ``start[0] + epochs - 1``.
        parallel : int
            Batches read at a time; if batches are so small that several share a read (up to 64
            batches and 32 MiB), runs of batches. With worker processes, at least two for each.
        prefetch : int
            Batches kept ready besides, rounded down to whole runs; 0 if a run is longer.
        sparse : bool
            Return rows of sparse matrices (AnnData) as ``tf.sparse.SparseTensor`` instead of dense
            arrays; see `Dataset.sparse`.
        service : str, optional
            Address ``"HOST:PORT"`` of an ``oocdata dispatcher`` whose workers read, from the same
            paths. An epoch has the same batches; their order depends on which worker is faster.
            `parallel` then applies to each worker.
        job_name : str, optional
            Trainers that pass the same name share each epoch of the same loader: every batch goes
            to one of them. Use a new name for each training run.

        Returns
        -------
        tf.data.Dataset
            With static shapes (except a short last batch) and known cardinality (except with
            `job_name`, where each trainer's share is not known in advance).

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument breaks its rule.
        oocdata.errors.MissingDependencyError
            If TensorFlow is not installed.
        oocdata.errors.DescriptionError
            If the loader can't be described to the workers of `service`; see `describe`.
        oocdata.errors.ServiceError
            If no dispatcher answers.
        """
        loader = replace(self, dataset=self.dataset.sparse()) if as_flag("sparse", sparse) else self
        return registry.call(
            "to_tf", loader, start=start, epochs=epochs, parallel=parallel, prefetch=prefetch,
            service=service, job_name=job_name,
        )  # fmt: skip

    def to_keras(self, *, start: tuple[int, int] = (0, 0)) -> keras.utils.PyDataset:
        """Return a ``keras.utils.PyDataset`` of batches, for Keras with any backend.

        Each time Keras begins with the first step is the next epoch, as with `to_tf`. With
        ``steps_per_epoch``, one ``fit`` continues within an epoch; another ``fit`` begins anew.

        Parameters
        ----------
        start : (epoch, 0)
            The epoch that comes first. (`to_tf` also begins within an epoch.)

        Raises
        ------
        oocdata.errors.ArgumentError
            If `start` has another step; if the batches are sparse or ragged, or hold bytes of
            unequal length.
        oocdata.errors.MissingDependencyError
            If Keras is not installed.

        Notes
        -----
        On TensorFlow, Keras keeps every ``PyDataset`` that it was given until the process ends, and
        with this one the open files and arrays in memory that the loader reads. For many calls of
        ``fit``, make one and pass it again, or pass `to_tf()`, which is freed.
        """
        return registry.call("to_keras", self, start)
