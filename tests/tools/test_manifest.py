"""Test the content of manifests, and that they are written atomically."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import fork_server
import h5py
import numpy as np
import pytest
import xxhash
import zarr

from oocdata.engines.atomic import atomic_file
from oocdata.errors import ArgumentError, ManifestError, SourceError
from oocdata.tools.check import check
from oocdata.tools.opening import Opening

ROWS = np.random.default_rng(0).random((40, 3, 50))
LABELS = np.arange(1000, dtype=">i4")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=ROWS, chunks=(8, 3, 50), compression="gzip")
        file["labels"] = LABELS
        file["note"] = "text"
    return tmp_path / "a.h5"


def test_the_format_is_what_is_documented(path: Path) -> None:
    check(path, write_manifest=True)
    with np.load(f"{path}.manifest") as manifest:
        about = json.loads(bytes(manifest["manifest.json"]))
        tables = {name: manifest[name] for name in manifest.files if "json" not in name}
    assert (about["format"], about["checksum"], about["name"]) == (2, "xxh3-64", "a.h5")
    expected = {"/u": ROWS, "/labels": LABELS.astype("<i4")}
    for one in about["datasets"]:
        array, unit = expected.pop(one["key"]), one["unit_rows"]
        assert tuple(one["shape"]) == array.shape
        assert one["dtype"] == array.dtype.str
        parts = [array[start : start + unit] for start in range(0, len(array), unit)]
        table = tables[one["member"]]
        assert table.tolist() == [xxhash.xxh3_64_intdigest(part.tobytes()) for part in parts]
    assert not expected
    assert all(table.dtype == "<u8" for table in tables.values())


def test_it_is_not_written_over(path: Path) -> None:
    check(path, write_manifest=True)
    before = Path(f"{path}.manifest").read_bytes()
    with pytest.raises(ArgumentError, match=r"must not exist yet"):
        check(path, write_manifest=True)
    assert Path(f"{path}.manifest").read_bytes() == before
    check(path, "u", write_manifest=True, overwrite=True)
    assert Path(f"{path}.manifest").read_bytes() != before


def test_never_in_or_over_the_data(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(10))
    np.save(tmp_path / "a.npy", ROWS)
    for target, place in (("a.zarr", "a.zarr/sums"), ("a.npy", "a.npy")):
        with pytest.raises(ArgumentError, match="beside the data"):
            check(tmp_path / target, write_manifest=tmp_path / place, overwrite=True)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), ROWS)


def test_where_nothing_can_be_written(path: Path) -> None:
    with pytest.raises(SourceError, match="writable; the system says: No such file"):
        check(path, write_manifest=path.parent / "none" / "sums")


_FULL = """
import resource, signal, sys
import oocdata
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
try:
    oocdata.check(sys.argv[1], write_manifest=True, overwrite=True)
except oocdata.errors.SourceError as error:
    print(error)
"""


def test_a_full_disk_is_an_error_and_leaves_the_old_one(path: Path) -> None:
    check(path, write_manifest=True)
    before = Path(f"{path}.manifest").read_bytes()
    done = fork_server.run(_FULL, path)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert "a.h5.manifest" in done.stdout
    assert Path(f"{path}.manifest").read_bytes() == before
    assert sorted(os.listdir(path.parent)) == ["a.h5", "a.h5.manifest"]


def test_none_is_written_of_damaged_data(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    check(tmp_path / "a.npy", write_manifest=True)
    before = Path(f"{tmp_path}/a.npy.manifest").read_bytes()
    os.truncate(tmp_path / "a.npy", 3000)
    health = check(tmp_path / "a.npy", write_manifest=True, overwrite=True)
    assert not health.written
    assert not health.healthy()
    assert Path(f"{tmp_path}/a.npy.manifest").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "a.npy.manifest"]


def test_numbers_that_are_no_numbers_are_data_too(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[[3, 4, 9], 0, 0] = np.nan
    np.save(tmp_path / "a.npy", rows)
    first = check(tmp_path / "a.npy", write_manifest=True)
    assert first.written
    (tmp_path / "a.npy").rename(tmp_path / "copy.npy")
    again = check(tmp_path / "copy.npy", manifest=tmp_path / "a.npy.manifest")
    (nan,) = again.findings
    assert (nan.kind, nan.rows, nan.values) == ("nan", (range(3, 5), range(9, 10)), 3)
    assert nan.path == str(tmp_path / "copy.npy")
    assert again.datasets[0].shape == ROWS.shape


def test_datasets_that_are_gone_or_new(path: Path) -> None:
    check(path, write_manifest=True)
    with h5py.File(path, "a") as file:
        file["new"] = np.arange(3)
        del file["labels"], file["u"]
        file["u"] = "no array any more"
    health = check(path, manifest=True)
    found = {(one.kind, one.key) for one in health.findings}
    assert ("missing", "/labels") in found
    assert ("unreadable", "/u") in found
    assert ("unchecked", "/new") in found


def test_a_key_without_checksums(path: Path) -> None:
    check(path, "u", write_manifest=True)
    (changed,) = check(path, "/labels", manifest=True).findings
    assert (changed.kind, changed.key) == ("changed", "/labels")
    assert "the checksums of '/labels'; it holds those of '/u'" in changed.reason


def test_any_bit_of_the_manifest_is_noticed_or_does_not_matter(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    check(tmp_path / "a.npy", write_manifest=True)
    manifest = tmp_path / "a.npy.manifest"
    whole = manifest.read_bytes()
    refused = 0
    for bit in np.random.default_rng(0).integers(0, len(whole) * 8, 300).tolist():
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(changed)
        try:
            # Dates and other fields of the archive, which nobody reads, may change.
            assert check(tmp_path / "a.npy", manifest=True).healthy()
        except ManifestError:
            refused += 1
    assert refused > 200


_KILLED = """
import os, signal, sys
import oocdata.tools.{module} as module

