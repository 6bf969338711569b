"""Test the parsers of the commands' options."""

from __future__ import annotations

import pytest
import typer

from oocdata.cli.options import numbers, opening_of, rows_of, split_key


def test_numbers() -> None:
    assert numbers("32,256")("1, 2") == (1, 2)
    assert numbers("0.6,0.2")("0.5,3") == (0.5, 3)
    with pytest.raises(typer.BadParameter):
        numbers("32,256")("0.5")


def test_rows() -> None:
    assert rows_of("100:200") == slice(100, 200)
    assert rows_of(":-1") == slice(None, -1)
    with pytest.raises(typer.BadParameter):
        rows_of("::0")


def test_files_and_datasets() -> None:
    assert split_key("sim.h5::/flow/u") == ("sim.h5", "/flow/u")
    assert split_key("ds.npy") == ("ds.npy", None)
    assert split_key("zip::https://host/a.zarr") == ("zip::https://host/a.zarr", None)


def test_the_code_of_options() -> None:
    code = opening_of(["field.bin::u"], dtype=">f4", shape=(-1, 64)).code()
    assert code == "ooc.open('field.bin', 'u', dtype='>f4', shape=(-1, 64))"
