#include "storage/map.h"

#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstring>
#include <tuple>

#include "dataset/projected_codes.h"

namespace gannet {

using namespace format;

namespace {

using Long = unsigned long long;  // for printf

/// Whether all words are finite floats: `exponent` has the bits that only NaN and infinity fill.
template <class Word>
bool all_finite(const uint8_t* data, uint64_t bytes, Word exponent) {
  bool finite = true;
  for (uint64_t at = 0; at + sizeof(Word) <= bytes; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data + at, sizeof word);
    finite &= (word & exponent) != exponent;
  }
  return finite;
}

bool elements_finite(int32_t element, const uint8_t* data, uint64_t bytes) {
  switch (element) {
    case ANN_F32:
      return all_finite<uint32_t>(data, bytes, 0x7f800000);
    case ANN_F16:
      return all_finite<uint16_t>(data, bytes, 0x7c00);
    case ANN_BF16:
      return all_finite<uint16_t>(data, bytes, 0x7f80);
    default:
      return true;
  }
}

/// Whether the bytes that fill rows of `stride` up behind `used` are zero, within a chunk that starts
/// at byte `begin` of the section.
bool padding_zero(const uint8_t* data, uint64_t begin, uint64_t bytes, uint64_t stride, uint64_t used) {
  if (used == stride) return true;
  const uint64_t end = begin + bytes;
  for (uint64_t row = begin / stride; row * stride < end; ++row) {
    const uint64_t from = std::max(begin, row * stride + used);
    const uint64_t to = std::min(end, (row + 1) * stride);
    if (from < to && !all_zero(data + (from - begin), to - from)) return false;
  }
  return true;
}

/// For comparing with the one zero that stands for nothing: -0 is another number.
uint64_t bits(double value) {
  uint64_t word;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

template <class Number, class Legal>
bool all_legal(const uint8_t* data, uint64_t bytes, const Legal& legal) {
  bool every = true;
  for (uint64_t at = 0; at + sizeof(Number) <= bytes; at += sizeof(Number)) {
    Number number;
    std::memcpy(&number, data + at, sizeof number);
    every &= legal(number);
  }
  return every;
}

/// 1 if the edge at byte `at` follows an unused place.
uint32_t follows_unused(const uint8_t* data, uint64_t at) {
  uint32_t before, edge;  // copied one by one: a copy of both is not vectorised
  std::memcpy(&before, data + at - sizeof before, sizeof before);
  std::memcpy(&edge, data + at, sizeof edge);
  return (before == kNoRow) & (edge != kNoRow);
}

/// Whether no edge stands behind an unused place of its row, within a chunk that starts at byte
/// `begin` of the section: all that follow one begin rows. Counting both keeps the loops free of
/// branches and the first one vectorised; a walk that knows its column takes ten times as long.
bool edges_come_first(const uint8_t* data, uint64_t begin, uint64_t bytes, uint64_t row_bytes) {
  uint32_t anywhere = 0;
  uint32_t at_rows = 0;
  for (uint64_t at = sizeof(uint32_t); at + sizeof(uint32_t) <= bytes; at += sizeof(uint32_t))
    anywhere += follows_unused(data, at);
  for (uint64_t at = row_bytes - begin % row_bytes; at + sizeof(uint32_t) <= bytes; at += row_bytes)
    at_rows += follows_unused(data, at);
  return anywhere == at_rows;
}

/// The same of scaled codes. A row's terms never lie in two chunks: they are 16 bytes at a multiple of 16.
const char* fault_in_scaled(const Header& header, uint64_t cells, uint64_t begin, const uint8_t* data,
                            uint64_t bytes) {
  const uint64_t stride = ScaledCodes::code_stride(header.dim);
  const uint64_t terms_at = ScaledCodes::terms_at(header.dim);
  const uint64_t end = begin + bytes;
  const auto zero_within = [&](uint64_t from, uint64_t to) {
    const uint64_t low = std::max(begin, from);
    const uint64_t high = std::min(end, to);
    return low >= high || all_zero(data + (low - begin), high - low);
  };
  for (uint64_t row = begin / stride; row * stride < end; ++row) {
    const uint64_t at = row * stride + terms_at;
    if (!zero_within(row * stride + header.dim, at) ||
        !zero_within(at + sizeof(ScaledCodes::Terms), (row + 1) * stride))
      return "bytes that fill codes up are not zero";
    if (at < begin || at >= end) continue;
    ScaledCodes::Terms terms;
    std::memcpy(&terms, data + (at - begin), sizeof terms);
    if (!std::isfinite(terms.scale) || terms.scale < 0 || !std::isfinite(terms.offset) ||
        terms.cell >= cells || terms.zero != 0)
      return "the terms of a code are not sound";
  }
  return nullptr;
}

/// The same of a projection to `width` bytes, whose factor and offsets lie in its first chunk.
const char* fault_in_projection(uint64_t width, uint64_t begin, const uint8_t* data) {
  if (begin != 0) return nullptr;
  constexpr uint64_t kHead = ProjectedCodes::kHeadBytes;
  float factor;
  std::memcpy(&factor, data, sizeof factor);
  if (!std::isfinite(factor) || factor <= 0) return "the factor is not above 0, or infinite";
  if (!all_zero(data + sizeof factor, kHead - sizeof factor)) return "bytes behind the factor are not zero";
  const auto legal = [](int32_t offset) {
    return offset >= -kProjectedOffsetMax && offset <= kProjectedOffsetMax;
  };
  return all_legal<int32_t>(data + kHead, width * sizeof(int32_t), legal) ? nullptr
                                                                          : "an offset is too large";
}

/// The fault in a chunk's values, or null.
const char* fault_in(const FileMap& map, uint32_t type, uint64_t begin, const uint8_t* data, uint64_t bytes) {
  const Header& header = map.header;
  const uint32_t rows = static_cast<uint32_t>(header.rows);
  const int32_t element = static_cast<int32_t>(header.element);
  const int32_t metric = static_cast<int32_t>(header.metric);
  switch (type) {
    case kRows:
      if (!elements_finite(element, data, bytes)) return "a value is NaN or infinite";
      if (!padding_zero(data, begin, bytes, header.row_stride, uint64_t{header.dim} * element_bytes(element)))
        return "bytes that fill rows up are not zero";
      return nullptr;
    case kIds:
      return all_legal<uint64_t>(data, bytes, [](uint64_t id) { return id != ANN_ID_NONE; })
                 ? nullptr
                 : "an id is 2^64 - 1";
    case kOrder:
    case kEntries:
    case kCoveringHeads:
      return all_legal<uint32_t>(data, bytes, [=](uint32_t row) { return row < rows; })
                 ? nullptr
                 : "a row number is not below the number of rows";
    case kEdges:
      if (!all_legal<uint32_t>(data, bytes, [=](uint32_t row) { return (row < rows) | (row == kNoRow); }))
        return "an edge leads to a row that is not there";
      if (header.graph == kGraphTsdg)
        return all_legal<uint32_t>(data, bytes, [](uint32_t row) { return row != kNoRow; })
                   ? nullptr
                   : "a row of varying length has an unused place";
      return edges_come_first(data, begin, bytes, header.degree * sizeof(uint32_t))
                 ? nullptr
                 : "an edge stands behind an unused place";
    case kLengths:
    case kNearest:
      return elements_finite(ANN_F32, data, bytes) &&
                     all_legal<float>(data, bytes, [](float length) { return length >= 0; })
                 ? nullptr
                 : "a length or a distance is negative, NaN or infinite";
    case kCentre:
      return elements_finite(ANN_F32, data, bytes) ? nullptr : "a value is NaN or infinite";
    case kCodes:
      if (header.codes == kCodesFloats && !elements_finite(ANN_F32, data, bytes))
        return "a value is NaN or infinite";
      if (!padding_zero(data, begin, bytes, header.code_stride,
                        uint64_t{code_columns(header)} * code_item_bytes(header.codes)))
        return "bytes that fill codes up are not zero";
      return nullptr;
    case kHalfCodes:
      if (!elements_finite(ANN_F16, data, bytes)) return "a value is NaN or infinite";
      return padding_zero(data, begin, bytes, Codes::half_stride(header.dim, metric, element),
                          uint64_t{header.dim} * sizeof(uint16_t))
                 ? nullptr
                 : "bytes that fill codes up are not zero";
    case kPrefixes:
      return all_legal<uint16_t>(data, bytes, [&](uint16_t length) { return length <= header.degree; })
                 ? nullptr
                 : "a row is longer than the header says";
    case kQueries:
      return !is_float_element(element) || elements_finite(ANN_F32, data, bytes)
                 ? nullptr
                 : "a value is NaN or infinite";
    case kCodeOrder:
    case kProjectedOrder:
      return all_legal<double>(data, bytes, [](double share) { return share >= 0 && share <= 1; })
                 ? nullptr
                 : "a share is not in [0, 1]";
    case kScaledCodes:
      return fault_in_scaled(header, map.cells, begin, data, bytes);
    case kScaledCentres:
      return elements_finite(ANN_F32, data, bytes) ? nullptr : "a value is NaN or infinite";
    case kProjection:
      return fault_in_projection(map.projected_width, begin, data);
    default:
      return nullptr;
  }
}

}  // namespace

bool all_zero(const uint8_t* bytes, uint64_t count) {
  uint64_t any = 0;
  uint64_t at = 0;
  for (uint64_t word; at + sizeof word <= count; at += sizeof word) {
    std::memcpy(&word, bytes + at, sizeof word);
    any |= word;
  }
  for (; at < count; ++at) any |= bytes[at];
  return any == 0;
}

void fail_corrupt(const char* format, ...) {
  char text[200];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fail(ANN_CORRUPT, "%s", text);
}

const char* section_name(uint32_t type) {
  static constexpr const char* kNames[] = {"",        "rows",   "ids",     "order",   "lengths",
                                           "centre",  "codes",  "edges",   "entries", "calibration",
                                           "queries", "layers", "nearest", "prefixes"};
  if (type == kScaledCodes) return "scaled codes";
  if (type == kScaledCentres) return "scaled centres";
  if (type == kDeviceCurves) return "device curves";
  if (type == kSlackCurves) return "slack curves";
  if (type == kCodeOrder) return "code order";
  if (type == kProjectedCodes) return "projected codes";
  if (type == kProjection) return "projection";
  if (type == kProjectedOrder) return "projected order";
  if (type == kFirstCurves) return "first curves";
  if (type == kCoveringHeads) return "covering heads";
  if (type == kCoveringCurves) return "covering curves";
  if (type == kHalfCodes) return "half codes";
  return is_known(type) ? kNames[type] : "of unknown type";
}

FileMap::FileMap(Source& source, const Expectation& expected, const Allocator& memory) {
  read_header(source);
  check_ranges();
  check_expected(expected);
  read_table(source, memory);
  check_sections();
  uint8_t id[16];
  content_id(header, table, id);
  if (std::memcmp(id, header.content_id, sizeof id) != 0) fail_corrupt("content id and content do not agree");
  if (source.sequential()) return;
  Tail tail;
  source.read(tail_offset(), &tail, sizeof tail);
  check_tail(tail);
}

void FileMap::read_header(Source& source) {
  if (source.bytes() < kFileBytesMin)
    fail_corrupt("the file has %llu bytes, fewer than the smallest index", static_cast<Long>(source.bytes()));
  source.read(0, &header, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    fail_corrupt("the first bytes are not those of an index of Gannet");
  if (header.byte_order != kByteOrder) fail_corrupt("the byte order is %08x", header.byte_order);
  if (header.major != kMajor)
    fail(ANN_VERSION, "the file has format %u.%u; this library (%d.%d) reads format %u", header.major,
         header.minor, ANN_VERSION_MAJOR, ANN_VERSION_MINOR, kMajor);
  if ((header.features_to_read & ~kFeaturesKnown) != 0)
    fail(ANN_VERSION, "the file uses features %llx, which this library (%d.%d) does not know",
         static_cast<Long>(header.features_to_read & ~kFeaturesKnown), ANN_VERSION_MAJOR, ANN_VERSION_MINOR);
  if (header_sum(header) != header.header_sum) fail_corrupt("the sum of the header is wrong");
  if (header.file_bytes != source.bytes())
    fail_corrupt("the file has %llu bytes, its header says %llu", static_cast<Long>(source.bytes()),
                 static_cast<Long>(header.file_bytes));
  if (header.file_bytes > kFileBytesMax)
    fail_corrupt("the file has %llu bytes, more than any index", static_cast<Long>(header.file_bytes));
}

/// After this no product of the header's numbers can overflow.
void FileMap::check_ranges() const {
  const auto demand = [](bool legal, const char* name, uint64_t value) {
    if (!legal) fail_corrupt("%s in the header is %llu, which no index has", name, static_cast<Long>(value));
  };
  demand(header.zero_68 == 0 && header.zero_180 == 0 && all_zero(header.zeros, sizeof header.zeros),
         "a reserved field", 1);
  demand(header.sections <= kSectionsMax, "the number of sections", header.sections);
  demand(header.table_offset == kPage, "the offset of the table", header.table_offset);
  demand(header.metric >= ANN_METRIC_L2 && header.metric <= ANN_METRIC_COSINE, "metric", header.metric);
  demand(header.element >= ANN_F32 && header.element <= ANN_U8, "element", header.element);
  demand(header.graph >= kGraphCagra && header.graph <= kGraphTsdg, "graph", header.graph);
  const uint64_t features = header.graph == kGraphTsdg   ? kFeatureVariableRows
                            : header.graph == kGraphGgnn ? kFeatureLayers
                                                         : 0;
  const uint64_t of_curves = header.graph == kGraphCagra ? kFeatureSlackSpread : 0;
  demand((header.features_to_read & ~of_curves) == features, "features", header.features_to_read);
  demand(header.rows <= ANN_ROWS_MAX, "rows", header.rows);
  demand(header.dim >= 1 && header.dim <= ANN_DIM_MAX, "dim", header.dim);
  demand(header.has_ids <= 1 && (header.has_ids == 0 || header.rows > 0), "ids", header.has_ids);
  const int32_t metric = static_cast<int32_t>(header.metric);
  const int32_t element = static_cast<int32_t>(header.element);
  demand(header.row_stride == Dataset::stored_stride(header.dim, metric, element), "the row stride",
         header.row_stride);
  const bool graph = header.graph != kGraphNone;
  demand(graph ? header.degree >= 2 && header.degree <= ANN_DEGREE_MAX : header.degree == 0, "degree",
         header.degree);
  demand(
      graph ? header.entries <= header.rows && (header.entries > 0 || header.rows == 0) : header.entries == 0,
      "entry points", header.entries);
  demand(std::isfinite(header.recall_max) && header.recall_max >= 0 && header.recall_max <= 1,
         "the highest recall", bits(header.recall_max));
  demand(graph || (header.knn_iterations == 0 && header.repaired_edges == 0 && bits(header.recall_max) == 0),
         "a figure of a graph", 1);
  check_codes();
}

void FileMap::check_codes() const {
  const int32_t metric = static_cast<int32_t>(header.metric);
  const int32_t element = static_cast<int32_t>(header.element);
  const bool stored = header.codes == kCodesBytes || header.codes == kCodesFloats;
  const bool rows_serve = Codes::rows_serve(metric, element, false);
  const bool legal = header.graph == kGraphNone ? header.codes == kCodesNone
                     : rows_serve               ? header.codes == kCodesRows
                                                : stored;
  if (!legal) fail_corrupt("codes in the header are %u, which do not fit the rest", header.codes);
  const uint64_t stride = stored ? Codes::code_stride(header.dim, metric, header.codes == kCodesFloats) : 0;
  if (header.code_stride != stride)
    fail_corrupt("the code stride in the header is %llu, it must be %llu",
                 static_cast<Long>(header.code_stride), static_cast<Long>(stride));
  if (!std::isfinite(header.code_factor) || header.code_factor < 0 || !std::isfinite(header.norm_max) ||
      header.norm_max < 0)
    fail_corrupt("factor or length of codes in the header is negative, NaN or infinite");
  const bool lengths = stored && metric == ANN_METRIC_INNER_PRODUCT;
  if ((!stored && bits(header.code_factor) != 0) || (!lengths && bits(header.norm_max) != 0))
    fail_corrupt("factor or length of codes in the header is not 0, but such codes have none");
}

void FileMap::check_expected(const Expectation& expected) const {
  const auto demand = [](uint32_t wanted, uint32_t found, const char* name) {
    if (wanted != 0 && wanted != found)
      fail(ANN_INVALID_ARGUMENT, "params.expect_%s is %u, the file has %u", name, wanted, found);
  };
  demand(expected.dim, header.dim, "dim");
  demand(static_cast<uint32_t>(expected.metric), header.metric, "metric");
  demand(static_cast<uint32_t>(expected.element), header.element, "element");
}

void FileMap::read_table(Source& source, const Allocator& memory) {
  const uint64_t entries_bytes = header.sections * sizeof(Section);
  if (kPage + entries_bytes + sizeof(Tail) > header.file_bytes)
    fail_corrupt("the section table exceeds the file");
  source.read(kPage, table, entries_bytes);
  // The table is not trusted yet; its own size comes from it and is bounded by the file's.
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < header.sections; ++i) {
    if (table[i].bytes > header.file_bytes)
      fail_corrupt("section %u of the table has %llu bytes, more than the file", i + 1,
                   static_cast<Long>(table[i].bytes));
    chunks += chunks_of(table[i].bytes);
  }
  const uint64_t end = sections_offset(header.sections, chunks);
  if (end + sizeof(Tail) > header.file_bytes) fail_corrupt("the section table exceeds the file");
  region = Array<uint8_t>(memory, end - kPage);
  if (entries_bytes != 0) std::memcpy(region.data(), table, entries_bytes);
  source.read(kPage + entries_bytes, region.data() + entries_bytes, region.size() - entries_bytes);
  if (sum(region.data(), region.size()) != header.table_sum)
    fail_corrupt("the sum of the section table is wrong");
  const uint64_t used = entries_bytes + chunks * sizeof(uint64_t);
  if (!all_zero(region.data() + used, region.size() - used))
    fail_corrupt("bytes behind the section table are not zero");
}

void FileMap::check_sections() {
  Section placed[kSectionsMax];
  std::memcpy(placed, table, sizeof placed);
  const uint64_t tail = place_sections(placed, header.sections);
  Calibrated calibrated;
  uint32_t known = 0;
  for (uint32_t i = 0; i < header.sections; ++i) {
    const Section& section = table[i];
    const char* name = section_name(section.type);
    if (section.type == 0 || (i > 0 && section.type <= table[i - 1].type))
      fail_corrupt("sections are not in the order of their types");
    if (!is_known(section.type) && (section.flags & kSkippable) == 0)
      fail(ANN_VERSION, "the file has a section of type %u, which this library (%d.%d) does not know",
           section.type, ANN_VERSION_MAJOR, ANN_VERSION_MINOR);
    const bool sound = section.zero == 0 && section.chunk_bytes == kChunkBytes && section.item_bytes > 0 &&
                       section.bytes % section.item_bytes == 0 &&
                       section.items == section.bytes / section.item_bytes &&
                       section.flags == flags_of(section.type);
    if (!sound) fail_corrupt("the table's entry of section %u (%s) is not sound", section.type, name);
    if (section.offset != placed[i].offset || section.sums_offset != placed[i].sums_offset)
      fail_corrupt("section %u (%s) is not in its place", section.type, name);
    if (section.sums_sum != sum(sums(section), chunks_of(section.bytes) * sizeof(uint64_t)))
      fail_corrupt("the sum of the sums of section %u (%s) is wrong", section.type, name);
    if (is_known(section.type)) ++known;
    if (section.type == kScaledCentres) calibrated.cells = section.items / header.dim - 1;
    if (section.type == kCalibration)
      calibrated.curves = static_cast<uint32_t>(std::min<uint64_t>(section.items, kCurvesMax + 1));
    if (section.type == kQueries) calibrated.queries = section.items;
    if (section.type == kDeviceCurves)
      calibrated.device_curves =
          static_cast<uint32_t>(std::min<uint64_t>(section.items, kDeviceCurvesMax + 1));
    if (section.type == kSlackCurves)
      calibrated.slack_curves = static_cast<uint32_t>(std::min<uint64_t>(section.items, kSlackCurvesMax + 1));
    if (section.type == kFirstCurves)
      calibrated.first_curves = static_cast<uint32_t>(std::min<uint64_t>(section.items, kFirstCurvesMax + 1));
    if (section.type == kCoveringHeads)
      calibrated.covering_heads =
          static_cast<uint32_t>(std::min<uint64_t>(section.items, kCoveringHeadsMax + 1));
    if (section.type == kCoveringCurves)
      calibrated.covering_curves =
          static_cast<uint32_t>(std::min<uint64_t>(section.items, kSlackCurvesMax + 1));
    if (section.type == kCodeOrder || section.type == kProjectedOrder) calibrated.order = true;
    if (section.type == kProjectedCodes) calibrated.projected_width = section.item_bytes;
    if (section.type == kHalfCodes) calibrated.half_bytes = section.item_bytes;
    if (section.type == kEdges) calibrated.edges = section.items;
    if (section.type == kPrefixes) calibrated.levels = section.item_bytes / sizeof(uint16_t);
    if (section.type == kLayers) calibrated.layer_words = section.items;
  }
  if (tail != tail_offset()) fail_corrupt("the tail is not behind the last section");
  if (calibrated.curves > kCurvesMax) fail_corrupt("there are more calibration curves than 4");
  if (calibrated.queries > kQueriesMax)
    fail_corrupt("there are %llu queries to calibrate on, at most %llu are",
                 static_cast<Long>(calibrated.queries), static_cast<Long>(kQueriesMax));
  const bool variable = header.graph == kGraphTsdg;
  if (variable && (calibrated.levels == 0 || calibrated.levels > kLevelsMax))
    fail_corrupt("rows have %u prefixes, allowed are 1 to %u", calibrated.levels, kLevelsMax);
  cells = calibrated.cells;
  const bool scales = header.codes == kCodesBytes || header.codes == kCodesFloats;
  if (cells > (scales ? kCellsMax : 0))
    fail_corrupt("there are %llu cells of scaled codes, which no such index has", static_cast<Long>(cells));
  if (calibrated.device_curves > kDeviceCurvesMax)
    fail_corrupt("there are more calibration curves of devices than %u", kDeviceCurvesMax);
  if (calibrated.slack_curves > kSlackCurvesMax)
    fail_corrupt("there are more calibration curves by slack than %u", kSlackCurvesMax);
  if (calibrated.first_curves > kFirstCurvesMax)
    fail_corrupt("there are more calibration curves of first answers than %u", kFirstCurvesMax);
  if (calibrated.covering_heads > kCoveringHeadsMax)
    fail_corrupt("there are more covering heads than %u", kCoveringHeadsMax);
  if (calibrated.covering_curves > kSlackCurvesMax ||
      (calibrated.covering_curves == 0) != (calibrated.covering_heads == 0))
    fail_corrupt("covering heads have %u calibration curves, allowed are 1 to %u", calibrated.covering_curves,
                 kSlackCurvesMax);
  projected_width = calibrated.projected_width;
  if (projected_width != 0) check_projected();
  if (calibrated.half_bytes != 0) check_halves(calibrated.half_bytes);
  Section demanded[kTypesMax];
  if (known != demanded_sections(header, calibrated, demanded))
    fail_corrupt("the sections are not those that the header demands");
  const Section* wanted = demanded;
  for (uint32_t i = 0; i < header.sections; ++i) {
    if (!is_known(table[i].type)) continue;
    if (table[i].type != wanted->type || table[i].items != wanted->items ||
        table[i].item_bytes != wanted->item_bytes)
      fail_corrupt("section %u (%s) does not have the size that the header demands", wanted->type,
                   section_name(wanted->type));
    ++wanted;
  }
}

void FileMap::check_projected() const {
  const bool bytes = header.codes == kCodesRows || header.codes == kCodesBytes;
  if (!bytes || header.rows == 0 || header.metric == ANN_METRIC_INNER_PRODUCT ||
      projected_stride(header) > kProjectedStrideMax)
    fail_corrupt("there are projected codes, which no such index has");
  if (projected_width % kProjectedStep != 0 || projected_width > ProjectedCodes::kMost)
    fail_corrupt("a projected code has %u bytes, allowed are multiples of %u up to %u", projected_width,
                 kProjectedStep, ProjectedCodes::kMost);
}

void FileMap::check_halves(uint32_t half_bytes) const {
  const size_t stride = Codes::half_stride(header.dim, static_cast<int32_t>(header.metric),
                                           static_cast<int32_t>(header.element));
  if (header.codes != kCodesFloats || header.rows == 0 || half_bytes != stride)
    fail_corrupt("there are half codes of %u bytes, which no such index has", half_bytes);
}

const Section* FileMap::find(uint32_t type) const {
  for (uint32_t i = 0; i < header.sections; ++i) {
    if (table[i].type == type) return &table[i];
  }
  return nullptr;
}

const uint64_t* FileMap::sums(const Section& section) const {
  return reinterpret_cast<const uint64_t*>(region.data() + (section.sums_offset - kPage));
}

void FileMap::check_chunk(const Section& section, uint64_t chunk, const uint8_t* data) const {
  const uint64_t begin = chunk * kChunkBytes;
  const uint64_t bytes = std::min(kChunkBytes, section.bytes - begin);
  const char* fault = chunk_sum(section.type, chunk, data, bytes) != sums(section)[chunk]
                          ? "the sum is wrong"
                          : fault_in(*this, section.type, begin, data, bytes);
  if (fault != nullptr)
    fail_corrupt("section %u (%s), bytes %llu to %llu of the file: %s", section.type,
                 section_name(section.type), static_cast<Long>(section.offset + begin),
                 static_cast<Long>(section.offset + begin + bytes), fault);
}

void FileMap::check_cut(const Section& section, uint64_t chunk, const uint8_t* around) const {
  if (section.type != kEdges || header.graph == kGraphTsdg ||
      chunk * kChunkBytes % (header.degree * sizeof(uint32_t)) == 0)
    return;
  uint32_t words[2];
  std::memcpy(words, around, sizeof words);
  if (words[0] == kNoRow && words[1] != kNoRow)
    fail_corrupt("section %u (%s), byte %llu of the file: an edge stands behind an unused place",
                 section.type, section_name(section.type),
                 static_cast<Long>(section.offset + chunk * kChunkBytes));
}

void FileMap::check_tail(const Tail& tail) const {
  const Tail wanted = tail_of(header);
  if (std::memcmp(&tail, &wanted, sizeof tail) != 0)
    fail_corrupt("the tail of the file is not that of its header");
}

void check_ids(const uint64_t* ids, const uint32_t* order, uint64_t rows, const Execution& execution) {
  // Ascending ids in the order given: then it names every row once, and the ids are distinct.
  std::atomic<uint64_t> wrong = kNoPlace;
  parallel_for(execution, rows, uint64_t{1} << 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = std::max<uint64_t>(begin, 1); i < end; ++i)
      if (order[i - 1] >= rows || order[i] >= rows || ids[order[i - 1]] >= ids[order[i]])
        return keep_least(wrong, i);
  });
  const uint64_t place = wrong.load();
  if (place == kNoPlace) return;
  if (order[place - 1] >= rows || order[place] >= rows)
    fail_corrupt("the order of the ids names a row that is not there");
  fail_corrupt("the ids are not distinct, or their order is wrong at place %llu", static_cast<Long>(place));
}

