// Opening: bytes of a file -> segment, and verifying, which is the same without keeping it.

#include <cerrno>
#include <cstring>

#include "dataset/projected_codes.h"
#include "graph/long_edges.h"
#include "storage/file_source.h"
#include "storage/layers.h"

namespace gannet {
namespace {

using namespace format;

// --- Where bytes come from ------------------------------------------------------------------------

class MemorySource final : public Source {
 public:
  MemorySource(const void* data, uint64_t bytes) : data_(static_cast<const uint8_t*>(data)), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  void read(uint64_t offset, void* out, uint64_t count) override {
    if (count != 0) std::memcpy(out, data_ + offset, count);
  }

 private:
  const uint8_t* data_;
  uint64_t bytes_;
};

class SequentialSource final : public Source {
 public:
  explicit SequentialSource(const StreamSource& stream) : stream_(stream) {}
  uint64_t bytes() const override { return stream_.bytes; }
  bool sequential() const override { return true; }
  void read(uint64_t offset, void* out, uint64_t count) override {
    if (offset != at_) fail(ANN_INTERNAL, "a stream was to be read out of order");
    uint8_t* to = static_cast<uint8_t*>(out);
    while (count > 0) {
      const int64_t done = uninterrupted([&] { return stream_.read(stream_.user, to, count); });
      if (done < 0 || static_cast<uint64_t>(done) > count)
        fail_system(done < 0 && done > -4096 ? done : -EIO, "reading", "the caller's stream");
      if (done == 0)
        fail_corrupt("the stream ends at byte %llu of %llu", static_cast<unsigned long long>(at_),
                     static_cast<unsigned long long>(stream_.bytes));
      to += done;
      at_ += static_cast<uint64_t>(done);
      count -= static_cast<uint64_t>(done);
    }
  }

 private:
  const StreamSource& stream_;
  uint64_t at_ = 0;
};

// --- Everything at once ---------------------------------------------------------------------------

/// Checks edges across the borders of chunks that were read into `out`, or are read again.
void check_cuts(const FileMap& map, const Section& section, Source& source, const uint8_t* out) {
  for (uint64_t chunk = 1; chunk < chunks_of(section.bytes); ++chunk) {
    const uint64_t cut = chunk * kChunkBytes - sizeof(uint32_t);
    uint8_t around[2 * sizeof(uint32_t)];
    if (out != nullptr) {
      std::memcpy(around, out + cut, sizeof around);
    } else {
      source.read(section.offset + cut, around, sizeof around);
    }
    map.check_cut(section, chunk, around);
  }
}

/// Reads and checks a section into `out`, or through scratch where `out` is null.
void read_section(const FileMap& map, const Section& section, Source& source, uint8_t* out,
                  const Execution& execution) {
  const uint64_t chunks = chunks_of(section.bytes);
  const uint32_t threads = static_cast<uint32_t>(
      std::min<uint64_t>(source.sequential() ? 1 : execution.threads, std::max<uint64_t>(1, chunks)));
  // No more than the section has: a small file must not cost a megabyte for each thread.
  const uint64_t piece = std::min(kChunkBytes, section.bytes);
  Array<uint8_t> scratch(execution.memory, out == nullptr ? piece * threads : 0);
  Execution reading = execution;
  reading.threads = threads;
  parallel_for(reading, chunks, 1, [&](uint64_t chunk, uint64_t, uint32_t worker) {
    const uint64_t begin = chunk * kChunkBytes;
    uint8_t* to = out != nullptr ? out + begin : scratch.data() + worker * piece;
    source.read(section.offset + begin, to, std::min(kChunkBytes, section.bytes - begin));
    map.check_chunk(section, chunk, to);
    execution.advance(static_cast<double>(section.offset + begin) /
                      static_cast<double>(map.header.file_bytes));
  });
  if (section.type == kEdges) check_cuts(map, section, source, out);
  // Between sections, and before the tail.
  uint8_t padding[kPage];
  const uint64_t rest = round_to_page(section.bytes) - section.bytes;
  source.read(section.offset + section.bytes, padding, rest);
  if (!all_zero(padding, rest))
    fail_corrupt("bytes behind section %u (%s) are not zero", section.type, section_name(section.type));
}

/// The sections of a file as Arrays, on the heap or over mapped memory.
struct Parts {
  Array<uint8_t> rows;
  Array<uint64_t> ids;
  Array<uint32_t> order;
  Array<float> lengths;
  Array<float> centre;
  Array<uint8_t> codes;
  Array<uint32_t> edges;
  Array<uint32_t> entries;
  Array<Curve> curves;
  Array<uint8_t> queries;
  Array<uint32_t> layers;
  Array<float> nearest;
  Array<uint16_t> prefixes;
  Array<DeviceCurve> device_curves;
  Array<DeviceCurve> first_curves;
  Array<SlackCurve> slack_curves;
  Array<uint32_t> covering_heads;
  Array<SlackCurve> covering_curves;
  Array<uint8_t> scaled_codes;
  Array<float> scaled_centres;
  Array<double> order_of_codes;
  Array<uint8_t> projected_codes;
  Array<uint8_t> projection;
  Array<uint8_t> half_codes;

