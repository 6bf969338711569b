"""xarray: a ``DataArray`` by the names of its dimensions, with the values that it shows.

``opening`` makes a source of one; ``stored`` finds the array in a netCDF4 file or Zarr store that
is behind it.
"""

from oocdata.formats.xarray.opening import array_of, open_data_array

__all__ = ["array_of", "open_data_array"]
