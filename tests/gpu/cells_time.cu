// Times and recall of the k-NN graph by cells on a CUDA device.
//
//   cells_time DATA ROWS JOB ...
//
// DATA is a .u8bin file (uint32 rows, uint32 dim, then bytes), or made:DIM:INNER:ELEMENT, rows of INNER
// inner dimensions in 64 clusters, as u8 or f32. Of more ROWS than a file has the others are grown on the
// device: each lies between a row of the file and two of its 16 nearest others, with some noise.
//
// A JOB is
//   graph, lists    as for a search graph, or as for lists
//   PROBES,ROUNDS,EXPANDED,TOLD,REVERSE[,MATCHED[,GROUP_PROBES[,SLICE]]]    another effort
//   k=K             what follows has lists of K, 64 at first
//   stages          the milliseconds of each phase
//   descent         NN-Descent instead
//
// Recall is that of 5,000 rows against exact search on the rows as they are; of rows at equal distance any
// will do. Times are those between two events on the stream, rows being on the device: the median of five
// after one to warm up, or one where a run takes more than a second. Ends with 77 where there is no CUDA
// device.

#include <cmath>

#include "claims.h"
#include "base/random.h"
#include "knn/cells_cuda.h"
#include "knn/nn_descent_cuda.h"
#include "search/exact_cuda.h"

namespace {

using namespace gannet;
using namespace gannet::test;
using Lists = cuda::DeviceArray<uint32_t>;

constexpr uint32_t kGrowFrom = 16;  // neighbours
constexpr uint32_t kSampled = 5000;

Execution all_threads() {
  Execution execution;
  execution.threads = thread_count(0, 0);
  return execution;
}

// --- Data ----------------------------------------------------------------------------------------

struct GrowArgs {
  const uint8_t* base;        // [base_rows, dim]
  const uint32_t* neighbors;  // [base_rows, kGrowFrom]
  uint8_t* grown;             // [count, dim]
  uint64_t count;
  uint32_t base_rows;
  uint32_t dim;
};

/// A thread for each value.
__global__ void __launch_bounds__(256) grow_kernel(const __grid_constant__ GrowArgs args) {
  const uint64_t item = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const uint64_t row = item / args.dim;
  const uint32_t column = static_cast<uint32_t>(item % args.dim);
  if (row >= args.count) return;
  const uint64_t word = random_word(1, 11, row);
  const uint64_t source = row % args.base_rows;
  const uint32_t* near = args.neighbors + source * kGrowFrom;
  const float value = args.base[source * args.dim + column];
  const float first = args.base[uint64_t{near[word % kGrowFrom]} * args.dim + column];
  const float second = args.base[uint64_t{near[word / kGrowFrom % kGrowFrom]} * args.dim + column];
  const float part = static_cast<float>(word >> 32 & 0xffff) / 65536;
  const float other_part = static_cast<float>(word >> 48) / 65536 * (1 - part);
  const uint64_t noise = random_word(1, 12, item);
  const float shake = (static_cast<float>(noise & 0xffff) + static_cast<float>(noise >> 48)) / 32768 - 2;
  const float grown = value + part * (first - value) + other_part * (second - value) + 2 * shake;
  args.grown[item] = static_cast<uint8_t>(fminf(255.0f, fmaxf(0.0f, grown + 0.5f)));
}

/// Appends grown rows.
void grow(Rows& rows, uint32_t count) {
  const uint32_t base_rows = rows.rows;
  std::vector<uint8_t> bytes(uint64_t{count} * rows.dim);
  {
    const Dataset dataset = rows.dataset(ANN_METRIC_L2);
    const Codes codes(dataset, 1, all_threads());
    const cuda::DeviceGuard guard(0);
    const cuda::Stream stream;
    const cuda::DeviceCodes sent(codes, stream, Execution());
    const Lists neighbors(uint64_t{base_rows} * kGrowFrom, stream);
    cuda::cells_knn(sent.view(), {kGrowFrom, 16, 24, 0.02f, 1}, cuda::kGraphEffort, neighbors.data(), nullptr,
                    stream, Execution());
    const cuda::DeviceArray<uint8_t> base(uint64_t{base_rows} * rows.dim, stream);
    cuda::copy_to_device(base.data(), rows.bytes.data(), uint64_t{base_rows} * rows.dim, stream, "sending");
    const uint64_t fresh = uint64_t{count - base_rows} * rows.dim;
    const cuda::DeviceArray<uint8_t> grown(fresh, stream);
    cuda::launch(
        "grow", grow_kernel, static_cast<uint32_t>((fresh + 255) / 256), 256, stream,
        GrowArgs{base.data(), neighbors.data(), grown.data(), count - base_rows, base_rows, rows.dim});
    cuda::copy_to_host(bytes.data() + uint64_t{base_rows} * rows.dim, grown.data(), fresh, stream,
                       "fetching");
    stream.wait();
  }
  std::copy_n(rows.bytes.begin(), uint64_t{base_rows} * rows.dim, bytes.begin());
  rows.bytes = std::move(bytes);
  rows.rows = count;
}

/// A number with mean 0 and variance 1, nearly normal.
float random_normal(uint64_t seed, uint64_t counter) {
  const uint64_t word = random_word(seed, 13, counter);
  float sum = 0;
  for (uint32_t i = 0; i < 4; ++i) sum += static_cast<float>(word >> (16 * i) & 0xffff) / 65536 - 0.5f;
  return sum * std::sqrt(3.0f);
}

/// Rows x = c + A z with z of `inner` dimensions, c one of 64 centres.
Rows made_rows(uint32_t dim, uint32_t inner, int32_t element, uint32_t count) {
  Rows rows(element, 0, dim, Values::kEqual, 1);
  rows.rows = count;
  rows.bytes.resize(uint64_t{count} * dim * element_bytes(element));
  std::vector<float> turn(uint64_t{inner} * dim);
  for (size_t i = 0; i < turn.size(); ++i)
    turn[i] = random_normal(1, i) / std::sqrt(static_cast<float>(inner));
  parallel_for(all_threads(), count, 4096, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<float> values(dim);
    for (uint64_t row = begin; row < end; ++row) {
      const uint64_t centre = random_below(64, 1, 14, row);
      for (uint32_t i = 0; i < dim; ++i) values[i] = 0.05f * random_normal(4, row * dim + i);
      for (uint32_t j = 0; j < inner; ++j) {
        const float z = random_normal(2, row * inner + j) + random_normal(3, centre * inner + j);
        for (uint32_t i = 0; i < dim; ++i) values[i] += z * turn[uint64_t{j} * dim + i];
      }
      for (uint32_t i = 0; i < dim; ++i) rows.put(row * dim * element_bytes(element), i, values[i] * 1.5f);
    }
  });
  return rows;
}

