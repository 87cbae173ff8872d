#!/usr/bin/env bash
# Builds the library with CUDA for the device of this machine, and runs everything that needs one:
# tests, the same under compute-sanitizer where it is installed, and times.
#
#   tests/gpu.sh [all | test | promise | sanitize | time]
#
# BUILD names the build folder (build-gpu), ARCH the architecture (that of the first device, else
# 90; 80-virtual: the oldest PTX alone, which the driver compiles, so that no path for newer devices
# hides), TOOL_SECONDS the limit of one sanitizer run (300), DATA a .u8bin file that times of builds are
# taken on instead of made rows and DATA_ROWS how many of its rows, ROWS and QUERIES .u8bin files to time
# searches by the graph on (examples/data/) and DEGREE the edges of their graph (32), PROMISE_ROWS the rows of the
# made sets on which recall is looked at (1,000,000). Needs nvcc 13 and a CMake that knows it, and for the last what
# gannet-bench needs; tests/setup.sh installs all.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-all}
case $what in
  all | test | promise | sanitize | time) ;;
  *) echo "usage: tests/gpu.sh [all | test | promise | sanitize | time]" >&2; exit 2 ;;
esac

export PATH="${GANNET_CACHE:-$HOME/.cache/gannet}/bin:$PATH"
build=${BUILD:-build-gpu}
arch=${ARCH:-}
if [ -z "$arch" ] && command -v nvidia-smi > /dev/null; then
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null \
    | head -n 1 | tr -cd 0-9 || true)
fi
arch=${arch:-90}

# Tests of the C interface that ask nothing of the CPU alone, run with the device as the default one.
contract=(build cagra cagra_graph ggnn context dlopen exact files forecast graph hard_data host index knn_graph knn_merge layout memory memory_property
  monitor operator_new promise sameness search sizes struct_size threads tsdg version workers)

# The promise of recall is looked at by a program beside gannet-bench.
promise=OFF
promise_targets=()
if [ "$what" = all ] || [ "$what" = promise ]; then promise=ON promise_targets=(promise_check fault_cancel); fi

echo "--- build (sm_$arch)"
generator=()
if command -v ninja > /dev/null; then generator=(-G Ninja); fi
cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DGANNET_CUDA=on \
  -DGANNET_CUDA_ARCHITECTURES="$arch" -DGANNET_GPU_TESTS=ON -DGANNET_TESTS="$promise" > "$build.log" 2>&1 \
  || { cat "$build.log"; exit 1; }
cmake --build "$build" --parallel --target exact_cuda_test device_lost_test phases_test \
  build_cuda_test walk_cuda_test walk_cuda_time device_pointers_test cagra_cuda_test ggnn_cuda_test ggnn_build_cuda_test tsdg_cuda_test diversify_cuda_test admission_cuda_test cagra_figures tsdg_figures ggnn_figures ggnn_sets \
  device_memory_fault_test seam_test process_test product_cuda_test gnnd_figures merge_figures graph_steps cells_time "${contract[@]/#/capi_}" ${promise_targets[@]+"${promise_targets[@]}"} >> "$build.log" 2>&1 \
  || { cat "$build.log"; exit 1; }
rm -f "$build.log"

failed=()
# run NAME COMMAND...: 77 means that there is no device, and the rest is of no use.
run() {
  local name=$1 status=0
  shift
  echo "--- $name"
  "$@" || status=$?
  if [ $status = 77 ]; then exit 77; fi
  if [ $status != 0 ]; then failed+=("$name ($status)"); fi
}

if [ "$what" = all ] || [ "$what" = test ]; then
  run "exact search" "$build/gpu/exact_cuda_test"
  run "phases of a build" "$build/gpu/phases_test"
  run "builds" "$build/gpu/build_cuda_test"
  run "search by the graph" "$build/gpu/walk_cuda_test"
  run "CAGRA's searches" "$build/gpu/cagra_cuda_test"
  run "GGNN's search" "$build/gpu/ggnn_cuda_test"
  run "GGNN's builds" "$build/gpu/ggnn_build_cuda_test"
  run "TSDG's searches" "$build/gpu/tsdg_cuda_test"
  run "TSDG's graph" "$build/gpu/diversify_cuda_test"
  run "inner product" "$build/gpu/product_cuda_test"
  run "rows that are left out" "$build/gpu/admission_cuda_test"
  run "memory of the device" "$build/gpu/device_pointers_test"
  run "device memory that is refused" "$build/gpu/device_memory_fault_test"
  run "calls at once, and calls that stop" "$build/gpu/seam_test"
  run "fork and exit" "$build/gpu/process_test"
  run "device lost" "$build/gpu/device_lost_test"
  for test in "${contract[@]}"; do
    arguments=()
    if [ "$test" = dlopen ]; then arguments=("$build/libgannet.so"); fi
    run "contract: $test" env GANNET_BACKEND=cuda "$build/tests/capi/capi_$test" "${arguments[@]}"
  done
