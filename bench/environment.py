#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what a run of the benchmarks has to say about its machine.

    python3 bench/environment.py OUT.json --commit HASH [--adaptors FOLDER] [--command TEXT]
"""

import datetime
import glob
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys


def output(*words):
    """The first line that a command prints; None where it cannot be run."""
    try:
        text = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return text.strip()


def gpu():
    names = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.mem",
             "power.limit", "persistence_mode", "ecc.mode.current"]
    line = output("nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader")
    if line is None:
        return None
    return dict(zip(names, (part.strip() for part in line.splitlines()[0].split(","))))


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read()
    except OSError:
        return None
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    return model.group(1) if model else None


def packages(adaptors):
    found = {}
    for name in ("torch", "cupy-cuda13x", "librmm-cu13", "rapids-logger", "nvidia-cuda-runtime"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    for info in glob.glob(os.path.join(adaptors or "", "wheels", "*.dist-info")) if adaptors else []:
        name, version = os.path.basename(info)[:-len(".dist-info")].rsplit("-", 1)
        found[name.replace("_", "-")] = version
    return found


def main():
    words = sys.argv[1:]

    def option(name):
        return words[words.index(name) + 1] if name in words else None

    nvcc = output("nvcc", "--version") or output("/usr/local/cuda/bin/nvcc", "--version") or ""
    release = re.search(r"release ([\d.]+)", nvcc)
    with open(words[0], "w") as file:
        json.dump({
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "commit": option("--commit"),
            "command": option("--command"),
            "gpu": gpu(),
            "cuda_toolkit": release.group(1) if release else None,
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "libc": " ".join(platform.libc_ver()),
            "python": platform.python_version(),
            "packages": packages(option("--adaptors")),
        }, file, indent=2)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
