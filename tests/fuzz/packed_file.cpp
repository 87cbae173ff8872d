#include "packed_file.h"

#include <algorithm>
#include <cstring>

namespace gannet::fuzz {
namespace {

constexpr size_t kPieceMax = 0xffff;
/// A run of zeros that is worth a new piece.
constexpr size_t kRunMin = 8;

size_t zeros_from(const std::vector<uint8_t>& file, size_t at) {
  const uint8_t* bytes = file.data();
  size_t end = at;
  for (uint64_t word = 0; end + sizeof word <= file.size(); end += sizeof word) {
    std::memcpy(&word, bytes + end, sizeof word);
    if (word != 0) break;
  }
  while (end < file.size() && bytes[end] == 0) ++end;
  return end - at;
}

void append_half(std::vector<uint8_t>& out, size_t value) {
  out.push_back(static_cast<uint8_t>(value));
  out.push_back(static_cast<uint8_t>(value >> 8));
}

/// Calls visit(zeros, bytes, count) for each piece that still fits.
template <class Visit>
void for_each_piece(const uint8_t* data, size_t size, const Visit& visit) {
  size_t total = 0;
  for (size_t at = 0; at + 4 <= size;) {
    const size_t zeros = static_cast<size_t>(data[at] | data[at + 1] << 8);
    const size_t wanted = static_cast<size_t>(data[at + 2] | data[at + 3] << 8);
    at += 4;
    const size_t count = std::min(wanted, size - at);
    total += zeros + count;
    if (total > kUnpackedMax) return;
    visit(zeros, data + at, count);
    at += count;
  }
}

}  // namespace

std::vector<uint8_t> unpack(const uint8_t* data, size_t size) {
  size_t total = 0;
  for_each_piece(data, size, [&](size_t zeros, const uint8_t*, size_t count) { total += zeros + count; });
  std::vector<uint8_t> file(total);
  uint8_t* out = file.data();
  for_each_piece(data, size, [&](size_t zeros, const uint8_t* bytes, size_t count) {
    out += zeros;
    if (count != 0) std::memcpy(out, bytes, count);
    out += count;
  });
  return file;
}

std::vector<uint8_t> pack(const std::vector<uint8_t>& file) {
  std::vector<uint8_t> out;
  size_t at = 0;
  while (at < file.size()) {
    const size_t zeros = std::min(zeros_from(file, at), kPieceMax);
    const size_t begin = at + zeros;
    size_t end = begin;
    while (end < file.size() && end - begin < kPieceMax) {
      const size_t run = zeros_from(file, end);
      if (run >= kRunMin) break;
      end = std::min({file.size(), begin + kPieceMax, end + std::max<size_t>(run, 1)});
    }
    append_half(out, zeros);
    append_half(out, end - begin);
    out.insert(out.end(), file.begin() + static_cast<ptrdiff_t>(begin),
               file.begin() + static_cast<ptrdiff_t>(end));
    at = end;
  }
  return out;
}

}  // namespace gannet::fuzz
