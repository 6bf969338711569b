"""Let links and servers fail: the right bytes or a typed error, and no request stays in flight."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from servers.counted import Record
from servers.faults import (
    Drop,
    Exchange,
    Fault,
    Half,
    Headers,
    RandomFaults,
    Refuse,
    Slow,
    Stall,
    Whole,
    WrongLength,
    WrongRange,
)
from servers.http import Answer, DropError, refusal, whole
from servers.proxy import FaultProxy
from servers.ranges import RangeServer
from stored_layouts import KINDS, numbers, write_kinds

import oocdata as ooc
from oocdata import memory
from oocdata.box import Extent
from oocdata.engines.cache import cache as chunk_cache
from oocdata.errors import MissingFileError, OocdataError, SourceError, UnknownFormatError
from oocdata.formats.zarr import shards
from oocdata.stores import address as addresses
from oocdata.stores import blocks
from oocdata.stores import link as links
from oocdata.stores.link import Link, link
from oocdata.testing import boxes_of

ROWS = numbers((200, 4, 6))


def write(folder: Path) -> None:
    write_kinds(folder, ROWS, each=8, shard=40)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once, and give up soon."""
    monkeypatch.setattr(addresses, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(addresses, "_LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(links, "_PAUSE", 0.001)
    chunk_cache.forget()


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an answer that has not come within moments time out."""
    monkeypatch.setattr(addresses, "_SILENCE", 0.2)
    monkeypatch.setattr(links, "_SECONDS", 0.2)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    write(tmp_path)
    with RangeServer(tmp_path) as server, FaultProxy(server.url) as made:
        made.folder = tmp_path
        yield made
        assert_idle(made)


def assert_idle(server: Any) -> None:
    """Soon no request is in flight and no answer held: reading threads end by themselves."""
    for _ in range(200):
        gc.collect(1)
        if link().held == link()._in_flight == server.at_once == 0:
            return
        threading.Event().wait(0.01)
    assert (link().held, link()._in_flight, server.at_once) == (0, 0, 0)


def opened(proxy: FaultProxy | RangeServer, kind: str, missing: Any = None) -> ooc.View:
    name, key = KINDS[kind]
    return ooc.open(f"{proxy.url}/{name}", key, missing=missing)


def once_each(fault: Fault) -> Callable[[int, Record], Fault | None]:
    """Return a plan by which each request fails the first time."""
    seen: set[tuple[Any, ...]] = set()

    def plan(number: int, record: Record) -> Fault | None:
        key = record.path, record.start, record.stop
        if key in seen:
            return None
        seen.add(key)
        return fault

    return plan


PASS = [
    Drop(),
    Drop(reset=False),
    Refuse(503),
    Refuse(500),
    Refuse(429, retry_after=7),
    Half(),
    Half(reset=True),
    WrongRange(),
]
OF_RANGES = [WrongLength(-1), WrongLength(3)]
"""What tells nobody where an object is asked for whole."""


@pytest.mark.parametrize("fault", [*PASS, *OF_RANGES], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_is_asked_again(proxy: FaultProxy, kind: str, fault: Fault) -> None:
    if kind == "zarr" and fault in OF_RANGES:
        pytest.skip("its objects are asked for whole")
    view = opened(proxy, kind)
    plan = once_each(fault)
    # The metadata of Zarr is asked for whole too: a wrong length of it would be a change.
    are_spared = fault in OF_RANGES
    proxy.plan = lambda number, record: (
        None if record.start is None and are_spared else plan(number, record)
    )
    loader = view.batches(16, shuffle=True)
    for step, batch in enumerate(loader):
        assert_array_equal(batch, ROWS[loader.positions(step)])
    assert any(record.fault for record in proxy.log)


@pytest.mark.parametrize("status", [401, 403])
def test_a_web_server_that_needs_a_login(proxy: FaultProxy, status: int) -> None:
    proxy.plan = lambda *_: Refuse(status)
    with pytest.raises(SourceError, match=rf"it answered {status} .*ooc\.open\(name, store=…\)"):
        opened(proxy, "npy")


async def circle(exchange: Exchange) -> Answer:
    """Redirect to the address that was asked for."""
    return refusal(302, Location=exchange.request.target)


REFUSALS = [
    (Refuse(302), "redirect"),
    (circle, "redirect"),
    (Refuse(405), r"answered 405 \(Method Not Allowed\)\. Is this the address of the file itself"),
    (Refuse(412), r"answered 412 \(Precondition Failed\)\. Is this the address of the file itself"),
]


@pytest.mark.parametrize(("fault", "words"), REFUSALS, ids=lambda one: getattr(one, "status", ""))
@pytest.mark.parametrize("name", ["a.npy", "a.zarr"])
def test_what_a_server_refuses_to_open_is_told_at_once(
    proxy: FaultProxy, name: str, fault: Fault, words: str
) -> None:
    proxy.plan = lambda *_: fault
    with pytest.raises(SourceError, match=words) as caught:
        ooc.open(f"{proxy.url}/{name}")
    assert type(caught.value) is SourceError
    if fault is not circle:
        assert max(Counter(record.path for record in proxy.log).values()) == 1


@pytest.mark.parametrize("shards", [None, (40, 4, 6)])
def test_a_chunk_whose_request_is_refused_is_not_absent(proxy: FaultProxy, shards: Any) -> None:
    """Absent chunks hold the fill value; 404 alone says that one is absent."""
    zarr.create_array(proxy.folder / "z", data=ROWS, chunks=(8, 4, 6), shards=shards)
    view = ooc.open(f"{proxy.url}/z")
    proxy.plan = lambda *_: Refuse(405)
    with pytest.raises(SourceError, match="405") as caught:
        view[3]
    assert caught.value.rows is not None
    assert 3 in caught.value.rows


@pytest.mark.parametrize("fault", PASS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_opening_asks_again(proxy: FaultProxy, kind: str, fault: Fault) -> None:
    proxy.plan = once_each(fault)
    assert_array_equal(opened(proxy, kind)[:5], ROWS[:5])


@pytest.mark.parametrize("fault", [Stall(), Stall(after=3), Slow()], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stalled_answer_is_asked_for_again(
    proxy: FaultProxy, kind: str, fault: Fault, no_patience: None
) -> None:
    view = opened(proxy, kind)
    proxy.plan = once_each(fault)
    assert_array_equal(view.take([3, 190, 50]), ROWS[[3, 190, 50]])


def test_hdf5_that_can_not_be_fetched_is_not_damaged(proxy: FaultProxy) -> None:
    with h5py.File(proxy.folder / "scale.h5", "w") as file:
        file.create_dataset("u", data=ROWS.astype("i4"), chunks=(8, 4, 6), scaleoffset=0)
    view = ooc.open(f"{proxy.url}/scale.h5")
    view.take([100])  # HDF5 has opened it
    blocks.forget()
    proxy.plan = lambda number, record: Refuse(503)
    with pytest.raises(SourceError, match="503") as caught:
        view.take([9, 10])
    assert type(caught.value) is SourceError
    assert (caught.value.key, caught.value.rows) == ("/u", tuple(range(8, 16)))
    proxy.plan = lambda number, record: None
    assert_array_equal(view.take([9, 10]), ROWS.astype("i4")[[9, 10]])


def test_a_long_answer_may_take_as_long_as_it_goes_on(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timeouts are for silence: answers that share a slow link are not given up half-way."""
    monkeypatch.setattr(addresses, "_SILENCE", 0.5)

    async def slow(exchange: Exchange) -> Answer:
        reply = await exchange.forward(exchange.request)

        async def body() -> Any:
            for start in range(0, len(reply.data), 100_000):
                yield reply.data[start : start + 100_000]
                await asyncio.sleep(0.1)

        return reply.answer(body())

    row = np.arange(200_000)
    np.save(proxy.folder / "long.npy", row[None])
    view = ooc.open(f"{proxy.url}/long.npy")
    proxy.reset()
    proxy.plan = lambda *_: slow
    assert_array_equal(view[0], row)
    assert len({(record.start, record.stop) for record in proxy.log}) == len(proxy.log)


STAY = {
    "gone": (Refuse(404), "must exist|deleted", SourceError),
    "forbidden": (Refuse(403), "403", SourceError),
    "unknown": (Refuse(401), "401", SourceError),
    "bad": (Refuse(400), "400", SourceError),
    "no such method": (Refuse(405), "405", SourceError),
    "whole": (Whole(), "parts of a file", SourceError),
}


@pytest.mark.parametrize("name", STAY)
@pytest.mark.parametrize("kind", KINDS)
def test_what_stays_is_told_at_once(proxy: FaultProxy, kind: str, name: str) -> None:
    fault, words, error = STAY[name]
    if name == "whole" and kind == "zarr":
        pytest.skip("its objects are asked for whole")
    view = opened(proxy, kind)
    view.take([100])  # the versions of its objects are known
    chunk_cache.forget()
    proxy.reset()
    proxy.plan = lambda number, record: fault
    with pytest.raises(error, match=words) as caught:
        view.take([3, 100])
    assert_idle(proxy)
    assert caught.value.path is not None
    assert caught.value.path.startswith(proxy.url)
    assert (caught.value.key or "").strip("/") == (KINDS[kind][1] or "")
    assert caught.value.rows is not None
    assert {3, 100} & set(caught.value.rows)
    asked = [(record.path, record.start, record.stop) for record in proxy.log]
    assert len(asked) == len(set(asked)) > 0


@pytest.mark.parametrize("fault", [WrongRange(), *OF_RANGES], ids=repr)
def test_answers_that_stay_wrong_are_an_error_without_a_pause(
    proxy: FaultProxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = opened(proxy, "npy")
    proxy.reset()
    proxy.plan = lambda number, record: fault
    monkeypatch.setattr(links, "_PAUSE", 3600.0)
    with pytest.raises(SourceError) as caught:
        view.take([3])
    assert 3 in caught.value.rows
    assert len(proxy.log) == links._TRIES


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_stays_busy(proxy: FaultProxy, kind: str) -> None:
    view = opened(proxy, kind)
    proxy.plan = lambda number, record: Refuse(503)
    with pytest.raises(SourceError, match="503") as caught:
        view.take([3])
    assert 3 in caught.value.rows


def write_anew(folder: Path, kind: str) -> None:
    """Write other numbers of the same length, as another object of the same name."""
    name, _ = KINDS[kind]
    other = folder / "other"
    other.mkdir()
    if name == "a.npy":
        np.save(other / name, ROWS + 1)
    elif name == "a.h5":
        with h5py.File(other / name, "w") as file:
            file["plain"] = ROWS + 1
            file.create_dataset("gzip", data=ROWS + 1, chunks=(8, 4, 6), compression="gzip")
    elif name == "a.zarr":
        zarr.create_array(other / name, data=ROWS + 1, chunks=(8, 4, 6))
    else:
        zarr.create_array(other / name, data=ROWS + 1, chunks=(4, 4, 6), shards=(40, 4, 6))
    for path in other.rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(other)
            status = target.stat()
            os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns + 5_000_000_000))
            path.replace(target)


@pytest.mark.parametrize("etag", [True, "weak", False])
@pytest.mark.parametrize("kind", KINDS)
def test_another_version(tmp_path: Path, kind: str, etag: Any) -> None:
    write(tmp_path)
    with RangeServer(tmp_path, etag=etag) as server:
        view = opened(server, kind)
        assert_array_equal(view[3], ROWS[3])
        chunk_cache.forget()
        write_anew(tmp_path, kind)
        with pytest.raises(SourceError, match=r"changed|written anew") as caught:
            view.take([3])
        assert caught.value.rows is not None
        assert 3 in caught.value.rows
        again = opened(server, kind)
        assert_array_equal(again[3], ROWS[3] + 1)
        assert_idle(server)


@pytest.mark.parametrize("kind", ["npy", "contiguous", "gzip", "shards"])
def test_another_version_between_open_and_the_first_read(proxy: FaultProxy, kind: str) -> None:
    view = opened(proxy, kind)
    if kind == "shards":  # the array is known; the version of a shard since it was first read
        view.take([3])
        chunk_cache.forget()
    write_anew(proxy.folder, kind)
    with pytest.raises(SourceError, match=r"changed|written anew"):
        view.take([3])


@pytest.mark.parametrize("kind", KINDS)
def test_another_version_within_an_epoch(proxy: FaultProxy, kind: str) -> None:
    """Batches are of the first version, then there is an error; no batch has the second or both."""
    view = opened(proxy, kind)
    loader = view.batches(16, shuffle=True, seed=2)
    for batch in loader.epoch(0):
        del batch
    chunk_cache.forget()

    def read() -> None:
        for step in range(len(loader)):  # not read ahead
            assert_array_equal(loader.batch(step, 1), ROWS[loader.positions(step, 1)])
            if step == 2:
                write_anew(proxy.folder, kind)
                chunk_cache.forget()

    with pytest.raises(SourceError, match=r"changed|written anew"):
        read()


@pytest.mark.parametrize("etag", [True, "weak", False])
def test_another_version_within_an_answer(tmp_path: Path, etag: Any) -> None:
    """What the client requests after an answer broke off must not be joined with its beginning."""
    write(tmp_path)

    async def half(exchange: Exchange) -> Answer:
        reply = await exchange.forward(exchange.request)

        async def body() -> Any:
            yield reply.data[: len(reply.data) // 2]
            write_anew(tmp_path, "npy")
            raise DropError(reset=False)

        return reply.answer(body())

    with RangeServer(tmp_path, etag=etag) as server, FaultProxy(server.url) as proxy:
        view = opened(proxy, "npy")
        once = iter([half])
        proxy.plan = lambda *_: next(once, None)
        with pytest.raises(SourceError, match="has changed"):
            view.take([3])


def test_a_shard_whose_index_was_forgotten(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is read again, in another version."""
    monkeypatch.setattr(shards, "_MOST_INDICES", 1)
    array = zarr.create_array(
        proxy.folder / "few.zarr",
        data=ROWS[:32],
        chunks=(4, *ROWS.shape[1:]),
        shards=(8, *ROWS.shape[1:]),
    )
    view = ooc.open(f"{proxy.url}/few.zarr")
    for row in (0, 8, 16, 0):
        assert_array_equal(view[row], ROWS[row])
        chunk_cache.forget()
    array[:8] = ROWS[8:16]
    assert_array_equal(view[16], ROWS[16])
    with pytest.raises(SourceError, match="written anew") as caught:
        view[0]
    assert caught.value.rows is not None
    assert 0 in caught.value.rows


def test_indices_of_shards_keep_within_the_memory(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of a shard of 64 chunks has a KiB; there is room for three."""
    monkeypatch.setattr(memory, "_memory", 64 << 10)
    rows = numbers((12, 64, 64))
    zarr.create_array(proxy.folder / "fine.zarr", data=rows, chunks=(1, 8, 8), shards=(1, 64, 64))
    view = ooc.open(f"{proxy.url}/fine.zarr")
    fetched = view.source.source.reader
    kept = []
    for few in ([0, 5, 9, 3, 7], range(12), [11]):
        assert_array_equal(view.take(list(few)), rows[list(few)])
        kept.append(sum(one.result()[1].nbytes for one in fetched._indices.values()))
    assert 0 < min(kept) <= max(kept) <= 4 << 10
    assert fetched.storage().table_bytes <= (4 << 10) + 8 * 12


@pytest.mark.parametrize("how", ["written anew", "deleted"])
def test_a_chunk_that_comes_or_goes(proxy: FaultProxy, how: str) -> None:
    """An object that is absent at first is the fill value, and has to stay so."""
    path = proxy.folder / "few.zarr"
    zarr.create_array(path, data=ROWS[:8], chunks=(4, *ROWS.shape[1:]), fill_value=0)
    chunk = path / "c" / "0" / "0" / "0"
    stored = chunk.read_bytes()
    if how == "written anew":
        chunk.unlink()
    view = ooc.open(f"{proxy.url}/few.zarr", missing="fill")
    for _ in range(2):
        assert_array_equal(view[0], 0 * ROWS[0] if how == "written anew" else ROWS[0])
        chunk_cache.forget()
    if how == "written anew":
        chunk.write_bytes(stored)
    else:
        chunk.unlink()
    with pytest.raises(SourceError, match=how) as caught:
        view[3]
    assert caught.value.rows == (0, 1, 2, 3)


def test_the_object_is_deleted(proxy: FaultProxy) -> None:
    view = opened(proxy, "npy")
    (proxy.folder / "a.npy").unlink()
    with pytest.raises(MissingFileError) as caught:
        view.take([3])
    assert caught.value.rows == tuple(range(200))  # small ones, which are read as a block


def test_the_object_was_cut_short(proxy: FaultProxy) -> None:
    """Without a tag, and with the same time, the length tells versions apart."""
    with RangeServer(proxy.folder, etag=False) as server:
        view = opened(server, "npy")
        path = proxy.folder / "a.npy"
        status = path.stat()
        path.write_bytes(path.read_bytes()[:-5])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(SourceError, match="it has changed"):
            view.take([3])


def test_a_server_that_has_a_page_for_whatever_is_not_there(proxy: FaultProxy) -> None:
    async def page(exchange: Exchange) -> Answer:
        return Answer(200, {"Content-Length": "14"}, whole(b"<!doctype html"))

    proxy.plan = lambda _, record: (
        None if (proxy.folder / record.path.lstrip("/")).is_file() else page
    )
    for kind in ("npy", "gzip", "zarr"):
        assert_array_equal(opened(proxy, kind)[3], ROWS[3])


def test_a_compressed_member_is_refused(proxy: FaultProxy) -> None:
    np.savez_compressed(proxy.folder / "a.npz", u=ROWS)
    with pytest.raises(UnknownFormatError, match="at a URL must not be compressed"):
        ooc.open(f"{proxy.url}/a.npz", "u")


@pytest.mark.parametrize(
    "part", [range(2_000_000, 3_000_000), range(1_600_000, 2_000_000)], ids=str
)
def test_an_archive_of_which_the_end_can_not_be_had(proxy: FaultProxy, part: range) -> None:
    """The file is not damaged. Its directory is larger than a block of metadata."""
    with zipfile.ZipFile(proxy.folder / "many.npz", "w") as archive:
        for number in range(5000):
            archive.writestr(f"{number:0140}.npy", bytes(160))
    proxy.plan = lambda _, record: Refuse(403) if (record.start or 0) in part else None
    with pytest.raises(SourceError, match="403"):
        ooc.open(f"{proxy.url}/many.npz", "u")


def test_a_server_that_went_away(tmp_path: Path) -> None:
    write(tmp_path)
    with RangeServer(tmp_path) as server:
        views = {kind: opened(server, kind) for kind in KINDS}
    for kind, view in views.items():
        with pytest.raises(SourceError, match="reachable") as caught:
            view.take([3])
        assert caught.value.rows is not None, kind
        assert 3 in caught.value.rows
        assert "?." not in caught.value.message, kind
    assert link().held == 0


@pytest.mark.parametrize("after", [None, 3])
@pytest.mark.parametrize("etag", [True, False])
def test_a_server_that_stays_silent_is_an_error(
    tmp_path: Path, etag: bool, after: int | None, monkeypatch: pytest.MonkeyPatch,
    no_patience: None,
) -> None:  # fmt: skip
    monkeypatch.setattr(addresses, "_RETRIES", 2)
    write(tmp_path)
    with RangeServer(tmp_path, etag=etag) as server, FaultProxy(server.url) as proxy:
        view = opened(proxy, "npy")
        proxy.plan = lambda *_: Stall(after=after)
        with pytest.raises(SourceError, match="no answer in time"):
            view.take([3])


def test_an_address_at_which_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be mistyped: after the few tries of the client, which pause for less than a second."""
    asked = Counter[str]()
    ask = Link._ask

    async def noted(self: Link, address: Any, *given: Any) -> Any:
        asked[address.url] += 1
        return await ask(self, address, *given)

    monkeypatch.setattr(Link, "_ask", noted)
    monkeypatch.setattr(link(), "_reached", set())  # servers of other tests had ports too
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        with pytest.raises(SourceError, match=rf"'127.0.0.1:{port}' refuses connections.*port"):
            ooc.open(f"http://127.0.0.1:{port}/a.npy")
    with pytest.raises(SourceError, match=r"'no-such-host\.invalid' is not\. .*reachable"):
        ooc.open("http://no-such-host.invalid/a.npy")
    assert set(asked.values()) == {1}


def test_a_server_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has answered before is asked again for longer."""
    write(tmp_path)
    with RangeServer(tmp_path) as server:
        view = opened(server, "npy")
    ask, asked = Link._ask, 0

    async def noted(self: Link, address: Any, *given: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 4:
            asked_again.enter_context(RangeServer(tmp_path, port=int(address.root[-5:])))
        return await ask(self, address, *given)

    monkeypatch.setattr(Link, "_ask", noted)
    with ExitStack() as asked_again:
        assert_array_equal(view.take([3]), ROWS[[3]])
    assert asked == 4


def test_what_a_server_sends_with_a_refusal_is_nowhere_in_the_error(proxy: FaultProxy) -> None:
    """It may quote what was signed."""

    async def secret(exchange: Exchange) -> Answer:
        return Answer(403, {"Content-Length": "15"}, whole(b"AbraCadabra0815"))

    proxy.plan = lambda *_: secret
    with pytest.raises(SourceError, match="403") as caught:
        opened(proxy, "npy")
    error: BaseException | None = caught.value
    while error is not None:
        assert "Cadabra" not in repr(error) + str(error)
        error = error.__cause__ or error.__context__


HEADERS = {
    "no part": ({"Content-Range": None}, "Content-Range header not present"),
    "no size": ({"Content-Range": "bytes 0-127/*"}, "parse value for CONTENT_RANGE"),
    "no such date": ({"Last-Modified": "yesterday"}, "Invalid last modified"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_no_client_reads_are_told_at_once(proxy: FaultProxy, name: str) -> None:
    other, words = HEADERS[name]
    proxy.plan = lambda number, record: Headers(tuple(other.items()))
    with pytest.raises(SourceError, match=words):
        opened(proxy, "npy")
    assert [record.path for record in proxy.log].count("/a.npy") == 1


def test_an_empty_object_and_a_name_that_can_not_be_asked_for(proxy: FaultProxy) -> None:
    (proxy.folder / "empty.npy").touch()
    for plan in (lambda number, record: None), (lambda number, record: Whole()):  # as nginx answers
        proxy.plan = plan
        with pytest.raises(SourceError, match="is empty"):
            ooc.open(f"{proxy.url}/empty.npy")
    for name in ("b//a.npy", "../a.npy", "a%0A.npy"):
        with pytest.raises(SourceError, match="Could not parse path"):
            ooc.open(f"{proxy.url}/{name}")


KINDS_OF_FAULTS: list[Fault] = [
    Drop(),
    Drop(reset=False),
    Refuse(503),
    Refuse(429),
    Refuse(500),
    Half(),
    Half(0.9, reset=True),
    WrongLength(-1),
    WrongLength(7),
    WrongRange(),
    WrongRange(-1),
]


def check(error: OocdataError, proxy: FaultProxy) -> None:
    assert isinstance(error, SourceError)
    assert error.path is not None
    assert error.path.startswith(proxy.url)


def read_all(proxy: FaultProxy, kind: str, seed: int) -> int:
    """Read an epoch; return the number of batches. They are right, or an error of ours ends it."""
    chunk_cache.forget()
    count = 0
    try:
        missing = None if kind in ("npy", "contiguous") else "error"
        loader = opened(proxy, kind, missing).batches(16, shuffle=True, seed=seed)
        for step, batch in enumerate(loader):
            assert_array_equal(batch, ROWS[loader.positions(step)])
            count += 1
    except OocdataError as error:
        check(error, proxy)
    return count


def test_a_hundred_faults(proxy: FaultProxy) -> None:
    run_faults(proxy, 100)


@pytest.mark.thorough
def test_a_thousand_faults(proxy: FaultProxy, no_patience: None) -> None:
    run_faults(proxy, 1000, Stall(), Stall(after=10))


def run_faults(proxy: FaultProxy, count: int, *more: Fault) -> None:
    """Read in turn until this many requests have failed, some too often for their retries."""
    plan = RandomFaults(1, 0.3, [*KINDS_OF_FAULTS, *more], in_a_row=20)
    proxy.plan = plan
    batches = seed = 0
    while plan.injected < count:
        for kind in KINDS:
            batches += read_all(proxy, kind, seed)
            seed += 1
        assert_idle(proxy)
    assert batches > seed


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    folder = tmp_path_factory.mktemp("faults")
    write(folder)
    with RangeServer(folder) as server, FaultProxy(server.url) as made:
        yield made


def check_rows(error: SourceError, read: set[int]) -> None:
    assert error.rows is not None
    assert read & set(error.rows)


@settings(max_examples=40)
@given(data=st.data())
def test_random_faults_over_random_boxes(everything: FaultProxy, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    each = st.sampled_from([None, None, *KINDS_OF_FAULTS, Refuse(404), Refuse(403), Whole()])
    faults = data.draw(st.lists(each, max_size=12))
    lengths = [data.draw(st.integers(1, length)) for length in (10, 4, 6)]
    ends = np.array(ROWS.shape) - lengths + 1
    origins = np.array(
        [[data.draw(st.integers(0, int(end) - 1)) for end in ends] for _ in range(3)], np.int64
    )
    extent, out = Extent.of(tuple(lengths)), np.full((3, *lengths), -1, "f4")
    chunk_cache.forget()
    everything.plan = lambda number, record: None
    missing = None if kind in ("npy", "contiguous") else "error"  # as a refusal looks
    source = opened(everything, kind, missing).source
    everything.reset()
    everything.plan = lambda number, record: faults[number] if number < len(faults) else None
    try:
        source.read(origins, extent, out)
    except SourceError as error:
        check(error, everything)
        own = {row for box in origins[:, 0].tolist() for row in range(box, box + lengths[0])}
        check_rows(error, own)
    else:
        assert_array_equal(out, boxes_of(ROWS, origins, extent))
    assert_idle(everything)
