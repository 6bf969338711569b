"""HDF5: datasets by name, contiguous ones by byte offset, all others by chunks.

``opening`` makes a source of a dataset, and ``parts`` one of many, with the help of ``file``
(opening and HDF5's errors), ``links`` (names and where they lead), ``description`` (what the file
says of a dataset), ``storage`` and ``virtual`` (what is missing or lies elsewhere). ``filtered``
reads chunks by the offsets in ``table`` and undoes filters with ``decode``; ``library`` reads
through HDF5 itself; ``varying`` reads rows of varying length.
"""
