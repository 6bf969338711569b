"""Run the command line: ``python -m oocdata``."""

from __future__ import annotations

from oocdata.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
