// Proves that a hostile file, whose sums are good, is refused or harmless.
//
//   Fields   Every pair of fields of header, section table and tail gets every pair of boundary
//            values: 0, 1, 2, 2^31 - 1, 2^31, 2^32 - 1, 2^63, 2^64 - 1, n - 1, n, n + 1, NaN and
//            infinity. (a) With the sums of header, table and tail made good and the content id left:
//            refused, or the answers are those of the original, bit for bit. (b) With everything made
//            good: no crash, no hang, no memory that the file does not back, and if the file opens,
//            no id that it does not hold; saved again it is the same file, so nothing in it was
//            overlooked.
//   Values   Items of every section get values that the specification forbids, and some that it
//            allows. With all sums good, FULL opens the file if and only if a second reading of the
//            specification (forged.cpp) finds it lawful. LAZY may find it out later, or never where
//            it does not look; it must not crash or return an id that the file does not hold.
//   Later    Files of later minor versions, with features and sections of theirs, as section 7 of the
//            specification demands.
//
//     fault_forgery        some 10^5 files
//     GANNET_FAULT_SCALE=1 fault_forgery    all pairs: some millions
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.h"
#include "forged.h"
#include "support.h"

using namespace fault;
using namespace gannet::format;

namespace {

using Long = unsigned long long;  // for printf

struct Counts {
  uint64_t files = 0;
  uint64_t refused = 0;
  uint64_t opened = 0;
  uint64_t lazy_refused = 0;
  uint64_t lazy_opened = 0;
  uint64_t memory_peak = 0;  // above the size of the file, while opening it

  void add(const Counts& other) {
    files += other.files;
    refused += other.refused;
    opened += other.opened;
    lazy_refused += other.lazy_refused;
    lazy_opened += other.lazy_opened;
    memory_peak = std::max(memory_peak, other.memory_peak);
  }
};

// --- Memory that is counted -----------------------------------------------------------------------

/// A context that counts what the library takes.
class Meter {
 public:
  Meter() {
    ann_context_params params = ANN_CONTEXT_PARAMS_INIT;
    params.allocate = [](void* user, size_t bytes, size_t alignment) {
      auto* meter = static_cast<Meter*>(user);
      void* memory = nullptr;
      // More than any of these files can back is refused, and shows in the peak.
      const bool sane = bytes < uint64_t{1} << 30;
      if (sane && posix_memalign(&memory, alignment, bytes) != 0) memory = nullptr;
      meter->live_ += bytes;
      meter->peak_ = std::max(meter->peak_, meter->live_);
      if (memory == nullptr) meter->live_ -= bytes;
      return memory;
    };
    params.release = [](void* user, void* memory, size_t bytes, size_t) {
      static_cast<Meter*>(user)->live_ -= bytes;
      std::free(memory);
    };
    params.user = this;
    CHECK_OK(ann_context_create(&params, &context_, nullptr));
  }
  ~Meter() { ann_context_free(context_); }
  Meter(const Meter&) = delete;

  ann_context* context() const { return context_; }
  void reset() { peak_ = live_; }
  uint64_t peak() const { return peak_; }
  uint64_t live() const { return live_; }

 private:
  ann_context* context_ = nullptr;
  uint64_t live_ = 0;
  uint64_t peak_ = 0;
};

// --- Judging a file -------------------------------------------------------------------------------

constexpr uint64_t kSpare = 64 << 10;  // for tables of fixed size, whatever the file

class Judge {
 public:
  explicit Judge(const Made& made) : made_(made) {}
  Counts counts;

  /// Opens a forged file FULL and LAZY. `same`: whatever opens must answer as the original.
  /// Returns whether FULL opens it.
  bool judge(const Bytes& file, bool same, const char* text) {
    if (counts.files++ % 256 == 0) alarm(60);  // a hang is a failure, not a wait
    std::snprintf(being_tried, sizeof being_tried, "%s: %s", made_.name.c_str(), text);
    const bool full = judge_mode(file, ANN_OPEN_FULL, same, text);
    const bool lazy = judge_mode(file, ANN_OPEN_LAZY, same, text);
    ++(full ? counts.opened : counts.refused);
    ++(lazy ? counts.lazy_opened : counts.lazy_refused);
    CHECK_SAY(lazy || !full, "%s: %s: FULL opens what LAZY refuses", made_.name.c_str(), text);
    return full;
  }

