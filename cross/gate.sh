#!/usr/bin/env bash
# usage: cross/gate.sh BINARY...
#
# Fails if an aarch64 binary needs a symbol or a library that JetPack 5 does not have (gate.py says how it knows).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

(($#)) || fail "usage: cross/gate.sh BINARY..." 2
for binary in "$@"; do
  [[ -f $binary ]] || fail "$binary does not exist: build it with cross/build.sh" 2
done
need python3 aarch64-linux-gnu-readelf
prefix=$("$here/toolchain.sh")
exec python3 "$here/gate.py" --sysroot "$prefix/sysroot" "$@"
