#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the results of run_peers.sh as SVGs, with Python's standard library only:
pairs.svg (time by size), replace.svg, threads.svg and gaps.svg.

    python3 bench/plot_peers.py bench/results/DATE-GPU docs
"""

import math
import pathlib
import sys
from xml.sax.saxutils import escape

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers_report import NAMES, Results  # noqa: E402

COLOURS = {"vrampool": "#c8552b", "torch": "#1b6ca8", "torch-expandable": "#6aa5cf",
           "cuda-async-max": "#3d8b54", "cuda-async-0": "#93c29f", "cuda-malloc": "#5a6570",
           "rmm-pool": "#8a5aa8", "rmm-arena": "#bfa0d2", "cupy": "#b08a1e"}
WIDTH, HEIGHT = 560, 340
LEFT, TOP, RIGHT, BELOW = 74, 44, 250, 64


def size(n):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit:
            return f"{n / unit:g} {name}"
    return f"{n} B"


def amount(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class Axis:
    """Logarithmic, from bottom to top."""

    def __init__(self, values):
        logs = [math.log10(v) for v in values if v > 0]
        self.low, self.high = math.floor(min(logs)), math.ceil(max(logs) + 0.05)
        if self.low == self.high:
            self.high += 1

    def y(self, value):
        part = (math.log10(max(value, 10.0 ** self.low)) - self.low) / (self.high - self.low)
        return TOP + HEIGHT - part * HEIGHT

    def grid(self, unit):
        for power in range(self.low, self.high + 1):
            y = self.y(10.0 ** power)
            yield f'<path d="M{LEFT} {y:.1f}H{LEFT + WIDTH}" class="grid"/>'
            yield (f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">'
                   f"{10.0 ** power:,g}</text>")
        middle = TOP + HEIGHT / 2
        yield (f'<text x="{LEFT - 56}" y="{middle}" text-anchor="middle" '
               f'transform="rotate(-90 {LEFT - 56} {middle})">{escape(unit)}</text>')


def frame(title, body):
    width, height = LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">')
    yield "<style>.grid{stroke:#e4e4e4}.frame{fill:none;stroke:#666}</style>"
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield f'<text x="{LEFT}" y="22" font-size="14" font-weight="bold">{escape(title)}</text>'
    yield from body
    yield f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" class="frame"/>'
    yield "</svg>"


def legend(allocators):
    for i, allocator in enumerate(allocators):
        y = TOP + 14 + 20 * i
        yield (f'<rect x="{LEFT + WIDTH + 18}" y="{y - 10}" width="12" height="12" '
               f'fill="{COLOURS[allocator]}"/>')
        yield f'<text x="{LEFT + WIDTH + 36}" y="{y}">{escape(NAMES[allocator])}</text>'


def lines(title, unit, places, rows):
    """rows: allocator -> one (median, least, most) or None a place."""
    axis = Axis([v for row in rows.values() for cell in row if cell for v in cell])
    step = WIDTH / len(places)

    def body():
        yield from axis.grid(unit)
        for i, place in enumerate(places):
            yield (f'<text x="{LEFT + step * (i + 0.5):.1f}" y="{TOP + HEIGHT + 18}" '
                   f'text-anchor="middle">{escape(place)}</text>')
        for allocator, row in rows.items():
            colour = COLOURS[allocator]
            points = [(LEFT + step * (i + 0.5), cell) for i, cell in enumerate(row) if cell]
            path = " ".join(f"{x:.1f},{axis.y(c[0]):.1f}" for x, c in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
            for x, (median, least, most) in points:
                yield (f'<path d="M{x:.1f} {axis.y(least):.1f}V{axis.y(most):.1f}" '
                       f'stroke="{colour}"/>')
                yield (f'<circle cx="{x:.1f}" cy="{axis.y(median):.1f}" r="3.4" fill="{colour}">'
                       f"<title>{escape(NAMES[allocator])}: {amount(median)} "
                       f"({amount(least)} – {amount(most)})</title></circle>")
        yield from legend(rows)

    return frame(title, body())


def bars(title, unit, places, rows):
    """rows: allocator -> a value or None a place."""
    axis = Axis([max(v, 1) for row in rows.values() for v in row if v is not None])
    step = WIDTH / len(places)
    width = step * 0.8 / len(rows)

    def body():
        yield from axis.grid(unit)
        for i, place in enumerate(places):
            yield (f'<text x="{LEFT + step * (i + 0.5):.1f}" y="{TOP + HEIGHT + 18}" '
                   f'text-anchor="middle">{escape(place)}</text>')
            for k, (allocator, row) in enumerate(rows.items()):
                if row[i] is None:
                    continue
                x, y = LEFT + step * (i + 0.1) + width * k, axis.y(max(row[i], 1))
                yield (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.9:.1f}" '
                       f'height="{TOP + HEIGHT - y:.1f}" fill="{COLOURS[allocator]}">'
                       f"<title>{escape(NAMES[allocator])}: {amount(row[i])}</title></rect>")
        yield from legend(rows)

    return frame(title, body())


def cells(results, names):
    found = {}
    for allocator in results.allocators():
        rows = [results.row(allocator, name) for name in names]
        row = [(r["median"], r["min"], r["max"]) if r and r["median"] else None for r in rows]
        if any(row):
            found[allocator] = row
    return found


def pictures(results):
    sizes = [512, 4096, 65536, 1 << 20, 2 << 20, 32 << 20, 256 << 20]
    yield "pairs.svg", lines("Allocate and free again, one thread", "ns a pair",
                             [size(s) for s in sizes],
                             cells(results, [f"pair/{s}" for s in sizes]))
    sets = [("100 live", "replace/100/1024KiB"), ("1,000", "replace/1000/1024KiB"),
            ("10,000", "replace/10000/1024KiB"), ("1,000, to 16 MiB", "replace/1000/16384KiB")]
    yield "replace.svg", lines("Random replacement, 512 B to 1 MiB", "ns a step",
                               [s[0] for s in sets], cells(results, [s[1] for s in sets]))
    counts = [1, 2, 4, 8, 16]
    yield "threads.svg", lines("4 KiB pairs, a stream for each thread", "ns a pair and thread",
                               [f"{n} threads" if n > 1 else "1 thread" for n in counts],
                               cells(results, [f"threads/{n}" for n in counts]))
    traces = results.traces()
    gaps = {}
    for allocator in COLOURS:
        row = [results.replays.get((t, allocator), {}) for t in traces]
        row = [r.get("peak_gap_mib") if r.get("complete") else None for r in row]
        if any(v is not None for v in row):
            gaps[allocator] = row
    if gaps:
        yield "gaps.svg", bars("Peak reserved minus peak requested, replays on the GPU", "MiB",
                               traces, gaps)


def main():
    if len(sys.argv) != 3:
        sys.stderr.write(__doc__)
        return 2
    results = Results(sys.argv[1])
    if not results.allocators():
        sys.stderr.write(f"{sys.argv[1]}: no results of allocators\n")
        return 1
    for name, drawing in pictures(results):
        (pathlib.Path(sys.argv[2]) / name).write_text("\n".join(drawing) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
