#include "tune/curves.h"

#include <cmath>

namespace gannet {
namespace {

constexpr double kCliff = 1.5;  // of the miss's logarithm: no slope to find one's place on

}  // namespace

bool KnobCurve::add(double knob, double mean, double doubt, double expansions, double bound) {
  const double recall = std::max(0.0, mean - doubt);
  for (uint32_t i = 0; i < count; ++i) points[i].recall = std::min(points[i].recall, recall);
  points[count++] = {knob, recall, expansions, bound};
  return mean >= kEnough || count == kPoints;
}

double KnobCurve::knob(double recall, bool in_steps) const {
  const auto miss = [](double share) { return std::log(miss_of(share)); };
  if (points[0].recall >= recall) return points[0].knob;
  for (uint32_t i = 1; i < count; ++i) {
    if (points[i].recall < recall) continue;
    if (in_steps) return points[i].knob;
    const double fall = miss(points[i - 1].recall) - miss(points[i].recall);
    if (fall <= 0 || fall > kCliff) return points[i].knob;
    const double part = (miss(points[i - 1].recall) - miss(recall)) / fall;
    return points[i - 1].knob + part * (points[i].knob - points[i - 1].knob);
  }
  return points[count - 1].knob;
}

double KnobCurve::recall(double knob, bool in_steps) const {
  uint32_t below = count;  // the last point that takes no more than the knob
  while (below > 0 && points[below - 1].knob > knob) --below;
  if (below == 0) return 0;
  if (below == count) return 1 - miss_of(1);
  const KnobPoint& low = points[--below];
  const KnobPoint& high = points[below + 1];
  const double fall = std::log(miss_of(low.recall) / miss_of(high.recall));
  if (in_steps || fall <= 0 || fall > kCliff) return low.recall;
  return 1 - miss_of(low.recall) * std::exp(-fall * (knob - low.knob) / (high.knob - low.knob));
}

double KnobCurve::cost(double KnobPoint::* cost, double knob) const {
  uint32_t above = 0;
  while (above < count && points[above].knob < knob) ++above;
  if (above == 0) return points[0].*cost;
  const KnobPoint& low = points[above - 1];
  if (above == count) return low.*cost;
  const KnobPoint& high = points[above];
  return low.*cost + (knob - low.knob) / (high.knob - low.knob) * (high.*cost - low.*cost);
}

double KnobCurves::cost(double KnobPoint::* cost, uint32_t k, double knob) const {
  const uint32_t place = above(k);
  if (place == count_) return curves_[count_ - 1].cost(cost, knob);
  const KnobCurve& high = curves_[place];
  if (high.k == k || place == 0) return high.cost(cost, knob);
  const KnobCurve& low = curves_[place - 1];
  const double part =
      std::log(static_cast<double>(k) / low.k) / std::log(static_cast<double>(high.k) / low.k);
  return (1 - part) * low.cost(cost, knob) + part * high.cost(cost, knob);
}

double KnobCurves::knob(uint32_t k, double recall) const {
  const uint32_t place = above(k);
  if (place == count_) {
    const KnobCurve& last = curves_[count_ - 1];
    const double knob = last.knob(recall, in_steps_);
    return scale_ == KnobScale::kRows ? knob / last.k * k : knob;
  }
  const KnobCurve& high = curves_[place];
  if (high.k == k || place == 0) return high.knob(recall, in_steps_);
  const KnobCurve& low = curves_[place - 1];
  const double part =
      std::log(static_cast<double>(k) / low.k) / std::log(static_cast<double>(high.k) / low.k);
  double from = low.knob(recall, in_steps_);
  double to = high.knob(recall, in_steps_);
  if (scale_ == KnobScale::kSlack) return (1 - part) * from + part * to;
  const double shortest_from = shortest_beam(low.k);
  const double shortest_to = shortest_beam(high.k);
  if ((from < shortest_from) != (to < shortest_to)) {
    from = std::max(from, shortest_from);
    to = std::max(to, shortest_to);
  }
  return std::exp((1 - part) * std::log(from) + part * std::log(to));
}

double KnobCurves::knob_most(uint32_t k, double recall) const {
  const uint32_t place = std::min(above(k), count_ - 1);
  const double high = curves_[place].knob(recall, in_steps_);
  if (curves_[place].k <= k || place == 0) return high;
  return std::max(high, curves_[place - 1].knob(recall, in_steps_));
}

double KnobCurves::most(uint32_t k) const {
  const auto last = [](const KnobCurve& curve) {
    return std::min(1.0, curve.points[curve.count - 1].recall + KnobCurve::kSampleDoubt);
  };
  const uint32_t place = above(k);
  if (place == count_) return last(curves_[count_ - 1]);
  if (place == 0 || curves_[place].k == k) return last(curves_[place]);
  return std::min(last(curves_[place]), last(curves_[place - 1]));
}

double KnobCurves::recall(uint32_t k, double knob) const {
  const uint32_t place = above(k);
  if (place < count_ && (place == 0 || curves_[place].k == k))
    return std::min(curves_[place].recall(knob, in_steps_), most(k));
  if (knob < this->knob(k, 0)) return 0;
  // Halves the interval of the miss's logarithm, along which knobs grow evenly.
  double reached = 0;  // -log(miss) of a recall that needs no more
  double beyond = -std::log(miss_of(1));
  for (uint32_t turn = 0; turn < 20; ++turn) {
    const double middle = (reached + beyond) / 2;
    (this->knob(k, 1 - std::exp(-middle)) <= knob ? reached : beyond) = middle;
  }
  return std::min(1 - std::exp(-reached), most(k));
}

bool KnobCurves::reaches(uint32_t k, double recall) const {
  if (count_ == 0) return true;
  const uint32_t place = above(k);
  const bool by_next = place == count_ || curves_[place].reaches(recall);
  const bool measured = place < count_ && (place == 0 || curves_[place].k == k);
  return by_next && (measured || curves_[place - 1].reaches(recall));
}

}  // namespace gannet
