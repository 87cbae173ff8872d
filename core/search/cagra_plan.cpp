#include "search/cagra_plan.h"

#include <algorithm>

namespace gannet {
namespace {

constexpr uint32_t kListThreshold = 512;  // M_T (section IV-C3)
constexpr uint32_t kHashBitsMin = 8;      // of a forgettable table (section IV-B3)
constexpr uint32_t kHashBitsMax = 13;
constexpr uint32_t kResetMax = 4;
constexpr uint32_t kCtaWidth = 4;         // p of each of several CTAs, which the paper has 1 (section IV-C2)
constexpr uint32_t kCtaCandidates = 512;  // p d there at most, which a warp sorts

void check_at_most(const char* name, uint64_t value, uint64_t most) {
  if (value > most)
    fail(ANN_LIMIT, "params.%s is %llu, at most %llu is allowed", name,
         static_cast<unsigned long long>(value), static_cast<unsigned long long>(most));
}

void check_team(uint32_t team) {
  if (team != 0 && team != 2 && team != 4 && team != 8 && team != 16 && team != 32)
    fail(ANN_INVALID_ARGUMENT, "params.team_size is %u, allowed are 2, 4, 8, 16 and 32", team);
}

/// The fastest of five on one NVIDIA H200 (tests/gpu/cagra_figures.cpp): codes of 128 bytes 8, of 1,024
/// bytes 16; f16 of 960 columns 8, and of 128 columns 6 % behind the best, 2; f32 of 128 and 960 columns 32.
uint32_t choose_team(uint32_t bytes, bool stored, int32_t element) {
  if (bytes <= 64) return 4;
  if (stored) return element == ANN_F32 && bytes >= 512 ? 32 : 8;
  return bytes <= 512 ? 8 : 16;
}

/// The choice rule of figure 7.
bool choose_multi_cta(const ann_search_params& params, uint64_t queries, uint32_t list,
                      uint32_t multiprocessors) {
  if (params.procedure != ANN_SEARCH_CAGRA) return params.procedure == ANN_SEARCH_CAGRA_MULTI_CTA;
  const uint32_t batch = params.batch_threshold != 0 ? params.batch_threshold : multiprocessors;
  const uint32_t longest = params.beam_threshold != 0 ? params.beam_threshold : kListThreshold;
  return queries < batch || list > longest;
}

/// CTAs of a query and the list of each.
void share_out(const ann_search_params& params, uint32_t list, CagraPlan* plan) {
  check_at_most("ctas_per_query", params.ctas_per_query, kCagraCtasMax);
  plan->lists =
      params.ctas_per_query != 0 ? params.ctas_per_query : (list + kCagraCtaListMin - 1) / kCagraCtaListMin;
  plan->list = std::max(kCagraCtaListMin, (list + plan->lists - 1) / plan->lists);
  if (plan->list > kCagraCtaListMax)
    fail(ANN_LIMIT, "params.ctas_per_query is %u, which leaves each a list of %u; at most %u are allowed",
         plan->lists, plan->list, kCagraCtaListMax);
}

/// log2 of the places of a table that is at most half full with `rows`.
uint32_t bits_for(uint64_t rows) {
  uint32_t bits = kHashBitsMin;
  while ((uint64_t{1} << bits) < 2 * rows) ++bits;
  return bits;
}

/// A table that is emptied: at its fullest it holds the list and the candidates since.
void choose_forgettable(const ann_search_params& params, uint32_t candidates, CagraPlan* plan) {
  const auto fullest = [&](uint32_t reset) { return uint64_t{plan->list} + uint64_t{reset} * candidates; };
  const uint32_t wished = params.hash_reset > 0 ? static_cast<uint32_t>(params.hash_reset) : kResetMax;
  plan->hash_bits =
      params.hash_bits != 0 ? params.hash_bits : std::min(kHashBitsMax, bits_for(fullest(wished)));
  const uint64_t places = uint64_t{1} << plan->hash_bits;
  plan->reset = wished;
  if (params.hash_reset == 0) {
    while (plan->reset > 1 && 2 * fullest(plan->reset) > places) --plan->reset;
  }
  if (8 * fullest(plan->reset) > 7 * places)
    fail(ANN_INVALID_ARGUMENT,
         "params.hash_bits is %u: %llu places are too few for a list of %u and %u times %u candidates",
         plan->hash_bits, static_cast<unsigned long long>(places), plan->list, plan->reset, candidates);
}

void choose_table(const ann_search_params& params, uint32_t candidates, CagraPlan* plan) {
  if (params.hash_bits != 0 && (params.hash_bits < kHashBitsMin || params.hash_bits > kHashBitsMax))
    fail(params.hash_bits < kHashBitsMin ? ANN_INVALID_ARGUMENT : ANN_LIMIT,
         "params.hash_bits is %u, allowed are %u to %u", params.hash_bits, kHashBitsMin, kHashBitsMax);
  if (params.hash_reset < ANN_NONE || params.hash_reset > static_cast<int32_t>(kCagraIterationsMax))
    fail(ANN_INVALID_ARGUMENT, "params.hash_reset is %d, allowed are ANN_NONE (-1) and 0 to %u",
         params.hash_reset, kCagraIterationsMax);
  if (plan->multi_cta || params.hash_reset == ANN_NONE)
    plan->hash_bits = bits_for(uint64_t{plan->iterations_max + 1} * plan->lists * candidates);
  else
    choose_forgettable(params, candidates, plan);
}

bool choose_stored(const Segment& segment, const ann_search_params& params) {
  if (params.compare < 0 || params.compare > ANN_COMPARE_STORED)
    fail(ANN_INVALID_ARGUMENT, "params.compare is %d, allowed are 0 to %d", params.compare,
         ANN_COMPARE_STORED);
  // The codes of i8 and u8 are as good as the rows.
  return params.compare == ANN_COMPARE_STORED && is_float_element(segment.dataset.element());
}

}  // namespace

void check_cagra_list(const ann_search_params& params, uint32_t k) {
  if (k > kCagraListMax)
    fail(ANN_LIMIT, "results.k is %u, CAGRA's searches find at most %u", k, kCagraListMax);
  if (params.beam != 0 && params.beam < k)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, at least k = %u is needed", params.beam, k);
  check_at_most("beam", params.beam, kCagraListMax);
}

uint32_t cagra_list_of(uint32_t k, uint32_t beam) {
  return std::min<uint32_t>(kCagraListMax, static_cast<uint32_t>(round_up(std::max(k, beam), 32)));
}

CagraPlan plan_cagra(const Segment& segment, const ann_search_params& params, uint64_t queries, uint32_t k,
                     uint32_t list, uint32_t multiprocessors) {
  const uint32_t degree = segment.graph.degree;
  CagraPlan plan;
  plan.multi_cta = choose_multi_cta(params, queries, list, multiprocessors);
  plan.stored = choose_stored(segment, params);
  plan.lists = 1;
  plan.list = list;
  check_at_most("search_width", params.search_width, kCagraWidthMax);
  if (plan.multi_cta) share_out(params, list, &plan);
  plan.width = params.search_width != 0 ? params.search_width : plan.multi_cta ? kCtaWidth : 1;
  if (plan.multi_cta) plan.width = std::min(plan.width, std::max(1u, kCtaCandidates / degree));
  const uint32_t candidates = plan.width * degree;
  if (candidates > kCagraCandidatesMax)
    fail(ANN_LIMIT, "params.search_width is %u, with %u edges a row at most %u is allowed", plan.width,
         degree, kCagraCandidatesMax / degree);
  check_at_most("iterations_max", params.iterations_max, kCagraIterationsMax);
  const uint32_t turns = (plan.list + plan.width - 1) / plan.width;
  plan.iterations_max = params.iterations_max != 0 ? params.iterations_max : turns + turns / 4 + 24;
  check_team(params.team_size);
  const uint32_t bytes = plan.stored ? segment.dataset.dim() * element_bytes(segment.dataset.element())
                                     : static_cast<uint32_t>(segment.codes.stride());
  plan.team =
      params.team_size != 0 ? params.team_size : choose_team(bytes, plan.stored, segment.dataset.element());
  choose_table(params, candidates, &plan);
  const uint32_t found = std::min(k, segment.dataset.rows());
  const bool lossy = !segment.codes.lossless() && !plan.stored;
  plan.kept = std::min(lossy ? rerank_count(found) : found, plan.lists * plan.list);
  return plan;
}

}  // namespace gannet
