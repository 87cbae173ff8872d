// Claims about searches by inner product on a CUDA device, where walks compare codes with a scale for each
// row (dataset/scaled_codes.h): queries are coded as on the CPU, walks find what its walks find, and the recall
// that was asked for is got where rows are of unlike length and queries of another law.
//
//   product_cuda_test            all claims
//   product_cuda_test quick      fewer and smaller cases, for compute-sanitizer
//   product_cuda_test race       a handful, for its racecheck, which is slow
//
// Ends with 77 where there is no CUDA device.

#include <algorithm>
#include <cmath>
#include <set>

#include "answers.h"
#include "capi/boundary.h"
#include "claims.h"
#include "dataset/scaled_codes.h"
#include "graph/product_edges.h"
#include "index/product_walks.h"
#include "place/index_view.h"
#include "search/scaled_codes_cuda.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;
bool race = false;

/// Directions of some clusters, times lengths that differ by a factor of some ten; or the same far apart, each
/// cluster so narrow that one centre for all does not tell its rows from each other.
enum class Law { kUnlike, kNarrow };

struct Made {
  Rows rows;
  Rows queries;
};

Made make(Law law, uint32_t count, uint32_t queries, uint32_t dim, float length = 1) {
  constexpr uint32_t kClusters = 60;
  Made made{Rows(ANN_F32, count, dim, Values::kEqual, 1), Rows(ANN_F32, queries, dim, Values::kEqual, 1)};
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> centres(size_t{kClusters} * dim);
  for (float& centre : centres) centre = normal(random);
  const float spread = law == Law::kNarrow ? 0.001f : 0.6f;
  for (uint32_t row = 0; row < count; ++row) {
    const float scale = law == Law::kNarrow ? 1 : std::exp(0.7f * normal(random));
    const uint32_t cluster = random() % kClusters;
    for (uint32_t column = 0; column < dim; ++column)
      made.rows.put(row * made.rows.stride, column,
                    scale * (centres[cluster * dim + column] + spread * normal(random)));
  }
  // Means of some directions, which are like no row.
  for (uint32_t query = 0; query < queries; ++query) {
    uint32_t parts[5];
    for (uint32_t& part : parts) part = random() % kClusters;
    for (uint32_t column = 0; column < dim; ++column) {
      float sum = 0;
      for (const uint32_t part : parts) sum += centres[part * dim + column] + 0.3f * normal(random);
      made.queries.put(query * made.queries.stride, column, sum / 5 * length);
    }
  }
  return made;
}

/// An index by inner product, built by the library's choice of device.
struct Built {
  ann_index* index = nullptr;

  Built(const Rows& rows, const Rows* calibration, int32_t calibrate, uint32_t degree = 0,
        int32_t device = ANN_DEVICE_AUTO) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    shape.metric = ANN_METRIC_INNER_PRODUCT;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, "an index");
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.calibrate = calibrate;
    params.degree = degree;
    params.device = device;
    const ann_matrix given = calibration != nullptr ? matrix_of(*calibration) : ann_matrix ANN_MATRIX_INIT;
    if (calibration != nullptr) params.calibration = &given;
    const ann_matrix matrix = matrix_of(rows);
    expect_ok(ann_build(index, &matrix, nullptr, &params, nullptr, &error), error, "a build");
  }
  ~Built() { ann_index_free(index); }
  Built(const Built&) = delete;

  Answers search(const Rows& queries, uint32_t k, ann_search_params params, int32_t device,
                 bool exact = false) const {
    params.device = device;
    Answers answers;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ask(index, matrix_of(queries), k, params, exact, &answers, &error), error, "a search");
    return answers;
  }
};

double recall_of(const Answers& got, const Answers& truth, uint32_t k) {
  uint64_t hits = 0;
  for (size_t i = 0; i < got.ids.size(); ++i)
    hits += got.distances[i] <= truth.distances[i / k * k + k - 1] ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(got.ids.size());
}

// --- Claims --------------------------------------------------------------------------------------

