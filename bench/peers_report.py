#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts the pieces of a run together, and reads results for tables.

    python3 bench/peers_report.py collect WORK OUT   peers.json, replays.json, table.txt
    python3 bench/peers_report.py text OUT           the table again
"""

import json
import pathlib
import sys

NAMES = {
    "vrampool": "vrampool",
    "torch": "PyTorch",
    "torch-expandable": "PyTorch, expandable segments",
    "cuda-async-max": "cudaMallocAsync, threshold max",
    "cuda-async-0": "cudaMallocAsync, threshold 0",
    "cuda-malloc": "cudaMalloc",
    "rmm-pool": "RMM pool",
    "rmm-arena": "RMM arena",
    "cupy": "CuPy",
}
ORDER = list(NAMES)

# What of a replay depends on a clock or on the device's kind.
CLOCKED = ("wall", "driver_", "host_bytes", "misuses", "decompress")
SETTINGS = ("trace", "device", "backing")


def load(path):
    path = pathlib.Path(path)
    if not path.exists():
        return None
    with open(path) as file:
        return json.load(file)


class Results:
    """The JSON of one folder, by name."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.micro = load(folder / "micro.json")
        self.peers = {a["allocator"]: a for a in (load(folder / "peers.json") or {}).get("allocators", [])}
        replays = load(folder / "replays.json") or {}
        self.agreement = replays.get("agreement", [])
        self.replays = {(pathlib.Path(r["trace"]).stem, r["allocator"]): r
                        for r in replays.get("replays", []) if "trace" in r}

    def row(self, allocator, name):
        for row in self.peers.get(allocator, {}).get("measurements", []):
            if row["name"] == name:
                return row
        return None

    def median(self, allocator, name):
        row = self.row(allocator, name)
        return row["median"] if row else None

    def allocators(self):
        return [a for a in ORDER if self.peers.get(a, {}).get("measurements")]

    def traces(self):
        return list(dict.fromkeys(trace for trace, _ in self.replays))

    def inside_ms(self, trace, allocator):
        """Time in the allocator's calls, without what measuring them takes."""
        replay = self.replays.get((trace, allocator), {})
        floor = self.replays.get((trace, "none"), {})
        if "inside_ms" not in replay:
            return None
        cost = floor.get("inside_ms", 0) / max(floor.get("events", 1), 1)
        return max(replay["inside_ms"] - cost * replay["events"], 0)


def agreement(work):
    """For each trace that was replayed both ways: which figures differ."""
    found = []
    for path in sorted(work.glob("gpu-*.json")):
        gpu, sim = load(path), load(work / path.name.replace("gpu-", "sim-"))
        if sim is None:
            continue
        keys = [k for k in gpu if not any(k.startswith(c) or c in k for c in CLOCKED)
                and k not in SETTINGS]
        # A count of allocations is one of placement, not of time.
        keys.append("driver_allocations")
        found.append({"trace": gpu["trace"], "compared": keys,
                      "different": {k: [gpu[k], sim.get(k)] for k in keys if gpu[k] != sim.get(k)},
                      "gpu": gpu, "sim": sim})
    return found


def collect(work, out):
    peers = load(work / "peers.json") or {"allocators": []}
    replays = load(work / "replays.json") or {"replays": []}
    cupy = load(work / "cupy.json")
    if cupy:
        peers["allocators"].append(cupy["measured"])
        replays["replays"] += cupy["replays"]
    for replay in replays["replays"]:
        if "trace" in replay:
            replay["trace"] = "bench/traces/" + pathlib.Path(replay["trace"]).name
    replays["agreement"] = agreement(work)
    for entry in replays["agreement"]:
        name = "bench/traces/" + pathlib.Path(entry["trace"]).name
        entry["trace"] = entry["gpu"]["trace"] = entry["sim"]["trace"] = name
    for name, value in (("peers.json", peers), ("replays.json", replays)):
        with open(out / name, "w") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
    (out / "table.txt").write_text(text(out))


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


# name in the table, measurement
LINES = [
    ("pair 512 B, ns", "pair/512"), ("pair 4 KiB, ns", "pair/4096"),
    ("pair 1 MiB, ns", "pair/1048576"), ("pair 2 MiB, ns", "pair/2097152"),
    ("pair 256 MiB, ns", "pair/268435456"), ("replace 1,000 live, ns", "replace/1000/1024KiB"),
    ("replace 10,000 live, ns", "replace/10000/1024KiB"), ("threads 16, ns", "threads/16"),
    ("handoff 4 KiB, ns", "handoff/4096"), ("  ring alone, ns", "handoff/ring_alone"),
    ("empty_cache host, us", "empty_cache/64x32MiB/host"),
    ("  2 GiB free, us", "empty_cache/64x32MiB/released"),
    ("  kernel slower, %", "empty_cache/64x32MiB/kernel_slower"),
    ("launch p99 quiet, us", "launch/quiet/p99"), ("launch p99 trims, us", "launch/trims/p99"),
    ("first touch 24 GiB, ms", "first_touch/24GiB"),
    ("host bytes a block", "host_memory/100000/resident"),
    ("interpreter, ns", "interpreter/pair"),
]


def columns(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))).rstrip()
                     for row in rows)


def text(folder):
    results = Results(folder)
    allocators = results.allocators()
    rows = [["median", *allocators]]
    for title, name in LINES:
        rows.append([title, *(number(results.median(a, name)) for a in allocators)])
    parts = [columns(rows)]
    for trace in results.traces():
        rows = [[trace, "gap MiB", "mean gap MiB", "inside ms", "wall s", "driver ms", "events"]]
        for allocator in ORDER + ["none"]:
            replay = results.replays.get((trace, allocator))
            if replay is None or "wall_s" not in replay:
                continue
            rows.append([allocator, number(replay.get("peak_gap_mib")),
                         number(replay.get("mean_gap_mib")),
                         number(results.inside_ms(trace, allocator)), f"{replay['wall_s']:.2f}",
                         number(replay.get("driver_ms")),
                         f"{replay['events']:,}" + ("" if replay["complete"] else " (cut)")])
        parts.append(columns(rows))
    for entry in results.agreement:
        different = entry["different"]
        parts.append(f"{entry['trace']}: " + (f"differs from the simulated device: {different}"
                                              if different else
                                              f"{len(entry['compared'])} figures as on the simulated device"))
    for allocator, entry in results.peers.items():
        for reason in ("not_found", "failed"):
            if reason in entry:
                parts.append(f"{allocator}: {reason.replace('_', ' ')}: {entry[reason]}")
    for (trace, allocator), replay in results.replays.items():
        if "failed" in replay:
            parts.append(f"{allocator}, {trace}: failed: {replay['failed']}")
    return "\n\n".join(parts) + "\n"


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "collect":
        collect(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    elif len(sys.argv) == 3 and sys.argv[1] == "text":
        sys.stdout.write(text(sys.argv[2]))
    else:
        sys.stderr.write(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
