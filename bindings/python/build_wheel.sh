#!/usr/bin/env bash
# Makes the wheel of the package gannet-ann for this machine's platform: the extension module, and the library
# with its CPU and CUDA code. One wheel serves Python 3.10 and everything later.
#
#   bindings/python/build_wheel.sh [--cuda auto|on|off] [--architectures LIST] [--glibc 2.17|native]
#                                  [--out FOLDER]
#
#   --cuda           GPU code; auto (default): if there is a CUDA compiler
#   --architectures  compute capabilities, as GANNET_CUDA_ARCHITECTURES, whose default is that of this too
#   --glibc          the oldest C library that the wheel is to run with (default: 2.17). For it the linker of
#                    zig is used, from a Python package. "native": this machine's linker and C library.
#   --out            where the wheel goes; default: build-wheel/
#
# The tag of the platform is the one that auditwheel finds to be true, whatever was asked for. What it needs
# beside the tools of tests/setup.sh is installed into ~/.cache/gannet (or GANNET_CACHE).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

cuda=auto architectures= glibc=2.17 out=$root/build-wheel
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    --cuda) cuda=$2; shift 2 ;;
    --architectures) architectures=$2; shift 2 ;;
    --glibc) glibc=$2; shift 2 ;;
    --out) mkdir -p "$2"; out=$(cd "$2" && pwd); shift 2 ;;
    *) echo "build_wheel.sh: unknown option $1" >&2; exit 2 ;;
  esac
done

cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH"
"$root/tests/setup.sh" quickstart
environment=$cache/wheel-environment
if ! cmp -s "$here/requirements-wheel.txt" "$environment/requirements.txt"; then
  rm -rf "$environment"
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-wheel.txt"
  cp "$here/requirements-wheel.txt" "$environment/requirements.txt"
fi

# The library brings its own libstdc++, so that nothing but the C library has to be there.
settings=(-DGANNET_CUDA="$cuda" -DGANNET_CUDA_ARCHITECTURES="$architectures")
if [ "$glibc" = native ]; then
  settings+=(-DCMAKE_SHARED_LINKER_FLAGS="-static-libstdc++ -static-libgcc -s" -DCMAKE_MODULE_LINKER_FLAGS=-s)
else
  GANNET_ZIG=$("$environment/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/zig
  GANNET_LINK_TARGET=$(uname -m)-linux-gnu.$glibc
  export GANNET_ZIG GANNET_LINK_TARGET
  settings+=(-DCMAKE_C_LINKER_LAUNCHER="$here/link_for.sh" -DCMAKE_CXX_LINKER_LAUNCHER="$here/link_for.sh")
fi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
build=$root/build-wheel-$glibc
# CMake names no folder of LIBRARY_PATH to the linker, since a compiler's own looks there; that of zig does not.
CMAKE_GENERATOR=Ninja CMAKE_ARGS="${settings[*]@Q}" env -u LIBRARY_PATH \
  "$environment/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --config-settings=build-dir="$build" --wheel-dir "$made" "$here"

mkdir -p "$out"
"$environment/bin/auditwheel" show "$made"/*.whl
PATH="$environment/bin:$PATH" auditwheel repair --wheel-dir "$made/repaired" "$made"/*.whl > "$made/log" 2>&1 || {
  cat "$made/log"
  exit 1
}
mv "$made"/repaired/*.whl "$out"
for wheel in "$out"/*.whl; do
  echo "$wheel: $(du --apparent-size --block-size=1K "$wheel" | cut -f 1) KiB"
done
