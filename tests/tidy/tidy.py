#!/usr/bin/env python3
"""Checks of the tree and of the built library that no compiler makes.

    python3 tests/tidy/tidy.py                     the sources
    python3 tests/tidy/tidy.py --build BUILD       and the library in the folder BUILD
    python3 tests/tidy/tidy.py --root TREE         another tree than this one

Each problem is a line "rule: file:line: what". The last line has the counts; the exit status is 1 if
there was a problem. tidy_test.py proves that every rule still finds what it is for.

The rules:
  header        ann.h compiles as C99, C11 and C++17 with all warnings, alone and before any other
  abi           ann.h still has what capi/abi.txt says that it promised to compiled programs (abi.py)
  promises      every sentence of ann.h has its line in tests/capi/promises.txt, with a test (promises.py)
  breaks        the patches that show what tests hold apply (tests/capi/breaks/breaks.py)
  layers        an #include of core/ points to its own folder or one below it
  banned        calls that a guest library does not make: printing, ending the process, hidden state,
                random devices, the environment outside one file, device-wide synchronisation
  build_flags   nothing that relaxes IEEE arithmetic; no OpenMP
  names         no file called by what it is not: utils, helper, manager, impl, ...
  places        no absolute path of a build machine, no package registry host
  twins         every folder of core/ is known to the tests
  formatted     the sources lie as .clang-format says, by the version of it that tests/setup.sh installs
  exports       only ann_* leaves the library, and all of ann.h is there
  needed        the library needs the C and C++ runtime and nothing else; its SONAME has the major
  quiet_gpu     a search on the CPU opens no file of a GPU driver
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import abi  # noqa: E402
import promises  # noqa: E402
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "capi/breaks"))
import breaks  # noqa: E402

SOURCES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
TEXTS = SOURCES | {".py", ".sh", ".txt", ".cmake", ".md", ".rs", ".go", ".toml", ".yml", ".yaml",
                   ".in", ".map", ".json", ".mod"}
SKIPPED = {".git", "target", "__pycache__", ".venv", "node_modules", "vendor"}

CLANG_FORMAT = "19.1.7"

# Lowest first. backend/ is the seam between phases and devices: it may include anything, and
# anything from search/ on may include it.
LAYERS = ["base", "distance", "dataset", "traverse", "knn", "graph", "segment", "place", "search", "tune", "index",
          "storage"]

# (pattern, why, files that may). Strings and comments are blanked out before the search.
BANNED = [
    (r"(?<![\w.:>])(?:std::)?v?f?printf\s*\(", "prints", ()),
    (r"(?<![\w.:>])(?:std::)?(?:puts|fputs|putchar|perror)\s*\(", "prints", ()),
    (r"\bstd::(?:cout|cerr|clog)\b", "prints", ()),
    (r"(?<![\w.:>])(?:std::)?(?:abort|exit|_exit|quick_exit|_Exit|terminate)\s*\(",
     "ends the host's process", ()),
    (r"(?<![\w.])assert\s*\(", "aborts; report ANN_INTERNAL or use static_assert", ()),
    (r"(?<![\w.:>])(?:std::)?(?:signal|sigaction)\s*\(|\braise\s*\(\s*SIG",
     "touches the host's signals", ()),
    (r"(?<![\w.:>])(?:std::)?s?rand(?:om|_r)?\s*\(", "hidden state; use base/random.h", ()),
    (r"\bstd::random_device\b", "differs from run to run", ()),
    (r"\bstd::(?:mt19937|default_random_engine|uniform_\w+_distribution|normal_distribution)\b",
     "differs between standard libraries; use base/random.h", ()),
    (r"(?<![\w.>])(?:std::|secure_)?getenv\s*\(", "the environment is read in one file",
     ("core/base/environment.cpp",)),
    (r"\bcuda(?:DeviceSynchronize|DeviceReset|ThreadExit)\s*\(", "stops or ends others' work", ()),
    (r"(?<![\w.])cuda(?!\w*_t\b)[A-Z]\w*\s*\(", "goes round the table of backend/runtime.h; use launch.h",
     ("core/backend/runtime_cuda.cu", "core/backend/devices_cuda.cu")),
    (r"#\s*pragma\s+omp\b", "no OpenMP", ()),
    (r"\bomp_\w+\s*\(", "no OpenMP", ()),
    (r"\busing\s+namespace\s+std\b", "no using namespace std", ()),
    (r"\b__(?:DATE|TIME|TIMESTAMP)__\b", "two builds would differ", ()),
    (r"\b(?:_MM_SET_FLUSH_ZERO_MODE|_MM_SET_DENORMALS_ZERO_MODE|_mm_setcsr|fesetround|fesetenv)\b",
     "changes the host's floating-point mode", ("core/base/execution.cpp",)),
    (r"(?<![\w.])dlopen\s*\(", "loads code", ()),
    (r"\bthread_local\b", "outlives an unloaded library", ()),
]

# Parts of file and folder names.
VAGUE_NAMES = {"util", "utils", "utility", "utilities", "helper", "helpers", "manager", "impl",
               "misc", "stuff"}

# Built from parts, so that this file does not hold what it looks for.
REGISTRIES = ["pypi" + ".org", "files.python" + "hosted.org", "crates" + ".io",
              "proxy.golang" + ".org", "npm" + "js", "registry.npm" + "js.org", "rubygems" + ".org"]
MACHINE_PATHS = ["/" + "work/", "/" + "root/", "/" + "home/"]
# Without the last slash as well, but not within a longer path or word.
MACHINE_PATH = re.compile(r"(?<![\w.}$/-])(?:" + "|".join(re.escape(p.rstrip("/"))
                                                           for p in MACHINE_PATHS) + r")(?=/|[\s\"'`),:;]|$)")
REGISTRY = re.compile("|".join(re.escape(host) for host in REGISTRIES))

RELAXED_FLAGS = re.compile(r"-(?:ffast-math|Ofast|funsafe-math-optimizations|fassociative-math"
                           r"|ffinite-math-only|fopenmp)\b|--?use_fast_math\b|find_package\(OpenMP")

LIBRARIES_ALLOWED = re.compile(r"^(?:lib(?:c|m|pthread|dl|rt|gcc_s|stdc\+\+)\.so\.\d+"
                               r"|ld-linux[\w.-]*\.so\.\d+)$")
# A sanitizer's runtime is there in a build that asked for it.
SANITIZER_LIBRARY = re.compile(r"^lib(?:asan|ubsan|tsan|clang_rt[\w.-]*)\.so(?:\.\d+)?$")


class Report:
    def __init__(self):
        self.problems = []
        self.notes = []
        self.rules = []

    def problem(self, rule, place, what):
        self.problems.append(f"{rule}: {place}: {what}")

    def note(self, text):
        self.notes.append(text)


def files_of(root, folders, suffixes):
    for folder in folders:
        base = root / folder
        if base.is_file():
            yield base
            continue
        for path in sorted(base.rglob("*")) if base.is_dir() else ():
            parts = path.relative_to(root).parts
            if any(part in SKIPPED or part.startswith("build") for part in parts[:-1]):
                continue
            if path.is_file() and (path.suffix in suffixes or path.name == "CMakeLists.txt"):
                yield path


def text_of(path):
    return path.read_text(encoding="utf-8", errors="replace")


def without_comments(text, strings_too=True):
    """Blanks out comments and, if asked, the insides of literals; lines keep their numbers."""
    pattern = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)

    def blank(match):
        found = match.group(0)
        if not strings_too and found[0] in "\"'":
            return found
        # A digit separator (1'000'000) is no literal; short matches between digits stay.
        if found[0] == "'" and len(found) > 8:
            return found
        return re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


# --- Rules about sources ---------------------------------------------------------------------------

def rule_header(root, report):
    header = root / "capi/include/ann.h"
    if not header.is_file():
        report.problem("header", "capi/include/ann.h", "is missing")
        return
    text = text_of(header)
    for match in re.finditer(r"^\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", text, re.M):
        if match.group(1) not in ("stddef.h", "stdint.h"):
            report.problem("header", f"capi/include/ann.h:{line_of(text, match.start(1))}",
                           f"includes {match.group(1)}")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    compilers = [("cc", "c", "c99"), ("cc", "c", "c11"), ("c++", "c++", "c++17"),
                 ("c++", "c++", "c++20")]
    with tempfile.TemporaryDirectory() as folder:
        for compiler, language, standard in compilers:
            tool = shutil.which(compiler)
            if tool is None:
                report.note(f"header: no {compiler} here, {standard} was not tried")
                continue
            source = pathlib.Path(folder) / ("x.c" if language == "c" else "x.cpp")
            inits = re.findall(r"^#define (ANN_\w+)_INIT\b", text, re.M)
            # Twice, because it must guard itself; every _INIT must be an initializer.
            body = '#include "ann.h"\n#include "ann.h"\n'
            body += "void use(void);\nvoid use(void) {\n"
            for name in inits:
                body += f"  {name.lower()} {name.lower()}_x = {name}_INIT; (void){name.lower()}_x;\n"
            source.write_text(body + "}\n")
            run = subprocess.run([tool, f"-std={standard}", *strict, "-I", str(header.parent),
                                  str(source)], capture_output=True, text=True)
            if run.returncode != 0:
                first = next((line for line in run.stderr.splitlines() if "error" in line),
                             "does not compile")
                report.problem("header", "capi/include/ann.h", f"as {standard}: {first.strip()}")


def rule_abi(root, report):
    for problem in abi.differences(root):
        report.problem("abi", abi.HEADER, problem)


def rule_promises(root, report):
    for problem in promises.problems(root):
        report.problem("promises", promises.HEADER, problem)


def rule_breaks(root, report):
    for problem in breaks.problems(root):
        report.problem("breaks", "tests/capi/breaks", problem)


def rule_layers(root, report):
    core = root / "core"
    for path in files_of(root, ["core"], SOURCES):
        parts = path.relative_to(core).parts
        if len(parts) < 2 or parts[0] == "backend":
            continue
        here = parts[0]
        name = path.relative_to(root)
        if here not in LAYERS:
            report.problem("layers", str(name), f"core/{here} has no place in the order of folders")
            continue
        text = without_comments(text_of(path), strings_too=False)
        for match in re.finditer(r"^\s*#\s*include\s*\"([^\"]+)\"", text, re.M):
            target = match.group(1)
            place = f"{name}:{line_of(text, match.start(1))}"
            if target.startswith("../") or "/../" in target:
                report.problem("layers", place, f"includes {target}; paths start at core/")
                continue
            there = target.split("/")[0] if "/" in target else None
            if there is None:
                if target != "ann.h" and not (path.parent / target).is_file():
                    report.problem("layers", place, f"includes {target}, which is not beside it")
            elif there == "backend":
                # The seam may be asked from where devices are chosen upwards, and each phase's
                # CUDA files use its launch wrapper.
                cuda = path.suffix in (".cu", ".cuh") or "cuda" in path.stem
                if not cuda and LAYERS.index(here) < LAYERS.index("search"):
                    report.problem("layers", place, f"core/{here} includes {target}")
            elif there in ("capi", "tests"):
                report.problem("layers", place, f"core/{here} includes {target}, which is above it")
            elif there not in LAYERS:
                if not (core / target).is_file():
                    report.problem("layers", place, f"includes {target}, in no known folder")
            elif LAYERS.index(there) > LAYERS.index(here):
                report.problem("layers", place, f"core/{here} includes {target}, which is above it")


def rule_banned(root, report):
    for path in files_of(root, ["core", "capi"], SOURCES):
        name = path.relative_to(root).as_posix()
        text = without_comments(text_of(path))
        for pattern, why, may in BANNED:
            if name in may:
                continue
            for match in re.finditer(pattern, text):
                found = " ".join(match.group(0).split())
                report.problem("banned", f"{name}:{line_of(text, match.start())}", f"{found} {why}")


def rule_build_flags(root, report):
    for path in files_of(root, ["CMakeLists.txt", "core", "capi", "tests", "examples", ".ci"],
                         {".txt", ".cmake", ".sh", ".in"}):
        text = text_of(path)
        for number, line in enumerate(text.splitlines(), 1):
            match = RELAXED_FLAGS.search(line.split("#")[0])
            if match:
                report.problem("build_flags", f"{path.relative_to(root)}:{number}", match.group(0))


def rule_names(root, report):
    for path in files_of(root, ["core", "capi", "bindings", "tests", "examples"], TEXTS):
        relative = path.relative_to(root)
        for part in relative.parts:
            words = set(re.split(r"[^a-z0-9]+", part.lower()))
            vague = words & VAGUE_NAMES
            if vague:
                report.problem("names", str(relative), f"\"{vague.pop()}\" says nothing")
            if path.suffix in SOURCES and re.search(r"[A-Z ]", path.stem):
                report.problem("names", str(relative), "is not in snake_case")
                break


def rule_places(root, report):
    tops = [entry.name for entry in root.iterdir()
            if entry.name not in SKIPPED and not entry.name.startswith("build")]
    for path in files_of(root, sorted(tops), TEXTS):
        text = text_of(path)
        name = path.relative_to(root)
        for number, line in enumerate(text.splitlines(), 1):
            host = REGISTRY.search(line)
            if host:
                report.problem("places", f"{name}:{number}", f"names the registry host {host.group(0)}")
            place = MACHINE_PATH.search(line)
            if place:
                report.problem("places", f"{name}:{number}", f"has the absolute path {place.group(0)}")


def rule_twins(root, report):
    """A folder of core/ that holds code is included by at least one test of tests/unit or
    tests/differential."""
    core = root / "core"
    if not core.is_dir():
        return
    tests = "\n".join(text_of(path) for path in files_of(
        root, ["tests/unit", "tests/differential"], SOURCES))
    for folder in sorted(entry for entry in core.iterdir() if entry.is_dir()):
        if folder.name == "backend":  # reached through tests/capi/context_test.c, devices
            continue
        if not any(path.suffix in SOURCES for path in folder.iterdir()):
            continue
        if f'#include "{folder.name}/' not in tests:
            report.problem("twins", f"core/{folder.name}", "no test includes a file of it")


# --- Rules about the library -----------------------------------------------------------------------

def rule_formatted(root, report):
    """Other versions lay a few lines otherwise, so that only the pinned one judges."""
    if not (root / ".clang-format").is_file():
        report.problem("formatted", ".clang-format", "is not here")
        return
    command = shutil.which("clang-format")
    version = subprocess.run([command, "--version"], capture_output=True, text=True).stdout if command else ""
    if f" {CLANG_FORMAT}" not in version:
        report.problem("formatted", ".clang-format",
                       f"needs clang-format {CLANG_FORMAT}: run tests/setup.sh tests")
        return
    names = [str(path) for path in files_of(root, ["core", "capi", "tests", "examples", "bindings"], SOURCES)
             if path.suffix in SOURCES]
    run = subprocess.run([command, "--dry-run", "--Werror", *names], capture_output=True, text=True, cwd=root)
    found = {}
    for match in re.finditer(r"^(\S+?):(\d+):\d+: error: code should be clang-formatted", run.stderr, re.M):
        found.setdefault(match[1], match[2])
    for name, line in found.items():
        report.problem("formatted", f"{os.path.relpath(name, root)}:{line}", "clang-format -i lays it otherwise")
    if run.returncode != 0 and not found:
        report.problem("formatted", ".clang-format", run.stderr.strip()[:200])


def output_of(report, rule, *command):
    if shutil.which(command[0]) is None:
        report.note(f"{rule}: no {command[0]} here")
        return None
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        report.problem(rule, command[-1], f"{command[0]} fails: {run.stderr.strip()[:200]}")
        return None
    return run.stdout


def rule_exports(root, library, report):
    listing = output_of(report, "exports", "nm", "-D", "--defined-only", str(library))
    if listing is None:
        return
    names = set()
    for line in listing.splitlines():
        parts = line.split()
        name = parts[-1].split("@")[0]
        if parts[-2] == "A":  # the name of a symbol version
            continue
        names.add(name)
        if not re.fullmatch(r"ann_[a-z0-9_]+", name):
            report.problem("exports", library.name, f"shows {name}")
    declared = set(re.findall(r"^ANN_API [\w *]*?\b(ann_\w+)\(", text_of(
        root / "capi/include/ann.h"), re.M))
    for name in sorted(declared - names):
        report.problem("exports", library.name, f"lacks {name}")
    for name in sorted(names - declared):
        if name.startswith("ann_"):
            report.problem("exports", library.name, f"shows {name}, which ann.h does not declare")
    report.note(f"exports: {len(names)} functions, {len(declared)} in ann.h")


def rule_needed(root, library, report):
    listing = output_of(report, "needed", "readelf", "-d", str(library))
    if listing is None:
        return
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", listing)
    sanitized = any(SANITIZER_LIBRARY.match(name) for name in needed)
    for name in needed:
        if not LIBRARIES_ALLOWED.match(name) and not SANITIZER_LIBRARY.match(name):
            report.problem("needed", library.name, f"needs {name}")
    major = re.search(r"^#define ANN_VERSION_MAJOR (\d+)", text_of(
        root / "capi/include/ann.h"), re.M)
    soname = re.search(r"\(SONAME\).*\[(.+)\]", listing)
    wanted = f"libgannet.so.{major.group(1) if major else '?'}"
    if not soname or soname.group(1) != wanted:
        report.problem("needed", library.name,
                       f"has the SONAME {soname.group(1) if soname else 'none'}, wanted {wanted}")
    for tag in ("TEXTREL", "RPATH", "RUNPATH"):
        if re.search(rf"\({tag}\)", listing) and not sanitized:
            report.problem("needed", library.name, f"has {tag}")
    stack = output_of(report, "needed", "readelf", "-lW", str(library)) or ""
    if re.search(r"GNU_STACK.*\bRWE\b", stack):
        report.problem("needed", library.name, "asks for an executable stack")
    if shutil.which("strip"):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / library.name
            shutil.copy(library, copy)
            subprocess.run(["strip", "--strip-unneeded", str(copy)], check=False)
            report.note(f"needed: {', '.join(needed)}; stripped size {copy.stat().st_size:,} bytes")


# A whole use on the CPU, then what is mapped into the process.
PROBE = r"""
#include <stdio.h>
#include <string.h>
#include "ann.h"
int main(void) {
  static float data[500 * 8];
  static uint64_t ids[500 * 5];
  for (int i = 0; i < 500 * 8; i++) data[i] = (float)((i * 2654435761u) >> 16 & 1023);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  ann_matrix rows = ANN_MATRIX_INIT;
  ann_results found = ANN_RESULTS_INIT;
  ann_device_info cpu = ANN_DEVICE_INFO_INIT;
  ann_index *index;
  shape.dim = rows.dim = 8;
  rows.element = ANN_F32;
  rows.data = data;
  rows.rows = found.rows = 500;
  found.k = 5;
  found.ids = ids;
  if (ann_index_create(NULL, &shape, &index, NULL)) return 1;
  if (ann_build(index, &rows, NULL, NULL, NULL, NULL)) return 2;
  if (ann_search_batch(index, &rows, NULL, &found, NULL, NULL)) return 3;
  if (ann_search_exact(index, &rows, NULL, &found, NULL, NULL)) return 4;
  if (ann_device_get_info(ANN_DEVICE_CPU, &cpu, NULL)) return 5;
  if (!ann_build_info()[0]) return 6;
  ann_index_free(index);
  char line[4096];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) fputs(line, stdout);
  return 0;
}
"""
GPU_FILE = re.compile(r"cuda|nvidia|nvml|libnvrtc", re.I)


def rule_quiet_gpu(root, library, report):
    compiler = shutil.which("cc")
    if compiler is None:
        report.note("quiet_gpu: no cc here")
        return
    listing = output_of(report, "quiet_gpu", "readelf", "-d", str(library)) or ""
    if re.search(r"\(NEEDED\).*\[lib(?:asan|tsan)", listing):
        report.note("quiet_gpu: left out for a sanitizer's build")
        return
    with tempfile.TemporaryDirectory() as folder:
        # A copy, because the path of the library itself may hold the words looked for.
        copy = pathlib.Path(folder) / "libgannet.so"
        shutil.copy(library, copy)
        link = re.search(r"\(SONAME\).*\[(.+)\]", listing)
        if link and link.group(1) != "libgannet.so":
            os.symlink(copy, pathlib.Path(folder) / link.group(1))
        source, program = pathlib.Path(folder) / "probe.c", pathlib.Path(folder) / "probe"
        source.write_text(PROBE)
        run = subprocess.run([compiler, "-std=c11", "-I", str(root / "capi/include"), str(source),
                              str(copy), f"-Wl,-rpath,{folder}", "-o", str(program)],
                             capture_output=True, text=True)
        if run.returncode != 0:
            report.problem("quiet_gpu", library.name, f"the probe does not link: {run.stderr[:300]}")
            return
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("GANNET_BACKEND", "LD_PRELOAD", "LD_LIBRARY_PATH")}
        run = subprocess.run([str(program)], capture_output=True, text=True, env=environment)
        if run.returncode != 0:
            report.problem("quiet_gpu", library.name, f"the probe ends with {run.returncode}")
            return
        for line in run.stdout.splitlines():
            if GPU_FILE.search(line):
                report.problem("quiet_gpu", library.name, f"a search maps {line.split()[-1]}")
        ways = ["the map of the process"]
        strace = shutil.which("strace")
        if strace:
            log = pathlib.Path(folder) / "log"
            run = subprocess.run([strace, "-f", "-qq", "-e", "trace=%file", "-o", str(log),
                                  str(program)], capture_output=True, text=True, env=environment)
            if run.returncode == 0 and log.is_file():
                ways.append("strace")
                for line in text_of(log).splitlines():
                    if GPU_FILE.search(line):
                        report.problem("quiet_gpu", library.name, f"a search does {line.strip()[:150]}")
            else:
                report.note(f"quiet_gpu: strace does not run here: {run.stderr.strip()[:100]}")
        report.note("quiet_gpu: looked at " + " and ".join(ways))


SOURCE_RULES = {"header": rule_header, "abi": rule_abi, "promises": rule_promises, "breaks": rule_breaks,
                "layers": rule_layers, "banned": rule_banned, "build_flags": rule_build_flags,
                "names": rule_names, "places": rule_places, "twins": rule_twins,
                "formatted": rule_formatted}
LIBRARY_RULES = {"exports": rule_exports, "needed": rule_needed, "quiet_gpu": rule_quiet_gpu}


def check(root, library=None, rules=None):
    report = Report()
    for name, rule in SOURCE_RULES.items():
        if rules is None or name in rules:
            rule(root, report)
            report.rules.append(name)
    if library is not None:
        for name, rule in LIBRARY_RULES.items():
            if rules is None or name in rules:
                rule(root, library, report)
                report.rules.append(name)
    return report


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--root", type=pathlib.Path, default=here)
    arguments.add_argument("--build", type=pathlib.Path, help="folder with libgannet.so")
    arguments.add_argument("--rule", action="append", help="only this rule; may be repeated")
    options = arguments.parse_args()
    library = None
    if options.build:
        library = (options.build / "libgannet.so").resolve()
        if not library.is_file():
            print(f"tidy: no libgannet.so in {options.build}", file=sys.stderr)
            return 2
    report = check(options.root.resolve(), library, options.rule)
    for line in report.problems:
        print(line)
    for line in report.notes:
        print(f"({line})")
    print(f"tidy: {len(report.rules)} rules, {len(report.problems)} problems")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
