#!/usr/bin/env bash
# From a bare machine to answers: installs what is missing, builds Gannet, and searches.
#
#   examples/quickstart.sh                                  on the data in examples/data
#   examples/quickstart.sh ROWS-FILE [QUERIES-FILE] [--metric l2|ip|cosine] [--recall 0.95]
#                          [--k 10] [--threads N]           on your own
#
# Files: .fbin .f16bin .i8bin .u8bin .fvecs .bvecs .npy
# The build lies in build/, or in the folder that GANNET_BUILD names.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Tools.
"$root/tests/setup.sh" quickstart
export PATH="${GANNET_CACHE:-$HOME/.cache/gannet}/bin:$PATH"

# Build.
build=${GANNET_BUILD:-$root/build}
mkdir -p "$build"
log=$build/quickstart.log
first_time=()
if [ ! -f "$build/CMakeCache.txt" ]; then
  # A newer compiler may warn of more than ours does; that is no reason to stop here.
  first_time=(-DGANNET_WERROR=OFF)
  if command -v ninja > /dev/null; then first_time+=(-G Ninja); fi
  # GPU code takes minutes to compile: for the GPU that is here, or not at all.
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null |
    head -n 1 | tr -cd 0-9 || true)
  if [ -n "$architecture" ]; then
    first_time+=(-DGANNET_CUDA_ARCHITECTURES="$architecture")
  else
    first_time+=(-DGANNET_CUDA=off)
  fi
fi

step() {
  local what=$1 start=$SECONDS
  shift
  printf '%s' "$what"
  if ! "$@" >> "$log" 2>&1; then
    printf '\n\n' >&2
    tail -n 30 "$log" >&2
    printf '\nquickstart: this failed: %s\n(all of its output: %s)\n' "$*" "$log" >&2
    exit 1
  fi
  printf ' (%d s)\n' $((SECONDS - start))
}

: > "$log"
printf '\n'
step "Configuring" cmake -S "$root" -B "$build" -DGANNET_EXAMPLES=ON \
  ${first_time[@]+"${first_time[@]}"}
step "Building" cmake --build "$build" --target quickstart --parallel "$(nproc)"
printf '\n'

# Run. Without a file of rows, that is with no argument or only options, on the data shipped here.
data=$root/examples/data
case ${1:-} in
  "" | -*)
    if [ "${1:-}" != --help ] && [ "${1:-}" != -h ]; then
      set -- "$data/sift_10k.u8bin" "$data/sift_queries.u8bin" "$@"
    fi
    ;;
esac
exec "$build/examples/quickstart" "$@"
