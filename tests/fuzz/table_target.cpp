// Target "table": header and section table alone, of files of any size.
//
// What a file of gigabytes says about itself decides every product and every offset of a reader, and
// no file that a fuzzer can afford to make has such numbers. So the file here is a front (header and
// table), a tail, and nothing but claimed zeros between them: up to 8 GB, and with a section that no
// reader knows up to the end of 64 bits, as a stream may claim to be long. It is laid out as its numbers
// demand, then damaged by the tables of the format, and repaired or not.
//
// What the reader accepts must be consistent by arithmetic of 128 bits; what was not damaged must be
// accepted; and no byte beyond the file may be asked for.
//
// Input: the shape, field by field; a byte that says whether to repair; then, until the input ends, bytes
// of damage.
#include <algorithm>
#include <cstring>

#include "bounded_memory.h"
#include "damage.h"
#include "dataset/codes.h"
#include "demand.h"
#include "repair.h"
#include "storage/map.h"

using namespace gannet;
using namespace gannet::format;
using namespace gannet::fuzz;

namespace {

using Wide = unsigned __int128;

constexpr uint64_t kUsualBytesMax = uint64_t{8} << 30;
/// Damaged entries may claim 64 sections of 8 GB each; their sums are what the reader takes memory for.
constexpr uint64_t kRegionBytesMax = 8 << 20;
/// Longer fronts are not repaired: they cost a hundred times as much and say nothing new.
constexpr uint64_t kFrontBytesMax = 256 << 10;
constexpr uint32_t kDamagesMax = 6;

class SparseFile final : public Source {
 public:
  SparseFile(const std::vector<uint8_t>& front, const Tail& tail, uint64_t bytes)
      : front_(front), tail_(tail), bytes_(bytes) {}

  uint64_t bytes() const override { return bytes_; }
  void read(uint64_t offset, void* out, uint64_t count) override {
    DEMAND(offset <= bytes_ && count <= bytes_ - offset, "[%llu, + %llu) is read of %llu bytes",
           static_cast<unsigned long long>(offset), static_cast<unsigned long long>(count),
           static_cast<unsigned long long>(bytes_));
    if (count == 0) return;
    std::memset(out, 0, count);
    copy(front_.data(), 0, std::min<uint64_t>(front_.size(), bytes_), offset, out, count);
    if (bytes_ >= sizeof tail_) copy(&tail_, bytes_ - sizeof tail_, sizeof tail_, offset, out, count);
  }

 private:
  /// Copies what `piece`, which lies at `at`, has of [offset, offset + count).
  static void copy(const void* piece, uint64_t at, uint64_t size, uint64_t offset, void* out,
                   uint64_t count) {
    const uint64_t from = std::max(at, offset);
    const uint64_t to = std::min(at + size, offset + count);
    if (from < to)
      std::memcpy(static_cast<uint8_t*>(out) + (from - offset),
                  static_cast<const uint8_t*>(piece) + (from - at), to - from);
  }

  const std::vector<uint8_t>& front_;
  const Tail& tail_;
  uint64_t bytes_;
};

/// Small, at an edge, or any: each as likely.
uint64_t choose(Input& input, uint64_t least, uint64_t most) {
  switch (input.below(4)) {
    case 0:
      return std::min(most, least + input.byte());
    case 1:
      return most - std::min(most - least, input.below(4));
    default:
      return least + input.below(most - least + 1);
  }
}

Header read_header(Input& input, Calibrated* calibrated) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.byte_order = kByteOrder;
  header.major = kMajor;
  header.table_offset = kPage;
  header.metric = static_cast<uint32_t>(1 + input.below(3));
  header.element = static_cast<uint32_t>(1 + input.below(5));
  header.graph = input.below(4) == 0 ? kGraphNone : kGraphCagra;
  header.dim = static_cast<uint32_t>(choose(input, 1, ANN_DIM_MAX));
  header.rows = choose(input, 0, ANN_ROWS_MAX);
  const int32_t metric = static_cast<int32_t>(header.metric);
  const int32_t element = static_cast<int32_t>(header.element);
  header.row_stride = Dataset::stored_stride(header.dim, metric, element);
  if (header.graph == kGraphCagra) {
    header.degree = static_cast<uint32_t>(choose(input, 2, ANN_DEGREE_MAX));
    calibrated->curves = static_cast<uint32_t>(input.below(kCurvesMax + 1));
    if (input.below(4) == 3)
      calibrated->slack_curves = static_cast<uint32_t>(1 + input.below(kSlackCurvesMax));
    if (input.below(4) == 3) calibrated->queries = choose(input, 1, kQueriesMax);
    if (input.below(4) == 3) {
      calibrated->device_curves = static_cast<uint32_t>(choose(input, 1, kDeviceCurvesMax));
      calibrated->first_curves = static_cast<uint32_t>(input.below(kFirstCurvesMax + 1));
    }
    if (input.below(8) == 7) {
      calibrated->covering_heads = static_cast<uint32_t>(choose(input, 1, kCoveringHeadsMax));
      calibrated->covering_curves = static_cast<uint32_t>(1 + input.below(kSlackCurvesMax));
    }
    header.codes = Codes::rows_serve(metric, element, false) ? kCodesRows
                   : input.below(2) == 0                     ? kCodesBytes
                                                             : kCodesFloats;
    if (header.codes != kCodesRows)
      header.code_stride = Codes::code_stride(header.dim, metric, header.codes == kCodesFloats);
  }
  // So many rows as leave the file below its limit, whatever a row takes.
  const uint64_t row_bytes = header.row_stride + 2 * header.code_stride + uint64_t{header.degree} * 4 + 32;
  header.rows = std::min(header.rows, (kUsualBytesMax / 2 >> input.below(16)) / row_bytes);
  if (header.rows > 0) {
    header.has_ids = static_cast<uint32_t>(input.below(2));
    if (header.graph == kGraphCagra)
      header.entries = static_cast<uint32_t>(choose(input, 1, std::min<uint64_t>(header.rows, 4096)));
    if (header.codes == kCodesFloats && input.below(2) == 1)
      calibrated->half_bytes = static_cast<uint32_t>(Codes::half_stride(header.dim, metric, element));
  }
  return header;
}

