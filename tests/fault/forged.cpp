#include "forged.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "support.h"

using namespace gannet::format;

namespace fault {

Header header_of(const Bytes& file) {
  Header header = {};
  std::memcpy(&header, file.data(), std::min<uint64_t>(sizeof header, file.size()));
  return header;
}

std::vector<Section> table_of(const Bytes& file) {
  const Header header = header_of(file);
  std::vector<Section> table;
  for (uint32_t i = 0; i < std::min(header.sections, kSectionsMax); ++i) {
    const uint64_t at = kPage + i * sizeof(Section);
    if (at + sizeof(Section) > file.size()) break;
    Section section;
    std::memcpy(&section, file.data() + at, sizeof section);
    table.push_back(section);
  }
  return table;
}

// --- Mending --------------------------------------------------------------------------------------

namespace {

bool inside(const Bytes& file, uint64_t offset, uint64_t bytes) {
  return offset <= file.size() && bytes <= file.size() - offset;
}

void mend_chunks(Bytes& file, Section& section) {
  const uint64_t chunks = chunks_of(section.bytes);
  if (!inside(file, section.offset, section.bytes) ||
      !inside(file, section.sums_offset, chunks * sizeof(uint64_t)))
    return;
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    const uint64_t begin = chunk * kChunkBytes;
    const uint64_t sum = chunk_sum(section.type, chunk, file.data() + section.offset + begin,
                                   std::min(kChunkBytes, section.bytes - begin));
    std::memcpy(file.data() + section.sums_offset + chunk * sizeof sum, &sum, sizeof sum);
  }
  section.sums_sum = sum(file.data() + section.sums_offset, chunks * sizeof(uint64_t));
}

}  // namespace

void mend(Bytes& file, Mending mending) {
  Header header = header_of(file);
  std::vector<Section> table = table_of(file);
  if (mending == Mending::kAll) {
    for (Section& section : table) mend_chunks(file, section);
    if (!table.empty()) std::memcpy(file.data() + kPage, table.data(), table.size() * sizeof(Section));
  }
  uint64_t chunks = 0;
  for (const Section& section : table) chunks += std::min(chunks_of(section.bytes), uint64_t{1} << 40);
  const uint64_t end = round_to_page(kPage + header.sections * sizeof(Section) + chunks * 8);
  if (inside(file, kPage, end - kPage)) header.table_sum = sum(file.data() + kPage, end - kPage);
  if (mending == Mending::kAll && table.size() == header.sections)
    content_id(header, table.data(), header.content_id);
  header.header_sum = header_sum(header);
  std::memcpy(file.data(), &header, sizeof header);
  const Tail tail = tail_of(header);
  std::memcpy(file.data() + file.size() - sizeof tail, &tail, sizeof tail);
}

namespace {

/// The file with a section of these bytes in the place of its type, of items of so many.
Bytes with_bytes(const Bytes& file, uint32_t type, uint32_t flags, uint32_t item_bytes,
                 const std::vector<uint8_t>& contents) {
  Header header = header_of(file);
  std::vector<Section> table = table_of(file);
  const uint64_t end = file.size() - sizeof(Tail);
  const uint64_t bytes = contents.size();
  const auto place =
      std::find_if(table.begin(), table.end(), [&](const Section& other) { return other.type > type; });
  const uint64_t offset = place == table.end() ? end : place->offset;
  for (auto behind = place; behind != table.end(); ++behind) behind->offset += round_to_page(bytes);
  Section added = {};
  added.type = type;
  added.flags = flags;
  added.offset = offset;
  added.bytes = bytes;
  added.item_bytes = item_bytes;
  added.items = bytes / item_bytes;
  added.chunk_bytes = kChunkBytes;
  table.insert(place, added);
  // Sums lie behind the table, which has grown; mend() writes them anew.
  uint64_t sums = kPage + table.size() * sizeof(Section);
  for (Section& section : table) {
    section.sums_offset = sums;
    sums += chunks_of(section.bytes) * sizeof(uint64_t);
  }
  header.sections = static_cast<uint32_t>(table.size());
  Bytes longer(end + round_to_page(bytes) + sizeof(Tail));
  std::memset(longer.data(), 0, longer.size());
  std::memcpy(longer.data(), file.data(), offset);
  if (bytes != 0) std::memcpy(longer.data() + offset, contents.data(), bytes);
  std::memcpy(longer.data() + offset + round_to_page(bytes), file.data() + offset, end - offset);
  header.file_bytes = longer.size();
  std::memset(longer.data() + kPage, 0, table[0].offset - kPage);
  std::memcpy(longer.data(), &header, sizeof header);
  std::memcpy(longer.data() + kPage, table.data(), table.size() * sizeof(Section));
  mend(longer, Mending::kAll);
  return longer;
}

}  // namespace

