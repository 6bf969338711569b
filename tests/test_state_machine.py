"""Random chains of everything in the public face, compared with plain NumPy.

Hypothesis opens arrays of all formats along random sample axes; selects, cuts, transposes and
converts them; makes windows, patches, zips, maps, splits and shards; reads batches in every order,
on ranks, from any step, again after a restart, with more memory and less; and shortens what fails.
`element_model` says what elements must be. It knows nothing of oocdata.
"""

from __future__ import annotations

import itertools
import math
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import element_model as models
import numpy as np
import pytest
from conftest import close_files
from element_model import Column, Model, leaves, map_leaves
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)  # fmt: skip

import oocdata as ooc
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.errors import ArgumentError, DescriptionError, EmptyError
from oocdata.memory import DEFAULT_MEMORY, set_memory
from oocdata.runs import Run

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

MOST = 120
"""Elements of a dataset, so that all of them can be compared."""


# Functions of users: importable, so that they can be sent to other processes.


def doubled(*parts: Any) -> Any:
    """Double every number of an element or a batch, as float64."""
    made = tuple(map_leaves(lambda array: np.asarray(array) * 2.0, part) for part in parts)
    return made if len(made) > 1 else made[0]


def with_noise(*parts: Any, rng: np.random.Generator) -> Any:
    """Put a random number of its own beside an element."""
    return parts if len(parts) > 1 else parts[0], rng.integers(1 << 40, size=2)


def as_doubled(model: Model) -> Model:
    columns = [column.apply(lambda value: value * 2.0) for column in model.columns]
    return replace(model, columns=columns)


def as_with_noise(model: Model) -> Model:
    unknown = Column([np.zeros(2, np.int64)] * len(model), (2,), np.dtype("i8"), known=False)
    return replace(model, form=(model.form, None), columns=[*model.columns, unknown])


# How arrays are stored ----------------------------------------------------------------------------


def as_parts(array: np.ndarray, along: int, data: st.DataObject) -> list[np.ndarray]:
    inside = range(1, array.shape[along])
    places = st.sets(st.sampled_from(inside), min_size=1, max_size=2) if inside else st.just(set())
    parts = np.split(array, sorted(data.draw(places, label="cuts")), axis=along)
    return [np.ascontiguousarray(part) for part in parts]


def chunks_of(array: np.ndarray, data: st.DataObject) -> tuple[int, ...]:
    return data.draw(st.tuples(*(st.integers(1, length) for length in array.shape)), label="chunks")


def in_memory(folder: Path, array: np.ndarray, along: int, data: st.DataObject) -> tuple[Any, ...]:
    if data.draw(st.booleans(), label="memmap"):
        np.save(folder / "a.npy", array)
        return (np.load(folder / "a.npy", mmap_mode="r"),)
    return (array,)


def npy(folder: Path, array: np.ndarray, along: int, data: st.DataObject) -> tuple[Any, ...]:
    fortran = data.draw(st.booleans(), label="Fortran order")
    np.save(folder / "a.npy", np.asfortranarray(array) if fortran else array)
    return (folder / "a.npy",)


def npz(folder: Path, array: np.ndarray, along: int, data: st.DataObject) -> tuple[Any, ...]:
    np.savez(folder / "a.npz", u=array, v=np.zeros(3))
    return folder / "a.npz", "u"


def npy_parts(folder: Path, array: np.ndarray, along: int, data: st.DataObject) -> tuple[Any, ...]:
    for number, part in enumerate(as_parts(array, along, data)):
        np.save(folder / f"{number}.npy", part)
    return (folder / "*.npy",)


def raw(folder: Path, array: np.ndarray, along: int, data: st.DataObject) -> tuple[Any, ...]:
    (folder / "a.bin").write_bytes(b"x" * 24 + array.tobytes())
    return folder / "a.bin", {"dtype": array.dtype, "shape": array.shape, "offset": 24}


def hdf5(folder: Path, array: np.ndarray, along: int, data: st.DataObject) -> tuple[Any, ...]:
    kind = data.draw(st.sampled_from(["contiguous", "chunks", "auto", "own"]), label="layout")
    options: dict[str, Any] = {}
    if kind != "contiguous":
        options["chunks"] = True if kind == "auto" else chunks_of(array, data)
    if kind in ("auto", "own"):
        filters = st.sampled_from(["gzip", "lzf"])
        options |= {"compression": data.draw(filters, label="filter"), "shuffle": True}
        options["fletcher32"] = data.draw(st.booleans(), label="fletcher32")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("group/u", data=array, **options)
    return folder / "a.h5", "group/u"


