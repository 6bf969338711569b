"""Test conversion to Zarr in a store: the same numbers, complete or absent, resumable."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fork_server
import h5py
import numpy as np
import obstore
import pytest
import zarr
from numpy.testing import assert_array_equal
from servers.program import UnavailableError
from servers.s3 import S3
from zarr.storage import ObjectStore

import oocdata as ooc
from oocdata.errors import ArgumentError, DamagedChunkError, SourceError
from oocdata.memory import lowered_limit
from oocdata.stores import address
from oocdata.tools.convert import convert
from oocdata.tools.convert.planning import plan_of
from oocdata.tools.info import contents
from oocdata.writers import output, upload

ROWS = np.random.default_rng(0).integers(0, 99, (100, 16, 24)).astype("i4")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    try:
        with S3() as server, pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            address.client.cache_clear()
            yield server
    except UnavailableError as error:
        pytest.skip(str(error))
    finally:
        address.client.cache_clear()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("u", data=ROWS, chunks=(7, 16, 24), compression="gzip")
        made.attrs["unit"] = "m/s"
    return tmp_path / "a.h5"


@pytest.fixture
def no_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each chunk be an object."""
    monkeypatch.setattr("oocdata.tools.convert.planning.SHARD_BYTES", 1)


@pytest.fixture
def little_memory() -> Iterator[None]:
    with lowered_limit(1 << 20):
        yield


def objects(s3: S3, prefix: str) -> list[str]:
    found = obstore.list(s3.store(), prefix).collect()
    return sorted(one["path"] for one in found)


def left_here(source: Path) -> list[str]:
    return os.listdir(source.parent / "tmp")


