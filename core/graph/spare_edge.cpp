#include "graph/spare_edge.h"

#include <algorithm>

namespace gannet {
namespace {

struct Places {
  uint32_t first;
  uint32_t end;
};

/// The places of a row whose edges may go. Long edges take the second half of a head's row, and the last place of others.
Places spare_places(const SearchGraph& graph, uint32_t row) {
  const uint32_t half = graph.degree / 2;
  if (graph.heads.empty()) return {half, graph.degree};
  if (std::binary_search(graph.heads.begin(), graph.heads.end(), row)) return {half / 2, half};
  return {half, std::max(graph.degree, 1u) - 1};
}

/// All places are compared: to stop at the right one takes longer.
bool leads_to(const uint32_t* edges, uint32_t degree, uint32_t target) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < degree; ++i) found |= edges[i] == target ? 1 : 0;
  return found != 0;
}

/// The rows to which a row leads lie anywhere: all their edges are on the way before the first are compared.
void prefetch_targets(const EdgeTable& table, const uint32_t* edges) {
  constexpr uint32_t kPlacesOfLine = 64 / sizeof(uint32_t);
  for (uint32_t i = 0; i < table.degree; ++i) {
    for (uint32_t j = 0; j < table.degree; j += kPlacesOfLine) __builtin_prefetch(table.row(edges[i]) + j);
  }
}

/// Whether two other edges lead where that of a row in `place` does. An edge to the row itself leads nowhere.
bool can_be_spared(const EdgeTable& table, uint32_t row, uint32_t place) {
  const uint32_t* edges = table.row(row);
  for (uint32_t i = 0; i < table.degree && edges[i] != kNoRow; ++i) {
    if (i != place && edges[i] != row && leads_to(table.row(edges[i]), table.degree, edges[place]))
      return true;
  }
  return false;
}

}  // namespace

bool insert_edge(SearchGraph& graph, uint32_t row, uint32_t target) {
  if (row == target) return false;
  const EdgeTable table = graph.table();
  uint32_t* const edges = table.row(row);
  if (leads_to(edges, table.degree, target)) return false;
  uint32_t* const free = std::find(edges, edges + table.degree, kNoRow);
  if (free != edges + table.degree) {
    *free = target;
    return true;
  }
  prefetch_targets(table, edges);
  const Places places = spare_places(graph, row);
  for (uint32_t place = places.end; place > places.first; --place) {
    if (!can_be_spared(table, row, place - 1)) continue;
    edges[place - 1] = target;
    return true;
  }
  return false;
}

}  // namespace gannet
