"""Test concat, filters and enumerate, with NumPy as the oracle."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from counting import counted
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.blocks import ADDRESSABLE, Blocks, BlockTable
from oocdata.datasets import dataset as dataset_module
from oocdata.datasets.dataset import Draw
from oocdata.datasets.spec import leaves
from oocdata.describe import as_json, from_json
from oocdata.engines import copying
from oocdata.errors import ArgumentError, EmptyError, MismatchedPartsError
from oocdata.runs import Run
from oocdata.testing import sample_array
from oocdata.tools import passes

A, B, C = (sample_array((count, 6, 8), "<f4") + 1000 * at for at, count in enumerate((23, 7, 40)))


def on_disk(folder: Path) -> list[ooc.View]:
    """Return three arrays: addressable, in decoded chunks, and in several files."""
    np.save(folder / "a.npy", A)
    with h5py.File(folder / "b.h5", "w") as file:
        file.create_dataset("u", data=B, chunks=(3, 6, 5), compression="gzip")
    for number, part in enumerate(np.split(C, [11])):
        np.save(folder / f"c{number}.npy", part)
    return [ooc.open(folder / "a.npy"), ooc.open(folder / "b.h5"), ooc.open(folder / "c*.npy")]


ORACLES: dict[str, Any] = {
    "rows": (lambda v: v, lambda a: [a]),
    "cut": (lambda v: v[:, 1, ::-2], lambda a: [a[:, 1, ::-2]]),
    "astype": (lambda v: v.astype("f8").transpose(1, 0), lambda a: [a.transpose(0, 2, 1)]),
    "windows": (
        lambda v: v.windows(3, 1, episodes="none"),
        lambda a: [windows(a[:-1], 3), a[3:, None]],
    ),
    "reversed": (lambda v: v[::-1].windows(2, episodes="none"), lambda a: [windows(a[::-1], 2)]),
    "zip": (lambda v: ooc.zip({"x": v, "y": v[:, 0, 0]}), lambda a: [a, a[:, 0, 0]]),
    "grid": (lambda v: v.patches((3, 4)), lambda a: [grid(a)]),
    "mapped": (lambda v: v.map(twice), lambda a: [a * 2, a[:, 0]]),
    "elements": (lambda v: v.map(first_too, batched=False), lambda a: [a * 2, a[:, 0]]),
    "numbered": (lambda v: v.enumerate(), lambda a: [np.arange(len(a)), a]),
}


def twice(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x * 2, x[:, 0]


def first_too(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x * 2, x[0]


def windows(array: np.ndarray, length: int) -> np.ndarray:
    return np.stack([array[at : at + length] for at in range(len(array) - length + 1)])


def grid(array: np.ndarray) -> np.ndarray:
    cut = array.reshape(len(array), 2, 3, 2, 4).transpose(0, 1, 3, 2, 4)
    return cut.reshape(-1, 3, 4)


@pytest.mark.parametrize("kind", ORACLES)
def test_elements_are_those_of_each_part(tmp_path: Path, kind: str) -> None:
    make, oracle = ORACLES[kind]
    parts = [make(view) for view in on_disk(tmp_path)]
    expected = [np.concatenate(each) for each in zip(*map(oracle, (A, B, C)), strict=True)]
    whole = ooc.concat(parts)
    count = len(expected[0])
    assert len(whole) == count == sum(map(len, parts))

    def same(batch: Any, at: Any) -> None:
        for got, array in zip(leaves(batch), expected, strict=True):
            assert_array_equal(got, array[at])

    at = np.random.default_rng(0).integers(0, count, 50)
    for some in (at, at[:1], np.arange(count), np.array([count - 1, 0]), at[:0]):
        same(whole.take(some), some)
    same(whole[::-3].take([1, 0]), np.arange(count)[::-3][[1, 0]])
    same(whole[at].take([3, 1]), at[[3, 1]])
    same(whole[at > 4 if len(at) == count else at][:9].take([8]), at[8:9])
    same(pickle.loads(pickle.dumps(whole[5:])).take([0, 9]), [5, 14])
    loader = whole.batches(8, shuffle=True, seed=3)
    for step, batch in enumerate(loader.epoch(1)):
        same(batch, loader.positions(step, 1))
    for step, batch in enumerate(loader.read(Run(0, 0, 2))):
        same(batch, loader.positions(step, 0))
    together = ooc.concat([ooc.concat(parts[:2]), parts[2]])
    same(together.take(at), at)
    same(ooc.zip(whole, together).take(at)[0], at)
    again = from_json(as_json(loader), allow=(__name__,))
    same(again.batch(1), loader.positions(1))


def test_patches_windows_and_functions_over_it(tmp_path: Path) -> None:
    whole = ooc.concat(on_disk(tmp_path))
    every = np.concatenate([A, B, C])
    assert_array_equal(whole.patches((3, 4)).take(np.arange(280)), grid(every))
    crops = whole.patches((2, 3), per_row=2)
    one = crops.batches(5, shuffle=True, seed=1)
    positions = one.positions(3)
    for crop, position in zip(one.batch(3), positions.tolist(), strict=True):
        boxes = np.lib.stride_tricks.sliding_window_view(every[position // 2], (2, 3))
        assert (boxes == crop).all(axis=(2, 3)).any()
    assert_array_equal(whole.map(lambda x: x + 1).take([60, 1]), every[[60, 1]] + 1)


def test_functions_get_their_own_elements_and_draw_by_position() -> None:
    def noisy(x: float, *, rng: np.random.Generator) -> np.ndarray:
        return x + rng.random()

    plain = ooc.open(np.arange(30.0))
    both = ooc.concat([plain[:12].map(noisy, batched=False, rng=True), plain[12:].map(noisy_too)])
    alone = plain.map(noisy, batched=False, rng=True).batches(10, shuffle=True, seed=4)
    mixed = both.batches(10, shuffle=True, seed=4)
    for step in range(3):
        positions = mixed.positions(step)
        own = positions < 12
        # By (seed, epoch, position), whatever else is in the batch.
        assert_array_equal(mixed.batch(step)[own], alone.batch(step)[own])
        assert_array_equal(mixed.batch(step)[~own], positions[~own] + 0.5)


def test_batched_functions_share_a_generator_that_is_made_when_one_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = ooc.open(np.arange(30.0))
    parts = plain[:12], plain[12:]
    drawing = ooc.concat([x.map(lambda x, rng: x + rng.random(len(x)), rng=True) for x in parts])
    drawn = np.random.default_rng([5, 0, 0, 0, 1, 0]).random(15)  # of seed 5, epoch 0 and step 1
    assert_array_equal(drawing.batches(15, seed=5).batch(1), np.arange(15, 30) + drawn)
    drawn = np.random.default_rng([5, 0, 0, 0, 0, 0]).random(30)
    assert_array_equal(drawing.batches(30, seed=5).batch(0), np.arange(30) + drawn)
    monkeypatch.setattr(Draw, "_generator", None)
    quiet = ooc.concat([x.map(noisy_too) for x in parts])
    assert_array_equal(quiet.batches(30).batch(0), np.arange(30) + 0.5)


def noisy_too(x: np.ndarray) -> np.ndarray:
    return x + 0.5


def test_what_is_stored_is_written_to_its_places_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = on_disk(tmp_path)
    whole, every = ooc.concat([a, b]), np.concatenate([A, B])
    at = np.random.default_rng(0).permutation(30)
    scratch: list[tuple[Any, ...]] = []
    usual = copying.scratch_memory

    def counted_memory(*asked: Any) -> Any:
        scratch.append(asked)
        return usual(*asked)

    monkeypatch.setattr(copying, "scratch_memory", counted_memory)
    for dataset in (whole, whole.patches((2, 3), per_row=1), ooc.zip(whole, whole)):
        dataset.take(at)
    assert_array_equal(ooc.concat([b, b, a]).take([0, 20, 3, 9]), every[[23, 6, 26, 25]])
    assert scratch == []
    ooc.concat([ooc.open(A), ooc.open(B)]).take(at)  # in memory, they are copied once more
    assert scratch != []


def test_chunks_of_each_part_are_decoded_once(own_account: None) -> None:
    one, first = counted(sample_array((64, 4)), 8, 4)
    two, second = counted(sample_array((90, 4)) + 1, 9, 4)
    whole = ooc.concat([one, ooc.open(sample_array((30, 4))), two[5:]])
    assert isinstance(whole.blocks, BlockTable)
    assert_array_equal(np.diff(whole.blocks.begins)[[0, 7, 8, -1]], [8, 8, 8, 9])
    order = ooc.BlockShuffle(whole.blocks, 4)
    every = np.concatenate(list(whole.batches(16, shuffle=order).epoch(0)))
    oracle = np.concatenate(
        [sample_array((64, 4)), sample_array((30, 4)), sample_array((90, 4))[5:] + 1]
    )
    assert_array_equal(every[np.lexsort(every.T)], oracle[np.lexsort(oracle.T)])
    assert set(first.values()) == set(second.values()) == {1}
    # A selection keeps its chunks, also in another order.
    assert whole[::-1].blocks.order is not None
    assert whole[:64].blocks == Blocks(8, 8)
    assert whole[::-1].blocks.number(179) == whole.blocks.number(179)


def test_rows_with_addresses_keep_them_in_any_order() -> None:
    whole = ooc.concat([ooc.open(sample_array((40, 3))), ooc.open(sample_array((50, 3)))])
    chosen = whole[np.random.default_rng(0).permutation(90)]
    assert chosen.blocks == ADDRESSABLE
    assert isinstance(chosen.batches(10, shuffle=True).order, ooc.Shuffle)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_any_selection(lengths: list[int], data: st.DataObject) -> None:
    arrays = [np.arange(length) + 100 * at for at, length in enumerate(lengths)]
    whole, oracle = ooc.concat([ooc.open(array) for array in arrays]), np.concatenate(arrays)
    for _ in range(3):
        places = st.integers(-10, 10)
        step = st.sampled_from([1, 2, 3, -1, -2])
        key: Any = data.draw(
            st.one_of(
                st.builds(slice, st.none() | places, st.none() | places, step),
                st.lists(st.integers(0, max(0, len(oracle) - 1)), max_size=9).map(np.array),
                st.lists(st.booleans(), min_size=len(oracle), max_size=len(oracle)).map(np.array),
            )
        )
        if not isinstance(key, slice):
            key = key.astype(bool if key.dtype == bool else int) if len(oracle) else slice(None)
        whole, oracle = whole[key], oracle[key]
        assert_array_equal(whole.take(np.arange(len(whole))), oracle)


def test_splits_never_share_a_row() -> None:
    array, other = np.arange(50), np.arange(100, 130)
    whole = ooc.concat([ooc.open(array).windows(4, 1), ooc.open(other).windows(4, 1)])
    parts = whole.split(0.5, 0.5, gap=1)
    rows = [
        {row for pair in part.take(np.arange(len(part))) for row in pair.ravel().tolist()}
        for part in parts
    ]
    assert not rows[0] & rows[1]
    assert sum(map(len, parts)) == len(whole) - 5
    patches = ooc.concat([ooc.open(A).patches((3, 4)), ooc.open(B).patches((3, 4))])
    assert [len(part) for part in patches.split(0.5, 0.5)] == [60, 60]
    view = ooc.open(array)
    one, two = ooc.concat([view[:20], view[10:]]).split(0.3, 0.7)
    assert not {*one.take(np.arange(len(one)))} & {*two.take(np.arange(len(two)))}
    assert len(one) + len(two) == 50
    with pytest.raises(ArgumentError, match="another order"):
        whole[[5, 2, 9, 1]].split(0.5, 0.5)
    with pytest.raises(ArgumentError, match="different numbers of patches"):
        ooc.concat([ooc.open(A).patches((3, 4)), ooc.open(B).patches((3, 4), step=1)]).split(
            0.5, 0.5
        )


def test_datasets_are_given_one_by_one_or_in_a_list() -> None:
    views = [ooc.open(A), ooc.open(B)]
    for whole in (ooc.concat(*views), ooc.concat(views), ooc.concat(tuple(views))):
        assert_array_equal(whole.read_all(), np.concatenate([A, B]))
    assert_array_equal(ooc.concat(views[0]).read_all(), A)
    for call in (ooc.stack, ooc.concatenate):
        with pytest.raises(ArgumentError, match=rf"Write ooc\.{call.__name__}\(\[one, other\]\)"):
            call(*views)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "must get datasets"),
        ([A], "Open arrays with ooc.open"),
        (A, "must get datasets"),
        ([ooc.open(A), ooc.open(B), ooc.open(A.astype("f8"))], r"dataset 2 has .* float64"),
        ([ooc.open(A), ooc.open(A)[:, 0]], r"dataset 1 has \(8,\) float32"),
        ([ooc.open(A), ooc.zip(ooc.open(A))], r"dataset 1 has \(\(6, 8\) float32,\)"),
        ([ooc.zip({"x": ooc.open(A)}), ooc.zip({"y": ooc.open(A)})], "dataset 1 has {'y'"),
        ([ooc.mix([(ooc.open(A), 1)]), ooc.open(A)], "no mixtures; dataset 0 is one"),
    ],
)  # fmt: skip
def test_mismatched_parts(parts: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ooc.concat(parts)


def test_dicts_in_another_order_are_refused_and_empty_parts_left_out() -> None:
    one, two = ooc.open(A), ooc.open(A[:, 0])
    with pytest.raises(ArgumentError, match=r"dataset 0 has \{'x': .*, dataset 1 has \{'y': "):
        ooc.concat([ooc.zip({"x": one, "y": two}), ooc.zip({"y": two, "x": one})])
    assert len(ooc.concat([one[:0], one[:4], one[:0]]).parts) == 1
    assert len(ooc.concat([one[:0], two[:0][:, :0]][:1])) == 0


def test_numbers_of_other_meaning(tmp_path: Path) -> None:
    for number, scale in enumerate((0.5, 0.5, 2.0)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("u", data=np.arange(4, dtype="i2")).attrs["scale_factor"] = scale
    one, alike, other = (ooc.open(tmp_path / f"{number}.h5", "u") for number in range(3))
    assert_array_equal(ooc.concat([one, alike]).take([1, 5]), [1, 1])
    message = r"0\.h5'.* has scale_factor 0\.5, and here is scale_factor 2\.0.*decode=True.*2\.h5"
    for parts in ([one, other], [ooc.zip({"x": view.windows(2)}) for view in (one, other)]):
        with pytest.raises(MismatchedPartsError, match=message):
            ooc.concat(parts)
    decoded = [ooc.open(tmp_path / f"{number}.h5", "u", decode=True) for number in (0, 2)]
    assert_array_equal(ooc.concat(decoded).take([1, 5]), [0.5, 2])
    assert_array_equal(ooc.concat([one.map(twice_alone), other]).take([1, 5]), [2, 1])
    nested = ooc.zip(ooc.concat([one[:2], alike[2:]]), other)  # read from three arrays
    assert_array_equal(ooc.concat([nested, ooc.zip(one, other)]).take([3, 5])[1], [3, 1])
    days = np.arange("2020-01-01", "2020-01-05", dtype="M8[D]")
    with pytest.raises(MismatchedPartsError, match=r"and here is datetime64\[h\].*by \.map"):
        ooc.mix([(ooc.open(days), 1), (ooc.open(days.astype("M8[h]")), 1)])


def test_texts_of_several_lengths(tmp_path: Path) -> None:
    for name, texts in {"a": [b"ab", b"c"], "b": [b"longer"]}.items():
        np.save(tmp_path / f"{name}.npy", np.array(texts))
    paths = sorted(tmp_path.glob("*.npy"))
    with pytest.raises(ArgumentError, match=r"S2, dataset 1 has \(\) \|S6\. .*opened as one"):
        ooc.concat([ooc.open(path) for path in paths])
    assert ooc.open(paths).take([2, 0]).tolist() == [b"longer", b"ab"]


def twice_alone(x: np.ndarray) -> np.ndarray:
    return x * 2


# --- filters


def test_filter_by_a_mask(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).random(70) < 0.3
    np.save(tmp_path / "mask.npy", mask)
    every = np.concatenate([A, B, C])
    whole = ooc.concat(on_disk(tmp_path))
    for given_ in (mask, mask.tolist(), ooc.open(tmp_path / "mask.npy")):
        filtered = whole.filter(given_)
        assert_array_equal(filtered.take(np.arange(len(filtered))), every[mask])
    pair = ooc.open(A).next_frame().filter(np.arange(22) % 2 == 0)
    assert_array_equal(pair.take([1, 2])[1], A[[3, 5]])
    run = ooc.open(A).filter(np.arange(23) > 4)
    assert run.rows == range(5, 23)  # stays a range
    assert ooc.open(A, axis=(0, 1)).filter(np.ones(23 * 6, bool)).sample_shape == (23, 6)
    assert len(ooc.open(A).filter(np.zeros(23, bool))) == 0
    view, _ = counted(sample_array((40, 4)), 8, 4)
    blocks = view.filter(np.arange(40) % 3 == 0).blocks
    assert_array_equal(blocks.of(np.arange(14)), np.arange(40)[::3] // 8)


def test_a_view_of_a_mask_is_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "BLOCK_BYTES", 16)
    monkeypatch.setattr(dataset_module, "_FEW", 10)
    source = RecordingSource(np.arange(100) % 7 == 0, 8)
    filtered = ooc.open(np.arange(100)).filter(ooc.open(source))
    assert_array_equal(np.asarray(filtered), np.arange(0, 100, 7))
    assert sorted(len(rows) for rows in source.rows) == [4, *[16] * 6]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones(22, bool), r"each of the 23 elements; got bool of shape \(22,\)"),
        (ooc.open(np.ones(24, bool)), r"each of the 23 elements; got bool of shape \(24,\)"),
        (np.ones(23, int), "got int64"),
        (np.ones((23, 1), bool), r"got bool of shape \(23, 1\)"),
        (ooc.open(np.ones(23, int)), "got int64"),
        (ooc.open(np.ones((23, 2), bool)), r"one value for each row; got .*\(2,\) bool"),
    ],
)
def test_invalid_masks(mask: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ooc.open(A).filter(mask)


# --- numbers


def test_enumerated_positions_stay_with_their_elements(tmp_path: Path) -> None:
    view = on_disk(tmp_path)[0]
    pairs = view.enumerate()
    assert pairs.spec[0].dtype == np.int64
    chosen = pairs[::-1].filter(np.arange(23) % 2 == 0)
    train, val = pairs.split(0.5, 0.5)
    for dataset in (pairs, chosen, train, val, pairs[7:15], pairs.map(lambda n, x: (n, x))):
        for number, x in dataset.batches(4, shuffle=True):
            assert_array_equal(x, A[number])
    assert val.take([0])[0].tolist() == [12]
    loader = pairs.batches(4, shuffle=True)
    again = from_json(as_json(loader))
    assert_array_equal(again.batch(2)[0], loader.batch(2)[0])
    deep = ooc.open(A).windows(2).enumerate().enumerate()
    assert deep[3][0] == deep[3][1][0] == 3
    with pytest.raises(EmptyError):
        view[:0].enumerate().batches(2)


class Part:
    """A dataset of which only the length and the blocks are known."""

    def __init__(self, blocks: Any, count: int) -> None:
        self.blocks, self.count = blocks, count

    def __len__(self) -> int:
        return self.count


@given(
    st.lists(
        st.tuples(st.sampled_from(["regular", "whole", "ids", "rows"]), st.integers(1, 40)),
        min_size=1,
        max_size=4,
    ),
    st.integers(2, 9),
)
def test_blocks_of_different_parts_are_different(kinds: list[tuple[str, int]], length: int) -> None:
    parts: list[Any] = []
    for kind, count in kinds:
        blocks: Any = {
            "regular": Blocks(length, 1),
            "whole": Blocks(length, length),
            "ids": BlockTable.of_ids(np.arange(count) % length),
            "rows": ADDRESSABLE,
        }[kind]
        parts.append(Part(blocks, count))
    total = sum(map(len, parts))
    whole = ooc.Concat(tuple(parts), range(total)).blocks
    found, start = whole.of(np.arange(total)), 0
    seen: set[int] = set()
    for part in parts:
        own, inner = found[start : start + part.count], part.blocks.of(np.arange(part.count))
        assert not set(own.tolist()) & seen or whole == ADDRESSABLE
        seen |= set(own.tolist())
        if part.blocks != ADDRESSABLE:
            pairs = set(zip(own.tolist(), inner.tolist(), strict=True))
            assert len(np.unique(own)) == len(np.unique(inner)) == len(pairs)
        start += part.count
    slots = whole.positions(np.arange(total))
    assert_array_equal(np.sort(slots), np.arange(total))
