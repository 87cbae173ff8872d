#include "made_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "dataset/codes.h"
#include "repair.h"
#include "storage/layout.h"

namespace gannet::fuzz {

using namespace format;

namespace {

constexpr uint32_t kDims[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100};
constexpr uint32_t kDegrees[] = {2, 3, 4, 5, 8, 16, 32, 64};
constexpr uint32_t kRowCounts[] = {0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33, 40, 47};
constexpr uint32_t kUnknownBytes = 24;
constexpr uint32_t kWalkers = 4;          // of a class of devices: by 1 warp, 8, 16, 1 at once
constexpr uint32_t kCurvesOfWalkers = 2;  // that are made
constexpr uint32_t kFirstAnswers = 10;
constexpr uint32_t kDeviceClassesMade = 3;

void choose_codes(Header& header, Input& input) {
  const int32_t metric = static_cast<int32_t>(header.metric);
  const int32_t element = static_cast<int32_t>(header.element);
  if (header.graph == kGraphNone) {
    header.codes = kCodesNone;
  } else if (Codes::rows_serve(metric, element, false)) {
    header.codes = kCodesRows;
  } else {
    header.codes = input.below(2) == 0 ? kCodesBytes : kCodesFloats;
    header.code_stride = Codes::code_stride(header.dim, metric, header.codes == kCodesFloats);
    header.code_factor = 1.0f / static_cast<float>(1 + input.byte());
    if (metric == ANN_METRIC_INNER_PRODUCT) header.norm_max = input.byte();
  }
}

/// Bytes of a half code; 0: such codes have none.
uint32_t half_stride(const Header& header) {
  return static_cast<uint32_t>(Codes::half_stride(header.dim, static_cast<int32_t>(header.metric),
                                                  static_cast<int32_t>(header.element)));
}

/// Fills sections with values drawn from one seed.
class Values {
 public:
  Values(const Header& header, uint64_t seed) : header_(header), seed_(seed) {}

  void fill(const Section& section, uint8_t* out) {
    switch (section.type) {
      case kRows:
        return fill_rows(out);
      case kIds:
        return fill_ids(out);
      case kOrder:
        return fill_order(out);
      case kLengths:
        return fill_lengths(out);
      case kCentre:
        return fill_floats(out, section.items);
      case kCodes:
        return fill_codes(out);
      case kEdges:
        return fill_edges(out);
      case kEntries:
        return fill_spread(out, section.items);
      case kCoveringHeads:
        return fill_spread(out, section.items);
      case kCalibration:
        return fill_curves(out, section.items);
      case kQueries:
        return fill_queries(out, section.bytes);
      case kSlackCurves:
      case kCoveringCurves:
        return fill_slack_curves(out, section.items);
      case kDeviceCurves:
        for (uint32_t i = 0; i < section.items; ++i)
          put(out, i, device_curve(i / kCurvesOfWalkers, 1 + 99 * (i % kCurvesOfWalkers), draw() % 25));
        return;
      case kFirstCurves:
        for (uint32_t i = 0; i < section.items; ++i)
          put(out, i, device_curve(i, kFirstAnswers, 1 + draw() % kPointsMax));
        return;
      case kProjectedCodes:
        projected_width_ = section.item_bytes;
        return fill_bytes(out, section.bytes);
      case kProjection:
        return fill_projection(out, section.bytes);
      case kHalfCodes:
        return fill_half_codes(out, section.item_bytes);
      case kProjectedOrder:
        for (uint64_t i = 0; i < section.items; ++i) put(out, i, 0.5);
        return;
      default:
        return fill_bytes(out, section.bytes);
    }
  }

 private:
  uint64_t draw() { return random_word(seed_, 0, counter_++); }
  float small_float() { return static_cast<float>(static_cast<int64_t>(draw() % 65) - 32) / 8; }
  template <class T>
  static void put(uint8_t* out, uint64_t place, const T& value) {
    std::memcpy(out + place * sizeof value, &value, sizeof value);
  }

