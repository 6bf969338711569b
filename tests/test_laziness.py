"""Composing reads nothing; taking reads the rows that are needed, and no other."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recording import RecordingSource

import oocdata as ooc
from oocdata.datasets.dataset import Draw
from oocdata.datasets.spec import ArraySpec
from oocdata.engines.concat import concatenate
from oocdata.testing import sample_array

ROWS = 40


def identity(x: Any) -> Any:
    return x


SPEC = ArraySpec((3, 4), np.dtype("f4"))


@pytest.fixture(params=[1, 8], ids=["rows", "chunks"])
def source(request: pytest.FixtureRequest) -> RecordingSource:
    return RecordingSource(sample_array((ROWS, 3, 4)), request.param)


COMPOSED: dict[str, Callable[[ooc.View], Any]] = {
    "slice": lambda v: v[3:20:2][::-1],
    "int array": lambda v: v[[5, 1, -1]],
    "mask": lambda v: v[np.arange(ROWS) % 2 == 0],
    "range": lambda v: v[range(2, 9)],
    "cut": lambda v: v[:, 1, ::-2],
    "astype": lambda v: v.astype("f8")[:, 0].astype("i4"),
    "split": lambda v: v.split(0.6, 0.2, 0.2, gap=1),
    "windows": lambda v: v.windows(3, 2, shift=2, stride=2)[::-1][[0, 3, 6, 9, 12]].split(1, 1),
    "next_frame": lambda v: v.next_frame(2, episodes=[10, 30])[18:],
    "episodes": lambda v: v.windows(2, episodes="parts"),
    "zip": lambda v: ooc.zip({"a": v, "b": ooc.zip(v, v)}).split(0.5, 0.5),
    "map": lambda v: v.map(identity)[3:],
    "map with spec": lambda v: [(m := v.map(identity, spec=SPEC)), m.batches(4).spec],
    "batches": lambda v: v.next_frame().batches(4, shuffle=True, seed=3),
    "orders": lambda v: [v.batches(4, shuffle=how) for how in (False, True, "global", "block")],
    "explain": lambda v: str(v.next_frame().batches(4, shuffle="block").explain()),
    "explain a map": lambda v: str(v.map(identity, spec=SPEC).batches(4, shuffle=True).explain()),
    "loader": lambda v: [
        (x := v.batches(8, shuffle=True)).spec,
        len(x),
        x.shard(2, 1).positions(0),
        repr(x),
    ],
    "attributes": lambda v: [v.shape, v.dtype, v.nbytes, len(v), v.spec, v.blocks, repr(v), str(v)],
    "requests": lambda v: v.windows(3).requests(np.arange(4), Draw()),
    "equality": lambda v: [v == v[:], hash(v), bool(v), v in [v]],
    "iterator": lambda v: [iter(v), v.batches(4).epoch(0)],
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSED)
def test_composing_reads_nothing(source: RecordingSource, name: str):
    made = COMPOSED[name](ooc.open(source))
    assert source.rows == []
    del made


def test_pickling_reads_nothing():
    class Refusing(RecordingSource):
        def read(self, origins: Any, extent: Any, out: Any) -> None:
            raise AssertionError("read")

    loader = ooc.open(Refusing(np.zeros((10, 2)))).next_frame().batches(2, shuffle=True)
    state = loader.__getstate__()
    assert state
    pickle.dumps(ooc.open(np.zeros((10, 2))).next_frame().batches(2))


@pytest.mark.parametrize(
    ("take", "reads"),
    [
        (lambda v: v[7], [[7]]),
        (lambda v: v[-1, 0], [[39]]),
        (lambda v: v[10:20][[3, 3, -1]].take([0, 2]), [[13, 19]]),
        (lambda v: v[::-1].take([0, 1]), [[39, 38]]),
        (lambda v: v.take([]), [[]]),
        (lambda v: np.asarray(v[::20]), [[0, 20]]),
        (lambda v: v.windows(2, 1, horizon=3)[5], [[5, 6], [9]]),
        (lambda v: v.next_frame().take([3, 9]), [[3, 9], [4, 10]]),
        (lambda v: ooc.zip(v, v[::-1])[1], [[1], [38]]),
        (lambda v: v.map(identity, spec=SPEC).take([4]), [[4]]),
        (lambda v: v.batches(4).batch(9), [[36, 37, 38, 39]]),
        (lambda v: v.batches(16).batch(2), [list(range(32, 40))]),
        (lambda v: v.batches(4).shard(2, 1).batch(0), [[2, 3]]),
        (lambda v: v.__getitems__([8, 2]), [[8, 2]]),
        (lambda v: v.split(0.5, 0.5)[1][15:][0], [[35]]),
    ],
)
def test_taking_reads_what_is_needed(source: RecordingSource, take: Any, reads: list[list[int]]):
    take(ooc.open(source))
    assert [read for read in source.rows if read] == [read for read in reads if read]


def test_only_the_parts_that_are_needed_are_read():
    parts = [RecordingSource(sample_array((10, 2))) for _ in range(4)]
    view = ooc.open(concatenate(parts, 0))
    view[15:25].next_frame(episodes="none").take([4])
    assert [part.rows for part in parts] == [[], [[9]], [[0]], []]


def test_a_part_of_each_row_costs_whole_rows_only_where_it_must(source: RecordingSource):
    view = ooc.open(source)[:, 0, 1]
    assert view.take([5, 2]).tolist() == [61.0, 25.0]
    assert source.rows == [[5, 2]]


def test_this_test_can_fail(source: RecordingSource):
    np.asarray(ooc.open(source)[:2])
    assert source.rows == [[0, 1]]