void check_starts(const Array<uint32_t>& rows, const char* name) {
  for (uint64_t i = 1; i < rows.size(); ++i) {
    if (rows[i - 1] >= rows[i]) fail_corrupt("the %s are not ascending", name);
  }
}

uint32_t levels_of(const FileMap& map) { return map.find(kPrefixes)->item_bytes / sizeof(uint16_t); }

void check_rows(const FileMap& map, const Array<uint16_t>& prefixes, uint64_t* offsets) {
  const uint32_t levels = levels_of(map);
  uint64_t edges = 0;
  if (offsets != nullptr) offsets[0] = 0;
  for (uint64_t row = 0; row < map.header.rows; ++row) {
    const uint16_t* lengths = prefixes.data() + row * levels;
    for (uint32_t level = 1; level < levels; ++level) {
      if (lengths[level] < lengths[level - 1])
        fail_corrupt("the prefixes of row %llu do not grow", static_cast<Long>(row));
    }
    edges += lengths[levels - 1];
    if (offsets != nullptr) offsets[row + 1] = edges;
  }
  if (edges != map.find(kEdges)->items)
    fail_corrupt("rows have %llu edges, section %u (edges) has %llu", static_cast<Long>(edges), kEdges,
                 static_cast<Long>(map.find(kEdges)->items));
}