/// Adds a section of unknown type, up to the end of 64 bits.
void add_unknown(Header& header, Section* table, Input& input) {
  Section& section = table[header.sections++] = {};
  section.type = static_cast<uint32_t>(27 + input.below(37));
  section.flags = kSkippable;
  section.item_bytes = 1;
  const uint64_t less = choose(input, 0, uint64_t{4} << 20);
  section.bytes = section.items =
      input.below(2) == 0 ? less : UINT64_MAX >> input.below(16) << input.below(2);
  if (section.bytes != less) section.bytes = section.items = section.bytes - less;
  section.chunk_bytes = kChunkBytes;
}

/// Header, table and sums of an undamaged file, the sums of all chunks zero.
std::vector<uint8_t> make_front(Header header, const Calibrated& calibrated, Input& input) {
  Section table[kSectionsMax] = {};
  header.sections = demanded_sections(header, calibrated, table);
  if (input.below(4) == 3) add_unknown(header, table, input);
  header.file_bytes = place_sections(table, header.sections) + sizeof(Tail);
  // Where the table's end is beyond what is worth having, it is cut; the reader finds zeros.
  std::vector<uint8_t> front(std::min(table[0].offset, kFrontBytesMax));
  std::memcpy(front.data(), &header, sizeof header);
  std::memcpy(front.data() + kPage, table, header.sections * sizeof(Section));
  return front;
}

/// Of all sections, without end of 64 bits.
Wide all_bytes(const std::vector<uint8_t>& front) {
  Section table[kSectionsMax];
  const uint32_t sections = table_of(front, table);
  Wide total = 0;
  for (uint32_t i = 0; i < sections; ++i) total += table[i].bytes;
  return total;
}

/// Makes the sums right where the damaged table still says what they cover. The front grows to where
/// the reader takes the table to end; false if that is too far.
bool repair_front(std::vector<uint8_t>& front, Header* header) {
  std::memcpy(header, front.data(), sizeof *header);
  if (header->sections > kSectionsMax) return false;
  const uint64_t entries = header->sections * sizeof(Section);
  Section table[kSectionsMax] = {};
  front.resize(std::max<uint64_t>(front.size(), kPage + entries));
  if (entries != 0) std::memcpy(table, front.data() + kPage, entries);
  // By the reader's own arithmetic, right or wrong: that is what a hostile sender aims at.
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < header->sections; ++i) chunks += chunks_of(table[i].bytes);
  const uint64_t end = sections_offset(header->sections, chunks);
  if (end < kPage + entries || end > kFrontBytesMax) return false;
  front.resize(std::max<uint64_t>(front.size(), end));
  for (uint32_t i = 0; i < header->sections; ++i) {
    const uint64_t bytes = chunks_of(table[i].bytes) * sizeof(uint64_t);
    if (table[i].sums_offset <= front.size() && bytes <= front.size() - table[i].sums_offset)
      table[i].sums_sum = sum(front.data() + table[i].sums_offset, bytes);
  }
  if (entries != 0) std::memcpy(front.data() + kPage, table, entries);
  header->table_sum = sum(front.data() + kPage, end - kPage);
  content_id(*header, table, header->content_id);
  header->header_sum = header_sum(*header);
  std::memcpy(front.data(), header, sizeof *header);
  return true;
}

