// Claims about searches by the graph on a CUDA device, made through the C interface: the walk with one
// list is that of the CPU, the walk with two lists keeps the recall that was asked for, reported
// distances are exact, and an answer depends on the query alone.
//
//   walk_cuda_test                 all claims
//   walk_cuda_test quick           fewer and smaller cases, for compute-sanitizer
//   walk_cuda_test race            a handful, for its racecheck, which is slow
//
// Ends with 77 where there is no CUDA device.

#include <ann.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "answers.h"
#include "capi/boundary.h"
#include "claims.h"
#include "index/snapshot.h"
#include "place/pivots.h"
#include "search/host_batch.h"
#include "traverse/visited_bloom.h"

namespace {

using namespace gannet;
using gannet::test::Answers;
using gannet::test::ask;
using gannet::test::Claim;
using gannet::test::expect;
using gannet::test::expect_ok;
using gannet::test::Failure;
using gannet::test::kElements;
using gannet::test::kMetrics;
using gannet::test::metric_name;
using gannet::test::Rows;
using gannet::test::run_claims;
using gannet::test::Values;

constexpr uint32_t kWarps[] = {1, 8, 16};  // of a walk with two lists

bool quick = false;
uint64_t answers_compared = 0;
uint64_t answers_equal = 0;

struct Case {
  int32_t element = ANN_F32;
  int32_t metric = ANN_METRIC_L2;
  uint32_t rows = 2000;
  uint32_t queries = 40;
  uint32_t dim = 32;
  uint32_t k = 10;
  uint32_t degree = 0;
  Values values = Values::kClusters;
  bool ids = false;
  bool borrow = false;
  int32_t calibrate = ANN_SWITCH_AUTO;
  int32_t device = ANN_DEVICE_AUTO;  // that builds
  bool strange = false;              // queries lie farther out than the rows,
  bool told = false;                 // and the build is given others of them to calibrate on
  bool contrast = false;             // lengths of f32 from 1/64 to 4 times those of `values`
  uint32_t distinct = 0;             // rows that the others copy; 0: there are no copies
  float around = 0;                  // and of f32, from how far around

  std::string name() const {
    return std::string(element_name(element)) + " " + metric_name(metric) + ", " + std::to_string(rows) +
           " rows x " + std::to_string(dim) + ", " + std::to_string(queries) + " queries, k " +
           std::to_string(k) + ", degree " + std::to_string(degree) + ", values " +
           std::to_string(static_cast<int>(values)) + (ids ? ", ids" : "") + (borrow ? ", borrowed" : "");
  }
};

size_t vector_bytes(const Case& c) { return size_t{c.dim} * element_bytes(c.element); }

/// A built index with its queries.
struct Prepared {
  Case c;
  std::vector<uint8_t> rows;
  std::vector<uint8_t> queries;
  std::vector<uint64_t> ids;
  ann_index* index = nullptr;

  explicit Prepared(const Case& given) : c(given) {
    // Queries come from around the rows' centres, but not from among rows that are few.
    const bool few = c.values == Values::kDuplicates || c.values == Values::kEqual || c.strange;
    Rows made(c.element, c.rows + (few ? 0 : c.queries), c.dim, c.values, 1);
    if (c.contrast) stretch_lengths(made);
    const Rows others(c.element, few ? c.queries : 0, c.dim, c.strange ? Values::kFar : Values::kClusters, 2);
    const Rows more(c.element, c.told ? 3000 : 0, c.dim, Values::kFar, 3);
    const auto middle = made.bytes.begin() + static_cast<int64_t>(c.rows * vector_bytes(c));
    rows.assign(made.bytes.begin(), middle);
    for (size_t at = c.distinct * vector_bytes(c); c.distinct != 0 && at < rows.size(); ++at)
      rows[at] = rows[at - c.distinct * vector_bytes(c)];
    queries.assign(few ? others.bytes.begin() : middle, few ? others.bytes.end() : made.bytes.end());
    if (c.around != 0) move_around();
    if (c.ids) {
      for (uint64_t i = 0; i < c.rows; ++i) ids.push_back((i * 7919 + 13) << 31);
      std::shuffle(ids.begin(), ids.end(), std::mt19937(5));
    }
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = c.dim;
    shape.metric = c.metric;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, c.name());
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = c.degree;
    params.calibrate = c.calibrate;
    params.device = c.device;
    if (c.borrow) params.rows_mode = ANN_ROWS_BORROW;
    const ann_matrix like_queries = view(more.bytes, more.rows);
    if (c.told) params.calibration = &like_queries;
    const ann_matrix matrix = view(rows, c.rows);
    expect_ok(ann_build(index, &matrix, ids.empty() ? nullptr : ids.data(), &params, nullptr, &error), error,
              c.name());
  }
  void move_around() {
    std::mt19937 random(8);
    std::normal_distribution<float> normal;
    for (size_t at = 0; at < rows.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, rows.data() + at, sizeof value);
      value += c.around * normal(random);
      std::memcpy(rows.data() + at, &value, sizeof value);
    }
    // Queries come from the islands.
    std::copy(rows.end() - static_cast<int64_t>(c.queries * vector_bytes(c)), rows.end(), queries.begin());
  }
  /// Powers of two.
  void stretch_lengths(Rows& made) const {
    std::mt19937 random(7);
    for (size_t row = 0; row < made.bytes.size() / vector_bytes(c); ++row) {
      const float factor = std::ldexp(1.0f, static_cast<int>(random() % 9) - 6);
      for (uint32_t column = 0; column < c.dim; ++column) {
        uint8_t* const place = made.bytes.data() + row * vector_bytes(c) + column * sizeof(float);
        float value = 0;
        std::memcpy(&value, place, sizeof value);
        value *= factor;
        std::memcpy(place, &value, sizeof value);
      }
    }
  }

  ~Prepared() { ann_index_free(index); }
  Prepared(const Prepared&) = delete;

  ann_matrix view(const std::vector<uint8_t>& vectors, uint64_t count, uint64_t first = 0) const {
    ann_matrix matrix = ANN_MATRIX_INIT;
    matrix.element = c.element;
    matrix.data = vectors.data() + first * vector_bytes(c);
    matrix.rows = count;
    matrix.dim = c.dim;
    return matrix;
  }
};

ann_search_params on_device() {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = ANN_DEVICE_CUDA;
  return params;
}

Answers search(const Prepared& data, uint32_t k, const ann_search_params& params, uint64_t first = 0,
               uint64_t count = UINT64_MAX, bool exact = false) {
  count = std::min<uint64_t>(count, data.c.queries - first);
  Answers answers;
  ann_error error = ANN_ERROR_INIT;
  const ann_matrix queries = data.view(data.queries, count, first);
  expect_ok(ask(data.index, queries, k, params, exact, &answers, &error), error, data.c.name());
  return answers;
}

/// Distances of all rows to all queries, by id, as the CPU reports them.
struct Truth {
  std::vector<std::map<uint64_t, float>> of_query;
  Answers sorted;

  explicit Truth(const Prepared& data) : of_query(data.c.queries) {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.device = ANN_DEVICE_CPU;
    const uint32_t n = std::max(1u, data.c.rows);
    sorted = search(data, n, params, 0, UINT64_MAX, true);
    for (uint64_t q = 0; q < data.c.queries; ++q) {
      for (uint64_t i = 0; i < data.c.rows; ++i)
        of_query[q][sorted.ids[q * n + i]] = sorted.distances[q * n + i];
    }
  }
};

