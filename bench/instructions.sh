#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# How many instructions an alloc + free pair takes on the fast path, counted by
# callgrind: the same on every run and every machine, for one compiler. Two
# counts of pairs; what differs is what the pairs between them cost.
#   bash bench/instructions.sh [PROGRAM] [--json FILE]
# PROGRAM is vrampool-bench of a release build, where the library's functions are
# told from the loop's by the object that they are in.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=$here/build/release/bench/vrampool-bench
json=''
while [ $# -gt 0 ]; do
  case $1 in
  --json) json=$2 && shift ;;
  *) program=$1 ;;
  esac
  shift
done
command -v valgrind >/dev/null || { echo "instructions.sh: there is no valgrind" >&2; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

few=20000 many=120000
for bytes in 512 4096 1048576 2097152 33554432; do
  for pairs in "$few" "$many"; do
    valgrind --tool=callgrind --callgrind-out-file="$work/$bytes.$pairs" --compress-strings=no \
      "$program" micro --device sim:8GiB --only "pair-$bytes" --pairs "$pairs" \
      >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  done
done

python3 - "$work" "$few" "$many" "$json" <<'P'
import json, pathlib, re, sys

work, few, many = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def counts(path):
    """Instructions of the library, and of all, that each function itself took."""
    total = library = 0
    name = ""
    skip = False
    for line in path.read_text().splitlines():
        if line.startswith("ob="):
            name = line[3:]
        elif line.startswith("calls="):
            skip = True  # the next line is what the callee took
        elif re.match(r"^[+\-*\d]", line):
            if not skip:
                cost = int(line.split()[-1])
                total += cost
                library += cost if "libvrampool" in name else 0
            skip = False
    return library, total


rows = []
for path in sorted(work.glob(f"*.{few}"), key=lambda p: int(p.stem)):
    less, more = counts(path), counts(path.with_suffix(f".{many}"))
    per = [(b - a) / (many - few) for a, b in zip(less, more)]
    rows.append({"bytes": int(path.stem), "library_per_pair": round(per[0], 2),
                 "total_per_pair": round(per[1], 2)})
for row in rows:
    print(f"pair of {row['bytes']:>9} bytes: {row['library_per_pair']:8.1f} instructions in the "
          f"library, {row['total_per_pair']:8.1f} with the loop")
if sys.argv[4]:
    with open(sys.argv[4], "w") as file:
        json.dump({"pairs_counted": [few, many], "pairs": rows}, file, indent=2)
        file.write("\n")
P
