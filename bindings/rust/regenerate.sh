#!/usr/bin/env bash
# Makes gannet-sys/src/bindings.rs from capi/include/ann.h, or compares it with what would be made.
#
#   bindings/rust/regenerate.sh            writes the file
#   bindings/rust/regenerate.sh --check    fails if it is not up to date; writes nothing
#
# bindgen and libclang are of the versions below, so that every machine makes the same bytes. Those
# that are missing are installed in $GANNET_CACHE, by default ~/.cache/gannet, and nowhere else.
set -euo pipefail

bindgen_version=0.72.1
libclang_version=18.1.1

case ${1:-} in
  "" | --check) mode=${1:-write} ;;
  *) echo "usage: bindings/rust/regenerate.sh [--check]" >&2; exit 2 ;;
esac

here=$(cd "$(dirname "$0")" && pwd)
header=$here/../../capi/include/ann.h
bindings=$here/gannet-sys/src/bindings.rs
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
mkdir -p "$cache"
log=$cache/bindgen.log

quietly() {
  if ! "$@" > "$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "regenerate.sh: this failed: $*  (all of its output: $log)" >&2
    exit 1
  fi
}

bindgen=$cache/bindgen-$bindgen_version/bin/bindgen
if [ ! -x "$bindgen" ]; then
  # Its own formatter, because that of the machine changes with the machine's Rust.
  quietly cargo install bindgen-cli --version $bindgen_version --locked --features prettyplease \
    --root "$cache/bindgen-$bindgen_version"
fi

clang_environment=$cache/libclang-$libclang_version
if [ ! -e "$clang_environment/done" ]; then
  rm -rf "$clang_environment"
  quietly python3 -m venv "$clang_environment"
  quietly "$clang_environment/bin/pip" install --disable-pip-version-check --no-input \
    libclang==$libclang_version
  touch "$clang_environment/done"
fi
LIBCLANG_PATH=$("$clang_environment/bin/python" -c \
  'import clang, pathlib; print(pathlib.Path(clang.__file__).parent / "native")')
export LIBCLANG_PATH
# This libclang comes without headers of its own; stddef.h is the C compiler's.
BINDGEN_EXTRA_CLANG_ARGS="-I$("${CC:-cc}" -print-file-name=include)"
export BINDGEN_EXTRA_CLANG_ARGS

made=$(mktemp)
trap 'rm -f "$made"' EXIT
"$bindgen" "$header" --output "$made" --formatter prettyplease --rust-target 1.77 \
  --allowlist-file '.*/ann\.h' --no-doc-comments \
  --raw-line '// Made by bindings/rust/regenerate.sh from capi/include/ann.h. Do not edit.'

if [ "$mode" = write ]; then
  cp "$made" "$bindings"
  chmod 644 "$bindings"
elif ! diff -u "$bindings" "$made" >&2; then
  echo "regenerate.sh: $bindings is not what ann.h says; run bindings/rust/regenerate.sh" >&2
  exit 1
fi
