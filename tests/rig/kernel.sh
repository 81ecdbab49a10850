#!/usr/bin/env bash
# usage: APT=FOLDER kernel.sh OUT
#
# Takes Debian 12's arm64 kernel as it is:
#   OUT/vmlinuz           an uncompressed Image, so booting loses no time on unpacking it
#   OUT/version           its version, for example 6.1.0-56-arm64
#   OUT/boot/NN-NAME.ko   the modules that the initramfs loads, in that order
#   OUT/lib/modules/      those modules and what the rig loads later, with what they depend on
# Which version that is follows Debian: the mirrors drop the old one when a new one comes, so it cannot be pinned.
# modules.sh adds the modules that Debian leaves out.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/common.sh"

# To reach the root (its disk, its file system, and the writable layer over it), and what every boot needs right after: an
# emulated core loads a module from here in a tenth of the time that modprobe takes it.
boot_modules=(virtio_pci virtio_mmio virtio_blk squashfs overlay virtio_net virtio_rng configfs)
board_modules=(
  virtio_console qemu_fw_cfg ext4 loop 9p 9pnet_virtio                            # the machine
  vivid uvcvideo                                                                  # cameras
  rdma_rxe ib_uverbs rdma_ucm ib_umad rdma_cm                                     # RDMA over Ethernet
  sch_netem sch_tbf sch_htb sch_ingress act_mirred cls_u32 ifb                    # bad links
  veth bridge 8021q dummy macvlan tun af_packet nf_tables                         # networks
  i2c-dev uio_pci_generic softdog i6300esb ramoops pstore_blk fuse zram           # buses, watchdogs, memory
  lm75 cpufreq-dt imx-bus governor_userspace                                      # temperature, clocks of cores and GPU
  md5 crc32c crc32c_generic crc32_generic crct10dif-ce aes-ce-blk ghash-ce sha1-ce sha2-ce lz4 zstd
)

main() {
  local out=$1 version unpacked=$1/unpacked
  need depmod modprobe
  private_apt
  say "fetching Debian's arm64 kernel (65 MB)"
  version=$(newest_kernel)
  fetch_alone "$out/debs" "linux-image-$version"
  unpack "$out/debs" "$unpacked"
  depmod -b "$unpacked" "$version"
  mv "$unpacked/boot/vmlinuz-$version" "$out/vmlinuz"
  echo "$version" >"$out/version"
  copy_boot_modules "$unpacked" "$version" "$out/boot"
  copy_modules "$unpacked" "$version" "$out"
  rm -rf "$out/debs" "$unpacked"
}

# Prints the version that the package linux-image-arm64 stands for.
newest_kernel() {
  apt-cache "${apt_options[@]}" depends linux-image-arm64 | sed -n 's/^ *Depends: linux-image-//p' | head -n1
}

# Prints the files of the named modules of the kernel $2 under $1, each after those it depends on.
module_files() {
  local tree=$1 version=$2 name; shift 2
  for name in "$@"; do
    modprobe -d "$tree" -S "$version" --show-depends "$name" | sed -n 's/^insmod \([^ ]*\).*/\1/p' ||
      fail "kernel $version has no module $name: mend the lists in this script"
  done | awk '!seen[$0]++'
}

copy_boot_modules() {
  local files file number=10
  files=$(module_files "$1" "$2" "${boot_modules[@]}")
  mkdir "$3"
  for file in $files; do
    cp "$file" "$3/$number-${file##*/}"
    number=$((number + 1))
  done
}

copy_modules() {
  local unpacked=$1 version=$2 out=$3 files file folder=$3/lib/modules/$2
  files=$(module_files "$unpacked" "$version" "${boot_modules[@]}" "${board_modules[@]}")
  for file in $files; do
    install -D -m644 "$file" "$out/lib/modules/${file#*/lib/modules/}"
  done
  cp "$unpacked/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$folder/"
}

main "$@"