def hdf5_parts(folder: Path, array: np.ndarray, along: int, data: st.DataObject) -> tuple[Any, ...]:
    for number, part in enumerate(as_parts(array, along, data)):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            own = chunks_of(part, data)
            file.create_dataset("u", data=part, chunks=own, compression="gzip")
    return folder / "*.h5", "u"


def zarr_folder(
    folder: Path, array: np.ndarray, along: int, data: st.DataObject
) -> tuple[Any, ...]:
    chunks = chunks_of(array, data)
    kind = data.draw(st.sampled_from([2, 3, "shards"]), label="format")
    by = [data.draw(st.integers(1, 3)) for _ in chunks] if kind == "shards" else []
    made = zarr.create_array(
        folder / "a.zarr", shape=array.shape, chunks=chunks, dtype=array.dtype,
        shards=tuple(n * times for n, times in zip(chunks, by, strict=True)) if by else None,
        compressors=data.draw(st.sampled_from([None, "auto"]), label="compressors"),
        zarr_format=2 if kind == 2 else 3,
    )  # fmt: skip
    made[...] = array
    if data.draw(st.booleans(), label="opened by zarr"):
        return (zarr.open_array(folder / "a.zarr", mode="r"),)
    return (folder / "a.zarr",)


STORED: list[Callable[..., tuple[Any, ...]]] = [
    in_memory, npy, npy_parts, npz, raw,
    hdf5, hdf5, hdf5, hdf5_parts, hdf5_parts, zarr_folder, zarr_folder, zarr_folder,
]  # fmt: skip


@st.composite
def slices(draw: Any, length: int) -> slice:
    """Return a slice, of all or of neighbours, forwards or backwards."""
    low, high = 0, length
    if draw(st.booleans()):
        low, high = sorted(draw(st.tuples(*[st.integers(0, length)] * 2)))
    step = draw(st.sampled_from([None, None, 2, 3, -1, -2]))
    start, stop = low or None, None if high == length else high
    if step is not None and step < 0:
        start, stop = (None if stop is None else max(0, stop - 1)), (None if low == 0 else low - 1)
    return slice(start, stop, step)


@dataclass(eq=False)
class Pair:
    """A dataset, and the elements that it must deliver."""

    dataset: ooc.Dataset
    model: Model

    def __repr__(self) -> str:
        return repr(self.dataset)


@dataclass(eq=False)
class Reading:
    """A loader, the elements of its dataset, and the batches that it has given."""

    loader: ooc.Loader
    model: Model
    seen: dict[tuple[int, int], Any] = field(default_factory=dict)

    def check(self, batch: Any, epoch: int, step: int) -> None:
        """Fail unless a batch holds its elements, and what it held the last time."""
        positions = self.loader.positions(step, epoch).tolist()
        said = (self.loader, epoch, step)
        self.model.check_batch(batch, positions, said)
        before = self.seen.setdefault((epoch, step), map_leaves(np.copy, batch))
        for one, other in zip(leaves(before), leaves(batch), strict=True):
            assert np.array_equal(one, other), said

    def __repr__(self) -> str:
        return repr(self.loader)


