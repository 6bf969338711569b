"""Test the pass over all rows: each once, in order, in bounded memory, also after read errors."""

from __future__ import annotations

import threading
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
from oocdata.errors import DamagedChunkError, SourceError
from oocdata.tools import passes
from oocdata.tools.passes import Block, each_block

RNG = np.random.default_rng(0)


def read(dataset: ooc.Dataset, **options: Any) -> list[Block]:
    return list(each_block(dataset, lambda block: block, **options))


def values(dataset: ooc.Dataset, **options: Any) -> Any:
    return np.concatenate([block.values for block in read(dataset, **options)])


@pytest.fixture
def one_mib() -> Any:
    ooc.set_memory(1 << 20)
    yield
    ooc.set_memory(512 << 20)


@given(rows=st.integers(1, 60), part=st.slices(60), unit=st.integers(1, 7), cut=st.slices(3))
def test_every_row_once_in_order(rows: int, part: slice, unit: int, cut: slice) -> None:
    array = np.arange(rows * 3 * 400, dtype="f4").reshape(rows, 400, 3)
    try:
        ooc.set_memory(1 << 20)  # blocks of at most 64 KiB: of a few rows
        view, expected = ooc.open(array)[part, :, cut], array[part, :, cut]
        found = read(view, unit=unit)
    finally:
        ooc.set_memory(512 << 20)
    assert [row for block in found for row in block.rows] == list(range(len(expected)))
    assert all(len(block.rows) % unit == 0 for block in found[:-1])
    together = np.concatenate([expected[:0], *(block.values for block in found)])
    assert_array_equal(together, expected)
    assert all(block.values.flags.c_contiguous for block in found)


def test_any_dataset_of_one_array() -> None:
    array = np.arange(120.0).reshape(4, 6, 5)
    view = ooc.open(array, axis=(0, 1))
    assert_array_equal(values(view), array.reshape(24, 5))
    assert_array_equal(values(view.transpose().windows(2)), values(view.windows(2)))
    assert_array_equal(values(view[[5, 2, 2]]), array.reshape(24, 5)[[5, 2, 2]])
    assert_array_equal(values(view.map(lambda x: x.astype("f2", order="F"))), array.reshape(24, 5))
    assert_array_equal(values(view.astype("f4")), array.reshape(24, 5).astype("f4"))
    assert read(view[:0]) == []
    with pytest.raises(ooc.errors.ArgumentError, match="one array"):
        read(view.next_frame())


@pytest.mark.parametrize("start", [0, 3])
def test_blocks_are_whole_chunks(tmp_path: Path, start: int, one_mib: None) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=np.zeros((300, 700), "i2"), chunks=(7, 700), compression=1)
    view = ooc.open(tmp_path / "a.h5")[start:]
    borders = [block.rows.stop + start for block in read(view)[:-1]]
    assert len(borders) > 5
    assert all(border % 7 == 0 for border in borders)


def test_memory_is_bounded_by_the_budget(one_mib: None) -> None:
    """Blocks that exist at a time take half of the memory for batches."""
    lock, there, most = threading.Lock(), [0], [0]

    def work(block: Block) -> int:
        with lock:
            there[0] += block.values.nbytes
            most[0] = max(most[0], there[0])
        total = int(block.values.sum())
        with lock:
            there[0] -= block.values.nbytes
        return total

    array = np.ones((1000, 500), "u1")
    assert sum(each_block(ooc.open(array), work)) == 500_000
    assert most[0] <= 128 << 10


@given(
    chunk=st.integers(1, 9), start=st.integers(0, 20), unit=st.integers(1, 9),
    nbytes=st.integers(1, 400),
)  # fmt: skip
def test_blocks_begin_at_whole_units(chunk: int, start: int, unit: int, nbytes: int) -> None:
    array = np.arange(120, dtype="f4").reshape(60, 2)
    view = ooc.View.of(RecordingSource(array, chunks=chunk))[start:]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passes, "BLOCK_BYTES", nbytes)
        blocks = read(view, unit=unit)
    assert [block.rows.start % unit for block in blocks] == [0] * len(blocks)
    assert_array_equal(np.concatenate([block.values for block in blocks]), array[start:])


def test_chosen_rows_are_located_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_MOST_ROWS", 5)
    source, order = RecordingSource(np.arange(60.0).reshape(30, 2)), RNG.permutation(30)
    assert_array_equal(values(ooc.View.of(source)[order]), source.array[order])
    assert [len(rows) for rows in source.rows] == [5] * 6


class Failing:
    """A source with unreadable rows, which records the rows requested."""

    def __init__(self, rows: int, bad: set[int], error: Exception) -> None:
        self.shape, self.dtype = (rows, 2), np.dtype("f4")
        self.bad, self.error, self.reads = bad, error, 0

    def read_rows(self, rows: Any, out: Any) -> None:
        self.reads += 1
        if self.bad & set(rows.tolist()):
            raise self.error
        out[:] = rows[:, None]


@pytest.mark.parametrize("bad", [{0}, {3, 4, 77}, set(range(20, 60)), set(range(100))])
def test_it_continue_on_error_after_faults(bad: set[int]) -> None:
    source = Failing(100, bad, SourceError("no."))
    (block,) = read(ooc.open(source), continue_on_error=True)
    assert {row for rows, _ in block.failed for row in rows} == bad
    assert {str(error) for _, error in block.failed} == {"no."}
    good = sorted(set(range(100)) - bad)
    assert block.values[good, 0].tolist() == good
    assert not block.values[sorted(bad)].any()
    assert source.reads <= 2 + 2 * 7 * len(bad)
    with pytest.raises(SourceError, match="no"):
        read(ooc.open(source))


def test_an_error_of_the_system_is_a_fault_as_well() -> None:
    (block,) = read(
        ooc.open(Failing(9, {8}, OSError(5, "Input/output error"))), continue_on_error=True
    )
    ((rows, error),) = block.failed
    assert (rows, type(error)) == (range(8, 9), SourceError)
    assert "Input/output error" in error.message


def test_a_damaged_chunk_is_named_as_a_whole(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        array = np.random.default_rng(0).random((40, 8))
        data = file.create_dataset("u", data=array, chunks=(6, 8), compression=1)
        where = data.id.get_chunk_info(2).byte_offset
    with open(tmp_path / "a.h5", "r+b") as raw:
        raw.seek(where)
        raw.write(b"\xff" * 40)
    view = ooc.open(tmp_path / "a.h5")
    (block,) = read(view, continue_on_error=True)
    assert [(rows, type(error)) for rows, error in block.failed] == [
        (range(12, 18), DamagedChunkError)
    ]
    (part,) = read(view[14:30], continue_on_error=True)
    assert [rows for rows, _ in part.failed] == [range(4)]
    assert_array_equal(part.values[4:], array[18:30])


def test_what_work_raises_ends_it() -> None:
    def work(block: Block) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(each_block(ooc.open(np.zeros(3)), work))
