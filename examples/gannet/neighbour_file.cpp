#include "neighbour_file.h"

#include <algorithm>

namespace {

// Ids have their full width where the format leaves it open.
int32_t element_for(const std::string& path) {
  const int32_t element = element_of_name(path);
  if (element == 0) return kElementU64;
  if (is_of_ids(element)) return element;
  throw VectorFileError(path, "neighbours are written as .npy, .u64bin, .ibin or .ivecs");
}

[[noreturn]] void refuse_id(const std::string& path, uint64_t id) {
  throw VectorFileError(path, "the id " + std::to_string(id) +
                                  " has more than the 31 bits of this format; .npy and .u64bin have 64");
}

}  // namespace

Neighbours read_neighbours(const std::string& path) {
  VectorReader reader(path);
  if (!is_of_ids(reader.element())) {
    throw VectorFileError(reader.path(), "holds " + std::string(element_name(reader.stored_element())) +
                                             " values; expected ids, as .ibin, .u64bin, .ivecs or .npy");
  }
  Neighbours out;
  out.queries = reader.rows();
  out.k = reader.dim();
  out.ids = reader.read_ids(0, reader.rows(), true);
  out.distances = reader.read_distances();
  return out;
}

NeighbourWriter::NeighbourWriter(const std::string& path, uint64_t queries, uint32_t k)
    : path_(path), element_(element_for(path)), writer_(path, element_, k, queries) {}

void NeighbourWriter::check_ids(const ann_index* index) const {
  if (element_ == kElementU64) return;
  constexpr uint64_t block = 1 << 16;
  std::vector<uint64_t> ids(block);
  const uint64_t rows = info_of(index).rows;
  for (uint64_t first = 0; first < rows; first += block) {
    const uint64_t count = std::min(block, rows - first);
    ann_error error = ANN_ERROR_INIT;
    check(ann_index_ids(index, first, count, ids.data(), &error), error, "reading ids");
    ids.resize(count);
    check_ids(ids);
    ids.resize(block);
  }
}

void NeighbourWriter::check_ids(const std::vector<uint64_t>& ids) const {
  if (element_ == kElementU64) return;
  for (const uint64_t id : ids) {
    if (id > INT32_MAX) refuse_id(path_, id);
  }
}

void NeighbourWriter::write(const Neighbours& found) {
  if (element_ == kElementU64) {
    writer_.append(found.ids.data(), found.queries);
  } else {
    append_narrow(found);
  }
  const std::string ending = ending_of(path_);
  if (ending == ".ibin" || ending == ".u64bin") {
    writer_.append_tail(found.distances.data(), found.distances.size() * sizeof(float));
  }
  writer_.finish();
}

void NeighbourWriter::append_narrow(const Neighbours& found) {
  std::vector<int32_t> narrow(found.ids.size(), -1);
  for (size_t i = 0; i < narrow.size(); ++i) {
    if (found.ids[i] == ANN_ID_NONE) continue;
    if (found.ids[i] > INT32_MAX) refuse_id(path_, found.ids[i]);
    narrow[i] = static_cast<int32_t>(found.ids[i]);
  }
  writer_.append(narrow.data(), found.queries);
}
