"""Engines: move boxes of bytes from storage into a batch.

===========  =====================================================================
`strided`    an offset and a stride per axis: boxes are runs of bytes of one file
`chunked`    chunks are decoded once, into the process's cache, and boxes are gathered
`objects`    objects that support slices, one call at a time
===========  =====================================================================

All of them are a `source.Source`. Modules by engine:

==================  =======================================================================
`strided`           `plan` (boxes as runs of bytes), `runs` and `ring` (read runs), `files`
                    (file versions and descriptors), `atomic` (write a file at once)
`chunked`           `gather` (boxes from chunks), `cache` and its `slots`, `decoding` (its threads)
both                `many_files` (arrays of one layout, read together), `parts` (many datasets of
                    a file), `ragged` (runs of unequal length), `prefetch` and `planned` (what
                    must be fetched from stores)
`memory_array`      an array in memory, or computed
over sources        `wrapped`, `concat` (end to end; `alike` compares parts), `axis_views` (along
                    other axes), `interleaved` (components of a vector), `single_rows` (an array
                    as one row), `fields` (of structured rows), `decoded` (packed numbers),
                    `blocked` (small or scattered rows, by blocks), `sparse` and `columns` (rows
                    of a CSR matrix), `byte_rows`, `ragged_rows` and `padded` (rows of unequal
                    length), `mixed_shapes` (parts whose rows differ in shape)
memory              `buffers` (batches), `copying` (boxes through scratch memory)
all                 `source` (the interface), `axes` (sample axes by name), `dtypes`
==================  =======================================================================
"""
