"""Random chains of everything, with NumPy as the oracle."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
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


def stored(folder: Path, array: np.ndarray, kind: str) -> ooc.View:
    """Store an array in one of the ways that different code reads."""
    if kind == "memory":
        return ooc.open(array)
    if kind == "recording":
        return ooc.open(RecordingSource(array, 4))
    if kind == "parts":
        for number, part in enumerate(np.split(array, [len(array) // 3])):
            np.save(folder / f"part{number}.npy", part)
        return ooc.open(folder / "part*.npy")
    if kind == "memmap":
        np.save(folder / "a.npy", array)
        return ooc.open(np.load(folder / "a.npy", mmap_mode="r"))
    np.save(folder / "a.npy", np.asfortranarray(array) if kind == "fortran" else array)
    return ooc.open(folder / "a.npy")


@settings(max_examples=300)
@given(
    st.data(),
    st.sampled_from(["memory", "recording", "npy", "fortran", "parts", "memmap"]),
    st.sampled_from(["<i4", ">i2", "u1", "<f8"]),
)
def test_chains_of_views(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str, dtype: str
):
    shape = data.draw(st.tuples(st.integers(0, 14), st.integers(1, 5), st.integers(0, 6)))
    array = sample_array(shape, dtype)
    if kind == "recording":
        array = array.astype(array.dtype.newbyteorder("="))
    view = stored(tmp_path_factory.mktemp("chain"), array, kind)
    oracle = array.astype(array.dtype.newbyteorder("="))
    for _ in range(data.draw(st.integers(1, 5))):
        step = data.draw(st.sampled_from(["rows", "array", "mask", "cut", "astype", "pickle"]))
        if step == "rows":
            key: Any = data.draw(SLICES)
        elif step == "array":
            assume(len(oracle))
            key = np.array(
                data.draw(st.lists(st.integers(-len(oracle), len(oracle) - 1), max_size=9)), int
            )
        elif step == "mask":
            key = np.array(
                data.draw(st.lists(st.booleans(), min_size=len(oracle), max_size=len(oracle))), bool
            )
        elif step == "cut":
            key = (
                data.draw(SLICES),
                *(
                    data.draw(st.one_of(SLICES, st.integers(0, length - 1)) if length else SLICES)
                    for length in oracle.shape[1:]
                ),
            )
        elif step == "astype":
            wanted = data.draw(st.sampled_from(["f4", "f8", "i4", "u2", "?", "c8"]))
            if oracle.dtype.kind == "c" and wanted != "c8":
                continue
            if not np.can_cast(view.source.dtype, view.dtype, "safe"):
                continue  # refused: what the first conversion lost is gone
            view, oracle = view.astype(wanted), oracle.astype(wanted)
            continue
        else:
            view = pickle.loads(pickle.dumps(view))
            continue
        view, oracle = view[key], oracle[key]
        assert view.shape == oracle.shape
    assert view.dtype == oracle.dtype
    assert view.nbytes == oracle.nbytes
    assert_array_equal(np.asarray(view), oracle)
    assert np.asarray(view).dtype == oracle.dtype
    if len(oracle):
        rows = np.array(
            data.draw(st.lists(st.integers(-len(oracle), len(oracle) - 1), max_size=9)), int
        )
        assert_array_equal(view.take(rows), oracle[rows])
        assert_array_equal(
            view[int(rows[0])] if len(rows) else view[0], oracle[rows[0] if len(rows) else 0]
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


@given(st.integers(1, 40), st.integers(1, 45), st.booleans(), st.integers(0, 3), st.integers(0, 2))
def test_an_epoch_holds_every_element_once(
    length: int, size: int, shuffle: bool, seed: int, epoch: int
):
    batches = ooc.open(np.arange(length)).batches(size, shuffle=shuffle, seed=seed)
    seen = np.concatenate([batches.batch(step, epoch) for step in range(len(batches))])
    assert sorted(seen.tolist()) == list(range(length))


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