  /// Calls visit(array) with the one that a type belongs to; not for unknown types.
  template <class Visit>
  void with(uint32_t type, const Visit& visit) {
    switch (type) {
      case kRows:
        return visit(rows);
      case kIds:
        return visit(ids);
      case kOrder:
        return visit(order);
      case kLengths:
        return visit(lengths);
      case kCentre:
        return visit(centre);
      case kCodes:
        return visit(codes);
      case kEdges:
        return visit(edges);
      case kEntries:
        return visit(entries);
      case kCalibration:
        return visit(curves);
      case kQueries:
        return visit(queries);
      case kLayers:
        return visit(layers);
      case kNearest:
        return visit(nearest);
      case kPrefixes:
        return visit(prefixes);
      case kDeviceCurves:
        return visit(device_curves);
      case kFirstCurves:
        return visit(first_curves);
      case kSlackCurves:
        return visit(slack_curves);
      case kCoveringHeads:
        return visit(covering_heads);
      case kCoveringCurves:
        return visit(covering_curves);
      case kScaledCodes:
        return visit(scaled_codes);
      case kScaledCentres:
        return visit(scaled_centres);
      case kCodeOrder:
      case kProjectedOrder:
        return visit(order_of_codes);
      case kProjectedCodes:
        return visit(projected_codes);
      case kProjection:
        return visit(projection);
      case kHalfCodes:
        return visit(half_codes);
    }
  }

  /// Each class of devices with its curves, which are checked.
  std::vector<MeasuredDevice> measured_devices() const {
    std::vector<MeasuredDevice> devices = read_device_curves(device_curves.data(), device_curves.size());
    read_first_curves(first_curves.data(), first_curves.size(), &devices);
    return devices;
  }

