#include "storage/layers.h"

#include <algorithm>

#include "storage/map.h"

namespace gannet {

using namespace format;

Array<uint32_t> pack_layers(const SearchGraph& graph, const Allocator& memory) {
  uint64_t count = kLayerWords;
  for (const GraphLayer& layer : graph.upper) count += layer.base_rows.size() + layer.edges.size();
  Array<uint32_t> words = Array<uint32_t>::zeroed(memory, count);
  words[0] = static_cast<uint32_t>(graph.upper.size());
  uint32_t* out = words.data() + kLayerWords;
  for (size_t i = 0; i < graph.upper.size(); ++i) {
    const GraphLayer& layer = graph.upper[i];
    words[1 + i] = layer.rows;
    out = std::copy(layer.base_rows.begin(), layer.base_rows.end(), out);
    out = std::copy(layer.edges.begin(), layer.edges.end(), out);
  }
  return words;
}

void check_layers(const uint32_t* words, uint64_t count, uint32_t rows, uint32_t degree) {
  if (count < kLayerWords || words[0] >= kLayerWords) fail_corrupt("the number of layers is not sound");
  uint64_t wanted = kLayerWords;
  for (uint32_t i = 1; i < kLayerWords; ++i) {
    if (i > words[0] ? words[i] != 0 : words[i] == 0 || words[i] > rows)
      fail_corrupt("layer %u has %u rows", i, words[i]);
    wanted += words[i] * (uint64_t{1} + degree);
  }
  if (wanted != count) fail_corrupt("the layers do not fill their section");
  const uint32_t* at = words + kLayerWords;
  uint32_t below = rows;
  for (uint32_t i = 1; i <= words[0]; ++i) {
    const uint32_t own = words[i];
    for (uint32_t row = 0; row < own; ++row) {
      if (at[row] >= below || (row > 0 && at[row] <= at[row - 1]))
        fail_corrupt("rows of layer %u are not ascending rows of the layer below", i);
    }
    at += own;
    for (uint64_t place = 0; place < uint64_t{own} * degree; ++place) {
      if (at[place] == kNoRow) continue;
      if (at[place] >= own) fail_corrupt("an edge of layer %u leads to a row that is not there", i);
      if (place % degree != 0 && at[place - 1] == kNoRow)
        fail_corrupt("an edge of layer %u stands behind an unused place", i);
    }
    at += uint64_t{own} * degree;
    below = own;
  }
}

void unpack_layers(Array<uint32_t>&& words, SearchGraph& graph) {
  graph.upper_words = std::move(words);
  graph.upper.clear();
  const uint64_t size = graph.upper_words.size();
  if (size < kLayerWords) return;  // of a file that was trusted
  const uint32_t* at = graph.upper_words.data() + kLayerWords;
  const uint32_t* end = graph.upper_words.data() + size;
  for (uint32_t i = 1; i <= std::min(graph.upper_words[0], kLayerWords - 1); ++i) {
    GraphLayer layer;
    layer.rows = graph.upper_words[i];
    layer.degree = graph.degree;
    if (layer.rows * (uint64_t{1} + layer.degree) > static_cast<uint64_t>(end - at)) return;
    layer.base_rows = Array<uint32_t>::over(at, layer.rows);
    at += layer.rows;
    layer.edges = Array<uint32_t>::over(at, uint64_t{layer.rows} * layer.degree);
    at += layer.edges.size();
    graph.upper.push_back(std::move(layer));
  }
}

}  // namespace gannet
