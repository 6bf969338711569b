"""Train on arrays larger than memory, straight from .npy, HDF5 and Zarr.

>>> import numpy as np, oocdata as ooc
>>> frames = ooc.open(np.zeros((100, 8, 8), "f4"))
>>> train, val, test = frames.split(0.6, 0.2, 0.2)
>>> loader = train.next_frame().batches(32, shuffle=True, seed=7)
>>> x, y = loader.batch(step=0)
>>> x.shape, y.shape
((32, 8, 8), (32, 8, 8))
"""

import importlib
import typing

from oocdata import errors, registry
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.open import open  # noqa: A004  # the field's word
from oocdata.datasets.parts import Parts
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.engines.source import RowSource, Source
from oocdata.memory import memory_limit, set_memory

if typing.TYPE_CHECKING:
    from oocdata.datasets.cached import Cached
    from oocdata.datasets.concat import Concat, concat
    from oocdata.datasets.ids import balanced
    from oocdata.datasets.join import join
    from oocdata.datasets.labels import folder_labels
    from oocdata.datasets.map import Map
    from oocdata.datasets.mix import Mix, mix
    from oocdata.datasets.open_ragged import ragged
    from oocdata.datasets.patches import Patches
    from oocdata.datasets.ragged import Ragged, RaggedBatch
    from oocdata.datasets.sparse import SparseBatch
    from oocdata.datasets.stack import concatenate, constant, stack
    from oocdata.datasets.stacked import Constant
    from oocdata.datasets.trajectories import episodes, windows
    from oocdata.datasets.windows import Windows
    from oocdata.datasets.zip import Zip, zip  # noqa: A004
    from oocdata.describe.splits import load_split, save_split
    from oocdata.formats.names import read_names
    from oocdata.formats.pictures import Pictures
    from oocdata.frontends.resume import Resume
    from oocdata.loader import Loader
    from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
    from oocdata.order.interleave import Interleave
    from oocdata.stream import Generated, Stream, generate
    from oocdata.tools.bench import Bench, bench
    from oocdata.tools.check import Health, check
    from oocdata.tools.convert import Conversion, convert
    from oocdata.tools.preview import Preview, preview
    from oocdata.tools.stats import stats
    from oocdata.tools.stats.result import Stats
    from oocdata.writers import Writer, create

__all__ = [
    "ArraySpec", "Bench", "BlockShuffle", "Cached", "Concat", "Constant", "Conversion",
    "Dataset", "Generated", "Health", "Interleave", "Loader", "Map", "Mix", "Order", "Parts",
    "Patches", "Pictures", "Preview", "Ragged", "RaggedBatch", "Resume", "RowSource",
    "Sequential", "Shuffle", "Source", "SparseBatch", "Stats", "Stream", "View", "Windows",
    "Writer", "Zip", "__version__", "balanced", "bench", "check", "concat", "concatenate",
    "constant", "convert", "create", "episodes", "errors", "folder_labels", "generate", "join",
    "load_split", "memory_limit", "mix", "open", "preview", "ragged", "read_names",
    "save_split", "set_memory", "stack", "stats", "windows", "zip",
]  # fmt: skip

__version__ = "0.1.0"

_LATER = {
    name: module
    for module, names in {
        "datasets.ids": "balanced",
        "datasets.cached": "Cached",
        "datasets.concat": "Concat concat",
        "datasets.join": "join",
        "datasets.labels": "folder_labels",
        "datasets.map": "Map",
        "datasets.mix": "Mix mix",
        "datasets.open_ragged": "ragged",
        "datasets.patches": "Patches",
        "datasets.ragged": "Ragged RaggedBatch",
        "datasets.sparse": "SparseBatch",
        "datasets.stack": "concatenate constant stack",
        "datasets.stacked": "Constant",
        "datasets.trajectories": "episodes windows",
        "datasets.windows": "Windows",
        "datasets.zip": "Zip zip",
        "describe.splits": "load_split save_split",
        "formats.names": "read_names",
        "formats.pictures": "Pictures",
        "frontends.resume": "Resume",  # its base class is Keras's
        "loader": "Loader",
        "order": "BlockShuffle Order Sequential Shuffle",
        "order.interleave": "Interleave",
        "stream": "generate Generated Stream",
        "tools.bench": "Bench bench",
        "tools.check": "check Health",
        "tools.convert": "Conversion convert",
        "tools.preview": "Preview preview",
        "tools.stats": "stats",
        "tools.stats.result": "Stats",
        "writers": "create Writer",
    }.items()
    for name in names.split()
}
"""Public names that are imported on first use: `import oocdata` loads only what `open` needs."""


def _later(module: str, name: str) -> typing.Callable[..., typing.Any]:
    """Return a function that imports a module on its first call, and calls a function in it."""

    def call(*arguments: typing.Any, **options: typing.Any) -> typing.Any:
        return getattr(importlib.import_module(f"oocdata.{module}"), name)(*arguments, **options)

    return call


# Functions of higher modules that methods of lower ones call; see `oocdata.registry`.
registry.register("enumerate", _later("datasets.zip", "enumerated"))
registry.register("map", _later("datasets.map", "Map"))
registry.register("patches", _later("datasets.patches", "make_patches"))
registry.register("sparse", _later("datasets.sparse", "sparse_rows"))
registry.register("windows", _later("datasets.windows", "windows_of_view"))
registry.register("loader", _later("loader", "make_loader"))
registry.register("concatenate", _later("datasets.stack", "concatenate"))
registry.register("each_block", _later("tools.passes", "each_block"))
registry.register("check_workers", _later("reading.workers.sharing", "check_workers"))
registry.register("describe", _later("describe", "describe"))
registry.register("explain", _later("explain", "explain"))
registry.register("epoch", _later("reading.ahead", "read_ahead"))
registry.register("to_tf", _later("frontends.tfdata", "to_tf"))
registry.register("to_keras", _later("frontends.keras", "Batches"))
registry.register("stream_to_tf", _later("frontends.tfdata", "stream_to_tf"))
registry.register("stream_to_keras", _later("frontends.keras", "StreamBatches"))
registry.register("cache", _later("writers.cache", "cache"))
registry.register("parse", _later("frontends.examples", "parse"))
registry.register("profile", _later("tools.profile", "profile"))


def __getattr__(name: str) -> typing.Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"oocdata.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_LATER]
