"""Picture files: Pillow and TensorFlow are the oracles, of files that the tests write."""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from PIL import Image, ImageOps

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.engines.cache import cache
from oocdata.engines.decoding import decodes_already, scratch
from oocdata.engines.source import Source
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    MismatchedPartsError,
    MissingDependencyError,
    MissingFileError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.pictures import PictureFiles, open_pictures, picture_format
from oocdata.memory import scratch_share
from oocdata.testing import SourceConformance

FOLDERS = {"cat": 5, "dog": 12}


def drawn(number: int, shape: tuple[int, ...] = (20, 30, 3)) -> NDArray[np.uint8]:
    """Return a picture that is like no other, smooth enough for JPEG."""
    places = np.indices(shape).sum(axis=0) * (number % 7 + 1)
    return (places + number * 11).astype(np.uint8)


def encoded(array: NDArray[Any], kind: str, **options: Any) -> bytes:
    """Return the file that Pillow makes of a picture."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of PNG files in folders by class."""
    number = 0
    for name, count in FOLDERS.items():
        (tmp_path / name).mkdir()
        for each in range(count):
            (tmp_path / name / f"{each}.png").write_bytes(encoded(drawn(number), "PNG"))
            number += 1
    return tmp_path


@pytest.fixture
def expected() -> NDArray[np.uint8]:
    """Return the pictures of `folder` in natural order of their paths."""
    return np.stack([drawn(number) for number in range(sum(FOLDERS.values()))])


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the pictures that are decoded: their rows."""
    rows: list[int] = []
    original = PictureFiles.read_chunks

    def counting(self: PictureFiles, places: NDArray[np.int64], outs: Any) -> None:
        rows.extend(places[:, 0].tolist())
        original(self, places, outs)

    monkeypatch.setattr(PictureFiles, "read_chunks", counting)
    return rows


class TestConformance(SourceConformance):
    dtypes = ("|u1", "<u2")

    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        """Write the array as pictures, as far as pictures can hold it."""
        kind = array.dtype.newbyteorder("=")
        if array.ndim == 1:
            pytest.skip("a picture has height and width")
        whole = array.astype(np.uint8 if kind.kind not in "u" else kind)
        whole = whole.reshape(len(whole), -1, whole.shape[-1])
        paths = []
        for number, picture in enumerate(whole):
            paths.append(str(folder / f"{number}.png"))
            Path(paths[-1]).write_bytes(imagecodecs.png_encode(np.ascontiguousarray(picture)))
        return _Folded(open_pictures(paths), array)


class _Folded:
    """Pictures with the shape and numbers of the array that the conformance tests ask for."""

    def __init__(self, source: Source, array: NDArray[Any]) -> None:
        self.source, self.shape, self.dtype = source, array.shape, array.dtype


def test_each_file_is_a_row(folder: Path, expected: NDArray[np.uint8]) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    assert view.shape == (17, 20, 30, 3)
    assert view.dtype == np.uint8
    assert_array_equal(np.asarray(view), expected)  # dog/2 comes before dog/10
    assert_array_equal(view[7], expected[7])
    assert_array_equal(view[:, 3:9, ::-2, 1].take([16, 0]), expected[[16, 0], 3:9, ::-2, 1])
    assert view.parts.names[5].endswith("dog/0.png")
    assert_array_equal(view[3:8].parts.numbers, range(3, 8))
    assert_array_equal(view.named(["dog/11.png", "cat/0.png"])[1], expected[16])
