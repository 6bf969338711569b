"""Test that tools report the same of a file at a URL as of the file on the disk.

And test what explain, profile and bench report of the link, against the counts of a server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore.store
import pytest
import zarr
from numpy.typing import NDArray
from servers.ranges import RangeServer

import oocdata as ooc
from oocdata.advice import Measured, advise, reading_of
from oocdata.engines.cache import cache
from oocdata.errors import ArgumentError, SourceError
from oocdata.loader import Loader
from oocdata.runs import Run
from oocdata.stores import link as link_module
from oocdata.tools import profile as profiling
from oocdata.tools.bench import bench
from oocdata.tools.info import contents
from oocdata.tools.opening import Opening
from oocdata.tools.profile import LinkUse, pacing

ROWS = np.random.default_rng(0).normal(size=(120, 16, 24)).astype("f4")

FILES: list[tuple[str, str | None, dict[str, Any]]] = [
    ("a.npy", None, {}),
    ("a.npz", "x", {}),
    ("a.bin", None, {"dtype": "f4", "shape": (-1, 16, 24)}),
    ("a.h5", "gz", {}),
    ("a.h5", "demos/*/x", {}),
    ("v3.zarr", None, {}),
    ("sharded.zarr", None, {}),
    ("group.zarr", "x/u", {}),
]
IDS = [f"{name}-{key}" for name, key, _ in FILES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    np.save(path / "a.npy", ROWS)
    np.savez(path / "a.npz", x=ROWS, y=ROWS[:10])
    ROWS.tofile(path / "a.bin")
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("gz", data=ROWS, chunks=(8, 16, 24), compression="gzip", shuffle=True)
        file["demos/0/x"], file["demos/1/x"] = ROWS[:50], ROWS[50:]
    zarr.create_array(path / "v3.zarr", data=ROWS, chunks=(8, 16, 24))
    zarr.create_array(path / "sharded.zarr", data=ROWS, chunks=(8, 16, 24), shards=(40, 16, 24))
    zarr.create_group(path / "group.zarr").create_array("x/u", data=ROWS, chunks=(8, 16, 24))
    with warnings.catch_warnings(action="ignore"):  # that they are no part of the specification
        zarr.consolidate_metadata(path / "group.zarr")
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(folder) as found:
        yield found


def same(found: Any, url: str, path: str) -> Any:
    """Return a result as JSON, with the URL replaced by the path."""
    return json.loads(json.dumps(found.to_json(), default=str).replace(url, path))


@pytest.mark.parametrize(("name", "key", "options"), FILES, ids=IDS)
def test_every_tool_says_the_same_as_of_the_file(
    folder: Path, server: RangeServer, tmp_path: Path, name: str, key: Any, options: Any
) -> None:
    url, path = f"{server.url}/{name}", str(folder / name)
    opening, local = (Opening.of(target, key, **options) for target in (url, path))
    assert same(ooc.stats(opening), url, path) == same(ooc.stats(local), url, path)
    there, here = ooc.check(opening), ooc.check(local)
    assert there.healthy()
    assert same(there, url, path) == same(here, url, path)
    (described,) = contents(opening).described
    (other,) = contents(local).described
    assert (described.shape, described.storage) == (other.shape, other.storage)
    assert f"ooc.open('{url}'" in str(described)
    assert "\nstored " in str(described)
    ooc.convert(ooc.open(url, key, **options), tmp_path / "b.npy", verify=True)
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), ROWS)


def test_all_datasets_of_a_file_at_a_url(folder: Path, server: RangeServer) -> None:
    for name in ("a.h5", "a.npz", "group.zarr"):
        there, here = contents(f"{server.url}/{name}"), contents(folder / name)
        assert [one.key for one in there.datasets] == [one.key for one in here.datasets]
        checked = ooc.check(f"{server.url}/{name}").datasets
        assert [one.key for one in checked] == [
            one.key for one in ooc.check(folder / name).datasets
        ]


def test_a_picture_of_what_lies_at_a_url(server: RangeServer, tmp_path: Path) -> None:
    from oocdata.tools.preview import preview

    found = preview(f"{server.url}/a.h5", "gz")
    assert server.url in str(found)
    found.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size


def test_what_is_damaged_at_a_url(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:50_000] + bytes([whole[50_000] ^ 1]) + whole[50_001:])
    (tmp_path / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:100_000])
    (tmp_path / "a.h5").write_bytes((folder / "a.h5").read_bytes()[:-3000])
    shutil.copytree(folder / "v3.zarr", tmp_path / "a.zarr")
    (tmp_path / "a.zarr/c/2/0/0").unlink()
    (tmp_path / "a.zarr/c/4/0/0").write_bytes(bytes(9))
    with RangeServer(tmp_path) as server:
        for name, kind in (("a.npz", "damaged"), ("a.npy", "truncated")):
            url, path = f"{server.url}/{name}", str(tmp_path / name)
            there, here = ooc.check(url), ooc.check(path)
            assert same(there, url, path)["findings"] == same(here, url, path)["findings"]
            assert kind in {one.kind for one in there.findings}
        assert [one.kind for one in ooc.check(f"{server.url}/a.h5").findings] == ["truncated"]
        chunks = ooc.check(f"{server.url}/a.zarr").findings
        assert {one.kind: one.rows for one in chunks} == {
            "unwritten": (range(16, 24),),
            "damaged": (range(32, 40),),
        }
        for name in ("none.h5", "none.zarr"):
            with pytest.raises(SourceError, match="must exist"):
                ooc.check(f"{server.url}/{name}")


def test_manifests_lie_on_disks(folder: Path, server: RangeServer, tmp_path: Path) -> None:
    url = f"{server.url}/a.h5"
    manifest = tmp_path / "a.manifest"
    assert ooc.check(url, write_manifest=manifest).healthy()
    assert ooc.check(url, manifest=manifest).compared
    assert ooc.check(folder / "a.h5", manifest=manifest).compared
    for name in ("manifest", "write_manifest"):
        with pytest.raises(ArgumentError, match="path of a manifest for a URL; got True"):
            ooc.check(url, **{name: True})
    with pytest.raises(ArgumentError, match="`manifest` must be a path on this machine"):
        ooc.check(url, manifest=f"{url}.manifest")
    rows = ooc.open(url, "gz", verify=manifest)
    np.testing.assert_array_equal(rows[3:7], ROWS[3:7])


def test_no_manifest_of_rows_that_were_not_read(tmp_path: Path) -> None:
    """At a URL, rows of an absent chunk are not read: a checksum of them would be wrong."""
    rows = zarr.create_array(tmp_path / "a.zarr", shape=(8, 3), chunks=(2, 3), dtype="f4",
                             fill_value=-1)  # fmt: skip
    rows[4:] = 1
    with RangeServer(tmp_path) as server:
        health = ooc.check(f"{server.url}/a.zarr", write_manifest=tmp_path / "a.manifest")
    assert [one.kind for one in health.findings] == ["unwritten"]
    assert health.written == ()
    assert not (tmp_path / "a.manifest").exists()


def test_a_path_written_as_a_url(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a b.npy").write_bytes((folder / "a.npy").read_bytes())
    url = (tmp_path / "a b.npy").as_uri()
    assert "%20" in url
    assert ooc.check(url).healthy()
    assert "\non disk " in str(contents(url))
    ooc.convert(url, (tmp_path / "c d.zarr").as_uri())
    assert ooc.open(tmp_path / "c d.zarr").shape == ROWS.shape


def test_a_store_that_was_opened(folder: Path) -> None:
    store = obstore.store.LocalStore(str(folder))
    assert ooc.stats(ooc.open("a.npy", store=store)).shape == ROWS.shape
    assert ooc.check(ooc.open("a.npy", store=store)).healthy()
    view = ooc.open("a.h5", "gz", store=store)
    assert contents(view).described[0].shape == ROWS.shape


# What is said of the link.


@pytest.mark.parametrize(("name", "key", "options"), FILES, ids=IDS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_first_read_costs_what_was_said(
    server: RangeServer, name: str, key: Any, options: Any, shuffle: bool
) -> None:
    cache.forget()
    loader = ooc.open(f"{server.url}/{name}", key, **options).batches(16, shuffle=shuffle, seed=3)
    said = loader.explain().fetching
    assert said is not None
    server.reset()
    loader.read(Run(epoch=0, start=0, stop=1))
    # Besides, the metadata of a Zarr array is compared.
    data = [one for one in server.log if not one.path.endswith(("zarr.json", ".zarray"))]
    assert len(server.log) - len(data) <= 1
    assert len(data) == said.first.requests
    if said.first.exact:
        assert sum(one.nbytes for one in data) == said.first.nbytes
    assert said.trips == 1
    cache.forget()
    server.reset()
    together = loader.steps_together
    for step in range(0, len(loader), together):
        loader.read(Run(epoch=0, start=step, stop=min(len(loader), step + together)))
    assert 0.4 * server.nbytes <= said.epoch.nbytes <= 2 * server.nbytes
    if said.epoch.exact:
        assert (server.requests, server.nbytes) == said.epoch[:2]


def test_what_is_in_memory_is_not_fetched(server: RangeServer) -> None:
    cache.forget()
    loader = ooc.open(f"{server.url}/a.h5", "gz").batches(16, shuffle=True)
    assert "fetch  " in str(loader.explain())
    list(loader.epoch(0))
    assert "fetch  nothing for the first" in str(loader.explain())


def test_what_is_in_the_cache_folder_is_not_fetched(server: RangeServer, tmp_path: Path) -> None:
    for name, key in (("a.npy", None), ("v3.zarr", None), ("a.h5", "gz")):
        cache.forget()
        loader = ooc.open(f"{server.url}/{name}", key, cache=tmp_path).batches(16)
        list(loader.epoch(0))
        cache.forget()
        found = loader.explain().fetching
        assert found is not None
        assert found.first.requests == 0


def test_nothing_is_said_of_the_link_on_a_disk(folder: Path) -> None:
    code = f"""
