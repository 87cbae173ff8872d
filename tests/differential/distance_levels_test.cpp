// Every instruction-set level that this machine has gives the bits of the portable one, which in
// turn agrees with sums in double precision.

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/memory.h"
#include "base/random.h"
#include "catch.h"
#include "distance/element.h"
#include "distance/kernels.h"

using namespace gannet;

namespace {

std::vector<const Kernels*> levels_here() {
  std::vector<const Kernels*> levels = {&kPortableKernels};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) levels.push_back(&kAvx2Kernels);
  if (avx512) levels.push_back(&kAvx512Kernels);
  if (avx512 && __builtin_cpu_supports("avx512vnni")) levels.push_back(&kAvx512VnniKernels);
#elif defined(__aarch64__)
  levels.push_back(&kNeonKernels);
#endif
  return levels;
}

/// Random values of an element, rows `offset` bytes after an aligned address.
struct Block {
  Block(uint32_t rows, uint32_t dim, int32_t element, uint32_t offset, uint64_t seed)
      : dim(dim),
        element(element),
        offset(offset),
        bytes(offset + size_t{rows} * dim * element_bytes(element)) {
    for (size_t i = 0; i < size_t{rows} * dim; ++i) {
      const uint64_t word = random_word(seed, dim, i);
      const float value = static_cast<float>(static_cast<int64_t>(word) >> 40) * 0x1p-18f;
      if (is_float_element(element)) {
        float_to_element(value, bytes.data() + offset, element, static_cast<uint32_t>(i));
      } else {
        bytes[offset + i] = static_cast<uint8_t>(word);
      }
    }
  }
  RowsView view() const {
    return {bytes.data() + offset, size_t{dim} * element_bytes(element), dim, element};
  }
  uint32_t dim;
  int32_t element;
  uint32_t offset;
  std::vector<uint8_t> bytes;
};

void compare_rows(uint32_t dim, int32_t element, uint32_t offset) {
  constexpr uint32_t kRows = 7;
  const Block block(kRows, dim, element, offset, 1);
  const int32_t query_element = is_float_element(element) ? int32_t{ANN_F32} : element;
  const Block query(1, dim, query_element, 0, 2);
  const uint32_t ids[] = {3, 0, 6, 6, 1};
  for (const bool dot : {false, true}) {
    std::vector<float> expected(kRows);
    const auto loop = [&](const Kernels& level) {
      return dot ? level.dot[element] : level.squared_l2[element];
    };
    loop(kPortableKernels)(query.view().data, block.view(), nullptr, kRows, expected.data());
    for (uint32_t row = 0; row < kRows; ++row) {
      double sum = 0;
      double scale = 0;
      for (uint32_t i = 0; i < dim; ++i) {
        const double x = element_to_float(block.view().row(row), element, i);
        const double q = element_to_float(query.view().data, query_element, i);
        const double term = dot ? x * q : (x - q) * (x - q);
        sum += term;
        scale += std::fabs(term);
      }
      REQUIRE(std::fabs(expected[row] - sum) <= scale * 1e-5 + 1e-30);
    }
    for (const Kernels* level : levels_here()) {
      std::vector<float> all(kRows);
      std::vector<float> some(5);
      loop (*level)(query.view().data, block.view(), nullptr, kRows, all.data());
      loop (*level)(query.view().data, block.view(), ids, 5, some.data());
      for (uint32_t row = 0; row < kRows; ++row) {
        INFO(level->name << " dim " << dim << " element " << element_name(element));
        REQUIRE(std::bit_cast<uint32_t>(all[row]) == std::bit_cast<uint32_t>(expected[row]));
      }
      for (uint32_t i = 0; i < 5; ++i) REQUIRE(some[i] == expected[ids[i]]);
    }
  }
}

}  // namespace

