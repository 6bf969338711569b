"""The cache of decoded chunks: one budget, each chunk decoded once, none torn or left pinned."""

from __future__ import annotations

import gc
import mmap
import os
import threading
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from oocdata.engines import decoding
from oocdata.engines.cache import ArrayCache, Cache
from oocdata.engines.slots import Pin, Slots
from oocdata.memory import cache_share, set_memory
from oocdata.threads import cores


class Decoder:
    """Fills a chunk with its number, and counts."""

    def __init__(self, nbytes: int, failing: tuple[int, ...] = ()) -> None:
        self.nbytes, self.failing = nbytes, failing
        self.count: Counter[int] = Counter()
        self.groups: list[int] = []

    def __call__(self, numbers: list[int], slots: list[int], memory: NDArray[np.uint8]) -> None:
        self.groups.append(len(numbers))
        for number, slot in zip(numbers, slots, strict=True):
            self.count[number] += 1
            if number in self.failing:
                raise ValueError(f"chunk {number} is damaged")
            memory[slot * self.nbytes : (slot + 1) * self.nbytes] = number % 251


def first_bytes(pin: Pin, nbytes: int) -> list[int]:
    """Return the first byte of each chunk; all its bytes must be equal."""
    chunks = pin.memory[: len(pin.memory) // nbytes * nbytes].reshape(-1, nbytes)[pin.slots]
    assert (chunks == chunks[:, :1]).all()
    return chunks[:, 0].tolist()


def array_of(
    budget: int, nbytes: int = 8, chunks: int = 1000, **options: tuple[int, ...]
) -> tuple[Cache, ArrayCache, Decoder]:
    cache = Cache(lambda: budget)
    return cache, cache.array("array", nbytes, chunks), Decoder(nbytes, **options)


def test_a_chunk_is_decoded_once_and_found_in_any_order():
    _, array, decode = array_of(80)
    with_two = array.load([3, 4], decode)
    found = array.find(np.array([4, 3, 4]))
    assert found is not None
    assert first_bytes(found, 8) == [4, 3, 4]
    assert found.slots.tolist() == [with_two.slots[1], with_two.slots[0], with_two.slots[1]]
    assert array.find(np.array([3, 5])) is None
    array.load([5, 3], decode)
    assert decode.count == {3: 1, 4: 1, 5: 1}


@pytest.mark.parametrize("most", [1, 3, 4096])
def test_least_recently_used_chunks_are_evicted(most: int, monkeypatch: pytest.MonkeyPatch):
    """The oracle is an ordered list; the oldest chunks are listed a few at a time.

    A read pins chunks; those that are not cached are loaded first.
    """
    monkeypatch.setattr(f"{Cache.__module__}._MOST_LISTED", most)
    rng = np.random.default_rng(0)
    cache, array, decode = array_of(16 * 8)
    order: list[int] = []
    for _ in range(2000):
        number = int(rng.integers(40))
        decode.count.clear()
        pin = array.pin(np.array([number]), decode) if rng.random() < 0.5 else None
        (pin or array.load([number], decode)).release()
        assert decode.count == ({} if number in order else {number: 1})
        order = [*[other for other in order if other != number][-15:], number]
    assert cache.nbytes == 16 * 8


@pytest.mark.parametrize("most", [1, 4096])
def test_the_oldest_chunks_are_listed_beyond_pinned_ones(
    most: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(f"{Cache.__module__}._MOST_LISTED", most)
    _, array, decode = array_of(40 * 8)
    pins = [array.load([number], decode) for number in range(30)]
    for number in range(100, 200):
        array.load([number], decode).release()
    assert array.find(np.arange(190, 200)) is not None
    assert decode.count == Counter([*range(30), *range(100, 200)])
    array.load(list(range(300, 310)), decode).release()
    assert [first_bytes(pin, 8) for pin in pins] == [[number] for number in range(30)]


def test_evicting_small_chunks_takes_little_memory():
    count = 50_000
    _, array, _ = array_of(8 * count, chunks=2 * count)
    array.load(range(count), lambda *_: None).release()
    tracemalloc.start()
    array.load([count], lambda *_: None).release()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * count  # a list of all took 160 bytes for each


def test_pinned_chunks_stay_and_are_evicted_first_once_released():
    _, array, decode = array_of(4 * 8)
    slow = array.load([1], decode)
    for number in range(2, 30):
        array.load([number], decode).release()
    assert first_bytes(slow, 8) == [1]
    slow.release()
    array.load([30], decode).release()
    assert array.find(np.array([1])) is None
    assert array.find(np.array([28, 29, 30])) is not None


def test_requested_chunks_are_not_evicted_for_one_another():
    _, array, decode = array_of(4 * 8)
    for number in range(4):
        array.load([number], decode).release()
    pin = array.load([9, 0], decode)  # 0 is the oldest
    assert first_bytes(pin, 8) == [9, 0]
    assert decode.count[0] == 1
    assert array.find(np.array([2, 3])) is not None


def test_all_arrays_share_one_budget():
    cache = Cache(lambda: 100)
    one, two = cache.array("one", 8, 1000), cache.array("two", 20, 1000)
    for number in range(20):
        one.load([number], Decoder(8)).release()
    assert cache.nbytes == 96
    for number in range(20):
        two.load([number], Decoder(20)).release()
        assert cache.nbytes <= 100
    assert one.used_bytes == 0
    for number in range(15, 20):
        assert two.find(np.array([number])) is not None
    one.load([3], Decoder(8)).release()
    assert two.find(np.array([15])) is None
    assert two.find(np.array([16, 17, 18, 19])) is not None


def test_arrays_that_are_cached_as_far_as_there_is_room():
    """The smallest come first, and others' chunks leave them less."""
    cache = Cache(lambda: 32)
    large, whole = (cache.array(number, nbytes=4, chunks=number) for number in (9, 3))
    assert (cache.kept(large), cache.kept(whole), cache.kept(large)) == (7, 3, 4)
    other = cache.array("another", nbytes=8, chunks=9)
    other.load([0], lambda *_: None).release()
    assert (cache.kept(whole), cache.kept(large)) == (3, 2)


def test_a_changed_budget_takes_effect_with_the_next_read():
    budget = 4 * 8
    cache = Cache(lambda: budget)
    array, decode = cache.array("array", 8, 1000), Decoder(8)
    for number in range(10):
        array.load([number], decode).release()
    assert cache.nbytes == 4 * 8
    budget = 100 * 8
    for number in range(60):
        array.load([number], decode).release()
    assert cache.nbytes == 60 * 8
    budget = 3 * 8
    array.load([99], decode).release()
    assert cache.nbytes == 3 * 8


def test_a_single_read_may_exceed_the_budget():
    cache, array, decode = array_of(10, nbytes=1000)
    assert array.most == 1
    for number in range(3):
        with_one = array.load([number], decode)
        assert first_bytes(with_one, 1000) == [number]
        with_one.release()
        assert cache.nbytes == 1000


def test_a_reader_waits_for_room():
    cache, array, decode = array_of(2 * 8)
    pin = array.load([1, 2], decode)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(array.load, [3, 4], decode)
        while not cache.waiting:
            pass
        assert decode.count == {1: 1, 2: 1}
        pin.release()
        assert first_bytes(waiting.result(timeout=60), 8) == [3, 4]
    assert cache.nbytes == 16


def test_a_pin_that_is_garbage_collected_is_released():
    """As when an interrupt comes before the reader enters its `with` block."""
    _, array, decode = array_of(2 * 8)
    pin = array.load([1, 2], decode)
    assert array.slots.pinned() == set(pin.slots.tolist())
    del pin
    assert array.slots.pinned() == set()


def test_a_release_during_the_search_for_room_wakes_the_reader(
    monkeypatch: pytest.MonkeyPatch,
):
    cache, array, decode = array_of(2 * 8)
    pin = array.load([1, 2], decode)
    look, others = cache.make_room, []

    def make_room(*arguments: Any) -> bool:
        found = look(*arguments)
        if not others:  # another thread releases chunks that were seen as pinned
            others.append(threading.Thread(target=pin.release))
            others[0].start()
            while array.slots.pins:
                pass
        return found

    monkeypatch.setattr(cache, "make_room", make_room)
    loading = threading.Thread(target=lambda: array.slots._load([3, 4], decode, False), daemon=True)
    loading.start()
    loading.join(30)
    assert not loading.is_alive()
    others[0].join()


def test_a_pin_whose_release_is_interrupted_wakes_readers():
    cache, array, decode = array_of(2 * 8)
    pin = array.load([1, 2], decode)

    presses = [KeyboardInterrupt]

    class Pins(dict[int, Any]):
        def pop(self, *key: Any) -> None:
            super().pop(*key)
            while presses:
                raise presses.pop()

    array.slots.pins = Pins(array.slots.pins)
    loading = threading.Thread(target=lambda: array.slots._load([3, 4], decode, False), daemon=True)
    loading.start()
    while not cache.waiting:
        pass
    with pytest.raises(KeyboardInterrupt):
        pin.release()
    del pin
    loading.join(30)
    assert not loading.is_alive()


def test_threads_that_need_the_same_chunk_decode_it_once():
    _, array, decode = array_of(80)
    begun, go = threading.Event(), threading.Event()

    def slow(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        begun.set()
        assert go.wait(30)
        decode(numbers, places, memory)

    def in_thread(numbers: list[int]) -> Pin:
        return array.load(numbers, slow)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(in_thread, [7])
        assert begun.wait(30)
        others = [pool.submit(in_thread, [7]) for _ in range(3)]
        go.set()
        assert [first_bytes(one.result(30), 8) for one in (first, *others)] == [[7]] * 4
    assert decode.count == {7: 1}


@pytest.mark.skipif(cores() < 2, reason="one decoding thread")
def test_readers_that_wait_for_a_chunk_leave_decoding_threads_free():
    """One reader decodes and all others wait, as many as there are threads in all."""
    _, array, decode = array_of(80)
    begun, others_ended = threading.Event(), threading.Event()

    def slow(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        begun.set()
        assert others_ended.wait(30)
        decode(numbers, places, memory)

    with ThreadPoolExecutor(cores()) as pool:
        readers = [pool.submit(array.load, [7], slow)]
        assert begun.wait(30)
        readers += [pool.submit(array.load, [7], slow) for _ in range(cores() - 1)]
        while len(array.slots.pins) < cores():
            pass
        assert first_bytes(array.load([8], decode), 8) == [8]
        others_ended.set()
        assert [first_bytes(one.result(30), 8) for one in readers] == [[7]] * cores()
    assert decode.count == {7: 1, 8: 1}


def test_an_error_reaches_all_readers_and_is_not_cached():
    cache, array, decode = array_of(80, failing=(5,))
    barrier = threading.Barrier(4)

    def read(number: int) -> object:
        barrier.wait(30)
        try:
            return first_bytes(array.load([number], decode), 8)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(read, [5, 5, 6, 5]))
    assert got == ["chunk 5 is damaged"] * 2 + [[6]] + ["chunk 5 is damaged"]
    assert array.slots.pinned() == set()
    assert cache.nbytes == 8
    decode.failing = ()
    assert first_bytes(array.load([5], decode), 8) == [5]


def test_an_error_names_its_own_chunk_where_another_failed_first():
    """A chunk decoded together with a damaged one is decoded again for another reader."""
    _, array, decode = array_of(80, failing=(5,))
    begun, go = threading.Event(), threading.Event()

    def slow(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        begun.set()
        assert go.wait(30)
        decode(numbers, places, memory)

    with ThreadPoolExecutor(2) as pool:
        both = pool.submit(array.load, [5, 6], slow)
        assert begun.wait(30)
        other = pool.submit(array.load, [6], decode)
        go.set()
        with pytest.raises(ValueError, match="chunk 5"):
            both.result(30)
        assert first_bytes(other.result(30), 8) == [6]


@pytest.mark.parametrize("budget", [8 * 3, 8 * 30, 8 * 300])
def test_many_threads_and_arrays(budget: int):
    cache = Cache(lambda: budget)
    arrays = [cache.array(name, 8, 1000) for name in "abc"]
    decoders = [Decoder(8) for _ in arrays]
    most = 0

    def work(seed: int) -> None:
        nonlocal most
        rng = np.random.default_rng(seed)
        for _ in range(300):
            which = rng.integers(3)
            array = arrays[which]
            numbers = rng.choice(100, min(array.most, rng.integers(1, 9)), replace=False).tolist()
            pin = array.find(np.array(numbers)) or array.load(numbers, decoders[which])
            assert first_bytes(pin, 8) == [number % 251 for number in numbers]
            most = max(most, cache.nbytes)
            pin.release()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most <= max(budget, 8 * 8)
    assert not any(array.slots.pinned() for array in arrays)
    assert cache.nbytes == sum(array.used_bytes for array in arrays)


def test_small_chunks_are_decoded_in_a_few_groups(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oocdata.engines.slots.cores", lambda: 2)
    _, array, decode = array_of(64 << 20, nbytes=32 << 10)
    array.load(range(100), decode)
    assert decode.groups == [50, 50]  # one for each thread
    decode.groups.clear()
    array.load(range(200, 210), decode)
    assert sorted(decode.groups) == [2, 8]  # of at least 256 KiB
    decode.groups.clear()
    array.load(range(300, 600), decode)
    assert sorted(decode.groups) == [44, 128, 128]  # of at most 4 MiB
    decode.groups.clear()
    array.load(range(100, 200), decode, own_threads=True)
    assert decode.groups == [100]


def test_chunks_decoded_together_stay_within_the_scratch(monkeypatch: pytest.MonkeyPatch):
    _, array, decode = array_of(64 << 20, nbytes=1 << 20)
    monkeypatch.setattr("oocdata.engines.slots.scratch_share", lambda: 8 << 20)
    array.load(range(10), decode, own_threads=True)
    assert sorted(decode.groups) == [2, 4, 4]


def test_scratch_of_all_threads_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decoding, "scratch_share", lambda: 100)
    inside, most, lock = 0, 0, threading.Lock()

    def work(nbytes: int) -> None:
        nonlocal inside, most
        for _ in range(50):
            with decoding.scratch(nbytes):
                with lock:
                    inside += nbytes
                    most = max(most, inside)
                with lock:
                    inside -= nbytes

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, [10, 30, 60, 90, 99, 5]))
        assert most <= 100
        list(pool.map(work, [500]))  # more than there is: alone


def test_a_chunk_made_from_another_array():
    """A read within a decoding does not wait for room that the outer chunk takes."""
    cache = Cache(lambda: 10)
    inner, outer = cache.array("inner", 8, 10), cache.array("outer", 8, 10)

    def decode(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        pin = inner.load(numbers, Decoder(8))
        chunk = pin.memory[pin.slots[0] * 8 :][:8]
        memory[places[0] * 8 : places[0] * 8 + 8] = chunk
        pin.release()

    assert first_bytes(outer.load([3], decode), 8) == [3]


def test_a_chunk_made_from_a_chunk_that_another_thread_decodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that decodes the inner chunk may wait for scratch of the outer one."""
    monkeypatch.setattr(decoding, "scratch_share", lambda: 16)
    cache = Cache(lambda: 1000)
    inner, outer = cache.array("inner", 8, 10), cache.array("outer", 8, 10)
    readers = ThreadPoolExecutor(1)
    other: list[Future[Pin]] = []
    begun, usual = threading.Event(), inner.slots._claim

    def claim(numbers: Sequence[int], own_threads: bool) -> Any:
        found = usual(numbers, own_threads)
        begun.set()
        return found

    monkeypatch.setattr(inner.slots, "_claim", claim)

    def decode(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        other.append(readers.submit(inner.load, numbers, Decoder(8)))
        begun.wait()
        pin = inner.load(numbers, Decoder(8))
        memory[places[0] * 8 : places[0] * 8 + 8] = pin.memory[pin.slots[0] * 8 :][:8]
        pin.release()

    with readers:
        assert first_bytes(outer.load([3], decode), 8) == [3]
        assert first_bytes(other[0].result(), 8) == [3]


def resident(array: ArrayCache) -> int:
    """Return the bytes of a mapping that are in memory."""
    # By pages: the system may make one mapping of ours and a neighbour.
    first, pages = (
        array.slots.memory.ctypes.data // mmap.PAGESIZE,
        -(-array.slots.room // mmap.PAGESIZE),
    )
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        entries = np.frombuffer(os.pread(file.fileno(), pages * 8, first * 8), np.uint64)
    return int(np.count_nonzero(entries >> np.uint64(63))) * mmap.PAGESIZE


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="no /proc here")
@pytest.mark.parametrize("nbytes", [100, 4096, 5000, 1 << 15])
def test_memory_goes_to_the_array_that_needs_it(nbytes: int):
    budget = 4 << 20
    cache = Cache(lambda: budget)
    one, two = cache.array("one", nbytes, 10**6), cache.array("two", 1 << 16, 10**6)
    for start in range(0, budget // nbytes, one.most):
        one.load(range(start, start + one.most), Decoder(nbytes)).release()
    assert resident(one) >= cache.nbytes * 0.9
    for number in range(2 * budget >> 16):
        two.load([number], Decoder(1 << 16)).release()
    assert one.used_bytes == 0
    assert resident(one) <= mmap.PAGESIZE
    assert resident(one) + resident(two) <= budget + mmap.PAGESIZE


HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"


def mapped(array: ArrayCache, name: str) -> list[list[str]]:
    """Return the values of a field of /proc/self/smaps for each part of a mapping."""
    first = array.slots.memory.ctypes.data
    found, inside = [], False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            title, *rest = line.split()
            if not title.endswith(":"):
                start, stop = (int(part, 16) for part in title.split("-"))
                inside = start < first + array.slots.room and first < stop
            elif inside and title == name:
                found.append(rest)
    return found


@pytest.mark.skipif(not os.path.exists(HUGE_PAGES), reason="no huge pages here")
def test_chunks_of_a_large_array_are_in_huge_pages():
    with open(HUGE_PAGES) as file:
        if "[never]" in file.read():
            pytest.skip("huge pages are turned off")
    array = Cache(lambda: 256 << 20).array("array", 1 << 20, 40)
    for number in range(40):
        array.load([number], Decoder(1 << 20)).release()
    assert sum(int(nbytes) for nbytes, _ in mapped(array, "AnonHugePages:")) >= 16 << 10


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="no /proc here")
def test_few_chunks_take_only_their_own_memory():
    array, nbytes = Cache(lambda: 64 << 20).array("array", 1 << 16, 1000), 1 << 16
    for number in range(100):
        array.load([number], Decoder(nbytes)).release()
        assert resident(array) <= (number + 1) * nbytes + mmap.PAGESIZE


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="no /proc here")
def test_holes_are_not_filled_by_huge_pages():
    cache = Cache(lambda: 40 << 20)
    one, two = cache.array("one", 1 << 20, 40), cache.array("two", 1 << 19, 40)
    for number in range(40):
        one.load([number], Decoder(1 << 20)).release()
    two.load([0], Decoder(1 << 19)).release()
    assert one.used_bytes == 39 << 20
    advised = mapped(one, "VmFlags:")
    assert advised
    assert all("nh" in flags and "hg" not in flags for flags in advised)


def test_the_cache_of_an_array_is_freed_with_it():
    cache, array, decode = array_of(800)
    array.load([1, 2], decode).release()
    assert cache.array("array", 8, 1000) is array
    assert cache.nbytes == 16
    del array
    gc.collect()
    assert cache.nbytes == 0
    assert cache.array("array", 8, 1000).find(np.array([1])) is None


@given(st.data())
def test_arrays_that_come_and_go(data: st.DataObject) -> None:
    """No chunk is ever found that its array did not decode, and none of a live array is lost."""
    cache, decoders = Cache(lambda: 1 << 20), {}
    arrays: dict[int, ArrayCache] = {}
    cached: dict[int, set[int]] = {}
    for number in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["new", "gone", "load", "load", "joined"]))
        if action == "new" or not arrays:
            arrays[number] = cache.array(number, data.draw(st.sampled_from([8, 12])), 9)
            decoders[number], cached[number] = Decoder(arrays[number].nbytes), set()
            continue
        name = data.draw(st.sampled_from(sorted(arrays)))
        chunks = data.draw(st.lists(st.integers(0, 8), min_size=1, unique=True))
        array = arrays[name]
        if action == "gone":
            del arrays[name], cached[name], array
            assert cache.nbytes == sum(len(cached[n]) * arrays[n].nbytes for n in arrays)
            continue
        assert (array.find(np.array(chunks)) is not None) == (cached[name] >= set(chunks))
        assert array.missing(np.arange(9)).tolist() == sorted(set(range(9)) - cached[name])
        names = [name]
        if action == "joined":  # the first twice
            names = [n for n in arrays if arrays[n].nbytes == array.nbytes]
            names += names[:1]
            array = ArrayCache.joined([arrays[n] for n in names])

        def decode(
            wanted: list[int], slots: list[int], memory: NDArray[np.uint8], names: Any = names
        ) -> None:
            for one, slot in zip(wanted, slots, strict=True):
                decoders[names[one // 9]]([one % 9], [slot], memory)

        pin = array.load([9 * at + chunk for at in range(len(names)) for chunk in chunks], decode)
        assert first_bytes(pin, array.nbytes) == chunks * len(names)
        pin.release()
        for owner in names:
            cached[owner] |= set(chunks)
            assert max(decoders[owner].count.values()) == 1
        assert cache.nbytes == sum(len(cached[n]) * arrays[n].nbytes for n in arrays)


def test_an_array_that_is_gone_gives_its_memory_back() -> None:
    """Others of its size stay, and find their chunks as fast as before."""
    cache = Cache(lambda: 16 << 20)
    stays, goes = cache.array("stays", 1 << 16, 100), cache.array("goes", 1 << 16, 100)
    for array in (stays, goes):
        array.load(range(50), Decoder(1 << 16)).release()
    memory = resident(stays)
    del array, goes
    assert cache.nbytes == 50 << 16
    assert resident(stays) <= memory // 2 + mmap.PAGESIZE
    cache.array("passes", 1 << 16, (1 << 16) - 200)  # then the remainders begin again
    newest = cache.array("newest", 1 << 16, 100)
    newest.load(range(60), Decoder(1 << 16)).release()
    assert stays.find(np.arange(50)) is not None
    assert newest.find(np.arange(60)) is not None


def test_the_size_asked_for_at_any_point_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the garbage collector may do that ends an iteration while room is made."""
    cache = Cache(lambda: 80)
    arrays = {n: cache.array(n, 8 if n % 2 else 16, 10) for n in range(6)}
    for array in arrays.values():
        array.load([0, 1], Decoder(array.nbytes)).release()
    evict = Slots.evict

    def evict_and_ask(self: Slots, slot: int, *, give_back: bool) -> None:
        arrays.pop(next(iter(arrays), 0), None)
        before = cache.nbytes
        evict(self, slot, give_back=give_back)
        assert cache.nbytes == before - self.nbytes

    monkeypatch.setattr(Slots, "evict", evict_and_ask)
    last = cache.array("last", 20, 10)
    del array
    last.load([0, 1, 2], Decoder(20)).release()
    assert cache.nbytes <= 80
    arrays.clear()
    assert cache.nbytes == 60
    assert last.find(np.arange(3)) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_empty():
    from oocdata.engines.cache import cache

    array, decode = cache.array(object(), 8, 100), Decoder(8)
    pin = array.load([1, 2], decode)
    with decoding._scratch_freed, cache.lock:  # as another thread may at that moment
        child = os.fork()
        if child == 0:
            status = 1
            try:
                empty = array.find(np.array([1])) is None and cache.nbytes == 0
                again = first_bytes(array.load([1, 7], decode), 8) == [1, 7]
                status = 0 if empty and again else 2
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert first_bytes(pin, 8) == [1, 2]


def test_the_budget_is_read_from_memory():
    from oocdata.engines.cache import cache

    before = 2 * cache_share()
    array = cache.array(object(), 1 << 16, 10**6)
    try:
        set_memory(1 << 20)
        for start in range(0, 64, array.most):
            array.load(range(start, start + array.most), Decoder(1 << 16)).release()
        assert cache.nbytes <= cache_share() == 1 << 19
    finally:
        set_memory(before)
