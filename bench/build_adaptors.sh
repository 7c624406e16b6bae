#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the adaptors of allocators that come as C++ libraries, where they are
# found: torch.so needs PyTorch's wheel, rmm.so the wheels librmm-cu13 and
# rapids-logger, installed or as files in WHEELS. What cannot be built leaves
# NAME.so.why with the reason, and no error.
#   bash bench/build_adaptors.sh OUT [WHEELS]
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$1
wheels=${2:-}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
python=${PYTHON:-python3}
cxx=${CXX:-g++}

# The folder of an installed Python package, without importing it.
package() {
  "$python" - "$1" <<'P' 2>/dev/null
import importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
print(list(spec.submodule_search_locations)[0] if spec else "")
P
}

# Headers and the shared runtime: the toolkit's, or those of NVIDIA's wheels.
nvidia=$(package nvidia)
for cuda in "${CUDA_HOME:-/usr/local/cuda}" "$nvidia/cu13" "$nvidia/cuda_runtime"; do
  [ -e "$cuda/include/cuda_runtime_api.h" ] && break
done
cudart=
for file in "$cuda"/lib64/libcudart.so* "$cuda"/lib/libcudart.so* "$nvidia"/cu13/lib/libcudart.so*; do
  [ -e "$file" ] && { cudart=$file; break; }
done
echo "$cudart" >"$out/cudart.path"

# build NAME FLAGS...: one file, its messages in NAME.log.
build() {
  local name=$1
  shift
  rm -f "$out/$name.so" "$out/$name.so.why"
  if ! "$cxx" -std=c++17 -O2 -fPIC -shared "$here/adaptors/$name.cpp" \
    -o "$out/$name.so" "$@" -isystem "$cuda/include" >"$out/$name.log" 2>&1; then
    echo "it does not compile: $(grep -m1 -E 'error|cannot find|undefined' "$out/$name.log" ||
      head -1 "$out/$name.log")" >"$out/$name.so.why"
  fi
}

why() {
  rm -f "$out/$1.so"
  echo "$2" >"$out/$1.so.why"
}

build_torch() {
  local torch
  torch=$(package torch)
  [ -n "$torch" ] || { why torch "PyTorch is not installed"; return; }
  [ -e "$torch/lib/libc10_cuda.so" ] || { why torch "this PyTorch has no CUDA"; return; }
  # as PyTorch's own library is compiled for Linux
  build torch -DPYTORCH_C10_DRIVER_API_SUPPORTED -isystem "$torch/include" -L"$torch/lib" -lc10_cuda -lc10 \
    -Wl,--disable-new-dtags,-rpath,"$torch/lib"
}

build_rmm() {
  local rmm logger
  if [ -n "$wheels" ] && compgen -G "$wheels/librmm*.whl" >/dev/null; then
    rm -rf "$out/wheels"
    "$python" - "$out/wheels" "$wheels"/librmm*.whl "$wheels"/rapids_logger*.whl <<'P'
import sys, zipfile
for wheel in sys.argv[2:]:
    zipfile.ZipFile(wheel).extractall(sys.argv[1])
P
    rmm=$out/wheels/librmm logger=$out/wheels/rapids_logger
  else
    rmm=$(package librmm) logger=$(package rapids_logger)
  fi
  [ -e "$rmm/lib64/librmm.so" ] || { why rmm "librmm is not installed, and there is no wheel of it"; return; }
  [ -e "$logger/lib64/librapids_logger.so" ] || { why rmm "rapids-logger is missing"; return; }
  [ -n "$cudart" ] || { why rmm "libcudart.so is not found"; return; }
  build rmm -isystem "$rmm/include/rapids" -isystem "$rmm/include" -isystem "$logger/include" \
    -L"$rmm/lib64" -L"$logger/lib64" -Wl,--no-as-needed -lrmm -lrapids_logger "$cudart" \
    -Wl,--disable-new-dtags,-rpath,"$rmm/lib64:$logger/lib64:$(dirname "$cudart")"
}

build_torch &
build_rmm &
wait
for name in torch rmm; do
  if [ -e "$out/$name.so" ]; then echo "$name: built"; else echo "$name: not found: $(cat "$out/$name.so.why")"; fi
done
