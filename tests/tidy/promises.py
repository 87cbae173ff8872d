#!/usr/bin/env python3
"""The promises of ann.h: every sentence has a number and a test that would notice if it were false.

    promises.py            checks tests/capi/promises.txt
    promises.py --write    adds sentences that are new, with ? where a test is to be named, and drops those
                           that are gone

tests/capi/promises.txt has a line for each sentence of a comment in ann.h, in the header's order:

    NUMBER | TESTS | TESTS ON A DEVICE | the sentence

A sentence is known by its words, wherever it stands; its number is given once and stays. Tests are those of
ctest (capi.monitor, fault.kill) and, on a device, the programs of tests/gpu.sh (gpu.seam). Instead of tests:

    device  the sentence is about devices alone
    same    on a device: the same tests, which gpu.sh runs with the device as the default one
    host    on a device: the sentence is about the host alone
    told    nothing to be false: a heading, a definition, an explanation, advice
    duty    what the caller must do; the library cannot see whether it is done
    owed    testable, and no test holds it yet

A number proves no substance: whether the named test notices is for whoever reads the two beside each other.
"""

import argparse
import pathlib
import re
import sys

HEADER = "capi/include/ann.h"
LIST = "tests/capi/promises.txt"
WORDS = {"told", "duty", "owed", "device"}
DEVICE_WORDS = {"told", "duty", "owed", "same", "host"}


def sentences(text):
    """Sentences of the header's comments, each once, in order."""
    found = {}
    for comment in re.findall(r"/\*(.*?)\*/", text, re.S):
        lines = re.sub(r"^[ \t]*\*(?=[ \t]|$)", "", comment, flags=re.M)
        for paragraph in re.split(r"\n[ \t]*\n", lines.replace("-" * 20, "")):
            if re.search(r"^ {4,}ann_\w+.*[;{]$", paragraph, re.M):
                continue  # a program
            flat = " ".join(paragraph.strip("- \n").split())
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z\"`(])", flat):
                if re.search(r"[A-Za-z]{2}", sentence) and sentence != "GANNET_ANN_H":
                    found.setdefault(sentence.strip(), None)
    return list(found)


def read_list(text):
    """Lines of the list as (number, tests, tests on a device, sentence)."""
    lines = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            lines.append(tuple(part.strip() for part in line.split("|", 3)))
    return lines


def tests_of(root):
    """Names of tests, and of those that gpu.sh runs again on a device."""
    names = {"recall.results", "golden.files", "capi.files_threads", "tidy.abi", "tidy.header", "tidy.quiet_gpu",
             "tidy.exports"}
    for folder in ("capi", "fault", "gpu", "differential", "unit"):
        for path in (root / "tests" / folder).glob("*_test.*"):
            name = path.stem if folder == "unit" else path.stem.removesuffix("_test")
            if folder == "gpu":
                name = name.removesuffix("_cuda")
            names.add(f"{folder}.{'allocation' if name == 'allocation_fault' else name}")
    names |= {f"fuzz.{path.stem.removesuffix('_target')}" for path in (root / "tests/fuzz").glob("*_target.cpp")}
    gpu = (root / "tests/gpu.sh").read_text(encoding="utf-8")
    contract = re.search(r"^contract=\((.*?)\)", gpu, re.S | re.M)
    return names, {f"capi.{name}" for name in contract.group(1).split()}


def problems(root):
    header = sentences((root / HEADER).read_text(encoding="utf-8"))
    lines = read_list((root / LIST).read_text(encoding="utf-8"))
    names, contract = tests_of(root)
    found = []
    known = {}
    numbers = set()
    for line in lines:
        if len(line) != 4 or not line[0].isdigit():
            found.append(f"{LIST}: a line is not NUMBER | TESTS | TESTS ON A DEVICE | sentence: {line}")
            continue
        number, cpu, device, sentence = line
        if number in numbers:
            found.append(f"{LIST}: the number {number} is given twice")
        numbers.add(number)
        known[sentence] = number
        if sentence not in header:
            found.append(f"{LIST}: {number} is no sentence of ann.h: {sentence[:70]}")
        for column, words in ((cpu, WORDS), (device, DEVICE_WORDS)):
            if column not in words and (not column or not set(column.split()) <= names):
                wrong = ", ".join(sorted(set(column.split()) - names)) or "nothing"
                found.append(f"{LIST}: {number} names {wrong}, which is no test: {sentence[:70]}")
        if device == "same" and not set(cpu.split()) & contract:
            found.append(f"{LIST}: {number} is held by {cpu}, which tests/gpu.sh does not run on a device")
    for sentence in header:
        if sentence not in known:
            found.append(f"{HEADER}: no test is named for \"{sentence[:90]}\"; run tests/tidy/promises.py --write "
                         f"and name one in {LIST}")
    return found


def write(root):
    header = sentences((root / HEADER).read_text(encoding="utf-8"))
    path = root / LIST
    text = path.read_text(encoding="utf-8")
    head = "".join(line + "\n" for line in text.splitlines() if line.startswith("#"))
    lines = {line[3]: line for line in read_list(text)}
    number = max((int(line[0]) for line in lines.values()), default=0)
    out = []
    for sentence in header:
        if sentence not in lines:
            number += 1
            lines[sentence] = (str(number), "?", "?", sentence)
        out.append(" | ".join(lines[sentence]) + "\n")
    path.write_text(head + "".join(out), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    root = pathlib.Path(__file__).resolve().parents[2]
    if parser.parse_args().write:
        write(root)
    found = problems(root)
    for problem in found:
        print(f"promises: {problem}")
    lines = read_list((root / LIST).read_text(encoding="utf-8"))
    owed = sum(line[1] == "owed" for line in lines), sum(line[2] == "owed" for line in lines)
    told = sum(line[1] in ("told", "duty") for line in lines)
    print(f"promises: {len(lines)} sentences, {told} of them nothing to test, {owed[0]} owed on the CPU, "
          f"{owed[1]} on a device; {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
