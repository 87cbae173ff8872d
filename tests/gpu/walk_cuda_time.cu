// Rates, times and recall of searches by the graph on a CUDA device.
//
//   walk_cuda_time ROWS QUERIES [WORD=VALUE ...]
//
//   degree=64        edges a row
//   rows=N           only the first N rows
//   seeds=1          builds, with seeds 1, 2, ...; recall is given as mean and spread (most - least) over
//                    them, times are those of the first
//   elements=u8,f32  what the values are made before the index sees them
//   metric=l2        or cosine, ip
//   part=all         or batches, few, threads, promise, sizes, sweep. `promise` is not in `all`: it asks
//                    for recalls and fails where 0.01 less is not reached. Nor is `sizes`: it asks for recalls
//                    of all queries in batches of several sizes, and times the largest; nor `ceiling`: rows that the
//                    device gathers from larger arrays; nor `sweep`: the kernels at every combination of
//   batch=10000 k=10 warps=1 slacks=0.02,0.03 caps=32,4096
//   ceiling=0        rows gathered from memory a second that the device can do at best, in 10^9, for the
//                    share that is printed; 0: measured, with as many random rows as the index has
//
// ROWS and QUERIES are .u8bin or .f16bin files (uint32 rows, uint32 dim, then the values). The index is
// built on the device. Recall is measured against exact search there; a row counts as found if it is no
// farther than the k-th true neighbour. A line that says "at 0.95" asks for the least recall, in steps
// of 0.0025, for which these queries reach 0.95; one that says "asked 0.95" asks for 0.95.
//
// Device times are CUDA events around ann_search_batch with queries and results in device memory and a
// stream of ours; host times are a clock around the same call with host memory. Both are medians. Bytes
// gathered are codes and edges of what the walk read. Ends with 77 where there is no CUDA device.

#include <ann.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "capi/boundary.h"
#include "index/snapshot.h"
#include "search/host_batch.h"

namespace {

using namespace gannet;

constexpr uint32_t kRepeats = 15;
constexpr uint64_t kBatch = 10'000;

struct Options {
  std::map<std::string, std::string> words = {
      {"degree", "64"}, {"rows", "0"},   {"seeds", "1"},          {"elements", "u8,f32"},
      {"metric", "l2"}, {"part", "all"}, {"ceiling", "0"},        {"batch", "10000"},
      {"k", "10"},      {"warps", "1"},  {"slacks", "0.02,0.03"}, {"caps", "32,4096"},
  };
  std::vector<double> numbers(const char* word) const {
    std::vector<double> list;
    for (const char* from = words.at(word).c_str(); *from != 0; from += *from == ',' ? 1 : 0) {
      char* end = nullptr;
      list.push_back(std::strtod(from, &end));
      if (end == from) break;
      from = end;
    }
    return list;
  }
  uint32_t number(const char* word) const { return static_cast<uint32_t>(std::atoi(words.at(word).c_str())); }
  bool wants(const char* part) const {
    if (words.at("part") == part) return true;
    for (const char* apart : {"sweep", "promise", "sizes", "ceiling"}) {
      if (std::strcmp(part, apart) == 0) return false;
    }
    return words.at("part") == "all";
  }
  int32_t metric() const {
    const std::string& name = words.at("metric");
    return name == "cosine" ? ANN_METRIC_COSINE : name == "ip" ? ANN_METRIC_INNER_PRODUCT : ANN_METRIC_L2;
  }
};

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

void check_call(ann_status status, const ann_error& error) {
  if (status != ANN_OK) give_up(error.message);
}

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) give_up(cudaGetErrorString(error));
}

struct Vectors {
  uint64_t rows = 0;
  uint32_t dim = 0;
  int32_t element = ANN_U8;
  std::vector<uint8_t> bytes;

  size_t row_bytes() const { return size_t{dim} * element_bytes(element); }
  ann_matrix view(uint64_t first, uint64_t count) const {
    ann_matrix matrix = ANN_MATRIX_INIT;
    matrix.element = element;
    matrix.data = bytes.data() + first * row_bytes();
    matrix.rows = count;
    matrix.dim = dim;
    return matrix;
  }
};

