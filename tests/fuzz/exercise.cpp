#include "exercise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "demand.h"
#include "distance/element.h"
#include "opening.h"
#include "repair.h"

namespace gannet::fuzz {

using namespace format;

namespace {

constexpr uint32_t kAsked = 4;  // queries
constexpr uint32_t kAnswers = 5;
constexpr float kExtreme = 3e38f;

/// What an exercise may hold: the file as opened, saves of it, search spaces, and its own queries as
/// floats twice over.
uint64_t work_budget(uint64_t file_bytes, uint32_t dim) {
  return 4 * file_bytes + (256 << 10) + uint64_t{kAsked} * dim * 2 * sizeof(float);
}

/// One exercise as it goes on.
struct Session {
  const ann_index* index;
  const FileContent& content;
  bool checked;
  Record record;

  template <class T>
  void note(const T* values, size_t count) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(values);
    record.bytes.insert(record.bytes.end(), bytes, bytes + count * sizeof(T));
  }
  /// True if the call gave answers.
  bool accept(ann_status status, const ann_error& error) {
    note(&status, 1);
    if (status == ANN_OK) return true;
    DEMAND(status == ANN_CORRUPT && !checked, "%s: %s", ann_status_name(status), error.message);
    record.met_damage = true;
    return false;
  }
};

/// Four queries: zeros, a row of the file, noise, and values at the end of the range.
std::vector<uint8_t> make_queries(const FileContent& content) {
  const Header& header = content.header;
  const int32_t element = static_cast<int32_t>(header.element);
  const size_t bytes = size_t{header.dim} * element_bytes(element);
  std::vector<uint8_t> queries(bytes * kAsked);
  if (content.rows.size() >= bytes) std::memcpy(queries.data() + bytes, content.rows.data(), bytes);
  uint8_t* noise = queries.data() + 2 * bytes;
  for (uint32_t column = 0; column < 2 * header.dim; ++column) {
    uint8_t* query = noise + (column < header.dim ? 0 : bytes);
    const uint64_t word = random_word(header.seed, 1, column);
    if (!is_float_element(element)) {
      query[column % header.dim] = static_cast<uint8_t>(word);
      continue;
    }
    const float small = static_cast<float>(word % 129) - 64;
    const float large = element == ANN_F16 ? 65504.0f : kExtreme;
    float_to_element(column < header.dim ? small
                     : word % 2 == 0     ? large
                                         : -large,
                     query, element, column % header.dim);
  }
  return queries;
}

void check_answers(const Session& session, const ann_results& found) {
  for (uint32_t query = 0; query < kAsked; ++query) {
    const uint64_t* ids = found.ids + query * kAnswers;
    const float* distances = found.distances + query * kAnswers;
    const uint32_t count = found.counts[query];
    DEMAND(found.status[query] == ANN_OK, "a finite query is refused");
    DEMAND(count <= std::min<uint64_t>(kAnswers, session.content.header.rows), "%u answers", count);
    for (uint32_t i = 0; i < kAnswers; ++i) {
      const unsigned long long id = ids[i];
      if (i >= count) {
        DEMAND(ids[i] == ANN_ID_NONE && distances[i] == INFINITY, "place %u holds %llu", i, id);
        continue;
      }
      DEMAND(session.content.has_id(ids[i]), "id %llu is in no row", id);
      DEMAND(!std::isnan(distances[i]), "the distance of %llu is NaN", id);
      DEMAND(i == 0 || distances[i - 1] <= distances[i], "distances fall at place %u", i);
      const bool distinct = std::find(ids, ids + i, ids[i]) == ids + i;
      DEMAND(distinct || !session.checked, "id %llu is given twice", id);
    }
  }
}

void ask_neighbours(Session& session, const std::vector<uint8_t>& queries, bool exact) {
  uint64_t ids[kAsked * kAnswers] = {};
  float distances[kAsked * kAnswers] = {};
  uint32_t counts[kAsked] = {};
  ann_status status[kAsked] = {};
  ann_results found = ANN_RESULTS_INIT;
  found.k = kAnswers;
  found.rows = kAsked;
  found.ids = ids;
  found.distances = distances;
  found.counts = counts;
  found.status = status;
  ann_matrix view = ANN_MATRIX_INIT;
  view.data = queries.data();
  view.rows = kAsked;
  view.dim = session.content.header.dim;
  view.element = static_cast<int32_t>(session.content.header.element);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.threads = 1;
  ann_error error = ANN_ERROR_INIT;
  const ann_status outcome = exact ? ann_search_exact(session.index, &view, &params, &found, nullptr, &error)
                                   : ann_search_batch(session.index, &view, &params, &found, nullptr, &error);
  if (!session.accept(outcome, error)) return;
  check_answers(session, found);
  session.note(ids, kAsked * kAnswers);
  session.note(distances, kAsked * kAnswers);
  session.note(counts, kAsked);
  session.note(&found.distance_count, 1);
  session.note(&found.expansion_count, 1);
}

void ask_rows(Session& session) {
  const Header& header = session.content.header;
  const size_t bytes = size_t{header.dim} * element_bytes(static_cast<int32_t>(header.element));
  std::vector<uint8_t> vector(bytes);
  for (uint64_t row = 0; row <= header.rows; row += 1 + header.rows / 4) {
    uint64_t id = row;
    if (row < header.rows && !session.content.ids.empty()) id = session.content.ids[row];
    int32_t found = -1;
    ann_error error = ANN_ERROR_INIT;
    const ann_status status = ann_index_get(session.index, id, vector.data(), bytes, &found, &error);
    if (!session.accept(status, error)) continue;
    DEMAND(found == 0 || found == 1, "found is %d", found);
    session.note(&found, 1);
    if (!session.checked) continue;
    DEMAND(found == (session.content.has_id(id) ? 1 : 0), "found is %d", found);
    if (row < header.rows)
      DEMAND(std::memcmp(vector.data(), session.content.rows.data() + row * header.row_stride, bytes) == 0,
             "row %llu is another", static_cast<unsigned long long>(row));
  }
}

void check_edges(const std::vector<uint32_t>& edges, uint64_t rows) {
  for (const uint32_t edge : edges) DEMAND(edge < rows || edge == UINT32_MAX, "an edge leads to %u", edge);
}

void ask_graph(Session& session) {
  const Header& header = session.content.header;
  std::vector<uint32_t> edges(header.rows * header.degree);
  uint32_t degree = 0;
  ann_error error = ANN_ERROR_INIT;
  const bool graph = header.graph != kGraphNone;
  ann_status status = ann_index_graph(session.index, edges.data(), edges.size(), &degree, &error);
  if (!graph) {
    DEMAND(status == ANN_UNSUPPORTED, "%s", ann_status_name(status));
    return;
  }
  if (session.accept(status, error)) {
    DEMAND(degree == header.degree, "degree is %u", degree);
    check_edges(edges, header.rows);
    session.note(edges.data(), edges.size());
  }
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  status = ann_index_graph_stats(session.index, &stats, &error);
  if (session.accept(status, error)) {
    DEMAND(stats.rows == header.rows && stats.edges <= edges.size() && stats.unreachable <= stats.rows &&
               stats.weak_components <= stats.strong_components && stats.strong_components <= stats.rows &&
               stats.in_degree_min <= stats.in_degree_max,
           "impossible measures");
    session.note(&stats, 1);
  }
  uint32_t beam = 0;
  status = ann_index_beam(session.index, kAnswers, 0.9f, &beam, &error);
  DEMAND(status == ANN_OK && beam >= kAnswers && beam <= ANN_BEAM_MAX, "the beam is %u", beam);
  session.note(&beam, 1);
}

void ask_state(Session& session) {
  const Header& header = session.content.header;
  ann_index_info info = ANN_INDEX_INFO_INIT;
  DEMAND(ann_index_get_info(session.index, &info, nullptr) == ANN_OK, "no state");
  DEMAND(info.built == 1 && info.rows == header.rows && info.dim == header.dim &&
             info.metric == static_cast<int32_t>(header.metric) &&
             info.element == static_cast<int32_t>(header.element) && info.degree == header.degree &&
             info.entry_points == header.entries && info.seed == header.seed,
         "the state is not that of the file");
}

/// Saves an index that gave `wanted`, and asks the saved one the same.
void save_and_compare(BoundedContext& context, const ann_index* index, const std::vector<uint8_t>& file,
                      const FileContent& content, const Record& wanted, uint32_t threads) {
  std::vector<uint8_t> saved;
  const ann_status status = save_to(index, threads, &saved);
  DEMAND(status == ANN_OK, "saving what was opened: %s", ann_status_name(status));
  DEMAND(!content.only_known || saved == file, "the saved file is another");
  const PagedBytes bytes(saved);
  ann_index* again = nullptr;
  const ann_status opened = open_bytes(context, bytes, Way::kStream, ANN_OPEN_FULL, threads, &again);
  DEMAND(opened == ANN_OK, "opening what was saved: %s", ann_status_name(opened));
  DEMAND(exercise(again, content, true) == wanted, "the saved index answers otherwise");
  ann_index_free(again);
}

/// An index over the bytes themselves: as the checked one, or, where there is none, damage that is met
/// or does not matter. What it saves is sound.
void exercise_lazily(BoundedContext& context, const std::vector<uint8_t>& file, const PagedBytes& bytes,
                     const Record* wanted, uint32_t threads) {
  ann_index* index = nullptr;
  const ann_status status = open_bytes(context, bytes, Way::kMemory, ANN_OPEN_LAZY, threads, &index);
  DEMAND(status == ANN_OK || wanted == nullptr, "FULL opens, LAZY does not: %s", ann_status_name(status));
  if (status != ANN_OK) return;
  const FileContent content = content_of(file);
  const Record record = exercise(index, content, wanted != nullptr);
  DEMAND(wanted == nullptr || record == *wanted, "FULL and LAZY answer otherwise");
  std::vector<uint8_t> saved;
  const ann_status save_status = save_to(index, threads, &saved);
  if (save_status == ANN_OK) {
    const PagedBytes saved_bytes(saved);
    DEMAND(verify_bytes(saved_bytes, threads) == ANN_OK, "a lazily opened file is saved unsound");
    DEMAND(wanted == nullptr || !content.only_known || saved == file, "the saved file is another");
  } else {
    DEMAND(save_status == ANN_CORRUPT && wanted == nullptr, "%s", ann_status_name(save_status));
  }
  ann_index_free(index);
}

/// The minor version that a section came with.
uint16_t minor_of(uint32_t type) {
  switch (type) {
    case kQueries:
      return kMinorWithQueries;
    case kDeviceCurves:
      return kMinorWithDeviceCurves;
    case kLayers:
      return kMinorWithLayers;
    case kPrefixes:
      return kMinorWithVariableRows;
    case kScaledCodes:
      return kMinorWithScaledCodes;
    case kSlackCurves:
      return kMinorWithSlackCurves;
    case kCodeOrder:
      return kMinorWithCodeOrder;
    case kProjectedCodes:
      return kMinorWithProjectedCodes;
    case kFirstCurves:
      return kMinorWithFirstCurves;
    case kCoveringHeads:
    case kCoveringCurves:
      return kMinorWithCoveringHeads;
    case kHalfCodes:
      return kMinorWithHalfCodes;
    default:
      return kMinor;
  }
}

}  // namespace