 private:
  bool judge_mode(const Bytes& file, int32_t mode, bool same, const char* text) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = mode;
    params.threads = 1;
    ann_index* opened = nullptr;
    meter_.reset();
    const uint64_t before = meter_.live();
    const ann_status status =
        ann_open_memory(meter_.context(), file.data(), file.size(), &params, &opened, nullptr, nullptr);
    const uint64_t taken = meter_.peak() - before;
    counts.memory_peak = std::max(counts.memory_peak, taken > file.size() ? taken - file.size() : 0);
    CHECK_SAY(taken <= file.size() + kSpare, "%s: %s: takes %llu bytes to open %llu", made_.name.c_str(),
              text, static_cast<Long>(taken), static_cast<Long>(file.size()));
    if (status != ANN_OK) {
      CHECK_SAY((status == ANN_CORRUPT || status == ANN_VERSION) && opened == nullptr, "%s: %s: answers %s",
                made_.name.c_str(), text, ann_status_name(status));
      return false;
    }
    if (same) {
      CHECK_SAY(made_.answers(opened) == made_.expected, "%s: %s: another answer", made_.name.c_str(), text);
    } else {
      for (const bool exact : {false, true}) probe(opened, file, mode, exact, text);
    }
    if (mode == ANN_OPEN_FULL) check_saved_again(opened, file, text);
    ann_index_free(opened);
    CHECK_SAY(meter_.live() == before, "%s: %s: memory leaks", made_.name.c_str(), text);
    return true;
  }

  /// Searches in whatever the file says that it is; all ids must be of its rows.
  void probe(const ann_index* opened, const Bytes& file, int32_t mode, bool exact, const char* text) {
    constexpr uint32_t kWanted = 5;
    ann_index_info info = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_index_get_info(opened, &info, nullptr));
    std::vector<uint8_t> query(size_t{info.dim} * element_size(info.element));
    for (uint32_t column = 0; column < info.dim; ++column)
      put_value(info.element, query.data() + column * element_size(info.element), 0.25 * (column % 7) - 0.5);
    ann_matrix view = ANN_MATRIX_INIT;
    view.element = info.element;
    view.data = query.data();
    view.rows = 1;
    view.dim = info.dim;
    uint64_t ids[kWanted];
    float distances[kWanted];
    uint32_t count = 0;
    ann_results results = ANN_RESULTS_INIT;
    results.k = kWanted;
    results.rows = 1;
    results.ids = ids;
    results.distances = distances;
    results.counts = &count;
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.threads = 1;
    const auto search = exact ? ann_search_exact : ann_search_batch;
    const ann_status status = search(opened, &view, &params, &results, nullptr, nullptr);
    const bool found_out = status == ANN_CORRUPT && mode == ANN_OPEN_LAZY;
    CHECK_SAY(status == ANN_OK || found_out, "%s: %s: a search answers %s", made_.name.c_str(), text,
              ann_status_name(status));
    if (status != ANN_OK) return;
    CHECK_SAY(count <= kWanted, "%s: %s: %u answers", made_.name.c_str(), text, count);
    for (uint32_t i = 0; i < kWanted; ++i)
      CHECK_SAY(i < count ? legal_id(file, ids[i]) : ids[i] == ANN_ID_NONE, "%s: %s: an id that no row has",
                made_.name.c_str(), text);
  }

  /// Who wrote a file, and what of it may be ignored and is not known, is not kept.
  void check_saved_again(const ann_index* opened, const Bytes& file, const char* text) {
    const Bytes again = saved(opened);
    Bytes wanted = file;
    Header header = header_of(file);
    if ((header.features_to_read & kFeatureSlackSpread) != 0) return;  // has curves that are not kept
    const Header made = header_of(made_.file);
    header.features = header.graph != kGraphNone
                          ? header.features & (kFeatureEntryGroups | kFeatureSlackGroups)
                          : made.features;
    header.minor = made.minor >= kMinorWithCoveringHeads          ? made.minor
                   : (header.features & kFeatureSlackGroups) != 0 ? kMinorWithSlackGroups
                   : (header.features & kFeatureEntryGroups) != 0 ? kMinorWithEntryGroups
                                                                  : made.minor;
    header.features_to_write = made.features_to_write;
    header.writer = made.writer;
    std::memcpy(wanted.data(), &header, sizeof header);
    mend(wanted, Mending::kSums);
    const bool unknown_sections = header.sections != header_of(again).sections;
    CHECK_SAY(unknown_sections || again == wanted, "%s: %s: saved again it is another file",
              made_.name.c_str(), text);
  }

  const Made& made_;
  Meter meter_;
};

