"""Run the garbage collector beside HDF5 files at URLs: no cycle of h5py's objects stops a read."""

from __future__ import annotations

import gc
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
import numpy as np
import pytest
from forked import in_a_fork
from servers.ranges import RangeServer

from oocdata.formats.hdf5 import file
from oocdata.formats.hdf5.file import hdf5_lock

OPENING = """
import gc, sys
import h5py
import oocdata as ooc
from oocdata.formats.hdf5.metadata import MetadataStream
from oocdata.stores.link import Link

path, url = sys.argv[1:]
objects = [h5py.File(path)["group/rows"] for _ in range(800)]
fetch, fill = Link._ask, MetadataStream.readinto
reads = 0

class Node: ...

def litter(self, buffer):
    global reads
    reads += 1
    while len(objects) > 800 - 4 * reads:
        node = Node()
        node.me, node.object = node, objects.pop()
    return fill(self, buffer)

async def collect(self, *request):
    answer = await fetch(self, *request)
    if gc.isenabled():  # whenever Python might do it
        gc.collect()
    return answer

gc.set_threshold(0)
MetadataStream.readinto, Link._ask = litter, collect
source = ooc.open(url, "group*/rows")
assert reads > 10
assert objects
assert gc.isenabled()
print(len(source), source.take([3, 150]).sum())
"""

READING = """
import gc, sys
import h5py
import oocdata as ooc
from oocdata.stores.blocks import forget
from oocdata.stores.link import Link

path, url = sys.argv[1:]
objects = [h5py.File(path)["group/rows"] for _ in range(100)]
fetch, reads = Link._ask, 0

class Node: ...

async def collect(self, *request):
    global reads
    reads += 1
    for _ in range(3):
        node = Node()
        node.me, node.object = node, objects.pop()
    answer = await fetch(self, *request)
    if gc.isenabled():  # whenever Python might do it
        gc.collect()
    return answer

gc.set_threshold(0)
source = ooc.open(url, "group*/rows")
forget()
Link._ask = collect
total = source.take([3, 150]).sum()
assert reads
print(len(source), total)
"""
"""HDF5 itself opens the file once more, when it first decodes."""


@pytest.mark.parametrize(
    ("program", "options"),
    [(OPENING, {}), (READING, {"scaleoffset": 0})],
    ids=["opening", "reading"],
)
def test_a_cycle_of_h5py_objects_is_collected_while_hdf5_waits(
    program: str, options: dict[str, Any], tmp_path: Path
) -> None:
    rows = np.arange(1000, dtype=np.int64).reshape(100, 10)
    with h5py.File(tmp_path / "a.h5", "w") as made:
        for name in ["group", *(f"group{number}" for number in range(10))]:
            made.create_dataset(f"{name}/rows", data=rows, chunks=(10, 10), **options)
    with RangeServer(tmp_path) as server:
        command = [sys.executable, "-c", program, tmp_path / "a.h5", f"{server.url}/a.h5"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1100", str(rows[[3, 50]].sum())]


def test_when_garbage_is_collected_again() -> None:
    def within() -> bool:
        with hdf5_lock("https://host/a.h5"):
            with hdf5_lock("https://host/b.h5"):
                pass
            assert in_a_fork(gc.isenabled) == "True"
            return gc.isenabled()

    assert (within(), gc.isenabled()) == (False, True)
    with pytest.raises(KeyboardInterrupt), hdf5_lock("https://host/a.h5"):
        raise KeyboardInterrupt
    assert gc.isenabled()
    with hdf5_lock("a.h5"):
        assert gc.isenabled()
    gc.disable()
    try:
        assert (within_a_fork_of_one_without(), gc.isenabled()) == ("False", False)
    finally:
        gc.enable()


@pytest.mark.parametrize("left", range(1, 6))
def test_ctrl_c_leaves_the_collector_on(left: int) -> None:
    """Python checks for signals as a function is entered or continues."""

    def press(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        left -= frame.f_code.co_filename == file.__file__
        if not left:
            raise KeyboardInterrupt

    sys.settrace(press)
    try:
        with suppress(KeyboardInterrupt), hdf5_lock("https://host/a.h5"):
            pass
    finally:
        sys.settrace(None)
    assert gc.isenabled()


def within_a_fork_of_one_without() -> str:
    with hdf5_lock("https://host/a.h5"):
        return in_a_fork(gc.isenabled)
