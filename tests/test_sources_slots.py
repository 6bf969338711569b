"""Slots: pinned while used, each chunk decoded once, the least recently used makes room."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from oocdata.errors import ArgumentError, SourceError
from oocdata.sources import leases
from oocdata.sources import slots as module
from oocdata.sources.leases import Lease, Slots
from oocdata.sources.slots import chunk_budget, set_chunk_budget, slots_of


def codes(keys: str) -> np.ndarray:
    return np.array([ord(key) for key in keys], np.int64)


def fill(slots: Slots, keys: str) -> Lease:
    """Acquire and decode: a slot holds its key's character code."""
    lease = slots.acquire(codes(keys), together=1)
    values = slots.rows((8,), np.dtype("u1"))

    def decode(places: list[int]) -> None:
        for place in places:
            values[lease.slots[place]] = lease.keys[place]

    slots.decode(lease, decode)
    return lease


def held(slots: Slots, lease: Lease) -> str:
    return "".join(chr(code) for code in slots.rows((8,), np.dtype("u1"))[lease.slots, 0])


def test_a_chunk_is_decoded_once():
    slots = Slots(8, 8)
    first = fill(slots, "ab")
    second = slots.acquire(codes("ba"))
    assert second.mine == []
    assert held(slots, second) == "ba"
    assert list(second.slots) == list(first.slots[::-1])


def test_the_least_recently_used_makes_room():
    slots = Slots(8, 4)
    for key in "abcd":
        slots.release(fill(slots, key))
    slots.release(fill(slots, "a"))
    slots.release(fill(slots, "e"))  # in the place of b
    again = slots.acquire(codes("acde"))
    assert again.mine == []
    slots.release(again)
    assert slots.acquire(codes("b")).mine == [0]


def test_room_is_made_in_the_order_of_use():
    """Whatever was asked for between, as a list of all slots kept in that order would have it."""
    rng = np.random.default_rng(0)
    slots, kept = Slots(8, 16), []
    for _ in range(500):
        keys = rng.choice(40, rng.integers(1, 4), replace=False)
        lease = slots.acquire(keys)
        assert lease.mine == [place for place, key in enumerate(keys) if key not in kept]
        slots.decode(lease, lambda places: None)
        slots.release(lease)
        old = [key for key in kept if key not in keys]
        kept = old[max(0, len(old) + len(keys) - 16) :] + keys.tolist()
        # Of chunks that were asked for together, any may go first: ask for each again.
        for key in kept[-len(keys) :]:
            slots.release(slots.acquire(np.array([key])))


def test_what_was_held_for_long_goes_first_once_it_is_let_go():
    """A slow thread's chunks are the oldest, even if it held them while room was made before."""
    slots = Slots(8, 4)
    slow = fill(slots, "a")
    for key in "bcde":  # e in the place of b
        slots.release(fill(slots, key))
    slots.release(slow)
    slots.release(fill(slots, "f"))
    assert slots.acquire(codes("cdef")).mine == []


def test_room_is_made_in_the_order_of_use_of_what_nobody_holds():
    rng = np.random.default_rng(1)
    slots, used, holding = Slots(8, 16), {}, []
    for now in range(2000):
        if holding and (len(holding) > 5 or rng.random() < 0.4):
            slots.release(holding.pop(rng.integers(len(holding)))[0])
        key = int(rng.integers(40))
        lease = slots.acquire(np.array([key]))
        assert (lease.mine == []) == (key in used)
        slots.decode(lease, lambda places: None)
        if key not in used and len(used) == 16:
            pinned = {one for _, one in holding}
            del used[min((time, one) for one, time in used.items() if one not in pinned)[1]]
        used[key] = now
        holding.append((lease, key))


def test_a_pinned_chunk_stays():
    slots = Slots(8, 4)
    pinned = fill(slots, "a")
    for key in "bcdefghijk":
        slots.release(fill(slots, key))
    assert held(slots, pinned) == "a"
    assert slots.acquire(codes("a")).mine == []


def test_what_is_wanted_is_not_thrown_out_to_make_room_for_the_rest():
    slots = Slots(8, 4)
    for key in "abcd":
        slots.release(fill(slots, key))
    lease = fill(slots, "ea")  # a is the oldest
    assert held(slots, lease) == "ea"
    assert slots.acquire(codes("cd")).mine == []


def test_whoever_finds_no_room_waits_for_it():
    slots = Slots(8, 2)
    lease = fill(slots, "ab")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fill, slots, "cd")
        slots.release(lease)
        assert held(slots, waiting.result(timeout=30)) == "cd"


def damaged(places: list[int]) -> None:
    raise ValueError("damaged")


def interrupted(places: list[int]) -> None:
    raise KeyboardInterrupt


def nothing(places: list[int]) -> None:
    """Decode into nowhere."""


