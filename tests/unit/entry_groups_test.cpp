// Groups of entry points: each entry point is in that of its nearest leader, and the nearest groups are found.

#include "search/entry_groups.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/random.h"
#include "catch.h"

using namespace gannet;

namespace {

constexpr uint32_t kRows = 4000;
constexpr uint32_t kDim = 20;

/// Rows in clusters, with a graph without edges that starts at `entries` of them.
struct Made {
  std::vector<uint8_t> bytes;
  Dataset dataset;
  Codes codes;
  SearchGraph graph;

  explicit Made(uint32_t entries)
      : bytes(make_bytes()),
        dataset({bytes.data(), kRows, kDim, ANN_U8, kDim}, nullptr, ANN_METRIC_L2, 0, false, {}),
        codes(dataset, 1, Execution()) {
    graph.rows = kRows;
    graph.entries = choose_entries(kRows, entries, 3, {});
  }

  static std::vector<uint8_t> make_bytes() {
    std::vector<uint8_t> bytes(size_t{kRows} * kDim);
    for (uint32_t row = 0; row < kRows; ++row) {
      for (uint32_t column = 0; column < kDim; ++column)
        bytes[row * kDim + column] =
            static_cast<uint8_t>(random_below(200, 1, row % 40, column) + random_below(30, 2, row, column));
    }
    return bytes;
  }

  std::vector<uint32_t> distances(uint32_t row, const uint32_t* to, uint32_t count) const {
    std::vector<uint8_t> code(codes.stride());
    codes.gather(&row, 1, code.data());
    std::vector<uint32_t> distances(count);
    codes.distances(code.data(), to, count, distances.data());
    return distances;
  }
};

}  // namespace

TEST_CASE("a walk with a short list starts from the groups of the nearest leaders") {
  for (const uint32_t count : {65u, 200u, 256u}) {
    CAPTURE(count);
    const Made made(count);
    const EntryGroups groups(made.codes, made.graph, {});
    REQUIRE((groups.serve(1) && groups.serve(EntryGroups::kListMost)));
    REQUIRE_FALSE(groups.serve(EntryGroups::kListMost + 1));
    const uint32_t leaders = groups.leader_count();
    REQUIRE((leaders >= 16 && leaders <= 32));
    std::vector<uint32_t> rows(count);
    std::set<uint32_t> all;
    size_t compared = 0;
    for (const uint32_t entry : made.graph.entries) {
      const std::vector<uint32_t> near = made.distances(entry, groups.leaders(), leaders);
      const uint32_t chosen = groups.choose(near.data(), rows.data());
      compared += chosen;
      // Its own group comes first, and no row twice.
      const std::set<uint32_t> found(rows.begin(), rows.begin() + chosen);
      REQUIRE(found.size() == chosen);
      REQUIRE(found.count(entry) == 1);
      const auto nearest = std::min_element(near.begin(), near.end()) - near.begin();
      REQUIRE(found.count(groups.leaders()[nearest]) == 1);
      all.insert(found.begin(), found.end());
    }
    REQUIRE(all == std::set<uint32_t>(made.graph.entries.begin(), made.graph.entries.end()));
    REQUIRE(leaders + compared / count < count);
    REQUIRE(EntryGroups::compared_of(made.codes, made.graph) < count);
  }
}

TEST_CASE("few entry points are one group") {
  const Made few(kEntryPoints);
  REQUIRE_FALSE(EntryGroups(few.codes, few.graph, {}).exist());
  REQUIRE(EntryGroups::compared_of(few.codes, few.graph) == kEntryPoints);
}