/// Codes as the device makes them, of queries that a dataset has prepared.
std::vector<uint8_t> code_on_device(const Dataset& dataset, const ScaledCodes& codes, const Rows& queries,
                                    uint32_t code_bytes) {
  const size_t stride = round_up(dataset.query_bytes(), 16);
  std::vector<uint8_t> records(queries.rows * stride + 64);
  PreparedQuery prepared;
  for (uint32_t query = 0; query < queries.rows; ++query)
    dataset.prepare(queries.bytes.data() + query * queries.stride, queries.element,
                    records.data() + query * stride, &prepared);
  const cuda::Stream stream;
  const cuda::DeviceArray<uint8_t> there(records.size(), stream);
  const cuda::DeviceArray<float> centres(codes.centres().size(), stream);
  const cuda::DeviceArray<uint8_t> made(uint64_t{code_bytes} * queries.rows, stream);
  // Between the parts of a code lie bytes that nothing writes or reads, but the copy below.
  cuda::fill(made.data(), 0, uint64_t{code_bytes} * queries.rows, stream, "clearing device memory");
  cuda::copy_to_device(there.data(), records.data(), records.size(), stream, "sending queries");
  cuda::copy_to_device(centres.data(), codes.centres().data(), codes.centres().size() * sizeof(float), stream,
                       "sending centres");
  cuda::EncodeScaledArgs args = {};
  args.queries = there.data();
  args.centres = centres.data();
  args.codes = made.data();
  args.query_stride = static_cast<uint32_t>(stride);
  args.code_bytes = code_bytes;
  args.row_stride = static_cast<uint32_t>(codes.stride());
  args.terms_at = static_cast<uint32_t>(ScaledCodes::terms_at(dataset.dim()));
  args.count = queries.rows;
  args.dim = dataset.dim();
  args.cells = codes.cells();
  args.most = most_of_query(dataset.dim());
  cuda::start_encode_scaled(args, dataset.element(), stream);
  std::vector<uint8_t> result(uint64_t{code_bytes} * queries.rows);
  cuda::copy_to_host(result.data(), made.data(), result.size(), stream, "fetching codes");
  stream.wait();
  return result;
}

/// Both have no number where a product has left the range of floats.
bool same_numbers(const uint8_t* left, const uint8_t* right, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    float a;
    float b;
    std::memcpy(&a, left + i * sizeof a, sizeof a);
    std::memcpy(&b, right + i * sizeof b, sizeof b);
    if (std::memcmp(&a, &b, sizeof a) != 0 && !(std::isnan(a) && std::isnan(b))) return false;
  }
  return true;
}

void compare_codes(int32_t element, uint32_t dim, uint32_t cells, Values values) {
  const Rows rows(element, 400, dim, values, 3);
  const Rows queries(element, 9, dim, values, 4);
  const Dataset dataset = rows.dataset(ANN_METRIC_INNER_PRODUCT);
  const ScaledCodes codes(dataset, cells, 1, Execution());
  ScaledView view;
  view.codes = codes.data();
  view.cells = codes.cells();
  view.stride = static_cast<uint32_t>(codes.stride());
  const std::vector<uint8_t> device = code_on_device(dataset, codes, queries, view.query_bytes());
  Array<uint8_t> host({}, codes.query_bytes());
  std::vector<uint8_t> prepared_values(dataset.query_bytes() + 64);
  for (uint32_t query = 0; query < queries.rows; ++query) {
    PreparedQuery prepared;
    dataset.prepare(queries.bytes.data() + query * queries.stride, element, prepared_values.data(),
                    &prepared);
    codes.encode_query(prepared, host.data());
    const uint8_t* made = device.data() + uint64_t{query} * view.query_bytes();
    const std::string name = std::string(element_name(element)) + " x " + std::to_string(dim) + ", " +
                             std::to_string(cells) + " cells, values " +
                             std::to_string(static_cast<int>(values)) + ", query " + std::to_string(query);
    const uint32_t digits = 2 * view.stride;
    expect(std::memcmp(made, host.data(), 8) == 0, name + ": weight and bias");
    expect(std::memcmp(made + 64, host.data() + 64, digits) == 0, name + ": digits");
    expect(same_numbers(made + 64 + digits, host.data() + 64 + digits, codes.cells()), name + ": table");
  }
}

