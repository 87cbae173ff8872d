// Beam and visited set against the standard library's containers.

#include <set>
#include <vector>

#include "base/random.h"
#include "catch.h"
#include "traverse/beam.h"
#include "traverse/visited.h"

using namespace gannet;

TEST_CASE("a beam holds the nearest rows and pops the nearest unexpanded one") {
  // 600 is merged where others sink in; some rows come one by one, some many at once.
  for (const uint32_t capacity : {1u, 2u, 7u, 32u, 100u, 250u, 600u}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<uint64_t> keys(Beam::room(capacity));
      Beam beam(keys.data(), capacity);
      std::set<std::pair<uint32_t, uint32_t>> reference;
      std::set<uint32_t> expanded;
      for (uint32_t row = 0; row < 4 * capacity + 100;) {
        std::vector<uint32_t> distances;
        std::vector<uint32_t> rows;
        for (uint64_t more = random_below(70, seed, 2, row) % 5 == 0 ? 1 : 70; more > 0; --more) {
          // Few distinct distances, so that many are equal.
          distances.push_back(static_cast<uint32_t>(random_below(2 * capacity, seed, 1, row)));
          rows.push_back(row);
          reference.insert({distances.back(), row++});
          if (reference.size() > capacity) reference.erase(std::prev(reference.end()));
        }
        beam.insert(distances.data(), rows.data(), static_cast<uint32_t>(rows.size()));
        for (uint64_t more = random_below(5, seed, 3, row); more > 0; --more) {
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
        for (const auto& [near, who] : reference)
          REQUIRE(beam.key(place++) == RowKey::of(near, who, expanded.count(who) != 0));
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

TEST_CASE("rows that are entered together are told apart like rows that come one by one") {
  constexpr uint32_t kRows = 70000;
  Visited visited({}, kRows);
  for (int round = 0; round < 3; ++round) {
    std::set<uint32_t> reference;
    for (uint32_t step = 0; step < (round == 1 ? 2000u : 40u); ++step) {
      std::vector<uint32_t> rows;
      for (uint32_t i = 0; i < 32; ++i)  // some near each other, and some twice
        rows.push_back(static_cast<uint32_t>(random_below(i % 2 == 0 ? 300 : kRows, step, round, i)));
      const uint32_t count = step % 7 == 0 ? 20 : 32;  // the rest unused
      for (uint32_t i = count; i < 32; ++i) rows[i] = kNoRow;
      std::vector<uint32_t> expected;
      for (uint32_t i = 0; i < count; ++i) {
        if (reference.insert(rows[i]).second) expected.push_back(rows[i]);
      }
      std::vector<uint32_t> fresh(32);
      fresh.resize(visited.enter(rows.data(), 32, fresh.data()));
      REQUIRE(fresh == expected);
    }
    visited.clear();
  }
}
