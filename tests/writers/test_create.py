"""`create` writes files that other libraries read, and never leaves an incomplete one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fork_server
import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.errors import ArgumentError, SourceError, UnsupportedDtypeError
from oocdata.writers import Writer, create
from oocdata.writers import create as create_function
from oocdata.writers.disk import NOTE_NAME, PARTIAL

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

SUFFIXES = [".npy", ".h5", ".zarr"]


def read(path: Path) -> Any:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".zarr":
        return np.asarray(zarr.open_array(path, mode="r")[...])
    with h5py.File(path) as file:
        return file["data"][()]


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=10)
@given(
    batches=st.lists(st.integers(0, 40), max_size=6),
    element=st.sampled_from([(), (3,), (2, 5)]),
    chunks=st.sampled_from([None, 1, 7]),
)
def test_any_batches(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    batches: list[int],
    element: tuple[int, ...],
    chunks: int | None,
) -> None:
    path = tmp_path_factory.mktemp("create") / f"a{suffix}"
    values = np.random.default_rng(0).standard_normal((sum(batches), *element)).astype("f4")
    chosen = None if suffix == ".npy" else chunks
    with create(path, dtype="f4", chunks=chosen, element_shape=element) as writer:
        first = 0
        for count in batches:
            writer.append(values[first : first + count])
            first += count
        assert not path.exists()
    found = read(path)
    assert found.shape == values.shape
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()
    if len(values):
        assert np.asarray(ooc.open(path)).tobytes() == values.tobytes()
    assert [name.name for name in path.parent.iterdir()] == [path.name]


def test_rows_one_by_one(tmp_path: Path) -> None:
    with create(tmp_path / "a.npy", element_shape=(2,), dtype="i4") as writer:
        for number in range(5):
            writer.append(np.array([number, -number], "i4"))
    assert np.load(tmp_path / "a.npy").tolist() == [[n, -n] for n in range(5)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_more_rows_than_a_block(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    module = importlib.import_module("oocdata.writers.writer")
    monkeypatch.setattr(module, "_BLOCK_BYTES", 4096)
    values = np.arange(5000 * 8, dtype="i8").reshape(5000, 8)
    with create(tmp_path / f"a{suffix}", element_shape=(8,), dtype="i8") as writer:
        for first in range(0, 5000, 333):
            writer.append(values[first : first + 333])
    assert (read(tmp_path / f"a{suffix}") == values).all()


def test_big_endian_rows_are_the_same_numbers(tmp_path: Path) -> None:
    with create(tmp_path / "a.npy", element_shape=(), dtype=">i2") as writer:
        writer.append(np.arange(3, dtype=">i2"))
    found = np.load(tmp_path / "a.npy")
    assert found.tolist() == [0, 1, 2]
    assert found.dtype.isnative


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((3, 2), "f8"), "float64"),
        (np.zeros((3, 2), "f2"), "float16"),
        (np.zeros((3, 3), "f4"), r"\(3, 3\)"),
        (np.zeros((1, 1, 2), "f4"), r"\(1, 1, 2\)"),
        (np.zeros((), "f4"), r"got \(\)"),
        ([[1, 2]], "int64"),
    ],
)
def test_nothing_is_cast_or_broadcast(tmp_path: Path, rows: Any, message: str) -> None:
    writer = create(tmp_path / "a.npy", element_shape=(2,), dtype="f4")
    with pytest.raises(ArgumentError, match=message):
        writer.append(rows)
    writer.append(np.ones((1, 2), "f4"))  # still works after a wrong call
    writer.close()
    assert np.load(tmp_path / "a.npy").tolist() == [[1, 1]]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_exception_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    writer = create(tmp_path / f"a{suffix}", element_shape=(2,), dtype="f4")
    with pytest.raises(ZeroDivisionError), writer:
        writer.append(np.zeros((3, 2), "f4") / [1 // 0])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArgumentError, match="closed"):
        writer.append(np.zeros((3, 2), "f4"))


def test_an_existing_file_stays_after_a_failure(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    writer = create(tmp_path / "a.npy", element_shape=(), dtype="f4", overwrite=True)
    writer.append(np.zeros(3, "f4"))
    with pytest.raises(ArgumentError), writer:
        writer.append(np.zeros(3, "f8"))
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]


def test_a_writer_that_is_forgotten_leaves_nothing(tmp_path: Path) -> None:
    writer = create(tmp_path / "a.h5", element_shape=(), dtype="f4")
    writer.append(np.zeros(2, "f4"))
    del writer
    assert list(tmp_path.iterdir()) == []


def test_arguments(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"element_shape": (2, -1)}, "at least 0"),
        ({"chunks": 2}, "chunks"),
        ({"key": "/u"}, "one array"),
        ({"codec": "gzip"}, "none"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            create(tmp_path / "a.npy", **{"dtype": "f4", "element_shape": (), **arguments})
    with pytest.raises(UnsupportedDtypeError):
        create(tmp_path / "a.npy", element_shape=(), dtype="O")
    with pytest.raises(ArgumentError, match="each of the 2 axes"):
        create(tmp_path / "a.h5", element_shape=(3,), dtype="f4", chunks=(1, 2, 3))
    assert list(tmp_path.iterdir()) == []


def test_an_array_in_a_group(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    for number, overwrite in enumerate((False, True)):
        options = {"key": "more/deep/ids", "element_shape": (), "overwrite": overwrite}
        with create(path, dtype="i4", **options) as writer:  # type: ignore[arg-type]
            writer.append(np.full(4, number, "i4"))
        assert zarr.open_group(path, mode="r")["more/deep/ids"][:].tolist() == [number] * 4
        for key in ("more/deep/ids", "more/deep", "other", None):
            with pytest.raises(ArgumentError, match=r"must not exist|nothing but|a Zarr array"):
                create(path, key=key, element_shape=(), dtype="i4")
    assert [name.name for name in tmp_path.iterdir()] == [path.name]


SCRIPT = """
import sys, numpy as np
from oocdata.writers import create
writer = create(sys.argv[1], element_shape=(64, 64), dtype="f4")
count = 0
while True:
    writer.append(np.random.default_rng(0).random((64, 64, 64), "f4"))
    count += 64
    print(count, flush=True)
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_killed_process_leaves_no_half_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    with fork_server.start(SCRIPT, path) as child:
        assert child.stdout is not None
        while int(child.stdout.readline()) < 64 * 24:  # some blocks have been written
            pass
        with pytest.raises(SourceError, match="another one"):
            create(path, element_shape=(), dtype="f4")
    left = tmp_path / f"{path.name}{PARTIAL}"
    assert os.listdir(tmp_path) == [left.name]
    assert "may be deleted" in (left / "README.txt").read_text()
    with create(path, element_shape=(), dtype="f4") as writer:
        writer.append(np.zeros(2, "f4"))
    assert os.listdir(tmp_path) == [path.name]
    assert read(path).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["a::b", "a:b", "a\nb", "memory:", "file:", "%41?#", "\udcff"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_name_of_a_file(tmp_path: Path, suffix: str, name: str) -> None:
    path = tmp_path / f"{name}{suffix}"
    with create(path, element_shape=(), dtype="f4") as writer:
        writer.append(np.arange(5, dtype="f4"))
    assert os.listdir(tmp_path) == [path.name]
    assert np.asarray(ooc.open(path)).tolist() == [0, 1, 2, 3, 4]


def test_a_full_disk_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int, data: Any, offset: int) -> int:
        raise OSError(28, "No space left on device")

    writer: Writer = create_function(tmp_path / "a.npy", element_shape=(), dtype="f4")
    writer.append(np.zeros(2, "f4"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(SourceError, match=r"No space.*Is the disk full\?.*a\.npy"):
            writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_append_closes_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appending after a failed append would put rows at wrong positions, so it is an error."""
    writer = create(tmp_path / "a.npy", element_shape=(1 << 20,), dtype="u1")

    def full(number: int, data: Any, offset: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            writer.append(np.ones((40, 1 << 20), "u1"))
    with pytest.raises(ArgumentError, match="closed"):
        writer.append(np.ones((40, 1 << 20), "u1"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_forked_process_leaves_the_writer_alone(tmp_path: Path, suffix: str) -> None:
    code = (
        "import os, sys, numpy as np\n"
        "from oocdata.writers import create\n"
        "writer = create(sys.argv[1], element_shape=(), dtype='f4')\n"
        "writer.append(np.zeros(2, 'f4'))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        with writer:\n"
        "            writer.append(np.ones(2, 'f4'))\n"
        "    except Exception as error:\n"
        "        print(error, flush=True)\n"
        "    del writer\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "writer.append(np.ones(1, 'f4'))\n"
        "writer.close()\n"
    )
    done = fork_server.run(code, tmp_path / f"a{suffix}")
    assert done.returncode == 0, done.stderr
    assert "the process that made it" in done.stdout
    assert read(tmp_path / f"a{suffix}").tolist() == [0, 0, 1]


def test_masked_rows_are_refused(tmp_path: Path) -> None:
    writer = create(tmp_path / "a.npy", element_shape=(), dtype="f4")
    with pytest.raises(ArgumentError, match="masked"), writer:
        writer.append(np.ma.masked_array(np.zeros(2, "f4"), [True, False]))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_arguments_of_the_wrong_kind(tmp_path: Path, suffix: str) -> None:
    wrong: list[dict[str, Any]] = [{"key": 3}, {"key": b"u"}]
    if suffix != ".npy":
        wrong += [{"key": "a\0b"}]
    for options in wrong:
        with pytest.raises(ArgumentError):
            create(tmp_path / f"a{suffix}", element_shape=(2,), dtype="f4", **options)
    with create(os.fsencode(tmp_path / f"a{suffix}"), element_shape=(2,), dtype="f4") as writer:
        with pytest.raises(ArgumentError, match="one array"):
            writer.append([[1, 2], [3]])
        writer.append(np.ones((3, 2), "f4"))
    assert read(tmp_path / f"a{suffix}").tolist() == [[1, 1]] * 3
    assert os.listdir(tmp_path) == [f"a{suffix}"]


def test_gzip_is_of_level_1_however_it_is_chosen(tmp_path: Path) -> None:
    for number, options in enumerate([{}, {"codec": "gzip"}]):
        with create(tmp_path / f"{number}.h5", element_shape=(), dtype="f4", **options):
            pass
        with h5py.File(tmp_path / f"{number}.h5") as file:
            assert (file["data"].compression_opts, file["data"].shuffle) == (1, True)


def test_a_save_of_zarr_has_the_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oocdata.writers import zarr as zarr_module
    from oocdata.writers.target import Target
    from oocdata.writers.zarr import ZarrStorage

    synced: list[str] = []
    monkeypatch.setattr(zarr_module, "sync_file", synced.append)
    target = Target(format="zarr", key=None, shape=(4, 4), dtype=np.dtype("f4"), chunks=(2, 2))
    storage = ZarrStorage(target, str(tmp_path / "a.zarr"))
    storage.write(0, np.ones((4, 4), "f4"))
    storage.save()
    storage.abandon()
    folder = tmp_path / "a.zarr"
    everything = {*folder.rglob("*"), folder} - {folder / "zarr.json"}
    assert set(map(Path, synced)) == everything


def test_shapes_that_are_no_sequences(tmp_path: Path) -> None:
    shape: Any
    for shape in (5, 2.5, None):
        with pytest.raises(ArgumentError, match="sequence of lengths"):
            create(tmp_path / "a.npy", dtype="f4", element_shape=shape)
    with create(tmp_path / "a.npy", dtype="f4", element_shape=np.array([2, 3])) as writer:
        writer.append(np.zeros((4, 2, 3), "f4"))


# Other contents of the file


def add(path: Path, key: str, **options: Any) -> None:
    with create(path, key=key, element_shape=(), dtype="f8", **options) as writer:
        writer.append(np.ones(3))


def attribute(file: h5py.File) -> None:
    file.attrs["run"] = 7


def dataset(file: h5py.File) -> None:
    file["g/v"] = [3, 4]


def group(file: h5py.File) -> None:
    file.create_group("empty")


def link(file: h5py.File) -> None:
    file["far"] = h5py.ExternalLink("none.h5", "/x")


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("more", [attribute, dataset, group, link])
@pytest.mark.parametrize("key", ["g/u", "w"])
def test_an_hdf5_file_that_holds_more_stays(
    tmp_path: Path, more: Any, key: str, overwrite: bool
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["g/u"] = [1, 2]
        more(file)
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match="holds more than"):
        create(path, key=key, element_shape=(), dtype="f4", overwrite=overwrite)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.parametrize("key", ["u", "g/u"])
def test_a_group_of_the_same_name_stays(tmp_path: Path, key: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_group(key).attrs["calibration"] = 3.0
    before = path.read_bytes()
    with pytest.raises(ArgumentError, match="holds more than"):
        create(path, key=key, element_shape=(), dtype="f4", overwrite=True)
    assert path.read_bytes() == before


def test_a_zarr_group_that_holds_another_group_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    root = zarr.create_group(path)
    root.create_array("u", shape=(2,), dtype="f4")
    root.create_group("notes", attributes={"calibration": 3.0})
    with pytest.raises(ArgumentError, match="nothing but 'u'"):
        create(path, key="u", element_shape=(), dtype="f4", overwrite=True)
    assert zarr.open_group(path)["notes"].attrs["calibration"] == 3.0


def test_a_sole_dataset_is_replaced_without_its_space(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/u"] = np.zeros(1 << 20)
    add(tmp_path / "a.h5", "g/u", overwrite=True)
    assert (tmp_path / "a.h5").stat().st_size < 1 << 20


def test_an_hdf5_file_that_appears_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    writer = create(path, key="u", element_shape=(), dtype="f4", overwrite=True)
    with h5py.File(path, "w") as file:
        file["z"] = [3, 4]
    writer.append(np.ones(2, "f4"))
    with pytest.raises(SourceError, match=r"holds more than '/u'.*kept as"):
        writer.close()
    with h5py.File(path) as file:
        assert file["z"][()].tolist() == [3, 4]
    with h5py.File(f"{path}{PARTIAL}/result.h5") as file:
        assert file["u"][()].tolist() == [1, 1]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_complete_array_whose_name_is_taken_is_kept(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    writer = create(path, element_shape=(2,), dtype="f4")
    writer.append(np.ones((3, 2), "f4"))
    path.mkdir() if suffix == ".zarr" else path.touch()
    with pytest.raises(SourceError, match="kept as") as caught:
        writer.close()
    kept = Path(str(caught.value).split("kept as '")[1].split("'")[0])
    path.rmdir() if suffix == ".zarr" else path.unlink()
    kept.rename(path)
    assert read(path).tolist() == [[1, 1]] * 3
    create(path, element_shape=(2,), dtype="f4", overwrite=True).close()  # in the same folder
    assert os.listdir(tmp_path) == [path.name]


def test_an_hdf5_file_that_can_not_be_read_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["y"] = np.zeros(1000)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    with pytest.raises(SourceError, match="must be readable"):
        create(path, key="u", element_shape=(), dtype="f4", overwrite=True)
    assert path.read_bytes() == whole[:-1000]


@pytest.mark.parametrize("key", [None, "u", "u/v", "w"])
def test_a_zarr_group_that_holds_more_stays(tmp_path: Path, key: str | None) -> None:
    path = tmp_path / "a.zarr"
    for change in ("an array", "attributes"):
        group = zarr.create_group(path, overwrite=True)
        group.create_array("u", shape=(3,), dtype="i4")[:] = 5
        if change == "attributes":
            group.attrs["run"] = 7
        else:
            group.create_array("v", shape=(3,), dtype="i4")
        for overwrite in (True, False):
            with pytest.raises(ArgumentError, match="folder is replaced only"):
                create(path, key=key, element_shape=(), dtype="f4", overwrite=overwrite)
        assert zarr.open_group(path, mode="r")["u"][:].tolist() == [5, 5, 5]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path, overwrite: bool) -> None:
    """No system exchanges the two in one step: it failed when the array was complete."""
    (tmp_path / "a.zarr").write_text("a note")
    with pytest.raises(ArgumentError, match=r"a file is not replaced by a folder, .*a\.zarr"):
        create(tmp_path / "a.zarr", element_shape=(), dtype="f4", overwrite=overwrite)
    assert os.listdir(tmp_path) == ["a.zarr"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_deleted_meanwhile_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    writer = create(path, element_shape=(1024, 1024), dtype="u1", codec="none")
    rows = np.ones((40, 1024, 1024), "u1")
    writer.append(rows)
    shutil.rmtree(f"{path}{PARTIAL}")
    with pytest.raises(OSError), writer:  # noqa: PT011
        writer.append(rows)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_another_process_made_meanwhile_stays(tmp_path: Path) -> None:
    first = create(tmp_path / "a.npy", element_shape=(), dtype="f4")
    shutil.rmtree(tmp_path / f"a.npy{PARTIAL}")
    second = create(tmp_path / "a.npy", element_shape=(), dtype="f4")
    second.append(np.ones(2, "f4"))
    with pytest.raises(SourceError, match="was deleted"):
        first.close()
    second.close()
    assert read(tmp_path / "a.npy").tolist() == [1, 1]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_a_private_file_stays_private(tmp_path: Path, suffix: str, mode: int) -> None:
    path = tmp_path / f"a{suffix}"
    for _ in range(2):
        writer = create(path, element_shape=(), dtype="f4", overwrite=True)
        while_made = (tmp_path / f"a{suffix}{PARTIAL}").stat().st_mode & 0o077
        writer.append(np.ones(3, "f4"))
        writer.close()
        assert read(path).tolist() == [1, 1, 1]
        found = path.stat().st_mode & 0o777
        path.chmod(mode | (0o100 if suffix == ".zarr" else 0))
        assert while_made == 0
    assert found & 0o077 == mode & 0o077


def test_a_complete_array_where_nothing_can_be_renamed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*names: str) -> None:
        raise PermissionError(13, "Permission denied")

    writer = create(tmp_path / "a.npy", element_shape=(), dtype="f4")
    writer.append(np.ones(2, "f4"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refused)
        patched.setattr(os, "rename", refused)
        with pytest.raises(SourceError, match=r"denied.*kept as") as caught:
            writer.close()
    kept = Path(str(caught.value).split("kept as '")[1].split("'")[0])
    assert read(kept).tolist() == [1, 1]


@pytest.mark.parametrize("there", [True, False], ids=["there", "dangling"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_symbolic_link_stays(tmp_path: Path, suffix: str, there: bool) -> None:
    (tmp_path / "far").mkdir()
    path, far = tmp_path / f"a{suffix}", tmp_path / "far" / "b"
    if there:
        with create(path, element_shape=(), dtype="f4") as writer:
            writer.append(np.zeros(2, "f4"))
        path.rename(far)
    path.symlink_to("far/b")
    with create(path, element_shape=(), dtype="f4", overwrite=there) as writer:
        writer.append(np.ones(3, "f4"))
        assert os.listdir(tmp_path / "far") == (["b"] if there else []) + [f"b{PARTIAL}"]
    assert path.readlink() == Path("far/b")
    assert read(path).tolist() == [1, 1, 1]
    assert os.listdir(tmp_path / "far") == ["b"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"a{suffix}")
    (tmp_path / f"b{suffix}").symlink_to(f"b{suffix}")
    for name in "ab":
        with pytest.raises(ArgumentError, match="neither"):
            create(tmp_path / f"{name}{suffix}", element_shape=(), dtype="f4", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == [f"a{suffix}", f"b{suffix}"]


MANY_CHUNKS = """
import sys, numpy as np
from oocdata.writers import create

def grown():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))

