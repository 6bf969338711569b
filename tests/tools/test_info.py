"""Test the description of arrays against what was written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from typer.testing import CliRunner

import oocdata as ooc
from oocdata.cli import app
from oocdata.errors import SeveralDatasetsError
from oocdata.tools.info import Description, Unopened, contents
from oocdata.tools.opening import Opening

FRAMES = np.arange(64 * 6 * 5, dtype="f4").reshape(64, 6, 5)


def one(*arguments: Any, **named: Any) -> Description:
    """Return the description of a file's only array."""
    (found,) = contents(Opening.of(*arguments, **named)).datasets
    assert isinstance(found, Description)
    return found


def test_npy_is_described_by_its_header(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", FRAMES.astype(">f8"))
    found = one(tmp_path / "a.npy")
    assert (found.format, found.shape, found.dtype) == (".npy", (64, 6, 5), "float64")
    assert (found.row_bytes, found.memory_bytes, found.stored_bytes) == (240, 15360, 15360)
    assert (found.chunk_rows, found.codec, found.key, found.files) == (1, "none", None, 1)
    assert found.shuffling.startswith("shuffle=True is a full shuffle: each row is addressable")
    assert found.advice == ()


def test_an_empty_array_is_in_no_chunks(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", FRAMES[:0])
    assert "0 rows are decoded" not in str(one(tmp_path / "a.npy"))


def test_hdf5_chunks_and_codec(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset(
            "flow/u", data=FRAMES, chunks=(8, 6, 5), compression="gzip", shuffle=True
        )
        stored = made.id.get_storage_size()
    found = one(tmp_path / "a.h5")
    assert (found.key, found.chunk_rows, found.stored_bytes) == ("/flow/u", 8, stored)
    assert "gzip" in found.codec
    assert "(8, 6, 5)" in found.storage


def test_raw_axis_glob_and_view(tmp_path: Path) -> None:
    FRAMES.astype(">f4").tofile(tmp_path / "a.bin")
    assert one(tmp_path / "a.bin", dtype=">f4", shape=(-1, 6, 5)).shape == (64, 6, 5)
    for part in range(3):
        np.save(tmp_path / f"part{part}.npy", FRAMES)
    several = one(str(tmp_path / "part*.npy"), axis=1)
    assert (several.shape, several.files) == ((18, 64, 5), 3)
    assert "2 more" in " ".join(str(several).split())
    assert one(ooc.open(tmp_path / "part0.npy")[:7]).shape == (7, 6, 5)


def test_a_block_shuffle_and_what_a_full_one_costs(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(1 << 18, 1024), chunks=(256, 1024), dtype="f4", fill_value=0
    )
    array[:256] = 1
    with pytest.warns(ooc.errors.MissingChunkWarning):
        found = one(tmp_path / "a.zarr")
    assert found.shuffling.startswith("shuffle=True is a block shuffle: elements are stored in")
    assert 'A full shuffle (shuffle="global") would decode' in found.shuffling
    assert found.chunk_rows == 256


def test_rows_that_lie_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "fortran.npy", np.asfortranarray(FRAMES))
    found = one(tmp_path / "fortran.npy")
    assert [advice.kind for advice in found.advice] == ["layout"]
    assert str(found).count("oocdata convert ") == 1
    # The last axis of a Fortran array varies slowest: its rows are whole, in another order.
    assert one(tmp_path / "fortran.npy", axis=2).advice == ()


CODES = [
    (np.zeros((64, 3, 8, 8), "f4"), {}, "x, y = loader.batch(0)  # each (32, 3, 8, 8) float32"),
    (np.zeros((3, 8, 8), "f4"), {}, "x, y = loader.batch(0)  # each (2, 8, 8) float32"),
    (np.zeros((1, 8, 8), "f4"), {}, "x = loader.batch(0)  # (1, 8, 8) float32"),
    (np.zeros((64, 64, 8), "f4"), {"axis": 2}, "x, y = loader.batch(0)  # each (4, 64, 64)"),
    (np.zeros((640, 7)), {}, "x = loader.batch(0)  # (32, 7) float64"),
    (np.zeros((9, 500)), {}, "x = loader.batch(0)  # (5, 500) float64"),
    (np.zeros(90, "i8"), {}, "x = loader.batch(0)  # (32,) int64"),
    (np.zeros((6, 20, 16, 16)), {}, "x = loader.batch(0)  # (4, 20, 16, 16) float64"),
    (np.zeros((2, 9, 16, 16)), {"axis": (0, 1)}, "x, y = loader.batch(0)  # each (16, 16, 16)"),
]


@pytest.mark.parametrize(("array", "arguments", "batch"), CODES, ids=lambda value: str(value)[:9])
def test_the_code_runs_on_that_file(
    tmp_path: Path, array: np.ndarray, arguments: dict[str, Any], batch: str
) -> None:
    np.save(tmp_path / "a.npy", array)
    found = one(tmp_path / "a.npy", **arguments)
    assert found.code[-2].startswith(batch)
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    first = names["x"]
    assert found.code[-2].endswith(f"{first.shape} {first.dtype}")
    assert ("y" in names) == batch.startswith("x, y")


def test_the_code_names_what_is_not_usual(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = FRAMES
        file["v"] = FRAMES[:3]
    found = one(tmp_path / "a.h5", "u", axis=2, missing="fill")
    path = str(tmp_path / "a.h5")
    assert found.code[1] == f"rows = ooc.open({path!r}, 'u', axis=2, missing='fill')"
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    assert names["rows"].shape == (5, 64, 6)


def test_the_code_decodes_packed_numbers(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["u"] = FRAMES.astype("i2")
        file["u"].attrs["scale_factor"] = 0.5
    found = one(tmp_path / "a.nc")
    assert found.dtype == "int16"
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    np.testing.assert_array_equal(names["frames"][63], FRAMES[63] / 2)
    assert f"each {names['x'].shape} {names['x'].dtype}" in found.code[-2]


def test_the_table_shows_names_and_chunks_of_one_row(tmp_path: Path) -> None:
    name = "a_name_of_some_length/frames"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(name, data=FRAMES, chunks=(1, *FRAMES.shape[1:]), compression="gzip")
        file["plain"] = FRAMES
        file["records"] = np.zeros(9, [(f"field {number}", "f8") for number in range(20)])
    lines = str(contents(str(tmp_path / "a.h5"))).splitlines()[1:]
    rows = {line.split()[0]: line for line in lines if line.startswith("/")}
    assert re.search(r" 1  gzip 4", rows[f"/{name}"])
    assert re.search(r" -  none", rows["/plain"])
    assert " fields " in rows["/records"]


def test_all_datasets_and_why_some_do_not_open(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = FRAMES
        file["deep/v"] = np.arange(10)
        file["note"] = "text"
        file["scalar"] = 1.0
        file["names"] = np.array([b"x"], "S1")
        file.create_dataset("unwritten", (32, 4), "f4", chunks=(8, 4))
        file["linked"] = h5py.ExternalLink("b.h5", "/u")
    found = contents(tmp_path / "a.h5")
    assert {one.key for one in found.described} == {"/u", "/deep/v", "/names"}
    reasons = {one.key: one.reason for one in found.datasets if isinstance(one, Unopened)}
    for key, words in {
        "/note": "got a single number or text", "/scalar": "got a single number",
        "/unwritten": "4 of 4 chunks were never written", "/linked": "linked from 'b.h5'",
    }.items():  # fmt: skip
        assert words in reasons.pop(key)
    assert not reasons
    text = str(found)
    assert "/deep/v  10" in text
    assert f"oocdata info {tmp_path}/a.h5::/u" in text
    assert "  /note, /scalar: an array must have a row axis; got a single number or text." in text
    assert json.loads(json.dumps(found.to_json()))["datasets"][0]["key"] == "/deep/v"
    filled = contents(Opening.of(tmp_path / "a.h5", missing="fill"))
    assert "/unwritten" in {one.key for one in filled.described}


def test_datasets_of_numbered_groups_are_told_as_one(tmp_path: Path) -> None:
    lengths = [5, 3, 12, 7]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, length in enumerate(lengths):
            run = file.create_group(f"runs/run_{number * 5}")
            run["state"] = np.zeros((length, 7), "f4")
            run["size"] = np.zeros((length, 1 + number % 2, 2 - number % 2))  # no one array
            run[f"own_{number}"] = np.zeros((length, 2))
            file[f"band_{number}"] = np.zeros((9, 3))  # perhaps channels of the same rows
            if number:
                file[f"few_{number}/u"] = np.zeros((4, 4))
    found = contents(tmp_path / "a.h5")
    keys = [one.key for one in found.described]
    assert keys[0] == "/runs/run_*/state"
    assert len(keys) == len(set(keys)) == 1 + 4 + 4 + 4 + 3
    assert found.described[0].shape == (sum(lengths), 7)
    assert f"/runs/run_*/state ({len(lengths)})" in str(found)
    assert {one.shuffling for one in found.described} == {""}  # told of one that is named
    (alone,) = contents(tmp_path / "a.h5", keys[0]).described
    assert alone.shape == found.described[0].shape
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["runs/run_all/state"] = np.zeros((27, 7), "f4")  # which the pattern would match too
    assert "/runs/run_*/state" not in {one.key for one in contents(tmp_path / "a.h5").described}


def test_an_empty_array_has_nothing_to_shuffle(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    found = one(tmp_path / "a.npy")
    assert "nothing to shuffle" in str(found)
    assert len(found.code) == 2


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit(tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.asfortranarray(FRAMES))
    lines = str(one("a.npy")).partition("\n\n")[0].splitlines()
    assert max(len(line) for line in lines if "oocdata convert" not in line) <= width


@pytest.mark.parametrize("name", ["a.npy", "a.h5"])
def test_rows_of_fields_are_described_with_code_that_reads_their_fields(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.zeros(40, [("x", "f4"), ("v", "f4", (3,)), ("inner", [("y", "i8")])])
    rows["v"] = np.arange(120).reshape(40, 3)
    if name == "a.npy":
        np.save(tmp_path / name, rows)
    else:
        with h5py.File(tmp_path / name, "w") as file:
            file["table"] = rows
    monkeypatch.chdir(tmp_path)
    found = one(name)
    assert "40 rows of fields" in str(found)
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    assert set(names["batch"]) == {"x", "v"}
    assert names["batch"]["v"].shape == (24, 3)
    np.testing.assert_array_equal(np.asarray(names["columns"]._members[1]), rows["v"])


def test_what_does_not_open_for_one_reason_is_told_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", u=FRAMES, **{f"size_{one}": np.array(1.0) for one in range(9)})
    text = " ".join(str(contents(tmp_path / "a.npz")).split())
    assert "size_4, size_5 and 3 more: an array must have a row axis" in text
    assert "size_6" not in text


def test_text_of_any_name_and_pictures(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\nthree\n")
    found = contents(Opening.of(tmp_path / "lines", format="text")).described[0]
    assert (found.shape, found.dtype) == ((3,), "bytes")
    assert found.code[1] == f"rows = ooc.open('{tmp_path / 'lines'}', format='text')"
    image = pytest.importorskip("PIL.Image")
    for number in range(12):
        image.new("RGB", (6, 4)).save(tmp_path / f"{number}.png")
    found = contents(str(tmp_path / "*.png")).described[0]
    assert "next_frame" not in "\n".join(found.code)  # pictures are no film
    namespace: dict[str, object] = {}
    exec("\n".join(found.code), namespace)
    assert namespace["x"].shape == (7, 4, 6, 3)  # type: ignore[attr-defined]


def test_pictures_in_folders_are_split_with_the_same_shares_of_each_class(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(20):
        (folder := tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        image.new("RGB", (6, 4)).save(folder / f"{number}.png")
    code = contents(str(tmp_path / "*" / "*.png")).described[0].code
    assert code[-2] == "x, y = loader.batch(0)  # (12, 4, 6, 3) uint8 and (12,) int64"
    names: dict[str, Any] = {}
    exec("\n".join(code), names)
    assert np.bincount(names["y"]).tolist() == [6, 6]
    rows = contents(Opening.of(str(tmp_path / "*" / "*.png"), axis=(0, 1))).described[0]
    assert "folder_labels" not in "\n".join(rows.code)


def test_films_are_folders_of_pictures_below_their_class(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("run", "walk"):
        for film in range(5):
            (folder := tmp_path / name / f"film_{film}").mkdir(parents=True)
            for number in range(3):
                image.new("RGB", (6, 4)).save(folder / f"{number}.png")
    names: dict[str, Any] = {}
    exec("\n".join(contents(f"{tmp_path}/*/*/*.png").described[0].code), names)
    assert names["labels"].categories == ("run", "walk")
    assert np.bincount(names["y"]).tolist() == [9, 9]
    assert [len(names[part]) for part in ("train", "val", "test")] == [18, 6, 6]
    for name in ("run", "walk"):  # sets, which hold the same classes
        (tmp_path / name).rename(tmp_path / {"run": "train", "walk": "test"}[name])
    code = "\n".join(contents(f"{tmp_path}/*/*/*.png").described[0].code)
    assert "folder_labels(images) " in code
    assert "import os" not in code.splitlines()


def test_files_of_several_arrays(tmp_path: Path) -> None:
    for number in range(12):
        steps = 10 + number
        np.savez(tmp_path / f"c_{number}.npz", obs=np.zeros((steps, 8)), act=np.zeros((steps, 2)))
    for number in range(2):
        episodes = {f"demo_{n}/{name}": np.zeros((9, 2)) for n in range(5) for name in ("u", "v")}
        np.savez(tmp_path / f"d_{number}.npz", **episodes)
    with pytest.raises(SeveralDatasetsError, match=r"demo_\*/u"):
        contents(str(tmp_path / "d_*.npz"))
    found = contents(str(tmp_path / "c_*.npz"))
    names: dict[str, Any] = {}
    exec("\n".join(found.layout.code), names)
    assert len(names["train"]) == round(0.9 * sum(range(10, 22)))
    assert "2 arrays, 12 files, the first of 10 rows" in str(found)


@pytest.mark.parametrize("steps", [1, 6])
def test_files_of_a_variable_over_time(tmp_path: Path, steps: int) -> None:
    """Files of one step are one series, others one each; the code warns of nothing."""
    dims = ("time", "lat", "lon")
    for number in range(8):
        fields = {name: (dims, np.zeros((steps, 4, 6), "f4")) for name in "uv"}
        hours = np.arange(steps) + number * steps
        fields |= {"projection": ((), np.int32(number)), "land": (dims[1:], np.zeros((4, 6)))}
        xarray.Dataset(fields, {"time": hours}).to_netcdf(tmp_path / f"{number}.nc")
    names: dict[str, Any] = {}
    one = contents(f"{tmp_path}/*.nc", "u").described[0].code
    assert f"next_frame(episodes='{'files' if steps > 1 else 'none'}')" in "\n".join(one)
    exec("\n".join(one), names)


def test_rows_of_unequal_length(tmp_path: Path) -> None:
    path, rng = tmp_path / "a.h5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("events", (40,), h5py.vlen_dtype("f4"))
        encoded = file.create_dataset("pictures", (40,), h5py.vlen_dtype("u1"))
        for number in range(40):
            rows[number] = np.zeros(number, "f4")
            encoded[number] = rng.integers(0, 256, 1000, np.uint8)
    both = contents(path)
    assert [one.key for one in both.described] == ["/events", "/pictures"]
    assert "Can't be opened" not in str(both)
    events, pictures = str(contents(path, "/events")), str(contents(path, "/pictures"))
    assert "float32 of unequal length, about 78 bytes a row" in events
    assert "x = loader.batch(0)  # (24, None) float32, ragged" in events
    size = contents(path, "/pictures").described[0].row_bytes
    assert 1000 < size < 1300
    assert "bytes of unequal length, about 1." in pictures
    for key in ("/events", "/pictures"):
        ran: dict[str, Any] = {}
        exec("\n".join(contents(path, key).described[0].code), ran)
        assert len(ran["x"]) == 24


@pytest.mark.parametrize("others", [1, 6])
def test_the_only_one_that_opens_is_told_in_full(tmp_path: Path, others: int) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(others):
            file[f"run_{number}/u"] = np.asfortranarray(np.zeros((40, 6)))
            file[f"run_{number}/seed"] = number
    found = contents(tmp_path / "a.h5")
    (one,) = found.described
    assert one.shuffling.startswith("shuffle=True is a full shuffle")
    assert one == contents(tmp_path / "a.h5", one.key).described[0]


def test_each_file_is_an_element(tmp_path: Path) -> None:
    for number in range(12):
        np.save(tmp_path / f"a_{number}.npy", np.full((16, 15), number, "f4"))
    target = f"{tmp_path}/a_*.npy"
    found = one(target)
    assert found.shape == (192, 15)
    found = one(target, axis=None)
    assert (found.note, found.shape) == ("", (12, 16, 15))
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    parts = [names[name] for name in ("train", "val", "test")]
    assert [int(part[n].max()) for part in parts for n in range(len(part))] == [*range(12)]
    printed = CliRunner().invoke(app, ["info", target, "--axis", "None"]).output
    assert all(line in printed for line in found.code)


def write_examples(path: Path, examples: list[dict[str, Any]], options: str = "") -> None:
    """Write features as ``tf.train.Example``s; a list of bytes, float or int is one feature."""
    tf = pytest.importorskip("tensorflow")
    lists = {bytes: "Bytes", float: "Float", int: "Int64"}
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for example in examples:
            features = {}
            for name, values in example.items():
                kind = lists[type(values[0])] if values else "Int64"
                made = getattr(tf.train, f"{kind}List")(value=values)
                features[name] = tf.train.Feature(**{f"{kind.lower()}_list": made})
            message = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(message.SerializeToString())


def values_of(feature: Any) -> list[Any]:
    return [feature] if isinstance(feature, bytes) else np.ravel(feature).tolist()


@pytest.mark.parametrize("options", ["", "GZIP"])
def test_the_code_parses_examples(tmp_path: Path, options: str) -> None:
    examples: list[dict[str, Any]] = [
        {
            "image": [bytes([row]) * (row + 1)], "label": [-row], "box": [row / 4, 0.5, 1.0, 2.0],
            "ids": [*range(row % 3)], "ids 2": [1 << 40, row], "name": [b"a", b"b"][: 1 + row % 2],
            **({"weight": [row + 0.5]} if row % 5 else {}),
        }
        for row in range(60)
    ]  # fmt: skip
    path = tmp_path / ("a.tfrecord.gz" if options else "a.tfrecord")
    write_examples(path, examples, options)
    found = one(path)
    assert found.code[3:11] == (
        "examples = rows.parse({",
        "    'box': tf.io.FixedLenFeature([4], tf.float32),",
        "    'ids': tf.io.RaggedFeature(tf.int64),",
        "    'ids 2': tf.io.FixedLenFeature([2], tf.int64),",
        "    'image': tf.io.FixedLenFeature([], tf.string),",
        "    'label': tf.io.FixedLenFeature([], tf.int64),",
        "    'name': tf.io.RaggedFeature(tf.string),",
        "    'weight': tf.io.RaggedFeature(tf.float32),",
    )
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    seen = []
    for part in ("train", "val", "test"):
        for batch in names[part].batches(7, shuffle=True, seed=1).epoch(0):
            seen += [
                {name: values_of(batch[name][at]) for name in batch}
                for at in range(len(batch["label"]))
            ]
    expected = [{"weight": [], **example} for example in examples]
    ordered = sorted(seen, key=lambda each: -each["label"][0])
    assert ordered == expected  # each once
    assert set(names["batch"]) == set(expected[0])


def test_records_that_are_no_examples(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    random = np.random.default_rng(0)
    others = [b"", b"hello", b"\n\x00", *(random.bytes(n) for n in range(1, 200))]
    sequence = tf.train.SequenceExample(context=tf.train.Features())
    sequence.feature_lists.feature_list["x"].feature.add().int64_list.value.append(3)
    for number, record in enumerate([*others, sequence.SerializeToString()]):
        path = tmp_path / f"{number}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            writer.write(record)
        assert not any("parse" in line for line in one(path).code)
    with tf.io.TFRecordWriter(str(tmp_path / "none.tfrecord")):
        pass
    assert not any("parse" in line for line in one(tmp_path / "none.tfrecord").code)


@pytest.mark.parametrize("shape", [(16, 16, 10, 80), (9, 9, 20, 20), (10, 8, 8, 8)])
def test_one_line_where_axes_of_rows_are_not_clear(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    np.save(tmp_path / "a.npy", array)
    found = one(tmp_path / "a.npy")
    assert found.note.startswith("axis 0 numbers the rows; axis=(0, 1) makes it two axes")
    names: dict[str, Any] = {}
    exec("\n".join(found.code), names)
    parts = [np.asarray(names[name]) for name in ("train", "val", "test")]
    np.testing.assert_array_equal(np.concatenate(parts), array)
    assert one(tmp_path / "a.npy", axis=(0, 1)).note == ""


def test_files_of_one_element_in_folders_of_classes(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        np.save(tmp_path / "ab"[number % 2] / f"{number}.npy", np.full((40, 40), number, "f4"))
    names: dict[str, Any] = {}
    exec("\n".join(one(f"{tmp_path}/*/*.npy", axis=None).code), names)
    seen = {}
    for part in ("train", "val", "test"):
        for x, y in names[part].batches(4, shuffle=True).epoch(0):
            seen |= {int(image[0, 0]): int(label) for image, label in zip(x, y, strict=True)}
    assert seen == {number: number % 2 for number in range(30)}
    assert sum(len(names[part]) for part in ("train", "val", "test")) == 30
