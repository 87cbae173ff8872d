#!/usr/bin/env bash
# Builds and tests everything, from a bare machine on. Stops when a part has failed.
#
#   tests/run.sh                 all parts
#   tests/run.sh PART...         these:
#
#     unit      Release build with CUDA, all of ctest
#     tidy      checks of the sources and of the shared object
#     asan      build with AddressSanitizer and UndefinedBehaviorSanitizer, all of ctest
#     fuzz      clang's libFuzzer: a planted defect must be found; each target runs for 15 s
#     tsan      build with ThreadSanitizer, ctest of label "threads"
#     rust      generated bindings, cargo fmt, clippy, test, the crate's tests over a sanitized library; the
#               crates from their own archives, with the static library and built from source; gannet-fsck over
#               golden files and over those that the tests of the C header make
#     go        gofmt, vet, test -race, test -asan over a sanitized library; gannet-fsck over the files that
#               these tests make
#     python    types, pytest and doctests of the package, its notebook, and pytest once more over sanitized builds
#     examples  the quickstart and the programs in examples/
#     install   use of an installed tree
#
#   and, only where they are named, because they compile the library again:
#
#     packages  packages installed in a bare root, two builds compared, recipes of package managers
#     arm64     the library for 64-bit ARM, its kernels and answers under QEMU
#
# Builds lie in build/, build-asan/, build-fuzz/ and build-tsan/, or under the name that GANNET_BUILD gives, and
# are kept, so a second run compiles what has changed only.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

all_parts=(unit tidy asan fuzz tsan rust go python examples install)
named_parts=(packages arm64)
case ${1:-} in -h | --help) sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "$0"; exit 0 ;; esac
parts=("$@")
if [ ${#parts[@]} = 0 ]; then parts=("${all_parts[@]}"); fi
for part in "${parts[@]}"; do
  case " ${all_parts[*]} ${named_parts[*]} " in
    *" $part "*) ;;
    *) echo "run.sh: no part \"$part\"; expected some of: ${all_parts[*]} ${named_parts[*]}" >&2; exit 2 ;;
  esac
done

build=${GANNET_BUILD:-$root/build}
cache=${GANNET_CACHE:-$HOME/.cache/gannet}
export PATH="$cache/bin:$PATH"
export GOTOOLCHAIN=local
# The static CUDA runtime, which programs that are linked with libgannet.a need where it has GPU code.
for toolkit in "${CUDA_HOME:-}" "$cache/cuda" /usr/local/cuda; do
  if [ -e "$toolkit/lib64/libcudart_static.a" ]; then
    export LIBRARY_PATH=$toolkit/lib64${LIBRARY_PATH:+:$LIBRARY_PATH} CUDAToolkit_ROOT=$toolkit
    break
  fi
done
export CMAKE_GENERATOR=Ninja  # of new build folders
jobs=$(nproc)
mkdir -p "$build"
build=$(cd "$build" && pwd)
logs=$build/logs
mkdir -p "$logs"

# Runs a command with its output in a file, and shows the end of that if the command fails.
quietly() {
  local log=$1
  shift
  if ! "$@" > "$log" 2>&1; then
    tail -n 60 "$log"
    printf 'run.sh: this failed: %s\n(all of its output: %s)\n' "$*" "$log"
    return 1
  fi
}

# compile FOLDER OPTION...: configures and builds everything there, or those of its targets that $targets names. Another
# part may want the same at the same time.
compile() (
  folder=$1 start=$SECONDS
  shift
  name=$(basename "$folder")
  exec 9> "$logs/$name.lock"
  flock 9
  quietly "$logs/$name-configure.log" cmake -S "$root" -B "$folder" \
    -DCMAKE_BUILD_TYPE=Release -DGANNET_TESTS=ON -DGANNET_EXAMPLES=ON -DGANNET_WERROR=ON "$@"
  # shellcheck disable=SC2086
  quietly "$logs/$name-build.log" cmake --build "$folder" --parallel "$jobs" --target ${targets:-all}
  echo "built $name/ in $((SECONDS - start)) s"
)

