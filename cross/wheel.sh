#!/usr/bin/env bash
# usage: cross/wheel.sh [FOLDER]
#
# Builds the Python package of the collective operations as a wheel for aarch64 into FOLDER (default: target/wheels/aarch64), passes its
# library through the gate, and sums a vector with it under qemu-user, in the sysroot's Python. It needs the programs of
# `pip install maturin cffi` in PATH.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

# What pip accepts on JetPack 5.
platform=manylinux_2_31
folder=$(realpath -m -- "${1:-$here/../target/wheels/aarch64}")
command -v maturin >/dev/null || fail "\`maturin\` is not installed: run \`pip install maturin cffi\`" "$skipped"
need python3
prefix=$("$here/toolchain.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Maturin asks the compiler that cargo will use.
if [[ -x $prefix/rustc ]]; then export RUSTC=$prefix/rustc; fi
cd "$here/../crates/orinoco-collective-c"
maturin build --release --quiet --target "$target" --config "$prefix/cross.toml" --compatibility "$platform" --out "$scratch/built"
wheel=$(echo "$scratch"/built/*.whl)
[[ $wheel == *-py3-none-"${platform}_aarch64.whl" ]] || fail "the wheel is $(basename "$wheel"): expected one for ${platform}_aarch64"

python3 -m zipfile -e "$wheel" "$scratch/package"
library=$(find "$scratch/package/orinoco_collective" -name '*.so')
[[ -f $library ]] || fail "$(basename "$wheel") does not hold one library: $library"
"$here/gate.sh" "$library"

cat >"$scratch/check.py" <<'PY'
import array, os, platform
import orinoco_collective as oc

with oc.join_shm(f"/dev/shm/orinoco-wheel-{os.getpid()}", rank=0, ranks=1) as group:
    vector = array.array("f", range(1000))
    group.all_reduce(vector)
    group.all_reduce_many([vector, vector[:10]])
    assert list(vector) == list(range(1000))
    assert group.recent()["failure"] is None
print(f"loaded under qemu-user: orinoco_collective, by Python {platform.python_version()} for {platform.machine()}")
PY
PYTHONPATH=$scratch/package "$prefix/run" "$prefix/sysroot/usr/bin/python3.9" "$scratch/check.py"

mkdir -p "$folder"
rm -f "$folder"/*-py3-none-manylinux_*_aarch64.whl
mv "$wheel" "$folder"
echo "built: $folder/$(basename "$wheel")"
