"""Test parts whose rows differ in shape, with NumPy as the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from counting import counted
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import fingerprint, from_json
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.mixed_shapes import PaddedArray, join_parts
from oocdata.errors import ArgumentError, MismatchedPartsError
from oocdata.testing import SourceConformance

Arrays = list[np.ndarray]

SHAPES = [(5, 3, 4), (2, 6, 2), (0, 9, 1), (4, 3, 5), (3, 1, 1)]
"""Shapes of the parts, including parts without rows."""

WIDTHS = [(5, 3, 2), (2, 6, 2), (3, 0, 2), (4, 3, 2)]


def made(shapes: list[tuple[int, ...]], dtype: str = "i4") -> Arrays:
    """Return arrays of distinct values."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    runs = np.split(np.arange(1, sum(sizes) + 1), np.cumsum(sizes)[:-1])
    return [run.reshape(shape).astype(dtype) for run, shape in zip(runs, shapes, strict=True)]


def filled(arrays: Arrays, value: Any) -> np.ndarray:
    shape = np.max([array.shape[1:] for array in arrays], axis=0)
    each = []
    for array in arrays:
        widths = [(0, 0), *((0, n - own) for n, own in zip(shape, array.shape[1:], strict=True))]
        each.append(np.pad(array, widths, constant_values=value))
    return np.concatenate(each)


def held(arrays: Arrays) -> np.ndarray:
    return filled([np.ones(array.shape, np.bool_) for array in arrays], False)


def as_files(folder: Path, arrays: Arrays) -> dict[str, Any]:
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
    return {"target": str(folder / "*.npy")}


def as_npz(folder: Path, arrays: Arrays) -> dict[str, Any]:
    np.savez(folder / "a.npz", **{f"run_{n}": array for n, array in enumerate(arrays)})
    return {"target": str(folder / "a.npz"), "key": "run_*"}


def as_datasets(folder: Path, arrays: Arrays, **options: Any) -> dict[str, Any]:
    with h5py.File(folder / "a.h5", "w") as file:
        for number, array in enumerate(arrays):
            file.create_dataset(f"data/demo_{number}/x", data=array, **options)
    return {"target": str(folder / "a.h5"), "key": "data/demo_*/x"}


def as_chunks(folder: Path, arrays: Arrays) -> dict[str, Any]:
    for number, array in enumerate(arrays):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            for name, part in (("a", array[:2]), ("b", array[2:])):
                chunks = tuple(max(1, min(2, n)) for n in part.shape)
                plain = {} if 0 in part.shape else {"chunks": chunks, "compression": "gzip"}
                file.create_dataset(f"{name}/x", data=part, **plain)
    return {"target": str(folder / "*.h5"), "key": "?/x"}


def as_zarr(folder: Path, arrays: Arrays) -> dict[str, Any]:
    group = zarr.open_group(str(folder / "a.zarr"), mode="w")
    for number, array in enumerate(arrays):
        group.create_array(f"run_{number}", data=array)
    return {"target": str(folder / "a.zarr"), "key": "run_*"}


WAYS = [as_files, as_npz, as_datasets, as_chunks, as_zarr]


class TestFilledUp(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> PaddedArray:
        """Wrap the nonzero block of an array."""
        held = tuple(slice(0, (n + 1) // 2) for n in array.shape)
        inner = array[held].copy()
        array[...] = 0
        array[held] = inner
        return PaddedArray(MemoryArray(inner), array.shape, array.dtype.type(0))


# --- padded


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shapes", [SHAPES, WIDTHS], ids=["several axes", "one axis"])
def test_every_way_to_store_parts(
    tmp_path: Path, way: Callable[..., dict[str, Any]], shapes: list[tuple[int, ...]]
) -> None:
    arrays = made(shapes)
    given = way(tmp_path, arrays)
    view = ooc.open(**given, pad=-1)
    expected, mask = filled(arrays, -1), held(arrays)
    assert_array_equal(np.asarray(view), expected)
    assert_array_equal(np.asarray(view.mask()), mask)
    assert view[3].tolist() == expected[3].tolist()
    assert_array_equal(np.asarray(view[1::2, ::-1, 1:]), expected[1::2, ::-1, 1:])
    assert_array_equal(np.asarray(view[1::2, ::-1, 1:].mask()), mask[1::2, ::-1, 1:])
    assert_array_equal(np.asarray(view.transpose(1, 0).mask()), mask.transpose(0, 2, 1))


@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=5),
    st.sampled_from(["<f4", ">i2", "u1", "?"]),
    st.data(),
)
def test_any_boxes(shapes: list[tuple[int, ...]], dtype: str, data: Any) -> None:
    arrays = made(shapes, dtype)
    view, expected = ooc.open(arrays, pad=1), filled(arrays, 1)
    chosen = (
        data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=6)) if len(expected) else []
    )
    cut: Any = (slice(None),)
    for length in expected.shape[1:]:
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, length)] * 2)))
        cut += (slice(start, stop, data.draw(st.integers(1, 3))),)
    assert_array_equal(view[cut].take(chosen), expected[cut][chosen])
    assert_array_equal(view.mask()[cut].take(chosen), held(arrays)[cut][chosen])
    if expected.size:
        size = tuple(data.draw(st.integers(1, n)) for n in expected.shape[1:])
        tiles = np.lib.stride_tricks.sliding_window_view(expected, size, (1, 2))
        assert_array_equal(
            np.asarray(view.patches(size, step=1).batches(10_000).batch(0)),
            tiles.reshape(-1, *size)[:10_000],
        )


