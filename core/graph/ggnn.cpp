#include "graph/ggnn.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel_sort.h"
#include "base/random.h"
#include "base/row_loops.h"
#include "graph/ggnn_layers.h"

namespace gannet {
namespace {

constexpr uint32_t kMergeSteps = kGgnnMergeSteps;
constexpr uint32_t kLinkSteps = kGgnnLinkSteps;
constexpr uint32_t kLinkBest = kGgnnLinkBest;
constexpr uint64_t kSelectStream = 0x6767736c;  // "ggsl"
constexpr double kWeightFloor = 1e-3;           // of the mean

/// A layer in the making.
struct Layer : GgnnLayerRows {
  Array<uint32_t> edges;     // [rows, k] nearest first
  Array<uint32_t> inverse;   // [rows, k_sym] while links are made
  Array<uint16_t> inverses;  // [rows] how many
};

double reservoir_key(const GgnnParams& params, uint32_t top, uint32_t row, float nearest, float mean) {
  const uint64_t word = random_word(params.seed, kSelectStream + top, row) >> 11;
  const double uniform = (static_cast<double>(word) + 1) * 0x1p-53;  // in (0, 1]
  const double floor = mean > 0 ? kWeightFloor * static_cast<double>(mean) : 1;
  return -std::log(uniform) / std::max<double>(static_cast<double>(nearest), floor);
}

/// The workspace of one thread's queries.
struct Space {
  Space(size_t stride, uint32_t rows, uint32_t step, const SlackShape& shape, const Allocator& memory)
      : code(memory, stride),
        near_code(memory, stride),
        found(memory, step),
        compared(memory, step),
        numbers(memory, step),
        others(memory, step) {
    cache.fit(shape, rows, memory);
  }

  SlackCache cache;
  Array<uint8_t> code;       // of the query
  Array<uint8_t> near_code;  // of the near neighbour that a path is looked for from
  Array<uint32_t> found;     // [step] rows of the layer
  Array<uint32_t> compared;  // [step] the same as rows of the bottom
  Array<uint32_t> numbers;   // [step]
  Array<uint32_t> others;    // [step] numbers to the near neighbour
};

// Rows that propose or get links between two questions to the monitor; each reads the links of a few others.
constexpr uint64_t kRowsLinkedAtOnce = 1 << 12;

/// A row that wants an inverse link at another.
struct Proposal {
  uint64_t place;  // the other row << 32 | distance
  uint32_t row;

  bool operator<(const Proposal& other) const {
    return place != other.place ? place < other.place : row < other.row;
  }
};

class Build {
 public:
  Build(const Codes& codes, const GgnnParams& params, SearchGraph& graph, const Execution& execution)
      : codes_(codes),
        params_(params),
        shape_(ggnn_shape(codes.rows(), params)),
        graph_(graph),
        execution_(execution),
        kind_(codes.wide() ? SquareKind::kFloatBits : SquareKind::kInteger),
        k_(params.k),
        nearest_count_(params.k - params.k / 2),
        inverse_count_(params.k / 2) {}

  /// Algorithms 3 and 6.
  double run() {
    make_bottom();
    passes_ = shape_.layers * (shape_.layers + 1) / 2 + params_.refinements * (shape_.layers - 1);
    for (uint32_t top = 0; top < shape_.layers; ++top) {
      if (top > 0) select(top);
      for (uint32_t layer = top + 1; layer-- > 0;) pass(top, layer);
    }
    const uint32_t top = shape_.layers - 1;
    for (uint32_t turn = 0; turn < params_.refinements; ++turn) {
      for (uint32_t layer = top; layer-- > 0;) pass(top, layer);
    }
    hand_over();
    return links_;
  }

 private:
  void make_bottom() {
    layers_.resize(shape_.layers);
    Layer& bottom = layers_[0];
    static_cast<GgnnLayerRows&>(bottom) = ggnn_bottom(codes_.rows(), shape_, execution_);
    make_lists(bottom);
    next_ = Array<uint32_t>(execution_.memory, bottom.edges.size());
    nearest_ = Array<float>(execution_.memory, bottom.rows);
  }

  void make_lists(Layer& layer) {
    layer.edges = filled_array<uint32_t>(execution_, checked_product(layer.rows, k_), kNoRow);
    layer.inverses = filled_array<uint16_t>(execution_, layer.rows, uint16_t{0});
  }

