"""Whole chains, from a file to the batches of a rank, with NumPy as the oracle.

Each seed stores an array in one of the ways that different code reads, opens it along random sample
axes, selects, cuts, transposes, converts, makes windows and patches of it, and reads it in batches.
Every element of every batch is compared; positions are counted.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.errors import ArgumentError, EmptyError
from oocdata.memory import DEFAULT_MEMORY, set_memory

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

KINDS = ["memory", "npy", "fortran", "npy parts", "h5", "h5 unfiltered", "h5 gzip", "h5 lzf",
         "h5 parts", "zarr", "zarr shards"]  # fmt: skip

pytestmark = pytest.mark.filterwarnings(
    # Of chunks that hold nothing but the fill value.
    "ignore::oocdata.errors.MissingChunkWarning"
)


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    yield
    set_memory(DEFAULT_MEMORY)


@dataclass
class Chain:
    """A dataset, and the elements that it must deliver.

    Attributes
    ----------
    rows : ndarray
        Of the view, as NumPy gives them.
    outer : ndarray of int
        The place of each row on the outer sample axes: no window leaves it.
    elements : list of tuple of ndarray
        Of the dataset. Of random patches: those of which they are parts, of `size`.
    log : list of str
        What was done, for messages.
    """

    draw: random.Random
    dataset: Any = None
    rows: Any = None
    outer: Any = None
    elements: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    size: tuple[int, ...] | None = None
    log: list[str] = field(default_factory=list)

    def compare(self, found: Any, position: int) -> None:
        """Compare one element with the oracle."""
        expected = self.elements[position]
        found = found if isinstance(found, tuple) else (found,)
        assert len(found) == len(expected), self.log
        if self.size is None:
            for one, other in zip(found, expected, strict=True):
                assert one.dtype == other.dtype, self.log
                assert_array_equal(one, other, err_msg=str(self.log))
            return
        # Numbers differ from one another, so a patch tells where it lies; x and y the same place.
        places = []
        for one, whole in zip(found, expected, strict=True):
            if whole.dtype == bool:  # a mask, of which there are no patches
                assert_array_equal(one, whole, err_msg=str(self.log))
                continue
            places += [{at for at, part in parts(whole, self.size) if np.array_equal(one, part)}]
        assert set.intersection(*places), self.log


def parts(
    array: np.ndarray, size: tuple[int, ...], step: tuple[int, ...] | None = None
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield every part of this size along the last axes, with its place."""
    lengths = array.shape[array.ndim - len(size) :]
    steps = step or (1,) * len(size)
    axes = zip(lengths, size, steps, strict=True)
    for place in itertools.product(*(range(0, n - part + 1, by) for n, part, by in axes)):
        cut = tuple(slice(at, at + part) for at, part in zip(place, size, strict=True))
        yield place, array[(..., *cut)]


