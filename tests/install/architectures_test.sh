#!/usr/bin/env bash
# Proves for which GPUs a build makes code: unasked for those of the six that the CUDA compiler knows, which
# an older one does not all; and that an architecture which it does not know is refused when the build is
# configured. The older compiler is the one of this machine, which denies Blackwell. Nothing is compiled.
#
#   tests/install/architectures_test.sh BUILD     whose CUDA compiler is taken; without one nothing is checked
set -euo pipefail
export PATH="${GANNET_CACHE:-$HOME/.cache/gannet}/bin:$PATH"
build=$(cd "${1:?usage: architectures_test.sh build-folder}" && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ ! -x "$nvcc" ]; then
  echo "architectures_test: left out: $build has no CUDA compiler"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "architectures_test: $*" >&2; cat "$scratch/log" >&2; exit 1; }
cat > "$scratch/nvcc" << END
#!/usr/bin/env bash
for word in "\$@"; do
  case \$word in
    --list-gpu-arch) "$nvcc" --list-gpu-arch | grep -v '_1[0-9][0-9]'; exit ;;
    *compute_1[0-9][0-9]*) echo "Unsupported gpu architecture: \$word" >&2; exit 1 ;;
  esac
done
exec "$nvcc" "\$@"
END
chmod +x "$scratch/nvcc"

configure() { # COMPILER OPTION...
  local compiler=$1
  shift
  rm -rf "$scratch/build"
  cmake -G Ninja -S "$source" -B "$scratch/build" -DGANNET_CUDA=on -DGANNET_TOOL=off \
    -DCMAKE_CUDA_COMPILER="$compiler" "$@" > "$scratch/log" 2>&1
}
# made CODE...: what each CUDA file is compiled for
made() {
  local codes
  codes=$(grep -m 1 -oE 'generate-code=arch=.*' "$scratch/build/build.ninja" | grep -oE 'code=\[[a-z0-9_,]*\]' |
    tr -d '[]' | sed 's/^code=//' | paste -sd ' ')
  [ "$codes" = "$*" ] || fail "code is made for \"$codes\", not \"$*\""
}

expected=(sm_80 sm_86 sm_89)
if "$nvcc" --list-gpu-arch | grep -q compute_120; then
  expected+=(sm_90 sm_100 compute_120,sm_120)
else
  expected+=(compute_90,sm_90)
fi
configure "$nvcc" || fail "the default is not configured"
made "${expected[@]}"
configure "$scratch/nvcc" || fail "the default is not configured for an older compiler"
made sm_80 sm_86 sm_89 compute_90,sm_90
if configure "$scratch/nvcc" -DGANNET_CUDA_ARCHITECTURES='90;120'; then
  fail "120 is taken by a compiler that lacks it"
fi
tr -s ' \n' ' ' < "$scratch/log" | grep -q 'names 120, which CUDA [0-9.]* does not know' ||
  fail "120 is not named"
echo "architectures_test: ${expected[*]}; an older compiler makes code up to 90 and refuses 120"