Vectors read_file(const std::string& path, uint64_t rows_max) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  uint32_t header[2];
  if (file == nullptr || std::fread(header, 4, 2, file) != 2) give_up("cannot read " + path);
  Vectors vectors;
  vectors.dim = header[1];
  vectors.element = path.find(".f16bin") != std::string::npos ? ANN_F16 : ANN_U8;
  vectors.bytes.resize(std::min<uint64_t>(header[0], rows_max) * vectors.row_bytes());
  // A file that is cut gives the rows that are there.
  const size_t read = std::fread(vectors.bytes.data(), 1, vectors.bytes.size(), file);
  vectors.rows = read / vectors.row_bytes();
  vectors.bytes.resize(vectors.rows * vectors.row_bytes());
  std::fclose(file);
  return vectors;
}

float value_of(const Vectors& from, size_t place) {
  if (from.element == ANN_U8) return from.bytes[place];
  uint16_t bits;
  std::memcpy(&bits, from.bytes.data() + 2 * place, sizeof bits);
  const uint32_t exponent = bits >> 10 & 31;
  const float fraction = static_cast<float>(bits & 1023);
  const float size = exponent == 0 ? std::ldexp(fraction, -24)
                                   : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
  return (bits >> 15) != 0 ? -size : size;
}

Vectors as_element(const Vectors& from, int32_t element) {
  if (from.element == element) return from;
  Vectors made = from;
  made.element = element;
  made.bytes.resize(from.rows * made.row_bytes());
  for (size_t i = 0; i < from.rows * from.dim; ++i)
    float_to_element(value_of(from, i), made.bytes.data(), element, static_cast<uint32_t>(i));
  return made;
}

/// The queries over and over, at least `count` of them.
Vectors repeated(const Vectors& from, uint64_t count) {
  Vectors all = from;
  while (all.rows < count) {
    all.bytes.insert(all.bytes.end(), from.bytes.begin(), from.bytes.end());
    all.rows += from.rows;
  }
  return all;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Answers {
  std::vector<uint64_t> ids;
  std::vector<float> distances;
  ann_results results = ANN_RESULTS_INIT;

  Answers(uint64_t queries, uint32_t k) : ids(queries * k), distances(queries * k) {
    results.k = k;
    results.rows = queries;
    results.ids = ids.data();
    results.distances = distances.data();
  }
  Answers(const Answers&) = delete;
};

template <class Item>
class DeviceItems {
 public:
  explicit DeviceItems(uint64_t count) { check_cuda(cudaMalloc(&items_, count * sizeof(Item))); }
  ~DeviceItems() { cudaFree(items_); }
  DeviceItems(const DeviceItems&) = delete;
  Item* data() const { return items_; }

 private:
  Item* items_ = nullptr;
};

constexpr uint32_t kGatherThreads = 256;
constexpr uint32_t kGatherLoads = 8;  // of a lane, on their way at once

/// Reads random rows, [rows, pieces] of 16 bytes: up to 8 lanes a row, and longer ones in parts of 128 bytes.
__global__ void gather(const uint4* rows, uint32_t row_count, uint32_t pieces, uint32_t turns,
                       uint32_t* sink) {
  const uint32_t lanes = pieces < 8 ? pieces : 8;
  const uint32_t parts = (pieces + 7) / 8;
  const uint32_t team = (blockIdx.x * kGatherThreads + threadIdx.x) / lanes;
  const uint32_t member = threadIdx.x % lanes;
  uint32_t sum = 0;
  for (uint32_t turn = 0; turn < turns; ++turn) {
    uint4 values[kGatherLoads];
#pragma unroll
    for (uint32_t i = 0; i < kGatherLoads; ++i) {
      const uint32_t number = turn * kGatherLoads + i;
      uint32_t mixed = (team * 0x9e3779b1u) ^ (number / parts * 0x85ebca6bu);
      mixed = (mixed ^ mixed >> 15) * 0x2c1b3c6du;
      mixed ^= mixed >> 12;
      const uint64_t row = uint64_t{mixed} * row_count >> 32;
      const uint32_t piece = number % parts * 8 + member;
      values[i] = __ldg(rows + row * pieces + (piece < pieces ? piece : member));
    }
#pragma unroll
    for (uint32_t i = 0; i < kGatherLoads; ++i) sum += values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
  }
  if (sum == 1) *sink = sum;  // so that it is worth reading
}

/// Rows of `bytes` bytes, of so many, that the device gathers a second.
double gathered_per_second(uint32_t row_count, uint32_t bytes, cudaStream_t stream) {
  const DeviceItems<uint4> rows(uint64_t{row_count} * bytes / 16 + 1);
  check_cuda(cudaMemset(rows.data(), 1, uint64_t{row_count} * bytes));
  const uint32_t pieces = bytes / 16;
  const uint32_t parts = (pieces + 7) / 8;
  constexpr uint32_t kTurns = 64;
  constexpr uint32_t kBlocks = 132 * 8 * 4;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check_cuda(cudaEventCreate(&begin));
  check_cuda(cudaEventCreate(&end));
  std::vector<double> times;
  for (uint32_t i = 0; i < 5; ++i) {
    check_cuda(cudaEventRecord(begin, stream));
    gather<<<kBlocks, kGatherThreads, 0, stream>>>(rows.data(), row_count, pieces, kTurns,
                                                   reinterpret_cast<uint32_t*>(rows.data()));
    check_cuda(cudaEventRecord(end, stream));
    check_cuda(cudaStreamSynchronize(stream));
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin, end));
    times.push_back(milliseconds / 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  const double teams = double{kBlocks} * kGatherThreads / std::min(pieces, 8u);
  return teams * kTurns * kGatherLoads / parts / median(times);
}

class BuiltIndex {
 public:
  BuiltIndex(const Vectors& rows, const Options& options, uint64_t seed) {
    ann_error error = ANN_ERROR_INIT;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    shape.metric = options.metric();
    check_call(ann_index_create(nullptr, &shape, &index_, &error), error);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = options.number("degree");
    params.device = ANN_DEVICE_CUDA;
    params.seed = seed;
    const ann_matrix matrix = rows.view(0, rows.rows);
    build_seconds =
        seconds([&] { check_call(ann_build(index_, &matrix, nullptr, &params, nullptr, &error), error); });
  }
  ~BuiltIndex() { ann_index_free(index_); }
  BuiltIndex(const BuiltIndex&) = delete;
  ann_index* get() const { return index_; }
  double build_seconds = 0;

 private:
  ann_index* index_ = nullptr;
};

ann_search_params device_params(float recall) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = ANN_DEVICE_CUDA;
  params.recall = recall;
  return params;
}

