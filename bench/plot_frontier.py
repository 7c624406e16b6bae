#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the rows of `vrampool-bench frontier` as an SVG: one panel for the peak
gap and one for the mean gap, each against driver time, both axes logarithmic,
one colour a trace, one mark a gap rule. Needs Python's standard library only.

    build/release/bench/vrampool-bench frontier bench/traces/*.vrpt --csv frontier.csv
    python3 bench/plot_frontier.py frontier.csv docs/frontier.svg
"""

import csv
import math
import sys
from xml.sax.saxutils import escape

MIB = 1 << 20
COLOURS = ["#1b6ca8", "#c8552b", "#3d8b54", "#8a5aa8", "#b08a1e", "#5a6570"]
PANEL_WIDTH, PANEL_HEIGHT = 430, 330
LEFT, TOP, BETWEEN, BELOW = 70, 56, 90, 62
RULES = ["high-water", "limit", "off"]


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["ms"] = float(row["driver_ms"])
        row["peak_gap"] = int(row["peak_gap"]) / MIB
        row["mean_gap"] = int(row["mean_gap"]) / MIB
        row["limit"] = int(row["limit"])
    return rows


def size(n):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit:
            return f"{n / unit:g} {name}"
    return f"{n} B"


def label(row):
    text = size(row["limit"]) if row["rule"] == "limit" else row["rule"]
    return f"{row['trace']}: {text}" + (f", {row['knobs']}" if row["knobs"] else "")


def span(values):
    """The values' range, widened a little, on a logarithmic axis."""
    values = [max(v, 0.01) for v in values]
    return math.log10(min(values)) - 0.08, math.log10(max(values)) + 0.08


def ticks(low, high):
    for power in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5):
            at = math.log10(digit) + power
            if low <= at <= high:
                yield at, f"{digit * 10.0 ** power:g}"


def mark(rule, x, y, colour, hollow, title):
    style = f'fill="{"white" if hollow else colour}" stroke="{colour}" stroke-width="1.3"'
    if rule == "limit":
        shape = f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" {style}>'
        end = "</rect>"
    elif rule == "off":
        points = f"{x:.1f},{y - 4.8:.1f} {x - 4.4:.1f},{y + 3.2:.1f} {x + 4.4:.1f},{y + 3.2:.1f}"
        shape, end = f'<polygon points="{points}" {style}>', "</polygon>"
    else:
        shape, end = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {style}>', "</circle>"
    return f"{shape}<title>{escape(title)}</title>{end}"


class Panel:
    def __init__(self, rows, key, name, left):
        self.rows, self.key, self.name, self.left = rows, key, name, left
        self.x_low, self.x_high = span([r["ms"] for r in rows])
        self.y_low, self.y_high = span([r[key] for r in rows])

    def x(self, log):
        return self.left + (log - self.x_low) / (self.x_high - self.x_low) * PANEL_WIDTH

    def y(self, log):
        return TOP + PANEL_HEIGHT - (log - self.y_low) / (self.y_high - self.y_low) * PANEL_HEIGHT

    def place(self, row):
        return (self.x(math.log10(max(row["ms"], 0.01))),
                self.y(math.log10(max(row[self.key], 0.01))))

    def axes(self):
        bottom = TOP + PANEL_HEIGHT
        for at, text in ticks(self.x_low, self.x_high):
            x = self.x(at)
            yield f'<path d="M{x:.1f} {TOP}V{bottom}" class="grid"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>'
        for at, text in ticks(self.y_low, self.y_high):
            y = self.y(at)
            yield f'<path d="M{self.left} {y:.1f}H{self.left + PANEL_WIDTH}" class="grid"/>'
            yield f'<text x="{self.left - 7}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        yield (f'<rect x="{self.left}" y="{TOP}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" '
               'class="frame"/>')
        yield (f'<text x="{self.left + PANEL_WIDTH / 2}" y="{bottom + 36}" '
               'text-anchor="middle">driver time by the virtual clock, ms</text>')
        middle = TOP + PANEL_HEIGHT / 2
        yield (f'<text x="{self.left - 50}" y="{middle}" text-anchor="middle" '
               f'transform="rotate(-90 {self.left - 50} {middle})">{self.name}, MiB</text>')

    def best(self, trace):
        """The points that no other of the trace beats in both directions."""
        found, lowest = [], math.inf
        for row in sorted((r for r in self.rows if r["trace"] == trace),
                          key=lambda r: (r["ms"], r[self.key])):
            if row[self.key] < lowest:
                lowest = row[self.key]
                found.append(row)
        return found

    def marks(self, colours):
        for trace, colour in colours.items():
            line = " ".join("%.1f,%.1f" % self.place(r) for r in self.best(trace))
            yield f'<polyline points="{line}" fill="none" stroke="{colour}" class="front"/>'
        # The defaults last: they stay visible where a knob made no difference.
        for row in sorted(self.rows, key=lambda r: not r["knobs"]):
            x, y = self.place(row)
            yield mark(row["rule"], x, y, colours[row["trace"]], bool(row["knobs"]),
                       f"{label(row)}: {row['ms']:.1f} ms, {row[self.key]:.1f} MiB")


def legend(colours, width):
    x = LEFT
    for trace, colour in colours.items():
        yield f'<rect x="{x}" y="28" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 17}" y="38">{escape(trace)}</text>'
        x += 32 + 7 * len(trace)
    x = max(x + 10, width - 430)
    for rule in RULES:
        yield mark(rule, x, 34, "#444444", False, rule)
        yield f'<text x="{x + 9}" y="38">{rule}</text>'
        x += 24 + 7 * len(rule)
    yield mark("high-water", x, 34, "#444444", True, "a knob changed")
    yield f'<text x="{x + 9}" y="38">hollow: a knob changed</text>'


def draw(rows):
    traces = sorted({r["trace"] for r in rows})
    colours = {t: COLOURS[i % len(COLOURS)] for i, t in enumerate(traces)}
    panels = [Panel(rows, "peak_gap", "peak gap", LEFT),
              Panel(rows, "mean_gap", "mean gap", LEFT + PANEL_WIDTH + BETWEEN)]
    width = LEFT + 2 * PANEL_WIDTH + BETWEEN + 20
    height = TOP + PANEL_HEIGHT + BELOW
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">')
    yield ("<style>.grid{stroke:#e4e4e4}.frame{fill:none;stroke:#666}"
           ".front{stroke-width:1.4;stroke-opacity:.45}</style>")
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield (f'<text x="{LEFT}" y="18" font-size="14" font-weight="bold">Gap against driver time, '
           "by gap rule, limit and extent sizes</text>")
    yield from legend(colours, width)
    for panel in panels:
        yield from panel.axes()
        yield from panel.marks(colours)
    yield "</svg>"


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    rows = read(sys.argv[1])
    if not rows:
        print(f"{sys.argv[1]}: no rows", file=sys.stderr)
        return 1
    with open(sys.argv[2], "w") as out:
        out.write("\n".join(draw(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
