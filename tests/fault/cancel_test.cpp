// Proves that every call ends soon after its caller wishes so, without a look at a clock on the wall.
//
// The library asks its monitor whether to go on. This test watches the questions (Monitor::Watcher).
//
// At every question: calls of every kind are cancelled at their first, second, ... question, by a wish
// and by a deadline that has passed. The call must answer ANN_CANCELLED or ANN_DEADLINE, ask at most
// once more on each thread, leave nothing behind (no built index, no file, no descriptor), and give what
// it always gives when it is made again. Progress is read at each question: it never falls, and moves.
//
// Between two questions: calls are made at sizes that are hard for one of their phases (millions of ids,
// rows of 32,768 columns, long beams, large files). The time that one thread computes between two of its
// questions, and from its last one to the end, is measured as time of that thread, which another process
// cannot lengthen. Sizes are such that a phase that never asks computes for several times the limit. A
// phase above the limit is measured again, four times at most, since a busy neighbour in the same core takes
// from caches and from the thread's own time; the least of the five counts. Where a save waits for the
// disk, bytes are counted instead: those between two questions, and those left for the sync.
//
//     fault_cancel            both parts, with the longest time between two questions of each call
//     fault_cancel NAME       that of one call, by its name there
//     fault_cancel --clock    how late calls of the second part end after a wish, by the clock: a figure
//                             that only an idle machine can give, so it is printed and not judged
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "boundary.h"
#include "check.h"
#include "made_files.h"
#include "support.h"
#include "watched_files.h"

using namespace fault;

namespace {

// --- Watching -------------------------------------------------------------------------------------

double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class MonitorHandle {
 public:
  explicit MonitorHandle(gannet::Monitor::Watcher* watcher) {
    CHECK_OK(ann_monitor_create(&handle_, nullptr));
    handle_->monitor.watch(watcher);
  }
  ~MonitorHandle() { ann_monitor_free(handle_); }
  MonitorHandle(const MonitorHandle&) = delete;
  ann_monitor* get() const { return handle_; }

 private:
  ann_monitor* handle_ = nullptr;
};

/// Wishes for an end at one question, and looks at the progress at each.
class WishAt final : public gannet::Monitor::Watcher {
 public:
  /// `question` 1 is the first; 0: none.
  WishAt(uint64_t question, bool deadline) : question_(question), deadline_(deadline) {}

  std::atomic<uint64_t> questions = 0;
  std::atomic<uint64_t> falls = 0;
  std::atomic<uint64_t> moves = 0;

 private:
  void asked(gannet::Monitor& monitor) override {
    const std::lock_guard lock(mutex_);
    const double fraction = monitor.fraction();
    if (fraction < known_ || !(fraction >= 0 && fraction <= 1) || monitor.phase() == nullptr) ++falls;
    if (fraction > known_) ++moves;
    known_ = std::max(known_, fraction);
    if (++questions != question_) return;
    if (deadline_) {
      monitor.set_deadline(1);
      const auto start = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - start < std::chrono::nanoseconds(2)) {
      }
    } else {
      monitor.cancel();
    }
  }

  std::mutex mutex_;
  double known_ = 0;
  uint64_t question_;
  bool deadline_;
};

/// The last question of a thread: of which run, at what time of the thread, in which phase.
struct LastQuestion {
  uint64_t run = 0;
  double since = 0;
  const char* phase = "";
};

/// What threads compute between two of their questions, phase by phase.
class Intervals final : public gannet::Monitor::Watcher {
 public:
  /// Ends the call when it enters `stop_at`, unless that is null, or after `questions_max` questions.
  Intervals(const char* stop_at, uint64_t questions_max)
      : stop_at_(stop_at), left_(questions_max), run_(++runs_) {
    here_ = {run_, thread_seconds(), "before the first question"};
  }

  struct Phase {
    double longest = 0;
    uint64_t questions = 0;
  };
  std::map<std::string, Phase> phases;

  /// Whether the call was ended.
  bool ended() const { return ended_; }

  /// The call has returned to the thread that made it.
  void finish() { note(thread_seconds()); }

 private:
  void asked(gannet::Monitor& monitor) override {
    if (here_.run == run_) note(thread_seconds());
    const char* phase = monitor.phase();
    const bool stops = stop_at_ != nullptr && std::strcmp(phase, stop_at_) == 0;
    if (left_-- == 1 || stops) {
      ended_ = true;
      monitor.cancel();
    }
    here_ = {run_, thread_seconds(), phase};
  }
  void note(double now) {
    const std::lock_guard lock(mutex_);
    Phase& phase = phases[here_.phase];
    phase.longest = std::max(phase.longest, now - here_.since);
    ++phase.questions;
  }

  inline static std::atomic<uint64_t> runs_ = 0;
  inline static thread_local LastQuestion here_;
  const char* stop_at_;
  std::atomic<uint64_t> left_;
  std::atomic<bool> ended_ = false;
  uint64_t run_;
  std::mutex mutex_;
};

// --- At every question ----------------------------------------------------------------------------