Rows read_rows(const std::string& data, uint32_t count) {
  uint32_t dim = 0;
  uint32_t inner = 0;
  char element[4] = {};
  if (std::sscanf(data.c_str(), "made:%u:%u:%3s", &dim, &inner, element) == 3)
    return made_rows(dim, inner, std::string(element) == "f32" ? ANN_F32 : ANN_U8, count);
  Rows rows = read_vectors(data, count);
  if (rows.rows < count) grow(rows, count);
  return rows;
}

// --- What is measured ----------------------------------------------------------------------------

struct Measured {
  explicit Measured(Rows rows_)
      : rows(std::move(rows_)),
        dataset(rows.dataset(ANN_METRIC_L2)),
        codes(dataset, 1, all_threads()),
        guard(0),
        sent(codes, stream, Execution()) {
    stream.wait();
    const uint32_t count = std::min(kSampled, rows.rows);
    sample.resize(count);
    for (uint32_t i = 0; i < count; ++i) sample[i] = static_cast<uint32_t>(uint64_t{i} * rows.rows / count);
    find_truth();
  }

  /// The distance of the farthest of the 1 to kDepth nearest others of sampled rows.
  void find_truth() {
    const size_t bytes = size_t{rows.dim} * element_bytes(rows.element);
    std::vector<uint8_t> queries(sample.size() * bytes);
    for (size_t i = 0; i < sample.size(); ++i)
      std::copy_n(rows.bytes.begin() + sample[i] * bytes, bytes, queries.begin() + i * bytes);
    std::vector<uint32_t> found(sample.size() * (kDepth + 1));
    truth.resize(found.size());
    cuda::ExactRequest request{0, dataset.view(), dataset.rows(), ANN_METRIC_L2};
    request.queries = queries.data();
    request.query_count = static_cast<uint32_t>(sample.size());
    request.k = kDepth + 1;
    request.out_rows = found.data();
    request.out_distances = truth.data();
    cuda::search_exact(request, Execution());
  }

