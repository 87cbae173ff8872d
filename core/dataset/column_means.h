// Means of columns, summed as doubles in the order of rows, so that their bits are the same for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/execution.h"

namespace gannet {

/// The means of values [rows, columns], at least one row; a task has some columns of all rows.
inline void find_column_means(const float* values, uint32_t rows, uint32_t columns,
                              const Execution& execution, float* means) {
  constexpr uint64_t kTogether = 32;  // two cache lines of a row
  parallel_for(execution, columns, kTogether, [&](uint64_t begin, uint64_t end, uint32_t) {
    double sums[kTogether] = {};
    for (uint32_t i = 0; i < rows; ++i) {
      const float* row = values + size_t{i} * columns;
      for (uint64_t column = begin; column < end; ++column) sums[column - begin] += row[column];
    }
    for (uint64_t column = begin; column < end; ++column)
      means[column] = static_cast<float>(sums[column - begin] / rows);
  });
}

}  // namespace gannet
