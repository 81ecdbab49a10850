# shellcheck shell=bash disable=SC2034
# Sourced by the scripts of this folder: where things are cached, and how a script fails.
# Orinoco loads a library from the cache only where nobody else can write it.
umask 022
cache=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/orinoco
target=aarch64-unknown-linux-gnu
skipped=69      # EX_UNAVAILABLE: this machine cannot do it, so a caller may print "skipped" and go on.

PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH

# Says in one sentence what failed and what to do next, and exits with 1 or the code given.
fail() { echo "${0##*/}: $1" >&2; exit "${2:-1}"; }

# Fails when one of the named commands is not installed.
need() {
  local name
  for name in "$@"; do
    command -v "$name" >/dev/null || fail "\`$name\` is not installed: run ./setup.sh cross" "$skipped"
  done
}
