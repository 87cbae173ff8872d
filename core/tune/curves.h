// Curves of calibration: which value of a procedure's knob gives which recall, for some k.
//
// A point's recall is the promise it allows, and at most that of any point behind it: of several points of a
// level curve the luckiest would be taken otherwise. Between points the logarithm of the miss, 1 - recall, falls
// with the knob. Between curves a knob that counts rows goes in proportion to k on a logarithmic scale, a slack
// in proportion to log k.
//
// A knob of fewer rows than the shortest list for its k stands for that list over a part of each row's edges
// (tune/calibration.h). Between a list that is longer than the shortest and a part there is neither: the shortest list
// takes the part's place. Ten of 30,000 rows in 50 islands took 12 rows for .95, a hundred the shortest list over half of
// the edges; between them 15 of 15 got .934, and 18 get .979.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ann.h"

namespace gannet {

/// The share of neighbours that is missed. None of a sample is as good as half of one of 10,000.
inline double miss_of(double recall) { return std::max(1 - recall, 5e-5); }

inline constexpr double kLeeway = 0.01;  // that a promise leaves

inline constexpr uint32_t kBeamMin = 8;  // rows of the shortest list

/// The shortest list for k answers.
constexpr uint32_t shortest_beam(uint32_t k) { return std::clamp(k, kBeamMin, ANN_BEAM_MAX); }

/// Fewer queries that miss nothing say little of so many answers, which are found all or none on many sets, and in
/// islands of any number: of 1,000,000 rows in islands .985 of a hundred was got for .999 by 64 given queries.
inline constexpr uint32_t kGivenFew = 300;  // three in this many are kLeeway
inline constexpr uint32_t kTogetherMost = 10;

/// The standard errors by which a sample may be lucky. `scarce`: few queries of the caller, which find all or none.
constexpr double errors_allowed(bool scarce) { return scarce ? 4 : 3; }

struct KnobPoint {
  double knob;
  double recall;
  double expansions = 0;  // of a query, mean; 0: they follow from the knob
  /// Of SLACK on the CPU the beam whose walk compares as many rows past its starts; of queries that are cut on a device
  /// their expansions at most; 0: none of these.
  double bound = 0;
};

/// The points for one k.
struct KnobCurve {
  static constexpr uint32_t kPoints = 24;
  static constexpr double kEnough = 0.99901;  // beyond, nothing is tried
  static constexpr double kSampleDoubt = 0.001;

  uint32_t k = 0;
  uint32_t count = 0;
  KnobPoint points[kPoints] = {};

  /// Adds a point with the mean recall of a sample and its doubt, which is subtracted. A curve that does not grow
  /// goes on: where rows lie in islands it is level until a beam is longer than an island. True where this point
  /// is enough, or the last that there is room for.
  bool add(double knob, double mean, double doubt, double expansions = 0, double bound = 0);

  /// The knob at which the curve reaches `recall`; where it rises steeply, or `in_steps`, the first of its points
  /// that does; the last one where none does.
  double knob(double recall, bool in_steps = false) const;

  /// The highest recall for which knob() gives no more than a value; 0 where the first point is beyond it.
  double recall(double knob, bool in_steps = false) const;

  /// A quantity of points beside the recall, at a value of the knob: between points in proportion to it.
  double cost(double KnobPoint::* cost, double knob) const;

  /// Whether it promises a recall. A curve that reached 0.999 does so though its sample leaves a doubt.
  bool reaches(double recall) const { return recall <= points[count - 1].recall + kSampleDoubt; }
};

/// Which way a knob goes from one k to another.
enum class KnobScale { kRows, kSlack };

/// Curves for some k, in order of k.
class KnobCurves {
 public:
  static constexpr uint32_t kCurves = 4;

  KnobCurves() = default;
  /// `in_steps`: only values that were tried serve, none between them.
  explicit KnobCurves(KnobScale scale, bool in_steps = false) : scale_(scale), in_steps_(in_steps) {}

  bool empty() const { return count_ == 0; }
  uint32_t count() const { return count_; }
  const KnobCurve& operator[](uint32_t place) const { return curves_[place]; }
  KnobCurve& operator[](uint32_t place) { return curves_[place]; }

  /// One more, for a larger k.
  KnobCurve& add(uint32_t k) {
    curves_[count_].k = k;
    return curves_[count_++];
  }

  /// Calls visit(curve) for the curves that k answers go by: their own, or the next smaller and larger ones; beyond the
  /// last that one. There must be a curve.
  template <class Visit>
  void visit_next_to(uint32_t k, const Visit& visit) const {
    const uint32_t place = std::min(above(k), count_ - 1);
    visit(curves_[place]);
    if (place > 0 && curves_[place].k > k) visit(curves_[place - 1]);
  }

  /// Whether anything was measured of k answers: there is a curve for as many. More than the last k of all is under it. Of
  /// more than the last curve's, where rows were too few for another one or the procedure has no more, nothing is known:
  /// thirty of 250 rows in 16 places got .75 of .9 by a beam in proportion.
  bool tell_of(uint32_t k) const { return count_ == kCurves || (count_ != 0 && k <= curves_[count_ - 1].k); }

  /// The value for k answers at a recall. Beyond the last curve rows keep their proportion to k. There must be a
  /// curve.
  double knob(uint32_t k, double recall) const;

  /// The larger of the values that knob() goes by, of the curves next to k. There must be a curve.
  double knob_most(uint32_t k, double recall) const;

  /// Expansions, or the bound, of a query for k answers with a value of the knob, by the curves next to k. There
  /// must be a curve.
  double cost(double KnobPoint::* cost, uint32_t k, double knob) const;

  /// The recall of a value of the knob: the highest for which knob() gives no more. It does not fall
  /// with the knob, and is at most that of the last points. There must be a curve.
  double recall(uint32_t k, double knob) const;

  /// Whether that was found to give the recall, by the curves for the next smaller and larger k.
  bool reaches(uint32_t k, double recall) const;

 private:
  /// The highest recall that reaches() takes.
  double most(uint32_t k) const;

  uint32_t above(uint32_t k) const {
    uint32_t place = 0;
    while (place < count_ && curves_[place].k < k) ++place;
    return place;
  }

  KnobCurve curves_[kCurves];
  uint32_t count_ = 0;
  KnobScale scale_ = KnobScale::kRows;
  bool in_steps_ = false;
};

}  // namespace gannet
