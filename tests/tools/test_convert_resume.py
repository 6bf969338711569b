"""Test that stopped conversions resume, that changed ones restart, and that no file is partial."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fork_server
import h5py
import numpy as np
import pytest
import tensorstore
import zarr

import oocdata as ooc
from oocdata.errors import SourceError
from oocdata.memory import lowered_limit
from oocdata.tools import convert as convert_execution
from oocdata.tools.convert import convert
from oocdata.writers import output
from oocdata.writers.disk import PARTIAL

SCRIPT = """
import signal, sys
from oocdata.tools.convert import convert
from oocdata.writers import output
output.SAVE_BYTES = 1

source, destination, after, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4])
save = output.Output.save
count = 0
def told(self, *given):
    global count
    save(self, *given)
    count += 1
    if count == after:
        print("there", flush=True)
        signal.pause()
output.Output.save = told
import oocdata
if options.pop("external", False):
    source = oocdata.open(source, options.pop("key"), external=True)
oocdata.set_memory(4 << 20)
convert(source, destination, **options)
print("done", flush=True)
"""


def killed_after(saves: int, source: Path, target: Path, **options: Any) -> None:
    """Convert in a process that is killed after a number of saves."""
    with fork_server.start(SCRIPT, source, target, saves, options) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
    assert not target.exists()


def load(path: Path) -> Any:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return file["u" if "u" in file else "data"][()]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
    return np.asarray(tensorstore.open(spec, read=True).result().read().result())


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    with lowered_limit(4 << 20):
        yield


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("written")
    made = np.random.default_rng(0).integers(0, 50, (4000, 16, 16)).astype("i4")
    with h5py.File(folder / "good.h5", "w") as file:
        file.create_dataset("u", data=made, chunks=(50, 16, 16), compression="lzf")
    with h5py.File(folder / "bad.h5", "w") as file:
        file.create_dataset("u", data=made, chunks=(4000, 2, 4), compression="lzf")
    return folder, made


@pytest.fixture
def values(tmp_path: Path, written: tuple[Path, Any]) -> Any:
    folder, made = written
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return made.copy()


@pytest.mark.parametrize(
    ("source", "suffix", "saves"),
    [
        ("good.h5", ".npy", 2), ("good.h5", ".h5", 2), ("good.h5", ".zarr", 2),
        ("bad.h5", ".h5", 2), ("bad.h5", ".h5", 6), ("bad.h5", ".zarr", 3),
    ],
)  # fmt: skip
def test_a_killed_conversion_goes_on(
    tmp_path: Path, values: Any, source: str, suffix: str, saves: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    target = tmp_path / f"b{suffix}"
    killed_after(saves, tmp_path / source, target)
    left = tmp_path / f"b{suffix}{PARTIAL}"
    assert "start the same program again" in (left / "README.txt").read_text()
    before = json.loads((left / "journal").read_text())["done"]
    assert 0 < before < len(values)

    read: list[int] = []
    each_block = convert_execution.each_block

    def counted(dataset: Any, *arguments: Any, **options: Any) -> Any:
        read.append(len(dataset))
        return each_block(dataset, *arguments, **options)

    monkeypatch.setattr(convert_execution, "each_block", counted)
    done = convert(tmp_path / source, target)
    assert done.resumed
    assert read == [len(values) - before]  # nothing is done twice
    assert (load(target) == values).all()
    assert (np.asarray(ooc.open(target)) == values).all()
    assert not left.exists()


def test_a_file_that_zarr_had_not_renamed(tmp_path: Path, values: Any) -> None:
    killed_after(2, tmp_path / "good.h5", tmp_path / "b.zarr")
    left = tmp_path / f"b.zarr{PARTIAL}" / "result.zarr" / "c" / "0" / "0"
    left.mkdir(parents=True, exist_ok=True)
    (left / "9.00ff.partial").write_bytes(b"a part")
    assert convert(tmp_path / "good.h5", tmp_path / "b.zarr").resumed
    assert not list((tmp_path / "b.zarr").rglob("*.partial"))
    assert (load(tmp_path / "b.zarr") == values).all()


def test_another_source_of_the_same_size_and_time_begins_anew(tmp_path: Path, values: Any) -> None:
    """Replace the file as ``rsync -t`` does, with the same time."""
    path = tmp_path / "a.npy"
    np.save(path, values)
    killed_after(2, path, tmp_path / "b.npy")
    status = path.stat()
    values[7] = 77  # where nobody looks who looks at a few places
    np.save(tmp_path / "new.npy", values)
    os.utime(tmp_path / "new.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "new.npy").replace(path)
    done = convert(path, tmp_path / "b.npy")
    assert (np.load(tmp_path / "b.npy") == values).all()
    assert not done.resumed


def test_bytes_in_other_files_begin_anew(tmp_path: Path, values: Any) -> None:
    """The version of an HDF5 file does not change with the files that it refers to."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        layout = h5py.VirtualLayout(values.shape, "i4")
        layout[:] = h5py.VirtualSource(tmp_path / "good.h5", "u", values.shape)
        file.create_virtual_dataset("u", layout)
    source = {"key": "u", "external": True}
    killed_after(2, tmp_path / "a.h5", tmp_path / "b.npy", **source)
    with h5py.File(tmp_path / "good.h5", "r+") as file:
        file["u"][0] = 77
    view = ooc.open(tmp_path / "a.h5", external=True)
    done = convert(view, tmp_path / "b.npy")
    assert (np.load(tmp_path / "b.npy")[0] == 77).all()
    assert not done.resumed


