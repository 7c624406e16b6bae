#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares what the headers declare, what the symbol map lists and what the
shared library exports; and checks the library's SONAME and thread-locals."""

import argparse
import pathlib
import re
import subprocess
import sys

# Headers of targets that are libraries of their own.
OTHER_LIBRARIES = {"trace.h"}
# A library that is loaded at run time gets its initial-exec thread-locals from
# a small reserve of the C library, which others want a part of too.
TLS_BYTES_MAX = 1024


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def declared(folder):
    names = set()
    for header in sorted(folder.glob("*.h")):
        if header.name in OTHER_LIBRARIES:
            continue
        text = without_comments(header.read_text())
        for declaration in re.findall(r"^VRP_API\b([^;]*);", text, flags=re.M):
            names.add(re.search(r"\b(vrp_\w+)\s*\(", declaration).group(1))
    return names


def mapped(path):
    text = without_comments(path.read_text())
    names, nodes = set(), []
    for node, body in re.findall(r"(VRAMPOOL_[\d.]+)\s*\{(.*?)\}", text, flags=re.S):
        nodes.append(node)
        exported = body.split("local:")[0].replace("global:", "")
        names.update(name.strip() for name in exported.split(";") if name.strip())
    return names, nodes


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    names = set()
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        fields = line.split()
        if fields[-2] != "A":  # "A" is the name of a version node
            names.add(fields[-1].split("@")[0])
    return names


def main():
    parser = argparse.ArgumentParser()
    for name in ("--library", "--map", "--headers"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()

    bad = []

    def same(what, left, right):
        bad.extend(f"{what[0]} but not {what[1]}: {name}" for name in sorted(left - right))
        bad.extend(f"{what[1]} but not {what[0]}: {name}" for name in sorted(right - left))

    in_headers = declared(pathlib.Path(arguments.headers))
    in_map, nodes = mapped(pathlib.Path(arguments.map))
    in_library = exported(arguments.library)
    same(("in a header", "in the map"), in_headers, in_map)
    same(("exported", "in the map"), in_library, in_map)
    if not in_library:
        bad.append("the library exports nothing")

    dynamic = run("readelf", "-dW", arguments.library)
    if not re.search(r"SONAME.*\[libvrampool\.so\.\d+\]", dynamic):
        bad.append("no SONAME libvrampool.so.MAJOR")
    for needed in re.findall(r"NEEDED.*\[(.*?)\]", dynamic):
        if not re.match(r"(libc|libpthread|libdl|librt|ld-linux.*)\.so", needed):
            bad.append(f"needs {needed} at run time")
    for size in re.findall(r"^\s*TLS\s+(?:0x\w+\s+){4}(0x\w+)",
                           run("readelf", "-lW", arguments.library), flags=re.M):
        if int(size, 16) > TLS_BYTES_MAX:
            bad.append(f"{int(size, 16)} bytes of thread-locals, above {TLS_BYTES_MAX}")

    print("\n".join(bad) or f"{len(in_library)} functions, nodes {', '.join(nodes)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
