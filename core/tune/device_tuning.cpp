#include "tune/device_tuning.h"

#include "search/cagra_plan.h"

namespace gannet {

std::optional<Effort> DeviceTuning::cagra(const Segment& segment, DevicePlacement& placement,
                                          const CagraPlan& like, uint32_t k, float recall,
                                          const Execution& execution) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const CagraCalibration>& known = cagra_[like.multi_cta ? 1 : 0][like.stored ? 1 : 0];
  if (known == nullptr) {
    ann_search_params plain = ANN_SEARCH_PARAMS_INIT;
    plain.procedure = like.multi_cta ? ANN_SEARCH_CAGRA_MULTI_CTA : ANN_SEARCH_CAGRA_SINGLE_CTA;
    plain.compare = like.stored ? ANN_COMPARE_STORED : ANN_COMPARE_CODES;
    const auto plan = [&](uint32_t answers, uint32_t list, uint32_t width) {
      plain.search_width = width;
      return plan_cagra(segment, plain, 0, answers, list, placement.multiprocessors());
    };
    known = std::make_unique<const CagraCalibration>(
        calibrate_cagra(segment, placement, !like.multi_cta, plan, execution));
  }
  if (known->curves.curve_count() == 0) return std::nullopt;
  return Effort{static_cast<double>(known->curves.beam(k, recall)), 0, known->width};
}

}  // namespace gannet