with create(sys.argv[1], element_shape=(), dtype="u1", chunks=1, codec="none") as writer:
    writer._block = np.empty(4096, "u1")  # written at once
    rows = np.arange(4096, dtype="u1")
    writer.append(rows)
    before = grown()
    for _ in range(11):
        writer.append(rows)
    print(grown() - before)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells the memory so")
def test_the_memory_does_not_grow_with_the_chunks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MANY_CHUNKS, str(tmp_path / "a.h5")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 7 << 20  # 45,000 chunks would take twice as much
    assert (read(tmp_path / "a.h5") == np.tile(np.arange(4096, dtype="u1"), 12)).all()


# A folder of the same name that was not made by oocdata


def foreign(path: Path, kind: str) -> Path:
    """Make something under the name of an unfinished array's folder; return what must stay."""
    left = path.with_name(f"{path.name}{PARTIAL}")
    if kind == "link":
        project = path.parent / "project"
        project.mkdir()
        (project / "README.txt").write_text("Made by oocdata: by me, in fact")
        left.symlink_to(project)
        precious = project / "thesis.tex"
    elif kind == "file":
        precious = left
    else:
        left.mkdir()
        precious = left / ("README.txt" if kind == "readme" else "thesis.tex")
    precious.write_text("years of work")
    return precious


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["folder", "readme", "link", "file"])
def test_nothing_of_somebody_else_s_is_deleted(tmp_path: Path, suffix: str, kind: str) -> None:
    path = tmp_path / f"a{suffix}"
    precious = foreign(path, kind)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArgumentError, match=r"must be one that oocdata made"):
        create(path, element_shape=(2,), dtype="f4")
    assert precious.read_text() == "years of work"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("note", [False, True])
