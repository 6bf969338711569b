"""The garbage collector beside HDF5 files at URLs: no cycle of h5py's objects stops a read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
from servers.ranges import RangeServer

PROGRAM = """
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


def test_a_cycle_of_h5py_objects_is_collected_while_metadata_is_fetched(tmp_path: Path) -> None:
    rows = np.arange(1000, dtype=np.int64).reshape(100, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ["group", *(f"group{number}" for number in range(10))]:
            file.create_dataset(f"{name}/rows", data=rows, chunks=(10, 10))
    with RangeServer(tmp_path) as server:
        command = [sys.executable, "-c", PROGRAM, tmp_path / "a.h5", f"{server.url}/a.h5"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1100", str(rows[[3, 50]].sum())]
