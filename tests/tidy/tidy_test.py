#!/usr/bin/env python3
"""Proves that tidy.py finds what it is for: a clean scratch tree passes, and one violation of each
kind, put into it alone, is found by the rule that names it. Likewise for small libraries.

    python3 tests/tidy/tidy_test.py
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tidy  # noqa: E402

HEADER = """#ifndef ANN_H
#define ANN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define ANN_API __attribute__((visibility("default")))
#define ANN_VERSION_MAJOR 0
#define ANN_ABI_VERSION 0x00000001u
enum { ANN_OK = 0, ANN_STATE = 200 /* The state.
 * Any thread. */ };
typedef struct ann_matrix {
  uint32_t struct_size;
} ann_matrix;
#define ANN_MATRIX_INIT {sizeof(ann_matrix)}
ANN_API const char *ann_version(void);
#ifdef __cplusplus
}
#endif
#endif
"""

ABI = """1 function const char *ann_version(void)
1 constant ANN_OK 0
1 constant ANN_STATE 200
1 field ann_matrix.struct_size at 0, 4 bytes: uint32_t struct_size
"""

PROMISES = """# a head
2 | capi.version | same | The state.
3 | capi.version capi.other | host | Any thread.
"""

BREAK = """The version is gone.
Test: capi.version

