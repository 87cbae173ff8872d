// Forging: what a hostile sender does to a file, and what the specification says of it.
//
// A sum proves that bytes are those that were written, not that they make sense: whoever changes a
// file on purpose makes its sums good again. mend() does that. lawful() says what must become of it:
// it is section 4 of the specification in core/storage/storage.h, written a second time and in the
// plainest way, over a whole file at once.
#pragma once

#include "made_files.h"
#include "storage/format.h"

namespace fault {

/// How much of a changed file is made good.
enum class Mending {
  kSums,  // of table, header and tail
  kAll    // and of chunks and sums, and the content id
};
void mend(Bytes& file, Mending mending);

gannet::format::Header header_of(const Bytes& file);
std::vector<gannet::format::Section> table_of(const Bytes& file);

/// Whether all values in the sections of a file that is sound otherwise are as demanded.
bool lawful(const Bytes& file);

/// Whether an index that was opened from the file may return the id.
bool legal_id(const Bytes& file, uint64_t id);

/// The file with one more section at its end.
Bytes with_section(const Bytes& file, uint32_t type, uint32_t flags, uint64_t bytes);

/// The file of rows that serve as codes with a projection of them to 64 bytes, made up.
Bytes with_projection(const Bytes& file);

/// The file of a graph with curves of devices of two classes, and of the first answers of one.
Bytes with_device_curves(const Bytes& file);
/// The file with covering heads and curves of slacks from there, which promise little, of an index of CAGRA with four rows
/// or more.
Bytes with_covering_heads(const Bytes& file);

}  // namespace fault
