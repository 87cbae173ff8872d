// The figures of "Large-Scale Approximate k-NN Graph Construction on GPU", made again on one device:
// how the library's GNND converges beside the paper's own ways of updating lists.
//
//   gnnd_figures FILE [ROWS [FIGURES [METRIC]]]    prints CSV: figure,variant,k,p,round,seconds,phi,recall@10
//
// FILE is a .u8bin or .f16bin, FIGURES as 4,6 (all), METRIC L2 (the default), cosine or ip.
//
// Figure 4: phi(G) over time at k = 10. "nn-descent" is the classic algorithm: all entries are sampled
//   (p = k), and all pairs that meet enter both lists. Figure 5, what each scheme brings, at k = 64,
//   p = 16: "gnnd-r1" enters all pairs, sorted and merged into a list by a warp under one lock;
//   "gnnd-r2" only the nearest of each sample (selective update), under one lock; "gnnd" the same with
//   a lock for each 32 entries; "gannet" is what the library does. Figure 6: recall over time, p from 10
//   to 32 at k = 64, and to 42 at k = 128 ("6b"). The time of looking at the lists is not counted. phi sums the
//   distances that there are, as squared distances of codes, and says little before lists are full.
//
// Of rows of bytes by L2 distances of codes are those of rows, and recall@10 is of a list's first 10 entries.
// Else it is the share of the 10 true neighbours that stand anywhere in the list, since lists are put in order
// of the distances of rows before callers see them.
//
// All variants are the library's steps (knn/nn_descent_steps.cuh) with another Update.

#include <algorithm>
#include <chrono>

#include "claims.h"
#include "knn/nn_descent_rounds.cuh"
#include "knn/products.h"
#include "search/exact_cuda.h"

namespace gannet::cuda::descent {

/// What the variants of the paper have in common.
struct UnderLocks {
  static constexpr bool kAllPairs = false;
  static constexpr uint32_t kSamplesMost = 32;
  static constexpr uint32_t kBlocks = 4;
  static constexpr uint32_t kOffersAtFirst = 1u << 30;  // no places, no slices
  struct Memory {};
  using Before = void;
  using After = void;
};

/// GNND-r2: selective update, one lock a list.
struct OneLock : UnderLocks {
  static __device__ void give(const Args& args, const Warp& warp, uint32_t row, uint64_t key) {
    InsertIntoList list{args, warp};
    for (uint32_t lanes = warp.ballot(row != kNoRow); lanes != 0; lanes &= lanes - 1) {
      const uint32_t turn = __ffs(lanes) - 1;
      const uint32_t target = warp.shfl(row, turn);
      const uint64_t offer = warp.shfl(key, turn);
      if (offer < read_key(args.worst + target)) list.insert(target, offer);
    }
  }
};

/// GNND-r1: every pair; what a row is told at one place is sorted and merged into its list.
struct AllPairs : UnderLocks {
  static constexpr bool kAllPairs = true;
  struct Memory {
    uint64_t list[64];
  };

  static __device__ void give(const Args&, const Warp&, uint32_t, uint64_t) {}

  static __device__ void give_many(const Args& args, const Warp& warp, uint32_t row, uint64_t key,
                                   Memory& memory) {
    if (!warp.any(key < read_key(args.worst + row))) return;
    if (warp.thread_rank() == 0) {
      while (atomicCAS(&args.locks[row], 0, 1) != 0) __nanosleep(32);
      __threadfence();
    }
    warp.sync();
    MergeIntoList list{args, warp};
    list.merge(row, key, memory.list);
    __threadfence();
    warp.sync();
    if (warp.thread_rank() == 0) atomicExch(&args.locks[row], 0);
  }
};

/// During a round a list of 64 is two segments of 32 ascending keys, by the parity of the row.
constexpr uint32_t kSegments = 2;

/// A warp takes the keys of each row's list into its registers and puts them back in another order.
template <class Order>
struct ReorderLists {
  static constexpr uint32_t kThreads = kWarpThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t row = global_warp();
    if (row >= args.rows) return;
    uint64_t* list = args.keys + row * args.k;
    uint64_t keys[kSegments];
    for (uint32_t r = 0; r < kSegments; ++r) keys[r] = list[32 * r + warp.thread_rank()];
    warp.sync();
    Order::write(list, args.worst + row, keys, warp);
  }
};