import sys
import oocdata as ooc
loader = ooc.open({str(folder / "a.npy")!r}).batches(16)
assert loader.explain().fetching is None and "fetch" not in str(loader.explain())
assert loader.profile(seconds=0.05).link is None
assert not [name for name in sys.modules if name.startswith(("oocdata.stores", "obstore"))]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_profile_counts_what_went_over_the_link(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = ooc.open(f"{server.url}/a.npy").batches(16)
    server.reset()
    # By this clock whole epochs are read, and each request is waited for: none is given up before
    # the server has seen it.
    clock = partial(next, count(0.0, 0.001))
    for measuring in (profiling, pacing):
        monkeypatch.setattr(measuring, "perf_counter", clock)
    found = profiling.profile(loader, seconds=0.1)
    assert found.link is not None
    assert (found.link.requests, found.link.nbytes) == (server.requests, server.nbytes)
    assert found.link.nbytes == ROWS.nbytes
    assert "requests of" in str(found)
    json.dumps(found.to_json())


@pytest.mark.parametrize(("busy", "is_limit"), [(0.8, True), (0.1, False)])
def test_the_link_is_the_limit_where_batches_wait_for_it(
    busy: float, is_limit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic, now = link_module.Traffic(), [0.0]
    for measuring in (profiling, pacing):
        monkeypatch.setattr(measuring, "perf_counter", lambda: now[0])

    def batches(epoch: int) -> Iterator[NDArray[Any]]:
        while True:
            now[0] += 1.0
            traffic.busy += busy
            yield np.zeros(4)

    def model(batch: NDArray[Any]) -> None:
        now[0] += 50.0  # meanwhile the link is at work
        traffic.busy += 50.0

    _, waited = profiling._rates(batches, model, 90.0, 1, traffic)
    assert waited == pytest.approx(busy)
    found = LinkUse(requests=200, nbytes=200 << 10, waited=waited)
    assert (found.range_bytes, found.is_limit) == (1024, is_limit)
    assert ("The link is the limit" in str(found)) is is_limit


def test_what_to_change_where_the_link_is_the_limit(server: RangeServer) -> None:
    def advised(loader: Loader, fetched: int) -> Any:
        found = advise(reading_of(loader), Measured(request_bytes=fetched))
        return next(one for one in found if one.kind == "link")

    chunked = ooc.open(f"{server.url}/a.h5", "gz").batches(16, shuffle=True)
    found = advised(chunked, 10_000)
    assert found.command is not None
    assert "--chunks 832" in found.command  # 104 times as long as those of 8 rows
    assert advised(chunked, 2 << 20).command is None
    plain = ooc.open(f"{server.url}/a.npy").batches(16)
    assert "in larger chunks" in advised(plain, 10_000).text


def test_bench_reads_from_a_store(server: RangeServer) -> None:
    for name in ("a.npy", "v3.zarr"):
        found = bench(f"{server.url}/{name}", seconds=0.1)
        assert found.cache == "store"
        assert found.limits == ()
        assert "each epoch fetches them again" in str(found)


def write_grown(path: Path, width: int | None = 64, **options: Any) -> None:
    """Write rows one by one to two datasets, so that chunks and indices are interleaved."""
    with h5py.File(path, "w", **options) as file:
        chunks = {"chunks": (1, 64, 64), "maxshape": (None, 64, width), "dtype": "u1"}
        for name in "uv":
            file.create_dataset(name, (0, 64, 64), **chunks)  # type: ignore[arg-type]
        row = np.random.default_rng(0).integers(0, 255, (64, 64))
        for number in range(1000):
            for name in "uv":
                file[name].resize(number + 1, axis=0)
                file[name][number] = row


def test_scattered_metadata_are_told(tmp_path: Path) -> None:
    # In newer files, the index of what may grow along two axes is not looked at ahead.
    write_grown(tmp_path / "a.h5", width=None, libver="latest")
    write_grown(tmp_path / "paged.h5", fs_strategy="page", fs_page_size=4 << 20)
    requests = {}
    with RangeServer(tmp_path) as server:
        for name in ("a.h5", "paged.h5"):
            server.reset()
            view = ooc.open(f"{server.url}/{name}", "u")
            requests[name] = server.requests
            (one,) = contents(view).described
            kinds = [advice.kind for advice in one.advice]
            assert ("metadata" in kinds) == (name == "a.h5")
            said = str(view.batches(16).explain())
            assert ("scattered" in said) == (name == "a.h5")
        assert "h5repack -S PAGE -G 4194304 a.h5 paged-a.h5" in str(
            contents(f"{server.url}/a.h5", "u")
        )
    assert requests["a.h5"] > 2 * requests["paged.h5"]
