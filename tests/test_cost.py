"""The estimated cost of an order, compared with the chunks that the engine decodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from counting import Decoder, counted
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata import cost
from oocdata.box import Extent
from oocdata.cost import amplification
from oocdata.datasets.view import View
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import concatenate
from oocdata.engines.gather.grid import covered_chunks
from oocdata.memory import DEFAULT_MEMORY, set_memory

ROWS, CHUNK, ELEMENT = 8000, 16, 64


@pytest.fixture(autouse=True)
def small_cache() -> Iterator[None]:
    """Set a cache of 512 chunks of 4 KiB."""
    set_memory(4 << 20)
    yield
    set_memory(DEFAULT_MEMORY)


def rows(count: int) -> np.ndarray:
    return np.arange(count, dtype="f4")[:, None] * np.ones(ELEMENT, "f4")


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], np.ndarray, Extent]:
    shape = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, 12)) for _ in shape)
    strides = [draw(st.integers(1, 15)) for _ in shape]
    lengths = [
        draw(st.integers(0, (n - 1) // stride + 1))
        for n, stride in zip(shape, strides, strict=True)
    ]
    extent = Extent(tuple(lengths), tuple(strides))
    origin = st.tuples(
        *(st.integers(0, n - max(span, 1)) for n, span in zip(shape, extent.spans, strict=True))
    )
    origins = draw(st.lists(origin, max_size=8))
    return shape, chunks, np.array(origins, np.int64).reshape(-1, len(shape)), extent


@given(case=boxes())
def test_chunks_that_boxes_cover(case: Any) -> None:
    shape, chunks, origins, extent = case
    grid = tuple(-(-n // chunk) for n, chunk in zip(shape, chunks, strict=True))
    numbers = np.arange(int(np.prod(grid))).reshape(grid)
    of = numbers
    for axis, (n, chunk) in enumerate(zip(shape, chunks, strict=True)):
        of = np.take(of, np.arange(n) // chunk, axis)
    wanted: set[int] = set()
    for origin in origins.tolist():
        box = tuple(
            slice(start, start + span, stride)
            for start, span, stride in zip(origin, extent.spans, extent.strides, strict=True)
        )
        wanted |= set(of[box].ravel().tolist())
    found = covered_chunks(shape, chunks, origins, extent)
    assert found.tolist() == sorted(wanted)


def test_chunks_begin_anew_in_each_part() -> None:
    each = [
        covered_chunks((13, 10), (4, 5), np.array([[row, 0]]), Extent.of((1, 5)), (0, 6)).tolist()
        for row in range(13)
    ]
    # Two chunks in the first part, of which the second is short, and two in the other.
    assert [number // 2 for (number,) in each] == [0] * 4 + [1] * 2 + [2] * 4 + [3] * 3


def decoded_bytes(loader: ooc.Loader, decoded: Counter[Any], *, together: bool) -> float:
    """Return the bytes decoded per element in an epoch, read as `explain` assumes."""
    decoded.clear()
    each = loader.steps_together if together else 1
    for start in range(0, len(loader), each):
        stop = min(start + each, len(loader))
        loader.dataset.read(
            np.concatenate([loader.positions(step) for step in range(start, stop)]),
            ooc.datasets.dataset.Draw(loader.seed, 0, start),
        )
    return decoded.total() * CHUNK * ELEMENT * 4 / len(loader.dataset)


@pytest.mark.parametrize(
    ("choose", "used"),
    [
        pytest.param(lambda v: v, 1, id="rows"),
        pytest.param(lambda v: v[5:6001], 1, id="a part"),
        pytest.param(lambda v: v[::-1], 1, id="reversed"),
        pytest.param(lambda v: v.next_frame(), 1, id="next_frame"),
        pytest.param(lambda v: v.windows(4, 2), 1, id="windows"),
        pytest.param(lambda v: v.windows(4, 2, shift=6), 6, id="windows side by side"),
        pytest.param(lambda v: v[::3], 1, id="a step of 3"),
        pytest.param(lambda v: v.windows(3, 1, horizon=100), 1, id="a far horizon"),
        pytest.param(lambda v: v[:, 10:20], 10 / ELEMENT, id="a cut"),
        pytest.param(lambda v: v[np.repeat(np.arange(4000), 2)], 1 / 2, id="repeats"),
        pytest.param(lambda v: ooc.stack([v[:, 3], v[:, 40]]), 2 / ELEMENT, id="a stack of places"),
        pytest.param(
            lambda v: ooc.stack([ooc.stack([v[:, 3], v[:, 40]]), np.zeros(2, "f4")]),
            4 / ELEMENT,
            id="a stack of a stack and of what is the same in every row",
        ),
        pytest.param(lambda v: ooc.zip(v, ooc.open(np.zeros(len(v), "u1"))), 1, id="labels"),
    ],
)
@pytest.mark.parametrize("shuffle", [False, "global", "block"])
def test_estimate_equals_count(choose: Any, used: float, shuffle: Any) -> None:
    view, decoded = counted(rows(ROWS), CHUNK, ELEMENT)
    loader = choose(view).batches(32, shuffle=shuffle, seed=3)
    counted_bytes = decoded_bytes(loader, decoded, together=True)
    again = max(1.0, counted_bytes / (used * ELEMENT * 4))
    assert amplification(loader) == pytest.approx(again, rel=0.05)


@pytest.mark.parametrize("shuffle", [False, "global", "block"])
def test_estimate_over_several_files(shuffle: Any) -> None:
    decoded: Counter[Any] = Counter()
    parts = [
        Chunked(Decoder(rows(count), (CHUNK, ELEMENT), decoded)) for count in (1403, 397, 6200)
    ]
    loader = View.of(concatenate(parts, axis=0)).batches(32, shuffle=shuffle, seed=3)
    again = decoded_bytes(loader, decoded, together=True) / (ELEMENT * 4)
    assert amplification(loader) == pytest.approx(again, rel=0.05)


@pytest.mark.parametrize("shuffle", [False, ooc.BlockShuffle(3 * CHUNK, 40, lanes=4)])
def test_estimate_of_zipped_arrays(shuffle: Any) -> None:
    """Chunks of each array are counted separately, whatever the lengths of the others' chunks."""
    one, decoded = counted(rows(ROWS), CHUNK, ELEMENT)
    other, others = counted(rows(ROWS), 3 * CHUNK, ELEMENT)
    loader = ooc.stack([one, other]).batches(32, shuffle=shuffle, seed=3)
    others.clear()
    found = decoded_bytes(loader, decoded, together=True)
    found += others.total() * 3 * CHUNK * ELEMENT * 4 / ROWS
    assert amplification(loader) == pytest.approx(found / (2 * ELEMENT * 4), rel=0.05)


