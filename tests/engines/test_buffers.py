"""Batch memory: aligned, recycled, and never used by two owners at a time."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.engines import buffers
from oocdata.engines.buffers import ALIGNMENT, Pool, empty, empty_parts, side_by_side
from oocdata.engines.cache import Cache
from oocdata.engines.memory_array import MemoryArray
from oocdata.memory import DEFAULT_MEMORY, account, set_memory

SHAPES = [(1,), (3, 5), (64, 3, 50, 50), (1000,), (7, 0, 3), (0,), (1, 1)]
DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]


def pool_of(nbytes: int) -> Pool:
    """Return a pool that may keep so many bytes idle."""
    return Pool(lambda cached=True: nbytes)


@pytest.mark.parametrize("shape", [*SHAPES, (np.int64(3), np.int32(4))], ids=str)
def test_arrays_are_aligned_contiguous_and_writable(shape: tuple[int, ...]):
    for dtype in DTYPES:
        array = pool_of(1 << 20).empty(shape, dtype)
        assert array.shape == shape
        assert array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        if array.size:
            assert array.ctypes.data % ALIGNMENT == 0
        array[...] = 1
        assert (array == 1).all()


def address_of(pool: Pool, shape: tuple[int, ...] = (1000,), dtype: str = "f8") -> int:
    return pool.empty(shape, dtype).ctypes.data


def idle(pool: Pool) -> int:
    """Return the idle bytes after a collection."""
    pool._collect()
    return pool._idle_bytes


def test_a_block_is_recycled_when_its_array_is_freed():
    pool = pool_of(1 << 20)
    pool.empty((1000,), "f8")[:] = 7
    assert (pool.empty((1000,), "f8") == 7).all()  # memory fresh from the kernel is zero
    pool.empty((500, 4), "f4")[:] = 3  # the same bytes in another shape
    assert (pool.empty((2000,), "f4") == 3).all()
    assert idle(pool) == 2 * mmap.PAGESIZE


@pytest.mark.parametrize(
    "hold",
    [
        lambda array: array[3:],
        lambda array: array.T,
        lambda array: array.view(np.uint8)[::7],
        lambda array: array.reshape(10, -1)[2][3:4],
        lambda array: list(array[:3]) and [array[5:6]],
        lambda array: array.data,
        lambda array: memoryview(array.view(np.uint8))[10:20],
        lambda array: {"x": (array, [array])},
        lambda array: np.lib.stride_tricks.as_strided(array, (2,), (8,)),
        lambda array: np.broadcast_to(array, (3, *array.shape)),
        lambda array: lambda: array,
        lambda array: iter(array),
    ],
)
def test_a_block_is_not_reused_while_it_is_referenced(hold: Any):
    pool = pool_of(1 << 20)
    array = pool.empty((1000,), "f8")
    array[:] = np.arange(1000)
    address = array.ctypes.data
    reference = hold(array)
    del array
    gc.collect()
    fresh = [pool.empty((1000,), "f8") for _ in range(4)]
    assert address not in [other.ctypes.data for other in fresh]
    for other in fresh:
        other[:] = -1
    del reference
    gc.collect()
    assert address_of(pool) == address


def test_a_reference_cycle_keeps_its_block_until_collected():
    pool = pool_of(1 << 20)
    array = pool.empty((1000,), "f8")
    address = array.ctypes.data
    cycle: list[Any] = [array]
    cycle.append(cycle)
    del array, cycle
    gc.collect()
    two = [pool.empty((1000,), "f8") for _ in range(2)]
    assert address in [array.ctypes.data for array in two]


def test_no_two_arrays_ever_share_memory():
    pool = pool_of(1 << 22)
    rng = random.Random(5)
    alive: list[tuple[np.ndarray, int]] = []
    for number in range(2000):
        array = pool.empty((rng.choice([1, 100, 512, 513, 5000]),), "i4")
        array[:] = number
        alive.append((array, number))
        rng.shuffle(alive)
        del alive[rng.randrange(1, 20) :]
        for batch, written in alive:
            assert (batch == written).all()


def test_a_block_noted_late_is_allocated_once():
    """Another thread may free the last array, and note it, during the collection."""
    pool = pool_of(1 << 20)
    pool.empty((1000,), "f8")
    (block,) = pool._changed
    for _ in range(2):
        pool._collect()
        pool._changed[block] = None
    first, second = (pool.empty((1000,), "f8") for _ in range(2))
    assert first.ctypes.data != second.ctypes.data
    pool._changed[block] = None
    assert pool.empty((1000,), "f8").ctypes.data not in (first.ctypes.data, second.ctypes.data)


def test_threads_never_share_batches():
    pool = pool_of(1 << 22)
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        start.wait()
        kept: list[tuple[np.ndarray, int]] = []
        for turn in range(300):
            array = pool.empty((rng.choice([10, 1000, 3000]),), "i8")
            array[:] = seed * 1000 + turn
            kept.append((array[rng.randrange(5) :], seed * 1000 + turn))
            if len(kept) > 5:
                view, written = kept.pop(rng.randrange(len(kept)))
                assert (view == written).all()
        for view, written in kept:
            assert (view == written).all()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


def test_no_batch_changes_after_it_was_returned():
    array = np.arange(400 * 64, dtype="f4").reshape(400, 64)
    view = View.of(MemoryArray(array))
    rng = np.random.default_rng(1)
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    with ThreadPoolExecutor(4) as threads:
        orders = [rng.integers(0, 400, 32) for _ in range(400)]
        for rows, batch in zip(orders, threads.map(view.take, orders), strict=True):
            if rng.random() < 0.3:
                kept.append((rows, batch[rng.integers(0, 31) :]))
            if len(kept) > 20:
                kept.pop(0)
            for old, seen in kept:
                assert_array_equal(seen, array[old][-len(seen) :])


def test_more_than_can_be_mapped_is_a_memory_error():
    """An OSError would seem to be about a file."""
    for nbytes in (1 << 60, 1 << 62):
        with pytest.raises(MemoryError, match=r"no memory for 1,152,9|no memory for 4,611,6"):
            pool_of(1 << 20).empty((nbytes,), "u1")


def test_idle_memory_is_bounded():
    pool = pool_of(3 * mmap.PAGESIZE)
    arrays = [pool.empty((mmap.PAGESIZE,), "u1") for _ in range(10)]
    del arrays
    assert idle(pool) == 3 * mmap.PAGESIZE
    blocks = [block for blocks in pool._idle.values() for block in blocks]
    assert sum(block.nbytes for block in blocks) == pool._idle_bytes
    assert pool_of(0).empty((10,), "f4").shape == (10,)


def test_a_shorter_read_reuses_blocks_of_longer_reads():
    """Otherwise the last read of an epoch would take as many blocks as are in flight."""
    pool = pool_of(1 << 28)
    pages = 16 * mmap.PAGESIZE

    def addresses(size: int) -> set[int]:
        arrays = [pool.empty((size,), "u1") for _ in range(4)]
        for array in arrays:
            array[...] = 1
        return {array.ctypes.data for array in arrays}

    long = addresses(42 * pages)
    assert addresses(38 * pages) == long
    assert addresses(42 * pages) == long
    assert idle(pool) == 4 * 42 * pages
    assert addresses(20 * pages) == long  # shrunk: the rest would be in use for nothing
    assert idle(pool) == 4 * 20 * pages
    assert not addresses(1 * pages) & long  # too small for so large a block


def test_scratch_takes_no_memory_of_batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The block of `y` was cut for the scratch of `x`, and mapped anew in each batch."""
    frames = np.arange(64 * 300 * 256, dtype="f4").reshape(64, 300, 256)
    np.save(tmp_path / "frames.npy", frames)
    mapped: list[int] = []
    reserve = buffers.reserve

    def note(kind: Any, nbytes: int, *flags: int) -> Any:
        mapped.append(nbytes)
        return reserve(kind, nbytes, *flags)

    monkeypatch.setattr(buffers, "reserve", note)
    loader = ooc.open(tmp_path / "frames.npy").transpose(1, 0).next_frame().batches(16)
    for step in (0, 1, 2, 1, 0):
        x, y = loader.batch(step)
        rows = np.arange(16 * step, 16 * step + 16)
        assert_array_equal(x, frames[rows].transpose(0, 2, 1))
        assert_array_equal(y, frames[rows + 1].transpose(0, 2, 1))
        del x, y
    assert len(mapped) == 2, "x and y of the first batch"


