#!/usr/bin/env bash
# usage: cross/run.sh BINARY [ARGUMENT]...
#
# Runs an aarch64 program under qemu-user, with the toolchain's Debian 11 sysroot and GStreamer plugins.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

(($#)) || fail "usage: cross/run.sh BINARY [ARGUMENT]..." 2
prefix=$("$here/toolchain.sh")
exec "$prefix/run" "$@"
