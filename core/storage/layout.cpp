#include "storage/layout.h"

#include "dataset/codes.h"
#include "dataset/projected_codes.h"

namespace gannet::format {

uint32_t code_columns(const Header& header) {
  return Codes::code_columns(header.dim, static_cast<int32_t>(header.metric));
}

uint64_t query_bytes(const Header& header) {
  return uint64_t{header.dim} * (is_float_element(static_cast<int32_t>(header.element)) ? sizeof(float) : 1);
}

uint32_t demanded_sections(const Header& header, const Calibrated& calibrated, Section out[kTypesMax]) {
  uint32_t count = 0;
  const auto demand = [&](SectionType type, uint64_t items, uint64_t item_bytes) {
    Section& section = out[count++] = {};
    section.type = type;
    section.flags = flags_of(type);
    section.items = items;
    section.item_bytes = static_cast<uint32_t>(item_bytes);
    section.bytes = items * item_bytes;
    section.chunk_bytes = kChunkBytes;
  };
  const bool stored_codes = header.codes == kCodesBytes || header.codes == kCodesFloats;
  demand(kRows, header.rows, header.row_stride);
  if (header.has_ids != 0) {
    demand(kIds, header.rows, sizeof(uint64_t));
    demand(kOrder, header.rows, sizeof(uint32_t));
  }
  if (header.metric == ANN_METRIC_COSINE) demand(kLengths, header.rows, sizeof(float));
  if (stored_codes) {
    demand(kCentre, code_columns(header), sizeof(float));
    demand(kCodes, header.rows, header.code_stride);
  }
  if (header.graph != kGraphNone) {
    const bool variable = header.graph == kGraphTsdg;
    demand(kEdges, variable ? calibrated.edges : header.rows * header.degree, sizeof(uint32_t));
    demand(kEntries, header.entries, sizeof(uint32_t));
    demand(kCalibration, calibrated.curves, sizeof(Curve));
    if (calibrated.queries != 0) demand(kQueries, calibrated.queries, query_bytes(header));
    if (header.graph == kGraphGgnn) {
      demand(kLayers, calibrated.layer_words, sizeof(uint32_t));
      demand(kNearest, 2, sizeof(float));
    }
    if (variable) demand(kPrefixes, header.rows, calibrated.levels * sizeof(uint16_t));
    if (calibrated.cells != 0) {
      demand(kScaledCodes, header.rows, ScaledCodes::code_stride(header.dim));
      demand(kScaledCentres, (calibrated.cells + 1) * header.dim, sizeof(float));
    }
    if (calibrated.device_curves != 0) demand(kDeviceCurves, calibrated.device_curves, sizeof(DeviceCurve));
    if (calibrated.slack_curves != 0) demand(kSlackCurves, calibrated.slack_curves, sizeof(SlackCurve));
    if (const uint64_t width = calibrated.projected_width; width != 0) {
      demand(kProjectedCodes, header.rows, width);
      demand(kProjection, ProjectedCodes::projection_bytes(width, projected_stride(header)), 1);
      if (calibrated.order) demand(kProjectedOrder, kOrderNumbers, sizeof(double));
    } else if (calibrated.order && stored_codes) {
      demand(kCodeOrder, kOrderNumbers, sizeof(double));
    }
    if (calibrated.device_curves != 0 && calibrated.first_curves != 0)
      demand(kFirstCurves, calibrated.first_curves, sizeof(DeviceCurve));
    if (header.graph == kGraphCagra && calibrated.covering_heads != 0) {
      demand(kCoveringHeads, calibrated.covering_heads, sizeof(uint32_t));
      demand(kCoveringCurves, calibrated.covering_curves, sizeof(SlackCurve));
    }
    if (calibrated.half_bytes != 0) demand(kHalfCodes, header.rows, calibrated.half_bytes);
  }
  return count;
}

uint64_t place_sections(Section* table, uint32_t sections) {
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < sections; ++i) {
    table[i].sums_offset = kPage + sections * sizeof(Section) + chunks * sizeof(uint64_t);
    chunks += chunks_of(table[i].bytes);
  }
  uint64_t offset = sections_offset(sections, chunks);
  for (uint32_t i = 0; i < sections; ++i) {
    table[i].offset = offset;
    offset = round_to_page(offset + table[i].bytes);
  }
  return offset;
}

}  // namespace gannet::format
