"""Where new arrays are written: ``.npy``, HDF5, Zarr v3; whole under their name, or not at all.

``create`` is what people call, and gives a ``writer``; ``target`` describes what is to be written,
with ``codec`` and ``chunking``; ``storage`` is what each format gives (``flat``, ``hdf5`` with
``encoding``, ``zarr``); ``placement`` brings the result to its name
(``lock``, ``disk``), beside what is ``present`` there.
"""

from oocdata.writers.create import create
from oocdata.writers.writer import Writer

__all__ = ["Writer", "create"]
