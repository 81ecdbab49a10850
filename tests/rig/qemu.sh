#!/usr/bin/env bash
# usage: APT=FOLDER qemu.sh OUT
#
# Makes OUT/qemu-system-aarch64: Debian 12's backported QEMU with every library it needs, and its own C library too, so
# that it neither meets the QEMU of this machine nor depends on which libraries it has.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/common.sh"

main() {
  local out=$1
  [[ $(uname -m) == x86_64 ]] || fail "the rig is for x86_64 hosts" "$unavailable"
  private_apt
  say "fetching QEMU (50 MB)"
  fetch "$out/debs" -t "$suite-backports" qemu-system-arm:amd64
  mkdir "$out/lib64"            # Debian 12's packages hold /lib64, /lib and /usr/lib apart; that is how they are found below
  unpack "$out/debs" "$out"
  prune "$out"
  write_wrapper "$out/qemu-system-aarch64"
  "$out/qemu-system-aarch64" --version >/dev/null || fail "Debian's QEMU does not start on this machine" "$unavailable"
}

# Drops what no board uses: other machines, firmware, documentation.
prune() {
  rm -rf "$1"/{debs,etc,var,bin,sbin,usr/sbin,usr/share}
  find "$1/usr/bin" -type f ! -name qemu-system-aarch64 -delete
}

write_wrapper() {
  cat >"$1" <<'SH'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export QEMU_MODULE_DIR="$here/usr/lib/x86_64-linux-gnu/qemu"
exec "$here/lib64/ld-linux-x86-64.so.2" --library-path "$here/lib/x86_64-linux-gnu:$here/usr/lib/x86_64-linux-gnu" \
  "$here/usr/bin/qemu-system-aarch64" "$@"
SH
  chmod +x "$1"
}

main "$@"
