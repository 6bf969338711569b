"""Train on arrays larger than memory, straight from .npy, HDF5 and Zarr.

>>> import numpy as np, oocdata as ooc
>>> frames = ooc.open(np.zeros((100, 8, 8), "f4"))
>>> train, val, test = frames.split(0.6, 0.2, 0.2)
>>> loader = train.next_frame().batches(32, shuffle=True, seed=7)
>>> x, y = loader.batch(step=0)
>>> x.shape, y.shape
((32, 8, 8), (32, 8, 8))
"""

import typing

from oocdata import errors
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.map import Map
from oocdata.datasets.open import open  # noqa: A004  # the field's word
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.datasets.zip import Zip, zip  # noqa: A004
from oocdata.loader import Loader
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.sources.slots import chunk_budget, set_chunk_budget
from oocdata.sources.source import Source

if typing.TYPE_CHECKING:
    from oocdata.frontends.resume import Resume

__all__ = [
    "ArraySpec",
    "BlockShuffle",
    "Dataset",
    "Loader",
    "Map",
    "Order",
    "Resume",
    "Sequential",
    "Shuffle",
    "Source",
    "View",
    "Windows",
    "Zip",
    "__version__",
    "chunk_budget",
    "errors",
    "open",
    "set_chunk_budget",
    "zip",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> typing.Any:
    # A Keras callback is of one of Keras's classes: imported when it is asked for.
    if name == "Resume":
        from oocdata.frontends.resume import Resume

        return Resume
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
