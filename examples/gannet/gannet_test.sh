#!/usr/bin/env bash
# The command-line tool: every command on real data, its files read back, its exit statuses.
#
#   gannet_test.sh GANNET DATA_FOLDER
set -uo pipefail
gannet=$(realpath "$1") data=$(realpath "$2")
. "$(dirname "$0")/checks.sh"

# True neighbours, whole and in blocks.
ends 0 "among 10,000 rows" "$gannet" exact "$rows" "$queries" -k 10 -o truth.ibin
ends 0 "query 0:" "$gannet" exact "$rows" "$queries" -k 10 -o blocks.ibin --block-mb 1 --threads 1
same truth.ibin blocks.ibin
answers 'a["k"] == 3 and len(a["neighbours"]) == 200 and len(a["neighbours"][0]) == 3' \
  "$gannet" exact "$rows" "$queries" -k 3

# An index, built, looked at, checked, searched.
answers 'a["index_bytes"] > 1280000 and a["rows"] == 10000' "$gannet" build "$rows" --plan
ends 0 "10,000 rows of 128 u8 values" "$gannet" build "$rows" sift.ann
answers 'a["degree"] == 48' "$gannet" build "$rows" other.ann --degree 48 --no-calibration
answers 'a["kind"] == "index" and a["rows"] == 10000 and a["dim"] == 128 and a["metric"] == "l2"' \
  "$gannet" info sift.ann
answers 'a["codes"] == "rows" and a["code_bytes"] == 128 and a["code_worst_twenty"] == 1' "$gannet" info sift.ann
ends 0 "content_id" "$gannet" info sift.ann
ends 0 "whole" "$gannet" verify sift.ann
answers 'a["recall"] > 0.94 and a["queries_per_second"] > 0' \
  "$gannet" search sift.ann "$queries" --truth truth.ibin -o found.ibin
answers 'a["recall"] > 0.99' "$gannet" search sift.ann "$queries" --truth truth.ibin --beam 200
answers 'a["recall"] == 1' \
  "$gannet" search sift.ann "$queries" --truth truth.ibin --procedure exact --threads 2
answers 'a["kind"] == "vectors" and a["element"] == "i32" and a["dim"] == 10' "$gannet" info found.ibin

# Ids are no vectors.
for command in "build found.ibin x.ann" "build found.ibin x.ann --plan" "search sift.ann found.ibin" \
  "exact found.ibin $queries" "exact $rows found.ibin" "build $rows x.ann --calibration found.ibin"; do
  # shellcheck disable=SC2086
  ends 1 "found.ibin: holds ids (i32); expected vectors" "$gannet" $command
done
# Neither neighbours nor how many there are.
"$gannet" search sift.ann "$queries" --show 0 > log
holds "--show 0 shows $(cat log)" test "$(wc -l < log)" = 1

# Conversions there and back change nothing; parts are parts.
ends 0 "fvecs" "$gannet" convert "$rows" rows.fvecs
ends 0 "f16 values" "$gannet" convert rows.fvecs rows.npy --element f16
ends 0 "f32 values" "$gannet" convert rows.npy rows.fbin
ends 0 "10,000 rows" "$gannet" convert rows.fbin back.fvecs
same rows.fvecs back.fvecs
ends 0 "2 rows" "$gannet" convert "$rows" part.u8bin --rows 100:2
same part.u8bin <(printf '\2\0\0\0\200\0\0\0'; tail -c +12809 "$rows" | head -c 256)
ends 1 "UNSUPPORTED" "$gannet" convert rows.fbin rows.u8bin
holds "a part is left behind" test -z "$(ls | grep -E '^rows.u8bin')"

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
ends 1 "warps_per_query is 3" "$gannet" search sift.ann "$queries" --procedure two_lists --warps-per-query 3
ends 1 "warps_per_query is 8" "$gannet" search sift.ann "$queries" --procedure wide_block --warps-per-query 8
ends 2 "--procedure" "$gannet" search sift.ann "$queries" --procedure two_blocks
ends 0 "--recall" "$gannet" search --help
ends 0 "verify" "$gannet" --help
ends 0 "gannet 0" "$gannet" --version
holds "a refused command wrote a file" test ! -e x.ann -a ! -e x.u8bin
finish
