#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""quickstart.sh with what is built already: the optimizer leaves the gap alone at some
turns' ends and closes it at another, and never trims inside a turn.
   test_quickstart.py PROGRAM SOURCE tiny|model"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

program, source, kind = sys.argv[1:4]
model = os.environ.get("VRAMPOOL_GEMMA3_270M") or os.path.expanduser("~/.cache/vrampool/gemma-3-270m-q4_k_m.gguf")
if kind == "model" and not os.path.exists(model):
    print("no model at", model)
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    figures = pathlib.Path(folder, "figures.json")
    environment = {**os.environ, "GEMMA3_BINARY": program, "GEMMA3_STATS": str(figures)}
    if kind == "tiny":
        environment.update(GEMMA3_MODEL="tiny", OMP_NUM_THREADS="1")
    done = subprocess.run(["bash", f"{source}/examples/gemma3/quickstart.sh", "--no-setup"], env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True)
    out = done.stdout.decode(errors="replace")
    print(out, done.stderr.decode(errors="replace"))
    assert done.returncode == 0, done.returncode
    run = json.loads(figures.read_text())

turns = run["turns"]
steps = [turn["optimizer"] for turn in turns]
acted = [step for step in steps if step["acted"]]
assert len(turns) >= 4 and all(turn["added"] and turn["new_tokens"] > 0 for turn in turns), turns
assert all(step["looked"] for step in steps), steps
assert len(acted) >= 1 and len(acted) < len(steps), steps
assert all(step["released_bytes"] > 0 and step["gap_after_bytes"] < step["threshold_bytes"] for step in acted), acted
assert run["totals"]["trims_inside_turns"] == 0 and run["totals"]["released_inside_turns_bytes"] == 0, run["totals"]
assert run["totals"]["retries"] == 0 and run["totals"]["refused"] == 0, run["totals"]
(clear,) = run["clears"]
assert clear["reserved_after_bytes"] <= clear["weights_bytes"] + (4 << 20), clear
assert turns[-1]["conversation"] == 2, turns[-1]
assert run["end"] == {"device_bytes_left": 0, "pool_check": "ok"}, run["end"]
assert "0 trims were made inside a turn" in out
assert ("random" in out) == (kind == "tiny")
assert run["device_bytes"] == 1 << 30
print("quick start behaved")
