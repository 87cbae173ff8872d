#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs them, the canary first.
#
#   tests/fuzz/run.sh [--unrecorded] SECONDS [TARGET...]
#   tests/fuzz/run.sh --hour     an hour in all, from the inputs that earlier hours have kept
#   tests/fuzz/run.sh --sum      the executions of all targets that the ledger has, and ends
#
# Each target (default: open repaired shape table calls) runs for SECONDS, two at a time where there
# are two cores, from the inputs in corpus/ and those that earlier runs left in the build folder. A
# finding ends the run with its report and the place of the input. The number of executions is appended
# to tests/fault/results.csv, unless --unrecorded is given, and their sum is printed. An hour shares its time
# among the targets and keeps what they found to be new in $GANNET_CACHE/fuzz (~/.cache/gannet/fuzz), thinned
# out at the end, so that the next hour begins where this one ended. Without a clang that has libFuzzer the
# script says so and ends with status 77.
#
# To replay a finding:    BUILD/tests/fuzz/replay_TARGET INPUT
# To shrink it:           BUILD/tests/fuzz/fuzz_TARGET -minimize_crash=1 -runs=10000 INPUT
# To thin out a corpus:   BUILD/tests/fuzz/fuzz_TARGET -merge=1 NEW_FOLDER OLD_FOLDER...
#
# The build lies in build-fuzz/, or under the name that GANNET_BUILD gives with -fuzz behind it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${GANNET_BUILD:-$root/build}-fuzz
corpus=$root/tests/fuzz/corpus
ledger=$root/tests/fault/results.csv

# All executions of fuzz targets that were ever recorded.
sum_of_ledger() {
  awk -F, '$3 ~ /^fuzz / { split($4, words, " "); sum += words[1] }
           END { printf "fuzz: %.0f executions in the ledger\n", sum }' "$ledger"
}

record=yes
keep=
if [ "${1:-}" = --sum ]; then sum_of_ledger; exit; fi
if [ "${1:-}" = --hour ]; then
  keep=${GANNET_CACHE:-$HOME/.cache/gannet}/fuzz
  lanes=$(($(nproc) < 2 ? 1 : 2))
  set -- $((3600 * lanes / 5)) open repaired shape table calls
