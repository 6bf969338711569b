"""Datasets: which boxes of which sources the elements at some positions are.

==================  =======================================================================
base classes        `dataset` (reading), `splitting` and `element_rows` (selections and splits)
one array           `view`, its arithmetic in `array_rows`; opened by `open`
rows around rows    `windows` (`window_arrays`, `episodes`); made in `trajectories`
parts of elements   `patches`
side by side        `zip`, `join`; `stack` (as channels of one array)
end to end          `concat`, `mix`
functions           `map`, `parsed` (features of records)
several arrays      `multi_array`; `sparse` and `ragged` rows
reading             `request` (the boxes of an array of a batch), `spec` (trees of arrays)
splits              `splits` (sizes of parts), `shared_rows` (which elements share rows)
of rows             `parts` (names of files), `labels`, `ids` (values, one a row)
==================  =======================================================================
"""
