#!/usr/bin/env bash
# usage: APT=FOLDER root.sh OUT KERNEL dropbear|systemd
#
# Makes OUT/root.sqfs, the read-only root that all boards share: Debian 12 for arm64, unpacked and not installed (nothing of
# it runs here), and the modules of KERNEL, the folder that kernel.sh made. OUT/packages lists what is in it.
# The rig's own files are not in it: they come with the initramfs (initrd.sh), which is made in a second.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

packages=(
  dash busybox-static kmod iproute2 iputils-ping ethtool openssl                    # the machine
  libc6 libstdc++6 libgcc-s1                                                        # what programs are linked with
  libgstreamer1.0-0 libgstreamer-plugins-base1.0-0 libglib2.0-0                     # what orinoco is linked with
  gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-tools            # and asks for at run time
  v4l-utils i2c-tools                                                               # cameras, buses
  rdma-core ibverbs-utils ibverbs-providers rdmacm-utils perftest iperf3            # RDMA, networks
)
dropbear_packages=(dropbear-bin openssh-sftp-server)
systemd_packages=(systemd systemd-sysv udev dbus openssh-server)

# Documentation, languages, and what only graphics drivers or maintainer scripts use. Under usr/.
unused=(
  share/{doc,man,locale,info,lintian,bash-completion,zoneinfo,pixmaps,icons,dpkg,perl,perl5,fonts,X11,mime,alsa,sounds,themes}
  lib/udev/hwdb.d lib/aarch64-linux-gnu/{perl,perl-base,gconv,dri,'libLLVM-*','libz3.so*'}
)
# Of no use on an emulated board, or slow on it: clocks that follow the network, consoles, caches of what never changes,
# udev's replay of every device (12 s), and file systems that nothing here mounts (0.3 s each).
masked_units=(
  systemd-{timesyncd,resolved,hwdb-update,journal-catalog-update,update-utmp,random-seed,update-done,sysusers,pstore}.service
  systemd-{logind,udev-trigger}.service getty@tty1.service serial-getty@ttyAMA0.service getty.target
  ldconfig.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service
  dev-{hugepages,mqueue}.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount
  modprobe@{dm_mod,loop,fuse}.service kmod-static-nodes.service systemd-update-utmp-runlevel.service
)

main() {
  local out=$1 kernel=$2 flavour=$3 root=$1/root
  need mksquashfs
  private_apt
  say "fetching and packing the boards' root (85 MB)"
  case $flavour in
    dropbear) packages+=("${dropbear_packages[@]}") ;;
    systemd) packages+=("${systemd_packages[@]}") ;;
    *) fail "there is no flavour \`$flavour\`: use dropbear or systemd" 2 ;;
  esac
  fetch "$out/debs" "${packages[@]}"
  merge_usr "$root"
  unpack "$out/debs" "$root"
  (cd "$out/debs" && printf '%s\n' *.deb) >"$out/packages"
  cp -r "$kernel/lib/modules" "$root/usr/lib/"
  link_tools "$root"
  [[ $flavour != systemd ]] || choose_units "$root/etc/systemd/system"
  pack "$root" "$out/root.sqfs" "$flavour"
  rm -rf "$out/debs" "$root"
}

# Packages of Debian 12 still hold /bin, /lib and /sbin, which are links on an installed system.
merge_usr() {
  local name
  mkdir -p "$1"/usr/{bin,sbin,lib}
  for name in bin sbin lib; do ln -s "usr/$name" "$1/$name"; done
}

# Gives the shell (dash: busybox's would run its own ip, tc and ping before the real ones) and busybox's applets their names.
link_tools() {
  local applet
  ln -sf dash "$1/usr/bin/sh"
  for applet in $(sed 's/#.*//' "$here/applets"); do
    [[ -e $1/usr/bin/$applet || -L $1/usr/bin/$applet || -e $1/usr/sbin/$applet || -L $1/usr/sbin/$applet ]] ||
      ln -s busybox "$1/usr/bin/$applet"
  done
}

# Enables and masks units by hand, because no maintainer script ran. board-net.service is one of the rig's own files.
choose_units() {
  local unit
  mkdir -p "$1"/{multi-user,sysinit}.target.wants
  ln -s /etc/systemd/system/board-net.service "$1/sysinit.target.wants/"
  ln -s /lib/systemd/system/ssh.service "$1/multi-user.target.wants/"
  ln -s /lib/systemd/system/multi-user.target "$1/default.target"
  for unit in "${masked_units[@]}"; do ln -sfn /dev/null "$1/$unit"; done
}

# Packs the root, owned by root whoever runs this. lz4: a board unpacks as it reads, and emulated cores are slow.
pack() {
  local root=$1 image=$2 name
  mkdir -p "$root"/{proc,sys,dev,run,tmp,mnt,opt,root,home,var/{log,empty}}
  for name in "${unused[@]}"; do rm -rf "$root"/usr/$name; done
  [[ $3 == systemd ]] || rm -rf "$root"/usr/lib/systemd
  rm -rf "$root"/var/cache/*
  mksquashfs "$root" "$image" -comp lz4 -noappend -quiet -no-progress -all-root -all-time 0 -mkfs-time 0
}

main "$@"
