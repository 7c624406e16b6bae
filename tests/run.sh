#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds and tests everything that needs no GPU, from a fresh checkout.
#   bash tests/run.sh           all builds: gcc, AddressSanitizer, ThreadSanitizer, clang, release
#   bash tests/run.sh --quick   gcc and the checks on sources only
# Installs what it needs with apt-get where it is absent. The last line is
# "N passed, N failed"; the exit status is 0 only with 0 failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source tests/packages.sh

quick=0
case ${1:-} in
'') ;;
--quick) quick=1 ;;
*)
  echo "usage: tests/run.sh [--quick]" >&2
  exit 2
  ;;
esac

need "${build_tools[@]}" ninja=ninja-build python3=python3 /usr/include/cmocka.h=libcmocka-dev clang=clang \
  clang-format=clang-format '/usr/lib/llvm*/lib/clang/*/lib/linux/libclang_rt.asan*=libclang-rt-dev' \
  || exit 2

export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
root=${VRAMPOOL_BUILD:-build/run}
jobs=$(nproc)
passed=0 failed=0 skipped=0
mkdir -p "$root"

say() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

# tally WHAT COMMAND...: one check, counted as one test.
tally() {
  local what=$1
  shift
  if "$@"; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: $what"
  fi
}

# suite NAME PRESET CTEST-ARGUMENTS -- CMAKE-ARGUMENTS: builds it and runs its tests.
suite() {
  local name=$1 preset=$2 dir=$root/$1 select=() count
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    select+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  say "build $name"
  if ! cmake --preset "$preset" -B "$dir" "$@" >"$dir.configure.log" 2>&1 ||
    ! cmake --build "$dir" -j"$jobs" >"$dir.build.log" 2>&1; then
    tail -40 "$dir.configure.log" "$dir.build.log" 2>/dev/null
    failed=$((failed + 1))
    echo "FAILED: build $name"
    return
  fi
  say "test $name"
  rm -f "$dir/results.xml"
  # ThreadSanitizer of older compilers cannot place its shadow under a wide
  # randomisation of addresses.
  local wrap=()
  if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then wrap=(setarch -R); fi
  # JUnit paths are relative to the build folder.
  "${wrap[@]}" ctest --test-dir "$dir" -j"$jobs" --output-on-failure --no-tests=error \
    --output-junit results.xml "${select[@]}" | tail -n 400
  count=$(sed -n '/<testsuite /,/>/p' "$dir/results.xml" 2>/dev/null | tr '\n' ' ')
  number() { sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" <<<"$count"; }
  local tests bad none
  tests=$(number tests)
  if [ -z "$tests" ]; then
    failed=$((failed + 1))
    echo "FAILED: $name gave no results"
    return
  fi
  bad=$(number failures) none=$(($(number skipped) + $(number disabled)))
  passed=$((passed + tests - bad - none))
  failed=$((failed + bad))
  skipped=$((skipped + none))
}

# The C, C++ and CUDA files of the tree, as git lists them or, without git, as they lie.
sources() {
  git ls-files -- '*.c' '*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh' 2>/dev/null ||
    find bench examples include src tests -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu'
}

say "format"
check_format() { sources | xargs clang-format --dry-run -Werror; }
tally "format of the sources" check_format

suite gcc dev -LE gpu -- -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++
if [ $quick = 0 ]; then
  suite asan asan -LE gpu
  suite tsan tsan -L 'unit|concurrency' -LE gpu
  suite clang dev -LE 'gpu|property' -- -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DVRAMPOOL_CUDA=OFF

  # The Gemma-3 engine as people run it, with the real model where it is to be had.
  bash examples/gemma3/fetch_model.sh || echo "no 270M model: its tests are skipped"
  suite release release -L gemma3 -- -DVRAMPOOL_TESTS=ON -DVRAMPOOL_WERROR=ON

  say "a replay of every recorded trace"
  for trace in bench/traces/*.vrpt; do
    tally "replay of $trace" "$root/release/bench/vrampool-bench" replay "$trace" \
      --device sim:139GiB --fast
  done
fi

printf '\n%d skipped, %d s\n' "$skipped" "$SECONDS"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
