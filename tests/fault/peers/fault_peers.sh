#!/usr/bin/env bash
# The faults of tests/fault against released packages of other libraries, and Gannet beside them: one
# command, some ten minutes.
#
#   tests/fault/peers/fault_peers.sh [OPTION...]     options of fault_peers.py, such as --scale 10
#
# Writes tests/fault/peers/results.csv and prints the table. Installs the packages into ~/.cache/gannet;
# what cannot be installed is said to be so. GANNET_BUILD names the build (default: build/).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
case ${1:-} in -h | --help) sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac

"$root/tests/setup.sh" bench
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH"
build=${GANNET_BUILD:-$root/build}
if [ ! -f "$build/CMakeCache.txt" ]; then
  cmake -S "$root" -B "$build" -G Ninja -DGANNET_WERROR=OFF > /dev/null
fi
cmake -S "$root" -B "$build" -DGANNET_PYTHON=on > /dev/null
cmake --build "$build" --target gannet_python > /dev/null
PYTHONPATH=$build/python "$cache/bench-environment/bin/python" "$root/tests/fault/peers/fault_peers.py" \
  --out "$root/tests/fault/peers/results.csv" \
  --commit "$(git -C "$root" describe --always 2> /dev/null || echo unknown)" "$@"