/// Ids are legal and distinct, distances exact, the order right, the rest padded. Returns the recall.
double check_answers(const Prepared& data, const Truth& truth, const Answers& answers, uint32_t k,
                     const std::string& name) {
  const uint32_t n = data.c.rows;
  uint64_t hits = 0;
  for (uint64_t q = 0; q < data.c.queries; ++q) {
    const uint32_t found = answers.counts[q];
    expect(answers.status[q] == ANN_OK && found <= std::min(k, n), name + ": count and status");
    std::map<uint64_t, float> seen;
    for (uint32_t i = 0; i < k; ++i) {
      const uint64_t id = answers.ids[q * k + i];
      const float distance = answers.distances[q * k + i];
      const std::string where = name + ", query " + std::to_string(q) + ", place " + std::to_string(i);
      if (i >= found) {
        expect(id == ANN_ID_NONE && distance == INFINITY, where + ": padding");
        continue;
      }
      const auto known = truth.of_query[q].find(id);
      expect(known != truth.of_query[q].end(), where + ": id " + std::to_string(id));
      expect(seen.emplace(id, distance).second, where + ": an id twice");
      expect(std::memcmp(&known->second, &distance, sizeof distance) == 0,
             where + ": distance " + std::to_string(distance) + ", exact " + std::to_string(known->second));
      if (i > 0)
        expect(
            std::pair(answers.distances[q * k + i - 1], answers.ids[q * k + i - 1]) < std::pair(distance, id),
            where + ": order");
      hits += distance <= truth.sorted.distances[q * n + std::min(k, n) - 1] ? 1 : 0;
    }
  }
  if (n == 0 || data.c.queries == 0) return 1;
  return static_cast<double>(hits) / (double{1} * data.c.queries * std::min(k, n));
}

/// Answers, padding included, that both give to the same query at the same distance. A row that is
/// dropped moves the others by one place, and of rows at equal distance any will do.
uint64_t count_common(const Answers& a, const Answers& b, uint64_t queries, uint32_t k) {
  uint64_t common = 0;
  for (uint64_t q = 0; q < queries; ++q) {
    std::multiset<float> left(a.distances.begin() + q * k, a.distances.begin() + (q + 1) * k);
    for (uint64_t i = q * k; i < (q + 1) * k; ++i) {
      const auto found = left.find(b.distances[i]);
      if (found == left.end()) continue;
      left.erase(found);
      ++common;
    }
  }
  return common;
}

/// The walk with one list against the CPU's, whose steps it takes but for rows that its filter drops.
void compare_one_list(const Prepared& data, const Truth& truth, uint32_t k, uint32_t beam) {
  ann_search_params params = on_device();
  params.procedure = ANN_SEARCH_BEST_FIRST;
  params.beam = beam;
  const std::string name = data.c.name() + ", beam " + std::to_string(beam);
  const Answers device = search(data, k, params);
  const double recall = check_answers(data, truth, device, k, name);
  params.device = ANN_DEVICE_CPU;
  const Answers cpu = search(data, k, params);
  const double cpu_recall = check_answers(data, truth, cpu, k, name + " on the CPU");
  const uint64_t common = count_common(cpu, device, data.c.queries, k);
  answers_compared += cpu.ids.size();
  answers_equal += common;
  const double share = static_cast<double>(common) / static_cast<double>(std::max<size_t>(1, cpu.ids.size()));
  // Of float codes the sums are not the CPU's, so near ties may fall the other way.
  const bool as_on_cpu = cpu.ids.empty() || share >= 0.97;
  expect(as_on_cpu && recall >= cpu_recall - 0.01,
         name + ": " + std::to_string(share) + " of the answers are the CPU's, recall " +
             std::to_string(recall) + " against " + std::to_string(cpu_recall));
}

void compare_recall(const Prepared& data, const Truth& truth, uint32_t k, float recall,
                    double margin = 0.03) {
  ann_search_params params = on_device();
  params.recall = recall;
  const Answers answers = search(data, k, params);
  const double got = check_answers(data, truth, answers, k, data.c.name());
  expect(got >= recall - margin,
         data.c.name() + ": recall " + std::to_string(got) + ", asked " + std::to_string(recall));
}

/// Two lists with a procedure of so many warps and at an effort of its own, whatever calibration says:
/// recall, which it returns, is that of the CPU with a beam that takes about as long; 1 where they do not serve.
double compare_two_lists(const Prepared& data, const Truth& truth, uint32_t k, float slack,
                         uint32_t expansions_max, uint32_t warps) {
  const Index::Call call(data.index->index);
  const PlacedSegment& built = placed_of(call);
  const uint32_t found_max = std::min(k, data.c.rows);
  if (found_max == 0 || data.c.queries == 0) return 1;
  if (warps == 1 && !two_lists_serve(found_max, built.segment.codes.lossless())) return 1;
  Execution execution;
  const auto placement = built.devices.get(built, 0, execution);
  if (warps != 1 && !blocks_serve(*placement->placement, found_max)) return 1;
  DeviceWorkspaceLease space(*placement->placement, data.c.queries, found_max);
  const ann_matrix queries = data.view(data.queries, data.c.queries);
  fill_workspace(built.segment, read_matrix(&queries, "queries"), 0, data.c.queries, *space, execution);
  const TwoListsPlan plan = {slack, expansions_max, warps};
  space->run(data.c.queries, plan, {}, false);
  Answers answers;
  for (uint64_t i = 0; i < uint64_t{data.c.queries} * found_max; ++i) {
    const uint32_t row = space->rows()[i];
    answers.ids.push_back(row == UINT32_MAX ? ANN_ID_NONE : built.segment.dataset.id(row));
    answers.distances.push_back(space->distances()[i]);
  }
  for (uint64_t q = 0; q < data.c.queries; ++q) {
    const auto begin = answers.ids.begin() + static_cast<int64_t>(q * found_max);
    answers.counts.push_back(
        static_cast<uint32_t>(found_max - std::count(begin, begin + found_max, uint64_t{ANN_ID_NONE})));
    answers.status.push_back(ANN_OK);
  }
  const std::string name =
      data.c.name() + ", slack " + std::to_string(slack) + ", warps " + std::to_string(warps);
  const double recall = check_answers(data, truth, answers, found_max, name);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.beam = std::max(k, 32u);
  const double cpu = check_answers(data, truth, search(data, k, params), k, name + " on the CPU");
  expect(slack < 0.2f || data.c.queries < 20 || recall >= cpu - 0.05,
         name + ": recall " + std::to_string(recall) + ", on the CPU " + std::to_string(cpu));
  return recall;
}

/// The walk of a block, step for step as search/walk_block_cuda.cu says it, by one thread and codes of bytes.
class BlockTwin {
 public:
  BlockTwin(const Segment& segment, std::span<const uint32_t> covering, uint32_t kept, uint32_t warps)
      : segment_(segment),
        shape_(block_shape(kept)),
        warps_(kept > 32 ? 8 : warps),
        kept_(kept),
        pivots_(draw_pivots(segment.graph, covering, {})) {}

  std::vector<uint64_t> run(const uint8_t* code, uint32_t k, const TwoListsPlan& plan) {
    code_ = code;
    best_.assign(shape_.best, RowKey::kNone);
    queue_.assign(shape_.queue, RowKey::kNone);
    met_.assign(size_t{1} << shape_.visited_word_bits, 0);
    distances = expansions = 0;
    if (is_scaled())
      start_at_entries();
    else
      start();
    const float stretch = (1 + plan.slack) * (1 + plan.slack);
    const uint32_t parents_max = warps_ / ((segment_.graph.degree + 31) / 32);
    for (;;) {
      const uint32_t bound = stretched(RowKey::distance(best_[k - 1]), stretch);
      const uint32_t limit =
          std::max(RowKey::distance(best_[kept_ - 1]), std::min(bound, RowKey::distance(queue_.back())));
      std::vector<uint32_t> fresh;
      uint32_t parents = 0;
      while (parents < std::min(parents_max, plan.expansions_max - expansions) &&
             queue_[parents] != RowKey::kNone && RowKey::distance(queue_[parents]) <= bound)
        look_at(RowKey::row(queue_[parents++]), &fresh);
      if (parents == 0) return best_;
      expansions += parents;
      queue_.erase(queue_.begin(), queue_.begin() + parents);
      queue_.resize(shape_.queue, RowKey::kNone);
      std::vector<uint64_t> offered;
      for (const uint64_t key : keys_of(fresh)) {
        if (RowKey::distance(key) < limit) offered.push_back(key);
      }
      for (const uint32_t row : fresh) enter(row);
      take(offered);
    }
  }

  uint32_t distances = 0;
  uint32_t expansions = 0;

 private:
  bool is_scaled() const { return segment_.codes.scaled() != nullptr; }

  uint32_t stretched(uint32_t kth, float stretch) const {
    if (kth == UINT32_MAX) return kth;
    if (is_scaled()) {
      const float product = out_of_order(kth);
      return in_order(product + (stretch - 1) * std::fabs(product));
    }
    const float far = static_cast<float>(kth) * stretch;
    return far >= 4294967296.0f ? UINT32_MAX : static_cast<uint32_t>(far);
  }

