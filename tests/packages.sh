#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Sourced by scripts that need tools. need TOOL=PACKAGE... installs, with apt-get,
# the packages of those that are absent. A TOOL with a slash is a file.

need() {
  local item missing=() sudo=()
  for item in "$@"; do
    case ${item%%=*} in
    */*) compgen -G "${item%%=*}" >/dev/null || missing+=("${item#*=}") ;;
    *) command -v "${item%%=*}" >/dev/null || missing+=("${item#*=}") ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || {
    echo "missing, and there is no apt-get: ${missing[*]}" >&2
    return 1
  }
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  echo "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

# What every build needs; the header files stand for the -dev packages.
# shellcheck disable=SC2034,SC2191
build_tools=(cc=build-essential c++=build-essential cmake=cmake
  pkg-config=pkg-config /usr/include/zlib.h=zlib1g-dev /usr/include/zstd.h=libzstd-dev
  /usr/include/jansson.h=libjansson-dev /usr/include/jpeglib.h=libjpeg-dev
  /usr/include/spng.h=libspng-dev)