Calibration read_calibration(const Curve* curves, uint64_t count, const Header& header,
                             const KnobCurves& slack) {
  KnobCurves out;
  static_assert(KnobCurves::kCurves == kCurvesMax && KnobCurve::kPoints == kPointsMax);
  for (uint64_t i = 0; i < count; ++i) {
    const Curve& curve = curves[i];
    bool sound = curve.k >= 1 && (i == 0 || curve.k > curves[i - 1].k) && curve.count >= 1 &&
                 curve.count <= kPointsMax;
    KnobCurve& made = out.add(curve.k);
    made.count = std::min(curve.count, kPointsMax);
    for (uint32_t at = 0; sound && at < kPointsMax; ++at) {
      const Point& point = curve.points[at];
      if (at >= curve.count) {
        sound = point.beam == 0 && point.zero == 0 && bits(point.recall) == 0;
        continue;
      }
      sound = point.zero == 0 && point.beam >= 1 && point.beam <= ANN_BEAM_MAX && point.recall >= 0 &&
              point.recall <= 1 &&
              (at == 0 ||
               (point.beam > curve.points[at - 1].beam && point.recall >= curve.points[at - 1].recall));
      made.points[at] = {static_cast<double>(point.beam), point.recall};
    }
    if (!sound) fail_corrupt("calibration curve %llu is not sound", static_cast<Long>(i + 1));
  }
  // Those with that feature are of walks that 1.10 alone made: searches go by beams.
  const bool serves = (header.features_to_read & kFeatureSlackSpread) == 0;
  const FromGroups from_groups = {(header.features & kFeatureEntryGroups) != 0,
                                  serves && (header.features & kFeatureSlackGroups) != 0};
  return Calibration(out, serves ? slack : KnobCurves(KnobScale::kSlack), header.recall_max, from_groups);
}