  void pass(uint32_t top, uint32_t layer) {
    const auto enter = [&](const char* phase, double done) {
      execution_.span((pass_ + done) / passes_, 1).enter(phase);
    };
    enter("merge", 0);
    merge(top, layer);
    if (!params_.lists || pass_ + 1 != passes_) {
      enter("symmetric links", 0.8);
      link(layers_[layer]);
    }
    ++pass_;
  }

  void select(uint32_t top) {
    static_cast<GgnnLayerRows&>(layers_[top]) =
        ggnn_select(layers_[top - 1], top, shape_, params_, nearest_, mean_, execution_);
    make_lists(layers_[top]);
  }

  // --- Merging -----------------------------------------------------------------------------------

  /// Each row of a layer gets its nearest neighbours in the pyramid under its segment of `top`. Lists are read as
  /// they were before and written aside.
  void merge(uint32_t top, uint32_t number) {
    Layer& layer = layers_[number];
    const SlackShape shape = ggnn_merge_shape(k_);
    std::vector<Space> spaces = make_spaces(layer.rows, shape);
    const uint64_t grain = 64;
    parallel_for(execution_, layer.rows, grain, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t row = begin; row < end; ++row)
        merge_row(top, number, static_cast<uint32_t>(row), spaces[worker]);
    });
    parallel_for(execution_, layer.edges.size(), kRowsAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
      std::copy(next_.data() + begin, next_.data() + end, layer.edges.data() + begin);
    });
    parallel_for(execution_, layer.rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
      std::fill(layer.inverses.data() + begin, layer.inverses.data() + end, uint16_t{0});
    });
    if (number == 0) measure_nearest();
  }

  void merge_row(uint32_t top, uint32_t number, uint32_t row, Space& space) {
    const Layer& layer = layers_[number];
    SlackCache& cache = space.cache;
    uint32_t* list = next_.data() + uint64_t{row} * k_;
    const uint32_t self = layer.bottom_row(row);
    codes_.gather(&self, 1, space.code.data());
    cache.begin(kind_, ggnn_build_slack(params_, mean_));
    uint32_t segment = layer.segment_of(row);
    for (uint32_t above = number; above < top; ++above) segment /= shape_.growth;
    fetch_segment(layers_[top], segment, self, space);
    for (uint32_t above = top; above > number; --above) {
      const Array<uint32_t>& below = layers_[above].below;
      cache.transfer([&](uint32_t upper) { return below[upper]; });
      for (uint32_t step = 0; step < kMergeSteps; ++step) {
        const uint32_t parent = cache.pop();
        if (parent == kNoRow) break;
        const uint32_t* edges = layers_[above - 1].edges.data() + uint64_t{parent} * k_;
        fetch(layers_[above - 1], edges, k_, self, space);
      }
    }
    const uint32_t size = cache.size();
    for (uint32_t i = 0; i < k_; ++i) list[i] = i < size ? RowKey::row(cache.key(i)) : kNoRow;
    if (number == 0)
      nearest_[row] = size != 0 ? std::sqrt(square_of(kind_, RowKey::distance(cache.key(0)))) : 0;
    cache.clear();
  }

  void fetch_segment(const Layer& layer, uint32_t segment, uint32_t self, Space& space) {
    const uint32_t step = static_cast<uint32_t>(space.found.size());
    for (uint32_t first = layer.first[segment]; first < layer.first[segment + 1]; first += step) {
      const uint32_t count = std::min(step, layer.first[segment + 1] - first);
      for (uint32_t i = 0; i < count; ++i) space.others[i] = first + i;
      fetch(layer, space.others.data(), count, self, space);
    }
  }

  /// Compares the rows that the cache does not know.
  void fetch(const Layer& layer, const uint32_t* rows, uint32_t length, uint32_t self, Space& space) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < length && rows[i] != kNoRow; ++i) {
      if (space.cache.knows(rows[i])) continue;
      space.found[count] = rows[i];
      space.compared[count++] = layer.bottom_row(rows[i]);
    }
    codes_.distances(space.code.data(), space.compared.data(), count, space.numbers.data());
    for (uint32_t i = 0; i < count; ++i)
      space.cache.take(space.found[i], space.numbers[i], space.compared[i] != self);
    space.cache.settle();
  }

  void measure_nearest() {
    const GgnnNearest found = ggnn_measure(nearest_);
    mean_ = found.mean;
    max_ = found.max;
  }

  // --- Symmetric links ---------------------------------------------------------------------------

  /// Algorithm 5 for all rows of a layer, near neighbour by near neighbour.
  void link(Layer& layer) {
    if (inverse_count_ == 0) return;
    layer.inverse = Array<uint32_t>(execution_.memory, checked_product(layer.rows, inverse_count_));
    Array<uint64_t> met(execution_.memory, checked_product(layer.rows, kLinkBest));
    const SlackShape shape = ggnn_link_shape();
    std::vector<Space> spaces = make_spaces(layer.rows, shape);
    for (uint32_t rank = 0; rank < nearest_count_; ++rank) {
      parallel_for(execution_, layer.rows, 64, [&](uint64_t begin, uint64_t end, uint32_t worker) {
        for (uint64_t row = begin; row < end; ++row)
          look_for_path(layer, static_cast<uint32_t>(row), rank, spaces[worker],
                        met.data() + row * kLinkBest);
      });
      give_places(layer, met);
    }
    fill_up(layer);
  }

  /// Leaves the rows met in `met`, nearest first, where no path leads from the neighbour of that rank back to the
  /// row; else nothing. Unused places hold kNone.
  void look_for_path(const Layer& layer, uint32_t row, uint32_t rank, Space& space, uint64_t* met) {
    std::fill_n(met, kLinkBest, RowKey::kNone);
    const uint32_t near = layer.edges[uint64_t{row} * k_ + rank];
    if (near == kNoRow || leads_to(layer, near, row)) return;
    const uint32_t both[] = {layer.bottom_row(row), layer.bottom_row(near)};
    codes_.gather(both, 1, space.code.data());
    codes_.gather(both + 1, 1, space.near_code.data());
    uint32_t radius = 0;
    codes_.distances(space.code.data(), both + 1, 1, &radius);
    SlackCache& cache = space.cache;
    cache.begin(kind_, ggnn_build_slack(params_, mean_));
    cache.take(near, radius);
    cache.settle();
    bool found = false;
    for (uint32_t step = 0; step < kLinkSteps && !found; ++step) {
      const uint32_t parent = cache.pop();
      if (parent == kNoRow) break;
      found = leads_to(layer, parent, row);
      if (!found) fetch_links(layer, parent, radius, space);
    }
    if (!found) {
      for (uint32_t i = 0; i < cache.size(); ++i) met[i] = cache.key(i);
    }
    cache.clear();
  }

  /// Whether a nearest neighbour or an inverse link of a row is another row.
  bool leads_to(const Layer& layer, uint32_t from, uint32_t row) const {
    const uint32_t* edges = layer.edges.data() + uint64_t{from} * k_;
    if (std::find(edges, edges + nearest_count_, row) != edges + nearest_count_) return true;
    const uint32_t* inverse = layer.inverse.data() + uint64_t{from} * inverse_count_;
    return std::find(inverse, inverse + layer.inverses[from], row) != inverse + layer.inverses[from];
  }

  void fetch_links(const Layer& layer, uint32_t parent, uint32_t radius, Space& space) {
    uint32_t count = 0;
    const auto propose = [&](const uint32_t* rows, uint32_t length) {
      for (uint32_t i = 0; i < length && rows[i] != kNoRow; ++i) {
        if (space.cache.knows(rows[i])) continue;
        // A nearest neighbour may be an inverse link too.
        if (std::find(space.found.data(), space.found.data() + count, rows[i]) != space.found.data() + count)
          continue;
        space.found[count] = rows[i];
        space.compared[count++] = layer.bottom_row(rows[i]);
      }
    };
    propose(layer.edges.data() + uint64_t{parent} * k_, nearest_count_);
    propose(layer.inverse.data() + uint64_t{parent} * inverse_count_, layer.inverses[parent]);
    codes_.distances(space.code.data(), space.compared.data(), count, space.numbers.data());
    if (params_.midpoint)
      codes_.distances(space.near_code.data(), space.compared.data(), count, space.others.data());
    for (uint32_t i = 0; i < count; ++i) {
      if (!params_.midpoint || is_within_sphere(space.numbers[i], space.others[i], radius))
        space.cache.take(space.found[i], space.numbers[i]);
    }
    space.cache.settle();
  }

  /// Section 5.2.1, for squared distances of a point to z and x and between them.
  bool is_within_sphere(uint32_t to_row, uint32_t to_near, uint32_t radius) const {
    if (kind_ == SquareKind::kInteger)
      return 3 * uint64_t{to_row} + 2 * uint64_t{to_near} <= 3 * uint64_t{radius};
    return 3 * square_of(kind_, to_row) + 2 * square_of(kind_, to_near) <= 3 * square_of(kind_, radius);
  }

  /// Rows that have met no path get a link each at the nearest row met that has a free place.
  void give_places(Layer& layer, Array<uint64_t>& met) {
    Array<uint32_t> waiting(execution_.memory, layer.rows);  // [waiting_count] rows, in any order
    uint32_t waiting_count = 0;
    serial_for(execution_, layer.rows, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint64_t row = begin; row < end; ++row) {
        if (met[row * kLinkBest] != RowKey::kNone) waiting[waiting_count++] = static_cast<uint32_t>(row);
      }
    });
    Array<uint8_t> turn = filled_array<uint8_t>(execution_, layer.rows, uint8_t{0});
    while (waiting_count != 0) {
      Array<Proposal> proposals(execution_.memory, waiting_count);
      const uint32_t count = propose(layer, met, waiting, turn, proposals);
      parallel_sort(proposals, std::less<>(), execution_);
      waiting_count = 0;
      serial_for(execution_, count, kRowsLinkedAtOnce, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; ++i) {
          const uint32_t target = static_cast<uint32_t>(proposals[i].place >> 32);
          uint16_t& used = layer.inverses[target];
          if (used < inverse_count_)
            layer.inverse[uint64_t{target} * inverse_count_ + used++] = proposals[i].row;
          else
            waiting[waiting_count++] = proposals[i].row;
        }
      });
    }
  }

  /// The next proposal of each row that waits; how many there are. The remaining `proposals` sort behind them.
  uint32_t propose(const Layer& layer, const Array<uint64_t>& met, const Array<uint32_t>& waiting,
                   Array<uint8_t>& turn, Array<Proposal>& proposals) const {
    uint32_t count = 0;
    serial_for(execution_, proposals.size(), kRowsLinkedAtOnce, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        const uint32_t row = waiting[i];
        if (const uint64_t key = next_place(layer, met.data() + uint64_t{row} * kLinkBest, row, turn[row]);
            key != RowKey::kNone)
          proposals[count++] = {uint64_t{RowKey::row(key)} << 32 | RowKey::distance(key), row};
      }
    });
    for (uint32_t i = count; i < proposals.size(); ++i) proposals[i] = {UINT64_MAX, i};
    return count;
  }

  /// The next row met that has a free place; kNone where there is none, or where one leads to the row already.
  uint64_t next_place(const Layer& layer, const uint64_t* met, uint32_t row, uint8_t& turn) const {
    for (; turn < kLinkBest && met[turn] != RowKey::kNone; ++turn) {
      const uint32_t target = RowKey::row(met[turn]);
      if (leads_to(layer, target, row)) return RowKey::kNone;
      if (layer.inverses[target] < inverse_count_) return met[turn];
    }
    return RowKey::kNone;
  }

  /// Behind the nearest neighbours come the inverse links, and where those leave places the next neighbours.
  void fill_up(Layer& layer) {
    uint64_t links = 0;
    parallel_for(execution_, layer.rows, 1024, [&](uint64_t begin, uint64_t end, uint32_t) {
      std::vector<uint32_t> tail(inverse_count_);
      for (uint64_t row = begin; row < end; ++row) {
        uint32_t* places = layer.edges.data() + row * k_ + nearest_count_;
        std::copy_n(places, inverse_count_, tail.data());
        const uint32_t* inverse = layer.inverse.data() + row * inverse_count_;
        const uint32_t used = layer.inverses[row];
        std::copy_n(inverse, used, places);
        uint32_t count = used;
        for (uint32_t i = 0; i < inverse_count_ && count < inverse_count_; ++i) {
          if (tail[i] != kNoRow && std::find(inverse, inverse + used, tail[i]) == inverse + used)
            places[count++] = tail[i];
        }
        std::fill(places + count, places + inverse_count_, kNoRow);
        close_gap(layer.edges.data() + row * k_);
      }
    });
    for (const uint16_t used : layer.inverses) links += used;
    links_ = layer.rows != 0 ? static_cast<double>(links) / layer.rows : 0;
    layer.inverse = Array<uint32_t>();
  }

  /// Short lists leave places free between nearest neighbours and inverse links.
  void close_gap(uint32_t* edges) const {
    std::fill(std::remove(edges, edges + k_, kNoRow), edges + k_, kNoRow);
  }

  // --- The graph -----------------------------------------------------------------------------------

  void hand_over() {
    Layer& bottom = layers_[0];
    graph_.edges = std::move(bottom.edges);
    graph_.nearest_max = max_;
    graph_.nearest_mean = mean_;
    const Layer& top = layers_.back();
    graph_.entries = Array<uint32_t>(execution_.memory, top.rows);
    for (uint32_t row = 0; row < top.rows; ++row) graph_.entries[row] = top.bottom_row(row);
    graph_.upper.clear();
    for (uint32_t number = 1; number < shape_.layers; ++number) {
      GraphLayer upper;
      upper.rows = layers_[number].rows;
      upper.degree = k_;
      upper.edges = std::move(layers_[number].edges);
      upper.base_rows = std::move(layers_[number].below);
      graph_.upper.push_back(std::move(upper));
    }
  }

  std::vector<Space> make_spaces(uint32_t rows, const SlackShape& shape) const {
    std::vector<Space> spaces;
    spaces.reserve(execution_.threads);
    for (uint32_t i = 0; i < execution_.threads; ++i)
      spaces.emplace_back(codes_.stride(), rows, std::max(2 * k_, params_.segment), shape, execution_.memory);
    return spaces;
  }

  const Codes& codes_;
  const GgnnParams params_;
  const GgnnShape shape_;
  SearchGraph& graph_;
  const Execution& execution_;
  const SquareKind kind_;
  const uint32_t k_;
  const uint32_t nearest_count_;  // k_nn
  const uint32_t inverse_count_;  // k_sym
  std::vector<Layer> layers_;
  Array<uint32_t> next_;  // [rows, k] lists of a merge
  Array<float> nearest_;  // [rows] distance to the nearest neighbour
  float mean_ = 0;
  float max_ = 0;
  double links_ = 0;  // inverse links of a row of the last layer that was linked, the bottom
  uint32_t pass_ = 0;
  uint32_t passes_ = 1;
};

}  // namespace

