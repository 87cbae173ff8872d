#include "repair.h"

#include <algorithm>
#include <cstring>

#include "dataset/codes.h"
#include "storage/layout.h"

namespace gannet::fuzz {

using namespace format;

namespace {

bool inside(uint64_t offset, uint64_t count, uint64_t size) {
  return offset <= size && count <= size - offset;
}

void repair_section(std::vector<uint8_t>& file, Section& section) {
  if (!inside(section.offset, section.bytes, file.size())) return;
  const uint64_t chunks = chunks_of(section.bytes);
  if (!inside(section.sums_offset, chunks * sizeof(uint64_t), file.size())) return;
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    const uint64_t begin = chunk * kChunkBytes;
    const uint64_t value = chunk_sum(section.type, chunk, file.data() + section.offset + begin,
                                     std::min(kChunkBytes, section.bytes - begin));
    std::memcpy(file.data() + section.sums_offset + chunk * sizeof value, &value, sizeof value);
  }
  section.sums_sum = sum(file.data() + section.sums_offset, chunks * sizeof(uint64_t));
}

/// Where the reader takes the end of the table to be.
uint64_t end_of_table(const Section* table, uint32_t sections, uint64_t size) {
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < sections; ++i) {
    if (table[i].bytes > size) return 0;
    chunks += chunks_of(table[i].bytes);
  }
  return sections_offset(sections, chunks);
}

/// Brings numbers that follow from others into line, so that only the others are in question.
bool settle(Header& header) {
  const int32_t metric = static_cast<int32_t>(header.metric);
  const int32_t element = static_cast<int32_t>(header.element);
  if (metric < ANN_METRIC_L2 || metric > ANN_METRIC_COSINE || !is_element(element) || header.dim < 1 ||
      header.dim > ANN_DIM_MAX || header.rows > ANN_ROWS_MAX || header.degree > ANN_DEGREE_MAX)
    return false;
  header.row_stride = Dataset::stored_stride(header.dim, metric, element);
  const bool rows_serve = Codes::rows_serve(metric, element, false);
  if (header.graph == kGraphNone) {
    header.codes = kCodesNone;
    header.degree = header.entries = 0;
  } else if (rows_serve) {
    header.codes = kCodesRows;
  } else if (header.codes != kCodesBytes) {
    header.codes = kCodesFloats;
  }
  const bool stored = header.codes == kCodesBytes || header.codes == kCodesFloats;
  header.code_stride = stored ? Codes::code_stride(header.dim, metric, header.codes == kCodesFloats) : 0;
  return true;
}

}  // namespace

Header header_of(const std::vector<uint8_t>& file) {
  Header header = {};
  if (!file.empty()) std::memcpy(&header, file.data(), std::min(file.size(), sizeof header));
  return header;
}

uint32_t table_of(const std::vector<uint8_t>& file, Section out[kSectionsMax]) {
  if (file.size() < kFileBytesMin) return 0;
  const uint64_t room = (file.size() - kFileBytesMin) / sizeof(Section);
  const uint32_t count =
      static_cast<uint32_t>(std::min<uint64_t>({header_of(file).sections, kSectionsMax, room}));
  if (count != 0) std::memcpy(out, file.data() + kPage, count * sizeof(Section));
  return count;
}

void repair(std::vector<uint8_t>& file) {
  if (file.size() < kFileBytesMin) return;
  Section table[kSectionsMax] = {};
  const uint32_t sections = table_of(file, table);
  for (uint32_t i = 0; i < sections; ++i) repair_section(file, table[i]);
  if (sections != 0) std::memcpy(file.data() + kPage, table, sections * sizeof(Section));
  // The sums may have been written over the header, whose number of sections the hash goes by.
  Header header = header_of(file);
  header.file_bytes = file.size();
  const uint64_t end = end_of_table(table, sections, file.size());
  if (end >= kPage && end <= file.size()) header.table_sum = sum(file.data() + kPage, end - kPage);
  if (header.sections == sections) content_id(header, table, header.content_id);
  header.header_sum = header_sum(header);
  std::memcpy(file.data(), &header, sizeof header);
  const Tail tail = tail_of(header);
  std::memcpy(file.data() + file.size() - sizeof tail, &tail, sizeof tail);
}

void lay_out(std::vector<uint8_t>& file, uint64_t bytes_max) {
  if (file.size() < kFileBytesMin) return;
  Header header = header_of(file);
  if (!settle(header)) return;
  Section old[kSectionsMax] = {};
  const uint32_t old_count = table_of(file, old);
  Calibrated calibrated;
  for (uint32_t i = 0; i < old_count; ++i) {
    if (old[i].type == kCalibration)
      calibrated.curves = static_cast<uint32_t>(std::min<uint64_t>(old[i].items, kCurvesMax + 1));
    if (old[i].type == kSlackCurves)
      calibrated.slack_curves = static_cast<uint32_t>(std::min<uint64_t>(old[i].items, kSlackCurvesMax + 1));
    if (old[i].type == kDeviceCurves)
      calibrated.device_curves =
          static_cast<uint32_t>(std::min<uint64_t>(old[i].items, kDeviceCurvesMax + 1));
    if (old[i].type == kCoveringHeads)
      calibrated.covering_heads =
          static_cast<uint32_t>(std::min<uint64_t>(old[i].items, kCoveringHeadsMax + 1));
    if (old[i].type == kCoveringCurves)
      calibrated.covering_curves =
          static_cast<uint32_t>(std::min<uint64_t>(old[i].items, kSlackCurvesMax + 1));
    if (old[i].type == kFirstCurves)
      calibrated.first_curves = static_cast<uint32_t>(std::min<uint64_t>(old[i].items, kFirstCurvesMax + 1));
    if (old[i].type == kCodeOrder || old[i].type == kProjectedOrder) calibrated.order = true;
    if (old[i].type == kProjectedCodes) calibrated.projected_width = std::min(old[i].item_bytes, 1024u);
    if (old[i].type == kHalfCodes) calibrated.half_bytes = std::min(old[i].item_bytes, 1024u);
    if (old[i].type == kQueries) calibrated.queries = std::min(old[i].items, kQueriesMax + 1);
  }
  Section table[kSectionsMax] = {};
  header.sections = demanded_sections(header, calibrated, table);
  const uint64_t tail = place_sections(table, header.sections);
  if (tail + sizeof(Tail) > bytes_max) return;
  std::vector<uint8_t> made(tail + sizeof(Tail));
  for (uint32_t i = 0; i < header.sections; ++i) {
    for (uint32_t j = 0; j < old_count; ++j) {
      const uint64_t kept = std::min(old[j].bytes, table[i].bytes);
      if (old[j].type == table[i].type && kept != 0 && inside(old[j].offset, kept, file.size()))
        std::memcpy(made.data() + table[i].offset, file.data() + old[j].offset, kept);
    }
  }
  std::memcpy(made.data(), &header, sizeof header);
  std::memcpy(made.data() + kPage, table, header.sections * sizeof(Section));
  file.swap(made);
}

}  // namespace gannet::fuzz
