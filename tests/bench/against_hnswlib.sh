#!/usr/bin/env bash
# Gannet against hnswlib on three sets: search rates at recall@10 of 0.95 and 0.99, build times, and
# the recall that a target gives. One thread each, one process; BENCH_THREADS=2 builds both with two, BENCH_TSDG=200
# adds TSDG's graph of lists of 200.
#
#   tests/bench/against_hnswlib.sh FOLDER [BUILD]
#
# FOLDER holds sift/{base_100k.u8bin,query_1k.u8bin,gt_100k.ibin} (squared L2),
# gist/{base_30k.f16bin,query_500.f16bin,gt_30k.ibin} (squared L2) and
# words/{base_150k.f16bin,query_1k.f16bin,gt_150k.ibin} (cosine); .f16bin may be packed with xz.
# BUILD is a Release build of this tree (build/). hnswlib's header is libhnswlib-dev's.
# Prints CSV: data, library, what, beam, recall, value. Rows worth keeping go to results.csv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:?usage: against_hnswlib.sh FOLDER [BUILD]}
build=$(cd "${2:-$root/build}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# hnswlib chooses its SIMD code by the compiler's flags, so it gets this machine's.
"${CXX:-c++}" -std=c++20 -O3 -march=native -I"$root/capi/include" -I"$root/core" \
  "$root/tests/bench/against_hnswlib.cpp" -o "$scratch/bench" -L"$build" -lgannet \
  -Wl,-rpath,"$build" -lpthread

unpacked() {
  if [ -e "$1" ]; then
    echo "$1"
  else
    xz -dc "$1.xz" > "$scratch/$(basename "$1")"
    echo "$scratch/$(basename "$1")"
  fi
}

"$scratch/bench" sift "$folder/sift/base_100k.u8bin" "$folder/sift/query_1k.u8bin" \
  "$folder/sift/gt_100k.ibin" l2
"$scratch/bench" gist "$(unpacked "$folder/gist/base_30k.f16bin")" \
  "$folder/gist/query_500.f16bin" "$folder/gist/gt_30k.ibin" l2
"$scratch/bench" words "$(unpacked "$folder/words/base_150k.f16bin")" \
  "$folder/words/query_1k.f16bin" "$folder/words/gt_150k.ibin" cosine
