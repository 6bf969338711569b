"""Open xarray's ``DataArray`` by the names of its dimensions.

``opening`` makes a source of one; ``stored`` finds the array of a netCDF4 file or Zarr store behind
it.
"""

from oocdata.formats.xarray.opening import array_of, open_data_array

__all__ = ["array_of", "open_data_array"]
