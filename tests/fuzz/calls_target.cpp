// Target "calls": the input is a program of calls of ann.h, right ones and wrong ones.
//
// Indexes are made, built, searched, saved and opened, with structs of any size, handles of the wrong
// kind, matrices that lie about themselves, refused memory, expired deadlines and broken streams. A
// model of each handle says which statuses may come and what a search must find; a call that fails
// must leave the handle as it was.
//
// Input: a byte says which call, the next ones what with.
#include <algorithm>
#include <cerrno>
#include <cmath>

#include "calls_model.h"
#include "distance/element.h"
#include "exercise.h"

using namespace gannet;
using namespace gannet::fuzz;

namespace {

constexpr uint32_t kCallsMax = 28;
constexpr uint32_t kIndexes = 3;
constexpr uint32_t kSaves = 2;
constexpr uint32_t kDims[] = {1, 2, 3, 5, 8, 16, 17, 33};
constexpr uint64_t kRows[] = {0, 1, 2, 3, 4, 6, 9, 16, 25, 40};
// What all calls together may hold: five indexes of 40 rows and their search spaces are far below it.
constexpr uint64_t kBudget = 24 << 20;

/// Whether a status is among those that may come.
bool one_of(ann_status status, std::initializer_list<ann_status> allowed) {
  return std::find(allowed.begin(), allowed.end(), status) != allowed.end();
}

/// What an index was saved as, with what is known about it.
struct Saved {
  std::vector<uint8_t> bytes;
  Model model;
};

class Program {
 public:
  explicit Program(Input& input) : input_(input), memory_(kBudget) {
    const ann_context_params params = memory_.params();
    DEMAND(ann_context_create(&params, &bounded_, nullptr) == ANN_OK, "no context");
    DEMAND(ann_monitor_create(&monitor_, nullptr) == ANN_OK, "no monitor");
  }
  ~Program() {
    for (Model& model : models_) ann_index_free(model.handle);
    ann_monitor_free(monitor_);
    ann_context_free(bounded_);
  }

  void run() {
    for (uint32_t call = 0; call < kCallsMax && !input_.empty(); ++call) step();
  }

 private:
  void step() {
    switch (input_.below(20)) {
      case 0:
      case 1:
        return create();
      case 2:
      case 3:
      case 4:
        return build();
      case 5:
      case 6:
        return search(false);
      case 7:
        return search(true);
      case 8:
        return get();
      case 9:
        return graph();
      case 10:
        return estimate();
      case 11:
        return knn_graph();
      case 12:
        return change_monitor();
      case 13:
        return save();
      case 14:
      case 15:
        return open();
      case 16:
        return free_index();
      case 17:
        return refuse_memory();
      case 18:
        return misuse_handles();
      default:
        return ask_library();
    }
  }

  // --- What is passed ----------------------------------------------------------------------------

  Model& model() { return models_[input_.below(kIndexes)]; }
  /// The dim of an index, as far as the program fills matrices; a wider one meets a wrong dim.
  uint32_t small_dim(const Model& model) { return model.shape.dim <= 64 ? model.shape.dim : 1; }
  const ann_context* context() { return input_.below(4) == 0 ? nullptr : bounded_; }
  uint32_t threads() { return input_.below(16) == 0 ? 2 : 1; }
  ann_monitor* monitor() { return input_.below(4) == 0 ? monitor_ : nullptr; }
  int32_t element() { return static_cast<int32_t>(1 + input_.below(5)); }
  /// A number that a default, an edge or nonsense stands for now and then.
  uint32_t number(uint32_t usual) {
    const uint64_t kind = input_.below(16);
    return kind < 12 ? usual : kind == 12 ? 0 : kind == 13 ? UINT32_MAX : input_.word();
  }
  int32_t choice(uint32_t legal) {
    return input_.below(24) == 23 ? static_cast<int32_t>(input_.word())
                                  : static_cast<int32_t>(input_.below(legal));
  }

  // --- What must hold of every status ------------------------------------------------------------

