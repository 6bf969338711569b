"""Rewrite a Zarr array, in a store or a folder, while it is open: an error, never a mixed batch."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from forked import in_a_fork
from numpy.testing import assert_array_equal
from servers.counted import Record
from servers.http import Answer, Request
from servers.ranges import RangeServer

import oocdata as ooc
from oocdata.engines.cache import cache as chunk_cache
from oocdata.engines.prefetch import Fetch, prefetched
from oocdata.errors import SourceError
from oocdata.formats.zarr.rewritten import MetadataFile
from oocdata.stores.link import REQUESTS, link

ROWS = np.arange(64 * 2560, dtype="i4").reshape(64, 2560)
"""10 KiB a row: smaller ones are read many at a time."""

FORMATS: dict[str, dict[str, Any]] = {
    "v3": {"zarr_format": 3, "chunks": (4, 2560)},
    "v2": {"zarr_format": 2, "chunks": (4, 2560)},
    "shards": {"zarr_format": 3, "chunks": (2, 2560), "shards": (4, 2560)},
}

OTHERS: dict[str, dict[str, Any]] = {
    "numbers": {"data": ROWS + 1},
    "shape of chunks": {"chunks": (8, 1280)},
    "dtype": {"data": ROWS.view("f4")},
    "codec": {"data": ROWS + 1, "compressors": "auto"},
}
"""Arguments by which an array is written anew. Without codecs, chunks of all but the last look like
those of the first array."""

_seconds = count(10, 10)


def write(path: Path, kind: str, **other: Any) -> None:
    options = {"data": ROWS, "compressors": None, **FORMATS[kind], **other}
    if "shards" in options and "chunks" in other:
        options.update(chunks=(4, 1280), shards=(8, 1280))
    zarr.create_array(path, **options)


def replace(path: Path, kind: str, other: str, order: str) -> None:
    """Write another array of the same name; its files are some seconds younger."""
    new = path.with_name("new")
    write(new, kind, **OTHERS[other])
    seconds = next(_seconds)
    files = [one for one in new.rglob("*") if one.is_file()]
    files.sort(key=lambda one: one.name in ("zarr.json", ".zarray"), reverse=order == "before")
    for file in files:
        target = path / file.relative_to(new)
        status = file.stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + seconds * 10**9))
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    shutil.rmtree(new)


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over new connections, a rewriting during the first batch may be found in the second."""
    monkeypatch.setattr(link(), "_answers", REQUESTS)
    chunk_cache.forget()


class Rewriting(RangeServer):
    """A server whose array is written anew before a chunk is sent."""

    before: int = -1
    change: Any = None

    async def answer(self, request: Request, record: Record) -> Answer:
        name = request.target.rpartition("/")[2]
        if name not in ("zarr.json", ".zarray", ".zattrs") and self.change is not None:
            self.before -= 1
            if self.before < 0:
                change, self.change = self.change, None
                change()
        return await super().answer(request, record)


