// Proves that a hostile file with rows of varying length (TSDG), whose sums are good, is refused or harmless: prefixes
// that fall, rows longer than the header or the edges allow, edges to nowhere, features and levels that do not fit.
// What opens is searched and read whole; a sanitizer sees who leaves the file.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.h"
#include "forged.h"
#include "support.h"

using namespace fault;
using namespace gannet::format;

namespace {

constexpr uint32_t kRowCount = 60;
constexpr uint32_t kDim = 6;

int64_t append(void* user, const void* data, uint64_t bytes) {
  auto* out = static_cast<std::vector<uint8_t>*>(user);
  const auto* from = static_cast<const uint8_t*>(data);
  out->insert(out->end(), from, from + bytes);
  return static_cast<int64_t>(bytes);
}

Bytes made_file() {
  vectors rows = vectors_make(DATA_NORMAL, ANN_U8, kRowCount, kDim, 7);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_TSDG;
  params.occlusion_bound = 4;
  const Index index(index_build(ANN_METRIC_L2, &rows, &params));
  std::vector<uint8_t> bytes;
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = append;
  writer.user = &bytes;
  CHECK_OK(ann_save_stream(index.get(), &writer, nullptr, nullptr, nullptr));
  vectors_free(&rows);
  return Bytes(bytes.data(), bytes.size());
}

/// Where an item of a section lies.
uint64_t place_of(const Bytes& file, uint32_t type, uint64_t byte) {
  for (const Section& section : table_of(file)) {
    if (section.type == type) return section.offset + byte;
  }
  std::abort();
}

template <class Number>
void put(Bytes& file, uint64_t at, Number value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

/// Opens and uses a file; what the open answers.
ann_status use(const Bytes& file, int32_t mode) {
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = mode;
  params.threads = 1;
  ann_index* opened = nullptr;
  const ann_status status =
      ann_open_memory(nullptr, file.data(), file.size(), &params, &opened, nullptr, nullptr);
  const Index index(opened);
  if (status != ANN_OK) return status;
  uint32_t degree = 0;
  CHECK_OK(ann_index_graph(opened, nullptr, 0, &degree, nullptr));
  std::vector<uint32_t> edges(uint64_t{kRowCount} * degree);
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  const ann_status read = ann_index_graph(opened, edges.data(), edges.size(), &degree, nullptr);
  CHECK(read == ANN_OK || read == ANN_CORRUPT);
  if (read == ANN_OK) CHECK_OK(ann_index_graph_stats(opened, &stats, nullptr));
  const uint8_t query[kDim] = {3, 1, 4, 1, 5, 9};
  ann_matrix view = ANN_MATRIX_INIT;
  view.element = ANN_U8;
  view.data = query;
  view.rows = 1;
  view.dim = kDim;
  for (int32_t procedure :
       {ANN_SEARCH_BEST_FIRST, ANN_SEARCH_TSDG, ANN_SEARCH_TSDG_SMALL, ANN_SEARCH_TSDG_LARGE}) {
    for (uint32_t occlusion_max : {1u, 4u, 64u}) {
      ann_search_params search = ANN_SEARCH_PARAMS_INIT;
      search.procedure = procedure;
      search.occlusion_max = occlusion_max;
      uint64_t ids[5];
      ann_results results = ANN_RESULTS_INIT;
      results.k = 5;
      results.rows = 1;
      results.ids = ids;
      const ann_status searched = ann_search_batch(opened, &view, &search, &results, nullptr, nullptr);
      CHECK(searched == ANN_OK || searched == ANN_CORRUPT);
      for (uint32_t i = 0; searched == ANN_OK && i < 5; ++i)
        CHECK(ids[i] < kRowCount || ids[i] == ANN_ID_NONE);
    }
  }
  return status;
}

void refused(Bytes file, const char* what, ann_status wanted = ANN_CORRUPT) {
  mend(file, Mending::kAll);
  const ann_status status = use(file, ANN_OPEN_FULL);
  CHECK_SAY(status == wanted, "%s: FULL answers %s", what, ann_status_name(status));
  const ann_status lazy = use(file, ANN_OPEN_LAZY);
  CHECK_SAY(lazy == wanted || lazy == ANN_OK, "%s: LAZY answers %s", what, ann_status_name(lazy));
}

}  // namespace

int main() {
  const Bytes file = made_file();
  const uint64_t prefixes = place_of(file, kPrefixes, 0);
  const uint64_t edges = place_of(file, kEdges, 0);
  CHECK_EQUAL(use(file, ANN_OPEN_FULL), ANN_OK);
  CHECK_EQUAL(use(file, ANN_OPEN_LAZY), ANN_OK);
  const auto changed = [&](uint64_t at, auto value) {
    Bytes copy = file;
    put(copy, at, value);
    return copy;
  };
  uint16_t last = 0;
  std::memcpy(&last, file.data() + prefixes + 3 * sizeof(uint16_t), sizeof last);
  refused(changed(prefixes, uint16_t(last + 1)), "a prefix that falls");
  refused(changed(prefixes + 6, uint16_t(last + 1)), "a row that is longer than there are edges");
  refused(changed(prefixes + 6, uint16_t{0xffff}), "a row that is longer than the header says");
  refused(changed(edges, uint32_t{0xffffffff}), "an unused place");
  refused(changed(edges, kRowCount), "an edge to no row");
  refused(changed(offsetof(Header, features_to_read), uint64_t{0}), "no feature");
  refused(changed(offsetof(Header, features_to_read), uint64_t{10}), "a feature of later", ANN_VERSION);
  refused(changed(offsetof(Header, graph), uint32_t{kGraphCagra}), "another graph");
  refused(changed(offsetof(Header, degree), uint32_t{2}), "a degree below that of rows");

  // Anything in the two sections: refused, or harmless.
  uint64_t state = 3;
  uint64_t opened = 0;
  const int files = 4000 / test_scale();
  for (int i = 0; i < files; ++i) {
    Bytes copy = file;
    for (uint64_t change = 0; change <= random_next(&state) % 3; ++change) {
      const bool of_prefixes = random_next(&state) % 2 == 0;
      const uint64_t row = random_next(&state) % kRowCount;
      if (of_prefixes)
        put(copy, prefixes + row * 8 + random_next(&state) % 4 * 2, uint16_t(random_next(&state) % 70));
      else
        put(copy, edges + row * 4, uint32_t(random_next(&state) % (2 * kRowCount)));
    }
    mend(copy, Mending::kAll);
    opened += use(copy, ANN_OPEN_FULL) == ANN_OK ? 1 : 0;
    use(copy, ANN_OPEN_LAZY);
  }
  CHECK(opened > 0 && opened < static_cast<uint64_t>(files));
  return finish("rows of varying length");
}