@pytest.mark.parametrize("changed", [False, True])
def test_a_source_of_many_files(tmp_path: Path, values: Any, changed: bool) -> None:
    """A Zarr array is a folder of chunks; a rewritten chunk must be detected."""
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(100, 16, 16))
    killed_after(2, tmp_path / "a.zarr", tmp_path / "b.npy")
    if changed:
        zarr.open_array(tmp_path / "a.zarr", mode="r+")[3] = values[3] = 77
    done = convert(tmp_path / "a.zarr", tmp_path / "b.npy")
    assert done.resumed is not changed
    assert (np.load(tmp_path / "b.npy") == values).all()


def test_other_options_begin_anew(tmp_path: Path, values: Any) -> None:
    killed_after(2, tmp_path / "good.h5", tmp_path / "b.h5", chunks=10)
    done = convert(tmp_path / "good.h5", tmp_path / "b.h5", chunks=20)
    assert not done.resumed
    assert (load(tmp_path / "b.h5") == values).all()


def test_a_note_that_was_cut_off(tmp_path: Path, values: Any) -> None:
    """The last complete journal is used."""
    killed_after(3, tmp_path / "good.h5", tmp_path / "b.npy")
    journal = tmp_path / f"b.npy{PARTIAL}" / "journal"
    journal.with_suffix(".new").write_bytes(journal.read_bytes()[:-5])
    done = convert(tmp_path / "good.h5", tmp_path / "b.npy", verify=True)
    assert done.resumed
    assert (np.load(tmp_path / "b.npy") == values).all()


@pytest.mark.parametrize(
    "damaged",
    [b"\0\0\0", b"7", b'{"done": {}}', b"", *({"done": x} for x in (float("inf"), -1, 0.5, "4"))],
    ids=str,
)
def test_a_damaged_journal(tmp_path: Path, values: Any, damaged: Any) -> None:
    killed_after(2, tmp_path / "good.h5", tmp_path / "b.npy")
    journal = tmp_path / f"b.npy{PARTIAL}" / "journal"
    if isinstance(damaged, dict):
        damaged = json.dumps({**json.loads(journal.read_bytes()), **damaged}).encode()
    journal.write_bytes(damaged)
    done = convert(tmp_path / "good.h5", tmp_path / "b.npy")
    assert not done.resumed
    assert (np.load(tmp_path / "b.npy") == values).all()


def test_a_file_stopped_while_it_was_saved_begins_anew(tmp_path: Path, values: Any) -> None:
    killed_after(2, tmp_path / "good.h5", tmp_path / "b.h5")
    (tmp_path / f"b.h5{PARTIAL}" / "result.h5.saving").touch()
    done = convert(tmp_path / "good.h5", tmp_path / "b.h5")
    assert not done.resumed
    assert (load(tmp_path / "b.h5") == values).all()


