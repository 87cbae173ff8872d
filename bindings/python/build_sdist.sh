#!/usr/bin/env bash
# Makes the source distribution of the package gannet-ann, from which pip builds where no wheel fits: the sources
# of library and package, and nothing of tests, tools and examples.
#
#   bindings/python/build_sdist.sh [--out FOLDER]        default: build-sdist/
#
# In the tree the project of the package lies two folders below the sources that it compiles; in the archive both
# have one root. What it needs beside the tools of tests/setup.sh is installed into ~/.cache/gannet (GANNET_CACHE).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/build-sdist
case ${1:-} in
  '') ;;
  --out) out=$2 ;;
  -h | --help) sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  *) echo "build_sdist.sh: unknown option $1" >&2; exit 2 ;;
esac
mkdir -p "$out"
out=$(cd "$out" && pwd)

environment=${GANNET_CACHE:-$HOME/.cache/gannet}/wheel-environment
if ! cmp -s "$here/requirements-wheel.txt" "$environment/requirements.txt"; then
  rm -rf "$environment"
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-wheel.txt"
  cp "$here/requirements-wheel.txt" "$environment/requirements.txt"
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cd "$root"
git ls-files -z CMakeLists.txt LICENSE CHANGELOG.md core capi packaging bindings/python ':!bindings/python/tests' |
  tar -c --null -T - | tar -x -C "$stage"
mv "$stage/bindings/python/pyproject.toml" "$stage/bindings/python/README.md" "$stage"
rm "$stage/bindings/python/LICENSE"
sed -i -e 's|^cmake.source-dir = .*|cmake.source-dir = "."|' \
  -e 's|^wheel.packages = .*|wheel.packages = ["bindings/python/src/gannet"]|' \
  -e 's|^input = .*|input = "capi/include/ann.h"|' "$stage/pyproject.toml"
grep -q '^cmake.source-dir = "."' "$stage/pyproject.toml"
grep -q '^wheel.packages = \["bindings' "$stage/pyproject.toml"
grep -q '^input = "capi' "$stage/pyproject.toml"
cd "$stage"
name=$("$environment/bin/python" -c 'import sys, scikit_build_core.build as build; print(build.build_sdist(sys.argv[1]))' \
  "$out" | tail -n 1)  # the builder says who it is, too
echo "$out/$name: $(du --apparent-size --block-size=1K "$out/$name" | cut -f 1) KiB"