@pytest.mark.parametrize("seed", range(4))
def test_mapped_memory_is_bounded_by_the_maximum_in_use(seed: int):
    """Sparse batches differ in size; idle blocks make room for blocks in use."""
    rng, pages, pool = random.Random(seed), 16 * mmap.PAGESIZE, pool_of(1 << 30)
    arrays: list[Any] = []
    most = 0
    for _ in range(500):
        if len(arrays) == 6:
            del arrays[rng.randrange(6)]
        arrays.append(pool.empty((rng.choice([1, 4]) * rng.randint(40, 80) * pages,), "u1"))
        in_use = sum(array.nbytes for array in arrays)
        most = max(most, in_use)
        # An idle block may be a quarter larger than needed; the last one is mapped in addition.
        assert in_use + idle(pool) <= 1.25 * most + 320 * pages


def test_unused_sizes_do_not_keep_new_ones_from_being_recycled():
    pool = pool_of(8 * mmap.PAGESIZE)
    arrays = [pool.empty((mmap.PAGESIZE,), "u1") for _ in range(8)]
    del arrays
    assert idle(pool) == 8 * mmap.PAGESIZE
    large = pool.empty((9 * mmap.PAGESIZE,), "u1")
    pool.empty((4 * mmap.PAGESIZE,), "u1")[:] = 7
    assert (pool.empty((4 * mmap.PAGESIZE,), "u1") == 7).all()
    del large  # more than may be idle: freed at once
    assert (pool.empty((4 * mmap.PAGESIZE,), "u1") == 7).all()
    assert idle(pool) <= 8 * mmap.PAGESIZE


