// Beam and visited set against the standard library's containers.

#include <set>

#include "base/random.h"
#include "catch.h"
#include "traverse/beam.h"
#include "traverse/visited.h"

using namespace gannet;

TEST_CASE("a beam holds the nearest rows and pops the nearest unexpanded one") {
  for (uint32_t capacity : {1u, 2u, 7u, 32u}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      std::vector<uint64_t> keys(capacity + 1);
      Beam beam(keys.data(), capacity);
      std::set<std::pair<uint32_t, uint32_t>> reference;
      std::set<uint32_t> expanded;
      for (uint32_t row = 0; row < 120; ++row) {
        // Few distinct distances, so that many are equal.
        const uint32_t distance = static_cast<uint32_t>(random_below(40, seed, 1, row));
        beam.insert(distance, row);
        reference.insert({distance, row});
        if (reference.size() > capacity) reference.erase(std::prev(reference.end()));
        if (row % 3 == 0) {
          const auto next = std::find_if(reference.begin(), reference.end(), [&](const auto& entry) {
            return expanded.count(entry.second) == 0;
          });
          const uint32_t wanted = next == reference.end() ? kNoRow : next->second;
          REQUIRE(beam.peek() == wanted);
          REQUIRE(beam.pop() == wanted);
          if (wanted != kNoRow) expanded.insert(wanted);
        }
        REQUIRE(beam.size() == reference.size());
        uint32_t place = 0;
        for (const auto& [near, who] : reference) {
          REQUIRE(RowKey::distance(beam.key(place)) == near);
          REQUIRE(RowKey::row(beam.key(place)) == who);
          REQUIRE(RowKey::flag(beam.key(place)) == (expanded.count(who) != 0));
          ++place;
        }
        REQUIRE(beam.limit() == (reference.size() < capacity ? UINT32_MAX
                                                             : std::prev(reference.end())->first));
      }
    }
  }
}

TEST_CASE("visited tells new rows from met ones and forgets all at once") {
  constexpr uint32_t kRows = 70000;
  Visited visited({}, kRows);
  for (const uint32_t count : {10u, 9000u, kRows}) {  // few touched words, many, all
    for (int round = 0; round < 2; ++round) {
      std::set<uint32_t> reference;
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t row = static_cast<uint32_t>(random_below(kRows, count, round, i));
        REQUIRE(visited.enter(row) == reference.insert(row).second);
      }
      visited.clear();
    }
  }
  for (uint32_t row = 0; row < kRows; ++row) REQUIRE(visited.enter(row));
}
