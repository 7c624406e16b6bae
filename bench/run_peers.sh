#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that is measured on a GPU, in one go: the library alone, every
# allocator that is found, replays of the recorded workloads by each, and whether
# the library's figures on the GPU are those of the simulated device.
#   bash bench/run_peers.sh OUT [--quick] [--commit HASH] [--wheels FOLDER]
#                           [--device cuda:N] [--adaptors FOLDER] [--allocators NAME[,NAME]]
# Runs from a checkout after a release build, or from the folder that the target
# bench_bundle makes. OUT gets environment.json, micro.json, micro.csv,
# peers.json, replays.json and table.txt.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}

out=$1
shift
quick=() seconds=20 resident=20 commit=unknown wheels='' device=cuda:0 adaptors='' only=''
while [ $# -gt 0 ]; do
  case $1 in
  --quick) quick=(--quick) seconds=4 resident=3 ;;
  --commit) commit=$2 && shift ;;
  --wheels) wheels=$2 && shift ;;
  --device) device=$2 && shift ;;
  --adaptors) adaptors=$2 && shift ;;
  --allocators) only=$2 && shift ;;
  *) echo "run_peers.sh: \"$1\" is no option" >&2 && exit 2 ;;
  esac
  shift
done
command="bash bench/run_peers.sh OUT${quick[*]:+ ${quick[*]}}${only:+ --allocators $only}"
mkdir -p "$out" && out=$(cd "$out" && pwd)

for bench in "${VRAMPOOL_BENCH:-}" "$here/vrampool-bench" "$here/../build/release/bench/vrampool-bench"; do
  [ -x "$bench" ] && break
done
[ -x "$bench" ] || { echo "run_peers.sh: there is no vrampool-bench" >&2; exit 1; }
traces=("$here"/traces/gemma3_12b_chat.vrpt "$here"/traces/gemma3_270m_train.vrpt
  "$here"/traces/three_models_streams.vrpt)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# phase NAME COMMAND...: says what goes on; one that fails leaves the others to run.
failed=()
phase() {
  local name=$1 began=$SECONDS
  shift
  echo "== $name" >&2
  "$@" || { echo "== $name failed" >&2; failed+=("$name"); }
  echo "== $name: $((SECONDS - began)) s" >&2
}

if [ -z "$adaptors" ]; then
  adaptors=$work/adaptors
  phase "adaptors" bash "$here/build_adaptors.sh" "$adaptors" "$wheels"
fi
if [ -s "$adaptors/cudart.path" ]; then
  VRAMPOOL_BENCH_CUDART=$(cat "$adaptors/cudart.path")
  export VRAMPOOL_BENCH_CUDART
fi
phase "environment" "$python" "$here/environment.py" "$out/environment.json" --commit "$commit" \
  --adaptors "$adaptors" --command "$command"

phase "the library alone" "$bench" micro --device "$device" "${quick[@]}" --json "$out/micro.json" \
  --csv "$out/micro.csv" --trace "${traces[0]}" --resident-replays "$resident"

options=(--device "$device" --adaptors "$adaptors" --max-seconds "$seconds" "${quick[@]}")
for trace in "${traces[@]}"; do options+=(--trace "$trace"); done
[ -z "$only" ] || options+=(--allocators "$only")
phase "allocators" "$bench" peers "${options[@]}" --json "$work/peers.json" \
  --replays-json "$work/replays.json"

cupy_all() {
  local trace name words=()
  for trace in "${traces[@]}"; do
    name=$(basename "$trace" .vrpt)
    "$bench" peers --dump "$work/$name.steps" --trace "$trace" >"$work/$name.json"
    words+=("$work/$name.json" "$work/$name.steps" "$trace")
  done
  "$python" "$here/cupy_pool.py" "$work/cupy.json" "${quick[@]}" --seconds "$seconds" "${words[@]}"
}
case $device,$only in cuda*, | cuda*cupy*) phase "CuPy" cupy_all ;; esac

# Single-stream traces: with each event waited for, placement is that of the
# simulated device of the same size without lag.
agree() {
  local trace name bytes
  for trace in "${traces[0]}" "${traces[1]}"; do
    name=$(basename "$trace" .vrpt)
    "$bench" replay "$trace" --device "$device" --lag 0 --fast --json "$work/gpu-$name.json" \
      >/dev/null
    bytes=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["device_bytes"])' \
      "$work/gpu-$name.json")
    "$bench" replay "$trace" --device "sim:$bytes" --lag 0 --fast --json "$work/sim-$name.json" \
      >/dev/null
  done
}
phase "agreement with the simulated device" agree

phase "report" "$python" "$here/peers_report.py" collect "$work" "$out"
cat "$out/table.txt" 2>/dev/null || true
echo "$SECONDS s in all"
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
