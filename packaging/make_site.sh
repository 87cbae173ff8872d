#!/usr/bin/env bash
# Makes the reference of the C header, of the packages for Python, Go and Rust: a folder of pages that open
# offline, from index.html on.
#
#   packaging/make_site.sh OUT
#
# It needs Python, for Go's page go, and for Rust's pages cargo; where one of these two is not there, the front page
# says so. The library is not built, and no network is used.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in -h | --help | "") sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 2 ;; esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH" GOTOOLCHAIN=local GOPROXY=off
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

given=()
if command -v go > /dev/null; then
  (cd "$root/bindings/go" && go doc -all .) > "$scratch/go.txt"
  given+=(--go "$scratch/go.txt")
else
  echo "make_site: no go here; its page is left out"
fi

# With DOCS_RS the build scripts look for no library.
if command -v cargo > /dev/null; then
  if (cd "$root/bindings/rust" && DOCS_RS=1 CARGO_TARGET_DIR="$scratch/rust" \
      cargo doc --offline --quiet --no-deps --package gannet --package gannet-sys) > "$scratch/log" 2>&1; then
    rm -rf "$out/rust"
    cp -r "$scratch/rust/doc" "$out/rust"
    given+=(--rust rust/gannet/index.html)
  else
    echo "make_site: cargo doc failed; its pages are left out:"
    tail -n 5 "$scratch/log"
  fi
else
  echo "make_site: no cargo here; its pages are left out"
fi

python3 -B "$root/packaging/site_pages.py" "$out" ${given[@]+"${given[@]}"}
echo "$out/index.html"