@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": 9}, {"chunks": (9, 8, 24)},
     {"codec": "none", "to_key": "flow/u"}, {"chunks": (100, 1, 24)}],
    ids=["usual", "chunks", "cut rows", "group", "through a file"],
)  # fmt: skip
def test_the_result_is_the_source(
    s3: S3, source: Path, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = f"{request.node.callspec.id.replace(' ', '-')}.zarr"
    done = convert(source, f"s3://data/{name}", verify=True, **options)
    assert done.verified
    key = options.get("to_key")
    assert_array_equal(np.asarray(ooc.open(f"s3://data/{name}", key)), ROWS)
    # By another library, too.
    array: Any = zarr.open(ObjectStore(s3.store(name), read_only=True), mode="r")
    array = array[key] if key else array
    assert_array_equal(array[:], ROWS)
    assert array.attrs["unit"] == "m/s"
    stored = obstore.list(s3.store(), name).collect()
    assert done.stored_bytes >= sum(one["size"] for one in stored if "/c/" in one["path"])
    assert left_here(source) == []


def test_every_tool_takes_a_glob_of_a_store(s3: S3, source: Path) -> None:
    for number in range(3):
        np.save(source.with_name("part.npy"), ROWS[:40])
        s3.store().put(f"parts/part{number}.npy", source.with_name("part.npy"))
        s3.store("parts").put(f"run{number}.zarr/.zgroup", b'{"zarr_format": 2}')
    url = "s3://data/parts/part*.npy"
    (found,) = contents(url).described
    assert (found.files, found.shape) == (3, (120, 16, 24))
    assert [one.path for one in ooc.check(url).datasets] == [
        f"s3://data/parts/part{number}.npy" for number in range(3)
    ]
    assert ooc.stats(url).shape == (120, 16, 24)
    done = convert(url, "s3://data/parts/all.zarr", chunks=16)
    assert done.plan.nbytes == 3 * ROWS[:40].nbytes
    assert_array_equal(np.asarray(ooc.open("s3://data/parts/all.zarr"))[40:80], ROWS[:40])
    assert "fetch  " in str(ooc.open(url).batches(16).explain())
    with pytest.raises(SourceError, match="match at least one"):
        ooc.check("s3://data/parts/none*.npy")


def test_a_plan_says_where_and_how_much(s3: S3, source: Path) -> None:
    plan = str(plan_of(ooc.open(source), "s3://data/plan.zarr"))
    assert "\nto         s3://data/plan.zarr\n" in plan
    assert re.search(r"\nstore      \S+ \w+ before compression", plan)
    assert "\ndisk " not in plan
    assert objects(s3, "plan.zarr") == []


def test_an_array_in_a_group(s3: S3, source: Path) -> None:
    convert(source, "s3://data/more.zarr", to_key="a/u")
    convert("s3://data/more.zarr", "s3://data/other.zarr", key="a/u")
    for name, key in (("more", "a/u"), ("other", None)):
        assert_array_equal(np.asarray(ooc.open(f"s3://data/{name}.zarr", key)), ROWS)


def test_what_is_there_is_never_replaced(s3: S3, source: Path) -> None:
    convert(source, "s3://data/there.zarr")
    before = objects(s3, "there.zarr")
    s3.store().put("foreign.zarr/c/0", b"1")
    for name, key, message in (
        ("there.zarr", None, "must not exist yet"),
        ("there.zarr", "u", "must not exist yet"),
        ("foreign.zarr", None, "has some, but no metadata"),
    ):
        with pytest.raises(ArgumentError, match=message):
            convert(source, f"s3://data/{name}", to_key=key)
    with pytest.raises(ArgumentError, match="`overwrite`"):
        convert(source, "s3://data/there.zarr", overwrite=True)
    with pytest.raises(ArgumentError, match="apart from the source"):
        convert("s3://data/there.zarr", "s3://data/there.zarr/b.zarr")
    assert objects(s3, "there.zarr") == before
    assert left_here(source) == []


_KILLED = """
import os, signal, sys
import oocdata.tools.convert as module

module._verify = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
module.convert(sys.argv[1], sys.argv[2], to_key=sys.argv[3] or None)
"""


@pytest.mark.parametrize("key", ["", "a/u"])
def test_killed_after_the_metadata_were_placed(s3: S3, source: Path, key: str) -> None:
    url = f"s3://data/killed{len(key)}.zarr"
    environment = {**os.environ, "TMPDIR": str(source.parent / "tmp")}
    done = fork_server.run(_KILLED, source, url, key, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.raises(ArgumentError, match=f"delete '{url}/zarr.json'; the same command then"):
        convert(source, url, to_key=key or None)
    s3.store().delete(f"{url.removeprefix('s3://data/')}/zarr.json")
    again = convert(source, url, to_key=key or None, verify=True)
    assert again.resumed
    assert again.verified
    assert_array_equal(np.asarray(ooc.open(url, key or None)), ROWS)
    assert left_here(source) == []


@pytest.mark.parametrize("url", ["s3://data/a.h5", "s3://data/a.npy", "https://host/a.zarr"])
def test_only_zarr_and_only_to_stores(source: Path, url: str) -> None:
    with pytest.raises(ArgumentError, match=r"must be Zarr \(.zarr\) at s3://"):
        convert(source, url)
    if url.endswith(".zarr"):
        with pytest.raises(ArgumentError, match="must lie on a disk"):
            ooc.create(url, dtype="f4", element_shape=())


def long(source: Path) -> Path:
    """Write the rows ten times, so that a conversion takes several steps."""
    with h5py.File(source.with_name("long.h5"), "w") as file:
        file["u"] = np.tile(ROWS, (10, 1, 1))
    return source.with_name("long.h5")


def failing(monkeypatch: pytest.MonkeyPatch, after: int, error: Exception) -> None:
    """Let uploads fail after a number of them."""
    put, count = upload._put, 0

    def fails(where: Any, data: bytes) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise error
        put(where, data)

    monkeypatch.setattr(upload, "_put", fails)


@pytest.mark.usefixtures("little_memory", "no_shards")
def test_what_was_begun_is_gone_on_with(
    s3: S3, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = "s3://data/begun.zarr", {"chunks": 50}
    source = long(source)
    monkeypatch.setattr(output, "SAVE_BYTES", 1)
    with monkeypatch.context() as patch:
        failing(patch, 12, SourceError("the store went away.", path=url))
        with pytest.raises(SourceError, match="went away") as caught:
            convert(source, url, **options)  # type: ignore[arg-type]
    assert "is kept below" in caught.value.__notes__[0]
    there = objects(s3, "begun.zarr")
    assert len(there) == 12
    assert not any(name.endswith("zarr.json") for name in there)
    with pytest.raises(SourceError):
        ooc.open(url)
    puts: list[str] = []
    put = upload._put
    monkeypatch.setattr(
        upload, "_put", lambda where, data: (puts.append(where.name), put(where, data))
    )
    done = convert(source, url, **options)  # type: ignore[arg-type]
    assert done.resumed
    assert puts[-1] == "begun.zarr/zarr.json"
    assert len(puts) < 15  # 20 chunks and the metadata, but for those that were there
    assert_array_equal(np.asarray(ooc.open(url)), np.tile(ROWS, (10, 1, 1)))
    assert left_here(source) == []


@pytest.mark.usefixtures("little_memory", "no_shards")
def test_what_was_begun_and_is_gone_is_begun_anew(
    s3: S3, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks in the local journal may have been deleted from the store."""
    url, options = "s3://data/again.zarr", {"chunks": 50}
    source = long(source)
    monkeypatch.setattr(output, "SAVE_BYTES", 1)
    with monkeypatch.context() as patch:
        failing(patch, 12, SourceError("the store went away.", path=url))
        with pytest.raises(SourceError, match="went away"):
            convert(source, url, **options)  # type: ignore[arg-type]
    for name in objects(s3, "again.zarr"):
        s3.store().delete(name)
    done = convert(source, url, **options)  # type: ignore[arg-type]
    assert not done.resumed
    assert_array_equal(np.asarray(ooc.open(url)), np.tile(ROWS, (10, 1, 1)))
    assert left_here(source) == []


@pytest.mark.usefixtures("no_shards")
def test_what_was_begun_otherwise_is_cleared_away(
    s3: S3, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "s3://data/anew.zarr"
    monkeypatch.setattr(output, "SAVE_BYTES", 1)
    with monkeypatch.context() as patch:
        failing(patch, 12, SourceError("the store went away.", path=url))
        with pytest.raises(SourceError, match="went away"), lowered_limit(1 << 20):
            convert(long(source), url, chunks=50)
    assert left_here(source)
    done = convert(source, url, chunks=50)
    assert not done.resumed
    assert objects(s3, "anew.zarr") == [
        "anew.zarr/c/0/0/0", "anew.zarr/c/1/0/0", "anew.zarr/zarr.json",
    ]  # fmt: skip


@pytest.mark.usefixtures("no_shards")
def test_nothing_is_left_where_nothing_can_be_gone_on_with(
    s3: S3, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, 2, SourceError("the store went away."))
    with pytest.raises(SourceError, match="went away"):
        convert(ooc.open(ROWS), "s3://data/gone.zarr", chunks=5)
    assert objects(s3, "gone.zarr") == []
    assert left_here(source) == []


@pytest.mark.usefixtures("no_shards")
def test_a_result_that_differs_is_taken_away(
    s3: S3, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = upload._put

    def flips(where: Any, data: bytes) -> None:
        if where.name.endswith("c/3/0/0"):
            data = bytes(data[:-1]) + bytes([data[-1] ^ 1])
        put(where, data)

    monkeypatch.setattr(upload, "_put", flips)
    with pytest.raises(DamagedChunkError, match="must hold every bit") as caught:
        convert(source, "s3://data/wrong.zarr", chunks=5, codec="none", verify=True)
    assert caught.value.rows is not None
    assert set(caught.value.rows) <= set(range(15, 20))
    assert objects(s3, "wrong.zarr") == []
    assert left_here(source) == []


def test_a_store_that_refuses_to_be_written(
    s3: S3, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PermissionDeniedError(Exception):
        pass

    def put(*_: Any, **__: Any) -> None:
        raise PermissionDeniedError("<secret>")

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(SourceError, match="403") as caught:
        convert(source, "s3://data/refused.zarr")
    assert "secret" not in str(caught.value)
    assert objects(s3, "refused.zarr") == []
