"""Test ragged rows, with lists of NumPy arrays as the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from counting import counted
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.describe import fingerprint, from_json
from oocdata.errors import ArgumentError, SourceError

LENGTHS = [3, 0, 7, 1, 4, 0]


def rows_of(values: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    return np.split(values, np.cumsum(lengths)[:-1])


def padded(rows: list[np.ndarray], to: int, value: Any) -> np.ndarray:
    out = np.full((len(rows), to, *rows[0].shape[1:]), value, rows[0].dtype)
    for row, array in zip(out, rows, strict=True):
        row[: len(array)] = array[:to]
    return out


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.sampled_from([(), (3,), (2, 2)]),
    st.sampled_from(["<f4", ">i2", "u1"]),
    st.data(),
)
def test_any_rows(lengths: list[int], inner: tuple[int, ...], dtype: str, data: Any) -> None:
    values = np.arange(sum(lengths) * int(np.prod(inner))).reshape(-1, *inner).astype(dtype)
    made, rows = ooc.ragged(values, lengths=lengths), rows_of(values, lengths)
    assert [len(made), made.longest] == [len(rows), max(lengths)]
    assert_array_equal(made.lengths.take(np.arange(len(made))), lengths)
    row = data.draw(st.integers(-len(rows), len(rows) - 1))
    assert_array_equal(made[row], rows[row])
    to = data.draw(st.integers(1, 12))
    expected, view = padded(rows, to, 7), made.pad(to, value=7, cut=True)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    assert_array_equal(view.take(chosen), expected[chosen])
    cut: Any = (slice(None), slice(*sorted(data.draw(st.tuples(*[st.integers(0, to)] * 2)))))
    step: Any = (slice(None), slice(None, None, data.draw(st.sampled_from([2, 3, -1]))))
    for part in (cut, step):
        assert_array_equal(view[part].take(chosen), expected[part][chosen])
    mask = np.arange(to) < np.array(lengths)[:, None]
    assert_array_equal(made.mask(to, cut=True).take(chosen), mask[chosen])
    if len(rows) > 1:
        pairs = np.stack([expected[:-1], expected[1:]], 1)
        assert_array_equal(np.asarray(view.windows(2)), pairs)


@pytest.fixture
def stored(tmp_path: Path) -> tuple[str, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 200)
    values = rng.integers(0, 1000, lengths.sum()).astype("i4")
    with h5py.File(tmp_path / "events.h5", "w") as file:
        file.create_dataset("values", data=values, chunks=(256,), compression="gzip")
        file["offsets"] = np.concatenate(([0], np.cumsum(lengths))).astype("i4")
    return str(tmp_path / "events.h5"), rows_of(values, lengths.tolist())


def test_from_files(stored: tuple[str, list[np.ndarray]]) -> None:
    path, rows = stored
    made = ooc.ragged(ooc.open(path, "values"), ooc.open(path, "offsets"))
    view = made.pad(value=-1)
    expected = padded(rows, max(map(len, rows)), -1)
    assert_array_equal(np.asarray(view), expected)
    loader = ooc.zip(view, made.mask(), made.lengths).batches(16, shuffle=True, seed=3)
    for epoch in range(2):
        x, mask, lengths = (np.concatenate(part) for part in zip(*loader.epoch(epoch), strict=True))
        assert_array_equal(np.sort(x, axis=0), np.sort(expected, axis=0))
        assert_array_equal((x >= 0) & mask, mask)
        assert_array_equal(mask.sum(axis=1), lengths)
    for ours, tensors in zip(loader.epoch(0, 5), loader.to_tf(start=(0, 5)), strict=False):
        assert_array_equal(ours[0], tensors[0])
    again = from_json(loader.describe())
    assert fingerprint(again) == fingerprint(loader)
    assert_array_equal(again.batch(2)[0], loader.batch(2)[0])
    parts = view.split(0.5, 0.5)
    assert_array_equal(np.concatenate([np.asarray(part) for part in parts]), expected)
    assert_array_equal(view.batches(8, workers=1).batch(3), expected[24:32])


def test_each_chunk_is_decoded_once_a_batch() -> None:
    values, decoded = counted(np.arange(1000), 50)
    rows = ooc.ragged(values, lengths=[10] * 100)
    got = rows.pad(12, value=-1).take(np.arange(0, 100, 2))
    assert got.shape == (50, 12)
    assert set(decoded.values()) == {1}
    assert len(decoded) == 20


def test_each_file_is_a_row(tmp_path: Path) -> None:
    for number, length in enumerate((4, 2, 3)):
        np.save(tmp_path / f"{number}.npy", np.full((length, 2), number, "f4"))
    view = ooc.open(str(tmp_path / "*.npy"))
    runs = ooc.ragged(view, lengths=view.parts.lengths)
    assert_array_equal(runs[2], np.full((3, 2), 2))
    assert runs.pad(value=np.nan).shape == (3, 4, 2)
    assert np.isnan(runs.pad(value=np.nan)[1]).sum() == 4
    patches = runs.pad().patches((2, 2))
    assert len(patches) == 6


def test_invalid_lengths_and_values() -> None:
    rows = ooc.ragged(np.arange(15, dtype="u1"), lengths=LENGTHS)
    with pytest.raises(ArgumentError, match=r"longest row, 7.*got 5\. Write cut=True"):
        rows.pad(5)
    for value in (-1, 256, 0.5, np.nan, "a"):
        with pytest.raises(ArgumentError, match="`value` must be a number that uint8 holds"):
            rows.pad(value=value)
    for to in (9, (5, 9)):
        with pytest.raises(ArgumentError, match="`value` must be a number that int8 holds; got 20"):
            rows.astype("i1").pad(to, value=200)
    with pytest.raises(ArgumentError, match=r"sum to the 15 values; got .* a sum of 14"):
        ooc.ragged(np.arange(15), lengths=[7, 7])
    with pytest.raises(ArgumentError, match="`values` must be an array, all of whose rows"):
        ooc.ragged([np.arange(2), np.arange(3)], lengths=[2, 3])
    with pytest.raises(ArgumentError, match=r"`values` must be rows of one shape; got <Ragged: 2"):
        ooc.ragged(ooc.ragged(np.arange(3), lengths=[1, 2]), lengths=[2])
    with pytest.raises(ArgumentError, match="must be given, and not both"):
        ooc.ragged(np.arange(15))
    with pytest.raises(ArgumentError, match="`offsets` must be whole numbers"):
        ooc.ragged(np.arange(15), [0.0, 15.0])
    with pytest.raises(ArgumentError, match="`values` must be a whole array"):
        ooc.ragged(ooc.open(np.arange(15))[::2], lengths=[8])
    with pytest.raises(ArgumentError, match=r"its first axis as the rows.*Select and transpose"):
        ooc.ragged(ooc.open(np.zeros((13, 6)), axis=1), lengths=[2, 4])
    with pytest.raises(IndexError):
        rows[6]
    with pytest.raises(ArgumentError, match=r"must be a whole number of at least 1; got 'x'"):
        rows.pad("x")  # type: ignore[arg-type]
    assert rows.pad(np.array([4, 7])).bounds == (4, 7)


@pytest.mark.parametrize(
    ("offsets", "place"),
    [
        ([0, 9, 5, 15], "the 15 values; got .* 9  5"),
        ([0, 9, 20], "the 15 values; got .* 20"),
        ([-1, 9, 15], r"the 15 values; got \[-1"),
        (np.array([3, 2, 3, 7], "u1"), "pass lengths=…"),
    ],
    ids=str,
)
def test_offsets_that_do_not_ascend(offsets: Any, place: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=f"`offsets` must ascend.*{place}"):
        ooc.ragged(np.arange(15), offsets)
    np.save(tmp_path / "offsets.npy", offsets)
    rows = ooc.ragged(np.arange(15), tmp_path / "offsets.npy")  # nothing is read yet
    with pytest.raises(SourceError, match="their offsets say places"):
        rows.pad(9, cut=True).take(np.arange(len(rows)))


def test_a_field_of_rows() -> None:
    values = np.array([(n, [n, -n]) for n in range(15)], [("at", "f4"), ("to", "i4", 2)])
    rows, expected = ooc.ragged(values, lengths=LENGTHS), rows_of(values, LENGTHS)
    for name in ("at", "to"):
        assert_array_equal(rows[name][2], expected[2][name])
        assert_array_equal(np.asarray(rows[name].pad()), padded([w[name] for w in expected], 7, 0))
    files = ooc.open([values.reshape(3, 5), values.reshape(5, 3)])
    assert_array_equal(files["to"][4], values.reshape(5, 3)[1]["to"])
    loader = files["at"].batches(4)
    assert_array_equal(loader.batch(1)[1], values.reshape(5, 3)[2]["at"])


def test_parts_of_a_split_share_no_row() -> None:
    rows = ooc.ragged(np.arange(100), lengths=[5] * 20)
    pairs = ooc.zip(rows.pad(6)[:-1], rows.pad(8)[1:], rows.mask(6)[:-1])
    train, test = pairs.split(0.5, 0.5)
    seen = []
    for part in (train, test):
        x, y, _ = part.take(np.arange(len(part)))
        seen.append({*x[:, 0].tolist(), *y[:, 0].tolist()})
    assert not seen[0] & seen[1]


def test_random_crops_by_the_way_that_the_message_names() -> None:
    rows = ooc.ragged(np.arange(1, 31), lengths=[3, 7, 20])
    with pytest.raises(ArgumentError, match=r"zip\(rows\.pad\(\), rows\.lengths\).*batched=False"):
        rows.patches(3, per_row=1)

    def crop(row: np.ndarray, length: np.int64, rng: np.random.Generator) -> np.ndarray:
        start = rng.integers(0, length - 3, endpoint=True)
        return row[start : start + 3]

    crops = ooc.zip(rows.pad(), rows.lengths).map(crop, batched=False, rng=True)
    loader = crops.batches(3, seed=2)
    batches = [loader.batch(0, epoch) for epoch in range(20)]
    assert all((np.diff(batch) == 1).all() and batch.min() > 0 for batch in batches)
    assert len({*np.array(batches)[:, 2, 0].tolist()}) > 5