/// Rows, an index over them, its file, and what calls give that nobody ends.
struct Scene {
  Scene()
      : rows(vectors_make(DATA_NORMAL, ANN_F32, 700, 12, 1)),
        index(index_build(ANN_METRIC_L2, &rows, nullptr)),
        file(saved(index.get())),
        path(folder.path("index.gannet")) {
    write_file(path, file.data(), file.size());
  }
  ~Scene() { vectors_free(&rows); }
  Scene(const Scene&) = delete;

  vectors rows;
  Index index;
  Bytes file;
  Folder folder;
  std::string path;
};

/// A call that can be ended: answers its status; what it made, as a hash, goes to `made`, 0 where nothing
/// may be made.
struct Call {
  const char* name;
  std::function<ann_status(const Scene&, uint32_t threads, ann_monitor*, uint64_t* made)> run;
};

Call build_call(const char* name, int32_t knn) {
  return {name, [knn](const Scene& scene, uint32_t threads, ann_monitor* monitor, uint64_t* made) {
            ann_build_params params = ANN_BUILD_PARAMS_INIT;
            params.knn = knn;
            params.threads = threads;
            params.degree = 16;
            std::vector<uint32_t> lists(scene.rows.rows * 24);
            for (size_t i = 0; i < lists.size(); ++i)
              lists[i] = static_cast<uint32_t>((i / 24 + i % 24 * 29 + 1) % scene.rows.rows);
            if (knn == ANN_KNN_GIVEN) {
              params.knn_graph = lists.data();
              params.knn_degree = 24;
            }
            std::vector<uint64_t> ids(scene.rows.rows);
            for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = i * 7919 % ids.size() + 5;
            const ann_matrix view = vectors_view(&scene.rows);
            const Index index(index_make(scene.rows.dim, ANN_METRIC_L2, ANN_ELEMENT_AUTO));
            const ann_status status = ann_build(index.get(), &view, ids.data(), &params, monitor, nullptr);
            ann_index_info info = ANN_INDEX_INFO_INIT;
            CHECK_OK(ann_index_get_info(index.get(), &info, nullptr));
            *made = info.built != 0 ? index_hash(index.get()) : 0;
            return status;
          }};
}

Call search_call(const char* name, bool exact, uint32_t beam) {
  return {name, [=](const Scene& scene, uint32_t threads, ann_monitor* monitor, uint64_t* made) {
            answers found = answers_make(scene.rows.rows, 10);
            ann_results results = answers_view(&found);
            ann_search_params params = ANN_SEARCH_PARAMS_INIT;
            params.threads = threads;
            params.beam = beam;
            const ann_matrix view = vectors_view(&scene.rows);
            const auto search = exact ? ann_search_exact : ann_search_batch;
            const ann_status status = search(scene.index.get(), &view, &params, &results, monitor, nullptr);
            *made = status == ANN_OK ? answers_hash(HASH_START, &found) : 0;
            answers_free(&found);
            return status;
          }};
}

Call knn_call(const char* name, int32_t method) {
  return {name, [=](const Scene& scene, uint32_t threads, ann_monitor* monitor, uint64_t* made) {
            std::vector<uint32_t> lists(scene.rows.rows * 8);
            ann_knn_params params = ANN_KNN_PARAMS_INIT;
            params.k = 8;
            params.method = method;
            params.threads = threads;
            const ann_matrix view = vectors_view(&scene.rows);
            const ann_status status =
                ann_knn_graph(nullptr, &view, &params, lists.data(), nullptr, monitor, nullptr);
            *made = status == ANN_OK ? hash_bytes(HASH_START, lists.data(), lists.size() * 4) : 0;
            return status;
          }};
}

uint64_t hash_of(const Bytes& bytes) { return hash_bytes(HASH_START, bytes.data(), bytes.size()); }

Call save_call(const char* name, bool to_file) {
  return {name, [=](const Scene& scene, uint32_t threads, ann_monitor* monitor, uint64_t* made) {
            ann_save_params params = ANN_SAVE_PARAMS_INIT;
            params.threads = threads;
            if (to_file) {
              const std::string path = scene.folder.path("saved.gannet");
              unlink(path.c_str());
              const ann_status status = ann_save(scene.index.get(), path.c_str(), &params, monitor, nullptr);
              bool found = false;
              const Bytes bytes = read_file(path, &found);
              *made = found ? hash_of(bytes) : 0;
              return status;
            }
            std::vector<uint8_t> bytes;
            ann_writer writer = ANN_WRITER_INIT;
            writer.user = &bytes;
            writer.write = [](void* user, const void* data, uint64_t count) {
              auto* to = static_cast<std::vector<uint8_t>*>(user);
              const auto* from = static_cast<const uint8_t*>(data);
              to->insert(to->end(), from, from + count);
              return static_cast<int64_t>(count);
            };
            const ann_status status = ann_save_stream(scene.index.get(), &writer, &params, monitor, nullptr);
            *made = status == ANN_OK ? hash_bytes(HASH_START, bytes.data(), bytes.size()) : 0;
            return status;
          }};
}

enum class From { kFile, kMemory, kStream, kVerify };

