"""Exits and forks: nothing hangs, nothing is left, nothing grows."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import close_handles, our_threads
from numpy.testing import assert_array_equal
from worker_scripts import ended, left_of, start

import oocdata as ooc
from oocdata.runs import Run
from oocdata.workers import lifetime
from oocdata.workers.arena import Arena
from oocdata.workers.pool import WorkerPool

SLOW = """
def slow(x):
    np.random.default_rng(0).random(200_000)
    return x
mapped = view.map(slow, spec=spec)
def end(how):
    if how == "raise":
        raise ValueError("the model")
    if how == "exit":
        sys.exit(1)
    if how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
"""

NUMPY = {
    "a live iterator": "it = iter(view.batches(4)); next(it)",
    "a live iterator with workers": "it = iter(view.batches(4, workers=2)); next(it)",
    "reads in flight": "it = iter(mapped.batches(4)); next(it)",
    "workers that read": "it = iter(mapped.batches(4, workers=2)); next(it)",
    "workers that start": "it = iter(mapped.batches(4, workers=2)); it.__next__",
    "an iterator in a cycle": "a = [iter(view.batches(4, workers=1))]; a.append(a); next(a[0])",
    "an iterator in another thread": """
it = iter(mapped.batches(4, workers=2)); next(it)
threading.Thread(target=lambda: [None for _ in it], daemon=True).start()
""",
}
TENSORFLOW = {
    "live iterators": "its = [iter(view.batches(4, workers=n).to_tf()) for n in (0, 1)]; "
    "[next(it) for it in its]",
    "reads in flight": "it = iter(mapped.batches(4).to_tf(parallel=4, prefetch=8)); next(it)",
    "workers that read": "it = iter(mapped.batches(4, workers=2).to_tf(prefetch=8)); next(it)",
    "a worker in a loop": """
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
ENDS = {"end": 0, "raise": 1, "exit": 1, "terminate": -15}


def leave(folder: Path, code: str, how: str) -> str | None:
    """Run a script to its end; return what is wrong with it."""
    folder.mkdir()
    process = start(folder, SLOW + code + f"\nend({how!r})\n")
    try:
        _, err = ended(process)
    except subprocess.TimeoutExpired:
        return f"{code!r}, {how}: hangs"
    if process.returncode != ENDS[how] or "Fatal" in err or "Error in" in err:
        return f"{code!r}, {how}: returned {process.returncode}: {err}"
    return None


@pytest.mark.parametrize("how", ["end", "raise"])
@pytest.mark.parametrize("code", NUMPY.values(), ids=NUMPY.keys())
def test_an_exit(tmp_path: Path, code: str, how: str) -> None:
    assert leave(tmp_path / "one", code, how) is None
    assert left_of(tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TENSORFLOW if "worker" in name])
def test_an_exit_with_tensorflow(tmp_path: Path, name: str) -> None:
    """Without workers: see test_frontends_tfdata.py."""
    pytest.importorskip("tensorflow")
    assert leave(tmp_path / "one", TENSORFLOW[name], "end") is None
    assert left_of(tmp_path) == []