void claim_codes() {
  for (const int32_t element : kElements) {
    for (const uint32_t dim :
         {1u, 15u, 31u, 32u, 33u, 63u, 64u, 65u, 100u, 112u, 113u, 128u, 130u, 200u, 1000u}) {
      if ((quick && dim > 130) || (race && dim != 100)) continue;
      for (const uint32_t cells : {1u, 256u}) compare_codes(element, dim, cells, Values::kClusters);
    }
  }
  for (const Values values : {Values::kOrigin, Values::kTiny, Values::kHuge, Values::kZeros})
    compare_codes(ANN_F32, 70, 256, values);
}

constexpr uint32_t kWarps[] = {1, 8, 16};  // of a query of two lists

/// Two lists, not calibrated: more slack finds more, and no row stands twice.
void compare_two_lists(const Built& built, const Made& made, const Answers& truth, uint32_t k, uint32_t warps,
                       double cpu_recall, const std::string& name) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_TWO_LISTS;
  params.warps_per_query = warps;
  params.recall = 0.99f;  // with much slack
  const Answers device = built.search(made.queries, k, params, ANN_DEVICE_CUDA);
  const double recall = recall_of(device, truth, k);
  params.recall = 0.5f;  // with less
  const double less = recall_of(built.search(made.queries, k, params, ANN_DEVICE_CUDA), truth, k);
  expect(recall >= 0.6 * cpu_recall && recall >= less - 0.01,
         name + ": " + std::to_string(warps) + " warps got " + std::to_string(recall) + ", with less slack " +
             std::to_string(less) + ", the CPU's beam of 64 " + std::to_string(cpu_recall));
  for (uint64_t query = 0; query < made.queries.rows; ++query) {
    const std::set<uint64_t> ids(device.ids.begin() + static_cast<int64_t>(query * k),
                                 device.ids.begin() + static_cast<int64_t>((query + 1) * k));
    expect(ids.size() == k, name + ": distinct answers");
  }
}

/// Walks against the CPU's by the same codes: with one list equal but for rows that a filter takes for met. Blocks with
/// two lists are compared with their twin, row for row, by walk_cuda_test.
void compare_walks(Law law, uint32_t rows, uint32_t dim, uint32_t degree) {
  const Made made = make(law, rows, race ? 4 : quick ? 12 : 200, dim);
  const Built built(made.rows, nullptr, ANN_OFF, degree);
  const ann_search_params defaults = ANN_SEARCH_PARAMS_INIT;
  for (const uint32_t k : {1u, 10u, 60u}) {
    const std::string name = std::to_string(rows) + " rows x " + std::to_string(dim) + ", degree " +
                             std::to_string(degree) + ", law " + std::to_string(static_cast<int>(law)) +
                             ", k " + std::to_string(k);
    const Answers truth = built.search(made.queries, k, defaults, ANN_DEVICE_CPU, true);
    double cpu_recall = 0;
    for (const uint32_t beam : {64u, 300u, 900u}) {
      ann_search_params params = ANN_SEARCH_PARAMS_INIT;
      params.procedure = ANN_SEARCH_BEST_FIRST;
      params.beam = beam;
      const Answers cpu = built.search(made.queries, k, params, ANN_DEVICE_CPU);
      const Answers device = built.search(made.queries, k, params, ANN_DEVICE_CUDA);
      uint64_t equal = 0;
      for (uint64_t i = 0; i < cpu.ids.size(); ++i) equal += device.same(cpu, i, i) ? 1 : 0;
      // One row that is dropped moves those behind it.
      const double share = static_cast<double>(equal) / static_cast<double>(cpu.ids.size());
      expect(share >= 0.9, name + ", beam " + std::to_string(beam) + ": " + std::to_string(share) +
                               " of the answers are the CPU's");
      const double work =
          static_cast<double>(device.distance_count) / static_cast<double>(cpu.distance_count);
      expect(work > 0.95 && work < 1.05, name + ": " + std::to_string(work) + " of the CPU's distances");
      if (beam == 64) cpu_recall = recall_of(cpu, truth, k);
    }
    for (const uint32_t warps : kWarps) {
      if (warps == 16 && k > 16) continue;
      compare_two_lists(built, made, truth, k, warps, cpu_recall, name);
    }
  }
}

