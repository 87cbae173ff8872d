// Saving: segment -> bytes, in the order of the file. storage.h says which.
//
// The sums stand before the bytes that they cover, so the index is read twice: once to sum it, by all
// threads, once to write it. The alternative, sums behind the sections, would need a file that can be
// written out of order, which a stream cannot.

#include <cerrno>
#include <cstring>
#include <vector>

#include "dataset/projected_codes.h"
#include "graph/covering_heads.h"
#include "storage/layers.h"
#include "storage/layout.h"
#include "storage/map.h"
#include "storage/replacement.h"

namespace gannet {
namespace {

using namespace format;

// --- The bytes of an index ------------------------------------------------------------------------

uint32_t graph_kind(int32_t kind) {
  switch (kind) {
    case ANN_GRAPH_NONE:
      return kGraphNone;
    case ANN_GRAPH_TSDG:
      return kGraphTsdg;
    case ANN_GRAPH_GGNN:
      return kGraphGgnn;
    default:
      return kGraphCagra;
  }
}

/// An index as header, section table and chunks of bytes.
class Content {
 public:
  Content(const PlacedSegment& placed, const Execution& execution)
      : placed_(placed),
        segment_(placed.segment),
        calibration_(placed.curves(execution)),
        curves_(Array<Curve>::zeroed(execution.memory, kCurvesMax)),
        slack_curves_(Array<SlackCurve>::zeroed(execution.memory, kSlackCurvesMax)),
        covering_curves_(Array<SlackCurve>::zeroed(execution.memory, kSlackCurvesMax)) {
    execution.enter("check");
    // Unchecked bytes must not get a good sum. Ids come in their order, or an open in mode FULL
    // would refuse a file that a LAZY one has saved.
    segment_.touch_all(execution);
    if (segment_.file != nullptr)
      check_ids(segment_.dataset.ids(), segment_.dataset.by_id(),
                segment_.dataset.ids() != nullptr ? segment_.rows() : 0, execution);
    encode_calibration();
    encode_layers(execution);
    encode_devices(execution);
    const CodeOrder order = segment_.codes.order();
    order_[0] = order.first_ten;
    order_[1] = order.first_twenty;
    order_[2] = order.worst_twenty;
    fill_header();
    const SearchGraph& graph = segment_.graph;
    header_.sections = demanded_sections(
        header_,
        {calibration_.curves().count(), segment_.queries.count(),
         static_cast<uint32_t>(device_curves_.size()), graph.edges.size(), graph.levels, cells(),
         layers_.size(), slack_count(), has_order(), projected_width(),
         static_cast<uint32_t>(first_curves_.size()), covering_heads(), covering_count(), half_bytes()},
        sections_);
    tail_offset_ = place_sections(sections_, header_.sections);
    header_.file_bytes = tail_offset_ + sizeof(Tail);
    for (uint32_t i = 0; i < header_.sections; ++i) chunks_ += chunks_of(sections_[i].bytes);
  }

  const Header& header() const { return header_; }
  uint32_t sections() const { return header_.sections; }
  const Section& section(uint32_t place) const { return sections_[place]; }
  uint64_t chunks() const { return chunks_; }
  uint64_t tail_offset() const { return tail_offset_; }

  /// Bytes that `chunk` needs to put rows together: none where memory has them as the file does, and no more
  /// than there are.
  uint64_t scratch_bytes() const {
    return segment_.dataset.borrowed() ? std::min(kChunkBytes, sections_[0].bytes) : 0;
  }
  /// The bytes of a chunk: where they lie, or put together in `scratch` [scratch_bytes].
  const uint8_t* chunk(const Section& section, uint64_t number, uint8_t* scratch) const {
    const uint64_t begin = number * kChunkBytes;
    if (section.type == kRows && segment_.dataset.borrowed()) {
      copy_rows(begin, std::min(begin + kChunkBytes, section.bytes), scratch);
      return scratch;
    }
    return static_cast<const uint8_t*>(data_of(section.type)) + begin;
  }

