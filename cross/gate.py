"""Does an aarch64 binary load on JetPack 5, the oldest system we build for (Ubuntu 20.04: glibc 2.31, GStreamer 1.16)?

A symbol that its libraries lack is found here by name and version, and not by a board that refuses to start the
program. What a symbol needs is read from three places: the version tags in the binary (glibc, libgcc, libstdc++), the
`version=` attributes in the .gir files (GStreamer, GLib), and the libraries of the sysroot (whether it exists at all).
"""

import argparse
import glob
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

# The newest version that Ubuntu 20.04 provides. Its libgcc and libstdc++ are those of GCC 10.
TAG_LIMITS = {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12), "GCC": (10,)}
API_LIMITS = {"GStreamer": (1, 16), "GLib": (2, 64)}

# Every JetPack has these; anything else is opened at run time, by name, so that its absence is an answer.
LIBRARIES_ALLOWED = re.compile(
    r"(ld-linux-aarch64|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|(glib|gobject|gio|gmodule)-2\.0"
    r"|gst(reamer|base|app|video|audio|pbutils|rtp|rtsp|sdp|tag|net|allocators)-1\.0))\.so\.\d+"
)

# Functions behind macros, which .gir files leave out, with the version whose headers have them.
BEHIND_MACROS = {
    "_gst_debug_category_new": ("GStreamer", (1, 0)),  # GST_DEBUG_CATEGORY_INIT in gst/gstinfo.h, since before 1.0
}

CORE = "{http://www.gtk.org/introspection/core/1.0}"
C_IDENTIFIER = "{http://www.gtk.org/introspection/c/1.0}identifier"
GET_TYPE = "{http://www.gtk.org/introspection/glib/1.0}get-type"


def parse_version(text):
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def show(version):
    return ".".join(map(str, version)) if version else "-"


def readelf(path, *options):
    command = ["aarch64-linux-gnu-readelf", "-W", *options, path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"gate: {path} cannot be read as an ELF file: name a built binary")
    return done.stdout


class Binary:
    """What a binary asks of the system it is loaded on."""

    def __init__(self, path):
        dynamic = readelf(path, "-h", "-d")
        self.machine = re.search(r"Machine:\s*(.*)", dynamic)[1]
        self.libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        # In `readelf -V`, what is needed stands as `Name: GLIBC_2.17  Flags: ...  Version: 4` under `File: libc.so.6`.
        needs = readelf(path, "-V").partition("Version needs section")[2]
        self.tags = set(re.findall(r"Name: (\S+)", needs))
        self.symbols = {name for name, defined, weak in symbols_of(path) if not defined and not weak and "@" not in name}


def symbols_of(path):
    """Yields (name, is defined, is weak) for each dynamic symbol; a name with a version tag keeps it."""
    for line in readelf(path, "--dyn-syms").splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[0].rstrip(":").isdigit():
            yield columns[7], columns[6] != "UND", columns[4] == "WEAK"


def read_gir(path, since):
    """Adds to `since`, for each function of one .gir file, its family and the version it came with."""
    family = "GStreamer" if os.path.basename(path).startswith("Gst") else "GLib"

    def walk(element, outer):
        # A method is at least as new as its class, which alone may carry the mark.
        version = max(outer, parse_version(element.get("version", "")))
        for name in (element.get(C_IDENTIFIER), element.get(GET_TYPE)):
            if name:
                since.setdefault(name, (family, version))
        for child in element:
            walk(child, version)

    for namespace in ElementTree.parse(path).getroot().iter(CORE + "namespace"):
        for child in namespace:
            walk(child, ())


def known_functions(sysroot):
    """Since which version each function exists. This machine's .gir files name what is newer than the sysroot."""
    since = dict(BEHIND_MACROS)
    for root in (sysroot, "/"):
        for pattern in ("Gst*", "GLib-2.0", "GObject-2.0", "Gio-2.0", "GModule-2.0"):
            for path in glob.glob(os.path.join(root, "usr/share/gir-1.0", pattern + ".gir")):
                read_gir(path, since)
    return since


def exported(sysroot, libraries):
    """What the sysroot's copies of these libraries define."""
    names = set()
    for library in libraries:
        for folder in ("lib", "usr/lib"):
            path = os.path.join(sysroot, folder, "aarch64-linux-gnu", library)
            if os.path.exists(path):
                names.update(name.partition("@")[0] for name, defined, _ in symbols_of(path) if defined)
    return names


def check_tags(binary):
    """One row for each family of version tags (the newest against its limit), and one for tags of no known family."""
    newest, strange = {}, []
    for tag in binary.tags:
        family, _, version = tag.rpartition("_")
        if family in TAG_LIMITS and re.fullmatch(r"[\d.]+", version):
            newest[family] = max(newest.get(family, ()), parse_version(version))
        else:
            strange.append(tag)
    for family, limit in TAG_LIMITS.items():
        found = newest.get(family, ())
        # GCC's tags number its releases: any 10.x is inside a limit of 10.
        yield family, show(found), show(limit), [] if found[: len(limit)] <= limit else [f"{family}_{show(found)}"]
    if strange:
        yield "other tags", len(strange), "none", sorted(strange)


def check_symbols(binary, since, present):
    """One row for GStreamer and GLib each, and one for symbols that nothing in the sysroot accounts for."""
    versions = {family: [] for family in API_LIMITS}
    late = {family: [] for family in API_LIMITS}
    unknown = []
    for symbol in sorted(binary.symbols):
        family, version = since.get(symbol, (None, ()))
        if family:
            versions[family].append(version)
            if version[:2] > API_LIMITS[family]:
                late[family].append(f"{symbol} is there since {family} {show(version)}")
                continue
        if symbol not in present:
            unknown.append(f"{symbol} is in none of the sysroot's libraries")
        elif not family and re.match(r"_?(gst|g)_", symbol):
            # Mostly functions that were inline until 1.18, so their presence in the sysroot proves nothing.
            unknown.append(f"{symbol} is in no .gir file, so its age is not known")
    for family, limit in API_LIMITS.items():
        newest = show(max(versions[family], default=()))
        yield family, f"{newest} ({len(versions[family])} symbols)", show(limit), late[family]
    yield "other symbols", len(unknown), "none", unknown


def check(binary, since, sysroot):
    """Yields the rows of the table: what, found, limit, faults."""
    yield "machine", binary.machine, "AArch64", [] if binary.machine == "AArch64" else [binary.machine]
    yield from check_tags(binary)
    yield from check_symbols(binary, since, exported(sysroot, binary.libraries))
    strange = [library for library in binary.libraries if not LIBRARIES_ALLOWED.fullmatch(library)]
    yield "libraries", len(binary.libraries), "allowed list", [f"{library} is not on every JetPack" for library in strange]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sysroot", required=True)
    parser.add_argument("binaries", nargs="+")
    arguments = parser.parse_args()
    since = known_functions(arguments.sysroot)
    if not {"gst_init", "gst_app_sink_pull_sample", "gst_video_info_from_caps", "g_object_ref", "g_free"} <= set(since):
        sys.exit("gate: the sysroot's .gir files are incomplete: remove the toolchain's folder and make it again")
    passed = True
    for path in arguments.binaries:
        print(f"{path}\n  {'what':<14} {'found':<20} {'limit':<13} ok")
        for what, found, limit, faults in check(Binary(path), since, arguments.sysroot):
            print(f"  {what:<14} {found:<20} {limit:<13} {'no' if faults else 'yes'}")
            for fault in faults:
                print(f"    {fault}")
            passed = passed and not faults
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
