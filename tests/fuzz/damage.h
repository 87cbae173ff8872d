// Damage by the tables of the format: what bytes taken at random would need years to hit.
#pragma once

#include <cstdint>
#include <vector>

#include "input.h"

namespace gannet::fuzz {

/// Changes one thing about a file: a field of header, table or tail, a value in a section, a page, its
/// length. `choices` says which and how. The sums stay as they were; see repair.h.
void damage(std::vector<uint8_t>& file, Input& choices, uint64_t bytes_max);

/// Changes a field of the header or of an entry of the table, in a file that may have no more than them.
void damage_front(std::vector<uint8_t>& file, Input& choices);

}  // namespace gannet::fuzz
