"""Read HDF5 datasets: contiguous ones by byte offset, all others by chunks.

``opening`` opens a dataset, ``found`` chooses the source that reads it, or several of one kind, and
``parts`` concatenates many. They use ``file`` (opening files and HDF5's errors), ``links`` (the
tree of names), ``description`` (dtype, axes, attributes), ``storage`` and ``virtual`` (missing
chunks and external files). ``filtered`` reads chunks at the offsets in ``table`` and undoes filters
with ``decode``; ``library`` reads through HDF5 itself; ``varying`` reads rows of varying length;
``metadata`` fetches metadata of files in stores.
"""
