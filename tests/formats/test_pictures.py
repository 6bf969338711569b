"""Read picture files that the tests write: Pillow and TensorFlow are the oracles."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
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
from oocdata.datasets.view import View
from oocdata.describe import as_json, from_json
from oocdata.engines.cache import cache
from oocdata.engines.decoding import must_not_wait, scratch
from oocdata.engines.source import Source
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    MismatchedPartsError,
    MissingDependencyError,
    MissingFileError,
    PairingWarning,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.pictures import open_pictures
from oocdata.formats.pictures.reader import PictureReader
from oocdata.formats.recognising import picture_format
from oocdata.memory import scratch_share
from oocdata.testing import SourceConformance

FOLDERS = {"cat": 5, "dog": 12}


def drawn(number: int, shape: tuple[int, ...] = (20, 30, 3)) -> NDArray[np.uint8]:
    """Return a unique picture that is smooth enough for JPEG."""
    places = np.indices(shape).sum(axis=0) * (number % 7 + 1)
    return (places + number * 11).astype(np.uint8)


def encoded(array: NDArray[Any], kind: str, **options: Any) -> bytes:
    """Return a picture as a file, written by Pillow."""
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
    """Record the rows of the pictures that are decoded."""
    rows: list[int] = []
    original = PictureReader.read_chunks

    def counting(self: PictureReader, places: NDArray[np.int64], outs: Any) -> None:
        rows.extend(places[:, 0].tolist())
        original(self, places, outs)

    monkeypatch.setattr(PictureReader, "read_chunks", counting)
    return rows


def tiff(array: NDArray[Any]) -> bytes:
    """Return an uncompressed TIFF of one strip, of any dtype and number of channels."""
    height, width, *channels = array.shape
    count = channels[0] if channels else 1
    kind = {"u": 1, "i": 2, "f": 3, "c": 6}[array.dtype.kind]
    body = array.astype(array.dtype.newbyteorder("<")).tobytes()
    shorts = {258: [8 * array.dtype.itemsize] * count, 338: [0] * (count - 1), 339: [kind] * count}
    tags = {254: 0, 256: width, 257: height, 259: 1, 262: 1, 273: 8, 277: count, 278: height}
    tags |= {279: len(body), 284: 1}
    body += bytes(len(body) % 2)
    for tag, values in shorts.items():
        packed = struct.pack(f"<{len(values)}H", *values)
        if len(values) > 2:
            tags[tag] = 8 + len(body)
            body += packed
        elif values:
            (tags[tag],) = struct.unpack("<I", packed.ljust(4, b"\0"))
    page = struct.pack("<H", len(tags))
    for tag, value in sorted(tags.items()):
        some = shorts.get(tag)
        page += struct.pack("<HHII", tag, 3 if some else 4, len(some) if some else 1, value)
    head = struct.pack("<2sHI", b"II", 42, 8 + len(body))
    return head + body + page + struct.pack("<I", 0)


class TestConformance(SourceConformance):
    dtypes = ("<f4", "<f8", "|u1", "<u2", "<i2", "<c8", "<u8")

    def make(self, folder: Path, array: NDArray[Any]) -> Source:
        """Write each row as a TIFF, which may hold anything."""
        paths = [str(folder / f"{number}.tif") for number in range(len(array))]
        for path, picture in zip(paths, array, strict=True):
            Path(path).write_bytes(tiff(picture))
        return open_pictures(paths)

    def test_one_dimension(self, tmp_path: Path) -> None:
        """No array of pictures has one axis: grey ones have two besides the rows."""
        array = drawn(3, (30, 5, 6))
        found = View.of(self.make(tmp_path, array)).take([29, 0, 29])
        assert_array_equal(found, array[[29, 0, 29]])


def test_each_file_is_a_row(folder: Path, expected: NDArray[np.uint8]) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    assert view.shape == (17, 20, 30, 3)
    assert view.dtype == np.uint8
    assert_array_equal(np.asarray(view), expected)  # dog/2 comes before dog/10
    assert_array_equal(view[7], expected[7])
    assert_array_equal(view[:, 3:9, ::-2, 1].take([16, 0]), expected[[16, 0], 3:9, ::-2, 1])
    assert view.parts.names[5].endswith("dog/0.png")
    assert_array_equal(view[3:8].parts.numbers, range(3, 8))
    for dog in ("dog/11.png", "/dog/11", f"{folder.name}/dog/11"):
        assert_array_equal(np.asarray(view.named([dog, "cat/0.png"])), expected[[0, 16]])
    with pytest.raises(ArgumentError, match=r"'0\.png' names 2"):
        view.named(["0.png"])


def test_one_file_a_list_and_globs(folder: Path, expected: NDArray[np.uint8]) -> None:
    one = ooc.open(folder / "dog" / "3.png")
    assert_array_equal(np.asarray(one), expected[8:9])
    several = ooc.open([f"{folder}/dog/1*.png", folder / "cat/2.png"])
    assert_array_equal(np.asarray(several), expected[[6, 15, 16, 2]])


def test_a_relative_path_stays_where_it_was(
    folder: Path, expected: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    view = ooc.open("dog/*.png")
    monkeypatch.chdir("cat")
    assert_array_equal(view[0], expected[5])


def test_opening_looks_at_the_first_file_alone(
    folder: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    for name in ("open", "stat"):
        original = getattr(os, name)

        def noting(path: Any, *rest: Any, original: Any = original, **more: Any) -> Any:
            opened.append(path)
            return original(path, *rest, **more)

        monkeypatch.setattr(os, name, noting)
    view = ooc.open([str(folder / "dog/0.png"), *(f"{folder}/{n}.png" for n in range(1000))])
    assert len(view[5:].split(0.8, 0.2)[0].patches((4, 4), per_row=1, axes=(0, 1))) == 797
    assert set(ooc.folder_labels(view).categories) == {folder.name, "dog"}
    assert {path for path in opened if "png" in str(path)} == {str(folder / "dog/0.png")}
    assert decoded == []


GREY = drawn(3, (20, 30))
KINDS: dict[str, tuple[str, NDArray[Any], dict[str, Any]]] = {
    "jpeg": ("JPEG", drawn(1), {}),
    "jpeg grey": ("JPEG", GREY, {}),
    "jpeg progressive": ("JPEG", drawn(1), {"progressive": True, "subsampling": 0}),
    "jpeg with a thumbnail": ("JPEG", drawn(1), {"exif": b"Exif\0\0" + encoded(GREY, "JPEG")}),
    "png": ("PNG", drawn(1), {}),
    "png grey": ("PNG", GREY, {}),
    "png of 16 bits": ("PNG", GREY.astype("u2") * 250, {}),
    "png with opacity": ("PNG", drawn(1, (20, 30, 4)), {}),
    "webp": ("WEBP", drawn(1), {"lossless": True}),
    "webp that loses": ("WEBP", drawn(1), {}),
    "tiff": ("TIFF", drawn(1), {"compression": "tiff_lzw"}),
    "tiff with a jpeg": ("TIFF", drawn(1), {"compression": "jpeg"}),
    "tiff of 16 bits": ("TIFF", GREY.astype("u2") * 250, {}),
    "bmp": ("BMP", drawn(1), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_pillow(tmp_path: Path, kind: str) -> None:
    name, array, options = KINDS[kind]
    path = tmp_path / "a.unknown"  # its bytes tell
    path.write_bytes(encoded(array, name, **options))
    with Image.open(path) as image:
        found = np.asarray(image)
    for pictures in (None, ooc.Pictures()):
        view = ooc.open(path, pictures=pictures)
        assert view.dtype == array.dtype
        assert_array_equal(view[0], found)
    assert picture_format(path.read_bytes()[:16]).upper() == name
    assert name in view.storage.codec.upper()


@pytest.mark.parametrize("kind", ["jpeg", "jpeg grey", "jpeg progressive", "png", "png grey"])
def test_numbers_are_those_of_tensorflow(tmp_path: Path, kind: str) -> None:
    name, array, options = KINDS[kind]
    data = encoded(array, name, **options)
    (tmp_path / "a").write_bytes(data)
    accurate = {"dct_method": "INTEGER_ACCURATE"} if name == "JPEG" else {}
    found = getattr(tf.io, f"decode_{name.lower()}")(data, **accurate).numpy()
    assert_array_equal(ooc.open(tmp_path / "a")[0], found.reshape(array.shape))


def test_colours_of_16_bits(tmp_path: Path) -> None:
    array = drawn(1).astype("u2") * 257
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(array))
    found = tf.io.decode_png((tmp_path / "a.png").read_bytes(), dtype=tf.uint16).numpy()
    assert_array_equal(ooc.open(tmp_path / "a.png")[0], found)
    with pytest.raises(UnsupportedDtypeError, match=r"8 bits.*without `pictures`.*a\.png"):
        ooc.open(tmp_path / "a.png", pictures=ooc.Pictures(size=(4, 4)))


def test_a_picture_is_not_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    (tmp_path / "a.jpg").write_bytes(encoded(drawn(1), "JPEG", exif=exif))
    for pictures in (None, ooc.Pictures(channels=3)):
        assert ooc.open(tmp_path / "a.jpg", pictures=pictures).element == (20, 30, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_nor_is_a_tiff(tmp_path: Path, orientation: int, compression: str | None) -> None:
    data = encoded(drawn(1), "TIFF", tiffinfo={274: orientation}, compression=compression)
    (tmp_path / "a.tif").write_bytes(data)
    for pictures in (None, ooc.Pictures(), ooc.Pictures(channels=3)):
        assert_array_equal(ooc.open(tmp_path / "a.tif", pictures=pictures)[0], drawn(1))
    for more in ({}, {"crop": True}):
        wanted = ooc.Pictures(size=(7, 9), **more)
        (tmp_path / "b.png").write_bytes(encoded(drawn(1), "PNG"))
        one, other = (ooc.open(tmp_path / name, pictures=wanted)[0] for name in ("a.tif", "b.png"))
        assert_array_equal(one, other)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"compression": "jpeg"}), ("L", {"compression": "jpeg"}),
        ("YCbCr", {"compression": "tiff_lzw"}), ("CMYK", {}), ("P", {}),
        ("L", {"tiffinfo": {262: 0}}), ("1", {"tiffinfo": {262: 0}}),
    ],
)  # fmt: skip
def test_nor_is_a_tiff_whose_numbers_are_no_colours(
    tmp_path: Path, orientation: int, mode: str, options: dict[str, Any]
) -> None:
    """libtiff turns some of them, by halves only."""
    array = np.add.outer(np.arange(20), 4 * np.arange(30))[..., None] + np.array([0, 40, 90])
    image = Image.fromarray(array.astype("u1")).convert(mode)
    tags = {**options.get("tiffinfo", {}), 274: orientation}
    image.save(tmp_path / "a.tif", **{**options, "tiffinfo": tags})
    image.save(tmp_path / "b.tif", **options)
    with Image.open(tmp_path / "b.tif") as stored:
        wanted = np.asarray(stored.convert("L" if mode in "L1" else "RGB"))
    for pictures in (None, ooc.Pictures()):
        for name in ("a.tif", "b.tif"):
            assert_array_equal(ooc.open(tmp_path / name, pictures=pictures)[0], wanted)


def test_colours_of_a_palette(tmp_path: Path) -> None:
    image = Image.fromarray(drawn(2)).quantize(8)
    for name in ("a.png", "a.gif", "a.bmp", "a.tif"):
        image.save(tmp_path / name)
        path = tmp_path / name
        for pictures in (None, ooc.Pictures()):
            assert_array_equal(
                ooc.open(path, pictures=pictures)[0], np.asarray(image.convert("RGB"))
            )
        masks = ooc.open(path, pictures=ooc.Pictures(indices=True))
        with Image.open(path) as stored:
            assert_array_equal(masks[0], np.asarray(stored))
    small = ooc.open(path, pictures=ooc.Pictures((5, 6), indices=True, filter="nearest"))
    assert_array_equal(small[0], np.asarray(image.resize((6, 5), Image.Resampling.NEAREST)))


def test_the_first_frame(tmp_path: Path) -> None:
    frames = [Image.fromarray(drawn(number)).quantize(8) for number in (1, 2)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    first = np.asarray(frames[0].convert("RGB"))
    assert_array_equal(ooc.open(tmp_path / "a.gif")[0], first)
    assert_array_equal(ooc.open(tmp_path / "a.gif", pictures=ooc.Pictures())[0], first)


@pytest.mark.parametrize("smaller", [False, True], ids=["another page", "a smaller copy"])
@pytest.mark.parametrize("pictures", [None, ooc.Pictures(channels=1)], ids=str)
def test_pages_of_a_tiff(tmp_path: Path, smaller: bool, pictures: ooc.Pictures | None) -> None:
    one = tiff(GREY)
    second = struct.pack("<HHHIII", 1, 254, 4, 1, int(smaller), 0)
    (tmp_path / "a.tif").write_bytes(one[:-4] + struct.pack("<I", len(one)) + second)
    if smaller:
        assert_array_equal(ooc.open(tmp_path / "a.tif", pictures=pictures)[0], GREY)
    else:
        with pytest.raises(UnsupportedDtypeError, match=r"several pages.*tifffile"):
            ooc.open(tmp_path / "a.tif", pictures=pictures)


# Resized and converted.


@pytest.mark.parametrize("name", ["nearest", "box", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("shape", [(20, 30, 3), (31, 17), (20, 30, 4)], ids=str)
def test_resized(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    image = Image.fromarray(drawn(1, shape))
    image.save(tmp_path / "a.png")
    filter_ = getattr(Image.Resampling, name.upper())
    whole = ooc.open(tmp_path / "a.png", pictures=ooc.Pictures(size=(9, 7), filter=name))
    assert_array_equal(whole[0], np.asarray(image.resize((7, 9), filter_)))
    middle = ooc.open(tmp_path / "a.png", pictures=ooc.Pictures((9, 7), crop=True, filter=name))
    assert_array_equal(middle[0], np.asarray(ImageOps.fit(image, (7, 9), filter_)))


@pytest.mark.parametrize(("shape", "size"), [((225, 300), (224, 224)), ((31, 32), (60, 60))])
def test_a_window_as_high_as_the_picture(
    tmp_path: Path, shape: tuple[int, int], size: tuple[int, int]
) -> None:
    """The window's border, by a rounded scale, was a little outside."""
    image = Image.fromarray(drawn(1, shape))
    image.save(tmp_path / "a.png")
    (found,) = np.asarray(ooc.open(tmp_path / "a.png", pictures=ooc.Pictures(size, crop=True)))
    (height, width), beside = shape, (shape[1] - shape[0]) / 2
    box = (beside, 0, width - beside, height)
    assert_array_equal(found, np.asarray(image.resize(size, Image.Resampling.BILINEAR, box)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WebP"])
@pytest.mark.parametrize("dtype", ["bool", "i1", "i2", "f2"])
def test_pictures_of_unlike_dtypes(tmp_path: Path, dtype: str, kind: str) -> None:
    """Decoders write any dtype into memory with the same number of bytes a number."""
    grey = kind in ("PNG", "JPEG", "BMP")
    array = drawn(3, (20, 30) if grey else (20, 30, 3))
    wide = array.astype("u2") if kind == "PNG" and dtype[1:] == "2" else array
    (tmp_path / "b.png").write_bytes(encoded(wide, kind))
    first = array > 99 if dtype == "bool" else (array // 2).astype(dtype)
    if dtype == "bool" and grey:
        (tmp_path / "a.tif").write_bytes(encoded(first, "TIFF"))
    else:
        (tmp_path / "a.tif").write_bytes(tiff(first.astype("i1") if dtype == "bool" else first))
    view = ooc.open([tmp_path / "a.tif", tmp_path / "b.png"])
    assert_array_equal(view[0], first)
    with pytest.raises(MismatchedPartsError, match="the shape and dtype of the first"):
        view[1]


def test_pictures_of_unlike_shapes(tmp_path: Path) -> None:
    shapes = [(20, 30, 3), (25, 10, 3), (40, 40), (16, 22, 4)]
    for number, shape in enumerate(shapes):
        Image.fromarray(drawn(number, shape)).save(tmp_path / f"{number}.png")
    view = ooc.open(f"{tmp_path}/*.png", pictures=ooc.Pictures(size=(8, 12), channels=3))
    assert view.shape == (4, 8, 12, 3)
    for number, shape in enumerate(shapes):
        image = Image.fromarray(drawn(number, shape)).convert("RGB")
        found = image.resize((12, 8), Image.Resampling.BILINEAR)
        assert_array_equal(view[number], np.asarray(found))
    grey = ooc.open(f"{tmp_path}/*.png", pictures=ooc.Pictures(size=(8, 12), channels=1))
    assert grey.shape == (4, 8, 12)


def test_colours_of_print(tmp_path: Path) -> None:
    Image.frombytes("CMYK", (30, 20), drawn(1, (20, 30, 4)).tobytes()).save(tmp_path / "a.jpg")
    Image.fromarray(drawn(2, (20, 30, 4))).save(tmp_path / "b.png")
    with Image.open(tmp_path / "a.jpg") as image:
        found, opaque = np.asarray(image.convert("RGB")), np.asarray(image.convert("RGBA"))
    with_opacity = ooc.Pictures(channels=4)  # as many numbers a pixel as are stored
    assert_array_equal(ooc.open(tmp_path / "a.jpg", pictures=with_opacity)[0], opaque)
    for pictures in (None, ooc.Pictures()):
        assert_array_equal(ooc.open(tmp_path / "a.jpg", pictures=pictures)[0], found)
        mixed = ooc.open([tmp_path / "b.png", tmp_path / "a.jpg"], pictures=pictures)
        with pytest.raises(MismatchedPartsError, match=r"has \(20, 30, 3\)"):  # not opacity
            mixed[1]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"size": 64}, "`size` must be"),
        ({"size": (0, 4)}, "`size` must be"),
        ({"size": (4, 4.5)}, "`size` must be"),
        ({"size": (4, 4), "filter": "cubic"}, "`filter` must be one of nearest, box"),
        ({"channels": 2}, "`channels` must be 1"),
        ({"channels": np.array([1, 3])}, "`channels` must be 1"),
        ({"size": (4, 4), "filter": np.array([1, 3])}, "`filter` must be one of nearest, box"),
        ({"crop": True}, "`crop` must be given with `size`"),
        ({"indices": True, "channels": 1}, "`channels` must be left out"),
        ({"indices": True, "size": (4, 4)}, "`filter` must be 'nearest'"),
    ],
)
def test_options_that_break_a_rule(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        ooc.Pictures(**given)


# What is wrong with a file.


def flipped(data: bytes) -> bytes:
    place = len(data) * 2 // 3
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


PNG, JPEG, WEBP = (encoded(drawn(6), kind) for kind in ("PNG", "JPEG", "WEBP"))
WRONG: dict[str, tuple[bytes, type[Exception], str]] = {
    "empty": (b"", TruncatedFileError, "it is empty"),
    "no picture": (b"<!DOCTYPE html>", UnknownFormatError, r"first bytes are b'<!DOCTYP"),
    "cut short, png": (PNG[: len(PNG) // 2], DamagedChunkError, "must decode as PNG"),
    "cut short, jpeg": (JPEG[:-20], TruncatedFileError, "must have an end"),
    "cut short after a thumbnail": (
        encoded(drawn(6), "JPEG", exif=b"Exif\0\0" + JPEG)[:-20],
        TruncatedFileError,
        "must have an end",
    ),
    "cut short, webp": (WEBP[:-20], DamagedChunkError, "must decode as WebP"),
    "flipped bits": (flipped(PNG), DamagedChunkError, "must decode as PNG"),
    "a header alone": (JPEG[:20], TruncatedFileError, "must have an end"),
    "another height": (
        encoded(drawn(6, (21, 30, 3)), "PNG"),
        MismatchedPartsError,
        r"has \(21, 30, 3\)\.",
    ),
    "grey": (
        encoded(drawn(6, (20, 30)), "JPEG"),
        MismatchedPartsError,
        r"has \(20, 30\)\. .*`pictures` a size",
    ),
    "16 bits": (
        imagecodecs.png_encode(drawn(6).astype("u2")),
        MismatchedPartsError,
        "another dtype",
    ),
    "another tiff": (tiff(drawn(6, (20, 31))), MismatchedPartsError, r"has \(20, 31\)\."),
}


@pytest.mark.parametrize(("place", "number"), [(18, 4_849_714), (18, 90), (22, 60), (22, -60)])
@pytest.mark.parametrize("options", [None, ooc.Pictures(channels=1)], ids=["stored", "converted"])
def test_a_bmp_without_the_rows_of_its_header(
    tmp_path: Path, place: int, number: int, options: ooc.Pictures | None
) -> None:
    """Its decoder delivered other memory, or ended the process (imagecodecs 2026.3)."""
    data = bytearray(encoded(drawn(1, (40, 50, 3)), "BMP"))
    data[place : place + 4] = number.to_bytes(4, "little", signed=True)
    (tmp_path / "a.bmp").write_bytes(data)
    with pytest.raises(TruncatedFileError, match="as its header says") as caught:
        ooc.open(tmp_path / "a.bmp", pictures=options)
    assert caught.value.path == str(tmp_path / "a.bmp")


def test_a_header_of_more_than_memory_holds(tmp_path: Path) -> None:
    data = bytearray(tiff(drawn(1, (40, 50, 3))))
    at = data.index(struct.pack("<HHI", 256, 4, 1)) + 8
    data[at : at + 4] = (2**32 - 2).to_bytes(4, "little")  # the width
    (tmp_path / "a.tif").write_bytes(data)
    with pytest.raises(DamagedChunkError, match="to more than memory holds") as caught:
        ooc.open(tmp_path / "a.tif")
    assert caught.value.path == str(tmp_path / "a.tif")


@pytest.mark.parametrize("options", [{}, {"filter": "box"}], ids=str)
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_tiff_of_either_byte_order(
    tmp_path: Path, options: dict[str, Any], orientation: int
) -> None:
    """Pillow 13 mixes up bytes when it resizes or converts big-endian numbers."""
    numbers = drawn(5, (20, 30)).astype(np.uint16) * 257 - 3
    for name, order in (("little", "<u2"), ("big", ">u2")):
        data = encoded(numbers.astype(order), "TIFF", tiffinfo={274: orientation})
        assert data[:2] == (b"MM" if name == "big" else b"II")
        (tmp_path / f"{name}.tif").write_bytes(data)
    for wanted in (ooc.Pictures(), ooc.Pictures(size=(7, 9), **options)):
        little, big = (
            ooc.open(tmp_path / f"{name}.tif", pictures=wanted)[0] for name in ("little", "big")
        )
        assert big.dtype == np.dtype("=u2")
        assert_array_equal(big, little)
    assert_array_equal(ooc.open(tmp_path / "big.tif")[0], numbers)


def test_the_reason_has_no_address_in_memory(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG[:30])
    with pytest.raises(DamagedChunkError, match=r"; cannot identify image file\. It was"):
        ooc.open(tmp_path / "a.png", pictures=ooc.Pictures(size=(4, 4)))


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_wrong(folder: Path, expected: NDArray[np.uint8], case: str) -> None:
    data, kind, rule = WRONG[case]
    (folder / "dog" / "1.png").write_bytes(data)
    view = ooc.open(f"{folder}/*/*.png")
    with pytest.raises(kind, match=rule) as caught:
        view[2:].take([9, 4, 1])
    assert isinstance(caught.value, SourceError)
    assert caught.value.path == str(folder / "dog/1.png")
    assert caught.value.rows == (6,)
    assert_array_equal(view.take([7, 5]), expected[[7, 5]])  # others are as they were


@pytest.mark.parametrize("case", ["empty", "no picture", "cut short, jpeg", "another height"])
def test_a_file_that_is_wrong_resized(folder: Path, case: str) -> None:
    data, kind, rule = WRONG[case]
    (folder / "dog" / "1.png").write_bytes(data)
    view = ooc.open(f"{folder}/*/*.png", pictures=ooc.Pictures(channels=3))
    with pytest.raises(kind, match=rule.removesuffix(r"\.")) as caught:
        view[6]
    assert caught.value.path == str(folder / "dog/1.png")


@pytest.mark.parametrize("case", ["no picture", "cut short, png", "cut short, jpeg"])
def test_a_first_file_that_is_wrong(folder: Path, case: str) -> None:
    data, kind, rule = WRONG[case]
    (folder / "cat" / "0.png").write_bytes(data)
    with pytest.raises(kind, match=rule) as caught:
        ooc.open(f"{folder}/*/*.png", pictures=ooc.Pictures())
    assert caught.value.path == str(folder / "cat/0.png")


def test_a_file_that_can_not_be_read(folder: Path) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    for name in ("cat/3.png", "dog/0.png"):
        (folder / name).unlink()
    (folder / "dog/0.png").mkdir()
    with pytest.raises(MissingFileError, match=r"cat/3\.png', row 3"):
        view[3]
    with pytest.raises(SourceError, match=r"must be readable; .*directory.*dog/0\.png', row 5"):
        view[5]


def test_a_file_that_changes(folder: Path, expected: NDArray[np.uint8]) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    assert_array_equal(view[3], expected[3])
    (folder / "cat/3.png").write_bytes(encoded(drawn(99), "PNG"))
    cache.forget()
    with pytest.raises(SourceError, match=r"when it was first read; it has changed.*cat/3.*row 3"):
        view[3]
    assert_array_equal(ooc.open(f"{folder}/*/*.png")[3], drawn(99))


def test_a_file_that_changes_while_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    path, original = folder / "cat/3.png", os.pread

    def changing(*where: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"more")
        return original(*where)

    monkeypatch.setattr(os, "pread", changing)
    with pytest.raises(SourceError, match=r"has changed.*cat/3\.png"):
        view[3]


def test_bad_rows_are_found_and_left_out(folder: Path, expected: NDArray[np.uint8]) -> None:
    for name, case in {"cat/1": "empty", "dog/4": "flipped bits", "dog/5": "grey"}.items():
        (folder / f"{name}.png").write_bytes(WRONG[case][0])
    view = ooc.open(f"{folder}/*/*.png")
    health = ooc.check(view)
    assert {(found.kind, found.rows) for found in health.findings} == {
        ("truncated", (range(1, 2),)),
        ("damaged", (range(9, 10),)),
        ("unreadable", (range(10, 11),)),
    }
    (first,) = (found for found in health.findings if found.kind == "truncated")
    assert first.reason.endswith(f"In {folder}/cat/1.png.")
    good = np.ones(len(view), bool)
    for finding in health.findings:
        for rows in finding.rows:
            good[rows.start : rows.stop] = False
    kept = ooc.zip(view, ooc.folder_labels(view)).filter(good)
    found = list(kept.batches(4))
    assert_array_equal(np.concatenate([x for x, _ in found]), expected[good])
    assert_array_equal(np.concatenate([y for _, y in found]), [0] * 4 + [1] * 10)


def test_a_check_of_one_file(folder: Path) -> None:
    assert ooc.check(folder / "cat/0.png").healthy()
    (folder / "cat/0.png").write_bytes(JPEG[:-20])
    (finding,) = ooc.check(folder / "cat/0.png").findings
    assert finding.kind == "truncated"


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"key": "u"}, "`key` must be None"),
        ({"missing": "fill"}, "`missing` must be given for"),
        ({"dtype": "u1"}, "`dtype` must be given for"),
        ({"verify": True}, "`verify` must be left out"),
        ({"pictures": {"size": (3, 3)}}, "`pictures` must be an oocdata.Pictures"),
    ],
)
def test_arguments_that_do_not_apply(folder: Path, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        ooc.open(f"{folder}/*/*.png", **given)


def test_without_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert ooc.open(f"{folder}/*/*.png")[0].shape == (20, 30, 3)
    with pytest.raises(MissingDependencyError, match=r"pip install \"oocdata\[pictures\]\""):
        ooc.open(f"{folder}/*/*.png", pictures=ooc.Pictures())


# Everything above.


def test_each_picture_is_decoded_once_a_batch(folder: Path, decoded: list[int]) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    view.take([3, 1, 3, 3, 1])
    assert sorted(decoded) == [1, 3]
    view.take([1, 3])  # kept
    assert sorted(decoded) == [1, 3]
    cache.forget()
    decoded.clear()
    patches = view.patches((6, 5), per_row=4, axes=(-3, -2))
    assert patches.batches(len(patches)).batch(0).shape == (68, 6, 5, 3)
    assert sorted(decoded) == list(range(17))


def test_random_patches_are_parts_of_their_pictures(
    folder: Path, expected: NDArray[np.uint8]
) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    labels = ooc.folder_labels(view)
    crops_of = view.patches((6, 5), per_row=1, axes=(-3, -2))
    train, _ = ooc.zip(crops_of, ooc.open(np.arange(17)), labels).split(0.8, 0.2)
    for crops, rows, classes in train.batches(5, shuffle=True, seed=3):
        assert_array_equal(classes, rows >= 5)
        for row, crop in zip(rows, crops, strict=True):
            parts = np.lib.stride_tricks.sliding_window_view(expected[row], (6, 5), (0, 1))
            assert (parts == crop.transpose(2, 0, 1)).all(axis=(2, 3, 4)).any()


def test_training_order_workers_and_resuming(folder: Path, expected: NDArray[np.uint8]) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    train, rest = ooc.zip(view, ooc.folder_labels(view)).split(
        0.7, 0.3, stratify=ooc.folder_labels(view)
    )
    loader = train.batches(4, shuffle=True, seed=5)
    seen = [(x.copy(), y.copy()) for x, y in loader.epoch(1)]
    pictures = [row.tobytes() for x, _ in seen for row in x]
    others = [row.tobytes() for x, _ in rest.batches(3) for row in x]
    assert sorted(pictures + others) == sorted(row.tobytes() for row in expected)
    for x, y in seen:
        for picture, label in zip(x, y, strict=True):
            (row,) = np.flatnonzero((expected == picture).all(axis=(1, 2, 3)))
            assert label == (row >= 5)
    for (x, y), (x2, y2) in zip(seen[1:], loader.epoch(1, start=1), strict=True):
        assert_array_equal(x, x2)
        assert_array_equal(y, y2)
    again = train.batches(4, shuffle=True, seed=5, workers=1).epoch(1)
    for (x, y), (x2, y2) in zip(seen, again, strict=True):
        assert_array_equal(x, x2)
        assert_array_equal(y, y2)
    x, y = next(iter(loader.to_tf(epochs=1)))
    assert_array_equal(x, loader.batch(0)[0])
    assert_array_equal(y, loader.batch(0)[1])


def test_a_loader_travels_as_json(folder: Path) -> None:
    wanted = ooc.Pictures(size=(6, 7), crop=True, channels=1)
    view = ooc.open(f"{folder}/*/*.png", pictures=wanted)
    loader = ooc.zip(view[::2], ooc.folder_labels(view)[::2]).batches(3, shuffle=True)
    again = from_json(as_json(loader))
    for one, other in zip(loader.batch(1), again.batch(1), strict=True):
        assert_array_equal(one, other)
    (folder / "dog/12.png").write_bytes(PNG)
    assert len(pickle.loads(pickle.dumps(view))) == 17


def test_the_bound_on_memory_has_room_for_decoding(folder: Path) -> None:
    plain = ooc.open(f"{folder}/*/*.png")
    resized = ooc.open(f"{folder}/*/*.png", pictures=ooc.Pictures(size=(2, 2)))
    for view in (plain, resized):
        assert view.storage.chunk_scratch >= scratch_share()
        assert view.batches(4).explain().resident_bytes >= scratch_share()


MEASURED = """
import sys
import numpy as np, imagecodecs
from PIL import Image, JpegImagePlugin
import oocdata as ooc

def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) << 10

ooc.set_memory(256 << 20)
for batch in ooc.open(np.zeros((64, 4))).batches(4):
    pass
view = ooc.open(sys.argv[1], pictures=eval(sys.argv[2]))
loader = view.batches(4, shuffle=True)
bound = loader.explain(parallel=4, prefetch=8).resident_bytes
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
for batch in loader.epoch(0, parallel=4, prefetch=8):
    pass
peak = status("VmHWM") - before
assert peak <= bound, (peak >> 20, bound >> 20)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    "wanted", ["None", "ooc.Pictures((99, 88), channels=4)", "ooc.Pictures((99, 88), channels=1)"]
)
def test_the_stated_bound_is_kept(tmp_path: Path, wanted: str) -> None:
    image = Image.fromarray(drawn(1, (1500, 2000, 3)))
    for number in range(24):
        image.save(tmp_path / f"{number}.jpg", progressive=bool(number % 2))
    command = [sys.executable, "-c", MEASURED, f"{tmp_path}/*.jpg", wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_picture_too_large_to_be_resized(tmp_path: Path) -> None:
    for number, side in enumerate((20, 400)):
        Image.new("RGB", (side, side)).save(tmp_path / f"{number}.png")
    before = ooc.memory_limit()
    try:
        ooc.set_memory(1 << 20)
        view = ooc.open(f"{tmp_path}/*.png", pictures=ooc.Pictures(size=(4, 4)))
        with pytest.raises(
            SourceError, match=r"at most 262144 bytes.*ooc\.set_memory\((\d+)\)"
        ) as caught:
            view[1]
        assert caught.value.path == str(tmp_path / "1.png")
        ooc.set_memory(int(str(caught.value).partition("set_memory(")[2].partition(")")[0]))
        assert view[1].shape == (4, 4, 3)
    finally:
        ooc.set_memory(before)


@pytest.mark.parametrize("name", ["crop", "indices"])
def test_options_that_are_no_flags(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{name}` must be True or False; got 'no'"):
        ooc.Pictures(size=(4, 4), **{name: "no"})  # type: ignore[arg-type]


def test_a_size_that_takes_too_much_memory(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    before = ooc.memory_limit()
    try:
        ooc.set_memory(1 << 20)
        with pytest.raises(SourceError, match=r"at most 262144 bytes.*ooc\.set_memory"):
            ooc.open(tmp_path / "a.png", pictures=ooc.Pictures(size=(400, 400)))
    finally:
        ooc.set_memory(before)


def test_scratch_within_scratch() -> None:
    """Two threads that each need nearly all memory, and hold some of it, take turns."""
    both, inside, most = threading.Barrier(2, timeout=20), [0], [0]

    def work() -> None:
        with scratch(scratch_share() // 4):
            both.wait()
            with scratch(scratch_share() - 1):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1
            assert must_not_wait()
        assert not must_not_wait()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert most == [1]
    from oocdata.engines import decoding

    assert decoding._in_use == 0


# Labels.


def test_labels_are_aligned_with_a_selection(folder: Path) -> None:
    view = ooc.open(f"{folder}/*/*.png")
    labels = ooc.folder_labels(view)
    assert labels.dtype == np.int64
    assert labels.categories == ("cat", "dog")
    assert_array_equal(labels, [0] * 5 + [1] * 12)
    chosen = view[[16, 0, 7, 7]]
    assert_array_equal(ooc.folder_labels(chosen), [1, 0, 1, 1])
    assert ooc.folder_labels(view[5:]).categories == ("cat", "dog")
    _, last = view.split(0.9, 0.1)
    assert_array_equal(ooc.folder_labels(last), [1] * len(last))


def test_labels_as_keras_has_them(folder: Path) -> None:
    import keras

    found = keras.utils.image_dataset_from_directory(
        folder, batch_size=None, image_size=(20, 30), shuffle=False, verbose=0
    )
    view = ooc.open([f"{folder}/{name}/*.png" for name in ("dog", "cat")])
    labels = ooc.folder_labels(view)
    assert list(labels.categories) == found.class_names
    ours = {row.tobytes(): int(y) for row, y in zip(view, np.asarray(labels), strict=True)}
    for picture, label in found:
        assert ours[picture.numpy().astype("u1").tobytes()] == int(label)


def test_categories_of_another_set(folder: Path) -> None:
    view = ooc.open(f"{folder}/dog/*.png")
    assert set(np.asarray(ooc.folder_labels(view, categories=("bird", "cat", "dog")))) == {2}
    with pytest.raises(ArgumentError, match=r"`categories` must name each folder once, .*'dog'"):
        ooc.folder_labels(view, categories=["cat"])
    with pytest.raises(ArgumentError, match=r"`categories` must name each folder once"):
        ooc.folder_labels(view, categories=["dog", "dog"])


def test_labels_need_files(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"`view` must be of files.*memory"):
        ooc.folder_labels(ooc.open(np.zeros((4, 3))))
    with pytest.raises(ArgumentError, match=r"with axis 0 as its sample axis"):
        ooc.folder_labels(ooc.open(f"{folder}/*/*.png", axis=1))


@pytest.mark.parametrize("axis", [0, None])
def test_windows_stay_within_a_folder(tmp_path: Path, axis: int | None) -> None:
    lengths = {"run/v_0": 5, "run/v_2": 3, "run/v_10": 1, "walk/v_0": 4}
    frames = [number + 20 * film for film, n in enumerate(lengths.values()) for number in range(n)]
    for film, (name, length) in enumerate(lengths.items()):
        (tmp_path / name).mkdir(parents=True)
        for number in range(length):
            frame = np.full((4, 6, 3), number + 20 * film, np.uint8)
            if axis == 0:
                Image.fromarray(frame).save(tmp_path / name / f"{number}.png")
            else:
                np.save(tmp_path / name / f"{number}.npy", frame)
    view = ooc.open(f"{tmp_path}/*/*/*", axis=axis)
    assert np.asarray(view)[:, 0, 0, 0].tolist() == frames
    pairs = [(a, b) for a, b in pairwise(frames) if a // 20 == b // 20]
    for windows in (view.next_frame(), view.next_frame(episodes="folders")):
        x, y = windows.take(range(len(windows)))
        assert list(zip(x[:, 0, 0, 0].tolist(), y[:, 0, 0, 0].tolist(), strict=True)) == pairs
    loader = view.next_frame().batches(4, shuffle=True, seed=1, drop_remainder=False)
    read = [int(n) for x, _ in from_json(as_json(loader)).epoch(0) for n in x[:, 0, 0, 0]]
    assert sorted(read) == [a for a, _ in pairs]
    x, y = (windows := ooc.windows((view, 2), ooc.folder_labels(view, level=2))).take([0, 6, 7])
    assert len(windows) == len(pairs)
    assert x[:, :, 0, 0, 0].tolist() == [[0, 1], [60, 61], [61, 62]]
    assert y.tolist() == [0, 1, 1]
    again = from_json(as_json(windows.batches(3)))
    assert_array_equal(again.batch(2)[0], windows.batches(3).batch(2)[0])
    backwards = view[::-1].next_frame()
    assert [int(x[0, 0, 0]) for x, _ in backwards] == [b for _, b in reversed(pairs)]
    assert len(view.next_frame(episodes="none")) == len(frames) - 1
    assert len(view.next_frame(episodes=[6, 7])) == len(frames) - 2
    assert ooc.folder_labels(view).categories == ("v_0", "v_10", "v_2")
    labels = ooc.folder_labels(view, level=2)
    assert labels.categories == ("run", "walk")
    assert_array_equal(labels, [0] * 9 + [1] * 4)
    assert_array_equal(from_json(as_json(labels.batches(13))).batch(0), labels)
    with pytest.raises(ArgumentError, match=r"`level` must be at most the number of folders"):
        ooc.folder_labels(view, level=60)


def test_zip_of_unequally_many_files_says_how_to_pair_them(folder: Path) -> None:
    dogs, cats = (ooc.open(f"{folder}/{name}/*.png") for name in ("dog", "cat"))
    with pytest.raises(ArgumentError, match=r"got 12, 5 for .* To pair files by name, see"):
        ooc.zip(dogs, cats)


def test_files_paired_by_place_whose_names_do_not_fit(tmp_path: Path) -> None:
    for folder, missing in {"images": 5, "masks": 7, "again": 5}.items():
        (tmp_path / folder).mkdir()
        for number in set(range(1, 13)) - {missing}:
            Image.new("L", (4, 3)).save(tmp_path / folder / f"img_{number:0{len(folder)}}.png")
    images = ooc.open(f"{tmp_path}/images/*.png")
    masks, again = (ooc.open(f"{tmp_path}/{name}/*.png") for name in ("masks", "again"))
    for pair in ((images, masks), (images[3:], masks[3:])):
        with pytest.warns(PairingWarning, match=r"img_000006.png and .*img_00005.png") as caught:
            ooc.zip(*pair)
        assert caught[0].filename == __file__
    ooc.zip(images, again)
    ooc.zip(images[:4], masks[:4])
    ooc.zip(images[1:], images[:-1])
    ooc.zip(images[[0, 1, 2]], masks[[0, 4, 5]])  # pairs of the caller's


def test_files_of_several_rows(tmp_path: Path) -> None:
    for name, rows in {"b": 2, "a": 3}.items():
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", np.zeros((rows, 4)))
    view = ooc.open(f"{tmp_path}/*/x.npy")
    assert_array_equal(ooc.folder_labels(view[1:]), [0, 0, 1, 1])
