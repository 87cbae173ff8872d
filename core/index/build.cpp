// The build, on one screen: rows -> codes -> k-NN graph -> search graph -> calibration.
//
// On a CUDA device everything between codes and search graph stays there (build_cuda.cu), and so does the
// graph: as the placement that searches on the device use. Rows that lie there stay too: the host
// gets its copy of them while the device finds neighbours. Rows of the host that the placement will hold are sent first,
// since the device makes codes of them in less time than it gets those of the host (dataset/ingest.h).

#include <atomic>
#include <chrono>

#include "backend/devices.h"
#include "graph/diversify.h"
#include "graph/ggnn.h"
#include "graph/long_edges.h"
#include "graph/product_edges.h"
#include "index/build_cuda.h"
#include "index/choose_projection.h"
#include "index/index.h"
#include "index/missed_rows.h"
#include "index/product_walks.h"
#include "index/reach.h"
#include "index/row_measures.h"
#include "knn/find_neighbors.h"

namespace gannet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Copies a k-NN graph of the caller; refuses rows out of range, and drops loops and repetitions.
KnnGraph copy_knn(const uint32_t* given, uint32_t rows, uint32_t k, const Execution& execution) {
  KnnGraph graph{Array<uint32_t>(execution.memory, checked_product(rows, k)), rows, k, 0};
  std::atomic<uint64_t> wrong = kNoPlace;  // the first place that names no row
  // A place is compared with those before it in its list.
  const uint64_t grain = items_per_task(uint64_t{k} * k / 8, 1024);
  parallel_for(execution, rows, grain, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      const uint32_t* from = given + row * k;
      uint32_t* list = graph.neighbors.data() + row * k;
      uint32_t count = 0;
      for (uint32_t i = 0; i < k; ++i) {
        if (from[i] == kNoRow) continue;
        if (from[i] >= rows) return keep_least(wrong, row * k + i);
        if (from[i] != row && std::find(list, list + count, from[i]) == list + count) list[count++] = from[i];
      }
      std::fill(list + count, list + k, kNoRow);
    }
  });
  const uint64_t place = wrong.load();
  if (place != kNoPlace)
    fail(ANN_INVALID_ARGUMENT, "knn_graph[%llu, %llu] is %u, rows are 0 to %u",
         static_cast<unsigned long long>(place / k), static_cast<unsigned long long>(place % k), given[place],
         rows - 1);
  return graph;
}

/// The lists of the caller, or those that are found.
KnnGraph knn_of(const Codes& codes, const BuildPlan& plan, const Execution& execution) {
  if (plan.knn == ANN_KNN_GIVEN) return copy_knn(plan.knn_graph, codes.rows(), plan.nn_descent.k, execution);
  return find_neighbors(codes, plan.knn, plan.nn_descent, execution);
}

/// Whether the graph gets lists by product beside those of near rows. Lists of the caller stay as they are.
bool adds_products(const BuildPlan& plan, const Segment& segment) {
  return segment.codes.scaled() != nullptr && plan.knn != ANN_KNN_GIVEN;
}

/// The codes by which rows are compared with rows.
Codes codes_of_rows(const Segment& segment, const Execution& execution) {
  return Codes::of_rows(segment.dataset, segment.seed, execution);
}

/// Adds the edges by product to a graph of near rows.
void finish_product_graph(const BuildPlan& plan, Segment& segment, const Execution& execution) {
  execution.enter("edges by product");
  add_product_edges(segment.graph, segment.dataset, segment.codes, plan.nn_descent.k, execution);
}

/// The same of a graph that a device has. Many rows get these edges where the device searches them, which makes every
/// row reachable: then the result is the segment's placement. Else it is null, and the host has the graph, no longer
/// the device.
std::unique_ptr<DevicePlacement> finish_product_graph_on_device(const BuildPlan& plan,
                                                                std::unique_ptr<cuda::GraphOnDevice>& near,
                                                                Segment& segment,
                                                                const Execution& execution) {
  const bool adds = adds_products(plan, segment);
  if (adds && segment.rows() >= kProductWalksMin) {
    auto placement = cuda::add_product_edges(segment, *near, plan.nn_descent.k, plan.repair, execution);
    if (placement != nullptr) return placement;
  } else {
    near->fetch(segment.graph.edges, execution);
  }
  near.reset();
  if (adds) finish_product_graph(plan, segment, execution);
  return nullptr;
}

