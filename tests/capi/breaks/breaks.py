#!/usr/bin/env python3
"""Shows that tests hold promises of ann.h: breaks the library in one respect, and the named test fails.

    breaks.py --check            draws the sentences, and looks whether a patch of each is here and applies
    breaks.py [NUMBER...]        also builds the library with each patch, or with these, and runs the tests
    breaks.py --folder FOLDER    works there and keeps the build, so that a second run compiles little

NUMBER.patch breaks what the sentence of that number in tests/capi/promises.txt says. Its first lines tell
how, and name the test that fails with it, which is one of those that promises.txt names on the CPU. Each
test has to pass without a patch, and to fail with its own by an exit status of its own or by a crash: a patch
with which nothing is built, or a test that hangs, shows nothing.

The sentences are drawn by a seed: their numbers in the order of a hash, of which the first DRAWN that have a
test on the CPU are taken. Sentences above LAST came after the draw. A sentence that loses its test, or gets
one, moves the draw by one, and --check says which patch is wanted.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SEED, LAST, DRAWN = 1, 466, 30
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests/tidy"))
import promises  # noqa: E402

TIDY = {"tidy.abi": ["--rule", "abi"], "tidy.quiet_gpu": ["--build", "build"],
        "tidy.exports": ["--build", "build"]}
SECONDS = 300  # of one test


def drawn(root=ROOT):
    """The sentences as number -> (tests, sentence), in the order of the draw."""
    lines = promises.read_list((root / promises.LIST).read_text(encoding="utf-8"))
    held = {int(number): (tests.split(), sentence) for number, tests, _, sentence in lines
            if tests not in promises.WORDS}
    order = sorted(range(1, LAST + 1), key=lambda n: hashlib.sha256(f"{SEED}:{n}".encode()).hexdigest())
    return {number: held[number] for number in [n for n in order if n in held][:DRAWN]}


def test_of(patch):
    """The test that a patch names."""
    named = re.search(r"^Test: (\S+)$", patch.read_text(encoding="utf-8"), re.M)
    return named.group(1) if named else ""


def git_apply(tree, patch, *options):
    # Outside of a repository, whatever stands above the folder.
    environment = dict(os.environ, GIT_CEILING_DIRECTORIES=str(tree.parent), GIT_DIR=str(tree / ".none"))
    return subprocess.run(["git", "apply", *options, str(patch)], cwd=tree, env=environment,
                          capture_output=True, text=True)


def problems(root=ROOT):
    found = []
    numbers = drawn(root)
    here = root / HERE.relative_to(ROOT)
    for number, (tests, sentence) in numbers.items():
        patch = here / f"{number}.patch"
        if not patch.is_file():
            found.append(f"{number} is drawn and has no patch: {sentence[:80]}")
            continue
        if test_of(patch) not in tests:
            found.append(f"{patch.name} names the test \"{test_of(patch)}\", {promises.LIST} names "
                         f"{' '.join(tests)}")
        applied = git_apply(root, patch, "--check")
        if applied.returncode != 0:
            found.append(f"{patch.name} does not apply: {applied.stderr.strip()[:200]}")
    for patch in here.glob("*.patch"):
        if int(patch.stem) not in numbers:
            found.append(f"{patch.name} is of a sentence that is not drawn")
    return found


def copy_tree(to):
    """The files of the working tree that git knows, or would add. Those that are equal stay as old as they are."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                            capture_output=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        source, target = ROOT / name, to / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


class Copy:
    """A copy of the tree with a build of its own."""

    def __init__(self, folder):
        self.tree = folder
        copy_tree(folder)
        self.must("cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release", "-DGANNET_CUDA=off",
                  "-DGANNET_TESTS=ON", *(["-GNinja"] if shutil.which("ninja") else []))

    def run(self, *command, seconds=3600):
        return subprocess.run(command, cwd=self.tree, capture_output=True, text=True, errors="replace",
                              timeout=seconds)

    def must(self, *command):
        done = self.run(*command)
        if done.returncode != 0:
            sys.exit(f"breaks: {' '.join(command)} fails:\n{(done.stdout + done.stderr)[-3000:]}")

    def build(self, test):
        if test == "tidy.abi":  # looks at sources
            return self.run("true")
        target = "gannet" if test in TIDY else test.replace(".", "_").replace("capi_files_threads", "capi_files")
        return self.run("cmake", "--build", "build", "--target", "gannet", target, "--parallel",
                        str(len(os.sched_getaffinity(0))))

    def test(self, test):
        """Whether a test passes, and the line that says why not."""
        if test in TIDY:
            command = [sys.executable, "tests/tidy/tidy.py", *TIDY[test]]
        else:
            command = ["ctest", "--test-dir", "build", "-R", f"^{re.escape(test)}$", "--output-on-failure",
                       "--no-tests=error", "--timeout", str(SECONDS)]
        done = self.run(*command)
        said = done.stdout + done.stderr
        if "***Timeout" in said or "No tests were found" in said or "Not Run" in said:
            sys.exit(f"breaks: {test} shows nothing:\n{said[-2000:]}")
        why = [line.strip() for line in said.splitlines()
               if re.search(r"_test\.\w+:\d+|^\w+: \[|Exception: |SEGFAULT|Subprocess aborted", line)]
        return done.returncode == 0, why[0] if why else " ".join(said.split())[-150:]


def show(numbers, folder):
    copy = Copy(folder)
    passed = {}
    failures = 0
    for number in numbers:
        patch = HERE / f"{number}.patch"
        test = test_of(patch)
        if test not in passed:
            if copy.build(test).returncode != 0:
                sys.exit(f"breaks: {test} does not build")
            passed[test], why = copy.test(test)
            if not passed[test]:
                sys.exit(f"breaks: {test} fails without a patch: {why}")
        applied = git_apply(copy.tree, patch)
        if applied.returncode != 0:
            sys.exit(f"breaks: {patch.name} does not apply: {applied.stderr}")
        built = copy.build(test)
        if built.returncode == 0:
            fine, why = copy.test(test)
        else:
            fine, why = True, "nothing is built with the patch: " + " ".join(
                line for line in (built.stdout + built.stderr).splitlines() if "error" in line)
        git_apply(copy.tree, patch, "--reverse")
        failures += fine
        print(f"{number:4d}  {test:18s}  {'PASSES' if fine else 'fails '}  {why[:150]}", flush=True)
    print(f"breaks: {len(numbers)} patches, {len(numbers) - failures} found by the test that is named")
    return failures == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("numbers", type=int, nargs="*")
    options = parser.parse_args()
    numbers = drawn()
    if options.check:
        found = problems()
        for problem in found:
            print(f"breaks: {problem}")
        print(f"breaks: {len(numbers)} sentences drawn by seed {SEED}; {len(found)} problems")
        return 1 if found else 0
    wanted = options.numbers or list(numbers)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        return 0 if show(wanted, options.folder.resolve()) else 1
    with tempfile.TemporaryDirectory(prefix="gannet-breaks-") as folder:
        return 0 if show(wanted, pathlib.Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
