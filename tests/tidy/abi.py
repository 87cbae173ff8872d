#!/usr/bin/env python3
"""What ann.h promises to programs that are compiled already, in lines that can be compared.

    python3 tests/tidy/abi.py            compares ann.h with capi/abi.txt; exit status 1 if they differ
    python3 tests/tidy/abi.py --write    records what is new in ann.h under its ANN_ABI_VERSION

Each line of capi/abi.txt is the ANN_ABI_VERSION that brought it and a function, a constant with its
value, or a field with its offset and size as this machine's C compiler lays it out. Lines are only ever
added: one that is gone or other means that programs in people's hands break, which is a change of the
high 16 bits and a new file. tidy.py compares too.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HEADER = "capi/include/ann.h"
RECORD = "capi/abi.txt"


def declared(text):
    """Functions, constants and fields of a header, in its order."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    functions = [" ".join(found.split()) for found in re.findall(r"^ANN_API ([^;]+);", text, re.M)]
    constants = [name for name, value in re.findall(r"^#define (ANN_\w+) +(\S+)", text, re.M)
                 if re.fullmatch(r"\(?-?(?:0x)?[0-9a-fA-F]+u?\)?|U?INT\d+_MAX", value)
                 and not re.match(r"ANN_(?:ABI_)?VERSION", name)]
    for body in re.findall(r"\benum\s*\{(.*?)\}", text, re.S):
        constants += re.findall(r"\b(ANN_\w+)\s*=", body)
    fields = []
    for struct, body in re.findall(r"typedef struct (\w+) \{(.*?)\n?\} \1;", text, re.S):
        for field in body.split(";"):
            name = re.search(r"\(\*(\w+)\)\(|\b(\w+)\s*(?:\[[^\]]*\])?\s*$", field)
            if name:
                fields.append((struct, name.group(1) or name.group(2), " ".join(field.split())))
    return functions, constants, fields


def described(root):
    """Lines of a record without their versions. Empty if there is no C compiler."""
    functions, constants, fields = declared((root / HEADER).read_text(encoding="utf-8"))
    compiler = shutil.which("cc")
    if compiler is None:
        return []
    body = [f'  printf("constant {name} %lld\\n", (long long){name});' for name in constants]
    body += [f'  printf("field {struct}.{name} at %zu, %zu bytes: {text}\\n", offsetof({struct}, {name}), '
             f"sizeof((({struct} *)0)->{name}));" for struct, name, text in fields]
    program = "\n".join(['#include <stdio.h>', '#include "ann.h"', "int main(void) {", *body, "}", ""])
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder) / "x.c", pathlib.Path(folder) / "x"
        source.write_text(program)
        subprocess.run([compiler, "-std=c11", "-I", str((root / HEADER).parent), str(source), "-o",
                        str(binary)], check=True, capture_output=True, text=True)
        listed = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    return [f"function {text}" for text in functions] + listed.splitlines()


def version_of(root):
    text = (root / HEADER).read_text(encoding="utf-8")
    found = re.search(r"^#define ANN_ABI_VERSION (\w+?)u?$", text, re.M)
    return int(found.group(1), 0) if found else 0


def recorded(root):
    """Lines of the record, as (version, rest)."""
    path = root / RECORD
    if not path.is_file():
        return []
    lines = [line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines()
             if line and not line.startswith("#")]
    return [(int(version), rest) for version, rest in lines]


def differences(root):
    """What is wrong between header and record, a line each."""
    present = described(root)
    if not present:
        return []
    record = recorded(root)
    known = {rest for _, rest in record}
    problems = [f"\"{rest}\" is gone or other: programs in people's hands break"
                for _, rest in record if rest not in set(present)]
    problems += [f'"{rest}" is not recorded; run tests/tidy/abi.py --write'
                 for rest in present if rest not in known]
    newest = max((version for version, _ in record), default=0)
    if not problems and newest != version_of(root):
        problems.append(f"ANN_ABI_VERSION is {version_of(root)}, the newest line is of {newest}")
    return problems


def write(root):
    record = recorded(root)
    known = {rest for _, rest in record}
    added = [(version_of(root), rest) for rest in described(root) if rest not in known]
    head = "# What ann.h promises to compiled programs; see tests/tidy/abi.py. Lines are only added.\n"
    (root / RECORD).write_text(head + "".join(f"{version} {rest}\n" for version, rest in record + added),
                               encoding="utf-8")
    print(f"abi: {len(added)} lines added to {len(record)}")


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    if sys.argv[1:] == ["--write"]:
        write(root)
        return 0
    problems = differences(root)
    for problem in problems:
        print(f"abi: {problem}")
    print(f"abi: {len(recorded(root))} lines, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
