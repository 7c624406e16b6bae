#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures in the documents are those of bench/results. Tables between

    <!-- figures: KIND FOLDER -->
    <!-- end of figures -->

are written from the JSON in FOLDER; sentences and tables without marks are held
against it by claims_of below.

    python3 bench/figures.py --check [ROOT]    fails where a document says something else
    python3 bench/figures.py --write [ROOT]    writes the tables between the marks
    python3 bench/figures.py KIND FOLDER       prints one table

Kinds: sim, peers-short, peers-full, peers-replays, peers-agreement, instructions.
"""

import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers_report import NAMES, ORDER, Results, load  # noqa: E402

DOCUMENTS = ["README.md", "docs/benchmarks.md"]
MIB, GIB = 1 << 20, 1 << 30
MARKED = re.compile(r"(<!-- figures: (\S+) (\S+) -->\n)(.*?)(<!-- end of figures -->)", re.S)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def short(value):
    """Three digits or so."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def mib(value):
    return f"{value / MIB:,.0f} MiB"


def gib(value):
    return f"{value / GIB:.1f} GiB"


def milliseconds(us):
    return f"{us / 1e3:.0f} ms" if us >= 10000 else f"{us / 1e3:.1f} ms"


# ---- Replays on the simulated device ----------------------------------------------------

SIM = [
    ("chat", "`--gap-limit high-water` (default)"),
    ("chat_limit_64MiB", "`--gap-limit 64MiB`"),
    ("chat_optimizer_turn", "`--optimizer threshold=64MiB,interval=1,at=turn`"),
    ("chat_malloc", "`--backing malloc --gap-limit off`"),
    ("train", "default"),
    ("streams_lag0", "`--lag 0`"),
    ("streams_lag64", "`--lag 64` (default)"),
    ("streams_lag1024", "`--lag 1024`"),
]


def sim(folder):
    rows = []
    for name, options in SIM:
        d = load(folder / f"{name}.json")
        time = milliseconds(d["driver_time_us"])
        if d["backing"] == "malloc":
            time += f", {d['driver_allocations']} allocations"
        rows.append([name, options, mib(d["peak_gap_bytes"]), mib(d["mean_gap_bytes"]), time,
                     str(d["cross_stream_waits"])])
    return table(["file", "options", "peak gap", "mean gap", "driver time",
                  "waits between streams"], rows)


# ---- Allocators side by side ----------------------------------------------------------------

SHORT = [
    ("pair, 4 KiB", "pair/4096", "ns"),
    ("pair, 1 MiB", "pair/1048576", "ns"),
    ("pair, 256 MiB", "pair/268435456", "ns"),
    ("random replace, 1,000 live", "replace/1000/1024KiB", "ns"),
    ("random replace, 10,000 live", "replace/10000/1024KiB", "ns"),
    ("pair, 4 KiB, 16 threads with a stream each", "threads/16", "ns"),
    ("allocated on one thread, freed on another", "handoff/4096", "ns"),
    ("2 GiB back while a kernel runs: the call", "empty_cache/64x32MiB/host", "µs"),
    ("until the driver has them", "empty_cache/64x32MiB/released", "µs"),
    ("launch of another thread meanwhile, p99", "launch/trims/p99", "µs"),
    ("24 GiB of weights, first touch", "first_touch/24GiB", "ms"),
]
SHORT_ALLOCATORS = ["vrampool", "torch", "cuda-async-max", "rmm-pool", "cuda-malloc"]
UNITS = {"us": "µs", "percent": "%", "per second": "/s"}


def present(results, allocators):
    return [a for a in allocators if a in results.allocators()]


def peers_short(folder):
    results = Results(folder)
    allocators = present(results, SHORT_ALLOCATORS)
    rows = [[title] + [f"{short(value)} {unit}" if value is not None else "–"
                       for value in (results.median(a, name) for a in allocators)]
            for title, name, unit in SHORT]
    return table([""] + [NAMES[a] for a in allocators], rows)


def spread(row):
    if row is None or row["median"] is None:
        return "–"
    return f"{short(row['median'])} ({short(row['min'])} – {short(row['max'])})"


def peers_full(folder):
    """Every measurement of every allocator: medians, least and most in brackets."""
    results = Results(folder)
    allocators = results.allocators()
    names = {}
    for allocator in allocators:
        for row in results.peers[allocator]["measurements"]:
            if row["median"] is not None:
                names.setdefault(row["name"], row["unit"])
    rows = [[f"{name}, {UNITS.get(unit, unit)}"] + [spread(results.row(a, name)) for a in allocators]
            for name, unit in names.items()]
    return table(["measurement"] + [NAMES[a] for a in allocators], rows)


def peers_replays(folder):
    results = Results(folder)
    rows = []
    for trace in results.traces():
        for allocator in ORDER:
            r = results.replays.get((trace, allocator))
            if r is None or "wall_s" not in r:
                continue
            gap = r.get("peak_gap_mib")
            driver = r.get("driver_ms")
            share = "–" if driver is None else f"{driver / r['recorded_s'] / 10:.2f} %"
            part = "" if r["complete"] else f" (the first {r['events']:,} of {r['trace_events']:,})"
            rows.append([trace, NAMES[allocator] + part,
                         "–" if gap is None else f"{gap:,.0f} MiB",
                         f"{short(results.inside_ms(trace, allocator))} ms", f"{r['wall_s']:.2f} s",
                         share])
    return table(["trace", "allocator", "peak reserved − peak requested", "in its calls",
                  "whole replay", "driver calls, of the recorded time"], rows)