def stored(
    folder: Path, array: np.ndarray, kind: str, draw: random.Random, along: int
) -> Callable[..., ooc.View]:
    """Store an array; return what opens it, by its sample axes."""
    chunks = tuple(draw.randint(1, length) for length in array.shape)
    length = array.shape[along]
    cuts = sorted(draw.sample(range(1, length), min(length - 1, 2)))
    if kind == "memory":
        return lambda axis: ooc.open(array, axis=axis)
    if kind in ("npy", "fortran"):
        np.save(folder / "a.npy", np.asfortranarray(array) if kind == "fortran" else array)
        return lambda axis: ooc.open(folder / "a.npy", axis=axis)
    if kind == "npy parts":
        for number, part in enumerate(np.split(array, cuts, axis=along)):
            np.save(folder / f"{number}.npy", part)
        return lambda axis: ooc.open(folder / "*.npy", axis=axis)
    if kind == "h5 parts":
        for number, part in enumerate(np.split(array, cuts, axis=along)):
            own = tuple(draw.randint(1, n) for n in part.shape)
            with h5py.File(folder / f"{number}.h5", "w") as file:
                file.create_dataset("u", data=part, chunks=own, compression="gzip")
        return lambda axis: ooc.open(folder / "*.h5", "u", axis=axis)
    if kind.startswith("h5"):
        options: dict[str, Any] = {} if kind == "h5" else {"chunks": chunks}
        if kind == "h5 gzip":
            options |= {"compression": "gzip", "shuffle": draw.random() < 0.5, "fletcher32": True}
        if kind == "h5 lzf":
            options |= {"compression": "lzf", "shuffle": True}
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("u", data=array, **options)
        return lambda axis: ooc.open(folder / "a.h5", "u", axis=axis)
    shards = tuple(n * draw.randint(1, 3) for n in chunks) if kind == "zarr shards" else None
    made = zarr.create_array(
        folder / "a.zarr", shape=array.shape, chunks=chunks, shards=shards, dtype=array.dtype,
        compressors=draw.choice([None, "auto"]), zarr_format=3 if shards else draw.choice([2, 3]),
    )  # fmt: skip
    made[:] = array
    return lambda axis: ooc.open(folder / "a.zarr", axis=axis)


def a_slice(draw: random.Random, length: int) -> slice:
    start, stop = draw.randint(0, length), draw.randint(0, length)
    return draw.choice(
        [
            slice(None), slice(None, None, -1), slice(start, None, draw.choice([1, 2, 3])),
            slice(None, stop, 2), slice(start, stop, draw.choice([1, -1, 2])),
        ]
    )  # fmt: skip


def opened(chain: Chain, folder: Path) -> None:
    """Open an array whose numbers differ from one another (but in very large ones of int16)."""
    draw = chain.draw
    shape = tuple(draw.randint(1, draw.choice([3, 6, 9])) for _ in range(draw.randint(1, 5)))
    dtype, kind = draw.choice([">i2", "<i4", "f4", "f8"]), draw.choice(KINDS)
    axes = tuple(draw.sample(range(len(shape)), draw.randint(1, len(shape))))
    chain.log += [f"{kind} {shape} {dtype}, axis={axes}"]
    array = (np.arange(np.prod(shape)).reshape(shape) + 1).astype(dtype)
    view = stored(folder, array, kind, draw, axes[0])(axis=axes[0] if len(axes) == 1 else axes)
    inner = [axis for axis in range(len(shape)) if axis not in axes]
    ordered = array.astype(array.dtype.newbyteorder("=")).transpose(*axes, *inner)
    lengths = ordered.shape[: len(axes)]
    chain.dataset, chain.rows = view, ordered.reshape(-1, *ordered.shape[len(axes) :])
    places = np.arange(len(chain.rows))
    chain.outer = places // lengths[-1] if len(axes) > 1 else np.zeros_like(places)


def changed(chain: Chain) -> None:
    """Select rows, cut, transpose or convert."""
    draw, rows, view = chain.draw, chain.rows, chain.dataset
    kind = draw.choice(["slice", "array", "mask", "cut", "transpose", "astype"])
    key: Any = None
    if kind == "slice":
        key = a_slice(draw, len(rows))
    elif kind == "array" and len(rows):
        key = np.array([draw.randrange(-len(rows), len(rows)) for _ in range(9)])
    elif kind == "mask":
        key = np.array([draw.random() < 0.6 for _ in rows], np.bool_)
    elif kind == "cut" and rows.ndim > 1:
        inner = [
            draw.randrange(n) if n and draw.random() < 0.2 else a_slice(draw, n)
            for n in rows.shape[1:]
        ]
        chain.dataset, chain.rows = view[:, *inner], rows[:, *inner]
    elif kind == "transpose" and rows.ndim > 1:
        inner = draw.sample(range(rows.ndim - 1), rows.ndim - 1)
        chain.dataset = view.transpose(*inner)
        chain.rows = rows.transpose(0, *[axis + 1 for axis in inner])
    elif kind == "astype" and view.dtype == view.source.dtype:
        chain.dataset, chain.rows = view.astype("f8"), rows.astype("f8")
    else:
        return
    if key is not None:
        chain.dataset, chain.rows, chain.outer = view[key], rows[key], chain.outer[key]
    chain.log += [f"{kind} {key if key is not None else chain.rows.shape}"]