  /// `given` are the statuses that the arguments may cause; memory and the monitor have their own.
  void check(ann_status status, const ann_error& error, const ann_monitor* monitor,
             std::initializer_list<ann_status> given, const char* call) {
    const bool refused = memory_.has_refused();
    memory_.refuse_none();
    DEMAND(error.status == status && (status == ANN_OK) == (error.message[0] == 0),
           "%s: status %d, error %d \"%s\"", call, status, error.status, error.message);
    DEMAND(std::memchr(error.message, 0, sizeof error.message) != nullptr, "%s: no end", call);
    if (refused) DEMAND(status == ANN_NO_MEMORY, "%s: memory was refused, %s", call, ann_status_name(status));
    const bool cancelled = status == ANN_CANCELLED && monitor != nullptr && cancelled_;
    const bool late = status == ANN_DEADLINE && monitor != nullptr && expired_;
    DEMAND(status == ANN_OK || refused || cancelled || late || one_of(status, given), "%s: %s: %s", call,
           ann_status_name(status), error.message);
    if (status == ANN_OK && monitor != nullptr)
      DEMAND(!cancelled_ && !expired_, "%s goes on after a cancel", call);
  }

  ann_index_info info_of(const Model& model) {
    ann_index_info info = ANN_INDEX_INFO_INIT;
    if (model.handle == nullptr) return info;
    DEMAND(ann_index_get_info(model.handle, &info, nullptr) == ANN_OK, "no state");
    DEMAND(info.built == (model.built ? 1 : 0) && info.rows == model.row_count && info.dim == model.shape.dim,
           "the state is not what calls have made it");
    info.memory_bytes = 0;  // searches keep the space they work in
    return info;
  }
  void demand_unchanged(const Model& model, const ann_index_info& before) {
    const ann_index_info after = info_of(model);
    DEMAND(std::memcmp(&before, &after, sizeof before) == 0, "a failed call changed the index");
  }

  // --- Indexes -----------------------------------------------------------------------------------

  void create() {
    Model& model = this->model();
    if (model.handle != nullptr) free_index(model);
    ann_index_params params = ANN_INDEX_PARAMS_INIT;
    params.dim = number(input_.one_of(kDims));
    params.metric = choice(4);
    params.element = input_.below(3) == 0 ? choice(6) : 0;
    Given<ann_index_params> given(params, input_);
    ann_error error = ANN_ERROR_INIT;
    ann_index* out = nullptr;
    const ann_status status = ann_index_create(context(), given.get(), &out, &error);
    check(status, error, nullptr, {ANN_INVALID_ARGUMENT, ANN_LIMIT}, "create");
    DEMAND((out != nullptr) == (status == ANN_OK), "%s and a handle", ann_status_name(status));
    DEMAND(status != ANN_OK || !given.tail_set(), "an unknown field was ignored");
    if (status != ANN_OK) return;
    model.handle = out;
    model.shape = given.value();
    if (model.shape.metric == ANN_METRIC_AUTO) model.shape.metric = ANN_METRIC_L2;
  }

  void free_index() { free_index(model()); }
  void free_index(Model& model) {
    ann_index_free(model.handle);
    model = Model();
  }

  /// Distinct ids in no order, or now and then two that are equal.
  bool make_ids(uint64_t rows, std::vector<uint64_t>* out) {
    const uint64_t step = 1 + 2 * input_.half();
    for (uint64_t row = 0; row < rows; ++row) out->push_back(row * step * 0x9e3779b97f4a7c15);
    if (input_.below(12) != 0 || rows < 2) return true;
    (*out)[rows - 1] = input_.below(2) == 0 ? (*out)[0] : ANN_ID_NONE;
    return false;
  }