/// Whether the order by halves of codes is that of rows but for a few that lie at nearly equal distances, whose places
/// re-ranking finds.
bool halves_serve(const CodeOrder& order) {
  constexpr double kServes = 0.999;       // share of the true 10 among the first 20 by code,
  constexpr double kServesWorst = 0.995;  // of the worst tenth
  return order.first_twenty >= kServes && order.worst_twenty >= kServesWorst;
}

/// Measures of the lists under a graph, and of the codes. Halves of these that do not order the rows are dropped.
void measure(Segment& segment, const SampledLists& lists, double by_codes, const DevicePlacement* placed,
             const Execution& execution) {
  const auto look = [&] {
    return measure_rows(segment.dataset, segment.codes, lists, by_codes, segment.seed, placed, execution);
  };
  RowMeasures measures = look();
  if (segment.codes.has_halves() && !halves_serve(measures.order)) {
    segment.codes.drop_halves();
    measures = look();
  }
  segment.knn_share = measures.knn_share;
  if (segment.codes.projected() == nullptr) segment.codes.set_order(measures.order);
}

/// The same where lists are on the host; they are measured if cells have measured them.
void measure_lists(Segment& segment, const KnnGraph& lists, const Execution& execution) {
  measure(segment,
          lists.share != 0 ? lists_to_measure(lists, segment.seed, execution.memory) : SampledLists{},
          lists.share, nullptr, execution);
}

/// The caller's lists, with the distances that pruning by them needs. `codes` are on the host.
KnnLists copy_lists(const Codes& codes, const BuildPlan& plan, const Execution& execution) {
  KnnLists lists;
  lists.graph = copy_knn(plan.knn_graph, codes.rows(), plan.nn_descent.k, execution);
  if (plan.pruning.by_distance) lists.distances = list_distances(lists.graph, codes, execution);
  return lists;
}

Array<uint32_t> prune(const KnnGraph& knn, const Codes& codes, const BuildPlan& plan,
                      const Execution& execution) {
  if (!plan.pruning.by_distance) return prune_by_rank(knn, plan.pruning, execution);
  return prune_by_distance(knn, list_distances(knn, codes, execution), plan.pruning, execution);
}

void make_graph(const BuildPlan& plan, Segment& segment, const Execution& whole) {
  SearchGraph& graph = segment.graph;
  if (plan.graph == ANN_GRAPH_GGNN) {
    build_ggnn(segment.codes, plan.ggnn, graph, whole.span(0, 0.95));
    measure(segment, {}, 0, nullptr, whole.span(0.95, 0.96));
    whole.span(0.96, 1).enter("reachability");
    if (plan.repair) graph.repaired_edges = repair_reachability(graph, whole);
    return;
  }
  const bool products = adds_products(plan, segment);
  const Execution execution = products ? whole.span(0, 0.4) : whole;
  {
    Codes rows;
    if (products) rows = codes_of_rows(segment, execution);
    const Codes& codes = products ? rows : segment.codes;
    const KnnGraph knn = knn_of(codes, plan, execution.span(0, 0.76));
    segment.codes.drop_list_codes();
    segment.knn_iterations = knn.iterations;
    if (products)
      segment.knn_share = knn.share;  // of near rows, which are no neighbours by product
    else
      measure_lists(segment, knn, execution.span(0.76, 0.78));
    execution.span(0.78, 0.9).enter("prune");
    graph.edges = prune(knn, codes, plan, execution);
  }
  execution.span(0.9, 0.96).enter("reverse edges");
  add_reverse_edges(graph.edges, graph.rows, plan.degree, execution);
  if (products) finish_product_graph(plan, segment, whole.span(0.4, 0.96));
  whole.span(0.96, 1).enter("reachability");
  if (!plan.repair) return;
  graph.repaired_edges = repair_reachability(graph, execution);
  if (!walks_find_rows(segment, kRowsPerMissOnHost, execution))
    add_long_edges(segment.codes, graph, segment.seed, execution);
  attach_missed_rows(segment, execution);
}

