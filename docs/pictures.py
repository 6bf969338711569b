"""Draw the pictures of the site and of the README, light and dark: ``python docs/pictures.py``.

Nothing is measured here. Speed and memory come from the first table of `performance.md`; the others
follow from the order of a loader alone, and are the same on every machine.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

import oocdata as ooc

HERE = Path(__file__).parent
CHUNK, ROWS = 32, 32 * 256
OURS, OTHERS = "#1f9e89", "#9aa5b1"
LOOKS = {
    "light": {"text": "#222832", "paper": "#ffffff", "map": "Blues"},
    "dark": {"text": "#ced6dd", "paper": "#14181e", "map": "viridis"},
}
PEERS = {
    "oocdata to_tf": "oocdata, to_tf",
    "from_generator": "from_generator",
    "per-element py_function": "py_function",
    "vectorised numpy_function": "numpy_function, batched",
    "PyDataset, 1 / 2 workers": "Keras PyDataset, 2 workers",
    "Grain, 1 / 2 threads": "Grain, 2 threads",
    "PyTorch DataLoader, batched fetch, in process": "PyTorch, batched",
}
"""Rows of the table that are drawn, and the names that they get."""


def measured() -> list[tuple[str, float, float]]:
    """Return the name, elements a second and MiB of each way in the table."""
    table = {}
    for line in (HERE / "performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[3].endswith("MiB"):
            last = [cells[at].rpartition("/")[2] for at in (1, 3)]  # of "1 / 2 workers", with 2
            numbers = [float(re.sub(r"[^\d.]", "", number)) for number in last]
            table.setdefault(cells[0], numbers)
    return [(name, *table[way]) for way, name in PEERS.items()]


def speed_and_memory(look: dict[str, str]) -> Any:
    """Draw the ways side by side: elements a second, and what memory grew by."""
    ways = measured()[::-1]
    names = [name for name, _, _ in ways]
    colours = [OURS if name.startswith("oocdata") else OTHERS for name in names]
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    titles = ("elements a second (more is better)", "memory, MiB (less is better)")
    for place, (axes, title) in enumerate(zip(panels, titles, strict=True), start=1):
        numbers = [way[place] for way in ways]
        bars = axes.barh(names, numbers, color=colours, height=0.7)
        axes.bar_label(bars, [f"{number:,.0f}" for number in numbers], padding=4, fontsize=9)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlim(0, max(numbers) * 1.18)
        axes.set_xticks([])
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
    return figure


def chunks_of(loader: ooc.Loader, step: int) -> np.ndarray:
    """Return how many rows of a batch each chunk gives, shape (chunks,)."""
    return np.bincount(loader.positions(step) // CHUNK, minlength=ROWS // CHUNK)


def batches_and_chunks(look: dict[str, str], rows: ooc.View) -> Any:
    """Draw which chunks the first batches come from, in three orders."""
    orders = {
        "in order": False,
        "full shuffle": "global",
        "block shuffle": ooc.BlockShuffle(CHUNK, 16),
    }
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.8), sharey=True)
    for axes, (name, shuffle) in zip(panels, orders.items(), strict=True):
        loader = rows.batches(32, shuffle=shuffle, seed=7)
        counts = np.stack([chunks_of(loader, step) for step in range(64)], axis=1)
        # 32 rows of one chunk and 1 of each of 32 must both be seen.
        picture = axes.imshow(
            np.sqrt(counts),
            cmap=look["map"],
            vmax=np.sqrt(8),
            aspect="auto",
            interpolation="nearest",
        )
        touched = np.mean([np.count_nonzero(column) for column in counts.T])
        axes.set(
            xlabel="batch",
            title=f"{name}\n{touched:.0f} {'chunk' if touched == 1 else 'chunks'} a batch",
        )
    panels[0].set_ylabel("chunk of 32 rows")
    bar = figure.colorbar(picture, label="rows of the batch", ticks=np.sqrt([0, 1, 2, 4, 8]))
    bar.ax.set_yticklabels(["0", "1", "2", "4", "8 or more"])
    return figure


def mixing(look: dict[str, str], rows: ooc.View) -> Any:
    """Draw how well batches mix, by the number of chunks that are mixed at a time."""
    mixed = 2 ** np.arange(2, 9)
    found = [
        rows.batches(32, shuffle=ooc.BlockShuffle(CHUNK, int(chunks)), seed=7).explain().mixing
        for chunks in mixed
    ]
    figure, axes = plt.subplots(figsize=(9, 3))
    axes.axhline(found[0].full_shuffle_entropy, color=OTHERS, linestyle="--", label="full shuffle")
    axes.plot(mixed, [each.entropy for each in found], "o-", color=OURS, label="block shuffle")
    axes.set(xscale="log", ylim=(0, 5.5), ylabel="bits of batch entropy")
    axes.set_xlabel("chunks mixed at a time, and their share of the file")
    axes.set_xticks(mixed, [f"{chunks}\n{100 * chunks / max(mixed):.3g} %" for chunks in mixed])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def ranks_and_chunks(look: dict[str, str], rows: ooc.View) -> Any:
    """Draw which chunks each of four ranks reads in an epoch."""
    orders = {"full shuffle": "global", "block shuffle": ooc.BlockShuffle(CHUNK, 32)}
    colours = ListedColormap([look["paper"], "#1f9e89", "#e07a5f", "#5b8def", "#d9a441"])
    figure, panels = plt.subplots(1, 2, figsize=(9, 3))
    for axes, (name, shuffle) in zip(panels, orders.items(), strict=True):
        loader = rows.batches(32, shuffle=shuffle, seed=7)
        touched = np.zeros((4, ROWS // CHUNK), int)
        for rank in range(4):
            part = loader.shard(4, rank)
            for step in range(len(part)):
                touched[rank, part.positions(step) // CHUNK] = rank + 1
        axes.imshow(touched, cmap=colours, vmin=0, vmax=4, aspect="auto", interpolation="nearest")
        share = np.count_nonzero(touched, axis=1).mean() / touched.shape[1]
        axes.set(
            xlabel="chunk of 32 rows",
            yticks=range(4),
            title=f"{name}: {share:.0%} of the chunks a rank",
        )
        axes.set_yticklabels([f"rank {rank}" for rank in range(4)])
    return figure


def draw(folder: Path) -> list[Path]:
    """Write every picture into a folder, light and dark, and return their paths."""
    written = []
    with tempfile.TemporaryDirectory() as made:
        with h5py.File(f"{made}/frames.h5", "w") as file:
            file.create_dataset("frames", (ROWS, 64), "f4", chunks=(CHUNK, 64), compression=1)
            file["frames"][:] = 0
        rows = ooc.open(f"{made}/frames.h5")
        drawings = {
            "speed_and_memory": lambda look: speed_and_memory(look),
            "batches_and_chunks": lambda look: batches_and_chunks(look, rows),
            "mixing": lambda look: mixing(look, rows),
            "ranks_and_chunks": lambda look: ranks_and_chunks(look, rows),
        }
        for theme, look in LOOKS.items():
            ink = dict.fromkeys(
                ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
                look["text"],
            )
            settings = {
                **ink, "figure.constrained_layout.use": True, "figure.facecolor": look["paper"],
                "axes.facecolor": look["paper"], "savefig.facecolor": look["paper"],
                "font.size": 9, "svg.hashsalt": "oocdata", "svg.fonttype": "path",
            }  # fmt: skip
            with plt.rc_context(settings):
                for name, drawing in drawings.items():
                    path = folder / f"{name}-{theme}.svg"
                    figure = drawing(look)
                    figure.savefig(path, metadata={"Date": None})
                    plt.close(figure)
                    written.append(path)
    return written


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "images"):
        print(f"Written: {path}")