  ann_build_params build_params() {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.graph = choice(3);
    params.knn = choice(3);
    params.rows_mode = choice(3);
    params.degree = number(static_cast<uint32_t>(2 + input_.below(14)));
    params.knn_degree = input_.below(4) == 0 ? number(params.degree + input_.byte() % 8) : 0;
    params.samples = input_.below(8) == 0 ? number(4) : 0;
    params.iterations = 1 + input_.byte() % 4;
    params.seed = input_.byte();
    params.threads = threads();
    params.repair = choice(3);
    params.calibrate = input_.below(4) == 0 ? choice(3) : ANN_OFF;
    params.reserved = input_.below(32) == 31 ? 1 : 0;
    params.memory_limit = input_.below(16) == 15 ? input_.word() : 0;
    return params;
  }

  void build() {
    Model& model = this->model();
    if (model.handle == nullptr) return create();
    const bool other_dim = input_.below(24) == 23;
    const uint64_t rows = input_.one_of(kRows);
    auto block = std::make_shared<Block>(
        make_block(input_, other_dim ? input_.one_of(kDims) : small_dim(model), element(), rows));
    std::vector<uint64_t> ids;
    const bool own_ids = input_.below(2) == 0;
    const bool ids_legal = !own_ids || make_ids(rows, &ids);
    ann_build_params params = build_params();
    Block queries;
    if (input_.below(8) == 0) {
      queries = make_block(input_, small_dim(model), element(), 1 + input_.below(4));
      params.calibration = &queries.view;
    }
    Given<ann_matrix> view(block->view, input_);
    Given<ann_build_params> given(params, input_);
    ann_monitor* monitor = this->monitor();
    const ann_index_info before = info_of(model);
    ann_error error = ANN_ERROR_INIT;
    const ann_status status =
        ann_build(model.handle, view.get(), own_ids ? ids.data() : nullptr, given.get(), monitor, &error);
    check(status, error, monitor,
          {ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED, ANN_NOT_FINITE, ANN_STATE, ANN_NO_DEVICE},
          "build");
    if (status != ANN_OK) return demand_unchanged(model, before);
    DEMAND(!model.built && block->legal && block->finite && (ids_legal || rows == 0) && !view.tail_set() &&
               !given.tail_set(),
           "a build that had to be refused: built %d, legal %d, finite %d, ids %d, tails %d %d", model.built,
           block->legal, block->finite, ids_legal, view.tail_set(), given.tail_set());
    note_build(model, std::move(block), std::move(ids), given.value());
  }

  void note_build(Model& model, std::shared_ptr<Block> block, std::vector<uint64_t> ids,
                  const ann_build_params& params) {
    model.built = true;
    model.row_count = block->view.rows;
    model.graph = params.graph != ANN_GRAPH_NONE;
    const bool converted = model.shape.element != 0 && model.shape.element != block->view.element;
    if (model.shape.element == 0) model.shape.element = block->view.element;
    model.rows_known = !converted;
    if (ids.empty()) {
      for (uint64_t row = 0; row < model.row_count; ++row) ids.push_back(row);
    }
    model.ids = std::move(ids);
    model.rows = *block;
    if (params.rows_mode == ANN_ROWS_BORROW) model.borrowed = std::move(block);
    info_of(model);
  }

  // --- Searches ----------------------------------------------------------------------------------

  struct Buffers {
    std::vector<uint64_t> ids;
    std::vector<float> distances;
    std::vector<uint32_t> counts;
    std::vector<ann_status> status;
    ann_results results = ANN_RESULTS_INIT;
  };
  Buffers make_buffers(uint64_t rows, uint32_t k) {
    Buffers buffers;
    buffers.ids.resize(rows * k, 7);
    buffers.distances.resize(rows * k, 7);
    buffers.counts.resize(rows, 7);
    buffers.status.resize(rows, 7);
    buffers.results.k = k;
    buffers.results.rows = rows;
    buffers.results.ids = buffers.ids.data();
    buffers.results.distances = buffers.distances.data();
    buffers.results.counts = buffers.counts.data();
    buffers.results.status = buffers.status.data();
    return buffers;
  }