fi
if [ "${1:-}" = --unrecorded ]; then record=no; shift; fi
case ${1:-} in '' | *[!0-9]*) sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 2 ;; esac
seconds=$1
shift
targets=("$@")
if [ ${#targets[@]} = 0 ]; then targets=(open repaired shape table calls); fi

# --- Building -------------------------------------------------------------------------------------
# The newest clang whose libFuzzer and sanitizers link.
find_clang() {
  local name folder
  folder=$(mktemp -d)
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' \
    > "$folder/try.cpp"
  for name in "${FUZZ_CXX:-}" clang++ clang++-{19,18,17,16,15,14}; do
    if [ -n "$name" ] && command -v "$name" > /dev/null &&
      "$name" -fsanitize=fuzzer,address,undefined "$folder/try.cpp" -o "$folder/try" 2> /dev/null; then
      rm -r "$folder"
      echo "$name"
      return
    fi
  done
  rm -r "$folder"
  return 1
}

if ! cxx=$(find_clang); then
  echo "fuzz: no clang with libFuzzer here (Debian, Ubuntu: clang and libclang-rt-dev)"
  exit 77
fi
mkdir -p "$build"
start=$SECONDS
if ! { cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGANNET_TESTS=ON \
         -DGANNET_CUDA=off -DGANNET_SANITIZE=fuzz -DCMAKE_CXX_COMPILER="$cxx" \
         -DCMAKE_C_COMPILER="${cxx/++/}" && cmake --build "$build" --target fuzz_all; } \
       > "$build/build.log" 2>&1; then
  tail -n 40 "$build/build.log"
  exit 1
fi
echo "built with $cxx in $((SECONDS - start)) s"

# --- Running --------------------------------------------------------------------------------------
bin=$build/tests/fuzz
work=$build/found
mkdir -p "$work"
export UBSAN_OPTIONS=print_stacktrace=1
# Freed memory is kept for long enough to see its use, and taken from the system seldom.
export ASAN_OPTIONS=quarantine_size_mb=8:allocator_release_to_os_interval_ms=-1
limits=(-timeout=60 -rss_limit_mb=512 -max_len=65536 -print_funcs=0 -print_final_stats=1)
# What is not recorded is a check of a change: it takes the same way each time, as far as the clock lets
# it, so that what it finds is the change's.
if [ $record = no ]; then limits+=(-seed=1); fi

executions_in() { sed -n 's/^stat::number_of_executed_units: *//p' "$1" | tail -n 1; }

append() {
  if [ $record = no ]; then return; fi
  local commit
  commit=$(git -C "$root" rev-parse --short HEAD 2> /dev/null || echo unknown)
  [ -e "$ledger" ] || echo date,commit,test,amount,outcome > "$ledger"
  printf '%s,%s,%s,%s,%s\n' "$(date -u +%F)" "$commit" "$1" "$2" "$3" >> "$ledger"
}

# A planted defect must be found from nothing. 60 s are ten times what a slow machine needs.
run_canary() {
  local log=$work/canary.log status=0
  rm -rf "$work/canary"
  mkdir -p "$work/canary"
  start=$SECONDS
  "$bin/fuzz_canary" "${limits[@]}" -max_total_time=60 -artifact_prefix="$work/canary/finding-" \
    > "$log" 2>&1 || status=$?
  if [ $status = 0 ] || ! grep -q "ERROR: AddressSanitizer" "$log" ||
    ! grep -q "in .*look_at_last_repaired_edge" "$log"; then
    tail -n 40 "$log"
    echo "fuzz: the planted defect was not found, so nothing else would be"
    return 1
  fi
  echo "canary    found after $(executions_in "$log") executions, $((SECONDS - start)) s"
}

run_target() {
  local target=$1 status=0
  local log=$work/$target.log kept=${keep:-$work}/corpus-$target
  mkdir -p "$kept"
  if ! "$bin/replay_$target" "$corpus/$target" > "$log" 2>&1; then
    tail -n 40 "$log"
    echo "fuzz: $target fails on an input of the corpus"
    return 1
  fi
  "$bin/fuzz_$target" "${limits[@]}" -max_total_time="$seconds" \
    -artifact_prefix="$work/$target-" "$kept" "$corpus/$target" > "$log" 2>&1 || status=$?
  local executions
  executions=$(executions_in "$log")
  if [ $status != 0 ]; then
    append "fuzz $target" "${executions:-0} executions" "finding"
    grep -av '^#' "$log" | tail -n 60
    echo "fuzz: $target has a finding after ${executions:-?} executions"
    return 1
  fi
  append "fuzz $target" "$executions executions" "no finding"
  printf '%-9s %s executions, %s s, no finding\n' "$target" "$executions" "$seconds"
  if [ -n "$keep" ]; then
    # What others cover is left out.
    rm -rf "$kept.thin"
    mkdir "$kept.thin"
    "$bin/fuzz_$target" -merge=1 "$kept.thin" "$corpus/$target" "$kept" > "$work/$target-merge.log" 2>&1
    rm -r "$kept"
    mv "$kept.thin" "$kept"
  fi
}

run_canary
failed=no
running=0
for target in "${targets[@]}"; do
  run_target "$target" &
  running=$((running + 1))
  if [ $running -ge "$(nproc)" ] || [ $running -ge 2 ]; then
    wait -n || failed=yes
    running=$((running - 1))
  fi
done
while [ $running -gt 0 ]; do
  wait -n || failed=yes
  running=$((running - 1))
done
if [ $record = yes ]; then sum_of_ledger; fi
if [ $failed = yes ]; then exit 1; fi