def windowed(chain: Chain) -> bool:
    """Make windows; return whether there are any."""
    draw, rows = chain.draw, chain.rows
    inputs, targets, shift, stride, horizon = (
        draw.randint(1, 4), draw.randint(0, 2), *(draw.randint(1, 3) for _ in range(3))
    )  # fmt: skip
    borders = {0, len(rows), *(np.flatnonzero(np.diff(chain.outer)) + 1).tolist()}
    episodes = None
    if draw.random() < 0.3 and len(rows) > 2:
        own = sorted({0, len(rows), draw.randrange(1, len(rows))})
        episodes, borders = np.diff(own).tolist(), borders | set(own)
    if draw.random() < 0.5:
        return at_offsets(chain, sorted(borders), shift, episodes)
    chain.log += [f"windows({inputs}, {targets}, {shift}, {stride}, {horizon}, {episodes})"]
    first = (inputs - 1) * stride
    span = first + 1 + (horizon + (targets - 1) * stride if targets else 0)
    chain.elements = []
    for start, stop in itertools.pairwise(sorted(borders)):
        for at in range(start, stop - span + 1, shift):
            x = rows[at : at + first + 1 : stride]
            at += first + horizon
            y = rows[at : at + (targets - 1) * stride + 1 : stride]
            chain.elements.append((x, y) if targets else (x,))
    try:
        chain.dataset = chain.dataset.windows(
            inputs, targets, shift=shift, stride=stride, horizon=horizon, episodes=episodes
        )
    except EmptyError:
        assert not chain.elements, chain.log
    return bool(chain.elements)


def at_offsets(chain: Chain, borders: list[int], shift: int, episodes: Any) -> bool:
    """Make windows of offsets given one by one, often padded; return whether there are any."""
    draw, rows = chain.draw, chain.rows
    x, y = (sorted(draw.sample(range(-4, 5), draw.randint(1, 3))) for _ in range(2))
    asked: dict[str, Any] = {"pad": draw.random() < 0.7, "mask": draw.random() < 0.7}
    chain.log += [f"windows({x}, {y}, {shift}, {episodes}, {asked})"]
    chain.elements = []
    for start, stop in itertools.pairwise(borders):
        anchors = range(start, stop) if asked["pad"] else range(start - 9, stop + 9)
        fit = [at for at in anchors if asked["pad"] or start - x[0] <= at < stop - x[-1]]
        fit = [at for at in fit if asked["pad"] or start - y[0] <= at < stop - y[-1]]
        for at in fit[::shift]:
            each = [np.array(some) + at for some in (x, y)]
            arrays = [rows[np.clip(places, start, stop - 1)] for places in each]
            if asked["pad"] and asked["mask"] and y != [0]:
                arrays.append((each[1] >= start) & (each[1] < stop))
            chain.elements.append(tuple(arrays))
    try:
        chain.dataset = chain.dataset.windows(x, y, shift=shift, episodes=episodes, **asked)
    except EmptyError:
        assert not chain.elements, chain.log
    return bool(chain.elements)


def patched(chain: Chain) -> None:
    """Make patches along the last axes, of a grid or random ones."""
    draw, shape = chain.draw, chain.rows.shape[1:]
    if not shape or not all(shape):
        return
    number = draw.randint(1, len(shape))
    size = tuple(draw.randint(1, length) for length in shape[-number:])
    if draw.random() < 0.5:
        each = draw.randint(1, 3)
        chain.dataset, chain.size = chain.dataset.patches(size, per_row=each), size
        chain.elements = [element for element in chain.elements for _ in range(each)]
        chain.log += [f"patches({size}, per_row={each})"]
        return
    step = tuple(draw.randint(1, 3) for _ in size)
    chain.dataset = chain.dataset.patches(size, step=step)
    chain.elements = [
        patch
        for element in chain.elements
        for patch in zip(
            *(
                itertools.repeat(one) if one.dtype == bool  # a mask
                else [part for _, part in parts(one, size, step)]
                for one in element
            ),
            strict=False,
        )
    ]  # fmt: skip
    chain.log += [f"patches({size}, step={step})"]


