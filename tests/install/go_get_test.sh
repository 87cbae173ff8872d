#!/usr/bin/env bash
# A program takes the Go module as "go get" gives it: by its path and a tag of the repository, with the
# library installed and found by pkg-config; and, by -tags gannet_static, without it at run time.
#
#   tests/install/go_get_test.sh BUILD
#
# The repository that Go asks for is a copy of this tree with the tag, which git is told to take instead.
set -euo pipefail
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
# Go makes its module cache read-only.
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT

fail() {
  echo "go_get_test: $*" >&2
  exit 1
}

module=$(sed -n 's/^module //p' "$root/bindings/go/go.mod")
version=$(sed -n 's/^#define ANN_VERSION_[A-Z]* //p' "$root/capi/include/ann.h" | paste -sd.)
cmp -s "$root/LICENSE" "$root/bindings/go/LICENSE" || fail "bindings/go/LICENSE is not the tree's"

# What is in the working tree, as it would be committed and tagged.
mkdir "$folder/gannet"
(cd "$root" && git ls-files -z --cached --others --exclude-standard bindings/go LICENSE |
  xargs -0 cp --parents -t "$folder/gannet")
cd "$folder/gannet"
git init --quiet
git add .
git -c user.name=test -c user.email=test@localhost commit --quiet -m tree
git tag "bindings/go/v$version"

export GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0="https://github.com/gannet-ann/gannet"
export GIT_CONFIG_KEY_0="url.file://$folder/gannet.insteadOf"
export GOPATH=$folder/go GOFLAGS=-modcacherw GOPROXY=direct GONOSUMDB='*' GONOSUMCHECK=1 GOTOOLCHAIN=local
unset CGO_CFLAGS CGO_LDFLAGS

quiet_install() {
  cmake --install "$build" --prefix "$folder/prefix" > "$folder/log" 2>&1 ||
    { cat "$folder/log"; fail "the install fails"; }
}
quiet_install
libraries=$(dirname "$(find "$folder/prefix" -name libgannet.so | head -n 1)")
export PKG_CONFIG_PATH=$libraries/pkgconfig

mkdir "$folder/program"
cd "$folder/program"
cat > main.go <<EOF
package main

import (
	"context"
	"fmt"
	"log"

	"$module"
)

func main() {
	index, err := gannet.New(gannet.IndexParams{Dim: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer index.Close()
	ctx := context.Background()
	if err := index.Build(ctx, gannet.MatrixOf([]float32{0, 5, 6}, 1), nil, nil); err != nil {
		log.Fatal(err)
	}
	found, err := index.Search(ctx, gannet.MatrixOf([]float32{4}, 1), 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.IDs, gannet.Version())
}
EOF
go mod init example.test/program 2> /dev/null
go get "$module@v$version" > "$folder/log" 2>&1 || { cat "$folder/log"; fail "go get fails"; }
grep -q "$module v$version" go.mod || fail "go.mod does not name $module v$version"

check() {
  local what=$1 printed
  shift
  printed=$("$@") || fail "$what: the program fails"
  [ "$printed" = "[1 2] $version" ] || fail "$what: the program prints $printed"
  echo "go_get_test: $what: $printed"
}
go build -o shared .
check "with the shared library" env LD_LIBRARY_PATH="$libraries" ./shared
if [ -e "$libraries/libgannet.a" ]; then
  go build -tags gannet_static -o static .
  if readelf -d static | grep -q libgannet; then fail "the static program needs libgannet.so"; fi
  check "with the static library" env -u LD_LIBRARY_PATH ./static
fi