Bytes with_section(const Bytes& file, uint32_t type, uint32_t flags, uint64_t bytes) {
  return with_bytes(file, type, flags, 1, std::vector<uint8_t>(bytes, 0x77));
}

Bytes with_projection(const Bytes& file) {
  constexpr uint32_t kWidth = 64;
  Header header = header_of(file);
  uint64_t seed = 11;
  const auto random_bytes = [&](uint64_t count) {
    std::vector<uint8_t> bytes(count);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_next(&seed));
    return bytes;
  };
  std::vector<uint8_t> projection = random_bytes(64 + kWidth * (4 + header.row_stride));
  std::fill_n(projection.begin(), 64 + kWidth * 4, uint8_t{0});
  const float factor = 0.01F;
  const int32_t offsets[] = {-(1 << 27), 1 << 27};
  std::memcpy(projection.data(), &factor, sizeof factor);
  std::memcpy(projection.data() + 64, offsets, sizeof offsets);
  const double shares[] = {0.5, 1, 0};
  std::vector<uint8_t> order(sizeof shares);
  std::memcpy(order.data(), shares, sizeof shares);
  Bytes longer = with_bytes(file, kProjectedCodes, kSkippable, kWidth, random_bytes(header.rows * kWidth));
  longer = with_bytes(longer, kProjection, kSkippable, 1, projection);
  longer = with_bytes(longer, kProjectedOrder, kSkippable, sizeof(double), order);
  header = header_of(longer);
  header.minor = kMinorWithProjectedCodes;
  std::memcpy(longer.data(), &header, sizeof header);
  mend(longer, Mending::kAll);
  return longer;
}

Bytes with_device_curves(const Bytes& file) {
  const auto curve = [](uint32_t capability, uint32_t warps, uint32_t resident, uint32_t k) {
    DeviceCurve made = {};
    made.capability = capability;
    made.multiprocessors = 132;
    made.block_list_max = 1280;
    made.warps = warps;
    made.resident = resident;
    made.k = k;
    made.count = 3;
    for (uint32_t i = 0; i < made.count; ++i)
      made.points[i] = {0.25 * i, 0.1 * i - 0.1, 4096, 10.5 * (i + 1)};
    return made;
  };
  const auto bytes_of = [](const std::vector<DeviceCurve>& curves) {
    std::vector<uint8_t> bytes(curves.size() * sizeof(DeviceCurve));
    std::memcpy(bytes.data(), curves.data(), bytes.size());
    return bytes;
  };
  const std::vector<DeviceCurve> curves = {curve(80, 1, 0, 10), curve(90, 1, 0, 10), curve(90, 1, 0, 100),
                                           curve(90, 8, 0, 100)};
  const std::vector<DeviceCurve> first = {curve(90, 1, 0, 10), curve(90, 8, 0, 10), curve(90, 1, 1, 10)};
  Bytes longer = with_bytes(file, kDeviceCurves, kSkippable, sizeof(DeviceCurve), bytes_of(curves));
  longer = with_bytes(longer, kFirstCurves, kSkippable, sizeof(DeviceCurve), bytes_of(first));
  Header header = header_of(longer);
  header.minor = kMinorWithFirstCurves;
  std::memcpy(longer.data(), &header, sizeof header);
  mend(longer, Mending::kAll);
  return longer;
}

Bytes with_covering_heads(const Bytes& file) {
  const auto rows = static_cast<uint32_t>(header_of(file).rows);
  const uint32_t heads[] = {0, rows / 3, rows / 2, rows - 1};
  SlackCurve curves[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    curves[i].k = 1 + 9 * i;
    curves[i].count = 3;
    for (uint32_t at = 0; at < 3; ++at)
      curves[i].points[at] = {0.05 * at, 0.1 * at, 2.5 * (at + 1), 8.0 * (at + 1)};
  }
  const auto bytes_of = [](const void* from, size_t bytes) {
    std::vector<uint8_t> copy(bytes);
    std::memcpy(copy.data(), from, bytes);
    return copy;
  };
  Bytes longer =
      with_bytes(file, kCoveringHeads, kSkippable, sizeof(uint32_t), bytes_of(heads, sizeof heads));
  longer =
      with_bytes(longer, kCoveringCurves, kSkippable, sizeof(SlackCurve), bytes_of(curves, sizeof curves));
  Header header = header_of(longer);
  header.minor = kMinorWithCoveringHeads;
  std::memcpy(longer.data(), &header, sizeof header);
  mend(longer, Mending::kAll);
  return longer;
}

