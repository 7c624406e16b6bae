#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# vrampool-bench as its users call it: exit statuses, messages, figures, JSON.
#   bash tests/bench/test_replay.sh BINARY [PROJECT]
# BENCH_TRACES names a folder of recorded traces; without it they are left out.
set -uo pipefail
bench=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -x "$bench" ] || { echo "no program at $bench"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
cases=0

bad() { echo "FAILED: $*"; failed=1; }

# run STATUS WORDS...: the program must end so. Output in $dir/out and $dir/err.
run() {
  local want=$1 got
  shift
  cases=$((cases + 1))
  timeout 300 "$bench" "$@" >"$dir/out" 2>"$dir/err"
  got=$?
  [ "$got" = "$want" ] || { bad "status $got, not $want: $*"; head -3 "$dir/err"; }
}

# says WORDS: the last run's messages hold them.
says() { grep -qF -- "$1" "$dir/err" || { bad "no \"$1\" in: $(cat "$dir/err")"; }; }

# holds FILE 'CONDITION': python on the JSON object d.
holds() {
  python3 - "$1" "$2" <<'P' || bad "$2 in $1"
import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)
P
}

# agree A B: the same figures but for those of a clock and the trace's name.
agree() {
  python3 - "$1" "$2" <<'P' || bad "$1 and $2 differ"
import json, sys
strip = lambda f: {k: v for k, v in json.load(open(f)).items()
                   if "wall" not in k and k != "trace"}
a, b = strip(sys.argv[1]), strip(sys.argv[2])
for k in a:
    if a[k] != b.get(k):
        print(k, a[k], b.get(k))
sys.exit(a != b)
P
}

head="# vram trace v2"
rmm="Thread,Time,Action,Pointer,Size,Stream"

# ---- Figures of a trace small enough to work them out by hand ---------------------
cat >"$dir/small.csv" <<T
$head
a,1,1048576,0,0
a,2,3000000,0,10
m,load,0
f,1,5
a,3,512,0,1
c,1,0
f,2,1
m,turn,3
f,3,1
a,4,0,0,1
T
run 0 replay "$dir/small.csv" --json "$dir/small.json"
holds "$dir/small.json" "d['events'] == 7 and d['failures'] == 0 and d['streams'] == 1"
holds "$dir/small.json" "d['peak_requested_bytes'] == 4048576 and d['misuses'] == 0"
holds "$dir/small.json" "d['peak_gap_bytes'] == d['peak_reserved_bytes'] - d['peak_requested_bytes']"
holds "$dir/small.json" "4096 < d['host_bytes_peak'] < 1 << 20"
holds "$dir/small.json" "d['peak_reserved_bytes'] >= d['peak_allocated_bytes'] >= d['peak_requested_bytes']"
holds "$dir/small.json" "set(d['gap_by_cause_at_peak']) == set(d['gap_by_cause_at_end']) == {'cached', 'pending', 'idle', 'pinned', 'slack'}"
holds "$dir/small.json" "sum(d['driver_calls_by_name'].values()) == d['driver_calls'] > 0 and d['driver_time_us'] > 0"
holds "$dir/small.json" "{'mean_gap_bytes', 'gap_limit_missed_bytes', 'cross_stream_waits', 'driver_allocations', 'steps', 'steps_acted', 'max_gap_after_step_bytes', 'released_bytes', 'wall_time_s'} <= set(d)"
holds "$dir/small.json" "d['backing'] == 'vmm' and d['gap_limit'] == 'high-water' and d['lag'] == 64"
grep -q "peak gap" "$dir/out" || bad "no table on standard output"

run 0 replay "$dir/small.csv" --json -
cp "$dir/out" "$dir/dash.json"
agree "$dir/small.json" "$dir/dash.json"
run 0 replay "$dir/small.csv" --fast --json "$dir/fast.json"
holds "$dir/fast.json" "d['misuses'] is None and d['peak_requested_bytes'] == 4048576"
run 0 replay "$dir/small.csv" --repeat 3 --json "$dir/three.json"
agree "$dir/small.json" "$dir/three.json"
run 0 replay "$dir/small.csv" --backing malloc --json "$dir/malloc.json"
holds "$dir/malloc.json" "d['gap_limit'] == 'off' and d['driver_calls_by_name']['cuMemAlloc'] == d['driver_allocations']"
gzip -k "$dir/small.csv"
run 0 replay "$dir/small.csv.gz" --json "$dir/gzip.json"
agree "$dir/small.json" "$dir/gzip.json"
run 0 convert "$dir/small.csv" "$dir/small.vrpt"
run 0 replay "$dir/small.vrpt" --json "$dir/compact.json"
agree "$dir/small.json" "$dir/compact.json"
run 0 replay "$dir/small.csv" --check-empty-cache 3 --json "$dir/points.json"
holds "$dir/points.json" "d['empty_cache_points'] == 3"
printf '%s\n' "$head" >"$dir/none.csv"
run 0 replay "$dir/none.csv" --json "$dir/none.json"
holds "$dir/none.json" "d['events'] == 0 and d['mean_gap_bytes'] == 0"