/// TSDG.
void make_diversified(const BuildPlan& plan, std::unique_ptr<cuda::DeviceIngest> ingest, Segment& segment,
                      const Execution& execution) {
  const bool given = plan.knn == ANN_KNN_GIVEN;
  const bool there = plan.device >= ANN_DEVICE_CUDA && segment.rows() != 0;
  KnnGraph knn;
  if (given || !there) knn = knn_of(segment.codes, plan, execution.span(0, 0.6));
  segment.codes.drop_list_codes();
  if (there) {
    const int32_t method = knn_method_for(segment.codes.rows(), plan.nn_descent.k, plan.knn);
    const cuda::FoundLists found =
        cuda::build_diversified(segment.codes, std::move(ingest), method, given ? &knn : nullptr, plan,
                                segment.graph, given ? execution.span(0.6, 1) : execution);
    segment.knn_iterations = found.iterations;
    measure(segment, found.sampled, found.share, nullptr, execution);
    return;
  }
  segment.knn_iterations = knn.iterations;
  measure_lists(segment, knn, execution);
  diversify(segment.codes, std::move(knn), plan.diversify, plan.repair, segment.graph,
            execution.span(0.6, 1));
}

/// Measures how far the CPU has to walk for a recall, unless a device has built the index.
void calibrate(const BuildPlan& plan, PlacedSegment& built, const Execution& execution) {
  if (!plan.calibrate) return;
  if (plan.device >= ANN_DEVICE_CUDA) return built.calibration.postpone();
  const Clock::time_point start = Clock::now();
  execution.enter("calibrate");
  built.calibration.measure(built.segment, execution, &built.segment.graph);
  built.calibrate_seconds = seconds_since(start);
}

/// A placement that `make` makes; null where the device's memory does not hold it, since the index is whole without.
template <class Make>
std::shared_ptr<PlacedDevice> place(const Make& make) {
  auto placed = std::make_shared<PlacedDevice>();
  try {
    placed->placement = make();
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    return nullptr;
  }
  return placed;
}

/// The last steps of an index whose graph is whole on the host and, unless `placed` is null, on a device, which
/// measures how far it has to walk.
void calibrate_and_adopt(const BuildPlan& plan, const std::shared_ptr<PlacedDevice>& placed,
                         PlacedSegment& built, const Execution& execution) {
  const Clock::time_point start = Clock::now();
  calibrate(plan, built, execution);
  if (placed == nullptr) return;
  if (plan.calibrate) {
    placed->two_lists.measure({built.host, placed->placement.get()}, execution);
    built.recall_max_there = placed->two_lists.recall_max();
    built.calibrate_seconds = seconds_since(start);
  }
  built.devices.adopt(placed);
}

/// The same of a graph that is on the host, and on the device if `placement` is not null.
void place_whole(const BuildPlan& plan, std::unique_ptr<DevicePlacement> placement, PlacedSegment& built,
                 const Execution& execution) {
  execution.enter("placement");
  const auto placed = place([&] {
    if (placement != nullptr) return std::move(placement);
    return cuda::place_for_search(plan.device - ANN_DEVICE_CUDA, built.segment, nullptr, execution);
  });
  calibrate_and_adopt(plan, placed, built, execution);
}

/// Touches memory, so that the system makes its pages.
void make_pages(Array<uint32_t>& items, const Execution& execution) {
  constexpr size_t kItemsPerPage = 4096 / sizeof(uint32_t);
  parallel_for(execution, items.size(), kItemsPerPage * 512, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t item = begin; item < end; item += kItemsPerPage) items[item] = 0;
  });
}

