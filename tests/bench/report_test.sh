#!/usr/bin/env bash
# report.sh in two steps, as on two machines: measured with a gannet-bench that is there, drawn later.
#
#   report_test.sh GANNET-BENCH PYTHON
set -euo pipefail
bench=${1:?usage: report_test.sh GANNET-BENCH PYTHON} python=${2:?}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "report_test: $*" >&2; cat "$scratch/log" >&2; exit 1; }

"$bench" make clusters --rows 2000 --dim 8 --intrinsic 4 --queries 100 --out "$scratch/data" > /dev/null
# Nothing may be looked for or installed: neither step has a tests/setup.sh to run.
mkdir -p "$scratch/tree/tests"
cp -r "$here" "$scratch/tree/tests/bench"
report=$scratch/tree/tests/bench/report.sh
"$report" "$scratch/data" --steps measure --bench "$bench" --python "$python" --out "$scratch/out" \
  --seeds 1 --seconds 0 --peers none > "$scratch/log" 2>&1 || fail "measuring failed"
for part in gannet gannet_k100 gannet_rows200 gannet_rows500 gannet_rows1000; do
  [ -s "$scratch/out/$part.jsonl" ] || fail "no $part.jsonl"
done
[ ! -e "$scratch/out/report.html" ] || fail "the step that measures has drawn"
grep -q '"name": *"none", "state": *"not installed"' "$scratch/out/peers.jsonl" ||
  fail "a library that is not there is not said to be so"

mv "$scratch/out" "$scratch/carried"
"$report" "$scratch/data" --steps draw --python "$python" --out "$scratch/carried" \
  > "$scratch/log" 2>&1 || fail "drawing failed"
for file in report.html throughput.svg throughput.png latency.png build.png scale.png; do
  [ -s "$scratch/carried/$file" ] || fail "no $file"
done
grep -q '>none</td><td>not installed' "$scratch/carried/report.html" || fail "the page does not say who was missing"
