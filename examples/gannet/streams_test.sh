#!/usr/bin/env bash
# The command-line tool costs nobody a file and keeps no failure to itself: what it writes over, when it
# looks whether it can write, standard input and output, devices, and queries with NaN.
#
#   streams_test.sh GANNET DATA_FOLDER
set -uo pipefail
gannet=$(realpath "$1") data=$(realpath "$2")
. "$(dirname "$0")/checks.sh"
cp "$rows" rows.u8bin
cp "$queries" queries.u8bin
"$gannet" convert rows.u8bin small.u8bin --rows 0:500 > log || exit 1
"$gannet" build small.u8bin small.ann --no-calibration > log || exit 1

# unharmed FILE ORIGINAL COMMAND...: the command is refused, for the reason that names --force, and the file
# is what it was.
unharmed() {
  local file=$1 original=$2
  shift 2
  ends 1 "--force" "$@"
  same "$file" "$original"
}
# Its input, by name, by a link of either kind, as standard input.
ln -s rows.u8bin soft.u8bin
ln rows.u8bin hard.u8bin
unharmed rows.u8bin "$rows" "$gannet" build rows.u8bin rows.u8bin
unharmed rows.u8bin "$rows" "$gannet" build rows.u8bin soft.u8bin
unharmed rows.u8bin "$rows" "$gannet" build rows.u8bin hard.u8bin
unharmed rows.u8bin "$rows" "$gannet" build rows.u8bin ./../"$(basename "$scratch")"/rows.u8bin
unharmed rows.u8bin "$rows" bash -c '"$1" build u8bin:- rows.u8bin < rows.u8bin' - "$gannet"
unharmed rows.u8bin "$rows" "$gannet" convert rows.u8bin rows.u8bin --rows 0:2
unharmed queries.u8bin "$queries" "$gannet" build small.u8bin queries.u8bin --calibration queries.u8bin
cp small.ann before.ann
unharmed small.ann before.ann "$gannet" build small.u8bin small.ann --ids small.ann
# Anything that is no index; for neighbours and vectors anything at all.
echo "a letter" > letter.txt
cp letter.txt letter.orig
unharmed letter.txt letter.orig "$gannet" build small.u8bin letter.txt
cp rows.u8bin other.u8bin
unharmed other.u8bin "$rows" "$gannet" build small.u8bin other.u8bin
unharmed other.u8bin "$rows" "$gannet" convert small.u8bin other.u8bin
cp letter.txt found.ibin
unharmed found.ibin letter.orig "$gannet" search small.ann "$queries" -k 3 -o found.ibin
unharmed found.ibin letter.orig "$gannet" exact small.u8bin "$queries" -k 3 -o found.ibin
head -c 1000 small.ann > cut.ann
cp cut.ann cut.orig
unharmed cut.ann cut.orig "$gannet" build small.u8bin cut.ann
# A stranger's file beside the target is nobody's scratch space.
cp letter.txt part.fbin.part
ends 0 "500 rows" "$gannet" convert small.u8bin part.fbin
same part.fbin.part letter.orig
# What may be replaced: an index by a build, an empty file, and with --force the rest.
ends 0 "500 rows" "$gannet" build small.u8bin small.ann --no-calibration
: > empty.ann
ends 0 "500 rows" "$gannet" build small.u8bin empty.ann --no-calibration
ends 0 "500 rows" "$gannet" build small.u8bin cut.ann --no-calibration --force
ends 0 "queries" "$gannet" search small.ann "$queries" -k 3 -o found.ibin -f
ends 0 "2 rows" "$gannet" convert other.u8bin other.u8bin --rows 0:2 --force
holds "the part was not written" test "$(stat -c %s other.u8bin)" = 264
ends 0 "2 rows" "$gannet" convert hard.u8bin soft.u8bin --rows 0:2 --force
holds "a link became a file" test -L soft.u8bin
chmod 640 other.u8bin
ends 0 "3 rows" "$gannet" convert small.u8bin other.u8bin --rows 0:3 --force
holds "permissions changed" test "$(stat -c %a other.u8bin)" = 640
# What is no file is not replaced by one.
mkfifo pipe.ann
mkdir folder.ann
ends 1 "pipe.ann: is no regular file" "$gannet" build small.u8bin pipe.ann --force
ends 1 "folder.ann: is a folder" "$gannet" build small.u8bin folder.ann --force
mknod null.ann c 1 3 2> log &&
  ends 1 "null.ann: is no regular file" "$gannet" build small.u8bin null.ann --force

