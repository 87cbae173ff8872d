#!/usr/bin/env python3
"""What becomes of index files on bad days, in Gannet and in other libraries: the same faults for all.

    fault_peers.py [--subjects gannet,hnswlib,...] [--out results.csv] [--scale 1] [--commit TEXT]
    fault_peers.py --table results.csv      the table of the README.md beside it

Each library builds two small indexes, an old one and a new one, and saves them. Then

    bits       a bit of the file is flipped, and the file is loaded and searched
    lengths    the file is cut, at every short length and spread over the rest
    full disk  the new index is saved over the old file, and the disk takes only so many bytes (the
               limit that the system sets to the size of a file, which needs no root)
    kill       the same, and the process dies with that byte (by the same limit's signal), or by
               SIGKILL at a random moment while it saves over and over

Every case runs in a process of its own, with limits of time and memory. Damaged files end as

    refused    an error, when loading or when searching
    unchanged  every answer as of the whole file: the damage was nowhere that matters
    different  answers, but others, and no error
    crashed, hung

and saves by what is at the file's name afterwards:

    old, new   that index, whole
    lost       nothing, or a file that the library refuses or dies of
    wrong      a file that loads and answers as neither
    unsaid     beside one of these: the save reported success, and the new index is not there

A library that is not installed is said to be so. Nothing here knows a library: subjects.py does.
"""

import argparse
import collections
import csv
import datetime
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

COLUMNS = ["date", "commit", "library", "version", "fault", "cases", "outcome", "count"]
DAMAGE = ["refused", "unchanged", "different", "crashed", "hung"]
SAVES = ["old", "new", "lost", "wrong", "unsaid"]
SECONDS = 3         # for one case at first; a whole file takes a few hundredths of that
MEMORY = 4 << 30    # beyond what the process has at first
# Cases of a full run (scale 1); a scale of 10 does a tenth.
CASES = {"bits": 2000, "lengths": 400, "full disk": 250, "kill": 250}


# --- One case in a process of its own -------------------------------------------------------------

def bounded(seconds):
    """Limits for the process that calls; the time only as a second fence behind the parent's."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(int(2 * seconds) + 1)


def in_child(work, seconds=None, kill_after=None):
    """run_child(), and where that seems to hang once more with ten times the time: a machine that is
    busy is no fault of the library's."""
    seconds = seconds or SECONDS
    outcome = run_child(work, seconds, kill_after)
    return run_child(work, 10 * seconds, kill_after) if outcome[0] == "hung" else outcome