def stop(*arguments, **options):
    os.kill(os.getpid(), signal.{signal})

module.{name} = stop
from oocdata.tools.check import check
from oocdata.tools.opening import Opening
from oocdata.tools.opening import Opening
check(sys.argv[1], write_manifest=True, overwrite=True)
"""


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        ("check.rows", "os.replace", "SIGKILL"),
        ("check.rows", "checksums_of", "SIGKILL"),
        ("check.rows", "checksums_of", "SIGINT"),
    ],
)
def test_a_process_that_is_ended_leaves_the_old_one(
    path: Path, module: str, name: str, number: str
) -> None:
    check(path, write_manifest=True)
    before = Path(f"{path}.manifest").read_bytes()
    script = _KILLED.format(module=module, name=name, signal=number)
    done = fork_server.run(script, path)
    assert done.returncode in (-signal.SIGKILL, -signal.SIGINT), done.stderr
    assert Path(f"{path}.manifest").read_bytes() == before
    if number == "SIGINT":
        assert sorted(os.listdir(path.parent)) == ["a.h5", "a.h5.manifest"]
    for left in path.parent.glob("*.new"):
        os.utime(left, (0, 0))
    check(path, write_manifest=True, overwrite=True)
    assert sorted(os.listdir(path.parent)) == ["a.h5", "a.h5.manifest"]


def test_a_temporary_file_that_is_being_written_stays(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    for name in "ab":
        left = tmp_path / f"{name}.{'5' * 16}.new"
        left.write_bytes(b"of a writer that was killed")
        os.utime(left, (0, 0))
    with atomic_file(path) as slow:
        slow.write(b"first")
        with atomic_file(path) as fast:
            fast.write(b"second")
        assert Path(path).read_bytes() == b"second"
    assert Path(path).read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == ["a", f"b.{'5' * 16}.new"]


def test_what_its_permissions_are(path: Path) -> None:
    mask = os.umask(0o027)
    try:
        check(path, write_manifest=True)
    finally:
        os.umask(mask)
    assert Path(f"{path}.manifest").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.h5"])
def test_rows_are_compared_along_the_axis_of_the_manifest(tmp_path: Path, name: str) -> None:
    """Compare as `oocdata.open` does; rows along both axes have the same shape here."""
    values, path = np.random.default_rng(0).random((20, 20, 80)), tmp_path / name

    def write() -> None:
        if name == "a.npy":
            np.save(path, values)
        elif name == "a.zarr":
            zarr.create_array(path, data=values, overwrite=True, fill_value=-1)
        else:
            with h5py.File(path, "w") as file:
                file["u"] = values

    write()
    check(Opening.of(path, axis=1), write_manifest=True)
    assert check(path, manifest=True).healthy()
    values[:, [3, 11]] += 1
    write()
    for axis in (0, 1):
        (changed,) = check(Opening.of(path, axis=axis), manifest=True).findings
        assert (changed.kind, changed.rows) == ("changed", (range(3, 4), range(11, 12)))