Call open_call(const char* name, From from, int32_t mode) {
  return {name, [=](const Scene& scene, uint32_t threads, ann_monitor* monitor, uint64_t* made) {
            ann_open_params params = ANN_OPEN_PARAMS_INIT;
            params.mode = mode;
            params.threads = threads;
            if (from == From::kVerify) {
              *made = 0;
              const ann_status status = ann_verify(scene.path.c_str(), &params, monitor, nullptr);
              if (status == ANN_OK) *made = 1;
              return status;
            }
            ann_index* opened = nullptr;
            struct Stream {
              const Bytes& bytes;
              uint64_t at;
            } stream = {scene.file, 0};
            ann_reader reader = ANN_READER_INIT;
            reader.user = &stream;
            reader.bytes = scene.file.size();
            reader.read = [](void* user, void* data, uint64_t count) {
              auto* source = static_cast<Stream*>(user);
              count = std::min(count, source->bytes.size() - source->at);
              std::memcpy(data, source->bytes.data() + source->at, count);
              source->at += count;
              return static_cast<int64_t>(count);
            };
            const ann_status status =
                from == From::kFile
                    ? ann_open(nullptr, scene.path.c_str(), &params, &opened, monitor, nullptr)
                : from == From::kMemory
                    ? ann_open_memory(nullptr, scene.file.data(), scene.file.size(), &params, &opened,
                                      monitor, nullptr)
                    : ann_open_stream(nullptr, &reader, &params, &opened, monitor, nullptr);
            *made = opened != nullptr ? index_hash(opened) : 0;
            ann_index_free(opened);
            return status;
          }};
}

const std::vector<Call>& calls() {
  static const std::vector<Call> all = {build_call("build, exact lists", ANN_KNN_EXACT),
                                        build_call("build, NN-Descent", ANN_KNN_NN_DESCENT),
                                        build_call("build, cells", ANN_KNN_CELLS),
                                        build_call("build, given lists", ANN_KNN_GIVEN),
                                        search_call("search", false, 0),
                                        search_call("search, long beam", false, 300),
                                        search_call("exact search", true, 0),
                                        knn_call("k-NN graph, exact", ANN_KNN_EXACT),
                                        knn_call("k-NN graph, NN-Descent", ANN_KNN_NN_DESCENT),
                                        knn_call("k-NN graph, cells", ANN_KNN_CELLS),
                                        save_call("save", true),
                                        save_call("save to a stream", false),
                                        open_call("open", From::kFile, ANN_OPEN_FULL),
                                        open_call("open LAZY", From::kFile, ANN_OPEN_LAZY),
                                        open_call("open TRUSTED", From::kFile, ANN_OPEN_TRUSTED),
                                        open_call("open from memory", From::kMemory, ANN_OPEN_FULL),
                                        open_call("open from a stream", From::kStream, ANN_OPEN_FULL),
                                        open_call("verify", From::kVerify, ANN_OPEN_FULL)};
  return all;
}

/// All questions of a call, or some 40 of them.
uint64_t wish_at_questions(const Scene& scene, const Call& call, uint32_t threads) {
  uint64_t wanted = 0;
  WishAt none(0, false);
  {
    const MonitorHandle monitor(&none);
    CHECK_SAY(call.run(scene, threads, monitor.get(), &wanted) == ANN_OK, "%s fails", call.name);
    CHECK_SAY(monitor.get()->monitor.fraction() == 1, "%s ends at %.3f", call.name,
              monitor.get()->monitor.fraction());
    CHECK_SAY(monitor.get()->monitor.step() >= 1 && monitor.get()->monitor.phase()[0] != 0,
              "%s names no phase", call.name);
  }
  CHECK_SAY(wanted != 0, "%s makes nothing", call.name);
  CHECK_SAY(none.falls == 0, "%s: progress falls", call.name);
  const uint64_t questions = none.questions;
  CHECK_SAY(questions >= 1, "%s never asks", call.name);
  const uint64_t step = std::max<uint64_t>(1, questions / (test_sanitized() ? 10 : 40));
  uint64_t wishes = 0;
  // Threads share out work as they come, so the last questions of one run may be missing in another.
  const uint64_t last = threads == 1 ? questions : questions / 2;
  for (uint64_t question = 1; question <= last; question += step, ++wishes) {
    const bool deadline = wishes % 2 != 0;
    WishAt wish(question, deadline);
    const MonitorHandle monitor(&wish);
    const int descriptors = open_descriptors();
    uint64_t made = 0;
    const ann_status status = call.run(scene, threads, monitor.get(), &made);
    CHECK_SAY(status == (deadline ? ANN_DEADLINE : ANN_CANCELLED),
              "%s, %u threads, question %llu of %llu: answers %s", call.name, threads,
              static_cast<unsigned long long>(question), static_cast<unsigned long long>(questions),
              ann_status_name(status));
    CHECK_SAY(wish.questions <= question + threads, "%s: asks %llu times more after the wish", call.name,
              static_cast<unsigned long long>(wish.questions - question));
    CHECK_SAY(made == 0, "%s, question %llu: leaves something behind", call.name,
              static_cast<unsigned long long>(question));
    CHECK_SAY(scene.folder.temporary().empty(), "%s: leaves a temporary file", call.name);
    CHECK_SAY(open_descriptors() == descriptors, "%s: leaves a descriptor open", call.name);
    if (wishes % 8 != 0) continue;
    CHECK_SAY(call.run(scene, threads, nullptr, &made) == ANN_OK && made == wanted,
              "%s: gives something else after it was ended", call.name);
  }
  unlink(scene.folder.path("saved.gannet").c_str());
  return wishes;
}

