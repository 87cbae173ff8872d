#!/usr/bin/env bash
# The ten tasks of tests/install/tasks/README.md, done in each language with an installed library.
#
#   tests/install/tasks_test.sh BUILD      languages whose compiler is missing here are left out
set -euo pipefail
build=$(cd "${1:?usage: tasks_test.sh build-folder}" && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH" GOTOOLCHAIN=local GOFLAGS=-mod=mod
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
finished=()
TIMEFORMAT='%U %S'
# does LANGUAGE COMMAND...: the command's last line says that all ten are done; prints the processor time it took
does() {
  local language=$1 status=0
  shift
  { time "$@" > "$scratch/log" 2>&1; } 2> "$scratch/time" || status=$?
  if [ $status != 0 ] || [ "$(tail -n 1 "$scratch/log")" != "tasks: $language: 10" ]; then
    tail -n 20 "$scratch/log"
    echo "tasks_test: $language fails"
    exit 1
  fi
  awk -v language="$language" '{ printf "tasks_test: %s: %.1f s of processor time\n", language, $1 + $2 }' \
    "$scratch/time"
  finished+=("$language")
}

cmake --install "$build" --prefix "$scratch/place" > /dev/null
cp "$source"/tests/install/tasks/tasks.* "$scratch/"
cd "$scratch"
PKG_CONFIG_PATH=$(dirname "$(find "$scratch/place" -name gannet.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$scratch/place" -name libgannet.so)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH

does C bash -c 'cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror tasks.c $(pkg-config --cflags --libs gannet) \
  -lpthread -o tasks && ./tasks'
if [ -x "$scratch/place/bin/gannet" ]; then
  does "command line" env PATH="$scratch/place/bin:$PATH" bash tasks.sh "$source/examples/data"
fi
if [ -x "$cache/python-environment/bin/python" ] && [ -d "$build/python" ]; then
  does Python env PYTHONPATH="$build/python" "$cache/python-environment/bin/python" tasks.py
fi
if command -v cargo > /dev/null; then
  mkdir -p rust/src
  cp tasks.rs rust/src/main.rs
  printf '[package]\nname = "tasks"\nversion = "0.0.0"\nedition = "2021"\n' > rust/Cargo.toml
  printf '[dependencies]\ngannet = { path = "%s" }\n' "$source/bindings/rust/gannet" >> rust/Cargo.toml
  does Rust cargo run --quiet --release --manifest-path rust/Cargo.toml
fi
if command -v go > /dev/null; then
  module=$(sed -n 's/^module //p' "$source/bindings/go/go.mod")
  mkdir go
  cp tasks.go go/
  printf 'module tasks\n\ngo 1.24\n\nrequire %s v0.1.0\n\nreplace %s => %s\n' "$module" "$module" \
    "$source/bindings/go" > go/go.mod
  # Go's cache keeps what pkg-config said of a package, and the place of an earlier run is gone; this flag tells runs
  # apart.
  does Go env CGO_LDFLAGS="-L$LD_LIBRARY_PATH" go run -C go .
fi
echo "tasks_test: ten tasks each: ${finished[*]}"
