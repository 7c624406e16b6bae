#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CuPy's memory pool, measured from Python as its users call it: the loops of
`vrampool-bench peers`, and replays of traces. What the interpreter costs is
measured by the same loop around a call that does nothing, and stated apart.

    vrampool-bench peers --dump trace.steps --trace TRACE >trace.json
    python3 bench/cupy_pool.py OUT.json [--quick] [--seconds N] [trace.json trace.steps NAME]...

OUT.json holds one object for each measurement, as those of the other allocators.
"""

import array
import json
import operator
import sys
import threading
import time

MIB = 1 << 20
ALLOC, FREE, SYNCHRONISE = 0, 1, 2


def row(name, unit, samples, note=None):
    ordered = sorted(samples)
    n = len(ordered)
    middle = (ordered[n // 2] + ordered[(n - 1) // 2]) / 2 if n else None
    out = {"name": name, "unit": unit, "median": round(middle, 3) if n else None}
    if n:
        out.update(min=round(ordered[0], 3), max=round(ordered[-1], 3))
    if note:
        out["note"] = note
    out["samples"] = [round(s, 3) for s in samples]
    return out


def pair_loop(call, size, count):
    """Nanoseconds for a call and the end of what it returned."""
    began = time.perf_counter_ns()
    for _ in range(count):
        held = call(size)
        del held
    return (time.perf_counter_ns() - began) / count


def count_for(each_ns, sample_ns, least=20, most=1000000):
    return int(min(max(sample_ns / max(each_ns, 1), least), most))


class Twister:
    """std::mt19937_64, and sizes as std::uniform_real_distribution has them."""

    MASK = (1 << 64) - 1

    def __init__(self, seed):
        self.state = [seed]
        for i in range(1, 312):
            before = self.state[-1]
            self.state.append((6364136223846793005 * (before ^ (before >> 62)) + i) & self.MASK)
        self.at = 312

    def next(self):
        if self.at == 312:
            s = self.state
            for i in range(312):
                x = (s[i] & 0xFFFFFFFF80000000) | (s[(i + 1) % 312] & 0x7FFFFFFF)
                s[i] = s[(i + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
            self.at = 0
        x = self.state[self.at]
        self.at += 1
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return x ^ (x >> 43)

    def size(self, top):
        return int(2.0 ** (min(self.next() / 2.0**64, 1 - 2.0**-53) * (top - 9) + 9))


def pairs(cupy, pool, options):
    rows = []
    with cupy.cuda.Stream(non_blocking=True):
        for size in (512, 4096, 65536, MIB, 2 * MIB, 32 * MIB, 256 * MIB):
            each = pair_loop(pool.malloc, size, 200)
            count = count_for(each, options["sample_ns"])
            rows.append(row(f"pair/{size}", "ns", [pair_loop(pool.malloc, size, count)
                                                   for _ in range(options["repeat"])]))
        count = count_for(pair_loop(operator.index, 4096, 1000), options["sample_ns"])
        rows.append(row("interpreter/pair", "ns", [pair_loop(operator.index, 4096, count)
                                                   for _ in range(options["repeat"])],
                        "the same loop around an empty call; contained in the other rows"))
    pool.free_all_blocks()
    return rows


def churn(call, live, top, options):
    twister = Twister(1)
    sizes = [twister.size(top) for _ in range(1 << 16)]
    blocks = [call(sizes[i & 65535]) for i in range(live)]

    def run(steps):
        plan = [(twister.next() % live, sizes[twister.next() & 65535]) for _ in range(steps)]
        began = time.perf_counter_ns()
        for k, size in plan:
            blocks[k] = None
            blocks[k] = call(size)
        return (time.perf_counter_ns() - began) / steps

    steps = count_for(run(500), options["sample_ns"], 500, 50000)
    run(steps)
    return [run(steps) for _ in range(options["repeat"])]


def replace(cupy, pool, options):
    rows = []
    with cupy.cuda.Stream(non_blocking=True):
        for live, top in ((100, 20), (1000, 20), (10000, 20), (1000, 24)):
            name = f"replace/{live}/{1 << (top - 10)}KiB"
            rows.append(row(name, "ns", churn(pool.malloc, live, top, options)))
            pool.free_all_blocks()
        rows.append(row("interpreter/replace", "ns", churn(operator.index, 1000, 20, options),
                        "the same loop around an empty call; contained in the other rows"))
    return rows


def threads(cupy, pool, options):
    rows = []
    for number in (1, 2, 4, 8, 16):
        count = [100]

        def work(gate, spans, at):
            with cupy.cuda.Stream(non_blocking=True):
                pair_loop(pool.malloc, 4096, min(count[0], 1000))
                gate.wait()
                began = time.perf_counter_ns()
                pair_loop(pool.malloc, 4096, count[0])
                spans[at] = (began, time.perf_counter_ns())

        def once():
            gate = threading.Barrier(number)
            spans = [None] * number
            crew = [threading.Thread(target=work, args=(gate, spans, i)) for i in range(number)]
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()
            return (max(s[1] for s in spans) - min(s[0] for s in spans)) / count[0]

        count[0] = count_for(once(), options["sample_ns"], 100, 20000)
        rows.append(row(f"threads/{number}", "ns", [once() for _ in range(options["repeat"])],
                        "Python's threads take turns"))
        pool.free_all_blocks()
    return rows


def replay(cupy, about, path, name, options):
    """One thread plays all streams; the first byte of each block is written."""
    words = array.array("Q")
    with open(path, "rb") as file:
        words.frombytes(file.read())
    runtime = cupy.cuda.runtime
    pool = cupy.cuda.MemoryPool()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(about["streams"])]
    blocks = [None] * about["blocks"]
    requested = peak = most = inside = events = failures = samples = 0
    gap = 0
    current = None
    clock = time.perf_counter_ns
    began = clock()
    for at in range(0, len(words), 3):
        kind, stream = words[at] & 0xFFFFFFFF, words[at] >> 32
        block, size = words[at + 1], words[at + 2]
        if kind == SYNCHRONISE:
            runtime.deviceSynchronize()
            continue
        if size == 0:
            continue
        if stream != current:
            streams[stream].use()
            current = stream
        events += 1
        t = clock()
        if kind == ALLOC:
            try:
                held = pool.malloc(size)
            except cupy.cuda.memory.OutOfMemoryError:
                failures += 1
                continue
            inside += clock() - t
            blocks[block] = held
            requested += size
            peak = max(peak, requested)
            runtime.memsetAsync(held.ptr, 1, 1, streams[stream].ptr)
            del held
        elif blocks[block] is not None:
            blocks[block] = None
            inside += clock() - t
            requested -= size
        if events % 256 == 0:
            total = pool.total_bytes()
            most = max(most, total)
            gap += total - requested
            samples += 1
            if options["seconds"] and clock() - began > options["seconds"] * 1e9:
                break
    runtime.deviceSynchronize()
    wall = clock() - began
    most = max(most, pool.total_bytes())
    out = {"allocator": "cupy", "trace": name, "version": version(cupy),
           "trace_events": about["events"], "recorded_s": about["recorded_s"], "events": events,
           "complete": events >= about["events"], "streams": about["streams"], "threads": 1,
           "failures": failures, "wall_s": round(wall / 1e9, 3), "inside_ms": round(inside / 1e6, 3),
           "peak_requested_bytes": peak, "peak_reserved_bytes": most,
           "peak_reserved_by": "allocator, sampled",
           "peak_gap_mib": round((most - peak) / MIB, 3),
           "mean_gap_mib": round(gap / max(samples, 1) / MIB, 3),
           "reserved_at_end_bytes": pool.total_bytes(), "live_bytes_at_end": requested}
    t = clock()
    pool.free_all_blocks()
    out["empty_cache_us"] = round((clock() - t) / 1e3, 3)
    out["reserved_after_empty_bytes"] = pool.total_bytes()
    blocks.clear()
    cupy.cuda.Stream.null.use()
    pool.free_all_blocks()
    return out


def version(cupy):
    return f"CuPy {cupy.__version__}"


def main():
    words = sys.argv[1:]
    options = {"repeat": 7, "sample_ns": 50e6, "seconds": 0}
    if "--quick" in words:
        words.remove("--quick")
        options.update(repeat=3, sample_ns=5e6)
    if "--seconds" in words:
        at = words.index("--seconds")
        options["seconds"] = float(words[at + 1])
        del words[at:at + 2]
    out = {"measured": {"allocator": "cupy"}, "replays": []}
    try:
        import cupy
        cupy.cuda.runtime.getDevice()
    except Exception as error:  # whatever keeps it from being used is the answer
        out["measured"]["not_found"] = f"{type(error).__name__}: {error}"
        out["replays"] = [{"allocator": "cupy", "trace": name, "not_found": "see peers.json"}
                          for name in words[3::3]]
    else:
        pool = cupy.cuda.MemoryPool()
        out["measured"].update(version=version(cupy), measurements=[])
        for part in (pairs, replace, threads):
            out["measured"]["measurements"] += part(cupy, pool, options)
        for at in range(1, len(words), 3):
            with open(words[at]) as file:
                about = json.load(file)
            out["replays"].append(replay(cupy, about, words[at + 1], words[at + 2], options))
    with open(words[0], "w") as file:
        json.dump(out, file, indent=1)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