fi
if [ $promise = ON ]; then
  run "questions to the monitor" env GANNET_BACKEND=cuda "$build/tests/fault/fault_cancel"
  run "recall as promised" "$build/tests/recall/promise_check" --device cuda --rows "${PROMISE_ROWS:-1000000}" \
    --queries 10000 --batches 1,100,1000,10000
  run "recall of few rows as promised" "$build/tests/recall/promise_check" --device cuda --rows 2500 --queries 4000
  run "recall of few rounded rows" "$build/tests/recall/promise_check" --device cuda --rows 2500 --queries 4000 \
    --elements f16,bf16,i8
fi
if [ "$what" = all ] || [ "$what" = time ]; then
  run "times of exact search" "$build/gpu/exact_cuda_test" time
  run "times of phases" "$build/gpu/phases_test" time ${DATA:+"$DATA"} ${DATA_ROWS:+"$DATA_ROWS"}
  run "times of cells" "$build/gpu/cells_time" "${DATA:-made:128:30:u8}" "${DATA_ROWS:-1000000}" \
    graph lists stages k=96 graph
  if [ -n "${DATA:-}" ]; then
    run "figures of GNND" "$build/gpu/gnnd_figures" "$DATA" ${DATA_ROWS:+"$DATA_ROWS"}
    run "figures of GGM" "$build/gpu/merge_figures" "$DATA" "${DATA_ROWS:-1000000}" 0.5 2 search
    run "figures of GGNN" "$build/gpu/ggnn_figures" "$DATA" "${QUERIES:-examples/data/sift_queries.u8bin}"
    run "figures of GGNN over sets" "$build/gpu/ggnn_sets" "$DATA" "${QUERIES:-examples/data/sift_queries.u8bin}" \
      sizes=100000,300000,1000000,3000000,10000000 starts=100000 parts=10
    run "CAGRA's graph step by step" "$build/gpu/graph_steps" "$DATA" ${DATA_ROWS:+"$DATA_ROWS"}
  fi
  run "times of builds" "$build/gpu/build_cuda_test" time ${DATA:+"$DATA"} ${DATA_ROWS:+"$DATA_ROWS"}
  run "rates of threads, and of stopping" "$build/gpu/seam_test" time ${DATA:+"$DATA"}
  run "times of searches by the graph" "$build/gpu/walk_cuda_time" \
    "${ROWS:-examples/data/sift_10k.u8bin}" "${QUERIES:-examples/data/sift_queries.u8bin}" "degree=${DEGREE:-32}"
  run "figures of CAGRA's searches" "$build/gpu/cagra_figures" \
    "${ROWS:-examples/data/sift_10k.u8bin}" "${QUERIES:-examples/data/sift_queries.u8bin}"
  run "figures of TSDG" "$build/gpu/tsdg_figures" \
    "${ROWS:-examples/data/sift_10k.u8bin}" "${QUERIES:-examples/data/sift_queries.u8bin}"
fi
if [ "$what" = all ] || [ "$what" = sanitize ]; then
  if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck initcheck synccheck; do
      for claim in "also of queries" "by blocks is one launch"; do
        if [ "$tool $claim" = "racecheck also of queries" ]; then continue; fi
        run "$tool of device_pointers_test" timeout "${TOOL_SECONDS:-300}" \
          compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 10 \
          "$build/gpu/device_pointers_test" "$claim"
      done
    done
    for test in phases_test exact_cuda_test walk_cuda_test cagra_cuda_test ggnn_cuda_test ggnn_build_cuda_test tsdg_cuda_test diversify_cuda_test product_cuda_test admission_cuda_test; do
      for tool in memcheck racecheck initcheck synccheck; do
        cases=quick
        if [ $tool = racecheck ]; then cases=race; fi
        run "$tool of $test" timeout "${TOOL_SECONDS:-300}" \
          compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 10 \
          "$build/gpu/$test" $cases
      done
    done
    run "memcheck of build_cuda_test" timeout "${TOOL_SECONDS:-300}" \
      compute-sanitizer --tool memcheck --leak-check full --error-exitcode 9 --print-limit 10 \
      "$build/gpu/build_cuda_test" quick
  else
    echo "--- compute-sanitizer is not installed: its runs are left out"
  fi
fi

if [ ${#failed[@]} != 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all passed"
