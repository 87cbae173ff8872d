#!/usr/bin/env bash
# Proves that builds are reproducible: two copies of the sources in two folders, built into two others, with
# another user name, time zone and umask, give installed files and packages that are equal byte for byte.
#
#   tests/install/packages/reproducible_test.sh [CMAKE-OPTION...]
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
export PATH="${GANNET_CACHE:-$HOME/.cache/gannet}/bin:$PATH"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Equal objects out of a cache would prove nothing.
export CCACHE_DISABLE=1 SOURCE_DATE_EPOCH=1700000000

first="$scratch/here" second="$scratch/in another/folder, deeper"
mkdir -p "$first" "$second"
(cd "$source" && tar -c --exclude=./build* --exclude=./.git --exclude=target --exclude=./tests/fuzz/corpus .) |
  tee >(tar -x -C "$first") | tar -x -C "$second"

# build NAME SOURCES OPTION...: built, installed to NAME-installed and packed
build() {
  local name=$1 copy=$2
  shift 2
  GANNET_BUILD=$scratch/$name-build "$copy/packaging/make_packages.sh" "$scratch/$name-packages" \
    -DGANNET_CUDA=off "$@" > "$scratch/$name.log" 2>&1 || { tail -n 40 "$scratch/$name.log"; exit 1; }
  cmake --install "$scratch/$name-build" --prefix "$scratch/$name-installed" > "$scratch/$name.log"
}
(umask 022; TZ=UTC USER=one build first "$first" "$@")
(umask 077; TZ=Asia/Tokyo USER=two LC_ALL=C build second "$second" "$@")

files=0
for kind in installed packages; do
  (cd "$scratch/first-$kind" && find . -type f | sort) > "$scratch/first.list"
  (cd "$scratch/second-$kind" && find . -type f | sort) > "$scratch/second.list"
  diff "$scratch/first.list" "$scratch/second.list"
  while IFS= read -r file; do
    cmp "$scratch/first-$kind/$file" "$scratch/second-$kind/$file"
    files=$((files + 1))
  done < "$scratch/first.list"
done
test "$files" -gt 10
echo "reproducible_test: $files files of two builds are equal"
