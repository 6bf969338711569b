"""Test text and TFRecord files against TensorFlow's readers."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.box import Extent
from oocdata.datasets.spec import leaves
from oocdata.describe import fingerprint, from_json
from oocdata.engines import buffers
from oocdata.engines.byte_rows import ByteRows, largest_rows, size_counts
from oocdata.engines.files import FileVersion
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Storage
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    EmptyError,
    MapError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats import lines, offsets, sidecar
from oocdata.formats.offsets import read_offsets, write_offsets
from oocdata.formats.sidecar import open_sidecar
from oocdata.frontends.examples import ParseExamples

ROWS = [b"first", b"", b"a longer line, \xff no UTF-8", b"\r", b"x" * 5000, "zw\u00f6lf".encode()]


def write_text(path: Path, rows: list[bytes]) -> None:
    path.write_bytes(b"".join(row + b"\n" for row in rows))


def write_records(path: Path, rows: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            writer.write(row)


KINDS = {"text": (write_text, "a.txt"), "records": (write_records, "a.tfrecord")}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    write, name = KINDS[request.param]

    def stored(rows: list[bytes], folder: str = ".") -> str:
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        write(path, rows)
        return str(path)

    return stored


def numbered(count: int) -> list[bytes]:
    return [b"%d " % number * (number % 7 + 1) for number in range(count)]


class TestRows:
    def test_any_rows_in_any_order(self, store: Callable[..., str]) -> None:
        rows = [row for row in ROWS if row != b"\r"]  # `\r` at the end of a line is removed
        view = ooc.open(store(rows))
        assert view.dtype == object
        assert view.shape == (5,)
        assert [view[place] for place in range(5)] == rows
        chosen = [4, 0, 0, 3, -1, 2]
        assert view.take(chosen).tolist() == [rows[place] for place in chosen]
        assert view[::-2].take([0, 1]).tolist() == [rows[4], rows[2]]

    def test_every_element_once_an_epoch_whoever_reads(self, store: Callable[..., str]) -> None:
        rows = numbered(103)
        loader = ooc.open(store(rows)).batches(8, shuffle=True, seed=3)
        for epoch in range(2):
            seen = [row for batch in loader.epoch(epoch) for row in batch.tolist()]
            assert sorted(seen) == sorted(rows)
            assert [row for batch in loader.epoch(epoch, 5) for row in batch.tolist()] == seen[40:]
        whole, parts = loader.batch(4), [loader.shard(2, rank).batch(4) for rank in range(2)]
        assert np.concatenate(parts).tolist() == whole.tolist()

    def test_tensors(self, store: Callable[..., str]) -> None:
        rows = numbered(50)
        loader = ooc.zip(ooc.open(store(rows)), ooc.open(np.arange(50))).batches(8, shuffle=True)
        dataset = loader.to_tf()
        assert dataset.element_spec[0] == tf.TensorSpec((None,), tf.string)
        assert dataset.cardinality() == 7
        pairs = [pair for x, y in dataset for pair in zip(x.numpy(), y.numpy(), strict=True)]
        assert sorted(number for _, number in pairs) == list(range(50))
        assert all(row == rows[number] for row, number in pairs)
        rest = [x.numpy().tolist() for x, _ in loader.to_tf(start=(1, 4))]
        assert rest == [x.tolist() for x, _ in loader.epoch(1, 4)]

    @pytest.mark.parametrize("size", [8, 5, 64])
    @pytest.mark.parametrize("kind", ["view", "chosen", "files", "concat", "mix", "zip", "windows"])
    def test_tensors_are_what_numpy_gets(
        self, kind: str, size: int, store: Callable[..., str]
    ) -> None:
        first, second = store(numbered(50)), store([b"", *numbered(37)[::-1], b""], "other")
        view, other = ooc.open(first), ooc.open(second)
        made: dict[str, Callable[[], ooc.Dataset]] = {
            "view": lambda: view,
            "chosen": lambda: view[np.random.default_rng(0).permutation(50)],
            "files": lambda: ooc.open([first, second, first]),
            "concat": lambda: ooc.concat([view[10:], other[::-1]]),
            "mix": lambda: ooc.mix({view: 0.75, other: 0.25}, length=130),
            "zip": lambda: ooc.zip(view[:39], ooc.open(np.arange(39)), other),
            "windows": lambda: view.windows(3, 2),
        }
        loader = made[kind]().batches(size, shuffle=True, seed=3)
        expected = [[one.tolist() for one in leaves(batch)] for batch in loader.epoch(0)]
        given = [[one.numpy().tolist() for one in leaves(batch)] for batch in loader.to_tf()]
        assert given == expected

    def test_bytes_of_other_sources_are_tensors_too(self, store: Callable[..., str]) -> None:
        rows, other = numbered(30), np.array([b"a", b"", b"\0b"], object)
        upper = ooc.open(store(rows)).map(
            lambda batch: np.array([*map(bytes.upper, batch)], object)
        )
        made = ooc.zip(upper, ooc.open(np.arange(30)).map(lambda batch: other[batch % 3]))
        given = [x.numpy().tolist() + y.numpy().tolist() for x, y in made.batches(8).to_tf()]
        assert given == [x.tolist() + y.tolist() for x, y in made.batches(8)]

    def test_damage_is_named_by_tensors_too(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tfrecord"
        write_records(path, ROWS)
        status, whole = path.stat(), bytearray(path.read_bytes())
        whole[whole.index(b"longer")] ^= 1
        path.write_bytes(whole)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(DamagedChunkError, match="must have the checksum") as raised:
            list(ooc.open([path, path])[6:].batches(6).to_tf())
        assert raised.value.rows == (2,)

    def test_with_every_other_dataset(self, store: Callable[..., str]) -> None:
        rows = numbered(40)
        view = ooc.open(store(rows))
        assert view.windows(3, shift=2).take([4]).tolist() == [rows[8:11]]
        assert [part[0] for part in view.split(0.5, 0.5)] == [rows[0], rows[20]]
        assert ooc.concat([view[:10], view[30:]]).take([12, 3]).tolist() == [rows[32], rows[3]]
        mixed = ooc.mix({view[:20]: 1, view[20:]: 1}).batches(4, shuffle=True)
        for batch in mixed:
            assert sum(rows.index(row) < 20 for row in batch.tolist()) == 2
        assert view.filter(np.arange(40) % 9 == 0).take([2]).tolist() == [rows[18]]
        assert [one[0] for one in view.enumerate().take([7])] == [7, rows[7]]
        drawn = view.batches(16, shuffle=True, weights=[0.0] * 39 + [1.0]).batch(0)
        assert drawn.tolist() == [rows[39]] * 16

    def test_functions_get_bytes_and_may_return_them(self, store: Callable[..., str]) -> None:
        rows = numbered(20)
        view = ooc.open(store(rows))
        lengths = view.map(lambda batch: np.array([len(row) for row in batch]))
        assert lengths.take([3, 4]).tolist() == [len(rows[3]), len(rows[4])]
        upper = view.map(lambda batch: np.array([row + b"!" for row in batch], object))
        assert upper.batches(4).batch(1).tolist() == [row + b"!" for row in rows[4:8]]
        assert next(iter(upper.batches(4).to_tf())).dtype == tf.string
        with pytest.raises(MapError, match=r"or of bytes as objects.*\.encode"):
            view.map(lambda batch: np.array([None] * len(batch), object))[0]

    @pytest.mark.parametrize(
        ("function", "advised"),
        [
            (lambda batch: np.array(list(batch)), lambda array: array.astype(object)),
            (
                lambda batch: np.array([row.decode() for row in batch]),
                lambda array: np.char.encode(array).astype(object),
            ),
        ],
        ids=["bytes", "str"],
    )
    def test_arrays_of_text_of_different_lengths(
        self, tmp_path: Path, function: Any, advised: Any
    ) -> None:
        """The advice must not cut text to the length of the spec, as `.astype` would."""
        write_text(tmp_path / "a.txt", [b"a", b"longer"])
        view = ooc.open(tmp_path / "a.txt")
        with pytest.raises(MapError, match="texts of different lengths to bytes"):
            view.map(function).take([0, 1])
        assert view.map(lambda batch: advised(function(batch))).take([0, 1]).tolist() == [
            b"a",
            b"longer",
        ]
        with pytest.raises(MapError, match=r"make an array of a list: np\.array"):
            view.map(lambda batch: [row.decode() for row in batch]).take([0, 1])

    def test_several_files_are_one_array(self, store: Callable[..., str], tmp_path: Path) -> None:
        paths = [store(numbered(count), folder) for folder, count in [("2", 5), ("10", 3)]]
        view = ooc.open(str(tmp_path / "*" / os.path.basename(paths[0])))
        assert view.take(np.arange(8)).tolist() == numbered(5) + numbered(3)
        assert len(view.windows(2, episodes="parts")) == 6
        loader = view.batches(4, shuffle=True)
        again = from_json(loader.describe())
        assert fingerprint(again) == fingerprint(loader)
        assert again.batch(1).tolist() == loader.batch(1).tolist()

    def test_what_has_changed_is_not_delivered(self, store: Callable[..., str]) -> None:
        path = store(numbered(20))
        view = ooc.open(path)
        store(numbered(21))
        with pytest.raises(SourceError, match="it has changed") as raised:
            view.take([3])
        assert raised.value.path == path

    def test_memory_is_recycled_from_read_to_read(
        self, store: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A read of 9 MiB ended with a short piece, for which a block of the pool was shrunk."""
        view = ooc.open(store([b"%06d" % row * 1700 for row in range(925)]))
        mapped: list[int] = []

        def reserve(kind: Any, nbytes: int) -> Any:
            mapped.append(nbytes)
            return reserved(kind, nbytes)

        reserved = buffers.reserve
        monkeypatch.setattr(buffers, "reserve", reserve)
        for _ in range(2):
            view.take(range(925))
        mapped.clear()
        for _ in range(3):
            assert view.take(range(925))[-1] == b"000924" * 1700
        assert not mapped

    def test_workers(self, store: Callable[..., str]) -> None:
        view = ooc.open(store(numbered(30)))
        assert [row for batch in view.batches(4, workers=1) for row in batch] == numbered(30)
        # Not a function of this module, with which a worker would import TensorFlow.
        lengths = view.map(lambda batch: np.array([len(row) for row in batch]))
        loader = lengths.batches(4, shuffle=True, workers=1)
        assert np.concatenate(list(loader)).sum() == sum(map(len, numbered(30)))

    def test_keras_takes_numbers(self, store: Callable[..., str]) -> None:
        view = ooc.open(store(numbered(8)))
        with pytest.raises(ArgumentError, match="`to_keras` must be given arrays of numbers"):
            view.batches(4).to_keras()
        lengths = view.map(lambda batch: np.array([len(row) for row in batch]))
        assert lengths.batches(4).to_keras()[1].tolist() == [len(row) for row in numbered(8)[4:]]

    def test_pickled(self, store: Callable[..., str]) -> None:
        view = ooc.open(store(ROWS[:2]))
        assert pickle.loads(pickle.dumps(view)).take([0]).tolist() == [ROWS[0]]

    def test_tools_say_what_they_can_not_do(
        self, store: Callable[..., str], tmp_path: Path
    ) -> None:
        view = ooc.open(store(numbered(9)))
        with pytest.raises(UnsupportedDtypeError, match="must be numbers; got bytes"):
            ooc.stats(view)
        with pytest.raises(UnsupportedDtypeError, match=r"to be converted.*unequal length"):
            ooc.convert(view, tmp_path / "b.zarr")
        assert ooc.check(view).findings == ()

    def test_no_rows(self, store: Callable[..., str]) -> None:
        view = ooc.open(store([]))
        assert len(view) == 0
        assert view.take([]).shape == (0,)
        with pytest.raises(EmptyError):
            view.batches(2)


