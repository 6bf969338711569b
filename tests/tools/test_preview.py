"""Test previews against NumPy: rows, values and colours."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image
from recording import RecordingSource

import oocdata as ooc
from oocdata.box import Extent
from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError, MissingDependencyError, SourceError
from oocdata.tools.preview import Preview, preview
from oocdata.tools.preview.parts import READ_BYTES, canonical

RNG = np.random.default_rng(0)


FRAMES = RNG.normal(size=(30, 20, 14)).astype("f4")


def shown(found: Preview) -> list[NDArray[np.float64]]:
    return [panel.values for panels in found.elements for panel in panels]


MAGENTA = (255, 0, 255)


def drawn(found: Preview) -> list[NDArray[np.uint8]]:
    """Return the colours of the images on the sheet, in order."""
    images = [image for axes in found.figure().axes for image in axes.images]
    return [image.to_rgba(image.get_array(), bytes=True)[..., :3] for image in images]


LAYOUTS: dict[str, tuple[tuple[int, ...], Callable[[NDArray[Any]], list[NDArray[Any]]]]] = {
    "HW": ((20, 14), lambda row: [row]),
    "CHW": ((2, 20, 14), lambda row: [row[0], row[1]]),
    "HWC": ((20, 14, 2), lambda row: [row[:, :, 0], row[:, :, 1]]),
    "DHW": ((9, 9, 9), lambda row: [row[d] for d in range(1, 9)]),
    "WHC": ((20, 14, 2), lambda row: [row[:, :, 0].T, row[:, :, 1].T]),
    "TCHW": (
        (6, 2, 20, 14),
        lambda row: [row[t, c] for t in range(1, 5) for c in range(2)],
    ),
    "W": ((50,), lambda row: [row[None]]),
    "WC": ((50, 3), lambda row: [row[None, :, channel] for channel in range(3)]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_panels_hold_the_values_of_their_rows(layout: str) -> None:
    element, panels = LAYOUTS[layout]
    array = RNG.normal(size=(40, *element))
    found = preview(array, layout=layout, count=3)
    assert found.axes[""].letters == layout
    assert found.rows == ((0,), (20,), (39,))
    expected = [panel for row in (0, 20, 39) for panel in panels(array[row])]
    for got, wanted in zip(shown(found), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", ">i4", "u8", "f2", ">f4", "f8", "c8"])
def test_every_dtype_is_shown(dtype: str) -> None:
    array = (RNG.random((5, 8, 6)) * 3).astype(dtype)
    if dtype == "c8":
        array = array * np.exp(1j)
    found = preview(array, count=5)
    expected = np.abs(array) if dtype == "c8" else array
    for got, wanted in zip(shown(found), expected, strict=True):
        np.testing.assert_array_equal(got, wanted.astype("f8"))
    assert ("complex numbers are shown as their magnitude" in found.notes) == (dtype == "c8")
    assert {scale.colormap for scale in found.scales} == {
        "gray" if array.dtype.itemsize == 1 else "viridis"
    }


def test_pairs_are_shown_with_their_difference() -> None:
    found = preview(ooc.open(FRAMES).next_frame(3), count=4)
    assert found.rows == ((0, 3), (9, 12), (17, 20), (26, 29))
    for (x, y, difference), (i, j) in zip(found.elements, found.rows, strict=True):
        np.testing.assert_array_equal(x.values, FRAMES[i])
        np.testing.assert_array_equal(y.values, FRAMES[j])
        np.testing.assert_array_equal(difference.values, FRAMES[j].astype("f8") - FRAMES[i])
        assert x.scale is found.elements[0][0].scale
        assert (y.scale.low, y.scale.high) == (x.scale.low, x.scale.high)
        assert difference.scale.low == -difference.scale.high
    assert len(found.scales) == 2


def test_a_difference_of_small_integers_does_not_wrap() -> None:
    array = np.zeros((2, 4, 4), "u1")
    array[0] = 200
    found = preview(ooc.open(array).next_frame())
    np.testing.assert_array_equal(found.elements[0][2].values, np.full((4, 4), -200.0))


def test_padded_windows_and_several_arrays_are_shown() -> None:
    view, table = ooc.open(FRAMES), ooc.open(np.arange(len(FRAMES) * 3.0).reshape(-1, 3))
    found = preview(view.windows((-3, -1, 0), pad=True), count=2)
    assert found.rows[0] == (0, 0, 0)
    assert found.labels[0] == "row 0"
    assert [panel.place for panel in found.elements[0]][-1] == "y"  # the mask, a curve
    both = preview(
        ooc.windows({"image": (view, (-1, 0)), "action": (table, 4), "now": view}, pad=True),
        count=2,
    )
    places = [panel.place for panel in both.elements[1]]
    assert ["action_mask" in places, "now" in places] == [True, True]
    np.testing.assert_array_equal(both.elements[1][-1].values, FRAMES[-1])


def test_windows_zips_and_maps_are_shown() -> None:
    view = ooc.open(FRAMES)
    windows = preview(view.windows(3, 1, horizon=2), count=2)
    assert windows.rows[0] == (0, 1, 2, 4)
    assert [panel.place for panel in windows.elements[0]] == [
        "x, time 0", "x, time 1", "x, time 2", "y",
    ]  # fmt: skip
    for panel, row in zip(windows.elements[0], (0, 1, 2, 4), strict=True):
        np.testing.assert_array_equal(panel.values, FRAMES[row])
    assert len(windows.scales) == 1
    (curve,) = preview(ooc.open(np.arange(50)).windows(5), count=2).elements[1]
    np.testing.assert_array_equal(curve.values, [[45, 46, 47, 48, 49]])

    labelled = preview(ooc.zip({"image": view, "label": ooc.open(np.arange(30) * 2)}), count=2)
    assert labelled.labels == ("element 0, label 0", "element 29, label 58")
    assert "shown      2 elements: 0, 29" in str(labelled)

    doubled = preview(view.map(lambda x: x * 2), count=2)
    np.testing.assert_array_equal(doubled.elements[1][0].values, FRAMES[29] * 2)


def test_three_channels_are_a_colour_where_they_can_be() -> None:
    image = RNG.integers(0, 256, (5, 3, 12, 10), np.uint8)
    found = preview(image, count=2)
    np.testing.assert_array_equal(drawn(found)[0], image[0].transpose(1, 2, 0))
    unit = preview(image.transpose(0, 2, 3, 1) / np.float32(255), count=2)
    np.testing.assert_array_equal(drawn(unit)[1], image[4].transpose(1, 2, 0))
    # Not in any range of colours.
    assert len(preview(image * 2.0, count=2).elements[0]) == 3
    one = preview(ooc.open(image)[:, 1], count=2)
    np.testing.assert_array_equal(one.elements[1][0].values, image[4, 1])
    pair = preview(ooc.open(image).next_frame(), count=2)
    change = image[1].astype(float) - image[0]
    for panel, wanted in zip(pair.elements[0][2:], change, strict=True):
        np.testing.assert_array_equal(panel.values, wanted)


def test_the_range_is_that_of_the_percentiles() -> None:
    found = preview(FRAMES**2, count=7).scales[0]
    rows = np.linspace(0, 29, 7).round().astype(int)
    low, high = np.percentile((FRAMES**2)[rows].astype("f8"), (1, 99))
    assert (found.low, found.high, found.colormap) == (low, high, "viridis")
    signed = preview(FRAMES, count=30).scales[0]
    most = np.abs(np.percentile(FRAMES.astype("f8"), (1, 99))).max()
    assert (signed.low, signed.high, signed.colormap) == (-most, most, "RdBu_r")
    few = preview(np.abs(FRAMES) - 0.05, count=30).scales[0]
    assert few.colormap == "viridis"  # of one sign, but for a little


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [
        (slice(None), 4, [0, 10, 19, 29]),
        (slice(10, 20), 3, [10, 14, 19]),
        (slice(None, None, -1), 2, [29, 0]),
        (slice(20, 99), 99, list(range(20, 30))),
        (slice(3, 4), None, [3]),
        ([7, -1, 7], None, [7, 29, 7]),
    ],
)
def test_rows_are_chosen(rows: Any, count: int | None, expected: list[int]) -> None:
    source = RecordingSource(FRAMES)
    found = preview(ooc.open(source)[rows], count=count)
    assert [row for (row,) in found.rows] == expected
    assert source.rows == [expected]
    for got, row in zip(shown(found), expected, strict=True):
        np.testing.assert_array_equal(got, FRAMES[row])


def test_rows_are_those_in_storage() -> None:
    found = preview(ooc.open(FRAMES)[10:20][::-1], count=2)
    assert found.labels == ("row 19", "row 10")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"count": 0}, ArgumentError, "`count`"),
        ({"layout": None}, ArgumentError, "`layout` must be 'auto' or a letter for each axis"),
        ({"count": 257}, ArgumentError, "from 1 to 256"),
        ({"layout": "CHW"}, ArgumentError, "`layout`"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        preview(FRAMES, **arguments)


def test_nothing_can_be_shown_of_nothing() -> None:
    with pytest.raises(ArgumentError, match="must have an element to show"):
        preview(np.zeros((0, 3)))
    with pytest.raises(ArgumentError, match="must hold a value"):
        preview(np.zeros((3, 0)))


@dataclass(frozen=True)
class Boundless:
    """An array of any size whose values are their columns; counts the bytes read."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None = None
    asked: list[int] = field(default_factory=list, compare=False)
    dtype = np.dtype("f8")

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        self.asked.append(out.nbytes)
        assert out.nbytes < 2**28
        columns = np.arange(extent.lengths[-1]) * extent.strides[-1]
        starts = origins[:, -1].reshape(-1, *[1] * len(self.shape))
        out[...] = starts + columns

    def storage(self) -> Storage:
        return Storage("an array of any size", chunks=self.chunks)