# ---- The optimizer's steps are the markers that `at` names -------------------------
{
  echo "$head"
  for i in 1 2 3; do
    echo "a,$i,268435456,0,0"; echo "f,$i,0"; echo "m,turn,0"; echo "m,request,0"; echo "m,step,0"
  done
  echo "m,clear,0"
} >"$dir/steps.csv"
for at in turn:4 step:3 request:3; do
  run 0 replay "$dir/steps.csv" --optimizer "threshold=1MiB,interval=1,at=${at%:*}" --json "$dir/steps.json"
  holds "$dir/steps.json" "d['steps'] == ${at#*:}"
done
run 0 replay "$dir/steps.csv" --optimizer threshold=1MiB,interval=2,at=turn --json "$dir/steps.json"
holds "$dir/steps.json" "d['steps'] == 4 and d['steps_acted'] == 2 and d['max_gap_after_step_bytes'] == 0 and d['released_bytes'] >= 2**29"
run 0 replay "$dir/steps.csv" --optimizer threshold=1GiB,interval=1,at=turn --json "$dir/steps.json"
holds "$dir/steps.json" "d['steps'] == 4 and d['steps_acted'] == 0 and d['max_gap_after_step_bytes'] >= 2**28"
for option in idle keep hysteresis pressure; do
  run 0 replay "$dir/steps.csv" --optimizer "threshold=1MiB,interval=1,at=turn,$option=on"
done
run 0 replay "$dir/steps.csv" --compare-policies --json "$dir/policies.json"
holds "$dir/policies.json" "[p['policy'] for p in d][0] == 'off' and len(d) == 7 and all('driver_time_us' in p for p in d)"
for policy in off classic keep idle hysteresis pressure; do
  grep -q "^$policy " "$dir/out" || bad "no row for $policy"
done

# ---- Streams are honoured -----------------------------------------------------------
# The same lines on one stream or on two: memory of a stream with work on it
# does not serve the other.
for other in 0 7; do
  cat >"$dir/stream$other.csv" <<T
$head
a,1,67108864,0,0
f,1,0
a,2,67108864,$other,0
f,2,0
T
  run 0 replay "$dir/stream$other.csv" --lag 1024 --gap-limit off --json "$dir/stream$other.json"
done
holds "$dir/stream0.json" "d['streams'] == 1 and d['cross_stream_waits'] == 0"
holds "$dir/stream7.json" "d['streams'] == 2 and d['misuses'] == 0"
[ "$(python3 -c "import json;a,b=(json.load(open('$dir/stream%d.json'%n)) for n in (0,7));print(a['peak_reserved_bytes']<b['peak_reserved_bytes'] or b['cross_stream_waits']>0)")" = True ] ||
  bad "two streams share memory as one would"
printf '%s\na,1,512,4294967295,0\nf,1,0\n' "$head" >"$dir/last.csv"
run 0 replay "$dir/last.csv"
printf '%s\na,1,512,4294967296,0\n' "$head" >"$dir/far.csv"
run 1 replay "$dir/far.csv"; says "far.csv:2"; says stream
printf '%s\na,18446744073709551615,512,0,0\nf,18446744073709551615,0\n' "$head" >"$dir/ids.csv"
run 0 replay "$dir/ids.csv"

