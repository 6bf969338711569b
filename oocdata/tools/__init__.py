"""Tools that people run on a file; the commands print their results."""
