"""Test features of unequal length in records, with `tf.io.parse_example` as the oracle."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.describe import fingerprint, from_json
from oocdata.errors import ArgumentError, DamagedChunkError, MapError

LISTS = {
    "int64_list": tf.train.Int64List, "float_list": tf.train.FloatList,
    "bytes_list": tf.train.BytesList,
}  # fmt: skip


def serialized(**features: tuple[str, list[Any]] | None) -> bytes:
    """Return an Example; None is a feature without a list of any kind."""
    made = {
        name: tf.train.Feature(
            **({feature[0]: LISTS[feature[0]](value=feature[1])} if feature else {})
        )
        for name, feature in features.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def example(number: int) -> bytes:
    """Return an Example with 0 to 6 ids, 0 to 2 boxes, and 0 to 3 names; some lists are absent."""
    features: dict[str, Any] = {
        "n": ("int64_list", [number]),
        "ids": ("int64_list", list(range(number, number + number % 7))),
        "box": ("float_list", np.arange(4 * (number % 3)) / 8 + number),
        "names": ("bytes_list", [b"%d" % number * at for at in range(number % 4)]),
    }
    if number % 5 == 0:
        features["ids"] = None
    if number % 11 == 0:
        del features["box"], features["names"]
    return serialized(**features)


RECORDS = [example(number) for number in range(101)]

N = {"n": tf.io.FixedLenFeature([], tf.int64)}

RAGGED = {
    **N,
    "ids": tf.io.VarLenFeature(tf.int64),
    "names": tf.io.VarLenFeature(tf.string),
    "boxes": tf.io.RaggedFeature(
        tf.float32, "box", [tf.io.RaggedFeature.UniformRowLength(4)], row_splits_dtype=tf.int64
    ),
}

SEQUENCES = {
    **N,
    "ids": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True, default_value=-1),
    "names": tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True, default_value="no"),
    "box": tf.io.FixedLenSequenceFeature([2, 2], tf.float32, allow_missing=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two files of records, 0 to 49 and 50 to 100."""
    folder = tmp_path_factory.mktemp("records")
    write(folder / "a0.tfrecord", RECORDS[:50])
    write(folder / "a1.tfrecord", RECORDS[50:])
    return folder


@pytest.fixture(scope="module")
def records(folder: Path) -> ooc.View:
    return ooc.open(folder / "a*.tfrecord")


