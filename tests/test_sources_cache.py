"""The cache of decoded chunks: its budget, its order, and who decodes."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from oocdata.sources.cache import ChunkCache, chunk_cache


def counting(calls: list[str], name: str, nbytes: int = 10):
    def decode() -> np.ndarray:
        calls.append(name)
        return np.full(nbytes, len(calls) % 251, np.uint8)

    return decode


def test_a_chunk_is_decoded_once():
    cache, calls = ChunkCache(100), []
    first = cache.get("a", 10, counting(calls, "a"))
    assert cache.get("a", 10, counting(calls, "a")) is first
    assert calls == ["a"]
    assert cache.nbytes == 10


def test_the_least_recently_used_goes_first():
    cache, calls = ChunkCache(30), []
    for name in "abcaddcab":
        cache.get(name, 10, counting(calls, name))
    assert calls == ["a", "b", "c", "d", "b"]
    assert cache.nbytes == 30
    cache.get("d", 10, counting(calls, "d"))
    assert calls[-1] == "d"


def test_the_budget_holds_whatever_comes():
    cache, calls = ChunkCache(100), []
    rng = np.random.default_rng(0)
    for _ in range(500):
        size = int(rng.integers(1, 120))
        cache.get(int(rng.integers(30)) * 1000 + size, size, counting(calls, "x", size))
        assert cache.nbytes == sum(nbytes for nbytes, _ in cache._chunks.values()) <= 100


def test_a_chunk_beyond_the_budget_is_handed_out_and_pushes_nothing_out():
    cache, calls = ChunkCache(100), []
    cache.get("a", 60, counting(calls, "a"))
    assert len(cache.get("big", 101, counting(calls, "big", 101))) == 101
    assert cache.nbytes == 60
    cache.get("a", 60, counting(calls, "a"))
    assert calls == ["a", "big"]


def test_a_failure_goes_to_all_who_wait_and_is_not_kept():
    cache = ChunkCache(100)
    inside, go = threading.Event(), threading.Event()

    def fail() -> np.ndarray:
        inside.set()
        go.wait()
        raise ValueError("damaged")

    def wait() -> np.ndarray:
        inside.wait()
        return cache.get("a", 10, fail)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(cache.get, "a", 10, fail)
        others = [threads.submit(wait) for _ in range(2)]
        inside.wait()
        go.set()
        for future in [first, *others]:
            with pytest.raises(ValueError, match="damaged"):
                future.result()
    assert cache.nbytes == 0
    assert cache.get("a", 10, lambda: np.zeros(10)).shape == (10,)


def test_threads_share_one_decoding():
    cache, calls = ChunkCache(1000), []
    inside, go = threading.Event(), threading.Event()

    def decode() -> np.ndarray:
        calls.append(1)
        inside.set()
        go.wait()
        return np.arange(10)

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(cache.get, "a", 10, decode)
        inside.wait()
        futures = [threads.submit(cache.get, "a", 10, decode) for _ in range(7)]
        go.set()
        assert all(future.result() is first.result() for future in futures)
    assert calls == [1]


def test_other_chunks_do_not_wait_for_a_slow_one():
    cache = ChunkCache(1000)
    inside, go = threading.Event(), threading.Event()

    def slow() -> np.ndarray:
        inside.set()
        go.wait()
        return np.zeros(1)

    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(cache.get, "slow", 10, slow)
        inside.wait()
        assert cache.get("fast", 10, lambda: np.ones(1)) == 1
        go.set()
        assert future.result() == 0


def test_clearing_while_a_chunk_is_decoded_keeps_the_account():
    cache = ChunkCache(1000)

    def decode() -> np.ndarray:
        cache.clear()
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        cache.get("a", 10, decode)
    assert cache.nbytes == 0


def test_a_child_starts_with_a_cache_of_its_own():
    inside, go = threading.Event(), threading.Event()

    def slow() -> np.ndarray:
        inside.set()
        go.wait()
        return np.zeros(1)

    key = object()
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(chunk_cache().get, key, 1, slow)
        inside.wait()
        child = os.fork()
        if child == 0:  # pragma: no cover  # the thread that decodes is not here
            os._exit(int(chunk_cache().get(key, 1, lambda: np.full(1, 5))[0]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        go.set()
        assert future.result() == 0
