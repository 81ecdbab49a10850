#!/usr/bin/env bash
# usage: initrd.sh OUT KERNEL ROOT dropbear|systemd
#
# Makes what is the rig's own on a board, from the folder guest/:
#   OUT/initrd.img   the initramfs: busybox, the boot modules, guest/stage1, and the files that it lays over the root
#   OUT/key          the ssh key that opens every board, with key.pub
#   OUT/known_hosts  the key by which a board is known, under the name `board`
# Keys are made here, because an emulated board would take long to make its own.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

main() {
  local out=$1 kernel=$2 root=$3 flavour=$4 tree=$1/tree
  need cpio ssh-keygen unsquashfs
  mkdir -p "$tree"/{bin,proc,sys,dev,ro,rw,new,modules,guest}
  unsquashfs -quiet -no-progress -cat "$root/root.sqfs" usr/bin/busybox >"$tree/bin/busybox"
  cp "$kernel"/boot/*.ko "$tree/modules/"
  install -m755 "$here/guest/stage1" "$tree/init"
  cp -r "$here/guest/common/." "$here/guest/$flavour/." "$tree/guest/"
  make_keys "$out" "$tree/guest"
  chmod -R go-w "$tree"         # sshd trusts no key file that others may write
  chmod 755 "$tree/bin/busybox" "$tree"/guest/usr/sbin/*
  chmod -R go-rwx "$tree"/guest/{root,etc/shadow,etc/ssh/ssh_host_ed25519_key}
  (cd "$tree" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$out/initrd.img"
  rm -rf "$tree"
}

# Makes the keys, and puts them where the board expects them: its own, and the one that opens it and its neighbours.
make_keys() {
  local out=$1 guest=$2
  ssh-keygen -q -t ed25519 -N '' -C orinoco-rig -f "$out/key"
  mkdir -p "$guest"/{etc/ssh,root/.ssh}
  ssh-keygen -q -t ed25519 -N '' -C board -f "$guest/etc/ssh/ssh_host_ed25519_key"
  echo "board $(<"$guest/etc/ssh/ssh_host_ed25519_key.pub")" >"$out/known_hosts"
  cp "$out/key" "$guest/root/.ssh/id_ed25519"
  cp "$out/key.pub" "$guest/root/.ssh/authorized_keys"
}

main "$@"