# The Release build; parts that need the shared object ask for it. One architecture is enough to
# see that the CUDA code compiles; without a GPU its tests skip themselves.
release() {
  local cuda=(-DGANNET_CUDA=off)
  if [ -x "$cache/cuda/bin/nvcc" ] || command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    cuda=(-DGANNET_CUDA=on -DGANNET_CUDA_ARCHITECTURES=90)
  fi
  compile "$build" "${cuda[@]}"
}

part_unit() {
  release
  python3 tests/golden/make_cases.py --check
  ctest --test-dir "$build" --parallel "$jobs" --output-on-failure --no-tests=error
}

part_tidy() {
  release
  python3 tests/tidy/tidy_test.py
  python3 tests/tidy/tidy.py --build "$build"
}

sanitized() {
  compile "$build-asan" -DGANNET_CUDA=off -DGANNET_SANITIZE=address
}

part_asan() {
  sanitized
  # Requests for more memory than there is are part of the tests. Uses of a function's variables after its return are
  # sought in Rust's run, since that makes everything a fifth slower.
  # A cancelled thread ends in the middle of a scope, on whose stack the sanitizer then undoes its signal stack and
  # reports itself: so there is none.
  ASAN_OPTIONS=allocator_may_return_null=1:use_sigaltstack=0 \
  UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir "$build-asan" --parallel "$jobs" --output-on-failure --no-tests=error --timeout 900
}

part_fuzz() {
  local status=0
  GANNET_BUILD=$build tests/fuzz/run.sh --unrecorded 15 || status=$?
  # The corpus was replayed by the parts before this one.
  if [ $status = 77 ]; then echo "left out"; else return $status; fi
}

part_tsan() {
  # The programs of the tests with that label; to compile the others takes longer than these run.
  targets="capi_threads capi_files" compile "$build-tsan" -DGANNET_CUDA=off -DGANNET_SANITIZE=thread
  # ThreadSanitizer of GCC 12 does not start where the kernel spreads addresses widely.
  local fixed_addresses=()
  if setarch "$(uname -m)" -R true 2> /dev/null; then
    fixed_addresses=(setarch "$(uname -m)" -R)
  fi
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
    ${fixed_addresses[@]+"${fixed_addresses[@]}"} \
    ctest --test-dir "$build-tsan" -L threads --output-on-failure --no-tests=error --timeout 900
}

part_rust() {
  release
  bindings/rust/regenerate.sh --check
  export GANNET_DIR=$build
  local features=gannet/ndarray,gannet/half,gannet/serde
  cd bindings/rust
  if cargo fmt --version > /dev/null 2>&1; then cargo fmt --all --check; fi
  if cargo clippy --version > /dev/null 2>&1; then
    cargo clippy --quiet --workspace --all-targets --features "$features" -- -D warnings
  fi
  cargo test --quiet --workspace --features "$features"
  ./package.sh "$build"

  # The library and the memory that it is given under AddressSanitizer; stable Rust compiles no code of its own
  # with it. The runtime has to be there before the program starts.
  sanitized
  local host
  host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
  env GANNET_DIR="$build-asan" \
    "CARGO_TARGET_${host}_RUNNER=env LD_PRELOAD=$(c++ -print-file-name=libasan.so)" \
    ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
    cargo test --quiet --package gannet --tests --features "$features"

  export GANNET_KEEP_FILES=$build/kept/capi
  rm -rf "$GANNET_KEEP_FILES"
  mkdir -p "$GANNET_KEEP_FILES"
  "$build/tests/capi/capi_files"
  fsck "$root/tests/golden/files" "$GANNET_KEEP_FILES"
}