  std::vector<uint64_t> keys_of(const std::vector<uint32_t>& rows) {
    std::vector<uint32_t> far(rows.size());
    if (!rows.empty())
      segment_.codes.walk_distances(code_, rows.data(), static_cast<uint32_t>(rows.size()), far.data());
    std::vector<uint64_t> keys;
    for (size_t i = 0; i < rows.size(); ++i) keys.push_back(RowKey::of(far[i], rows[i], false));
    distances += static_cast<uint32_t>(rows.size());
    return keys;
  }

  /// Each warp offers the nearest of its lanes' pivots, of which there is one in every warps_ groups, or each lane has
  /// several and the nearest of these.
  void start() {
    const uint32_t threads = warps_ * 32;
    const bool many = pivots_.size() > kPivots;
    const auto rounds = static_cast<uint32_t>(many ? pivots_.size() / threads : 1);
    std::vector<uint64_t> offered;
    for (uint32_t warp = 0; warp < warps_; ++warp) {
      std::vector<uint64_t> keys;
      for (uint32_t lane = 0; lane < 32; ++lane) {
        std::vector<uint32_t> rows;
        for (uint32_t round = 0; round < rounds; ++round) {
          const uint32_t place = lane * warps_ + warp;
          const uint32_t row = pivots_[many ? round * threads + place : place * (kPivots / threads)];
          if (row != kNoRow) rows.push_back(row);
        }
        // Of equally near ones the first.
        const std::vector<uint64_t> of_lane = keys_of(rows);
        const auto nearest = std::min_element(
            of_lane.begin(), of_lane.end(),
            [](uint64_t one, uint64_t other) { return RowKey::distance(one) < RowKey::distance(other); });
        if (nearest != of_lane.end()) keys.push_back(*nearest);
        distances += rounds - static_cast<uint32_t>(rows.size());  // places without a pivot are compared too
      }
      std::sort(keys.begin(), keys.end());
      keys.resize(std::min<size_t>(keys.size(), std::min(shape_.queue / warps_, 32u)));
      offered.insert(offered.end(), keys.begin(), keys.end());
    }
    for (const uint64_t key : offered) enter(RowKey::row(key));
    take(offered);
  }

  /// By inner product all entry points, as many at once as a block has threads.
  void start_at_entries() {
    const Array<uint32_t>& entries = segment_.graph.entries;
    for (size_t first = 0; first < entries.size(); first += warps_ * 32) {
      std::vector<uint32_t> fresh;
      for (size_t i = first; i < std::min<size_t>(entries.size(), first + warps_ * 32); ++i)
        take_fresh(entries[i], &fresh);
      take(keys_of(fresh));
      for (const uint32_t row : fresh) enter(row);
    }
  }

  void take_fresh(uint32_t row, std::vector<uint32_t>* fresh) const {
    if (row == kNoRow || std::find(fresh->begin(), fresh->end(), row) != fresh->end()) return;
    if (!place_of(row).is_in(met_.data())) fresh->push_back(row);
  }

  /// Edges to rows that had not been met when the round began, each once.
  void look_at(uint32_t parent, std::vector<uint32_t>* fresh) {
    for (const uint32_t row : segment_.graph.row(parent)) take_fresh(row, fresh);
  }

  BloomPlace place_of(uint32_t row) const { return bloom_place<kWalkBits>(row, shape_.visited_word_bits); }

  void enter(uint32_t row) { met_[place_of(row).word] |= place_of(row).bits; }

  void take(const std::vector<uint64_t>& offered) {
    for (std::vector<uint64_t>* list : {&best_, &queue_}) {
      const size_t size = list->size();
      list->insert(list->end(), offered.begin(), offered.end());
      std::sort(list->begin(), list->end());
      list->resize(size);
    }
  }

  const Segment& segment_;
  BlockShape shape_;
  uint32_t warps_;
  uint32_t kept_;
  const uint8_t* code_ = nullptr;
  Array<uint32_t> pivots_;
  std::vector<uint64_t> best_;
  std::vector<uint64_t> queue_;
  std::vector<uint32_t> met_;
};

/// The rows that a twin has kept, the nearest first as they are stored.
std::vector<uint32_t> ranked(const Dataset& dataset, const PreparedQuery& query,
                             const std::vector<uint64_t>& best, uint32_t kept) {
  std::vector<std::pair<float, uint32_t>> pairs;
  for (uint32_t i = 0; i < kept; ++i) {
    if (best[i] == RowKey::kNone) break;
    const uint32_t row = RowKey::row(best[i]);
    float distance = 0;
    dataset.distances(query, &row, 0, 1, &distance);
    pairs.emplace_back(distance, row);
  }
  std::sort(pairs.begin(), pairs.end());
  std::vector<uint32_t> rows;
  for (const auto& [distance, row] : pairs) rows.push_back(row);
  return rows;
}

/// A block's answers are its twin's, and so are the counts, where codes are bytes. Sums of floats are not the CPU's.
/// `covering`: heads that pivots are made of, unless they are the placement's own.
void compare_with_twin(const Prepared& data, uint32_t k, float slack, uint32_t expansions_max, uint32_t warps,
                       std::span<const uint32_t> covering = {}) {
  const Index::Call call(data.index->index);
  const PlacedSegment& built = placed_of(call);
  k = std::min(k, data.c.rows);
  const Codes& codes = built.segment.codes;
  if (k == 0 || data.c.queries == 0 || (codes.wide() && codes.scaled() == nullptr)) return;
  if (codes.projected() != nullptr) return;  // which devices do not walk by
  const Execution execution;
  const auto placement = built.devices.get(built, 0, execution);
  if (!blocks_serve(*placement->placement, k)) return;
  Array<uint32_t> own;
  if (covering.empty() && placement->placement->has_covering_pivots()) {
    own = covering_heads(built.segment.graph, built.segment.codes, execution);
    covering = {own.data(), own.size()};
  }
  DeviceWorkspaceLease space(*placement->placement, data.c.queries, k);
  const ann_matrix queries = data.view(data.queries, data.c.queries);
  fill_workspace(built.segment, read_matrix(&queries, "queries"), 0, data.c.queries, *space, execution);
  const TwoListsPlan plan = {slack, expansions_max, warps};
  space->run(data.c.queries, plan, {}, false);
  const uint32_t kept = list_length(k, codes.lossless());
  BlockTwin twin(built.segment, covering, kept, warps);
  uint64_t distances = 0;
  uint64_t expansions = 0;
  Array<uint8_t> code({}, codes.walk_query_bytes());
  std::vector<uint8_t> values(built.segment.dataset.query_bytes() + 64);
  for (uint32_t query = 0; query < data.c.queries; ++query) {
    PreparedQuery prepared;
    built.segment.dataset.prepare(data.queries.data() + query * vector_bytes(data.c), data.c.element,
                                  values.data(), &prepared);
    codes.encode_walk_query(prepared, code.data());
    const std::vector<uint64_t> best = twin.run(code.data(), k, plan);
    distances += twin.distances + (codes.lossless() ? 0 : std::min(kept, data.c.rows));
    expansions += twin.expansions;
    const std::vector<uint32_t> rows = ranked(built.segment.dataset, prepared, best, kept);
    for (uint32_t i = 0; i < k; ++i) {
      const uint32_t expected = i < rows.size() ? rows[i] : kNoRow;
      expect(space->rows()[size_t{query} * k + i] == expected,
             data.c.name() + ", warps " + std::to_string(warps) + ", query " + std::to_string(query) +
                 ", place " + std::to_string(i) + ": the answer of the twin");
    }
  }
  expect(space->distance_count() == distances && space->expansion_count() == expansions,
         data.c.name() + ": the twin's distances and expansions");
}

