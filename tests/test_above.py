"""The one arrow that points up."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oocdata.above import above
from oocdata.loader import Loader


def test_it_is_the_thing_itself():
    assert above("loader", "Loader") is Loader


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [("nowhere", "x", ModuleNotFoundError), ("errors", "NoSuchError", AttributeError)],
)
def test_a_wrong_name_is_not_swallowed(module, name, error):
    with pytest.raises(error, match=f"{module}|{name}"):
        above(module, name)


def test_nothing_is_imported_before_the_call():
    code = (
        "import sys, oocdata.above\n"
        "assert 'oocdata.frontends.tfdata' not in sys.modules\n"
        "oocdata.above.above('datasets.map', 'Map')\n"
        "assert not {'tensorflow', 'h5py', 'zarr'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
