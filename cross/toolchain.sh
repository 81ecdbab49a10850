#!/usr/bin/env bash
# usage: cross/toolchain.sh
#
# Prints the folder of the aarch64 toolchain, making it first if it is not there. In it are
#   cross.toml      for `cargo --config`: compiler, linker, pkg-config, bindgen, runner
#   sysroot/        Debian 11 for arm64: glibc 2.31 and GStreamer 1.18, so that what links here loads on JetPack 5, 6 and 7
#   run             runs an aarch64 program under qemu-user with that sysroot
#   rust/           a Rust compiler with the aarch64 standard library, only where rustup cannot add the target
# Nothing is installed system-wide and no privilege is needed. Exit code 69: this machine cannot have one, and why.
#
# ORINOCO_DEBIAN_MIRROR   a Debian mirror that carries Debian 11 (default: the one this Debian machine uses)
# ORINOCO_CROSS_RUST      `rustup` or `debian`: where the Rust target comes from (default: whichever works, in that order)
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

suite=bullseye
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
key=$(cat "$here"/{toolchain.sh,common.sh,cpuinfo} | sha256sum | cut -c1-12)
prefix=$cache/cross/$key
sysroot=$prefix/sysroot

# To link against, to decode a file or a stream under qemu-user, and to load the Python package there.
packages=(libc6-dev libgcc-s1 libstdc++-10-dev libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev libibverbs-dev librdmacm-dev
  python3-cffi-backend gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-libav)
# Taken without what they depend on: the GLib .gir files for the gate, and the one plugin of the `bad` set that video needs.
loose_packages=(libgirepository1.0-dev gstreamer1.0-plugins-bad libgstreamer-plugins-bad1.0-0)
kept_bad_plugins='libgstvideoparsersbad.so'

main() {
  [[ $prefix != *[[:space:]]* ]] || fail "no blank may stand in $prefix: set XDG_CACHE_HOME to another folder"
  [[ $(uname -m) == x86_64 ]] || fail "the cross toolchain is for x86_64 hosts; on an arm64 host build with plain cargo" "$skipped"
  need aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ dpkg-deb rustc cargo
  cd "$here/.."         # where rustup may have been told which toolchain to use
  mkdir -p "$prefix"
  exec 9>"$prefix/lock"
  flock 9
  touch "$prefix"
  once sysroot make_sysroot
  once wrappers write_wrappers
  rustc_line=""
  rust_has_target || use_debian_rust
  write_cargo_config
  # Toolchains of earlier versions of this script, unused for a month.
  find "$cache/cross" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec rm -rf {} +
  echo "$prefix"
}

# Runs the step $2 unless its stamp $1 says that it has been done.
once() {
  [[ -e $prefix/$1.done ]] && return
  "$2" >&2
  touch "$prefix/$1.done"
}

# --- the sysroot -----------------------------------------------------------------------------------------------------

# Prints the Debian mirror to use.
debian_mirror() {
  local mirror=${ORINOCO_DEBIAN_MIRROR:-}
  [[ -n $mirror ]] || mirror=$(apt-get indextargets 'Label: Debian' 'Created-By: Packages' --format '$(SITE)' | head -n1)
  [[ -n $mirror ]] || fail "no Debian mirror is known here: set ORINOCO_DEBIAN_MIRROR to the address of one that carries Debian 11" "$skipped"
  echo "$mirror"
}