  float distance(uint32_t a, uint32_t b) const {
    float sum = 0;
    for (uint32_t column = 0; column < rows.dim; ++column) {
      const float gap = element_to_float(dataset.view().row(a), rows.element, column) -
                        element_to_float(dataset.view().row(b), rows.element, column);
      sum += gap * gap;
    }
    return sum;
  }

  /// The share of the true k nearest that lists of list_k hold among their first k, on the device.
  double recall(const Lists& lists, uint32_t list_k, uint32_t k) const {
    std::vector<uint32_t> found(sample.size() * list_k);
    for (size_t i = 0; i < sample.size(); ++i)
      cuda::copy_to_host(found.data() + i * list_k, lists.data() + uint64_t{sample[i]} * list_k,
                         list_k * sizeof(uint32_t), stream, "fetching lists");
    stream.wait();
    uint64_t hits = 0;
    for (size_t i = 0; i < sample.size(); ++i) {
      const float farthest = truth[i * (kDepth + 1) + k] * (1 + 1e-6f);
      for (uint32_t j = 0; j < k; ++j) {
        const uint32_t other = found[i * list_k + j];
        hits += other != kNoRow && distance(sample[i], other) <= farthest ? 1 : 0;
      }
    }
    return static_cast<double>(hits) / static_cast<double>(sample.size() * k);
  }

  void print_recall(const Lists& lists, uint32_t k) const {
    std::printf(", recall@10 %.4f, @32 %.4f, @%u %.4f\n", recall(lists, k, std::min(k, 10u)),
                recall(lists, k, std::min(k, 32u)), std::min(k, kDepth),
                recall(lists, k, std::min(k, kDepth)));
    std::fflush(stdout);
  }

  static constexpr uint32_t kDepth = kKnnListMax;
  Rows rows;
  Dataset dataset;
  Codes codes;
  cuda::DeviceGuard guard;
  cuda::Stream stream;
  cuda::DeviceCodes sent;
  std::vector<uint32_t> sample;
  std::vector<float> truth;  // [sample, kDepth + 1] distances, the row itself first
};