@pytest.fixture(params=[True, False], ids=["ETag", "no ETag"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rewriting]:
    with Rewriting(tmp_path, etag=request.param) as made:
        yield made


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_an_array_that_is_rewritten_between_two_reads(
    server: Rewriting, kind: str, other: str, order: str
) -> None:
    """The second one reads objects that were not read before."""
    path = server.folder / "a.zarr"
    write(path, kind)
    view = ooc.open(f"{server.url}/a.zarr")
    assert_array_equal(np.asarray(view[:4]), ROWS[:4])
    replace(path, kind, other, order)
    with pytest.raises(SourceError, match=r"changed|written anew") as caught:
        np.asarray(view[32:40])
    assert caught.value.rows is not None
    assert set(caught.value.rows) & set(range(32, 40))
    assert caught.value.path is not None
    assert caught.value.path.startswith(server.url)


@pytest.mark.parametrize("number", [0, 1, 15])
@pytest.mark.parametrize("kind", FORMATS)
def test_an_array_that_is_rewritten_between_two_requests(
    server: Rewriting, kind: str, number: int
) -> None:
    """Also between those of one batch: some of its chunks are of either array."""
    path = server.folder / "a.zarr"
    write(path, kind)
    view = ooc.open(f"{server.url}/a.zarr")
    server.before, server.change = number, lambda: replace(path, kind, "shape of chunks", "before")
    loader = view.batches(32, shuffle=False)

    def read() -> None:
        for step, found in enumerate(loader.epoch(0)):
            assert_array_equal(found, ROWS[loader.positions(step)])

    with pytest.raises(SourceError, match=r"changed|written anew") as caught:
        read()
    assert caught.value.rows is not None


def test_over_new_connections_only_the_first_run_is_compared_before_it_comes(
    server: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing would confirm the objects of the others."""
    write(server.folder / "a.zarr", "v3")
    reader = ooc.open(f"{server.url}/a.zarr").source.reader
    places = np.arange(8)[:, None] * [1, 0]
    monkeypatch.setattr(link(), "_answers", 0)

    def asked() -> list[str]:  # without that for what is not there, which opening does not await
        return [one.path for one in server.log if one.path != "/a.zarr"]

    for first, before in ((0, 1), (4, 0)):
        server.reset()
        server.hold()
        with prefetched(reader.fetches(places[first : first + 4])):
            while len(asked()) < 4 + before:
                threading.Event().wait(0.001)
            assert len(asked()) == len(set(asked())) == 4 + before
            server.release()
            reader.read_chunks(places[first : first + 4], np.empty((4, 4, 2560), "i4"))
            reader.check()
        assert len(asked()) == 5


def test_a_run_does_not_wait_for_the_comparison_of_a_later_one(
    server: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(server.folder / "a.zarr", "v3")
    reader = ooc.open(f"{server.url}/a.zarr").source.reader
    places = np.arange(8)[:, None] * [1, 0]
    waited: list[bool] = []
    monkeypatch.setattr(MetadataFile, "_wait", lambda self, one: waited.append(one.done()))
    with ExitStack() as stack:
        stack.enter_context(prefetched(reader.fetches(places[:4])))
        reader._described._comparisons[0][-1].result()
        server.hold()
        stack.enter_context(prefetched(reader.fetches(places[4:])))
        server.wait_for(4)
        outs = np.empty((4, 4, 2560), "i4")
        reader.read_chunks(places[:4], outs)
        server.release()
        while link()._in_flight or not all(map(reader.objects.known, range(8))):
            threading.Event().wait(0.001)
        reader.check()
    assert waited in ([], [True])
    assert_array_equal(outs.reshape(16, 2560), ROWS[:16])


@pytest.mark.parametrize("kind", ["v3", "shards"])
def test_a_source_that_is_read_without_a_dataset(server: Rewriting, kind: str) -> None:
    path = server.folder / "a.zarr"
    write(path, kind)
    source = ooc.open(f"{server.url}/a.zarr").source
    replace(path, kind, "numbers", "after")
    with pytest.raises(SourceError, match="changed"):
        np.asarray(ooc.open(source)[:4])


@pytest.mark.parametrize("kind", FORMATS)
def test_metadata_that_are_rewritten_within_a_second(tmp_path: Path, kind: str) -> None:
    """Without ETags, with the same length and time: their bytes are compared."""
    path = tmp_path / "a.zarr"
    write(path, kind)
    with RangeServer(tmp_path, etag=False) as server:
        view = ooc.open(f"{server.url}/a.zarr")
        (file,) = [one for one in path.iterdir() if one.name in ("zarr.json", ".zarray")]
        status, text = file.stat(), file.read_bytes()
        other = text.replace(b"int32", b"int16").replace(b"<i4", b"<f4")
        assert len(other) == len(text)
        assert other != text
        file.write_bytes(other)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(SourceError, match="changed"):
            np.asarray(view[:4])


@pytest.mark.parametrize("kind", FORMATS)
def test_an_array_that_is_deleted(server: Rewriting, kind: str) -> None:
    """Its chunks are not those of a writer who leaves out the fill value."""
    path = server.folder / "a.zarr"
    write(path, kind)
    view = ooc.open(f"{server.url}/a.zarr", missing="fill")
    assert_array_equal(np.asarray(view[:4]), ROWS[:4])
    shutil.rmtree(path)
    with pytest.raises(SourceError, match="must exist"):
        np.asarray(view[32:40])


@pytest.mark.parametrize("kind", FORMATS)
def test_metadata_are_compared_at_most_once_a_run_and_not_for_what_was_read_before(
    server: Rewriting, kind: str
) -> None:
    write(server.folder / "a.zarr", kind)
    view = ooc.open(f"{server.url}/a.zarr")
    for epoch in range(3):
        chunk_cache.forget()
        server.reset()
        loader = view.batches(16, shuffle=False)
        for step, found in enumerate(loader.epoch(epoch, parallel=2)):
            assert_array_equal(found, ROWS[loader.positions(step)])
        compared = [one for one in server.log if one.path.endswith(("zarr.json", ".zarray"))]
        if epoch == 0:  # shards that were planned together may be confirmed by one comparison
            # The first, over new connections, does not wait for its objects. They may come after
            # those of the next run, and are then confirmed by one more.
            assert 0 < len(compared) <= len(loader.pass_from(0)) + 1
        else:
            assert len(compared) <= (epoch == 1)


@pytest.mark.parametrize("awaited", ["metadata", "index of a shard"])
def test_a_fork_during_a_request(
    server: Rewriting, monkeypatch: pytest.MonkeyPatch, awaited: str
) -> None:
    """Its answer would never come to the child."""
    write(server.folder / "a.zarr", "shards")
    source: Any = ooc.open(f"{server.url}/a.zarr").source
    reader = source.reader

    async def for_ever(*arguments: Any, **options: Any) -> None:
        await asyncio.Event().wait()

    def read() -> None:
        signal.alarm(20)
        if awaited == "metadata":
            source.check()
        else:
            list(reader._shards_of([0]))

    with monkeypatch.context() as patched:
        patched.setattr(link(), "get", for_ever)
        reader._indices[0] = link().start(lambda: reader._index_of(0))
        reader._described.expect(0, 1)
        reader._described.decoding([0])
        with reader._described.prefetch([Fetch(reader._described, [0])]):
            assert "forked after one was read from" in in_a_fork(read)
        reader._indices.pop(0).cancel()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_local_folder_that_is_rewritten(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.zarr"
    for other in OTHERS:
        for order in ("before", "after"):
            chunk_cache.forget()
            write(path, kind)
            view = ooc.open(path)
            assert_array_equal(np.asarray(view[:4]), ROWS[:4])
            replace(path, kind, other, order)
            with pytest.raises(SourceError, match=r"changed|written anew"):
                np.asarray(view[32:40])
            shutil.rmtree(path)