GgnnLayerRows ggnn_bottom(uint32_t rows, const GgnnShape& shape, const Execution& execution) {
  GgnnLayerRows bottom;
  bottom.rows = rows;
  const uint32_t segments = shape.segments(0);
  bottom.first = Array<uint32_t>(execution.memory, segments + 1);
  for (uint32_t i = 0; i <= segments; ++i)
    bottom.first[i] = static_cast<uint32_t>(uint64_t{rows} * i / segments);
  return bottom;
}

GgnnLayerRows ggnn_select(const GgnnLayerRows& below, uint32_t top, const GgnnShape& shape,
                          const GgnnParams& params, const Array<float>& nearest, float mean,
                          const Execution& execution) {
  const uint32_t segments = shape.segments(top);
  const uint32_t growth = shape.growth;
  const uint32_t share = params.segment / growth;
  std::vector<std::vector<uint32_t>> chosen(segments);
  parallel_for(execution, segments, 1, [&](uint64_t first, uint64_t end, uint32_t) {
    std::vector<std::pair<double, uint32_t>> keys;
    std::vector<std::pair<double, uint32_t>> rest;
    for (uint32_t segment = static_cast<uint32_t>(first); segment < end; ++segment) {
      std::vector<uint32_t>& rows = chosen[segment];
      rest.clear();
      for (uint32_t child = segment * growth; child < (segment + 1) * growth; ++child) {
        keys.clear();
        for (uint32_t row = below.first[child]; row < below.first[child + 1]; ++row) {
          const uint32_t bottom = below.bottom_row(row);
          keys.push_back({reservoir_key(params, top, bottom, nearest[bottom], mean), row});
        }
        std::sort(keys.begin(), keys.end());
        const size_t taken = std::min<size_t>(share, keys.size());
        for (size_t i = 0; i < taken; ++i) rows.push_back(keys[i].second);
        if (taken < keys.size()) rest.push_back(keys[taken]);
      }
      std::sort(rest.begin(), rest.end());
      for (size_t i = 0; i < rest.size() && rows.size() < params.segment; ++i) rows.push_back(rest[i].second);
      std::sort(rows.begin(), rows.end());
    }
  });
  GgnnLayerRows layer;
  layer.first = Array<uint32_t>(execution.memory, segments + 1);
  layer.first[0] = 0;
  for (uint32_t i = 0; i < segments; ++i)
    layer.first[i + 1] = layer.first[i] + static_cast<uint32_t>(chosen[i].size());
  layer.rows = layer.first[segments];
  layer.below = Array<uint32_t>(execution.memory, layer.rows);
  layer.bottom = Array<uint32_t>(execution.memory, layer.rows);
  uint32_t row = 0;
  for (const std::vector<uint32_t>& rows : chosen) {
    for (const uint32_t lower : rows) {
      layer.below[row] = lower;
      layer.bottom[row++] = below.bottom_row(lower);
    }
  }
  return layer;
}

