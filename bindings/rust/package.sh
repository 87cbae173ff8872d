#!/usr/bin/env bash
# Proves that the crates work from their own archives, and that each way of finding the library does.
#
#   bindings/rust/package.sh BUILD      BUILD: a folder with libgannet.so and libgannet.a
#
# The archives are unpacked outside of the source tree, where their tests are run; then with the oldest
# and newest versions of ndarray, with the static library, and with the library built from the sources that
# gannet-sys brings (feature "vendored").
set -euo pipefail

case ${1:-} in
  "" | -*) echo "usage: bindings/rust/package.sh BUILD" >&2; exit 2 ;;
esac
build=$(cd "$1" && pwd)
cd "$(dirname "$0")"

crates=(gannet-sys gannet gannet-fsck)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
export CARGO_TARGET_DIR=$PWD/target  # where the tests in the tree have compiled the same dependencies
archives=$CARGO_TARGET_DIR/package

fail() {
  echo "package.sh: $*" >&2
  exit 1
}

# --- The archives ---------------------------------------------------------------------------------
rm -rf "$archives"
cargo package --quiet --no-verify --allow-dirty "${crates[@]/#/--package=}"
for crate in "${crates[@]}"; do
  tar -xzf "$archives/$crate-$version.crate" -C "$here"
  cmp -s ../../LICENSE "$here/$crate-$version/LICENSE" || fail "$crate has no LICENSE"
  [ -e "$here/$crate-$version/README.md" ] || fail "$crate has no README.md"
done

# One workspace, in which the crates find each other as they would in a registry.
{
  printf '[workspace]\nresolver = "2"\nmembers = ['
  printf '"%s", ' "${crates[@]/%/-$version}"
  printf ']\n\n[patch.crates-io]\n'
  for crate in "${crates[@]}"; do printf '%s = { path = "%s" }\n' "$crate" "$crate-$version"; done
  sed -n '/^\[profile/,$p' Cargo.toml
} > "$here/Cargo.toml"
cp Cargo.lock "$here"
cd "$here"

tested() {
  local what=$1
  shift
  cargo test --quiet "$@" > "$here/log" 2>&1 || { cat "$here/log"; fail "$what: the tests fail"; }
  echo "package.sh: $what: $(grep -c '^test result: ok' "$here/log") test programs passed"
}

export GANNET_DIR=$build
tested "from the archives" --workspace --features gannet/ndarray,gannet/half,gannet/serde
for ndarray in 0.15.6 0.16.1 0.17.2; do
  cargo update --quiet --package ndarray --precise $ndarray
  tested "ndarray $ndarray" --package gannet --features ndarray --test ndarray
done

# --- Where the library lies -----------------------------------------------------------------------
# refused WORDS: the build of gannet-sys with $GANNET_DIR fails and says so.
refused() {
  if touch gannet-sys-*/build.rs && cargo build --quiet --package gannet-sys > "$here/log" 2>&1; then
    fail "a library that is $1 is taken"
  fi
  grep -q -- "$1" "$here/log" || { cat "$here/log"; fail "the refusal does not say \"$1\""; }
  echo "package.sh: refused: $1"
}

machine=$(cc -dumpmachine)
mkdir -p debian/lib/"$machine" older other
cp -P "$build"/libgannet.so* "debian/lib/$machine"
GANNET_DIR=$here/debian tested "Debian's lib/$machine" --package gannet-sys
sed 's/ann_index_ids/ann_index_old/g' "$(readlink -f "$build/libgannet.so")" > older/libgannet.so
GANNET_DIR=$here/older refused "lacks ann_index_ids"
cp "$(readlink -f "$build/libgannet.so")" other/libgannet.so.99.0.0
ln -s libgannet.so.99.0.0 other/libgannet.so
GANNET_DIR=$here/other refused "is of version 99.0.0"
GANNET_DIR=$here/nowhere refused "neither it nor its lib"

GANNET_DIR=$build tested "static" --package gannet --features static --test search --test cuda
# Whether the sources that the crate brings make a library is asked here, not how fast it is: with -O3 they compile
# for twice as long.
launcher=$here/compile
printf '#!/bin/sh\nexec %s "$@" -O1\n' "${CMAKE_CXX_COMPILER_LAUNCHER:-}" > "$launcher"
chmod +x "$launcher"
GANNET_DIR='' PKG_CONFIG=false CMAKE_CXX_COMPILER_LAUNCHER=$launcher \
  tested "vendored" --package gannet --features vendored --test search
for program in $(ls -t "$CARGO_TARGET_DIR"/debug/deps/search-* | grep -v '\.d$' | head -n 1); do
  if readelf -d "$program" | grep -q 'libgannet'; then fail "vendored: $program needs libgannet.so"; fi
done
