"""Test scaling by statistics against NumPy and Keras's layer."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import oocdata as ooc
from oocdata.describe import as_json, from_json
from oocdata.errors import ArgumentError
from oocdata.tools.stats import result as stats_result
from oocdata.tools.stats import stats

RNG = np.random.default_rng(3)
NCHW = (
    RNG.normal(size=(200, 3, 8, 9)) * np.reshape([1, 10, 0.1], (3, 1, 1))
    + np.reshape([280, -5, 1000], (3, 1, 1))
).astype("f4")
LAYOUTS = {
    "NCHW": (NCHW, 1),
    "NHWC": (np.ascontiguousarray(np.moveaxis(NCHW, 1, -1)), 3),
    "2-D": (NCHW[:, :, 0, 0].copy(), 1),
    "none": (NCHW[:, 1].copy(), None),
    "numbers": (NCHW[:, 1, 0, 0].copy(), None),
    "middle": (np.ascontiguousarray(np.moveaxis(NCHW, 1, 2)), 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("piece", [7, 2**15])
def test_standardize_is_what_numpy_makes(
    layout: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_result, "_PIECE", piece)
    values, axis = LAYOUTS[layout]
    found = stats(ooc.open(values), channels=axis)
    axes = tuple(place for place in range(values.ndim) if place != axis)
    wide = values.astype("f8")
    expected = (wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True)
    scaled = found.standardize(values)
    assert scaled.dtype == np.float32
    assert_allclose(scaled, expected, rtol=2e-7, atol=1e-9)
    assert_allclose(found.standardize.inverse(scaled), values, rtol=1e-6, atol=1e-5)
    double = replace(found.standardize, dtype="float64")
    assert_allclose(double(values), expected, rtol=1e-12, atol=1e-12)
    assert_allclose(double.inverse(double(values)), wide, rtol=1e-14, atol=1e-13)
    # A batch of windows has one axis more.
    assert_array_equal(found.standardize(values[None, :5]), scaled[None, :5])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keras_normalization_does_the_same(layout: str) -> None:
    keras = pytest.importorskip("keras")
    values, axis = LAYOUTS[layout]
    found = stats(ooc.open(values), channels=axis)
    batch = values[:50] if values.ndim > 1 else values[:50, None]
    layer = keras.layers.Normalization(**found.normalization())
    scaled = np.asarray(layer(batch)).reshape(values[:50].shape)
    assert_allclose(scaled, found.standardize(values[:50]), rtol=1e-5, atol=5e-4)
    adapted = keras.layers.Normalization(axis=axis)
    adapted.adapt(values if values.ndim > 1 else values[:, None])
    of_keras = np.asarray(adapted(batch)).reshape(values[:50].shape)
    # Keras sums in float32: it loses digits where the mean is large.
    assert_allclose(of_keras, scaled, rtol=1e-2, atol=1e-2)


def test_keras_normalization_takes_windows_in_a_model() -> None:
    keras = pytest.importorskip("keras")
    found = stats(ooc.open(NCHW))
    layer = keras.layers.Normalization(**found.normalization())
    model = keras.Sequential([keras.Input((4, 3, 8, 9)), layer])
    windows = ooc.open(NCHW).windows(4).take([0, 5])
    assert_allclose(np.asarray(model(windows)), found.standardize(windows), rtol=1e-5, atol=5e-4)


@pytest.mark.parametrize("version", ["3.10.0", "3.13.2", "3.14.0", "3.15.0.dev2", "4.0"])
def test_the_form_that_each_keras_takes(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_result, "version", lambda name: version)
    given = stats(ooc.open(NCHW)).normalization()
    old = version.startswith(("3.10", "3.13"))
    assert given["mean"].shape == given["variance"].shape == ((3, 1, 1) if old else (3,))
    assert given["axis"] == -3


def test_a_channel_of_one_value_is_not_divided() -> None:
    keras = pytest.importorskip("keras")
    values = NCHW.copy()
    values[:, 2] = 4
    found = stats(ooc.open(values))
    later = values[:2] + 3
    for scaled in (
        found.standardize(later),
        np.asarray(keras.layers.Normalization(**found.normalization())(later)),
    ):
        assert_array_equal(scaled[:, 2], 3)  # moved, not blown up
    assert_array_equal(found.standardize.inverse(found.standardize(values))[:, 2], 4)


def test_far_from_zero_no_digit_is_lost() -> None:
    values = 1e9 + 1e-3 * RNG.normal(size=(500, 4))
    found = stats(ooc.open(values))
    scaled = found.standardize(values)
    assert_allclose(scaled.std(axis=0), 1, rtol=1e-5)
    # A mean of 1e9 is known to half a step of float64, 6e-8.
    assert_allclose(scaled.mean(axis=0), 0, atol=1e-4)
    whole = 2**40 + RNG.integers(0, 200, (500, 4))
    assert_allclose(stats(ooc.open(whole)).standardize(whole).std(axis=0), 1, rtol=1e-5)


def test_nan_and_inf_stay_what_they_are() -> None:
    values = NCHW.copy()
    values[0, 0, 0, :3] = [np.nan, np.inf, -np.inf]
    scaled = stats(ooc.open(values)).standardize(values)
    assert_array_equal(scaled[0, 0, 0, :3], [np.nan, np.inf, -np.inf])
    assert np.isfinite(scaled[1:]).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_in_map_over_pairs_and_windows(workers: int) -> None:
    train, test = ooc.open(NCHW).split(0.75, 0.25)
    scaling = stats(train).standardize
    whole = scaling(NCHW)
    for x, y in train.next_frame().map(scaling).batches(50, workers=workers):
        assert x.dtype == y.dtype == np.float32
        assert_array_equal(x[1:], y[:-1])
    assert_array_equal(test.next_frame().map(scaling)[3][1], whole[154])
    assert_array_equal(test.windows(2).map(scaling)[3], whole[153:155])
    assert_array_equal(test.map(scaling, batched=False)[3], whole[153])
    cropped = test[:, :, 2:5, ::2].map(scaling)
    assert_array_equal(cropped[3], whole[153][:, 2:5, ::2])


def test_it_may_be_kept_sent_and_described(tmp_path: Any) -> None:
    found = stats(ooc.open(NCHW))
    expected = found.standardize(NCHW[:5])
    for again in (
        pickle.loads(pickle.dumps(found.standardize)),
        copy.deepcopy(found.standardize),
        pickle.loads(pickle.dumps(found)).standardize,
    ):
        assert_array_equal(again(NCHW[:5]), expected)
    np.save(tmp_path / "a.npy", NCHW)
    loader = ooc.open(tmp_path / "a.npy").map(found.standardize).batches(5)
    told = as_json(loader)
    again = from_json(told, allow=["oocdata.tools.stats.result"])
    assert_array_equal(again.batch(0), expected)


def test_labels_are_not_scaled_with_the_images() -> None:
    images, labels = ooc.open(NCHW), ooc.open(np.arange(200))
    scaling = stats(images).standardize
    with pytest.raises(ArgumentError, match="consist of rows"):
        ooc.zip(images, labels).map(scaling)[0]
    masks = ooc.open(np.zeros((200, 3, 8, 9), "u1"))
    with pytest.raises(ArgumentError, match="of the same rows"):
        ooc.zip(images, masks).map(scaling)[0]
    with pytest.raises(ArgumentError, match="got object"):
        ooc.zip({"x": images, "y": labels}).map(scaling)[0]
    x, y = ooc.zip(images, labels).map(lambda x, y: (scaling(x), y))[7]
    assert_array_equal(x, scaling(NCHW[7]))
    assert y == 7
    with pytest.raises(ArgumentError, match="channels on axis -3"):
        scaling(np.moveaxis(NCHW, 1, -1))
    with pytest.raises(ArgumentError, match="real numbers"):
        scaling(NCHW.astype("c8"))
    with pytest.raises(ArgumentError, match="consist of rows"):
        scaling(NCHW[0, 0])
