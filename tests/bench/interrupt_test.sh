#!/usr/bin/env bash
# Ctrl-C in the middle of a run: gannet-bench ends soon, with status 130, and what it had measured by
# then is in its files. Malformed files and wrong options end it with a line that says why.
#
#   interrupt_test.sh GANNET-BENCH
set -euo pipefail
bench=${1:?usage: interrupt_test.sh GANNET-BENCH}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
fail() { echo "interrupt_test: $*" >&2; exit 1; }

# refused STATUS TEXT COMMAND...: the command ends with the status and prints the text.
refused() {
  local wanted=$1 text=$2 status=0
  shift 2
  "$@" > log 2>&1 || status=$?
  [ $status = "$wanted" ] || fail "status $status instead of $wanted: $*: $(cat log)"
  grep -qF -- "$text" log || fail "no \"$text\" from: $*: $(cat log)"
}

"$bench" make clusters --rows 5000 --dim 16 --intrinsic 8 --queries 100 --out data > /dev/null
"$bench" truth data/base.fbin data/query.fbin data/gt.ibin -k 10 > /dev/null

# Background jobs of a script ignore SIGINT; setsid and Python's default handler give it back.
python3 - "$bench" << 'END'
import json, pathlib, signal, subprocess, sys

run = subprocess.Popen(
    [sys.argv[1], "run", "data/base.fbin", "data/query.fbin", "data/gt.ibin", "--out", "cut",
     "--seconds", "0.2", "--seeds", "1,2,3,4,5,6,7,8,9"],
    stderr=subprocess.PIPE, text=True,
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
measured_before = lambda: pathlib.Path("cut.jsonl").read_text().count('"search"')
for line in run.stderr:  # until two points are measured
    if line.count("recall") and measured_before() >= 2:
        break
before = measured_before()
run.send_signal(signal.SIGINT)
rest = run.stderr.read()
status = run.wait(timeout=120)
assert status == 130, (status, rest)
assert "cancelled" in rest, rest
records = [json.loads(line) for line in open("cut.jsonl")]
kinds = [record["record"] for record in records]
assert kinds[0] == "run" and kinds[-1] == "interrupted", kinds
measured = kinds.count("search")
rows = open("cut.csv").read().splitlines()
assert 2 <= measured == len(rows) - 1, (measured, len(rows))
# Soon: the point that was being measured, and the one that came while the signal was on its way.
assert measured <= before + 2, (measured, before)
assert kinds.count("build") == len(open("cut.build.csv").read().splitlines()) - 1
END

head -c 1000 data/base.fbin > short.fbin
refused 1 "short.fbin: at byte 1000: the file ends; expected 320008 bytes" \
  "$bench" run short.fbin data/query.fbin data/gt.ibin --out x
refused 1 "query.fbin: holds f32 values; expected row numbers" \
  "$bench" run data/base.fbin data/query.fbin data/query.fbin --out x
refused 1 "expected numbers below 100" \
  "$bench" run data/base.fbin data/query.fbin data/gt.ibin --out x --rows-max 100
refused 1 "holds 10 neighbours; -k asks for 20" \
  "$bench" run data/base.fbin data/query.fbin data/gt.ibin --out x -k 20
refused 1 "--buffers device needs --device cuda" \
  "$bench" run data/base.fbin data/query.fbin data/gt.ibin --out x --buffers host,device
refused 1 "no such file" "$bench" inspect none.fbin
refused 1 "expected 1 to the dimension" "$bench" make clusters --rows 5 --dim 4 --intrinsic 9 --out y
refused 2 "--beam" "$bench" run data/base.fbin data/query.fbin data/gt.ibin --out x --beam 0
refused 2 "kind" "$bench" make cubes --rows 5 --out y
refused 2 "subcommand" "$bench"
refused 0 "gannet-bench" "$bench" run --help
echo "interrupt_test: passed"
