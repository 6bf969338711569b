"""The ways to get batches, by family; each as its own documentation recommends.

What a way imports, it imports inside its function: each runs in a process of its own.
"""

from __future__ import annotations

# Each enters its ways into the table: in this order, which is that of the report.
# isort: off
from benchmarks.ways import ours as ours
from benchmarks.ways import tensorflow as tensorflow
from benchmarks.ways import keras as keras
from benchmarks.ways import tfrecord as tfrecord
from benchmarks.ways import huggingface as huggingface
from benchmarks.ways import grain as grain
from benchmarks.ways import torch as torch
from benchmarks.ways import scdataset as scdataset
from benchmarks.ways import xbatcher as xbatcher
from benchmarks.ways import hdf5 as hdf5
from benchmarks.ways import zarr as zarr
from benchmarks.ways import tensorstore as tensorstore
from benchmarks.ways import limits as limits
from benchmarks.layouts import ways as ways

# isort: on
from benchmarks.ways.way import WAYS, Way

__all__ = ["WAYS", "Way"]