  void fill_bytes(uint8_t* out, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(draw());
  }
  void fill_floats(uint8_t* out, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) put(out, i, small_float());
  }
  void fill_rows(uint8_t* out) {
    const int32_t element = static_cast<int32_t>(header_.element);
    for (uint64_t row = 0; row < header_.rows; ++row, out += header_.row_stride) {
      if (!is_float_element(element)) {
        fill_bytes(out, header_.dim);
        continue;
      }
      for (uint32_t column = 0; column < header_.dim; ++column)
        float_to_element(small_float(), out, element, column);
    }
  }
  void fill_half_codes(uint8_t* out, uint32_t stride) {
    for (uint64_t row = 0; row < header_.rows; ++row, out += stride)
      for (uint32_t column = 0; column < header_.dim; ++column)
        float_to_element(small_float(), out, ANN_F16, column);
  }
  void fill_ids(uint8_t* out) {
    ids_.clear();
    // The row in the low bits keeps them distinct, and none of them 2^64 - 1.
    for (uint64_t row = 0; row < header_.rows; ++row) ids_.push_back((draw() << 32 >> 8) | row);
    std::memcpy(out, ids_.data(), ids_.size() * sizeof(uint64_t));
  }
  void fill_order(uint8_t* out) {
    std::vector<uint32_t> order(ids_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return ids_[a] < ids_[b]; });
    std::memcpy(out, order.data(), order.size() * sizeof(uint32_t));
  }
  void fill_lengths(uint8_t* out) {
    for (uint64_t row = 0; row < header_.rows; ++row) put(out, row, std::fabs(small_float()));
  }
  void fill_codes(uint8_t* out) {
    const uint32_t columns = code_columns(header_);
    for (uint64_t row = 0; row < header_.rows; ++row, out += header_.code_stride) {
      if (header_.codes == kCodesFloats) {
        fill_floats(out, columns);
      } else {
        fill_bytes(out, columns);
      }
    }
  }
  void fill_edges(uint8_t* out) {
    for (uint64_t row = 0; row < header_.rows; ++row) {
      const uint64_t used = draw() % (header_.degree + 1);
      for (uint64_t edge = 0; edge < header_.degree; ++edge)
        put(out, row * header_.degree + edge,
            edge < used ? static_cast<uint32_t>(draw() % header_.rows) : UINT32_MAX);
    }
  }
  void fill_spread(uint8_t* out, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) put(out, i, static_cast<uint32_t>(i * header_.rows / count));
  }
  void fill_curves(uint8_t* out, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      Curve curve = {};
      curve.k = static_cast<uint32_t>(1 + i * (1 + draw() % 20));
      if (i > 0) curve.k += 100 * static_cast<uint32_t>(i);
      curve.count = static_cast<uint32_t>(1 + draw() % kPointsMax);
      for (uint32_t point = 0; point < curve.count; ++point)
        curve.points[point] = {(point + 1) * 16, 0, point / 32.0};
      put(out, i, curve);
    }
  }

  void fill_slack_curves(uint8_t* out, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      SlackCurve curve = {};
      curve.k = static_cast<uint32_t>(1 + 100 * i + draw() % 20);
      curve.count = static_cast<uint32_t>(1 + draw() % kPointsMax);
      for (uint32_t point = 0; point < curve.count; ++point)
        curve.points[point] = {point / 16.0, point / 32.0, static_cast<double>(draw() % 1000) / 8,
                               1 + static_cast<double>(draw() % 1000) / 8};
      put(out, i, curve);
    }
  }

  /// A curve of the walkers at a place among those of all classes.
  DeviceCurve device_curve(uint32_t walkers, uint32_t k, uint64_t count) {
    constexpr uint32_t kWarps[kWalkers] = {1, 8, 16, 1};
    DeviceCurve curve = {};
    curve.capability = 80 + walkers / kWalkers;
    curve.multiprocessors = 132;
    curve.warps = kWarps[walkers % kWalkers];
    curve.resident = walkers % kWalkers == kWalkers - 1 ? 1 : 0;
    curve.k = k;
    curve.count = static_cast<uint32_t>(count);
    for (uint32_t point = 0; point < curve.count; ++point)
      curve.points[point] = {point / 32.0, point / 16.0 - 0.5, static_cast<double>(draw() % 4096),
                             static_cast<double>(draw() % 1000) / 8};
    return curve;
  }

  void fill_projection(uint8_t* out, uint64_t bytes) {
    constexpr uint64_t kHead = ProjectedCodes::kHeadBytes;
    put(out, 0, 1 / static_cast<float>(1 + draw() % 1000));
    for (uint64_t i = 0; i < projected_width_; ++i)
      put(out + kHead, i, static_cast<int32_t>(draw() % 2001) - 1000);
    const uint64_t directions = kHead + projected_width_ * sizeof(int32_t);
    fill_bytes(out + directions, bytes - directions);
  }

  void fill_queries(uint8_t* out, uint64_t bytes) {
    if (is_float_element(static_cast<int32_t>(header_.element)))
      fill_floats(out, bytes / sizeof(float));
    else
      fill_bytes(out, bytes);
  }

  const Header& header_;
  uint64_t seed_;
  uint64_t counter_ = 0;
  std::vector<uint64_t> ids_;
  uint32_t projected_width_ = 0;
};

/// Sections that no reader knows and any may skip.
uint32_t add_unknown(Section* table, uint32_t known, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    Section& section = table[known + i] = {};
    section.type = 27 + i * 7;
    section.flags = kSkippable;
    section.item_bytes = 1;
    section.bytes = section.items = kUnknownBytes;
    section.chunk_bytes = kChunkBytes;
  }
  return known + count;
}

}  // namespace

