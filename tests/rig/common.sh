# shellcheck shell=bash
# Sourced by the scripts of this folder: how a script fails, and a private apt that reads and changes nothing of this
# machine's own. Each script makes one part of a board, in an empty folder that its caller names.
#
# APT                     where the package lists are kept (set by the caller)
# ORINOCO_DEBIAN_MIRROR   a Debian mirror that carries Debian 12 (default: the one this Debian machine uses)
suite=bookworm
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
lists_minutes_max=60
unavailable=69  # EX_UNAVAILABLE: this machine cannot do it, so a caller may print "skipped" and go on.

# Says on standard output, where nothing else is printed, what takes a while.
say() { echo "${0##*/}: $1"; }

# Says in one sentence what failed and what to do next, and exits with 1 or the code given.
fail() { echo "${0##*/}: $1" >&2; exit "${2:-1}"; }

# Fails when one of the named commands is not installed.
need() {
  local name
  PATH=$PATH:/usr/sbin:/sbin    # where depmod is, which is not on every user's path
  for name in "$@"; do
    command -v "$name" >/dev/null || fail "\`$name\` is not installed: run ./setup.sh boards" "$unavailable"
  done
}

# Prints the Debian mirror to use.
debian_mirror() {
  local mirror=${ORINOCO_DEBIAN_MIRROR:-}
  [[ -n $mirror ]] || mirror=$(apt-get indextargets 'Label: Debian' 'Created-By: Packages' --format '$(SITE)' | head -n1)
  [[ -n $mirror ]] || fail "no Debian mirror is known here: set ORINOCO_DEBIAN_MIRROR to one that carries Debian 12" "$unavailable"
  echo "$mirror"
}

# Prepares the private apt, for boards (arm64) and for what runs here (amd64); sets `apt_options`.
private_apt() {
  need apt-get dpkg-deb flock
  [[ -e $keyring ]] || fail "$keyring is missing: run ./setup.sh boards" "$unavailable"
  mkdir -p "$APT"/{lists/partial,none}
  : >>"$APT/status"             # an own, empty status file: everything counts as missing, and no system lock is taken
  apt_options=(-qq -oAPT::Architecture=arm64 -oAPT::Architectures=arm64,amd64 -oAPT::Sandbox::User=root
    -oAPT::Install-Recommends=0 -oDir::State="$APT" -oDir::State::lists="$APT/lists" -oDir::State::status="$APT/status"
    -oDir::Cache="$APT" -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache= -oDebug::NoLocking=1
    -oDir::Etc::sourcelist="$APT/sources.list" -oDir::Etc::sourceparts="$APT/none"
    -oDir::Etc::preferences="$APT/none" -oDir::Etc::preferencesparts="$APT/none"
    -oAcquire::Languages=none -oAPT::Update::Error-Mode=any -oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  (flock 9; refresh_lists) 9>"$APT/lock"
}

# Fetches the package lists, unless they are fresh; several scripts at once do it once.
refresh_lists() {
  local mirror
  [[ -z $(find "$APT/fresh" -mmin "-$lists_minutes_max" 2>/dev/null) ]] || return 0
  mirror=$(debian_mirror)
  printf "deb [signed-by=$keyring] $mirror %s main\n" $suite $suite-backports >"$APT/sources.list"
  apt-get "${apt_options[@]}" update ||
    fail "reading Debian's package lists failed: set ORINOCO_DEBIAN_MIRROR to a mirror that carries Debian 12" "$unavailable"
  touch "$APT/fresh"
}

# Fetches the packages $2... and all that they depend on into the folder $1.
fetch() {
  local folder=$1; shift
  mkdir -p "$folder/partial"
  apt-get "${apt_options[@]}" -oDir::Cache::archives="$folder" install -y --download-only "$@" ||
    fail "fetching Debian packages failed: try again, or set ORINOCO_DEBIAN_MIRROR to another mirror" "$unavailable"
}

# Fetches the packages $2... without what they depend on into the folder $1.
fetch_alone() {
  local folder=$1; shift
  mkdir -p "$folder"
  (cd "$folder" && apt-get "${apt_options[@]}" download "$@") ||
    fail "fetching Debian packages failed: try again, or set ORINOCO_DEBIAN_MIRROR to another mirror" "$unavailable"
}

# Unpacks all packages of the folder $1 into the folder $2. Nothing of them is run.
unpack() {
  local deb
  mkdir -p "$2"
  for deb in "$1"/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$2" --no-same-owner --keep-directory-symlink; done
}
