"""Compare the cache folder with plain bytes: whatever happens to the folder, reads are right."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from conftest import close_files, open_files
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from oocdata.engines import files
from oocdata.errors import ArgumentError, CacheFolderWarning
from oocdata.stores import entry as entries
from oocdata.stores import folder as folders
from oocdata.stores.entry import Entry
from oocdata.stores.folder import CacheFolder
from oocdata.stores.pieces import Pieces

PAGE, SEGMENT = 64, 4096
SIZES = {"large": 10_001, "tiny": 70, "whole": 2 * SEGMENT, "empty": 0}
DATA = {
    name: np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for name, size in SIZES.items()
}


class Small(CacheFolder):
    """A cache folder of small pages."""

    page = PAGE


def small(path: str | os.PathLike[str], limit: int = 1 << 30) -> CacheFolder:
    folder = Small(path)
    folder._limit = limit
    return folder


def limited(path: str | os.PathLike[str], limit: int) -> CacheFolder:
    folder = CacheFolder(path)
    folder._limit = limit
    return folder


def opened(folder: CacheFolder, name: str = "large") -> Entry:
    return folder.entry(f"s3://bucket/{name}", '"etag"', SIZES[name])


def ranges(*pairs: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    starts, stops = np.array(pairs, np.int64).reshape(-1, 2).T
    return starts, stops - starts


def pages(starts: NDArray[np.int64], lengths: NDArray[np.int64], page: int = PAGE) -> set[int]:
    return {
        number
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        for number in range(start // page, -(-(start + length) // page) if length else 0)
    }


def write(entry: Entry, data: NDArray[np.uint8], starts: Any, lengths: Any) -> None:
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        entry.write(start, data[start : start + length].tobytes())


def read(entry: Entry, starts: Any, lengths: Any) -> NDArray[np.uint8] | None:
    """Return the bytes of ranges, one after the other; None if some are missing."""
    out = np.full(int(lengths.sum()), 77, np.uint8)
    addresses = out.ctypes.data + lengths.cumsum() - lengths
    runs = Pieces(np.arange(len(starts)), starts, addresses, lengths)
    return out if entry.read_runs(runs.take(lengths > 0)) else None


def wanted(data: NDArray[np.uint8], starts: Any, lengths: Any) -> NDArray[np.uint8]:
    return np.concatenate(
        [
            data[:0],
            *(data[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)),
        ]
    )


class Folder(RuleBasedStateMachine):
    """Two instances on one folder, as two processes would have them."""

    names = st.sampled_from(list(SIZES))
    which = st.integers(0, 1)
    spans = st.just([(0.0, 1.0)]) | st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=6
    )

    @initialize()
    def begin(self) -> None:
        self.path = mkdtemp()
        self.folders = [small(self.path), small(self.path)]
        self.entries = [{name: opened(one, name) for name in SIZES} for one in self.folders]
        #: Pages that the folder holds, and those that an instance may still have open.
        self.there: dict[str, set[int]] = {name: set() for name in SIZES}
        self.open: dict[str, set[int]] = {name: set() for name in SIZES}
        #: Pages that may be left in a file that was cut.
        self.left: dict[str, set[int]] = {name: set() for name in SIZES}
        self.blobs: dict[str, bytes] = {}

    def teardown(self) -> None:
        self.folders, self.entries = [], []
        shutil.rmtree(self.path)

    def lose(self, name: str, *, is_open: bool) -> None:
        if is_open:
            self.open[name] |= self.there[name] | self.left[name]
        self.there[name], self.left[name] = set(), set()

    @rule(name=names, which=which, spans=spans)
    def fetched(self, name: str, which: int, spans: list[tuple[float, float]]) -> None:
        size, data, entry = SIZES[name], DATA[name], self.entries[which][name]
        pairs = [(round(min(one) * size), round(max(one) * size)) for one in spans]
        starts, lengths = ranges(*pairs)
        for _ in range(3):
            missing = entry.missing(starts, lengths)
            ends = missing[0] + missing[1]
            assert (missing[0] % PAGE == 0).all()
            assert ((ends % PAGE == 0) | (ends == size)).all()
            assert (missing[0][1:] > ends[:-1]).all()
            absent = pages(*missing)
            assert not absent & self.there[name]
            assert absent <= pages(starts, lengths)
            present = self.there[name] | self.open[name] | self.left[name]
            assert pages(starts, lengths) - absent <= present
            write(entry, data, *missing)
            self.there[name] |= absent
            found = read(entry, starts, lengths)
            if found is not None:
                break
            assert self.open[name]  # a file was cut that is open
        assert found is not None
        assert np.array_equal(found, wanted(data, starts, lengths))

    @rule(name=names, which=which, span=st.tuples(st.floats(0, 1), st.floats(0, 1)))
    def read_at_once(self, name: str, which: int, span: tuple[float, float]) -> None:
        size = SIZES[name]
        some = ranges((round(min(span) * size), round(max(span) * size)))
        found = read(self.entries[which][name], *some)
        if found is not None:
            assert np.array_equal(found, wanted(DATA[name], *some))

    def file(self, name: str) -> str | None:
        path = self.entries[0][name].path
        return path if os.path.exists(path) else None

    @rule(name=names)
    def deleted(self, name: str) -> None:
        if path := self.file(name):
            os.unlink(path)
            self.lose(name, is_open=True)

    @rule(name=names, at=st.floats(0, 1), more=st.booleans())
    def cut(self, name: str, at: float, more: bool) -> None:
        if path := self.file(name):
            length, left = os.stat(path).st_size, self.there[name] | self.left[name]
            os.truncate(path, length + 1 if more else int(at * max(length - 1, 0)))
            self.lose(name, is_open=True)
            self.left[name] = left

    @rule(name=names, at=st.floats(0, 1), bit=st.integers(0, 7))
    def damaged(self, name: str, at: float, bit: int) -> None:
        path, size = self.file(name), SIZES[name]
        if not path or not size or os.stat(path).st_size < size:  # it was cut
            return
        place = int(at * (size - 1))
        if place // PAGE not in self.there[name]:
            return  # damaged twice it may be right
        with open(path, "r+b") as file:
            byte = os.pread(file.fileno(), 1, place)[0]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), place)
        self.there[name].discard(place // PAGE)
        self.reopened()  # a process checks a page once

    @rule(name=names)
    def another_file(self, name: str) -> None:
        if path := self.file(name):
            Path(path).write_bytes(bytes(5000))
            self.lose(name, is_open=False)
            self.reopened()

    @rule()
    def reopened(self) -> None:
        self.folders = [small(self.path), small(self.path)]
        self.entries = [{name: opened(one, name) for name in SIZES} for one in self.folders]
        self.open = {name: set() for name in SIZES}

    @rule(which=which)
    def cleared(self, which: int) -> None:
        self.folders[which].clear()
        for one in SIZES:
            self.lose(one, is_open=True)
        self.blobs.clear()
        assert self.folders[which].nbytes == 0

    @rule(which=which, name=names, content=st.binary(max_size=100))
    def blob_kept(self, which: int, name: str, content: bytes) -> None:
        self.entries[which][name].blob("chunks").write(content)
        self.blobs[name] = content

    @invariant()
    def blobs_are_right(self) -> None:
        for each in self.entries:
            for name, entry in each.items():
                found = entry.blob("chunks").read()
                assert (None if found is None else bytes(found)) == self.blobs.get(name)


TestFolder = Folder.TestCase
TestFolder.settings = settings(max_examples=40, stateful_step_count=30)


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return small(tmp_path / "cache")


def test_versions_are_apart(folder: CacheFolder) -> None:
    first = folder.entry("s3://bucket/a", "1", 70)
    first.write(0, bytes(70))
    for name, version, size in (("a", "2", 70), ("a", "1", 71), ("b", "1", 70)):
        other = folder.entry(f"s3://bucket/{name}", version, size)
        assert other.missing(*ranges((0, 70)))[1].tolist() == [min(size, 2 * PAGE)]
    assert folder.entry("s3://bucket/a", "1", 70) is first
    assert [path for _, path, _ in folder.files()] == [first.path]


def test_wrong_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="`cache` must be a folder that can be written"):
        CacheFolder.at(tmp_path / "file")
    for text in ("", "0", "-1", "64G"):
        monkeypatch.setenv("OOCDATA_CACHE_BYTES", text)
        with pytest.raises(ArgumentError, match="OOCDATA_CACHE_BYTES must be a whole number"):
            CacheFolder.at(tmp_path / "other")


def test_one_instance_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = CacheFolder.at("cache")
    assert CacheFolder.at(tmp_path / "cache") is folder
    entry = folder.entry("s3://bucket/a", "1", 70)
    entry.write(0, bytes(70))
    assert folder.page == 4096
    free = os.statvfs(tmp_path)
    assert folder.limit == pytest.approx(min(64 << 30, free.f_bavail * free.f_frsize // 2), rel=0.1)


def test_one_run_is_read_as_many_are(folder: CacheFolder) -> None:
    entry, data = opened(folder), DATA["large"]
    write(entry, data, *ranges((0, 20 * PAGE), (SEGMENT, 10_001)))
    for start, stop, is_there in (
        (0, 1, True),
        (5, 700, True),
        (SEGMENT, 10_001, True),
        (19 * PAGE, 20 * PAGE + 1, False),  # not all of it was written
        (SEGMENT - 1, SEGMENT, False),
        (9_990, 10_002, False),  # beyond the object
        (20_000, 20_002, False),
    ):
        out = bytearray(stop - start)
        assert entry.read_into(memoryview(out), start) == is_there
        assert not is_there or bytes(out) == data[start:stop].tobytes()
    os.truncate(entry.path, 500)
    assert not entry.read_into(memoryview(bytearray(900)), 0)
    assert 0 in pages(*entry.missing(*ranges((0, 900))))


def test_bytes_lie_where_they_do_in_the_object(folder: CacheFolder) -> None:
    entry, data = opened(folder), DATA["large"]
    entry.write(0, data.tobytes())
    assert Path(entry.path).read_bytes()[: data.size] == data.tobytes()


def test_a_long_name(folder: CacheFolder) -> None:
    named = "s3://" + "ä" * 5000 + "/end", "v" * 5000, 70
    folder.entry(*named).write(0, bytes(70))
    again = small(folder.path).entry(*named)
    assert not again.missing(*ranges((0, 70)))[0].size


# Kills and processes --------------------------------------------------------------------------


def in_fork(work: Any) -> int:
    """Run a function in a fork, which ends without pytest's actions at exit."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


