#!/usr/bin/env bash
# usage: cross/onnxruntime.sh [x86_64|aarch64]
#
# Prints the path of ONNX Runtime's shared library for one architecture (default: this machine's). The library is
# taken once out of the project's Python wheel, because that is the one official build which needs no more than
# glibc 2.28, and the package client that every machine has already knows where to fetch it.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/common.sh"

version=1.31.1
arch=${1:-$(uname -m)}
case $arch in
  x86_64)  wheel_sha256=1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536 ;;
  aarch64) wheel_sha256=0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc ;;
  *) fail "no ONNX Runtime is known for \`$arch\`: use x86_64 or aarch64" 2 ;;
esac
folder=$cache/onnxruntime/$version/$arch
library=$folder/libonnxruntime.so.$version

# Downloads the wheel into $1. The library does not depend on Python: any interpreter tag with a wheel does.
download() {
  echo "onnxruntime==$version --hash=sha256:$wheel_sha256" >"$1/wanted.txt"
  python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$1" --require-hashes -r "$1/wanted.txt" \
    --platform "manylinux_2_28_$arch" --implementation cp --python-version 3.12 --abi cp312 >&2 ||
    fail "downloading onnxruntime $version for $arch failed: check that \`python3 -m pip download onnxruntime\` works"
}

# Copies library and licences out of the wheel $1, having checked the ELF header, so that a half or wrong file never appears.
extract() {
  python3 - "$1" "$library" "$arch" <<'PY'
import os, struct, sys, zipfile
wheel, library, arch = sys.argv[1:]
folder = os.path.dirname(library)
with zipfile.ZipFile(wheel) as archive:
    data = archive.read("onnxruntime/capi/" + os.path.basename(library))
    notices = {name: archive.read("onnxruntime/" + name) for name in ("LICENSE", "ThirdPartyNotices.txt")}
wanted = {"x86_64": 62, "aarch64": 183}[arch]        # e_machine in elf.h
if data[:4] != b"\x7fELF" or struct.unpack_from("<H", data, 18)[0] != wanted:
    sys.exit(f"onnxruntime.sh: {wheel} does not hold an {arch} library")
for name, content in [*notices.items(), (os.path.basename(library), data)]:
    partial = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(partial, "wb") as file:
        file.write(content)
    os.replace(partial, os.path.join(folder, name))
PY
}

if [[ ! -s $library ]]; then
  mkdir -p "$folder"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  download "$scratch"
  extract "$scratch"/onnxruntime-*.whl
fi
echo "$library"
