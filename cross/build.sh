#!/usr/bin/env bash
# usage: cross/build.sh [CARGO OPTION]...
#
# Builds `orinoco` and `orinocod` for aarch64 into target/aarch64-unknown-linux-gnu/release, and passes them through the gate.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

cd "$here/.."
prefix=$("$here/toolchain.sh")
# Without symbols the binaries are a third smaller, which counts where they travel over ssh.
export CARGO_PROFILE_RELEASE_STRIP=symbols
cargo --config "$prefix/cross.toml" build --release --package orinoco --package orinocod "$@"
built=${CARGO_TARGET_DIR:-target}/$target/release
"$here/gate.sh" "$built/orinoco" "$built/orinocod"