def test_a_failure_goes_to_all_who_wait_and_is_not_kept():
    slots = Slots(8, 4)
    mine = slots.acquire(codes("a"))
    other = slots.acquire(codes("a"))
    assert other.mine == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slots.decode, other, nothing)
        with pytest.raises(ValueError, match="damaged"):
            slots.decode(mine, damaged)
        with pytest.raises(ValueError, match="damaged"):
            waiting.result(timeout=30)
    again = slots.acquire(codes("a"))
    assert again.mine == [0]
    assert again.slots[0] != mine.slots[0]  # still pinned by the two
    slots.release(mine)
    slots.release(other)
    slots.decode(again, nothing)
    slots.release(again)
    # All slots are there again.
    assert len(slots.acquire(codes("wxyz")).mine) == 4


def test_one_portion_fails_and_the_others_are_kept():
    slots = Slots(8, 4)
    lease = slots.acquire(codes("abc"), together=1)

    def decode(places: list[int]) -> None:
        if places == [1]:
            damaged(places)

    with pytest.raises(ValueError, match="damaged"):
        slots.decode(lease, decode)
    slots.release(lease)
    assert slots.acquire(codes("abc")).mine == [1]


def test_many_threads():
    slots = Slots(8, 6)
    start = threading.Barrier(8)

    def work(seed: int) -> int:
        rng = np.random.default_rng(seed)
        start.wait()
        decoded = 0
        for _ in range(300):
            keys = "".join(rng.choice(list("abcdefghijkl"), rng.integers(1, 3), replace=False))
            lease = fill(slots, keys)
            decoded += len(lease.mine)
            assert held(slots, lease) == keys
            slots.release(lease)
        return decoded

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) >= 12


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
    lease = slots.acquire(codes("n"))  # never decoded
    child = os.fork()
    if child == 0:
        fresh = module.slots_of(24)
        again = fresh.acquire(codes("n"))
        good = fresh is not slots and again.mine == [0]
        fresh.decode(again, nothing)
        slots.rows((24,), np.dtype("u1"))[...] = 1  # the parent's memory is not the child's
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not slots.rows((24,), np.dtype("u1")).any()
    slots.release(lease)


def test_tiny_chunks_take_no_memory_before_they_are_used():
    slots = Slots(1, 1 << 30)
    assert list(slots.acquire(codes("ab")).slots) == [0, 1]


def test_a_lease_that_can_never_be_had_is_an_error_and_no_hang():
    with pytest.raises(ValueError, match="must fit 2 slots"):
        Slots(8, 2).acquire(codes("abc"))


def test_as_many_slots_as_the_system_grants(monkeypatch: pytest.MonkeyPatch):
    real = leases.mmap.mmap

    def scarce(number: int, nbytes: int, **options: int) -> object:
        if nbytes > 24:
            raise OSError(12, "Cannot allocate memory")
        return real(number, nbytes, **options)

    monkeypatch.setattr(leases.mmap, "mmap", scarce)
    slots = Slots(8, 8)
    assert (slots.capacity, slots.largest_lease) == (2, 1)
    with pytest.raises(MemoryError, match="25 bytes"):
        Slots(25, 8)


def test_who_waits_is_not_interrupted_with_who_decodes():
    slots = Slots(8, 4)
    mine, other = slots.acquire(codes("a")), slots.acquire(codes("a"))
    with pytest.raises(KeyboardInterrupt):
        slots.decode(mine, interrupted)
    slots.release(mine)
    with pytest.raises(SourceError, match="was interrupted"):
        slots.decode(other, nothing)
    slots.release(other)
    assert slots.acquire(codes("a")).mine == [0]


def test_what_is_released_before_it_was_decoded_never_will_be():
    """An interrupt between the two, say."""
    slots = Slots(8, 4)
    mine, other = slots.acquire(codes("ab")), slots.acquire(codes("b"))
    slots.release(mine)
    with pytest.raises(SourceError, match="was interrupted"):
        slots.decode(other, nothing)
    slots.release(other)
    assert len(slots.acquire(codes("abcd")).mine) == 4


def test_a_batch_that_fails_later_leaves_what_it_decoded():
    slots = Slots(8, 4)
    slots.release(fill(slots, "a"))
    assert slots.acquire(codes("a")).mine == []


def test_a_failure_is_let_go_with_its_lease():
    """Its traceback holds the batch, which would stay until the garbage collector comes by."""

    class Batch:
        pass

    def read() -> weakref.ref[Batch]:
        batch = Batch()
        slots = Slots(8, 4)
        lease = slots.acquire(codes("a"))
        try:
            slots.decode(lease, damaged)
        except ValueError:
            pass
        finally:
            slots.release(lease)
        return weakref.ref(batch)

    gc.collect()
    gc.disable()
    try:
        assert read()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("given", ["1G", "-5", "", "2.5"])
def test_a_budget_of_the_environment_that_is_no_number(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("OOCDATA_CHUNK_BYTES", given)
    with pytest.raises(ArgumentError, match=f"OOCDATA_CHUNK_BYTES must be .* got {given!r}"):
        module._budget_of_environment()
    monkeypatch.setenv("OOCDATA_CHUNK_BYTES", "4096")
    assert module._budget_of_environment() == 4096