GgnnNearest ggnn_measure(const Array<float>& nearest) {
  double sum = 0;
  GgnnNearest found;
  for (const float distance : nearest) {
    sum += static_cast<double>(distance);
    found.max = std::max(found.max, distance);
  }
  if (!nearest.empty()) found.mean = static_cast<float>(sum / static_cast<double>(nearest.size()));
  return found;
}

GgnnShape ggnn_shape(uint64_t rows, const GgnnParams& params) {
  const double s = params.segment;
  const auto power = [](double growth, uint32_t times) {
    return std::pow(growth, static_cast<double>(times));
  };
  uint32_t layers = params.layers;
  while (layers > 1 && static_cast<double>(rows) < s * power(2, layers - 1)) --layers;
  if (layers == 1) return {1, 1};
  const double root = std::pow(static_cast<double>(rows) / s, 1.0 / (layers - 1));
  const uint32_t low = std::max(2u, static_cast<uint32_t>(root));
  const double small =
      static_cast<double>(rows) / power(low + 1, layers - 1);  // rows of a segment of the bottom
  const double large = static_cast<double>(rows) / power(low, layers - 1);
  const bool up = small > params.k / 2 + 1 && std::fabs(small - s) < std::fabs(large - s);
  return {layers, up ? low + 1 : low};
}

