// storage: the arithmetic of a file's places, and that sums tell chunks apart.
#include "storage/layout.h"

#include <cstring>
#include <vector>

#include "catch.h"
#include "storage/map.h"

using namespace gannet;
using namespace gannet::format;

namespace {

Header header_of(uint64_t rows, uint32_t dim) {
  Header header = {};
  header.rows = rows;
  header.dim = dim;
  header.metric = ANN_METRIC_COSINE;
  header.element = ANN_F32;
  header.graph = kGraphCagra;
  header.degree = 32;
  header.entries = 64;
  header.has_ids = 1;
  header.codes = kCodesBytes;
  header.row_stride = round_up(uint64_t{dim} * 4, 16);
  header.code_stride = round_up(dim, 64);
  return header;
}

}  // namespace

TEST_CASE("sections follow each other without a gap and without touching") {
  for (const uint64_t rows : {uint64_t{1}, uint64_t{1000}, uint64_t{300000}, uint64_t{ANN_ROWS_MAX}}) {
    const Header header = header_of(rows, ANN_DIM_MAX);
    Section table[kTypesKnown];
    const uint32_t count = demanded_sections(header, {4, kQueriesMax}, table);
    REQUIRE(count == kTypesKnown);
    const uint64_t tail = place_sections(table, count);
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < count; ++i) {
      CHECK(table[i].type == i + 1);
      CHECK(table[i].offset % kPage == 0);
      CHECK(table[i].sums_offset == kPage + count * sizeof(Section) + chunks * 8);
      chunks += chunks_of(table[i].bytes);
      const uint64_t end = table[i].offset + table[i].bytes;
      const uint64_t next = i + 1 < count ? table[i + 1].offset : tail;
      CHECK(next >= end);
      CHECK(next - end < kPage);
    }
    CHECK(table[0].offset == sections_offset(count, chunks));
    CHECK(table[0].offset >= kPage + count * sizeof(Section) + chunks * 8);
    CHECK(tail < uint64_t{1} << 50);  // the largest index of all stays far from 2^64
  }
}

TEST_CASE("a sum knows its section, its chunk and every byte") {
  std::vector<uint8_t> bytes(5000, 7);
  const uint64_t sum = chunk_sum(kRows, 0, bytes.data(), bytes.size());
  CHECK(sum == chunk_sum(kRows, 0, bytes.data(), bytes.size()));
  CHECK(sum != chunk_sum(kRows, 1, bytes.data(), bytes.size()));
  CHECK(sum != chunk_sum(kCodes, 0, bytes.data(), bytes.size()));
  CHECK(sum != chunk_sum(kRows, 0, bytes.data(), bytes.size() - 1));
  for (size_t at = 0; at < bytes.size(); at += 97) {
    bytes[at] ^= 1;
    CHECK(sum != chunk_sum(kRows, 0, bytes.data(), bytes.size()));
    bytes[at] ^= 1;
  }
}

TEST_CASE("known sums: the format does not change with the hash library") {
  CHECK(sum("", 0) == 0x2d06800538d394c2);  // XXH3_64bits of nothing, seed 0
  const Header header = header_of(10, 8);
  Header other = header;
  uint8_t first[16], second[16];
  content_id(header, nullptr, first);
  other.writer = 77;  // who wrote it is no part of the content
  content_id(other, nullptr, second);
  CHECK(std::memcmp(first, second, 16) == 0);
  other.seed = 5;
  content_id(other, nullptr, second);
  CHECK(std::memcmp(first, second, 16) != 0);
}

TEST_CASE("values that section 4 of the specification forbids") {
  const uint64_t ids[] = {30, 10, 20};
  const uint32_t right[] = {1, 2, 0}, wrong[] = {1, 0, 2}, repeated[] = {1, 1, 2};
  CHECK_NOTHROW(check_ids(ids, right, 3, Execution{}));
  CHECK_THROWS_AS(check_ids(ids, wrong, 3, Execution{}), Error);
  CHECK_THROWS_AS(check_ids(ids, repeated, 3, Execution{}), Error);
  const uint32_t ascending[] = {1, 5, 9}, twice[] = {1, 5, 5};
  CHECK_NOTHROW(check_entries(ascending, 3));
  CHECK_THROWS_AS(check_entries(twice, 3), Error);
  Curve curve = {};
  curve.k = 10;
  curve.count = 2;
  curve.points[0] = {10, 0, 0.5};
  curve.points[1] = {20, 0, 0.5};
  CHECK(read_calibration(&curve, 1, 0.5f).curves().count() == 1);
  const auto refused = [&](auto change) {
    Curve changed = curve;
    change(changed);
    CHECK_THROWS_AS(read_calibration(&changed, 1, 0.5f), Error);
  };
  refused([](Curve& c) { c.k = 0; });
  refused([](Curve& c) { c.count = 0; });
  refused([](Curve& c) { c.count = 25; });
  refused([](Curve& c) { c.points[1].beam = 10; });
  refused([](Curve& c) { c.points[1].recall = 0.4; });
  refused([](Curve& c) { c.points[1].recall = 1.5; });
  refused([](Curve& c) { c.points[1].recall = NAN; });
  refused([](Curve& c) { c.points[2].beam = 1; });
  refused([](Curve& c) { c.points[0].zero = 1; });
}
