"""xarray: a ``DataArray`` by the names of its dimensions, with the values that it shows.

``opening`` makes a source of one; ``stored`` finds the array in a netCDF4 file or Zarr store that
is behind it, which is then read as any other, ``decoded`` by xarray's own functions; ``reader``
reads all others through the DataArray.
"""

from oocdata.sources.xarray.opening import array_of, is_xarray, open_data_array

__all__ = ["array_of", "is_xarray", "open_data_array"]
