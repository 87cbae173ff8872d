#!/bin/sh
# Proves that Gannet as a part of another project (add_subdirectory, FetchContent) changes nothing there: the
# parent's build type, flags, kind of libraries, targets, tests and rules for installing stay as they are.
# Everything is configured, nothing compiled.
#
#   sh tests/install/subproject_test.sh BUILD
set -eu

build=$(cd "${1:?usage: subproject_test.sh build-folder}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
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

# The parent says before and after what it sees; both have to be the same.
cat > "$scratch/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C CXX)
function(say file)
  get_cmake_property(variables VARIABLES)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(text "languages ${languages}\n")
  foreach(variable IN LISTS variables)
    if(variable MATCHES "^(CMAKE_(BUILD_TYPE|C|CXX|CUDA|POSITION|EXPORT|INSTALL|EXE|SHARED|RUNTIME|LIBRARY|ARCHIVE)|BUILD_|CPACK|THREADS_PREFER)"
       AND NOT variable MATCHES "^CMAKE_(C|CXX)_(COMPILER_ID_|COMPILER_PRODUCED|COMPILER_VERSION_INT)")
      string(APPEND text "${variable} ${${variable}}\n")
    endif()
  endforeach()
  file(WRITE "${CMAKE_BINARY_DIR}/${file}" "${text}")
endfunction()
say(before)
add_subdirectory("${GANNET}" gannet)
say(after)
get_directory_property(tests DIRECTORY "${GANNET}" TESTS)
get_directory_property(targets DIRECTORY "${GANNET}" BUILDSYSTEM_TARGETS)
get_directory_property(folders DIRECTORY "${GANNET}" SUBDIRECTORIES)
get_target_property(kind gannet TYPE)
file(WRITE "${CMAKE_BINARY_DIR}/state" "tests ${tests}\ntargets ${targets}\nfolders ${folders}\nkind ${kind}\n")
file(WRITE "${CMAKE_BINARY_DIR}/consumer.c" "int main(void) { return 0; }\n")
add_executable(consumer "${CMAKE_BINARY_DIR}/consumer.c")
target_link_libraries(consumer PRIVATE gannet::gannet)
END
configure() { # FOLDER OPTION...
  folder=$1
  shift
  cmake -S "$scratch" -B "$scratch/$folder" -DGANNET="$source" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@"
}
state_is() { grep -qx "$2" "$scratch/$1/state" || { cat "$scratch/$1/state"; return 1; }; }

check "it does not configure in another project" configure plain
check "it changes what the parent sees" diff "$scratch/plain/before" "$scratch/plain/after"
check "it forces a build type" grep -qx "CMAKE_BUILD_TYPE:.*=" "$scratch/plain/CMakeCache.txt"
check "it makes other targets than the library" state_is plain "targets gannet_flags;gannet_objects;gannet"
check "it brings tests" state_is plain "tests "
check "it enters folders of its own" state_is plain "folders "
check "it is no archive without BUILD_SHARED_LIBS" state_is plain "kind STATIC_LIBRARY"
check "it takes warnings as errors" sh -c '! grep -q -e "-Werror" "$1"' sh \
  "$scratch/plain/compile_commands.json"
check "its flags reach the parent" sh -c '! grep "consumer.c" "$1" | grep -e -Wall -e -ffp-contract' sh \
  "$scratch/plain/compile_commands.json"
# Installing the parent installs nothing of Gannet, and needs nothing built.
check "it has rules for installing" cmake --install "$scratch/plain" --prefix "$scratch/installed"
check "it installs files" sh -c 'test -z "$(find "$1" ! -type d 2> /dev/null)"' sh "$scratch/installed"
check "it asks for cpack" test ! -e "$scratch/plain/CPackConfig.cmake"

check "it does not configure as a shared object" configure shared -DBUILD_SHARED_LIBS=ON \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_RELEASE=-O1
check "it is no shared object with BUILD_SHARED_LIBS" state_is shared "kind SHARED_LIBRARY"
check "it makes an archive too" state_is shared "targets gannet_flags;gannet_objects;gannet"
check "it changes the parent's build type" grep -qx "CMAKE_BUILD_TYPE Debug" "$scratch/shared/after"
check "it changes the parent's flags" diff "$scratch/shared/before" "$scratch/shared/after"

# Alone it obeys too, and flags of the caller are kept.
check "it does not configure alone" cmake -S "$source" -B "$scratch/alone" -DBUILD_SHARED_LIBS=OFF \
  -DGANNET_CUDA=off -DGANNET_TOOL=off -DCMAKE_CXX_FLAGS_RELEASE=-O1
check "it sets the caller's flags aside" sh -c '! grep -q -e " -O3" "$1"' sh \
  "$scratch/alone/compile_commands.json"
check "warnings are errors unasked" sh -c '! grep -q -e "-Werror" "$1"' sh \
  "$scratch/alone/compile_commands.json"
check "an archive alone is not told its libraries" grep -q "^Libs: .*-lgannet .*-lstdc++" \
  "$scratch/alone/gannet.pc"
# The scripts of tests/ take warnings as errors.
check "$build does not take warnings as errors" grep -q -e "-Werror" "$build/compile_commands.json"

echo "subproject_test: $checks checks, $failed failed"
test "$failed" -eq 0