bool FileContent::has_id(uint64_t id) const {
  return ids.empty() ? id < header.rows : std::find(ids.begin(), ids.end(), id) != ids.end();
}

FileContent content_of(const std::vector<uint8_t>& file) {
  FileContent content;
  content.header = header_of(file);
  const Header& header = content.header;
  const uint64_t groups =
      header.graph != kGraphNone ? header.features & (kFeatureEntryGroups | kFeatureSlackGroups) : 0;
  content.only_known =
      header.features == groups && header.features_to_write == 0 &&
      (header.features_to_read & kFeatureSlackSpread) == 0 &&
      header.writer == (ANN_VERSION_MAJOR << 16 | ANN_VERSION_MINOR << 8 | ANN_VERSION_PATCH);
  Section table[kSectionsMax];
  const uint32_t sections = table_of(file, table);
  uint16_t minor = (groups & kFeatureSlackGroups) != 0 ? kMinorWithSlackGroups
                   : groups != 0                       ? kMinorWithEntryGroups
                                                       : kMinor;  // that has all that the file has
  for (uint32_t i = 0; i < sections; ++i) {
    const uint8_t* data = file.data() + table[i].offset;
    minor = std::max(minor, minor_of(table[i].type));
    if (table[i].type == kRows) content.rows.assign(data, data + table[i].bytes);
    if (table[i].type == kIds) {
      content.ids.resize(table[i].items);
      std::memcpy(content.ids.data(), data, table[i].bytes);
    }
    if (!is_known(table[i].type)) content.only_known = false;
  }
  content.only_known = content.only_known && header.minor == minor;
  return content;
}

