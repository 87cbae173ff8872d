#include "knn/products.h"

#include <algorithm>
#include <cmath>

#include "base/row_loops.h"

namespace gannet {
namespace {

/// The squared length of the vector that a code of bytes stands for, in squares of its step.
double squared_length(const Codes& codes, uint32_t row, uint32_t dim) {
  const uint8_t* code = codes.row(row);
  const bool plain = codes.centre().empty();  // the rows themselves
  double sum = 0;
  for (uint32_t column = 0; column < dim; ++column) {
    const double value =
        codes.flip() != 0 ? static_cast<double>(static_cast<int8_t>(code[column]))
        : plain           ? static_cast<double>(code[column])
                : static_cast<double>(codes.centre()[column]) * codes.inverse_step() + code[column] - 128.0;
    sum += value * value;
  }
  return sum;
}

}  // namespace

std::optional<Array<uint32_t>> product_offsets(const Codes& codes, uint32_t dim, const Execution& execution) {
  if (codes.wide()) return std::nullopt;
  Array<double> squares(execution.memory, codes.rows());
  parallel_for(execution, codes.rows(), items_per_task(dim, 4096),
               [&](uint64_t begin, uint64_t end, uint32_t) {
                 for (uint64_t row = begin; row < end; ++row)
                   squares[row] = squared_length(codes, static_cast<uint32_t>(row), dim);
               });
  // Offsets are rounded up, so that a sum of two loses nothing to rounding; 4 B is then below 2^32.
  const double longest = codes.rows() == 0 ? 0 : *std::max_element(squares.begin(), squares.end());
  if (!(longest < 1073741000.0)) return std::nullopt;
  Array<uint32_t> offsets(execution.memory, codes.rows());
  parallel_for(execution, codes.rows(), kRowsAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row)
      offsets[row] = static_cast<uint32_t>(std::ceil(longest - squares[row])) + 1;
  });
  return offsets;
}

}  // namespace gannet