KnobCurves read_slack_curves(const SlackCurve* curves, uint64_t count) {
  KnobCurves out(KnobScale::kSlack);
  static_assert(KnobCurves::kCurves == kSlackCurvesMax && KnobCurve::kPoints == kPointsMax);
  for (uint64_t i = 0; i < count; ++i) {
    const SlackCurve& curve = curves[i];
    bool sound = curve.k >= 1 && (i == 0 || curve.k > curves[i - 1].k) && curve.count >= 1 &&
                 curve.count <= kPointsMax;
    KnobCurve& made = out.add(curve.k);
    made.count = std::min(curve.count, kPointsMax);
    for (uint32_t at = 0; sound && at < kPointsMax; ++at) {
      const SlackPoint& point = curve.points[at];
      if (at >= curve.count) {
        sound = bits(point.slack) == 0 && bits(point.recall) == 0 && bits(point.expansions) == 0 &&
                bits(point.beam) == 0;
        continue;
      }
      const SlackPoint& before = curve.points[at - (at > 0 ? 1 : 0)];
      const bool rises = at == 0 || (point.slack > before.slack && point.recall >= before.recall);
      // Each is false of a value that is no number.
      sound = point.slack >= 0 && point.slack <= kSlackMax && point.recall >= 0 && point.recall <= 1 &&
              point.expansions >= 0 && point.expansions <= ANN_ROWS_MAX && point.beam >= 1 &&
              point.beam <= ANN_BEAM_MAX && rises;
      made.points[at] = {point.slack, point.recall, point.expansions, point.beam};
    }
    if (!sound) fail_corrupt("calibration curve %llu by slack is not sound", static_cast<Long>(i + 1));
  }
  return out;
}

