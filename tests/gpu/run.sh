#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every test that needs a GPU, on a machine without a build: from the folder that
# the CMake target gpu_bundle makes (the programs and libcmocka.so.0).
#   bash run.sh [cuda:N] [--logs FOLDER] [--soak SECONDS] [--memcheck] [--ops N]
# Each program runs over both backings. --memcheck runs the kernel-checked ones once
# more under compute-sanitizer. Prints a line for each and "N passed, N failed, N
# skipped" last; the exit status is 0 only with 0 failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
export LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

device=cuda:0 logs='' soak='' memcheck=0
while [ $# -gt 0 ]; do
  case $1 in
  cuda:*) device=$1 ;;
  --logs) logs=$2 && shift ;;
  --soak) soak=$2 && shift ;;
  --ops) export VRAMPOOL_TEST_OPS=$2 && shift ;;
  --memcheck) memcheck=1 ;;
  *) echo "run.sh: \"$1\" is no option" >&2 && exit 2 ;;
  esac
  shift
done
logs=${logs:-$(mktemp -d)}
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# one NAME COMMAND...
one() {
  local name=$1 began=$SECONDS status word
  shift
  timeout 300 "$@" >"$logs/$name.log" 2>&1
  status=$?
  case $status in
  0) passed=$((passed + 1)) word=passed ;;
  77) skipped=$((skipped + 1)) word=skipped ;;
  *) failed=$((failed + 1)) word="FAILED ($status)" ;;
  esac
  printf '%-28s %-14s %3d s  %s\n' "$name" "$word" $((SECONDS - began)) \
    "$(grep -hoE '^[0-9]+ blocks,.*|^rule .*|^[0-9]+ operations.*' "$logs/$name.log" | tail -1)"
  case $word in FAILED*) grep -hE 'ERROR|FAILED|LINE|failed|=====' "$logs/$name.log" | head -8 ;; esac
}

for program in ./test_pool_* ./test_cuda_* ./conc_* ./prop_cuda ./test_kernels ./test_order; do
  [ -x "$program" ] && one "${program#./}" "$program" "$device"
done
for rule in 2 3 4 5 6 61 7; do
  one "order_naive_$rule" env VRAMPOOL_TEST_BACKING=vmm ./test_order "$device" naive $rule
done
if [ -x ./prop_cuda ]; then
  one prop_cuda_naive env VRAMPOOL_TEST_NAIVE=1 VRAMPOOL_TEST_BACKING=malloc ./prop_cuda "$device"
fi
one soak_cuda env VRAMPOOL_TEST_SECONDS="${soak:-5}" ./soak_cuda "$device"
if [ $memcheck = 1 ]; then
  check=(compute-sanitizer --tool memcheck --error-exitcode 9)
  one memcheck_kernels "${check[@]}" ./test_kernels "$device"
  one memcheck_order "${check[@]}" ./test_order "$device"
  one memcheck_soak env VRAMPOOL_TEST_SECONDS=5 "${check[@]}" ./soak_cuda "$device"
  if [ -x ./prop_cuda ]; then
    one memcheck_prop env VRAMPOOL_TEST_OPS=2000 "${check[@]}" ./prop_cuda "$device"
  fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
