#!/usr/bin/env bash
# Proves that the packages can be installed and used where nothing of this tree is: makes them, installs the
# .deb files in a bare Debian or Ubuntu (debootstrap), compiles and runs a C program there with the shared
# object and with the archive, uses the tools, removes everything again, and does the same with the .tar.gz.
#
#   tests/install/packages/bare_root_test.sh [PACKAGES]    a folder of make_packages.sh; else they are made
#
# Where the archive has GPU code, the static CUDA runtime that a program with it needs is lent by this machine's
# toolkit: that of tests/setup.sh, or CUDA_HOME.
# Needs root, debootstrap and the network: some 100 MB. Status 77 where one of them is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../../.." && pwd)
leave() { echo "bare_root_test: left out: $*"; exit 77; }
[ "$(id -u)" = 0 ] || leave "only root can make a root folder"
command -v debootstrap > /dev/null || leave "no debootstrap here"
. /etc/os-release
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2> /dev/null |
  awk -v release="$VERSION_CODENAME" '$2 == release { print $1; exit }')
[ -n "$mirror" ] || leave "apt knows no mirror of $VERSION_CODENAME"

scratch=$(mktemp -d)
root=$scratch/root
trap 'umount "$root/proc" 2> /dev/null; rm -rf --one-file-system "$scratch"' EXIT
packages=${1:-}
if [ -z "$packages" ]; then
  packages=$scratch/packages
  "$source/packaging/make_packages.sh" "$packages" -DGANNET_CUDA=off > "$scratch/log" 2>&1 ||
    { tail -n 40 "$scratch/log"; exit 1; }
fi
if ! debootstrap --variant=minbase --include=gcc,g++,libc6-dev,pkg-config "$VERSION_CODENAME" "$root" \
  "$mirror" > "$scratch/log" 2>&1; then
  tail -n 5 "$scratch/log"
  leave "debootstrap of $VERSION_CODENAME does not get through"
fi

mkdir "$root/packages" "$root/data"
cp "$packages"/*.deb "$packages"/*.tar.gz "$root/packages/"
for toolkit in "${CUDA_HOME:-}" "${GANNET_CACHE:-$HOME/.cache/gannet}/cuda" /usr/local/cuda; do
  if [ -e "$toolkit/lib64/libcudart_static.a" ]; then
    mkdir "$root/toolkit"
    cp "$toolkit/lib64/libcudart_static.a" "$root/toolkit/"
    break
  fi
done
cp "$here/../consumer.c" "$root/"
cp "$source/examples/data/"*.u8bin "$root/data/"
# A program finds a library from its own place through /proc.
mount -t proc proc "$root/proc" 2> /dev/null || leave "/proc cannot be mounted there"
# What is done there. `sh -e` ends at the first command that fails.
cat > "$root/use.sh" << 'END'
set -eux
version=$1
# The .deb files: the library alone first.
dpkg -i packages/libgannet0_*.deb
test -e /usr/lib/*/libgannet.so.0
if test -e /usr/include/ann.h; then exit 1; fi
dpkg -i packages/libgannet-dev_*.deb packages/gannet-tools_*.deb
dpkg --audit
test "$(pkg-config --modversion gannet)" = "$version"
gcc -Wall -Werror consumer.c $(pkg-config --cflags --libs gannet) -o shared
test "$(./shared)" = "$version"
ldd shared | grep libgannet.so.0
# The archive needs C++'s library, which comes with g++.
if pkg-config --static --libs gannet | grep cudart_static; then export LIBRARY_PATH=/toolkit; fi
gcc consumer.c -l:libgannet.a $(pkg-config --static --libs gannet | sed 's/-lgannet//') -o static
if ldd static | grep libgannet; then exit 1; fi
test "$(./static)" = "$version"
use_tools() { # PREFIX
  rm -f rows.ann
  "$1gannet" build data/sift_10k.u8bin rows.ann
  "$1gannet" exact data/sift_10k.u8bin data/sift_queries.u8bin -o truth.ibin --force > /dev/null
  "$1gannet" search rows.ann data/sift_queries.u8bin --truth truth.ibin --show 0 | grep "recall 0.9"
  "$1gannet-bench" inspect data/sift_queries.u8bin --head | grep "dim 128"
}
use_tools ""
for package in libgannet0 libgannet-dev gannet-tools; do
  test -s /usr/share/doc/$package/copyright
done
dpkg -r gannet-tools libgannet-dev libgannet0
if test -e /usr/include/ann.h || ./shared; then exit 1; fi
# The archive, in a folder of its own.
mkdir "/opt/some place"
tar -xzf packages/*.tar.gz -C "/opt/some place" --strip-components=1
export PKG_CONFIG_PATH="/opt/some place/lib/pkgconfig"
eval gcc consumer.c $(pkg-config --cflags --libs gannet) -o shared
test "$(LD_LIBRARY_PATH="/opt/some place/lib" ./shared)" = "$version"
use_tools "/opt/some place/bin/"
END
version=$(sed -n 's/^#define ANN_VERSION_[A-Z]* //p' "$source/capi/include/ann.h" | paste -sd. -)
if ! env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ chroot "$root" sh /use.sh "$version" \
  > "$scratch/log" 2>&1; then
  tail -n 30 "$scratch/log"
  echo "bare_root_test: failed in a bare $VERSION_CODENAME"
  exit 1
fi
echo "bare_root_test: $(cd "$packages" && echo *.deb *.tar.gz) installed and used in a bare $VERSION_CODENAME"