struct SplitInSegments {
  static __device__ void write(uint64_t* list, uint64_t*, const uint64_t (&keys)[kSegments],
                               const Warp& warp) {
    uint32_t counts[kSegments] = {};
    for (uint32_t r = 0; r < kSegments; ++r) {
      for (uint32_t segment = 0; segment < kSegments; ++segment) {
        const bool mine = keys[r] != RowKey::kNone && RowKey::row(keys[r]) % kSegments == segment;
        const uint32_t members = warp.ballot(mine);
        const uint32_t place = counts[segment] + __popc(members & ((1u << warp.thread_rank()) - 1));
        if (mine) list[32 * segment + place] = keys[r];
        counts[segment] += __popc(members);
      }
    }
    for (uint32_t segment = 0; segment < kSegments; ++segment) {
      if (warp.thread_rank() >= counts[segment]) list[32 * segment + warp.thread_rank()] = RowKey::kNone;
    }
  }
};

struct JoinSegments {
  static __device__ void write(uint64_t* list, uint64_t* worst, uint64_t (&keys)[kSegments],
                               const Warp& warp) {
    sort_ascending(keys);
    for (uint32_t r = 0; r < kSegments; ++r) list[32 * r + warp.thread_rank()] = keys[r];
    if (warp.thread_rank() == 31) *worst = keys[kSegments - 1];
  }
};

/// GNND: a lock for each segment; an insertion reads and moves 32 entries.
struct Segments : UnderLocks {
  using Before = ReorderLists<SplitInSegments>;
  using After = ReorderLists<JoinSegments>;

  static __device__ void give(const Args& args, const Warp& warp, uint32_t row, uint64_t key) {
    for (uint32_t lanes = warp.ballot(row != kNoRow); lanes != 0; lanes &= lanes - 1) {
      const uint32_t turn = __ffs(lanes) - 1;
      insert(args, warp, warp.shfl(row, turn), warp.shfl(key, turn));
    }
  }

  static __device__ void insert(const Args& args, const Warp& warp, uint32_t row, uint64_t key) {
    const uint32_t segment = RowKey::row(key) % kSegments;
    uint64_t* entries = args.keys + uint64_t{row} * args.k + 32 * segment;
    if (key >= read_key(entries + 31)) return;
    if (warp.thread_rank() == 0) {
      while ((atomicOr(&args.locks[row], 1u << segment) >> segment & 1) != 0) __nanosleep(32);
      __threadfence();
    }
    warp.sync();
    const uint64_t mine = read_key(entries + warp.thread_rank());
    const bool known = warp.any((mine | RowKey::kFlag) == key);
    const uint32_t place = __popc(warp.ballot(mine < (key & ~RowKey::kFlag)));
    const uint64_t before = warp.shfl_up(mine, 1);
    if (!known && warp.thread_rank() >= place)
      write_key(entries + warp.thread_rank(), warp.thread_rank() == place ? key : before);
    __threadfence();
    warp.sync();
    if (warp.thread_rank() == 0) atomicAnd(&args.locks[row], ~(1u << segment));
  }
};

/// Reads lists: the sum of distances, and hits among the first 10 entries of some rows.
struct Look {
  const uint64_t* keys;  // [rows, k]
  uint64_t entries;      // rows k
  uint32_t k;
  uint32_t rows;
  uint32_t sampled;          // rows of which the true neighbours are known, evenly spread
  const float* farthest;     // [sampled] distance of the 10th true neighbour, or null
  const uint32_t* truth;     // [sampled, 10] the true neighbours otherwise
  unsigned long long* sums;  // [2] of distances, of hits
};