def run_child(work, seconds, kill_after):
    """Runs `work` in a fork: ("done", its bytes), ("error", text), ("crashed", signal) or
    ("hung", ""). With `kill_after` the child is killed so many seconds after it has called the
    function that it is given."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            bounded(seconds)
            try:
                found = work(lambda: os.write(writing, b"s")) if kill_after is not None else work()
                said = b"d" + (found or b"")
            except BaseException as fault:  # whatever a library throws is its way of refusing
                said = b"e" + f"{type(fault).__name__}: {fault}".encode()
            while said:
                said = said[os.write(writing, said):]
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    end = time.monotonic() + seconds
    said, hung = b"", False
    while True:
        if kill_after is not None and said.startswith(b"s"):
            until = time.monotonic() + kill_after
            while time.monotonic() < until:
                pass  # a sleep would be coarser than a save
            os.kill(child, signal.SIGKILL)
            kill_after, said = None, b""
        ready, _, _ = select.select([reading], [], [], max(0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            hung = True
            break
        part = os.read(reading, 1 << 20)
        if not part:
            break
        said += part
    os.close(reading)
    # A child may have said all and then hang, or die, in what its library does at the end.
    while not hung:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            hung = True
        time.sleep(0.0002)
    if hung:
        os.waitpid(child, 0)
        return "hung", ""
    if os.WIFSIGNALED(status):
        return "crashed", signal.Signals(os.WTERMSIG(status)).name
    if said.startswith(b"d"):
        return "done", said[1:]
    if said.startswith(b"e"):
        return "error", said[1:].decode(errors="replace")
    return "crashed", f"exit status {os.WEXITSTATUS(status)}"


# --- What becomes of a file -----------------------------------------------------------------------

def answers(subject, path):
    """Loads and searches, in a child."""
    def work():
        index = subject.load(path)
        found = subject.answers(index)
        del index  # a crash while freeing is a crash too
        return found
    return in_child(work)


class Trial:
    """One library's two indexes, and the faults that they meet. Counts outcomes by fault."""

    def __init__(self, subject, folder, scale=1.0, seed=1):
        self.subject = subject
        self.folder = pathlib.Path(folder)
        self.random = random.Random(seed)
        self.scale = scale
        self.counts = collections.defaultdict(collections.Counter)
        self.cases = collections.Counter()
        self.examples = {}  # (fault, outcome): what was said first
        self.target = str(self.folder / "index")
        self.files, self.expected = {}, {}
        for name, seed in (("old", 1), ("new", 2)):
            path = str(self.folder / name)
            kind, said = in_child(lambda seed=seed, path=path: subject.save(subject.build(seed), path),
                                  seconds=120)
            if kind != "done":
                raise RuntimeError(f"{subject.name}: no index to begin with: {kind} {said}")
            self.files[name] = pathlib.Path(path).read_bytes()
            kinds = [answers(subject, path) for _ in range(2)]
            if kinds[0][0] != "done" or kinds[0] != kinds[1]:
                raise RuntimeError(f"{subject.name}: a whole file gives {kinds[0][0]}, then other answers")
            self.expected[name] = kinds[0][1]
        if self.expected["old"] == self.expected["new"]:
            raise RuntimeError(f"{subject.name}: both indexes answer alike; nothing could be told")

    def wanted(self, fault, most):
        return min(most, max(1, int(CASES[fault] / self.scale)))

    def strata(self, count, total):
        """`count` numbers below `total`, one from each of as many equal parts."""
        return [self.random.randrange(i * total // count, (i + 1) * total // count)
                for i in range(count)]

    def note(self, fault, outcome, said=""):
        self.counts[fault][outcome] += 1
        if said:
            self.examples.setdefault((fault, outcome), str(said)[:200])

    # Damage.

    def judge(self, fault, content):
        with open(self.target, "wb") as file:
            file.write(content)
        kind, said = answers(self.subject, self.target)
        self.cases[fault] += 1
        if kind == "done":
            self.note(fault, "unchanged" if said == self.expected["old"] else "different")
        else:
            self.note(fault, {"error": "refused"}.get(kind, kind), said)

    def bits(self):
        content = bytearray(self.files["old"])
        for bit in self.strata(self.wanted("bits", 8 * len(content)), 8 * len(content)):
            content[bit // 8] ^= 1 << bit % 8
            self.judge("bits", content)
            content[bit // 8] ^= 1 << bit % 8

    def lengths(self):
        content = self.files["old"]
        short = list(range(min(len(content), self.wanted("lengths", len(content)) // 4 + 1)))
        last = [len(content) - cut for cut in (1, 2, 4, 8, 64, 512, 4096) if cut < len(content)]
        middle = self.strata(self.wanted("lengths", len(content)), len(content))
        for length in sorted({*short, *middle, *last}):
            self.judge("lengths", content[:length])

    # Saves.

    def put_old(self):
        for left in self.folder.iterdir():  # of the save before, beside its target too
            if left.name not in ("old", "new"):
                left.unlink()
        shutil.copyfile(self.folder / "old", self.target)

    def state(self):
        """What is at the target now."""
        if not os.path.exists(self.target):
            return "lost", "no file"
        kind, said = answers(self.subject, self.target)
        if kind != "done":
            return "lost", f"{kind}: {said}"
        for name, expected in self.expected.items():
            if said == expected:
                return name, ""
        return "wrong", ""

    def save_with_room(self, limit, action):
        """Saves the new index over the old one, where files take `limit` bytes at most."""
        def work():
            index = self.subject.load(str(self.folder / "new"))
            signal.signal(signal.SIGXFSZ, action)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            self.subject.save(index, self.target)
            del index
        return in_child(work)

    def full_disk(self):
        size = len(self.files["new"])
        for limit in self.strata(self.wanted("full disk", size), size):
            self.put_old()
            kind, said = self.save_with_room(limit, signal.SIG_IGN)
            self.cases["full disk"] += 1
            state, why = self.state()
            self.note("full disk", state, f"{why}; the save: {kind} {said!r}")
            if kind == "done" and state != "new":
                self.note("full disk", "unsaid")

    def kill(self):
        size = len(self.files["new"])
        half = max(1, self.wanted("kill", size) // 2)
        for limit in self.strata(half, size):
            self.put_old()
            kind, _ = self.save_with_room(limit, signal.SIG_DFL)
            if kind == "crashed":  # a save of several files may live on
                self.cases["kill"] += 1
                self.note("kill", *self.state())

        def over_and_over(started):
            indexes = [self.subject.load(str(self.folder / name)) for name in ("new", "old")]
            started()
            while True:
                for index in indexes:
                    self.subject.save(index, self.target)
        for _ in range(half):
            self.put_old()
            kind, said = in_child(over_and_over, kill_after=self.random.random() * 0.02)
            if kind != "crashed":
                raise RuntimeError(f"{self.subject.name}: saving: {kind} {said}")
            self.cases["kill"] += 1
            self.note("kill", *self.state())

    def run(self):
        for fault, work in (("bits", self.bits), ("lengths", self.lengths),
                            ("full disk", self.full_disk), ("kill", self.kill)):
            work()
            print(f"{self.subject.name:22s} {fault:10s} {self.cases[fault]:6d} cases  "
                  + ", ".join(f"{outcome} {count}" for outcome, count
                              in sorted(self.counts[fault].items())), flush=True)

    def rows(self, date, commit):
        """Of the table that is kept; every outcome that the fault can have, also those that never were."""
        return [[date, commit, self.subject.name, self.subject.version, fault, self.cases[fault],
                 outcome, self.counts[fault][outcome]]
                for fault in CASES for outcome in (DAMAGE if fault in ("bits", "lengths") else SAVES)]


# --- The table ------------------------------------------------------------------------------------

def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if rows[0] != COLUMNS:
        raise ValueError(f"{path}: the columns are {rows[0]}; expected {COLUMNS}")
    return rows[1:]


def table(rows):
    """Markdown, a line for each library."""
    share = collections.defaultdict(dict)
    for _, _, library, version, fault, cases, outcome, count in rows:
        share[library, version][fault, outcome] = (int(count), int(cases))

    def cell(found, fault, *outcomes):
        count = sum(found.get((fault, outcome), (0, 0))[0] for outcome in outcomes)
        cases = next((cases for (name, _), (_, cases) in found.items() if name == fault), 0)
        return f"{count:,} of {cases:,}" if count else "0"
    lines = ["| library | bit flipped: other answers, no error | bit flipped: crash or hang | file cut: "
             "not refused | disk full: old index lost | disk full: no error | killed: old and new lost |",
             "|---|---|---|---|---|---|---|"]
    for (library, version), found in share.items():
        lines.append(f"| {library} {version} | " + " | ".join([
            cell(found, "bits", "different"), cell(found, "bits", "crashed", "hung"),
            cell(found, "lengths", "unchanged", "different", "crashed", "hung"),
            cell(found, "full disk", "lost", "wrong"), cell(found, "full disk", "unsaid"),
            cell(found, "kill", "lost", "wrong")]) + " |")
    return "\n".join(lines)


# --- The program ----------------------------------------------------------------------------------

def run_one(options):
    import subjects
    try:
        subject = subjects.make(options.only)
    except ImportError as fault:
        print(f"{options.only}: not installed: {fault}", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="gannet-fault-") as folder:
        trial = Trial(subject, folder, options.scale)
        trial.run()
    with open(options.out, "a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(
            trial.rows(datetime.date.today().isoformat(), options.commit))
    for (fault, outcome), said in sorted(trial.examples.items()):
        print(f"    {fault}, {outcome}: {said}", flush=True)


def main():
    import subjects
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", metavar="FILE", help="only print the table of such a file")
    parser.add_argument("--subjects", default=",".join(subjects.NAMES))
    parser.add_argument("--out", default="fault_peers.csv")
    parser.add_argument("--scale", type=float, default=1.0, help="divides the cases")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # in the process of one library
    options = parser.parse_args()
    if options.table:
        print(table(read_rows(options.table)))
        return 0
    if options.only:
        run_one(options)
        return 0
    with open(options.out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(COLUMNS)
    # No thread may be running when a case forks.
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    failed = [name for name in options.subjects.split(",")
              if subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name],
                                env=one_thread, check=False).returncode != 0]
    print(table(read_rows(options.out)))
    if failed:
        print(f"fault_peers: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
