#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The README's snippet is the code of examples/hello; links between documents
lead somewhere; docs/tuning.md names every knob with its default."""

import pathlib
import re
import sys


def squeezed(code):
    return [" ".join(line.split()) for line in code.strip().splitlines() if line.strip()]


def main():
    root = pathlib.Path(sys.argv[1])
    bad = []

    readme = (root / "README.md").read_text()
    hello = (root / "examples/hello/hello.c").read_text()
    snippet = re.search(r"```c\n(.*?)```", readme, flags=re.S)
    marked = re.search(r"/\* README: begin \*/(.*?)/\* README: end \*/", hello, flags=re.S)
    if not snippet or not marked or squeezed(snippet.group(1)) != squeezed(marked.group(1)):
        bad.append("README.md: the snippet is not that of examples/hello/hello.c")

    documents = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]
    for document in documents:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
            if not target.startswith("http") and not (document.parent / target).exists():
                bad.append(f"{document.relative_to(root)}: leads nowhere: {target}")

    tuning = (root / "docs/tuning.md").read_text()
    knobs = (root / "include/vrampool/knobs.h").read_text()
    for name, preset in re.findall(r"X\((\w+), \d+, \w+, \w+, (\w+),", knobs):
        if not re.search(rf"\|\s*`{name}`\s*\|\s*{preset}\b", tuning):
            bad.append(f"docs/tuning.md: no row for {name} with its default {preset}")

    print("\n".join(bad) or f"{len(documents)} documents agree with the sources")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
