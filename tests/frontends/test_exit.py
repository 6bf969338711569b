"""Exits and forks: nothing hangs, is left behind, or grows."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import close_files, our_threads
from numpy.testing import assert_array_equal
from worker_scripts import ENDS, ended, leave, left_of, start

import oocdata as ooc
from oocdata.engines import files, ring
from oocdata.reading.workers.pool import pools

TENSORFLOW = {
    "live iterators": "its = [iter(view.batches(4, workers=n).to_tf()) for n in (0, 1)]; "
    "[next(it) for it in its]",
    "reads in flight": "it = iter(mapped.batches(4).to_tf(parallel=4, prefetch=8)); next(it)",
    "workers that read": "it = iter(mapped.batches(4, workers=2).to_tf(prefetch=8)); next(it)",
    "a worker in a loop": """
import threading
fifo = f"{os.path.dirname(__file__)}/fifo"
os.mkfifo(fifo)
def loop(x):
    open(fifo, "w").close()
    while True:
        pass
it = iter(view.map(loop, spec=spec).batches(4, workers=1).to_tf())
threading.Thread(target=next, args=(it,), daemon=True).start()
open(fifo).read()
""",
    "workers of two kinds": "a = iter(mapped.batches(4, workers=1)); next(a); "
    "b = iter(mapped.batches(4, workers=1).to_tf()); next(b)",
}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TENSORFLOW if "worker" in name])
def test_an_exit_with_tensorflow(tmp_path: Path, name: str) -> None:
    """Without workers, see test_tfdata.py."""
    pytest.importorskip("tensorflow")
    assert leave(tmp_path / "one", TENSORFLOW[name], "end", fork=False) is None
    assert left_of(tmp_path) == []


@pytest.mark.thorough
def test_many_exits(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    rng = random.Random(0)
    scripts = [*TENSORFLOW.values()] * 4
    ways = [(number, code, rng.choice([*ENDS])) for number, code in enumerate(scripts)]
    with ThreadPoolExecutor(3) as threads:
        found = threads.map(lambda way: leave(tmp_path / str(way[0]), *way[1:]), ways)
        assert [wrong for wrong in found if wrong] == []
    assert left_of(tmp_path) == []


def make_files(folder: Path) -> dict[str, tuple[str, ...]]:
    """Write one array in every format; return what `open` takes."""
    import h5py
    import zarr

    array = np.arange(4000.0).reshape(1000, 4)
    np.save(folder / "a.npy", array)
    np.save(folder / "f.npy", np.asfortranarray(array))
    with h5py.File(folder / "a.h5", "w") as file:
        file["plain"] = array
        file.create_dataset("chunks", data=array, chunks=(10, 4))
        file.create_dataset("gzip", data=array, chunks=(10, 4), compression="gzip")
        file.create_dataset("scaled", data=array, chunks=(10, 4), scaleoffset=0)
    zarr.create_array(str(folder / "a.zarr"), data=array, chunks=(10, 4))
    h5 = str(folder / "a.h5")
    return {
        ".npy": (str(folder / "a.npy"),),
        "Fortran order": (str(folder / "f.npy"),),
        "HDF5, contiguous": (h5, "plain"),
        "HDF5, chunks": (h5, "chunks"),
        "HDF5, gzip": (h5, "gzip"),
        "HDF5, by h5py": (h5, "scaled"),
        "Zarr": (str(folder / "a.zarr"),),
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_sources_after_a_fork(tmp_path: Path) -> None:
    """Sources opened and read before the fork, while another thread continues to read them."""
    for module in ("h5py", "zarr"):
        pytest.importorskip(module)
    script = f"""
    import threading, traceback
    expected = np.arange(4000.0).reshape(1000, 4)
    for name, target in {make_files(tmp_path)!r}.items():
        source = ooc.open(*target)
        loader = source.batches(50, shuffle=True, seed=3)
        order = [np.array(loader.positions(step)) for step in range(20)]
        def right(): return all((x == expected[p]).all() for x, p in zip(loader.epoch(0), order))
        assert right()
        stop = threading.Event()
        def read():
            while not stop.is_set():
                assert right()
        reading = threading.Thread(target=read)
        reading.start()
        for _ in range(2):
            child = os.fork()
            if child == 0:
                try:
                    say(name, "right" if right() else "WRONG")
                except BaseException:
                    say(name, traceback.format_exc())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        reading.join()
    """
    out, err = ended(start(tmp_path, script))
    assert len(out.splitlines()) == 2 * 7, out + err
    for line in out.splitlines():
        assert line.endswith(" right"), line


def descriptors() -> int:
    """Return how many are open besides those of io_uring, which the next threads use again."""
    listed = list(Path("/proc/self/fd").iterdir())
    return sum(each.is_symlink() and "io_uring" not in os.readlink(each) for each in listed)


def processes() -> int:
    listed = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getppid())"], capture_output=True, check=True
    )
    assert int(listed.stdout) == os.getpid()
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return len(found.split())


def counted() -> dict[str, int]:
    """Return how many there are of all that a dataset could leave behind."""
    from tensorflow.python.ops import script_ops

    from oocdata.frontends import feeds, originals

    close_files()
    gc.collect()
    for thread in our_threads():  # threads of a deleted iterator end by themselves
        thread.join(60)
    return {
        "threads": len(our_threads()),
        "processes": processes(),
        "descriptors": descriptors(),
        "files": len(files._opened),
        "rings in use": len(ring._rings) - len(ring._idle),
        "feeds": len(feeds._feeds),
        "functions": len(script_ops._py_funcs._funcs),
        "exceptions": len(originals._kept),
        "pools": len(pools),
        "arenas": Path("/proc/self/maps").read_text().count("memfd:oocdata"),
    }


def build_and_drop(view: ooc.View, number: int, workers: int) -> None:
    loader = view.next_frame().batches(8, shuffle=True, seed=number, workers=workers)
    assert_array_equal(next(iter(loader))[0], loader.batch(0)[0])
    batch: Any = next(iter(loader.to_tf()))
    assert_array_equal(batch[1], loader.batch(0)[1])


@pytest.mark.parametrize(
    ("count", "workers"),
    [(5, 0), (2, 1), pytest.param(100, 0, marks=pytest.mark.thorough)],
    ids=["in process", "with workers", "hundreds"],
)
def test_nothing_grows_with_datasets(tmp_path: Path, count: int, workers: int) -> None:
    pytest.importorskip("tensorflow")
    np.save(tmp_path / "a.npy", np.arange(4000.0).reshape(1000, 4))
    for number in range(1 if workers else 3):
        build_and_drop(ooc.open(tmp_path / "a.npy"), number, workers)
    before = counted()
    for number in range(count):
        # Only in the long test, some with workers: processes are slow to start.
        own = 1 if workers or (count > 10 and number % 40 == 0) else 0
        build_and_drop(ooc.open(tmp_path / "a.npy"), number, own)
    for _ in range(1000):  # TensorFlow's threads may be about to read, and open the file once more
        after = counted()
        if all(after[name] <= before[name] for name in before):
            return
        threading.Event().wait(0.01)
    raise AssertionError((before, after))
