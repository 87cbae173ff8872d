// What the programs that make GGNN's figures share: an index that ends with its scope, and how its answers are asked
// for and judged.
#pragma once

#include "twins.h"

namespace gannet::test {

struct Index {
  ann_index* index = nullptr;

  Index(const Rows& rows, const ann_build_params& params, ann_monitor* monitor) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, "create");
    const ann_matrix matrix = matrix_of(rows);
    expect_ok(ann_build(index, &matrix, nullptr, &params, monitor, &error), error, "build");
  }
  ~Index() { ann_index_free(index); }
  Index(const Index&) = delete;
};

/// The first rows of a set.
inline Rows first_of(const Rows& all, uint32_t count) {
  Rows rows(all.element, 0, all.dim, Values::kEqual, 1);
  rows.rows = count;
  rows.bytes.assign(all.bytes.begin(), all.bytes.begin() + static_cast<ptrdiff_t>(count * all.stride));
  return rows;
}

inline Answers answers_of(const ann_index* index, const Rows& queries, uint32_t k,
                          const ann_search_params& params, bool exact = false) {
  Answers answers;
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ask(index, matrix_of(queries), k, params, exact, &answers, &error), error, "search");
  return answers;
}

/// The share of answers that are no farther than the k-th true neighbour of truth_k.
inline double recall_of(const Answers& found, const Answers& truth, uint32_t k, uint32_t truth_k) {
  uint64_t hits = 0;
  for (uint64_t i = 0; i < found.ids.size(); ++i)
    hits += found.distances[i] <= truth.distances[i / k * truth_k + k - 1] ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(found.ids.size());
}

}  // namespace gannet::test
