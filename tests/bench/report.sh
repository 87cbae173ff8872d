#!/usr/bin/env bash
# One command from a folder of vectors to a report: Gannet and its peers on the same files, in pictures.
#
#   tests/bench/report.sh DATA_FOLDER [OPTION...]
#
#   --out FOLDER        where the report goes (default: build/report)
#   --base NAME         file of rows in DATA_FOLDER   (default: base.* or else base_100k.*)
#   --query NAME        file of queries               (default: query.* or else the smallest query_*)
#   --truth NAME        true neighbours               (default: found by exact search)
#   --metric M          l2 (default), ip or cosine
#   --peers LIST        default: hnswlib,faiss,usearch,cuvs; what cannot be installed is listed as such
#   --seeds LIST        of Gannet's builds (default: 1,2,3,4,5)
#   --seconds S         for each measurement, at least (default: 0.3)
#   --clock C           wall (default), or processor on a machine with other work: then throughput and
#                       build times are counted in processor seconds
#   --device D          auto, cpu or cuda, for Gannet
#   --build FOLDER      a Release build of this tree (default: build/; made if it is not there)
#
# DATA_FOLDER is only read. The machine should have nothing else to do meanwhile: the report says what
# load it began with.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
usage() { sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; }
case ${1:-} in -h | --help) usage; exit 0 ;; "" | -*) usage >&2; exit 2 ;; esac

data=$(cd "$1" && pwd)
shift
build=${GANNET_BUILD:-$root/build}
out= base= query= truth= metric=l2 peers=hnswlib,faiss,usearch,cuvs seeds=1,2,3,4,5 seconds=0.3
device=auto clock=wall
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { usage >&2; exit 2; }
  case $1 in
    --out) out=$2 ;; --base) base=$2 ;; --query) query=$2 ;; --truth) truth=$2 ;;
    --metric) metric=$2 ;; --peers) peers=$2 ;; --seeds) seeds=$2 ;; --seconds) seconds=$2 ;;
    --device) device=$2 ;; --clock) clock=$2 ;; --build) build=$2 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
mkdir -p "${out:=$build/report}"
out=$(cd "$out" && pwd)
started=$SECONDS
heading() { printf '\n=== %s (after %d s)\n' "$*" $((SECONDS - started)); }

# --- Tools and build ------------------------------------------------------------------------------
heading "tools"
"$root/tests/setup.sh" bench
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH"
python=$cache/bench-environment/bin/python
if [ ! -f "$build/CMakeCache.txt" ]; then
  cmake -S "$root" -B "$build" -G Ninja -DGANNET_TESTS=ON -DGANNET_WERROR=OFF > "$out/build.log"
fi
cmake --build "$build" --target gannet-bench >> "$out/build.log"
bench=$build/tests/bench/gannet-bench
commit=$(git -C "$root" describe --always --dirty 2> /dev/null || echo unknown)

# --- Files ----------------------------------------------------------------------------------------
# first_of PATTERN...: the first file in the data folder that matches; smallest first where many do.
first_of() {
  local pattern found
  for pattern in "$@"; do
    found=$(cd "$data" && ls -rS -- $pattern 2> /dev/null | grep -E '\.([fiu][0-9]*bin|[fb]vecs|npy)$' |
      head -n 1 || true)
    if [ -n "$found" ]; then echo "$found"; return; fi
  done
  echo "report: no ${*} in $data" >&2
  exit 1
}
base=${base:-$(first_of 'base.*' 'base_100k.*' 'base*')}
query=${query:-$(first_of 'query.*' 'query_*' 'quer*')}
rows=$data/$base queries=$data/$query
if [ -n "$truth" ]; then
  truth=$data/$truth
else
  heading "true neighbours"
  truth=$out/groundtruth.ibin
  "$bench" truth "$rows" "$queries" "$truth" -k 100 --metric "$metric" --device "$device"
fi
threads=1,$(nproc)
if [ "$(nproc)" = 1 ]; then threads=1; fi

# --- Measuring ------------------------------------------------------------------------------------
heading "Gannet"
"$bench" run "$rows" "$queries" "$truth" --out "$out/gannet" --metric "$metric" --seeds "$seeds" \
  --batch 1,1000 --threads "$threads" --procedure auto,exact --device "$device" \
  --seconds "$seconds" --commit "$commit" --recall 0.9,0.95,0.99 \
  --beam 10,16,24,32,48,64,96,128,192,256,512
"$bench" run "$rows" "$queries" "$truth" --out "$out/gannet_k100" --metric "$metric" -k 100 \
  --batch 1000 --threads "$threads" --device "$device" --seconds "$seconds" --commit "$commit" \
  --beam 100,128,192,256,512
heading "peers"
rm -f "$out/peers.jsonl"
"$python" "$root/tests/bench/peers/run_peers.py" "$rows" "$queries" "$truth" \
  --out "$out/peers.jsonl" --metric "$metric" --peers "$peers" --threads "$threads" \
  --seconds "$seconds" || echo "report: a peer failed; the others are in the report"

heading "cost against the number of rows"
total=$(cd "$root/tests/bench/peers" &&
  "$python" -c 'import measure, sys; print(len(measure.read_vectors(sys.argv[1])))' "$rows")
scale=()
for part in 10 4 2; do
  count=$((total / part))
  (cd "$root/tests/bench/peers" && "$python" -c '
import measure, numpy, sys
numpy.save(sys.argv[2], measure.read_vectors(sys.argv[1], int(sys.argv[3])))
' "$rows" "$out/part.npy" "$count")
  "$bench" truth "$out/part.npy" "$queries" "$out/part.ibin" -k 10 --metric "$metric"
  "$bench" run "$out/part.npy" "$queries" "$out/part.ibin" --out "$out/gannet_$count" \
    --metric "$metric" --batch 1000 --device "$device" --seconds "$seconds" --commit "$commit" \
    --beam 10,16,24,32,48,64,96
  rm -f "$out/peers_$count.jsonl"
  # A run record of its own carries the number of rows to the peers' points.
  head -n 1 "$out/gannet_$count.jsonl" > "$out/peers_$count.jsonl"
  case ,$peers, in
    *,hnswlib,*)
      "$python" "$root/tests/bench/peers/run_peers.py" "$out/part.npy" "$queries" "$out/part.ibin" \
        --out "$out/peers_$count.jsonl" --metric "$metric" --peers hnswlib --index hnswlib.M16 \
        --batches 1000 --threads "$threads" --seconds "$seconds" || true ;;
  esac
  scale+=(--scale "$out/gannet_$count.jsonl" --scale "$out/peers_$count.jsonl")
done
rm -f "$out/part.npy" "$out/part.ibin"

heading "report"
"$python" "$root/tests/bench/report.py" --out "$out" --clock "$clock" "$out/gannet.jsonl" "$out/gannet_k100.jsonl" \
  "$out/peers.jsonl" "${scale[@]}"
printf 'in %d s\n' $((SECONDS - started))