  ann_search_params search_params() {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.procedure = choice(9);
    params.threads = threads();
    params.recall = input_.below(8) == 0 ? static_cast<float>(input_.byte()) / 200 : 0;
    params.beam = input_.below(4) == 0 ? number(1 + input_.byte()) : 0;
    if (params.procedure >= ANN_SEARCH_CAGRA && input_.below(2) == 0) {
      params.search_width = number(input_.below(9));
      params.iterations_max = number(input_.below(40));
      params.hash_bits = input_.below(2) == 0 ? number(8 + input_.below(6)) : 0;
      params.hash_reset = static_cast<int32_t>(input_.below(6)) - 1;
      params.team_size = number(1u << input_.below(7));
      params.ctas_per_query = number(input_.below(66));
      params.batch_threshold = number(input_.below(4));
      params.beam_threshold = number(input_.byte());
      params.compare = choice(3);
      if (params.procedure == ANN_SEARCH_GGNN) {
        params.stretch = 1 + static_cast<float>(input_.byte()) / 100;
        params.queue = number(input_.byte());
        params.visited = number(input_.byte());
        params.nearest_share = static_cast<float>(input_.byte()) / 200;
        params.slack = choice(3);
        params.descent = choice(3);
      }
    }
    if (params.procedure >= ANN_SEARCH_TWO_LISTS && params.procedure <= ANN_SEARCH_WIDE_BLOCK)
      params.warps_per_query = number(1u << input_.below(6));
    return params;
  }

  /// Takes a buffer away or lays one over another, now and then; true if it did.
  bool spoil(Buffers& buffers) {
    const uint64_t how = input_.below(32);
    if (how == 30) buffers.results.ids = nullptr;
    if (how == 31) buffers.results.counts = reinterpret_cast<uint32_t*>(buffers.ids.data());
    return how >= 30;
  }

  void search(bool exact) {
    Model& model = this->model();
    if (model.handle == nullptr) return;
    const int32_t stored = model.shape.element;
    const int32_t wanted = stored != 0 && input_.below(4) != 0 ? stored : element();
    Block queries = make_block(input_, small_dim(model), wanted, input_.below(4));
    const uint32_t k = static_cast<uint32_t>(1 + input_.below(12));
    Buffers buffers = make_buffers(queries.view.rows < 4 ? queries.view.rows : 0, k);
    const bool spoiled = spoil(buffers);
    Given<ann_matrix> view(queries.view, input_);
    Given<ann_search_params> given(search_params(), input_);
    Given<ann_results> results(buffers.results, input_);
    ann_monitor* monitor = this->monitor();
    ann_error error = ANN_ERROR_INIT;
    const ann_status status =
        exact ? ann_search_exact(model.handle, view.get(), given.get(), results.get(), monitor, &error)
              : ann_search_batch(model.handle, view.get(), given.get(), results.get(), monitor, &error);
    check(status, error, monitor,
          {ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED, ANN_STATE, ANN_NO_DEVICE}, "search");
    DEMAND(status != ANN_OK ||
               (model.built && queries.legal && !view.tail_set() && !given.tail_set() && !results.tail_set()),
           "a search that had to be refused");
    DEMAND(status != ANN_OK || !spoiled || queries.view.rows == 0, "spoiled buffers were taken");
    if (status != ANN_OK || spoiled) return;
    for (uint64_t query = 0; query < queries.view.rows; ++query)
      check_answer(model, queries, query, buffers,
                   exact || !model.graph || given.value().procedure == ANN_SEARCH_EXACT);
  }