def test_loaders(tmp_path: Path) -> None:
    """Test each row once per epoch with its mask, over ranks, in workers and from JSON."""
    arrays = made([(n, 3 + n % 4, 2 + n % 3) for n in range(1, 12)])
    given = as_files(tmp_path, arrays)
    view, expected = ooc.open(**given, pad=0), filled(arrays, 0)
    loader = ooc.zip(view, view.mask()).batches(4, shuffle=True, seed=7)
    for epoch in range(2):
        rows = [loader.shard(2, rank).epoch(epoch) for rank in range(2)]
        x, mask = (np.concatenate(one) for one in zip(*[b for r in rows for b in r], strict=True))
        order = x[:, 0, 0].argsort()
        assert_array_equal(x[order], expected)
        assert_array_equal(mask, x > 0)
    again = from_json(loader.describe())
    assert fingerprint(again) == fingerprint(loader)
    assert_array_equal(again.batch(2)[1], loader.batch(2)[1])
    other = ooc.open(**given, pad=1)
    other = ooc.zip(other, other.mask()).batches(4, shuffle=True, seed=7)
    assert fingerprint(other) != fingerprint(loader)
    worked = ooc.zip(view, view.mask()).batches(4, workers=1).batch(3)
    assert_array_equal(worked[0], expected[12:16])
    for ours, tensors in zip(loader.epoch(0, 5), loader.to_tf(start=(0, 5)), strict=False):
        assert_array_equal(ours[0], tensors[0])
        assert tensors[0].shape[1:] == expected.shape[1:]
    parts = view.split(0.4, 0.3, 0.3)
    assert_array_equal(np.concatenate([np.asarray(part) for part in parts]), expected)
    both = ooc.zip(view, view.mask()).split(0.5, 0.5)
    assert_array_equal(
        np.concatenate([part.batches(99).batch(0)[1] for part in both]), expected > 0
    )
    with pytest.raises(ArgumentError, match="every part must hold"):  # each row would be in both
        ooc.zip(view, view.mask()[::-1]).split(0.5, 0.5)


def test_windows_never_cross_a_part(tmp_path: Path) -> None:
    arrays = made(SHAPES)
    view = ooc.open(**as_datasets(tmp_path, arrays), pad=0)
    expected, windows = filled(arrays, 0), view.windows(2, 1)
    starts = [s + at for s, n in zip([0, 5, 7, 7, 11], [5, 2, 0, 4, 3], strict=True)
              for at in range(n - 2)]  # fmt: skip
    x, y = windows.batches(len(windows)).batch(0)
    assert_array_equal(x, np.stack([expected[at : at + 2] for at in starts]))
    assert_array_equal(y[:, 0], np.stack([expected[at + 2] for at in starts]))


def test_chunks_are_decoded_once_and_no_others() -> None:
    one, ones = counted(np.ones((8, 4, 6)), 2, 2, 3)
    two, twos = counted(np.ones((8, 2, 8)), 2, 2, 4)
    view = ooc.View.of(join_parts([one.source, two.source], 0, 0))
    total = sum(batch.sum() for batch in view[:, :2, :3].batches(4, shuffle=True, seed=1).epoch(0))
    assert total == 16 * 6
    assert ones == Counter({(n, 0, 0): 1 for n in range(4)})
    assert twos == Counter({(n, 0, 0): 1 for n in range(4)})


def test_invalid_padding(tmp_path: Path) -> None:
    arrays = made(SHAPES, "u1")
    for value in (-1, 0.5, np.nan, "a"):
        with pytest.raises(ArgumentError, match="`pad` must be a number that uint8 holds"):
            ooc.open(arrays, pad=value)
    with pytest.raises(MismatchedPartsError, match=r"\(\*, 3\).*\(\*, 3, 2\).*one by one"):
        ooc.open([np.zeros((2, 3)), np.zeros((2, 3, 2))], pad=0)
    with pytest.raises(MismatchedPartsError, match=r"float64.*float32"):
        ooc.open([np.zeros((2, 3)), np.zeros((2, 4), "f4")], pad=0)
    for pad in (None, 0):
        with pytest.raises(ArgumentError, match=r"equally long.*by ooc\.concat"):
            ooc.open([np.zeros((2, 3, 4)), np.zeros((2, 5, 4))], axis=(0, 1), pad=pad)
    view = ooc.open(arrays, pad=0)
    with pytest.raises(ArgumentError, match="as it was opened"):
        ooc.stack([view, view]).mask().take([0])


