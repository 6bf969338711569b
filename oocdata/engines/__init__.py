"""Engines: how boxes of bytes get from storage into a batch.

===========  =====================================================================
`strided`    an offset and a stride an axis: boxes are runs of bytes of one file
`chunked`    boxes → chunks → decoded once, into the process's cache → gathered
`objects`    anything that slices, under a lock of its own
===========  =====================================================================

`source` says what they all are for those above: a `Source`.
"""
