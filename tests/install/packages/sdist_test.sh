#!/usr/bin/env bash
# Proves that the package for Python can be built from its source distribution alone: outside of the tree, without
# GPU code; and that what is built finds neighbours.
#
#   tests/install/packages/sdist_test.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$root/bindings/python/build_sdist.sh" --out "$scratch"
archive=$(echo "$scratch"/gannet_ann-*.tar.gz)
tar -tzf "$archive" > "$scratch/list"
for wanted in PKG-INFO pyproject.toml LICENSE CMakeLists.txt core/index/build.cpp capi/include/ann.h \
  bindings/python/src/gannet/__init__.py; do
  grep -q "^gannet_ann-[0-9.]*/$wanted\$" "$scratch/list" || { echo "sdist_test: $wanted is missing" >&2; exit 1; }
done
if grep -E '/(tests|examples|build[^/]*)/' "$scratch/list"; then
  echo "sdist_test: the archive holds what it is not to hold" >&2
  exit 1
fi
mkdir "$scratch/source"
tar -xzf "$archive" -C "$scratch/source" --strip-components 1
cd "$scratch"
CMAKE_GENERATOR=Ninja CMAKE_ARGS=-DGANNET_CUDA=off "$cache/wheel-environment/bin/pip" wheel --quiet \
  --disable-pip-version-check --no-deps --no-build-isolation --config-settings=build-dir="$scratch/source/build" \
  --wheel-dir "$scratch" "$scratch/source"
mkdir "$scratch/site"
python3 -m zipfile -e "$scratch"/gannet_ann-*.whl "$scratch/site"
PYTHONPATH="$scratch/site" GANNET_BACKEND=cpu "$cache/python-environment/bin/python" - << 'END'
import gannet
import numpy as np

rows = np.random.default_rng(1).standard_normal((2000, 16), np.float32)
assert (gannet.build(rows).search(rows[:50], k=1).ids[:, 0] == np.arange(50)).all()
print("sdist_test:", gannet.build_info())
END