# ---- Malformed traces: status 1, file, line, reason ---------------------------------
printf '%s\na,1,512,0,0\na,2,512,0,0\na,1,512,0,0\n' "$head" >"$dir/twice.csv"
run 1 replay "$dir/twice.csv"; says "twice.csv:4: id 1 is allocated twice"
printf '%s\na,1,512,0,0\nf,1,0\na,1,512,0,0\n' "$head" >"$dir/again.csv"
run 1 replay "$dir/again.csv"; says "again.csv:4: id 1 is allocated twice"
far=18446744073709551615
printf '%s\na,%s,512,0,0\nf,%s,0\na,%s,512,0,0\n' "$head" $far $far $far >"$dir/far_again.csv"
run 1 replay "$dir/far_again.csv"; says "far_again.csv:4: id $far is allocated twice"
printf '%s\n# a comment\na,1,512,0,0\nm,turn,0\nf,9,0\n' "$head" >"$dir/unknown.csv"
run 1 replay "$dir/unknown.csv"; says "unknown.csv:5: id 9 is freed but not allocated"
printf '%s\na,1,512,0,0\nf,1,0\nf,1,0\n' "$head" >"$dir/double.csv"
run 1 replay "$dir/double.csv"; says "double.csv:4: id 1"
printf '%s\na,1,512,0,0\nf,1' "$head" >"$dir/cut.csv"
run 1 replay "$dir/cut.csv"; says "cut.csv:3"; says "cut last line"
printf '%s\na,1,512,0,0\nr,1,1024,0\n' "$head" >"$dir/realloc.csv"
run 1 replay "$dir/realloc.csv"; says "realloc.csv:3"; says kind
printf '%s\na,1,-5,0,0\n' "$head" >"$dir/negative.csv"
run 1 replay "$dir/negative.csv"; says "negative.csv:2"; says bytes
head -c 100 "$dir/small.vrpt" >"$dir/short.vrpt"
run 1 replay "$dir/short.vrpt"; says short.vrpt
head -c 60 "$dir/small.csv.gz" >"$dir/short.csv.gz"
run 1 replay "$dir/short.csv.gz"; says short.csv.gz
echo "no trace" >"$dir/text"
run 1 replay "$dir/text"; says text

# ---- RMM's log -------------------------------------------------------------------------
cat >"$dir/rmm.csv" <<T
$rmm
1,12:00:00:000001,allocate,0x7000000000,1048576,0x0
1,12:00:00:000002,allocate,0x7000100000,2097152,0x5
1,12:00:00:000003,free,0x7000000000,1048576,0x0
1,12:00:00:000004,allocate,0x7000000000,524288,0x5
T
run 0 replay "$dir/rmm.csv" --json "$dir/rmm.json"
holds "$dir/rmm.json" "d['events'] == 4 and d['streams'] == 2 and d['peak_requested_bytes'] == 3145728"
holds "$dir/rmm.json" "d['live_blocks_at_end'] == 2"
{ cat "$dir/rmm.csv"; echo "1,12:00:00:000005,allocate failure,0x0,1099511627776,0x0"
  echo "1,12:00:00:000006,free,0x7000000000,524288,0x5"; } >"$dir/oom.csv"
run 3 replay "$dir/oom.csv" --json "$dir/oom.json"; says "oom.csv:6"
holds "$dir/oom.json" "d['recorded_failures'] == 1 and d['failures'] == 1 and d['events'] == 6"
sed -i 's/1099511627776/4096/' "$dir/oom.csv"
run 3 replay "$dir/oom.csv" --json "$dir/oom.json"; says "oom.csv:6"
holds "$dir/oom.json" "d['recorded_failures'] == 1 and d['failures'] == 0"
{ cat "$dir/rmm.csv"; echo "1,12:00:00:000005,free,0x7fff000000,64,0x0"; } >"$dir/stray.csv"
run 1 replay "$dir/stray.csv"; says "stray.csv:6"

# ---- Refused allocations: status 3, and the run goes on ------------------------------
printf '%s\na,1,1048576,0,0\na,2,17179869184,0,0\nf,2,0\na,3,1048576,0,0\n' "$head" >"$dir/big.csv"
run 3 replay "$dir/big.csv" --device sim:1GiB --json "$dir/big.json"; says "big.csv:3"
holds "$dir/big.json" "d['failures'] == 1 and d['events'] == 4 and d['peak_requested_bytes'] == 2097152"
run 0 replay "$dir/big.csv" --device sim:64GiB

