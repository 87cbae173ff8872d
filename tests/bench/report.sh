#!/usr/bin/env bash
# One command from a folder of vectors to a report: Gannet and its peers on the same files, in pictures.
#
#   tests/bench/report.sh DATA_FOLDER [OPTION...]
#
#   --out FOLDER        where the report goes (default: build/report)
#   --base NAME         file of rows in DATA_FOLDER   (default: base.* or else base_100k.*)
#   --query NAME        file of queries               (default: query.* or else the smallest query_*)
#   --truth NAME        true neighbours               (default: found by exact search)
#   --data TEXT         what the report calls the data (default: the file's name)
#   --metric M          l2 (default), ip or cosine
#   --device D          cpu (default), or cuda: then Gannet and those that can run on the GPU
#   --peers LIST        default: hnswlib,faiss,usearch,cuvs; what cannot be installed is listed as such
#   --procedures LIST   of Gannet's searches (default: auto,exact on a CPU; all there are on a GPU)
#   --seeds LIST        of Gannet's builds (default: 1,2,3,4,5)
#   --seconds S         for each measurement, at least (default: 0.3)
#   --clock C           wall (default), or processor on a machine with other work: then throughput and
#                       build times are counted in processor seconds
#   --build FOLDER      a Release build of this tree (default: build/; made if it is not there)
#
# Measuring and drawing can be done on two machines, the first without a network or a compiler:
#
#   --steps S           all (default), measure, or draw: from the records that are in --out
#   --parts LIST        what to measure: truth,gannet,peers,scale (default: all of them)
#   --bench FILE        a gannet-bench that is there already; nothing is built or installed
#   --python PROGRAM    a Python that has the libraries to compare with (and matplotlib, for drawing)
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
out= base= query= truth= data_name= metric=l2 peers=hnswlib,faiss,usearch,cuvs seeds=1,2,3,4,5
seconds=0.3 device=cpu clock=wall procedures= steps=all parts=truth,gannet,peers,scale bench= python=
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { usage >&2; exit 2; }
  case $1 in
    --out) out=$2 ;; --base) base=$2 ;; --query) query=$2 ;; --truth) truth=$2 ;;
    --data) data_name=$2 ;; --metric) metric=$2 ;; --peers) peers=$2 ;; --seeds) seeds=$2 ;;
    --seconds) seconds=$2 ;; --device) device=$2 ;; --clock) clock=$2 ;; --build) build=$2 ;;
    --procedures) procedures=$2 ;; --steps) steps=$2 ;; --parts) parts=$2 ;; --bench) bench=$2 ;;
    --python) python=$2 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
case $steps in all | measure | draw) ;; *) usage >&2; exit 2 ;; esac
mkdir -p "${out:=$build/report}"
out=$(cd "$out" && pwd)
started=$SECONDS
heading() { printf '\n=== %s (after %d s)\n' "$*" $((SECONDS - started)); }
# wanted PART: whether it is to be measured.
wanted() { [ "$steps" != draw ] && case ,$parts, in *,$1,*) ;; *) false ;; esac; }

# --- Tools and build ------------------------------------------------------------------------------
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH"
if [ -z "$python" ] || { [ -z "$bench" ] && [ "$steps" != draw ]; }; then
  heading "tools"
  "$root/tests/setup.sh" bench
fi
python=${python:-$cache/bench-environment/bin/python}
if [ -z "$bench" ] && [ "$steps" != draw ]; then
  if [ ! -f "$build/CMakeCache.txt" ]; then
    cmake -S "$root" -B "$build" -G Ninja -DGANNET_TESTS=ON -DGANNET_WERROR=OFF > "$out/build.log"
  fi
  cmake --build "$build" --target gannet-bench >> "$out/build.log"
  bench=$build/tests/bench/gannet-bench
fi
commit=${GANNET_COMMIT:-$(git -C "$root" describe --always --dirty 2> /dev/null || echo unknown)}

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
: "${data_name:=$base}"
if [ -n "$truth" ]; then
  truth=$data/$truth
else
  truth=$out/groundtruth.ibin
  if wanted truth; then
    heading "true neighbours"
    "$bench" truth "$rows" "$queries" "$truth" -k 100 --metric "$metric" --device "$device"
  fi
fi