class TestText:
    # TensorFlow drops a carriage return anywhere in a line.
    @given(st.text("x\xe9\0\n", max_size=30), st.sampled_from([b"\n", b"\r\n"]))
    def test_lines_are_those_of_tensorflow(self, text: str, end: bytes) -> None:
        path = Path(os.environ["LINES"])
        path.write_bytes(text.encode().replace(b"\n", end))
        expected = [line.numpy() for line in tf.data.TextLineDataset(str(path))]
        view = ooc.open(str(path), format="text")
        assert view.take(np.arange(len(view))).tolist() == expected

    @pytest.fixture(autouse=True)
    def one_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LINES", str(tmp_path / "lines.txt"))

    @pytest.mark.parametrize("name", ["a.csv", "a.JSONL", "a.log"])
    def test_known_by_its_name(self, name: str, tmp_path: Path) -> None:
        (tmp_path / name).write_text('{"a": 1}\n')
        assert ooc.open(tmp_path / name)[0] == b'{"a": 1}'

    def test_said_to_be_text(self, tmp_path: Path) -> None:
        path = tmp_path / "part-00000"
        path.write_text("one\ntwo")
        with pytest.raises(UnknownFormatError, match="format='text'"):
            ooc.open(path)
        view = ooc.open(path, format="text")
        assert view[1] == b"two"
        assert view.batches(2).describe()["loader"]["dataset"]["source"]["source"]["opened"] == {
            "target": str(path), "format": "text",
        }  # fmt: skip
        with pytest.raises(ArgumentError, match="`format` must be 'text'"):
            ooc.open(path, format="lines")  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="`key` must be None for text"):
            ooc.open(path, "x", format="text")
        with pytest.raises(ArgumentError, match="files of text only"):
            ooc.open(np.zeros(3), format="text")

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
    @pytest.mark.parametrize("packed", [False, True])
    def test_wide_characters_are_refused(self, encoding: str, packed: bool, tmp_path: Path) -> None:
        """A byte of U+010A looks like a newline, and lines would begin within a character."""
        data = "\ufeff\u010a,1\n2,3\n".encode(encoding)
        path = tmp_path / ("a.csv.gz" if packed else "a.csv")
        path.write_bytes(gzip.compress(data) if packed else data)
        with pytest.raises(UnknownFormatError, match="begins as UTF-16 does"):
            ooc.open(path)
        plain = tmp_path / "b.csv"
        plain.write_bytes("\ufeff\u010a,1\n".encode())
        assert ooc.open(plain)[0].decode("utf-8-sig") == "\u010a,1"

    def test_blocks_of_a_scan(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "_BLOCK", 7)
        rows = [b"x" * number for number in range(20)]
        (tmp_path / "a.txt").write_bytes(b"\n".join(rows))
        assert ooc.open(tmp_path / "a.txt").take(np.arange(20)).tolist() == rows