namespace {

/// Whether a curve's points are as the specification demands.
bool is_sound(const DeviceCurve& curve) {
  const bool is_known = curve.warps == 1 || curve.warps == 8 || curve.warps == 16;
  if (!is_known || curve.resident > (curve.warps == 1 ? 1 : 0) || curve.zero != 0 || curve.k == 0 ||
      curve.count > kPointsMax)
    return false;
  for (uint32_t at = 0; at < kPointsMax; ++at) {
    const DevicePoint& point = curve.points[at];
    if (at >= curve.count) {
      if (!all_zero(reinterpret_cast<const uint8_t*>(&point), sizeof point)) return false;
      continue;
    }
    const bool finite = std::isfinite(point.slack) && point.slack > -1 && point.slack <= 100 &&
                        point.expansions_max >= 0 && point.expansions_max <= ANN_ROWS_MAX &&
                        point.expansions >= 0 && point.expansions <= ANN_ROWS_MAX;
    const bool in_range = point.recall >= 0 && point.recall <= 1;
    const bool rises =
        at == 0 || (point.slack > curve.points[at - 1].slack && point.recall >= curve.points[at - 1].recall);
    if (!finite || !in_range || !rises) return false;
  }
  return true;
}

DeviceClass class_of(const DeviceCurve& curve) {
  return {curve.capability, curve.multiprocessors, curve.block_list_max};
}

/// The table of a calibration that a curve belongs to.
uint32_t table_of(const DeviceCurve& curve) {
  return curve.resident != 0 ? DeviceCalibration::kTables : curve.warps == 1 ? 0 : curve.warps == 8 ? 1 : 2;
}

DeviceCalibration::Curve made_of(const DeviceCurve& curve) {
  static_assert(DeviceCalibration::kPoints == kPointsMax);
  DeviceCalibration::Curve made;
  made.k = curve.k;
  made.count = curve.count;
  for (uint32_t at = 0; at < curve.count; ++at) {
    const DevicePoint& point = curve.points[at];
    made.points[at] = {point.recall, point.slack, point.expansions_max, point.expansions};
  }
  return made;
}

}  // namespace

