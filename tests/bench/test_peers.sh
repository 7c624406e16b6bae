#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The commands that measure, on the simulated device: what they say, what they
# write, and that an allocator that is missing or ends badly costs no other its
# results. No figure of a clock is judged here.
#   bash tests/bench/test_peers.sh BINARY PROJECT
# BENCH_TRACES: as for test_replay.sh.
set -uo pipefail
bench=$1
project=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
cases=0

bad() { echo "FAILED: $*"; failed=1; }

# run STATUS WORDS...: the program must end so.
run() {
  local want=$1 got
  shift
  cases=$((cases + 1))
  timeout 300 "$bench" "$@" >"$dir/out" 2>"$dir/err"
  got=$?
  [ "$got" = "$want" ] || { bad "status $got, not $want: $*"; head -3 "$dir/err"; }
}
says() { grep -qF -- "$1" "$dir/err" || bad "no \"$1\" in: $(cat "$dir/err")"; }

# holds FILE 'CONDITION': python on the JSON object d; rows(d) by name.
holds() {
  python3 - "$1" "$2" <<'P' || bad "$2 in $1"
import json, sys
d = json.load(open(sys.argv[1]))
rows = lambda a: {r["name"]: r for r in a["measurements"]}
by = lambda d, key: {a["allocator"]: a for a in d[key]}
sys.exit(0 if eval(sys.argv[2]) else 1)
P
}

quick=(--device sim:64GiB --repeat 2 --sample-ms 1)

# ---- Usage ------------------------------------------------------------------------
run 2 micro --only
run 2 micro surprise
says surprise
run 2 micro --repeat 0
run 2 micro --device moon
run 2 peers
says "--json"
run 2 peers --replays-json "$dir/r.json"
says "--trace"
run 1 micro --only pair-many "${quick[@]}"
says many

# ---- The library alone ---------------------------------------------------------------
cat >"$dir/small.csv" <<T
# vram trace v2
a,1,1048576,0,0
a,2,3000000,0,10
m,load,0
f,1,5
a,3,512,1,1
a,5,0,1,1
m,turn,3
f,5,1
f,3,1
a,4,700,0,1
T
run 0 micro "${quick[@]}" --json "$dir/micro.json" --csv "$dir/micro.csv" --trace "$dir/small.csv" \
  --resident-replays 6
holds "$dir/micro.json" "{'pair/512', 'pair/268435456', 'replace/100/1024KiB', 'replace/10000/1024KiB', 'replace/1000/16384KiB', 'threads/16', 'handoff/4096', 'handoff/ring_alone', 'empty_cache/64x32MiB/host', 'empty_cache/1x2048MiB/released', 'empty_cache/2048x1MiB/host', 'launch/quiet/p99', 'launch/trims/p99', 'first_touch/24GiB', 'host_memory/100000/counted', 'replays/resident'} <= set(rows(d))"
holds "$dir/micro.json" "all(len(r['samples']) == 2 for n, r in rows(d).items() if n.split('/')[0] in ('pair', 'replace', 'threads', 'handoff', 'first_touch'))"
holds "$dir/micro.json" "all(r['min'] <= r['median'] <= r['max'] and min(r['samples']) == r['min'] and max(r['samples']) == r['max'] for r in d['measurements'] if r['samples'])"
holds "$dir/micro.json" "all(r['samples'] or r['note'] for r in d['measurements'])"
holds "$dir/micro.json" "len(rows(d)['replays/resident']['samples']) == 6 and len(rows(d)['replays/growth_after_fifth']['samples']) == 1"
python3 - "$dir/micro.csv" "$dir/micro.json" <<'P' || bad "the CSV is not the JSON"
import csv, json, sys
table = list(csv.DictReader(open(sys.argv[1])))
rows = [r for r in json.load(open(sys.argv[2]))["measurements"] if r["samples"]]
same = [(t["name"], float(t["median"]), [float(s) for s in t["samples"].split()]) for t in table] == \
    [(r["name"], r["median"], r["samples"]) for r in rows]
sys.exit(0 if same and len(rows) > 20 else 1)
P
run 0 micro --only pair-4096 --pairs 1000 --device sim:8GiB --json "$dir/pairs.json"
holds "$dir/pairs.json" "list(rows(d)) == ['pair/4096'] and len(d['measurements'][0]['samples']) == 1"

# ---- Allocators ------------------------------------------------------------------------
# A library that is no library, with a reason beside it; only GPUs get that far.
mkdir "$dir/adaptors"
echo nonsense >"$dir/adaptors/torch.so"
echo "it was not to be had" >"$dir/adaptors/torch.so.why"
run 0 peers "${quick[@]}" --only pair,handoff --json "$dir/peers.json" --adaptors "$dir/adaptors" \
  --replays-json "$dir/replays.json" --trace "$dir/small.csv"
