"""TFRecord: the rows converted once, then read by TensorFlow's own C++ code.

As the guides on TFRecord and on performance say: several files read in turn, records shuffled
while they are still strings, parsed a batch at a time, fetched ahead. The shuffle is as good as
its buffer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.files import blocks
from benchmarks.ways.way import way

__all__: list[str] = []

_FILES = 4
_BUFFER_BYTES = 128 << 20


def _applies(case: Case) -> bool:
    return case.format == "npy" or case.codec == "gzip+shuffle"


def _compression(case: Case) -> str:
    return "GZIP" if case.codec == "gzip+shuffle" else ""


def convert(case: Case, path: Path) -> Path:
    """Write records of one row or one pair; a pair's rows are stored twice."""
    import tensorflow as tf

    folder = path.with_name(f"{path.name}{'-pairs' * case.pairs}.tfrecords")
    folder.mkdir()
    options = tf.io.TFRecordOptions(compression_type=_compression(case))
    share = -(-case.elements // _FILES)
    writers = [tf.io.TFRecordWriter(str(folder / f"{n}.tfrecord"), options) for n in range(_FILES)]

    def feature(row: np.ndarray) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[row.tobytes()]))

    before: np.ndarray | None = None
    for first, rows in blocks(case):
        for number, row in enumerate(rows, first):
            if not case.pairs:
                features = {"x": feature(row)}
            elif before is not None:
                features = {"x": feature(before), "y": feature(row)}
            else:
                features = {}
            if features:
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writers[(number - case.pairs) // share].write(example.SerializeToString())
            before = row
    for writer in writers:
        writer.close()
    return folder


@way("TFRecord", "tensorflow", applies=_applies, tf_data=True, convert=convert)
def tfrecord(case: Case, path: Path) -> Any:
    import tensorflow as tf

    names = ("x", "y")[: 1 + case.pairs]
    described = {name: tf.io.FixedLenFeature((), tf.string) for name in names}

    def parse(records: Any) -> Any:
        parsed = tf.io.parse_example(records, described)
        arrays = [tf.io.decode_raw(parsed[name], np.dtype(case.dtype)) for name in names]
        arrays = [tf.reshape(array, (-1, *case.element)) for array in arrays]
        return tuple(arrays) if case.pairs else arrays[0]

    files = tf.data.Dataset.list_files(str(path / "*.tfrecord"), shuffle=True, seed=1)
    records = files.interleave(
        lambda file: tf.data.TFRecordDataset(file, compression_type=_compression(case)),
        cycle_length=_FILES,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    buffer = max(case.batch, _BUFFER_BYTES // case.element_bytes)
    dataset = records.shuffle(buffer, seed=1).batch(case.batch)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)