  void check_answer(const Model& model, const Block& queries, uint64_t query, const Buffers& found,
                    bool exact) {
    const uint32_t k = found.results.k;
    const uint32_t count = found.counts[query];
    const uint64_t* ids = found.ids.data() + query * k;
    const float* distances = found.distances.data() + query * k;
    const ann_status status = found.status[query];
    DEMAND(status == ANN_OK || (status == ANN_NOT_FINITE && !queries.finite && count == 0),
           "the status of a query is %d", status);
    const uint64_t most = std::min<uint64_t>(k, model.row_count);
    DEMAND(count <= most && (!exact || status != ANN_OK || count == most), "%u answers", count);
    for (uint32_t i = 0; i < k; ++i) {
      if (i >= count) {
        DEMAND(ids[i] == ANN_ID_NONE && distances[i] == INFINITY, "place %u is filled", i);
        continue;
      }
      DEMAND(std::find(model.ids.begin(), model.ids.end(), ids[i]) != model.ids.end(), "an id of no row");
      DEMAND(std::find(ids, ids + i, ids[i]) == ids + i, "an id twice");
      DEMAND(!std::isnan(distances[i]), "a distance that is no number");
      DEMAND(i == 0 || distances[i - 1] < distances[i] ||
                 (distances[i - 1] == distances[i] && ids[i - 1] < ids[i]),
             "out of order at %u", i);
    }
    const bool bytes = model.shape.element == ANN_I8 || model.shape.element == ANN_U8;
    if (exact && bytes && model.rows_known && model.shape.metric == ANN_METRIC_L2)
      compare_with_all(model, queries.row(query), ids, distances, count);
  }

  /// Integers leave no room: the answer is what comparing with every row gives.
  void compare_with_all(const Model& model, const uint8_t* query, const uint64_t* ids, const float* distances,
                        uint32_t count) {
    std::vector<std::pair<float, uint64_t>> all;
    for (uint64_t row = 0; row < model.row_count; ++row)
      all.emplace_back(static_cast<float>(squared_distance(query, model.rows.row(row), model.shape.dim,
                                                           model.shape.element)),
                       model.ids[row]);
    std::sort(all.begin(), all.end());
    for (uint32_t i = 0; i < count; ++i)
      DEMAND(all[i].first == distances[i] && all[i].second == ids[i], "answer %u is another", i);
  }

  // --- Looking at an index -----------------------------------------------------------------------

  void get() {
    Model& model = this->model();
    if (model.handle == nullptr) return;
    const bool there = model.row_count > 0 && input_.below(4) != 0;
    const uint64_t row = input_.below(std::max<uint64_t>(1, model.row_count));
    const uint64_t id = there ? model.ids[row] : input_.wide();
    const size_t bytes =
        size_t{model.shape.dim} * (model.shape.element == 0 ? 1 : element_bytes(model.shape.element));
    const size_t capacity = input_.below(8) == 7 ? input_.below(bytes) : bytes;
    std::vector<uint8_t> vector(capacity);
    int32_t found = -1;
    ann_error error = ANN_ERROR_INIT;
    const ann_status status = ann_index_get(model.handle, id, vector.data(), capacity, &found, &error);
    check(status, error, nullptr, {ANN_INVALID_ARGUMENT, ANN_STATE}, "get");
    if (status != ANN_OK) return;
    DEMAND(model.built && (found == 1 || (found == 0 && !there)), "found is %d", found);
    if (there && model.rows_known && capacity == bytes && model.rows.legal)
      DEMAND(std::memcmp(vector.data(), model.rows.row(row), bytes) == 0, "another row");
    get_lists(model, id, found, vector);
  }

  /// Lists of ids and of vectors say what the model and a call for one vector say.
  void get_lists(const Model& model, uint64_t id, int32_t found, const std::vector<uint8_t>& vector) {
    std::vector<uint64_t> ids(model.row_count);
    DEMAND(ann_index_ids(model.handle, 0, ids.size(), ids.data(), nullptr) == ANN_OK, "no list of ids");
    DEMAND(ids == model.ids, "another list of ids");
    const uint64_t pair[2] = {id, id};
    int32_t both[2] = {-1, -1};
    std::vector<uint8_t> vectors(2 * vector.size());
    DEMAND(
        ann_index_get_batch(model.handle, pair, 2, vectors.data(), vectors.size(), both, nullptr) == ANN_OK,
        "no list of vectors");
    DEMAND(both[0] == found && both[1] == found, "found are %d and %d", both[0], both[1]);
    for (size_t copy = 0; copy < 2 && found == 1; ++copy)
      DEMAND(std::equal(vector.begin(), vector.end(), vectors.data() + copy * vector.size()),
             "another vector in a list");
  }