def test_idle_blocks_of_another_size_make_room_for_new_ones():
    """Idle blocks of 8 MiB had stayed beside the small ones of the next loader."""
    pool = pool_of(64 * mmap.PAGESIZE)
    large = [pool.empty((32 * mmap.PAGESIZE,), "u1") for _ in range(2)]
    del large
    assert idle(pool) == 64 * mmap.PAGESIZE
    small = []
    for count in range(1, 101):
        small.append(pool.empty((mmap.PAGESIZE,), "u1"))
        assert idle(pool) + count * mmap.PAGESIZE <= max(64, count) * mmap.PAGESIZE
    del small
    assert idle(pool) == 64 * mmap.PAGESIZE  # and are recycled in turn


def test_batches_are_recycled_in_the_unused_share_of_chunks(monkeypatch: pytest.MonkeyPatch):
    """Otherwise each large batch would be fresh memory."""
    monkeypatch.setattr(account(), "cached", lambda: chunks)
    pool = Pool(lambda cached=True: (4 if cached else 12) << 20)

    def idle_after(number: int) -> int:
        arrays = [pool.empty((3 << 20,), "u1") for _ in range(number)]
        for array in arrays:
            array[:] = 7
        del arrays, array
        return idle(pool) >> 20

    chunks = 0
    assert [idle_after(number) for number in (1, 4, 5)] == [3, 12, 12]
    again = [pool.empty((3 << 20,), "u1") for _ in range(4)]
    assert all((array == 7).all() for array in again)  # memory fresh from the kernel is zero
    del again
    chunks = 1
    pool.trim()
    assert pool._idle_bytes >> 20 == 3
    assert idle_after(4) == 3


def test_room_for_chunks_is_made_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch):
    trimmed, pool = [], Pool()
    monkeypatch.setattr("oocdata.engines.slots.trim", lambda: trimmed.append(len(decoded)))
    decoded: list[int] = []
    slots = Cache(lambda: 1 << 20).array(pool, nbytes=8, chunks=10)
    slots.load([3, 4], lambda numbers, *_: decoded.extend(numbers)).release()
    assert (trimmed, decoded) == ([0], [3, 4])


def test_a_forked_child_does_not_write_into_the_parents_batch():
    batch = empty((1000,), "i4")
    batch[:] = 1
    child = os.fork()
    if child == 0:  # pragma: no cover
        batch[:] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert (batch == 1).all()


def test_a_forked_child_does_not_reuse_the_parents_batch():
    batch = empty((1000,), "i4")
    batch[:] = 1
    child = os.fork()
    if child == 0:  # pragma: no cover
        del batch  # goes to the child's pool
        for _ in range(3):
            empty((1000,), "i4")[:] = 9
        os._exit(0)
    os.waitpid(child, 0)
    assert (batch == 1).all()


