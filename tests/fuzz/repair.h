// Repairing a damaged file: what a hostile sender does, so that only its values are wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/format.h"

namespace gannet::fuzz {

/// The header of a file, zeros where the file ends before it.
format::Header header_of(const std::vector<uint8_t>& file);
/// As much of its section table as there is; returns the number of entries.
uint32_t table_of(const std::vector<uint8_t>& file, format::Section out[format::kSectionsMax]);

/// Makes the size in the header, all sums, the content id and the tail agree with the bytes as they
/// are, as far as the table still says where they belong. Files without room for header and tail stay.
void repair(std::vector<uint8_t>& file);

/// Lays the sections out anew as the header's numbers demand, keeping what they held as far as it
/// fits, so that a changed number of rows gives a whole file and not only a refusal. Leaves the file
/// alone where the header demands more than `bytes_max`.
void lay_out(std::vector<uint8_t>& file, uint64_t bytes_max);

}  // namespace gannet::fuzz