class Bench {
 public:
  Bench(const Vectors& rows, const Vectors& queries, const Options& options)
      : rows_(rows), queries_(queries), options_(options), device_queries_(queries.bytes.size()) {
    name_ = std::string(element_name(rows.element)) + " " + std::to_string(rows.rows) + " x " +
            std::to_string(rows.dim) + " " + options.words.at("metric") + " degree " +
            options.words.at("degree");
    check_cuda(cudaMemcpy(device_queries_.data(), queries.bytes.data(), queries.bytes.size(),
                          cudaMemcpyHostToDevice));
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check_cuda(cudaEventCreate(&begin_));
    check_cuda(cudaEventCreate(&end_));
    for (uint32_t seed = 1; seed <= options.number("seeds"); ++seed) {
      indexes_.push_back(std::make_unique<BuiltIndex>(rows, options, seed));
      Answers one(1, 1);
      const double placed = seconds([&] { search(0, device_params(0.9f), &one, seed - 1); });
      std::printf("time %s: seed %u, build %.3f s, placement and calibration %.3f s\n", name_.c_str(), seed,
                  indexes_.back()->build_seconds, placed);
    }
  }
  ~Bench() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Bench(const Bench&) = delete;

  /// One line for a batch at a recall of these queries, and one for what asking for it gives.
  void time_batch(uint64_t count, uint32_t k, float target) {
    float asked = target;
    for (float ask = target - 0.03f; ask <= 0.9995f; ask += 0.0025f) {
      asked = ask;
      if (measure(count, k, device_params(ask), 0).recall >= target) break;
    }
    report("at", count, k, target, asked);
    report("asked", count, k, target, target);
  }

  /// Recall of queries that the calibration has not seen, in batches that each procedure answers.
  void check_promise() {
    for (const uint32_t k : {1u, 10u, 30u, 100u}) {
      for (const float target : {0.8f, 0.9f, 0.95f, 0.99f}) {
        for (const uint64_t count : {uint64_t{100}, std::min<uint64_t>(original_, 1000), kBatch}) {
          const Measured found = measure(count, k, device_params(target), 0);
          const bool kept = found.recall >= double{target} - 0.01;
          // A hundred queries are too few to judge a promise about the mean.
          if (!kept && count > 100) promises_broken_ += 1;
          std::printf("promise %s: batch %llu, k %u, asked %.2f, recall %.4f, %.0f distances%s\n",
                      name_.c_str(), static_cast<unsigned long long>(count), k, double{target}, found.recall,
                      found.distances, kept ? "" : ", SHORT");
        }
      }
    }
    std::fflush(stdout);
  }
  uint32_t promises_broken() const { return promises_broken_; }

