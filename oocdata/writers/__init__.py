"""Write arrays as ``.npy``, HDF5 or Zarr v3; each appears under its name only when complete.

Users call `create`, which returns a `Writer`. `target` describes the new array. `storage` defines
the interface of the formats, `hdf5` and `zarr`. `output` writes arrays under a lock, and resumes
them. `placement` renames the result to its final path, with the help of `disk`, if an existing file
there may be replaced; `upload` writes to a store instead. `cache` writes the arrays of
`Dataset.cache`.
"""

from oocdata.writers.writer import Writer, create

__all__ = ["Writer", "create"]
