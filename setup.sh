#!/usr/bin/env bash
# usage: ./setup.sh [build|test|demo|cross|boards|torch]...     (default: build)
#
# Installs what this machine lacks for each job, on Debian 12 or Ubuntu 22.04, as root or as a user with sudo:
#   build   compiler, GStreamer with its plugins, Rust
#   test    and an RTSP server's library, FFmpeg (the judge of our decoding), cargo-deny, ONNX Runtime
#   demo    and ONNX Runtime
#   cross   and the aarch64 linker and emulator (cross/toolchain.sh fetches the rest when it is first used)
#   torch   and virtual environments of Python, and network namespaces
#   boards  and what the emulated boards are put together with (tests/rig fetches the rest when it is first used)
# What is there already is left as it is; a second run changes nothing and takes a second.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH

rust_oldest=1.95.0
deny_version=0.20.2

packages=(build-essential clang libclang-dev cmake pkg-config python3 python3-pip curl ca-certificates
  libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev gstreamer1.0-tools gstreamer1.0-libav
  gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly)
test_packages=(libgstrtspserver-1.0-dev ffmpeg)
cross_packages=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static debian-archive-keyring)
boards_packages=(gcc-aarch64-linux-gnu make xz-utils squashfs-tools cpio kmod device-tree-compiler openssh-client iproute2
  debian-archive-keyring)

main() {
  local job
  (($#)) || set -- build
  for job in "$@"; do
    case $job in
      build | demo) ;;
      test) packages+=("${test_packages[@]}") ;;
      cross) packages+=("${cross_packages[@]}") ;;
      boards) packages+=("${boards_packages[@]}") ;;
      torch) packages+=(python3-venv iproute2) ;;
      *) fail "there is no job \`$job\`: use build, test, demo, cross, boards or torch" 2 ;;
    esac
  done
  install_packages "${packages[@]}"
  install_rust
  case " $* " in *" test "*) install_lints; install_deny ;; esac
  case " $* " in *" test "* | *" demo "*) fetch_onnxruntime ;; esac
}

say() { echo "setup: $1" >&2; }
fail() { say "$1"; exit "${2:-1}"; }

# Runs a command as root.
as_root() {
  if ((EUID == 0)); then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "root is needed for \`$*\`: run that as root, or install sudo"
  fi
}

# --- packages --------------------------------------------------------------------------------------------------------

# Installs those of the named packages that are missing, and asks apt for nothing when none is.
install_packages() {
  local missing
  command -v apt-get >/dev/null || fail "this needs Debian 12 or Ubuntu 22.04: elsewhere, install the counterparts of: $*" 69
  mapfile -t missing < <(comm -23 <(printf '%s\n' "$@" | sort -u) <(installed_packages "$@"))
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  refresh_lists
  # Never at the price of something that is installed already.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --no-remove "${missing[@]}" >/dev/null ||
    fail "installing the packages failed: run \`apt-get install ${missing[*]}\` and see what it says"
}

# Prints, sorted, those of the named packages that are installed.
installed_packages() {
  dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' | sort -u
}

# Brings the package lists up to date, once in a run.
refresh_lists() {
  [[ -z ${lists_are_fresh:-} ]] || return 0
  as_root apt-get update -qq || fail "\`apt-get update\` failed: fix the package sources, then run this again"
  lists_are_fresh=yes
}

# --- Rust ------------------------------------------------------------------------------------------------------------

# Makes sure of a Rust that is new enough: what is there, else rustup's, else the distribution's, else rustup itself.
install_rust() {
  local -a names
  rust_is_new_enough && return
  if command -v rustup >/dev/null; then
    rust_from_rustup
  else
    refresh_lists
    read -ra names <<<"$(distribution_rust)"
    if ((${#names[@]})); then install_packages "${names[@]}"; else rustup_itself; fi
  fi
  hash -r
  rust_is_new_enough || fail "Rust $rust_oldest was installed, yet \`cargo --version\` does not say so: look at PATH and rust-toolchain settings"
}

rust_is_new_enough() {
  local tool
  for tool in cargo rustc; do
    at_least "$rust_oldest" "$("$tool" --version 2>/dev/null | cut -d' ' -f2)" || return 1
  done
}

# Whether the version $2 is $1 or later.
at_least() { [[ -n $2 ]] && printf '%s\n' "$1" "$2" | sort --version-sort --check=quiet; }

# Takes the toolchain from the rustup that is there, and chooses it for this folder only.
rust_from_rustup() {
  say "installing Rust $rust_oldest with rustup"
  rustup toolchain install "$rust_oldest" --profile minimal --component rustfmt,clippy &&
    rustup override set "$rust_oldest" ||
    fail "rustup could not install Rust $rust_oldest: run \`rustup toolchain install $rust_oldest\` and see what it says"
}

# Prints the names of the distribution's Rust packages, if it offers a version that is new enough.
distribution_rust() {
  local names candidate
  for names in "rustc-web cargo-web rustfmt-web rust-web-clippy" "rustc cargo rustfmt rust-clippy"; do
    candidate=$(apt-cache policy "${names%% *}" | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
    if at_least "$rust_oldest" "$candidate"; then echo "$names"; return; fi
  done
}

# Installs rustup and the toolchain into the user's home.
rustup_itself() {
  say "installing Rust $rust_oldest with rustup into ${CARGO_HOME:-$HOME/.cargo}"
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
    sh -s -- -y --quiet --no-modify-path --profile minimal --component rustfmt,clippy --default-toolchain "$rust_oldest" ||
    fail "rustup could not be installed: install Rust $rust_oldest or later yourself, with rustfmt and clippy"
}

# Adds rustfmt and clippy where rustup left them out; a Rust from elsewhere may lack them, and then the tests say so.
install_lints() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
  command -v rustup >/dev/null && rustup component add rustfmt clippy ||
    say "going on without rustfmt or clippy: install them for this Rust, or their checks are skipped"
}

# --- tools and libraries -----------------------------------------------------------------------------------------------

# Compiles cargo-deny for running it a few times, not for speed, with the settings of this workspace's profile `dev` and in its folder:
# the build shares the dependencies that both have. On two cores that takes a minute and a half instead of two and a half.
install_deny() {
  command -v cargo-deny >/dev/null && return
  say "compiling cargo-deny $deny_version, about 2 minutes"
  CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_DEV_INCREMENTAL=false CARGO_PROFILE_DEV_CODEGEN_UNITS=16 CARGO_PROFILE_DEV_LTO=off \
    cargo install --quiet --locked --profile dev --target-dir "${CARGO_TARGET_DIR:-target}" "cargo-deny@$deny_version" ||
    fail "cargo-deny $deny_version could not be installed: run \`cargo install --locked cargo-deny\` and see what it says"
}

# Fetches ONNX Runtime for this machine, which opens it at run time: without it there are other engines.
fetch_onnxruntime() {
  cross/onnxruntime.sh >/dev/null || say "going on without ONNX Runtime: the engine ort-cpu will say that it is missing"
}

main "$@"