@pytest.mark.parametrize("shuffle", [False, "global", "block"])
@pytest.mark.parametrize("fields", [["u"], ["u", "v"]])
def test_estimate_of_fields(fields: list[str], shuffle: Any) -> None:
    """Rows are decoded whole, once for all fields, whichever fields are read."""
    structured = np.zeros(ROWS, [("u", "f4"), ("v", "f4"), ("rest", "f4", ELEMENT - 2)])
    view, decoded = counted(structured, CHUNK)
    loader = ooc.zip(*(view[name] for name in fields)).batches(32, shuffle=shuffle, seed=3)
    again = decoded_bytes(loader, decoded, together=True) / (len(fields) * 4)
    assert amplification(loader) == pytest.approx(again, rel=0.05)


@pytest.mark.parametrize("shuffle", ["block", "global", 30, 500], ids=str)
@pytest.mark.parametrize("targets", [0, 2])
def test_estimate_of_chunks_that_are_evicted(shuffle: Any, targets: int) -> None:
    """Two runs are read at a time, x before y, and a read pins what is cached before it decodes."""
    set_memory(2 << 20)  # a cache of 256 chunks; 30 blocks of each of 8 lanes nearly fill it
    view, decoded = counted(np.zeros((60_000, 16), "f4"), 64, 16)
    if isinstance(shuffle, int):
        shuffle = ooc.BlockShuffle(64, 8 * shuffle, lanes=8)
    loader = (view.windows(4, targets) if targets else view).batches(64, shuffle=shuffle, seed=1)
    decoded.clear()
    list(loader.epoch(0, parallel=2))
    again = decoded.total() * 64 / 60_000
    assert amplification(loader) == pytest.approx(again, rel=0.4)