TEST_CASE("row distances are equal on every level, for every dimension to 300") {
  for (uint32_t dim = 1; dim <= 300; ++dim) {
    for (int32_t element = ANN_F32; element <= ANN_U8; ++element) compare_rows(dim, element, 0);
  }
  for (const uint32_t dim : {384u, 768u, 960u, 1000u, 1536u, 4096u, ANN_DIM_MAX}) {
    for (int32_t element = ANN_F32; element <= ANN_U8; ++element) compare_rows(dim, element, 0);
  }
}

TEST_CASE("row distances are equal at every offset from an aligned address") {
  for (uint32_t offset = 0; offset < 64; ++offset) {
    for (int32_t element = ANN_F32; element <= ANN_U8; ++element) compare_rows(67, element, offset);
  }
}

TEST_CASE("extremes of bytes at the largest dimension stay within 32 bits") {
  const std::vector<uint8_t> low(ANN_DIM_MAX, 0);
  const std::vector<uint8_t> high(ANN_DIM_MAX, 255);
  const double exact = 255.0 * 255.0 * ANN_DIM_MAX;
  const uint32_t zero = 0;
  for (const Kernels* level : levels_here()) {
    float found = 0;
    const RowsView rows{high.data(), ANN_DIM_MAX, ANN_DIM_MAX, ANN_U8};
    level->squared_l2[ANN_U8](low.data(), rows, nullptr, 1, &found);
    REQUIRE(found == static_cast<float>(exact));
    uint32_t code = 0;
    level->code_gather(low.data(), high.data(), ANN_DIM_MAX, 0, &zero, 1, &code);
    REQUIRE(code == static_cast<uint32_t>(exact));
  }
}

TEST_CASE("tiles of floats are the rows' distances, bit for bit, on every level") {
  constexpr uint32_t kRows = 41;
  for (const uint32_t columns : {16u, 32u, 48u, 64u, 80u, 112u, 128u, 144u, 192u, 400u}) {
    std::vector<float> rows(kRows * columns);
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] = (static_cast<float>(mix(i * columns) % 100003) - 50000) * (i % 7 == 0 ? 1e-3f : 1e-5f);
    const RowsView view{rows.data(), columns * sizeof(float), columns, ANN_F32};
    std::vector<uint32_t> wanted(kRows * kRows);
    for (uint32_t i = 0; i < kRows; ++i)
      kPortableKernels.squared_l2[ANN_F32](rows.data() + size_t{i} * columns, view, nullptr, kRows,
                                           reinterpret_cast<float*>(wanted.data() + size_t{i} * kRows));
    for (const Kernels* level : levels_here()) {
      for (uint32_t left = 1; left <= kRows; left += 5) {
        for (uint32_t right = 1; right <= kRows; right += 4) {
          const size_t width = round_up(right, kPackRows);
          std::vector<float> packed(packed_bytes(right, columns * sizeof(float)) / sizeof(float));
          std::vector<uint32_t> tile(left * width);
          level->float_pack(rows.data(), columns, right, packed.data());
          level->float_tile(rows.data(), left, packed.data(), right, columns, tile.data(), width);
          for (uint32_t i = 0; i < left; ++i) {
            for (uint32_t j = 0; j < right; ++j) REQUIRE(tile[i * width + j] == wanted[i * kRows + j]);
          }
        }
      }
    }
  }
}