  /// Sums all chunks and completes table and header. `region` is [4096, first section).
  void seal(uint8_t* region, const Execution& execution) {
    uint64_t* sums = reinterpret_cast<uint64_t*>(region + sections() * sizeof(Section));
    sum_chunks(sums, execution);
    for (uint32_t i = 0; i < sections(); ++i) {
      const uint64_t count = chunks_of(sections_[i].bytes);
      sections_[i].sums_sum = sum(sums, count * sizeof(uint64_t));
      sums += count;
    }
    std::memcpy(region, sections_, sections() * sizeof(Section));
    header_.table_sum = sum(region, region_bytes());
    content_id(header_, sections_, header_.content_id);
    header_.header_sum = header_sum(header_);
  }
  uint64_t region_bytes() const { return sections_offset(sections(), chunks_) - kPage; }

 private:
  uint32_t slack_count() const { return segment_.has_graph() ? calibration_.slack().count() : 0; }
  static_assert(kCoveringMost <= kCoveringHeadsMax);
  const CoveringWalks* covering() const { return segment_.has_graph() ? calibration_.covering() : nullptr; }
  uint32_t covering_heads() const {
    return covering() != nullptr ? static_cast<uint32_t>(covering()->heads.size()) : 0;
  }
  uint32_t covering_count() const { return covering() != nullptr ? covering()->slack.count() : 0; }

  /// Cells of scaled codes; 0: there are none.
  uint64_t cells() const {
    const ScaledCodes* scaled = segment_.codes.scaled();
    return scaled != nullptr ? scaled->cells() : 0;
  }

  /// Bytes of a projected code; 0: there are none.
  uint32_t projected_width() const {
    const ProjectedCodes* projected = segment_.codes.projected();
    return projected != nullptr ? projected->width() : 0;
  }

  /// Bytes of a half code; 0: there are none.
  uint32_t half_bytes() const {
    if (!segment_.has_graph() || !segment_.codes.has_halves()) return 0;
    const Dataset& dataset = segment_.dataset;
    return static_cast<uint32_t>(Codes::half_stride(dataset.dim(), dataset.metric(), dataset.element()));
  }

  /// Whether the order by codes is stored; where walks compare rows that are their own codes it is known.
  bool has_order() const {
    const Dataset& dataset = segment_.dataset;
    const bool known =
        Codes::rows_serve(dataset.metric(), dataset.element(), false) && projected_width() == 0;
    return segment_.has_graph() && !known && segment_.codes.order().is_measured();
  }

