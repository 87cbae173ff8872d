#!/usr/bin/env bash
# Proves of the recipes for package managers in packaging/ as much as can be proved here: each says the
# version of ann.h; Conan's is used to make a package and a program with it; conda's is rendered; and for
# each manager that is missing a line says so.
#
#   tests/install/packages/recipes_test.sh
#
# conan and py-rattler-build are Python packages (pip install conan py-rattler-build), found in PATH or in
# GANNET_CACHE/packaging-environment, where tests/setup.sh packages puts them. Where Conan's packages cannot
# be fetched, one of xxHash is made from the header of this machine.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/packaging-environment/bin:$cache/bin:$PATH"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "recipes_test: $*"; exit 1; }
quietly() { "$@" > "$scratch/log" 2>&1 || { tail -n 40 "$scratch/log"; fail "$*"; }; }

version=$(sed -n 's/^#define ANN_VERSION_[A-Z]* //p' "$source/capi/include/ann.h" | paste -sd. -)
grep -qF "\"version-semver\": \"$version\"" "$source/packaging/vcpkg/vcpkg.json" || fail "vcpkg: not $version"
grep -qF "version: \"$version\"" "$source/packaging/conda/recipe.yaml" || fail "conda: not $version"
python3 -m json.tool "$source/packaging/vcpkg/vcpkg.json" > /dev/null || fail "vcpkg.json is no JSON"

if command -v conan > /dev/null; then
  export CONAN_HOME=$scratch/conan
  quietly conan profile detect
  if ! conan list "xxhash/[>=0.8 <0.9]" --remote '*' 2> /dev/null | grep -q '^ *xxhash/0.8'; then
    mkdir "$scratch/xxhash"
    cat > "$scratch/xxhash/conanfile.py" << 'END'
from conan import ConanFile
from conan.tools.files import copy
class XXHash(ConanFile):
    name, version, package_type = "xxhash", "0.8.0", "header-library"
    def package(self):
        copy(self, "xxhash.h", "/usr/include", self.package_folder + "/include")
END
    quietly conan create "$scratch/xxhash" --no-remote
    from=", with this machine's xxhash.h"
  fi
  # Of a copy, because Conan builds the program beside its recipe.
  mkdir "$scratch/tree"
  (cd "$source" && tar -c --exclude=target CMakeLists.txt LICENSE CHANGELOG.md capi core examples packaging \
    tests/bench tests/install) | tar -x -C "$scratch/tree"
  quietly conan create "$scratch/tree/packaging/conan" --no-remote --build=missing -s build_type=Release \
    -s compiler.cppstd=20
  grep -q "^$version\$" "$scratch/log" || fail "conan: the program did not run"
  echo "recipes_test: conan: a package made, a program built with it and run${from:-}"
else
  echo "recipes_test: conan: not checked, there is none here"
fi

if python3 -c 'import rattler_build' 2> /dev/null; then
  python3 - "$source/packaging/conda/recipe.yaml" "$version" << 'END'
import sys
import rattler_build as rb
variant = rb.VariantConfig({"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]})
rendered = rb.Stage0Recipe.from_file(sys.argv[1]).render(variant)
names = [(str(one.recipe.package.name), str(one.recipe.package.version)) for one in rendered]
assert names == [("gannet", sys.argv[2])], names
END
  echo "recipes_test: conda: rendered; not built, which needs the channel conda-forge"
else
  echo "recipes_test: conda: not checked, there is no py-rattler-build here"
fi
command -v vcpkg > /dev/null || { echo "recipes_test: vcpkg: not checked, there is none here"; exit 0; }
quietly vcpkg install gannet --overlay-ports="$source/packaging/vcpkg" --x-install-root="$scratch/vcpkg"
test -e "$(find "$scratch/vcpkg" -name ann.h)" || fail "vcpkg: no ann.h"
echo "recipes_test: vcpkg: a package made"
