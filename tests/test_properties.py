"""Laws that hold for any numbers. Random chains of everything: test_state_machine.py."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.errors import EmptyError
from oocdata.testing import RecordingSource, sample_array

STEP = st.sampled_from([1, 1, 2, 3, -1, -2])
SLICES = st.builds(
    slice,
    st.one_of(st.none(), st.integers(-15, 15)),
    st.one_of(st.none(), st.integers(-15, 15)),
    STEP,
)


@given(
    st.integers(2, 80),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 9),
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.sampled_from([slice(None), slice(None, None, 2), slice(3, None), slice(None, None, -1)]),
)
def test_no_row_is_read_by_two_parts(
    rows: int,
    inputs: int,
    targets: int,
    shift: int,
    stride: int,
    horizon: int,
    gap: int,
    weights: list[int],
    cut: slice,
):
    """By the reads themselves, not by arithmetic: what a test set has seen, training has not."""
    source = RecordingSource(np.arange(rows))
    try:
        windows = ooc.open(source)[cut].windows(
            inputs, targets, shift=shift, stride=stride, horizon=horizon
        )
        parts = windows.split(*[weight / sum(weights) for weight in weights], gap=gap)
    except EmptyError:
        return
    seen: list[set[int]] = []
    for part in parts:
        source.forget()
        part.take(range(len(part)))
        seen.append({row for read in source.rows for row in read})
    for i, one in enumerate(seen):
        for other in seen[i + 1 :]:
            assert not one & other


@given(st.integers(1, 60), st.data())
def test_shards_are_everything_and_disjoint(length: int, data: st.DataObject):
    number = data.draw(st.integers(1, length))
    view = ooc.open(np.arange(length))[:: data.draw(st.sampled_from([1, -1]))]
    shards = [np.asarray(view.shard(number, index)) for index in range(number)]
    assert_array_equal(np.concatenate(shards), np.asarray(view))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


@given(st.data())
def test_zips_and_maps_of_chains(data: st.DataObject):
    array = sample_array((30, 3))
    view, labels = ooc.open(array), ooc.open(np.arange(30))
    horizon = data.draw(st.integers(1, 5))
    pairs = view.next_frame(horizon)
    chain = ooc.zip({"pair": pairs, "label": labels[: len(pairs)]}).map(
        lambda e: {"sum": e["pair"][0] + e["pair"][1], "label": e["label"]},
        batched=data.draw(st.booleans()),
    )
    positions = np.arange(len(pairs))
    for _ in range(data.draw(st.integers(0, 3))):
        key = data.draw(SLICES)
        chain, positions = chain[key], positions[key]
    assume(len(positions))
    rows = np.array(data.draw(st.lists(st.integers(0, len(positions) - 1), min_size=1, max_size=6)))
    batch = chain.take(rows)
    wanted = positions[rows]
    assert_array_equal(batch["sum"], array[wanted] + array[wanted + horizon])
    assert_array_equal(batch["label"], wanted)
    assert [leaf.shape[0] for leaf in leaves(batch)] == [len(rows)] * 2
