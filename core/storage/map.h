// FileMap: header, section table and sums of a file, checked. The first half of every open.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "storage/layout.h"
#include "storage/storage.h"

namespace gannet {

/// The bytes of a file, wherever they are.
class Source {
 public:
  virtual ~Source() = default;
  virtual uint64_t bytes() const = 0;
  /// Reads exactly [offset, offset + count). Any thread, in any order, unless sequential().
  virtual void read(uint64_t offset, void* out, uint64_t count) = 0;
  /// Whether bytes must be read once, in ascending order, by one thread.
  virtual bool sequential() const { return false; }
};

/// Refuses a file: "section 7 (edges), chunk 3: ...".
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail_corrupt(const char* format, ...);

struct FileMap {
  /// Reads and checks everything that stands before the first section, and the tail unless the source
  /// is sequential.
  FileMap(Source& source, const Expectation& expected, const Allocator& memory);

  /// The section of a type; null if the header demands none.
  const format::Section* find(uint32_t type) const;
  /// The sums of a section's chunks, [chunks].
  const uint64_t* sums(const format::Section& section) const;
  /// Checks sum and values of a chunk.
  void check_chunk(const format::Section& section, uint64_t chunk, const uint8_t* data) const;
  /// Checks the values that neither of two chunks shows alone, from the eight bytes around the start of the
  /// second: a row of edges may lie in both.
  void check_cut(const format::Section& section, uint64_t chunk, const uint8_t* around) const;
  void check_tail(const format::Tail& tail) const;
  uint64_t tail_offset() const { return header.file_bytes - sizeof(format::Tail); }
  uint64_t bytes() const { return region.bytes(); }

  format::Header header = {};
  format::Section table[format::kSectionsMax] = {};
  Array<uint8_t> region;  // [4096, first section)
  uint64_t cells = 0;     // of scaled codes
  uint32_t projected_width = 0;

 private:
  void read_header(Source& source);
  void check_ranges() const;
  void check_codes() const;
  void check_expected(const Expectation& expected) const;
  void read_table(Source& source, const Allocator& memory);
  void check_sections();
  void check_projected() const;
  void check_halves(uint32_t half_bytes) const;
};

/// Checks that section 4 of the specification cannot make chunk by chunk.
void check_ids(const uint64_t* ids, const uint32_t* order, uint64_t rows, const Execution& execution);
void check_starts(const Array<uint32_t>& rows, const char* name);
/// How many prefixes a row of varying length has; such rows and their edges, each prefix as long as the one before it
/// or longer, and together all edges. The begin of each row goes to `offsets` [rows + 1] unless that is
/// null.
uint32_t levels_of(const FileMap& map);
void check_rows(const FileMap& map, const Array<uint16_t>& prefixes, uint64_t* offsets);
Calibration read_calibration(const format::Curve* curves, uint64_t count, const format::Header& header,
                             const KnobCurves& slack = KnobCurves(KnobScale::kSlack));
KnobCurves read_slack_curves(const format::SlackCurve* curves, uint64_t count);
std::vector<MeasuredDevice> read_device_curves(const format::DeviceCurve* curves, uint64_t count);
/// Adds the curves of the first answers to those of the devices.
void read_first_curves(const format::DeviceCurve* curves, uint64_t count,
                       std::vector<MeasuredDevice>* devices);

/// By words: in a build with sanitizers it would be a fifth of the time of an open.
bool all_zero(const uint8_t* bytes, uint64_t count);

/// "edges", for messages.
const char* section_name(uint32_t type);

}  // namespace gannet