void compare(const Case& c) {
  const Prepared data(c);
  const Truth truth(data);
  const uint32_t n = std::max(1u, c.rows);
  // With so few queries luck moves a recall by this much.
  const double luck = c.queries < 40 ? 0.35 : 0.06;
  compare_recall(data, truth, c.k, 0.9f, luck);
  compare_recall(data, truth, c.k, 0.99f, luck);
  for (const uint32_t warps : kWarps) {
    compare_two_lists(data, truth, c.k, 0.3f, 1000, warps);
    if (!c.ids) compare_two_lists(data, truth, c.k, 0.02f, 10, warps);
    if (warps != 1) compare_with_twin(data, c.k, 0.05f, 40, warps);
  }
  const uint32_t beam = std::max(64u, c.k);
  compare_one_list(data, truth, c.k, std::max(c.k, std::min(beam, std::max(n, c.k))));
}

void every_element_and_metric(Case c) {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      c.element = element;
      c.metric = metric;
      compare(c);
    }
  }
}

void claim_elements() {
  every_element_and_metric({.rows = quick ? 300u : 2000u, .queries = quick ? 9u : 100u});
}

void claim_dims() {
  std::vector<uint32_t> dims;
  for (uint32_t dim = 1; dim < 300; dim += dim < 20 ? 1 : 13) dims.push_back(dim);
  for (const uint32_t dim : {63u, 64u, 65u, 127u, 128u, 129u, 192u, 256u, 384u, 768u, 960u, 1536u, 4096u})
    dims.push_back(dim);
  if (quick) dims = {1, 64, 67, 128, 131, 200};
  uint32_t turn = 0;
  for (const uint32_t dim : dims) {
    Case c{.rows = quick ? 200u : 600u, .queries = quick ? 5u : 40u, .dim = dim};
    c.metric = kMetrics[turn++ % 3];
    for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_I8}, int32_t{ANN_U8}}) {
      c.element = element;
      compare(c);
      if (c.metric == ANN_METRIC_L2 || quick || element == ANN_F32) continue;
      Case flat = c;
      flat.metric = ANN_METRIC_L2;
      compare(flat);
    }
  }
}

void claim_sizes() {
  std::vector<uint32_t> rows = {0, 1, 2, 9, 10, 11, 31, 32, 33, 63, 64, 65, 100, 129, 500};
  if (quick) rows = {0, 1, 9, 33, 100};
  for (const uint32_t n : rows) {
    for (const uint32_t k : {1u, 10u, 32u}) {
      for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_U8}})
        compare({.element = element, .rows = n, .queries = 7, .dim = 20, .k = k});
    }
  }
  compare({.element = ANN_U8, .rows = 100, .queries = 0, .dim = 20});
}

void claim_k() {
  std::vector<uint32_t> ks = {1, 2, 9, 16, 17, 31, 32, 33, 64, 100, 128, 200, 500, 1000};
  if (quick) ks = {1, 32, 40, 100};
  const uint32_t n = quick ? 500 : 4000;
  for (const int32_t element : {int32_t{ANN_F16}, int32_t{ANN_U8}, int32_t{ANN_I8}}) {
    const Prepared data({.element = element, .rows = n, .queries = quick ? 5u : 30u, .dim = 24});
    const Truth truth(data);
    for (const uint32_t k : ks) {
      // The luck of 30 queries: of one answer each, a standard error of 0.04.
      compare_recall(data, truth, k, 0.95f, k < 10 ? 0.15 : 0.05);
      compare_one_list(data, truth, k, std::max(k, 48u));
      if (k + 100 <= n) compare_one_list(data, truth, k, std::max(k + 77, 48u));
      for (const uint32_t warps : kWarps) compare_two_lists(data, truth, k, 0.3f, 1000, warps);
      compare_with_twin(data, k, 0.05f, 1000, 8);
    }
    if (!quick) compare_one_list(data, truth, 1024, 1984);
    if (!quick) compare_one_list(data, truth, 10, 769);
  }
}

void claim_degrees() {
  std::vector<uint32_t> degrees = {2, 3, 8, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 256};
  if (quick) degrees = {2, 32, 33, 65, 130};
  for (const uint32_t degree : degrees) {
    // Two edges a row lead nowhere: only the distances are judged.
    const Case c{.element = ANN_U8, .rows = quick ? 400u : 1500u, .queries = 20, .dim = 16, .degree = degree};
    const Prepared data(c);
    const Truth truth(data);
    if (degree >= 8) compare_recall(data, truth, 10, 0.95f, 0.06);
    compare_one_list(data, truth, 10, 64);
    for (const uint32_t warps : kWarps)
      compare_two_lists(data, truth, 10, degree >= 8 ? 0.3f : 0, 1000, warps);
    for (const uint32_t warps : {8u, 16u}) compare_with_twin(data, 10, 0.1f, 33, warps);
  }
}

/// Walks of one warp visit more rows than their filter holds, and find what a block's find with a filter of eight times
/// the size.
void claim_long_walks() {
  for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_U8}}) {
    const Prepared data({.element = element,
                         .rows = quick ? 2000u : 20'000u,
                         .queries = quick ? 20u : 200u,
                         .dim = 32,
                         .degree = 64,
                         .values = Values::kNormal});
    const Truth truth(data);
    for (const uint32_t k : {10u, 100u}) {
      const float slack = k == 10 ? 0.35f : 0.2f;
      const double warp = compare_two_lists(data, truth, k, slack, 1000, 1);
      const double block = compare_two_lists(data, truth, k, slack, 1000, 8);
      std::printf("long walks of %s for %u: recall %.4f by a warp, %.4f by a block\n", element_name(element),
                  k, warp, block);
      expect(quick || warp >= block - 0.003,
             data.c.name() + ": a warp finds " + std::to_string(warp) + ", a block " + std::to_string(block));
    }
  }
}

/// What kernels are allowed for long rows is not taken away by an index of short ones.
void claim_widths() {
  const Prepared wide({.element = ANN_U8, .rows = 700, .queries = 20, .dim = 3000});
  const Truth truth(wide);
  for (const uint32_t k : {10u, 40u, 200u}) compare_two_lists(wide, truth, k, 0.3f, 1000, 8);
  const Prepared narrow({.element = ANN_U8, .rows = 700, .queries = 20, .dim = 16});
  compare_two_lists(narrow, Truth(narrow), 200, 0.3f, 1000, 8);
  for (const uint32_t k : {10u, 40u, 200u}) compare_two_lists(wide, truth, k, 0.3f, 1000, 8);
}

void claim_values() {
  for (const Values values : {Values::kDuplicates, Values::kEqual, Values::kGrid}) {
    for (const bool ids : {false, true}) {
      for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_U8}, int32_t{ANN_I8}}) {
        for (const int32_t metric : kMetrics) {
          const Case c{.element = element,
                       .metric = metric,
                       .rows = quick ? 200u : 1000u,
                       .queries = 12,
                       .dim = 30,
                       .values = values,
                       .ids = ids};
          const Prepared data(c);
          const Truth truth(data);
          // Queries are not like these rows, and calibration promises nothing: only the rest is judged.
          compare_recall(data, truth, 10, 0.95f, 0.5);
          ann_search_params params = on_device();
          params.beam = 64;
          check_answers(data, truth, search(data, 10, params), 10, c.name());
          params.procedure = ANN_SEARCH_BEST_FIRST;
          check_answers(data, truth, search(data, 10, params), 10, c.name());
          if (!ids) compare_two_lists(data, truth, 10, 0.1f, 1000, 1);
        }
      }
    }
  }
  // Where queries are what every row is, none of them comes before another.
  Prepared same({.element = ANN_U8, .rows = 600, .queries = 40, .dim = 30, .values = Values::kEqual});
  for (size_t i = 0; i < same.queries.size(); ++i) same.queries[i] = same.rows[i % vector_bytes(same.c)];
  compare_two_lists(same, Truth(same), 10, 0.1f, 1000, 1);
  Case borrowed{.element = ANN_I8, .rows = 700, .dim = 50, .ids = true, .borrow = true};
  compare(borrowed);
  borrowed.element = ANN_F32;
  compare(borrowed);
}

/// The index on the device, whose codes are wide.
IndexView wide_view_of(const Prepared& data) {
  const Index::Call call(data.index->index);
  const PlacedSegment& built = placed_of(call);
  expect(built.segment.codes.wide(), data.c.name() + ": wide codes");
  return built.devices.get(built, 0, {})->placement->view();
}
bool has_halves(const Prepared& data) { return wide_view_of(data).halves.codes != nullptr; }
bool has_bytes(const Prepared& data) { return wide_view_of(data).narrow.codes != nullptr; }

