#!/usr/bin/env bash
# The ten tasks of README.md on the command line: with the folder of the examples' data, in an empty folder.
#
#   tasks.sh DATA      gannet is in PATH
set -euo pipefail
cd "$(mktemp -d)"
rows=$1/sift_10k.u8bin queries=$1/sift_queries.u8bin

# 1: it is there
gannet --version

# 2: the ten nearest of some rows
gannet build "$rows" points.gannet
gannet search points.gannet "$queries" -k 10 --show 2

# 3: how many of the true neighbours are found, and more of them
gannet exact "$rows" "$queries" -k 10 -o truth.ibin --show 0
gannet search points.gannet "$queries" --truth truth.ibin --show 0
gannet search points.gannet "$queries" --truth truth.ibin --show 0 --recall 0.99

# 4: saved here, opened elsewhere
cp points.gannet elsewhere.gannet
gannet verify elsewhere.gannet
gannet info elsewhere.gannet

# 5: cosine, and half the memory
gannet convert "$rows" rows.fbin
gannet build rows.fbin halves.gannet --metric cosine --element f16
gannet info halves.gannet | grep f16

# 6: names of rows
python3 -c 'import sys, struct
sys.stdout.buffer.write(struct.pack("<II10000Q", 10000, 1, *range(10**12, 10**12 + 10000)))' > names.u64bin
gannet build "$rows" named.gannet --ids names.u64bin
gannet search named.gannet "$queries" -k 1 --show 1 | grep "1000000"

# 7: what a build takes, beforehand
gannet build "$rows" --plan

# 8: a long build, watched and stopped
status=0
timeout --signal INT 0.2 gannet build rows.fbin stopped.gannet --knn exact --threads 1 || status=$?
[ $status != 0 ] && [ ! -e stopped.gannet ]

# 9: searches by many threads, and by one
gannet search points.gannet "$queries" --show 0
gannet search points.gannet "$queries" --show 0 --threads 1

# 10: wrong input says what is wrong
gannet convert rows.fbin narrow.npy --rows 0:3
for wrong in "search points.gannet truth.ibin" "search points.gannet no-such.npy" \
  "build $rows $queries" "search points.gannet $queries --recall 1.5"; do
  # shellcheck disable=SC2086
  if gannet $wrong; then exit 1; fi
done
echo "tasks: command line: 10"
