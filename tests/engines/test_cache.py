"""The cache of decoded chunks: one budget, each chunk decoded once, nothing torn or left pinned."""

from __future__ import annotations

import gc
import mmap
import os
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oocdata.engines import decoding
from oocdata.engines.cache import Cache, Hold, Slots
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


def held(hold: Hold, nbytes: int) -> list[int]:
    """Return the first byte of each chunk; all its bytes must be alike."""
    chunks = hold.memory[: len(hold.memory) // nbytes * nbytes].reshape(-1, nbytes)[hold.slots]
    assert (chunks == chunks[:, :1]).all()
    return chunks[:, 0].tolist()


def array_of(
    budget: int, nbytes: int = 8, chunks: int = 1000, **options: tuple[int, ...]
) -> tuple[Cache, Slots, Decoder]:
    cache = Cache(lambda: budget)
    return cache, cache.slots("array", nbytes, chunks), Decoder(nbytes, **options)


def test_a_chunk_is_decoded_once_and_found_in_any_order():
    _, slots, decode = array_of(80)
    with_two = slots.load([3, 4], decode)
    found = slots.find(np.array([4, 3, 4]))
    assert found is not None
    assert held(found, 8) == [4, 3, 4]
    assert found.slots.tolist() == [with_two.slots[1], with_two.slots[0], with_two.slots[1]]
    assert slots.find(np.array([3, 5])) is None
    slots.load([5, 3], decode)
    assert decode.count == {3: 1, 4: 1, 5: 1}


def test_room_is_made_in_the_order_of_use():
    """As an ordered dict would have it, whatever is asked for between."""
    rng = np.random.default_rng(0)
    cache, slots, decode = array_of(16 * 8)
    order: list[int] = []
    for _ in range(2000):
        number = int(rng.integers(40))
        decode.count.clear()
        slots.load([number], decode).release()
        assert decode.count == ({} if number in order else {number: 1})
        order = [*[other for other in order if other != number][-15:], number]
    assert cache.nbytes == 16 * 8


def test_what_is_held_stays_and_goes_first_once_it_is_let_go():
    _, slots, decode = array_of(4 * 8)
    slow = slots.load([1], decode)
    for number in range(2, 30):
        slots.load([number], decode).release()
    assert held(slow, 8) == [1]
    slow.release()
    slots.load([30], decode).release()
    assert slots.find(np.array([1])) is None
    assert slots.find(np.array([28, 29, 30])) is not None


def test_what_is_wanted_is_not_evicted_for_the_rest():
    _, slots, decode = array_of(4 * 8)
    for number in range(4):
        slots.load([number], decode).release()
    hold = slots.load([9, 0], decode)  # 0 is the oldest
    assert held(hold, 8) == [9, 0]
    assert decode.count[0] == 1
    assert slots.find(np.array([2, 3])) is not None


def test_all_arrays_share_one_budget():
    cache = Cache(lambda: 100)
    one, two = cache.slots("one", 8, 1000), cache.slots("two", 20, 1000)
    for number in range(20):
        one.load([number], Decoder(8)).release()
    assert cache.nbytes == 96
    for number in range(20):
        two.load([number], Decoder(20)).release()
        assert cache.nbytes <= 100
    assert one.taken == [0]
    for number in range(15, 20):
        assert two.find(np.array([number])) is not None
    one.load([3], Decoder(8)).release()
    assert two.find(np.array([15])) is None
    assert two.find(np.array([16, 17, 18, 19])) is not None


def test_a_larger_budget_takes_effect_with_the_next_read_and_a_smaller_one_too():
    budget = 4 * 8
    cache = Cache(lambda: budget)
    slots, decode = cache.slots("array", 8, 1000), Decoder(8)
    for number in range(10):
        slots.load([number], decode).release()
    assert cache.nbytes == 4 * 8
    budget = 100 * 8
    for number in range(60):
        slots.load([number], decode).release()
    assert cache.nbytes == 60 * 8
    budget = 3 * 8
    slots.load([99], decode).release()
    assert cache.nbytes == 3 * 8


def test_one_who_is_alone_may_exceed_the_budget_by_what_one_read_needs():
    cache, slots, decode = array_of(10, nbytes=1000)
    assert slots.most == 1
    for number in range(3):
        with_one = slots.load([number], decode)
        assert held(with_one, 1000) == [number]
        with_one.release()
        assert cache.nbytes == 1000


def test_who_finds_no_room_waits_for_it():
    cache, slots, decode = array_of(2 * 8)
    hold = slots.load([1, 2], decode)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slots.load, [3, 4], decode)
        while not cache.waiting:
            pass
        assert decode.count == {1: 1, 2: 1}
        hold.release()
        assert held(waiting.result(timeout=60), 8) == [3, 4]
    assert cache.nbytes == 16