// --- What the specification demands of values -----------------------------------------------------

namespace {

/// A section's bytes as values.
class Values {
 public:
  Values(const Bytes& file, uint32_t type) {
    for (const Section& section : table_of(file)) {
      if (section.type != type) continue;
      data_ = file.data() + section.offset;
      bytes_ = section.bytes;
    }
  }
  uint64_t bytes() const { return bytes_; }
  const uint8_t* data() const { return data_; }
  template <class T>
  T at(uint64_t place) const {
    T value;
    std::memcpy(&value, data_ + place * sizeof value, sizeof value);
    return value;
  }
  template <class T>
  uint64_t count() const {
    return bytes_ / sizeof(T);
  }

 private:
  const uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

bool lawful_rows(const Header& header, const Values& rows) {
  const int32_t element = static_cast<int32_t>(header.element);
  const size_t size = element_size(element);
  for (uint64_t row = 0; row < header.rows; ++row) {
    const uint8_t* first = rows.data() + row * header.row_stride;
    for (uint32_t column = 0; column < header.dim; ++column)
      if (!std::isfinite(get_value(element, first + column * size))) return false;
    for (uint64_t at = header.dim * size; at < header.row_stride; ++at)
      if (first[at] != 0) return false;
  }
  return true;
}

bool lawful_ids(const Header& header, const Values& ids, const Values& order) {
  if (header.has_ids == 0) return true;
  std::set<uint64_t> distinct;
  for (uint64_t row = 0; row < header.rows; ++row) {
    if (ids.at<uint64_t>(row) == UINT64_MAX) return false;
    distinct.insert(ids.at<uint64_t>(row));
  }
  if (distinct.size() != header.rows) return false;
  auto next = distinct.begin();
  for (uint64_t place = 0; place < header.rows; ++place, ++next) {
    const uint32_t row = order.at<uint32_t>(place);
    if (row >= header.rows || ids.at<uint64_t>(row) != *next) return false;
  }
  return true;
}

bool lawful_floats(const Values& values, bool negative) {
  for (uint64_t i = 0; i < values.count<float>(); ++i) {
    const float value = values.at<float>(i);
    if (!std::isfinite(value) || (!negative && value < 0)) return false;
  }
  return true;
}

bool lawful_codes(const Header& header, const Values& codes) {
  if (codes.bytes() == 0) return true;
  if (header.codes == kCodesFloats && !lawful_floats(codes, true)) return false;
  const uint64_t columns = header.dim + (header.metric == ANN_METRIC_INNER_PRODUCT ? 16 : 0);
  const uint64_t used = columns * (header.codes == kCodesFloats ? 4 : 1);
  for (uint64_t row = 0; row < header.rows; ++row)
    for (uint64_t at = used; at < header.code_stride; ++at)
      if (codes.data()[row * header.code_stride + at] != 0) return false;
  return true;
}

bool lawful_scaled_codes(const Header& header, const Values& codes, const Values& centres) {
  if (!lawful_floats(centres, true)) return false;
  const uint64_t terms_at = (header.dim + 15) / 16 * 16;
  const uint64_t stride = (terms_at + 16 + 63) / 64 * 64;
  const uint64_t cells = centres.count<float>() / header.dim;  // and one row more
  for (uint64_t row = 0; row < codes.bytes() / stride; ++row) {
    const uint8_t* code = codes.data() + row * stride;
    float terms[2];
    uint32_t rest[2];
    std::memcpy(terms, code + terms_at, sizeof terms);
    std::memcpy(rest, code + terms_at + sizeof terms, sizeof rest);
    if (!std::isfinite(terms[0]) || terms[0] < 0 || !std::isfinite(terms[1])) return false;
    if (uint64_t{rest[0]} + 1 >= cells || rest[1] != 0) return false;
    for (uint64_t at = header.dim; at < stride; ++at)
      if ((at < terms_at || at >= terms_at + 16) && code[at] != 0) return false;
  }
  return true;
}

bool lawful_half_codes(const Header& header, const Values& halves) {
  const uint64_t stride = (header.dim * 2 + 63) / 64 * 64;
  for (uint64_t row = 0; row < halves.bytes() / stride; ++row) {
    for (uint64_t at = 0; at < stride / 2; ++at) {
      const auto half = halves.at<uint16_t>(row * stride / 2 + at);
      if ((half & 0x7c00) == 0x7c00 || (at >= header.dim && half != 0)) return false;
    }
  }
  return true;
}

bool lawful_projection(const Values& codes, const Values& projection, const Header& header) {
  if (projection.bytes() == 0) return true;
  const float factor = projection.at<float>(0);
  if (!std::isfinite(factor) || !(factor > 0)) return false;
  for (uint64_t at = 4; at < 64; ++at)
    if (projection.data()[at] != 0) return false;
  const uint64_t width = codes.bytes() / header.rows;
  for (uint64_t column = 0; column < width; ++column)
    if (std::abs(int64_t{projection.at<int32_t>(16 + column)}) > 134217728) return false;
  return true;
}

bool lawful_edges(const Header& header, const Values& edges) {
  for (uint64_t row = 0; row < header.rows; ++row) {
    bool ended = false;
    for (uint32_t place = 0; place < header.degree; ++place) {
      const uint32_t target = edges.at<uint32_t>(row * header.degree + place);
      if (target != UINT32_MAX && (ended || target >= header.rows)) return false;
      if (target == UINT32_MAX) ended = true;
    }
  }
  return true;
}

bool lawful_entries(const Header& header, const Values& entries) {
  for (uint64_t i = 0; i < entries.count<uint32_t>(); ++i) {
    if (entries.at<uint32_t>(i) >= header.rows) return false;
    if (i > 0 && entries.at<uint32_t>(i - 1) >= entries.at<uint32_t>(i)) return false;
  }
  return true;
}

bool lawful_curve(const Curve& curve) {
  if (curve.k == 0 || curve.count < 1 || curve.count > kPointsMax) return false;
  for (uint32_t i = 0; i < kPointsMax; ++i) {
    const Point& point = curve.points[i];
    const Point nothing = {};
    if (i >= curve.count) {
      if (std::memcmp(&point, &nothing, sizeof point) != 0) return false;
      continue;
    }
    if (point.zero != 0 || point.beam < 1 || point.beam > 65536) return false;
    if (!(point.recall >= 0 && point.recall <= 1)) return false;
    if (i > 0 && (point.beam <= curve.points[i - 1].beam || point.recall < curve.points[i - 1].recall))
      return false;
  }
  return true;
}

bool lawful_calibration(const Values& values) {
  for (uint64_t i = 0; i < values.count<Curve>(); ++i) {
    if (!lawful_curve(values.at<Curve>(i))) return false;
    if (i > 0 && values.at<Curve>(i - 1).k >= values.at<Curve>(i).k) return false;
  }
  return true;
}

bool lawful_slack_curve(const SlackCurve& curve) {
  if (curve.k == 0 || curve.count < 1 || curve.count > kPointsMax) return false;
  for (uint32_t i = 0; i < kPointsMax; ++i) {
    const SlackPoint& point = curve.points[i];
    const SlackPoint nothing = {};
    if (i >= curve.count) {
      if (std::memcmp(&point, &nothing, sizeof point) != 0) return false;
      continue;
    }
    if (!(point.slack >= 0 && point.slack <= 3) || !(point.recall >= 0 && point.recall <= 1)) return false;
    if (!(point.expansions >= 0 && point.expansions <= 2147483646)) return false;
    if (!(point.beam >= 1 && point.beam <= 65536)) return false;
    if (i > 0 && (point.slack <= curve.points[i - 1].slack || point.recall < curve.points[i - 1].recall))
      return false;
  }
  return true;
}

bool lawful_slacks(const Values& values) {
  for (uint64_t i = 0; i < values.count<SlackCurve>(); ++i) {
    if (!lawful_slack_curve(values.at<SlackCurve>(i))) return false;
    if (i > 0 && values.at<SlackCurve>(i - 1).k >= values.at<SlackCurve>(i).k) return false;
  }
  return true;
}

bool lawful_covering(const Header& header, const Values& heads, const Values& curves) {
  const uint64_t count = heads.count<uint32_t>();
  const uint64_t curve_count = curves.count<SlackCurve>();
  if (count > 8192 || curve_count > 4 || (count == 0) != (curve_count == 0)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    if (heads.at<uint32_t>(i) >= header.rows) return false;
    if (i > 0 && heads.at<uint32_t>(i - 1) >= heads.at<uint32_t>(i)) return false;
  }
  return lawful_slacks(curves);
}

bool lawful_device_curve(const DeviceCurve& curve) {
  const bool of_warp = curve.warps == 1 && curve.resident <= 1;
  const bool of_block = (curve.warps == 8 || curve.warps == 16) && curve.resident == 0;
  if ((!of_warp && !of_block) || curve.k == 0 || curve.zero != 0 || curve.count > kPointsMax) return false;
  for (uint32_t i = 0; i < kPointsMax; ++i) {
    const DevicePoint& point = curve.points[i];
    const DevicePoint nothing = {};
    if (i >= curve.count) {
      if (std::memcmp(&point, &nothing, sizeof point) != 0) return false;
      continue;
    }
    if (!(point.slack > -1 && point.slack <= 100) || !(point.recall >= 0 && point.recall <= 1)) return false;
    if (!(point.expansions >= 0 && point.expansions <= 2147483646)) return false;
    if (!(point.expansions_max >= 0 && point.expansions_max <= 2147483646)) return false;
    if (i > 0 && (point.slack <= curve.points[i - 1].slack || point.recall < curve.points[i - 1].recall))
      return false;
  }
  return true;
}

using ClassNumbers = std::tuple<uint32_t, uint32_t, uint32_t>;

ClassNumbers class_of(const DeviceCurve& curve) {
  return {curve.capability, curve.multiprocessors, curve.block_list_max};
}

/// Who walks: 1 warp, 8, 16, 1 at once.
uint32_t walkers_of(const DeviceCurve& curve) { return curve.resident != 0 ? 17 : curve.warps; }

bool lawful_devices(const Values& values) {
  std::set<ClassNumbers> classes;
  std::map<std::tuple<ClassNumbers, uint32_t>, uint32_t> curves;
  for (uint64_t i = 0; i < values.count<DeviceCurve>(); ++i) {
    const DeviceCurve curve = values.at<DeviceCurve>(i);
    const auto place = [](const DeviceCurve& of) { return std::tuple(class_of(of), walkers_of(of), of.k); };
    if (!lawful_device_curve(curve)) return false;
    if (i > 0 && place(values.at<DeviceCurve>(i - 1)) >= place(curve)) return false;
    classes.insert(class_of(curve));
    if (classes.size() > 16 || ++curves[{class_of(curve), walkers_of(curve)}] > 5) return false;
  }
  return true;
}

bool lawful_first_answers(const Values& first, const Values& devices) {
  std::set<ClassNumbers> classes;
  for (uint64_t i = 0; i < devices.count<DeviceCurve>(); ++i)
    classes.insert(class_of(devices.at<DeviceCurve>(i)));
  for (uint64_t i = 0; i < first.count<DeviceCurve>(); ++i) {
    const DeviceCurve curve = first.at<DeviceCurve>(i);
    const auto place = [](const DeviceCurve& of) { return std::tuple(class_of(of), walkers_of(of)); };
    if (!lawful_device_curve(curve) || curve.k != 10 || curve.count == 0) return false;
    if (i > 0 && place(first.at<DeviceCurve>(i - 1)) >= place(curve)) return false;
    if (!classes.contains(class_of(curve))) return false;
  }
  return true;
}

bool lawful_queries(const Header& header, const Values& queries) {
  return header.element == ANN_I8 || header.element == ANN_U8 || lawful_floats(queries, true);
}

bool lawful_shares(const Values& shares) {
  for (uint64_t i = 0; i < shares.count<double>(); ++i)
    if (!(shares.at<double>(i) >= 0 && shares.at<double>(i) <= 1)) return false;
  return true;
}

}  // namespace

bool lawful(const Bytes& file) {
  const Header header = header_of(file);
  const auto values = [&](uint32_t type) { return Values(file, type); };
  return lawful_rows(header, values(kRows)) && lawful_ids(header, values(kIds), values(kOrder)) &&
         lawful_floats(values(kLengths), false) && lawful_floats(values(kCentre), true) &&
         lawful_codes(header, values(kCodes)) && lawful_edges(header, values(kEdges)) &&
         lawful_entries(header, values(kEntries)) && lawful_calibration(values(kCalibration)) &&
         lawful_slacks(values(kSlackCurves)) &&
         lawful_covering(header, values(kCoveringHeads), values(kCoveringCurves)) &&
         lawful_devices(values(kDeviceCurves)) &&
         lawful_first_answers(values(kFirstCurves), values(kDeviceCurves)) &&
         lawful_queries(header, values(kQueries)) && lawful_shares(values(kCodeOrder)) &&
         lawful_shares(values(kProjectedOrder)) &&
         lawful_projection(values(kProjectedCodes), values(kProjection), header) &&
         lawful_scaled_codes(header, values(kScaledCodes), values(kScaledCentres)) &&
         lawful_half_codes(header, values(kHalfCodes));
}

bool legal_id(const Bytes& file, uint64_t id) {
  const Header header = header_of(file);
  if (header.has_ids == 0) return id < header.rows;
  const Values ids(file, kIds);
  for (uint64_t row = 0; row < header.rows; ++row)
    if (ids.at<uint64_t>(row) == id) return true;
  return false;
}

}  // namespace fault
