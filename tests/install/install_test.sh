#!/bin/sh
# Proves that an installed library can be used: installs a build folder to a scratch prefix, moves
# the tree, and builds a program against it through pkg-config and through CMake's find_package, with the
# shared object and with the archive; and that each component holds what it is for.
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

# The command-line tools, where they are built, find the library from their own place.
if [ -e "$build/examples/gannet" ]; then
  check "the installed tool does not run" "$prefix/bin/gannet" --version
  check "the installed gannet-bench does not run" "$prefix/bin/gannet-bench" --help
  for file in man/man1/gannet.1 man/man1/gannet-bench.1 bash-completion/completions/gannet \
    zsh/site-functions/_gannet fish/vendor_completions.d/gannet.fish; do
    check "no $file" test -s "$prefix/share/$file"
  done
fi

# Components: programs need the first alone, compilers the first two.
for component in runtime development tools; do
  check "component $component is not installed" cmake --install "$build" --component $component \
    --prefix "$scratch/$component"
done
files() { (cd "$scratch/$1" 2> /dev/null && find . ! -type d | sed 's#.*/##' | LC_ALL=C sort | tr '\n' ' '); }
check "component runtime is $(files runtime)" test "$(files runtime)" = \
  "CHANGELOG.md LICENSE gannet.cdx.json $(basename "$(readlink "$library")") \
$(basename "$(readlink -f "$library")") "
case " $(files development)" in *" ann.h "*" gannet.pc "*" libgannet.so "*) is=yes ;; *) is=no ;; esac
check "component development is $(files development)" test $is = yes

# The list of parts names what was compiled in, in the versions that were.
cat > "$scratch/parts.py" << 'END'
import json, re, sys
bom = json.load(open(sys.argv[1]))
cache = dict(re.findall(r"^(\w+):\w+=(.*)$", open(sys.argv[2]).read(), re.M))
header = open(cache["GANNET_XXHASH_INCLUDE"] + "/xxhash.h").read()
xxhash = ".".join(re.search(rf"XXH_VERSION_{part} +(\d+)", header).group(1)
                  for part in ("MAJOR", "MINOR", "RELEASE"))
parts = {part["name"]: part for part in bom["components"]}
assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
assert bom["metadata"]["component"]["version"] == sys.argv[3]
assert parts["xxHash"]["version"] == xxhash, parts
assert all(part["version"] and part["licenses"] for part in parts.values()), parts
assert ("cudart_static" in parts) == (sys.argv[4] == "cuda"), parts
assert sorted(bom["dependencies"][0]["dependsOn"]) == sorted(parts)
END
cuda=$(nm -C "$library" 2> /dev/null | grep -q -i cudart && echo cuda || echo cpu)

version=$(sed -n 's/^#define ANN_VERSION_[A-Z]* //p' "$prefix/include/ann.h" | paste -sd. -)
if command -v python3 > /dev/null; then
  check "gannet.cdx.json is wrong" python3 "$scratch/parts.py" \
    "$(find "$prefix" -name gannet.cdx.json)" "$build/CMakeCache.txt" "$version" "$cuda"
fi
# The archive alone, so that nothing else can be linked.
archive=$(find "$prefix" -name libgannet.a)
if [ -n "$archive" ]; then
  mkdir "$scratch/archive"
  cp "$archive" "$scratch/archive/"
fi

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
  if [ -n "$archive" ]; then
    check "a program does not build with the archive by pkg-config" sh -c \
      'eval "cc -std=c11 -Wall -Werror \"$1\" -o \"$2\" -L\"$3\" -I\"$4\" \
        $(pkg-config --static --libs-only-l --libs-only-other gannet)"' \
      sh "$here/consumer.c" "$scratch/by_pkg_static" "$scratch/archive" "$prefix/include"
    check "the program with the archive fails" "$scratch/by_pkg_static"
    check "the program with the archive needs the shared object" sh -c \
      '! readelf -d "$1" | grep -q libgannet' sh "$scratch/by_pkg_static"
  fi
else
  echo "(no pkg-config here)"
fi

mkdir "$scratch/project"
cp "$here/consumer.c" "$scratch/project/"
cat > "$scratch/project/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES ${LANGUAGES})
find_package(gannet ${WANTED} CONFIG REQUIRED COMPONENTS ${COMPONENTS})
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE ${TARGET})
END
consumer() { # FOLDER TARGET LANGUAGES COMPONENTS WANTED: configures somebody's project
  cmake -S "$scratch/project" -B "$scratch/$1" -DCMAKE_PREFIX_PATH="$prefix" -DTARGET="$2" \
    -DLANGUAGES="$3" -DCOMPONENTS="$4" -DWANTED="$5"
}
check "find_package does not find gannet $version" consumer out gannet::gannet C shared "$version"
check "a program does not build by find_package" cmake --build "$scratch/out"
check "the program built by find_package fails" "$scratch/out/consumer"
if [ -n "$archive" ]; then
  check "find_package does not find the archive" \
    consumer out_static gannet::gannet_static "C;CXX" static "$version"
  check "a program does not build with the archive by find_package" cmake --build "$scratch/out_static"
  check "the program with the archive by find_package fails" "$scratch/out_static/consumer"
  check "the program by find_package needs the shared object" sh -c \
    '! readelf -d "$1" | grep -q libgannet' sh "$scratch/out_static/consumer"
fi
refuses() { ! consumer "$@"; }
check "find_package accepts version 99" refuses out99 gannet::gannet C shared 99
check "find_package finds a component that is none" refuses out_odd gannet::gannet C odd "$version"
# Before 1.0 another minor version is another interface.
minor=${version#*.}
minor=${minor%%.*}
if [ "${version%%.*}" = 0 ] && [ "$minor" -gt 0 ]; then
  check "find_package takes another minor version for this one" \
    refuses out_older gannet::gannet C shared "0.$((minor - 1))"
fi

echo "install_test: $checks checks, $failed failed"
test "$failed" -eq 0
