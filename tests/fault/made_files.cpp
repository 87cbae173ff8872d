#include "made_files.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.h"
#include "storage/format.h"
#include "support.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace fault {
namespace {

/// Calls that a dying process may make, and no others.
void tell() {
  for (const char* text : {"while trying: ", const_cast<const char*>(being_tried), "\n"})
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

constexpr uint64_t kQueries = 4;
constexpr uint32_t kAnswers = 5;
constexpr uint64_t kAlign = 4096;

int64_t append(void* user, const void* data, uint64_t bytes) {
  auto* out = static_cast<std::vector<uint8_t>*>(user);
  const auto* from = static_cast<const uint8_t*>(data);
  out->insert(out->end(), from, from + bytes);
  return static_cast<int64_t>(bytes);
}

}  // namespace

// --- Bytes ----------------------------------------------------------------------------------------

Bytes::Bytes(uint64_t count) : size_(count) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlign, std::max<uint64_t>(count, 1)) != 0) std::abort();
  data_ = static_cast<uint8_t*>(memory);
}

Bytes::Bytes(const void* data, uint64_t count) : Bytes(count) {
  if (count != 0) std::memcpy(data_, data, count);
}

Bytes::~Bytes() { std::free(data_); }

bool Bytes::operator==(const Bytes& other) const {
  return size_ == other.size_ && (size_ == 0 || std::memcmp(data_, other.data_, size_) == 0);
}

// --- Indexes --------------------------------------------------------------------------------------

std::string Kind::name() const {
  return std::string(metric_name(metric)) + "-" + element_name(element) + (graph ? "-cagra" : "-none") +
         (ids ? "-ids" : "") + (dim <= 2 || islands ? "-wide" : "");
}

std::vector<Kind> few_kinds() {
  return {{ANN_METRIC_L2, ANN_U8, true, false, 12, 40},
          {ANN_METRIC_COSINE, ANN_F32, true, true, 9, 40},
          {ANN_METRIC_INNER_PRODUCT, ANN_F32, true, false, 8, 40},
          {ANN_METRIC_L2, ANN_F32, false, true, 7, 40},
          {ANN_METRIC_L2, ANN_F16, true, false, 2, 40},
          {ANN_METRIC_L2, ANN_F32, true, false, 24, 40, true}};
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const int32_t metric : all_metrics)
    for (const int32_t element : all_elements)
      for (const bool graph : {true, false})
        for (const bool ids : {false, true}) kinds.push_back({metric, element, graph, ids, 10, 40});
  for (const int32_t metric : all_metrics) kinds.push_back({metric, ANN_F32, true, false, 2, 40});
  kinds.push_back({ANN_METRIC_L2, ANN_F32, true, false, 24, 40, true});
  kinds.push_back({ANN_METRIC_L2, ANN_F32, true, false, 5, 0});
  kinds.push_back({ANN_METRIC_L2, ANN_F32, true, true, 5, 1});
  return kinds;
}

Made::Made(const Kind& made_kind, uint64_t seed, uint32_t degree) : kind(made_kind), name(made_kind.name()) {
  vectors rows =
      vectors_make(kind.islands ? DATA_ISLANDS : DATA_NORMAL, kind.element, kind.rows, kind.dim, seed);
  vectors asked = vectors_make(DATA_NORMAL, kind.element, kQueries, kind.dim, seed + 1000);
  queries_.assign(asked.data, asked.data + kQueries * kind.dim * element_size(kind.element));
  std::vector<uint64_t> ids;
  if (kind.ids) {
    for (uint64_t i = 0; i < kind.rows; ++i) ids.push_back((kind.rows - i) * 1000003 + i % 2 + seed);
  }
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = degree;
  params.calibrate = kind.rows > 1000 ? ANN_OFF : ANN_ON;
  params.threads = 1;
  params.seed = seed;
  params.graph = kind.graph ? ANN_GRAPH_AUTO : ANN_GRAPH_NONE;
  const ann_matrix like_queries = vectors_view(&asked);
  if (kind.ids) params.calibration = &like_queries;  // so half of the files have a section for them
  const ann_matrix view = vectors_view(&rows);
  ann_error error = ANN_ERROR_INIT;
  index.reset(index_make(kind.dim, kind.metric, ANN_ELEMENT_AUTO));
  CHECK_SAY(
      ann_build(index.get(), &view, kind.ids ? ids.data() : nullptr, &params, nullptr, &error) == ANN_OK,
      "%s: %s", name.c_str(), error.message);
  vectors_free(&rows);
  vectors_free(&asked);
  file = saved(index.get());
  expected = answers(index.get());
  CHECK_SAY(expected.usual.status == ANN_OK && expected.exact.status == ANN_OK, "%s does not answer",
            name.c_str());
}

