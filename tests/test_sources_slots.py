"""Slots: pinned while used, each chunk decoded once, the least recently used makes room."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from oocdata.errors import SourceError
from oocdata.sources import slots as module
from oocdata.sources.slots import (
    Lease,
    Slots,
    chunk_budget,
    set_chunk_budget,
    slots_of,
    wait_until_ended,
)


def fill(slots: Slots, *keys: str) -> Lease:
    """Acquire and decode: a slot holds its key's character code."""
    lease = slots.acquire(keys)
    values = slots.rows((8,), np.dtype("u1"))
    for place in lease.mine:
        values[lease.slots[place]] = ord(keys[place])
    slots.decoded(lease)
    slots.wait(lease)
    return lease


def held(slots: Slots, lease: Lease) -> str:
    return "".join(chr(code) for code in slots.rows((8,), np.dtype("u1"))[lease.slots, 0])


def test_a_chunk_is_decoded_once():
    slots = Slots(8, 8)
    first = fill(slots, "a", "b")
    second = slots.acquire(["b", "a"])
    assert second.mine == []
    assert held(slots, second) == "ba"
    assert list(second.slots) == list(first.slots[::-1])


def test_the_least_recently_used_makes_room():
    slots = Slots(8, 4)
    for key in "abcd":
        slots.release(fill(slots, key))
    slots.release(fill(slots, "a"))
    slots.release(fill(slots, "e"))  # in the place of b
    again = slots.acquire(list("acde"))
    assert again.mine == []
    slots.release(again)
    assert slots.acquire(["b"]).mine == [0]


def test_a_pinned_chunk_stays():
    slots = Slots(8, 4)
    pinned = fill(slots, "a")
    for key in "bcdefghijk":
        slots.release(fill(slots, key))
    assert held(slots, pinned) == "a"
    assert slots.acquire(["a"]).mine == []


def test_what_is_wanted_is_not_thrown_out_to_make_room_for_the_rest():
    slots = Slots(8, 4)
    for key in "abcd":
        slots.release(fill(slots, key))
    lease = fill(slots, "e", "a")  # a is the oldest
    assert held(slots, lease) == "ea"
    assert lease.mine == [0]


def test_whoever_finds_no_room_waits_for_it():
    slots = Slots(8, 2)
    lease = fill(slots, "a", "b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fill, slots, "c", "d")
        slots.release(lease)
        assert held(slots, waiting.result(timeout=30)) == "cd"


def test_a_failure_goes_to_all_who_wait_and_is_not_kept():
    slots = Slots(8, 4)
    mine = slots.acquire(["a"])
    other = slots.acquire(["a"])
    assert other.mine == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slots.wait, other)
        slots.decoded(mine, ValueError("damaged"))
        with pytest.raises(ValueError, match="damaged"):
            waiting.result(timeout=30)
    again = slots.acquire(["a"])
    assert again.mine == [0]
    assert again.slots[0] != mine.slots[0]  # still pinned by the two
    slots.release(mine)
    slots.release(other)
    slots.decoded(again)
    slots.release(again)
    # All slots are there again.
    assert len(slots.acquire(list("wxyz")).mine) == 4


def test_many_threads():
    slots = Slots(8, 6)
    decoded: list[str] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(300):
            keys = rng.choice(list("abcdefghijkl"), size=rng.integers(1, 3), replace=False).tolist()
            lease = slots.acquire(keys)
            decoded.extend(keys[place] for place in lease.mine)
            values = slots.rows((8,), np.dtype("u1"))
            for place in lease.mine:
                values[lease.slots[place]] = ord(keys[place])
            slots.decoded(lease)
            slots.wait(lease)
            assert held(slots, lease) == "".join(keys)
            slots.release(lease)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(decoded) >= 12


def test_a_budget_makes_slots_of_each_size():
    usual = chunk_budget()
    try:
        set_chunk_budget(1 << 20)
        assert slots_of(1 << 10).capacity == (1 << 20) // 1280  # what is known of a chunk counts
        assert slots_of(1 << 10) is slots_of(1 << 10)
        assert slots_of(1 << 30).capacity == 8  # at least
        set_chunk_budget(1 << 19)
        assert slots_of(1 << 10).capacity == (1 << 19) // 1280
    finally:
        set_chunk_budget(usual)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "1 GB"])
def test_a_wrong_budget(wrong: object):
    with pytest.raises(ValueError, match="nbytes"):
        set_chunk_budget(wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_starts_with_slots_of_its_own():
    slots = slots_of(24)
    lease = slots.acquire(["never decoded"])
    child = os.fork()
    if child == 0:
        fresh = module.slots_of(24)
        good = fresh is not slots and fresh.acquire(["never decoded"]).mine == [0]
        slots.rows((24,), np.dtype("u1"))[...] = 1  # the parent's memory is not the child's
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not slots.rows((24,), np.dtype("u1")).any()
    slots.decoded(lease)
    slots.release(lease)


def test_tiny_chunks_take_no_memory_before_they_are_used():
    slots = Slots(1, 1 << 30)
    assert list(slots.acquire(["a", "b"]).slots) == [0, 1]


def test_a_lease_that_can_never_be_had_is_an_error_and_no_hang():
    with pytest.raises(ValueError, match="must fit 2 slots"):
        Slots(8, 2).acquire("abc")


def test_as_many_slots_as_the_system_grants(monkeypatch: pytest.MonkeyPatch):
    real = module.mmap.mmap

    def scarce(number: int, nbytes: int, **options: int) -> object:
        if nbytes > 24:
            raise OSError(12, "Cannot allocate memory")
        return real(number, nbytes, **options)

    monkeypatch.setattr(module.mmap, "mmap", scarce)
    slots = Slots(8, 8)
    assert (slots.capacity, slots.largest_lease) == (2, 1)
    with pytest.raises(MemoryError, match="25 bytes"):
        Slots(25, 8)


def test_who_waits_is_not_interrupted_with_who_decodes():
    slots = Slots(8, 4)
    mine, other = slots.acquire("a"), slots.acquire("a")
    slots.decoded(mine, KeyboardInterrupt())
    slots.release(mine)
    with pytest.raises(SourceError, match="was interrupted"):
        slots.wait(other)
    slots.release(other)
    assert slots.acquire("a").mine == [0]


def test_what_was_said_first_holds():
    slots = Slots(8, 4)
    lease = fill(slots, "a")
    slots.decoded(lease, ValueError("later: the gather failed, not the decoding"))
    slots.release(lease)
    assert slots.acquire("a").mine == []


def test_a_failure_is_let_go_with_its_lease():
    slots = Slots(8, 4)
    lease = slots.acquire("a")
    slots.decoded(lease, ValueError("damaged"))
    slots.release(lease)
    assert lease.chunks[0].error is None


def test_a_wait_goes_on_when_it_is_interrupted():
    class Task:
        asked = 0

        def done(self) -> bool:
            return self.asked == 3

        def exception(self) -> None:
            self.asked += 1
            if self.asked < 3:
                raise KeyboardInterrupt

    task = Task()
    wait_until_ended([task])
    assert task.asked == 3
