#include "search/procedure.h"

#include "search/device_search.h"
#include "search/exact_device.h"
#include "search/host_batch.h"
#include "search/query_parts.h"

namespace gannet {
namespace {

const Procedure* const kProcedures[] = {
    &kBestFirst, &kExact, &kCagra,     &kCagraSingleCta, &kCagraMultiCta, &kTwoLists,
    &kGgnn,      &kTsdg,  &kTsdgSmall, &kTsdgLarge,      &kSlack,
};

}  // namespace

std::span<const Procedure* const> procedures() { return kProcedures; }

const Procedure* find_procedure(int32_t id) {
  for (const Procedure* procedure : kProcedures) {
    if (procedure->id == id) return procedure;
  }
  return nullptr;
}

void compare_host_batch(const Segment& segment, int32_t device, const DevicePlacement* placement,
                        const SearchBatch& batch, const Execution& execution, SearchCounts* counts) {
  counts->distances += batch.queries.rows * segment.rows();
  answer_in_parts(segment.dataset, batch, parts_on_device(placement != nullptr, batch.results.k), execution,
                  [&](const QueryBlock& queries, const BatchAdmission& admission, const ResultsView& results,
                      const Execution& part) {
                    search_exact_on_device(segment.dataset, queries, nullptr, device, results, part,
                                           placement, admission.removed);
                  });
}

void answer_batch(const SearchTarget& target, const Procedure& procedure, const SearchPlan& plan,
                  const SearchBatch& batch, const Execution& execution, SearchCounts* counts) {
  if (!target.on_device()) return procedure.run_on_host(target.host, batch, plan, execution, counts);
  if (batch.queries.on_device())
    return cuda::search_device_batch(*target.device, batch, plan, execution, counts);
  if (std::holds_alternative<ExactPlan>(plan))
    compare_host_batch(target.segment(), ANN_DEVICE_CUDA + target.device->device(), target.device, batch,
                       execution, counts);
  else
    walk_host_batch(target.segment(), *target.device, batch, plan, execution, counts);
}

}  // namespace gannet
