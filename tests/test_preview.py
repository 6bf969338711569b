"""What a preview shows, against NumPy: which rows, which values, with which colours."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image

import oocdata as ooc
from oocdata.box import Extent
from oocdata.engines.source import Storage
from oocdata.errors import ArgumentError, MissingDependencyError, PositionError
from oocdata.testing import RecordingSource
from oocdata.tools.pictures.film import _frame, _size_of, _text
from oocdata.tools.pictures.panel import averaged, painted
from oocdata.tools.pictures.scale import BAD, Scale, colours, scale_of
from oocdata.tools.pictures.terminal import _cells, _height, half_blocks
from oocdata.tools.pictures.values import values_of
from oocdata.tools.preview import Preview, preview
from oocdata.tools.preview.reading import DECODED_BYTES, READ_BYTES, VALUES

RNG = np.random.default_rng(0)
FRAMES = RNG.normal(size=(30, 20, 14)).astype("f4")


def shown(found: Preview) -> list[NDArray[np.float64]]:
    return [panel.values for panels in found.elements for panel in panels]


# What is shown of each layout: of row r, a list of arrays.
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
    "WC": ((50, 3), lambda row: [row.T]),
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
    found = preview(FRAMES, horizon=3, count=4)
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
    found = preview(array, horizon=1)
    np.testing.assert_array_equal(found.elements[0][2].values, np.full((4, 4), -200.0))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "u8"])
def test_a_difference_of_integers_of_any_size_is_right(dtype: str) -> None:
    if dtype == "?":
        edges = [False, True]
    else:
        info = np.iinfo(dtype)
        edges = [info.min, info.min + 1, info.max // 2, info.max - 1, info.max]
    x, y = np.meshgrid(np.array(edges, dtype), np.array(edges, dtype))
    (panels,) = preview(np.stack([x, y]), horizon=1).elements
    expected = [[float(int(b) - int(a)) for a, b in zip(*ab, strict=True)]
                for ab in zip(x, y, strict=True)]  # fmt: skip
    np.testing.assert_array_equal(panels[2].values, expected)
    near = 10**18 + np.arange(32).reshape(2, 4, 4)
    assert preview(near, horizon=1).scales[1].values.minimum == 16


def test_windows_of_numbers_share_a_scale() -> None:
    found = preview(ooc.open(np.arange(100.0)).windows(8, 4), count=2)
    np.testing.assert_array_equal(found.elements[1][0].values, [np.arange(88.0, 96)])
    np.testing.assert_array_equal(found.elements[1][1].values, [np.arange(96.0, 100)])
    (scale,) = found.scales
    assert (scale.values.minimum, scale.values.maximum) == (0, 99)
    assert scale.values.count == 2 * 12
    assert found.png()


def test_windows_zips_and_maps_are_shown() -> None:
    view = ooc.open(FRAMES)
    windows = preview(view.windows(3, 1, horizon=2), count=2)
    assert windows.rows[0] == (0, 1, 2, 4)
    assert [panel.place for panel in windows.elements[0]] == [
        "x, time 0", "x, time 1", "x, time 2", "y, time 0",
    ]  # fmt: skip
    for panel, row in zip(windows.elements[0], (0, 1, 2, 4), strict=True):
        np.testing.assert_array_equal(panel.values, FRAMES[row])
    assert len(windows.scales) == 1
    values = windows.scales[0].values
    assert values.count == 8 * FRAMES[0].size
    (curve,) = preview(ooc.open(np.arange(50)).windows(5), count=2).elements[1]
    np.testing.assert_array_equal(curve.values, [[45, 46, 47, 48, 49]])

    labelled = preview(ooc.zip({"image": view, "label": np_view(np.arange(30) * 2)}), count=2)
    assert labelled.labels == ("element 0, label 0", "element 29, label 58")
    assert labelled.path is None

    doubled = preview(view.map(lambda x: x * 2), count=2)
    np.testing.assert_array_equal(doubled.elements[1][0].values, FRAMES[29] * 2)


def np_view(array: NDArray[Any]) -> ooc.View:
    return ooc.open(array)


def test_numbers_are_one_curve_over_the_rows() -> None:
    numbers = RNG.normal(size=100_000)
    found = preview(numbers)
    (panels,) = found.elements
    rows = [row for (row,) in found.rows]
    assert len(rows) == 2048
    assert (rows[0], rows[-1]) == (0, 99_999)
    np.testing.assert_array_equal(panels[0].values[0], numbers[rows])
    assert panels[0].x == ("row", rows)
    pair = preview(ooc.open(numbers).next_frame(), count=10)
    assert pair.elements[0][0].names == ("x", "y")


@pytest.mark.parametrize(
    ("rows", "cut", "expected"),
    [
        ([0, 1, 2, 3, 4, 4999], slice(None), [0, 1, 2, 3, 4, 4999]),
        ([7, 3, -1, 3], slice(None), [3, 3, 7, 4999]),
        (None, slice(1000, 2000), range(1000, 2000)),
        (None, slice(None, None, -10), range(9, 5000, 10)),
    ],
)
def test_a_number_stands_at_its_row(rows: Any, cut: slice, expected: Any) -> None:
    found = preview(ooc.open(np.arange(5000.0))[cut], rows=rows)
    (panel,) = found.elements[0]
    places = list(expected)
    assert panel.x == ("row", places)
    np.testing.assert_array_equal(panel.values, [places])
    assert found.labels == (f"rows {places[0]:,} to {places[-1]:,}",)
    axes = found.figure().axes[0]
    (line,) = axes.lines
    assert np.array_equal(axes.get_xticks() % 1, np.zeros(len(axes.get_xticks())))
    np.testing.assert_array_equal(line.get_xydata(), np.transpose([places, places]))
    # A straight line from the lower left to the upper right, here too.
    image = painted(panel, 100, 200)
    down, across = np.nonzero((image != 255).any(axis=-1))
    assert np.abs(down - (97 - across / 199 * 94)).max() < 3


def test_rows_of_few_chunks_stand_where_they_are() -> None:
    source = Boundless((2 * 10**8,), (6 * 2**20,))
    (panel,) = preview(ooc.open(source)).elements[0]
    assert np.ptp(np.diff(panel.x[1])) > 1000
    assert panel.x[1][0] == 0


def test_numbers_of_a_zip_stand_at_their_elements() -> None:
    numbers = ooc.open(np.arange(90.0))[30:60]
    (panel,) = preview(ooc.zip(numbers, numbers), count=3).elements[0]
    assert panel.x == ("element", [0, 14, 29])


def test_three_channels_are_a_colour_where_they_can_be() -> None:
    image = RNG.integers(0, 256, (5, 3, 12, 10), np.uint8)
    found = preview(image, count=2)
    (panel,) = found.elements[0]
    np.testing.assert_array_equal(colours(panel.scale, panel.values), image[0].transpose(1, 2, 0))
    unit = preview(image.transpose(0, 2, 3, 1) / np.float32(255), count=2)
    np.testing.assert_array_equal(
        colours(unit.scales[0], unit.elements[1][0].values), image[4].transpose(1, 2, 0)
    )
    # Not in any range of colours; asked for otherwise.
    assert len(preview(image * 2.0, count=2).elements[0]) == 3
    assert len(preview(image, count=2, colormap="magma").elements[0]) == 3
    one = preview(image, count=2, channel=1)
    np.testing.assert_array_equal(one.elements[1][0].values, image[4, 1])
    assert preview(image, channel=np.int64(1)).elements[0][0].place == "channel 1"
    some = preview(image, count=2, channel=np.array([2, 0]))
    for panel, channel in zip(some.elements[1], (2, 0), strict=True):
        np.testing.assert_array_equal(panel.values, image[4, channel])
        assert panel.place == f"channel {channel}"
    pair = preview(image, horizon=1, count=2)
    np.testing.assert_allclose(
        pair.elements[0][2].values, (image[1].astype(float) - image[0]).mean(axis=0)
    )


def test_a_colour_is_one_picture_of_an_element() -> None:
    images = ooc.open(RNG.integers(0, 256, (40, 12, 10, 3), np.uint8))
    labels = ooc.open(np.arange(40))
    zipped = preview(ooc.zip(images, labels, labels, images, images.astype("f4")), count=2)
    assert [panel.kind for panel in zipped.elements[0]] == ["colour"] * 2 + ["image"] * 3
    windows = preview(images.windows(8), count=2)
    assert [panel.kind for panel in windows.elements[0]] == ["colour"] * 8
    np.testing.assert_array_equal(windows.elements[1][7].values, images[39])
    pairs = preview(images.windows(8, 4), count=2)
    assert [panel.kind for panel in pairs.elements[0]] == ["colour"] * 8
    one = preview(images.windows(8), count=2, channel=1)
    assert [panel.kind for panel in one.elements[0]] == ["image"] * 8
    floats = preview((images.astype("f4")).windows(8), count=2)
    assert len(floats.elements[0]) == 6


def test_the_range_is_that_of_the_percentiles() -> None:
    found = preview(FRAMES**2, count=7, percentile=(5, 90)).scales[0]
    rows = np.linspace(0, 29, 7).round().astype(int)
    low, high = np.percentile((FRAMES**2)[rows].astype("f8"), (5, 90))
    assert (found.low, found.high, found.colormap) == (low, high, "viridis")
    signed = preview(FRAMES, count=30).scales[0]
    most = np.abs(np.percentile(FRAMES.astype("f8"), (1, 99))).max()
    assert (signed.low, signed.high, signed.colormap) == (-most, most, "RdBu_r")
    assert preview(FRAMES, limits=(-1, 5)).scales[0].low == -1
    few = preview(np.abs(FRAMES) - 0.05, count=30).scales[0]
    assert few.colormap == "viridis"  # of one sign, but for a little


def test_what_is_not_finite_is_marked_and_counted() -> None:
    array = FRAMES.copy()
    array[0, 3, 4] = np.nan
    array[0, 5, 6] = np.inf
    array[1] = np.nan
    array[2] = 7
    found = preview(array, rows=[0, 1, 2])
    pixels = [painted(panels[0], 20, 14) for panels in found.elements]
    marked = [np.argwhere((image == BAD).all(axis=-1)).tolist() for image in pixels]
    assert marked[0] == [[3, 4], [5, 6]]
    assert len(marked[1]) == 20 * 14
    assert marked[2] == []
    values = found.scales[0].values
    assert (values.nan, values.infinite) == (1 + 20 * 14, 1)
    assert values.maximum == array[[0, 2]][np.isfinite(array[[0, 2]])].max()
    assert [panels[0].remark for panels in found.elements] == [
        "0.7% not finite", "nothing finite", "constant 7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [
        (None, 4, [0, 10, 19, 29]),
        (slice(10, 20), 3, [10, 14, 19]),
        (slice(None, None, -1), 2, [29, 0]),
        (slice(20, 99), 99, list(range(20, 30))),
        (slice(3, 4), None, [3]),
        ([7, -1, 7], None, [7, 29, 7]),
        (range(5), None, [0, 1, 2, 3, 4]),
    ],
)
def test_rows_are_chosen(rows: Any, count: int | None, expected: list[int]) -> None:
    source = RecordingSource(FRAMES)
    found = preview(ooc.open(source), rows=rows, count=count)
    assert [row for (row,) in found.rows] == expected
    assert source.rows == [expected]
    for got, row in zip(shown(found), expected, strict=True):
        np.testing.assert_array_equal(got, FRAMES[row])


def test_rows_are_those_in_storage() -> None:
    found = preview(ooc.open(FRAMES)[10:20][::-1], count=2)
    assert found.labels == ("row 19", "row 10")


def test_consecutive_rows_are_the_first_ones() -> None:
    found = preview(FRAMES, rows=slice(5, None, 2), count=4, consecutive=True)
    assert [row for (row,) in found.rows] == [5, 7, 9, 11]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"rows": [30]}, PositionError, "within"),
        ({"rows": slice(30, 40)}, ArgumentError, "`rows` must hold a position below 30"),
        ({"rows": []}, ArgumentError, "1 to 256 positions; got 0"),
        ({"rows": list(range(30)) * 9}, ArgumentError, "1 to 256 positions; got 270"),
        ({"count": 0}, ArgumentError, "`count`"),
        ({"rows": 5}, ArgumentError, "in one dimension; got int64 of shape"),
        ({"rows": [1.5]}, ArgumentError, "positions must be integers"),
        ({"rows": [3, 7], "count": 2}, ArgumentError, "`count` must be left out where `rows`"),
        ({"channel": [1.5]}, ArgumentError, "`channel` must be a whole number"),
        ({"channel": "red"}, ArgumentError, "`channel` must be a whole number"),
        ({"layout": None}, ArgumentError, "`layout` must be 'auto' or a letter for each axis"),
        ({"count": 257}, ArgumentError, "at most 256"),
        ({"limits": (1, 1)}, ArgumentError, "the lower one first"),
        ({"percentile": (-1, 50)}, ArgumentError, "from 0 to 100"),
        ({"colormap": "virids"}, ArgumentError, "Near: viridis"),
        ({"layout": "CHW"}, ArgumentError, "`layout`"),
        ({"channel": 0}, ArgumentError, "no channel axis"),
        ({"horizon": 30}, ArgumentError, "must fit"),
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
    with pytest.raises(ArgumentError, match="must be left out"):
        preview(ooc.open(FRAMES).next_frame(), horizon=1)


@dataclass(frozen=True)
class Boundless:
    """An array of any size, of which every value is its column; counts the bytes asked for."""

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
    assert sum(one.values.count for one in found.scales) <= VALUES
    assert max(panel.values.size for panel in found.elements[0]) <= 512**2
    assert any(note.startswith("x: 1 in") for note in found.notes)
    if element[-1] == 3:
        return
    # Columns keep their places: values rise from left to right over all of them.
    values = found.elements[0][0].values
    assert np.all(np.diff(values, axis=1) > 0)
    assert values[0, -1] > 0.95 * element[-1]


@pytest.mark.parametrize(
    ("element", "channel", "step"),
    [
        ((400, 224, 224), [0, 399], 1),
        ((400, 224, 224), [399, 0, 399], 1),
        ((400, 224, 224), [0, 5, 399], 8),
        ((224, 224, 400), [0, 399], 8),
        ((224, 224, 400), [7], 8),
    ],
)
def test_what_lies_between_channels_is_within_the_bound(
    element: tuple[int, ...], channel: list[int], step: int
) -> None:
    layout = "CHW" if element[0] == 400 else "HWC"
    source = Boundless((1000, *element))
    found = preview(ooc.open(source), layout=layout, channel=channel, count=6)
    assert sum(source.asked) <= READ_BYTES
    assert [panel.place for panel in found.elements[0]] == [f"channel {one}" for one in channel]
    down = found.elements[0][0].y[1]
    assert down[1] - down[0] == step
    if layout == "HWC":
        assert [panel.values[0, 0] for panel in found.elements[0]] == channel


def test_long_windows_are_within_the_bound() -> None:
    source = Boundless((5000, 224, 224))
    preview(ooc.open(source).windows(400), count=3)
    assert sum(source.asked) <= READ_BYTES


def test_rows_come_from_few_chunks_where_these_are_large() -> None:
    source = Boundless((10_000, 256, 256), (100, 256, 256))
    found = preview(ooc.open(source), count=12)
    rows = np.array([row for (row,) in found.rows])
    assert len(rows) == 12
    assert len(np.unique(rows // 100)) * 50 * 2**20 <= DECODED_BYTES
    assert (rows[0], rows[-1]) == (0, 9_999)


@pytest.mark.parametrize("count", [3, 4, 5, 7, 100, 200])
def test_the_first_and_the_last_rows_are_among_those_of_few_chunks(count: int) -> None:
    source = Boundless((10_000, 256, 256), (100, 256, 256))
    rows = np.array([row for (row,) in preview(ooc.open(source), count=count).rows])
    assert (rows[0], rows[-1]) == (0, 9_999)
    assert len(np.unique(rows)) == count


def test_of_frames_in_many_chunks_a_window_is_shown(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(4, 20_000, 20_000), chunks=(1, 2000, 2000), dtype="u1",
        fill_value=7,
    )  # fmt: skip
    array[:, 10_000:12_000, 10_000:12_000] = 9
    found = preview(ooc.open(tmp_path / "a.zarr", missing="fill"))
    assert found.scales[0].values.minimum == 7
    assert found.scales[0].values.maximum == 9
    assert found.notes[0].startswith("y: 10,00")
    assert found.notes[0].endswith("of 20,000 shown")


def test_a_sparse_file_of_many_gigabytes(tmp_path: Path) -> None:
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", "f8", (166_667, 3, 50, 50))
    found = preview(tmp_path / "a.npy")
    assert found.elements[-1][0].remark == "constant 0"
    assert found.rows[-1] == (166_666,)


FLOATS = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=6),
)
WHOLE = hnp.arrays(
    st.sampled_from([np.int64, np.uint64, np.int8, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=6),
)


@settings(max_examples=150)
@given(st.one_of(FLOATS, WHOLE), st.booleans())
def test_any_array_is_shown_and_told_as_json(array: NDArray[Any], pairs: bool) -> None:
    found = preview(array, horizon=1 if pairs and len(array) > 1 else None)
    text = json.dumps(found.as_json(), allow_nan=False)
    assert json.loads(text)["array"] == found.array
    assert len(str(found)) > 0
    for panels in found.elements:
        for panel in panels:
            assert painted(panel, 5, 7).shape == (5, 7, 3)
            if panel.kind != "curve":
                bad = (colours(panel.scale, panel.values) == BAD).all(axis=-1)
                wrong = ~np.isfinite(panel.values)
                assert np.array_equal(bad, wrong if wrong.ndim == 2 else wrong.any(axis=-1))
    if not pairs and array.ndim > 1:
        finite = array[np.isfinite(array)].astype("f8")
        counts = [scale.values for scale in found.scales]
        assert sum(sum(one.counts) for one in counts) == sum(
            one.count - one.nan - one.infinite for one in counts
        )
        if len(counts) == 1 and finite.size and len(found.rows) == len(array) and not found.notes:
            assert counts[0].minimum == finite.min()
            assert counts[0].maximum == finite.max()


@given(hnp.arrays(np.float64, st.integers(1, 80), elements=st.floats(-1e6, 1e6)), st.booleans())
def test_values_are_those_of_numpy(array: NDArray[np.float64], whole: bool) -> None:
    array = np.round(array) if whole else array
    found = values_of(array, whole=whole)
    assert found.mean == pytest.approx(array.mean(), rel=1e-9, abs=1e-9)
    assert found.std == pytest.approx(array.std(), rel=1e-6, abs=1e-9)
    assert sum(found.counts) == len(array)
    edges = np.array(found.edges)
    if whole:
        # In bins of whole numbers each is where it belongs.
        assert np.array_equal(found.counts, np.histogram(array, edges)[0])
        assert len(np.unique(np.diff(np.ceil(edges)))) == 1


def test_no_integer_is_lost_from_a_histogram() -> None:
    for low in range(-128, 256):
        for high in range(low, 256):
            found = values_of(np.array([low, high, high], float), whole=True)
            assert sum(found.counts) == 3, (low, high)
            assert found.edges[0] < low
            assert high < found.edges[-1]


@pytest.mark.parametrize("low", [1 - 2**-53, 1.0, -1e300, 5e-324, 1.797e308, 2.0**60, -(2.0**52)])
@pytest.mark.parametrize("steps", [0, 1, 2, 63, 64, 65])
@pytest.mark.parametrize("whole", [False, True])
def test_values_a_rounding_apart_have_bins(low: float, steps: int, whole: bool) -> None:
    array = np.array([low] * (steps + 1))
    for step in range(steps):
        array[step + 1 :] = np.nextafter(array[step], np.inf)
    if whole and low < 2**50:
        return
    found = values_of(array, whole=whole)
    assert sum(found.counts) == steps + 1
    assert np.all(np.diff(found.edges) > 0)
    assert found.edges[0] <= low
    assert array[-1] <= found.edges[-1]


@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=20),
        elements=st.floats(-1e3, 1e3) | st.just(np.nan),
    ),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_large_images_are_averaged_over_areas(
    image: NDArray[np.float64], height: int, width: int
) -> None:
    found = averaged(image, height, width)
    down, across = -(-image.shape[0] // height), -(-image.shape[1] // width)
    expected = np.array([
        [mean_of_most(image[y : y + down, x : x + across])
         for x in range(0, image.shape[1], across)]
        for y in range(0, image.shape[0], down)
    ])  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-9)


def mean_of_most(area: NDArray[np.float64]) -> float:
    finite = area[np.isfinite(area)]
    return finite.mean() if 2 * finite.size >= area.size else np.nan


@pytest.mark.parametrize("high", [np.finfo("f8").max, -np.finfo("f8").max])
def test_means_of_the_largest_numbers_are_finite(high: float) -> None:
    np.testing.assert_array_equal(averaged(np.full((7, 9), high), 3, 2), np.full((3, 2), high))


@pytest.mark.parametrize(
    ("wrong", "said", "magenta"),
    [
        (0, "", 0.0),
        (1, "<0.1% not finite", 0.0),
        (600 * 800 // 16, "6.2% not finite", 0.0),
        (600 * 800 // 4, "25.0% not finite", 0.0),
        (600 * 800 - 1, ">99.9% not finite", 1.0),
        (600 * 800, "nothing finite", 1.0),
    ],
)
def test_what_is_said_of_a_picture_is_true_of_what_was_read(
    wrong: int, said: str, magenta: float
) -> None:
    array = RNG.random((1, 600, 800))
    # In every place of an area as often as in any other.
    array.ravel()[(np.arange(wrong) * (600 * 800 // max(wrong, 1)))] = np.nan
    (panel,) = preview(array).elements[0]
    assert panel.values.shape == (300, 400)
    assert panel.remark == said
    image = painted(panel, 300, 400)
    assert (image == BAD).all(axis=-1).mean() == magenta


def test_a_checkerboard_is_not_constant() -> None:
    array = np.indices((1, 1024, 1024)).sum(axis=0) % 2.0
    assert preview(array).elements[0][0].remark == ""


@pytest.mark.parametrize("size", [(721, 1440), (600, 1200), (1030, 1020), (1024, 500), (97, 31)])
def test_large_frames_keep_their_aspect(tmp_path: Path, size: tuple[int, int]) -> None:
    height, width = size
    y, x = np.indices(size)
    radius = min(size) / 4
    disc = np.hypot(y - height / 2, x - width / 2) < radius
    found = preview(disc[None].astype("f4"), limits=(0, 1), colormap="gray")

    def check(image: NDArray[np.uint8], pixels: float) -> None:
        lines, columns = (np.flatnonzero((image > 127).all(axis=-1).any(axis=a)) for a in (1, 0))
        for extent in (np.ptp(lines) + 1, np.ptp(columns) + 1):
            assert extent == pytest.approx(2 * radius * pixels, abs=3)

    figure = found.figure()
    box = figure.axes[0].get_window_extent()
    with Image.open(io.BytesIO(found.png())) as sheet:
        left, right = round(box.x0) + 2, round(box.x1) - 2
        top, bottom = round(sheet.height - box.y1) + 2, round(sheet.height - box.y0) - 2
        check(np.asarray(sheet.convert("RGB").crop((left, top, right, bottom))), box.width / width)
    assert box.height / box.width == pytest.approx(height / width, rel=1e-3)

    found.animate(tmp_path / "a.webp")
    high, wide = _size_of(found.elements[0][0])
    with Image.open(tmp_path / "a.webp") as film:
        drawn = np.asarray(film.convert("RGB"))[-6 - high : -6, 6 : 6 + wide]
    check(drawn, wide / width)
    assert abs(high - wide * height / width) <= 1
    check(painted(found.elements[0][0], 2 * height // 9, 2 * width // 9), 2 / 9)
    panels = found.elements[0]
    _, cell = _cells(1, panels, 80)
    assert abs(_height(panels[0], cell) - cell * height / width) <= 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("large", "element", "horizon"),
    [  # every pair of two of them
        (np.finfo("f8").max, (8, 9), None),
        (np.finfo("f8").max, (9,), 1),
        (np.finfo("f8").max, (), None),
        (-1e305, (8, 9), 1),
        (-1e305, (9,), None),
        (-1e305, (), 1),
    ],
)
def test_numbers_next_to_the_largest_are_drawn(
    tmp_path: Path, large: float, element: tuple[int, ...], horizon: int | None
) -> None:
    one = RNG.random((6, *element))
    one.ravel()[-1] = large
    both = np.where(np.arange(one.size).reshape(one.shape) % 2, large, -large)
    for array in (one, both, np.full((6, *element), large)):
        found = preview(array, horizon=horizon)
        assert found.scales[0].values.maximum == array.max()
        assert found.png()
        found.animate(tmp_path / "a.webp")
        edges = found.scales[0].values.edges
        assert np.isfinite(edges).all()
        assert json.dumps(found.as_json(), allow_nan=False)
    wide = preview(RNG.random((6, *element)), limits=(-1.7e308, 1.7e308))
    assert (wide.scales[0].low, wide.scales[0].high) == (-1.7e308, 1.7e308)
    assert wide.png()


def test_colours_are_those_of_matplotlib() -> None:
    scale = scale_of("", FRAMES.astype("f8"), limits=(-1.0, 2.0), colormap="plasma")
    share = mpl.colors.Normalize(-1, 2, clip=True)(FRAMES[0].astype("f8"))
    expected = mpl.colormaps["plasma"](share, bytes=True)[..., :3]
    got = colours(scale, FRAMES[0].astype("f8"))
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 2
    assert isinstance(scale, Scale)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_sheet_shows_each_frame_as_it_stands(transposed: bool) -> None:
    array = FRAMES.transpose(0, 2, 1) if transposed else FRAMES
    found = preview(array, count=6)
    figure = found.figure()
    with Image.open(io.BytesIO(found.png())) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    drawn = [axes for axes in figure.axes if axes.images]
    assert len(drawn) == 6
    for axes, panels, (row,) in zip(drawn, found.elements, found.rows, strict=True):
        box = axes.get_window_extent()
        height, width = array.shape[1:]
        # The middle of each value's square; the first line is at the top.
        down = pixels.shape[0] - box.y1 + (np.arange(height) + 0.5) * box.height / height
        across = box.x0 + (np.arange(width) + 0.5) * box.width / width
        assert axes.get_ylim() == (height - 0.5, -0.5)
        assert axes.get_xlim() == (-0.5, width - 0.5)
        got = pixels[down.astype(int)][:, across.astype(int)]
        np.testing.assert_array_equal(got, colours(panels[0].scale, array[row].astype("f8")))


def test_the_sheet_says_what_it_shows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["flow/u"] = np.abs(FRAMES)
        file["flow/u"].attrs["units"] = "m s-1"
        file["flow/u"].dims[1].label = "latitude"
    found = preview(ooc.open(tmp_path / "a.h5", "flow/u"), count=3)
    words = " ".join(
        text.get_text() for text in found.figure().findobj(mpl.text.Text) if text.get_text()
    )
    for said in ("/flow/u", "30 rows of (20, 14) float32", "row 14", "← latitude", "x →",
                 "m s-1", "count", "percentiles 1 to 99", "NaN 0"):  # fmt: skip
        assert said in words


def test_no_text_of_a_sheet_lies_on_other_text() -> None:
    for array, options in [
        (FRAMES, {}),
        (RNG.normal(size=(9, 12, 30, 30)), {}),
        (RNG.normal(size=(9, 8, 2, 30, 30)), {}),
        (RNG.normal(size=(30, 3, 50, 50)), {"horizon": 1}),
        (RNG.normal(size=(30, 9, 200)), {}),
        (RNG.normal(size=(30, 200, 9)), {"count": 20}),
        (RNG.normal(size=300) * 1e-9, {}),
        (RNG.normal(size=(30, 8, 8)) + 1e6, {"count": 2}),
        (RNG.normal(size=(30, 200, 9)) * 1e-7, {"count": 6, "layout": "WC"}),
        (ooc.zip(*map(ooc.open, (FRAMES, RNG.normal(size=(30, 20, 200)), FRAMES[:, 0]))), {}),
        (ooc.zip({"a": ooc.open(FRAMES[:, 0]), "wide": ooc.open(FRAMES[:, :3])}), {"count": 9}),
    ]:
        figure = preview(array, **options).figure()
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()
        texts = texts_of(figure)
        said = [text.get_text() for text in texts]
        corners = np.array([text.get_window_extent(renderer).extents for text in texts])
        low, high = corners[:, :2], corners[:, 2:]
        inside = (low >= -1).all(axis=1) & (high <= figure.bbox.max + 1).all(axis=1)
        assert inside.all(), (array, said[int(np.argmin(inside))])
        # Less a pixel and a half all around.
        over = (np.maximum(low[:, None], low) + 3 < np.minimum(high[:, None], high)).all(axis=2)
        pairs = np.argwhere(np.triu(over, 1))
        assert not len(pairs), (array, [(said[i], said[j]) for i, j in pairs])


def texts_of(figure: Any) -> list[Any]:
    """The texts that are drawn: without the labels of ticks outside of an axis."""
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
            texts += [text for place, text in ticks if low <= place <= high]
            texts.append(axis.get_offset_text())
        if axes.get_legend():
            texts += axes.get_legend().get_texts()
    return [text for text in texts if text.get_text() and text.get_visible()]


def test_names_are_drawn_as_they_are() -> None:
    names = ["a$^$", "_hidden", "$x$", "b"]
    numbers = {name: ooc.open(RNG.random(9)) for name in names}
    found = preview(ooc.zip(numbers), count=9)
    assert found.png()
    legend = found.figure().axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == names
    assert not any(text.get_parse_math() for text in legend.get_texts())
    frames = preview(ooc.zip({"a$^$": ooc.open(FRAMES), "_b": ooc.open(FRAMES)}), count=2)
    assert frames.png()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path, suffix: str) -> None:
    np.save(tmp_path / "数据文件 ع.npy", FRAMES)
    found = preview(tmp_path / "数据文件 ع.npy", count=2)
    found.save(tmp_path / f"a{suffix}")
    assert found.png()
    found.animate(tmp_path / "a.gif")


def test_each_kind_of_panel_has_its_aspect_and_axes() -> None:
    wide = ooc.open(RNG.normal(size=(30, 20, 200)))
    found = preview(ooc.zip(ooc.open(FRAMES), wide, wide, ooc.open(FRAMES[:, 0])), count=3)
    panels = found.figure().axes[:12]
    for number, axes in enumerate(panels):
        box = axes.get_window_extent()
        aspect = [20 / 14, 0.15, 0.15, 0.6][number % 4]
        assert box.height / box.width == pytest.approx(aspect, rel=1e-6)
        labels = ["← y", "← y", "", "value"][number % 4] if number >= 8 else ""
        assert axes.get_ylabel() == labels
    lines = half_blocks(found.labels, found.elements, 80)
    cell = lines[1].plain.index("1") - 1
    heights = [sum(one.plain[place * (cell + 1)] == "▀" for one in lines[2:9]) for place in (0, 1)]
    assert heights[1] < heights[0]


def test_a_film_says_its_range() -> None:
    frames = [_frame(("a", "b"), preview(FRAMES, limits=limits, count=1).elements[0], 300)
              for limits in [(-1.5, 2), (-1.5, 2), (-1.5, 3)]]  # fmt: skip
    panel = preview(FRAMES, horizon=1, limits=(-1.5, 2)).elements[0][1]
    assert _text(panel) == "y: -1.5 to 2"
    heads = [frame[: -256 - 6] for frame in frames]
    np.testing.assert_array_equal(heads[0], heads[1])
    assert not np.array_equal(heads[0], heads[2])


def test_pyplot_is_left_alone() -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    preview(FRAMES).png()
    assert plt.get_fignums() == before


def test_a_notebook_gets_a_png() -> None:
    found = preview(FRAMES, count=2)
    with Image.open(io.BytesIO(found._repr_png_())) as picture:
        assert picture.format == "PNG"
    assert repr(found) == "<Preview: 2 elements of 30 rows of (20, 14) float32>"


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg", ".jpg", ".webp"])
def test_sheets_are_written(tmp_path: Path, suffix: str) -> None:
    preview(FRAMES, count=1).save(tmp_path / f"a{suffix}")
    assert (tmp_path / f"a{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("suffix", "speed"), [(".gif", 10), (".webp", 25), (".gif", 0.02), (".webp", 0.02)]
)
def test_films_have_a_frame_for_each_element(tmp_path: Path, suffix: str, speed: float) -> None:
    array = np.repeat(FRAMES[:3], 3, axis=0)  # equal frames must not be joined
    found = preview(array, count=9, consecutive=True)
    found.animate(tmp_path / f"a{suffix}", speed)
    with Image.open(tmp_path / f"a{suffix}") as film:
        assert film.n_frames == 9
        images = []
        for number in range(9):
            film.seek(number)
            film.load()
            assert film.info["duration"] == 1000 / speed
            images.append(np.asarray(film.convert("RGB")))
    # The panel is at the lower left: 14 columns at 13 pixels each, 20 lines.
    times = round(256 / 20)
    for number, image in enumerate(images):
        panel = found.elements[number][0]
        expected = np.kron(
            colours(panel.scale, array[number].astype("f8")), np.ones((times, times, 1), int)
        )
        got = image[-6 - expected.shape[0] : -6, 6 : 6 + expected.shape[1]]
        if suffix == ".gif":  # of 256 colours
            assert np.abs(got.astype(int) - expected).max() <= 24
        else:
            np.testing.assert_array_equal(got, expected)


def test_films_of_curves_and_pairs(tmp_path: Path) -> None:
    preview(RNG.normal(size=(9, 100)), consecutive=True).animate(tmp_path / "a.gif")
    preview(FRAMES, horizon=1, count=5).animate(tmp_path / "b.webp", 50)
    for name, frames in (("a.gif", 9), ("b.webp", 5)):
        with Image.open(tmp_path / name) as film:
            assert film.n_frames == frames


@pytest.mark.parametrize(
    ("name", "speed", "words"),
    [
        ("a.mp4", 10, "must end in .gif, .webp; got 'a.mp4'"),
        ("none/a.gif", 10, "folder must exist"),
        ("a.gif", 0, "from 0.02 to 50"),
        ("a.gif", 0.001, "from 0.02 to 50"),
        ("a.gif", 51, "from 0.02 to 50"),
        ("a.gif", np.nan, "from 0.02 to 50"),
    ],
)
def test_a_wrong_film_is_refused(tmp_path: Path, name: str, speed: float, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        preview(FRAMES, count=2).animate(tmp_path / name, speed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["matplotlib", "PIL"])
def test_a_missing_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    found = preview(FRAMES, count=2)
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg",
                 "PIL", "PIL.Image", "PIL.ImageDraw", "PIL.ImageFont"):  # fmt: skip
        if name.startswith(missing):
            monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'oocdata\[pictures\]'"):
        found.animate(tmp_path / "a.gif")
    assert json.dumps(found.as_json())  # needs neither