TEST_CASE("residuals are equal on every level, and as near as their bytes can be") {
  constexpr uint32_t kRows = 33;
  for (const uint32_t columns : {16u, 48u, 112u, 192u}) {
    const size_t stride = round_up(columns, kCodeAlign);
    std::vector<float> values((kRows + 1) * columns);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = (static_cast<float>(mix(i * columns) % 20003) - 10000) *
                  std::pow(10.0f, -static_cast<float>(i / columns % 9));
    const float* centre = values.data() + kRows * columns;
    std::copy_n(centre, columns, values.data());  // a row that is the centre
    std::vector<uint8_t> wanted_codes;
    std::vector<float> wanted_lines;
    for (const Kernels* level : levels_here()) {
      std::vector<uint8_t> codes(kRows * stride);
      const size_t room = round_up(kRows, kPackRows);
      std::vector<float> steps(room), squares(room), lines(kRows * room);
      std::vector<int32_t> wholes(room);
      std::vector<ResidualTerms> terms(kRows);
      for (uint32_t i = 0; i < kRows; ++i) {
        terms[i] =
            level->residual_code(values.data() + i * columns, centre, columns, codes.data() + i * stride);
        steps[i] = terms[i].step;
        squares[i] = terms[i].square;
        wholes[i] = terms[i].whole;
      }
      std::vector<uint8_t> packed(packed_bytes(kRows, stride));
      std::vector<uint32_t> tile(kRows * room);
      level->code_pack(codes.data(), stride, kRows, packed.data());
      level->code_tile(codes.data(), kRows, packed.data(), kRows, stride, columns, tile.data(), room);
      for (uint32_t i = 0; i < kRows; ++i) {
        uint32_t* line = tile.data() + i * room;
        level->residual_line(line, {steps.data(), squares.data(), wholes.data()}, kRows, terms[i], line);
        for (uint32_t j = 0; j < kRows; ++j) lines[i * room + j] = std::bit_cast<float>(line[j]);
      }
      if (level == &kPortableKernels) {
        for (uint32_t i = 0; i < kRows; ++i) {
          for (uint32_t j = 0; j < kRows; ++j) {
            double exact = 0, size = 0;
            for (uint32_t column = 0; column < columns; ++column) {
              const double a = values[i * columns + column], b = values[j * columns + column],
                           c = centre[column];
              exact += (a - b) * (a - b);
              size += (a - c) * (a - c) + (b - c) * (b - c);
            }
            REQUIRE(std::abs(lines[i * room + j] - exact) <= 0.03 * size);
          }
        }
        wanted_codes = codes;
        wanted_lines = lines;
      }
      REQUIRE(codes == wanted_codes);
      REQUIRE(lines == wanted_lines);
    }
  }
}

TEST_CASE("tiles of codes that are zero beyond some columns are those of all columns, on every level") {
  for (const size_t stride : {64u, 192u, 1088u}) {
    for (const size_t columns : {size_t{8}, size_t{24}, size_t{56}, stride - 40, stride}) {
      constexpr uint32_t kRows = 37;
      const size_t width = round_up(kRows, kPackRows);
      std::vector<uint8_t> codes(kRows * stride);
      for (size_t i = 0; i < codes.size(); ++i)
        codes[i] = i % stride < columns ? static_cast<uint8_t>(mix(i * stride + columns)) : 0;
      for (const Kernels* level : levels_here()) {
        std::vector<uint8_t> packed(packed_bytes(kRows, stride));
        level->code_pack(codes.data(), stride, kRows, packed.data());
        for (const uint32_t left : {1u, 2u, 5u, kRows}) {
          std::vector<uint32_t> whole(left * width), part(left * width);
          level->code_tile(codes.data(), left, packed.data(), kRows, stride, stride, whole.data(), width);
          level->code_tile(codes.data(), left, packed.data(), kRows, stride, columns, part.data(), width);
          for (uint32_t i = 0; i < left; ++i) {
            for (uint32_t j = 0; j < kRows; ++j) REQUIRE(part[i * width + j] == whole[i * width + j]);
          }
        }
      }
    }
  }
}