__global__ void look(const Look args) {
  unsigned long long sums[2] = {0, 0};
  const uint64_t first = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = first; i < args.entries; i += step) {
    if (args.keys[i] != RowKey::kNone) sums[0] += RowKey::distance(args.keys[i]);
  }
  for (uint64_t i = first; args.truth != nullptr && i < uint64_t{args.sampled} * args.k; i += step) {
    const uint64_t sample = i / args.k;
    const uint64_t key = args.keys[sample * args.rows / args.sampled * args.k + i % args.k];
    for (uint32_t j = 0; j < 10 && key != RowKey::kNone; ++j)
      if (RowKey::row(key) == args.truth[sample * 10 + j]) ++sums[1];
  }
  for (uint64_t i = first; args.farthest != nullptr && i < args.sampled * 10; i += step) {
    const uint64_t row = i / 10 * args.rows / args.sampled;
    const uint64_t key = args.keys[row * args.k + i % 10];
    if (key != RowKey::kNone && static_cast<float>(RowKey::distance(key)) <= args.farthest[i / 10]) ++sums[1];
  }
  const Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  for (uint32_t i = 0; i < 2; ++i) {
    const unsigned long long sum = cg::reduce(warp, sums[i], cg::plus<unsigned long long>());
    if (warp.thread_rank() == 0) atomicAdd(args.sums + i, sum);
  }
}

}  // namespace gannet::cuda::descent

namespace gannet {
namespace {

using namespace test;
namespace descent = cuda::descent;

constexpr uint32_t kSampled = 5000;

/// The rows, on the device, and of some the distance of the 10th true neighbour, or their true neighbours. By
/// inner product codes are those of L2, and their squares have offsets.
struct Bench {
  Bench(const Rows& rows_, int32_t metric)
      : rows(rows_),
        dataset(rows.dataset(metric == ANN_METRIC_INNER_PRODUCT ? int32_t{ANN_METRIC_L2} : metric)),
        codes(dataset, 1, execution()),
        guard(0),
        sent(codes, stream, Execution()),
        view(sent.view()),
        with_offsets(metric == ANN_METRIC_INNER_PRODUCT ? rows.rows : 0, stream),
        by_distance(rows.element == ANN_U8 && metric == ANN_METRIC_L2),
        farthest(kSampled, stream),
        truth(uint64_t{kSampled} * 10, stream),
        sums(2, stream) {
    if (metric == ANN_METRIC_INNER_PRODUCT) add_offsets();
    if (!by_distance) {
      find_truth(metric);
      return;
    }
    std::vector<uint8_t> queries;
    for (uint64_t i = 0; i < kSampled; ++i) {
      const auto row = rows.bytes.begin() + static_cast<int64_t>(i * rows.rows / kSampled * rows.dim);
      queries.insert(queries.end(), row, row + rows.dim);
    }
    std::vector<uint32_t> found(kSampled * 11);
    std::vector<float> distances(found.size()), last(kSampled);
    cuda::search_exact({0, dataset.view(), dataset.rows(), ANN_METRIC_L2, nullptr, nullptr, queries.data(),
                        nullptr, kSampled, 11, found.data(), distances.data()},
                       Execution());
    for (uint32_t i = 0; i < kSampled; ++i) last[i] = distances[uint64_t{i} * 11 + 10];
    cuda::check(cudaMemcpyAsync(farthest.data(), last.data(), kSampled * sizeof(float),
                                cudaMemcpyHostToDevice, stream),
                "sending");
    stream.wait();
  }

  static Execution execution() {
    Execution execution;
    execution.threads = thread_count(0, 0);
    return execution;
  }

  void add_offsets() {
    const auto offsets = product_offsets(codes, rows.dim, execution());
    expect(offsets.has_value(), "codes that are bytes, for products");
    std::vector<uint32_t> squares(rows.rows);
    cuda::copy_to_host(squares.data(), view.squares, squares.size() * 4, stream, "fetching");
    stream.wait();
    for (uint32_t row = 0; row < rows.rows; ++row) {
      squares[row] += (*offsets)[row];
      offset_most = std::max(offset_most, (*offsets)[row]);
    }
    cuda::copy_to_device(with_offsets.data(), squares.data(), squares.size() * 4, stream, "sending");
    stream.wait();
    view.squares = with_offsets.data();
  }