/// What an accepted header and table promise to the code behind them.
void check_map(const FileMap& map, uint64_t file_bytes) {
  const Header& header = map.header;
  DEMAND(header.file_bytes == file_bytes && header.rows <= ANN_ROWS_MAX && header.dim >= 1 &&
             header.dim <= ANN_DIM_MAX && header.sections <= kSectionsMax,
         "ranges");
  uint64_t end = kPage + map.bytes();
  for (uint32_t i = 0; i < header.sections; ++i) {
    const Section& section = map.table[i];
    DEMAND(section.offset >= end && section.offset % kPage == 0 &&
               section.bytes <= map.tail_offset() - section.offset,
           "section %u lies elsewhere", i);
    DEMAND(Wide{section.items} * section.item_bytes == section.bytes, "section %u", i);
    end = section.offset + section.bytes;
    const uint8_t* sums = reinterpret_cast<const uint8_t*>(map.sums(section));
    const Wide chunks = (Wide{section.bytes} + kChunkBytes - 1) / kChunkBytes;
    DEMAND(sums >= map.region.data() &&
               chunks * 8 <= static_cast<uint64_t>(map.region.data() + map.region.size() - sums),
           "the sums of section %u lie elsewhere", i);
  }
  const auto demand_bytes = [&](uint32_t type, bool there, Wide bytes) {
    const Section* section = map.find(type);
    DEMAND((section != nullptr) == there && (!there || section->bytes == bytes),
           "section %u is not as long as it is read", type);
  };
  const bool graph = header.graph != kGraphNone;
  const bool codes = header.codes == kCodesBytes || header.codes == kCodesFloats;
  demand_bytes(kRows, true, Wide{header.rows} * header.row_stride);
  demand_bytes(kIds, header.has_ids == 1, Wide{header.rows} * 8);
  demand_bytes(kOrder, header.has_ids == 1, Wide{header.rows} * 4);
  demand_bytes(kLengths, header.metric == ANN_METRIC_COSINE, Wide{header.rows} * 4);
  demand_bytes(kCentre, codes, Wide{code_columns(header)} * 4);
  demand_bytes(kCodes, codes, Wide{header.rows} * header.code_stride);
  demand_bytes(kEdges, graph, Wide{header.rows} * header.degree * 4);
  demand_bytes(kEntries, graph, Wide{header.entries} * 4);
  const Section* halves = map.find(kHalfCodes);
  DEMAND(halves == nullptr ||
             (header.codes == kCodesFloats && halves->items == header.rows &&
              halves->item_bytes >= header.dim * sizeof(uint16_t) && halves->item_bytes < header.code_stride),
         "half codes are not as long as they are read");
  const Section* queries = map.find(kQueries);
  DEMAND(queries == nullptr ||
             (graph && queries->items <= kQueriesMax && queries->item_bytes == query_bytes(header)),
         "queries are not as long as they are read");
  const Section* devices = map.find(kDeviceCurves);
  const Section* first = map.find(kFirstCurves);
  DEMAND(first == nullptr || (devices != nullptr && first->items >= 1 && first->items <= kFirstCurvesMax &&
                              first->item_bytes == sizeof(DeviceCurve)),
         "curves of first answers are not as many as they are read");
  const Section* covering = map.find(kCoveringHeads);
  const Section* curves = map.find(kCoveringCurves);
  DEMAND((covering == nullptr) == (curves == nullptr) &&
             (covering == nullptr ||
              (covering->items >= 1 && covering->items <= kCoveringHeadsMax && covering->item_bytes == 4 &&
               curves->items >= 1 && curves->items <= kSlackCurvesMax &&
               curves->item_bytes == sizeof(SlackCurve))),
         "covering heads or their curves are not as many as they are read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Calibrated calibrated;
  Header header = read_header(input, &calibrated);
  std::vector<uint8_t> front = make_front(header, calibrated, input);
  uint64_t bytes = header_of(front).file_bytes;
  const uint64_t how = input.below(8);
  bool sound = input.empty() && all_bytes(front) <= kUsualBytesMax;
  for (uint32_t i = 0; i < kDamagesMax && !input.empty(); ++i) damage_front(front, input);
  if (sound || how != 0) {
    sound &= repair_front(front, &header);
  } else {
    header = header_of(front);
  }
  if (how == 1) bytes = header.file_bytes;  // the file follows its header
  const Tail tail = tail_of(header);
  SparseFile file(front, tail, bytes);
  BoundedMemory memory(kRegionBytesMax + kPage);
  const bool immense = bytes > kUsualBytesMax;
  if (immense) memory.set_largest(kRegionBytesMax);
  try {
    const FileMap map(file, {}, memory.allocator());
    check_map(map, bytes);
  } catch (const Error& error) {
    DEMAND(!sound, "a legal file is refused: %s", error.message);
    DEMAND(error.status == ANN_CORRUPT || error.status == ANN_VERSION ||
               (immense && (error.status == ANN_NO_MEMORY || error.status == ANN_LIMIT)),
           "%s: %s", ann_status_name(error.status), error.message);
  }
  return 0;
}
