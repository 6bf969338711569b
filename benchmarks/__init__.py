"""oocdata beside the usual ways, on the same file, in the same run: ``python -m benchmarks``."""