def test_hdf5_between_saves_is_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two saves, HDF5 only appends chunks to the file."""
    from oocdata.writers import hdf5
    from oocdata.writers.storage import open_storage
    from oocdata.writers.target import Codec, Target

    rows = 20_000  # chunks enough to fill HDF5's cache several times
    monkeypatch.setattr(hdf5, "_MOST_UNSAVED", rows)
    values = np.arange(2 * rows, dtype="i4").reshape(rows, 2)
    target = Target(format="hdf5", key="/u", shape=values.shape, dtype=values.dtype,
                    chunks=(1, 2), codec=Codec("gzip", 1))  # fmt: skip
    path = tmp_path / "c.h5"
    storage = open_storage(target, str(path))
    storage.write(0, values[:1000])
    storage.save()
    saved = path.read_bytes()
    storage.write(1000, values[1000:])
    left = path.read_bytes()  # what a kill would leave
    storage.abandon()
    assert len(left) > len(saved)
    # But for the flags of the superblock that say that it is open (file format, II.A).
    assert (left[:20], left[24 : len(saved)]) == (saved[:20], saved[24:])
    (tmp_path / "d.h5").write_bytes(left)
    again = open_storage(target, str(tmp_path / "d.h5"), done=1000)
    again.write(1000, values[1000:])
    again.close(rows)
    assert (load(tmp_path / "d.h5") == values).all()


def test_an_error_keeps_what_was_saved(
    tmp_path: Path, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SAVE_BYTES", 1)
    cast = convert_execution.cast

    def fails(values: Any, dtype: Any, view: Any) -> Any:
        if view.rows[0] >= 1000:
            raise OSError(5, "Input/output error")
        return cast(values, dtype, view)

    with monkeypatch.context() as patched:
        patched.setattr(convert_execution, "cast", fails)
        with pytest.raises(OSError, match="Input/output"):
            convert(tmp_path / "good.h5", tmp_path / "b.zarr", codec="none")
    assert os.path.exists(tmp_path / f"b.zarr{PARTIAL}" / "journal")
    done = convert(tmp_path / "good.h5", tmp_path / "b.zarr", codec="none")
    assert done.resumed
    assert (load(tmp_path / "b.zarr") == values).all()


def test_a_journal_that_can_not_be_written_keeps_nothing(
    tmp_path: Path, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its journal, what is written can't be resumed: it must neither stay nor be named."""
    np.save(tmp_path / "a.npy", values)

    def full(path: str, node: Any) -> None:
        raise SourceError("the file must be writable", path=path)

    with monkeypatch.context() as patched:
        patched.setattr(output, "write_json", full)
        with pytest.raises(SourceError) as raised:
            convert(tmp_path / "a.npy", tmp_path / "b.npy")
    assert not getattr(raised.value, "__notes__", [])
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("b.npy")]


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".zarr"])
def test_killed_once_the_result_has_its_name(
    tmp_path: Path, values: Any, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old array, exchanged with the result, must not be resumed."""
    from oocdata.writers.placement import Placement

    target = tmp_path / f"b{suffix}"
    convert(tmp_path / "good.h5", target)
    for run in range(2):
        with monkeypatch.context() as patched:
            if run == 0:
                patched.setattr(Placement, "remove", lambda self: None)
            done = convert(ooc.open(tmp_path / "good.h5")[::-1], target, overwrite=True)
        assert not done.resumed
        assert (load(target) == values[::-1]).all()
    assert not os.path.exists(f"{target}{PARTIAL}")


def test_a_result_that_can_not_be_read_back_is_thrown_away(
    tmp_path: Path, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oocdata.errors import DamagedChunkError
    from oocdata.writers.hdf5 import Hdf5Storage

    close = Hdf5Storage.close

    def damaging(self: Any, rows: int) -> None:
        close(self, rows)
        with h5py.File(self._path) as file:
            place = file["u"].id.get_chunk_info(3)
        with open(self._path, "r+b") as file:
            file.seek(place.byte_offset)
            file.write(b"\xff" * place.size)

    with monkeypatch.context() as patched:
        patched.setattr(Hdf5Storage, "close", damaging)
        with pytest.raises(DamagedChunkError, match="result"):
            convert(tmp_path / "good.h5", tmp_path / "b.h5", verify=True)
    done = convert(tmp_path / "good.h5", tmp_path / "b.h5", verify=True)
    assert done.verified


FULL = """
import resource, signal, sys
from oocdata.tools.convert import convert
from oocdata.writers import output
output.SAVE_BYTES = 1
import oocdata
oocdata.set_memory(4 << 20)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for nbytes in (2000, 300_000, 600_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))
    try:
        convert(sys.argv[1], sys.argv[2], codec=sys.argv[3])
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_an_hdf5_file_that_could_not_grow_begins_anew(
    tmp_path: Path, values: Any, codec: str
) -> None:
    """The file may lack its end; then it can't be resumed, and must not stay for ever."""
    source, target = str(tmp_path / "good.h5"), tmp_path / "b.h5"
    done = fork_server.run(FULL, source, target, codec)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SourceError") == done.stdout.count("Is the disk full?") == 3
    assert "File too large" in done.stdout
    assert "buf = " not in done.stdout  # the arguments of the system call, which HDF5 tells
    convert(source, target, codec=codec, verify=True)
    assert (load(target) == values).all()


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".zarr"])
def test_a_folder_deleted_in_the_middle_is_an_error(
    tmp_path: Path, values: Any, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result must not hold only what was written after the deletion."""
    cast = convert_execution.cast
    left = tmp_path / f"b{suffix}{PARTIAL}"

    def deletes(values: Any, dtype: Any, view: Any) -> Any:
        if 1000 in view.rows:
            shutil.rmtree(left)
        return cast(values, dtype, view)

    with monkeypatch.context() as patched:
        patched.setattr(convert_execution, "cast", deletes)
        with pytest.raises(OSError):  # noqa: PT011
            convert(tmp_path / "good.h5", tmp_path / f"b{suffix}", codec="none")
    assert not (tmp_path / f"b{suffix}").exists()
    shutil.rmtree(left, ignore_errors=True)  # a chunk that was on its way made it anew
    convert(tmp_path / "good.h5", tmp_path / f"b{suffix}", codec="none")
    assert (load(tmp_path / f"b{suffix}") == values).all()
