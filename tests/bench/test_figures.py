#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documents say what bench/results says, and a number that somebody edits
by hand is found: every digit of every table between marks, and of every sentence
that is held against the results.

    python3 tests/bench/test_figures.py PROJECT
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom

PROJECT = pathlib.Path(sys.argv[1]).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(PROJECT / "bench"))
import figures  # noqa: E402

bad = []


def expect(good, what):
    if not good:
        bad.append(what)


def program(*words):
    return subprocess.run([sys.executable, "-B", PROJECT / "bench/figures.py", *words],
                          capture_output=True, text=True, check=False)


def other_digits(text, spans):
    """The text with one digit changed, for each number within the spans."""
    for begin, end in spans:
        for match in re.finditer(r"\d[\d,.]*", text[begin:end]):
            at = begin + match.start()
            digit = str((int(text[at]) + 1) % 10)
            yield match.group(), text[:at] + digit + text[at + 1:]


def hand_edits(root):
    """Changes every checked number in turn; each change must be found."""
    edits = 0
    for name in figures.DOCUMENTS:
        path = root / name
        text = path.read_text()
        spans = [m.span(4) for m in figures.MARKED.finditer(text)]
        for document, claim in figures.claims_of(root):
            if document == name and claim in text:
                spans.append((text.index(claim), text.index(claim) + len(claim)))
        for number, changed in other_digits(text, spans):
            path.write_text(changed)
            expect(list(figures.differences(root)), f"{name}: {number} was edited unnoticed")
            edits += 1
        path.write_text(text)
    return edits


def copy_of_documents(root):
    for name in figures.DOCUMENTS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, root / name)
    shutil.copytree(PROJECT / "bench/results", root / "bench/results")


def row(name, unit, samples):
    ordered = sorted(samples)
    return {"name": name, "unit": unit, "median": ordered[len(ordered) // 2], "min": ordered[0],
            "max": ordered[-1], "samples": samples}


def made_up_results(folder):
    """Results as run_peers.sh leaves them, with numbers that mean nothing."""
    folder.mkdir(parents=True)
    units = {name: unit.replace("µ", "u") for _, name, unit in figures.SHORT}
    for size in (512, 65536, 2 << 20, 32 << 20):
        units[f"pair/{size}"] = "ns"
    peers = []
    for i, allocator in enumerate(figures.NAMES):
        rows = [row(name, unit, [11.5 * (i + k + 1), 9.25 * (i + k + 1), 10.0 * (i + k + 1)])
                for k, (name, unit) in enumerate(units.items())]
        peers.append({"allocator": allocator, "version": "0", "measurements": rows})
    peers.append({"allocator": "none", "measurements": []})
    replays = [{"allocator": a, "trace": f"bench/traces/{t}.vrpt", "trace_events": 10, "events": 10,
                "recorded_s": 50.0, "complete": a != "cuda-malloc", "wall_s": 1.25,
                "inside_ms": 100.0 + i, "peak_requested_bytes": 1, "peak_reserved_bytes": 2,
                "peak_gap_mib": 12.0 + i, **({"driver_ms": 75.0} if a == "vrampool" else {})}
               for t in ("one", "two") for i, a in enumerate([*figures.NAMES, "none"])]
    (folder / "peers.json").write_text(json.dumps({"allocators": peers}))
    (folder / "replays.json").write_text(json.dumps({
        "replays": replays,
        "agreement": [{"trace": "bench/traces/one.vrpt", "compared": ["a", "b"], "different": {}}]}))
    (folder / "instructions.json").write_text(json.dumps({
        "pairs": [{"bytes": 512, "library_per_pair": 81.5, "total_per_pair": 99.0}]}))


def new_tables(root):
    """Every kind of table is written, agrees, and is guarded from then on."""
    made_up_results(root / "bench/results/made-up")
    path = root / "README.md"
    kinds = [k for k in figures.KINDS if k != "sim"]
    marks = "".join(f"<!-- figures: {k} bench/results/made-up -->\n<!-- end of figures -->\n\n"
                    for k in kinds)
    path.write_text(path.read_text() + "\n" + marks)
    expect(program("--check", str(root)).returncode == 1, "empty tables passed")
    expect(program("--write", str(root)).returncode == 0, "the tables could not be written")
    expect(program("--check", str(root)).returncode == 0, "what was written does not agree")
    text = path.read_text()
    expect("| 1.25 s |" in text and "0.15 %" in text, "a replay's figures are missing")
    expect("(9.25 – 11.5)" in text, "the spread is missing")
    path.write_text(text.replace("<!-- end of figures -->", "", 1))
    expect(program("--check", str(root)).returncode == 1, "a mark that is not closed passed")
    path.write_text(text.replace("results/made-up", "results/none", 1))
    expect(program("--check", str(root)).returncode != 0, "a folder that is not there passed")
    path.write_text(text)


def pictures(root):
    drawn = subprocess.run([sys.executable, "-B", PROJECT / "bench/plot_peers.py",
                            root / "bench/results/made-up", root], check=False)
    expect(drawn.returncode == 0, "no pictures")
    for name in ("pairs", "replace", "threads", "gaps"):
        try:
            text = (root / f"{name}.svg").read_text()
            xml.dom.minidom.parseString(text)
            expect(text.count("<title>") > 2, f"{name}.svg shows nothing")
        except (OSError, ValueError) as error:
            bad.append(f"{name}.svg: {error}")


def main():
    checked = program("--check", str(PROJECT))
    expect(checked.returncode == 0, checked.stdout + checked.stderr)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        copy_of_documents(root)
        edits = hand_edits(root)
        expect(edits > 50, f"only {edits} numbers are checked")
        new_tables(root)
        more = hand_edits(root)
        expect(more > edits, "the new tables are not guarded")
        pictures(root)
    print("\n".join(bad) or f"{edits} figures in the documents are those of the results")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