def write(path: Path, rows: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            writer.write(row)


def expected(numbers: Any, features: dict[str, Any]) -> dict[str, Any]:
    """Return what TensorFlow makes of some records, with ragged rows instead of sparse ones."""
    made = tf.io.parse_example([RECORDS[number] for number in np.asarray(numbers)], features)
    return {
        name: tf.RaggedTensor.from_sparse(each) if isinstance(each, tf.SparseTensor) else each
        for name, each in made.items()
    }


def assert_same(ours: Any, theirs: Any) -> None:
    """Compare a feature of a batch, by NumPy or TensorFlow, with a tensor."""
    if isinstance(theirs, tf.RaggedTensor):
        values = ours.flat_values.numpy() if isinstance(ours, tf.RaggedTensor) else ours.values
        np.testing.assert_array_equal(ours.row_splits, theirs.row_splits)
        theirs_values = theirs.flat_values.numpy()
        assert values.dtype == theirs_values.dtype
        assert values.shape[1:] == theirs_values.shape[1:]
        np.testing.assert_array_equal(values, theirs_values)
    else:
        ours, theirs = np.asarray(ours), theirs.numpy()
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(ours, theirs)


def assert_as_tensorflow(batch: Any, features: dict[str, Any]) -> None:
    theirs = expected(batch["n"], features)
    assert batch.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert_same(batch[name], tensor)


def ways(dataset: ooc.Dataset, **options: Any) -> Iterator[Any]:
    """Yield the batches of an epoch by NumPy, parsed in the graph, and read from Python by TF."""
    loader = dataset.batches(16, **options)
    for batch, in_graph, (zipped, _) in zip(
        loader.epoch(0),
        loader.to_tf(),
        ooc.zip(dataset, ooc.open(np.arange(len(dataset)))).batches(16, **options).to_tf(),
        strict=True,
    ):
        yield from (batch, in_graph, zipped)


@pytest.mark.parametrize("shuffle", [False, True])
def test_as_tensorflow_parses(records: ooc.View, shuffle: bool) -> None:
    seen = []
    for batch in ways(records.parse(RAGGED), shuffle=shuffle, seed=3):
        assert_as_tensorflow(batch, RAGGED)
        seen.append(np.asarray(batch["n"]))
    assert sorted(np.concatenate(seen[1::3])) == list(range(101))
    assert any((batch != np.sort(batch)).any() for batch in seen) == shuffle


def test_rows_of_another_name_and_of_several_axes(records: ooc.View) -> None:
    uniform = tf.io.RaggedFeature.UniformRowLength
    features = {
        **N,
        "one": tf.io.RaggedFeature(tf.float32, "box", row_splits_dtype=tf.int64),
        "two": tf.io.RaggedFeature(
            tf.float32, "box", [uniform(2), uniform(2)], row_splits_dtype=tf.int64
        ),
    }
    parsed = records.parse(features)
    assert str(parsed.spec["two"]) == "(None, 2, 2) float32, ragged"
    for batch in ways(parsed):
        assert_as_tensorflow(batch, features)
    assert parsed[8]["two"].shape == (2, 2, 2)


def test_specs(records: ooc.View) -> None:
    loader = records.parse(RAGGED).batches(10, drop_remainder=True)
    spec = loader.to_tf().element_spec
    assert spec["boxes"] == tf.RaggedTensorSpec((10, None, 4), tf.float32, 1)
    assert spec["names"] == tf.RaggedTensorSpec((10, None), tf.string, 1)
    assert loader.to_tf().cardinality() == 10
    loader = records.parse(SEQUENCES).batches(10, drop_remainder=True)
    assert loader.to_tf().element_spec["box"] == tf.RaggedTensorSpec(
        (10, None, 2, 2), tf.float32, 1
    )


def test_sequences_are_ragged(records: ooc.View) -> None:
    for batch in ways(records.parse(SEQUENCES)):
        theirs = expected(batch["n"], SEQUENCES)
        for name, value in (("ids", -1), ("names", "no"), ("box", 0)):
            rows = batch[name]
            if isinstance(rows, ooc.RaggedBatch):
                rows = tf.RaggedTensor.from_row_splits(rows.values, rows.row_splits)
            assert_same(rows.to_tensor(value), theirs[name])


def padded(rows: tf.RaggedTensor, length: int) -> tf.Tensor:
    return rows.to_tensor(shape=(None, length, *rows.shape[2:]))


class TestPadded:
    def test_to_one_length(self, records: ooc.View) -> None:
        parsed = records.parse(RAGGED, pad={"ids": 6, "boxes": 3, "names": 2}, cut=True, mask=True)
        assert parsed.batches(8, drop_remainder=True).to_tf().element_spec == {
            "n": tf.TensorSpec(8, tf.int64),
            "ids": tf.TensorSpec((8, 6), tf.int64),
            "ids_mask": tf.TensorSpec((8, 6), tf.bool),
            "names": tf.TensorSpec((8, 2), tf.string),
            "names_mask": tf.TensorSpec((8, 2), tf.bool),
            "boxes": tf.TensorSpec((8, 3, 4), tf.float32),
            "boxes_mask": tf.TensorSpec((8, 3), tf.bool),
        }
        for batch in ways(parsed, shuffle=True):
            theirs = expected(batch["n"], RAGGED)
            for name, length in (("ids", 6), ("names", 2), ("boxes", 3)):
                assert_same(batch[name], padded(theirs[name], length))
                lengths = theirs[name].row_lengths()
                assert_same(batch[f"{name}_mask"], tf.sequence_mask(lengths, length))

    def test_with_the_default_of_a_sequence(self, records: ooc.View) -> None:
        for batch in ways(records.parse(SEQUENCES, pad=7)):
            theirs = expected(batch["n"], SEQUENCES)
            for name, value in (("ids", -1), ("names", b"no"), ("box", 0)):
                width = theirs[name].shape[1]
                assert batch[name].shape[1] == 7
                assert_same(batch[name][:, :width], theirs[name])
                assert (np.asarray(batch[name][:, width:]) == value).all()

    def test_batches_of_similar_length(self, records: ooc.View) -> None:
        features = {**N, "ids": RAGGED["ids"]}
        longest = [0]
        for batch in ways(records.parse(features), bucket=(2, 4, 6)):
            assert_as_tensorflow(batch, features)
            longest.append(np.diff(batch["ids"].row_splits).max())
        assert longest == sorted(longest)

    def test_a_row_that_is_too_long(self, records: ooc.View, folder: Path) -> None:
        loader = records.parse(RAGGED, pad={"ids": 5}).batches(8)
        message = (
            r"a record must have the features .* more values in `ids` than the 5 of `pad`.*"
            rf" \[file '{folder}/a0\.tfrecord', row 6\]"
        )
        with pytest.raises(MapError, match=message):
            list(loader)
        with pytest.raises(tf.errors.InvalidArgumentError, match="more values in `ids`"):
            list(loader.to_tf())

    def test_arguments(self, records: ooc.View) -> None:
        for pad in ({"n": 3}, {"other": 3}):
            with pytest.raises(ArgumentError, match=r"`pad` must name features of unequal length"):
                records.parse(RAGGED, pad=pad)
        with pytest.raises(ArgumentError, match=r"of unequal length, \[\]; got 3"):
            records.parse(N, pad=3)
        with pytest.raises(ArgumentError, match="`pad` must be a whole number of at least 1"):
            records.parse(RAGGED, pad=(3, 2))  # type: ignore[arg-type]
        taken = {"ids_mask": N["n"], "ids": RAGGED["ids"]}
        with pytest.raises(ArgumentError, match="leave the names of masks free"):
            records.parse(taken, pad=9, mask=True)
        with pytest.raises(ArgumentError, match="`cut` must be True or False"):
            records.parse(RAGGED, pad=9, cut=1)  # type: ignore[arg-type]


class TestTraining:
    @pytest.mark.parametrize("options", [{}, {"pad": 9}], ids=repr)
    def test_resumed(self, records: ooc.View, options: dict[str, Any], tmp_path: Path) -> None:
        loader = records.parse(RAGGED, **options).batches(4, shuffle=True, seed=5)
        whole = [*loader.epoch(0), *loader.epoch(1)]
        numbers = [batch["n"].tolist() for batch in whole]
        dataset = loader.to_tf(start=(0, 3), epochs=2)
        assert [batch["n"].numpy().tolist() for batch in dataset] == numbers[3:]
        dataset = loader.to_tf(epochs=2)
        iterator = iter(dataset)
        for _ in range(7):
            next(iterator)
        path = tf.train.Checkpoint(it=iterator).write(str(tmp_path / "saved"))
        again = loader.to_tf(epochs=2)
        restored = iter(again)
        tf.train.Checkpoint(it=restored).read(path).assert_consumed()
        rest = list(restored)
        assert [batch["n"].numpy().tolist() for batch in rest] == numbers[7:]
        for batch, other in zip(rest, whole[7:], strict=True):
            assert_same(batch["boxes"], tensor_of(other["boxes"]))

    def test_parts_and_ranks(self, records: ooc.View) -> None:
        parsed = records.parse(RAGGED)
        parts = [parsed.filter(np.arange(101) % 2 == 0), *parsed.split(0.5, 0.5), parsed[7:30:3]]
        first = len(parts[1])
        numbers = [range(0, 101, 2), range(first), range(first, 101), range(7, 30, 3)]
        for part, of in zip(parts, numbers, strict=True):
            seen = []
            for batch in ways(part):
                assert_as_tensorflow(batch, RAGGED)
                seen += np.asarray(batch["n"]).tolist()
            assert sorted(seen) == sorted([*of] * 3)
        loader = parsed.batches(8, shuffle=True, drop_remainder=True)
        ranks = [loader.shard(2, rank).to_tf() for rank in range(2)]
        for batch, *shares in zip(loader, *ranks, strict=True):
            joined = tf.concat([share["boxes"] for share in shares], 0)
            assert_same(joined, tensor_of(batch["boxes"]))

    def test_processes_and_caches(self, records: ooc.View, tmp_path: Path) -> None:
        numeric = {name: each for name, each in RAGGED.items() if name != "names"}
        parsed = records.parse(numeric, pad=8, mask=True)
        plain = parsed.take(np.arange(101))
        loader = parsed.batches(101, workers=1)
        working = loader.batch(0), *loader.epoch(0)
        cached = parsed.cache(), parsed.cache(tmp_path)
        for batch in (*working, *(each.take(np.arange(101)) for each in cached)):
            for name, array in plain.items():
                np.testing.assert_array_equal(batch[name], array)
        ragged = records.parse(RAGGED)
        with pytest.raises(ArgumentError, match="`workers` must be 0"):
            ragged.batches(4, workers=1)
        for refused in (ragged.cache, lambda: ragged.map(lambda batch: batch)):
            with pytest.raises(ArgumentError, match=r"parse\(…, pad="):
                refused()

    def test_fit(self, records: ooc.View) -> None:
        def pair(batch: dict[str, Any]) -> Any:
            return batch["boxes"].reshape(-1, 12), batch["n"]

        parsed = records.parse(RAGGED, pad=3, cut=True)
        loader = parsed.map(pair).batches(16, shuffle=True)
        model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(loader.to_tf(), verbose=0, shuffle=False)
        model.fit(loader.to_keras(), verbose=0, shuffle=False)
        with pytest.raises(
            ArgumentError, match="must be given arrays of numbers; these are sparse or ragged"
        ):
            records.parse(RAGGED).batches(4).to_keras()

    def test_concatenated(self, folder: Path) -> None:
        views = [ooc.open(folder / f"a{part}.tfrecord") for part in range(2)]
        both = ooc.concat([view.parse(RAGGED, pad=8) for view in views])
        theirs = expected([80, 3], RAGGED)["ids"]
        assert_same(both.take([80, 3])["ids"], padded(theirs, 8))
        with pytest.raises(ArgumentError, match=r"or make arrays, parse\(…, pad=40\)"):
            ooc.concat([view.parse(RAGGED) for view in views])
        with pytest.raises(ArgumentError, match="`mix` must get sparse and ragged rows as"):
            ooc.mix({view.parse(RAGGED): 1 for view in views})

    def test_described(self, records: ooc.View) -> None:
        loaders = [
            records.parse(RAGGED, **options).batches(4)
            for options in ({}, {"pad": 9}, {"pad": 10}, {"pad": 9, "mask": True})
        ]
        assert len({fingerprint(loader) for loader in loaders}) == 4
        for loader in loaders:
            again = from_json(loader.describe())
            assert fingerprint(again) == fingerprint(loader)
            assert_same(again.batch(3)["n"], tf.constant(loader.batch(3)["n"]))


def tensor_of(feature: Any) -> Any:
    """Return a feature of a batch as a tensor."""
    if isinstance(feature, ooc.RaggedBatch):
        return tf.RaggedTensor.from_row_splits(feature.values, feature.row_splits)
    return tf.constant(feature)


WRONG = {
    "no list": ({"n": None}, r"Feature: n \(data type: int64\) is required but could not be found"),
    "missing": (
        {"x": ("int64_list", [1])},
        r"Feature: n \(data type: int64\) is required but could not be found",
    ),
    "another dtype": (
        {"n": ("int64_list", [1]), "ids": ("float_list", [1.0])},
        r"Key: ids, Index: 0\.  Data types don't match\. Expected type: int64, Actual type: float",
    ),
    "too many": (
        {"n": ("int64_list", [1, 2])},
        r"Key: n, Index: 0\.  Number of int64 values != expected\.  Values size: 2 .*",
    ),
    "a part of a box": (
        {"n": ("int64_list", [1]), "box": ("float_list", [1.0] * 6)},
        r"Input to reshape is a tensor with 6 values, .* requires a multiple of 4",
    ),
}


class TestErrors:
    @pytest.fixture
    def wrong(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ooc.View, str]:
        """Return 100 records, of which one is wrong, and what is wrong with it."""
        features, message = WRONG[request.param]
        write(tmp_path / "a0.tfrecord", RECORDS[:50])
        write(tmp_path / "a1.tfrecord", [*RECORDS[50:67], serialized(**features), *RECORDS[67:99]])
        location = rf" \[file '{tmp_path}/a1\.tfrecord', row 17\]$"
        return ooc.open(tmp_path / "a*.tfrecord"), f"^a record must have .*: .*{message}{location}"

    @pytest.mark.parametrize(
        ("wrong", "options"),
        [
            *((name, {}) for name in WRONG),
            ("too many", {"pad": 9}),
            ("a part of a box", {"pad": 9}),
        ],
        indirect=["wrong"],
    )
    def test_of_a_record(self, wrong: tuple[ooc.View, str], options: dict[str, Any]) -> None:
        records, message = wrong
        parsed = records.parse(RAGGED, **options)
        loader = parsed.batches(4, shuffle=True)
        (number,) = [step for step in range(len(loader)) if 67 in loader.positions(step).tolist()]
        for iterated in (loader, ooc.zip(parsed, parsed).batches(4).to_tf()):
            with pytest.raises(MapError, match=message):
                list(iterated)
        with pytest.raises(tf.errors.InvalidArgumentError):  # parsed in TensorFlow's graph
            list(loader.to_tf())
        with pytest.raises(MapError, match=message):
            parsed.take([1, 67])
        iterator = iter(loader.to_tf())
        for step in range(number // 8 * 8):  # runs before the wrong record's
            positions = loader.positions(step)
            numbers = positions - (positions > 67)
            assert next(iterator)["n"].numpy().tolist() == numbers.tolist()

    @pytest.mark.parametrize("wrong", ["another dtype"], indirect=True)
    def test_in_a_process(self, wrong: tuple[ooc.View, str]) -> None:
        records, message = wrong
        with pytest.raises(MapError, match=message.rstrip("$")):  # with the worker's traceback
            list(records.parse(RAGGED, pad=9).batches(4, workers=1))

    def test_of_lengths(self, tmp_path: Path) -> None:
        write(tmp_path / "a.tfrecord", [example(1), serialized(ids=("float_list", [1.0]))])
        with pytest.raises(MapError, match=r"Key: ids, .* int64.* row 1\]"):
            ooc.open(tmp_path / "a.tfrecord").parse(RAGGED).batches(2, bucket=(2, 4))

    def test_no_example(self, tmp_path: Path) -> None:
        write(tmp_path / "a.tfrecord", [RECORDS[1], b"\x0a\xff\xff"])
        records = ooc.open(tmp_path / "a.tfrecord")
        message = r"Could not parse example input.* row 1\]"
        with pytest.raises(MapError, match=message):
            list(records.parse(RAGGED).batches(2))
        with pytest.raises(MapError, match=message):
            records[1:].parse(RAGGED)

    def test_a_damaged_record(self, tmp_path: Path) -> None:
        write(tmp_path / "a.tfrecord", RECORDS)
        stored = bytearray((tmp_path / "a.tfrecord").read_bytes())
        stored[-5] ^= 1
        (tmp_path / "a.tfrecord").write_bytes(stored)
        loader = ooc.open(tmp_path / "a.tfrecord").parse(RAGGED).batches(4)
        for iterated in (loader, loader.to_tf()):
            with pytest.raises(DamagedChunkError, match=r"row 100\]"):
                list(iterated)

    def test_of_the_call(self, records: ooc.View) -> None:
        sparse = tf.io.SparseFeature("i", "v", tf.int64, 9)
        with pytest.raises(ArgumentError, match=r"got SparseFeature.* for 'x'.*loader\.to_tf\(\)"):
            records.parse({"x": sparse})
        for feature in (
            tf.io.FixedLenSequenceFeature([], tf.int64),
            tf.io.VarLenFeature(tf.int32),
            tf.io.RaggedFeature(tf.int64, "x", [tf.io.RaggedFeature.RowLengths("lengths")]),
        ):
            with pytest.raises(ArgumentError, match="of known shapes"):
                records.parse({"x": feature})
        with pytest.raises(ArgumentError, match=r"must be such as tf\.io\.parse_example takes"):
            records.parse({"n": N["n"], "m": tf.io.RaggedFeature(tf.int64, "n")})


@given(
    st.lists(st.lists(st.integers(-3, 300), max_size=40), min_size=1, max_size=20),
    st.integers(1, 5),
)
def test_memory_is_bounded(rows: list[list[int]], size: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.tfrecord"
        write(path, [
            serialized(
                n=("int64_list", [1]), ids=("int64_list", row),
                names=("bytes_list", [b"%d" % at if at > 9 else b"" for at in row]),
                box=("float_list", [0.5] * (len(row) // 4 * 4)),
            )
            for row in rows
        ])  # fmt: skip
        for features in (RAGGED, SEQUENCES):
            loader = ooc.open(path).parse(features).batches(size, shuffle=True)
            for batch in loader:
                assert sum(map(nbytes_of, leaves(batch))) <= loader.batch_bytes


def nbytes_of(leaf: Any) -> int:
    """Return the bytes of an array, or of the values of ragged rows."""
    values = leaf.values if isinstance(leaf, ooc.RaggedBatch) else leaf
    if values.dtype == object:
        return sum(8 + sys.getsizeof(text) for text in values.flat)
    return values.nbytes