/// Gives the graph long edges, and the placement too. Where there is none, or its device has no memory for that, the host
/// makes them, by lists of cells from fewer heads on.
std::shared_ptr<PlacedDevice> join_islands(Segment& segment, std::shared_ptr<PlacedDevice> placed,
                                           const Execution& execution) {
  execution.enter("long edges");
  if (placed == nullptr) {
    add_long_edges(segment.codes, segment.graph, segment.seed, execution);
    return placed;
  }
  DevicePlacement& placement = *placed->placement;
  bool by_device = true;
  try {
    if (!cuda::add_long_edges(placement, segment, execution)) return placed;
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    by_device = false;
  }
  if (!by_device && !add_long_edges(segment.codes, segment.graph, segment.seed, execution)) return placed;
  return place([&] {
    if (by_device)
      placement.replace_starts(segment.graph, execution);
    else
      placement.replace_graph(segment.graph, execution);
    return std::move(placed->placement);
  });
}

/// Edges to rows that walks miss, of the placement too if there is one.
void attach_missed(const BuildPlan& plan, const std::shared_ptr<PlacedDevice>& placed, Segment& segment,
                   const Execution& execution) {
  execution.enter("edges to missed rows");
  if (placed == nullptr) return attach_missed_rows(segment, execution);
  const bool by_cells = knn_method_for(segment.rows(), plan.nn_descent.k, plan.knn) == ANN_KNN_CELLS;
  attach_missed_rows(segment, *placed->placement, by_cells, execution);
}

/// The graph by the device. Where its memory does not hold rows that were sent ahead, it gets codes of the host.
std::unique_ptr<cuda::GraphOnDevice> make_on_device(const BuildPlan& plan,
                                                    std::unique_ptr<cuda::DeviceIngest> ingest, bool ahead,
                                                    const KnnLists* given, Segment& segment,
                                                    const Execution& execution) {
  SearchGraph& graph = segment.graph;
  if (plan.graph == ANN_GRAPH_GGNN)
    return cuda::build_ggnn_graph(segment.codes, std::move(ingest), plan, graph, execution);
  const int32_t method = knn_method_for(segment.codes.rows(), plan.nn_descent.k, plan.knn);
  const auto make = [&](std::unique_ptr<cuda::DeviceIngest> rows) {
    return cuda::build_graph(segment.codes, std::move(rows), method, given, plan, graph.entries, execution);
  };
  if (!ahead) return make(std::move(ingest));
  try {
    return make(std::move(ingest));
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
  }
  segment.codes = Codes();  // no memory is held twice
  segment.codes = Codes(segment.dataset, segment.seed, execution);
  return make(nullptr);
}

/// Graph and calibration by a CUDA device, where the segment is then placed. `ingest` is null if rows are on the host
/// alone; `ahead`: if they were sent from there.
void build_on_device(const BuildPlan& plan, std::unique_ptr<cuda::DeviceIngest> ingest, bool ahead,
                     PlacedSegment& built, const Execution& execution) {
  Segment& segment = built.segment;
  SearchGraph& graph = segment.graph;
  KnnLists copied;
  const bool given = plan.knn == ANN_KNN_GIVEN;
  if (given) copied = copy_lists(segment.codes, plan, execution);
  const bool is_ggnn = plan.graph == ANN_GRAPH_GGNN;
  // The system maps untouched memory page by page, which takes longer than the copy
  // that fills it. So the pages of the edges are touched while the device finds them: of as many as most sets want.
  graph.degree = plan.easy_pruning.degree;
  graph.make_fixed(execution.memory);
  std::unique_ptr<cuda::GraphOnDevice> made;
  run_both(
      execution,
      [&] {
        made = make_on_device(plan, std::move(ingest), ahead, given ? &copied : nullptr, segment,
                              execution.span(0, 0.85));
      },
      [&] { make_pages(graph.edges, execution); });
  if (made->degree != graph.degree) {
    graph.degree = made->degree;
    graph.edges = {};  // they are held once
    graph.make_fixed(execution.memory);
  }
  segment.knn_iterations = made->found.iterations;
  segment.knn_share = made->found.share;
  graph.repaired_edges = made->repaired_edges;
  const bool fetched = made->unreachable != 0;
  if (fetched) {
    made->fetch(graph.edges, execution);
    graph.repaired_edges = repair_reachability(graph, execution);
    made->replace(graph.edges, execution);
  }
  execution.span(0.85, 0.86).enter("placement");
  auto placed = place([&] { return made->place(segment, execution); });

  // The host walks the edges, and what follows goes on, while the device looks at lists and codes. Calibration
  // waits for these walks: where they do not find rows it would be of a graph that is given up, 95 of the 390 ms of
  // patches' build.
  const Execution measuring = execution.span(0.86, 1);
  measuring.enter("edges to the host");
  const DevicePlacement* on_device = placed != nullptr ? placed->placement.get() : nullptr;
  bool finds = true;
  const auto finish = [&](const std::shared_ptr<PlacedDevice>& last) {
    if (!is_ggnn && plan.repair) attach_missed(plan, last, segment, measuring);
    calibrate_and_adopt(plan, last, built, measuring);
  };
  if (!fetched) made->fetch(graph.edges, measuring);
  run_both(
      execution,
      [&] {
        measure(segment, made->found.sampled, made->found.share, on_device, measuring);
        made.reset();  // takes a millisecond
      },
      [&] {
        finds = is_ggnn || !plan.repair || walks_find_rows(segment, kRowsPerMissOnDevice, measuring);
        if (finds) finish(placed);
      });
  if (finds) return;
  // So few graphs want long edges that all are placed without waiting for the host to look.
  finish(join_islands(segment, std::move(placed), measuring));
}