@pytest.mark.parametrize("way", [as_files, as_datasets, as_npz])
def test_shapes_are_listed_without_it(tmp_path: Path, way: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(
        MismatchedPartsError,
        match=r"\(\*, 3, 4\) int32 \(1 part\), \(\*, 6, 2\).*with `pad`",
    ):
        ooc.open(**way(tmp_path, made(SHAPES)))


def test_parts_along_another_axis() -> None:
    arrays = [array.swapaxes(0, 1) for array in made(SHAPES)]
    view = ooc.open(arrays, axis=1, pad=7)
    assert_array_equal(np.asarray(view), filled(made(SHAPES), 7))


# --- ragged rows


@pytest.mark.parametrize("way", WAYS)
def test_widths_become_ragged(tmp_path: Path, way: Callable[..., dict[str, Any]]) -> None:
    arrays = made(WIDTHS)
    rows = [row for array in arrays for row in array]
    view = ooc.open(**way(tmp_path, arrays))
    assert isinstance(view, ooc.Ragged)
    assert_array_equal(view.row_lengths(), [len(row) for row in rows])
    for position, row in enumerate(rows):
        assert_array_equal(view[position], row)
    assert_array_equal(np.asarray(view.pad(value=-1)), filled(arrays, -1))
    assert_array_equal(np.asarray(view.mask()), held(arrays)[..., 0])
    cut = view.pad(4, value=-1, cut=True)
    assert_array_equal(cut.take([5, 0, 9]), filled(arrays, -1)[[5, 0, 9], :4])
    assert_array_equal(np.asarray(cut.windows(2, episodes="none")[0]), filled(arrays, -1)[:2, :4])
    tiles = view.pad(value=-1)[3:, :, 0].patches((3,), step=1)
    expected = np.lib.stride_tricks.sliding_window_view(filled(arrays, -1)[3:, :, 0], 3, axis=1)
    assert_array_equal(tiles.batches(999).batch(0), expected.reshape(-1, 3))


def test_the_name_counts_each_file_once(tmp_path: Path) -> None:
    view = ooc.open(**as_files(tmp_path, made([(2, 5), (2, 3), (2, 5), (2, 7)])))
    assert str(view).endswith("0.npy and 3 more")


def test_ragged_loaders(tmp_path: Path) -> None:
    arrays = made([(n, 1 + n % 5, 2) for n in range(1, 12)])
    rows = {int(row[0, 0]): row for array in arrays for row in array}
    view = ooc.open(**as_chunks(tmp_path, arrays))
    loader = view.batches(4, shuffle=True, seed=7)
    for epoch in range(2):
        batches = [b for rank in range(2) for b in loader.shard(2, rank).epoch(epoch)]
        found = [row for batch in batches for row in batch]
        assert sorted(int(row[0, 0]) for row in found) == sorted(rows)
        for row in found:
            assert_array_equal(row, rows[int(row[0, 0])])
    for ours, tensor in zip(loader.epoch(0, 5), loader.to_tf(start=(0, 5)), strict=False):
        assert_array_equal(ours.values, tensor.values)
        assert_array_equal(ours.row_splits, tensor.row_splits)
    again = from_json(loader.describe())
    assert fingerprint(again) == fingerprint(loader)
    assert_array_equal(again.batch(2).values, loader.batch(2).values)
    bounds = (2, 5)
    buckets = ooc.zip(view.pad(bounds), view.mask(bounds)).batches(4, bucket=bounds)
    x = [x for batch, mask in buckets.epoch(0) for x, m in zip(batch, mask, strict=True)]
    assert sorted(int(row[0, 0]) for row in x) == sorted(rows)
    first, second = view.split(0.5, 0.5)
    assert [int(one[at][0, 0]) for one in (first, second) for at in range(len(one))] == [*rows]


def test_chunks_of_ragged_parts_are_decoded_once() -> None:
    one, ones = counted(np.ones((8, 4)), 2, 2)
    two, twos = counted(np.ones((8, 6)), 4, 6)
    view = ooc.Ragged.of(join_parts([one.source, two.source], 0, None))
    total = sum(batch.values.sum() for batch in view.batches(4, shuffle=True, seed=1).epoch(0))
    assert total == 8 * 4 + 8 * 6
    assert set(ones.values()) | set(twos.values()) == {1}
    assert [len(ones), len(twos)] == [8, 2]


def test_open_datasets_of_one_file_are_episodes_as_their_keys_are(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, shape in zip("ab", [(5, 3), (4, 2)], strict=True):
            file[name] = np.ones(shape)
    with h5py.File(tmp_path / "a.h5") as file:
        given = ooc.open([file["a"], file["b"]], pad=0)
        assert len(given.windows(2)) == 4 + 3
        assert len(ooc.open(tmp_path / "a.h5", ["a", "b"], pad=0).windows(2)) == 4 + 3