def check_batches(chain: Chain) -> None:
    """Compare all batches of an epoch, as iteration and as ranks give them."""
    draw, count = chain.draw, len(chain.elements)
    size, drop = draw.choice([1, 2, 3, 4, 8, 16]), draw.random() < 0.3
    shuffle, seed, epoch = draw.choice([False, True, "block", "global"]), draw.randint(0, 99), 2
    chain.log += [f"batches({size}, {shuffle}, seed={seed}, drop_remainder={drop})"]
    if drop and size > count:
        return
    loader = chain.dataset.batches(size, shuffle=shuffle, seed=seed, drop_remainder=drop)
    steps = [loader.positions(step, epoch) for step in range(len(loader))]
    counts = np.bincount(np.concatenate(steps), minlength=count)
    assert counts.max() == 1, chain.log
    assert counts.sum() == (count // size * size if drop else count), chain.log
    start = draw.choice([0, draw.randint(0, len(loader))])
    ahead = {"parallel": draw.choice([1, 2, 4]), "prefetch": draw.choice([0, 2, 5])}
    batches = list(loader.epoch(epoch, start, **ahead))
    assert len(batches) == len(loader) - start, chain.log
    for positions, batch in zip(steps[start:], batches, strict=True):
        check_batch(chain, batch, positions)
    for ranks in (2, 4):
        try:
            loaders = [loader.shard(ranks, rank) for rank in range(ranks)]
        except (ArgumentError, EmptyError):  # told in other tests
            continue
        for step in range(len(loaders[0])):
            dealt = np.concatenate([one.positions(step, epoch) for one in loaders])
            whole = steps[step]
            assert len(np.unique(dealt)) == len(whole) // ranks * ranks == len(dealt), chain.log
            assert np.isin(dealt, whole).all(), chain.log
        rank, step = draw.choice(loaders), draw.randrange(len(loaders[0]))
        check_batch(chain, rank.batch(step, epoch), rank.positions(step, epoch))


def check_batch(chain: Chain, batch: Any, positions: np.ndarray) -> None:
    for place, position in enumerate(positions.tolist()):
        one = tuple(array[place] for array in batch) if isinstance(batch, tuple) else batch[place]
        chain.compare(one, position)


@pytest.mark.parametrize("first", range(0, 400, 40))
def test_chains(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 40):
        chain = Chain(random.Random(seed), log=[f"seed {seed}"])
        draw, folder = chain.draw, tmp_path / str(seed)
        folder.mkdir()
        set_memory(draw.choice([1 << 20, 4 << 20, DEFAULT_MEMORY]))
        opened(chain, folder)
        for _ in range(draw.randint(0, 3)):
            changed(chain)
        assert_array_equal(np.asarray(chain.dataset), chain.rows, err_msg=str(chain.log))
        chain.elements = [(row,) for row in chain.rows]
        if draw.random() < 0.6 and not windowed(chain):
            continue
        if draw.random() < 0.3 and len(chain.elements) > 1:
            order = np.arange(len(chain.elements))[:: draw.choice([-1, 2])]
            chain.dataset, chain.elements = chain.dataset[order], [chain.elements[n] for n in order]
        if draw.random() < 0.4:
            patched(chain)
        assert len(chain.dataset) == len(chain.elements), chain.log
        if chain.elements:
            chain.compare(chain.dataset[-1], len(chain.elements) - 1)
            check_batches(chain)