def test_the_folder_of_a_process_killed_at_once_is_reused(tmp_path: Path, note: bool) -> None:
    """A process was killed after it had made the folder and the empty note."""
    (tmp_path / f"a.npy{PARTIAL}").mkdir()
    if note:
        (tmp_path / f"a.npy{PARTIAL}" / NOTE_NAME).touch()
    with create(tmp_path / "a.npy", element_shape=(2,), dtype="f4") as writer:
        writer.append(np.ones((1, 2), "f4"))
    assert os.listdir(tmp_path) == ["a.npy"]


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(tmp_path / "a.npy", element_shape=(2,), dtype="f4")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ArgumentError, match="made for"):
        create(tmp_path / "a.npy", element_shape=(2,), dtype="f4")
    monkeypatch.undo()
    writer.abandon()


def test_foreign_files_in_the_folder_stay(tmp_path: Path) -> None:
    left = tmp_path / f"a.npy{PARTIAL}"
    for _ in range(2):  # the foreign file does not disturb
        with create(tmp_path / "a.npy", element_shape=(), dtype="f4", overwrite=True) as writer:
            (left / "thesis.tex").write_text("years of work")
            writer.append(np.ones(3, "f4"))
        assert sorted(os.listdir(left)) == ["README.txt", "thesis.tex"]
        assert np.load(tmp_path / "a.npy").tolist() == [1, 1, 1]