# Prepares a private apt in the folder $1, for the architectures $2..., with the sources on stdin; sets `apt_options`.
private_apt() {
  local folder=$1; shift
  [[ -e $keyring ]] || fail "$keyring is missing: install the package debian-archive-keyring (./setup.sh cross)" "$skipped"
  mkdir -p "$folder"/{lists/partial,cache/archives/partial}
  : >"$folder/status"           # an own, empty status file: everything counts as missing, and no system lock is taken
  cat >"$folder/sources.list"
  apt_options=(-qq -oAPT::Architecture="$1" -oAPT::Architectures="$(IFS=,; echo "$*")" -oAPT::Sandbox::User=root
    -oDir::State="$folder" -oDir::State::lists="$folder/lists" -oDir::State::status="$folder/status" -oDir::Cache="$folder/cache"
    -oDir::Etc::sourcelist="$folder/sources.list" -oDir::Etc::sourceparts=- -oAcquire::Languages=none -oAPT::Update::Error-Mode=any
    -oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  apt-get "${apt_options[@]}" update ||
    fail "reading Debian's package lists failed: set ORINOCO_DEBIAN_MIRROR to a mirror that carries Debian 11" "$skipped"
}

# Unpacks Debian 11 for arm64 into the sysroot.
make_sysroot() {
  local mirror scratch=$prefix/apt-sysroot deb
  mirror=$(debian_mirror)
  echo "toolchain: fetching Debian 11 for arm64 (190 MB) and unpacking it into $sysroot (430 MB)" >&2
  rm -rf "$sysroot" "$scratch"
  private_apt "$scratch" arm64 <<<"deb [signed-by=$keyring] $mirror $suite main"
  apt-get "${apt_options[@]}" install -y --no-install-recommends --download-only "${packages[@]}" ||
    fail "fetching Debian 11's packages failed: try again, or set ORINOCO_DEBIAN_MIRROR to another mirror"
  (cd "$scratch/cache/archives" && apt-get "${apt_options[@]}" download "${loose_packages[@]}")
  mkdir -p "$sysroot"
  for deb in "$scratch"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$sysroot"; done
  prune_sysroot
  link_inside
  # qemu-user shows the host's cpuinfo otherwise, and libonnxruntime then crashes while it is loaded.
  mkdir -p "$sysroot/proc"
  cp "$here/cpuinfo" "$sysroot/proc/cpuinfo"
  rm -rf "$scratch"
}

# Drops what is neither linked against nor run (documentation, Perl, graphics drivers), and the plugins of the
# `bad` set whose own libraries were not taken.
prune_sysroot() {
  local lib=$sysroot/usr/lib/aarch64-linux-gnu
  rm -rf "$sysroot"/usr/share/{doc,man,locale,info,icons,perl,python3} "$sysroot"/usr/bin/perl*
  rm -rf "$lib"/{perl,dri,libLLVM-*,libz3.so*}
  dpkg_contents gstreamer1.0-plugins-bad | grep 'gstreamer-1.0/libgst.*\.so$' | grep -v "/$kept_bad_plugins\$" |
    while read -r plugin; do rm -f "$sysroot/$plugin"; done
}

# Lists the files of the downloaded package $1.
dpkg_contents() { dpkg-deb --fsys-tarfile "$prefix"/apt-sysroot/cache/archives/"$1"_*.deb | tar -t; }

# Makes absolute links relative, so that they stay inside the sysroot, and adds the two links that installing would make.
link_inside() {
  local link name
  find "$sysroot" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$sysroot$(readlink "$link")")" "$link"
  done
  for name in blas lapack; do        # alternatives, which FFmpeg's libraries want
    ln -sfn "$name/lib$name.so.3" "$sysroot/usr/lib/aarch64-linux-gnu/lib$name.so.3"
  done
}

# --- Rust ------------------------------------------------------------------------------------------------------------

# Whether the user's own Rust has the target's standard library, after asking rustup for it.
rust_has_target() {
  [[ ${ORINOCO_CROSS_RUST:-rustup} == rustup ]] || return
  local installed=(test -d "$(rustc --print target-libdir --target "$target")")
  "${installed[@]}" && return
  [[ ! -e $prefix/rust.done ]] && command -v rustup >/dev/null || return   # rustup was asked in vain before
  timeout 120 rustup target add "$target" >&2 && "${installed[@]}"
}

# Unpacks Debian's Rust with both standard libraries; the user's cargo drives it. (rustc refuses another version's library.)
use_debian_rust() {
  local advice="install Rust through rustup, and run \`rustup target add $target\`"
  [[ ${ORINOCO_CROSS_RUST:-debian} == debian ]] || fail "rustup could not add the target: $advice" "$skipped"
  [[ $(. /etc/os-release; echo "$ID") == debian ]] || fail "there is no Rust standard library for aarch64 here: $advice" "$skipped"
  once rust unpack_debian_rust
  "$prefix/rustc" -V >/dev/null || fail "the unpacked Rust compiler does not start: $advice" "$skipped"
  rustc_line="rustc = \"$prefix/rustc\""
}

# Unpacks this Debian's newest Rust, its LLVM, and the arm64 standard library of the same version.
unpack_debian_rust() {
  local scratch=$prefix/apt-rust root=$prefix/rust deb names
  echo "toolchain: fetching Debian's Rust for both architectures (126 MB) and unpacking it into $root (560 MB)" >&2
  rm -rf "$scratch" "$root"
  private_apt "$scratch" amd64 arm64 < <(apt-get indextargets 'Origin: Debian' 'Created-By: Packages' \
    --format "deb [signed-by=$keyring] \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" | sort -u)
  names=$(apt-cache "${apt_options[@]}" depends --recurse --no-{pre-depends,recommends,suggests,conflicts,breaks,replaces,enhances} rustc-web |
    grep -E '^(rustc-web|libstd-rust-web-[^:]*|libllvm[0-9]+)$')
  mkdir -p "$scratch/debs" "$root"
  (cd "$scratch/debs" && apt-get "${apt_options[@]}" download $names libstd-rust-web-dev:arm64)
  for deb in "$scratch"/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
  rm -rf "$scratch"
  script rustc <<SH
export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu
exec $root/usr/bin/rustc "\$@"
SH
}

# --- wrappers and cargo's configuration --------------------------------------------------------------------------------

# Writes the shell script $1 of the toolchain from stdin.
script() {
  { echo '#!/bin/sh'; cat; } >"$prefix/$1"
  chmod +x "$prefix/$1"
}

write_wrappers() {
  # In this order, or gcc takes its own libgcc and libstdc++, which want a newer glibc than the sysroot's.
  local links="-B$sysroot/usr/lib/aarch64-linux-gnu -L$sysroot/usr/lib/gcc/aarch64-linux-gnu/10"
  links+=" -L$sysroot/lib/aarch64-linux-gnu -L$sysroot/usr/lib/aarch64-linux-gnu"
  local cxx_headers="-nostdinc++ -isystem $sysroot/usr/include/c++/10 -isystem $sysroot/usr/include/aarch64-linux-gnu/c++/10"
  script cc <<<"exec aarch64-linux-gnu-gcc --sysroot=$sysroot $links \"\$@\""
  script c++ <<<"exec aarch64-linux-gnu-g++ --sysroot=$sysroot $cxx_headers $links \"\$@\""
  # GStreamer must see the sysroot's plugins only, and scan them in its own process: it cannot start an aarch64 helper here.
  script run <<SH
qemu=\$(command -v qemu-aarch64-static || command -v qemu-aarch64) || { echo "qemu-user is not installed: run ./setup.sh cross" >&2; exit $skipped; }
unset GST_PLUGIN_PATH GST_PLUGIN_PATH_1_0 GST_PLUGIN_SCANNER GST_PLUGIN_SCANNER_1_0
export GST_PLUGIN_SYSTEM_PATH_1_0=$sysroot/usr/lib/aarch64-linux-gnu/gstreamer-1.0
export GST_REGISTRY_1_0=$prefix/gstreamer-registry.bin GST_REGISTRY_FORK=no
exec "\$qemu" -cpu "\$("\$qemu" -cpu help | grep -q cortex-a76 && echo cortex-a76 || echo cortex-a72)" -L $sysroot "\$@"
SH
}

# Writes cross.toml, if it would change: cargo builds again what a newer configuration file might concern.
write_cargo_config() {
  local new=$prefix/cross.toml.new
  cat >"$new" <<T
[build]
target = "$target"
$rustc_line
[target.$target]
linker = "$prefix/cc"
runner = "$prefix/run"
[env]
PKG_CONFIG_ALLOW_CROSS_aarch64_unknown_linux_gnu = "1"
PKG_CONFIG_SYSROOT_DIR_aarch64_unknown_linux_gnu = "$sysroot"
PKG_CONFIG_LIBDIR_aarch64_unknown_linux_gnu = "$sysroot/usr/lib/aarch64-linux-gnu/pkgconfig:$sysroot/usr/share/pkgconfig"
CC_aarch64_unknown_linux_gnu = "$prefix/cc"
CXX_aarch64_unknown_linux_gnu = "$prefix/c++"
AR_aarch64_unknown_linux_gnu = "aarch64-linux-gnu-ar"
BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu = "--sysroot=$sysroot --target=$target -I$sysroot/usr/include/aarch64-linux-gnu"
T
  if cmp -s "$new" "$prefix/cross.toml"; then rm "$new"; else mv "$new" "$prefix/cross.toml"; fi
}

main