# fsck FOLDER...: runs the independent reader over all files of indexes there.
fsck() {
  local folder found log
  for folder in "$@"; do
    found=$(find "$folder" -name '*.gannet' | wc -l)
    log=$logs/fsck-$(basename "$folder").log
    if [ "$found" = 0 ]; then echo "no files of indexes in $folder"; return 1; fi
    if ! find "$folder" -name '*.gannet' -print0 |
      xargs -0 cargo run --quiet --release --package gannet-fsck \
        --manifest-path "$root/bindings/rust/Cargo.toml" -- > "$log" 2>&1; then
      grep -v ': ok: ' "$log"
      return 1
    fi
    echo "gannet-fsck: $found files in order in $folder"
  done
}

part_go() {
  release
  cd bindings/go
  local unformatted
  unformatted=$("$(go env GOROOT)/bin/gofmt" -l .)
  if [ -n "$unformatted" ]; then
    printf 'gofmt would change:\n%s\n' "$unformatted"
    return 1
  fi
  export CGO_CFLAGS="-O2 -I$root/capi/include" CGO_LDFLAGS="-L$build -Wl,-rpath,$build"
  go vet -tags gannet_tree ./...
  export GANNET_KEEP_FILES=$build/kept/go
  rm -rf "$GANNET_KEEP_FILES"
  mkdir -p "$GANNET_KEEP_FILES"
  go test -count=1 -race -tags gannet_tree ./...

  # Under AddressSanitizer, Go's side of the boundary as well. What Go keeps until its end is no leak.
  sanitized
  CGO_LDFLAGS="-L$build-asan -Wl,-rpath,$build-asan" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    go test -count=1 -asan -tags gannet_tree ./...

  if grep -q cudart_static "$build/gannet.pc"; then
    export CGO_LDFLAGS="$CGO_LDFLAGS -l:libgannet.a -lcudart_static -lrt"
  fi
  go test -count=1 -tags gannet_tree,gannet_static -run 'TestVersion|TestSearch|TestMisuse' ./...
  fsck "$GANNET_KEEP_FILES"
}

part_python() {
  release
  local python=$cache/python-environment/bin/python folder=$root/bindings/python
  (cd "$folder" && "$python" -m mypy)
  export PYTHONDONTWRITEBYTECODE=1
  PYTHONPATH=$build/python "$python" -m pytest -q "$folder/tests"
  PYTHONPATH=$build/python "$python" -m pytest -q --doctest-modules --pyargs gannet
  PYTHONPATH=$build/python "$python" "$root/examples/python/make_notebook.py" --check

  # The sanitizer's runtime has to come before Python's own start. Python's allocator would hide small blocks from
  # it, and what Python leaves behind when it ends is no leak; memory is measured in the run above.
  sanitized
  PYTHONPATH=$build-asan/python PYTHONMALLOC=malloc \
  LD_PRELOAD="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    "$python" -m pytest -q "$folder/tests" --ignore "$folder/tests/test_memory.py" -k "not in_pipelines"
}

part_examples() {
  release
  local data=$root/examples/data
  GANNET_BUILD=$build examples/quickstart.sh
  echo; echo "C:"
  "$build/examples/quickstart_c" "$data/sift_10k.u8bin" "$data/sift_queries.u8bin"
  "$build/examples/gpu_c"
  local index=$build/kept/example.gannet
  mkdir -p "$build/kept"
  "$build/examples/save_open_cancel_c" "$index"
  echo; echo "Rust:"
  (cd examples/rust && GANNET_DIR=$build cargo run --quiet --release -- "$data/sift_10k.u8bin")
  (cd examples/rust && GANNET_DIR=$build cargo run --quiet --release --bin gpu)
  python3 examples/service_test.py "$index" env GANNET_DIR="$build" \
    cargo run --quiet --release --manifest-path "$root/examples/rust/Cargo.toml" --bin service --
  echo; echo "Go:"
  (cd examples/go &&
    CGO_CFLAGS="-O2 -I$root/capi/include" CGO_LDFLAGS="-L$build -Wl,-rpath,$build" \
      go build -tags gannet_tree -o "$build/examples/go/" ./...)
  "$build/examples/go/go" "$data/sift_10k.u8bin"
  "$build/examples/go/gpu"
  python3 examples/service_test.py "$index" "$build/examples/go/service"
  echo; echo "Python:"
  PYTHONPATH=$build/python "$cache/python-environment/bin/python" examples/python/gpu.py
}

