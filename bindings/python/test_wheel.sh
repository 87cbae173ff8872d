#!/usr/bin/env bash
# Installs a wheel into a fresh environment of each Python that is named, and runs the package's tests there.
#
#   bindings/python/test_wheel.sh WHEEL [PYTHON...]      default: python3
#
# Each Python says how long the way from the wheel to a first answer takes. Tests that need what that Python
# cannot be given (packages without a wheel for it, a device) skip themselves.
set -euo pipefail
case ${1:-} in "" | -h | --help) sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 2 ;; esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wheel=$(realpath "$1")
shift
pythons=("$@")
if [ ${#pythons[@]} = 0 ]; then pythons=(python3); fi

failed=
for python in "${pythons[@]}"; do
  scratch=$(mktemp -d)
  echo "--- $("$python" --version), $python"
  begun=$SECONDS
  "$python" -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
  (cd "$scratch" && venv/bin/python -c '
import gannet, numpy
rows = numpy.random.default_rng(1).normal(size=(10_000, 32)).astype(numpy.float32)
index = gannet.build(rows)
ids, distances = index.search(rows[7], k=3)
print("first answer:", ids, distances, "with NumPy", numpy.__version__)')
  echo "after $((SECONDS - begun)) s"
  "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: pytest ml_dtypes
  for package in scikit-learn 'langchain-core<1.8' 'llama-index-core>=0.14.25,<0.15'; do
    "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$package" \
      2> /dev/null || echo "without $package"
  done
  (cd "$scratch" && PYTHONDONTWRITEBYTECODE=1 venv/bin/python -m pytest -q -p no:cacheprovider "$here/tests") ||
    failed="$failed $python"
  rm -rf "$scratch"
done
if [ -n "$failed" ]; then
  echo "failed:$failed"
  exit 1
fi