@pytest.mark.parametrize("turns", [15, pytest.param(50, marks=pytest.mark.long)])
def test_killed_again_and_again_while_it_is_written(tmp_path: Path, turns: int) -> None:
    size = 40 * SEGMENT + 11
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    chance = random.Random(0)
    whole: set[int] = set()
    fetched = 0
    for turn in range(turns):
        if len(whole) * PAGE >= size:  # begins anew
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            whole = set()
        ends = os.pipe()

        def fetching(order: int = turn, out: int = ends[1]) -> None:
            entry = small(tmp_path / "cache").entry("s3://bucket/a", "1", size)
            starts, lengths = entry.missing(*ranges((0, size)))
            places = [
                (place, min(place + 8 * PAGE, start + length))
                for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
                for place in range(start, start + length, 8 * PAGE)
            ]
            random.Random(order).shuffle(places)
            for start, stop in places:
                entry.write(start, data[start:stop].tobytes())
                os.write(out, np.array([start, stop]).tobytes())
            signal.pause()

        child = in_fork(fetching)
        os.close(ends[1])
        with os.fdopen(ends[0], "rb") as told:
            for _ in range(chance.randrange(1, 40)):
                if len(whole) * PAGE >= size:
                    break
                fetched += 1
                told_now = np.frombuffer(told.read(16), np.int64)
                now = set(range(told_now[0] // PAGE, -(-int(told_now[1]) // PAGE)))
                assert not now & whole  # no byte is fetched again that was whole
                whole |= now
            os.kill(child, signal.SIGKILL)
            rest = np.frombuffer(told.read(), np.int64).reshape(-1, 2)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        for start, stop in rest.tolist():
            whole |= set(range(start // PAGE, -(-stop // PAGE)))
        entry = small(tmp_path / "cache").entry("s3://bucket/a", "1", size)
        absent = pages(*entry.missing(*ranges((0, size))))
        assert not absent & whole
        there = sorted(set(range(-(-size // PAGE))) - absent)
        some = ranges(*((one * PAGE, min((one + 1) * PAGE, size)) for one in there))
        found = read(entry, *some)
        assert found is not None
        assert np.array_equal(found, wanted(data, *some))
        assert len(set(there) - whole) <= 8  # at most the one write under way
        whole |= set(there)
    assert fetched >= 50


def test_processes_write_and_read_at_once(tmp_path: Path) -> None:
    size = 20 * SEGMENT
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)

    def working(seed: int) -> None:
        chance = np.random.default_rng(seed)
        entry = small(tmp_path / "cache").entry("s3://bucket/a", "1", size)
        for _ in range(60):
            starts = chance.integers(0, size - 2000, 8)
            lengths = chance.integers(0, 2000, 8)
            found = None
            while found is None:
                write(entry, data, *entry.missing(starts, lengths))
                if not chance.integers(0, 10):  # as if it were evicted by a process
                    for _, path, _ in entry._folder.files():
                        with suppress(FileNotFoundError):
                            os.unlink(path)
                found = read(entry, starts, lengths)
            assert np.array_equal(found, wanted(data, starts, lengths))

    children = [in_fork(lambda seed=seed: working(seed)) for seed in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def test_threads_while_files_are_deleted(folder: CacheFolder) -> None:
    size = 20 * SEGMENT
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    entry = folder.entry("s3://bucket/a", "1", size)
    right: list[bool] = []

    def working(seed: int) -> None:
        chance = np.random.default_rng(seed)
        for turn in range(60):
            starts, lengths = chance.integers(0, size - 900, 8), chance.integers(0, 900, 8)
            write(entry, data, *entry.missing(starts, lengths))
            if turn % 20 == 4 * seed:
                folder.clear()
            found = read(entry, starts, lengths)
            if found is not None:
                right.append(np.array_equal(found, wanted(data, starts, lengths)))

    threads = [threading.Thread(target=working, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) > 60
    assert all(right)


def test_objects_are_opened_while_files_are_deleted(folder: CacheFolder) -> None:
    entries, usual, over = [], sys.getswitchinterval(), threading.Event()

    def opening() -> None:
        for number in range(30_000):
            entries.append(folder.entry("s3://bucket/a", str(number), PAGE))
            if over.is_set():
                break

    thread = threading.Thread(target=opening)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        while thread.is_alive():
            folder.clear()
    finally:
        over.set()
        sys.setswitchinterval(usual)
        thread.join()


def test_a_fork_while_a_thread_has_the_locks(folder: CacheFolder) -> None:
    entry = opened(folder)
    entry.write(0, DATA["large"][:SEGMENT].tobytes())

    def working() -> None:
        signal.alarm(20)  # or a deadlock would last
        found = read(entry, *ranges((100, 900)))
        assert found is not None
        assert np.array_equal(found, DATA["large"][100:900])
        entry.write(SEGMENT, DATA["large"][SEGMENT:].tobytes())
        assert not entry.missing(*ranges((0, 10_001)))[0].size

    with folders._room:
        child = in_fork(working)
        assert os.waitpid(child, 0)[1] == 0
    assert not entry.missing(*ranges((0, 10_001)))[0].size


# Room -----------------------------------------------------------------------------------------


def fill(folder: CacheFolder, name: str, nbytes: int, each: int = 64 << 10) -> None:
    entry = folder.entry(name, "1", nbytes)
    for start in range(0, nbytes, each):
        entry.write(start, np.random.default_rng(start).bytes(min(each, nbytes - start)))


def test_the_limit_holds(tmp_path: Path) -> None:
    limit = 2 << 20
    folder = limited(tmp_path / "cache", limit)
    entry = folder.entry("s3://bucket/a", "1", 16 << 20)
    chance = np.random.default_rng(0)
    most = 0
    for start in chance.permutation(256).tolist():
        entry.write(start << 16, chance.bytes(1 << 16))
        most = max(most, folder.nbytes)
    assert limit // 2 < most <= limit
    entry.write(0, bytes(4 << 20))  # what has no room is not kept
    assert folder.nbytes <= limit
    folder.entry("s3://bucket/b", "1", 70).blob("large").write(bytes(3 << 20))
    assert folder.entry("s3://bucket/b", "1", 70).blob("large").read() is None


def test_the_limit_of_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 4 << 20
    monkeypatch.setenv("OOCDATA_CACHE_BYTES", str(limit))

    def filling(number: int) -> None:
        fill(CacheFolder(tmp_path / "cache"), f"s3://bucket/{number}", 8 << 20)

    children = [in_fork(lambda number=number: filling(number)) for number in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    nbytes = CacheFolder(tmp_path / "cache").nbytes
    assert limit // 2 < nbytes <= limit + 2 * limit // 16


def names_of(folder: CacheFolder, names: list[str]) -> list[str]:
    """Return the names of objects of a MiB in the folder, the most recently used first."""
    by_path = {folder.entry(name, "1", 1 << 20).path: name for name in names}
    return [by_path[path] for _, path, _ in sorted(folder.files(), reverse=True)]


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    folder = limited(tmp_path / "cache", 8 << 20)
    names = [f"s3://bucket/{number}" for number in range(6)]
    for name in names:
        fill(folder, name, 1 << 20)
    for used, (_, path, _) in enumerate(sorted(folder.files())):
        os.utime(path, (used, used))
    order = names_of(folder, names)[::-1]
    # Read by another process, the oldest becomes the newest.
    other = CacheFolder(folder.path).entry(order[0], "1", 1 << 20)
    assert not other.missing(*ranges((0, 1 << 20)))[0].size
    assert read(other, *ranges((5, 900))) is not None
    assert names_of(folder, names) == [order[0], *order[:0:-1]]
    left = []
    for room in (5, 4, 3, 2, 1):
        folder._delete((room << 20) + (64 << 10))
        left.append(names_of(folder, names))
    newest = [order[0], *order[:0:-1]]
    assert left == [newest[:count] for count in (5, 4, 3, 2, 1)]


def test_a_time_of_use_in_the_future_says_nothing(tmp_path: Path) -> None:
    """The clock was ahead and was set back: files used then make room like old ones."""
    folder = limited(tmp_path / "cache", 4 << 20)
    for number in range(3):
        fill(folder, f"s3://bucket/{number}", 1 << 20)
    for _, path, _ in list(folder.files()):
        os.utime(path, (time.time() + 1e8, time.time() + 1e8))
    again = limited(folder.path, 4 << 20)
    fill(again, "s3://bucket/new", 2 << 20)
    assert not again.entry("s3://bucket/new", "1", 2 << 20).missing(*ranges((0, 2 << 20)))[0].size
    assert again.nbytes <= 4 << 20
    blob = again.entry("s3://bucket/new", "1", 2 << 20).blob("chunks")
    blob.write(b"a table")
    os.utime(blob.path, (time.time() + 1e8, time.time() + 1e8))
    assert blob.read() == b"a table"
    assert os.stat(blob.path).st_mtime < time.time() + 1e7


def test_uses_are_noted_once_a_minute(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = opened(folder)
    entry.write(0, DATA["large"].tobytes())
    now = [0.0]
    noted: list[float] = []
    monkeypatch.setattr(entries.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(entries.os, "utime", lambda file: noted.append(now[0]))
    for now[0] in (1000.0, 1001.0, 1059.0, 1061.0, 1100.0, 1122.0):
        assert read(entry, *ranges((0, 10_001))) is not None
    assert noted == [1000.0, 1061.0, 1122.0]


def test_what_was_deleted_gives_its_space_back(tmp_path: Path) -> None:
    folder = small(tmp_path / "cache")
    entry, other = opened(folder), small(tmp_path / "cache")
    entry.write(0, DATA["large"].tobytes())
    assert len(open_files(tmp_path)) == 1
    other.clear()
    assert len(open_files(tmp_path)) == 1
    assert read(entry, *ranges((5, 9000))) is not None  # what is open is read on
    folder._delete(1 << 30)  # nothing
    assert open_files(tmp_path) == []
    assert read(entry, *ranges((5, 9000))) is None
    assert pages(*entry.missing(*ranges((0, 10_001)))) == set(range(157))
    entry.write(0, DATA["large"].tobytes())
    assert folder.clear() > 0
    assert open_files(tmp_path) == []


def test_few_descriptors_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_most_open", lambda: 8)
    folder, data = small(tmp_path / "cache"), DATA["large"]
    for turn in range(2):
        for number in range(20):
            entry = folder.entry(f"s3://bucket/{number}", "1", data.size)
            if not turn:
                entry.write(0, data.tobytes())
            assert not entry.missing(*ranges((0, data.size)))[0].size
            found = read(entry, *ranges((7, 9000)))
            assert found is not None
            assert np.array_equal(found, data[7:9000])
            assert len(open_files(tmp_path)) <= 8


def test_a_file_deleted_under_a_reader(
    folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = opened(folder)
    entry.write(0, DATA["large"].tobytes())
    usual = files.read_runs

    def deleted_first(*arguments: Any) -> None:
        folder.clear()
        opened(small(folder.path)).write(0, bytes(PAGE))  # another file of that name
        usual(*arguments)

    monkeypatch.setattr(files, "read_runs", deleted_first)
    found = read(entry, *ranges((0, 10_001)))
    assert found is not None
    assert np.array_equal(found, DATA["large"])


def test_a_file_of_the_same_name_is_another(tmp_path: Path) -> None:
    entry, other = (opened(small(tmp_path / "cache")) for _ in range(2))
    entry.write(0, DATA["large"].tobytes())
    os.unlink(entry.path)
    write(other, DATA["large"], *ranges((0, PAGE), (SEGMENT, SEGMENT + PAGE)))
    close_files()  # as if others were read: then it is opened again, and has two pages
    assert read(entry, *ranges((0, 900))) is None
    assert read(entry, *ranges((SEGMENT, SEGMENT + 900))) is None
    absent = entry.missing(*ranges((0, 900), (SEGMENT, SEGMENT + 900)))
    assert pages(*absent) == {*range(1, 15), *range(65, 79)}


def test_what_another_process_wrote_after_a_deletion(tmp_path: Path) -> None:
    entry, other = (opened(small(tmp_path / "cache")) for _ in range(2))
    entry.write(0, DATA["large"][:PAGE].tobytes())
    other._folder.clear()
    other.write(0, DATA["large"][: 2 * PAGE].tobytes())
    assert not entry.missing(*ranges((0, 2 * PAGE)))[0].size
    found = read(entry, *ranges((0, 2 * PAGE)))
    assert found is not None
    assert np.array_equal(found, DATA["large"][: 2 * PAGE])


def test_threads_that_begin_a_file_together_keep_all_pages(tmp_path: Path) -> None:
    threads = 4
    for number in range(50):
        entry = opened(small(tmp_path / str(number)))
        barrier = threading.Barrier(threads)

        def begin(page: int, entry: Entry = entry, barrier: Any = barrier) -> None:
            barrier.wait()
            entry.write(page * PAGE, DATA["large"][page * PAGE : (page + 1) * PAGE].tobytes())

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(begin, range(threads)))
        assert not entry.missing(*ranges((0, threads * PAGE)))[0].size


def test_a_file_that_was_cut_is_made_anew(tmp_path: Path) -> None:
    entry = opened(small(tmp_path / "cache"))
    write(entry, DATA["large"], *ranges((0, PAGE)))
    os.truncate(entry.path, 2048)
    other = opened(small(tmp_path / "cache"))
    write(other, DATA["large"], *ranges((0, PAGE)))
    assert not other.missing(*ranges((0, PAGE)))[0].size


def test_what_another_process_makes_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, other = (opened(small(tmp_path / "cache")) for _ in range(2))
    usual = os.truncate

    def after_the_other(*arguments: Any) -> None:
        monkeypatch.setattr(os, "truncate", usual)
        other.write(0, DATA["large"][:PAGE].tobytes())
        usual(*arguments)

    monkeypatch.setattr(os, "truncate", after_the_other)
    entry.write(PAGE, DATA["large"][PAGE : 2 * PAGE].tobytes())
    again = opened(small(tmp_path / "cache"))
    assert not again.missing(*ranges((0, 2 * PAGE)))[0].size


@pytest.mark.parametrize("name", ["large", "tiny"])
def test_every_damaged_byte_is_found(tmp_path: Path, name: str) -> None:
    data, chance = DATA[name], np.random.default_rng(0)
    entry = opened(small(tmp_path / "cache"), name)
    entry.write(0, data.tobytes())
    count = -(-data.size // PAGE)
    for page in range(count):
        length = min(PAGE, data.size - page * PAGE)
        place = page * PAGE + int(chance.integers(length))
        if page % 5 == 0:
            place = count * PAGE + 4 * page  # its checksum
        with open(entry.path, "r+b") as file:
            byte = os.pread(file.fileno(), 1, place)[0]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << int(chance.integers(8))]), place)
        again = opened(small(tmp_path / "cache"), name)
        assert pages(*again.missing(*ranges((0, data.size)))) == {page}
        again.write(page * PAGE, data[page * PAGE :][:length].tobytes())
    again = opened(small(tmp_path / "cache"), name)
    assert not again.missing(*ranges((0, data.size)))[0].size


# Trouble --------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount")
    try:
        yield path
    finally:
        files._opened.clear()
        subprocess.run(["umount", "-l", str(path)], check=True)


def use_until_full(path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 4 << 20, np.uint8)
    folder = limited(path / "cache", 1 << 30)
    entry = folder.entry("s3://bucket/a", "1", data.size)
    starts = np.arange(0, data.size, 100 * 4096)
    with pytest.warns(CacheFolderWarning, match="can't be written any more") as told:
        write(entry, data, starts, np.minimum(100 * 4096, data.size - starts))
    entry.blob("chunks").write(b"a table")  # without another warning
    assert len(told) == 1
    assert "give another folder as `cache`" in str(told[0].message)
    assert entry.blob("chunks").read() is None
    for one in (entry, CacheFolder(path / "cache").entry("s3://bucket/a", "1", data.size)):
        absent = pages(*one.missing(*ranges((0, data.size))), 4096)
        assert 0 < len(absent) < data.size // 4096
        there = sorted(set(range(data.size // 4096)) - absent)
        some = ranges(*((page * 4096, (page + 1) * 4096) for page in there))
        found = read(one, *some)
        assert found is not None
        assert np.array_equal(found, wanted(data, *some))


def test_a_full_disk(tiny_disk: Path) -> None:
    use_until_full(tiny_disk)


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    data = np.random.default_rng(0).integers(0, 256, 4 << 20, np.uint8)
    folder = limited(tmp_path / "cache", 1 << 30)
    entry = folder.entry("s3://bucket/a", "1", data.size)
    entry.write(0, data[: 1 << 20])
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, usual[1]))
    try:
        starts = np.arange(1 << 20, data.size, 1 << 19)
        with pytest.warns(CacheFolderWarning) as told:
            write(entry, data, starts, np.full(starts.size, 1 << 19))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert len(told) == 1
    for one in (entry, CacheFolder(folder.path).entry("s3://bucket/a", "1", data.size)):
        starts, _ = one.missing(*ranges((0, data.size)))
        assert 1 << 20 <= starts[0] < 2 << 20
        found = read(one, *ranges((0, int(starts[0]))))
        assert found is not None
        assert np.array_equal(found, data[: starts[0]])


def test_the_folder_goes_away(tmp_path: Path) -> None:
    folder = small(tmp_path / "cache")
    entry = opened(folder)
    entry.write(0, DATA["large"][:SEGMENT].tobytes())
    shutil.rmtree(folder.path)
    found = read(entry, *ranges((0, SEGMENT)))
    assert found is None or np.array_equal(found, DATA["large"][:SEGMENT])
    rest = ranges((SEGMENT, 2 * SEGMENT), (2 * SEGMENT, 10_001))
    with pytest.warns(CacheFolderWarning, match="can't be written any more") as told:
        write(entry, DATA["large"], *rest)
    assert len(told) == 1
    assert not os.path.exists(folder.path)
    assert (folder.nbytes, folder.clear()) == (0, 0)


def test_a_page_is_there_only_with_its_checksum(
    folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = opened(folder)
    usual = entries._write_all
    order: list[int] = []

    def noted(file: int, data: Any, offset: int) -> None:
        order.append(offset)
        usual(file, data, offset)

    monkeypatch.setattr(entries, "_write_all", noted)
    entry.write(0, DATA["large"][:SEGMENT].tobytes())
    assert order == [0, 157 * PAGE]  # the page before its checksum


def test_a_blob_that_is_damaged_or_cut_is_not_there(folder: CacheFolder) -> None:
    blob = opened(folder).blob("chunks")
    blob.write(b"a table")
    [path] = Path(folder.path).rglob("*.chunks")
    whole = path.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            assert blob.read() is None
    path.write_bytes(whole)
    assert blob.read() == b"a table"