part_install() {
  release
  local script found=no
  for script in tests/install/*.sh; do
    if [ -e "$script" ]; then bash "$script" "$build"; found=yes; fi
  done
  if [ $found = no ]; then echo "nothing in tests/install"; fi
}

part_packages() {
  local script status
  tests/setup.sh packages
  for script in tests/install/packages/*_test.sh; do
    status=0
    "$script" || status=$?
    if [ $status != 0 ] && [ $status != 77 ]; then return $status; fi
  done
}

part_arm64() {
  release
  tests/setup.sh arm64
  local status=0
  tests/arm64/arm64_test.sh "$build" || status=$?
  if [ $status != 77 ]; then return $status; fi
}

# --- Running them ---------------------------------------------------------------------------------
heading() { printf '\n=== %s\n' "$*"; }

# The lines with which ctest, cargo, go, pytest and gannet-fsck close, as they printed them.
closing_lines() {
  grep -hE '^([0-9]+% tests passed|[0-9]+ (passed|failed)|gannet-fsck: |Total Test time|test result: |(ok|FAIL|---) +)|^(ok|FAIL)[[:space:]]' \
    "$logs/$1.log" || true
}

whole_run=$SECONDS
rm -f "$logs/summary" "$logs/failed"

# run_parts PART...: one after the other, until one fails here or beside them. Their outcomes go to $logs/summary, the name
# of one that fails to $logs/failed.
run_parts() {
  local part start status outcome line
  for part in "$@"; do
    if [ -e "$logs/failed" ]; then break; fi
    heading "$part"
    start=$SECONDS
    set +e
    (
      set -e
      "part_$part"
    ) 2>&1 | tee "$logs/$part.log"
    status=${PIPESTATUS[0]}
    set -e
    outcome=passed
    if [ "$status" != 0 ]; then
      outcome=FAILED
      echo "$part" >> "$logs/failed"
    fi
    line=$(printf '%-10s %5d s  %s' "$part" $((SECONDS - start)) $outcome)
    echo "--- $line"
    echo "$line" >> "$logs/summary"
  done
}

heading "setup"
start=$SECONDS
tests/setup.sh tests
printf '%-10s %5d s\n' setup $((SECONDS - start)) >> "$logs/summary"

# Rust's programs and the wrappers' tests run one thread for most of their time, so that Rust's go beside the others.
first=() beside_rust=() with_rust=()
for part in "${parts[@]}"; do
  case $part in
    rust) with_rust+=("$part") ;;
    go | python | examples | install) beside_rust+=("$part") ;;
    *) first+=("$part") ;;
  esac
done
run_parts ${first[@]+"${first[@]}"}
if [ ${#with_rust[@]} != 0 ] && [ ${#beside_rust[@]} != 0 ]; then
  run_parts "${with_rust[@]}" > "$logs/beside.log" 2>&1 &
  run_parts "${beside_rust[@]}"
  wait
  cat "$logs/beside.log"
else
  run_parts ${with_rust[@]+"${with_rust[@]}"} ${beside_rust[@]+"${beside_rust[@]}"}
fi

heading "summary"
for part in "${parts[@]}"; do
  if grep -qs "^$part " "$logs/summary"; then
    lines=$(closing_lines "$part")
    if [ -n "$lines" ]; then printf '%s:\n%s\n' "$part" "$lines"; fi
  fi
done
printf '\n'
cat "$logs/summary"
printf '%-10s %5d s\n' all $((SECONDS - whole_run))
if [ -e "$logs/failed" ]; then
  printf '\n%s failed\n' "$(paste -sd ' ' "$logs/failed")"
  exit 1
fi
