// Target "canary": a reader with a planted defect, which must be found. It proves that files, mutator,
// repair, sanitizers and reports work together: a fuzzer that finds nothing here finds nothing at all.
//
// The defect is the usual one. The product says that a file is in order, the header says how many edges
// were spent on reachability, and this reader believes that number when it looks at the last of them.
// No check of the product is needed for that field, since the product uses it for nothing.
#include "opening.h"
#include "packed_file.h"
#include "repair.h"

using namespace gannet;
using namespace gannet::fuzz;

namespace {

volatile uint32_t last_repaired_edge;

void look_at_last_repaired_edge(const ann_index* index, const format::Header& header) {
  std::vector<uint32_t> edges(header.rows * header.degree);
  uint32_t degree = 0;
  if (edges.empty() || ann_index_graph(index, edges.data(), edges.size(), &degree, nullptr) != ANN_OK) return;
  last_repaired_edge = edges.data()[header.repaired_edges];  // the planted defect
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> file = unpack(data, size);
  const PagedBytes bytes(file);
  BoundedContext context(open_budget(file.size()));
  ann_index* index = nullptr;
  if (open_bytes(context, bytes, Way::kMemory, ANN_OPEN_FULL, 1, &index) == ANN_OK)
    look_at_last_repaired_edge(index, header_of(file));
  ann_index_free(index);
  return 0;
}