GgnnParams ggnn_list_params(uint32_t k, uint64_t seed) {
  GgnnParams params;
  params.k = std::max(2 * k, params.k);
  params.segment = ggnn_segment_of(params.k);
  params.seed = seed;
  params.lists = true;
  return params;
}

KnnGraph ggnn_lists(Array<uint32_t>&& edges, const Codes& codes, const GgnnParams& params, uint32_t k,
                    const Execution& execution) {
  const uint32_t rows = codes.rows();
  if (!codes.lossless()) return {std::move(edges), rows, params.k};
  KnnGraph lists{Array<uint32_t>(execution.memory, checked_product(rows, k)), rows, k};
  parallel_for(execution, rows, 4096, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row)
      std::copy_n(edges.data() + row * params.k, k, lists.neighbors.data() + row * k);
  });
  return lists;
}

KnnGraph ggnn_knn(const Codes& codes, uint32_t k, uint64_t seed, const Execution& execution) {
  const GgnnParams params = ggnn_list_params(k, seed);
  SearchGraph graph;
  graph.rows = codes.rows();
  graph.degree = params.k;
  build_ggnn(codes, params, graph, execution.span(0, 0.98));
  return ggnn_lists(std::move(graph.edges), codes, params, k, execution.span(0.98, 1));
}