  /// The checks of the specification beyond single chunks.
  void check(const FileMap& map, const Execution& execution) const {
    if (map.header.graph == kGraphTsdg) check_rows(map, prefixes, nullptr);
    check_ids(ids.data(), order.data(), ids.size(), execution);
    check_small(map.header);
  }
  /// The same of the sections that every open checks.
  void check_small(const Header& header) const {
    check_starts(entries, "entry points");
    check_starts(covering_heads, "covering heads");
    if (header.graph == kGraphGgnn)
      check_layers(layers.data(), layers.size(), static_cast<uint32_t>(header.rows), header.degree);
  }
};

/// The FirstTouches of a lazily opened file.
struct Touches {
  FirstTouch* of[kTypesMax + 1] = {};
};

int32_t graph_kind(const Header& header) {
  switch (header.graph) {
    case kGraphNone:
      return ANN_GRAPH_NONE;
    case kGraphTsdg:
      return ANN_GRAPH_TSDG;
    case kGraphGgnn:
      return ANN_GRAPH_GGNN;
    default:
      return ANN_GRAPH_CAGRA;
  }
}

/// Where rows of varying length begin follows from how long they are.
void place_rows(const FileMap& map, Array<uint16_t>&& prefixes, SearchGraph& graph, const Allocator& memory) {
  graph.offsets = Array<uint64_t>(memory, map.header.rows + 1);
  check_rows(map, prefixes, graph.offsets.data());
  graph.levels = levels_of(map);
  graph.prefixes = std::move(prefixes);
}

std::unique_ptr<PlacedSegment> assemble(const FileMap& map, Parts&& parts, const Touches& touches,
                                        const Allocator& memory) {
  const Header& header = map.header;
  Calibration calibration =
      read_calibration(parts.curves.data(), parts.curves.size(), header,
                       read_slack_curves(parts.slack_curves.data(), parts.slack_curves.size()));
  Dataset::Parts rows;
  rows.rows = static_cast<uint32_t>(header.rows);
  rows.dim = header.dim;
  rows.metric = static_cast<int32_t>(header.metric);
  rows.element = static_cast<int32_t>(header.element);
  rows.vectors = std::move(parts.rows);
  rows.ids = std::move(parts.ids);
  rows.by_id = std::move(parts.order);
  rows.norms = std::move(parts.lengths);
  rows.vectors_touch = touches.of[kRows];
  rows.ids_touch = touches.of[kIds];
  rows.by_id_touch = touches.of[kOrder];
  rows.norms_touch = touches.of[kLengths];
  auto placed = std::make_unique<PlacedSegment>(Dataset(std::move(rows)));
  Segment& segment = placed->segment;
  segment.seed = header.seed;
  segment.graph.kind = graph_kind(header);
  if (!segment.has_graph()) return placed;
  segment.knn_iterations = header.knn_iterations;
  if (!parts.covering_heads.empty())
    calibration.add({std::move(parts.covering_heads),
                     read_slack_curves(parts.covering_curves.data(), parts.covering_curves.size())});
  placed->calibration.set(calibration);
  // Before 1.5 blocks walked by the plain codes where there are scaled ones, with other recalls.
  const bool of_plain_codes = !parts.scaled_centres.empty() && parts.order_of_codes.empty();
  for (MeasuredDevice& device : parts.measured_devices()) {
    for (uint32_t blocks = 1; of_plain_codes && blocks < DeviceCalibration::kTables; ++blocks)
      device.two_lists.table(blocks) = {};
    placed->devices.remember(device.device, device.two_lists);
  }
  segment.queries = QuerySample(segment.dataset, std::move(parts.queries), touches.of[kQueries]);
  segment.codes =
      Codes(segment.dataset, {header.codes == kCodesFloats, std::move(parts.codes), std::move(parts.centre),
                              header.code_factor, header.norm_max, touches.of[kCodes],
                              std::move(parts.half_codes), touches.of[kHalfCodes]});
  if (!parts.scaled_centres.empty())
    segment.codes.walk_by(ScaledCodes(
        segment.dataset,
        {std::move(parts.scaled_codes), std::move(parts.scaled_centres), touches.of[kScaledCodes]}));
  if (!parts.projection.empty())
    segment.codes.walk_by(ProjectedCodes(
        segment.codes.stride(),
        {std::move(parts.projected_codes), std::move(parts.projection), touches.of[kProjectedCodes]},
        memory));
  if (const Array<double>& order = parts.order_of_codes; !order.empty())
    segment.codes.set_order({order[0], order[1], order[2]});
  SearchGraph& graph = segment.graph;
  graph.edges = std::move(parts.edges);
  graph.entries = std::move(parts.entries);
  graph.rows = static_cast<uint32_t>(header.rows);
  graph.degree = header.degree;
  graph.repaired_edges = header.repaired_edges;
  graph.touch = touches.of[kEdges];
  if (header.graph == kGraphCagra && graph.entries.size() > kEntryPoints)
    start_at_heads(graph, std::move(graph.entries), header.seed, memory);
  if (header.graph == kGraphTsdg) place_rows(map, std::move(parts.prefixes), graph, memory);
  if (header.graph == kGraphGgnn) {
    unpack_layers(std::move(parts.layers), graph);
    graph.nearest_max = parts.nearest[0];
    graph.nearest_mean = parts.nearest[1];
  }
  return placed;
}

/// Which sections a verification must hold as a whole to compare their values with each other.
bool compared_as_a_whole(uint32_t type) {
  return type == kIds || type == kOrder || type == kEntries || type == kCalibration || type == kLayers ||
         type == kPrefixes || type == kDeviceCurves || type == kSlackCurves || type == kFirstCurves ||
         type == kCoveringHeads || type == kCoveringCurves;
}

/// Reads everything; keeps all of it, or the sections that must be compared as a whole.
Parts read_all(const FileMap& map, Source& source, bool keep, const Execution& execution) {
  Parts parts;
  for (uint32_t i = 0; i < map.header.sections; ++i) {
    const Section& section = map.table[i];
    uint8_t* out = nullptr;
    if (keep || compared_as_a_whole(section.type)) {
      parts.with(section.type, [&]<class T>(Array<T>& array) {
        array = Array<T>(execution.memory, section.bytes / sizeof(T));
        out = reinterpret_cast<uint8_t*>(array.data());
      });
    }
    read_section(map, section, source, out, execution);
  }
  if (source.sequential()) {
    Tail tail;
    source.read(map.tail_offset(), &tail, sizeof tail);
    map.check_tail(tail);
  }
  parts.check(map, execution);
  return parts;
}

std::unique_ptr<const PlacedSegment> open_full(Source& source, const Expectation& expected,
                                               const Execution& execution) {
  execution.enter("read");
  const FileMap map(source, expected, execution.memory);
  std::unique_ptr<PlacedSegment> built =
      assemble(map, read_all(map, source, true, execution), {}, execution.memory);
  execution.check();
  execution.advance(1);
  return built;
}

void verify(Source& source, const Expectation& expected, const Execution& execution) {
  execution.enter("verify");
  const FileMap map(source, expected, execution.memory);
  const Parts parts = read_all(map, source, false, execution);
  read_calibration(parts.curves.data(), parts.curves.size(), map.header);
  read_slack_curves(parts.slack_curves.data(), parts.slack_curves.size());
  read_slack_curves(parts.covering_curves.data(), parts.covering_curves.size());
  parts.measured_devices();
  execution.advance(1);
}

// --- Over mapped memory ---------------------------------------------------------------------------

/// A mapping of a file, taken away at the end.
struct Mapping {
  Mapping(const void* start, uint64_t size, Files* owner) : data(start), bytes(size), files(owner) {}
  ~Mapping() {
    if (files != nullptr) files->unmap(data, bytes);
  }
  Mapping(const Mapping&) = delete;

