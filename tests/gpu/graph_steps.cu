// What each step of CAGRA's optimisation does to a graph: the paper's Figure 3, re-made.
//
//   graph_steps FILE.u8bin [ROWS]
//
// From exact k-NN lists of d_init = 3 d entries, for each degree d: the k-NN graph cut after d, with one of
// the two steps (reordering and pruning, or reverse edges), and with both; for both kinds of reordering, by
// ranks and by distances. For each graph the number of strong and weak components, and the mean number of
// rows within two edges, which is at most d + d * d. Repair is not part of it.
//
// Prints a line a graph, and the milliseconds of each step. Ends with 77 where there is no CUDA device.

#include <cstdio>

#include "claims.h"
#include "graph/search_graph.h"
#include "graph/search_graph_cuda.h"
#include "knn/exact_knn_cuda.h"

namespace {

using namespace gannet;
using namespace gannet::test;
using Lists = cuda::DeviceArray<uint32_t>;

constexpr uint32_t kDegrees[] = {16, 32, 64};
constexpr uint32_t kInitPerDegree = 3;

/// The graphs of one degree.
class Steps {
 public:
  Steps(const cuda::DeviceCodes& codes, uint32_t rows, uint32_t degree, const cuda::Stream& stream)
      : stream_(stream),
        rows_(rows),
        degree_(degree),
        k_(kInitPerDegree * degree),
        knn_(uint64_t{rows} * k_, stream),
        distances_(uint64_t{rows} * k_, stream),
        plain_(uint64_t{rows} * degree, stream),
        merged_(uint64_t{rows} * degree, stream) {
    cuda::exact_knn(codes.view(), k_, knn_.data(), distances_.data(), stream, Execution());
    cuda::check(cudaMemcpy2DAsync(plain_.data(), degree * sizeof(uint32_t), knn_.data(),
                                  k_ * sizeof(uint32_t), degree * sizeof(uint32_t), rows,
                                  cudaMemcpyDeviceToDevice, stream),
                "cutting lists");
  }

  void print() {
    show("k-NN graph", plain_, 0);
    show("reverse edges", merged_, merge(plain_));
    const Lists kept(uint64_t{rows_} * degree_, stream_);
    const double by_rank = median_ms([&] {
      cuda::prune_by_rank(knn_.data(), rows_, k_, degree_, kept.data(), stream_, Execution());
      stream_.wait();
    });
    show("reordering", kept, by_rank);
    show("reordering and reverse edges", merged_, merge(kept));
    const double by_distance = median_ms([&] {
      cuda::prune_by_distance(knn_.data(), distances_.data(), rows_, k_, degree_, kept.data(), stream_,
                              Execution());
      stream_.wait();
    });
    show("reordering by distance", kept, by_distance);
    show("reordering by distance and reverse edges", merged_, merge(kept));
  }

 private:
  double merge(const Lists& forward) {
    return median_ms([&] {
      cuda::add_reverse_edges(forward.data(), rows_, degree_, merged_.data(), stream_, Execution());
      stream_.wait();
    });
  }

  void show(const char* what, const Lists& edges, double step_ms) {
    const Array<uint32_t> entry = choose_entries(rows_, 1, 1, {});
    const Lists entries(1, stream_);
    cuda::check(cudaMemcpyAsync(entries.data(), entry.data(), sizeof(uint32_t), cudaMemcpyHostToDevice,
                                stream_),
                "sending an entry point");
    ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
    const double ms = milliseconds_of([&] {
      cuda::measure_graph({edges.data(), entries.data(), rows_, degree_, 1}, 1, stream_, Execution(),
                          &stats);
    });
    std::printf("degree %u of %u, %s: %llu strong components, the largest of %llu rows, %llu weak "
                "components, %.1f rows within two edges; step %.2f ms, measures %.1f ms\n",
                degree_, k_, what, static_cast<unsigned long long>(stats.strong_components),
                static_cast<unsigned long long>(stats.largest_strong),
                static_cast<unsigned long long>(stats.weak_components), stats.two_hop_mean, step_ms, ms);
    std::fflush(stdout);
  }

  const cuda::Stream& stream_;
  uint32_t rows_;
  uint32_t degree_;
  uint32_t k_;
  Lists knn_;        // [rows, k]
  Lists distances_;  // [rows, k]
  Lists plain_;      // [rows, degree] the k-NN graph
  Lists merged_;     // [rows, degree]
};

const char* data_file = nullptr;
uint32_t data_rows = 1'000'000;

void print_steps() {
  const Rows rows = read_u8bin(data_file, data_rows);
  const Dataset dataset = rows.dataset(ANN_METRIC_L2);
  const Codes codes(dataset, 1, Execution());
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const cuda::DeviceCodes sent(codes, stream, Execution());
  for (const uint32_t degree : kDegrees) Steps(sent, rows.rows, degree, stream).print();
}

constexpr Claim kSteps[] = {{"steps of the optimisation", print_steps}};

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "graph_steps FILE.u8bin [ROWS]\n");
    return 2;
  }
  data_file = arguments[1];
  if (count > 2) data_rows = static_cast<uint32_t>(std::strtoul(arguments[2], nullptr, 10));
  return run_claims(kSteps);
}
