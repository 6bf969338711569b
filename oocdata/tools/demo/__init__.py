"""`oocdata demo`: train a next-frame model on more data than the memory it takes, and measure.

Everything printed is measured in this run. Reading that takes more memory than it states is an
error.
"""

from oocdata.tools.demo.run import Demo, Plan, demo_on_digits, demo_on_file

__all__ = ["Demo", "Plan", "demo_on_digits", "demo_on_file"]
