// Measures of a graph: components, degrees, two-hop counts (CAGRA, section III-A).

#include <algorithm>

#include "base/random.h"
#include "graph/search_graph.h"

namespace gannet {
namespace {

uint64_t weak_components(const SearchGraph& graph, const Allocator& memory) {
  Array<uint32_t> parent(memory, graph.rows);
  for (uint32_t row = 0; row < graph.rows; ++row) parent[row] = row;
  const auto root = [&](uint32_t row) {
    while (parent[row] != row) row = parent[row] = parent[parent[row]];
    return row;
  };
  uint64_t components = graph.rows;
  for (uint32_t row = 0; row < graph.rows; ++row) {
    for (const uint32_t target : graph.row(row)) {
      if (target == kNoRow) break;
      const uint32_t a = root(row);
      const uint32_t b = root(target);
      if (a == b) continue;
      parent[std::max(a, b)] = std::min(a, b);
      --components;
    }
  }
  return components;
}

/// Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972) with its own stack.
void strong_components(const SearchGraph& graph, const Allocator& memory, ann_graph_stats* out) {
  const uint32_t rows = graph.rows;
  Array<uint32_t> index = Array<uint32_t>::zeroed(memory, rows);  // order of discovery, from 1
  Array<uint32_t> low(memory, rows);
  Array<uint32_t> next_edge = Array<uint32_t>::zeroed(memory, rows);
  Array<uint32_t> path(memory, rows);  // the depth-first path
  Array<uint32_t> open(memory, rows);  // rows whose component is not closed
  Array<uint8_t> is_open = Array<uint8_t>::zeroed(memory, rows);
  uint32_t discovered = 0;
  uint32_t open_count = 0;
  for (uint32_t start = 0; start < rows; ++start) {
    if (index[start] != 0) continue;
    uint32_t depth = 0;
    const auto discover = [&](uint32_t row) {
      index[row] = low[row] = ++discovered;
      open[open_count++] = row;
      is_open[row] = 1;
      path[depth++] = row;
    };
    discover(start);
    while (depth > 0) {
      const uint32_t row = path[depth - 1];
      const uint32_t edge = next_edge[row]++;
      const AdjacencyRow edges = graph.row(row);
      const uint32_t target = edge < edges.length ? edges.targets[edge] : kNoRow;
      if (target != kNoRow) {
        if (index[target] == 0) {
          discover(target);
        } else if (is_open[target] != 0) {
          low[row] = std::min(low[row], index[target]);
        }
        continue;
      }
      --depth;
      if (depth > 0) low[path[depth - 1]] = std::min(low[path[depth - 1]], low[row]);
      if (low[row] != index[row]) continue;
      uint64_t size = 0;
      uint32_t member;
      do {
        member = open[--open_count];
        is_open[member] = 0;
        ++size;
      } while (member != row);
      ++out->strong_components;
      out->largest_strong = std::max(out->largest_strong, size);
    }
  }
}

double two_hop_mean(const SearchGraph& graph, uint32_t samples, uint64_t seed, const Allocator& memory) {
  if (graph.rows == 0) return 0;
  Array<uint32_t> sample(memory, samples);
  random_strata(graph.rows, samples, seed, kTwoHopStream, sample.data());
  Array<uint32_t> seen = Array<uint32_t>::zeroed(memory, graph.rows);  // 1 + place in the sample
  uint64_t total = 0;
  for (uint32_t i = 0; i < samples; ++i) {
    const auto enter = [&](uint32_t row) {
      if (seen[row] == i + 1) return;
      seen[row] = i + 1;
      ++total;
    };
    seen[sample[i]] = i + 1;
    for (const uint32_t first : graph.row(sample[i])) {
      if (first == kNoRow) break;
      enter(first);
      for (const uint32_t second : graph.row(first)) {
        if (second == kNoRow) break;
        enter(second);
      }
    }
  }
  return static_cast<double>(total) / samples;
}

}  // namespace

void measure_graph(const SearchGraph& graph, uint64_t seed, const Allocator& memory, ann_graph_stats* out) {
  const DiversifiedEdges& edges = graph.diversified;
  const uint32_t samples = two_hop_sample(graph.rows, out->two_hop_rows);
  const uint32_t given[] = {out->struct_size, out->two_hop_rows};
  *out = ANN_GRAPH_STATS_INIT;
  out->struct_size = given[0];
  out->two_hop_rows = given[1];
  out->degree = graph.degree;
  out->rows = graph.rows;
  out->knn_edges = edges.given;
  out->relaxed_edges = edges.relaxed;
  out->joined_edges = edges.joined;
  out->soft_edges = edges.soft;
  out->occlusion_levels = graph.levels;
  Array<uint32_t> in_degree = Array<uint32_t>::zeroed(memory, graph.rows);
  for (uint32_t row = 0; row < graph.rows; ++row) {
    for (const uint32_t target : graph.row(row)) {
      if (target == kNoRow) break;
      ++in_degree[target];
      ++out->edges;
    }
  }
  if (graph.rows > 0) {
    out->in_degree_min = *std::min_element(in_degree.begin(), in_degree.end());
    out->in_degree_max = *std::max_element(in_degree.begin(), in_degree.end());
  }
  out->unreachable = count_unreachable(graph, memory);
  out->weak_components = weak_components(graph, memory);
  strong_components(graph, memory, out);
  out->two_hop_mean = two_hop_mean(graph, samples, seed, memory);
}

}  // namespace gannet
