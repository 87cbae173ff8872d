#!/usr/bin/env bash
# Makes what is handed out, for the system and the processor of this machine, with or without GPU code:
#
#   packaging/make_packages.sh OUT [CMAKE-OPTION...]
#
#   OUT/gannet-VERSION-linux-PROCESSOR-SET.tar.gz   to unpack anywhere; SET is cpu, or cuda13.0 and so on
#   OUT/libgannet0_VERSION_ARCHITECTURE.deb         and libgannet-dev, gannet-tools: where dpkg is
#
# Options are those of CMakeLists.txt, as -DGANNET_CUDA=off; one set is one call. The build lies in
# build-packages/, or where GANNET_BUILD says. Times in the packages are that of the last commit, or
# SOURCE_DATE_EPOCH, so that equal sources give equal packages.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
  "" | -*) sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
export PATH="${GANNET_CACHE:-$HOME/.cache/gannet}/bin:$PATH"
build=${GANNET_BUILD:-$root/build-packages}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2> /dev/null || echo 0)}
export SOURCE_DATE_EPOCH
umask 022

# configure OPTION...: then builds
configure() {
  cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DGANNET_TOOL=on "$@" > /dev/null
  cmake --build "$build" --parallel "$(nproc)"
}

# pack GENERATOR: quietly, and only the packages come out
pack() {
  local folder=$build/packages
  rm -rf "$folder"
  (cd "$build" && cpack -G "$1" -B "$folder" > "$build/cpack.log") || { cat "$build/cpack.log"; exit 1; }
  find "$folder" -maxdepth 1 \( -name '*.deb' -o -name '*.tar.gz' \) -exec mv -t "$out" {} +
}

# In Debian's folders, and without a path in the programs.
if command -v dpkg-shlibdeps > /dev/null; then
  configure "$@" -UCMAKE_INSTALL_LIBDIR -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_SKIP_INSTALL_RPATH=ON \
    -DGANNET_DEBIAN=ON
  pack DEB
else
  echo "make_packages: no dpkg-shlibdeps here (Debian, Ubuntu: dpkg-dev), so no .deb" >&2
fi
# In folders that can be put anywhere.
configure "$@" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX=/usr/local -DCMAKE_SKIP_INSTALL_RPATH=OFF \
  -DGANNET_DEBIAN=OFF
pack TGZ
ls -l "$out"