template <class Work>
double device_ms(const cuda::Stream& stream, const Work& work) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (uint32_t run = 0; run < 6; ++run) {
    cudaEventRecord(begin, stream);
    work();
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (run > 0 || ms > 1000) times.push_back(ms);
    if (ms > 1000) break;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void time_cells(const Measured& data, uint32_t k, const cuda::CellsEffort& effort) {
  const Lists neighbors(uint64_t{data.rows.rows} * k, data.stream);
  cuda::CellsReport report;
  const double ms = device_ms(data.stream, [&] {
    report = cuda::cells_knn(data.sent.view(), {k, 16, 24, 0.02f, 1}, effort, neighbors.data(), nullptr,
                             data.stream, Execution());
  });
  std::printf("cells, k %u, %u probes, %u rounds of %u lists, %u reversed, %u reverse", k, effort.probes,
              effort.rounds, effort.expanded, effort.reversed, effort.reverse);
  std::printf(", %u matched, %u of groups, slices of %llu", effort.matched, effort.group_probes,
              static_cast<unsigned long long>(effort.slice));
  std::printf(": %.2f ms, %u cells, share %.4f, %u + %u rounds", ms, report.cells, report.lists.share,
              report.rounds, report.iterations);
  data.print_recall(neighbors, k);
}

void time_descent(const Measured& data, uint32_t k) {
  const Lists neighbors(uint64_t{data.rows.rows} * k, data.stream);
  uint32_t rounds = 0;
  const double ms = device_ms(data.stream, [&] {
    rounds = cuda::nn_descent(data.sent.view(), {k, 16, 24, 0.02f, 1}, neighbors.data(), nullptr, data.stream,
                              Execution());
  });
  std::printf("NN-Descent, k %u, p 16: %.2f ms, %u rounds", k, ms, rounds);
  data.print_recall(neighbors, k);
}

void time_stages(const Measured& data, uint32_t k) {
  const cuda::Stream& stream = data.stream;
  const uint64_t places = uint64_t{data.rows.rows} * cuda::list_length(k);
  const cuda::CellsEffort effort;
  const Lists first(places, stream);
  const Lists second(places, stream);
  const Lists distances(places, stream);
  const Lists reverse(uint64_t{data.rows.rows} * effort.reverse, stream);
  const Lists neighbors(uint64_t{data.rows.rows} * k, stream);
  const cuda::PlaceLists lists{first.data(), distances.data(), cuda::list_length(k)};
  const cuda::PlaceLists next{second.data(), distances.data(), cuda::list_length(k)};
  const auto make_map = [&] {
    return std::make_unique<cuda::CellMap>(data.sent.view(), 1, effort, next.near, stream, Execution());
  };
  const double mapping = device_ms(stream, [&] { make_map(); });
  const auto map = make_map();
  const double comparing =
      device_ms(stream, [&] { cuda::compare_with_cells(*map, effort, lists, stream, Execution()); });
  const auto refine = [&](bool measured) {
    cuda::refine_lists(map->view(), measured ? next : lists, measured ? lists : next, effort, measured,
                       reverse.data(), stream, Execution());
  };
  const double refining = device_ms(stream, [&] { refine(false); });
  // Once is enough for the next, whose distances would be others the second time.
  const double again = milliseconds_of([&] {
    refine(true);
    stream.wait();
  });
  const double writing =
      device_ms(stream, [&] { cuda::write_lists(map->view(), lists, k, neighbors.data(), nullptr, stream); });
  const cuda::RecallSample sample(map->view(), 1, stream);
  const double sampling =
      device_ms(stream, [&] { sample.measure(distances.data(), lists.length, k, false); });
  std::printf("stages, k %u: map %.2f ms, products %.2f, rounds %.2f and %.2f, recall %.2f, writing %.2f\n",
              k, mapping, comparing, refining, again, sampling, writing);
  std::fflush(stdout);
}

int measure(const std::string& file, uint32_t count, const std::vector<std::string>& jobs) {
  std::unique_ptr<Measured> data;
  const double seconds =
      milliseconds_of([&] { data = std::make_unique<Measured>(read_rows(file, count)); }) / 1000;
  std::printf("%s: %u x %u, codes of %zu bytes%s, L2 (%.1f s)\n", file.c_str(), data->rows.rows,
              data->rows.dim, data->codes.stride(), data->codes.wide() ? ", wide" : "", seconds);
  uint32_t k = 64;
  for (const std::string& job : jobs) {
    cuda::CellsEffort effort = cuda::kGraphEffort;
    effort.enough = 0;
    unsigned long long slice = effort.slice;
    if (job == "graph")
      time_cells(*data, k, cuda::kGraphEffort);
    else if (job == "lists")
      time_cells(*data, k, cuda::kListEffort);
    else if (job == "stages")
      time_stages(*data, k);
    else if (job == "descent")
      time_descent(*data, k);
    else if (std::sscanf(job.c_str(), "k=%u", &k) == 1)
      continue;
    else if (std::sscanf(job.c_str(), "%u,%u,%u,%u,%u,%u,%u,%llu", &effort.probes, &effort.rounds,
                         &effort.expanded, &effort.reversed, &effort.reverse, &effort.matched,
                         &effort.group_probes, &slice) >= 5) {
      effort.slice = slice;
      time_cells(*data, k, effort);
    } else
      throw Failure{"no job: " + job};
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const char* reason = "";
  if (cuda_device_count(&reason) == 0) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  if (count < 4) {
    std::printf("usage: cells_time DATA ROWS JOB ...\n");
    return 2;
  }
  try {
    return measure(arguments[1], static_cast<uint32_t>(std::strtoul(arguments[2], nullptr, 10)),
                   std::vector<std::string>(arguments + 3, arguments + count));
  } catch (const Failure& failure) {
    std::printf("%s\n", failure.what.c_str());
  } catch (const Error& error) {
    std::printf("%s\n", error.message);
  }
  return 1;
}