/// Calls of some size tell how far they are.
void progress_moves(const Scene& scene) {
  for (const Call& call : calls()) {
    WishAt none(0, false);
    const MonitorHandle monitor(&none);
    uint64_t made = 0;
    CHECK_OK(call.run(scene, 2, monitor.get(), &made));
    CHECK_SAY(none.falls == 0, "%s: progress falls", call.name);
    // Two questions cannot show more than one move, nor can those asked while a device does all in one.
    CHECK_SAY(none.questions < 16 || none.moves >= 2, "%s: %llu questions, progress moves %llu times",
              call.name, static_cast<unsigned long long>(none.questions.load()),
              static_cast<unsigned long long>(none.moves.load()));
  }
}

// --- Between two questions ------------------------------------------------------------------------

constexpr double kLimit = 0.02;  // seconds of one thread; 100 ms at five times the sizes

/// A call at a size that makes one of its phases hard.
struct HardCall {
  const char* name;
  const char* stop_at;  // the phase at whose start the call is ended, since others make that one hard
  std::function<ann_status(ann_monitor*)> run;
  uint64_t questions_max = UINT64_MAX;  // that are watched before the call is ended
  bool on_cpu_alone = false;            // a device has no procedure for it
  bool ends_on_cpu_alone = false;       // a device has no such phase, and the call succeeds
};

/// Phases that do not ask often enough yet. A phase that does no more belongs off this list.
struct Owed {
  const char* call;
  const char* phase;
  const char* why;
};
constexpr std::array<Owed, 0> kOwed = {};

bool is_owed(const char* call, const std::string& phase) {
  for (const Owed& owed : kOwed) {
    if (std::strcmp(owed.call, call) == 0 && phase == owed.phase) return true;
  }
  return false;
}

/// Values that are not equal, made faster than those of vectors_make.
vectors many_rows(int32_t element, uint64_t rows, uint32_t dim) {
  vectors set = {element, dim, rows, nullptr};
  const size_t size = element_size(element);
  set.data = static_cast<unsigned char*>(std::malloc(rows * dim * size));
  for (uint64_t i = 0; i < rows * dim; ++i) {
    const uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u;
    if (element == ANN_F32) {
      const float value = static_cast<float>(mixed >> 40) * 0x1p-24f;
      std::memcpy(set.data + i * 4, &value, 4);
    } else if (size == 2) {
      const uint16_t half = static_cast<uint16_t>(0x3c00 | (mixed >> 54));  // 1 to 2 as f16
      std::memcpy(set.data + i * 2, &half, 2);
    } else {
      set.data[i] = static_cast<unsigned char>(mixed >> 56);
    }
  }
  return set;
}

std::vector<uint64_t> many_ids(uint64_t rows) {
  std::vector<uint64_t> ids(rows);
  for (uint64_t i = 0; i < rows; ++i) ids[i] = (i + 1) * 0x9e3779b97f4a7c15u >> 1;
  return ids;
}