  void fill_header() {
    const Dataset& dataset = segment_.dataset;
    std::memcpy(header_.magic, kMagic, sizeof header_.magic);
    header_.byte_order = kByteOrder;
    header_.major = kMajor;
    const auto [lists, slacks] = segment_.has_graph() ? calibration_.from_groups() : FromGroups{};
    if (lists) header_.features |= kFeatureEntryGroups;
    if (slacks) header_.features |= kFeatureSlackGroups;
    header_.minor = half_bytes() != 0               ? kMinorWithHalfCodes
                    : covering() != nullptr         ? kMinorWithCoveringHeads
                    : slacks                        ? kMinorWithSlackGroups
                    : lists                         ? kMinorWithEntryGroups
                    : !first_curves_.empty()        ? kMinorWithFirstCurves
                    : projected_width() != 0        ? kMinorWithProjectedCodes
                    : has_order()                   ? kMinorWithCodeOrder
                    : slack_count() != 0            ? kMinorWithSlackCurves
                    : cells() != 0                  ? kMinorWithScaledCodes
                    : !device_curves_.empty()       ? kMinorWithDeviceCurves
                    : segment_.queries.count() != 0 ? kMinorWithQueries
                                                    : kMinor;
    header_.table_offset = kPage;
    header_.writer = ANN_VERSION_MAJOR << 16 | ANN_VERSION_MINOR << 8 | ANN_VERSION_PATCH;
    header_.metric = static_cast<uint32_t>(dataset.metric());
    header_.element = static_cast<uint32_t>(dataset.element());
    header_.graph = graph_kind(segment_.graph.kind);
    if (header_.graph == kGraphTsdg) {
      header_.minor = std::max(header_.minor, kMinorWithVariableRows);
      header_.features_to_read = kFeatureVariableRows;
    }
    if (is_ggnn()) {
      header_.minor = std::max(header_.minor, kMinorWithLayers);
      header_.features_to_read = kFeatureLayers;
    }
    header_.rows = dataset.rows();
    header_.dim = dataset.dim();
    header_.has_ids = dataset.ids() != nullptr ? 1 : 0;
    header_.seed = segment_.seed;
    header_.row_stride = Dataset::stored_stride(dataset.dim(), dataset.metric(), dataset.element());
    if (!segment_.has_graph()) return;
    header_.degree = segment_.graph.degree;
    header_.entries = static_cast<uint32_t>(segment_.graph.starts().size());
    header_.knn_iterations = segment_.knn_iterations;
    header_.repaired_edges = segment_.graph.repaired_edges;
    header_.recall_max = calibration_.recall_max();
    const Codes& codes = segment_.codes;
    if (Codes::rows_serve(dataset.metric(), dataset.element(), false)) {
      header_.codes = kCodesRows;
      return;
    }
    header_.codes = codes.wide() ? kCodesFloats : kCodesBytes;
    header_.code_stride = codes.stride();
    header_.code_factor = codes.inverse_step();
    header_.norm_max = codes.norm_max();
  }

  bool is_ggnn() const { return segment_.graph.kind == ANN_GRAPH_GGNN; }

  void encode_layers(const Execution& execution) {
    if (!is_ggnn()) return;
    layers_ = pack_layers(segment_.graph, execution.memory);
    nearest_[0] = segment_.graph.nearest_max;
    nearest_[1] = segment_.graph.nearest_mean;
  }

  void encode_calibration() {
    const KnobCurves& curves = calibration_.curves();
    for (uint32_t i = 0; i < curves.count(); ++i) {
      const KnobCurve& from = curves[i];
      curves_[i].k = from.k;
      curves_[i].count = from.count;
      for (uint32_t point = 0; point < from.count; ++point)
        curves_[i].points[point] = {static_cast<uint32_t>(from.points[point].knob), 0,
                                    from.points[point].recall};
    }
    for (uint32_t i = 0; i < slack_count(); ++i) slack_curves_[i] = encoded(calibration_.slack()[i]);
    for (uint32_t i = 0; i < covering_count(); ++i) covering_curves_[i] = encoded(covering()->slack[i]);
  }

  static SlackCurve encoded(const KnobCurve& from) {
    SlackCurve curve = {};
    curve.k = from.k;
    curve.count = from.count;
    for (uint32_t at = 0; at < from.count; ++at) {
      const KnobPoint& point = from.points[at];
      curve.points[at] = {point.knob, point.recall, point.expansions, point.bound};
    }
    return curve;
  }

  /// Class by class, those of a warp, of blocks of 8 and 16, and of walks at once, by k. Only whole calibrations: so that
  /// equal indexes give equal files whatever was asked of them, and since earlier readers take the curves that they find
  /// for all.
  void encode_devices(const Execution& execution) {
    if (!segment_.has_graph()) return;
    placed_.devices.measure_others(placed_, execution);
    for (const auto& device : placed_.devices.measured()) {
      if (!device->two_lists.is_whole()) continue;
      for (uint32_t place = 0; place <= DeviceCalibration::kTables; ++place) {
        const DeviceCalibration::Table& table = device->two_lists.table(place);
        for (uint32_t i = 0; i < table.count; ++i)
          device_curves_.push_back(encoded(device->device, table, table.curves[i]));
        if (table.first.count != 0) first_curves_.push_back(encoded(device->device, table, table.first));
      }
    }
  }

