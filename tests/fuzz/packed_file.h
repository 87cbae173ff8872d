// A file of an index as an input: long runs of zeros left out.
//
// Sections begin at multiples of 4,096, so the smallest interesting file has 30 KB, nearly all of
// them zeros. Packed it has some hundred bytes, which is what a corpus can keep and a fuzzer can
// change to some purpose. Any bytes are a packed file:
//
//     u16 zeros, u16 count, count bytes; and again until the input ends. What is cut short counts as
//     far as it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gannet::fuzz {

/// The longest file that unpack gives; the rest of the input is left out. Every shape of made_file.h
/// fits, and a sanitizer's allocator still has it in stock instead of asking the system each time.
inline constexpr size_t kUnpackedMax = 100 << 10;

std::vector<uint8_t> unpack(const uint8_t* data, size_t size);
std::vector<uint8_t> pack(const std::vector<uint8_t>& file);

}  // namespace gannet::fuzz
