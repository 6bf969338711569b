"""The order that `shuffle=True` chooses for windows over compressed chunks of one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from counting import counted
from recording import RecordingSource

import oocdata as ooc
from oocdata import choice
from oocdata.datasets.dataset import Dataset
from oocdata.memory import DEFAULT_MEMORY, set_memory
from oocdata.testing import sample_array

Stored = tuple[ooc.View, Counter[tuple[int, ...]]]

ROWS, NUMBERS = 1500, 1024  # 6 MiB, each row a chunk of 4 KiB


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scale the default memory down by a factor of 1,000 in the choice of an order."""
    monkeypatch.setattr(choice, "WINDOW_BYTES", 512 << 10)
    set_memory(2 << 20)
    yield
    set_memory(DEFAULT_MEMORY)


@pytest.fixture
def stored() -> Stored:
    """Return rows, each of which is a chunk, and a counter of decoded chunks."""
    numbers = np.arange(1, ROWS + 1, dtype="f4")[:, None] + np.zeros(NUMBERS, "f4")
    return counted(numbers, 1, NUMBERS)


def starts(loader: ooc.Loader, **where: int) -> list[float]:
    """Read an epoch; return the first row of each window."""
    return [row for x, _ in loader.epoch(0, **where) for row in x[:, 0, 0].tolist()]


@pytest.mark.parametrize(("inputs", "least", "most"), [(1, 1.6, 1.15), (3, 2.4, 1.35)])
@pytest.mark.parametrize("part", [None, 1])
def test_windows_decode_each_row_about_once(
    stored: Stored, inputs: int, part: int | None, least: float, most: float
):
    view, decoded = stored
    windows: Dataset = view.windows(inputs, 1)
    if part is not None:
        windows = windows.split(0.6, 0.4)[part]
    needed = len(windows) + inputs
    loader = windows.batches(8, shuffle=True, seed=3)
    assert isinstance(loader.order, ooc.BlockShuffle)
    first = int(windows[0][0][0, 0])
    decoded.clear()
    assert sorted(starts(loader)) == list(range(first, first + len(windows)))
    assert decoded.total() < most * needed
    if part is None:  # for parts, a larger share fits the cache
        decoded.clear()
        starts(windows.batches(8, shuffle="global", seed=3))
        assert decoded.total() > least * needed


def test_ranks_and_a_later_start_decode_their_share(stored: Stored):
    ranks, (view, decoded) = 4, stored
    loader = view.windows(3, 1).batches(8, shuffle=True, seed=3)
    whole, seen = starts(loader), []
    for index in range(ranks):
        decoded.clear()
        rank = loader.shard(ranks, index)
        seen += starts(rank)
        assert decoded.total() < 1.4 * ROWS / ranks
    assert len(set(seen)) == len(seen) > len(whole) - 8
    decoded.clear()
    half = len(loader) // 2
    assert starts(loader, start=half) == whole[half * 8 :]
    assert decoded.total() < 1.5 * ROWS / 2


def test_explain_describes_the_runs(stored: Stored):
    view, decoded = stored
    loader = view.windows(3, 1).batches(8, shuffle=True, seed=3)
    assert isinstance(loader.order, ooc.BlockShuffle)
    told = loader.explain()
    run = loader.order.blocks.length
    assert f"{run * loader.order.blocks_mixed} elements at a time are mixed" in told.reason
    assert told.mixing is not None
    assert told.mixing.entropy > 0.9 * told.mixing.full_shuffle_entropy
    assert not told.advice
    decoded.clear()
    read = len(starts(loader))
    assert told.amplification == pytest.approx(decoded.total() / read, rel=0.1)
    # Runs mixed by hand that follow one another in a batch are told of.
    poor = view.batches(8, shuffle=ooc.BlockShuffle(16, 1)).explain()
    assert "mixes poorly" in str(poor)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda view: view, "addressable, so", id="rows"),
        pytest.param(lambda view: view.windows(2, 1, shift=3), "addressable, so", id="apart"),
        pytest.param(lambda view: view.windows((-9, 0)), "addressable, so", id="lags"),
        pytest.param(
            lambda view: view.windows(2)[np.random.default_rng(0).permutation(1499)],
            "addressable, so",
            id="in another order",
        ),
        pytest.param(lambda view: view.windows(60), "holds too few", id="long windows"),
        pytest.param(lambda view: view[:100].windows(2, 1), "holds", id="all fit"),
    ],
)
def test_a_full_shuffle_if_runs_gain_nothing_or_mix_badly(stored: Stored, make: Any, said: str):
    loader = make(stored[0]).batches(8, shuffle=True)
    assert isinstance(loader.order, ooc.Shuffle)
    assert said in loader.reason


def test_a_batch_takes_its_elements_from_as_many_runs(monkeypatch: pytest.MonkeyPatch):
    view, _ = counted(np.zeros((1000, 100), "f4"), 1, 100)
    monkeypatch.setattr(choice, "WINDOW_BYTES", 100 * 400)
    for size in (1, 2, 4, 8, 16, 32):
        order = view.next_frame().batches(size, shuffle=True).order
        assert isinstance(order, ooc.BlockShuffle)
        assert order.blocks_mixed >= max(4, size)
    assert isinstance(view.next_frame().batches(64, shuffle=True).order, ooc.Shuffle)


def test_addressable_rows_are_fully_shuffled():
    view = ooc.View.of(RecordingSource(sample_array((100, 2)), chunks=None))
    assert isinstance(view.windows(2, 1).batches(4, shuffle=True).order, ooc.Shuffle)


@pytest.mark.parametrize(
    "take",
    [
        pytest.param(lambda v: v["a"], id="a field"),
        pytest.param(lambda v: ooc.stack([v["b"][:, 0], v["b"][:, 8]]), id="places of a field"),
    ],
)
def test_chunks_are_mixed_if_elements_take_little_of_each(
    take: Any, monkeypatch: pytest.MonkeyPatch
):
    """The bytes of a chunk are its decoded bytes, not the bytes that elements take from it."""
    rows = np.zeros(6400, [("a", "f4"), ("b", "f4", 15)])
    view, decoded = counted(rows, 64)
    monkeypatch.setattr(choice, "WINDOW_BYTES", 1 << 17)  # 32 chunks of 100
    set_memory(1 << 20)
    try:
        loader = take(view).batches(8, shuffle=True, seed=3)
        for _ in loader:
            pass
    finally:
        set_memory(DEFAULT_MEMORY)
    assert isinstance(loader.order, ooc.BlockShuffle)
    assert decoded.total() < 1.1 * len(decoded)


@pytest.mark.parametrize("make", [lambda v: v, lambda v: v.next_frame(), lambda v: v.windows(4)])
def test_chunks_of_several_sample_axes_are_mixed(make: Any, monkeypatch: pytest.MonkeyPatch):
    """A chunk of some trajectories and some of their times; its neighbours are not needed."""
    array = np.zeros((16, 1600, 64), "f4")
    source, decoded = counted(array, 4, 8, 64)  # the chunks of four whole trajectories have 1.6 MiB
    view = ooc.View.of(source.source, (0, 1))
    monkeypatch.setattr(choice, "WINDOW_BYTES", 1 << 18)
    set_memory(1 << 20)
    try:
        loader = make(view).batches(32, shuffle=True, seed=3)
        told = loader.explain()
        for _ in loader:
            pass
    finally:
        set_memory(DEFAULT_MEMORY)
    assert decoded.total() < 1.5 * len(decoded)
    assert told.mixing is not None
    assert told.mixing.entropy > 0.8 * told.mixing.full_shuffle_entropy
