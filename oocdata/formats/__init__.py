"""Open files and objects of each format as sources of the engines."""
