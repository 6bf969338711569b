"""Every name in ARCHITECTURE.md exists."""

from __future__ import annotations

import re
from pathlib import Path

import oocdata
import oocdata.describe.encoding
import oocdata.engines.chunked
import oocdata.engines.objects
import oocdata.engines.strided
import oocdata.reading.ahead
import oocdata.testing
from oocdata import blocks

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PLACES = [
    oocdata, oocdata.View, oocdata.Loader, oocdata.testing, oocdata.engines.chunked,
    oocdata.engines.objects, oocdata.engines.strided, oocdata.reading.ahead, blocks,
    oocdata.describe.encoding,
]  # fmt: skip


def quoted() -> list[str]:
    return re.findall(r"`([^`]+)`", TEXT)


def exists(name: str) -> bool:
    if "/" in name or name.endswith(".py"):
        rooms = ["", "oocdata", "oocdata/engines", "oocdata/formats", "oocdata/loader.py/.."]
        return any((ROOT / room / name).exists() for room in rooms)
    parts = re.match(r"[\w.]*", name)[0].split(".")  # type: ignore[index]
    for place in PLACES:
        found: object = place
        for part in parts:
            found = getattr(found, part, None)
        if found is not None:
            return True
    return False


OTHERS = {"fit", "model.fit(loader.to_tf())", "tf.data", "shuffle=True", "assemble"}
"""Names of other libraries, and arguments."""


def test_every_name_exists() -> None:
    names = [name for name in quoted() if name not in OTHERS]
    assert len(names) > 40
    assert [name for name in names if not exists(name)] == []


def test_a_wrong_name_is_noticed() -> None:
    assert not exists("oocdata/nowhere.py")
    assert not exists("Nothing")