void claim_walks() {
  const uint32_t rows = race ? 250 : quick ? 600 : 12'000;
  compare_walks(Law::kUnlike, rows, 24, 0);
  compare_walks(Law::kUnlike, rows, 100, 48);
  compare_walks(Law::kUnlike, rows, 130, 80);
  compare_walks(Law::kNarrow, rows, 40, 0);
}

void claim_lengths() {
  const uint32_t rows = quick ? 600 : 8000;
  const Made made = make(Law::kUnlike, rows, 100, 40);
  const Built built(made.rows, nullptr, ANN_OFF);
  for (const uint32_t warps : {0u, 1u, 8u, 16u}) {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.procedure = warps == 0 ? ANN_SEARCH_BEST_FIRST : ANN_SEARCH_TWO_LISTS;
    params.warps_per_query = warps;
    const Answers one = built.search(made.queries, 10, params, ANN_DEVICE_CUDA);
    for (const float length : {0.0009765625f, 0.125f, 64.0f, 1048576.0f}) {  // powers of two: no rounding
      const Made other = make(Law::kUnlike, rows, 100, 40, length);
      const Answers answers = built.search(other.queries, 10, params, ANN_DEVICE_CUDA);
      expect(answers.ids == one.ids && answers.distance_count == one.distance_count,
             "queries times " + std::to_string(length) + ", warps " + std::to_string(warps));
    }
  }
}

/// Of AUTO, batch by batch: what it found, and how many rows it compared for a query.
void ask_in_batches(const Built& built, const Rows& asked, const Answers& truth, uint32_t batch, float recall,
                    uint32_t rows) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.recall = recall;
  const uint32_t queries = batch == 1 ? 1000 : asked.rows;
  Answers all;
  uint64_t distances = 0;
  Rows part = asked;
  for (uint32_t first = 0; first + batch <= queries; first += batch) {
    part.rows = batch;
    part.bytes.assign(asked.bytes.begin() + static_cast<int64_t>(first * asked.stride),
                      asked.bytes.begin() + static_cast<int64_t>((first + batch) * asked.stride));
    const Answers some = built.search(part, 10, params, ANN_DEVICE_CUDA);
    all.ids.insert(all.ids.end(), some.ids.begin(), some.ids.end());
    all.distances.insert(all.distances.end(), some.distances.begin(), some.distances.end());
    distances += some.distance_count;
    all.procedure = some.procedure;
  }
  const double got = recall_of(all, truth, 10);
  const uint64_t compared = distances / (all.ids.size() / 10);
  std::printf("  batches of %u: asked %.2f, got %.4f by procedure %d, %llu distances a query\n", batch,
              double{recall}, got, all.procedure, static_cast<unsigned long long>(compared));
  expect(got >= double{recall} - 0.01, "recall " + std::to_string(got));
  expect(compared < rows / 8, std::to_string(compared) + " rows compared for a query");
}

