#!/usr/bin/env bash
# usage: cross/build.sh [CARGO OPTION]...
#
# Builds `orinoco`, `orinocod`, `orinoco-helper` and the example `read_rails` for aarch64 into
# target/aarch64-unknown-linux-gnu/release, and passes all but the example through the gate.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

cd "$here/.."
prefix=$("$here/toolchain.sh")
# Without symbols the binaries are a third smaller, which counts where they travel over ssh.
export CARGO_PROFILE_RELEASE_STRIP=symbols
cargo --config "$prefix/cross.toml" build --release --package orinoco --package orinocod --package orinoco-helper "$@"
# A test on an emulated board reads its power monitor with it.
cargo --config "$prefix/cross.toml" build --release --package orinoco-sensors --example read_rails
built=${CARGO_TARGET_DIR:-target}/$target/release
"$here/gate.sh" "$built/orinoco" "$built/orinocod" "$built/orinoco-helper"
