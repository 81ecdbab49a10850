#!/usr/bin/env python3
"""Compiles the kernels ahead, so that building Orinoco needs no CUDA.

usage: kernels/compile.py            compile into kernels/compiled, fetching NVRTC where it is missing
       kernels/compile.py --check    compile again and compare byte for byte with what is there; fetches nothing
       kernels/compile.py --fetch    fetch NVRTC only

NVRTC comes from NVIDIA's Python wheels, into $XDG_CACHE_HOME/orinoco/nvrtc (~/.cache/orinoco/nvrtc). It needs no GPU.
Exits with 1 when a kernel does not compile or differs, 2 on a wrong argument, 69 when NVRTC cannot be had.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
COMPILED = HERE / "compiled"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "orinoco" / "nvrtc"
COMMAND = "kernels/compile.py"
UNAVAILABLE = 69

# Each file is put before every source, in this order.
PRELUDE = ["prelude.cuh"]
SOURCES = ["convert.cu", "heads.cu", "nms.cu", "preprocess.cu", "reduce.cu"]
# Nothing is fused, so that kernels give the bits of their Rust twins. 177: no source uses all of the prelude.
OPTIONS = ["--std=c++17", "--fmad=false", "--diag-suppress=177"]
# Which compiler makes what. 12.6 is JetPack 6's CUDA; its PTX is for every GPU that has no cubin here.
# 13.0 is JetPack 7's, and the first that knows Thor.
TARGETS = [
    ("12.6.85", "nvidia-cuda-nvrtc-cu12", "libnvrtc.so.12", ["sm_72", "sm_87", "sm_90", "compute_72"]),
    ("13.0.48", "nvidia-cuda-nvrtc", "libnvrtc.so.13", ["sm_110"]),
]


class Unavailable(Exception):
    """NVRTC cannot be had on this machine."""


class Nvrtc:
    """One version of the compiler, as a library."""

    def __init__(self, path):
        # The compiler opens this one by name, which finds it when it is loaded already.
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(path))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {self.library.nvrtcGetErrorString(code).decode()}")

    def text(self, program, kind):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, buffer)
        return buffer.raw

    def compile(self, name, source, target):
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source, name.encode(), 0, None, None)
        options = options_for(target)
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        code = self.library.nvrtcCompileProgram(program, len(options), array)
        log = self.text(program, "ProgramLog").rstrip(b"\0").decode().strip()
        if code != 0:
            sys.exit(f"{COMMAND}: {name} for {target}:\n{log}")
        if log:
            print(f"{name} for {target}: {log}", file=sys.stderr)
        image = self.text(program, "PTX" if target.startswith("compute") else "CUBIN")
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        return image


def options_for(target):
    return [f"--gpu-architecture={target}", *OPTIONS]


def find(version, package, library, fetch):
    """The compiler's library in the cache."""
    folder = CACHE / version
    found = sorted(folder.rglob(library))
    if not found and not list(folder.glob("*.whl")):
        if not fetch:
            raise Unavailable(f"NVRTC {version} is not in {CACHE}: `{COMMAND} --fetch` fetches it")
        folder.mkdir(parents=True, exist_ok=True)
        wanted = ["--no-deps", "--only-binary=:all:", "--quiet", "--dest", str(folder), f"{package}=={version}"]
        if subprocess.run([sys.executable, "-m", "pip", "download", *wanted]).returncode != 0:
            raise Unavailable(f"fetching {package} {version} with pip failed")
    if not found:
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if "/lib/lib" in name])
        found = sorted(folder.rglob(library))
    if not found:
        raise Unavailable(f"the wheel of {package} {version} has no {library} for this machine")
    return found[0]


def whole_source(name):
    # The line directive makes the compiler's messages name the line of the source.
    parts = [(HERE / part).read_bytes() for part in PRELUDE]
    return b"".join(parts) + f'#line 1 "{name}"\n'.encode() + (HERE / name).read_bytes()


def compile_all(fetch):
    """Every file of kernels/compiled by name."""
    files, entries = {}, []
    for version, package, library, targets in TARGETS:
        nvrtc = Nvrtc(find(version, package, library, fetch))
        for name in SOURCES:
            source = whole_source(name)
            for target in targets:
                image = nvrtc.compile(name, source, target)
                kind = "ptx" if target.startswith("compute") else "cubin"
                file = f"{pathlib.Path(name).stem}.{target}.{kind}"
                files[file] = image
                entries.append({
                    "file": file,
                    "source": name,
                    "target": target,
                    "nvrtc": version,
                    "options": options_for(target),
                    "bytes": len(image),
                    "sha256": hashlib.sha256(image).hexdigest(),
                })
    sources = {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in PRELUDE + SOURCES}
    manifest = {"made_by": COMMAND, "sources": sources, "images": sorted(entries, key=lambda entry: entry["file"])}
    files["manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return files


def check(files):
    there = {path.name: path.read_bytes() for path in COMPILED.iterdir()}
    faults = [f"{name} is missing" for name in files if name not in there]
    faults += [f"{name} is not made by {COMMAND}" for name in there if name not in files]
    faults += [f"{name} differs" for name in files if name in there and there[name] != files[name]]
    if faults:
        sys.exit(f"{COMMAND}: {'; '.join(faults)}: run {COMMAND} and commit what it makes")
    print(f"{len(files)} files are what the sources compile to")


def write(files):
    COMPILED.mkdir(exist_ok=True)
    for path in COMPILED.iterdir():
        path.unlink()
    for name, content in files.items():
        (COMPILED / name).write_bytes(content)
    total = sum(len(content) for content in files.values())
    print(f"{len(files)} files, {total} bytes in {COMPILED}")


def main(arguments):
    if arguments not in ([], ["--check"], ["--fetch"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if arguments == ["--fetch"]:
            for version, package, library, _ in TARGETS:
                print(find(version, package, library, fetch=True))
        elif arguments == ["--check"]:
            check(compile_all(fetch=False))
        else:
            write(compile_all(fetch=True))
    except Unavailable as why:
        print(f"{COMMAND}: {why}", file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
