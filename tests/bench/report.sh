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
#   --procedures LIST   of Gannet's searches (default: auto,exact on a CPU; on a GPU all, beside auto)
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

# --- Measuring ------------------------------------------------------------------------------------
shared=(--metric "$metric" --seconds "$seconds" --commit "$commit" --data "$data_name")
beams=10,16,24,32,48,64,96,128,192,256,512
threads=1,$(nproc)
if [ "$(nproc)" = 1 ]; then threads=1; fi

# gannet NAME OPTION...: one run, whose records are NAME.jsonl; one that fails leaves the others.
gannet() {
  local name=$1
  shift
  "$bench" run "$rows" "$queries" "$truth" --out "$out/$name" "${shared[@]}" "$@" || {
    [ $? != 130 ] || exit 130
    echo "report: $name failed; the others are in the report"
  }
}
# peers FILE LIBRARIES OPTION...: added to what FILE.jsonl holds.
peers() {
  local file=$1 libraries=$2
  shift 2
  [ -n "$libraries" ] || return 0
  "$python" "$root/tests/bench/peers/run_peers.py" "$rows" "$queries" "$truth" --out "$out/$file.jsonl" \
    --metric "$metric" --seconds "$seconds" --peers "$libraries" "$@" ||
    echo "report: a peer failed; the others are in the report"
}

# On a CPU: one thread and all of them.
gannet_on_cpu() {
  gannet gannet --device cpu --seeds "$seeds" --procedure "${procedures:-auto,exact}" --batch 1,1000 \
    --threads "$threads" --recall 0.9,0.95,0.99 --beam $beams
  gannet gannet_k100 --device cpu -k 100 --procedure "${procedures:-auto,exact}" --batch 1000 \
    --threads "$threads" --beam 100,128,192,256,512
}
peers_on_cpu() {
  rm -f "$out/peers.jsonl"
  peers peers "$peers" -k 10,100 --batches 1,1000 --threads "$threads"
}

# On a GPU: from and to the host's memory and the device's; every procedure and every way to the k-NN
# graph; one query to all of them; several callers.
gannet_on_gpu() {
  local names knn
  names=$("$bench" run --help | sed -n 's/^procedures: auto,//p')
  knn=$("$bench" run --help | sed -n 's/^knn: auto,//p')
  local auto=(--device "$device" --buffers host,device --recall 0.8,0.9,0.95,0.98,0.99,0.995)
  gannet gannet "${auto[@]}" --seeds "$seeds" --batch 10000
  gannet gannet_batches "${auto[@]}" --batch 1,10,100,1000 --single-queries 1000
  gannet gannet_k100 "${auto[@]}" -k 100 --batch 10000
  gannet gannet_procedures --device "$device" --procedure "${procedures:-$names}" --batch 1,10000 \
    --buffers host,device --single-queries 500 --beam 16,24,32,48,64,96,128,192,256,512
  [ -n "$procedures" ] || gannet gannet_two_lists "${auto[@]}" --procedure two_lists \
    --warps-per-query 1,8,16 --batch 1,10000 --single-queries 500
  gannet gannet_callers --device "$device" --mode throughput --threads 1,4,16 --batch 1,100,10000 \
    --single-queries 1000 --recall 0.95
  gannet gannet_knn --device "$device" --knn "$knn" --batch 10000 --buffers device --recall 0.95
  gannet gannet_cpu --device cpu --name gannet_cpu --batch 1,1000 --threads "$threads" \
    --queries-max 2000 --single-queries 500 --beam 16,32,64,128,256
}
peers_on_gpu() {
  case ,$peers, in
    *,cuvs,*)
      rm -f "$out/peers_cuvs.jsonl"
      peers peers_cuvs cuvs --threads 1 -k 10,100 --batches 1,10,100,1000,10000 --single-queries 500 ;;
  esac
  # Libraries of the CPU beside it: fewer queries and efforts, because a GPU is waiting.
  local others
  others=$(echo ",$peers," | sed 's/,cuvs,/,/; s/^,//; s/,$//')
  if [ -n "$others" ]; then rm -f "$out/peers.jsonl"; fi
  peers peers "$others" --batches 1,1000 \
    --threads "$threads" --queries-max 2000 --single-queries 500 --efforts 1,3,5,7,9
}

where=cpu
case $device in cuda*) where=gpu ;; esac
if wanted gannet; then
  heading "Gannet"
  gannet_on_$where
fi
if wanted peers; then
  heading "peers"
  peers_on_$where
fi
if wanted scale; then
  heading "cost against the number of rows"
  total=$("$bench" inspect --head "$rows" | sed -n 's/^rows //p')
  whole=$truth
  truth=$out/part.ibin
  batch=1000 peer=hnswlib index=hnswlib.M16
  if [ $where = gpu ]; then batch=10000 peer=cuvs index=cuvs_cagra.ivf_pq; fi
  for part in 10 4 2; do
    count=$((total / part))
    "$bench" truth "$rows" "$queries" "$truth" -k 10 --metric "$metric" --device "$device" \
      --rows-max $count
    gannet gannet_rows$count --device "$device" --rows-max $count --batch $batch --recall 0.9,0.95,0.98
    case ,$peers, in
      *,$peer,*)
        # A run record of its own carries the number of rows to the peers' points.
        head -n 1 "$out/gannet_rows$count.jsonl" > "$out/peers_rows$count.jsonl"
        peers peers_rows$count $peer --rows-max $count --index $index --batches $batch \
          --threads "$threads" ;;
    esac
  done
  rm -f "$truth"
  truth=$whole
fi

# --- Drawing --------------------------------------------------------------------------------------
if [ "$steps" != measure ]; then
  heading "report"
  scale=()
  for file in "$out"/*_rows*.jsonl; do if [ -f "$file" ]; then scale+=(--scale "$file"); fi; done
  found=()
  for file in "$out/gannet.jsonl" "$out"/gannet_*.jsonl "$out"/peers*.jsonl; do
    case $file in *_rows*) ;; *) if [ -f "$file" ]; then found+=("$file"); fi ;; esac
  done
  "$python" "$root/tests/bench/report.py" --out "$out" --clock "$clock" "${found[@]}" "${scale[@]}"
fi
printf 'in %d s\n' $((SECONDS - started))