// --- Fields ---------------------------------------------------------------------------------------

struct Field {
  std::string name;
  uint64_t offset;
  uint32_t bytes;
  bool content_only = false;  // mending everything would overwrite it
};

#define HEADER_FIELD(member) \
  Field { #member, offsetof(Header, member), sizeof(Header::member) }
#define SECTION_FIELD(member) \
  Field { #member, offsetof(Section, member), sizeof(Section::member) }

std::vector<Field> fields_of(const Bytes& file) {
  std::vector<Field> fields = {HEADER_FIELD(byte_order),
                               HEADER_FIELD(major),
                               HEADER_FIELD(minor),
                               HEADER_FIELD(features),
                               HEADER_FIELD(features_to_write),
                               HEADER_FIELD(features_to_read),
                               HEADER_FIELD(file_bytes),
                               HEADER_FIELD(sections),
                               HEADER_FIELD(zero_68),
                               HEADER_FIELD(table_offset),
                               HEADER_FIELD(writer),
                               HEADER_FIELD(metric),
                               HEADER_FIELD(element),
                               HEADER_FIELD(graph),
                               HEADER_FIELD(rows),
                               HEADER_FIELD(dim),
                               HEADER_FIELD(degree),
                               HEADER_FIELD(entries),
                               HEADER_FIELD(has_ids),
                               HEADER_FIELD(seed),
                               HEADER_FIELD(row_stride),
                               HEADER_FIELD(code_stride),
                               HEADER_FIELD(codes),
                               HEADER_FIELD(knn_iterations),
                               HEADER_FIELD(repaired_edges),
                               HEADER_FIELD(recall_max),
                               HEADER_FIELD(code_factor),
                               HEADER_FIELD(zero_180),
                               HEADER_FIELD(norm_max)};
  fields.push_back({"zeros", offsetof(Header, zeros) + 1000, 8});
  fields.push_back({"content_id", offsetof(Header, content_id), 8, true});
  const std::vector<Section> table = table_of(file);
  for (size_t i = 0; i < table.size(); ++i)
    for (Field field :
         {SECTION_FIELD(type), SECTION_FIELD(flags), SECTION_FIELD(offset), SECTION_FIELD(bytes),
          SECTION_FIELD(item_bytes), SECTION_FIELD(zero), SECTION_FIELD(items), SECTION_FIELD(chunk_bytes),
          SECTION_FIELD(sums_offset), SECTION_FIELD(sums_sum)}) {
      field.content_only = field.name == "sums_sum";
      field.name += " of section " + std::to_string(table[i].type);
      field.offset += kPage + i * sizeof(Section);
      fields.push_back(field);
    }
  return fields;
}

std::vector<uint64_t> boundary_values(uint64_t rows) {
  return {0,
          1,
          2,
          0x7fffffff,
          0x80000000,
          0xffffffff,
          uint64_t{1} << 63,
          UINT64_MAX,
          rows - 1,
          rows,
          rows + 1,
          0x7f800000,
          0x7fc00000,  // f32 infinity and NaN
          0x7ff0000000000000,
          0x7ff8000000000000};  // f64 likewise
}

/// Whether the field got another value.
bool put(Bytes& file, const Field& field, uint64_t value) {
  const bool changes = std::memcmp(file.data() + field.offset, &value, field.bytes) != 0;
  std::memcpy(file.data() + field.offset, &value, field.bytes);
  return changes;
}

void forge_fields(const Made& made, Mending mending, uint64_t step, Judge& judge) {
  const std::vector<uint64_t> values = boundary_values(made.kind.rows);
  const std::vector<Field> fields = fields_of(made.file);
  uint64_t turn = 0;
  Bytes file = made.file;
  for (size_t i = 0; i < fields.size(); ++i)
    for (size_t j = i; j < fields.size(); ++j)
      for (const uint64_t first : values)
        for (const uint64_t second : values) {
          if (i == j && first != second) continue;  // one field alone
          if (mending == Mending::kAll && (fields[i].content_only || fields[j].content_only)) continue;
          if (turn++ % step != 0) continue;
          const bool changes_first = put(file, fields[i], first);
          const bool changes_second = put(file, fields[j], second);
          if (changes_first || changes_second) {
            mend(file, mending);
            char text[160];
            std::snprintf(text, sizeof text, "%s = %llx, %s = %llx, %s", fields[i].name.c_str(),
                          static_cast<Long>(first), fields[j].name.c_str(), static_cast<Long>(second),
                          mending == Mending::kAll ? "all mended" : "sums mended");
            judge.judge(file, mending == Mending::kSums, text);
          }
          std::memcpy(file.data(), made.file.data(), file.size());
        }
}

/// The tail's own fields, with its own sum made good.
void forge_tail(const Made& made, Judge& judge) {
  for (const Field& field :
       {Field{"magic", offsetof(Tail, magic), 8}, Field{"content_id", offsetof(Tail, content_id), 8},
        Field{"content_id, second half", offsetof(Tail, content_id) + 8, 8},
        Field{"file_bytes", offsetof(Tail, file_bytes), 8},
        Field{"header_sum", offsetof(Tail, header_sum), 8}, Field{"zeros", offsetof(Tail, zeros), 8},
        Field{"zeros, second half", offsetof(Tail, zeros) + 8, 8}})
    for (const uint64_t value : boundary_values(made.kind.rows)) {
      Bytes file = made.file;
      Field place = field;
      place.offset += file.size() - sizeof(Tail);
      if (!put(file, place, value)) continue;
      Tail tail;
      std::memcpy(&tail, file.data() + file.size() - sizeof tail, sizeof tail);
      tail.sum = sum(&tail, offsetof(Tail, sum));
      std::memcpy(file.data() + file.size() - sizeof tail, &tail, sizeof tail);
      CHECK_SAY(!judge.judge(file, true, field.name.c_str()), "%s: the tail's %s is not looked at",
                made.name.c_str(), field.name.c_str());
    }
}

// --- Values ---------------------------------------------------------------------------------------

void judge_values(const Bytes& file, const char* text, const Made& made, Judge& judge) {
  const bool wanted = lawful(file);
  const bool opens = judge.judge(file, false, text);
  CHECK_SAY(opens == wanted, "%s: %s: FULL %s a file that is %s", made.name.c_str(), text,
            opens ? "opens" : "refuses", wanted ? "lawful" : "not lawful");
}

/// Every `step`-th word of every section, at each width, gets boundary values.
void forge_values(const Made& made, uint64_t step, Judge& judge) {
  std::vector<uint64_t> values = boundary_values(made.kind.rows);
  for (const uint64_t more : {uint64_t{0xff800000}, uint64_t{0xbf800000}, uint64_t{0x7c00}, uint64_t{0x7f80},
                              uint64_t{0x7e00}, uint64_t{3}, uint64_t{65537}, uint64_t{0x3ff0000000000001},
                              uint64_t{0x7f7fffff}, uint64_t{0xff7fffff}})
    values.push_back(more);
  uint64_t turn = 0;
  for (const Section& section : table_of(made.file))
    for (const uint32_t width : {2u, 4u, 8u})
      for (uint64_t at = 0; at + width <= section.bytes; at += width)
        for (const uint64_t value : values) {
          // The first items and the last are where rules begin and end.
          const bool edge = at < 64 || at + 64 >= section.bytes;
          if (turn++ % (edge ? (step + 7) / 8 : step) != 0) continue;
          Bytes file = made.file;
          const Field field{"", section.offset + at, width};
          if (!put(file, field, value)) continue;
          mend(file, Mending::kAll);
          char text[120];
          std::snprintf(text, sizeof text, "section %u, byte %llu, %u bytes = %llx", section.type,
                        static_cast<Long>(at), width, static_cast<Long>(value));
          judge_values(file, text, made, judge);
        }
}

/// What single words do not show: items of a section exchanged or made equal.
void forge_items(const Made& made, uint64_t count, Judge& judge) {
  uint64_t seed = 7;
  for (const Section& section : table_of(made.file)) {
    const uint32_t width = section.item_bytes;
    if (section.items < 2) continue;
    for (uint64_t i = 0; i < count; ++i) {
      Bytes file = made.file;
      uint8_t* a = file.data() + section.offset + random_next(&seed) % section.items * width;
      uint8_t* b = file.data() + section.offset + random_next(&seed) % section.items * width;
      if (i % 2 == 0) {
        std::swap_ranges(a, a + width, b);
      } else {
        std::memmove(a, b, width);
      }
      if (file == made.file) continue;
      mend(file, Mending::kAll);
      char text[80];
      std::snprintf(text, sizeof text, "section %u, items %s", section.type,
                    i % 2 == 0 ? "exchanged" : "made equal");
      judge_values(file, text, made, judge);
    }
  }
}

/// The status of opening, and of reading all edges where that opens.
ann_status read_edges(const Bytes& file, int32_t mode) {
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = mode;
  ann_index* opened = nullptr;
  ann_status status = ann_open_memory(nullptr, file.data(), file.size(), &params, &opened, nullptr, nullptr);
  if (status == ANN_OK) {
    const Header header = header_of(file);
    std::vector<uint32_t> edges(header.rows * header.degree);
    uint32_t degree = 0;
    status = ann_index_graph(opened, edges.data(), edges.size(), &degree, nullptr);
  }
  ann_index_free(opened);
  return status;
}

/// A row of edges that two chunks share: what is wrong with it shows in neither alone.
void cut_rows() {
  const Made made({ANN_METRIC_L2, ANN_U8, true, false, 4, 6000}, 1, 48);
  Section edges = {};
  for (const Section& section : table_of(made.file))
    if (section.type == kEdges) edges = section;
  const uint64_t row_bytes = header_of(made.file).degree * sizeof(uint32_t);
  CHECK(edges.bytes > kChunkBytes && kChunkBytes % row_bytes != 0);
  for (const bool hole : {true, false}) {
    Bytes file = made.file;
    const uint64_t cut = edges.offset + kChunkBytes;
    const uint64_t row_end = edges.offset + (kChunkBytes / row_bytes + 1) * row_bytes;
    put(file, {"", cut - 4, 4}, UINT32_MAX);
    for (uint64_t at = cut; at < row_end; at += 4) put(file, {"", at, 4}, hole ? 0 : UINT32_MAX);
    mend(file, Mending::kAll);
    CHECK(lawful(file) != hole);
    const ann_status wanted = hole ? ANN_CORRUPT : ANN_OK;
    CHECK_STATUS(read_edges(file, ANN_OPEN_FULL), wanted);
    CHECK_STATUS(read_edges(file, ANN_OPEN_LAZY), wanted);
    const Folder folder;
    write_file(folder.path("cut"), file.data(), file.size());
    CHECK_STATUS(ann_verify(folder.path("cut").c_str(), nullptr, nullptr, nullptr), wanted);
  }
}

// --- Later versions -------------------------------------------------------------------------------

ann_status open_status(const Bytes& file) {
  ann_index* opened = nullptr;
  const ann_status status =
      ann_open_memory(nullptr, file.data(), file.size(), nullptr, &opened, nullptr, nullptr);
  ann_index_free(opened);
  return status;
}

void later_versions(const Made& made, Judge& judge) {
  const auto changed = [&](const auto& change) {
    Bytes file = made.file;
    Header header = header_of(file);
    change(header);
    std::memcpy(file.data(), &header, sizeof header);
    mend(file, Mending::kAll);
    return file;
  };
  CHECK(judge.judge(changed([](Header& h) { h.minor = 13; }), true, "a later minor"));
  CHECK(judge.judge(changed([](Header& h) { h.features = 5; }), true, "features to ignore"));
  CHECK(judge.judge(changed([](Header& h) { h.features_to_write = 5; }), true, "features to write"));
  CHECK_STATUS(open_status(changed([](Header& h) { h.major = 2; })), ANN_VERSION);
  CHECK_STATUS(open_status(changed([](Header& h) { h.features_to_read = 8; })), ANN_VERSION);
  CHECK_STATUS(open_status(changed([](Header& h) { h.features_to_read = 1; })), ANN_CORRUPT);  // of layers
  for (const uint32_t type : {27u, 31u, 63u, UINT32_MAX})
    for (const uint64_t bytes : {0, 1, 100, 4096, 5000, 3000000}) {
      const Bytes optional = with_section(made.file, type, kSkippable, bytes);
      CHECK_SAY(judge.judge(optional, true, "a section to skip"), "%s: refused with a section to skip",
                made.name.c_str());
      CHECK_STATUS(open_status(with_section(made.file, type, 0, bytes)), ANN_VERSION);
      CHECK_STATUS(open_status(with_section(made.file, type, 3, bytes)), ANN_CORRUPT);
    }
}

/// What a small index of the CPU never has.
Made with_rare_sections() {
  Made made({ANN_METRIC_L2, ANN_U8, true, false, 256, 40}, 1);
  made.name += "-projected-measured";
  made.file = with_covering_heads(with_device_curves(with_projection(made.file)));
  ann_index* opened = nullptr;
  CHECK_OK(ann_open_memory(nullptr, made.file.data(), made.file.size(), nullptr, &opened, nullptr, nullptr));
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(opened, &info, nullptr));
  CHECK(info.codes == ANN_CODES_PROJECTED && info.code_bytes == 64 && info.code_first_ten == 0.5f);
  made.expected = made.answers(opened);
  ann_index_free(opened);
  return made;
}

}  // namespace

