"""Test functions of formats by their arguments, where files would have to be written by hand."""

from __future__ import annotations

import numpy as np

from oocdata.formats.dimensions import is_time
from oocdata.formats.patterns import common_ending, key_label, numbered_groups
from oocdata.formats.recognising import picture_format
from oocdata.formats.zarr.attributes import fill_element


def test_a_text_that_begins_as_a_bitmap() -> None:
    assert (picture_format(b"GIF89a......"), picture_format(b"BMW, a car..")) == ("GIF", "")


def test_units_of_times_and_of_durations() -> None:
    assert is_time({"units": "days since 1900-01-01"})
    assert is_time({"units": "days", "dtype": "timedelta64[ns]"})
    assert not is_time({"units": "days"})


def test_words_for_keys() -> None:
    assert (key_label("run_*"), key_label(["a", "b", "c"])) == ("run_*", "a and 2 more")
    assert common_ending(["/data/demo_0/obs/u", "/data/demo_1/obs/u"]) == "obs/u"
    assert common_ending(["/a", "/b"]) is None
    names = [f"run{number}/{name}" for number in range(5) for name in ("u", "t")]
    groups = numbered_groups([*names, "v"])
    assert {pattern: len(members) for pattern, members in groups.items()} == {
        "run*/u": 5,
        "run*/t": 5,
    }


def test_fill_values_of_zarr_as_bytes_and_pairs() -> None:
    assert fill_element("0x3fc00000", np.dtype("f4")) == 1.5
    assert np.isnan(fill_element([0, "NaN"], np.dtype("c8")).imag)
