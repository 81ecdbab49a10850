#!/usr/bin/env bash
# usage: cross/test.sh [VIDEO]
#
# Checks the cross toolchain itself, without the project's code: that the gate passes what JetPack 5 can load and
# refuses what it cannot, by name; and, given an H.264 MP4, that the sysroot's GStreamer decodes it under qemu-user.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/common.sh"

video=${1:+$(realpath -- "$1")}
prefix=$("$here/toolchain.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# Builds the program $1 from the C on stdin, against the sysroot's GStreamer; further arguments go to the compiler.
program() {
  local name=$1 lib=$prefix/sysroot/usr/lib/aarch64-linux-gnu include=$prefix/sysroot/usr/include; shift
  "$prefix/cc" -x c - -o "$name" -I"$include/gstreamer-1.0" -I"$include/glib-2.0" -I"$lib/glib-2.0/include" \
    -lgstreamer-1.0 -lgobject-2.0 -lglib-2.0 "$@"
}

# Fails unless the gate refuses $1 in the words $2.
refused() {
  local said
  if said=$("$here/gate.sh" "$1"); then fail "the gate let \`$1\` pass: $2"; fi
  grep -q -- "$2" <<<"$said" || fail "the gate refused \`$1\` without saying \"$2\": $said"
  echo "refused: $2"
}

program good <<'C'
#include <gst/gst.h>
int main(int argc, char **argv) { gst_init(&argc, &argv); return !gst_element_factory_make("fakesink", 0); }
C
"$here/gate.sh" good >/dev/null || fail "the gate refuses a program of GStreamer 1.0's calls: run cross/gate.sh on one"
"$prefix/run" ./good || fail "a program linked here does not run under qemu-user"
echo "passed and ran: a program of GStreamer 1.0's calls"

program new_call <<'C'
#include <gst/gst.h>
int main(void) { return gst_element_get_current_running_time(0) != 0; }
C
refused new_call "gst_element_get_current_running_time is there since GStreamer 1.18"

program once_inline <<'C'
void gst_caps_unref(void *);
int main(void) { gst_caps_unref(0); }
C
refused once_inline "gst_caps_unref is in no .gir file"

# Stands for any library with a symbol that came with glibc 2.34.
"$prefix/cc" -shared -x c - -o libelsewhere.so -Wl,-soname,libelsewhere.so.1 -Wl,--version-script=<(echo 'GLIBC_2.34 { newer; };') <<<'void newer(void) {}'
program new_glibc -L. -lelsewhere <<<'void newer(void); int main(void) { newer(); }'
refused new_glibc GLIBC_2.34
refused new_glibc "libelsewhere.so.1 is not on every JetPack"

if [[ -n $video ]]; then
  frames=$("$prefix/run" "$prefix/sysroot/usr/bin/gst-launch-1.0" -v filesrc location="$video" ! qtdemux ! h264parse ! avdec_h264 ! \
    identity silent=false eos-after=6 ! fakesink | grep -c 'identity0: last-message = chain') || true
  [[ $frames == 6 ]] || fail "six frames of $video were to be decoded under qemu-user, and $frames were"
  echo "decoded under qemu-user: 6 frames of $(basename "$video")"
fi