int main() {
  tell_if_it_dies();
  const uint64_t step = fault_scale(256);
  Counts fields, values;
  cut_rows();
  std::vector<Made> all;
  for (const Kind& kind : few_kinds()) all.emplace_back(kind, 1);
  const auto has_halves = [](const Made& made) { return header_of(made.file).minor == kMinorWithHalfCodes; };
  CHECK(std::any_of(all.begin(), all.end(), has_halves));
  all.push_back(with_rare_sections());
  for (const Made& made : all) {
    Judge of_fields(made), of_values(made);
    forge_fields(made, Mending::kSums, step, of_fields);
    forge_fields(made, Mending::kAll, step, of_fields);
    forge_tail(made, of_fields);
    forge_values(made, (step + 3) / 4, of_values);
    forge_items(made, 2000 / std::min<uint64_t>(step, 20), of_values);
    later_versions(made, of_fields);
    fields.add(of_fields.counts);
    values.add(of_values.counts);
  }
  CHECK(fields.files >= 1000 && values.files >= 1000);
  CHECK(fields.opened > 0 && values.opened > 0 && values.refused > 0);
  for (const auto& [name, counts] : {std::pair{"fields", fields}, std::pair{"values", values}})
    std::printf(
        "forged %s: %llu files; FULL refused %llu, opened %llu; LAZY refused %llu, opened "
        "%llu; at most %llu bytes more than the file were taken to open one\n",
        name, static_cast<Long>(counts.files), static_cast<Long>(counts.refused),
        static_cast<Long>(counts.opened), static_cast<Long>(counts.lazy_refused),
        static_cast<Long>(counts.lazy_opened), static_cast<Long>(counts.memory_peak));
  return finish("forgery");
}
