#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Run by ctest with CMAKE, BUILD, WORK, CC, CXX and CONFIG set: installs BUILD
# into WORK/prefix and builds and runs the consumers against that.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=$WORK/prefix

rm -rf "$WORK"
mkdir -p "$WORK"
"$CMAKE" --install "$BUILD" --prefix "$prefix" >"$WORK/install.log"

# find_package, in C11 and in C++17, over the shared and the static library.
for language in c cpp; do
  for kind in vrampool vrampool_static; do
    build=$WORK/$language-$kind
    "$CMAKE" -S "$here/$language" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" \
      -DCMAKE_BUILD_TYPE="$CONFIG" -DLIBRARY="vrampool::$kind" >"$build.log"
    "$CMAKE" --build "$build" >>"$build.log"
    echo "== find_package, $language, $kind"
    "$build/consumer"
  done
done

# pkg-config. A moved prefix shows that nothing of this tree is remembered.
if command -v pkg-config >/dev/null; then
  mv "$prefix" "$WORK/moved"
  pc=$(find "$WORK/moved" -name vrampool.pc)
  export PKG_CONFIG_PATH=${pc%/*}
  flags=$(pkg-config --define-variable=prefix="$WORK/moved" --cflags --libs vrampool)
  lib=$(pkg-config --define-variable=prefix="$WORK/moved" --variable=libdir vrampool)
  # The flags are words to split.
  # shellcheck disable=SC2086
  "$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/c/main.c" -o "$WORK/pc-c" $flags
  # shellcheck disable=SC2086
  "$CXX" -std=c++17 -Wall -Wextra -Wpedantic -Werror "$here/cpp/main.cpp" -o "$WORK/pc-cpp" $flags
  for program in pc-c pc-cpp; do
    echo "== pkg-config, $program"
    LD_LIBRARY_PATH=$lib "$WORK/$program"
  done
fi
