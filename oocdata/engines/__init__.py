"""Engines: how boxes of bytes get from storage into a batch.

===========  =====================================================================
`strided`    an offset and a stride an axis: boxes are runs of bytes of one file
`chunked`    boxes → chunks → decoded once, into the process's cache → gathered
`objects`    anything that slices, under a lock of its own
===========  =====================================================================

`source` says what they all are for those above: a `Source`. What belongs to what:

==================  =======================================================================
`strided`           `plan` (a box as runs), `runs` and `ring` (runs read by the kernel),
                    `files` (which version of a file, and its descriptor), `together` (boxes of
                    many files as runs that are read at once)
`chunked`           `gather` (rows out of chunks), `cache`, `decoding` (its threads)
both                `parts` (many datasets of a file), `ragged` (runs of unequal length)
`memory_array`      an array in memory, or computed
made of sources     `wrapped`, `concat` (end to end), `placed` (along other axes), `fields`
                    (one of structured rows), `decoded` (packed numbers), `blocked` (small or
                    scattered rows, by blocks), `sparse` and `columns` (rows of a CSR matrix),
                    `ragged_rows` and `padded` (rows of unequal length)
memory              `buffers` (of batches), `places` (boxes through small memory)
==================  =======================================================================
"""
