"""Random chains, with all that puts datasets together: one after the other, stacked, mixed, cached.

The same machine as in `test_state_machine`, with more to do in it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import element_model as models
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import multiple, precondition, rule, run_state_machine_as_test
from test_state_machine import MOST, Chains, Pair, Reading, same, slices

import oocdata as ooc
from oocdata.errors import ArgumentError, EmptyError


class Compositions(Chains):
    """Datasets made of datasets, and read in orders of their own."""

    def _parts_of(self, pair: Pair, data: st.DataObject) -> list[Pair]:
        """Return two or three selections of one dataset, which may share rows."""
        number = data.draw(st.integers(2, 3), label="parts")
        found = [self._selected(pair, data.draw(slices(len(pair.model)))) for _ in range(number)]
        return [part for part in found if len(part.model)]

    @rule(target=Chains.datasets, pair=Chains.datasets, data=st.data())
    def concat(self, pair: Pair, data: st.DataObject) -> Any:
        parts = self._parts_of(pair, data)
        if not parts or sum(len(part.model) for part in parts) > MOST:
            return multiple()
        wanted = models.one_after_other(*(part.model for part in parts))
        return self._made(ooc.concat([part.dataset for part in parts]), wanted)

    @rule(target=Chains.datasets, one=Chains.datasets, other=Chains.datasets)
    def concat_of_others(self, one: Pair, other: Pair) -> Any:
        count = len(one.model) + len(other.model)
        if not len(one.model) or not len(other.model) or count > MOST:
            return multiple()
        make = partial(ooc.concat, [one.dataset, other.dataset])
        alike = one.model.form == other.model.form and all(
            (a.shape, a.dtype) == (b.shape, b.dtype)
            for a, b in zip(one.model.columns, other.model.columns, strict=False)
        )
        if not alike:
            with pytest.raises(ArgumentError):
                make()
            return multiple()
        return self._made(make(), models.one_after_other(one.model, other.model))

    @precondition(lambda self: self._opened < 6)
    @rule(target=Chains.datasets, data=st.data(), windows=st.booleans())
    def concat_of_files(self, data: st.DataObject, windows: bool) -> Any:
        """Arrays of their own, of one spec, one after the other; and a part of a split of that."""
        inner = data.draw(st.lists(st.integers(1, 4), max_size=2), label="inner shape")
        dtype = data.draw(st.sampled_from(["<i4", ">i2", "f8"]), label="dtype")
        axis = (0, 1) if inner and data.draw(st.booleans(), label="two axes") else (0,)
        parts = []
        for _ in range(data.draw(st.integers(2, 3), label="files")):
            shape = (data.draw(st.integers(2, 9), label="length"), *inner)
            part = self._stored(shape, dtype, axis, data)
            found = self.next_frame(pair=part, horizon=1, data=data) if windows else part
            if isinstance(found, Pair):
                parts.append(found)
        if not parts or sum(len(part.model) for part in parts) > MOST:
            return multiple()
        model = models.one_after_other(*(part.model for part in parts))
        made = self._made(ooc.concat([part.dataset for part in parts]), model)
        if all(part.model.splits for part in parts):
            made.model = replace(model, splits=True)
        for name in data.draw(st.lists(st.sampled_from(["_rows", "split", "cache"]), max_size=3)):
            option = {"in_memory": True} if name == "cache" else {"data": data}
            found = getattr(self, name)(pair=made, **option)
            made = found if isinstance(found, Pair) else made
        return made

    @rule(target=Chains.datasets, pair=Chains.datasets)
    def enumerate(self, pair: Pair) -> Any:
        if not len(pair.model):
            return multiple()
        numbers = models.numbers(len(pair.model))
        return self._made(
            pair.dataset.enumerate(), models.side_by_side(numbers, pair.model, form=(0, 1))
        )

    @rule(target=Chains.datasets, pair=Chains.datasets, data=st.data())
    def filter(self, pair: Pair, data: st.DataObject) -> Any:
        count = len(pair.model)
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
        places = np.flatnonzero(mask)
        run = len(places) > 0 and places[-1] - places[0] + 1 == len(places)
        given = ooc.open(mask) if data.draw(st.booleans(), label="a View") and count else mask
        made = pair.model.select(places, by_slice=bool(run))
        return self._made(pair.dataset.filter(given), made)

    @rule(
        target=Chains.datasets, pair=Chains.datasets, in_memory=st.sampled_from([True, True, False])
    )
    def cache(self, pair: Pair, in_memory: bool) -> Any:
        model = pair.model
        if not len(model):
            return multiple()
        make = partial(pair.dataset.cache, None if in_memory else Path(self._folder.name, "cache"))
        if not all(column.known and column.crop is None for column in model.columns):
            with pytest.raises(ArgumentError):
                make()
            return multiple()
        return self._made(make(), models.cached(model))

    @rule(targets=(Chains.views, Chains.datasets), pair=Chains.views, data=st.data())
    def stack(self, pair: Pair, data: st.DataObject) -> Any:
        shape = pair.model.columns[0].shape
        parts = [pair]
        for _ in range(data.draw(st.integers(1, 2), label="others")):
            key = [data.draw(st.sampled_from([slice(None), slice(None, None, -1)])) for _ in shape]
            changed = models.rows_changed(pair.model, lambda a, key=key: a[(slice(None), *key)])
            parts.append(self._made(pair.dataset[(slice(None), *key)], changed))
        new = not shape or data.draw(st.booleans(), label="a new axis")
        axis = data.draw(st.integers(0, len(shape) - (not new)), label="axis")
        make, together = (ooc.stack, np.stack) if new else (ooc.concatenate, np.concatenate)
        arrays = [models.stacked(part.model.columns[0]) for part in parts]
        wanted = models.rows_changed(pair.model, lambda _: together(arrays, axis=axis + 1))
        return self._made(make([part.dataset for part in parts], axis=axis), wanted)

    @rule(target=Chains.datasets, pair=Chains.datasets, data=st.data())
    def partition(self, pair: Pair, data: st.DataObject) -> Any:
        """Split by groups, by classes or into folds: no two parts share a row."""
        dataset, model = pair.dataset, pair.model
        if (
            not len(model)
            or not model.tells
            or (not model.splits and len(set(model.rows)) < len(model.rows))
        ):
            return multiple()
        if len(model.sample_shape) > 1:
            rows = model.sample_shape[0]
        elif isinstance(dataset, ooc.View):
            rows = len(model)
        else:
            try:
                rows = len(dataset._row_positions(0))
            except ArgumentError:
                return multiple()
        how = data.draw(st.sampled_from(["by", "stratify", "plain"]), label="how")
        ids = st.lists(st.integers(0, 4), min_size=rows, max_size=rows)
        options: Any = {} if how == "plain" else {how: data.draw(ids, label="ids")}
        folds = data.draw(st.booleans(), label="folds")
        try:
            if folds:
                found = dataset.folds(data.draw(st.integers(2, 3), label="k"), **options)
            else:
                found = [dataset.split(0.5, 0.3, **options)]
        except EmptyError:
            return multiple()
        except ArgumentError as error:
            said = str(error)  # too few of them, or windows whose rows would be dealt apart
            few = any(word in said for word in ("group", "fold", "must come with", "share no row"))
            if model.splits and not few:
                raise
            return multiple()
        places = [[self._places(pair, part) for part in parts] for parts in found]
        for parts in places:
            one, other = (set().union(*(model.rows[at] for at in some)) for some in parts)
            assert not one & other, (pair, found)
        if folds:
            tested = [at for _, validation in places for at in validation]
            assert len(set(tested)) == len(tested), (pair, found)
            if max(map(len, model.rows)) == 1 and model.splits:
                assert len(tested) == len(model), (pair, found)
        if len(model.sample_shape) > 1:  # along one of them: `split` goes on with such parts
            return multiple()
        at = data.draw(st.integers(0, len(found) - 1))
        number = data.draw(st.integers(0, 1))
        return self._made(
            found[at][number], model.select(np.array(places[at][number], int), by_slice=False)
        )

    def _places(self, pair: Pair, part: ooc.Dataset) -> list[int]:
        """Return which elements a part holds, in order."""
        places, start = [], 0
        for position in range(len(part)):
            batch = part.take([position])
            while not same(pair.model, batch, range(start, start + 1)):
                start += 1
                assert start < len(pair.model), (pair, part, position)
            places.append(start)
            start += 1
        return places

    @rule(target=Chains.readings, pair=Chains.datasets, data=st.data())
    def mix(self, pair: Pair, data: st.DataObject) -> Any:
        """Batches of a mixture: each member's share, and its elements by its own order."""
        parts = self._parts_of(pair, data)
        if not parts:
            return multiple()
        weights = [data.draw(st.integers(1, 4), label="weight") for _ in parts]
        mixed = ooc.mix([(part.dataset, n) for part, n in zip(parts, weights, strict=True)])
        size = data.draw(st.integers(1, 6), label="batch_size")
        shuffle = data.draw(st.sampled_from([False, True, "global", "block"]), label="shuffle")
        try:
            loader = mixed.batches(size, shuffle=shuffle, seed=data.draw(st.integers(0, 9)))
        except EmptyError:
            assert mixed.epoch_length < size
            return multiple()
        model = models.one_after_other(*(part.model for part in parts))
        counts = [len(part.model) for part in parts]
        ends = np.cumsum(counts)
        slack = 2.0 if len(parts) > 2 else 0.5
        for epoch in (0, 2):
            given = np.zeros(len(parts))
            taken = np.concatenate([loader.positions(step, epoch) for step in range(len(loader))])
            for step in range(len(loader)):
                positions = loader.positions(step, epoch)
                members = np.searchsorted(ends, positions, side="right")
                given += np.bincount(members, minlength=len(parts))
                if epoch == 0 and loader.steps.lanes == 1:
                    shares = given.sum() * np.array(weights) / sum(weights)
                    assert np.abs(given - shares).max() <= slack, (loader, step)
            if epoch == 0:  # until a member is through, none of its elements comes again
                for start, end in zip(ends - counts, ends, strict=True):
                    own = taken[(taken >= start) & (taken < end)]
                    assert len(set(own[: end - start].tolist())) == min(len(own), end - start)
        reading = Reading(loader, model)
        for step, batch in enumerate(loader):
            reading.check(batch, 0, step)
        return reading

    @rule(target=Chains.readings, pair=Chains.datasets, data=st.data())
    def weighted(self, pair: Pair, data: st.DataObject) -> Any:
        count = len(pair.model)
        if not count or pair.model.each:
            return multiple()
        weights = np.array(
            data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), np.float64
        )
        if not weights.any():
            return multiple()
        size = data.draw(st.integers(1, count), label="batch_size")
        loader = pair.dataset.batches(size, shuffle=True, weights=weights, seed=3)
        reading = Reading(loader, pair.model)
        for step, batch in enumerate(loader):
            assert weights[loader.positions(step, 0)].all()
            reading.check(batch, 0, step)
        return reading

    @rule(target=Chains.readings, pair=Chains.datasets, data=st.data())
    def interleave(self, pair: Pair, data: st.DataObject) -> Any:
        count = len(pair.model)
        if not count:
            return multiple()
        cuts = data.draw(st.lists(st.integers(0, count), max_size=4), label="cuts")
        lengths = np.diff([0, *sorted(cuts), count])
        order = ooc.Interleave(
            lengths,
            data.draw(st.integers(1, 4)),
            data.draw(st.integers(1, 3)),
            shuffle_parts=data.draw(st.booleans()),
        )
        loader = pair.dataset.batches(data.draw(st.integers(1, 6)), shuffle=order)
        reading = Reading(loader, pair.model)
        seen = np.concatenate([loader.positions(step, 1) for step in range(len(loader))])
        assert np.array_equal(np.sort(seen), np.arange(count))
        for step, batch in enumerate(loader):
            reading.check(batch, 0, step)
        return reading

    @precondition(lambda self: self._opened < 4)
    @rule(target=Chains.readings, data=st.data())
    def composed_chain(self, data: st.DataObject) -> Any:
        """A composition of windows or rows of an array of its own, changed and read."""
        made: Any = self.open(data=data)
        steps = st.sampled_from(["windows", "next_frame", "stack", "cache", "filter", "concat"])
        for name in data.draw(st.lists(steps, min_size=1, max_size=4), label="steps"):
            if name in ("windows", "next_frame", "stack") and not isinstance(
                made.dataset, ooc.View
            ):
                continue
            if name == "next_frame":
                found = self.next_frame(pair=made, horizon=1, data=data)
            elif name == "cache":
                found = self.cache(pair=made, in_memory=True)
            else:
                found = getattr(self, name)(pair=made, data=data)
            made = found if isinstance(found, Pair) else made
        found = self.split(pair=made, data=data)
        made = found if isinstance(found, Pair) else made
        reading = self.batches(pair=made, data=data)
        if isinstance(reading, Reading):
            self.ranks(reading=reading, number=2, epoch=1)
            self.read_batches(reading=reading, how="_epoch", epoch=2, data=data)
        return reading


pytestmark = pytest.mark.filterwarnings(
    "ignore::oocdata.errors.MissingChunkWarning", "ignore::oocdata.errors.PartBorderWarning"
)


def test_compositions() -> None:
    run_state_machine_as_test(
        Compositions, settings=settings(max_examples=30, stateful_step_count=25)
    )


@pytest.mark.thorough
def test_many_compositions() -> None:
    run_state_machine_as_test(
        Compositions, settings=settings(max_examples=50, stateful_step_count=30)
    )
