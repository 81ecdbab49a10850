#!/usr/bin/env bash
# usage: undertaker.sh RUN      with standard input held open by the owner of the boards
#
# Waits until its standard input ends, which happens when the owner is done or has died in any way, and then ends the
# emulators of the folder RUN, removes the network namespace of the same name, and RUN itself. Signals meant for the owner
# (Ctrl-C) pass it by.
set -uo pipefail
trap '' INT TERM HUP QUIT
run=$1

cat >/dev/null

for file in "$run"/*.pid; do
  pid=$(cat "$file" 2>/dev/null) || continue
  # The number may have gone to another process since.
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$run/" && kill -KILL "$pid"
done
ip netns delete "$(basename "$run")" 2>/dev/null
rm -rf "$run"
exit 0