def test_a_hold_that_is_dropped_lets_go():
    """As where an interrupt comes before the holder could say that it must be released."""
    _, slots, decode = array_of(2 * 8)
    hold = slots.load([1, 2], decode)
    assert slots.pinned() == set(hold.slots.tolist())
    del hold
    assert slots.pinned() == set()


def test_what_is_let_go_while_somebody_looks_for_room_wakes_that_one(
    monkeypatch: pytest.MonkeyPatch,
):
    cache, slots, decode = array_of(2 * 8)
    hold = slots.load([1, 2], decode)
    look, others = cache.make_room, []

    def make_room(*arguments: Any) -> bool:
        found = look(*arguments)
        if not others:  # another thread lets go what was seen to be held
            others.append(threading.Thread(target=hold.release))
            others[0].start()
            while slots.held:
                pass
        return found

    monkeypatch.setattr(cache, "make_room", make_room)
    loading = threading.Thread(target=lambda: slots._load([3, 4], decode, False), daemon=True)
    loading.start()
    loading.join(30)
    assert not loading.is_alive()
    others[0].join()


def test_a_hold_whose_release_is_interrupted_wakes_who_waits():
    cache, slots, decode = array_of(2 * 8)
    hold = slots.load([1, 2], decode)

    presses = [KeyboardInterrupt]

    class Held(dict[int, Any]):
        def pop(self, *key: Any) -> None:
            super().pop(*key)
            while presses:
                raise presses.pop()

    slots.held = Held(slots.held)
    loading = threading.Thread(target=lambda: slots._load([3, 4], decode, False), daemon=True)
    loading.start()
    while not cache.waiting:
        pass
    with pytest.raises(KeyboardInterrupt):
        hold.release()
    del hold
    loading.join(30)
    assert not loading.is_alive()