Record exercise(const ann_index* index, const FileContent& content, bool checked) {
  Session session{index, content, checked, {}};
  const std::vector<uint8_t> queries = make_queries(content);
  ask_state(session);
  ask_neighbours(session, queries, false);
  ask_neighbours(session, queries, true);
  ask_rows(session);
  ask_graph(session);
  return std::move(session.record);
}

ann_status save_to(const ann_index* index, uint32_t threads, std::vector<uint8_t>* out) {
  ann_writer writer = ANN_WRITER_INIT;
  writer.user = out;
  writer.write = [](void* user, const void* data, uint64_t bytes) -> int64_t {
    const uint8_t* from = static_cast<const uint8_t*>(data);
    static_cast<std::vector<uint8_t>*>(user)->insert(static_cast<std::vector<uint8_t>*>(user)->end(), from,
                                                     from + bytes);
    return static_cast<int64_t>(bytes);
  };
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.threads = threads;
  return ann_save_stream(index, &writer, &params, nullptr, nullptr);
}

ann_status open_and_exercise(const std::vector<uint8_t>& file, uint32_t threads) {
  const PagedBytes bytes(file);
  BoundedContext context(open_budget(file.size()));
  ann_index* index = nullptr;
  const ann_status status = open_bytes(context, bytes, Way::kMemory, ANN_OPEN_FULL, threads, &index);
  context.memory().set_budget(work_budget(file.size(), std::min(header_of(file).dim, ANN_DIM_MAX)));
  if (status == ANN_OK) {
    const FileContent content = content_of(file);
    const Record record = exercise(index, content, true);
    save_and_compare(context, index, file, content, record, threads);
    exercise_lazily(context, file, bytes, &record, threads);
    ann_index_free(index);
  } else {
    exercise_lazily(context, file, bytes, nullptr, threads);
  }
  return status;
}

}  // namespace gannet::fuzz
