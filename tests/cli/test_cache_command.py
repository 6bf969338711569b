"""`oocdata cache` lists and deletes both kinds of caches."""

from __future__ import annotations

import json
import os
from contextlib import closing
from functools import partial
from pathlib import Path

import command
import numpy as np
import pytest

import oocdata as ooc
from oocdata.advice.reading import size
from oocdata.stores.folder import CacheFolder
from oocdata.writers.disk import Lock
from oocdata.writers.placement import Placement

PLACE = "s3://bucket/run.zarr/c/0"


run = partial(command.run, "cache", OOCDATA_CACHE="")


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with bytes of two objects, the elements of a dataset, and a foreign file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOCDATA_CACHE_BYTES", str(1 << 30))
    kept = CacheFolder.at(tmp_path / "kept")
    kept.entry("https://host/[a].h5", "1", 50_000).write(0, bytes(4096))
    kept.entry(PLACE, "1", 5 << 20).write(0, bytes(1 << 20))
    for used, (_, path, _) in enumerate(sorted(kept.files())):
        os.utime(path, (used, used))
    ooc.open(np.arange(20_000.0)).map(np.negative).cache("kept")
    (tmp_path / "kept" / ("0" * 32)).mkdir()
    (tmp_path / "kept" / ("0" * 32) / "thesis.tex").write_text("ours")
    return tmp_path / "kept"


def on_disk(folder: Path, within: str) -> list[int]:
    """Return the bytes on the disk of files that match a pattern, the largest last."""
    return sorted(path.stat().st_blocks * 512 for path in folder.glob(within))


def test_the_cache_is_listed(folder: Path) -> None:
    (place,) = (path.parent for path in folder.glob("*/0.npy"))
    elements = size(sum(on_disk(place, "*")))
    found = run("kept")
    assert found.exit_code == 0, found.output
    lines = words(found.output)
    assert lines[:3] == [
        f"folder {folder}", "objects 2, 1.0 MiB of at most 1.0 GiB", f"datasets 1, {elements}"
    ]  # fmt: skip
    assert run(OOCDATA_CACHE=str(folder)).output == found.output


def test_a_dataset_whose_description_can_not_be_read(folder: Path) -> None:
    """For instance that of another user."""
    (about,) = (path.parent / "cache.json" for path in folder.glob("*/0.npy"))
    about.unlink()
    about.mkdir()
    found = run("kept", "--json")
    assert found.exit_code == 0, found.output
    assert [one["made_of"] for one in json.loads(found.output)["datasets"]] == [
        "elements of a dataset"
    ]


def test_json(folder: Path) -> None:
    found = json.loads(run("kept", "--json").output)
    assert found["limit"] == 1 << 30
    assert found["objects"] == 2
    assert found["object_bytes"] == sum(on_disk(folder, "oocdata-objects/*/*"))
    (one,) = found["datasets"]
    assert one["whole"]
    assert found["freed"] is None


def test_clear(folder: Path) -> None:
    before = json.loads(run("kept", "--json").output)
    cleared = run("kept", "--clear", "--json")
    assert cleared.exit_code == 0, cleared.output
    found = json.loads(cleared.output)
    assert (found["objects"], found["datasets"]) == (0, [])
    gone = sum(one["nbytes"] for one in before["datasets"])
    assert found["freed"] == before["object_bytes"] + gone
    assert (folder / ("0" * 32) / "thesis.tex").read_text() == "ours"
    caches = [path for path in folder.iterdir() if len(path.name) == 32 and path.name != "0" * 32]
    assert not caches
    assert words(run("kept").output)[1].endswith("of at most 1.0 GiB")


def test_a_dataset_being_written_is_not_deleted(folder: Path) -> None:
    (path,) = (path.parent for path in folder.glob("*/0.npy"))
    with closing(Lock(Placement(str(path), None, "npy", False))):
        found = run("kept", "--clear")
    assert found.exit_code == 3
    assert f"left {path}: a process is writing it" in " ".join(words(found.output))
    assert np.load(path / "0.npy").shape == (20_000,)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "FOLDER must be given, or set by the environment variable"),
        (["nowhere"], 1, "No such folder."),
        (["."], 2, "is none."),
        (["s3://user:secret@bucket/kept"], 2, "got a URL, s3://…."),
    ],
)
def test_wrong_calls(folder: Path, arguments: list[str], code: int, text: str) -> None:
    np.save("ds.npy", np.arange(3))
    found = run(*arguments)
    assert found.exit_code == code
    assert text in " ".join(found.stderr.split())
    assert not Path("nowhere").exists()
    assert not Path("oocdata-objects").exists()