@pytest.mark.parametrize(
    "element", [(5000, 5000), (40_000, 30_000), (3, 4000, 4000), (4000, 4000, 3)]
)
def test_of_large_rows_little_is_read(element: tuple[int, ...]) -> None:
    source = Boundless((10**6, *element))
    found = preview(ooc.open(source))
    assert sum(source.asked) <= 1.2 * READ_BYTES
    assert sum(panel.values.size for panels in found.elements for panel in panels) <= 2**23
    assert max(panel.values.size for panel in found.elements[0]) <= 512**2
    assert any(note.startswith("x: ") for note in found.notes)
    if element[-1] == 3:
        return
    # Columns keep their places: values rise from left to right over all of them.
    values = found.elements[0][0].values
    assert np.all(np.diff(values, axis=1) > 0)
    assert values[0, -1] > 0.95 * element[-1]


def test_no_point_of_a_curve_is_skipped() -> None:
    array = RNG.normal(size=(3, 5000))
    np.testing.assert_array_equal(preview(array).elements[1][0].values, array[1:2])


def test_long_windows_are_within_the_bound() -> None:
    source = Boundless((5000, 224, 224))
    found = preview(ooc.open(source).windows(400))
    assert len(found.rows) == 1
    assert sum(source.asked) <= READ_BYTES