# Outputs are looked at before inputs are read: these inputs would take the longest to be found out.
head -c 1000 rows.u8bin > short.u8bin
ends 1 "no-folder is missing" "$gannet" build short.u8bin no-folder/x.ann
ends 1 "no-folder is missing" "$gannet" search cut.orig short.u8bin -o no-folder/x.ibin
ends 1 "\".foo\" is not known" "$gannet" search cut.orig "$queries" -o x.foo
ends 1 ".npy, .u64bin, .ibin or .ivecs" "$gannet" search cut.orig "$queries" -o x.fbin
ends 1 ".npy, .u64bin, .ibin or .ivecs" "$gannet" exact "$rows" "$queries" -o x.fvecs
ends 1 "expected at least 10 of 200" "$gannet" search cut.orig "$queries" --truth found.ibin
if [ "$(id -u)" != 0 ]; then
  mkdir locked
  chmod 500 locked
  ends 1 "cannot be written" "$gannet" build short.u8bin locked/x.ann
fi
ends 2 "--device" "$gannet" exact short.u8bin "$queries" --device gpu
ends 2 "--device" "$gannet" build short.u8bin x.ann --device cuda:x

# Writes that fail, at the end and in the middle, to a full disk and to a stream that is closed.
for command in "info small.ann" "verify small.ann" "search small.ann $queries" "--help" "search --help" \
  "--version" "build small.u8bin --plan" "info small.ann --json" "search small.ann $queries --json" \
  "convert small.u8bin -" "build small.u8bin - --no-calibration" "search small.ann $queries -o -"; do
  # shellcheck disable=SC2086
  ends 1 "standard output" bash -c 'exec "$@" > /dev/full' - "$gannet" $command
  # shellcheck disable=SC2086
  ends 1 "standard output" bash -c 'exec "$@" >&-' - "$gannet" $command
done
# A closed standard output must not become the descriptor of the file that is written.
bash -c 'exec "$@" >&-' - "$gannet" convert small.u8bin closed.u8bin 2> log
same closed.u8bin small.u8bin

# Devices.
ends 0 "500 rows" "$gannet" build small.u8bin cpu.ann --device cpu --no-calibration
same cpu.ann small.ann
for command in "build small.u8bin x.ann" "search small.ann $queries" "exact small.u8bin $queries"; do
  # shellcheck disable=SC2086
  GANNET_BACKEND=cpu ends 1 "NO_DEVICE" "$gannet" $command --device cuda
  # shellcheck disable=SC2086
  GANNET_BACKEND=gpu ends 2 "\"gpu\"; expected cpu or cuda" "$gannet" $command
done
GANNET_BACKEND='' ends 0 "500 rows" "$gannet" info small.u8bin

