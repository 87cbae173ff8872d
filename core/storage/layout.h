// Layout: which sections an index has and where they lie, from the header alone.
//
// Writing and reading share this arithmetic. A reader first checks that the header's numbers are in
// range; then no product here can overflow (rows < 2^31, stride <= 2^17 + 2^6, at most twenty sections).
#pragma once

#include <cstdint>

#include "storage/format.h"

namespace gannet::format {

/// Where the sections begin: behind header, table and the sums of `chunks` chunks.
constexpr uint64_t sections_offset(uint32_t sections, uint64_t chunks) {
  return round_to_page(kPage + sections * sizeof(Section) + chunks * sizeof(uint64_t));
}

/// Bytes of a column of a code.
constexpr uint32_t code_item_bytes(uint32_t codes) { return codes == kCodesFloats ? 4 : 1; }

/// Bytes from one code that is projected to the next: the rows serve, or codes of bytes.
constexpr uint64_t projected_stride(const Header& header) {
  return header.codes == kCodesRows ? header.row_stride : header.code_stride;
}

/// Columns of a code; see dataset/codes.h.
uint32_t code_columns(const Header& header);

/// Bytes of a query that is kept to calibrate on.
uint64_t query_bytes(const Header& header);

/// The counts that a header leaves open: how many curves there are, queries, and curves of devices; of variable rows
/// how many edges they have together, and how many prefixes each; cells of scaled codes (0: no such codes); curves of
/// SLACK; bytes of a projected code (0: no such codes); curves of the first answers of devices' walks; covering heads,
/// and curves of SLACK from there; bytes of a half code (0: no such codes).
struct Calibrated {
  uint32_t curves = 0;
  uint64_t queries = 0;
  uint32_t device_curves = 0;
  uint64_t edges = 0;
  uint32_t levels = 0;
  uint64_t cells = 0;
  uint64_t layer_words = 0;
  uint32_t slack_curves = 0;
  bool order = false;  // of codes
  uint32_t projected_width = 0;
  uint32_t first_curves = 0;
  uint32_t covering_heads = 0;
  uint32_t covering_curves = 0;
  uint32_t half_bytes = 0;
};

/// The sections that a header demands, with type, flags, item_bytes, items, bytes and chunk_bytes filled
/// in. Returns how many they are.
uint32_t demanded_sections(const Header& header, const Calibrated& calibrated, Section out[kTypesMax]);

/// Fills in offset and sums_offset of each section; returns the offset of the tail.
uint64_t place_sections(Section* table, uint32_t sections);

}  // namespace gannet::format