def test_fewer_rows_are_shown_where_chunks_are_large() -> None:
    source = Boundless((10_000, 256, 256), (20, 256, 256))  # 10 MiB each
    found = preview(ooc.open(source))
    assert len(found.rows) * 10 * 2**20 <= READ_BYTES
    assert (found.rows[0], found.rows[-1]) == ((0,), (9_999,))
    assert len(preview(ooc.open(source), count=20).rows) == 20  # as asked
    numbers = preview(ooc.open(Boundless((2 * 10**8,), (2**20,)))).rows
    assert len(numbers) == 16


def test_of_frames_in_many_chunks_a_window_is_shown(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(4, 20_000, 20_000), chunks=(1, 2000, 2000), dtype="u1",
        fill_value=7,
    )  # fmt: skip
    array[:, 10_000:12_000, 10_000:12_000] = 9
    found = preview(ooc.open(tmp_path / "a.zarr", missing="fill"))
    values = [panel.values for panels in found.elements for panel in panels]
    assert (np.min(values), np.max(values)) == (7, 9)
    assert " of 20,000 shown (10,00" in found.notes[0]


@pytest.mark.parametrize("transposed", [False, True])
def test_the_sheet_shows_each_frame_as_it_stands(transposed: bool) -> None:
    array = FRAMES.transpose(0, 2, 1) if transposed else FRAMES
    found = preview(array, count=2)
    figure = found.figure()
    with Image.open(io.BytesIO(found._repr_png_())) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    figure.draw_without_rendering()
    images = [axes for axes in figure.axes if axes.images]
    assert len(images) == 2
    for axes, colours, (row,) in zip(images, drawn(found), found.rows, strict=True):
        box = axes.get_window_extent()
        height, width = array.shape[1:]
        # The middle of each value's square; the first line is at the top.
        down = pixels.shape[0] - box.y1 + (np.arange(height) + 0.5) * box.height / height
        across = box.x0 + (np.arange(width) + 0.5) * box.width / width
        assert axes.get_ylim() == (height - 0.5, -0.5)
        assert axes.get_xlim() == (-0.5, width - 0.5)
        got = pixels[down.astype(int)][:, across.astype(int)]
        np.testing.assert_array_equal(got, colours)
        share = mpl.colors.Normalize(found.scales[0].low, found.scales[0].high)(array[row])
        expected = mpl.colormaps["RdBu_r"](share, bytes=True)[..., :3]
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 2