class Chains(RuleBasedStateMachine):
    """What people do with datasets, in any order."""

    views = Bundle("views")
    datasets = Bundle("datasets")
    readings = Bundle("readings")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="oocdata-chains-")
        self._opened = 0

    def teardown(self) -> None:
        close_files()
        self._folder.cleanup()
        set_memory(DEFAULT_MEMORY)

    def _made(self, dataset: ooc.Dataset, model: Model) -> Pair:
        """Compare a dataset with what it must be, what it says of itself and what it delivers."""
        said = (dataset, model.sample_shape)
        assert len(dataset) == len(model), said
        specs = list(leaves(map_leaves(lambda one: one, dataset.spec))) if len(model) else []
        for spec, column in zip(specs, model.columns, strict=bool(specs)):
            assert (spec.shape, spec.dtype) == (column.shape, column.dtype), said
        if len(dataset.sample_shape) > 1 or len(model.sample_shape) > 1:
            assert dataset.sample_shape == model.sample_shape, said
        if isinstance(dataset, ooc.View):
            (column,) = model.columns
            assert dataset.shape == (len(model), *column.shape), said
            assert dataset.nbytes == math.prod(dataset.shape) * column.dtype.itemsize, said
        if len(model) <= MOST:
            model.check_batch(dataset.take(np.arange(len(model))), range(len(model)), said)
        return Pair(dataset, model)

    # Datasets ------------------------------------------------------------------------------------

    @rule(targets=(views, datasets), data=st.data())
    @precondition(lambda self: self._opened < 2)
    def open(self, data: st.DataObject) -> Pair:
        inner = data.draw(st.lists(st.integers(1, 5), max_size=3), label="inner shape")
        shape = (data.draw(st.integers(1, 20 if len(inner) < 3 else 6), label="length"), *inner)
        axes = st.permutations(range(len(shape))).flatmap(
            lambda order: st.integers(1, len(order)).map(lambda n: tuple(order[:n]))
        )
        axis = data.draw(st.one_of(st.just((0,)), axes), label="axis")
        dtype = data.draw(st.sampled_from([">i2", "<i4", "f4", "f8", "u2"]), label="dtype")
        return self._stored(shape, dtype, axis, data)

    def _stored(
        self, shape: tuple[int, ...], dtype: str, axis: tuple[int, ...], data: st.DataObject
    ) -> Pair:
        """Open an array, stored in any way, of which no number is in another array too."""
        first = 1 + 4000 * self._opened
        array = (np.arange(np.prod(shape)) + first).reshape(shape).astype(dtype)
        store = data.draw(st.sampled_from(STORED), label="stored")
        folder = Path(self._folder.name, str(self._opened))
        folder.mkdir()
        self._opened += 1
        *target, options = (*store(folder, array, axis[0], data), {})
        if isinstance(target[-1], dict):
            options = target.pop()
        view = ooc.open(*target, axis=axis[0] if len(axis) == 1 else axis, **options)
        return self._made(view, models.of_rows(array, axis, self._opened))

    @initialize(targets=(views, datasets), data=st.data())
    def open_first(self, data: st.DataObject) -> Pair:
        return self.open(data)

    def _selected(self, pair: Pair, key: Any) -> Pair:
        positions = np.arange(len(pair.model))[key]
        if pair.model.turned and isinstance(key, slice) and (np.diff(positions) < 0).any():
            key, positions = slice(None), np.arange(len(pair.model))
        model = pair.model.select(positions, by_slice=isinstance(key, slice))
        return self._made(pair.dataset[key], model)

    def _key(self, pair: Pair, data: st.DataObject) -> Any:
        count = len(pair.model)
        kind = data.draw(st.sampled_from(["slice", "slice", "array", "mask"]), label="kind")
        if kind == "mask":
            flags = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
            return np.array(flags, np.bool_)
        if kind == "array" and count:
            return np.array(data.draw(st.lists(st.integers(-count, count - 1), max_size=9)), int)
        return data.draw(slices(count))

    @rule(
        targets=(views, datasets), pair=views, data=st.data(),
        how=st.sampled_from(["_rows", "_cut", "_cut", "_transpose", "_astype"]),
    )  # fmt: skip
    def change(self, pair: Pair, how: str, data: st.DataObject) -> Any:
        return getattr(self, how)(pair, data)

    def _rows(self, pair: Pair, data: st.DataObject) -> Pair:
        return self._selected(pair, self._key(pair, data))

    @rule(
        target=datasets, pair=datasets, data=st.data(),
        how=st.sampled_from(["_rows", "_rows", "_pickled"]),
    )  # fmt: skip
    def select(self, pair: Pair, how: str, data: st.DataObject) -> Any:
        return getattr(self, how)(pair, data)

    def _cut(self, pair: Pair, data: st.DataObject) -> Pair:
        shape = pair.model.columns[0].shape
        key = []
        for length in shape:
            drop = length and data.draw(st.integers(0, 4)) == 4
            key.append(data.draw(st.integers(-length, length - 1) if drop else slices(length)))
        dataset = pair.dataset[(slice(None), *key)]
        return self._made(
            dataset, models.rows_changed(pair.model, lambda a: a[(slice(None), *key)])
        )

    def _transpose(self, pair: Pair, data: st.DataObject) -> Pair:
        axes = data.draw(st.permutations(range(len(pair.model.columns[0].shape))))
        dataset = pair.dataset.transpose(*axes)
        order = (0, *(axis + 1 for axis in axes))
        if not axes:
            return self._made(dataset, pair.model)
        return self._made(dataset, models.rows_changed(pair.model, lambda a: a.transpose(order)))

    def _astype(self, pair: Pair, data: st.DataObject) -> Any:
        dtype = data.draw(st.sampled_from(["f4", "f8", "i4", "u2", "c8", "?"]), label="dtype")
        view, before = pair.dataset, pair.model.columns[0].dtype
        refused = (before.kind == "c" and dtype != "c8") or (
            before != dtype and not np.can_cast(view.source.dtype, before, "safe")
        )
        if refused:
            with pytest.raises(ArgumentError):
                view.astype(dtype)
            return multiple()
        if dtype == "?":  # all numbers would be alike
            assert np.asarray(view.astype(dtype)).all()
            return multiple()
        made = models.rows_changed(pair.model, lambda array: array.astype(dtype))
        return self._made(view.astype(dtype), made)

    @rule(target=datasets, pair=views, data=st.data())
    def windows(self, pair: Pair, data: st.DataObject) -> Any:
        inputs, targets = data.draw(st.tuples(st.integers(1, 3), st.integers(0, 2)))
        shift, stride, horizon = data.draw(st.tuples(*[st.integers(1, 3)] * 3))
        if data.draw(st.booleans(), label="of all, perhaps backwards"):
            pair = self._selected(pair, slice(None, None, data.draw(st.sampled_from([1, -1, -2]))))
        options = {"shift": shift, "stride": stride, "horizon": horizon}
        make = partial(pair.dataset.windows, inputs, targets, **options)
        numbers = (inputs, targets, shift, stride, horizon)
        return self._windows(pair, make, partial(models.windows, pair.model, *numbers), data)

    @rule(target=datasets, pair=views, data=st.data(), pad=st.sampled_from([True, True, False]))
    def windows_at(self, pair: Pair, data: st.DataObject, pad: bool) -> Any:
        offsets = st.sets(st.integers(-4, 4), min_size=1, max_size=3).map(sorted)
        x, y = data.draw(offsets, label="x"), data.draw(offsets | st.just([]), label="y")
        options = {
            "shift": data.draw(st.integers(1, 3)),
            "pad": pad,
            "mask": data.draw(st.booleans()),
        }
        make = partial(pair.dataset.windows, x, y or 0, **options)
        return self._windows(
            pair, make, partial(models.windows_at, pair.model, x, y, **options), data
        )

    @rule(target=datasets, pair=views, horizon=st.integers(1, 3), data=st.data())
    def next_frame(self, pair: Pair, horizon: int, data: st.DataObject) -> Any:
        make = partial(pair.dataset.next_frame, horizon)
        wanted = partial(models.windows, pair.model, 1, 1, 1, 1, horizon, time_axis=False)
        return self._windows(pair, make, wanted, data)

    def _windows(self, pair: Pair, make: Any, model: Any, data: st.DataObject) -> Any:
        episodes, borders, count = None, [], len(pair.model)
        if count > 2 and data.draw(st.integers(0, 3), label="episodes") == 3:
            borders = sorted({0, count, data.draw(st.integers(1, count - 1))})
            episodes = np.diff(borders).tolist()
        wanted = model(borders=borders)
        if not len(wanted):
            with pytest.raises(EmptyError):
                make(episodes=episodes)
            return multiple()
        return self._made(make(episodes=episodes), wanted)

    @rule(target=datasets, pair=datasets, data=st.data())
    def patches(self, pair: Pair, data: st.DataObject) -> Any:
        dataset, model = pair.dataset, pair.model
        cut = [column for column in model.columns if not column.mask]
        shapes = [column.shape for column in cut]
        ndim = min(map(len, shapes))
        alike = [at for at in range(-ndim, 0) if len({shape[at] for shape in shapes}) == 1]
        alike = [at for at in alike if shapes[0][at]]
        if not alike:
            return multiple()
        axes = tuple(
            data.draw(st.lists(st.sampled_from(alike), min_size=1, unique=True), label="axes")
        )
        size = tuple(data.draw(st.integers(1, shapes[0][axis]), label="size") for axis in axes)
        last = axes == tuple(range(-len(axes), 0))
        given = {} if last and data.draw(st.booleans(), label="default axes") else {"axes": axes}
        if data.draw(st.booleans(), label="random"):
            each = data.draw(st.integers(1, 3), label="per_row")
            make = partial(dataset.patches, size, per_row=each, **given)
            count, made = each, partial(models.random_patches, model, axes, size, each)
        else:
            step = data.draw(st.tuples(*(st.integers(1, 4) for _ in axes)), label="step")
            make = partial(dataset.patches, size, step=step, **given)
            rooms = [shapes[0][axis] - part for axis, part in zip(axes, size, strict=True)]
            count = math.prod(room // by + 1 for room, by in zip(rooms, step, strict=True))
            made = partial(models.grid_patches, model, axes, size, step)
        room = min(len(column.shape) - column.time for column in cut)
        if model.mapped or max(-axis for axis in axes) > room:
            with pytest.raises(ArgumentError):
                make()
            return multiple()
        if count * len(model) > MOST:
            return multiple()
        return self._made(make(), made())

    @rule(
        target=datasets, one=datasets, other=datasets,
        form=st.sampled_from(["tuple", "dict", "first ones", "first ones"]),
    )  # fmt: skip
    def zip(self, one: Pair, other: Pair, form: str) -> Any:
        a, b = one.model, other.model
        if form == "dict":
            make = partial(ooc.zip, {"b": one.dataset, "a": other.dataset})
        else:
            make = partial(ooc.zip, one.dataset, other.dataset)
        shapes = {m.sample_shape for m in (a, b) if len(m.sample_shape) > 1}
        if len(a) != len(b) and form == "first ones":  # as people do who label windows
            count = min(len(a), len(b))
            one, other = self._selected(one, slice(count)), self._selected(other, slice(count))
            return self.zip(one, other, "tuple")
        if len(a) != len(b) or len(shapes) > 1:
            with pytest.raises(ArgumentError):
                make()
            return multiple()
        tree: Any = {"b": 0, "a": 1} if form == "dict" else (0, 1)
        return self._made(make(), models.side_by_side(a, b, form=tree))

    @rule(target=datasets, pair=datasets, batched=st.booleans(), noisy=st.booleans())
    def map(self, pair: Pair, batched: bool, noisy: bool) -> Any:
        if not len(pair.model) or len(pair.model.columns) > 4:
            return multiple()
        if noisy:  # by element: of batches, ranks would draw different ones
            dataset = pair.dataset.map(with_noise, batched=False, rng=True)
            return self._made(dataset, models.mapped(pair.model, as_with_noise))
        dataset = pair.dataset.map(doubled, batched=batched)
        return self._made(dataset, models.mapped(pair.model, as_doubled))

    @rule(target=datasets, pair=datasets, data=st.data())
    def split(self, pair: Pair, data: st.DataObject) -> Any:
        dataset, model = pair.dataset, pair.model
        if not len(model):
            return multiple()
        gap = data.draw(st.sampled_from([0, 0, 1, 2]), label="gap")
        if len(model.sample_shape) > 1:
            return self._split_axis(pair, gap, data)
        tenths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3), label="tenths")
        sizes: list[Any] = [round(part / 10, 1) for part in tenths]
        counts = data.draw(st.booleans(), label="counts")
        if counts:
            sizes = [max(1, round(share * len(model) / max(1, model.each))) for share in sizes]
        elif sum(tenths) > 10:
            with pytest.raises(ArgumentError):
                dataset.split(*sizes, gap=gap)
            return multiple()
        try:
            parts = dataset.split(*sizes, gap=gap)
        except EmptyError:
            return multiple()
        except ArgumentError as error:
            if model.splits and not (counts and "must sum" in str(error)):
                raise
            return multiple()
        return self._parts(pair, parts, sizes if counts else None, gap, data)

    def _parts(self, pair: Pair, parts: Any, counts: Any, gap: int, data: st.DataObject) -> Any:
        """Find parts among the elements; fail if they share a row, or come too near."""
        model, made, start = pair.model, [], 0
        if counts is not None:
            assert [len(part) for part in parts] == [count * max(1, model.each) for count in counts]
        if not model.tells:
            return multiple()
        if not model.splits and len(set(model.rows)) < len(model.rows):
            return multiple()
        batches = [part.take(np.arange(len(part))) for part in parts]
        for part, batch in zip(parts, batches, strict=True):
            while not same(model, batch, range(start, start + len(part))):
                start += 1
                assert start + len(part) <= len(model), (pair, part)
            positions = np.arange(start, start + len(part))
            made.append((positions, part))
            start += len(part)
        of_parts = [
            set().union(*(model.rows[at] for at in positions.tolist())) for positions, _ in made
        ]
        for one, other in itertools.combinations(of_parts, 2):
            assert not one & other, (pair, parts, gap)
        for (one, _), (other, _) in itertools.pairwise(made):
            for before, after in zip(model.spans[one[-1]], model.spans[other[0]], strict=True):
                between = max(after[0] - before[1], before[0] - after[1]) - 1
                assert between >= gap, (pair, parts, gap)
        positions, part = data.draw(st.sampled_from(made))
        return self._made(part, model.select(positions))

    def _split_axis(self, pair: Pair, gap: int, data: st.DataObject) -> Any:
        shape = pair.model.sample_shape
        at = data.draw(st.integers(0, len(shape) - 1), label="axis")
        counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3), label="counts")
        ends = list(itertools.accumulate(counts, lambda end, count: end + gap + count))
        view: Any = pair.dataset
        while not isinstance(view, ooc.View):
            of = view._split_members or [getattr(view, "view", None) or view.dataset]
            view = next(part for part in of if len(part.sample_shape) > 1)
        split = partial(pair.dataset.split, *counts, gap=gap, axis=view.axes[at])
        if not at and data.draw(st.booleans(), label="default axis"):
            split = partial(pair.dataset.split, *counts, gap=gap)
        if ends[-1] > shape[at]:
            with pytest.raises(ArgumentError):
                split()
            return multiple()
        ranges = [range(end - count, end) for end, count in zip(ends, counts, strict=True)]
        wanted = pair.model.split_along(at, ranges)
        if not all(map(len, wanted)):
            with pytest.raises(EmptyError):
                split()
            return multiple()
        parts = [self._made(*both) for both in zip(split(), wanted, strict=True)]
        of_parts = [set().union(*part.model.rows) for part in parts]
        for one, other in itertools.combinations(of_parts, 2):
            assert not one & other, (pair, parts)
        return data.draw(st.sampled_from(parts))

    # Reading -------------------------------------------------------------------------------------

    @rule(pair=datasets, data=st.data())
    def read(self, pair: Pair, data: st.DataObject) -> None:
        self._forget(data)
        dataset, count = pair.dataset, len(pair.model)
        if not count:
            with pytest.raises(EmptyError):
                dataset.batches(1)
            return
        rows = data.draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=9))
        pair.model.check_batch(dataset.take(rows), [row % count for row in rows], dataset)
        pair.model.check_element(dataset[rows[0]], rows[0] % count, dataset)
        for row, element in zip(rows, dataset.__getitems__(rows), strict=True):
            pair.model.check_element(element, row % count, dataset)

    def _forget(self, data: st.DataObject) -> None:
        """Change the memory, forget what was decoded, close files: no batch may tell."""
        nbytes = data.draw(st.sampled_from([None, 1 << 20, 4 << 20, DEFAULT_MEMORY]))
        if nbytes is not None:
            set_memory(nbytes)
            close_files()

    def _pickled(self, pair: Pair, data: st.DataObject) -> Pair:
        return self._made(pickle.loads(pickle.dumps(pair.dataset)), pair.model)

    # Batches -------------------------------------------------------------------------------------

    @rule(target=readings, pair=datasets, data=st.data())
    def batches(self, pair: Pair, data: st.DataObject) -> Any:
        count = len(pair.model)
        if not count:
            return multiple()
        size = data.draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, 8, 16, 32]), label="batch_size")
        orders = st.builds(
            ooc.BlockShuffle,
            st.integers(1, 9),
            st.integers(1, 9),
            st.sampled_from([None, *(n for n in (1, 2, 4, 8) if size % n == 0)]),
        )
        kinds = st.sampled_from([False, True, "global", "block", "block"])
        shuffle = data.draw(st.one_of(kinds, orders), label="shuffle")
        options = {
            "shuffle": shuffle,
            "seed": data.draw(st.integers(-3, 1 << 70), label="seed"),
            "drop_remainder": data.draw(st.booleans(), label="drop_remainder"),
        }
        if options["drop_remainder"] and size > count:
            with pytest.raises(EmptyError):
                pair.dataset.batches(size, **options)
            return multiple()
        loader = pair.dataset.batches(size, **options)
        reading = Reading(loader, pair.model)
        used = count // size * size if options["drop_remainder"] else count
        assert len(loader) == -(-used // size)
        short = count % size and not options["drop_remainder"]
        lengths = {spec.shape[0] for spec in leaves(loader.spec)}
        assert lengths == {None if short else size}
        for epoch in (0, 3):
            steps = [loader.positions(step, epoch) for step in range(len(loader))]
            assert [len(step) for step in steps[:-1]] == [size] * (len(steps) - 1)
            positions = np.concatenate(steps)
            counts = np.bincount(positions, minlength=count)
            assert len(positions) == used, loader
            assert len(counts) == count, loader
            assert counts.max() == 1, loader
            if shuffle is False:
                assert np.array_equal(positions, np.arange(used))
        for step, batch in enumerate(loader):  # the first time it is iterated over
            reading.check(batch, 0, step)
        return reading

    @rule(
        reading=readings, data=st.data(), epoch=st.integers(0, 3),
        how=st.sampled_from(["_batch", "_epoch", "_together"]),
    )  # fmt: skip
    def read_batches(self, reading: Reading, how: str, epoch: int, data: st.DataObject) -> None:
        """Read steps of an epoch, in one of the ways that a trainer does."""
        self._forget(data)
        loader = reading.loader
        start = data.draw(st.integers(0, len(loader)), label="start")
        batches = getattr(self, how)(loader, epoch, start, data)
        for step, batch in enumerate(batches, start):
            reading.check(batch, epoch, step)

    def _batch(self, loader: ooc.Loader, epoch: int, start: int, data: st.DataObject) -> list[Any]:
        return [loader.batch(start, epoch)] if start < len(loader) else []

    def _together(
        self, loader: ooc.Loader, epoch: int, start: int, data: st.DataObject
    ) -> list[Any]:
        stop = min(len(loader), start + data.draw(st.integers(1, 9), label="steps"))
        return loader.read(Run(epoch, start, stop)) if start < stop else []

    def _epoch(self, loader: ooc.Loader, epoch: int, start: int, data: st.DataObject) -> list[Any]:
        parallel = data.draw(st.sampled_from([1, 2, 4]), label="parallel")
        prefetch = data.draw(st.sampled_from([0, 2, 5]), label="prefetch")
        batches = list(loader.epoch(epoch, start, parallel=parallel, prefetch=prefetch))
        assert len(batches) == len(loader) - start
        return batches

    @rule(reading=readings, number=st.sampled_from([2, 2, 3, 4, 8]), epoch=st.integers(0, 3))
    def ranks(self, reading: Reading, number: int, epoch: int) -> None:
        loader, model = reading.loader, reading.model
        if loader.batch_size % number or loader.steps.lanes % number:
            with pytest.raises(ArgumentError):
                loader.shard(number, 0)
            return
        used = loader.steps.used
        if used < number:
            with pytest.raises(EmptyError):
                loader.shard(number, 0)
            return
        ranks = [loader.shard(number, index) for index in range(number)]
        for step in range(len(loader)):
            whole = loader.positions(step, epoch)
            if len(whole) < number:
                assert all(len(rank) == step for rank in ranks), loader
                break
            shares = [rank.positions(step, epoch) for rank in ranks]
            each = len(whole) // number
            assert [len(share) for share in shares] == [each] * number, loader
            dealt = np.concatenate(shares)
            if len(whole) == loader.batch_size:
                assert np.array_equal(dealt, whole), loader
            else:  # what can't be dealt out is dropped
                assert not Counter(dealt.tolist()) - Counter(whole.tolist()), loader
            parts = [rank.batch(step, epoch) for rank in ranks]
            for share, part in zip(shares, parts, strict=True):
                model.check_batch(part, share.tolist(), (loader, number))
            if len(whole) == loader.batch_size:
                arrays = zip(*map(leaves, parts), strict=True)
                together = [np.concatenate(column) for column in arrays]
                reading.check(models.filled(parts[0], together), epoch, step)

    @rule(target=readings, data=st.data(), number=st.sampled_from([2, 4]))
    @precondition(lambda self: self._opened < 5)
    def chain(self, data: st.DataObject, number: int) -> Any:
        """A whole chain of an array of its own: single rules seldom come as far as its batches."""
        made: Any = self.open(data=data)
        changes = st.sampled_from([self._rows, self._rows, self._cut, self._transpose])
        for change in data.draw(st.lists(changes, max_size=2), label="changes"):
            made = change(made, data)
        makes = st.sampled_from([None, self.windows, self.windows_at, self.patches])
        for make in (
            data.draw(makes, label="make"),
            data.draw(st.sampled_from([None, self.select])),
        ):
            how = {"how": "_rows"} if make == self.select else {}
            how |= {"pad": data.draw(st.booleans())} if make == self.windows_at else {}
            found = make(pair=made, data=data, **how) if make else made
            made = found if isinstance(found, Pair) else made
        reading = self.batches(pair=made, data=data)
        if isinstance(reading, Reading):
            self.ranks(reading=reading, number=number, epoch=1)
            self.read_batches(reading=reading, how="_epoch", epoch=2, data=data)
        return reading

    @rule(target=readings, reading=readings, how=st.sampled_from(["pickle", "description"]))
    def restart(self, reading: Reading, how: str) -> Any:
        loader = reading.loader
        if how == "pickle":
            again = pickle.loads(pickle.dumps(loader))
        else:
            try:
                again = from_json(as_json(loader), allow=[__name__])
            except DescriptionError:
                assert not all(source.storage().path for source in loader.dataset.sources())
                return multiple()
        assert fingerprint(again) == fingerprint(loader)
        return replace(reading, loader=again)


def same(model: Model, batch: Any, positions: range) -> bool:
    try:
        model.check_batch(batch, positions, None)
    except AssertionError:
        return False
    return True


class ChainsOfAll(Chains):
    """And through TensorFlow, Keras and worker processes."""

    @rule(reading=Chains.readings, data=st.data())
    def to_tf(self, reading: Reading, data: st.DataObject) -> None:
        loader = reading.loader
        epoch = data.draw(st.integers(0, 3), label="epoch")
        start = data.draw(st.integers(0, len(loader) - 1), label="start")
        epochs = data.draw(st.integers(1, 2), label="epochs")
        steps = [divmod(at, len(loader)) for at in range(len(loader) * epochs)][start:]
        dataset = loader.to_tf(start=(epoch, start), epochs=epochs)
        batches = [map_leaves(lambda tensor: tensor.numpy(), batch) for batch in dataset]
        for batch, (after, step) in zip(batches, steps, strict=True):
            reading.check(batch, epoch + after, step)

    @rule(reading=Chains.readings)
    def to_keras(self, reading: Reading) -> None:
        sequence = reading.loader.to_keras()
        assert len(sequence) == len(reading.loader)
        for step in range(len(sequence)):
            reading.check(sequence[step], 0, step)

    @rule(reading=Chains.readings, workers=st.integers(1, 2), epoch=st.integers(0, 3))
    @precondition(lambda self: self.processes < 2)
    def in_workers(self, reading: Reading, workers: int, epoch: int) -> None:
        self.processes += 1
        batches = list(replace(reading.loader, workers=workers).epoch(epoch))
        assert len(batches) == len(reading.loader)
        for step, batch in enumerate(batches):
            reading.check(batch, epoch, step)

    processes = 0


pytestmark = pytest.mark.filterwarnings(
    # Of chunks that hold nothing but the fill value.
    "ignore::oocdata.errors.MissingChunkWarning",
    "ignore::oocdata.errors.PartBorderWarning",
)


def test_chains() -> None:
    run_state_machine_as_test(Chains, settings=settings(max_examples=40, stateful_step_count=30))


@pytest.mark.long
def test_chains_of_all() -> None:
    run_state_machine_as_test(
        ChainsOfAll, settings=settings(max_examples=30, stateful_step_count=50)
    )
