"""Windows in plain Python: what tests of windows compare with."""

from __future__ import annotations

Rows = list[list[int]]


def counted_out(
    lengths: Rows, offsets: Rows, shift: int = 1, pad: bool = False
) -> list[tuple[Rows, Rows]]:
    """Every window: the rows of each array, and whether each lies in the episode.

    `lengths` are those of the episodes, array by array.
    """
    windows = []
    for episode in range(len(lengths[0])):
        own = [each[episode] for each in lengths]
        first = [sum(each[:episode]) for each in lengths]
        far = 100

        def inside(anchor: int, array: int, own: list[int] = own) -> list[bool]:
            return [0 <= anchor + offset < own[array] for offset in offsets[array]]

        anchors = [
            anchor
            for anchor in (range(min(own)) if pad else range(-far, far))
            if pad or all(all(inside(anchor, array)) for array in range(len(own)))
        ]
        for anchor in anchors[::shift]:
            rows = [
                [start + min(max(anchor + offset, 0), length - 1) for offset in some]
                for start, length, some in zip(first, own, offsets, strict=True)
            ]
            windows.append((rows, [inside(anchor, array) for array in range(len(own))]))
    return windows