Outcome Made::answers(const ann_index* opened) const { return {answer(opened, false), answer(opened, true)}; }

Answer Made::answer(const ann_index* opened, bool exact) const {
  ann_matrix view = ANN_MATRIX_INIT;
  view.element = kind.element;
  view.data = queries_.data();
  view.rows = kQueries;
  view.dim = kind.dim;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.threads = 1;
  uint64_t ids[kQueries * kAnswers];
  float distances[kQueries * kAnswers];
  uint32_t bits[kQueries * kAnswers];
  ann_results results = ANN_RESULTS_INIT;
  results.k = kAnswers;
  results.rows = kQueries;
  results.ids = ids;
  results.distances = distances;
  const auto search = exact ? ann_search_exact : ann_search_batch;
  const ann_status status = search(opened, &view, &params, &results, nullptr, nullptr);
  if (status != ANN_OK) return {status, {}, {}};
  std::memcpy(bits, distances, sizeof bits);
  return {status, {ids, ids + kQueries * kAnswers}, {bits, bits + kQueries * kAnswers}};
}

Bytes saved(const ann_index* index) {
  std::vector<uint8_t> bytes;
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = append;
  writer.user = &bytes;
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.threads = 1;
  CHECK_OK(ann_save_stream(index, &writer, &params, nullptr, nullptr));
  return Bytes(bytes.data(), bytes.size());
}

// --- Folders --------------------------------------------------------------------------------------

Folder::Folder() {
  const char* parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  std::string name = std::string(parent) + "/gannet-fault-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    std::perror("mkdtemp");
    std::exit(2);
  }
  path_ = name;
}

Folder::~Folder() {
  clear();
  rmdir(path_.c_str());
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> found;
  DIR* folder = opendir(path_.c_str());
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") found.push_back(name);
  }
  closedir(folder);
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> Folder::temporary() const {
  std::vector<std::string> found = names();
  std::erase_if(found, [](const std::string& name) { return !name.ends_with(".tmp"); });
  return found;
}

void Folder::clear() const {
  for (const std::string& name : names()) unlink(path(name).c_str());
}

std::string left_name(const std::string& name, uint32_t number) {
  char text[64];
  std::snprintf(text, sizeof text, ".gannet-%016llx-%u.tmp",
                static_cast<unsigned long long>(gannet::format::sum(name.data(), name.size())), number);
  return text;
}

Bytes read_file(const std::string& path, bool* found) {
  FILE* file = std::fopen(path.c_str(), "rb");
  if (found != nullptr) *found = file != nullptr;
  if (file == nullptr) return {};
  std::vector<uint8_t> bytes;
  uint8_t buffer[65536];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    bytes.insert(bytes.end(), buffer, buffer + got);
  std::fclose(file);
  return Bytes(bytes.data(), bytes.size());
}

void write_file(const std::string& path, const void* data, uint64_t count) {
  FILE* file = std::fopen(path.c_str(), "wb");
  CHECK(file != nullptr && (count == 0 || std::fwrite(data, 1, count, file) == count));
  if (file != nullptr) CHECK(std::fclose(file) == 0);
}

int open_descriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

char being_tried[256];

void tell_if_it_dies() {
  struct sigaction action = {};
  action.sa_handler = [](int number) {
    tell();
    raise(number);
  };
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  sigaction(SIGALRM, &action, nullptr);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(tell);
#else
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(number, &action, nullptr);
#endif
}

uint64_t fault_scale(uint64_t usual) {
  const char* text = std::getenv("GANNET_FAULT_SCALE");
  const long scale = text != nullptr ? std::atol(text) : 0;
  if (scale >= 1) return static_cast<uint64_t>(scale);
  return test_sanitized() ? 8 * usual : usual;
}

}  // namespace fault
