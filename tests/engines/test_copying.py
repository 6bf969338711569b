"""Copies between layouts: all numbers, in blocks that stay in cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.engines import copying
from oocdata.engines.copying import copy_reordered


class Recording(np.ndarray[Any, Any]):
    """An array that records each block written to it, or to a view of it."""

    written: list[tuple[int, ...]]
    steps: list[tuple[int, ...]]
    sizes: list[int]

    def __array_finalize__(self, array: Any) -> None:
        for name in ("written", "steps", "sizes"):
            setattr(self, name, getattr(array, name, []))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.written.append(value.shape)
        self.steps.append(value.strides)
        self.sizes.append(value.nbytes)
        super().__setitem__(key, value)


def recorded(array: np.ndarray[Any, Any], axes: tuple[int, ...]) -> Recording:
    """Return memory of the shape of `array`, with its axes stored in this order."""
    out = np.zeros([array.shape[axis] for axis in axes], array.dtype)
    made = out.transpose(np.argsort(axes)).view(Recording)
    made.written, made.steps, made.sizes = [], [], []
    return made


def test_time_last_is_cut_between_cache_lines():
    movie = np.arange(384 * 384 * 49).astype("u1").reshape(384, 384, 49)
    frames = movie[..., 5:18]
    out = recorded(frames, (2, 0, 1))
    copy_reordered(frames, out)
    assert set(out.written) == {(48, 384, 13)}
    assert len(out.written) == 8
    assert_array_equal(out, frames)


@pytest.mark.parametrize(
    ("shape", "axes"), [((512, 512, 3), (0, 1, 2)), ((64, 96, 128), (1, 0, 2)), ((9, 8), (1, 0))]
)
def test_one_copy_of_contiguous_runs_and_of_small_arrays(
    shape: tuple[int, ...], axes: tuple[int, ...]
):
    array = np.random.default_rng(0).random(shape)
    out = recorded(array, axes)
    copy_reordered(array, out)
    assert out.written == [shape]
    assert_array_equal(out, array)


def test_narrow_runs_are_copied_number_by_number():
    channels = np.random.default_rng(0).random((64, 96, 5))
    out = recorded(channels[..., 1:3], (0, 1, 2))
    copy_reordered(channels[..., 1:3], out)
    assert out.written == [(64, 96)] * 2
    assert_array_equal(out, channels[..., 1:3])


@pytest.mark.parametrize(
    ("dtype", "first", "count", "copies"),
    [("f4", 4, 4, 1), ("f4", 2, 2, 1), ("f4", 1, 2, 2), ("u1", 4, 4, 1), ("f8", 2, 6, 3)],
)
def test_adjacent_numbers_are_copied_as_one(dtype: str, first: int, count: int, copies: int):
    array = np.random.default_rng(0).integers(1, 99, (256, 96, 2, count // 2)).astype(dtype)
    whole = recorded(np.zeros((256, 96, 8), dtype), (0, 1, 2))
    copy_reordered(array, whole[..., first : first + count].reshape(array.shape))
    assert [block[:2] for block in whole.written] == [(256, 96)] * copies
    assert_array_equal(whole[..., first : first + count], array.reshape(256, 96, count))
    assert whole.sum() == array.sum()


@pytest.mark.parametrize(
    ("shape", "axes", "step"),
    [
        ((201, 1024), (1, 0), 1024 * 4 + 64),
        ((21, 128, 128), (1, 2, 0), 128 * 128 * 4 + 64),
        ((201, 1000), (1, 0), 1000 * 4),
        ((12, 64, 128), (1, 2, 0), 64 * 128 * 4),  # as many lines as a cache set has
    ],
)
def test_numbers_that_share_few_cache_sets_are_padded(
    shape: tuple[int, ...], axes: tuple[int, ...], step: int
):
    array = np.random.default_rng(0).random(shape, "f4")
    out = recorded(array, axes)
    copy_reordered(array, out)
    assert {steps[0] % 4096 for steps in out.steps} == {step % 4096}
    assert_array_equal(out, array)


@given(st.data())
def test_any_layout(data: st.DataObject):
    shape = data.draw(st.lists(st.integers(1, 9), max_size=4))
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    steps = data.draw(st.tuples(*[st.sampled_from([-2, -1, 1, 3])] * len(shape)))
    dtype = data.draw(st.sampled_from(["u1", "f8", "V50"]))
    lengths = [length * 3 for length in shape]
    nbytes = np.prod(lengths, dtype=int) * np.dtype(dtype).itemsize
    stored = np.ndarray(lengths, dtype, (np.arange(nbytes) % 251).astype("u1"))
    cut = zip(shape, steps, strict=True)
    array = stored[tuple(slice(None, None, step) for _, step in cut)]
    array = array[tuple(map(slice, shape))]
    out = recorded(array, axes)
    most = 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "_BLOCK_BYTES", 40)
        patch.setattr(copying, "_LEAST_BYTES", 40)
        if data.draw(st.booleans()):
            patch.setattr(copying, "_FAR", 1)
            patch.setattr(copying, "_MANY", 1)
            patch.setattr(copying, "_APART_BYTES", 160)
            most = 160
        copy_reordered(array, out)
    assert np.asarray(out).tobytes() == array.tobytes()
    assert sum(out.sizes) == array.nbytes
    if len(out.written) > 1 and copying._fastest(array) != copying._fastest(np.asarray(out)):
        assert max(np.prod(block) for block in out.written) <= max(1, most // array.itemsize)