  void find_truth(int32_t metric) {
    constexpr uint32_t kAsked = 11;
    ann_error error = ANN_ERROR_INIT;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    shape.metric = metric;
    ann_index* index = nullptr;
    expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, "an index");
    ann_build_params build = ANN_BUILD_PARAMS_INIT;
    build.graph = ANN_GRAPH_NONE;
    const ann_matrix all = matrix_of(rows);
    expect_ok(ann_build(index, &all, nullptr, &build, nullptr, &error), error, "rows without a graph");
    Rows sampled(rows.element, kSampled, rows.dim, Values::kEqual, 1);
    for (uint64_t i = 0; i < kSampled; ++i)
      std::copy_n(rows.bytes.begin() + static_cast<int64_t>(row_of(i) * rows.stride), rows.stride,
                  sampled.bytes.begin() + static_cast<int64_t>(i * rows.stride));
    std::vector<uint64_t> ids(uint64_t{kSampled} * kAsked);
    ann_results results = ANN_RESULTS_INIT;
    results.k = kAsked;
    results.rows = kSampled;
    results.ids = ids.data();
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.device = ANN_DEVICE_CUDA;
    const ann_matrix queries = matrix_of(sampled);
    expect_ok(ann_search_exact(index, &queries, &params, &results, nullptr, &error), error, "exact search");
    ann_index_free(index);
    std::vector<uint32_t> others(uint64_t{kSampled} * 10, kNoRow);
    for (uint64_t i = 0; i < kSampled; ++i) {
      uint32_t count = 0;
      for (uint32_t j = 0; j < kAsked && count < 10; ++j) {
        if (ids[i * kAsked + j] != row_of(i))
          others[i * 10 + count++] = static_cast<uint32_t>(ids[i * kAsked + j]);
      }
    }
    cuda::copy_to_device(truth.data(), others.data(), others.size() * 4, stream, "sending");
    stream.wait();
  }

  uint64_t row_of(uint64_t sample) const { return sample * rows.rows / kSampled; }

  /// phi and recall@10.
  std::pair<double, double> look(const descent::Args& args) {
    unsigned long long read[2] = {};
    cuda::check(cudaMemsetAsync(sums.data(), 0, sizeof read, stream), "clearing");
    descent::look<<<2048, 256, 0, stream>>>({args.keys, uint64_t{args.rows} * args.k, args.k, args.rows,
                                             kSampled, by_distance ? farthest.data() : nullptr,
                                             by_distance ? nullptr : truth.data(), sums.data()});
    cuda::check(cudaMemcpyAsync(read, sums.data(), sizeof read, cudaMemcpyDeviceToHost, stream), "fetching");
    stream.wait();
    return {static_cast<double>(read[0]), static_cast<double>(read[1]) / (10.0 * kSampled)};
  }

