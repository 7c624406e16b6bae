#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads the #includes and the calls of the sources and fails where an arrow of
docs/design/overview.md points up. First tries itself on lines that must fail."""

import pathlib
import re
import sys

# Folder -> what it may include besides its own folder and system headers.
ANY_PUBLIC = ["vrampool/"]
ALLOWED = {
    "src/platform": ["vrampool/status.h"],
    "src/driver": ["platform/"] + ANY_PUBLIC,
    "src/core": ["platform/"] + ANY_PUBLIC,
    "src/optimizer": ["platform/error.h", "platform/sync.h"] + ANY_PUBLIC,
    "src/trace": ["platform/error.h"] + ANY_PUBLIC,
    "bench": ANY_PUBLIC,
    "bench/adaptors": ["../adaptor.h"],
    "examples": ANY_PUBLIC,
}
# Folder -> what it must not include, whatever the list above says.
FORBIDDEN = {
    "src/core": ["vrampool/sim.h", "vrampool/cuda.h"],
}
# The Gemma-3 engine has folders of its own: what each may include from its
# brothers, by a path relative to itself. Libraries come in angle brackets.
GEMMA = "examples/gemma3"
GEMMA_ALLOWED = {
    "files": [],
    "text": ["files"],
    "image": ["files"],
    "kernels": ["files"],
    "engine": ["files", "text", "image", "kernels"],
    "app": ["files", "text", "image", "kernels", "engine"],
}
GEMMA_LIBRARIES = ("jansson.h", "jpeglib.h", "spng.h")
CUDA_HEADER = re.compile(r"^(cuda|cublas|nvml|driver_types|vector_types)")
CUDA_FOLDERS = ("src/driver", "tests/gpu", "examples", "bench/adaptors")

# Calls that a library must not make; `core` also knows no clock.
PRINTS = r"\b(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|exit|_exit|abort|signal|sigaction)\s*\("
CLOCKS = r"\b(clock_gettime|clock|gettimeofday|time|nanosleep|usleep|sleep|timespec_get)\s*\("
CALLS = {
    "src/core": [PRINTS, CLOCKS],
    "src/driver": [PRINTS],
    "src/optimizer": [PRINTS],
    "src/platform": [PRINTS],
    "src/trace": [PRINTS],
}


def code_of(text):
    """The text with comments and the insides of strings blanked, lines kept."""

    def blank(match):
        piece = match.group(0)
        if piece.startswith("/"):
            return re.sub(r"[^\n]", " ", piece)
        return piece[0] + " " * (len(piece) - 2) + piece[-1]

    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def includes_of(text):
    bare = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)
    for number, line in enumerate(bare.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


def check_include(folder, siblings, bracket, name):
    """Why a file of the folder may not include the name; None if it may."""
    if name in siblings:
        return None
    for prefix in FORBIDDEN.get(folder, []):
        if name.startswith(prefix):
            return f"{folder} may not include {name}"
    if CUDA_HEADER.match(name):
        return None if folder in CUDA_FOLDERS else f"a CUDA header in {folder}: {name}"
    if any(name == a or (a.endswith("/") and name.startswith(a)) for a in ALLOWED[folder]):
        return None
    if bracket == "<":
        return None  # the system's
    return f"{folder} may not include {name}"


def check_gemma_include(folder, bracket, name):
    """The same for a folder of the engine, "examples/gemma3/text"."""
    part = folder[len(GEMMA) + 1 :]
    if part not in GEMMA_ALLOWED:
        return f"{folder} is not one of the engine's folders"
    if CUDA_HEADER.match(name):
        return f"a CUDA header in {folder}: {name}"
    if name.startswith("vrampool/"):
        return None
    if bracket == "<":
        known = name in GEMMA_LIBRARIES or not re.search(r"jansson|jpeg|spng|png", name)
        return None if known else f"{folder} may not include {name}"
    if "/" not in name:
        return None  # its own folder's: the compiler finds no other
    match = re.fullmatch(r"\.\./(\w+)/\w+\.h", name)
    if match and match.group(1) in GEMMA_ALLOWED[part]:
        return None
    return f"{folder} may not include {name}"


def check_text(folder, siblings, text):
    for number, bracket, name in includes_of(text):
        if folder.startswith(GEMMA):
            why = check_gemma_include(folder, bracket, name)
        else:
            why = check_include(folder, siblings, bracket, name)
        if why:
            yield number, why
    for number, line in enumerate(code_of(text).splitlines(), 1):
        for pattern in CALLS.get(folder, []):
            found = re.search(pattern, line)
            # A declaration with a format attribute names printf and calls nothing.
            if found and "__attribute__" not in line:
                yield number, f"{folder} may not call {found.group(1)}"


def self_test():
    must_fail = [
        ("src/core", '#include "vrampool/sim.h"'),
        ("src/core", '#include "driver/sim.h"'),
        ("src/core", "#include <cuda.h>"),
        ("src/core", 'void f(void) { printf("x"); }'),
        ("src/core", "int f(void) { return time(0) != 0; }"),
        ("src/platform", '#include "core/core.h"'),
        ("src/optimizer", '#include "core/core.h"'),
        ("src/driver", '#include "core/core.h"'),
        ("bench", '#include "platform/sync.h"'),
        ("bench", "#include <cuda_runtime_api.h>"),
        ("bench/adaptors", '#include "../stage.h"'),
        ("bench/adaptors", '#include "vrampool/vrampool.h"'),
        ("examples", '#include "core/core.h"'),
        ("examples/gemma3/files", '#include "../text/tokenizer.h"'),
        ("examples/gemma3/files", '#include "../engine/model.h"'),
        ("examples/gemma3/text", '#include "../image/image.h"'),
        ("examples/gemma3/image", '#include "../kernels/ops.h"'),
        ("examples/gemma3/kernels", '#include "../text/tokenizer.h"'),
        ("examples/gemma3/engine", '#include "../app/chat.h"'),
        ("examples/gemma3/engine", '#include "../../../src/core/core.h"'),
        ("examples/gemma3/engine", '#include "core/core.h"'),
        ("examples/gemma3/app", '#include "files/error.h"'),
        ("examples/gemma3/app", '#include "../more/error.h"'),
        ("examples/gemma3/image", "#include <libpng/png.h>"),
        ("examples/gemma3/kernels", "#include <cuda.h>"),
        ("examples/gemma3/more", "#include <string.h>"),
        ("examples/gemma3", "#include <string.h>"),
    ]
    must_pass = [
        ("src/core", '#include "platform/sync.h"\n#include "vrampool/driver.h"\n#include <string.h>'),
        ("src/core", "/* printf( is not called */\nint snprintf_like(int);"),
        ("src/driver", "#include <cuda.h>"),
        ("bench/adaptors", '#include "../adaptor.h"\n#include <cuda_runtime_api.h>'),
        ("examples/gemma3/files", '#include "tensor.h"\n#include <jansson.h>'),
        ("examples/gemma3/kernels", '#include "../files/tensor.h"\n#include <immintrin.h>'),
        ("examples/gemma3/image", "#include <jpeglib.h>\n#include <spng.h>"),
        ("examples/gemma3/engine", '#include "../kernels/ops.h"\n#include <vrampool/vrampool.h>'),
        ("examples/gemma3/app", '#include "../engine/session.h"\n#include "../text/template.h"'),
    ]
    bad = [f"not found: {line}" for folder, line in must_fail
           if not list(check_text(folder, set(), line))]
    bad += [f"wrongly found: {line}" for folder, line in must_pass
            if list(check_text(folder, set(), line))]
    return bad


def main():
    root = pathlib.Path(sys.argv[1])
    bad = self_test()
    count = 0
    for folder in ALLOWED:
        files = [f for f in sorted((root / folder).rglob("*"))
                 if f.suffix in (".c", ".h", ".cu", ".cuh", ".cpp", ".hpp")
                 and root / GEMMA not in f.parents
                 and not any(str(p.relative_to(root)) in ALLOWED for p in f.parents
                             if root / folder in p.parents)]
        siblings = {f.name for f in files} | {f"{pathlib.Path(folder).name}/{f.name}" for f in files}
        siblings |= {str(f.relative_to(root / folder)) for f in files}
        for file in files:
            count += 1
            for number, why in check_text(folder, siblings, file.read_text()):
                bad.append(f"{file.relative_to(root)}:{number}: {why}")
    for file in sorted((root / GEMMA).rglob("*.[ch]")):
        count += 1
        for number, why in check_text(str(file.parent.relative_to(root)), set(), file.read_text()):
            bad.append(f"{file.relative_to(root)}:{number}: {why}")
    if count == 0:
        bad.append("no sources found")
    print("\n".join(bad) or f"{count} files keep to their layers")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