TEST_CASE("code distances, tiles and their minima are equal on every level") {
  for (const size_t stride : {64u, 128u, 192u, 960u}) {
    constexpr uint32_t kRows = 41;
    std::vector<uint8_t> codes(kRows * stride);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(mix(i * stride));
    const auto reference = [&](const uint8_t* a, const uint8_t* b, uint8_t flip) {
      uint32_t sum = 0;
      for (size_t i = 0; i < stride; ++i) {
        const int gap = a[i] - (b[i] ^ flip);
        sum += static_cast<uint32_t>(gap * gap);
      }
      return sum;
    };
    for (const Kernels* level : levels_here()) {
      for (const uint8_t flip : {0, 0x80}) {
        for (uint32_t count = 1; count <= 9; ++count) {
          std::vector<uint32_t> ids(count);
          for (uint32_t i = 0; i < count; ++i) ids[i] = (i * 17 + count) % kRows;
          std::vector<uint32_t> found(count);
          level->code_gather(codes.data(), codes.data(), stride, flip, ids.data(), count, found.data());
          for (uint32_t i = 0; i < count; ++i)
            REQUIRE(found[i] == reference(codes.data(), codes.data() + ids[i] * stride, flip));
        }
      }
      for (uint32_t left = 1; left <= kRows; left += 5) {
        for (uint32_t right = 1; right <= kRows; right += 4) {
          const size_t width = (right + kPackRows - 1) / kPackRows * kPackRows;
          std::vector<uint8_t> packed(packed_bytes(right, stride));
          std::vector<uint32_t> tile(left * width);
          level->code_pack(codes.data(), stride, right, packed.data());
          level->code_tile(codes.data(), left, packed.data(), right, stride, stride, tile.data(), width);
          std::vector<uint32_t> row_places(left);
          std::vector<uint32_t> column_places(right);
          level->nearest_in_rows(tile.data(), width, left, right, row_places.data());
          level->nearest_in_columns(tile.data(), width, left, right, column_places.data());
          for (uint32_t i = 0; i < left; ++i) {
            uint32_t nearest = 0;
            for (uint32_t j = 0; j < right; ++j) {
              REQUIRE(tile[i * width + j] ==
                      reference(codes.data() + i * stride, codes.data() + j * stride, 0));
              if (tile[i * width + j] < tile[i * width + nearest]) nearest = j;
            }
            REQUIRE(row_places[i] == nearest);
          }
          for (uint32_t j = 0; j < right; ++j) {
            uint32_t nearest = 0;
            for (uint32_t i = 0; i < left; ++i)
              if (tile[i * width + j] < tile[nearest * width + j]) nearest = i;
            REQUIRE(column_places[j] == nearest);
          }
        }
      }
    }
  }
}

TEST_CASE("halves are widened as they are on every level") {
  for (const int32_t element : {ANN_F32, ANN_F16, ANN_BF16}) {
    const Block block(40, 67, element, 3, 5);  // 40 rows, 3 bytes after an aligned address
    for (const Kernels* level : levels_here()) {
      for (uint32_t row = 0; row < 40; ++row) {
        std::vector<float> found(68, -7);
        level->widen[element](block.view().row(row), 67, found.data());
        for (uint32_t i = 0; i < 67; ++i)
          REQUIRE(found[i] == element_to_float(block.view().row(row), element, i));
        REQUIRE(found[67] == -7);
      }
    }
  }
}

TEST_CASE("codes of bounds tell their own error, on every level") {
  for (const double magnitude : {1e-20, 1e-14, 1.0, 1e14, 1e20}) {
    for (const uint32_t width : {64u, 128u, 960u}) {
      std::vector<float> values(width);
      for (uint32_t i = 0; i < width; ++i)
        values[i] =
            static_cast<float>(magnitude * (static_cast<double>(random_below(1001, 7, width, i)) / 500 - 1));
      for (const Kernels* level : levels_here()) {
        INFO(level->name << " magnitude " << magnitude << " width " << width);
        std::vector<uint8_t> code(width);
        const BoundCode found = level->bound_code(values.data(), width, code.data());
        REQUIRE(found.usable == (magnitude > 1e-15 && magnitude < 1e15));
        if (!found.usable) continue;
        double square = 0, error = 0, whole = 0;
        for (uint32_t i = 0; i < width; ++i) {
          const double byte = code[i] - 128.0;
          square += double{values[i]} * values[i];
          error += std::pow(values[i] - found.step * byte, 2);
          whole += byte * byte;
        }
        REQUIRE(std::fabs(found.square - square) < 1e-5 * square);
        REQUIRE(std::fabs(found.error - std::sqrt(error)) < 1e-3 * std::sqrt(error));
        REQUIRE(found.error < 0.01 * std::sqrt(square));
        REQUIRE(found.whole == whole);
      }
    }
  }
}

