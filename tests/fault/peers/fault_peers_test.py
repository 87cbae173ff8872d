#!/usr/bin/env python3
"""Tests of fault_peers.py: libraries made up here, whose way of failing is known, are told apart; and
Gannet, through the same harness, never loses a file and never answers from a damaged one.

    PYTHONPATH=BUILD/python fault_peers_test.py
"""

import contextlib
import hashlib
import io
import os
import pathlib
import signal
import sys
import tempfile
import unittest

import fault_peers
import subjects

SIZE = 400  # bytes that a made-up index holds


class Careful:
    """A sum over everything; saves beside the file and renames."""
    name, version = "careful", "1"

    def build(self, seed):
        return bytes([seed]) * SIZE

    def written(self, index):
        return index + hashlib.sha256(index).digest()

    def save(self, index, path):
        with open(path + ".part", "wb") as file:
            file.write(self.written(index))
        os.replace(path + ".part", path)

    def load(self, path):
        with open(path, "rb") as file:
            content = file.read()
        if content != self.written(content[:SIZE]):
            self.damaged(content)
        return content[:SIZE]

    def damaged(self, content):
        raise ValueError("the sum is wrong")

    def answers(self, index):
        return index


class Trusting(Careful):
    """Takes what it finds, answers from the first half, and writes in place without looking."""

    def damaged(self, content):
        pass

    def answers(self, index):
        return index[:SIZE // 2]

    def save(self, index, path):
        with open(path, "wb", buffering=0) as file:
            for at in range(0, SIZE + 32, 50):
                try:
                    file.write(self.written(index)[at:at + 50])
                except OSError:
                    pass


class Fragile(Trusting):
    """Dies of damage in its first part, hangs of a short file, wants all memory for others."""

    def damaged(self, content):
        if len(content) < SIZE:
            while True:
                pass
        if content[:100] != content[100:101] * 100:
            os.kill(os.getpid(), signal.SIGSEGV)
        bytearray(1 << 50)


class Forgetful(Careful):
    """Removes the old file first; tells of a full disk."""

    def save(self, index, path):
        if os.path.exists(path):
            os.unlink(path)
        with open(path, "wb", buffering=0) as file:
            for at in range(0, SIZE + 32, 8):
                if file.write(self.written(index)[at:at + 8]) < 8:
                    raise OSError("short")


class LateCrash(Careful):
    """Its index kills the process when it is freed."""

    class Index(bytes):
        def __del__(self):
            os.kill(os.getpid(), signal.SIGABRT)

    def answers(self, index):
        return bytes(bytearray(index))  # nothing that keeps the index alive

    def load(self, path):
        with open(path, "rb") as file:
            content = file.read()
        return content[:SIZE] if content == self.written(content[:SIZE]) \
            else self.Index(content)


def tried(subject, scale=20, faults=("bits", "lengths", "full_disk", "kill")):
    with tempfile.TemporaryDirectory() as folder:
        trial = fault_peers.Trial(subject, folder, scale)
        for fault in faults:
            getattr(trial, fault)()
    return trial


class KnownFailures(unittest.TestCase):
    def outcomes(self, trial, fault, *outcomes):
        self.assertEqual(set(trial.counts[fault]), set(outcomes), trial.examples)

    def test_careful(self):
        trial = tried(Careful())
        self.outcomes(trial, "bits", "refused")
        self.outcomes(trial, "lengths", "refused")
        self.outcomes(trial, "full disk", "old")
        self.assertLessEqual(set(trial.counts["kill"]), {"old", "new"})
        self.assertEqual(trial.cases["bits"], fault_peers.CASES["bits"] // 20)

    def test_trusting(self):
        trial = tried(Trusting())
        self.outcomes(trial, "bits", "different", "unchanged")
        # The first half of the rows, and neither the second half nor the sum, is what is looked at.
        share = trial.counts["bits"]["different"] / trial.cases["bits"]
        self.assertLess(abs(share - SIZE / 2 / (SIZE + 32)), 0.05)
        self.outcomes(trial, "lengths", "different", "unchanged")
        # What was cut in the second half answers like the new index, the rest like none.
        self.outcomes(trial, "full disk", "new", "wrong", "unsaid")
        self.assertEqual(trial.counts["full disk"]["unsaid"], trial.counts["full disk"]["wrong"])
        self.assertGreater(trial.counts["kill"]["wrong"], 0)

    def test_fragile(self):
        before, fault_peers.SECONDS = fault_peers.SECONDS, 0.3
        try:
            trial = tried(Fragile(), 40, ["bits"])
            self.outcomes(trial, "bits", "crashed", "refused")
            self.assertEqual(trial.examples["bits", "crashed"], "SIGSEGV")
            self.assertIn("MemoryError", trial.examples["bits", "refused"])
            with tempfile.TemporaryDirectory() as folder:
                trial = fault_peers.Trial(Fragile(), folder)
                trial.judge("lengths", b"short")
                self.outcomes(trial, "lengths", "hung")
        finally:
            fault_peers.SECONDS = before

    def test_forgetful(self):
        trial = tried(Forgetful(), 20, ["full_disk", "kill"])
        self.outcomes(trial, "full disk", "lost")
        self.assertGreater(trial.counts["kill"]["lost"], 0)
        self.assertNotIn("wrong", trial.counts["kill"])

    def test_late_crash(self):
        self.outcomes(tried(LateCrash(), 100, ["bits"]), "bits", "crashed")

    def test_without_a_difference(self):
        class Same(Careful):
            def build(self, seed):
                return b"x" * SIZE
        with self.assertRaisesRegex(RuntimeError, "answer alike"):
            tried(Same())

    def test_table(self):
        trial = tried(Trusting(), 100)
        rows = trial.rows("2026-01-01", "abc")
        self.assertEqual(len(rows), 2 * len(fault_peers.DAMAGE) + 2 * len(fault_peers.SAVES))
        for fault in fault_peers.CASES:
            self.assertEqual(sum(row[7] for row in rows if row[4] == fault and row[6] != "unsaid"),
                             trial.cases[fault])
        line = fault_peers.table(rows).splitlines()[-1]
        self.assertTrue(line.startswith("| careful 1 | "))
        self.assertIn(f"{trial.counts['bits']['different']} of {trial.cases['bits']}", line)


class Kept(unittest.TestCase):
    """What was measured last, and what the page beside it says of it."""

    def test_readme(self):
        here = pathlib.Path(__file__).resolve().parent
        rows = fault_peers.read_rows(here / "results.csv")
        cases = {(row[2], row[4]): [0, int(row[5])] for row in rows}
        for row in rows:
            if row[6] != "unsaid":
                cases[row[2], row[4]][0] += int(row[7])
        for key, (counted, said) in cases.items():
            self.assertEqual(counted, said, key)
        page = (here / "README.md").read_text(encoding="utf-8")
        for line in fault_peers.table(rows).splitlines():
            self.assertTrue(line in page, f"README.md here lacks: {line}")


class GannetItself(unittest.TestCase):
    def test_nothing_is_lost_and_nothing_wrong(self):
        for name in ("gannet", "gannet (mapped)"):
            with contextlib.redirect_stdout(io.StringIO()):
                trial = tried(subjects.make(name), 20)
            for fault in ("bits", "lengths"):
                self.assertLessEqual(set(trial.counts[fault]), {"refused", "unchanged"}, name)
            self.assertEqual(set(trial.counts["full disk"]), {"old"})
            self.assertLessEqual(set(trial.counts["kill"]), {"old", "new"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