class HardScene {
 public:
  HardScene() {
    many = many_rows(ANN_F32, 5'000'000, 8);
    ids = many_ids(many.rows);
    wide = many_rows(ANN_F16, 1'500, 32'768);
    middle = many_rows(ANN_F32, 20'000, 96);
    few = many_rows(ANN_F32, 50, 256);
    queries = many_rows(ANN_F32, 150'000, 256);
    long_rows = many_rows(ANN_F32, 15'000, 768);
    listed = many_rows(ANN_U8, 200'000, 4);
    short_rows = many_rows(ANN_U8, 1'000'000, 2);
    lists.resize(listed.rows * 96);
    found.resize(listed.rows * 100);
    for (uint64_t i = 0; i < lists.size(); ++i)
      lists[i] = static_cast<uint32_t>(((i + 1) * 0x9e3779b97f4a7c15u >> 32) % listed.rows);
    ann_build_params rows_only = ANN_BUILD_PARAMS_INIT;
    rows_only.graph = ANN_GRAPH_NONE;
    with_ids.reset(index_make(many.dim, ANN_METRIC_COSINE, ANN_ELEMENT_AUTO));
    const ann_matrix view = vectors_view(&many);
    CHECK_OK(ann_build(with_ids.get(), &view, ids.data(), &rows_only, nullptr, nullptr));
    cosine.reset(index_build(ANN_METRIC_COSINE, &few, &rows_only));
    ann_build_params plain = ANN_BUILD_PARAMS_INIT;
    plain.calibrate = ANN_OFF;
    graph.reset(index_build(ANN_METRIC_L2, &middle, &plain));
    // Random lists make a graph at once, and a long beam meets all rows on it.
    std::vector<uint32_t> random(long_rows.rows * 16);
    for (uint64_t i = 0; i < random.size(); ++i)
      random[i] = static_cast<uint32_t>(((i + 1) * 0x9e3779b97f4a7c15u >> 32) % long_rows.rows);
    plain.knn = ANN_KNN_GIVEN;
    plain.knn_graph = random.data();
    plain.degree = plain.knn_degree = 16;
    long_graph.reset(index_build(ANN_METRIC_L2, &long_rows, &plain));
    plain.graph = ANN_GRAPH_GIVEN;
    plain.knn_graph = lists.data();
    plain.degree = plain.knn_degree = 96;
    wide_graph.reset(index_build(ANN_METRIC_L2, &listed, &plain));
    path = folder.path("index.gannet");
    ann_save_params quick = ANN_SAVE_PARAMS_INIT;
    quick.sync = ANN_OFF;
    CHECK_OK(ann_save(with_ids.get(), path.c_str(), &quick, nullptr, nullptr));
  }
  ~HardScene() {
    for (vectors* set : {&many, &wide, &middle, &few, &queries, &listed, &long_rows, &short_rows})
      vectors_free(set);
  }
  HardScene(const HardScene&) = delete;

  ann_status build(const vectors& rows, int32_t metric, int32_t element, const uint64_t* row_ids,
                   const ann_build_params& params, ann_monitor* monitor) const {
    const Index index(index_make(rows.dim, metric, element));
    const ann_matrix view = vectors_view(&rows);
    return ann_build(index.get(), &view, row_ids, &params, monitor, nullptr);
  }
  ann_status search(const Index& index, const vectors& asked, uint64_t count, uint32_t k, uint32_t beam,
                    bool exact, ann_monitor* monitor) const {
    vectors part = asked;
    part.rows = count;
    answers found = answers_make(count, k);
    ann_results results = answers_view(&found);
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.threads = 2;
    params.beam = beam;
    const ann_matrix view = vectors_view(&part);
    const auto call = exact ? ann_search_exact : ann_search_batch;
    const ann_status status = call(index.get(), &view, &params, &results, monitor, nullptr);
    answers_free(&found);
    return status;
  }
  ann_status open(int32_t mode, ann_index** out, ann_monitor* monitor) const {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = mode;
    params.threads = 2;
    return ann_open(nullptr, path.c_str(), &params, out, monitor, nullptr);
  }

  vectors many, wide, middle, few, queries, listed, long_rows, short_rows;
  std::vector<uint64_t> ids;
  std::vector<uint32_t> lists;
  mutable std::vector<uint32_t> found;  // the lists of a k-NN graph
  Index with_ids, cosine, graph, long_graph, wide_graph;
  Folder folder;
  std::string path;
};

std::vector<HardCall> hard_calls(const HardScene& scene) {
  ann_build_params rows_only = ANN_BUILD_PARAMS_INIT;
  rows_only.graph = ANN_GRAPH_NONE;
  rows_only.threads = 2;
  const auto graph_by = [](int32_t knn) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.knn = knn;
    params.threads = 2;
    return params;
  };
  ann_build_params given = graph_by(ANN_KNN_GIVEN);
  given.knn_graph = scene.lists.data();
  given.knn_degree = 96;
  const auto by_lists = [&scene, graph_by](uint64_t rows, int32_t metric, int32_t graph,
                                           ann_monitor* monitor) {
    ann_build_params params = graph_by(ANN_KNN_GIVEN);
    params.knn_graph = scene.lists.data();
    params.graph = graph;
    params.degree = params.knn_degree = 8;
    vectors part = scene.short_rows;
    part.rows = rows;
    return scene.build(part, metric, 0, nullptr, params, monitor);
  };
  const auto knn = [&scene](const vectors& rows, int32_t method, uint32_t iterations, ann_monitor* monitor,
                            int32_t metric = ANN_METRIC_L2) {
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.k = 100;
    params.metric = metric;
    if (metric == ANN_METRIC_INNER_PRODUCT) params.device = ANN_DEVICE_CPU;  // by cells there alone
    params.method = method;
    params.iterations = iterations;
    params.threads = 2;
    const ann_matrix view = vectors_view(&rows);
    return ann_knn_graph(nullptr, &view, &params, scene.found.data(), nullptr, monitor, nullptr);
  };
  return {
      {"build, 5M ids", nullptr,
       [&scene, rows_only](ann_monitor* monitor) {
         return scene.build(scene.many, ANN_METRIC_L2, 0, scene.ids.data(), rows_only, monitor);
       }},
      {"build, 32,768 columns", nullptr,
       [&scene, rows_only](ann_monitor* monitor) {
         return scene.build(scene.wide, ANN_METRIC_COSINE, ANN_F32, nullptr, rows_only, monitor);
       }},
      {"build, codes of 32,768 columns", "k-NN graph",
       [&scene, graph_by](ann_monitor* monitor) {
         return scene.build(scene.wide, ANN_METRIC_L2, 0, nullptr, graph_by(ANN_KNN_EXACT), monitor);
       }},
      {"build, given lists", "prune",
       [&scene, given](ann_monitor* monitor) {
         return scene.build(scene.listed, ANN_METRIC_L2, 0, nullptr, given, monitor);
       }},
      {"build, 1M lists", "calibrate",
       [by_lists](ann_monitor* monitor) {
         return by_lists(1'000'000, ANN_METRIC_L2, ANN_GRAPH_AUTO, monitor);
       }},
      // Their own phases compute for longer than those above: fewer rows are hard for them.
      {"build, 400,000 lists by product", "calibrate",
       [by_lists](ann_monitor* monitor) {
         return by_lists(400'000, ANN_METRIC_INNER_PRODUCT, ANN_GRAPH_AUTO, monitor);
       }},
      {"build, TSDG, 300,000 lists", "calibrate",
       [by_lists](ann_monitor* monitor) { return by_lists(300'000, ANN_METRIC_L2, ANN_GRAPH_TSDG, monitor); },
       UINT64_MAX, false, true},
      {"build, GGNN", "calibrate",
       [&scene, graph_by](ann_monitor* monitor) {
         ann_build_params params = graph_by(ANN_KNN_AUTO);
         params.graph = ANN_GRAPH_GGNN;
         params.degree = 8;
         params.refinements = ANN_NONE;
         return scene.build(scene.listed, ANN_METRIC_L2, 0, nullptr, params, monitor);
       }},
      {"build, cells", nullptr,
       [&scene, graph_by](ann_monitor* monitor) {
         return scene.build(scene.middle, ANN_METRIC_L2, 0, nullptr, graph_by(ANN_KNN_CELLS), monitor);
       }},
      {"build, NN-Descent", "calibrate",
       [&scene, graph_by](ann_monitor* monitor) {
         return scene.build(scene.middle, ANN_METRIC_L2, 0, nullptr, graph_by(ANN_KNN_NN_DESCENT), monitor);
       }},
      {"exact search, 150,000 queries", nullptr,
       [&scene](ann_monitor* monitor) {
         return scene.search(scene.cosine, scene.queries, 150'000, 1, 0, true, monitor);
       }},
      {"exact search, k = 1M", nullptr,
       [&scene](ann_monitor* monitor) {
         return scene.search(scene.with_ids, scene.many, 2, 1'000'000, 0, true, monitor);
       },
       UINT64_MAX, true},
      {"search, default beam", nullptr,
       [&scene](ann_monitor* monitor) {
         return scene.search(scene.graph, scene.middle, 2'000, 100, 0, false, monitor);
       }},
      {"search, beam of 10,000", nullptr,
       [&scene](ann_monitor* monitor) {
         return scene.search(scene.long_graph, scene.long_rows, 2'000, 10, 10'000, false, monitor);
       },
       20, true},
      {"search, longest beam", nullptr,
       [&scene](ann_monitor* monitor) {
         return scene.search(scene.wide_graph, scene.listed, 2, 10, ANN_BEAM_MAX, false, monitor);
       },
       UINT64_MAX, true},
      {"k-NN graph, exact", nullptr,
       [knn, &scene](ann_monitor* monitor) { return knn(scene.middle, ANN_KNN_EXACT, 0, monitor); }},
      {"k-NN graph, NN-Descent", nullptr,
       [knn, &scene](ann_monitor* monitor) { return knn(scene.middle, ANN_KNN_NN_DESCENT, 0, monitor); }},
      {"k-NN graph, NN-Descent, long", nullptr,
       [knn, &scene](ann_monitor* monitor) { return knn(scene.listed, ANN_KNN_NN_DESCENT, 1, monitor); }},
      {"k-NN graph, cells", nullptr,
       [knn, &scene](ann_monitor* monitor) { return knn(scene.middle, ANN_KNN_CELLS, 0, monitor); }},
      {"k-NN graph, cells by product", nullptr,
       [knn, &scene](ann_monitor* monitor) {
         return knn(scene.middle, ANN_KNN_CELLS, 0, monitor, ANN_METRIC_INNER_PRODUCT);
       }},
      {"save", nullptr,
       [&scene](ann_monitor* monitor) {
         // Each save has a name of its own: to replace a file is to have the system give its pages back.
         static int saves = 0;
         unlink(scene.folder.path("saved-" + std::to_string(saves) + ".gannet").c_str());
         const std::string path = scene.folder.path("saved-" + std::to_string(++saves) + ".gannet");
         return ann_save(scene.with_ids.get(), path.c_str(), nullptr, monitor, nullptr);
       }},
      {"save of a LAZY index", nullptr,
       [&scene](ann_monitor* monitor) {
         ann_index* opened = nullptr;
         CHECK_OK(scene.open(ANN_OPEN_LAZY, &opened, nullptr));
         ann_writer writer = ANN_WRITER_INIT;
         writer.write = [](void*, const void*, uint64_t bytes) { return static_cast<int64_t>(bytes); };
         const ann_status status = ann_save_stream(opened, &writer, nullptr, monitor, nullptr);
         ann_index_free(opened);
         return status;
       }},
      {"open, 5M ids", nullptr,
       [&scene](ann_monitor* monitor) {
         ann_index* opened = nullptr;
         const ann_status status = scene.open(ANN_OPEN_FULL, &opened, monitor);
         ann_index_free(opened);
         return status;
       }},
      {"open LAZY", nullptr,
       [&scene](ann_monitor* monitor) {
         ann_index* opened = nullptr;
         const ann_status status = scene.open(ANN_OPEN_LAZY, &opened, monitor);
         ann_index_free(opened);
         return status;
       }},
      {"verify, 5M ids", nullptr,
       [&scene](ann_monitor* monitor) { return ann_verify(scene.path.c_str(), nullptr, monitor, nullptr); }},
  };
}

/// Of all hard calls, or of the one with that name.
void work_between_questions(const HardScene& scene, const char* only) {
  const char* backend = std::getenv("GANNET_BACKEND");
  const bool on_device = backend != nullptr && std::string(backend) == "cuda";
  for (const HardCall& call : hard_calls(scene)) {
    if (on_device && call.on_cpu_alone) continue;
    if (only != nullptr && std::strcmp(only, call.name) != 0) continue;
    std::map<std::string, Intervals::Phase> phases;
    for (int attempt = 0; attempt < 5; ++attempt) {
      Intervals intervals(call.stop_at, call.questions_max);
      const MonitorHandle monitor(&intervals);
      const ann_status status = call.run(monitor.get());
      intervals.finish();
      const bool ends = call.stop_at != nullptr || call.questions_max != UINT64_MAX;
      CHECK_SAY(intervals.ended() == (ends && !(on_device && call.ends_on_cpu_alone)),
                "%s does not come to where it is ended", call.name);
      CHECK_SAY(status == (intervals.ended() ? ANN_CANCELLED : ANN_OK), "%s answers %s", call.name,
                ann_status_name(status));
      bool above = false;
      for (const auto& [name, phase] : intervals.phases) {
        auto [known, added] = phases.try_emplace(name, phase);
        if (!added) known->second.longest = std::min(known->second.longest, phase.longest);
        above |= known->second.longest > kLimit && !is_owed(call.name, name);
      }
      if (!above) break;
    }
    for (const auto& [name, phase] : phases) {
      const bool owed = is_owed(call.name, name);
      std::printf("  %-32s %-26s %8llu questions, %6.1f ms between two%s\n", call.name, name.c_str(),
                  static_cast<unsigned long long>(phase.questions), 1e3 * phase.longest,
                  owed ? phase.longest > kLimit ? " (owed)" : " (no longer owed)" : "");
      CHECK_SAY(owed || phase.longest <= kLimit,
                "%s, \"%s\": a thread computes for %.1f ms between two questions, at most %.0f are allowed",
                call.name, name.c_str(), 1e3 * phase.longest, 1e3 * kLimit);
    }
  }
}

/// Bytes that a save moves between two questions, and those that are still on their way to the disk when it
/// syncs: waiting for a disk takes no time of the thread.
class BytesBetween final : public WatchedFiles, public gannet::Monitor::Watcher {
 public:
  uint64_t written = 0;
  uint64_t waited = 0;
  uint64_t most = 0;  // between two questions
  uint64_t waited_at_sync = 0;

 private:
  void asked(gannet::Monitor&) override { since_ = 0; }
  Verdict before(const FileCall& call) override {
    const bool waits = call.op == Op::kWriteBack && call.data != nullptr;
    if (call.op == Op::kWrite) written += call.bytes;
    if (waits) waited += call.bytes;
    if (moves_bytes(call.op) || waits) most = std::max(most, since_ += call.bytes);
    if (call.op == Op::kSync && waited_at_sync == 0) waited_at_sync = waited;
    return 0;
  }
  uint64_t since_ = 0;
};

void bytes_between_questions(const HardScene& scene) {
  for (const bool names_only : {false, true}) {
    BytesBetween files;
    files.names_only = names_only;
    const MonitorHandle monitor(&files);
    ann_save_params params = ANN_SAVE_PARAMS_INIT;
    params.threads = 1;
    scene.with_ids->files = &files;
    CHECK_OK(ann_save(scene.with_ids.get(), scene.folder.path("bytes.gannet").c_str(), &params, monitor.get(),
                      nullptr));
    scene.with_ids->files = &gannet::system_files();
    CHECK(files.written > 100'000'000);
    CHECK_SAY(files.most <= 4 << 20, "a save moves %llu bytes between two questions",
              static_cast<unsigned long long>(files.most));
    CHECK_SAY(files.waited_at_sync == files.written, "%llu of %llu bytes are on the disk when a save syncs",
              static_cast<unsigned long long>(files.waited_at_sync),
              static_cast<unsigned long long>(files.written));
  }
}

/// Notes by which call a save lets go of the file that it has made, and wishes for an end, or fails for want of
/// room, once it has written so much.
class LettingGo final : public WatchedFiles, public gannet::Monitor::Watcher {
 public:
  enum class After { kNothing, kWish, kFullDisk };
  explicit LettingGo(After what) : what_(what) {}

  uint32_t closed_here = 0;   // descriptors of the file that is made,
  uint32_t closed_aside = 0;  // and those that the call does not wait for
  bool old_is_held = false;   // over the rename

 private:
  static constexpr uint64_t kWritten = 80'000'000;

  void asked(gannet::Monitor& monitor) override {
    if (what_ == After::kWish && written_ > kWritten) monitor.cancel();
  }
  Verdict before(const FileCall& call) override {
    if (call.op == Op::kWrite && (written_ += call.bytes) > kWritten && what_ == After::kFullDisk)
      return -ENOSPC;
    if (call.op == Op::kClose) closed_here += forget(call.file);
    if (call.op == Op::kCloseAside) closed_aside += forget(call.file);
    if (call.op == Op::kCloseAside && call.file == held_ && renamed_) old_is_held = true;
    if (call.op == Op::kRename) renamed_ = true;
    return 0;
  }
  void after(const FileCall& call, int64_t answer) override {
    if (call.op == Op::kCreate || call.op == Op::kCreateUnnamed) file_ = static_cast<int>(answer);
    if (call.op == Op::kDuplicate) second_ = static_cast<int>(answer);
    if (call.op == Op::kHold) held_ = static_cast<int>(answer);
  }
  /// Whether it was the new file's; its number may be another's afterwards.
  uint32_t forget(int file) {
    uint32_t known = 0;
    for (int* mine : {&file_, &second_}) {
      if (*mine != file) continue;
      *mine = -1;
      known = 1;
    }
    return known;
  }

  const After what_;
  uint64_t written_ = 0;
  int file_ = -1;
  int second_ = -1;
  int held_ = -1;
  bool renamed_ = false;
};

/// The system takes 200 ms to give the pages of 2 GB back: a save that is ended does not wait for it, nor one
/// that puts its file in the place of a large one. One that fails does: its caller may try again at once.
void large_files_are_let_go(const HardScene& scene) {
  using After = LettingGo::After;
  const std::string path = scene.folder.path("let-go.gannet");
  for (const bool names_only : {false, true}) {
    for (const After what : {After::kNothing, After::kNothing, After::kWish, After::kFullDisk}) {
      const bool replaces = access(path.c_str(), F_OK) == 0;
      LettingGo files(what);
      files.names_only = names_only;
      const MonitorHandle monitor(&files);
      ann_save_params params = ANN_SAVE_PARAMS_INIT;
      params.sync = ANN_OFF;
      scene.with_ids->files = &files;
      const ann_status status = ann_save(scene.with_ids.get(), path.c_str(), &params, monitor.get(), nullptr);
      scene.with_ids->files = &gannet::system_files();
      CHECK(status == (what == After::kNothing ? ANN_OK : what == After::kWish ? ANN_CANCELLED : ANN_IO));
      CHECK((files.closed_aside != 0) == (what == After::kWish));
      CHECK((files.closed_here != 0) == (what != After::kWish));
      CHECK(files.old_is_held == (what == After::kNothing && replaces));
    }
    unlink(path.c_str());
  }
}

/// A file that nobody else has is let go of by another thread than the caller's.
void closing_aside_takes_no_time_of_the_caller(const Folder& folder) {
  const std::string path = folder.path("large");
  double seconds[2];
  for (const bool aside : {false, true}) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    const std::vector<uint8_t> piece(1 << 20, 1);
    for (int i = 0; i < 256; ++i) CHECK(write(file, piece.data(), piece.size()) == 1 << 20);
    unlink(path.c_str());
    const double start = thread_seconds();
    if (aside)
      gannet::system_files().close_aside(file);
    else
      gannet::system_files().close(file);
    seconds[aside ? 1 : 0] = thread_seconds() - start;
    while (fcntl(file, F_GETFD) >= 0) sched_yield();  // closed in the end
  }
  CHECK_SAY(seconds[1] < seconds[0] / 4, "closing 256 MB takes %.2f ms of the caller's time, aside %.2f",
            1e3 * seconds[0], 1e3 * seconds[1]);
}

/// How late calls end by the clock. Wishes come at five places of each call.
void by_the_clock(const HardScene& scene) {
  for (const HardCall& call : hard_calls(scene)) {
    const double start = seconds_now();
    call.run(nullptr);
    const double whole = seconds_now() - start;
    double latest = 0;
    for (int i = 1; i <= 5; ++i) {
      const MonitorHandle monitor(nullptr);
      double wish = 0;
      std::thread canceller([&] {
        sleep_seconds(whole * i / 6);
        wish = seconds_now();
        ann_monitor_cancel(monitor.get());
      });
      const ann_status status = call.run(monitor.get());
      const double end = seconds_now();
      canceller.join();
      if (status == ANN_CANCELLED) latest = std::max(latest, end - wish);
    }
    std::printf("  %-32s %6.2f s, ends at most %6.1f ms after the wish\n", call.name, whole, 1e3 * latest);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "--clock") == 0) {
    by_the_clock(HardScene());
    return finish("cancel");
  }
  if (count > 1) {
    work_between_questions(HardScene(), arguments[1]);
    return finish("cancel");
  }
  uint64_t wishes = 0;
  {
    const Scene scene;
    for (const Call& call : calls())
      for (uint32_t threads = 1; threads <= 2; ++threads) wishes += wish_at_questions(scene, call, threads);
    progress_moves(scene);
  }
  CHECK(wishes >= 100);
  // Sanitizers make each loop slower by a factor of its own, and the sizes take much memory.
  if (!test_sanitized()) {
    const HardScene scene;
    work_between_questions(scene, nullptr);
    bytes_between_questions(scene);
    large_files_are_let_go(scene);
    closing_aside_takes_no_time_of_the_caller(scene.folder);
  }
  std::printf("wishes: %llu\n", static_cast<unsigned long long>(wishes));
  return finish("cancel");
}
