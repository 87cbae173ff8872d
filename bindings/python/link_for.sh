#!/usr/bin/env bash
# Links in place of the compiler that compiled, against an older C library than this machine's: CMake calls it
# as its linker launcher, with the compiler's command line.
#
#   GANNET_LINK_TARGET=x86_64-linux-gnu.2.17 GANNET_ZIG=.../zig link_for.sh g++ -shared ... -o libgannet.so
#
# Which version of a function a binary asks the C library for is decided when it is linked. zig carries the
# lists of functions of all versions, so what it links for 2.17 loads wherever that or a newer one is.
# GCC's own libstdc++ goes in statically, as it is the one whose headers were compiled in.
set -euo pipefail
compiler=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
arguments=()
for argument in "$@"; do
  case $argument in
    # Of the compiler, or not known to zig's linker, or said in another way below.
    -static-libstdc++ | -static-libgcc | -rdynamic | -fstack-* | -fcf-protection* | -U_FORTIFY_SOURCE | -D_FORTIFY_SOURCE=*) ;;
    -lstdc++) ;;
    # After an -Xlinker, where zig knows the option and its value as two arguments alone.
    --version-script=*) arguments+=(--version-script -Xlinker "${argument#*=}") ;;
    *) arguments+=("$argument") ;;
  esac
done
object=$(mktemp -d)/compat.o
trap 'rm -rf "$(dirname "$object")"' EXIT
"$compiler" -O2 -fPIC -x c -c "$here/core/older_libc.c" -o "$object"
# zig's driver for C does not bring a libstdc++ of its own.
"$GANNET_ZIG" cc -target "$GANNET_LINK_TARGET" "${arguments[@]}" "$object" \
  "$("$compiler" -print-file-name=libstdc++.a)" "$("$compiler" -print-libgcc-file-name)" -lgcc_s -lm -lpthread -ldl -lrt -s