  const void* data;
  uint64_t bytes;
  Files* files;  // null where the memory is the caller's
};

class SectionTouch final : public FirstTouch {
 public:
  SectionTouch(const Allocator& memory, const FileMap& map, const Section& section, const uint8_t* data,
               Files* files)
      : FirstTouch(memory, section.bytes), map_(map), section_(section), data_(data), files_(files) {}

  void expect_order(bool in_order) override {
    if (files_ != nullptr)
      files_->expect(in_order ? Reads::kInOrder : Reads::kScattered, data_, section_.bytes);
  }

 private:
  void check(uint64_t chunk) override {
    const uint8_t* start = data_ + chunk * kChunkBytes;
    const uint64_t bytes = std::min(kChunkBytes, section_.bytes - chunk * kChunkBytes);
    if (files_ != nullptr) files_->expect(Reads::kSoon, start, bytes);
    map_.check_chunk(section_, chunk, start);
    if (chunk > 0) map_.check_cut(section_, chunk, start - sizeof(uint32_t));
  }
  const FileMap& map_;
  const Section& section_;
  const uint8_t* data_;
  Files* files_;  // that have mapped it; null: the caller's memory
};

/// The mapping under an index over mapped memory; lives as long as the index.
struct MappedFile {
  MappedFile(std::unique_ptr<Mapping> memory, Source& source, const OpenPlan& plan,
             const Allocator& allocator)
      : mapping(std::move(memory)), map(source, plan.expected, allocator) {}

  uint64_t bytes() const {
    uint64_t bytes = map.bytes();
    for (const auto& touch : touches) bytes += touch != nullptr ? touch->held_bytes() : 0;
    return bytes;
  }