  /// What CAGRA's searches find of what they are asked for, and what learning that took.
  void ask_cagra() {
    for (const int32_t procedure : {ANN_SEARCH_CAGRA_SINGLE_CTA, ANN_SEARCH_CAGRA_MULTI_CTA}) {
      for (const float target : {0.9f, 0.95f, 0.99f}) {
        ann_search_params params = device_params(target);
        params.procedure = procedure;
        Answers one(1, 10);
        const double first = seconds([&] { search(0, params, &one, 0); });
        const Measured found = measure(original_, 10, params, 0);
        std::printf(
            "cagra %s: procedure %d, k 10, asked %.2f, recall %.4f, %.1f expansions; first call "
            "%.1f ms\n",
            name_.c_str(), procedure, double{target}, found.recall, found.expansions, first * 1e3);
      }
    }
    std::fflush(stdout);
  }

  /// Recall of all queries in batches of one size after the other, which different procedures answer.
  void compare_sizes(uint32_t k) {
    const std::vector<float>& truth = farthest(original_, k);
    for (const float target : {0.8f, 0.9f, 0.95f, 0.99f, 0.999f}) {
      double least = 1;
      double most = 0;
      std::printf("sizes %s: k %u, asked %.3f: recall", name_.c_str(), k, double{target});
      for (const uint64_t size : {1ull, 7ull, 100ull, 1000ull, 10'000ull}) {
        if (size < 100 && k != 10) continue;
        uint64_t hits = 0;
        for (uint64_t first = 0; first < original_; first += size) {
          Answers part(std::min(size, original_ - first), k);
          search(first, device_params(target), &part, 0);
          for (uint64_t i = 0; i < part.ids.size(); ++i)
            hits += part.distances[i] <= truth[first + i / k] ? 1 : 0;
        }
        const double recall = static_cast<double>(hits) / static_cast<double>(original_ * k);
        std::printf(" %.4f (%llu)", recall, static_cast<unsigned long long>(size));
        least = std::min(least, recall);
        most = std::max(most, recall);
      }
      std::printf(", spread %.4f\n", most - least);
      std::fflush(stdout);
    }
  }

  /// One query after the other through ann_search_batch, host to host.
  void time_singles(float target) {
    const uint64_t count = std::min<uint64_t>(queries_.rows, 1000);
    const std::vector<float> truth = farthest(count, 10);
    for (float asked = target - 0.03f; asked <= 0.9995f; asked += 0.0025f) {
      const ann_search_params params = device_params(asked);
      std::vector<double> times;
      uint64_t hits = 0;
      Answers one(1, 10);
      for (uint64_t query = 0; query < count; ++query) {
        times.push_back(seconds([&] { search(query, params, &one, 0); }));
        for (uint32_t i = 0; i < 10; ++i) hits += one.distances[i] <= truth[query] ? 1 : 0;
      }
      const double recall = static_cast<double>(hits) / static_cast<double>(count * 10);
      if (recall < target) continue;
      std::sort(times.begin(), times.end());
      std::printf(
          "time %s: one query, at %.2f (asked %.4f), recall %.4f; host to host median %.1f us, "
          "99th of 100 %.1f us\n",
          name_.c_str(), double{target}, double{asked}, recall, times[count / 2] * 1e6,
          times[count * 99 / 100] * 1e6);
      return;
    }
  }

  /// `threads` host threads with batches of their own.
  void time_threads(uint32_t threads, uint64_t count) {
    const ann_search_params params = device_params(0.95f);
    const double time = seconds([&] {
      std::vector<std::thread> running;
      for (uint32_t t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
          Answers own(count, 10);
          const uint64_t first = (t * 997) % (queries_.rows - count);
          for (uint32_t i = 0; i < 20; ++i) search(first, params, &own, 0);
        });
      }
      for (std::thread& thread : running) thread.join();
    });
    std::printf("time %s: %u threads, batches of %llu, asked 0.95: %.2f M q/s host to host\n", name_.c_str(),
                threads, static_cast<unsigned long long>(count),
                threads * 20.0 * static_cast<double>(count) / time / 1e6);
  }

  /// The ceilings of larger indexes, and of lists of 64 edges.
  void print_ceilings() {
    for (const uint32_t millions : {1u, 10u, 100u}) {
      for (const uint32_t bytes : {128u, 256u})
        std::printf("ceiling: %u M random rows of %u bytes: %.1f G rows/s\n", millions, bytes,
                    gathered_per_second(millions * 1'000'000, bytes, stream_) / 1e9);
    }
  }

  /// Recall and rate of the kernels: what calibration chooses from.
  void sweep() {
    for (const double warps : options_.numbers("warps")) {
      for (const double slack : options_.numbers("slacks")) {
        for (const double cap : options_.numbers("caps")) {
          const TwoListsPlan plan = {static_cast<float>(slack), static_cast<uint32_t>(cap),
                                     static_cast<uint32_t>(warps)};
          for (const double batch : options_.numbers("batch"))
            run_kernels(std::min(static_cast<uint64_t>(batch), queries_.rows), options_.number("k"), plan);
        }
      }
    }
  }

 private:
  struct Measured {
    double recall = 0;
    double distances = 0;  // of a query
    double expansions = 0;
  };

  void search(uint64_t first, const ann_search_params& params, Answers* answers, size_t index) const {
    const ann_matrix queries = queries_.view(first, answers->results.rows);
    ann_error error = ANN_ERROR_INIT;
    check_call(
        ann_search_batch(indexes_[index]->get(), &queries, &params, &answers->results, nullptr, &error),
        error);
  }

  /// The distance of the k-th true neighbour of each query, once for each k.
  const std::vector<float>& farthest(uint64_t count, uint32_t k) {
    std::vector<float>& truth = truth_[k];
    if (truth.size() >= count) return truth;
    Answers exact(count, k);
    const ann_matrix queries = queries_.view(0, count);
    const ann_search_params params = device_params(0);
    ann_error error = ANN_ERROR_INIT;
    check_call(ann_search_exact(indexes_[0]->get(), &queries, &params, &exact.results, nullptr, &error),
               error);
    truth.resize(count);
    for (uint64_t query = 0; query < count; ++query) truth[query] = exact.distances[query * k + k - 1];
    return truth;
  }

  Measured measure(uint64_t count, uint32_t k, const ann_search_params& params, size_t index) {
    Answers answers(count, k);
    search(0, params, &answers, index);
    const uint64_t judged = std::min(count, original_);
    const std::vector<float>& truth = farthest(judged, k);
    uint64_t hits = 0;
    for (uint64_t i = 0; i < judged * k; ++i) hits += answers.distances[i] <= truth[i / k] ? 1 : 0;
    const double n = static_cast<double>(count);
    return {static_cast<double>(hits) / static_cast<double>(judged * k),
            static_cast<double>(answers.results.distance_count) / n,
            static_cast<double>(answers.results.expansion_count) / n};
  }

 public:
  void report(const char* how, uint64_t count, uint32_t k, float target, float asked) {
    const ann_search_params params = device_params(asked);
    const Measured first = measure(count, k, params, 0);
    double sum = first.recall;
    double least = first.recall;
    double most = first.recall;
    for (size_t index = 1; index < indexes_.size(); ++index) {
      const double recall = measure(count, k, params, index).recall;
      sum += recall;
      least = std::min(least, recall);
      most = std::max(most, recall);
    }
    const double on_device = device_seconds(count, k, params);
    std::vector<double> host;
    Answers answers(count, k);
    for (uint32_t i = 0; i < kRepeats; ++i) host.push_back(seconds([&] { search(0, params, &answers, 0); }));
    const double n = static_cast<double>(count);
    const size_t stride = code_stride();
    const double rows_gathered = first.distances * n / on_device;
    const double bytes = rows_gathered * static_cast<double>(stride) +
                         first.expansions * n / on_device * options_.number("degree") * 4;
    std::printf(
        "time %s: batch %llu, k %u, %s %.3f (asked %.4f), recall %.4f, %zu seeds %.4f spread %.4f; "
        "%.0f distances, %.1f expansions; device %.1f us, %.2f M q/s; %.1f G rows/s, %.2f of the "
        "ceiling, %.0f GB/s; host to host %.1f us, %.2f M q/s\n",
        name_.c_str(), static_cast<unsigned long long>(count), k, how, double{target}, double{asked},
        first.recall, indexes_.size(), sum / static_cast<double>(indexes_.size()), most - least,
        first.distances, first.expansions, on_device * 1e6, n / on_device / 1e6, rows_gathered / 1e9,
        rows_gathered / ceiling(), bytes / 1e9, median(host) * 1e6, n / median(host) / 1e6);
    std::fflush(stdout);
  }

 private:
  size_t code_stride() const { return Codes::code_stride(rows_.dim, options_.metric(), false); }

  /// Rows of codes gathered a second at best.
  double ceiling() {
    if (options_.number("ceiling") != 0) return options_.number("ceiling") * 1e9;
    if (ceiling_ == 0) {
      ceiling_ = gathered_per_second(static_cast<uint32_t>(rows_.rows), static_cast<uint32_t>(code_stride()),
                                     stream_);
      std::printf("time %s: ceiling, random rows of %zu bytes: %.1f G rows/s, %.0f GB/s\n", name_.c_str(),
                  code_stride(), ceiling_ / 1e9, ceiling_ * static_cast<double>(code_stride()) / 1e9);
    }
    return ceiling_;
  }

  /// Events around the call, with queries and results in device memory.
  double device_seconds(uint64_t count, uint32_t k, ann_search_params params) {
    const DeviceItems<uint64_t> ids(count * k);
    const DeviceItems<float> distances(count * k);
    ann_matrix queries = queries_.view(0, count);
    queries.data = device_queries_.data();
    queries.space = ANN_DEVICE_CUDA;
    ann_results results = ANN_RESULTS_INIT;
    results.k = k;
    results.rows = count;
    results.ids = ids.data();
    results.distances = distances.data();
    results.space = ANN_DEVICE_CUDA;
    params.stream = stream_;
    std::vector<double> times;
    for (uint32_t i = 0; i < kRepeats + 2; ++i) {
      ann_error error = ANN_ERROR_INIT;
      check_cuda(cudaEventRecord(begin_, stream_));
      check_call(ann_search_batch(indexes_[0]->get(), &queries, &params, &results, nullptr, &error), error);
      check_cuda(cudaEventRecord(end_, stream_));
      check_cuda(cudaStreamSynchronize(stream_));
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_));
      if (i >= 2) times.push_back(milliseconds / 1e3);
    }
    return median(times);
  }

  static Execution execution() {
    Execution all;
    all.threads = thread_count(0, 0);
    return all;
  }

  void run_kernels(uint64_t count, uint32_t k, const TwoListsPlan& plan) {
    const Index::Call call(indexes_[0]->get()->index);
    const PlacedSegment& built = placed_of(call);
    const auto placement = built.devices.get(built, 0, execution());
    DeviceWorkspaceLease space(*placement->placement, count, k);
    if (space->capacity() < count) give_up("the batch takes several runs");
    // Of single queries there are many different ones.
    const uint64_t starts = count == 1 ? std::min<uint64_t>(1000, queries_.rows) : 1;
    const uint32_t repeats = count == 1 ? 1 : kRepeats;
    const std::vector<float>& truth = farthest(starts + count - 1, k);
    std::vector<double> times;
    std::vector<double> runs;
    std::vector<uint32_t> found;  // of each query
    double distances = 0;
    double expansions = 0;
    for (uint64_t first = 0; first < starts; ++first) {
      const ann_matrix queries = queries_.view(first, count);
      fill_workspace(built.segment, read_matrix(&queries, "queries"), 0, static_cast<uint32_t>(count), *space,
                     execution());
      for (uint32_t i = 0; i < repeats + 2; ++i) {
        space->run(static_cast<uint32_t>(count), plan, {}, true);
        if (i >= 2 || count == 1) times.push_back(space->kernel_seconds());
      }
      for (uint32_t i = 0; i < repeats; ++i)
        runs.push_back(seconds([&] { space->run(static_cast<uint32_t>(count), plan, {}, false); }));
      for (uint64_t i = 0; i < count; ++i) {
        const float* own = space->distances() + i * k;
        found.push_back(static_cast<uint32_t>(
            std::count_if(own, own + k, [&](float distance) { return distance <= truth[first + i]; })));
      }
      distances += static_cast<double>(space->distance_count());
      expansions += static_cast<double>(space->expansion_count());
    }
    const double n = static_cast<double>(count);
    // How the queries fare that find least.
    std::sort(found.begin(), found.end());
    const size_t worst = (found.size() + 99) / 100;
    const auto recall = [&](size_t queries) {
      return std::accumulate(found.begin(), found.begin() + static_cast<int64_t>(queries), 0.0) /
             (static_cast<double>(queries) * k);
    };
    std::printf(
        "sweep %s: batch %llu, k %u, warps %u, slack %.3f, cap %u, recall %.4f, of the worst hundredth "
        "%.4f, %.0f distances, %.1f expansions, kernels %.1f us, %.2f M q/s, host to host %.1f us\n",
        name_.c_str(), static_cast<unsigned long long>(count), k, plan.warps, double{plan.slack},
        plan.expansions_max, recall(found.size()), recall(worst), distances / n / static_cast<double>(starts),
        expansions / n / static_cast<double>(starts), median(times) * 1e6, n / median(times) / 1e6,
        median(runs) * 1e6);
    std::fflush(stdout);
  }

 public:
  uint64_t original_ = 0;  // queries that are not repetitions

 private:
  const Vectors& rows_;
  const Vectors& queries_;
  const Options& options_;
  std::string name_;
  DeviceItems<uint8_t> device_queries_;
  std::vector<std::unique_ptr<BuiltIndex>> indexes_;
  std::map<uint32_t, std::vector<float>> truth_;
  uint32_t promises_broken_ = 0;
  double ceiling_ = 0;  // once it is known
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// Returns how many promises were broken.
uint32_t time_all(const Vectors& rows, const Vectors& queries, const Options& options) {
  const Vectors many = repeated(queries, 10 * kBatch);
  Bench bench(rows, many, options);
  bench.original_ = queries.rows;
  if (options.wants("batches")) {
    for (const float recall : {0.95f, 0.99f}) bench.time_batch(kBatch, 10, recall);
    bench.time_batch(kBatch, 100, 0.95f);
    bench.time_batch(10 * kBatch, 10, 0.95f);
    bench.time_batch(1000, 1000, 0.95f);
  }
  if (options.wants("few")) {
    for (const float recall : {0.95f, 0.99f}) bench.time_singles(recall);
    for (const uint64_t count : {100u, 1000u}) bench.time_batch(count, 10, 0.95f);
  }
  if (options.wants("ceiling")) bench.print_ceilings();
  if (options.wants("threads")) {
    bench.time_threads(8, 1000);
    bench.time_threads(32, 100);
  }
  if (options.wants("promise")) bench.check_promise();
  if (options.wants("sizes")) {
    for (const float recall : {0.95f, 0.99f}) bench.report("asked", kBatch, 10, recall, recall);
    bench.report("asked", kBatch, 100, 0.95f, 0.95f);
    for (const uint32_t k : {1u, 10u, 100u}) bench.compare_sizes(k);
    bench.ask_cagra();
  }
  if (options.wants("sweep")) bench.sweep();
  return bench.promises_broken();
}

}  // namespace

int main(int count, char** arguments) {
  uint32_t devices = 0;
  const char* reason = "";
  if (ann_device_count(&devices, &reason, nullptr) != ANN_OK || devices < 2) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  if (count < 3) give_up("usage: walk_cuda_time ROWS QUERIES [WORD=VALUE ...]");
  Options options;
  for (int i = 3; i < count; ++i) {
    const std::string word = arguments[i];
    const size_t sign = word.find('=');
    if (sign == std::string::npos || options.words.count(word.substr(0, sign)) == 0)
      give_up("what is " + word + "?");
    options.words[word.substr(0, sign)] = word.substr(sign + 1);
  }
  const uint64_t rows_max = options.number("rows") != 0 ? options.number("rows") : ANN_ROWS_MAX;
  const Vectors rows = read_file(arguments[1], rows_max);
  const Vectors queries = read_file(arguments[2], ANN_ROWS_MAX);
  uint32_t broken = 0;
  for (const int32_t element : {ANN_U8, ANN_F16, ANN_F32}) {
    if (options.words["elements"].find(element_name(element)) == std::string::npos) continue;
    broken += time_all(as_element(rows, element), as_element(queries, element), options);
  }
  return broken == 0 ? 0 : 1;
}