holds "$dir/peers.json" "set(by(d, 'allocators')) == {'vrampool', 'cuda-malloc', 'cuda-async-0', 'cuda-async-max', 'torch', 'torch-expandable', 'rmm-pool', 'rmm-arena', 'none'}"
holds "$dir/peers.json" "[a for a, x in by(d, 'allocators').items() if 'measurements' in x] == ['vrampool', 'none']"
holds "$dir/peers.json" "all('not_found' in x for x in d['allocators'] if 'measurements' not in x)"
holds "$dir/peers.json" "set(rows(by(d, 'allocators')['none'])) == set(rows(by(d, 'allocators')['vrampool'])) and 'handoff/4096' in rows(d['allocators'][0])"
holds "$dir/replays.json" "len(d['replays']) == 9 and all(r['trace'].endswith('small.csv') for r in d['replays'])"
v="by(d, 'replays')['vrampool']"
holds "$dir/replays.json" "${v}['events'] == ${v}['trace_events'] == 6 and ${v}['complete'] and ${v}['failures'] == 0"
holds "$dir/replays.json" "${v}['streams'] == 2 and ${v}['threads'] == 2"
holds "$dir/replays.json" "4048576 <= ${v}['peak_requested_bytes'] <= 4049088 and ${v}['live_bytes_at_end'] == 3000700"
holds "$dir/replays.json" "${v}['peak_reserved_bytes'] >= 4048576 and ${v}['peak_reserved_by'] == 'allocator' and abs(${v}['peak_gap_mib'] - (${v}['peak_reserved_bytes'] - ${v}['peak_requested_bytes']) / 1048576) < 0.001"
holds "$dir/replays.json" "${v}['driver_calls'] == sum(c['calls'] for c in ${v}['driver_calls_by_name'].values()) > 0 and ${v}['driver_ms'] >= 0"
holds "$dir/replays.json" "'peak_reserved_bytes' not in by(d, 'replays')['none'] and by(d, 'replays')['none']['events'] == 6"

# A request that the device cannot serve is counted, and its free passed over.
printf '# vram trace v2\na,1,%d,0,0\na,2,512,0,0\nf,1,1\n' $((1 << 40)) >"$dir/big.csv"
run 0 peers --device sim:1GiB --replays-json "$dir/big.json" --trace "$dir/big.csv" \
  --allocators vrampool
holds "$dir/big.json" "d['replays'][0]['failures'] == 1 and d['replays'][0]['live_bytes_at_end'] == 512"
# A trace that breaks off ends its own child alone.
printf '# vram trace v2\na,1,512,0,0\nf,7,1\n' >"$dir/bad.csv"
run 0 peers --device sim:1GiB --replays-json "$dir/bad.json" --trace "$dir/bad.csv" \
  --trace "$dir/small.csv" --allocators vrampool
holds "$dir/bad.json" "'failed' in d['replays'][0] and d['replays'][1]['events'] == 6"

# ---- Steps for programs in other languages, and CuPy where it is not --------------------------
run 0 peers --dump "$dir/small.steps" --trace "$dir/small.csv"
cp "$dir/out" "$dir/small.steps.json"
holds "$dir/small.steps.json" "d['steps'] == 10 and d['events'] == 6 and d['streams'] == 2 and d['blocks'] == 5"
[ "$(stat -c %s "$dir/small.steps")" = 240 ] || bad "a step is not 24 bytes"
python3 -B "$project/bench/cupy_pool.py" "$dir/cupy.json" "$dir/small.steps.json" "$dir/small.steps" \
  "$dir/small.csv" || bad "cupy_pool.py fails where there is no GPU"
holds "$dir/cupy.json" "'not_found' in d['measured'] or 'measurements' in d['measured']"

# ---- The whole script --------------------------------------------------------------------------
if [ -n "${BENCH_TRACES:-}" ]; then
  VRAMPOOL_BENCH=$bench timeout 300 bash "$project/bench/run_peers.sh" "$dir/all" --quick \
    --device sim:139GiB --commit 0123abc --adaptors "$dir/adaptors" >"$dir/out" 2>"$dir/err" ||
    { bad "run_peers.sh: $(tail -5 "$dir/err")"; }
  for file in environment.json micro.json micro.csv peers.json replays.json table.txt; do
    [ -s "$dir/all/$file" ] || bad "run_peers.sh: no $file"
  done
  holds "$dir/all/environment.json" "d['commit'] == '0123abc' and d['cores'] > 0 and '/tmp' not in d['command']"
  holds "$dir/all/replays.json" "len(d['agreement']) == 2 and all(not a['different'] and len(a['compared']) > 15 for a in d['agreement'])"
  holds "$dir/all/replays.json" "{r['trace'] for r in d['replays']} == {'bench/traces/gemma3_12b_chat.vrpt', 'bench/traces/gemma3_270m_train.vrpt', 'bench/traces/three_models_streams.vrpt'}"
  holds "$dir/all/replays.json" "all(r['complete'] and r['failures'] == 0 and r['events'] == r['trace_events'] for r in d['replays'] if 'wall_s' in r)"
  grep -q "vrampool" "$dir/all/table.txt" || bad "run_peers.sh: no table"
fi

echo "$cases runs of the commands that measure"
exit $failed
