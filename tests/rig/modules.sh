#!/usr/bin/env bash
# usage: APT=FOLDER modules.sh OUT
#
# Compiles two modules that Debian's arm64 kernel leaves out, from Debian's own kernel source, and adds them to the modules
# of OUT, where kernel.sh has been:
#   i2c-stub   an I2C chip whose registers are memory
#   ina3221    the driver of the power monitor on Jetson boards, which then reads that chip
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/common.sh"

compiler=aarch64-linux-gnu-gcc

main() {
  local out=$1 version work=$1/work
  need "$compiler" make xz depmod
  private_apt
  say "fetching the kernel's source (150 MB), compiling the drivers of the power rails"
  version=$(<"$out/version")
  unpack_headers "$work" "$version"
  take_sources "$work"
  give_stub_a_node "$work/build/i2c-stub.c"
  compile "$work" "$version"
  install -D -m644 -t "$out/lib/modules/$version/updates" "$work"/build/*.ko
  depmod -b "$out" "$version"
  rm -rf "$work"
}

# Unpacks the kernel's headers; the tools among them (modpost, fixdep) are those for this machine.
unpack_headers() {
  local work=$1 version=$2
  fetch_alone "$work/headers" "linux-headers-$version" "linux-headers-${version%-arm64}-common" linux-kbuild-6.1:amd64
  unpack "$work/headers" "$work"
  sed -i "s|/usr/src/|$work/usr/src/|g" "$work/usr/src/linux-headers-$version/Makefile"
}

# Unpacks the two files from the kernel's source, and stops reading its 140 MB once it has them.
take_sources() {
  local work=$1 source=linux-source-6.1
  fetch_alone "$work/source" $source
  mkdir "$work/build"
  (
    set +o pipefail
    dpkg-deb --fsys-tarfile "$work"/source/*.deb | tar -xO ./usr/src/$source.tar.xz |
      tar -xJ -C "$work/build" --strip-components=3 --occurrence=1 $source/drivers/{i2c/i2c-stub.c,hwmon/ina3221.c}
  ) 2>/dev/null
  [[ -s $work/build/i2c-stub.c && -s $work/build/ina3221.c ]] || fail "Debian's kernel source has no i2c-stub.c or ina3221.c"
}

# Ties the stub's bus to the device tree's node `orinoco,i2c-stub` (rails.dtsi), so that the kernel finds the chip with its
# labels and shunts there, as on a real board.
give_stub_a_node() {
  sed -i -e 's|^#include <linux/i2c.h>|&\n#include <linux/of.h>|' \
    -e 's|^\tret = i2c_add_adapter(&stub_adapter);|\tstub_adapter.dev.of_node = of_find_compatible_node(NULL, NULL, "orinoco,i2c-stub");\n&|' "$1"
  grep -q 'orinoco,i2c-stub' "$1" || fail "i2c-stub.c is not as this script knows it: mend give_stub_a_node"
}

compile() {
  local work=$1 version=$2
  echo 'obj-m := i2c-stub.o ina3221.o' >"$work/build/Makefile"
  make --silent -j2 -C "$work/usr/src/linux-headers-$version" M="$work/build" \
    ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC="$compiler" modules >"$work/make.log" 2>&1 ||
    { cat "$work/make.log" >&2; fail "compiling the modules failed, see above"; }
  aarch64-linux-gnu-strip --strip-debug "$work"/build/*.ko
}

main "$@"