/// The steps that follow once all edges are on the host. `placement`, unless null, has them too, and its device has made
/// every row reachable.
void finish_on_host(const BuildPlan& plan, std::unique_ptr<DevicePlacement> placement, PlacedSegment& built,
                    const Execution& execution) {
  SearchGraph& graph = built.segment.graph;
  execution.span(0.8, 0.86).enter("reachability");
  if (plan.repair && placement == nullptr) graph.repaired_edges = repair_reachability(graph, execution);
  const Execution last = execution.span(0.86, 1);
  if (plan.device >= ANN_DEVICE_CUDA && graph.rows != 0)
    place_whole(plan, std::move(placement), built, last);
  else
    calibrate_and_adopt(plan, nullptr, built, last);
}

/// The caller's edges as the search graph.
void take_graph(const BuildPlan& plan, PlacedSegment& built, const Execution& execution) {
  Segment& segment = built.segment;
  segment.graph.edges = copy_knn(plan.knn_graph, segment.rows(), plan.degree, execution).neighbors;
  measure(segment, {}, 0, nullptr, execution);
  finish_on_host(plan, nullptr, built, execution);
}

/// GGNN's graph by inner product, whose codes the device does not search by: it finds the graph, and the index is
/// placed when it is whole.
void build_ggnn_by_product_on_device(const BuildPlan& plan, PlacedSegment& built,
                                     const Execution& execution) {
  Segment& segment = built.segment;
  SearchGraph& graph = segment.graph;
  graph.make_fixed(execution.memory);
  BuildPlan unrepaired = plan;
  unrepaired.repair = false;
  cuda::build_ggnn_graph(segment.codes, nullptr, unrepaired, graph, execution.span(0, 0.8))
      ->fetch(graph.edges, execution);
  finish_on_host(plan, nullptr, built, execution);
}

/// Codes that order rows by product.
void make_scaled_codes(const MatrixView* queries, Segment& segment, const Execution& execution) {
  CodeOrder order;
  segment.codes.walk_by(ScaledCodes::choose(segment.dataset, queries, segment.seed, execution, &order));
  segment.codes.set_order(order);
}

/// The graph of near rows by a device.
std::unique_ptr<cuda::GraphOnDevice> find_near_rows_on_device(const BuildPlan& plan, Segment& segment,
                                                              const KnnLists* given,
                                                              const Execution& execution) {
  SearchGraph& graph = segment.graph;
  const Codes rows = codes_of_rows(segment, execution);
  const int32_t method = knn_method_for(rows.rows(), plan.nn_descent.k, plan.knn);
  BuildPlan unrepaired = plan;
  unrepaired.repair = false;
  auto made =
      cuda::build_graph(rows, nullptr, method, given, unrepaired, graph.entries, execution.span(0, 0.3));
  segment.knn_iterations = made->found.iterations;
  segment.knn_share = made->found.share;
  return made;
}

