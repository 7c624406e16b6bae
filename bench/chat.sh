#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The project's main job, from a fresh checkout: builds the release and replays
# a recorded chat with a 12-billion-parameter model through the pool, on a
# simulated device of 139 GiB, with the optimizer looking after every turn.
# Further arguments go to the replay: bash bench/chat.sh --compare-policies
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/packages.sh
need "${build_tools[@]}"

build=${VRAMPOOL_BUILD:-build/release}
log=$build.log
mkdir -p "$(dirname "$build")"
echo "building into $build"
{ cmake --preset release -B "$build" && cmake --build "$build" -j"$(nproc)"; } >"$log" 2>&1 ||
  { tail -40 "$log" >&2; exit 1; }
exec "$build/bench/vrampool-bench" replay bench/traces/gemma3_12b_chat.vrpt \
  --optimizer threshold=64MiB,interval=1,at=turn "$@"
