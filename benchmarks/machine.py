"""Where figures come from: the processor, the kernel, the versions of all packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

__all__ = ["machine"]

_PACKAGES = (
    *("oocdata", "numpy", "tensorflow", "keras", "h5py", "zarr", "tensorstore", "numcodecs"),
    *("imagecodecs", "isal", "zarrs", "torch", "grain", "datasets", "pyarrow", "scdataset"),
    *("xbatcher", "xarray", "matplotlib", "psutil"),
)


def machine() -> dict[str, object]:
    """Return what the figures depend on besides the code."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