@pytest.mark.long
def test_dozens_of_exits(tmp_path: Path) -> None:
    """All of NumPy's in the two ways that are left, TensorFlow's in one each; all twice."""
    pytest.importorskip("tensorflow")
    ways = [*itertools.product(NUMPY.values(), ["exit", "terminate"])]
    ways += zip(TENSORFLOW.values(), itertools.cycle(ENDS), strict=False)
    folders = [tmp_path / str(number) for number in range(2 * len(ways))]
    with ThreadPoolExecutor(3) as threads:
        found = threads.map(lambda folder, way: leave(folder, *way), folders, ways * 2)
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
    """Opened and read before it, while another thread goes on reading them."""
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
        for _ in range(3):
            child = os.fork()
            if child == 0:
                try:
                    say(name, "right" if right() else "WRONG")
                except ooc.errors.SourceError as error:
                    say(name, "clear:", error)
                except BaseException:
                    say(name, traceback.format_exc())
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        reading.join()
    """
    out, err = ended(start(tmp_path, script))
    assert len(out.splitlines()) == 3 * 7, out + err
    for line in out.splitlines():
        if not line.endswith(" right"):
            assert line.startswith("Zarr clear: TensorStore can't be used in a process that"), line


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestForksWithWorkers:
    def test_a_fork_keeps_what_it_has(self) -> None:
        """The other process goes on, and the slots of its batches are written to again."""
        loader = ooc.open(np.arange(4000.0)).batches(10, workers=1)
        pool = WorkerPool(loader, held=4)
        kept = [pool.begin(Run(0, step, step + 1)).result() for step in range(3)]
        begun = pool.begin(Run(0, 3, 4))
        done, go = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            os.close(go)
            os.read(done, 1)  # until all slots have been written to again
            fine = all((kept[step] == loader.batch(step)).all() for step in range(3))
            kept[0][:] = -1
            del kept, begun, pool
            gc.collect()
            os._exit(0 if fine else 1)
        os.close(done)
        assert_array_equal(kept[0], loader.batch(0))
        del kept
        assert_array_equal(begun.result(), loader.batch(3))
        for step in range(4, 40):
            assert_array_equal(pool.begin(Run(0, step, step + 1)).result(), loader.batch(step))
        os.close(go)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert_array_equal(pool.begin(Run(0, 0, 1)).result(), loader.batch(0))
        pool.close()

    def test_a_fork_has_its_own_before_the_other_goes_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = WorkerPool(ooc.open(np.arange(400.0)).batches(10, workers=1), held=4)
        kept = pool.begin(Run(0, 0, 1)).result()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        real = Arena.detach

        def noted(arena: Arena, at_work: Any) -> None:
            real(arena, at_work)
            os.write(writing, b"done")

        monkeypatch.setattr(Arena, "detach", noted)
        child = os.fork()
        if child == 0:  # pragma: no cover
            os._exit(0)
        assert os.read(reading, 4) == b"done"
        os.waitpid(child, 0)
        for number in (reading, writing):
            os.close(number)
        assert_array_equal(kept, np.arange(10.0))
        pool.close()

    def test_what_a_fork_writes_stays_in_the_fork(self) -> None:
        loader = ooc.open(np.arange(4000.0)).batches(10, workers=1)
        pool = WorkerPool(loader, held=4)
        batch = pool.begin(Run(0, 0, 1)).result()
        child = os.fork()
        if child == 0:  # pragma: no cover
            batch[:] = -1
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert_array_equal(batch, loader.batch(0))
        pool.close()

    def test_a_fork_does_not_end_the_workers_of_the_other(self) -> None:
        loader = ooc.open(np.arange(4000.0)).batches(10, workers=1)
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                next(iterator)
                next(iterator)
                while True:
                    next(iterator)
            except ooc.errors.DatasetGoneError:
                iterator.close()
                lifetime._close_all()
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        rest = np.concatenate(list(iterator))
        assert_array_equal(rest, np.arange(10.0, 4000))

    def test_a_fork_does_not_keep_workers_alive(self, tmp_path: Path) -> None:
        """It has the other ends of all that they listen to."""
        script = """
        it = iter(view.batches(4, workers=2)); next(it)
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(writing)
            say(*workers(), "forked")
            while left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
                signal.sigtimedwait([signal.SIGUSR1], 0.05)
            say("gone")
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
        """.replace("reading,", "pids = workers(); reading,")
        process = start(tmp_path, script)
        out, err = ended(process)
        assert out.split() == ["forked", "gone"], err


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


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
    from oocdata.sources import handles

    close_handles()
    gc.collect()
    return {
        "threads": len(our_threads()),
        "processes": processes(),
        "descriptors": descriptors(),
        "handles": len(handles._open),
        "feeds": len(feeds._feeds),
        "functions": len(script_ops._py_funcs._funcs),
        "exceptions": len(originals._kept),
        "pools": len(lifetime._pools),
        "arenas": Path("/proc/self/maps").read_text().count("memfd:oocdata"),
    }


def build_and_drop(view: ooc.View, number: int, workers: int) -> None:
    loader = view.next_frame().batches(8, shuffle=True, seed=number, workers=workers)
    assert_array_equal(next(iter(loader))[0], loader.batch(0)[0])
    batch: Any = next(iter(loader.to_tf()))
    assert_array_equal(batch[1], loader.batch(0)[1])


@pytest.mark.parametrize(
    ("count", "workers"),
    [(20, 0), (5, 1), pytest.param(200, 0, marks=pytest.mark.long)],
    ids=["in process", "with workers", "hundreds"],
)
def test_nothing_grows_with_datasets(tmp_path: Path, count: int, workers: int) -> None:
    pytest.importorskip("tensorflow")
    np.save(tmp_path / "a.npy", np.arange(4000.0).reshape(1000, 4))
    for number in range(3):
        build_and_drop(ooc.open(tmp_path / "a.npy"), number, workers)
    before = counted()
    for number in range(count):
        # In the long one, some with workers: a process takes its time to start.
        own = 1 if workers or (count > 100 and number % 40 == 0) else 0
        build_and_drop(ooc.open(tmp_path / "a.npy"), number, own)
    after = counted()
    assert all(after[name] <= before[name] for name in before), (before, after)