@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "数据文件 ع.npy", FRAMES)
    found = preview(tmp_path / "数据文件 ع.npy", count=1)
    for suffix in (".png", ".pdf", ".svg", ".jpg"):
        found.save(tmp_path / f"a{suffix}")
        assert (tmp_path / f"a{suffix}").stat().st_size > 1000


def test_a_notebook_gets_a_png_and_pyplot_is_left_alone() -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    found = preview(FRAMES, count=2)
    with Image.open(io.BytesIO(found._repr_png_())) as picture:
        assert picture.format == "PNG"
    assert plt.get_fignums() == before
    assert repr(found) == "<Preview: 2 elements of 30 rows of (20, 14) float32>"


def test_numbers_are_one_curve_over_the_rows() -> None:
    numbers = RNG.normal(size=100_000)
    found = preview(numbers)
    ((panel,),) = found.elements
    rows = [row for (row,) in found.rows]
    assert (len(rows), rows[0], rows[-1]) == (2048, 0, 99_999)
    np.testing.assert_array_equal(panel.values[0], numbers[rows])
    assert panel.x == ("row", rows)
    assert found.labels == ("rows 0, 49, 98, … 99,999",)
    cut = preview(ooc.open(np.arange(5000.0))[::-10][[3, 0, -1]]).elements[0][0]
    assert cut.x == ("row", [9, 4969, 4999])
    np.testing.assert_array_equal(cut.values, [cut.x[1]])
    zipped = ooc.zip(ooc.open(numbers)[30:60], ooc.open(numbers)[30:60])
    assert preview(zipped, count=3).elements[0][0].x == ("element", [0, 14, 29])


def test_a_table_has_a_scale_for_each_column() -> None:
    table = RNG.normal(size=(300, 7)) * 10.0 ** np.arange(7)
    found = preview(table, count=256)
    rows = [row for (row,) in found.rows]
    (panels,) = found.elements
    assert [panel.place for panel in panels] == [f"column {one}" for one in range(7)]
    for number, panel in enumerate(panels):
        np.testing.assert_array_equal(panel.values, table[rows, number][None])
        low, high = table[rows, number].min(), table[rows, number].max()
        assert (panel.scale.low, panel.scale.high) == (low, high)
        assert f"column {number}: {low:.5g} to {high:.5g}, minimum to maximum" in str(found)
    assert len(found.scales) == 7
    pair = preview(ooc.open(table)[:, 2:3].next_frame())
    for panel, of in zip(pair.elements[0], (table[:-1, 2], table[1:, 2]), strict=True):
        np.testing.assert_array_equal(panel.values, of[None])
    # Beside pictures it is a curve over its columns.
    zipped = preview(ooc.zip(ooc.open(FRAMES), ooc.open(table[:30])), count=2)
    np.testing.assert_array_equal(zipped.elements[1][1].values, table[29][None])
    # In time each column is a curve.
    windows = preview(ooc.open(table).windows(20), count=2)
    np.testing.assert_array_equal([one.values[0] for one in windows.elements[1]], table[280:].T)
    assert len(windows.scales) == 7