def test_a_fork_while_another_thread_allocates_does_not_hang():
    stop = threading.Event()

    def allocate() -> None:
        while not stop.is_set():
            empty((1000,), "i4")

    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:  # pragma: no cover
                empty((1000,), "i4")[:] = 1
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_a_whole_array_is_memory_for_a_tensor():
    array = empty((40, 100), "f4")
    for whole in (array, array.reshape(-1), array[16:]):
        found = side_by_side([whole])
        assert found is not None
        assert found.shape == (1, *whole.shape)
        assert found.ctypes.data == whole.ctypes.data
    for other in (array[:, 1:], array[1:], np.zeros((40, 100), "f4"), array.copy(), array.T):
        assert side_by_side([other]) is None
    assert side_by_side([empty((0, 3), "f4")]) is None
    mapping = mmap.mmap(-1, mmap.PAGESIZE)
    assert side_by_side([np.frombuffer(mapping, "u1")]) is None


def test_arrays_of_separate_blocks_are_not_joined():
    """Even if each is the last array of its block."""
    for counts in ([1, 1], [2, 1], [1, 2]):
        blocks = [empty_parts([(16,)] * count, "f4")[1] for count in counts]
        assert side_by_side([blocks[0][-1], blocks[1][0]]) is None


def test_arrays_side_by_side_are_joined():
    pool = pool_of(1 << 24)
    shapes = [(4, 16)] * 3 + [(2, 16)]
    _, parts = pool.empty_parts(shapes, "f4")
    for number, part in enumerate(parts):
        part[...] = number
    for adjacent in (parts[:3], parts[1:3], parts[:2]):
        found = side_by_side(adjacent)
        assert found is not None
        assert_array_equal(found, np.stack(adjacent))
        assert np.shares_memory(found, adjacent[-1])
    _, others = pool.empty_parts(shapes, "f4")
    _, padded = pool.empty_parts([(3,)] * 3, "f4")
    for apart in (
        parts, parts[2::-1], parts[:3:2], [parts[0], others[1]], [parts[0], parts[1].copy()],
        [parts[0], parts[1][:]], padded, [parts[2], others[0]],
    ):  # fmt: skip
        assert side_by_side(apart) is None
    address = parts[0].ctypes.data
    found = side_by_side(parts[:3])
    assert found is not None
    del parts, adjacent, part, apart
    pool._collect()
    assert address not in [pool.empty_parts(shapes, "f4")[1][0].ctypes.data for _ in range(2)]
    assert_array_equal(found[:, 0, 0], [0, 1, 2])


def test_an_array_is_pickled_by_value():
    array = empty((5,), "f4")
    array[:] = range(5)
    assert_array_equal(pickle.loads(pickle.dumps(array)), range(5))


# --- several arrays in one block


def resident(array: np.ndarray) -> int:
    """Return the number of nonzero bytes of an array; returned pages read as zeros."""
    return int(np.count_nonzero(array))


def test_each_part_is_aligned() -> None:
    for rows, element, dtype in [
        (3, (7,), "u1"),
        (5, (), "f4"),
        (32, (784,), "u1"),
        (3, (0,), "f8"),
    ]:
        whole, parts = buffers.empty_parts([(rows, *element)] * 4 + [(2, *element)], dtype)
        assert [part.shape for part in parts] == [(rows, *element)] * 4 + [(2, *element)]
        for number, part in enumerate(parts):
            assert part.flags.c_contiguous
            assert part.flags.writeable
            if part.size:
                assert part.ctypes.data % ALIGNMENT == 0
            part[...] = number
        assert [part.flat[0] for part in parts if part.size] == list(
            range(5 if parts[0].size else 0)
        )
        assert (whole is None) == (parts[0].nbytes % ALIGNMENT != 0 or not parts[0].size)
        if whole is not None:
            assert_array_equal(whole, np.concatenate(parts))


def test_a_block_is_recycled_when_its_last_part_is_freed() -> None:
    pool = pool_of(1 << 24)
    whole, parts = pool.empty_parts([(mmap.PAGESIZE,)] * 4, "u1")
    assert whole is not None
    address = whole.ctypes.data
    del whole
    kept = parts.pop(1)
    parts.clear()
    assert address_of(pool, (4 * mmap.PAGESIZE,), "u1") != address
    del kept
    assert address in {
        address_of(pool, (4 * mmap.PAGESIZE,), "u1"),
        pool.empty_parts([(mmap.PAGESIZE,)] * 4, "u1")[1][0].ctypes.data,
    }