FileShape read_shape(Input& input, bool large) {
  FileShape shape;
  Header& header = shape.header;
  header.metric = static_cast<uint32_t>(1 + input.below(3));
  header.element = static_cast<uint32_t>(1 + input.below(5));
  header.graph = input.below(8) == 7 ? kGraphNone : kGraphCagra;
  header.rows = input.one_of(kRowCounts);
  header.dim = input.one_of(kDims);
  if (large && input.byte() == 255 && input.byte() == 255) {
    header.rows = 9;
    header.dim = ANN_DIM_MAX;
  }
  header.has_ids = header.rows > 0 ? static_cast<uint32_t>(input.below(2)) : 0;
  if (header.graph == kGraphCagra) {
    header.degree = input.one_of(kDegrees);
    header.entries = header.rows == 0 ? 0 : static_cast<uint32_t>(1 + input.byte() % header.rows);
    shape.curves = static_cast<uint32_t>(input.below(kCurvesMax + 1));
    header.recall_max = static_cast<float>(input.byte()) / 255;
  }
  header.row_stride = Dataset::stored_stride(header.dim, static_cast<int32_t>(header.metric),
                                             static_cast<int32_t>(header.element));
  choose_codes(header, input);
  shape.unknown_sections = static_cast<uint32_t>(input.below(8) == 7 ? 1 + input.below(3) : 0);
  shape.values_seed = input.half();
  header.seed = shape.values_seed;
  if (header.graph == kGraphCagra && input.below(4) == 3) shape.queries = 1 + input.byte();
  if (header.graph == kGraphCagra && input.below(4) == 3)
    shape.slack_curves = static_cast<uint32_t>(1 + input.below(kSlackCurvesMax));
  const bool may_project = header.graph == kGraphCagra && header.rows > 0 && header.codes != kCodesFloats &&
                           header.metric != ANN_METRIC_INNER_PRODUCT &&
                           std::max(header.row_stride, header.code_stride) <= kProjectedStrideMax;
  if (may_project && input.below(4) == 3)
    shape.projected_width = static_cast<uint32_t>(64 * (1 + input.below(3)));
  if (header.graph == kGraphCagra && input.below(4) == 3) {
    constexpr uint32_t kOfClass = kWalkers * kCurvesOfWalkers;
    shape.device_curves = static_cast<uint32_t>(1 + input.below(kDeviceClassesMade * kOfClass));
    const uint32_t classes = (shape.device_curves + kOfClass - 1) / kOfClass;
    shape.first_curves = static_cast<uint32_t>(input.below(kWalkers * classes + 1));
  }
  if (header.graph != kGraphNone && input.below(4) == 3) header.features = 1 + input.below(3);
  if (header.graph == kGraphCagra && header.rows > 0 && input.below(8) == 7) {
    shape.covering_heads = static_cast<uint32_t>(1 + input.byte() % header.rows);
    shape.covering_curves = static_cast<uint32_t>(1 + input.below(kSlackCurvesMax));
  } else if (header.graph == kGraphCagra && input.below(16) == 15) {
    header.features_to_read |= kFeatureSlackSpread;
  }
  if (header.codes == kCodesFloats && header.rows > 0 && input.below(2) == 1)
    shape.half_bytes = half_stride(header);
  return shape;
}

std::vector<uint8_t> make_file(const FileShape& shape) {
  Header header = shape.header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.byte_order = kByteOrder;
  header.major = kMajor;
  header.minor = shape.half_bytes != 0                                  ? kMinorWithHalfCodes
                 : shape.covering_heads != 0                            ? kMinorWithCoveringHeads
                 : (header.features_to_read & kFeatureSlackSpread) != 0 ? kMinorWithSlackSpread
                 : header.features > kFeatureEntryGroups                ? kMinorWithSlackGroups
                 : header.features != 0                                 ? kMinorWithEntryGroups
                 : shape.first_curves != 0                              ? kMinorWithFirstCurves
                 : shape.projected_width != 0                           ? kMinorWithProjectedCodes
                 : shape.slack_curves != 0                              ? kMinorWithSlackCurves
                 : shape.device_curves != 0                             ? kMinorWithDeviceCurves
                 : shape.queries != 0                                   ? kMinorWithQueries
                                                                        : kMinor;
  header.table_offset = kPage;
  header.writer = ANN_VERSION_MAJOR << 16 | ANN_VERSION_MINOR << 8 | ANN_VERSION_PATCH;
  Section table[kSectionsMax] = {};
  Calibrated calibrated;
  calibrated.curves = shape.curves;
  calibrated.queries = shape.queries;
  calibrated.slack_curves = shape.slack_curves;
  calibrated.device_curves = shape.device_curves;
  calibrated.first_curves = shape.first_curves;
  calibrated.covering_heads = shape.covering_heads;
  calibrated.covering_curves = shape.covering_curves;
  calibrated.projected_width = shape.projected_width;
  calibrated.half_bytes = shape.half_bytes;
  calibrated.order = shape.projected_width == 128;
  header.sections = add_unknown(table, demanded_sections(header, calibrated, table), shape.unknown_sections);
  const uint64_t tail = place_sections(table, header.sections);
  header.file_bytes = tail + sizeof(Tail);
  std::vector<uint8_t> file(header.file_bytes);
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + kPage, table, header.sections * sizeof(Section));
  Values values(header, shape.values_seed);
  for (uint32_t i = 0; i < header.sections; ++i) values.fill(table[i], file.data() + table[i].offset);
  repair(file);
  return file;
}

}  // namespace gannet::fuzz