def test_what_an_element_is_made_of_is_said_once() -> None:
    view = ooc.open(FRAMES)
    kind = f"of {FRAMES.shape[1:]} {FRAMES.dtype}"
    assert (
        preview(view.next_frame(), count=1).array
        == f"{len(FRAMES) - 1} elements of 2 arrays {kind}"
    )
    assert (
        preview(ooc.zip(view, view, view), count=1).array
        == f"{len(FRAMES)} elements of 3 arrays {kind}"
    )


def test_a_colour_is_one_picture_of_an_element() -> None:
    images = ooc.open(RNG.integers(0, 256, (40, 12, 10, 3), np.uint8))
    labels = ooc.open(np.arange(40))
    zipped = preview(ooc.zip(images, labels, images, images.astype("f4")), count=2)
    assert [panel.kind for panel in zipped.elements[0]] == ["colour"] * 2 + ["image"] * 3
    windows = preview(images.windows(8), count=2)
    assert [panel.kind for panel in windows.elements[0]] == ["colour"] * 8
    np.testing.assert_array_equal(windows.elements[1][7].values, images[39])
    assert len(preview((images.astype("f4")).windows(8), count=2).elements[0]) == 6


def test_missing_dates_are_not_drawn() -> None:
    days = np.array(["2020-01-01", "NaT", "2020-01-05"], "M8[D]")
    ((panel,),) = preview(ooc.open(days)).elements
    np.testing.assert_array_equal(panel.values, [[18262.0, np.nan, 18266.0]])


def test_what_is_not_finite_is_marked() -> None:
    array = FRAMES.copy()
    array[0, 3, 4] = np.nan
    array[0, 5, 6] = np.inf
    array[1] = np.nan
    array[2] = 7
    found = preview(ooc.open(array)[[0, 1, 2]])
    marked = [np.argwhere((image == MAGENTA).all(axis=-1)).tolist() for image in drawn(found)]
    assert marked[0] == [[3, 4], [5, 6]]
    assert len(marked[1]) == 20 * 14
    assert marked[2] == []
    (none,) = preview(np.full((3, 4, 4), np.nan)).to_json()["scales"]
    assert none["how"] == "no finite value"


FLOATS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=6),
)
WHOLE = hnp.arrays(
    st.sampled_from([np.int64, np.uint64, np.int8, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=6),
)


@given(st.one_of(FLOATS, WHOLE), st.booleans())
def test_any_array_is_shown_and_told_as_json(array: NDArray[Any], pairs: bool) -> None:
    is_pair = pairs and len(array) > 1
    found = preview(ooc.open(array).next_frame() if is_pair else array)
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["array"] == found.array
    assert len(str(found)) > 0
    panels = [panel for panels in found.elements for panel in panels if panel.kind != "curve"]
    for image, panel in zip(drawn(found), panels, strict=True):
        wrong = ~np.isfinite(panel.values)
        bad = (image == MAGENTA).all(axis=-1)
        assert np.array_equal(bad, wrong if wrong.ndim == 2 else wrong.any(axis=-1))
    if not pairs and len(found.rows) == len(array) and not found.notes:
        values = np.concatenate([one.values.ravel() for panels in found.elements for one in panels])
        finite = array[np.isfinite(array)].astype("f8")
        finite = finite[np.abs(finite) <= 1e150]  # larger ones stand for missing ones
        np.testing.assert_array_equal(np.sort(values[np.isfinite(values)]), np.sort(finite))


LETTERS = st.sampled_from(["HW", "CHW", "HWC", "DHW", "TCHW", "WC", "CW", "W", "HWTDC", "THWC"])


@given(LETTERS, st.data())
def test_the_order_of_axes_is_that_of_einsum(letters: str, data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.integers(1, 4)) for _ in letters)
    array = np.arange(2 * np.prod(sizes)).reshape(2, *sizes).astype(float)
    kept = "".join(letter for letter in "TDCHW" if letter in letters)
    size = dict(zip(letters, sizes, strict=True))
    t, d, c, h, w = (size.get(letter, 1) for letter in "TDCHW")
    expected = np.einsum(f"n{letters}->n{kept}".lower(), array).reshape(2, t * d, c, h, w)
    assert np.array_equal(canonical(array, letters), expected)