/// Halves and bytes stand in for wide codes where they order rows as well, in rows of every length.
void claim_narrow() {
  std::vector<uint32_t> dims = {17, 24, 32, 33, 40, 56, 64, 72, 80, 96, 100, 192, 1000};
  if (quick) dims = {24, 40, 72, 100, 192};
  for (const uint32_t dim : dims) {
    const Case c{.rows = quick ? 600u : 2500u, .queries = 40, .dim = dim, .contrast = true};
    const Prepared data(c);
    const Truth truth(data);
    expect(has_halves(data), c.name() + ": halves serve");
    expect(has_bytes(data) == (dim > 32), c.name() + ": bytes serve, where floats take more than two lines");
    compare_recall(data, truth, 10, 0.95f, 0.06);
    for (const uint32_t k : {1u, 10u, 40u, 200u})
      for (const uint32_t warps : kWarps) compare_two_lists(data, truth, k, 0.3f, 1000, warps);
  }
  const Prepared narrow({.rows = 600, .dim = 16, .contrast = true});
  expect(!has_halves(narrow) && !has_bytes(narrow), "few columns have no narrow codes");
  const Prepared tight({.rows = 600, .dim = 96, .values = Values::kTight});
  expect(!has_halves(tight) && !has_bytes(tight), "rows that narrow codes do not tell apart have none");
  compare_two_lists(tight, Truth(tight), 10, 0.3f, 1000, 8);
}

/// A search on the device by a procedure: `warps` of a query, or one list of `beam`.
Answers search_by(const Prepared& data, uint32_t k, uint32_t warps, uint32_t beam, uint64_t first = 0,
                  uint64_t count = UINT64_MAX) {
  count = std::min<uint64_t>(count, data.c.queries - first);
  Answers answers;
  answers.ids.resize(count * k);
  answers.distances.resize(count * k);
  const Index::Call call(data.index->index);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.beam = beam;
  params.procedure = beam != 0 ? ANN_SEARCH_BEST_FIRST : ANN_SEARCH_TWO_LISTS;
  params.warps_per_query = warps;
  const ann_matrix queries = data.view(data.queries, count, first);
  ResultsView results;
  results.k = k;
  results.ids = answers.ids.data();
  results.distances = answers.distances.data();
  SearchCounts counts;
  search_snapshot(snapshot_of(call), params, 0.95f, ANN_DEVICE_CUDA,
                  {read_matrix(&queries, "queries"), results, nullptr}, Execution(), &counts);
  answers.distance_count = counts.distances;
  answers.expansion_count = counts.expansions;
  return answers;
}