/// By AUTO, from queries of the law that come, given to the build; and by walks, not by comparing all rows.
void claim_recall() {
  const Made made = make(Law::kUnlike, 30'000, 13'000, 24);
  Rows given = made.queries;
  given.rows = 3000;
  Rows asked = made.queries;
  asked.bytes.erase(asked.bytes.begin(), asked.bytes.begin() + static_cast<int64_t>(3000 * asked.stride));
  asked.rows = 10'000;
  const Built built(made.rows, &given, ANN_ON);
  const Answers truth =
      built.search(asked, 10, ann_search_params ANN_SEARCH_PARAMS_INIT, ANN_DEVICE_CUDA, true);
  for (const uint32_t batch : {1u, 10u, 100u, 1000u, 10'000u}) {
    for (const float recall : {0.8f, 0.9f, 0.95f})
      ask_in_batches(built, asked, truth, batch, recall, made.rows.rows);
  }
}

/// Entries of some rows' lists that are among the `k` of the largest products, and those that another list has.
struct Shares {
  double true_ones;
  double in_other;
};

Shares shares_of(const KnnGraph& lists, const KnnGraph& other, const Answers& truth, uint32_t step) {
  const uint32_t k = lists.k;
  uint64_t true_ones = 0;
  uint64_t in_other = 0;
  uint64_t count = 0;
  for (uint32_t row = 0; row < lists.rows; row += step) {
    const std::set<uint32_t> others(other.list(row), other.list(row) + k);
    // The row itself may be among its answers, of which there is one more.
    const uint64_t* answers = truth.ids.data() + size_t{row / step} * (k + 1);
    const std::set<uint64_t> near(answers,
                                  answers + k + (std::count(answers, answers + k, row) != 0 ? 1 : 0));
    for (uint32_t i = 0; i < k; ++i) {
      true_ones += near.count(lists.list(row)[i]);
      in_other += others.count(lists.list(row)[i]);
    }
    count += k;
  }
  return {static_cast<double>(true_ones) / static_cast<double>(count),
          static_cast<double>(in_other) / static_cast<double>(count)};
}

/// Of each row and each entry of its list the entry's list has the row too, or k rows that are nearer. Lists are sorted,
/// and no row is in its own.
void claim_mutual() {
  constexpr uint32_t kLists = 24;
  const Made made = make(Law::kUnlike, quick ? 2000 : 20'000, 1, 24);
  const Built built(made.rows, nullptr, ANN_OFF);
  const Index::Call call(built.index->index);
  const Segment& segment = segment_of(call);
  const KnnGraph lists = cuda::lists_by_product(segment, kLists, ANN_DEVICE_CUDA, Execution());
  const auto distance = [&](uint32_t row, uint32_t other) {
    std::vector<uint8_t> values(segment.dataset.query_bytes());
    PreparedQuery query;
    segment.dataset.prepare(static_cast<const uint8_t*>(segment.dataset.view().row(row)), ANN_F32,
                            values.data(), &query);
    float product = 0;
    segment.dataset.distances(query, &other, 0, 1, &product);
    return product;
  };
  uint32_t missing = 0;
  for (uint32_t row = 0; row < lists.rows; ++row) {
    float before = -INFINITY;
    for (uint32_t i = 0; i < kLists; ++i) {
      const uint32_t other = lists.list(row)[i];
      expect(other < lists.rows && other != row, "an entry is a row, and not its own");
      const float product = distance(row, other);
      expect(product >= before, "a list is sorted");
      before = product;
      const uint32_t* back = lists.list(other);
      const bool is_there = std::find(back, back + kLists, row) != back + kLists;
      missing += !is_there && product < distance(other, back[kLists - 1]) ? 1 : 0;
    }
  }
  expect(missing == 0, std::to_string(missing) + " rows are missing in the list of another");
}

/// The edges that a device has made are those of the host's graph, on both, and every row is reached. Where one centre
/// does not order the rows, they are made once more by codes about many.
void compare_edges(Law law, uint32_t dim, uint32_t centres) {
  const Made made = make(law, 40'000, 1, dim);
  const Built built(made.rows, nullptr, ANN_OFF, 0, ANN_DEVICE_CUDA);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ann_index_get_info(built.index, &info, &error), error, "what is known of an index");
  expect(info.code_centres == centres, std::to_string(info.code_centres) + " centres");
  expect(info.code_first_twenty > 0.99f, "the order by code is measured");
  const Index::Call call(built.index->index);
  const SearchGraph& graph = segment_of(call).graph;
  expect(count_unreachable(graph, Allocator()) == 0, "rows are not reached");
  const auto placed = placed_of(call).devices.find(0);
  expect(placed != nullptr, "the build leaves a placement");
  std::vector<uint32_t> edges(graph.edges.size());
  const cuda::Stream stream;
  cuda::copy_to_host(edges.data(), placed->placement->view().graph.targets, edges.size() * sizeof(uint32_t),
                     stream, "fetching edges");
  stream.wait();
  expect(std::equal(edges.begin(), edges.end(), graph.edges.begin()),
         "the device has other edges than the host");
  for (uint32_t row = 0; row < graph.rows; ++row) {
    const uint32_t* targets = edges.data() + size_t{row} * graph.degree;
    const uint32_t* end = std::find(targets, targets + graph.degree, kNoRow);
    expect(std::find(targets, end, row) == end, "an edge leads to its own row");
    expect(std::set<uint32_t>(targets, end).size() == static_cast<size_t>(end - targets),
           "two edges lead to one row");
  }
}

void claim_edges() {
  compare_edges(Law::kUnlike, 24, 1);
  compare_edges(Law::kNarrow, 40, 256);
}

/// Walks of a device for every row leave as good lists by product as the host's, which look through those of others.
void claim_lists() {
  constexpr uint32_t kCount = 40'000;
  constexpr uint32_t kLists = 48;
  constexpr uint32_t kStep = 100;
  static_assert(kCount >= kProductWalksMin);
  const Made made = make(Law::kUnlike, kCount, 1, 24);
  const Built built(made.rows, nullptr, ANN_OFF);
  Rows some = made.rows;
  some.rows = kCount / kStep;
  some.bytes.clear();
  for (uint32_t row = 0; row < kCount; row += kStep)
    some.bytes.insert(some.bytes.end(), made.rows.bytes.begin() + static_cast<int64_t>(row * some.stride),
                      made.rows.bytes.begin() + static_cast<int64_t>((row + 1) * some.stride));
  const Answers truth =
      built.search(some, kLists + 1, ann_search_params ANN_SEARCH_PARAMS_INIT, ANN_DEVICE_CUDA, true);
  const Index::Call call(built.index->index);
  const Segment& segment = segment_of(call);
  Execution execution;
  execution.threads = thread_count(0, 0);
  const KnnGraph there = cuda::lists_by_product(segment, kLists, ANN_DEVICE_CUDA, execution);
  const KnnGraph here = lists_by_product(segment.graph, segment.dataset, segment.codes, kLists, execution);
  const Shares of_device = shares_of(there, here, truth, kStep);
  const Shares of_host = shares_of(here, there, truth, kStep);
  std::printf("  of %u true ones the device's lists hold %.4f, the host's %.4f; %.4f in both\n", kLists,
              of_device.true_ones, of_host.true_ones, of_device.in_other);
  expect(of_device.true_ones >= of_host.true_ones - 0.005, "the device's walks find fewer");
  expect(of_host.true_ones > 0.8, "walks find the true ones");
  for (uint32_t row = 0; row < kCount; ++row)
    expect(std::count(there.list(row), there.list(row) + kLists, row) == 0, "a row is in its own list");
}

constexpr Claim kQuickClaims[] = {
    {"queries are coded as on the CPU", claim_codes},
    {"walks find what the CPU's walks find", claim_walks},
    {"the length of a query changes no answer", claim_lengths},
    {"lists by product are mutual", claim_mutual},
};

constexpr Claim kLongClaims[] = {
    {"edges by product are the same on the device and the host", claim_edges},
    {"lists by product are as good by the device's walks", claim_lists},
    {"recall as asked, by walks, for queries of another law", claim_recall},
};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  race = mode == "race";
  quick = race || mode == "quick";
  int status = run_claims(kQuickClaims);
  if (!quick && status != 77) status |= run_claims(kLongClaims);
  return status;
}