# ---- Usage: status 2 and the word that was wrong ------------------------------------
t=$dir/small.csv
wrong() { run 2 "${@:2}"; says "$1"; }
wrong "no command"; wrong "\"play\"" play; wrong "no trace" replay
wrong "nosuch.csv" replay "$dir/nosuch.csv"
wrong "\"12XB\"" replay "$t" --gap-limit 12XB
wrong "\"1.5\"" replay "$t" --gap-limit 1.5
wrong "\"5mib\"" replay "$t" --gap-limit 5mib
wrong "\"-1\"" replay "$t" --lag -1
wrong "\"99999999999999TiB\"" replay "$t" --gap-limit 99999999999999TiB
wrong "\"139XiB\"" replay "$t" --device sim:139XiB
wrong "\"tpu:0\"" replay "$t" --device tpu:0
wrong "\"x\"" replay "$t" --device cuda:x
wrong "\"disk\"" replay "$t" --backing disk
wrong "\"0\"" replay "$t" --optimizer interval=0
wrong "\"much\"" replay "$t" --optimizer threshold=much
wrong "\"noon\"" replay "$t" --optimizer at=noon
wrong "\"colour\"" replay "$t" --optimizer colour=red
wrong "\"maybe\"" replay "$t" --optimizer keep=maybe
wrong "\"threshold\"" replay "$t" --optimizer threshold
wrong "\"NOSUCH\"" replay "$t" --knob NOSUCH=1
wrong "\"1\"" replay "$t" --knob EXTENT_LARGE_BYTES=1
wrong "\"0\"" replay "$t" --repeat 0
wrong "\"--frobnicate\"" replay "$t" --frobnicate
wrong "needs a value" replay "$t" --json
wrong "one trace too many" replay "$t" "$t"
wrong "two files" convert "$t"
wrong "--csv" frontier "$t"
for size in 1048576 1024KiB 1MiB 1.5MiB 0.5GB 1000KB 2MB 1GiB 1TiB; do
  run 0 replay "$t" --gap-limit "$size"
done
run 0 replay "$t" --knob=EXTENT_LARGE_BYTES=4MiB --lag=0 --json="$dir/equals.json"
holds "$dir/equals.json" "d['lag'] == 0"
for words in --help "replay --help" "convert --help" "frontier --help"; do
  # shellcheck disable=SC2086
  run 0 $words
  grep -q "usage:" "$dir/out" || bad "no help for $words"
done

# ---- Wider: random lives, the compact format, determinism, the plot -----------------
python3 - "$dir/random.csv" <<'P'
import random, sys
r = random.Random(7)
live = []
with open(sys.argv[1], "w") as out:
    out.write("# vram trace v2\n")
    for i in range(20000):
        if live and r.random() < 0.49:
            out.write("f,%d,1\n" % live.pop(r.randrange(len(live))))
        else:
            size = int(2 ** r.uniform(4, 25))
            out.write("a,%d,%d,%d,1\n" % (i, size, r.randrange(3)))
            live.append(i)
        if i % 1000 == 999:
            out.write("m,turn,1\n")
P
run 0 replay "$dir/random.csv" --check-empty-cache 20 --json "$dir/points.json"
holds "$dir/points.json" "d['empty_cache_points'] == 20 and d['misuses'] == 0"
for limit in high-water 32MiB off; do
  for i in 1 2; do
    run 0 replay "$dir/random.csv" --gap-limit $limit --json "$dir/random$i.json"
  done
  agree "$dir/random1.json" "$dir/random2.json"
  run 0 replay "$dir/random.csv" --gap-limit $limit --fast --json "$dir/random2.json"
  sed -i 's/"misuses": null/"misuses": 0/' "$dir/random2.json"
  agree "$dir/random1.json" "$dir/random2.json"
done
run 0 replay "$dir/random.csv" --backing malloc --check-empty-cache 5
run 0 frontier "$t" "$dir/steps.csv" --csv "$dir/frontier.csv"
python3 "$here/../../bench/plot_frontier.py" "$dir/frontier.csv" "$dir/frontier.svg" ||
  bad "the plot cannot be drawn"
python3 -c "import sys, xml.dom.minidom as x; x.parse(sys.argv[1])" "$dir/frontier.svg" ||
  bad "the plot is no SVG"

for trace in "${BENCH_TRACES:-}"/*.vrpt; do
  [ -f "$trace" ] || continue
  run 0 replay "$trace" --fast --repeat 2 --json "$dir/recorded.json"
  holds "$dir/recorded.json" "d['failures'] == 0 and d['peak_gap_bytes'] > 0"
  holds "$dir/recorded.json" "d['host_bytes_peak'] <= 8 << 20"
done

[ $failed = 0 ] && echo "$cases calls behaved"
exit $failed