  void graph() {
    Model& model = this->model();
    if (model.handle == nullptr) return;
    const ann_index_info info = info_of(model);
    const uint64_t places = model.row_count * info.degree;
    std::vector<uint32_t> edges(input_.below(8) == 7 ? places / 2 : places);
    uint32_t degree = 0;
    ann_error error = ANN_ERROR_INIT;
    ann_status status = ann_index_graph(model.handle, edges.data(), edges.size(), &degree, &error);
    check(status, error, nullptr, {ANN_INVALID_ARGUMENT, ANN_STATE, ANN_UNSUPPORTED}, "graph");
    if (status == ANN_OK && !edges.empty()) {
      for (const uint32_t edge : edges)
        DEMAND(edge < model.row_count || edge == UINT32_MAX, "an edge to %u", edge);
    }
    Given<ann_graph_stats> stats(ANN_GRAPH_STATS_INIT, input_);
    status = ann_index_graph_stats(model.handle, stats.get(), &error);
    check(status, error, nullptr, {ANN_INVALID_ARGUMENT, ANN_STATE, ANN_UNSUPPORTED}, "stats");
    uint32_t beam = 0;
    const uint32_t k = number(1 + input_.byte());
    status = ann_index_beam(model.handle, k, static_cast<float>(input_.byte()) / 250, &beam, &error);
    check(status, error, nullptr, {ANN_INVALID_ARGUMENT, ANN_STATE, ANN_UNSUPPORTED, ANN_LIMIT}, "beam");
  }

  // --- Calls without an index --------------------------------------------------------------------

  void estimate() {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = number(input_.one_of(kDims));
    shape.metric = choice(4);
    Given<ann_index_params> given_shape(shape, input_);
    Given<ann_build_params> params(build_params(), input_);
    Given<ann_plan> plan(ANN_PLAN_INIT, input_);
    ann_error error = ANN_ERROR_INIT;
    const uint64_t rows = input_.below(2) == 0 ? input_.half() : input_.wide();
    const ann_status status =
        ann_estimate(given_shape.get(), rows, choice(6), params.get(), plan.get(), &error);
    check(status, error, nullptr, {ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED}, "estimate");
    if (status == ANN_OK && plan.usual())
      DEMAND(plan.value().peak_bytes >= plan.value().index_bytes && plan.value().seconds >= 0,
             "an impossible plan");
  }

  void knn_graph() {
    Block block = make_block(input_, input_.one_of(kDims), element(), input_.one_of(kRows));
    const uint64_t rows = block.legal ? block.view.rows : 0;
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.metric = choice(4);
    params.method = choice(3);
    params.k = static_cast<uint32_t>(input_.below(12));
    params.iterations = 1 + input_.byte() % 4;
    params.threads = threads();
    std::vector<uint32_t> neighbors(rows * params.k);
    std::vector<float> distances(rows * params.k);
    Given<ann_matrix> view(block.view, input_);
    Given<ann_knn_params> given(params, input_);
    ann_monitor* monitor = this->monitor();
    ann_error error = ANN_ERROR_INIT;
    const ann_status status =
        ann_knn_graph(context(), view.get(), given.get(), neighbors.data(),
                      input_.below(4) == 0 ? nullptr : distances.data(), monitor, &error);
    check(status, error, monitor,
          {ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED, ANN_NOT_FINITE, ANN_NO_DEVICE}, "knn_graph");
    if (status != ANN_OK) return;
    for (uint64_t place = 0; place < neighbors.size(); ++place) {
      const uint32_t neighbor = neighbors[place];
      DEMAND(neighbor == UINT32_MAX || (neighbor < rows && neighbor != place / params.k), "neighbour %u",
             neighbor);
    }
  }