double build_ggnn(const Codes& codes, const GgnnParams& params, SearchGraph& graph,
                  const Execution& execution) {
  return Build(codes, params, graph, execution).run();
}

uint64_t ggnn_bytes(uint64_t rows, size_t code_stride, const GgnnParams& params, uint32_t threads) {
  const GgnnShape shape = ggnn_shape(rows, params);
  const uint64_t all = rows + shape.upper_rows(params.segment);
  const uint64_t lists = rows * params.k * 4;  // of a merge, aside
  const uint64_t linking = rows * (params.k / 2 * 4 + kLinkBest * 8 + 1) + rows * (4 + 2 * sizeof(Proposal));
  const uint64_t layers = all * 2 + (all - rows) * 16 + rows * 4;
  const uint64_t space = rows + 2 * code_stride + 16 * (2 * params.k + params.segment) + 8192;
  return lists + linking + layers + threads * space;
}

uint64_t ggnn_device_bytes(uint64_t rows, const GgnnParams& params) {
  const uint64_t upper = ggnn_shape(rows, params).upper_rows(params.segment);
  const uint64_t lists = (2 * rows + upper) * params.k * 4;
  const uint64_t linking = rows * (params.k / 2 * 4 + 4 + 8 + 4 + kLinkBest * 8 + 2);
  return lists + linking + upper * 12 + rows * 4 + rows / 4;
}

}  // namespace gannet