std::vector<MeasuredDevice> read_device_curves(const DeviceCurve* curves, uint64_t count) {
  std::vector<MeasuredDevice> devices;
  for (uint64_t i = 0; i < count; ++i) {
    const DeviceCurve& curve = curves[i];
    const bool starts = i == 0 || class_of(curve) != class_of(curves[i - 1]);
    const auto order = [](const DeviceCurve& of) { return std::tuple(class_of(of), table_of(of), of.k); };
    if (!is_sound(curve) || (i > 0 && order(curve) <= order(curves[i - 1])))
      fail_corrupt("calibration curve %llu of a device is not sound", static_cast<Long>(i + 1));
    if (starts) devices.push_back({class_of(curve), {}});
    DeviceCalibration::Table& table = devices.back().two_lists.table(table_of(curve));
    if (table.count == DeviceCalibration::kCurves || devices.size() > kDeviceClassesKept)
      fail_corrupt("there are more calibration curves of a device than are kept");
    table.query_warps = {curve.warps, curve.resident != 0};
    table.curves[table.count++] = made_of(curve);
  }
  return devices;
}

void read_first_curves(const DeviceCurve* curves, uint64_t count, std::vector<MeasuredDevice>* devices) {
  static_assert(kFirstCurvesMax == kDeviceClassesKept * (DeviceCalibration::kTables + 1));
  for (uint64_t i = 0; i < count; ++i) {
    const DeviceCurve& curve = curves[i];
    const auto order = [](const DeviceCurve& of) { return std::tuple(class_of(of), table_of(of)); };
    if (!is_sound(curve) || curve.count == 0 || curve.k != DeviceCalibration::kFirstAnswers ||
        (i > 0 && order(curve) <= order(curves[i - 1])))
      fail_corrupt("calibration curve %llu of first answers is not sound", static_cast<Long>(i + 1));
    const auto device = std::find_if(devices->begin(), devices->end(), [&](const MeasuredDevice& measured) {
      return measured.device == class_of(curve);
    });
    if (device == devices->end())
      fail_corrupt("calibration curve %llu of first answers is of a device that has no others",
                   static_cast<Long>(i + 1));
    DeviceCalibration::Table& table = device->two_lists.table(table_of(curve));
    table.query_warps = {curve.warps, curve.resident != 0};
    table.first = made_of(curve);
  }
}

}  // namespace gannet
