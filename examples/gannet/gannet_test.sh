#!/usr/bin/env bash
# The command-line tool: every command on real data, its files read back, its exit statuses.
#
#   gannet_test.sh GANNET DATA_FOLDER
set -euo pipefail
gannet=$1 data=$2
rows=$data/sift_10k.u8bin queries=$data/sift_queries.u8bin
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
checks=0
fail() { echo "gannet_test: $*" >&2; exit 1; }

# ends STATUS TEXT COMMAND...: the command ends with the status and prints the text.
ends() {
  local wanted=$1 text=$2 status=0
  shift 2
  "$@" > log 2>&1 || status=$?
  [ $status = "$wanted" ] || fail "status $status instead of $wanted: $*: $(cat log)"
  grep -qF -- "$text" log || fail "no \"$text\" from: $*: $(cat log)"
  checks=$((checks + 1))
}
# answers EXPRESSION COMMAND...: the JSON object `a` on stdout makes the Python expression true.
answers() {
  local expression=$1 status=0
  shift
  "$@" --json > log 2> /dev/null || status=$?
  python3 -c 'import json, sys; a = json.load(open("log")); status = int(sys.argv[2])
assert eval(sys.argv[1]), (a, status)' "$expression" $status || fail "$expression: $*"
  checks=$((checks + 1))
}

# True neighbours, whole and in blocks.
ends 0 "among 10,000 rows" "$gannet" exact "$rows" "$queries" -k 10 -o truth.ibin
ends 0 "query 0:" "$gannet" exact "$rows" "$queries" -k 10 -o blocks.ibin --block-mb 1 --threads 1
cmp truth.ibin blocks.ibin
answers 'a["k"] == 3 and len(a["neighbours"]) == 10 and len(a["neighbours"][0]) == 3' \
  "$gannet" exact "$rows" "$queries" -k 3

# An index, built, looked at, checked, searched.
answers 'a["index_bytes"] > 1280000 and a["rows"] == 10000' "$gannet" build "$rows" --plan
ends 0 "10,000 rows of 128 u8 values" "$gannet" build "$rows" sift.ann
answers 'a["degree"] == 48' "$gannet" build "$rows" other.ann --degree 48 --no-calibration
answers 'a["kind"] == "index" and a["rows"] == 10000 and a["dim"] == 128 and a["metric"] == "l2"' \
  "$gannet" info sift.ann
ends 0 "content_id" "$gannet" info sift.ann
ends 0 "whole" "$gannet" verify sift.ann
answers 'a["recall"] > 0.94 and a["queries_per_second"] > 0' \
  "$gannet" search sift.ann "$queries" --truth truth.ibin -o found.ibin
answers 'a["recall"] > 0.99' "$gannet" search sift.ann "$queries" --truth truth.ibin --beam 200
answers 'a["recall"] == 1' \
  "$gannet" search sift.ann "$queries" --truth truth.ibin --procedure exact --threads 2
answers 'a["kind"] == "vectors" and a["element"] == "i32" and a["dim"] == 10' "$gannet" info found.ibin

# Conversions there and back change nothing; parts are parts.
ends 0 "fvecs" "$gannet" convert "$rows" rows.fvecs
ends 0 "f16 values" "$gannet" convert rows.fvecs rows.npy --element f16
ends 0 "f32 values" "$gannet" convert rows.npy rows.fbin
ends 0 "10,000 rows" "$gannet" convert rows.fbin back.fvecs
cmp rows.fvecs back.fvecs
ends 0 "2 rows" "$gannet" convert "$rows" part.u8bin --rows 100:2
cmp part.u8bin <(printf '\2\0\0\0\200\0\0\0'; tail -c +12809 "$rows" | head -c 256)
ends 1 "UNSUPPORTED" "$gannet" convert rows.fbin rows.u8bin
test ! -e rows.u8bin && test ! -e rows.u8bin.part

# What goes wrong says so.
cp sift.ann damaged.ann
printf '\377\377\377\377' | dd of=damaged.ann bs=1 seek=100000 conv=notrunc status=none
ends 3 "CORRUPT" "$gannet" verify damaged.ann
ends 3 "CORRUPT" "$gannet" search damaged.ann "$queries"
answers 'status == 3 and "CORRUPT" in a["error"]' "$gannet" verify damaged.ann
head -c 5000 sift.ann > short.ann
ends 3 "short.ann" "$gannet" info short.ann
ends 1 "no-such.fbin: no such file" "$gannet" build no-such.fbin x.ann
ends 1 "no-such" "$gannet" verify no-such.ann
head -c 1000 "$rows" > cut.u8bin
ends 1 "cut.u8bin: at byte 1000: the file ends; expected 1280008 bytes" "$gannet" info cut.u8bin
ends 1 "asked for 5 from row 9999" "$gannet" convert "$rows" x.u8bin --rows 9999:5
ends 1 "degree" "$gannet" build "$rows" x.ann --degree 1
ends 2 "--rows" "$gannet" convert "$rows" x.u8bin --rows 3
ends 2 "index" "$gannet" build "$rows"
ends 2 "--metric" "$gannet" build "$rows" x.ann --metric l7
ends 2 "subcommand" "$gannet"
ends 0 "--recall" "$gannet" search --help
ends 0 "verify" "$gannet" --help
ends 0 "gannet 0" "$gannet" --version
test ! -e x.ann && test ! -e x.u8bin
echo "gannet_test: $checks checks passed"