class TestOffsets:
    def test_found_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path, scans = tmp_path / "a.txt", []
        real = lines._line_starts
        monkeypatch.setattr(lines, "_line_starts", lambda found: scans.append(1) or real(found))
        write_text(path, ROWS)
        for _ in range(3):
            assert len(ooc.open(path)) == len(ROWS)
        assert len(scans) == 1
        write_text(path, ROWS * 2)
        assert len(ooc.open(path)) == 2 * len(ROWS)
        assert len(scans) == 2
        (hidden,) = set(os.listdir(tmp_path)) - {
            "a.txt"
        }  # the sidecar file of the earlier version is gone
        assert hidden.startswith(".a.txt.lines-")

    def test_the_scan_takes_little_memory(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"\n" * (8 << 20))  # 8 bytes of offsets for each byte
        tracemalloc.start()
        try:
            ooc.open(tmp_path / "a.txt")
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()

    def test_a_file_that_is_replaced_while_it_is_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def replaced_afterwards(*given: Any) -> Any:
            found = open_sidecar(*given)
            write_text(tmp_path / "b.txt", [b"c", b"bba"])
            os.replace(tmp_path / "b.txt", tmp_path / "a.txt")
            return found

        write_text(tmp_path / "a.txt", [b"aaa", b"b"])
        monkeypatch.setattr(offsets, "open_sidecar", replaced_afterwards)
        with pytest.raises(SourceError, match="as it was when it was opened"):
            ooc.open(tmp_path / "a.txt")[0]

    @pytest.mark.parametrize("damage", [b"", b"{}", b"x" * 5000])
    def test_damaged_ones_are_made_anew(self, damage: bytes, tmp_path: Path) -> None:
        write_text(tmp_path / "a.txt", ROWS)
        ooc.open(tmp_path / "a.txt")
        (hidden,) = set(os.listdir(tmp_path)) - {"a.txt"}
        (tmp_path / hidden).write_bytes(damage)
        assert ooc.open(tmp_path / "a.txt")[0] == ROWS[0]

    def test_in_a_folder_that_is_read_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_text(tmp_path / "a.txt", ROWS)
        real = sidecar._write

        def refused(path: str, *given: Any) -> Any:  # root may write anywhere
            if os.path.dirname(path) == str(tmp_path):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *given)

        monkeypatch.setattr(sidecar, "_write", refused)
        monkeypatch.setattr(sidecar, "_user_folder", lambda: str(tmp_path / "own"))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        (tmp_path / "own").mkdir()
        for _ in range(2):
            assert ooc.open(tmp_path / "a.txt")[2] == ROWS[2]
        assert len(os.listdir(tmp_path / "own")) == 1
        monkeypatch.setattr(sidecar, "_user_folder", lambda: str(tmp_path))
        write_text(tmp_path / "a.txt", ROWS[:2])
        with pytest.raises(SourceError, match="neither could be written"):
            ooc.open(tmp_path / "a.txt")

    def test_what_another_process_has_just_written_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_text(tmp_path / "a.txt", ROWS)
        real, others = os.replace, []

        def late(*names: Any) -> None:  # another process, after the name was found free
            monkeypatch.setattr(os, "replace", real)
            others.append(ooc.open(tmp_path / "a.txt"))
            real(*names)

        monkeypatch.setattr(os, "replace", late)
        monkeypatch.setattr(sidecar, "_remove_others", lambda *_: None)  # keep other versions
        views = [ooc.open(tmp_path / "a.txt"), *others]
        assert all(view[2] == ROWS[2] for view in views)

    def test_files_of_one_name_in_folders_that_are_read_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = sidecar._write

        def refused(path: str, *given: Any) -> Any:  # root may write anywhere
            if os.path.dirname(path) != str(tmp_path / "own"):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *given)

        monkeypatch.setattr(sidecar, "_write", refused)
        monkeypatch.setattr(sidecar, "_user_folder", lambda: str(tmp_path / "own"))
        views = []
        for name in ("own", "train", "val"):
            (tmp_path / name).mkdir()
            write_text(tmp_path / name / "a.txt", [name.encode()] * 3)
            views.append(ooc.open(tmp_path / name / "a.txt"))
        assert [view[2] for view in views] == [b"own", b"train", b"val"]

    def test_a_folder_of_two_names(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "folder")
        write_text(tmp_path / "folder" / "a.txt", ROWS)
        views = [ooc.open(tmp_path / name / "a.txt") for name in ("folder", "link")]
        assert [view[2] for view in views] == [ROWS[2]] * 2
        assert len(os.listdir(tmp_path / "folder")) == 2

    def test_machines_that_share_a_folder(self, tmp_path: Path) -> None:
        """The device number of a network file system differs between machines."""
        write_text(tmp_path / "a.txt", ROWS)
        here = FileVersion.of(str(tmp_path / "a.txt"))
        made = []
        for version in (here, replace(here, device=here.device + 1)):
            write = partial(write_offsets, here, lines._line_starts)
            made.append(open_sidecar(version, "lines", read_offsets, write)[0])
        found = np.empty((1, 1), np.int64)
        for source in made:
            source.read(np.array([[1]]), Extent.of((1,)), found)
            assert found[0, 0] == len(ROWS[0]) + 1

    def test_found_by_several_processes_at_once(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.txt", numbered(1000))
        script = (
            "import sys, oocdata as ooc\n"
            "view = ooc.open(sys.argv[1])\n"
            "assert sum(map(len, view.take(range(1000)))) == int(sys.argv[2])\n"
        )
        arguments = [str(tmp_path / "a.txt"), str(sum(map(len, numbered(1000))))]
        each = [subprocess.Popen([sys.executable, "-c", script, *arguments]) for _ in range(3)]
        assert [one.wait() for one in each] == [0, 0, 0]
        assert len(os.listdir(tmp_path)) == 2

    def test_rows_that_lie_outside(self) -> None:
        values = MemoryArray(np.zeros(10, np.uint8))
        source = ByteRows(
            values, MemoryArray(np.array([0, 3, 11])), lines.without_ends, Storage("x")
        )
        out = np.empty((1, 1), object)
        with pytest.raises(SourceError, match=r"their offsets say places 3 to 11.*row 1\]"):
            source.read(np.array([[1]]), Extent.of((1,)), out)

    def test_size_classes_of_many_rows(self) -> None:
        lengths = np.arange(40_000) ** 2 % 9001
        expected = size_counts(lengths[:10_000]) + size_counts(lengths[10_000:20_000])
        expected += size_counts(lengths[20_000:30_000]) + size_counts(lengths[30_000:])
        assert np.array_equal(size_counts(lengths), expected)

    @given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(1, 50))
    def test_bound_on_the_largest(self, lengths: list[int], rows: int) -> None:
        found = largest_rows(size_counts(np.array(lengths)), rows)
        expected = sum(sorted(lengths)[::-1][:rows])
        assert expected <= found <= 1.2 * expected + 2 * rows

    def test_rows_beside_one_another_are_one_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []

        class Counted(MemoryArray):
            def read_runs(self, starts: Any, lengths: Any, out: Any) -> None:
                calls.append(len(starts))
                out[...] = np.concatenate(
                    [self.array[a : a + n] for a, n in zip(starts, lengths, strict=True)]
                )

        places = np.arange(0, 41, 2)
        source = ByteRows(
            MemoryArray(np.arange(40, dtype=np.uint8) + 100),
            Counted(places),
            lines.without_ends,
            Storage("x"),
        )
        out = np.empty((6, 1), object)
        source.read(np.array([[4], [5], [6], [2], [9], [10]]), Extent.of((1,)), out)
        assert [row[0][0] for row in out] == [108, 110, 112, 104, 118, 120]
        assert calls == [3]  # places of rows 4 to 6, of row 2, of rows 9 and 10


