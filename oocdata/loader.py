"""The narrow waist: (step, epoch) → batch, a pure function of the loader's description.

NumPy iteration, tf.data and Keras all come through `Loader.batch` and `Loader.run`; resuming is two
integers, and sharding never changes what a global batch holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata import chain
from oocdata.choice import choose_order
from oocdata.cost import cached_bytes
from oocdata.datasets.dataset import Dataset, Draw, public_names
from oocdata.datasets.map import InGraph, Map
from oocdata.datasets.request import ArrayRequest, asked_for
from oocdata.datasets.spec import Batch, Spec, batched_spec, batches_of, leaves
from oocdata.engines import buffers
from oocdata.engines.source import check_dtype
from oocdata.errors import ArgumentError, EmptyError, PositionError
from oocdata.index import as_count, as_flag, as_shard, as_whole
from oocdata.order import Order, Sequential
from oocdata.order.mixture import Mixture
from oocdata.order.order import laned
from oocdata.order.steps import Steps
from oocdata.order.weighted import Weighted
from oocdata.runs import MOST_WORKERS, Ahead, Epochs, Pass, Run, plan_ahead, steps_together
from oocdata.threads import cached_property

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from oocdata.engines.soon import Asks
    from oocdata.explain import Explanation
    from oocdata.tools.profile import Profile

__all__ = ["Loader", "make_loader"]

_COPIED_BYTES = 256 << 10
"""Batches of an array are read in one run and copied to aligned memory up to this size."""

_RUNS_IN_A_WINDOW = 4
"""Of a block shuffle: so that chunks of the window before are no longer needed when one ends."""


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
        if source.dtype.names:  # rows of which no field was chosen
            check_dtype(source.dtype, source.storage().path, source.storage().key)
    drop = as_flag("drop_remainder", drop_remainder)
    if drop and len(dataset) < size:
        raise EmptyError(
            f"`batch_size` must be at most the {len(dataset)} elements when the remainder is "
            f"dropped; got {size}."
        )
    order, reason = choose_order(dataset, shuffle, size, weights, bucket)
    given = shuffle if isinstance(shuffle, bool | str) else bool(shuffle)
    loader = Loader(dataset, size, order, seed, drop, given, reason, processes)
    if processes and dataset.is_composed:
        raise ArgumentError(
            "`workers` must be 0 for sparse and ragged batches, which threads read; got "
            f"{processes}."
        )
    if processes:
        chain.make("check_workers", loader)
    return loader


@dataclass(frozen=True, eq=False, repr=False)
class Loader(Epochs):
    """Batches of a dataset by (step, epoch); made by `Dataset.batches`.

    Attributes
    ----------
    dataset : Dataset
    batch_size : int
        Of a global batch, that of all ranks together.
    order : Order
    seed : int
    drop_remainder : bool
    shuffle : bool or str
        What was asked for; True where an order was given.
    reason : str
        Why this order.
    workers : int
        Processes that iteration reads with; 0: this one.
    num_shards, index : int
        Which part of every global batch this loader reads.

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
    shuffle: bool | str = True
    reason: str = ""
    workers: int = 0
    num_shards: int = 1
    index: int = 0

    _public: ClassVar[Sequence[str]] = (
        "batch", "batch_bytes", "describe", "epoch", "explain", "positions", "profile", "shard",
        "spec", "to_keras", "to_tf",
    )  # fmt: skip
    __dir__ = public_names

    def __repr__(self) -> str:
        return f"<Loader: {len(self)} batches of {self.batch_size} from {self.dataset!r}>"

    def __len__(self) -> int:
        """Return the steps in an epoch."""
        return self.steps.number

    @cached_property
    def steps(self) -> Steps:
        """The positions of each step."""
        return Steps(
            self.order, len(self.dataset), self.batch_size, self.seed, self.drop_remainder,
            self.num_shards, self.index,
        )  # fmt: skip

    @property
    def spec(self) -> Spec:
        """Shape and dtype of a batch's arrays; the batch axis is None where the last is short."""
        full = self.batch_size // self.num_shards
        length = None if self.steps.used % self.batch_size else full
        return batched_spec(self.dataset.spec, length)

    @property
    def largest(self) -> int:
        """Elements of a batch that this loader reads, at most: no more than there are."""
        return min(self.batch_size, self.steps.length) // self.num_shards

    @cached_property
    def array_bytes(self) -> list[int]:
        """Bytes of each array of a batch that this loader reads; of rows of any length, at most."""
        share = self.largest
        times = share if isinstance(self.order, Weighted) else 1  # all may be the largest row
        if isinstance(self.order, Mixture) and self.dataset.is_composed:
            # A member may begin anew within a batch, and give its largest row again.
            times = 2 if self.batch_size <= min(self.order.counts) else share
        return [times * nbytes for nbytes in self.dataset.array_bytes(-(-share // times))]

    def input_bytes(self, steps: int = 1) -> int:
        """Return the bytes that a run is read into before its batches are made of them.

        Those that a mapped function gets, and the numbers of sparse rows; 0 if all are read in
        place.
        """
        return self.dataset.input_bytes(steps * self.largest)

    @property
    def steps_together(self) -> int:
        """Steps that iteration reads at once; `oocdata.runs` says why."""
        if self.dataset.is_mapped:  # a function gets its batches one by one
            return 1
        sparse = any(leaf.form == "sparse" for leaf in leaves(self.dataset.spec))
        if sparse and self.batch_bytes > _COPIED_BYTES:
            return 1  # of several steps side by side, TensorFlow copies each
        for nbytes in self.array_bytes:
            if nbytes % buffers.ALIGNMENT and nbytes > _COPIED_BYTES:
                return 1
        order = laned(self.order)
        scattered = order is None and not isinstance(self.order, Sequential) and self.chunked
        objects = any(leaf.dtype.hasobject for leaf in leaves(self.dataset.spec))
        together = steps_together(
            len(self),
            self.batch_bytes,
            share_chunks=scattered,
            objects=objects,
            far=self.dataset.is_far,
        )
        if order is None:
            return together
        mixed = order.elements_mixed(len(self.dataset))
        return max(1, min(together, mixed // (_RUNS_IN_A_WINDOW * self.batch_size)))

    @cached_property
    def chunked(self) -> bool:
        """Whether elements are decoded in chunks."""
        return any(source.storage().chunks is not None for source in self.dataset.sources())

    @cached_property
    def cached(self) -> bool:
        """Whether anything that is read is kept, or read by processes that may keep it."""
        sources = self.dataset.sources()
        return bool(self.workers) or any(cached_bytes(one, one.storage()) for one in sources)

    @property
    def in_tf(self) -> Loader:
        """The loader whose runs `to_tf` reads: of records, where they are parsed in its graph."""
        mapped = self.dataset
        parses = isinstance(mapped, Map) and isinstance(mapped.fn, InGraph)
        return replace(self, dataset=mapped.source) if parses else self

    def ahead(self, parallel: int = 2, prefetch: int = 2) -> Ahead:
        """Return how many steps iteration has under way; see `oocdata.runs.plan_ahead`."""
        return plan_ahead(
            self.steps_together, self.batch_bytes, parallel, prefetch,
            cached=self.cached,
        )  # fmt: skip

    def positions(self, step: int, epoch: int = 0) -> NDArray[np.int64]:
        """Return the dataset's positions that a batch is made of, shape (batch,).

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step.
        """
        step, epoch = self._checked(step, epoch, len(self) - 1, "step")
        return self.steps.positions(step, epoch).copy()

    def _checked(self, step: int, epoch: int, last: int, name: str) -> tuple[int, int]:
        """Return a step and an epoch as Python's own numbers: NumPy's would overflow."""
        try:
            number, at = operator.index(step), operator.index(epoch)
        except TypeError:
            number, at = -1, -1
        if not 0 <= number <= last or at < 0:
            raise PositionError(
                f"`{name}` must lie within [0, {last + 1}) and `epoch` must not be negative; got "
                f"step {step} of epoch {epoch}."
            )
        return number, at

    def batch(self, step: int, epoch: int = 0) -> Batch:
        """Read one batch: a pure function of (step, epoch).

        Parameters
        ----------
        step : int
            0 ≤ step < len(self).
        epoch : int
            From 0.

        Returns
        -------
        ndarray, tuple or dict of ndarray
            Each with a leading batch axis, 64-byte aligned, and yours to keep or change.

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step.
        oocdata.errors.SourceError
            If storage can't deliver a row: with file, dataset and rows.
        """
        steps = self.steps
        if not (type(step) is type(epoch) is int and 0 <= step < steps.number and epoch >= 0):
            step, epoch = self._checked(step, epoch, len(self) - 1, "step")
        positions = steps.positions(step, epoch)
        return self.dataset.read(positions, Draw(self.seed, epoch, step, steps.lane, positions))

    def run(self, run: Run) -> list[Batch]:
        """Read a run of steps at once.

        Parameters
        ----------
        run : Run
            Of at least one step, and at most `steps_together`.

        Returns
        -------
        list
            The batch of each step, as `batch` gives it. Each keeps its own memory alone.
        """
        if not self.dataset.is_remote:
            return self.read(run)
        with self.asked(run):
            return self.read(run)

    def asked(self, run: Run) -> AbstractContextManager[Sequence[Asks]]:
        """Have what a run takes out of stores under way for as long as a block takes."""
        return asked_for(self.requests(run))

    def requests(self, run: Run) -> tuple[ArrayRequest, ...]:
        """Return the boxes that the elements of a run are made of; nothing is read."""
        positions = np.concatenate(self.steps.run(run.start, run.stop, run.epoch))
        # No function draws from it: the only randomness left is keyed by position.
        draw = Draw(self.seed, run.epoch, run.start, self.steps.lane, positions)
        return self.dataset.requests(positions, draw)

    def read(self, run: Run) -> list[Batch]:
        """Read a run of steps, as `run` does, of which all that lies in stores was asked for."""
        if self.dataset.is_mapped:
            batches = []
            for step in range(run.start, run.stop):
                own = self.steps.positions(step, run.epoch)
                draw = Draw(self.seed, run.epoch, step, self.steps.lane, own)
                batches.append(self.dataset.gather(own, draw))
            return batches
        lengths = self.steps.lengths(run.start, run.stop)
        read = buffers.Read()
        # Of a whole run, though this may be the last of an epoch.
        room = self.steps_together * self.batch_size // self.num_shards
        columns = (one.read_parts(lengths, read, room) for one in self.requests(run))
        return batches_of(columns, self.dataset.spec)

    def over(self, epoch: int, start: int = 0, epochs: int = 1) -> Pass:
        """Return the steps from `start` on to the end of so many epochs."""
        steps = len(self)
        return Pass(
            epoch * steps + start, epochs * steps - start, steps, self.steps_together,
            waits=self.dataset.is_remote,
        )  # fmt: skip

    def reader(self) -> Callable[[Run], list[Batch]]:
        """Return what reads runs of steps, in any order and any thread: `run`."""
        return self.run

    def epoch(
        self, epoch: int, start: int = 0, *, parallel: int = 2, prefetch: int = 2
    ) -> Iterator[Batch]:
        """Iterate over one epoch from step `start`, without reading what came before.

        A few MiB of batches are read ahead, in threads or in worker processes; never more than
        `oocdata.set_memory` allows.

        Parameters
        ----------
        epoch, start : int
        parallel : int
            Runs of steps read at a time.
        prefetch : int
            Batches kept ready besides, in whole runs.

        Raises
        ------
        oocdata.errors.PositionError
            If the epoch has no such step (`start` may be one past the last).

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
        batches: Iterator[Batch] = chain.make(
            "epoch", self, epoch, start, parallel=parallel, prefetch=prefetch
        )
        return batches

    def shard(self, num_shards: int, index: int) -> Loader:
        """Return the loader of one rank's part of every global batch, for data-parallel training.

        The global batches are those of this loader, whatever `num_shards` is; a rank reads only
        its own part, and of a block shuffle decodes only its own share of the chunks. Of a short
        last batch, the elements that can't be dealt out evenly are dropped, so that all ranks take
        the same steps with the same sizes.

        Parameters
        ----------
        num_shards : int
            Must divide the batch size, and the lanes of a block shuffle.
        index : int
            0 ≤ index < num_shards.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the batch can't be dealt out evenly, or this loader is a shard already.

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
        if self.batch_size % shards:
            raise ArgumentError(
                f"`num_shards` must divide the batch size, {self.batch_size}; got {shards}."
            )
        lanes = self.steps.lanes
        if lanes % shards:
            allowed = [number for number in range(1, lanes + 1) if lanes % number == 0]
            raise ArgumentError(
                f"`num_shards` must be one of {allowed}, the divisors of the {lanes} lanes of "
                f"this block shuffle; got {shards}. A batch size that is a multiple of a larger "
                'power of two has more lanes, and shuffle="global" takes any divisor of the batch '
                "size, but then every rank decodes nearly every chunk."
            )
        sharded = replace(self, num_shards=shards, index=place)
        if len(sharded) == 0:
            raise EmptyError(
                f"`num_shards` must be at most the {len(self.dataset)} elements; got {shards}."
            )
        return sharded

    def describe(self) -> dict[str, Any]:
        """Return the loader as JSON: what its fingerprint is made from, and what workers get."""
        description: dict[str, Any] = chain.make("describe", self)
        return description

    def explain(self, *, parallel: int = 2, prefetch: int = 2) -> Explanation:
        """Return what is read and how, the order and why, and the memory it takes; print it.

        Parameters
        ----------
        parallel, prefetch : int
            As they will be given to `to_tf` or `epoch`.
        """
        found: Explanation = chain.make("explain", self, parallel, prefetch)
        return found

    def profile(
        self,
        model_step: Callable[..., object] | None = None,
        *,
        seconds: float = 5.0,
        to_tf: bool = False,
    ) -> Profile:
        """Say whether the model or the data is the bottleneck, and what to change; print it.

        Times the data alone, the model alone on one batch again and again, and both together, in
        rounds that take turns. Reads batches by (step, epoch): the epoch that iteration gives next
        stays the next. The model is called for real, so with a step that trains, weights change:
        profile a copy, or before you train.

        Parameters
        ----------
        model_step : callable, optional
            What a training loop does with a batch, e.g. ``model.train_on_batch``. Gets the parts
            of a tuple as arguments, as functions of `map` do; anything else as one. It is called a
            few times before anything is timed, so that tracing is not counted.
        seconds : float
            About how long it may take; a read or a step is not interrupted.
        to_tf : bool
            Give the batches of ``to_tf()``, not of plain iteration.

        Returns
        -------
        Profile

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument breaks its rule.
        oocdata.errors.SourceError
            If storage can't deliver a row; and what `model_step` itself raises.

        Examples
        --------
        >>> import oocdata as ooc
        >>> found = ooc.open(np.zeros((1000, 8))).batches(10).profile(seconds=0.1)
        >>> found.verdict, found.data_rate > 0
        ('alone', True)
        """
        found: Profile = chain.make("profile", self, model_step, seconds=seconds, to_tf=to_tf)
        return found

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
        """Return a ``tf.data.Dataset`` of batches, for ``model.fit`` or any loop.

        Iterating over it again goes on with the epochs that follow, so each epoch of ``fit`` sees
        every element once, in an order of its own. With ``steps_per_epoch``, ``fit`` draws all its
        epochs from one pass: give ``epochs`` here too.

        The prefetch that TensorFlow would put at the end of a pipeline unasked is off, because it
        grows to hundreds of batches; after a slow ``map`` of your own, add ``.prefetch(2)``.

        Parameters
        ----------
        start : (epoch, step)
            Where the first pass begins; nothing before it is read. An iterator that was saved is
            restored into a dataset made with the same, or with a step that is 0 if it was 0 there.
        epochs : int
            Epochs in one pass: up to the end of epoch ``start[0] + epochs - 1``.
        parallel : int
            Batches read at a time; or runs of them, where they are so small that several share a
            read (up to 64 batches, up to 32 MiB). With worker processes, at least two for each.
        prefetch : int
            Batches kept ready besides, in whole runs: none where a run has more.
        sparse : bool
            Rows of sparse matrices (AnnData) as ``tf.sparse.SparseTensor``, never made dense; see
            `Dataset.sparse`.
        service : str, optional
            ``"HOST:PORT"`` of an ``oocdata dispatcher``: its workers read, from the same paths.
            The batches of an epoch are the same; which comes first depends on who was quicker.
            `parallel` is what each worker reads at a time.
        job_name : str, optional
            Trainers that give the same name share each epoch of the same loader: every batch goes
            to one of them. A name is for one run of them: give the next run another.

        Returns
        -------
        tf.data.Dataset
            With static shapes (except a short last batch) and cardinality (except with
            `job_name`: nobody knows who gets how many).

        Raises
        ------
        oocdata.errors.ArgumentError
            If an argument breaks its rule.
        oocdata.errors.MissingDependencyError
            If TensorFlow is not installed.
        oocdata.errors.DescriptionError
            If workers can't be told what to read; see `describe`.
        oocdata.errors.ServiceError
            If no dispatcher answers.
        """
        dense = not as_flag("sparse", sparse)
        loader = self if dense else replace(self, dataset=self.dataset.sparse())
        dataset: tf.data.Dataset = chain.make(
            "to_tf", loader, start=start, epochs=epochs, parallel=parallel, prefetch=prefetch,
            service=service, job_name=job_name,
        )  # fmt: skip
        return dataset

    def to_keras(self) -> keras.utils.PyDataset:
        """Return a ``keras.utils.PyDataset`` of batches, for Keras on any backend.

        Raises
        ------
        oocdata.errors.MissingDependencyError
            If Keras is not installed.
        """
        dataset: keras.utils.PyDataset = chain.make("to_keras", self)
        return dataset
