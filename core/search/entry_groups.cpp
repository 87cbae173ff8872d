#include "search/entry_groups.h"

#include <algorithm>

namespace gannet {

/// Leaders are spread over the entry points, which are spread over the rows: so groups of dense regions are no larger.
EntryGroups::EntryGroups(const Codes& codes, const SearchGraph& graph, const Allocator& memory) {
  const auto count = static_cast<uint32_t>(graph.entries.size());
  const uint32_t leaders = leaders_of(codes, graph);
  if (leaders == 0) return;
  for (uint32_t i = 0; i < leaders; ++i) leaders_[i] = graph.entries[i * count / leaders];
  leader_count_ = leaders;

  Array<uint8_t> group_of(memory, count);
  Array<uint8_t> code(memory, codes.stride());
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t distances[kLeadersMax];
    codes.gather(&graph.entries[i], 1, code.data());
    codes.distances(code.data(), leaders_, leaders, distances);
    group_of[i] = static_cast<uint8_t>(std::min_element(distances, distances + leaders) - distances);
    ++begins_[group_of[i] + 1];
  }
  for (uint32_t i = 0; i < leaders; ++i) begins_[i + 1] += begins_[i];
  members_ = Array<uint32_t>(memory, count);
  uint32_t ends[kLeadersMax];
  std::copy_n(begins_, leaders, ends);
  for (uint32_t i = 0; i < count; ++i) members_[ends[group_of[i]]++] = graph.entries[i];
}

uint32_t EntryGroups::choose(const uint32_t* distances, uint32_t* rows) const {
  uint64_t order[kLeadersMax];
  for (uint32_t i = 0; i < leader_count_; ++i) order[i] = uint64_t{distances[i]} << 32 | i;
  const uint32_t chosen = std::min(kChosen, leader_count_);
  std::partial_sort(order, order + chosen, order + leader_count_);
  uint32_t count = 0;
  for (uint32_t i = 0; i < chosen; ++i) {
    const auto group = static_cast<uint32_t>(order[i]);
    for (uint32_t member = begins_[group]; member < begins_[group + 1]; ++member)
      rows[count++] = members_[member];
  }
  return count;
}

}  // namespace gannet
