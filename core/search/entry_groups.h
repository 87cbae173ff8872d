// EntryGroups: where a walk of the CPU starts without comparing every entry point.
//
// The entry points are grouped around some of them, the leaders: each belongs to its nearest leader. A walk with a short
// list, or a small slack, compares the leaders, and then the entry points of the nearest groups alone: 64 rows instead
// of 256, which are there where rows lie in islands or have copies (graph/long_edges.h) or the graph has layers
// (graph/ggnn.h), and of which a short walk otherwise compares more than of all other rows together. Time of a query and
// distances for the recall asked (k = 10, one thread of an AMD EPYC with AVX-512 VNNI, the best of nine rounds):
//
//                   .90                          .95
//     patches       4.1 us  211, all 5.9  380    4.8  254, 7.3  423
//     texts         7.2     345      8.9  507   11.5  509 (.974 got), 12.0  609 (.966)
//
// 13 made sets of 100,000 rows in islands or with copies take .45 to .9 of the distances for .8 to .95.
//
// A walk that starts in the wrong group may never come to the right island. So longer lists and larger slacks, which
// calibration chooses for more recall than short ones promise, start from all entry points: of the corners of a cube .99 is
// found so in 620 distances, and from groups by no list that costs less than all rows. And calibration doubts walks from
// groups more (tune/calibration.cpp). Without one, or with one of a file that was measured from all entry points, so walk
// all.
//
// Rejected: groups for all lists and slacks (corners and one-hot rows were compared with all rows, and .999 of near copies
// got .9955); fewer entry points (64 of them for all: so were six of the 13 sets); groups of the 64 entry points of other
// sets (24 distances less, no time); two groups instead of four (.88 of the distances for .90 of patches, but up to 1.55
// times as many for .95 of corners and echoes), also where a sample of 512 queries loses no more than .002 so (100 queries
// of duplicates got .861 of .9 then, .892 from four). By inner product near rows are no groups of near products: all entry
// points are compared.
#pragma once

#include <cstdint>

#include "dataset/codes.h"
#include "graph/search_graph.h"

namespace gannet {

class EntryGroups {
 public:
  EntryGroups(const Codes& codes, const SearchGraph& graph, const Allocator& memory);

  /// Entry points that a walk that is to start from groups compares, about; all where there are none.
  static double compared_of(const Codes& codes, const SearchGraph& graph) {
    const uint32_t leaders = leaders_of(codes, graph);
    const auto entries = static_cast<double>(graph.entries.size());
    return leaders == 0 ? entries : leaders + kChosen * entries / leaders;
  }

  bool exist() const { return leader_count_ != 0; }

  /// Whether there are groups for a walk with a list of `length`.
  bool serve(uint32_t length) const { return exist() && length <= kListMost; }

  /// Entry points that are compared to choose groups.
  uint32_t leader_count() const { return leader_count_; }
  const uint32_t* leaders() const { return leaders_; }

  /// Writes the entry points of the groups whose leaders are nearest; how many. There is room for all.
  uint32_t choose(const uint32_t* distances, uint32_t* rows) const;

  /// The longest list of walks that start from groups: one that calibration tries, so that no promise lies between its walks
  /// and those of longer lists.
  static constexpr uint32_t kListMost = 31;
  /// The largest slack of such walks, likewise.
  static constexpr float kSlackMost = 0.08f;

  uint64_t bytes() const { return members_.bytes(); }

 private:
  /// 0: all entry points are one group.
  static uint32_t leaders_of(const Codes& codes, const SearchGraph& graph) {
    const size_t entries = graph.entries.size();
    if (entries <= kEntryPoints || codes.scaled() != nullptr) return 0;
    uint32_t leaders = kLeadersMax;
    while (leaders * leaders > 4 * entries) leaders /= 2;  // groups of four and more
    return leaders;
  }

  static constexpr uint32_t kLeadersMax = 32;
  static constexpr uint32_t kChosen = 4;

  Array<uint32_t> members_;  // [entry points] group by group
  uint32_t begins_[kLeadersMax + 1] = {};
  uint32_t leaders_[kLeadersMax] = {};
  uint32_t leader_count_ = 0;
};

}  // namespace gannet
