#!/usr/bin/env bash
# Compiles the library for 64-bit ARM with the cross compiler of Debian and Ubuntu, and runs there, by QEMU,
# the tests that compare instruction sets: NEON's kernels with the portable ones, files of earlier versions,
# and graphs and answers of all elements and metrics with those of this machine, bit for bit.
#
#   tests/arm64/arm64_test.sh BUILD      the build folder of this machine; BUILD-arm64 is made
#
# Status 77 where compiler or QEMU are missing (g++-aarch64-linux-gnu, qemu-user).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$(cd "${1:?usage: arm64_test.sh BUILD}" && pwd)
for command in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $command > /dev/null || { echo "arm64_test: left out: no $command here"; exit 77; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
quietly() { "$@" > "$scratch/log" 2>&1 || { tail -n 40 "$scratch/log"; exit 1; }; }
on_arm() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"; }

arm=$build-arm64
quietly cmake -S "$source" -B "$arm" -DCMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" -DGANNET_CUDA=off \
  -DGANNET_TESTS=ON -DGANNET_TOOL=off -DGANNET_WERROR=ON
quietly cmake --build "$arm" --parallel "$(nproc)" \
  --target gannet differential_distance_levels_test capi_levels capi_version golden_files
quietly cmake --build "$build" --parallel "$(nproc)" --target capi_levels

quietly on_arm "$arm/tests/differential/differential_distance_levels_test"
quietly on_arm "$arm/tests/capi/capi_version"
quietly on_arm "$arm/tests/golden/golden_files" "$source/tests/golden/files"
# Its first line names the level, the others have sums of graphs and answers.
"$build/tests/capi/capi_levels" child | tail -n +2 > "$scratch/here"
test -s "$scratch/here"
for level in portable neon; do
  GANNET_SIMD=$level on_arm "$arm/tests/capi/capi_levels" child > "$scratch/$level"
  head -n 1 "$scratch/$level" | grep -qw "$level"
  tail -n +2 "$scratch/$level" | diff - "$scratch/here"
done
echo "arm64_test: $(wc -l < "$scratch/here") sums of graphs and answers on 64-bit ARM equal this machine's"
