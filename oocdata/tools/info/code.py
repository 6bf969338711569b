"""Write lines of Python that open an array and read batches of it, for users to copy."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Any

from oocdata.axes import row_axes
from oocdata.datasets.episodes import likely_episodes
from oocdata.datasets.labels import folder_labels
from oocdata.datasets.view import View
from oocdata.datasets.zip import Zip
from oocdata.datasets.zip import zip as zipped
from oocdata.errors import SourceError
from oocdata.tools.libraries import import_tensorflow
from oocdata.tools.opening import Opening

BATCH_SIZE = 32

_FEWEST_TO_SPLIT = 5
"""Rows, or trajectories; with fewer, a part of the split would be empty."""

_SAMPLED = 20
"""Most records whose features are compared with the first."""

_SETS = {"train", "training", "val", "valid", "validation", "test", "testing"}

_FIT = "# model.fit(loader.to_tf(), epochs=10)"
_DTYPES = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}


def code_for(opening: Opening, view: View) -> tuple[str, tuple[str, ...]]:
    """Return a hint about opening the array, which may be empty, and lines of Python.

    The lines open the array, split it if it is long enough, and read a batch; for images, a batch
    of pairs of a frame and the next one. Packed numbers are decoded. Of TFRecords some records are
    read, for their features.
    """
    if view.storage.packed and not isinstance(opening.target, View):
        with suppress(SourceError):
            decoded = Opening.of(opening, decode=True)
            opening, view = decoded, decoded.view(unequal=True)
    hint, code, storage = "", opening.code(), view.storage
    if opening.axis == 0 and len(view.source.shape) > 3 and row_axes(view).letters[0] in "TD?":
        hint = "axis 0 numbers the rows; axis=(0, 1) makes it two axes, such as trajectory × time"
    columns, features = columns_of(view), dict[str, str]()
    if storage.format == "TFRecord":
        features = _features(view)
    fields = [*features] if columns is None else list(columns.parts)
    kind = None if fields or view.is_multi_array or view.dtype.hasobject else row_axes(view).kind
    name = "frames" if kind == "image" and not hint else "rows"
    if kind is not None and view.axes == (0,) and (storage.row_files or storage.single_rows):
        name = "images"  # files, in the order of their names
    lines = ["import oocdata as ooc", f"{name} = {code}"]
    if features:
        name = "examples"
        made = [f"    {feature!r}: {made}," for feature, made in features.items()]
        lines = ["import tensorflow as tf", *lines, "examples = rows.parse({", *made, "})"]
    elif fields:
        name = "columns"
        lines.append(f"columns = ooc.zip({{name: rows[name] for name in {fields}}})")
    if not view.nbytes:
        return hint, tuple(lines)
    if name == "images" and (made := _classes(view)):
        modules = ["import os"] * any("os." in line for line in made)
        return hint, (*modules, *lines, *made)
    dataset = name
    if view.sample_shape[0] >= _FEWEST_TO_SPLIT:
        lines.append(f"train, val, test = {name}.split(0.6, 0.2, 0.2)")
        dataset, view = "train", view.split(0.6, 0.2, 0.2)[0]
    count, batch = len(view), "x"
    if name == "frames" and view.default_episodes.lengths.max(initial=0) > 1:
        own = likely_episodes(view, 2)
        pairs = view.next_frame(episodes=own)
        argument = f"episodes={own!r}" if own else ""
        dataset, count, batch = f"{dataset}.next_frame({argument})", len(pairs), "x, y"
    if fields:
        batch, comment = "batch", f"a dict: batch[{fields[0]!r}], …"
    else:
        spec = replace(view.spec, shape=(min(BATCH_SIZE, count), *view.spec.shape))
        comment = f"{'each ' * (batch != 'x')}{spec}"
    lines += [
        f"loader = {dataset}.batches({BATCH_SIZE}, shuffle=True, seed=7)",
        f"{batch} = loader.batch(0)  # {comment}",
        _FIT if fields or batch == "x, y" else f"# with targets: ooc.zip({name}, targets)",
    ]
    return hint, tuple(lines)


def _features(records: View) -> dict[str, str]:
    """Return the features of ``tf.train.Example``s as code; empty for other records.

    Some records are read. Features that differ in length, or that some lack, are ragged.
    """
    step = max(1, -(-len(records) // _SAMPLED))
    rows = {*range(0, len(records), step), *range(len(records))[:_SAMPLED]}
    try:
        parse = import_tensorflow().train.Example.FromString
        read = [_values(parse(records[row])) for row in rows]
    except Exception:  # no TensorFlow, a damaged record, or another message: protobuf's own error
        return {}
    features = {}
    for name in sorted({name for each in read for name in each}):
        kinds = {each.get(name, ("", 0)) for each in read}
        dtype, *others = {dtype for dtype, _ in kinds if dtype}
        count = max(count for _, count in kinds)
        fixed = f"tf.io.FixedLenFeature({[count] if count > 1 else []}, tf.{dtype})"
        if not others:  # a feature of one dtype
            features[name] = fixed if len(kinds) == 1 else f"tf.io.RaggedFeature(tf.{dtype})"
    return features


def _values(example: Any) -> dict[str, tuple[str, int]]:
    """Return the dtype and the number of values of each feature that has some, by name."""
    found = {}
    for name, feature in example.features.feature.items():
        if kind := feature.WhichOneof("kind"):
            found[name] = _DTYPES[kind], len(getattr(feature, kind).value)
    return {name: (dtype, count) for name, (dtype, count) in found.items() if count}


def _classes(images: View) -> list[str]:
    """Return lines for pictures in folders of classes; each part of the split has all classes.

    Empty for pictures of one class. Classes are the folders of the files; or the folders above
    these, e.g. of films that are a folder each. Then no film is in two parts.
    """
    folders = [os.path.dirname(name) for name in images.parts.names]
    above = {os.path.dirname(folder) for folder in folders}
    are_sets = {os.path.basename(folder).lower() for folder in above} <= _SETS
    options: dict[str, Any] = {} if len(above) == 1 or are_sets else {"by": folders}
    level = 2 if options else 1
    labels = folder_labels(images, level=level)
    if len(labels.categories or ()) < 2:
        return []
    argument = ", level=2" if options else ""
    made = [f"labels = ooc.folder_labels(images{argument})     # numbers of labels.categories"]
    dataset, count = "ooc.zip(images, labels)", len(labels)
    if len({*folders} if options else folders) >= _FEWEST_TO_SPLIT:
        words = "stratify=labels"
        if options:
            made.append("folders = [os.path.dirname(path) for path in images.parts.names]")
            words = "by=folders, stratify=labels"
        made.append(f"train, val, test = {dataset}.split(0.6, 0.2, 0.2, {words})")
        dataset, count = "train", len(labels.split(0.6, 0.2, 0.2, stratify=labels, **options)[0])
    rows = min(BATCH_SIZE, count)
    x, y = (replace(view.spec, shape=(rows, *view.spec.shape)) for view in (images, labels))
    return [
        *made,
        f"loader = {dataset}.batches({BATCH_SIZE}, shuffle=True, seed=7)",
        f"x, y = loader.batch(0)  # {x} and {y}",
        _FIT,
    ]


def columns_of(view: View) -> Zip | None:
    """Return the fields of structured rows as a dict dataset; None for rows without fields.

    Fields that batches can't hold are left out.
    """
    columns = {}
    for name in view.dtype.names or ():
        try:
            field = view[name]
        except SourceError:
            continue
        if field.dtype.names is None:
            columns[name] = field
    return zipped(columns) if columns else None
