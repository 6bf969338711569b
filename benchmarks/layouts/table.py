"""All layouts: whoever imports this has them in the table."""

from __future__ import annotations

from benchmarks.layouts import fields as fields
from benchmarks.layouts import samples as samples
from benchmarks.layouts.common import LAYOUTS

__all__ = ["LAYOUTS"]
