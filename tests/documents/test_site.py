"""The documentation site is built by one command, without warnings, and has every public name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import oocdata as ooc
import oocdata.testing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NEEDED = ("sphinx", "myst_parser", "numpydoc", "pydata_sphinx_theme", "sphinx_copybutton")
BUILD = [sys.executable, "-m", "sphinx", "-EW", "--keep-going", "-q"]

pytestmark = pytest.mark.long


class Page(HTMLParser):
    """The anchors, links, pictures and text outside of code on a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []
        self._inside: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        for name in ("href", "src"):
            if values.get(name) and tag in ("a", "img"):
                self.links.append(values[name] or "")
        if tag in ("script", "style", "pre", "code"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text.append(data)


def build(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*BUILD, str(source), str(folder)],
        capture_output=True, text=True, timeout=400, env=environment, cwd=ROOT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(f"the extra `docs` is not installed: {', '.join(absent)}")
    folder = tmp_path_factory.mktemp("site")
    run = build(DOCS, folder)
    assert run.returncode == 0, run.stderr
    return folder


METHODS = {
    "Dataset.batches", "Dataset.cache", "Dataset.filter", "Dataset.map", "Dataset.patches",
    "Dataset.split", "Dataset.take", "Loader.batch", "Loader.epoch", "Loader.explain",
    "Loader.shard", "Loader.to_keras", "Loader.to_tf", "Ragged.pad", "Resume.to_tf",
    "View.astype", "View.next_frame", "View.parse", "View.transpose", "View.windows",
}  # fmt: skip


def test_every_public_name_is_there(site: Path) -> None:
    anchors = {name for path in (site / "reference").glob("*.html") for name in Page(path).anchors}
    wanted = {f"oocdata.{name}" for name in set(ooc.__all__) - {"__version__", "errors"}}
    wanted |= {f"oocdata.errors.{name}" for name in ooc.errors.__all__}
    wanted |= {f"oocdata.testing.{name}" for name in oocdata.testing.__all__}
    wanted |= {f"oocdata.{name}" for name in METHODS}
    assert wanted <= anchors, wanted - anchors


def test_every_command_is_there(site: Path) -> None:
    anchors = Page(site / "reference" / "commands.html").anchors
    for command in ("info", "preview", "stats", "check", "convert", "bench", "demo", "worker"):
        assert f"oocdata-{command}" in anchors


def test_docstrings_are_rendered(site: Path) -> None:
    for path in (site / "reference").glob("*.html"):
        text = " ".join(Page(path).text)
        assert "----" not in text  # a numpydoc heading that was not parsed
        assert "``" not in text


def test_no_link_leads_nowhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 25
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith("data:"):
                continue
            found = (path.parent / target).resolve() if target else path
            assert found.exists(), f"{path.name}: {link}"
            if anchor and found in pages:
                assert anchor in pages[found].anchors, f"{path.name}: {link}"


def test_a_broken_link_fails(site: Path, tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text((DOCS / "conf.py").read_text(encoding="utf-8"))
    (tmp_path / "static").symlink_to(DOCS / "static")
    (tmp_path / "index.md").write_text(
        "# Title\n\n[nowhere](nowhere.md) {py:func}`oocdata.nothing`\n"
    )
    run = build(tmp_path, tmp_path / "built")
    assert run.returncode == 1
    assert "nowhere.md" in run.stderr
    assert "oocdata.nothing" in run.stderr


def test_the_pictures_are_drawn_again(tmp_path: Path) -> None:
    """Ranks' shares and entropies depend only on the order, so pictures are always the same."""
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    command = [sys.executable, "docs/pictures.py", str(tmp_path)]
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300
    )
    assert run.returncode == 0, run.stderr
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name for path in (DOCS / "images").glob("*.svg")}