/// The same by inner product: the device finds near rows, while the CPU makes the codes, unless they are there, and those
/// that order rows by the products of `queries` or rows. Then the device walks for lists by product, edges are made of them,
/// and the index is placed when it is whole. A graph of the caller's lists gets no edges by product.
///
/// Codes about one centre order the rows of every real set that was tried. So the device walks by them while the CPU
/// measures whether they do: to wait took 21 of the 142 ms of 150,000 words' build (one NVIDIA H100). Where they do
/// not, it all is done again.
void build_products_on_device(const BuildPlan& plan, const MatrixView* queries, PlacedSegment& built,
                              const Execution& execution) {
  Segment& segment = built.segment;
  KnnLists copied;
  const bool given = plan.knn == ANN_KNN_GIVEN;
  segment.graph.make_fixed(execution.memory);
  if (given) copied = copy_lists(segment.codes, plan, execution);
  std::unique_ptr<DevicePlacement> placement;
  const auto order_by = [&](uint32_t cells) {
    segment.codes.walk_by(ScaledCodes(segment.dataset, cells, segment.seed, execution));
  };
  std::unique_ptr<cuda::GraphOnDevice> near;
  const auto find_near = [&] {
    near = find_near_rows_on_device(plan, segment, given ? &copied : nullptr, execution);
  };
  const auto add_products = [&] {
    placement = finish_product_graph_on_device(plan, near, segment, execution.span(0.3, 0.8));
  };
  run_both(execution, find_near, [&] {
    if (segment.codes.rows() == 0) segment.codes = Codes(segment.dataset, segment.seed, execution);
    order_by(1);
  });
  CodeOrder order;
  Execution some = execution;  // the others send the index to the device
  some.threads = (execution.threads + 1) / 2;
  const auto measure_order = [&] {
    order = segment.codes.scaled()->measure(segment.dataset, queries, segment.seed, some);
  };
  run_both(execution, add_products, measure_order);
  if (!order.is_enough()) {
    placement.reset();
    near.reset();
    run_both(execution, find_near, [&] {
      order_by(ScaledCodes::kCellsMany);
      measure_order();
    });
    add_products();
  }
  segment.codes.set_order(order);
  run_both(
      execution, [&] { finish_on_host(plan, std::move(placement), built, execution); },
      [&] { near.reset(); });
}

/// The codes of all rows; made on a device where `ingest` has rows there, or gets those that are sent ahead.
Codes make_codes(const BuildPlan& plan, Segment& segment, std::unique_ptr<cuda::DeviceIngest>* ingest,
                 const Execution& execution) {
  Dataset& dataset = segment.dataset;
  if (*ingest != nullptr) return (*ingest)->make_codes(dataset, segment.seed, execution);
  if (dataset.rows() != 0 && sends_rows_ahead(plan, dataset.metric(), dataset.element())) {
    try {
      *ingest = cuda::send_rows(dataset, plan.device, execution);
      return (*ingest)->make_codes(dataset, segment.seed, execution);
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY) throw;
      ingest->reset();
    }
  }
  return Codes(dataset, segment.seed, execution);
}

/// Narrower codes for the walks of the CPU or for the lists of cells, where the rows have such.
void project_codes(const BuildPlan& plan, Segment& segment, const Execution& execution) {
  Projection projection = choose_projection(segment.dataset, segment.codes, segment.seed, execution);
  if (!projection.codes) return;
  if (!projection.serves_walks) {
    const bool by_cells = plan.knn == ANN_KNN_CELLS && plan.graph != ANN_GRAPH_GGNN && !plan.finished;
    if (by_cells) segment.codes.find_lists_by(std::move(*projection.codes));
    return;
  }
  segment.codes.walk_by(std::move(*projection.codes));
  segment.codes.set_order(projection.order);
}

}  // namespace

