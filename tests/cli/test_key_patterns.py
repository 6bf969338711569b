"""Patterns of keys in every command that opens an array."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from command import run

import oocdata as ooc

FRAMES = np.random.default_rng(0).random((40, 8, 8), np.float32)
CUTS = [0, 12, 12, 13, 40]
PATTERN = "data/demo_*/u"


@pytest.fixture(params=["hdf5", "zarr", "npz"])
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Return the name of a file of four demonstrations in the current folder."""
    monkeypatch.chdir(tmp_path)
    parts = {f"data/demo_{n}/u": FRAMES[CUTS[n] : CUTS[n + 1]] for n in range(4)}
    if request.param == "npz":
        np.savez("a.npz", **parts, other=np.zeros(3))
        return "a.npz"
    if request.param == "zarr":
        group = zarr.create_group("a.zarr")
        for key, part in {**parts, "other": np.zeros(3)}.items():
            group.create_array(key, data=part, chunks=(5, *part.shape[1:]), fill_value=-1)
        return "a.zarr"
    with h5py.File("a.h5", "w") as file:
        for key, part in parts.items():
            chunked = {"chunks": (5, 8, 8), "maxshape": (None, 8, 8), "compression": "gzip"}
            file.create_dataset(key, data=part, **chunked)
        file["other"] = np.zeros(3)
    return "a.h5"


def test_a_pattern_is_one_array(name: str) -> None:
    told = run("info", f"{name}::{PATTERN}")
    assert told.exit_code == 0, told.output
    assert "40 rows of (8, 8)" in told.output
    assert f"'{PATTERN}'" in told.output  # in the code to copy
    assert told.output == run("info", name, "-k", PATTERN).output
    (one,) = json.loads(run("info", name, "-k", PATTERN, "--json").stdout)["datasets"]
    assert (one["shape"], one["files"]) == ([40, 8, 8], 1)
    found = json.loads(run("stats", f"{name}::{PATTERN}", "--json").stdout)
    assert (found["shape"][0], found["key"]) == (40, PATTERN)
    assert run("convert", f"{name}::{PATTERN}", "c.h5", "-q").exit_code == 0
    with h5py.File("c.h5") as file:
        assert (file["u"][:] == FRAMES).all()  # the key is the common last component
    shown = run("preview", f"{name}::{PATTERN}").stdout.splitlines()
    assert shown[1].startswith("array      40 rows")
    measured = run("bench", f"{name}::{PATTERN}", "--seconds", "0.1", "--json")
    assert json.loads(measured.stdout)["elements"] == 40
    for command in ("info", "stats", "preview"):
        told = run(command, f"{name}::data/demo_*/w")
        assert told.exit_code == 1, told.output
        assert "and no dataset" in " ".join(told.stderr.split())


def test_numbers_that_do_not_fit_are_named_by_dataset(name: str) -> None:
    view = ooc.open(name, PATTERN).astype("u1")
    with pytest.raises(ooc.errors.SourceError) as caught:
        ooc.convert(view[13:], "d.npy")
    assert (caught.value.key or "").strip("/") == "data/demo_3/u"
    assert caught.value.rows == (0,)


def test_check_reads_each_dataset(name: str) -> None:
    keys = [f"data/demo_{n}/u" for n in range(4)]
    assert run("check", name, "--write-manifest", "-q").exit_code == 0
    for options in ([], ["--manifest"]):
        told = run("check", f"{name}::{PATTERN}", "--json", *options)
        assert told.exit_code == 0, told.output
        assert [one["key"].strip("/") for one in json.loads(told.stdout)["datasets"]] == keys
        none = run("check", f"{name}::nothing_*", *options)
        assert none.exit_code == 1
        assert "and no dataset" in " ".join(none.stderr.split())