  static DeviceCurve encoded(const DeviceClass& device, const DeviceCalibration::Table& table,
                             const DeviceCalibration::Curve& from) {
    DeviceCurve curve = {};
    curve.capability = device.capability;
    curve.multiprocessors = device.multiprocessors;
    curve.block_list_max = device.block_list_max;
    curve.warps = table.query_warps.warps;
    curve.resident = table.query_warps.resident ? 1 : 0;
    curve.k = from.k;
    curve.count = from.count;
    for (uint32_t at = 0; at < from.count; ++at) {
      const DeviceCalibration::Point& point = from.points[at];
      curve.points[at] = {point.recall, point.slack, point.expansions_max, point.expansions};
    }
    return curve;
  }

  const void* data_of(uint32_t type) const {
    switch (type) {
      case kRows:
        return segment_.dataset.view().data;
      case kIds:
        return segment_.dataset.ids();
      case kOrder:
        return segment_.dataset.by_id();
      case kLengths:
        return segment_.dataset.norms();
      case kCentre:
        return segment_.codes.centre().data();
      case kCodes:
        return segment_.codes.data();
      case kEdges:
        return segment_.graph.edges.data();
      case kEntries:
        return segment_.graph.starts().data();
      case kQueries:
        return segment_.queries.data();
      case kLayers:
        return layers_.data();
      case kNearest:
        return nearest_;
      case kPrefixes:
        return segment_.graph.prefixes.data();
      case kScaledCodes:
        return segment_.codes.scaled()->data();
      case kScaledCentres:
        return segment_.codes.scaled()->centres().data();
      case kProjectedCodes:
        return segment_.codes.projected()->data();
      case kProjection:
        return segment_.codes.projected()->projection().data();
      case kDeviceCurves:
        return device_curves_.data();
      case kFirstCurves:
        return first_curves_.data();
      case kSlackCurves:
        return slack_curves_.data();
      case kCoveringHeads:
        return covering()->heads.data();
      case kCoveringCurves:
        return covering_curves_.data();
      case kHalfCodes:
        return segment_.codes.halves();
      case kCodeOrder:
      case kProjectedOrder:
        return order_;
      default:
        return curves_.data();
    }
  }

  /// Bytes begin ... end of the rows as they would lie if they had been copied.
  void copy_rows(uint64_t begin, uint64_t end, uint8_t* out) const {
    const Dataset& dataset = segment_.dataset;
    const uint64_t stride = header_.row_stride;
    const uint64_t used = uint64_t{dataset.dim()} * element_bytes(dataset.element());
    std::memset(out, 0, end - begin);
    for (uint64_t row = begin / stride; row * stride < end; ++row) {
      const uint64_t from = std::max(begin, row * stride);
      const uint64_t to = std::min(end, row * stride + used);
      if (from < to)
        std::memcpy(out + (from - begin), dataset.view().row(row) + (from - row * stride), to - from);
    }
  }

  void sum_chunks(uint64_t* sums, const Execution& execution) const {
    const uint64_t piece = scratch_bytes();
    const uint64_t threads = std::min<uint64_t>(execution.threads, chunks_);
    Array<uint8_t> scratch(execution.memory, piece * threads);
    parallel_for(execution, chunks_, 1, [&](uint64_t job, uint64_t, uint32_t worker) {
      uint64_t chunk = job;
      const Section* section = sections_;
      while (chunk >= chunks_of(section->bytes)) chunk -= chunks_of((section++)->bytes);
      const uint8_t* bytes = this->chunk(*section, chunk, scratch.data() + worker * piece);
      const uint64_t length = std::min(kChunkBytes, section->bytes - chunk * kChunkBytes);
      sums[job] = chunk_sum(section->type, chunk, bytes, length);
      execution.advance(static_cast<double>(job) / static_cast<double>(chunks_));
    });
  }

