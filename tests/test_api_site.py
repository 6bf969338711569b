"""The reference: one command writes it, without a warning, and every public name is in it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import oocdata as ooc
from oocdata.tools.reference import FIRST

pytestmark = pytest.mark.long


class Page(HTMLParser):
    """What a browser finds on a page: anchors, links, text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.code: list[str] = []
        self.inside: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.anchors.append(values["id"] or "")
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        if tag in ("script", "style", "pre", "code"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.inside):
            (self.code if self.inside else self.text).append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "reference"
    # The warnings of pdoc, each an error; those of what it imports are not ours.
    filters = [f"-Werror:{start}" for start in ("Found", "Error", "Invalid", "Cannot", "Unable")]
    command = [sys.executable, *filters, "-m", "oocdata.tools.reference", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "Warn" not in run.stderr, run.stderr
    assert run.stdout == f"Written: {folder / 'index.html'}\n"
    return folder


def test_every_public_name_is_there(site: Path) -> None:
    anchors = Page(site / "oocdata.html").anchors
    errors = Page(site / "oocdata/errors.html").anchors
    testing = Page(site / "oocdata/testing.html").anchors
    assert set(ooc.__all__) - {"__version__", "errors"} <= set(anchors)
    assert set(ooc.errors.__all__) <= set(errors)
    assert set(importlib.import_module("oocdata.testing").__all__) <= set(testing)
    for name in ("Dataset.split", "View.next_frame", "Loader.to_tf", "Resume.to_tf"):
        assert name in anchors
    named = [anchor for anchor in anchors if anchor in FIRST]
    assert named == list(FIRST)


def test_nothing_private_is_there(site: Path) -> None:
    written = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    assert written == ["index.html", "oocdata.html", "oocdata/errors.html", "oocdata/testing.html"]
    for path in site.rglob("*.html"):
        assert not [
            name
            for name in Page(path).anchors
            if name.rpartition(".")[2][:1] == "_"
            and name.rpartition(".")[2] not in ("__init__", "__version__")
        ]


def test_docstrings_are_rendered(site: Path) -> None:
    page = Page(site / "oocdata.html")
    text = " ".join(page.text)
    assert "----" not in text  # a heading of numpydoc that was not understood
    assert "``" not in text
    for heading in ("Parameters", "Returns", "Raises", "Examples"):
        assert heading in text
    assert ">>> " in " ".join(page.code)  # examples, coloured


def test_no_link_leads_nowhere(site: Path) -> None:
    anchors = {path: set(Page(path).anchors) for path in site.rglob("*.html")}
    for path in anchors:
        for link in Page(path).links:
            target, _, anchor = link.partition("#")
            if "://" in target:
                continue
            page = (path.parent / target).resolve() if target else path
            assert page in anchors, f"{path.name}: {link}"
            assert not anchor or anchor in anchors[page], f"{path.name}: {link}"