def test_packed_numbers_are_shown_as_stored(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.arange(60, dtype="i2").reshape(5, 3, 4)
        file["u"].attrs.update(scale_factor=0.5)
    found = preview(tmp_path / "a.h5", "u")
    assert "packed (scale_factor 0.5): shown as stored; decode=True decodes them" in found.notes
    assert not any(
        "packed" in note for note in preview(ooc.open(tmp_path / "a.h5", "u", decode=True)).notes
    )


def test_cut_rows_keep_the_names_of_their_axes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        u = file.create_dataset("u", data=np.ones((10, 20, 30)), chunks=(4, 7, 30))
        for axis, name in enumerate(("time", "lat", "lon")):
            u.dims[axis].label = name
    view = ooc.open(tmp_path / "a.h5")
    for cut, words in [
        (view[5:].astype("f4")[:, ::2, 3:13], "lat 10, lon 10"),
        (view[:, 0], "lon 30"),
        (view[:, :10].windows(2), "time 2, lat 10, lon 30"),
        (ooc.open(str(tmp_path / "*.h5"), "u")[:, :10], "lat 10, lon 30"),
    ]:
        assert str(preview(cut, count=1).axes[""]) == words
    turned = preview(ooc.open(tmp_path / "a.h5", axis="lon"), count=1)
    assert (str(turned.axes[""]), turned.name) == ("time 10, lat 20", f"{tmp_path}/a.h5 /u")


# Pictures -------------------------------------------------------------------------------------


def words_of(found: Preview) -> str:
    texts = found.figure().findobj(mpl.text.Text)
    return " ".join(" ".join(text.get_text().split()) for text in texts)


def test_the_sheet_says_what_it_shows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["flow/u"] = np.abs(FRAMES)
        file["flow/u"].dims[1].label = "latitude"
    found = preview(tmp_path / "a.h5", "flow/u", count=3)
    for said in ("/flow/u", "30 rows of (20, 14) float32", "row 14", "← latitude", "x →",
                 "values shown"):  # fmt: skip
        assert said in words_of(found)


@pytest.mark.parametrize(
    ("element", "least"),
    [((3, 50, 50), 0.55), ((20, 60), 0.35)],  # the headline case: nine panels a pair
)
def test_the_pictures_have_the_room(element: tuple[int, ...], least: float) -> None:
    found = preview(ooc.open(RNG.normal(size=(30, *element))).next_frame())
    figure = found.figure()
    figure.draw_without_rendering()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    panels = sum(map(len, found.elements))
    areas = [box.width * box.height for box in boxes]
    assert sum(areas[:panels]) > least * figure.bbox.width * figure.bbox.height
    assert sum(areas[:panels]) > 3 * sum(areas[panels:])
    for box in boxes[:panels]:
        assert box.height / box.width == pytest.approx(element[-2] / element[-1], rel=1e-3)


CROWDED: list[tuple[Any, dict[str, Any]]] = [
    (FRAMES, {}),
    (RNG.normal(size=(9, 12, 30, 30)), {"count": 2}),
    (ooc.open(RNG.normal(size=(30, 3, 50, 50))).next_frame(), {"count": 2}),
    (RNG.normal(size=(30, 200, 9)), {"count": 2}),
    (RNG.normal(size=300) * 1e-9, {}),
    (RNG.normal(size=(300, 7)) * 1e-7, {}),
    (RNG.normal(size=(30, 8, 8)) + 1e6, {"count": 2}),
    (ooc.zip(*map(ooc.open, (FRAMES, RNG.normal(size=(30, 20, 200)), FRAMES[:, 0]))), {"count": 3}),
]


@pytest.mark.parametrize(
    "number",
    [pytest.param(one, marks=[pytest.mark.thorough] * (one % 2)) for one in range(len(CROWDED))],
)
def test_no_text_of_a_sheet_lies_on_other_text(number: int) -> None:
    array, options = CROWDED[number]
    figure = preview(array, **options).figure()
    figure.draw_without_rendering()
    texts = texts_of(figure)
    said = [text.get_text() for text in texts]
    corners = np.array([text.get_window_extent().extents for text in texts])
    low, high = corners[:, :2], corners[:, 2:]
    inside = (low >= -2).all(axis=1) & (high <= figure.bbox.max + 2).all(axis=1)
    assert inside.all(), said[int(np.argmin(inside))]
    # Less a pixel and a half all around.
    over = (np.maximum(low[:, None], low) + 3 < np.minimum(high[:, None], high)).all(axis=2)
    assert [(said[i], said[j]) for i, j in np.argwhere(np.triu(over, 1))] == []


def texts_of(figure: Any) -> list[Any]:
    """Return the drawn texts, without labels of ticks outside their axis."""
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
            texts += [text for place, text in ticks if low <= place <= high]
            texts.append(axis.get_offset_text())
    return [text for text in texts if text.get_text() and text.get_visible()]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("element", [(8, 9), (90,), ()])
def test_numbers_next_to_the_largest_are_marked(element: tuple[int, ...]) -> None:
    array = RNG.random((3, *element))
    array.ravel()[-2:] = np.finfo("f8").max, -1e149
    found = preview(array)
    values = np.concatenate([one.values.ravel() for panels in found.elements for one in panels])
    assert (np.isinf(values).sum(), values.min()) == (1, -1e149)
    assert found._repr_png_()
    assert json.dumps(found.to_json(), allow_nan=False)


def test_names_are_drawn_as_they_are() -> None:
    frames = preview(ooc.zip({"a$^$": ooc.open(FRAMES), "_b": ooc.open(FRAMES)}), count=1)
    assert "a$^$" in words_of(frames)
    assert frames._repr_png_()


@pytest.mark.parametrize(
    ("array", "suffix", "fps"),
    [
        (FRAMES[[0, 0, 1]], ".gif", 10),  # equal frames are not joined
        (ooc.open(FRAMES[:3]).next_frame(), ".webp", 25),
        (np.repeat(FRAMES[:2, 0], 9, axis=1), ".gif", 0.02),
    ],
)
def test_films_have_a_frame_for_each_element(
    tmp_path: Path, array: Any, suffix: str, fps: float
) -> None:
    found = preview(array, count=len(array))
    found.save(tmp_path / f"a{suffix}", fps=fps)
    count = len(found.rows)
    one = [slice(row, row + 1) for row in range(count)]
    sheets = [
        replace(found, labels=found.labels[row], elements=found.elements[row]).figure()
        for row in one
    ]
    with Image.open(tmp_path / f"a{suffix}") as film:
        assert film.n_frames == count
        for number, figure in enumerate(sheets):
            film.seek(number)
            film.load()
            assert film.info["duration"] == 1000 / fps
            drawn = np.asarray(film.convert("RGB")).astype(int)
            # The first panel is that of the element's own sheet.
            figure.set_dpi(100)
            figure.canvas.draw()
            box = figure.axes[0].get_window_extent()
            across, down = (
                slice(int(box.x0) + 9, int(box.x1) - 9),
                slice(int(figure.bbox.height - box.y1) + 9, int(figure.bbox.height - box.y0) - 9),
            )
            wanted = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
            assert np.abs(drawn[down, across] - wanted[down, across]).mean() < 6


@pytest.mark.parametrize(
    ("name", "fps", "words"),
    [
        ("a.mp4", 10, "must end in .*.gif, .webp; got 'a.mp4'"),
        ("a.gif", 0, "from 0.02 to 50"),
        ("a.gif", 51, "from 0.02 to 50"),
        ("a.gif", np.nan, "from 0.02 to 50"),
    ],
)
def test_a_wrong_picture_is_refused(tmp_path: Path, name: str, fps: float, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        preview(FRAMES, count=2).save(tmp_path / name, fps=fps)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".png", ".gif"])
def test_a_picture_that_can_not_be_written_leaves_the_old_one(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, path = preview(FRAMES, count=2), tmp_path / f"a{suffix}"
    path.write_bytes(b"old")
    (tmp_path / f"link{suffix}").symlink_to(path)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(SourceError, match=r"No space.*Is the disk full\?"):
            found.save(path)
    assert path.read_bytes() == b"old"
    with pytest.raises(SourceError, match="No such file or directory"):
        found.save(tmp_path / "none" / path.name)
    found.save(tmp_path / f"link{suffix}")
    assert path.read_bytes() != b"old"
    assert sorted(os.listdir(tmp_path)) == [path.name, f"link{suffix}"]


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = preview(FRAMES, count=2)
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'oocdata\[pictures\]'"):
        found.save(tmp_path / "a.png")
    assert json.dumps(found.to_json())  # needs none