bool stay_on_device(const MatrixView& rows, int32_t device, int32_t stored) {
  return rows.on_device() && rows.space == device && rows.rows != 0 &&
         (stored == ANN_ELEMENT_AUTO || stored == rows.element);
}

std::unique_ptr<const PlacedSegment> build(const ann_index_params& shape, const MatrixView& rows,
                                           const uint64_t* ids, const BuildPlan& plan,
                                           const MatrixView* calibration, const Execution& execution) {
  const Clock::time_point start = Clock::now();
  const uint64_t seed = plan.nn_descent.seed;
  if (plan.device >= ANN_DEVICE_CUDA) check_cuda_device(plan.device);
  execution.enter("copy");
  std::unique_ptr<PlacedSegment> built;  // outlives `ingest`, which fills it
  std::unique_ptr<cuda::DeviceIngest> ingest;
  if (rows.on_device()) ingest = cuda::ingest_rows(rows, shape.metric, execution);
  built = std::make_unique<PlacedSegment>(
      Dataset(rows, ids, shape.metric, shape.element, plan.borrow, execution));
  Segment& segment = built->segment;
  segment.graph.kind = plan.graph;
  segment.seed = seed;
  if (plan.graph != ANN_GRAPH_NONE) {
    execution.span(0.03, 0.06).enter("codes");
    const bool by_product = shape.metric == ANN_METRIC_INNER_PRODUCT && segment.rows() != 0;
    const bool by_walks = by_product && plan.device >= ANN_DEVICE_CUDA && !plan.finished &&
                          plan.graph != ANN_GRAPH_TSDG && plan.graph != ANN_GRAPH_GGNN;
    // The lists of near rows that walks by product start from have codes of their own.
    const bool are_first = !by_walks || ingest != nullptr || plan.knn == ANN_KNN_GIVEN;
    if (are_first) segment.codes = make_codes(plan, segment, &ingest, execution);
    if (ingest != nullptr && reads_copy(plan, by_product)) ingest->wait();
    if (by_product && !by_walks) make_scaled_codes(calibration, segment, execution);
    // A device that builds calibrates by its own walks, which take the codes as they are.
    if (plan.device < ANN_DEVICE_CUDA) {
      project_codes(plan, segment, execution.span(0.03, 0.06));
      segment.codes.make_halves(execution);
    }

    execution.span(0.06, 0.7).enter("k-NN graph");
    SearchGraph& graph = segment.graph;
    graph.rows = segment.rows();
    graph.degree = plan.degree;
    if (plan.calibrate && calibration != nullptr)
      segment.queries = QuerySample(segment.dataset, *calibration, seed, execution.memory);
    graph.entries = by_product ? choose_entries_by_product(segment.dataset, kEntryPoints, seed, execution)
                               : choose_entries(graph.rows, kEntryPoints, seed, execution.memory);
    if (plan.finished) {
      take_graph(plan, *built, execution.span(0.06, 1));
    } else if (plan.graph == ANN_GRAPH_TSDG) {
      make_diversified(plan, std::move(ingest), segment, execution.span(0.06, 0.88));
      calibrate(plan, *built, execution.span(0.88, 1));
    } else if (by_walks) {
      build_products_on_device(plan, calibration, *built, execution.span(0.06, 1));
    } else if (plan.device >= ANN_DEVICE_CUDA && by_product) {
      build_ggnn_by_product_on_device(plan, *built, execution.span(0.06, 1));
    } else if (plan.device >= ANN_DEVICE_CUDA && graph.rows != 0) {
      const bool ahead = ingest != nullptr && !rows.on_device();
      build_on_device(plan, std::move(ingest), ahead, *built, execution.span(0.06, 1));
    } else {
      make_graph(plan, segment, execution.span(0.06, 0.88));
      calibrate(plan, *built, execution.span(0.88, 1));
    }
  }
  execution.check();
  execution.advance(1);
  built->build_seconds = seconds_since(start);
  return built;
}

}  // namespace gannet
