#!/usr/bin/env bash
# One library beside itself finds the same rows by the same distances.
#
#   two_builds_test.sh TWO_BUILDS LIBRARY DATA
set -euo pipefail
lines=$("$1" "$2" "$2" "$3/sift_10k.u8bin" "$3/sift_queries.u8bin" --builds 1 --rounds 1 --batch 1,100 --beam 32)
echo "$lines"
echo "$lines" | awk '
  /^build/ { builds += 1 }
  /^k/ {
    calls += 1
    for (i = 1; i < NF; ++i) {
      if ($i == "recall") { gsub(",", ""); if ($(i + 1) != $(i + 2) || $(i + 1) < 0.9) exit 1 }
      if ($i == "distances" && ($(i + 1) != $(i + 2) || $(i + 1) < 32)) exit 1
    }
  }
  END { if (builds != 1 || calls != 6) exit 1 }'