  const Rows& rows;
  Dataset dataset;
  Codes codes;
  cuda::DeviceGuard guard;
  cuda::Stream stream;
  cuda::DeviceCodes sent;
  cuda::CodesView view;
  cuda::DeviceArray<uint32_t> with_offsets;  // [rows], by inner product
  uint32_t offset_most = 0;
  bool by_distance;
  cuda::DeviceArray<float> farthest;           // [kSampled]
  cuda::DeviceArray<uint32_t> truth;           // [kSampled, 10]
  cuda::DeviceArray<unsigned long long> sums;  // [2]
};

enum class Print { kRounds, kLast, kNothing };

template <class Update>
void measure(Bench& bench, const char* figure, const char* variant, uint32_t k, uint32_t p, Print print) {
  const NnDescentParams params{k, p, 24, 0.02f, 1};
  const Execution execution;
  const cuda::DeviceArray<uint32_t> neighbors(uint64_t{bench.rows.rows} * k, bench.stream);
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  std::string line;
  double spent = 0;
  descent::NnDescent<Update> rounds(bench.view, params, neighbors.data(), nullptr, bench.stream, execution,
                                    {}, bench.offset_most);
  bench.stream.wait();
  Clock::time_point resumed = Clock::now();
  rounds.run([&](uint32_t round, const descent::Args& args, const cuda::Stream& stream) {
    stream.wait();
    spent += seconds(Clock::now() - resumed);
    const auto [phi, recall] = bench.look(args);
    char text[200];
    std::snprintf(text, sizeof text, "%s,%s,%u,%u,%u,%.4f,%.6g,%.4f\n", figure, variant, k, p, round, spent,
                  phi, recall);
    line = text;
    if (print == Print::kRounds) std::fputs(text, stdout);
    resumed = Clock::now();
  });
  if (print == Print::kLast) std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

/// Once without a word, for what a device does only the first time.
template <class Update>
void draw(Bench& bench, const char* figure, const char* variant, uint32_t k, uint32_t p, Print print) {
  measure<Update>(bench, figure, variant, k, p, Print::kNothing);
  measure<Update>(bench, figure, variant, k, p, print);
}

void draw_figure_4(Bench& bench) {
  draw<descent::AllPairs>(bench, "4", "nn-descent", 10, 10, Print::kRounds);
  draw<descent::OneLock>(bench, "4", "gnnd-r2", 10, 5, Print::kRounds);
  draw<descent::OfferAndMerge>(bench, "4", "gannet", 10, 5, Print::kRounds);
  draw<descent::OfferAndMerge>(bench, "4", "gannet", 10, 10, Print::kRounds);
}

void draw_figure_5(Bench& bench) {
  draw<descent::AllPairs>(bench, "5", "gnnd-r1", 64, 16, Print::kRounds);
  draw<descent::OneLock>(bench, "5", "gnnd-r2", 64, 16, Print::kRounds);
  draw<descent::Segments>(bench, "5", "gnnd", 64, 16, Print::kRounds);
  draw<descent::OfferAndMerge>(bench, "5", "gannet", 64, 16, Print::kRounds);
}

/// `also_locks`: beside what the library does, the paper's way.
void draw_figure_6(Bench& bench, bool also_locks) {
  for (const uint32_t p : {10u, 12u, 14u, 16u, 18u, 20u, 24u, 28u, 32u}) {
    if (also_locks) draw<descent::Segments>(bench, "6", "gnnd", 64, p, Print::kLast);
    draw<descent::OfferAndMerge>(bench, "6", "gannet", 64, p, Print::kLast);
  }
}

void draw_figure_6b(Bench& bench) {
  for (const uint32_t p : {10u, 16u, 24u, 32u, 42u})
    draw<descent::OfferAndMerge>(bench, "6b", "gannet", 128, p, Print::kLast);
}

void draw_figures(const Rows& rows, int32_t metric, const std::string& list) {
  Bench bench(rows, metric);
  const auto wanted = [&](const char* figure) {
    return ("," + list + ",").find("," + std::string(figure) + ",") != std::string::npos;
  };
  std::printf("figure,variant,k,p,round,seconds,phi,recall@10\n");
  if (wanted("4")) draw_figure_4(bench);
  if (wanted("5")) draw_figure_5(bench);
  if (wanted("6")) draw_figure_6(bench, list.find("5") != std::string::npos);
  if (wanted("6b")) draw_figure_6b(bench);
}

}  // namespace
}  // namespace gannet

int main(int count, char** arguments) {
  using namespace gannet;
  using namespace gannet::test;
  const char* reason = "";
  if (cuda_device_count(&reason) == 0) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  if (count < 2) {
    std::fprintf(stderr, "usage: gnnd_figures FILE [ROWS [FIGURES [METRIC]]]\n");
    return 2;
  }
  try {
    const uint32_t rows_max =
        count > 2 ? static_cast<uint32_t>(std::strtoul(arguments[2], nullptr, 10)) : UINT32_MAX;
    draw_figures(read_vectors(arguments[1], rows_max), metric_named(count > 4 ? arguments[4] : "L2"),
                 count > 3 ? arguments[3] : "4,5,6");
  } catch (const Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what.c_str());
    return 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  return 0;
}
