#!/usr/bin/env bash
# usage: cross/build.sh [--profile dev|release] [CARGO OPTION]...
#
# Builds `orinoco`, `orinocod`, `orinoco-helper` and the examples `read_rails`, `send_lines`, `conformance` and `rdma` for aarch64 into
# target/aarch64-unknown-linux-gnu/release (`dev`: .../debug), and passes all but the examples through the gate.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

profile=release
if [[ ${1-} == --profile ]]; then
  profile=${2-}
  shift 2
fi
case $profile in
  release) folder=release ;;
  dev) folder=debug ;;
  *) fail "there is no profile \`$profile\` here: --profile takes dev or release" 2 ;;
esac

cd "$here/.."
prefix=$("$here/toolchain.sh")
# Without symbols the binaries are a third smaller, which counts where they travel over ssh.
export CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_DEV_STRIP=symbols
# One selection for all: each has features of its own, with which cargo compiles the shared crates again. The examples run in tests
# on emulated boards.
cargo --config "$prefix/cross.toml" build --profile "$profile" --package orinoco --package orinocod --package orinoco-helper \
  --package orinoco-sensors --package orinoco-collective \
  --bins --example read_rails --example send_lines --example conformance --example rdma "$@"
built=${CARGO_TARGET_DIR:-target}/$target/$folder
"$here/gate.sh" "$built/orinoco" "$built/orinocod" "$built/orinoco-helper"