@pytest.mark.parametrize("mebibytes", [1, 2, 4])
@pytest.mark.parametrize(
    "shuffle", [False, "global", ooc.BlockShuffle(CHUNK, 200, lanes=4)], ids=["no", "global", "own"]
)
def test_some_steps_represent_all(
    shuffle: Any, mebibytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an epoch too long to follow: some steps from its middle, with the cache as by then."""
    set_memory(mebibytes << 20)
    view, _ = counted(rows(40_000), CHUNK, ELEMENT)
    loader = view.batches(32, shuffle=shuffle, seed=3)
    whole = amplification(loader)
    monkeypatch.setattr(cost, "_MOST_TOUCHES", 12_000)
    monkeypatch.setattr(cost, "_MOST_ELEMENTS", 12_000)
    assert amplification(loader) == pytest.approx(whole, rel=0.15)


@pytest.mark.parametrize("chunk", [500, 20_000])
@pytest.mark.parametrize("shuffle", [False, "global", "half", "thrice"])
def test_a_few_steps_represent_chunks_of_many_small_rows(
    shuffle: Any, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps that are followed are fewer than those that use one set of chunks."""
    view, _ = counted(np.zeros((600_000, 4), "f4"), chunk, 4)
    if shuffle in ("half", "thrice"):  # of the cache
        blocks = (1 if shuffle == "half" else 6) * (1 << 20) // (16 * chunk)
        shuffle = ooc.BlockShuffle(chunk, blocks, lanes=8)
    loader = view.batches(64, shuffle=shuffle)
    monkeypatch.setattr(cost, "_MOST_TOUCHES", 10**9)
    monkeypatch.setattr(cost, "_MOST_ELEMENTS", 10**9)
    whole = amplification(loader)
    monkeypatch.setattr(cost, "_MOST_TOUCHES", 1 << 12)
    monkeypatch.setattr(cost, "_MOST_ELEMENTS", 1 << 13)
    assert amplification(loader) == pytest.approx(whole, rel=0.25)


def test_patches_touch_only_their_chunks() -> None:
    view, decoded = counted(sample := np.zeros((50, 128, 128), "f4"), 1, 32, 32)
    tiles = view.patches((32, 32)).batches(16)
    assert amplification(tiles) == 1
    loader = view.patches((32, 32), per_row=4).batches(16, shuffle="global", seed=1)
    said = amplification(loader)
    for step in range(len(loader)):
        loader.batch(step)
    assert said == pytest.approx(decoded.total() * 4096 / (200 * 4096), rel=0.25)
    assert 2 < said < 4 < sample.nbytes / (200 * 4096) * 4


def test_addressable_rows_cost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost, "chunks_of", None)
    view = ooc.open(np.zeros((300_000, 2), "f4"))
    for shuffle in (False, "global", "block"):
        assert view.batches(32, shuffle=shuffle).explain().amplification == 1


@pytest.mark.parametrize("shape", [(20, 0), (20, 3)])
def test_empty_elements(shape: tuple[int, ...]) -> None:
    view, _ = counted(np.zeros(shape), 4, max(1, shape[1]))
    loader = view[:, 0:0].batches(6, shuffle="block")
    assert loader.explain().amplification == 1
    assert_array_equal(loader.batch(0), np.zeros((6, 0)))


def test_empty_elements_of_chosen_positions() -> None:
    view, _ = counted(np.zeros((20, 3, 2)), 4, 3, 2)
    loader = view[:, [2, 0], 0:0].batches(6, shuffle="block")
    assert loader.explain().amplification == 1
    assert_array_equal(loader.batch(0), np.zeros((6, 2, 0)))
