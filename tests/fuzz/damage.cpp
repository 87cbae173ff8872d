#include "damage.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "repair.h"
#include "storage/format.h"

namespace gannet::fuzz {

using namespace format;

namespace {

struct Field {
  size_t offset;
  size_t bytes;
};

#define FIELD_OF(type, name) {offsetof(type, name), sizeof(type::name)}
// The first half are the numbers that say what an index is; the rest is where and how it is stored.
constexpr Field kHeaderFields[] = {
    FIELD_OF(Header, metric),
    FIELD_OF(Header, element),
    FIELD_OF(Header, graph),
    FIELD_OF(Header, rows),
    FIELD_OF(Header, dim),
    FIELD_OF(Header, degree),
    FIELD_OF(Header, entries),
    FIELD_OF(Header, has_ids),
    FIELD_OF(Header, seed),
    FIELD_OF(Header, row_stride),
    FIELD_OF(Header, code_stride),
    FIELD_OF(Header, codes),
    FIELD_OF(Header, repaired_edges),
    FIELD_OF(Header, knn_iterations),
    FIELD_OF(Header, recall_max),
    FIELD_OF(Header, code_factor),
    FIELD_OF(Header, norm_max),
    FIELD_OF(Header, magic),
    FIELD_OF(Header, byte_order),
    FIELD_OF(Header, major),
    FIELD_OF(Header, minor),
    FIELD_OF(Header, features),
    FIELD_OF(Header, features_to_write),
    FIELD_OF(Header, features_to_read),
    FIELD_OF(Header, file_bytes),
    FIELD_OF(Header, content_id),
    FIELD_OF(Header, sections),
    FIELD_OF(Header, zero_68),
    FIELD_OF(Header, table_offset),
    FIELD_OF(Header, table_sum),
    FIELD_OF(Header, header_sum),
    FIELD_OF(Header, writer),
    FIELD_OF(Header, zero_180),
    FIELD_OF(Header, zeros),
};
constexpr size_t kContentFields = 17;
constexpr Field kSectionFields[] = {
    FIELD_OF(Section, type),     FIELD_OF(Section, flags),       FIELD_OF(Section, offset),
    FIELD_OF(Section, bytes),    FIELD_OF(Section, item_bytes),  FIELD_OF(Section, zero),
    FIELD_OF(Section, items),    FIELD_OF(Section, chunk_bytes), FIELD_OF(Section, sums_offset),
    FIELD_OF(Section, sums_sum),
};
constexpr Field kTailFields[] = {
    FIELD_OF(Tail, magic),      FIELD_OF(Tail, content_id), FIELD_OF(Tail, file_bytes),
    FIELD_OF(Tail, header_sum), FIELD_OF(Tail, zeros),      FIELD_OF(Tail, sum),
};
#undef FIELD_OF

constexpr uint64_t kEdgeValues[] = {
    0, 1, 2, 3, 4, 63, 64, 255, 256, 4095, 4096, 65535, 65536, 1048576, 0x7ffffffe, 0x7fffffff, 0x80000000,
    0xfffffffe, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000, 0xfffffffffffff000,
    0xffffffffffffffff,
    // Floats: NaN, infinities, the largest, the smallest, minus zero; 32 and 64 bits.
    0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff, 0xff7fffff, 1, 0x3f800000, 0x3f800001, 0x7ff8000000000000,
    0x7ff0000000000000, 0x7fefffffffffffff, 0x3ff0000000000000, 0x7c00, 0x7f80};

/// A value in place of `old`: near to it, at an edge, a bit away, or anything.
uint64_t another(uint64_t old, Input& choices) {
  switch (choices.below(6)) {
    case 0:
      return old + 1 + choices.below(4);
    case 1:
      return old - 1 - choices.below(4);
    case 2:
      return old ^ uint64_t { 1 } << choices.below(64);
    case 3:
      return choices.byte();
    case 4:
      return choices.wide();
    default:
      return choices.one_of(kEdgeValues);
  }
}

void change(std::vector<uint8_t>& file, uint64_t at, size_t bytes, Input& choices) {
  if (bytes > sizeof(uint64_t)) {  // a row of bytes: one place in it
    at += choices.below(bytes);
    bytes = 1;
  }
  if (bytes == 0 || at > file.size() || bytes > file.size() - at) return;
  uint64_t value = 0;
  std::memcpy(&value, file.data() + at, bytes);
  value = another(value, choices);
  std::memcpy(file.data() + at, &value, bytes);
}

void change_header(std::vector<uint8_t>& file, Input& choices) {
  const bool content = choices.below(4) != 0;
  const Field& field = kHeaderFields[choices.below(content ? kContentFields : std::size(kHeaderFields))];
  change(file, field.offset, field.bytes, choices);
}

void change_table(std::vector<uint8_t>& file, Input& choices) {
  Section table[kSectionsMax];
  const uint32_t sections = table_of(file, table);
  if (sections == 0) return;
  const uint64_t entry = kPage + choices.below(sections) * sizeof(Section);
  if (choices.below(8) == 0) {  // entries in another order
    const uint64_t other = kPage + choices.below(sections) * sizeof(Section);
    if (other == entry) return;
    std::swap_ranges(file.begin() + static_cast<ptrdiff_t>(entry),
                     file.begin() + static_cast<ptrdiff_t>(entry + sizeof(Section)),
                     file.begin() + static_cast<ptrdiff_t>(other));
    return;
  }
  const Field& field = choices.one_of(kSectionFields);
  change(file, entry + field.offset, field.bytes, choices);
}

void change_value(std::vector<uint8_t>& file, Input& choices) {
  Section table[kSectionsMax];
  const uint32_t sections = table_of(file, table);
  if (sections == 0) return;
  const Section& section = table[choices.below(sections)];
  // Values of all sections but rows, codes and curves are as wide as their items.
  constexpr size_t kWidths[] = {1, 2, 4, 8};
  const size_t width =
      section.item_bytes == 4 || section.item_bytes == 8 ? section.item_bytes : choices.one_of(kWidths);
  const uint64_t bytes = std::min<uint64_t>(section.bytes, file.size());
  if (bytes < width) return;
  change(file, section.offset + choices.below(bytes / width) * width, width, choices);
}

void change_length(std::vector<uint8_t>& file, Input& choices, uint64_t bytes_max) {
  const uint64_t step = choices.below(2) == 0 ? 1 : kPage;
  const uint64_t by = step * (1 + choices.below(16));
  if (choices.below(2) == 0) {
    file.resize(file.size() - std::min<uint64_t>(by, file.size()));
  } else {
    file.resize(std::min<uint64_t>(bytes_max, file.size() + by));
  }
}

void copy_page(std::vector<uint8_t>& file, Input& choices) {
  const uint64_t pages = file.size() / kPage;
  if (pages == 0) return;
  const uint64_t from = choices.below(pages) * kPage;
  const uint64_t to = choices.below(pages) * kPage;
  std::memmove(file.data() + to, file.data() + from, kPage);
}

}  // namespace

void damage_front(std::vector<uint8_t>& file, Input& choices) {
  if (choices.below(2) == 0) {
    change_header(file, choices);
  } else {
    change_table(file, choices);
  }
}

void damage(std::vector<uint8_t>& file, Input& choices, uint64_t bytes_max) {
  switch (choices.below(16)) {
    case 0:
    case 1:
    case 2:
      return change_header(file, choices);
    case 3:  // a number of the index, and the rest of the file as it demands
      change_header(file, choices);
      return lay_out(file, bytes_max);
    case 4:
    case 5:
      return change_table(file, choices);
    case 6: {
      const Field& field = choices.one_of(kTailFields);
      if (file.size() >= sizeof(Tail))
        change(file, file.size() - sizeof(Tail) + field.offset, field.bytes, choices);
      return;
    }
    case 7:
      return change_length(file, choices, bytes_max);
    case 8:
      return copy_page(file, choices);
    case 9:
      return change(file, choices.below(std::max<uint64_t>(1, file.size())), 1, choices);
    default:
      return change_value(file, choices);
  }
}

}  // namespace gannet::fuzz
