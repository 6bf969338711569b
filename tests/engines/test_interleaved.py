"""Variables as channels of one tensor, compared with NumPy in blocks of any size; counts reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.engines import interleaved
from oocdata.testing import sample_array


def elements_read(source: RecordingSource) -> int:
    return sum(len(r) * e.size for r, e in zip(source.reads, source.extents, strict=True))


@given(st.data())
def test_any_channels_in_pieces_of_any_size(data: st.DataObject) -> None:
    shape = (5, *data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    arrays = [sample_array((*shape, 2, 3)) + 1000, sample_array((3, *shape)) + 5000]
    # All components are of one source.
    tensor, variables = ooc.open(arrays[0]), ooc.open(arrays[1], axis=1)
    views: list[Any] = []
    expected = []
    for number in data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=9)):
        if number < 6:  # components of a tensor
            i, j = divmod(number, 3)
            views.append(tensor[(..., i, j)])
            expected.append(arrays[0][..., i, j])
        elif number < 9:  # variables before time
            views.append(variables[:, number - 6])
            expected.append(arrays[1][number - 6])
        else:
            views.append(np.float32(0.5))
            expected.append(np.full(shape, 0.5, "f4"))
    views.append(ooc.open(sample_array(shape)))
    expected.append(sample_array(shape))
    axis = data.draw(st.integers(-len(shape), -1))
    whole = np.stack(expected, axis)
    order = data.draw(st.permutations(range(len(shape))))
    view = ooc.stack(views, axis).transpose(*order)
    whole = whole.transpose(0, *(np.array(order) + 1))
    cut: Any = data.draw(st.sampled_from([(), (slice(None, None, 2),), (..., slice(1, None))]))
    view, whole = view[(slice(None), *cut)], whole[(slice(None), *cut)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interleaved, "_PIECE_BYTES", data.draw(st.sampled_from([1, 100, 1 << 20])))
        rows = data.draw(st.lists(st.integers(0, 4), max_size=6))
        assert_array_equal(view.take(rows), whole[rows])
        x, y = view.astype("f8").windows(2, 1).take([2, 0])
    assert_array_equal(x, [whole[2:4], whole[:2]])
    assert_array_equal(y, [whole[4:5], whole[2:3]])


def test_components_of_one_array_are_read_once() -> None:
    """The layout of The Well: a scalar, a vector and a tensor."""
    p, u, c = (RecordingSource(sample_array((6, 4, 5, *more))) for more in [(), (2,), (2, 2)])
    vector, tensor = ooc.open(u), ooc.open(c)
    view = ooc.stack([
        ooc.open(p),
        *(vector[..., i] for i in range(2)),
        *(tensor[(..., *place)] for place in np.ndindex(2, 2)),
    ])  # fmt: skip
    batch = view.take([4, 1])
    flat = [source.array[[4, 1]].reshape(2, 4, 5, -1) for source in (p, u, c)]
    assert_array_equal(batch, np.concatenate(flat, -1))
    assert [len(source.reads) for source in (p, u, c)] == [1, 1, 1]
    assert [elements_read(source) for source in (p, u, c)] == [40, 80, 160]


def test_components_far_apart_are_read_one_by_one() -> None:
    source = RecordingSource(sample_array((6, 4, 9)))
    view = ooc.open(source)
    batch = ooc.stack([view[..., 0], view[..., 8]]).take([3])
    assert_array_equal(batch, source.array[[3]][..., [0, 8]])
    assert elements_read(source) == 8
    source.forget()
    batch = ooc.stack([view[..., 2], view[..., 0], view[..., 2]]).take([3])
    assert_array_equal(batch, source.array[[3]][..., [2, 0, 2]])
    assert elements_read(source) == 12


def test_each_number_is_read_once_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaved, "_PIECE_BYTES", 256)
    source = RecordingSource(sample_array((6, 8, 16, 2)))
    view = ooc.open(source)
    batch = ooc.stack([view[..., 1], view[..., 0]]).take([5, 2])
    assert_array_equal(batch, source.array[[5, 2]][..., ::-1])
    assert elements_read(source) == 2 * 8 * 16 * 2
    assert len(source.reads) == 8  # blocks of 32 positions of 2 float32
    assert {len(r) * e.size for r, e in zip(source.reads, source.extents, strict=True)} == {64}


def test_a_stack_within_a_stack() -> None:
    """Parts that are stacks: two parts of one array that are not its components."""
    arrays = [sample_array((6, 4, 5)) + 1000 * n for n in range(3)]
    vector = np.stack(arrays[1:], -1)
    inner = ooc.stack(list(map(ooc.open, arrays[:2])))
    view = ooc.concatenate([inner, ooc.open(vector)])
    expected = np.concatenate([np.stack(arrays[:2], -1), vector], -1)
    assert_array_equal(view.take([5, 0]), expected[[5, 0]])
    twice = ooc.stack([inner[..., 1], inner[..., 0], inner[..., 1]])
    assert_array_equal(twice.take([5, 0]), expected[[5, 0]][..., [1, 0, 1]])


def test_channels_first_are_read_straight_for_all_boxes() -> None:
    source = RecordingSource(sample_array((6, 4, 5, 2)))
    other = RecordingSource(sample_array((6, 4, 5)))
    view = ooc.stack([ooc.open(other), ooc.open(source)[..., 1]], axis=0)
    expected = np.stack([other.array, source.array[..., 1]], 1)
    assert_array_equal(view.take([5, 0, 2]), expected[[5, 0, 2]])
    assert [len(read) for read in other.reads] == [3]


def test_files_of_several_trajectories(tmp_path: Path) -> None:
    arrays = {name: [] for name in ("p", "u")}  # type: dict[str, list[np.ndarray]]
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            for name, more in (("p", ()), ("u", (2,))):
                array = sample_array((3, 5, 64, 64, *more)) + 10 * number
                file[name] = array.astype(">f4")
                arrays[name].append(array)
    p, u = (ooc.open(str(tmp_path / "*.h5"), name, axis=(0, 1)) for name in "pu")
    view = ooc.stack([p, u[..., 0], u[..., 1]]).windows(2, 1)
    whole = [np.concatenate(arrays[name]) for name in "pu"]
    expected = np.concatenate([whole[0][..., None], whole[1]], -1)
    x, y = view.take([17, 0, 9])
    starts = [divmod(at, 3) for at in (17, 0, 9)]
    assert_array_equal(x, [expected[i, j : j + 2] for i, j in starts])
    assert_array_equal(y, [expected[i, j + 2 : j + 3] for i, j in starts])