  void change_monitor() {
    switch (input_.below(5)) {
      case 0:
        ann_monitor_cancel(monitor_);
        cancelled_ = true;
        return;
      case 1:
        ann_monitor_set_deadline(monitor_, 1);
        expired_ = true;
        return;
      case 2:
        ann_monitor_set_deadline(monitor_, 3600'000'000'000 + input_.byte());
        expired_ = false;
        return;
      case 3:
        ann_monitor_reset(monitor_);
        cancelled_ = expired_ = false;
        return;
      default:
        break;
    }
    Given<ann_progress> progress(ANN_PROGRESS_INIT, input_);
    const ann_status status = ann_monitor_progress(monitor_, progress.get(), nullptr);
    DEMAND(status == ANN_OK || status == ANN_INVALID_ARGUMENT, "%s", ann_status_name(status));
    if (status != ANN_OK || !progress.usual()) return;
    const ann_progress value = progress.value();
    DEMAND(value.phase != nullptr && value.fraction >= 0 && value.fraction <= 1, "progress");
  }

  void ask_library() {
    DEMAND(ann_version()[0] != 0 && ann_build_info()[0] != 0, "no version");
    DEMAND(ann_status_name(static_cast<ann_status>(input_.word()))[0] != 0, "no name");
    Given<ann_device_info> device(ANN_DEVICE_INFO_INIT, input_);
    const ann_status status = ann_device_get_info(ANN_DEVICE_CPU, device.get(), nullptr);
    DEMAND(status == ANN_OK || (status == ANN_INVALID_ARGUMENT && !device.usual()), "%s",
           ann_status_name(status));
    Given<ann_context_params> params(memory_.params(), input_);
    if (params.usual() && input_.below(4) == 0) params.get()->release = nullptr;
    ann_context* context = nullptr;
    if (ann_context_create(params.get(), &context, nullptr) == ANN_OK) ann_context_free(context);
  }

  void misuse_handles() {
    ann_error error = ANN_ERROR_INIT;
    ann_index_info info = ANN_INDEX_INFO_INIT;
    const void* others[] = {monitor_, bounded_, nullptr};
    const auto* wrong = static_cast<const ann_index*>(input_.one_of(others));
    ann_status status = ann_index_get_info(wrong, &info, &error);
    DEMAND(status == ANN_INVALID_ARGUMENT && error.message[0] != 0, "%s", ann_status_name(status));
    std::vector<uint8_t> nowhere;
    status = save_to(wrong, 1, &nowhere);
    DEMAND(status == ANN_INVALID_ARGUMENT && nowhere.empty(), "%s", ann_status_name(status));
    ann_index* out = nullptr;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = 4;
    const auto* context = reinterpret_cast<const ann_context*>(monitor_);
    status = ann_index_create(context, &shape, &out, &error);
    DEMAND(status == ANN_INVALID_ARGUMENT && out == nullptr, "%s", ann_status_name(status));
    ann_index_free(reinterpret_cast<ann_index*>(monitor_));  // is none, so nothing happens
    ann_context_free(reinterpret_cast<ann_context*>(monitor_));
    ann_monitor_free(reinterpret_cast<ann_monitor*>(bounded_));
  }

  /// The next call that takes this much memory of the context does not get it.
  void refuse_memory() { memory_.refuse(static_cast<int64_t>(input_.below(64)), input_.below(2) == 0); }

  // --- Files -------------------------------------------------------------------------------------

  /// A stream that takes what it is given, less, or breaks at a byte.
  struct Sink {
    std::vector<uint8_t> bytes;
    uint64_t piece = UINT64_MAX;
    uint64_t breaks_at = UINT64_MAX;
    int64_t answer = -EIO;  // of a broken one
    bool broke = false;

    static int64_t write(void* user, const void* data, uint64_t count) {
      Sink& sink = *static_cast<Sink*>(user);
      if (sink.bytes.size() >= sink.breaks_at) {
        sink.broke = true;
        return sink.answer;
      }
      const uint64_t taken = std::min(count, sink.piece);
      const uint8_t* from = static_cast<const uint8_t*>(data);
      sink.bytes.insert(sink.bytes.end(), from, from + taken);
      return static_cast<int64_t>(taken);
    }
  };

  void save() {
    Model& model = this->model();
    if (model.handle == nullptr) return;
    constexpr int64_t kAnswers[] = {-EIO, -ENOSPC, 0, INT64_MAX, INT64_MIN, -100000};
    Sink sink;
    if (input_.below(4) == 0) sink.piece = 100 + input_.half();
    if (input_.below(4) == 0) {
      sink.breaks_at = input_.half();
      sink.answer = input_.one_of(kAnswers);
    }
    ann_writer writer = ANN_WRITER_INIT;
    writer.write = Sink::write;
    writer.user = &sink;
    ann_save_params params = ANN_SAVE_PARAMS_INIT;
    params.threads = threads();
    params.sync = choice(3);
    Given<ann_writer> given_writer(writer, input_);
    Given<ann_save_params> given(params, input_);
    ann_monitor* monitor = this->monitor();
    const ann_index_info before = info_of(model);
    ann_error error = ANN_ERROR_INIT;
    const ann_status status = ann_save_stream(model.handle, given_writer.get(), given.get(), monitor, &error);
    check(status, error, monitor,
          {ANN_INVALID_ARGUMENT, ANN_STATE, sink.broke ? ann_status{ANN_IO} : ann_status{ANN_STATE}}, "save");
    demand_unchanged(model, before);
    DEMAND(status != ANN_OK || (model.built && !sink.broke), "saved into a broken stream");
    if (status == ANN_OK) keep(model, std::move(sink.bytes));
  }

  void keep(const Model& model, std::vector<uint8_t> bytes) {
    Saved& saved = saves_[input_.below(kSaves)];
    saved.bytes = std::move(bytes);
    saved.model = model;
    saved.model.handle = nullptr;
    saved.model.borrowed = nullptr;  // the file has the rows
    saved.model.file = nullptr;
  }

  void open() {
    const Saved& saved = saves_[input_.below(kSaves)];
    if (saved.bytes.empty()) return save();
    Model& model = this->model();
    if (model.handle != nullptr) free_index(model);
    std::vector<uint8_t> bytes = saved.bytes;
    const bool damaged = input_.below(3) == 0;
    if (damaged) bytes[input_.wide() % bytes.size()] ^= static_cast<uint8_t>(1 << input_.below(8));
    auto file = std::make_shared<const PagedBytes>(bytes);
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = damaged ? int32_t{ANN_OPEN_FULL} : choice(4);
    params.threads = threads();
    params.expect_dim = input_.below(16) == 15 ? input_.byte() : 0;
    params.expect_metric = input_.below(16) == 15 ? choice(4) : 0;
    params.expect_element = input_.below(16) == 15 ? choice(6) : 0;
    Given<ann_open_params> given(params, input_);
    ann_monitor* monitor = this->monitor();
    ann_error error = ANN_ERROR_INIT;
    ann_index* out = nullptr;
    const ann_status status =
        ann_open_memory(context(), file->data(), file->size(), given.get(), &out, monitor, &error);
    check(status, error, monitor,
          {ANN_INVALID_ARGUMENT, damaged ? ann_status{ANN_CORRUPT} : ann_status{ANN_INVALID_ARGUMENT},
           damaged ? ann_status{ANN_VERSION} : ann_status{ANN_INVALID_ARGUMENT}},
          "open");
    DEMAND((out != nullptr) == (status == ANN_OK), "%s and a handle", ann_status_name(status));
    DEMAND(status != ANN_OK || (!damaged && !given.tail_set()), "an open that had to be refused");
    if (status != ANN_OK) return;
    model = saved.model;
    model.handle = out;
    model.file = std::move(file);
    info_of(model);
  }

  Input& input_;
  BoundedMemory memory_;
  ann_context* bounded_ = nullptr;
  ann_monitor* monitor_ = nullptr;
  bool cancelled_ = false;
  bool expired_ = false;
  Model models_[kIndexes];
  Saved saves_[kSaves];
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Program(input).run();
  return 0;
}