def test_threads_that_want_the_same_chunk_wait_for_one_decoding():
    _, slots, decode = array_of(80)
    begun, go = threading.Event(), threading.Event()

    def slow(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        begun.set()
        assert go.wait(30)
        decode(numbers, places, memory)

    def in_thread(numbers: list[int]) -> Hold:
        return slots.load(numbers, slow)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(in_thread, [7])
        assert begun.wait(30)
        others = [pool.submit(in_thread, [7]) for _ in range(3)]
        go.set()
        assert [held(one.result(30), 8) for one in (first, *others)] == [[7]] * 4
    assert decode.count == {7: 1}


@pytest.mark.skipif(cores() < 2, reason="one decoding thread")
def test_readers_that_wait_for_a_chunk_leave_decoding_threads_free():
    """With the one that decodes they are as many as the threads; another chunk is decoded too."""
    _, slots, decode = array_of(80)
    begun, others_ended = threading.Event(), threading.Event()

    def slow(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        begun.set()
        assert others_ended.wait(30)
        decode(numbers, places, memory)

    with ThreadPoolExecutor(cores()) as pool:
        readers = [pool.submit(slots.load, [7], slow)]
        assert begun.wait(30)
        readers += [pool.submit(slots.load, [7], slow) for _ in range(cores() - 1)]
        while len(slots.held) < cores():
            pass
        assert held(slots.load([8], decode), 8) == [8]
        others_ended.set()
        assert [held(one.result(30), 8) for one in readers] == [[7]] * cores()
    assert decode.count == {7: 1, 8: 1}


def test_an_error_reaches_all_who_want_the_chunk_and_is_not_kept():
    cache, slots, decode = array_of(80, failing=(5,))
    barrier = threading.Barrier(4)

    def read(number: int) -> object:
        barrier.wait(30)
        try:
            return held(slots.load([number], decode), 8)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(read, [5, 5, 6, 5]))
    assert got == ["chunk 5 is damaged"] * 2 + [[6]] + ["chunk 5 is damaged"]
    assert slots.pinned() == set()
    assert cache.nbytes == 8
    decode.failing = ()
    assert held(slots.load([5], decode), 8) == [5]


def test_an_error_names_its_own_chunk_where_another_failed_first():
    """Chunks decoded together with a damaged one are decoded again by who wants them."""
    _, slots, decode = array_of(80, failing=(5,))
    begun, go = threading.Event(), threading.Event()

    def slow(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        begun.set()
        assert go.wait(30)
        decode(numbers, places, memory)

    with ThreadPoolExecutor(2) as pool:
        both = pool.submit(slots.load, [5, 6], slow)
        assert begun.wait(30)
        other = pool.submit(slots.load, [6], decode)
        go.set()
        with pytest.raises(ValueError, match="chunk 5"):
            both.result(30)
        assert held(other.result(30), 8) == [6]


@pytest.mark.parametrize("budget", [8 * 3, 8 * 30, 8 * 300])
def test_many_threads_and_arrays(budget: int):
    cache = Cache(lambda: budget)
    arrays = [cache.slots(name, 8, 1000) for name in "abc"]
    decoders = [Decoder(8) for _ in arrays]
    most = 0

    def work(seed: int) -> None:
        nonlocal most
        rng = np.random.default_rng(seed)
        for _ in range(300):
            which = rng.integers(3)
            slots = arrays[which]
            numbers = rng.choice(100, min(slots.most, rng.integers(1, 9)), replace=False).tolist()
            hold = slots.find(np.array(numbers)) or slots.load(numbers, decoders[which])
            assert held(hold, 8) == [number % 251 for number in numbers]
            most = max(most, cache.nbytes)
            hold.release()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most <= max(budget, 8 * 8)
    assert not any(slots.pinned() for slots in arrays)
    assert cache.nbytes == sum(slots.taken[0] for slots in arrays)


def test_small_chunks_are_decoded_in_a_few_groups():
    _, slots, decode = array_of(64 << 20, nbytes=32 << 10)
    slots.load(range(100), decode)
    assert sum(decode.groups) == 100
    assert 4 <= len(decode.groups) <= 8
    decode.groups.clear()
    slots.load(range(100, 200), decode, together=True)
    assert decode.groups == [100]


def test_chunks_decoded_together_stay_within_the_scratch(monkeypatch: pytest.MonkeyPatch):
    _, slots, decode = array_of(64 << 20, nbytes=1 << 20)
    monkeypatch.setattr("oocdata.engines.cache.scratch_share", lambda: 8 << 20)
    slots.load(range(10), decode, together=True)
    assert decode.groups == [4, 4, 2]


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


def test_a_chunk_that_is_made_of_another_array():
    """A read within a decoding waits for no room that the outer one holds."""
    cache = Cache(lambda: 10)
    inner, outer = cache.slots("inner", 8, 10), cache.slots("outer", 8, 10)

    def decode(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        hold = inner.load(numbers, Decoder(8))
        chunk = hold.memory[hold.slots[0] * 8 :][:8]
        memory[places[0] * 8 : places[0] * 8 + 8] = chunk
        hold.release()

    assert held(outer.load([3], decode), 8) == [3]


def test_a_chunk_that_is_made_of_one_that_another_thread_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever decodes the inner chunk may wait for the scratch that the outer one takes."""
    monkeypatch.setattr(decoding, "scratch_share", lambda: 16)
    cache = Cache(lambda: 1000)
    inner, outer = cache.slots("inner", 8, 10), cache.slots("outer", 8, 10)
    readers = ThreadPoolExecutor(1)
    other: list[Future[Hold]] = []
    begun, usual = threading.Event(), inner._claim

    def claim(numbers: Sequence[int], together: bool) -> Any:
        found = usual(numbers, together)
        begun.set()
        return found

    monkeypatch.setattr(inner, "_claim", claim)

    def decode(numbers: list[int], places: list[int], memory: NDArray[np.uint8]) -> None:
        other.append(readers.submit(inner.load, numbers, Decoder(8)))
        begun.wait()
        hold = inner.load(numbers, Decoder(8))
        memory[places[0] * 8 : places[0] * 8 + 8] = hold.memory[hold.slots[0] * 8 :][:8]
        hold.release()

    with readers:
        assert held(outer.load([3], decode), 8) == [3]
        assert held(other[0].result(), 8) == [3]


def resident(slots: Slots) -> int:
    """Return the bytes of a mapping that are in memory."""
    # By pages: the system may make one mapping of ours and a neighbour.
    first, pages = slots.memory.ctypes.data // mmap.PAGESIZE, -(-slots.room // mmap.PAGESIZE)
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        entries = np.frombuffer(os.pread(file.fileno(), pages * 8, first * 8), np.uint64)
    return int(np.count_nonzero(entries >> np.uint64(63))) * mmap.PAGESIZE


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="no /proc here")
@pytest.mark.parametrize("nbytes", [100, 4096, 5000, 1 << 16])
def test_memory_goes_to_the_array_that_needs_it(nbytes: int):
    budget = 4 << 20
    cache = Cache(lambda: budget)
    one, two = cache.slots("one", nbytes, 10**6), cache.slots("two", 1 << 16, 10**6)
    for start in range(0, budget // nbytes, one.most):
        one.load(range(start, start + one.most), Decoder(nbytes)).release()
    assert resident(one) >= cache.nbytes * 0.9
    for number in range(2 * budget >> 16):
        two.load([number], Decoder(1 << 16)).release()
    assert one.taken == [0]
    assert resident(one) <= mmap.PAGESIZE
    assert resident(one) + resident(two) <= budget + mmap.PAGESIZE


HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"


def mapped(slots: Slots, name: str) -> list[list[str]]:
    """Return what the system tells under a name of each part of a mapping."""
    first = slots.memory.ctypes.data
    found, inside = [], False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            title, *rest = line.split()
            if not title.endswith(":"):
                start, stop = (int(part, 16) for part in title.split("-"))
                inside = start < first + slots.room and first < stop
            elif inside and title == name:
                found.append(rest)
    return found


@pytest.mark.skipif(not os.path.exists(HUGE_PAGES), reason="no huge pages here")
def test_chunks_of_a_large_array_lie_in_huge_pages():
    with open(HUGE_PAGES) as file:
        if "[never]" in file.read():
            pytest.skip("huge pages are turned off")
    slots = Cache(lambda: 256 << 20).slots("array", 1 << 20, 40)
    for number in range(40):
        slots.load([number], Decoder(1 << 20)).release()
    assert sum(int(nbytes) for nbytes, _ in mapped(slots, "AnonHugePages:")) >= 16 << 10


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="no /proc here")
def test_few_chunks_take_no_more_memory_than_their_own():
    slots, nbytes = Cache(lambda: 64 << 20).slots("array", 1 << 16, 1000), 1 << 16
    for number in range(100):
        slots.load([number], Decoder(nbytes)).release()
        assert resident(slots) <= (number + 1) * nbytes + mmap.PAGESIZE


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="no /proc here")
def test_holes_are_not_filled_by_huge_pages():
    cache = Cache(lambda: 40 << 20)
    one, two = cache.slots("one", 1 << 20, 40), cache.slots("two", 1 << 20, 40)
    for number in range(40):
        one.load([number], Decoder(1 << 20)).release()
    two.load([0], Decoder(1 << 20)).release()
    assert one.taken == [39 << 20]
    advised = mapped(one, "VmFlags:")
    assert advised
    assert all("nh" in flags and "hg" not in flags for flags in advised)


def test_everything_of_an_array_goes_with_it():
    cache, slots, decode = array_of(800)
    slots.load([1, 2], decode).release()
    assert cache.slots("array", 8, 1000) is slots
    assert cache.nbytes == 16
    del slots
    gc.collect()
    assert cache.nbytes == 0
    assert cache.slots("array", 8, 1000).find(np.array([1])) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_empty():
    from oocdata.engines.cache import cache

    slots, decode = cache.slots(object(), 8, 100), Decoder(8)
    hold = slots.load([1, 2], decode)
    with decoding._gate, cache.lock:  # as another thread may at that moment
        child = os.fork()
        if child == 0:
            status = 1
            try:
                empty = slots.find(np.array([1])) is None and cache.nbytes == 0
                again = held(slots.load([1, 7], decode), 8) == [1, 7]
                status = 0 if empty and again else 2
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert held(hold, 8) == [1, 2]


def test_the_budget_is_read_from_memory():
    from oocdata.engines.cache import cache

    before = 2 * cache_share()
    slots = cache.slots(object(), 1 << 16, 10**6)
    try:
        set_memory(1 << 20)
        for start in range(0, 64, slots.most):
            slots.load(range(start, start + slots.most), Decoder(1 << 16)).release()
        assert cache.nbytes <= cache_share() == 1 << 19
    finally:
        set_memory(before)