TEST_CASE("the list of a walk is the same on every level") {
  for (const uint32_t capacity : {1u, 5u, 8u, 31u, 64u, 100u, 199u, 260u, 513u, 700u}) {
    // Distances of CAGRA's rows as stored have the top bit.
    for (const uint32_t values : {3u, 5000u, UINT32_MAX}) {
      std::vector<uint64_t> expected;
      std::vector<NearList> lists;
      std::vector<std::vector<uint64_t>> keys;
      for (const Kernels* level : levels_here()) {
        (void)level;
        keys.emplace_back(near_room(capacity), UINT64_MAX);
      }
      for (auto& room : keys) lists.push_back({room.data(), capacity});
      for (uint32_t row = 0, step = 0; row < 3 * capacity + 200; ++step) {
        const uint32_t count = static_cast<uint32_t>(random_below(80, capacity, values, step));
        std::vector<uint32_t> distances(count);
        std::vector<uint32_t> rows(count);
        for (uint32_t i = 0; i < count; ++i) {
          rows[i] = row++;
          distances[i] = static_cast<uint32_t>(random_below(values, capacity, rows[i], 1));
          expected.push_back(uint64_t{distances[i]} << 32 | uint64_t{rows[i]} << 1);
        }
        std::sort(expected.begin(), expected.end(), [](uint64_t a, uint64_t b) { return a / 2 < b / 2; });
        if (expected.size() > capacity) expected.resize(capacity);
        const auto open =
            std::find_if(expected.begin(), expected.end(), [](uint64_t key) { return key % 2 == 0; });
        const uint32_t next = static_cast<uint32_t>(open - expected.begin());
        for (size_t level = 0; level < lists.size(); ++level) {
          NearList& list = lists[level];
          levels_here()[level]->show_near(list, distances.data(), rows.data(), count);
          INFO(levels_here()[level]->name << " capacity " << capacity << " step " << step);
          REQUIRE(std::vector<uint64_t>(list.keys, list.keys + list.size) == expected);
          for (size_t i = list.size; i < near_room(capacity); ++i) REQUIRE(list.keys[i] == UINT64_MAX);
          REQUIRE(list.next <= next);
          REQUIRE(levels_here()[level]->next_near(list, list.next) == next);
          list.next = next;
          if (next < list.size) list.keys[list.next++] |= 1;
        }
        if (next < expected.size()) expected[next] |= 1;
      }
    }
  }
}

TEST_CASE("lists of near places keep the k nearest on every level, in the same order") {
  for (const uint32_t k : {1u, 2u, 15u, 16u, 48u, 256u}) {
    for (const uint32_t count : {1u, 15u, 64u, 65u, 129u, 1000u, 5000u}) {
      for (const uint32_t values : {1u, 3u, 1000u, UINT32_MAX}) {  // many equal, few, none
        std::vector<uint32_t> line(count);
        for (uint32_t j = 0; j < count; ++j)
          line[j] = static_cast<uint32_t>(random_below(values, k, count, j));
        std::vector<std::pair<uint32_t, uint32_t>> sorted;
        for (uint32_t j = 0; j < count; ++j) sorted.push_back({line[j], 7 + j});
        std::sort(sorted.begin(), sorted.end());
        std::vector<std::pair<uint32_t, uint32_t>> first;
        for (const Kernels* level : levels_here()) {
          std::vector<uint32_t> distances(nearest_room(k));
          std::vector<uint32_t> places(nearest_room(k));
          NearestList list{distances.data(), places.data(), k, 0, UINT32_MAX};
          level->show_nearest(list, line.data(), count / 2, 7);
          level->show_nearest(list, line.data() + count / 2, count - count / 2, 7 + count / 2);
          level->thin_out(list);
          INFO(level->name << " k " << k << " count " << count << " values " << values);
          REQUIRE(list.size >= std::min(k, count));
          REQUIRE(list.size <= nearest_kept(k));
          std::vector<std::pair<uint32_t, uint32_t>> kept;
          for (uint32_t i = 0; i < list.size; ++i) {
            REQUIRE(line[places[i] - 7] == distances[i]);
            kept.push_back({distances[i], places[i]});
          }
          if (first.empty()) first = kept;
          REQUIRE(kept == first);
          std::sort(kept.begin(), kept.end());
          REQUIRE(std::adjacent_find(kept.begin(), kept.end()) == kept.end());
          for (uint32_t i = 0; i < std::min(k, count); ++i) REQUIRE(kept[i].first == sorted[i].first);
        }
      }
    }
  }
}

