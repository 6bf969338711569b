"""Open xarray's ``DataArray``: ``opening``; ``stored`` finds the array of a file behind it."""

from oocdata.formats.xarray.opening import array_of, open_data_array

__all__ = ["array_of", "open_data_array"]
