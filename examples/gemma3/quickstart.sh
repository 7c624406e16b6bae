#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a fresh checkout to a conversation: installs what is missing (Debian, Ubuntu),
# builds the release, gets Gemma-3 270M, and holds conversation.txt with it on a
# simulated device of 1 GiB whose gap the optimizer closes after every turn. On a
# terminal, a conversation with you follows.
#   bash examples/gemma3/quickstart.sh [--no-setup]
# --no-setup        installs and builds nothing; GEMMA3_BINARY names the program
# VRAMPOOL_BUILD    build folder (build/release)
# VRAMPOOL_GEMMA3_270M  the model file; GEMMA3_MODEL=tiny takes the small one of the tests
# GEMMA3_STATS      a file for the figures of the conversation, as JSON
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/examples/gemma3
build=${VRAMPOOL_BUILD:-$root/build/release}

setup=1
case ${1:-} in
'') ;;
--no-setup) setup=0 ;;
*)
  echo "usage: quickstart.sh [--no-setup]" >&2
  exit 2
  ;;
esac

if [ $setup = 1 ]; then
  # shellcheck source=../../tests/packages.sh
  source "$root/tests/packages.sh"
  need "${build_tools[@]}" python3=python3 '/usr/include/jansson.h=libjansson-dev' \
    '/usr/include/jpeglib.h=libjpeg-dev' '/usr/include/spng.h=libspng-dev'
  echo "== building into $build"
  mkdir -p "$(dirname "$build")"
  { cmake -S "$root" --preset release -B "$build" && cmake --build "$build" -j"$(nproc)" --target gemma3; } \
    >"$build.log" 2>&1 || { tail -40 "$build.log" >&2; exit 1; }
fi
gemma3=${GEMMA3_BINARY:-$build/examples/gemma3/gemma3}
[ -x "$gemma3" ] || { echo "no program at $gemma3" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
script=$here/conversation.txt
threshold=32MiB
model=
if [ "${GEMMA3_MODEL:-}" != tiny ]; then
  echo "== the model"
  if [ $setup = 1 ]; then
    model=$(bash "$here/fetch_model.sh") || model=
  else
    model=${VRAMPOOL_GEMMA3_270M:-$HOME/.cache/vrampool/gemma-3-270m-q4_k_m.gguf}
    [ -f "$model" ] || model=
  fi
fi
if [ -n "$model" ]; then
  echo "$model"
  echo "This is the base model, small and never taught to answer: it goes on with a dialogue."
  echo "Its use is subject to the Gemma Terms of Use, https://ai.google.dev/gemma/terms."
else
  model=$root/tests/golden/tiny-mm
  threshold=10MiB
  # A token is a byte there, and its context is shorter than the passage.
  cut -c1-2400 "$script" >"$dir/conversation.txt"
  script=$dir/conversation.txt
  echo "Gemma-3 270M is not at hand: this is the tiny model of the tests. Its weights are"
  echo "random, so what it says is noise; what its memory does is what there is to see."
fi

chat=("$gemma3" chat --model "$model" --device sim:1GiB --chunk 2048)
optimizer=threshold=$threshold,interval=1
cat <<T

== a conversation on a simulated device of 1 GiB, --optimizer $optimizer
After each turn: the three layers (weights, inference cache, temporary memory), what is
allocated, what the pool holds (reserved), the gap between them, and what the optimizer did
and why. The long passage needs much temporary memory: the step after it gives that back.

T
"${chat[@]}" --optimizer "$optimizer,idle=off" --script "$script" --temp 0 --max-tokens 24 --stats \
  --stats-json "${GEMMA3_STATS:-$dir/stats.json}"
python3 - "${GEMMA3_STATS:-$dir/stats.json}" <<'P'
import json, sys
run = json.load(open(sys.argv[1]))
steps = [turn["optimizer"] for turn in run["turns"]]
acted = [step for step in steps if step["acted"]]
print(f"""
== in short
{len(steps)} turns; the optimizer looked after each, left the gap alone {len(steps) - len(acted)} times and closed it {len(acted)} times,
giving back {sum(step["released_bytes"] for step in acted) / 2**20:.1f} MiB in {sum(step["cost_ns"] for step in acted) / 1e6:.2f} ms; {run["totals"]["trims_inside_turns"]} trims were made inside a turn.
After /clear the pool held {run["clears"][0]["reserved_after_bytes"] / 2**20:.1f} MiB for {run["weights_bytes"] / 2**20:.1f} MiB of weights; at the end the device held {run["end"]["device_bytes_left"]} bytes.""")
P

if [ -t 0 ] && [ -t 1 ]; then
  echo
  echo "== your turn: /help lists what can be typed, Ctrl-D ends"
  "${chat[@]}" --optimizer "$optimizer,idle=on"
fi
