#include "index/choose_projection.h"

#include "index/row_measures.h"

namespace gannet {
namespace {

constexpr double kServes = 0.996;      // share of the true 10 among the first 20 by code,
constexpr double kServesWorst = 0.97;  // of the worst tenth,
constexpr double kHopeless = 0.7;      // and below which twice the directions would not do either
/// The first of these for lists, whose candidates are compared by all columns.
constexpr double kServesLists = 0.97;

bool serves(const CodeOrder& order) {
  return order.first_twenty >= kServes && order.worst_twenty >= kServesWorst;
}

}  // namespace

Projection choose_projection(const Dataset& dataset, const Codes& codes, uint64_t seed,
                             const Execution& execution) {
  Projection found;
  if (dataset.metric() == ANN_METRIC_INNER_PRODUCT || codes.wide()) return found;
  const Directions directions(codes, seed, execution);
  if (directions.count() == 0) return found;
  OrderSample sample(dataset, codes, seed, execution);
  for (uint32_t width = Directions::kStep; width <= directions.count(); width += Directions::kStep) {
    found.codes.reset();  // one is held at a time
    found.codes.emplace(codes, directions, width, seed, execution);
    found.order = sample.order_by(Codes::of_projection(codes, *found.codes));
    found.serves_walks = serves(found.order);
    if (found.serves_walks) return found;
    if (found.order.first_twenty < kHopeless) break;
  }
  if (found.order.first_twenty < kServesLists) found.codes.reset();
  return found;
}

uint64_t choose_projection_bytes(uint64_t rows, uint32_t dim, size_t stride, uint32_t threads) {
  if (Directions::count_of(rows, stride) == 0) return 0;
  return Directions::bytes(rows, stride) + fit_projected_codes_bytes(stride, threads) +
         measure_rows_bytes(dim, stride, threads);
}

}  // namespace gannet