# --- What is measured where -----------------------------------------------------------------------
# On a CPU: one thread and all of them. On a GPU: one caller; batches from one query to all of them, from
# and to the host's memory and the device's; then several callers at once.
shared=(--metric "$metric" --device "$device" --seconds "$seconds" --commit "$commit" --data "$data_name")
if [ "$device" = cpu ]; then
  threads=1,$(nproc)
  if [ "$(nproc)" = 1 ]; then threads=1; fi
  batch=1000
  sweep=(--procedure "${procedures:-auto,exact}" --batch 1,$batch --threads "$threads")
  sweep_k100=(--batch $batch --threads "$threads")
  sweep_scale=(--batch $batch)
  sweep_peers=(-k 10 --batches 1,$batch)
else
  threads=1
  batch=10000
  : "${procedures:=$("$bench" run --help 2> /dev/null | sed -n 's/.*procedures: *//p')}"
  sweep=(--procedure "$procedures" --batch 1,10,100,1000,$batch --buffers host,device --single-queries 1000)
  sweep_k100=(--batch $batch --buffers host,device)
  sweep_scale=(--batch $batch)
  sweep_peers=(-k 10,100 --batches 1,10,100,1000,$batch --single-queries 1000)
fi
beams=10,16,24,32,48,64,96,128,192,256,512

# --- Measuring ------------------------------------------------------------------------------------
if wanted gannet; then
  heading "Gannet"
  "$bench" run "$rows" "$queries" "$truth" --out "$out/gannet" "${shared[@]}" --seeds "$seeds" \
    "${sweep[@]}" --recall 0.9,0.95,0.98,0.99,0.995 --beam $beams
  "$bench" run "$rows" "$queries" "$truth" --out "$out/gannet_k100" "${shared[@]}" -k 100 \
    "${sweep_k100[@]}" --recall 0.95,0.98,0.99 --beam 100,128,192,256,512
fi
if wanted peers; then
  heading "peers"
  rm -f "$out/peers.jsonl"
  "$python" "$root/tests/bench/peers/run_peers.py" "$rows" "$queries" "$truth" \
    --out "$out/peers.jsonl" --metric "$metric" --peers "$peers" "${sweep_peers[@]}" \
    --threads "$threads" --seconds "$seconds" || echo "report: a peer failed; the others are in the report"
fi
if wanted scale; then
  heading "cost against the number of rows"
  total=$("$bench" inspect --head "$rows" | sed -n 's/^rows //p')
  for part in 10 4 2; do
    count=$((total / part))
    "$bench" truth "$rows" "$queries" "$out/part.ibin" -k 10 --metric "$metric" --device "$device" \
      --rows-max $count
    "$bench" run "$rows" "$queries" "$out/part.ibin" --out "$out/gannet_rows$count" "${shared[@]}" \
      --rows-max $count "${sweep_scale[@]}" --beam 10,16,24,32,48,64,96,128
    rm -f "$out/peers_rows$count.jsonl"
    case ,$peers, in *,cuvs,*) peer=cuvs index=cuvs_cagra.ivf_pq ;; *) peer= ;; esac
    if [ "$device" = cpu ]; then
      case ,$peers, in *,hnswlib,*) peer=hnswlib index=hnswlib.M16 ;; *) peer= ;; esac
    fi
    if [ -n "$peer" ]; then
      # A run record of its own carries the number of rows to the peers' points.
      head -n 1 "$out/gannet_rows$count.jsonl" > "$out/peers_rows$count.jsonl"
      "$python" "$root/tests/bench/peers/run_peers.py" "$rows" "$queries" "$out/part.ibin" \
        --rows-max $count --out "$out/peers_rows$count.jsonl" --metric "$metric" --peers $peer \
        --index $index --batches $batch --threads "$threads" --seconds "$seconds" || true
    fi
  done
  rm -f "$out/part.ibin"
fi

# --- Drawing --------------------------------------------------------------------------------------
if [ "$steps" != measure ]; then
  heading "report"
  scale=()
  for file in "$out"/*_rows*.jsonl; do if [ -f "$file" ]; then scale+=(--scale "$file"); fi; done
  found=()
  for file in "$out/gannet.jsonl" "$out/gannet_k100.jsonl" "$out"/gannet_cpu*.jsonl "$out"/peers.jsonl \
    "$out"/peers_*.jsonl; do
    case $file in *_rows*) ;; *) if [ -f "$file" ]; then found+=("$file"); fi ;; esac
  done
  "$python" "$root/tests/bench/report.py" --out "$out" --clock "$clock" "${found[@]}" "${scale[@]}"
fi
printf 'in %d s\n' $((SECONDS - started))