  std::unique_ptr<Mapping> mapping;
  FileMap map;
  std::unique_ptr<SectionTouch> touches[kTypesMax + 1];
};

/// Sections that every search reads, and that are small: checked at once.
bool checked_at_once(uint32_t type) {
  return type == kCentre || type == kEntries || type == kCalibration || type == kLayers || type == kNearest ||
         type == kPrefixes || type == kDeviceCurves || type == kScaledCentres || type == kSlackCurves ||
         type == kCodeOrder || type == kProjection || type == kProjectedOrder || type == kFirstCurves ||
         type == kCoveringHeads || type == kCoveringCurves;
}

std::unique_ptr<const PlacedSegment> open_mapped(std::unique_ptr<Mapping> mapping, const OpenPlan& plan,
                                                 const Execution& execution) {
  const uint8_t* start = static_cast<const uint8_t*>(mapping->data);
  MemorySource source(start, mapping->bytes);
  auto file = std::make_shared<MappedFile>(std::move(mapping), source, plan, execution.memory);
  const FileMap& map = file->map;
  const bool lazy = plan.mode == ANN_OPEN_LAZY;
  Parts parts;
  Touches touches;
  for (uint32_t i = 0; i < map.header.sections; ++i) {
    const Section& section = map.table[i];
    if (!is_known(section.type)) continue;
    const uint8_t* data = start + section.offset;
    parts.with(section.type, [&]<class T>(Array<T>& array) {
      array = Array<T>::over(reinterpret_cast<const T*>(data), section.bytes / sizeof(T));
    });
    if (!lazy) continue;
    // Walks read a row here and an edge there. The system's read-ahead around each of them evicts pages that other
    // walks need: 1M SIFT rows as f32 with a quarter of the file in memory answered 2 queries a second with read-ahead,
    // 195 without. The first touch of a piece fetches it whole, so that memory fills no slower.
    Files* files = file->mapping->files;
    file->touches[section.type] = std::make_unique<SectionTouch>(execution.memory, map, section, data, files);
    FirstTouch* touch = file->touches[section.type].get();
    touch->expect_order(false);
    if (checked_at_once(section.type)) {
      touch->touch_all(execution);
    } else {
      touches.of[section.type] = touch;
    }
  }
  if (lazy) parts.check_small(map.header);
  std::unique_ptr<PlacedSegment> built = assemble(map, std::move(parts), touches, execution.memory);
  built->segment.file_bytes_held = file->bytes();
  built->segment.file = std::move(file);
  execution.advance(1);
  return built;
}

}  // namespace

std::unique_ptr<const PlacedSegment> open_file(const char* path, const OpenPlan& plan, Files& files,
                                               const Execution& execution) {
  FileSource source(path, files);
  if (plan.mode == ANN_OPEN_FULL) return open_full(source, plan.expected, execution);
  execution.enter("map");
  if (source.bytes() < kFileBytesMin)
    fail_corrupt("the file has %llu bytes, fewer than the smallest index",
                 static_cast<unsigned long long>(source.bytes()));
  return open_mapped(std::make_unique<Mapping>(source.map(), source.bytes(), &files), plan, execution);
}

std::unique_ptr<const PlacedSegment> open_memory(const void* data, uint64_t bytes, const OpenPlan& plan,
                                                 const Execution& execution) {
  if (plan.mode != ANN_OPEN_FULL) {
    execution.enter("map");
    return open_mapped(std::make_unique<Mapping>(data, bytes, nullptr), plan, execution);
  }
  MemorySource source(data, bytes);
  return open_full(source, plan.expected, execution);
}

std::unique_ptr<const PlacedSegment> open_stream(const StreamSource& stream, const OpenPlan& plan,
                                                 const Execution& execution) {
  SequentialSource source(stream);
  return open_full(source, plan.expected, execution);
}

void verify_file(const char* path, const Expectation& expected, Files& files, const Execution& execution) {
  FileSource source(path, files);
  verify(source, expected, execution);
}

void describe_file(const char* path, Files& files, ann_file_description* out) {
  FileSource source(path, files);
  const FileMap map(source, {}, Allocator());
  const Header& header = map.header;
  out->format = uint32_t{header.major} << 16 | header.minor;
  out->file_bytes = header.file_bytes;
  out->rows = header.rows;
  out->dim = header.dim;
  out->metric = static_cast<int32_t>(header.metric);
  out->element = static_cast<int32_t>(header.element);
  out->graph = graph_kind(header);
  out->degree = header.degree;
  out->entry_points = header.entries;
  out->has_ids = header.has_ids;
  out->writer = header.writer;
  out->seed = header.seed;
  std::memcpy(out->content_id, header.content_id, sizeof out->content_id);
}

}  // namespace gannet