# Ids of the caller, of 64 bits, and back.
python3 - << 'END'
import struct
def npy(name, descr, shape, values, code):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    with open(name, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        out.write(struct.pack(f"<{len(values)}{code}", *values))
large = [2**63 + 7 * i for i in range(500)]
npy("large.npy", "<u8", "(500,)", large, "Q")
npy("signed.npy", "<i8", "(500, 1)", [10**12 + i for i in range(500)], "q")
npy("narrow.npy", "<i4", "(500,)", [5000 - i for i in range(500)], "i")
npy("negative.npy", "<i8", "(500,)", [-i for i in range(500)], "q")
npy("few.npy", "<i8", "(499,)", list(range(499)), "q")
npy("twice.npy", "<i8", "(500,)", [3] * 500, "q")
npy("wide.npy", "<i8", "(250, 2)", list(range(500)), "q")
query = list(open("queries.u8bin", "rb").read()[8:8 + 2 * 128])
nan, infinite = float("nan"), float("inf")
doubles = [float(x) for x in query]
npy("double.npy", "<f8", "(2, 128)", doubles, "d")
npy("single.npy", "<f4", "(2, 128)", doubles, "f")
npy("huge.npy", "<f8", "(2, 128)", doubles[:-1] + [1e300], "d")
npy("nan.npy", "<f4", "(4, 128)", doubles + doubles[:64] + [nan] + doubles[65:128] + doubles[128:], "f")
npy("all_nan.npy", "<f4", "(2, 128)", [infinite] * 256, "f")
END
ends 0 "500 rows" "$gannet" build small.u8bin large.ann --ids large.npy
answers 'all(n["id"] >= 2**63 for q in a["neighbours"] for n in q)' \
  "$gannet" search large.ann "$queries"
ends 0 "query 0:  92233720368" "$gannet" search large.ann "$queries"
ends 1 "more than the 31 bits of this format; .npy and .u64bin have 64" \
  "$gannet" search large.ann "$queries" -o large.ibin
holds "a refused file is left" test ! -e large.ibin
ends 0 "queries" "$gannet" search large.ann "$queries" -k 3 -o wide_ids.npy
answers 'a["element"] == "u64" and a["rows"] == 200 and a["dim"] == 3' "$gannet" info wide_ids.npy
answers 'a["recall"] == 1' "$gannet" search large.ann "$queries" -k 3 --truth wide_ids.npy
answers 'a["own_ids"]' "$gannet" info large.ann
ends 0 "queries" "$gannet" search large.ann "$queries" -k 3 -o wide_ids.u64bin
answers 'a["element"] == "u64" and a["rows"] == 200 and a["dim"] == 3' "$gannet" info wide_ids.u64bin
answers 'a["recall"] == 1' "$gannet" search large.ann "$queries" -k 3 --truth wide_ids.u64bin
holds "distances stand behind the ids" test "$(stat -c %s wide_ids.u64bin)" = $((8 + 200 * 3 * 12))
ends 0 "query 0:  92233720368" "$gannet" exact small.u8bin "$queries" -k 3 --ids large.npy -o exact_ids.u64bin
answers 'a["recall"] == 1' "$gannet" search large.ann "$queries" -k 3 --procedure exact --truth exact_ids.u64bin
ends 1 "more than the 31 bits of this format" \
  "$gannet" exact small.u8bin "$queries" --ids large.npy -o exact_ids.ibin
holds "a refused file is left" test ! -e exact_ids.ibin
ends 1 "holds 499 ids; expected 500, one for each row" "$gannet" exact small.u8bin "$queries" --ids few.npy
ends 0 "500 rows" "$gannet" build small.u8bin signed.ann --ids signed.npy
ends 0 "query 0:  10000000" "$gannet" search signed.ann "$queries"
ends 0 "500 rows" "$gannet" build small.u8bin narrow.ann --ids narrow.npy
ends 1 "row 1 holds the id -1; expected 0 or more" "$gannet" build small.u8bin x.ann --ids negative.npy
ends 1 "holds 499 ids; expected 500, one for each row" "$gannet" build small.u8bin x.ann --ids few.npy
ends 1 "ANN_INVALID_ARGUMENT" "$gannet" build small.u8bin x.ann --ids twice.npy
ends 1 "expected one id" "$gannet" build small.u8bin x.ann --ids wide.npy
ends 1 "expected one id" "$gannet" build small.u8bin x.ann --ids double.npy

# All queries as JSON, or as many as it says.
"$gannet" convert "$rows" many.u8bin --rows 100:50 > log || fail "no queries"
answers 'a["shown"] == 50 == len(a["neighbours"]) and a["queries"] == 50' \
  "$gannet" search small.ann many.u8bin
answers 'a["shown"] == 50 == len(a["neighbours"])' "$gannet" exact small.u8bin many.u8bin
answers 'a["shown"] == 7 == len(a["neighbours"]) and a["queries"] == 50' \
  "$gannet" search small.ann many.u8bin --show 7
answers 'a["shown"] == 0 and a["neighbours"] == []' "$gannet" search small.ann many.u8bin --show 0
ends 0 "... and 40 more" "$gannet" search small.ann many.u8bin

# Floats of 64 bits are those of 32.
"$gannet" convert small.u8bin small.fbin > log || fail "no floats"
ends 0 "500 rows" "$gannet" build small.fbin floats.ann --no-calibration
answers 'a["element"] == "f64" and a["dim"] == 128' "$gannet" info double.npy
ends 0 "2 rows of 128 f32" "$gannet" convert double.npy double.fbin
ends 0 "2 rows of 128 f32" "$gannet" convert single.npy single.fbin
same double.fbin single.fbin
ends 0 "query 1:" "$gannet" search floats.ann double.npy
ends 1 "row 1 holds 1000000" "$gannet" search floats.ann huge.npy

# Queries with NaN are told; the others are answered.
told="1 of 4 queries hold NaN or infinity and have no neighbours: 2"
for command in "search floats.ann" "exact small.fbin"; do
  # shellcheck disable=SC2086
  ends 1 "$told" "$gannet" $command nan.npy
  # shellcheck disable=SC2086
  ends 1 "query 2:  holds NaN or infinity" "$gannet" $command nan.npy
  # shellcheck disable=SC2086
  answers '(status, a["not_finite"]) == (1, [2]) and "no neighbours: 2" in errors' \
    "$gannet" $command nan.npy
  # shellcheck disable=SC2086
  answers '[len(q) for q in a["neighbours"]] == [10, 10, 0, 10]' "$gannet" $command nan.npy
  # shellcheck disable=SC2086
  answers 'status == 1 and a["not_finite"] == [0, 1]' "$gannet" $command all_nan.npy
done

# Standard input and output, of pipes and of files, for each command.
cat rows.u8bin > /dev/null
piped() { # NAME COMMAND...: what the command writes for a pipe it writes for a file as well
  local name=$1
  shift
  checks=$((checks + 1))
  cat "$name" | "$@" > from_pipe 2> log || fail "from a pipe: $*: $(cat log)"
  "$@" < "$name" > from_file 2> log || fail "from a file: $*: $(cat log)"
  cmp from_pipe from_file || fail "pipe and file differ: $*"
}
piped small.u8bin "$gannet" build u8bin:- - --no-calibration
same from_pipe small.ann
piped small.ann "$gannet" info - --json
grep -q '"rows": 500' from_pipe || fail "info of a pipe"
piped double.npy "$gannet" info - --json
grep -q '"element": "f64"' from_pipe || fail "info of a NumPy pipe"
piped small.ann "$gannet" verify - --json
piped small.u8bin "$gannet" convert u8bin:- fvecs:-
"$gannet" convert small.u8bin small.fvecs > log
same from_pipe small.fvecs
piped double.npy "$gannet" convert - -
piped double.npy "$gannet" search floats.ann - -k 2 -o ibin:-
"$gannet" search floats.ann double.npy -k 2 -o two.ibin > log
same from_pipe two.ibin
piped floats.ann "$gannet" search - double.npy -k 2 -o ibin:-
same from_pipe two.ibin
piped double.npy "$gannet" exact small.fbin - -k 2 -o ivecs:-
piped small.fbin "$gannet" exact fbin:- double.npy -k 2 -o -
piped small.u8bin "$gannet" build u8bin:- --plan
"$gannet" convert small.fbin - 2> log | "$gannet" build - - --no-calibration 2> log | cmp - floats.ann ||
  fail "a pipeline of two"
ends 1 "the file ends" bash -c 'head -c 1000 small.u8bin | "$1" info u8bin:-' - "$gannet"
ends 3 "CORRUPT" bash -c 'head -c 1000 small.ann | "$1" verify -' - "$gannet"
ends 1 "standard input" bash -c '"$1" convert - x.fbin <&-' - "$gannet"
ends 2 "once only" "$gannet" exact - - -k 2
ends 2 "both go to standard output" "$gannet" build small.u8bin - --json
cp small.u8bin ./-.u8bin
ends 0 "500 rows" "$gannet" info ./-.u8bin
finish