def test_pages_of_batches_used_in_turn_are_never_returned() -> None:
    pool = pool_of(1 << 24)
    pool.empty_parts([(mmap.PAGESIZE,)] * 8, "u1")[1][0][...] = 1
    for _ in range(5):
        whole, parts = pool.empty_parts([(mmap.PAGESIZE,)] * 8, "u1")
        assert whole is not None
        whole[...] = 7
        while parts:
            parts.pop(0)
            pool._collect()
            assert (whole == 7).all()


def test_pages_beside_a_kept_batch_are_returned_before_more_memory_is_mapped() -> None:
    pool = pool_of(1 << 24)
    first, second = (pool.empty_parts([(mmap.PAGESIZE,)] * 8, "u1") for _ in range(2))
    assert first[0] is not None
    first[0][...] = 7
    first[1].pop()
    second[1].clear()
    again = pool.empty_parts([(mmap.PAGESIZE,)] * 8, "u1")[1]  # the memory of `second`
    assert (first[0] == 7).all()
    pool.empty_parts([(mmap.PAGESIZE,)] * 8, "u1")
    assert (first[0][: -mmap.PAGESIZE] == 7).all()
    assert not first[0][-mmap.PAGESIZE :].any()
    del again


def test_reads_are_used_in_another_order_than_they_began() -> None:
    """Two threads read: the pages of the later run must not be returned while it is used."""
    pool = pool_of(1 << 24)
    later, sooner = (pool.empty_parts([(mmap.PAGESIZE,)] * 8, "u1") for _ in range(2))
    assert later[0] is not None
    later[0][...] = 7
    sooner[1].clear()
    while later[1]:
        later[1].pop(0)  # freed in the same collection as all of the other read
        pool._collect()
        assert (later[0] == 7).all()


@pytest.mark.parametrize("nbytes", [mmap.PAGESIZE, 5000, 100])
def test_a_kept_batch_keeps_only_its_own_bytes(nbytes: int) -> None:
    pool = pool_of(1 << 24)
    kept, wholes = [], []
    padded = -(-nbytes // ALIGNMENT) * ALIGNMENT
    for _ in range(20):
        _, parts = pool.empty_parts([(nbytes,)] * 64, "u1")
        wholes.append(np.frombuffer(parts[0].base, np.uint8))  # type: ignore[arg-type]
        wholes[-1][...] = 7
        kept.append(parts[5])
        del parts
    # After every block but the last, another was used, of which no batch was kept.
    del pool.empty_parts([(nbytes,)] * 64, "u1")[1][:]
    pool._collect()
    for part, whole in zip(kept, wholes, strict=True):
        assert (part == 7).all()
        assert resident(whole) <= padded + 2 * mmap.PAGESIZE
    address = wholes[0].ctypes.data
    del kept[0], part
    pool._collect()
    again = [pool.empty_parts([(nbytes,)] * 64, "u1")[1] for _ in range(2)]
    assert address in [parts[0].ctypes.data for parts in again]


def test_a_batch_kept_of_every_read_keeps_only_its_own_bytes() -> None:
    """As when every hundredth batch is kept: no read is freed as a whole."""
    pool = pool_of(1 << 24)
    kept, wholes = [], []
    for _ in range(20):
        whole, parts = pool.empty_parts([(mmap.PAGESIZE,)] * 64, "u1")
        assert whole is not None
        whole[...] = 7
        kept.append(parts[5])
        wholes.append(whole)
        while parts:
            parts.pop(0)
    pool._collect()
    for part, whole in zip(kept[:-1], wholes[:-1], strict=True):
        assert (part == 7).all()
        assert resident(whole) <= 2 * mmap.PAGESIZE


@pytest.mark.parametrize(("chunks", "most"), [(1, 1 << 20), (0, 3 << 20)])
def test_idle_memory_is_the_share_of_batches(
    chunks: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account(), "cached", lambda: chunks)
    set_memory(4 << 20)
    try:
        pool = Pool()
        arrays = [pool.empty((1 << 18,), "u1") for _ in range(20)]
        del arrays
        assert idle(pool) == most
    finally:
        set_memory(DEFAULT_MEMORY)
