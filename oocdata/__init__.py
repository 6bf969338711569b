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
from oocdata.datasets.open import open, ragged  # noqa: A004  # the field's word
from oocdata.datasets.parts import Parts
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.engines.source import RowSource, Source
from oocdata.memory import memory_limit, set_memory

if typing.TYPE_CHECKING:
    from oocdata.datasets.concat import Concat, concat
    from oocdata.datasets.ids import balanced
    from oocdata.datasets.join import join
    from oocdata.datasets.labels import folder_labels
    from oocdata.datasets.map import Map
    from oocdata.datasets.mix import Mix, mix
    from oocdata.datasets.patches import Patches
    from oocdata.datasets.ragged import Ragged, RaggedBatch
    from oocdata.datasets.sparse import SparseBatch
    from oocdata.datasets.stack import concatenate, stack
    from oocdata.datasets.trajectories import episodes, windows
    from oocdata.datasets.windows import Windows
    from oocdata.datasets.zip import Cached, Zip, zip  # noqa: A004
    from oocdata.describe.splits import load_split, save_split
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
    "ArraySpec", "Bench", "BlockShuffle", "Cached", "Concat", "Conversion",
    "Dataset", "Generated", "Health", "Interleave", "Loader", "Map", "Mix", "Order",
    "Parts", "Patches", "Pictures", "Preview", "Ragged", "RaggedBatch", "Resume", "RowSource",
    "Sequential", "Shuffle", "Source", "SparseBatch", "Stats", "Stream", "View", "Windows",
    "Writer", "Zip", "__version__", "balanced", "bench", "check", "concat", "concatenate",
    "convert", "create", "episodes", "errors", "folder_labels", "generate", "join",
    "load_split", "memory_limit", "mix", "open", "preview", "ragged",
    "save_split", "set_memory", "stack", "stats", "windows", "zip",
]  # fmt: skip

__version__ = "0.1.0"

_LATER = {
    name: module
    for module, names in {
        "datasets.ids": "balanced",
        "datasets.concat": "Concat concat",
        "datasets.join": "join",
        "datasets.labels": "folder_labels",
        "datasets.map": "Map",
        "datasets.mix": "Mix mix",
        "datasets.patches": "Patches",
        "datasets.ragged": "Ragged RaggedBatch",
        "datasets.sparse": "SparseBatch",
        "datasets.stack": "concatenate stack",
        "datasets.trajectories": "episodes windows",
        "datasets.windows": "Windows",
        "datasets.zip": "Cached Zip zip",
        "describe.splits": "load_split save_split",
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


# Functions of higher modules that methods of lower ones call; see `oocdata.registry`.
registry.functions |= {
    "enumerate": "oocdata.datasets.zip:enumerated",
    "map": "oocdata.datasets.map:Map",
    "patches": "oocdata.datasets.patches:make_patches",
    "sparse": "oocdata.datasets.sparse:Sparse",
    "windows": "oocdata.datasets.trajectories:windows_of_view",
    "loader": "oocdata.loader:make_loader",
    "each_block": "oocdata.tools.passes:each_block",
    "check_workers": "oocdata.reading.workers.sharing:check_workers",
    "describe": "oocdata.describe:describe",
    "explain": "oocdata.explain:explain",
    "epoch": "oocdata.reading.ahead:read_ahead",
    "to_tf": "oocdata.frontends.tfdata:to_tf",
    "to_keras": "oocdata.frontends.keras:Batches",
    "stream_to_tf": "oocdata.frontends.tfdata:stream_to_tf",
    "stream_to_keras": "oocdata.frontends.keras:StreamBatches",
    "cache": "oocdata.writers.cache:cache",
    "parse": "oocdata.frontends.examples:parse",
    "profile": "oocdata.tools.profile:profile",
}


def __getattr__(name: str) -> typing.Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"oocdata.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__  # for completion, without the modules
