// Layers of a graph as one section of a file, section 11 of the specification (storage.h).
#pragma once

#include <cstdint>

#include "graph/search_graph.h"
#include "storage/format.h"

namespace gannet {

/// The layers above the bottom as the words of a section.
Array<uint32_t> pack_layers(const SearchGraph& graph, const Allocator& memory);

/// Checks such words, [count], of a hostile file for a graph of `rows` rows with `degree` edges each.
void check_layers(const uint32_t* words, uint64_t count, uint32_t rows, uint32_t degree);

/// Gives a graph the layers of words, which become its own. From words that have not been checked it reads no more
/// than there are.
void unpack_layers(Array<uint32_t>&& words, SearchGraph& graph);

}  // namespace gannet