  const PlacedSegment& placed_;
  const Segment& segment_;
  const Calibration& calibration_;
  Header header_ = {};
  Section sections_[kTypesMax] = {};
  // 5 KB, and the thread may have a small stack.
  Array<Curve> curves_;
  Array<SlackCurve> slack_curves_;
  Array<SlackCurve> covering_curves_;
  Array<uint32_t> layers_;  // of section 11
  float nearest_[2] = {};
  double order_[kOrderNumbers] = {};  // of codes
  std::vector<DeviceCurve> device_curves_;
  std::vector<DeviceCurve> first_curves_;
  uint64_t chunks_ = 0;
  uint64_t tail_offset_ = 0;
};

/// Sends all bytes of an index, from first to last, through `put(data, bytes)`.
template <class Put>
void write_all(Content& content, const Put& put, const Execution& execution) {
  static constexpr uint8_t kZeros[kPage] = {};
  Array<uint8_t> region = Array<uint8_t>::zeroed(execution.memory, content.region_bytes());
  execution.span(0, 0.3).enter("sums");
  content.seal(region.data(), execution.span(0, 0.3));
  const Execution writing = execution.span(0.3, 0.9);
  writing.enter("write");
  put(&content.header(), sizeof(Header));
  put(region.data(), region.size());
  Array<uint8_t> scratch(execution.memory, content.scratch_bytes());
  for (uint32_t i = 0; i < content.sections(); ++i) {
    const Section& section = content.section(i);
    for (uint64_t chunk = 0; chunk < chunks_of(section.bytes); ++chunk) {
      writing.check();
      const uint64_t begin = chunk * kChunkBytes;
      put(content.chunk(section, chunk, scratch.data()), std::min(kChunkBytes, section.bytes - begin));
      writing.advance(static_cast<double>(section.offset + begin) /
                      static_cast<double>(content.tail_offset()));
    }
    const uint64_t padding = round_to_page(section.bytes) - section.bytes;
    if (padding != 0) put(kZeros, padding);
  }
  const Tail tail = tail_of(content.header());
  put(&tail, sizeof tail);
}

/// Reads header and tail back: bytes that a network or a layered file system dropped are noticed here at the
/// latest, while the old file is still in place.
void check_written(Replacement& file, const Header& header, const char* path) {
  Header read;
  Tail tail;
  file.read(&read, sizeof read, 0);
  file.read(&tail, sizeof tail, header.file_bytes - sizeof tail);
  const Tail wanted = tail_of(header);
  if (std::memcmp(&read, &header, sizeof read) != 0 || std::memcmp(&tail, &wanted, sizeof tail) != 0)
    fail_system(-EIO, "the file read back differs from what was written", path);
}

}  // namespace

void save_file(const PlacedSegment& built, const char* path, bool sync, Files& files,
               const Execution& execution) {
  const Target target(path, files);
  Content content(built, execution);
  Replacement file(target, sync, files);
  file.fill([&] {
    file.reserve(content.header().file_bytes, execution);
    write_all(content, [&](const void* data, uint64_t bytes) { file.put(data, bytes); }, execution);
    execution.span(0.9, 1).enter("sync");
    if (sync) file.sync(execution);
    check_written(file, content.header(), path);
    execution.check();
  });
  file.replace();
  if (sync) target.sync();
  execution.advance(1);
}

void save_stream(const PlacedSegment& built, const StreamSink& sink, const Execution& execution) {
  Content content(built, execution);
  const auto put = [&](const void* data, uint64_t bytes) {
    const uint8_t* from = static_cast<const uint8_t*>(data);
    while (bytes > 0) {
      const int64_t done = uninterrupted([&] { return sink.write(sink.user, from, bytes); });
      if (done <= 0 || static_cast<uint64_t>(done) > bytes)
        fail_system(done < 0 && done > -4096 ? done : -EIO, "writing to the stream", "the caller's writer");
      from += done;
      bytes -= static_cast<uint64_t>(done);
    }
  };
  write_all(content, put, execution);
  execution.advance(1);
}

}  // namespace gannet