def peers_agreement(folder):
    rows = []
    for entry in Results(folder).agreement:
        rows.append([pathlib.Path(entry["trace"]).stem, str(len(entry["compared"])),
                     ", ".join(entry["different"]) or "none"])
    return table(["trace", "figures compared", "that differ"], rows)


def instructions(folder):
    d = load(folder / "instructions.json")
    rows = [[f"{row['bytes']:,} bytes", short(row["library_per_pair"]), short(row["total_per_pair"])]
            for row in d["pairs"]]
    return table(["pair", "instructions in the library", "with the loop around it"], rows)


KINDS = {"sim": sim, "peers-short": peers_short, "peers-full": peers_full,
         "peers-replays": peers_replays, "peers-agreement": peers_agreement,
         "instructions": instructions}


# ---- Sentences ---------------------------------------------------------------------------------


def claims_of(root):
    """What documents say outside of marked tables: (document, text that it holds)."""
    found = root / "bench/results/2026-12-01-sim"
    chat, train, lag = (load(found / f"{n}.json") for n in ("chat", "train", "streams_lag64"))
    for title, d, torch in (
            ("chat: Gemma-3 12B, images, 16 turns", chat, "718 MiB | 203 MiB"),
            ("training: Gemma-3 270M, 40 steps", train, "31,800 MiB | 353 MiB"),
            ("three models, a stream each, lag 64", lag, "2,140 MiB | 863 MiB")):
        yield "README.md", (f"| {title} | {gib(d['peak_requested_bytes'])} | "
                            f"{mib(d['peak_gap_bytes'])} | {milliseconds(d['driver_time_us'])} | "
                            f"{torch} |")
    turn = load(found / "chat_optimizer_turn.json")
    yield "docs/benchmarks.md", ("the largest gap right after a step is "
                                 f"{mib(turn['max_gap_after_step_bytes'])}")

    rounds = load(root / "bench/results/2026-12-01-gemma3-cpu/llama.json")["rounds"]

    def samples(program, what):
        values = [r[program][what] for r in rounds]
        return [v["median"] if isinstance(v, dict) else v for v in values]

    middle = {(p, w): statistics.median(samples(p, w)) for p in ("gemma3", "llama")
              for w in ("prefill_tokens_s", "decode_tokens_s")}
    ours, theirs = middle["gemma3", "decode_tokens_s"], middle["llama", "decode_tokens_s"]
    first, other = middle["gemma3", "prefill_tokens_s"], middle["llama", "prefill_tokens_s"]
    yield "README.md", (f"decode {ours:.0f} tokens/s ({ours / theirs:.1f} times its {theirs:.0f}), "
                        f"prefill {first:,.0f} tokens/s ({first / other:.1f} times its {other:.0f})")

    perplexity = load(root / "bench/results/2026-12-01-gemma3-cpu/llama.json")["perplexity"]
    a, b, exact = (perplexity[k]["perplexity"] for k in ("gemma3_int8", "llama", "gemma3_float32"))
    yield "README.md", f"perplexity {a:.2f} ({b:.2f})"
    yield "docs/benchmarks.md", (f"| perplexity of `tests/golden/perplexity.txt` | {a:.2f} | "
                                 f"{b:.2f} | {a / b:.3f} |")
    yield "docs/benchmarks.md", f"With float32 products it is {exact:.2f}"

    def cell(program, what, digits):
        s = samples(program, what)
        return (f"{statistics.median(s):,.{digits}f}", f"({min(s):,.{digits}f} – {max(s):,.{digits}f})")

    for title, what, digits in (("prefill of 512 tokens", "prefill_tokens_s", 0),
                                ("decode at 512 to 640 positions", "decode_tokens_s", 1)):
        a, spread_a = cell("gemma3", what, digits)
        b, spread_b = cell("llama", what, digits)
        ratio = middle["gemma3", what] / middle["llama", what]
        yield "docs/benchmarks.md", (f"| {title} | {a} tokens/s {spread_a} | {b} {spread_b} | "
                                     f"{ratio:.1f} |")


# ---- Documents ------------------------------------------------------------------------------------


def rewritten(root, text):
    """The document with its tables as the results have them."""

    def again(match):
        kind, folder = match.group(2), root / match.group(3)
        if kind not in KINDS or not folder.is_dir():
            raise ValueError(f"figures: {kind} {match.group(3)}: no such kind or folder")
        return match.group(1) + KINDS[kind](folder) + match.group(5)

    return MARKED.sub(again, text)


def differences(root):
    for name in DOCUMENTS:
        path = root / name
        text = path.read_text()
        if text.count("<!-- figures:") != len(MARKED.findall(text)):
            yield f"{name}: a mark of figures is not closed"
        new = rewritten(root, text)
        for old_line, new_line in zip(text.splitlines(), new.splitlines()):
            if old_line != new_line:
                yield f"{name}: {old_line}\n  the results say: {new_line}"
        if len(text.splitlines()) != len(new.splitlines()):
            yield f"{name}: a table has other rows than the results"
    for name, text in claims_of(root):
        if text not in (root / name).read_text():
            yield f"{name}: the results say: {text}"


def main():
    words = sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parent.parent
    if len(words) == 2 and words[0] in KINDS:
        sys.stdout.write(KINDS[words[0]](pathlib.Path(words[1])))
        return 0
    if not words or words[0] not in ("--check", "--write") or len(words) > 2:
        sys.stderr.write(__doc__)
        return 2
    root = pathlib.Path(words[1]) if len(words) == 2 else root
    if words[0] == "--write":
        for name in DOCUMENTS:
            path = root / name
            path.write_text(rewritten(root, path.read_text()))
        return 0
    found = list(differences(root))
    print("\n".join(found) or "the documents say what the results say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