/// Within a procedure the answer to a query is the same in any batch and at any place.
void claim_batches() {
  const uint32_t most = quick ? 200 : 10'000;
  struct Procedure {
    uint32_t k;
    uint32_t warps;
    uint32_t beam;
  };
  for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_U8}}) {
    const Prepared data({.element = element, .rows = quick ? 1500u : 20'000u, .queries = most, .dim = 48});
    for (const Procedure& by : {Procedure{10, 1, 0}, Procedure{10, 8, 0}, Procedure{10, 16, 0},
                                Procedure{100, 1, 0}, Procedure{100, 8, 0}, Procedure{10, 0, 50}}) {
      const Answers all = search_by(data, by.k, by.warps, by.beam);
      const std::string name = data.c.name() + ", warps " + std::to_string(by.warps) + ", k " +
                               std::to_string(by.k) + ", beam " + std::to_string(by.beam);
      // The order in which queries are walked for is made in groups of 16.
      for (const uint64_t size : {1ull, 7ull, 15ull, 16ull, 17ull, 31ull, 100ull, 1000ull}) {
        if (size > most) continue;
        for (const uint64_t first : {uint64_t{0}, uint64_t{most / 3}, uint64_t{most - size}}) {
          const Answers part = search_by(data, by.k, by.warps, by.beam, first, size);
          for (uint64_t i = 0; i < part.ids.size(); ++i)
            expect(part.same(all, i, first * by.k + i),
                   name + ": a batch of " + std::to_string(size) + " from " + std::to_string(first));
        }
      }
      const Answers again = search_by(data, by.k, by.warps, by.beam);
      expect(again.ids == all.ids && again.distance_count == all.distance_count,
             name + ": a second search of the whole batch");
    }
  }
}

/// For few queries of wide rows the blocks of a cluster share the comparisons; for more of them one block makes all.
/// Codes of every kind, with starts among pivots and among entry points.
void claim_clusters() {
  struct Kind {
    int32_t element;
    int32_t metric;
    Values values;
    bool contrast;
  };
  constexpr Kind kKinds[] = {{ANN_U8, ANN_METRIC_L2, Values::kClusters, false},
                             {ANN_I8, ANN_METRIC_COSINE, Values::kClusters, false},
                             {ANN_F32, ANN_METRIC_L2, Values::kClusters, false},
                             {ANN_F32, ANN_METRIC_L2, Values::kClusters, true},
                             {ANN_F32, ANN_METRIC_L2, Values::kTight, false},
                             {ANN_F16, ANN_METRIC_COSINE, Values::kClusters, false},
                             {ANN_F32, ANN_METRIC_INNER_PRODUCT, Values::kClusters, false}};
  std::vector<uint32_t> dims = {256, 257, 384, 500, 960, 2100};
  if (quick) dims = {400};
  for (const uint32_t dim : dims) {
    for (const Kind& kind : kKinds) {
      Case c{.element = kind.element,
             .metric = kind.metric,
             .rows = quick ? 300u : 3000u,
             .queries = 130,
             .dim = dim,
             .values = kind.values};
      c.contrast = kind.contrast;
      const Prepared data(c);
      for (const uint32_t k : {1u, 10u}) {
        const Answers all = search_by(data, k, 16, 0);
        for (const uint64_t size : {1ull, 10ull, 20ull}) {
          const uint64_t first = c.queries - size;
          const Answers part = search_by(data, k, 16, 0, first, size);
          for (uint64_t i = 0; i < part.ids.size(); ++i)
            expect(part.same(all, i, first * k + i),
                   c.name() + ", k " + std::to_string(k) + ": a batch of " + std::to_string(size));
        }
      }
      c.queries = quick ? 3 : 20;
      const Prepared few(c);
      const Truth truth(few);
      compare_two_lists(few, truth, 10, 0.3f, 1000, 16);
      compare_two_lists(few, truth, 10, 0.02f, 10, 16);
      compare_with_twin(few, 10, 0.05f, 40, 16);
    }
  }
}

/// AUTO may take another procedure for another batch, but recall is what was asked for, of all queries in
/// batches of each size. The ways to it share their sample of 1,024 queries, and are at most 0.006 apart, at 0.9 0.012,
/// where the points of a block's curve are farther from each other: what lies between two of them differs from one
/// curve to the other.
void claim_batch_recall() {
  struct Shape {
    int32_t element;
    uint32_t dim;
    uint32_t degree;
  };
  // The wider ones have a kernel for batches of which all queries are walked for at once.
  std::string broken;
  for (const Shape& shape :
       {Shape{ANN_F32, 32, 0}, Shape{ANN_U8, 32, 0}, Shape{ANN_U8, 100, 64}, Shape{ANN_F32, 100, 64}}) {
    // So many rows that those that calibrate are hidden.
    const Prepared data({.element = shape.element,
                         .rows = 120'000,
                         .queries = 10'000,
                         .dim = shape.dim,
                         .degree = shape.degree,
                         .device = ANN_DEVICE_CUDA});
    const Answers exact = search(data, 10, on_device(), 0, UINT64_MAX, true);
    for (const float target : {0.9f, 0.95f, 0.99f}) {
      ann_search_params params = on_device();
      params.recall = target;
      double least = 1;
      double most = 0;
      for (const uint64_t size : {1ull, 7ull, 100ull, 1000ull, 10'000ull}) {
        uint64_t hits = 0;
        uint64_t asked = 0;
        int32_t procedure = 0;
        for (uint64_t first = 0; first < data.c.queries; first += size) {
          const Answers part = search(data, 10, params, first, size);
          procedure = part.procedure;
          for (uint64_t i = 0; i < part.ids.size(); ++i)
            hits += part.distances[i] <= exact.distances[(first + i / 10) * 10 + 9] ? 1 : 0;
          asked += part.ids.size();
        }
        const double recall = static_cast<double>(hits) / static_cast<double>(asked);
        std::printf("  %s: batches of %llu, asked %.2f, got %.4f by procedure %d\n", data.c.name().c_str(),
                    static_cast<unsigned long long>(size), double{target}, recall, procedure);
        least = std::min(least, recall);
        // Two lists have the same sample and one rule; other ways to the recall may give more.
        if (procedure == ANN_SEARCH_TWO_LISTS) most = std::max(most, recall);
      }
      if (least < double{target} - 0.01 || most - least > (target < 0.95f ? 0.012 : 0.006))
        broken += "\n       " + data.c.name() + ": asked " + std::to_string(target) + ", got " +
                  std::to_string(least) + " to " + std::to_string(most);
    }
  }
  expect(broken.empty(), broken);
}

/// Two lists that are asked for by name, or by a deprecated one, answer batches of all sizes, as AUTO does by them,
/// and also where nothing has been calibrated. What is told beforehand and reported are two lists and their warps.
void claim_names() {
  struct Named {
    int32_t procedure;
    uint32_t asked;
    uint32_t warps;
  };
  constexpr Named kNamed[] = {{ANN_SEARCH_TWO_LISTS, 0, 1},   {ANN_SEARCH_TWO_LISTS, 1, 1},
                              {ANN_SEARCH_TWO_LISTS, 8, 8},   {ANN_SEARCH_TWO_LISTS, 16, 16},
                              {ANN_SEARCH_BLOCK, 0, 8},       {ANN_SEARCH_BLOCK, 8, 8},
                              {ANN_SEARCH_WIDE_BLOCK, 0, 16}, {ANN_SEARCH_WIDE_BLOCK, 16, 16}};
  for (const int32_t calibrate : {ANN_ON, ANN_OFF}) {
    const Prepared data({.element = ANN_U8,
                         .rows = quick ? 1500u : 6000u,
                         .queries = 300,
                         .dim = 20,
                         .calibrate = calibrate});
    const Truth truth(data);
    for (const Named& named : kNamed) {
      ann_search_params params = on_device();
      params.procedure = named.procedure;
      params.warps_per_query = named.asked;
      const std::string name = data.c.name() + ", procedure " + std::to_string(named.procedure) + ", warps " +
                               std::to_string(named.asked);
      const Answers all = search(data, 10, params);
      ann_search_forecast told = ANN_SEARCH_FORECAST_INIT;
      expect(ann_search_estimate(data.index, data.c.queries, 10, &params, &told, nullptr) == ANN_OK &&
                 told.procedure == ANN_SEARCH_TWO_LISTS && told.warps_per_query == named.warps,
             name + ": what is told beforehand");
      expect(all.procedure == ANN_SEARCH_TWO_LISTS && all.warps == named.warps, name + ": what is reported");
      expect(check_answers(data, truth, all, 10, name) >= 0.94, name + ": recall");
      for (const uint64_t size : {1ull, 7ull, 200ull}) {
        const Answers part = search(data, 10, params, 50, size);
        for (uint64_t i = 0; i < part.ids.size(); ++i)
          expect(part.same(all, i, 500 + i), name + ": a batch of " + std::to_string(size));
      }
      if (calibrate == ANN_OFF) continue;
      expect(search_by(data, 10, named.warps, 0).ids == all.ids, name + ": the procedure it names");
    }
  }
}

void claim_not_finite() {
  for (const int32_t metric : kMetrics) {
    Prepared data({.metric = metric, .rows = 500, .queries = 60, .dim = 10});
    const Answers before = search(data, 10, on_device());
    float* values = reinterpret_cast<float*>(data.queries.data());
    values[7 * 10 + 3] = NAN;
    values[59 * 10] = INFINITY;
    const Answers after = search(data, 10, on_device());
    for (uint64_t q = 0; q < 60; ++q) {
      const bool bad = q == 7 || q == 59;
      expect(after.status[q] == (bad ? ANN_NOT_FINITE : ANN_OK), "status of a query");
      expect(after.counts[q] == (bad ? 0u : 10u), "count of a query");
      for (uint64_t i = q * 10; i < q * 10 + 10; ++i)
        expect(bad ? after.ids[i] == ANN_ID_NONE && after.distances[i] == INFINITY : after.same(before, i, i),
               "answer of a query");
    }
  }
}

void claim_threads() {
  const Prepared data({.element = ANN_U8, .rows = quick ? 500u : 10'000u, .queries = 300, .dim = 40});
  const Answers expected = search_by(data, 10, 8, 0);
  std::atomic<uint32_t> failures = 0;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < (quick ? 4u : 32u); ++t) {
    threads.emplace_back([&, t] {
      try {
        for (uint32_t i = 0; i < (quick ? 2u : 20u); ++i) {
          const uint64_t first = (t * 31 + i * 7) % 200;
          const Answers part = search_by(data, 10, 8, 0, first, 1 + (t + i) % 100);
          for (uint64_t place = 0; place < part.ids.size(); ++place)
            failures += part.same(expected, place, first * 10 + place) ? 0 : 1;
        }
      } catch (const Failure& failure) {
        std::printf("  %s\n", failure.what.c_str());
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(failures == 0, "answers on many threads");

  // The first search on a device places the index; several may be the first.
  const Prepared fresh({.element = ANN_F32, .rows = 2000, .queries = 50, .dim = 40});
  std::vector<Answers> first(8);
  threads.clear();
  for (uint32_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] { first[t] = search(fresh, 10, on_device()); });
  for (std::thread& thread : threads) thread.join();
  for (uint32_t t = 1; t < 8; ++t) expect(first[t].ids == first[0].ids, "first searches at once");
}

ann_status status_of(const Prepared& data, uint32_t k, const ann_search_params& params,
                     ann_monitor* monitor = nullptr) {
  std::vector<uint64_t> ids(size_t{data.c.queries} * k);
  ann_results results = ANN_RESULTS_INIT;
  results.k = k;
  results.rows = data.c.queries;
  results.ids = ids.data();
  const ann_matrix queries = data.view(data.queries, data.c.queries);
  return ann_search_batch(data.index, &queries, &params, &results, monitor, nullptr);
}

void claim_refusals() {
  const Prepared data({.rows = 3000, .queries = 20, .dim = 16});
  ann_search_params params = on_device();
  params.device = ANN_DEVICE_CUDA + 99;
  expect(status_of(data, 10, params) == ANN_NO_DEVICE, "a device that does not exist");
  params = on_device();
  params.beam = 1985;
  expect(status_of(data, 10, params) == ANN_LIMIT, "a beam that is too long");
  params.beam = 9;
  expect(status_of(data, 10, params) == ANN_INVALID_ARGUMENT, "a beam shorter than k");
  params.beam = 0;
  expect(status_of(data, 2000, params) == ANN_UNSUPPORTED, "more answers than a device finds");
  struct Most {
    uint32_t warps;
    uint32_t k;  // of floats
  };
  for (const Most& most : {Most{1, 103}, Most{8, 1024}, Most{16, 16}}) {
    params.procedure = ANN_SEARCH_TWO_LISTS;
    params.warps_per_query = most.warps;
    expect(status_of(data, most.k, params) == ANN_OK, "as many answers as two lists find");
    expect(status_of(data, most.k + 1, params) == ANN_LIMIT, "more answers than two lists find");
    params.beam = 64;
    expect(status_of(data, 10, params) == ANN_INVALID_ARGUMENT, "a beam of two lists");
    params.beam = 0;
    params.device = ANN_DEVICE_CPU;
    expect(status_of(data, 10, params) == ANN_UNSUPPORTED, "two lists on the CPU");
    params = on_device();
  }
  ann_monitor* monitor = nullptr;
  expect(ann_monitor_create(&monitor, nullptr) == ANN_OK, "a monitor");
  ann_monitor_cancel(monitor);
  expect(status_of(data, 10, params, monitor) == ANN_CANCELLED, "a cancelled search");
  ann_monitor_reset(monitor);
  ann_monitor_set_deadline(monitor, 1);
  expect(status_of(data, 10, params, monitor) == ANN_DEADLINE, "a late search");
  ann_monitor_reset(monitor);
  expect(status_of(data, 10, params, monitor) == ANN_OK, "a search after that");
  ann_monitor_free(monitor);
  setenv("GANNET_BACKEND", "cuda", 1);
  params.device = ANN_DEVICE_AUTO;
  expect(status_of(data, 10, params) == ANN_OK, "GANNET_BACKEND=cuda");
  unsetenv("GANNET_BACKEND");
}

/// Copies come and go; searches that run keep theirs.
void claim_placement() {
  const Prepared data({.metric = ANN_METRIC_COSINE, .rows = 2000, .queries = 30, .dim = 20});
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ann_index_place(data.index, ANN_DEVICE_CUDA, nullptr, &error), error, "placement");
  expect_ok(ann_index_place(data.index, ANN_DEVICE_CUDA, nullptr, &error), error, "a second one");
  const Answers before = search(data, 10, on_device());
  expect_ok(ann_index_evict(data.index, ANN_DEVICE_CUDA, &error), error, "eviction");
  expect_ok(ann_index_evict(data.index, ANN_DEVICE_CUDA, &error), error, "a second one");
  expect(search(data, 10, on_device()).ids == before.ids, "answers of a second copy");
  expect(ann_index_place(data.index, ANN_DEVICE_CUDA + 99, nullptr, nullptr) == ANN_NO_DEVICE,
         "a device that does not exist");
  std::atomic<bool> stop = false;
  std::thread evicting([&] {
    while (!stop) ann_index_evict(data.index, ANN_DEVICE_CUDA, nullptr);
  });
  bool same = true;
  for (uint32_t i = 0; i < (quick ? 3u : 20u); ++i) same &= search(data, 10, on_device()).ids == before.ids;
  stop = true;
  evicting.join();
  expect(same, "answers while copies go");
}

/// The share of found rows that are no farther than the k-th true one.
double recall_of(const Answers& found, const Answers& exact, uint32_t k) {
  uint64_t hits = 0;
  for (uint64_t i = 0; i < found.ids.size(); ++i)
    hits += found.distances[i] <= exact.distances[i / k * k + k - 1] ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(found.ids.size());
}

/// The promise: recall on queries that the calibration has not seen is at most 0.01 below the target.
void claim_promise() {
  std::string broken;
  for (const int32_t metric : kMetrics) {
    for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_U8}}) {
      const Prepared data({.element = element, .metric = metric, .rows = 20'000, .queries = 1000, .dim = 24});
      for (const uint32_t k : {1u, 10u, 24u, 60u, 100u, 300u}) {
        ann_search_params params = on_device();
        const Answers exact = search(data, k, params, 0, UINT64_MAX, true);
        for (const float target : {0.9f, 0.95f, 0.99f}) {
          params.recall = target;
          const Answers found = search(data, k, params);
          const double got = recall_of(found, exact, k);
          std::printf("  %s, k %u: asked %.2f, got %.4f, %.0f distances, %.1f expansions a query\n",
                      data.c.name().c_str(), k, double{target}, got,
                      static_cast<double>(found.distance_count) / data.c.queries,
                      static_cast<double>(found.expansion_count) / data.c.queries);
          if (got < double{target} - 0.01)
            broken += "\n       " + data.c.name() + ": k " + std::to_string(k) + ", asked " +
                      std::to_string(target) + ", got " + std::to_string(got);
        }
      }
    }
  }
  expect(broken.empty(), broken);
}

/// One list goes by its own walks on the device, also between the answers that were measured, and leaves the CPU's curves
/// alone. AUTO promises at least what is asked for.
void claim_one_list_promise() {
  for (const int32_t metric : {int32_t{ANN_METRIC_L2}, int32_t{ANN_METRIC_INNER_PRODUCT}}) {
    const Prepared data(
        {.metric = metric, .rows = 40'000, .queries = 2000, .dim = 24, .device = ANN_DEVICE_CUDA});
    for (const uint32_t k : {1u, 10u, 30u, 100u, 400u, 1000u}) {
      const Answers exact = search(data, k, on_device(), 0, UINT64_MAX, true);
      for (const float target : {0.8f, 0.9f, 0.95f, 0.99f, 0.999f}) {
        ann_search_params params = on_device();
        params.procedure = ANN_SEARCH_BEST_FIRST;
        params.recall = target;
        const Answers found = search(data, k, params);
        const double got = recall_of(found, exact, k);
        const std::string name = data.c.name() + ", one list, k " + std::to_string(k);
        std::printf("  %s: asked %.3f, got %.4f, %.1f expansions a query\n", name.c_str(), double{target},
                    got, static_cast<double>(found.expansion_count) / data.c.queries);
        expect(got >= double{target} - 0.01, name + ": recall");
        params.procedure = ANN_SEARCH_AUTO;
        ann_search_forecast forecast = ANN_SEARCH_FORECAST_INIT;
        ann_error error = ANN_ERROR_INIT;
        expect_ok(ann_search_estimate(data.index, data.c.queries, k, &params, &forecast, &error), error,
                  name);
        expect(forecast.recall >= target, name + ": the promise of AUTO");
      }
    }
    const Index::Call call(data.index->index);
    expect(!placed_of(call).calibration.is_known(), "the CPU's curves wait for a search of the CPU");
  }
}

/// CAGRA's searches keep the promise too, where rows can be hidden.
void claim_cagra_promise() {
  const Prepared data(
      {.element = ANN_U8, .rows = 120'000, .queries = 2000, .dim = 24, .device = ANN_DEVICE_CUDA});
  for (const uint32_t k : {1u, 10u, 100u}) {
    const Answers exact = search(data, k, on_device(), 0, UINT64_MAX, true);
    for (const int32_t procedure :
         {ANN_SEARCH_CAGRA_SINGLE_CTA, ANN_SEARCH_CAGRA_MULTI_CTA, ANN_SEARCH_CAGRA}) {
      for (const float target : {0.9f, 0.95f, 0.99f}) {
        ann_search_params params = on_device();
        params.procedure = procedure;
        params.recall = target;
        const Answers found = search(data, k, params);
        const double got = recall_of(found, exact, k);
        const std::string name = "procedure " + std::to_string(procedure) + ", k " + std::to_string(k);
        std::printf("  %s: asked %.2f, got %.4f, %.1f expansions a query\n", name.c_str(), double{target},
                    got, static_cast<double>(found.expansion_count) / data.c.queries);
        expect(got >= double{target} - 0.01, name + ": recall");
      }
    }
  }
}

/// Recalls of all queries by one procedure after another, and whether each is at most 0.01 below the target.
bool keeps_promise(const Prepared& data, const ann_index* index, const std::string& name) {
  bool kept = true;
  for (const uint32_t k : {1u, 10u, 100u}) {
    const Answers exact = search(data, k, on_device(), 0, UINT64_MAX, true);
    struct By {
      int32_t procedure;
      uint32_t warps;
    };
    for (const By& by :
         {By{ANN_SEARCH_TWO_LISTS, 1}, By{ANN_SEARCH_TWO_LISTS, 8}, By{ANN_SEARCH_TWO_LISTS, 16},
          By{ANN_SEARCH_CAGRA_SINGLE_CTA, 0}, By{ANN_SEARCH_CAGRA_MULTI_CTA, 0}}) {
      if (by.warps == 16 && k > 10) continue;
      for (const float target : {0.9f, 0.95f, 0.99f}) {
        ann_search_params params = on_device();
        params.procedure = by.procedure;
        params.warps_per_query = by.warps;
        params.recall = target;
        Answers found;
        ann_error error = ANN_ERROR_INIT;
        expect_ok(ask(index, data.view(data.queries, data.c.queries), k, params, false, &found, &error),
                  error, name);
        const double got = recall_of(found, exact, k);
        const bool enough = got >= double{target} - 0.01;
        std::printf("  %s, procedure %d, warps %u, k %u: asked %.2f, got %.4f%s\n", name.c_str(),
                    by.procedure, by.warps, k, double{target}, got, enough ? "" : ", too little");
        kept = kept && enough;
      }
    }
  }
  return kept;
}

/// A copy of an index by way of its file.
ann_index* saved_and_opened(ann_index* index) {
  std::vector<uint8_t> file;
  ann_writer writer = ANN_WRITER_INIT;
  writer.user = &file;
  writer.write = [](void* user, const void* data, uint64_t bytes) {
    std::vector<uint8_t>& written = *static_cast<std::vector<uint8_t>*>(user);
    const uint8_t* from = static_cast<const uint8_t*>(data);
    written.insert(written.end(), from, from + bytes);
    return static_cast<int64_t>(bytes);
  };
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ann_save_stream(index, &writer, nullptr, nullptr, &error), error, "a save");
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = ANN_OPEN_FULL;
  ann_index* opened = nullptr;
  expect_ok(ann_open_memory(nullptr, file.data(), file.size(), &params, &opened, nullptr, &error), error,
            "an open");
  return opened;
}

/// Queries unlike the rows: the promise holds where the build was given some of them, also in a copy of the
/// index from a file, and does not hold else. Of bytes: floats are walked to by codes, which tell little of
/// queries that lie outside all rows, so that two lists find 0.88 at most.
void claim_strange_queries() {
  const Case c{.element = ANN_U8,
               .rows = 120'000,
               .queries = 4000,
               .dim = 16,
               .values = Values::kNormal,
               .device = ANN_DEVICE_CUDA,
               .strange = true,
               .told = true};
  const Prepared told(c);
  expect(keeps_promise(told, told.index, told.c.name() + ", told"), "recall with queries to calibrate on");
  ann_index* const opened = saved_and_opened(told.index);
  const bool kept = keeps_promise(told, opened, told.c.name() + ", opened");
  ann_index_free(opened);
  expect(kept, "recall with queries from a file to calibrate on");
  Case c_untold = c;
  c_untold.told = false;
  const Prepared untold(c_untold);
  expect(!keeps_promise(untold, untold.index, untold.c.name() + ", not told"),
         "the promise does not need queries to calibrate on, so that this test claims nothing");
}

/// Pivots that are some of the heads, with some of the others, and places left without one.
void compare_pivots(const Case& c) {
  const Prepared data(c);
  const Truth truth(data);
  std::vector<uint32_t> all;
  {
    const Index::Call call(data.index->index);
    const Array<uint32_t>& heads = placed_of(call).segment.graph.heads;
    all.assign(heads.begin(), heads.end());
  }
  std::vector<uint32_t> some;
  for (size_t i = 0; i < all.size(); i += std::max<size_t>(1, all.size() / c.distinct)) {
    if (i % 20 != 0) some.push_back(all[i]);
  }
  expect(some.size() > kPivots && some.size() < pivot_count(some.size()) && all.size() <= kPivotsMost,
         c.name() + ": heads, of which some leave places to others, not " + std::to_string(all.size()));
  for (const std::vector<uint32_t>& covering : {some, all}) {
    {
      const Index::Call call(data.index->index);
      const PlacedSegment& built = placed_of(call);
      const auto placed = built.devices.get(built, 0, Execution{});
      placed->placement->replace_pivots(built.segment.graph, covering, Execution{});
    }
    for (const uint32_t k : {1u, 10u, 40u}) {
      for (const uint32_t warps : {8u, 16u}) compare_with_twin(data, k, 0.05f, 40, warps, covering);
      for (const uint32_t warps : kWarps) compare_two_lists(data, truth, k, 0.3f, 1000, warps);
    }
  }
}

/// Each kernel at least once.
void claim_handful() {
  for (const uint32_t dim : {40u, 100u, 200u}) {
    for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_I8}, int32_t{ANN_U8}}) {
      for (const uint32_t degree : {16u, 40u})
        compare({.element = element, .rows = 150, .queries = 5, .dim = dim, .degree = degree});
      compare({.element = element,
               .metric = ANN_METRIC_INNER_PRODUCT,
               .rows = 150,
               .queries = 5,
               .dim = dim,
               .degree = dim / 2});
    }
  }
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT}) {
    const Prepared wide({.metric = metric, .rows = 100, .queries = 2, .dim = 400});
    compare_with_twin(wide, 10, 0.05f, 40, 16);
  }
  const Prepared data({.element = ANN_U8, .rows = 900, .queries = 3, .dim = 20});
  const Truth truth(data);
  for (const uint32_t beam : {100u, 300u, 800u}) compare_one_list(data, truth, 10, beam);
  for (const uint32_t dim : {16u, 400u})
    compare_pivots({.element = ANN_U8, .rows = 3600, .queries = 3, .dim = dim, .degree = 4, .distinct = 600});
}

void claim_pivots() {
  constexpr uint32_t kDistinct = 700;
  Case c{.element = ANN_U8, .rows = 24 * kDistinct, .dim = 24, .degree = 8, .distinct = kDistinct};
  compare_pivots(c);
  c.element = ANN_F32;
  c.calibrate = ANN_OFF;
  compare_pivots(c);
  // So few that a cluster compares them.
  c.queries = 3;
  c.dim = 400;
  c.around = 0.1f;
  compare_pivots(c);
}

/// Islands that are more than the usual pivots have others, in a file too.
void claim_islands() {
  const Prepared data({.rows = quick ? 24'000u : 45'000u,
                       .queries = 40,
                       .dim = 48,
                       .degree = 8,
                       .values = Values::kNormal,
                       .device = ANN_DEVICE_CUDA,
                       .distinct = 1500,
                       .around = 0.1f});
  const Truth truth(data);
  for (const float recall : {0.9f, 0.99f}) compare_recall(data, truth, 10, recall, 0.06);
  ann_index* const opened = saved_and_opened(data.index);
  const auto pivots_of = [](ann_index* index) {
    const Index::Call call(index->index);
    const PlacedSegment& built = placed_of(call);
    const auto placed = built.devices.get(built, 0, Execution{});
    expect(built.devices.measured().size() == 1, "one class of devices");
    return placed->placement->has_covering_pivots() ? placed->placement->view().pivot_count : 0;
  };
  const uint32_t pivots = pivots_of(data.index);
  expect(pivots > kPivots && pivots == pivots_of(opened), "covering heads, also after an open");
  const ann_matrix queries = data.view(data.queries, data.c.queries);
  ann_error error = ANN_ERROR_INIT;
  Answers before, after;
  expect_ok(ask(data.index, queries, 10, on_device(), false, &before, &error), error, "a search");
  expect_ok(ask(opened, queries, 10, on_device(), false, &after, &error), error, "a search");
  expect(before.ids == after.ids, "the file's answers");
  ann_index_free(opened);
}

constexpr Claim kQuickClaims[] = {
    {"every element and metric", claim_elements},
    {"every dimension", claim_dims},
    {"every number of rows", claim_sizes},
    {"every k", claim_k},
    {"every degree", claim_degrees},
    {"long walks of one warp", claim_long_walks},
    {"indexes of long and of short rows", claim_widths},
    {"narrow codes in place of wide ones", claim_narrow},
    {"duplicates, equal rows, equal distances", claim_values},
    {"batches of any size", claim_batches},
    {"wide rows that a cluster compares", claim_clusters},
    {"pivots that are covering heads", claim_pivots},
    {"more islands than pivots", claim_islands},
    {"procedures by name", claim_names},
    {"queries that are not finite", claim_not_finite},
    {"many threads at once", claim_threads},
    {"refusals", claim_refusals},
    {"copies that come and go", claim_placement},
};
constexpr Claim kLongClaims[] = {
    {"recall of batches of any size", claim_batch_recall},
    {"the recall that was asked for", claim_promise},
    {"the recall that one list was asked for", claim_one_list_promise},
    {"the recall that CAGRA was asked for", claim_cagra_promise},
    {"the recall of queries unlike the rows", claim_strange_queries},
};
constexpr Claim kRaceClaims[] = {{"each kernel", claim_handful}};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  const std::string only = count > 2 ? arguments[2] : "";
  quick = mode == "quick";
  if (mode == "race") return run_claims(kRaceClaims);
  int status = run_claims(kQuickClaims, only);
  if (!quick && status != 77) status |= run_claims(kLongClaims, only);
  std::printf("%llu of %llu answers with one list are those of the CPU\n",
              static_cast<unsigned long long>(answers_equal),
              static_cast<unsigned long long>(answers_compared));
  return status;
}
