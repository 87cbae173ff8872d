#!/bin/sh
# Proves that an installed library can be used: installs a build folder to a scratch prefix, moves
# the tree, and builds a program against it through pkg-config and through CMake's find_package.
#
#   sh tests/install/install_test.sh BUILD
set -eu

build=$(cd "${1:?usage: install_test.sh build-folder}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
checks=0
failed=0

check() { # what, command...
  what=$1
  shift
  checks=$((checks + 1))
  if ! "$@" > "$scratch/log" 2>&1; then
    failed=$((failed + 1))
    echo "$what" >&2
    sed 's/^/    /' "$scratch/log" >&2
  fi
}

check "cmake --install fails" cmake --install "$build" --prefix "$scratch/first"
# Nothing in the tree may remember where it was.
mv "$scratch/first" "$scratch/moved place"
prefix="$scratch/moved place"
library=$(find "$prefix" -name libgannet.so | head -n 1)
libdir=$(dirname "$library")

check "no libgannet.so" test -e "$library"
check "no ann.h" test -f "$prefix/include/ann.h"
check "no licence" sh -c 'find "$1" -name LICENSE | grep -q .' sh "$prefix"
check "libgannet.so has no soname link beside it" sh -c 'ls "$1"/libgannet.so.[0-9]* >/dev/null' sh "$libdir"
# The installed files name neither the source folder nor the build folder.
source_dir=$(cd "$here/../.." && pwd)
check "an installed file names the source or build folder" sh -c \
  '! grep -rlF -e "$2" -e "$3" -e "$4" "$1"' sh "$prefix" "$source_dir/" "$build" "$scratch/first"

# The command-line tool, where it is built, finds the library from its own place.
if [ -e "$prefix/bin/gannet" ]; then
  check "the installed tool does not run" "$prefix/bin/gannet" --version
fi

version=$(sed -n 's/^#define ANN_VERSION_[A-Z]* //p' "$prefix/include/ann.h" | paste -sd. -)

if command -v pkg-config > /dev/null; then
  PKG_CONFIG_PATH="$libdir/pkgconfig"
  export PKG_CONFIG_PATH
  check "pkg-config does not know gannet" pkg-config --exists gannet
  check "pkg-config's version is not $version" test "$(pkg-config --modversion gannet)" = "$version"
  # pkg-config escapes the blank in the path, so the shell has to read its answer.
  check "a program does not build by pkg-config" sh -c \
    'eval "cc -std=c11 -Wall -Werror \"$1\" -o \"$2\" $(pkg-config --cflags --libs gannet)"' \
    sh "$here/consumer.c" "$scratch/by_pkg"
  check "the program built by pkg-config fails" env LD_LIBRARY_PATH="$libdir" "$scratch/by_pkg"
else
  echo "(no pkg-config here)"
fi

mkdir "$scratch/project"
cp "$here/consumer.c" "$scratch/project/"
cat > "$scratch/project/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C)
find_package(gannet ${WANTED} CONFIG REQUIRED)
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE gannet::gannet)
END
check "find_package does not find gannet $version" cmake -S "$scratch/project" -B "$scratch/out" \
  -DCMAKE_PREFIX_PATH="$prefix" -DWANTED="$version"
check "a program does not build by find_package" cmake --build "$scratch/out"
check "the program built by find_package fails" "$scratch/out/consumer"
check "find_package accepts version 99" sh -c \
  '! cmake -S "$1" -B "$2" -DCMAKE_PREFIX_PATH="$3" -DWANTED=99' sh "$scratch/project" \
  "$scratch/out99" "$prefix"

echo "install_test: $checks checks, $failed failed"
test "$failed" -eq 0