@pytest.fixture
def packed(store: Callable[..., str]) -> Callable[..., str]:
    """Return a function that writes compressed files of several members."""

    def stored(rows: list[bytes], after: bytes = bytes(7)) -> str:  # padding, as on tapes
        path = store(rows)
        data, half = Path(path).read_bytes(), os.path.getsize(path) // 2
        Path(path).unlink()
        members = gzip.compress(data[:half]) + gzip.compress(data[half:])
        Path(f"{path}.gz").write_bytes(members + after)
        return f"{path}.gz"

    return stored


class TestCompressed:
    def test_any_rows_in_any_order(
        self, packed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sidecar, "_BLOCK", 100)
        rows = numbered(300)
        path = packed(rows)
        view = ooc.open(path)
        assert view.take([299, 0, 7, 7]).tolist() == [rows[299], rows[0], rows[7], rows[7]]
        loader = view.batches(32, shuffle=True, seed=4)
        assert sorted(row for batch in loader for row in batch.tolist()) == sorted(rows)
        again = from_json(loader.describe())
        assert again.batch(3).tolist() == loader.batch(3).tolist()
        assert ooc.check(view).findings == ()
        assert [source.storage().path for source in view.sources()] == [path]

    def test_as_tensorflow_reads_them(self, packed: Callable[..., str]) -> None:
        path = packed(numbered(50), b"")
        kind = tf.data.TFRecordDataset if "tfrecord" in path else tf.data.TextLineDataset
        expected = [row.numpy() for row in kind(path, compression_type="GZIP")]
        assert np.asarray(ooc.open(path)).tolist() == expected

    def test_unpacked_once_for_each_version(
        self, packed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls, real = [], shutil.copyfileobj
        monkeypatch.setattr(shutil, "copyfileobj", lambda *given: calls.append(1) or real(*given))
        path = packed(numbered(9))
        for _ in range(3):
            assert len(ooc.open(path)) == 9
        assert len(calls) == 1
        first = set(os.listdir(os.path.dirname(path)))
        packed(numbered(10))
        assert len(ooc.open(path)) == 10
        assert len(calls) == 2
        # Three sidecar files, all of one version.
        assert len(first) == len(os.listdir(os.path.dirname(path))) == 3
        assert first & set(os.listdir(os.path.dirname(path))) == {os.path.basename(path)}

    @pytest.mark.parametrize(
        ("damage", "kind", "rule"),
        [
            (lambda data: data[:-40], TruncatedFileError, "all of its compressed bytes"),
            (lambda data: data[:50] + b"\xff\xff" + data[52:], DamagedChunkError, "must unpack"),
            (lambda data: data[:-7] + data[:4], TruncatedFileError, "all of its compressed bytes"),
            (lambda data: data[:-7] + b"noise", DamagedChunkError, "must unpack"),
        ],
        ids=["cut short", "flipped bits", "cut within a header", "damaged header"],
    )
    def test_damaged(
        self, packed: Callable[..., str], damage: Any, kind: type[Exception], rule: str
    ) -> None:
        path = packed(numbered(300))
        Path(path).write_bytes(damage(Path(path).read_bytes()))
        with pytest.raises(kind, match=rule) as raised:
            ooc.open(path)
        assert isinstance(raised.value, SourceError)
        assert raised.value.path == path
        assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]

    def test_no_room_on_the_disk(
        self, packed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        path = packed(numbered(300))
        monkeypatch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(SourceError, match=r"neither could be written.*No space left"):
            ooc.open(path)

    def test_what_a_killed_process_left(self, packed: Callable[..., str]) -> None:
        path = packed(numbered(9))
        left = Path(os.path.dirname(path)) / f".{os.path.basename(path)}.unpacked-0123-x"
        left.write_bytes(b"half")
        assert len(ooc.open(path)) == 9
        assert not left.exists()

    def test_said_to_be_text(self, tmp_path: Path) -> None:
        (tmp_path / "part-0").write_bytes(gzip.compress(b"one\ntwo"))
        assert ooc.open(tmp_path / "part-0", format="text")[1] == b"two"

    def test_plain_text_named_so(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt.gz").write_bytes(b"one\ntwo")
        with pytest.raises(UnknownFormatError, match="first bytes are b'one"):
            ooc.open(tmp_path / "a.txt.gz")

    def test_arrays_are_not(self, tmp_path: Path) -> None:
        (tmp_path / "a.npy.gz").write_bytes(gzip.compress(b"one"))
        with pytest.raises(UnknownFormatError, match="Unpack it first"):
            ooc.open(tmp_path / "a.npy.gz")

    @pytest.mark.parametrize("options", [{}, {"format": "text"}], ids=str)
    @pytest.mark.parametrize(
        ("ending", "head"),
        [("zst", b"\x28\xb5\x2f\xfd"), ("bz2", b"BZh91AY&SY"), ("xz", b"\xfd7zXZ\x00")],
    )
    def test_other_ways_are_not(
        self, tmp_path: Path, ending: str, head: bytes, options: dict[str, Any]
    ) -> None:
        (tmp_path / f"a.jsonl.{ending}").write_bytes(head + b" and more")
        with pytest.raises(UnknownFormatError, match="Unpack it first"):
            ooc.open(tmp_path / f"a.jsonl.{ending}", **options)


class TestRecords:
    def test_what_is_no_record(self, tmp_path: Path) -> None:
        (tmp_path / "a.tfrecord").write_bytes(b"a text that was named so\n")
        with pytest.raises(DamagedChunkError, match=r"if it is no TFRecord, rename it\.") as raised:
            ooc.open(tmp_path / "a.tfrecord")
        assert raised.value.rows == (0,)

    def test_a_damaged_record_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tfrecord"
        write_records(path, ROWS)
        view = ooc.open(path)
        whole = bytearray(path.read_bytes())
        status = path.stat()
        whole[whole.index(b"longer")] ^= 1
        path.write_bytes(whole)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        view = ooc.open(path)
        assert view[0] == ROWS[0]
        with pytest.raises(DamagedChunkError, match="must have the checksum") as raised:
            view.take([4, 2, 0])
        assert raised.value.rows == (2,)
        assert raised.value.path == str(path)
        health = ooc.check(view)
        (finding,) = health.findings
        assert finding.rows == (range(2, 3),)
        good = np.ones(len(view), np.bool_)
        good[np.concatenate(finding.rows)] = False
        assert len(view.filter(good).take(np.arange(5))) == 5

    def test_large_ones(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tfrecord"
        rows = [np.random.default_rng(0).bytes(100_000 * number) for number in (1, 3, 0, 2)]
        write_records(path, rows)
        view = ooc.open(path)
        order = [3, 2, 0, 1, 1]
        assert view.take(order).tolist() == [rows[row] for row in order]
        (batch,) = view.batches(4).to_tf()
        assert batch.numpy().tolist() == rows
        whole, status = bytearray(path.read_bytes()), path.stat()
        whole[-20] ^= 1
        path.write_bytes(whole)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(DamagedChunkError, match="must have the checksum") as raised:
            ooc.open(path).take([1, 3, 0])
        assert raised.value.rows == (3,)
        view = ooc.open(path)
        with open(path, "r+b") as file:
            file.truncate(len(whole) - 10)
        with pytest.raises(SourceError) as raised:
            view.take([0, 3])
        assert 3 in raised.value.rows

    def test_a_file_that_is_cut_short(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tfrecord"
        write_records(path, ROWS)
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(TruncatedFileError, match="end with a whole record") as raised:
            ooc.open(path)
        assert raised.value.rows == (5,)
        path.write_bytes(path.read_bytes()[: 17 + 4 + 5])  # within the head of the second record
        with pytest.raises(TruncatedFileError) as raised:
            ooc.open(path)
        assert raised.value.rows == (1,)

    @pytest.mark.parametrize("row", range(6))
    @pytest.mark.parametrize("rest", [1, 12, 14])
    def test_cutting_off_a_record_as_the_error_advises(
        self, tmp_path: Path, row: int, rest: int
    ) -> None:
        path = tmp_path / "a.tfrecord"
        write_records(path, ROWS)
        start = sum(16 + len(record) for record in ROWS[:row])
        os.truncate(path, start + rest)
        with pytest.raises(TruncatedFileError, match=rf"os\.truncate\(path, {start}\)"):
            ooc.open(path)
        os.truncate(path, start)
        assert np.asarray(ooc.open(path)).tolist() == ROWS[:row]

    def test_errors_name_the_compressed_file(self, tmp_path: Path) -> None:
        """Not its content, unpacked to a hidden file."""
        path, plain = tmp_path / "a.tfrecord.gz", tmp_path / "a.tfrecord"
        write_records(plain, ROWS)
        data = plain.read_bytes()
        length, content = (bytearray(data) for _ in range(2))
        length[21] ^= 1
        content[13] ^= 1  # of record 0
        for wrong, kind in (
            (data[:-3], TruncatedFileError), (length, DamagedChunkError),
            (content, DamagedChunkError),
        ):  # fmt: skip
            path.write_bytes(gzip.compress(bytes(wrong)))
            with pytest.raises(kind) as raised:
                np.asarray(ooc.open(path))
            assert raised.value.path == str(path)
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress("a\n".encode("utf-16")))
        with pytest.raises(UnknownFormatError, match="as UTF-16 does") as raised:
            ooc.open(tmp_path / "a.txt.gz")
        assert raised.value.path == str(tmp_path / "a.txt.gz")

    def test_a_length_that_is_damaged(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tfrecord"
        write_records(path, ROWS)
        whole = bytearray(path.read_bytes())
        whole[21] ^= 1  # the length of record 1
        path.write_bytes(whole)
        with pytest.raises(DamagedChunkError, match="the length of a record") as raised:
            ooc.open(path)
        assert raised.value.rows == (1,)

    def test_known_by_its_bytes(self, tmp_path: Path) -> None:
        write_records(tmp_path / "train-00000-of-00001", ROWS)
        assert ooc.open(tmp_path / "train-00000-of-00001")[2] == ROWS[2]

    def test_blocks_of_a_scan(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("oocdata.formats.tfrecord._RECORDS", 7)
        write_records(tmp_path / "a.tfrecord", numbered(50))
        assert ooc.open(tmp_path / "a.tfrecord").take(np.arange(50)).tolist() == numbered(50)


def example(number: int) -> bytes:
    features = {
        "x": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "v": tf.train.Feature(float_list=tf.train.FloatList(value=[number, 0.5])),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"no %d" % number])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


FEATURES = {
    "x": tf.io.FixedLenFeature([], tf.int64),
    "v": tf.io.FixedLenFeature([2], tf.float32),
    "name": tf.io.FixedLenFeature([], tf.string),
    "none": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
}


class TestParsed:
    @pytest.fixture
    def parsed(self, tmp_path: Path) -> ooc.Dataset:
        write_records(tmp_path / "a.tfrecord", [example(number) for number in range(30)])
        return ooc.open(tmp_path / "a.tfrecord").parse(FEATURES)

    def test_as_tensorflow_parses(self, parsed: Any, tmp_path: Path) -> None:
        expected = tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord")).batch(8)
        for ours, in_graph, theirs in zip(
            parsed.batches(8), parsed.batches(8).to_tf(), expected, strict=True
        ):
            message = tf.io.parse_example(theirs, FEATURES)
            assert ours.keys() == in_graph.keys() == message.keys()
            for name, tensor in message.items():
                np.testing.assert_array_equal(ours[name], tensor.numpy())
                np.testing.assert_array_equal(in_graph[name].numpy(), tensor.numpy())

    def test_shuffled_resumed_and_counted(self, parsed: Any) -> None:
        loader = parsed.batches(4, shuffle=True, seed=5, drop_remainder=True)
        dataset = loader.to_tf(start=(0, 3), epochs=2)
        assert dataset.element_spec["v"] == tf.TensorSpec((4, 2), tf.float32)
        seen = [batch["x"].numpy().tolist() for batch in dataset]
        steps = [*loader.epoch(0, 3), *loader.epoch(1)]
        assert seen == [batch["x"].tolist() for batch in steps]
        assert loader.to_tf().cardinality() == 7

    def test_what_is_said_to_be_in_memory_is_of_runs(self, tmp_path: Path) -> None:
        """`to_tf` reads runs of batches as without parsing, and parses one batch at a time."""
        write_records(tmp_path / "b.tfrecord", [example(number) for number in range(4096)])
        view = ooc.open(tmp_path / "b.tfrecord")
        records, parsed = view.batches(8), view.parse(FEATURES).batches(8)
        assert records.steps_together == 64
        more = 2 * 64 * parsed.batch_bytes
        expected_bytes = records.explain().resident_bytes + more
        assert parsed.explain().resident_bytes >= expected_bytes

    def test_a_run_is_parsed_at_once(
        self, parsed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_records(tmp_path / "b.tfrecord", [example(number) for number in range(100)])
        whole, seen = ParseExamples.tensors, []

        def noted(records: Any) -> Any:
            seen.append(records.shape)
            return records

        def tensors(self: Any, records: Any) -> Any:
            shape = records.shape
            records = tf.ensure_shape(
                tf.numpy_function(noted, [records], tf.string, stateful=False), shape
            )
            return whole(self, records)

        loader = ooc.open(tmp_path / "b.tfrecord").parse(FEATURES).batches(3)
        expected = [batch["x"].tolist() for batch in loader]
        monkeypatch.setattr(ParseExamples, "tensors", tensors)
        dataset = loader.to_tf()
        assert dataset.element_spec["v"] == tf.TensorSpec((None, 2), tf.float32)
        assert [batch["x"].numpy().tolist() for batch in dataset] == expected
        runs = len(loader.tf_loader.pass_from(0))
        assert 1 < runs < len(loader) // 2
        assert len([shape for shape in seen if shape[0]]) == runs
        assert sum(shape[0] for shape in seen) == len(loader)

    def test_described(self, parsed: Any) -> None:
        loader = parsed.batches(4)
        text = fingerprint(loader)
        other = ooc.open(parsed.source.source.storage().path).parse(
            {"x": tf.io.FixedLenFeature([], tf.int64)}
        )
        assert text != fingerprint(other.batches(4))

    @pytest.mark.parametrize(
        "default", [b"\0\0", b"a\0", "b\xe9", b"", np.array(b"c"), tf.constant(b"\0d\0")], ids=repr
    )
    def test_defaults_of_bytes(self, parsed: Any, default: Any) -> None:
        features = {
            "other": tf.io.FixedLenFeature([], tf.string, default),
            "several": tf.io.FixedLenFeature([1], tf.string, [np.asarray(default, object).item()]),
        }
        made = parsed.source.parse(features)
        for ours in (
            made.take([0]),
            from_json(made.batches(1).describe(), allow=["oocdata"]).batch(0),
        ):
            for name, tensor in tf.io.parse_example([example(0)], features).items():
                assert ours[name].tolist() == tensor.numpy().tolist()

    def test_other_features(self, parsed: Any) -> None:
        for feature in (
            tf.io.FixedLenFeature([None], tf.int64),
            tf.io.FixedLenFeature(None, tf.int64),
            tf.io.FixedLenFeature([], tf.int32),
        ):
            with pytest.raises(ArgumentError, match="known shapes, and of int64"):
                parsed.source.parse({"x": feature})
        with pytest.raises(ArgumentError, match=r"a dict of tf\.io\.FixedLenFeature"):
            parsed.source.parse({})
        with pytest.raises(ArgumentError, match="must be called on records"):
            ooc.open(np.zeros(3)).parse(FEATURES)
        with pytest.raises(
            MapError, match=r"a record must have the features .*Feature: y .*, row 0\]"
        ):
            parsed.source.parse({"y": tf.io.FixedLenFeature([], tf.int64)})