TEST_CASE("bounds keep to their budget and use it, on every level") {
  for (const uint32_t count : {1u, 2u, 17u, 256u}) {
    for (const uint32_t values : {1u, 5u, 1u << 20}) {
      std::vector<uint32_t> line(count);
      std::vector<uint32_t> weights(count);
      for (uint32_t j = 0; j < count; ++j) {
        line[j] = static_cast<uint32_t>(random_below(values, 1, count, j));
        weights[j] = 1 + static_cast<uint32_t>(random_below(300, 2, count, j));
      }
      const auto weight = [&](uint64_t bound) {
        uint32_t sum = 0;
        for (uint32_t j = 0; j < count; ++j) sum += line[j] <= bound ? weights[j] : 0;
        return sum;
      };
      for (const uint32_t budget : {1u, 300u, 5000u, 1u << 24}) {
        const bool fits = weight(*std::min_element(line.begin(), line.end())) <= budget;
        for (const Kernels* level : levels_here()) {
          uint32_t bound = 0;
          REQUIRE(level->bound_within(line.data(), weights.data(), count, budget, &bound) == fits);
          if (!fits) continue;
          REQUIRE(weight(bound) <= budget);
          uint32_t next = UINT32_MAX;
          for (const uint32_t distance : line)
            if (distance > bound) next = std::min(next, distance);
          const bool full = weight(bound) >= budget - budget / 16 || next == UINT32_MAX;
          REQUIRE((full || weight(next) > budget));
        }
      }
    }
  }
}

TEST_CASE("keys are sorted and detours counted alike on every level") {
  for (const uint32_t count : {0u, 1u, 2u, 31u, 48u, 256u}) {
    std::vector<uint64_t> keys(count);
    for (uint32_t i = 0; i < count; ++i) keys[i] = mix(i + count) | (i % 2 ? 0 : uint64_t{1} << 63);
    std::vector<uint64_t> expected = keys;
    std::sort(expected.begin(), expected.end());
    const uint32_t width = (count + kDetourRanks - 1) / kDetourRanks * kDetourRanks;
    std::vector<uint32_t> own(width, UINT32_MAX);
    for (uint32_t i = 0; i < count; ++i) own[i] = i * 3;
    for (const Kernels* level : levels_here()) {
      std::vector<uint64_t> sorted(count);
      level->sort_keys(keys.data(), count, sorted.data());
      REQUIRE(sorted == expected);
      for (const uint32_t their_count : {0u, 1u, 16u, 40u}) {
        std::vector<uint32_t> theirs(their_count);
        for (uint32_t p = 0; p < their_count; ++p)
          theirs[p] = 3 * static_cast<uint32_t>(random_below(count + 9, p, count, their_count));
        for (uint32_t rank = 0; rank < count; rank += 1 + count / 9) {
          std::vector<uint32_t> detours(width, 5);
          std::vector<uint32_t> wanted(width, 5);
          level->count_detours(own.data(), width, theirs.data(), their_count, rank, detours.data());
          for (uint32_t p = 0; p < their_count; ++p)
            for (uint32_t r = 0; r < count; ++r) wanted[r] += own[r] == theirs[p] && r > rank && r > p;
          INFO(level->name << " count " << count << " theirs " << their_count << " rank " << rank);
          REQUIRE(detours == wanted);
        }
      }
    }
  }
}
