# What the tests of the command-line tool share: sourced with $gannet and $data set, it makes a scratch
# folder, goes there, and counts checks.
rows=$data/sift_10k.u8bin queries=$data/sift_queries.u8bin
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
checks=0
failed=0
fail() {
  echo "$(basename "$0"): $*" >&2
  failed=$((failed + 1))
}

# ends STATUS TEXT COMMAND...: the command ends with the status and prints the text.
ends() {
  local wanted=$1 text=$2 status=0
  shift 2
  checks=$((checks + 1))
  "$@" > log 2>&1 < /dev/null || status=$?
  if [ $status != "$wanted" ]; then
    fail "status $status instead of $wanted: $*: $(tail -n 5 log)"
  elif ! grep -qF -- "$text" log; then
    fail "no \"$text\" from: $*: $(tail -n 5 log)"
  fi
}

# answers EXPRESSION COMMAND...: the JSON object `a` on stdout makes the Python expression true.
answers() {
  local expression=$1 status=0
  shift
  checks=$((checks + 1))
  "$@" --json > log 2> errors || status=$?
  python3 -c 'import json, sys; a = json.load(open("log")); status = int(sys.argv[2])
errors = open("errors").read()
assert eval(sys.argv[1]), (status, errors, str(a)[:2000])' "$expression" $status ||
    fail "$expression: $*"
}

# same FILE FILE: byte for byte.
same() {
  checks=$((checks + 1))
  cmp "$1" "$2" || fail "$1 and $2 differ"
}

# holds WHAT COMMAND...: the command succeeds.
holds() {
  local what=$1
  shift
  checks=$((checks + 1))
  "$@" || fail "$what"
}

finish() {
  echo "$(basename "$0"): $checks checks, $failed failed"
  exit $((failed > 0))
}