--- a/capi/version.cpp
+++ b/capi/version.cpp
@@ -1 +1 @@
-#include "ann.h"
+#include "other.h"
"""

CLEAN = {
    "capi/include/ann.h": HEADER,
    "capi/abi.txt": ABI,
    "capi/version.cpp": '#include "ann.h"\n',
    "tests/capi/version_test.c": "",
    "tests/capi/other_test.c": "",
    "tests/gpu.sh": "contract=(build\n  version)\n",
    "tests/capi/promises.txt": PROMISES,
    "tests/capi/breaks/2.patch": BREAK,
    "tests/capi/breaks/3.patch": BREAK,
    "CMakeLists.txt": "add_compile_options(-O3 -ffp-contract=off)  # never -ffast-math\n",
    "core/base/error.h": "#pragma once\n// abort() and printf( in a comment are no calls\n",
    "core/base/environment.cpp": 'const char* f() { return std::getenv("GANNET_SIMD"); }\n',
    "core/distance/kernels.h": '#include "base/error.h"\n',
    "core/knn/exact.cpp": '#include "distance/kernels.h"\nconst char* text = "exit(1)";\n'
                          "std::snprintf(a, b, c); grand(1); x.assert_ok(); static_assert(1);\n",
    "core/search/walk.cpp": '#include "knn/exact.h"\n#include "backend/devices.h"\n',
    "core/index/index.cpp": '#include "search/walk.h"\n',
    "core/backend/devices.cpp": '#include "index/index.h"\n',
    "tests/unit/all_test.cpp": "".join(f'#include "{name}/x.h"\n' for name in
                                       ("base", "distance", "knn", "search", "index")),
    ".clang-format": "DisableFormat: true\n",
    "README.md": "Install to /usr/local or $HOME/work/x.\n",
}

# What is put into a file, and the rule that must find it. "+" adds to what is there.
VIOLATIONS = [
    ("header", "capi/include/ann.h", HEADER.replace("stdint.h", "stdbool.h")),
    ("header", "capi/include/ann.h", HEADER.replace("sizeof(ann_matrix)}", "sizeof(ann_matrix), 1}")),
    ("header", "capi/include/ann.h", HEADER.replace("typedef struct ann_matrix",
                                                    "// no comment of C99's elders\n"
                                                    "enum { A = 1, };\nlong long x(void) { }\n"
                                                    "typedef struct ann_matrix")),
    ("header", "capi/include/ann.h", HEADER.replace("#ifndef ANN_H\n#define ANN_H\n", "")
                                           .replace("#endif\n#endif\n", "#endif\n")),
    ("promises", "capi/include/ann.h", HEADER + "/* A new promise. */\n"),
    ("promises", "tests/capi/promises.txt", PROMISES.replace("Any thread.", "Gone.")),
    ("promises", "tests/capi/promises.txt", PROMISES.replace("capi.other", "capi.none")),
    ("promises", "tests/capi/promises.txt", PROMISES.replace("same", "?")),
    ("promises", "tests/capi/promises.txt", PROMISES.replace("3 |", "2 |")),
    ("promises", "tests/capi/promises.txt", PROMISES.replace("capi.version | same", "capi.other | same")),
    ("breaks", "capi/version.cpp", "int version;\n"),
    ("breaks", "tests/capi/breaks/2.patch", BREAK.replace("version\n", "gone\n")),
    ("breaks", "tests/capi/breaks/4.patch", BREAK),
    ("breaks", "tests/capi/promises.txt", PROMISES + "4 | capi.version | same | One more.\n"),
    ("abi", "capi/abi.txt", "+1 constant ANN_GONE 1\n"),
    ("abi", "capi/abi.txt", "+1 field ann_matrix.rows at 4, 4 bytes: uint32_t rows\n"),
    ("abi", "capi/abi.txt", "+1 function int ann_gone(int x)\n"),
    ("abi", "capi/include/ann.h", HEADER.replace("ANN_STATE = 200", "ANN_STATE = 201")),
    ("abi", "capi/include/ann.h", HEADER.replace("uint32_t struct_size", "uint64_t struct_size")),
    ("abi", "capi/include/ann.h", HEADER.replace("ann_version(void)", "ann_version(int x)")),
    ("abi", "capi/include/ann.h", HEADER.replace("struct_size;", "struct_size; uint32_t unrecorded;")),
    ("abi", "capi/include/ann.h", HEADER.replace("0x00000001u", "0x00000002u")),
    ("layers", "core/base/error.h", '#include "distance/kernels.h"\n'),
    ("layers", "core/knn/exact.cpp", '#include "search/walk.h"\n'),
    ("layers", "core/knn/exact.cpp", '#include "../distance/kernels.h"\n'),
    ("layers", "core/knn/exact.cpp", '#include "backend/devices.h"\n'),
    ("layers", "core/index/index.cpp", '#include "capi/boundary.h"\n'),
    ("layers", "core/index/index.cpp", '#include "tests/unit/x.h"\n'),
    ("layers", "core/nowhere/x.cpp", "int x;\n"),
    ("layers", "core/index/index.cpp", '#include "missing.h"\n'),
    ("layers", "core/distance/kernels.h", '  #  include   "graph/x.h"\n'),
] + [("banned", "core/index/index.cpp", text + "\n") for text in (
    'printf("x");', 'std::printf("x");', 'fprintf(stderr, "x");', 'std::fprintf(stderr, "x");',
    "vprintf(x, y);", 'puts("x");', "std::cout << 1;", "std::cerr << 1;", "abort();",
    "std::abort();", "exit(1);", "std::exit(1);", "_exit(1);", "std::quick_exit(1);",
    "std::terminate();", "assert(x);", "int x = rand();", "srand(1);", "std::rand();",
    "std::random_device device;", "std::mt19937 source;", 'getenv("X");', 'std::getenv("X");',
    "cudaDeviceSynchronize();", "cudaDeviceReset();", "cudaMalloc(&x, 1);", "#pragma omp parallel for",
    "omp_get_num_threads();", "using namespace std;", "auto x = __DATE__;", "auto x = __TIME__;",
    "signal(1, f);", "raise(SIGABRT);", "_mm_setcsr(1);", 'dlopen("x", 1);', "thread_local int x;",
    "{abort();}", "x = y ? abort() : 0;")] + [
    ("banned", "capi/version.cpp", 'printf("x");\n'),
    ("banned", "core/base/other.cpp", 'std::getenv("X");\n'),
    ("banned", "core/base/error.h", "+// a comment\nabort();\n"),
    ("build_flags", "CMakeLists.txt", "add_compile_options(-ffast-math)\n"),
    ("build_flags", "CMakeLists.txt", "add_compile_options(-Ofast)\n"),
    ("build_flags", "CMakeLists.txt", "add_compile_options(-fopenmp)\n"),
    ("build_flags", "CMakeLists.txt", "find_package(OpenMP)\n"),
    ("build_flags", "tests/capi/CMakeLists.txt", "set(x --use_fast_math)\n"),
    ("names", "core/base/utils.h", "\n"),
    ("names", "core/base/string_helper.cpp", "\n"),
    ("names", "core/index/index_manager.cpp", "\n"),
    ("names", "core/index/index_impl.h", "\n"),
    ("names", "core/index/IndexBuild.cpp", "\n"),
    ("names", "tests/utils/x.c", "\n"),
    ("twins", "core/graph/prune.cpp", "int x;\n"),
    ("formatted", ".clang-format", "BasedOnStyle: Google\n"),
    ("formatted", ".clang-format", "BasedOnStyle: Nobody\n"),
] + [("places", "README.md", f"from https://{host}/x\n") for host in tidy.REGISTRIES] + [
    ("places", "tests/x.py", f'x = "{place}x"\n') for place in tidy.MACHINE_PATHS] + [
    ("places", "CMakeLists.txt", f"# see {tidy.MACHINE_PATHS[0].rstrip('/')}\n")]

# (rule, source, extra flags of the link); None: no rule may object.
GOOD_SOURCE = ('#include "ann.h"\nextern "C" const char *ann_version(void) { return "0"; }\n')
LIBRARIES = [
    (None, GOOD_SOURCE, []),
    ("exports", GOOD_SOURCE + 'extern "C" ANN_API int helper() { return 1; }\n', []),
    ("exports", GOOD_SOURCE + 'extern "C" ANN_API int ann_secret() { return 1; }\n', []),
    ("exports", 'extern "C" __attribute__((visibility("default"))) int ann_other() { return 1; }\n', []),
    ("needed", GOOD_SOURCE, ["-Wl,-soname,libgannet.so.7"]),
    ("needed", GOOD_SOURCE, ["-Wl,-rpath,/opt/x"]),
    ("needed", GOOD_SOURCE, ["-Wl,--no-as-needed", "-lresolv"]),
    ("needed", GOOD_SOURCE, ["-Wl,-z,execstack"]),
]


def make_tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    checks = failed = 0

    def expect(good, what, report):
        nonlocal checks, failed
        checks += 1
        if not good:
            failed += 1
            print(f"{what}; found: {report.problems}", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        clean = pathlib.Path(folder) / "clean"
        make_tree(clean, CLEAN)
        report = tidy.check(clean)
        expect(not report.problems, "the clean tree has problems", report)
        for number, (rule, name, text) in enumerate(VIOLATIONS):
            tree = pathlib.Path(folder) / f"tree{number}"
            shutil.copytree(clean, tree)
            if text.startswith("+"):
                text = CLEAN[name] + text[1:]
            elif name in CLEAN and rule not in ("header", "abi", "promises", "breaks", "formatted"):
                text = CLEAN[name] + text
            make_tree(tree, {name: text})
            # The other rules are quiet about it, but for names and places that a text implies.
            report = tidy.check(tree, rules=[rule])
            expect(any(problem.startswith(rule + ":") for problem in report.problems),
                   f"{rule} does not find {text!r} in {name}", report)
            shutil.rmtree(tree)

        if shutil.which("c++") is None:
            print("(no compiler here: the rules about the library were not tried)")
        else:
            library = pathlib.Path(folder) / "libgannet.so"
            source = pathlib.Path(folder) / "library.cpp"
            for rule, text, flags in LIBRARIES:
                source.write_text(text)
                soname = [] if any("soname" in flag for flag in flags) else [
                    "-Wl,-soname,libgannet.so.0"]
                subprocess.run(["c++", "-shared", "-fPIC", "-fvisibility=hidden", "-I",
                                str(clean / "capi/include"), str(source), "-o", str(library),
                                *soname, *flags], check=True)
                report = tidy.check(clean, library, rules=["exports", "needed"])
                good = (not report.problems if rule is None else
                        any(problem.startswith(rule + ":") for problem in report.problems))
                expect(good, f"{rule} of a library {text!r} {flags}", report)

        # A library that looks for a GPU when it is merely used. The probe calls the whole header,
        # so the real one is taken, with bodies that do nothing.
        real = pathlib.Path(tidy.__file__).resolve().parents[2]
        header = real / "capi/include/ann.h"
        if shutil.which("c++") and header.is_file():
            names = ["ann_index_create", "ann_build", "ann_search_batch", "ann_search_exact",
                     "ann_device_get_info", "ann_index_free"]
            for rule, opened in ((None, "/dev/null"), ("quiet_gpu", "/dev/nvidia0"),
                                 ("quiet_gpu", "/usr/lib/libcuda.so.1")):
                if rule and shutil.which("strace") is None:
                    continue
                bodies = "".join(f"int {name}(void) {{ return 0; }}\n" for name in names)
                bodies += ('#include <fcntl.h>\nconst char *ann_build_info(void) {'
                           f' open("{opened}", 0); return "x"; }}\n')
                plain = pathlib.Path(folder) / "gpu.c"
                plain.write_text(bodies)
                subprocess.run(["cc", "-shared", "-fPIC", str(plain), "-o", str(library),
                                "-Wl,-soname,libgannet.so.0"], check=True)
                report = tidy.check(real, library, rules=["quiet_gpu"])
                works = not any("strace does not run" in note for note in report.notes)
                if rule is None or works:
                    expect(bool(report.problems) == (rule is not None), f"opening {opened}", report)

    print(f"tidy_test: {checks} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
