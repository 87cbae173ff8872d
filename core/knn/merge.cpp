#include "knn/merge.h"

#include <algorithm>
#include <cmath>

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTask = 256;

struct Candidate {
  float distance;
  uint64_t id;
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.distance < b.distance || (a.distance == b.distance && a.id < b.id);
  }
};

/// Why a list is none, or null; `place` is the one at fault.
const char* fault_of(const GivenLists& lists, uint64_t row, uint64_t* sorted, uint32_t* place) {
  const uint64_t* ids = lists.neighbors + row * lists.k;
  const float* distances = lists.distances + row * lists.k;
  uint32_t count = 0;
  for (; count < lists.k && ids[count] != ANN_ID_NONE; ++count) {
    *place = count;
    if (std::isnan(distances[count])) return "has a distance that is not a number";
    if (count > 0 && distances[count] < distances[count - 1]) return "is nearer than the one before it";
    if (ids[count] == lists.id(row)) return "is the row itself";
    sorted[count] = ids[count];
  }
  for (uint32_t i = count; i < lists.k; ++i) {
    *place = i;
    if (ids[i] != ANN_ID_NONE) return "follows an unused place";
    if (!(distances[i] == INFINITY)) return "is unused, and its distance is not infinite";
  }
  std::sort(sorted, sorted + count);
  const uint64_t* again = std::adjacent_find(sorted, sorted + count);
  if (again == sorted + count) return nullptr;
  *place = static_cast<uint32_t>(std::find(ids, ids + count, *again) - ids);
  return "stands twice in its list";
}

}  // namespace

void check_lists(const GivenLists& lists, const Execution& execution) {
  std::atomic<uint64_t> refused = kNoPlace;
  parallel_for(execution, lists.rows, kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    uint64_t sorted[ANN_DEGREE_MAX];
    uint32_t place = 0;
    for (uint64_t row = begin; row < end; ++row)
      if (fault_of(lists, row, sorted, &place) != nullptr) return keep_least(refused, row);
  });
  const uint64_t row = refused.load();
  if (row == kNoPlace) return;
  uint64_t sorted[ANN_DEGREE_MAX];
  uint32_t place = 0;
  const char* fault = fault_of(lists, row, sorted, &place);
  Error error;
  error.status = ANN_INVALID_ARGUMENT;
  error.row = row;
  error.column = place;
  std::snprintf(error.message, sizeof error.message, "%s: neighbour %u of row %llu %s", lists.name, place,
                static_cast<unsigned long long>(row), fault);
  throw error;
}

bool ids_follow(const GivenLists& first, const GivenLists& second) {
  return first.ids == nullptr && second.ids == nullptr && second.first_id == first.first_id + first.rows;
}

KnownLists::KnownLists(const GivenLists& first_given, const GivenLists& second_given, const Dataset& both,
                       const Execution& execution)
    : first(first_given),
      second(second_given),
      stride(std::max(first.k, second.k)),
      numbers(execution.memory, checked_product(both.rows(), stride)) {
  const bool follow = ids_follow(first, second);
  const auto number_of = [&](uint64_t id) {
    if (id == ANN_ID_NONE) return kNoRow;
    const uint64_t number = follow ? id - first.first_id : both.find(id);
    return number < both.rows() ? static_cast<uint32_t>(number) : kNoRow;
  };
  parallel_for(execution, both.rows(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      const GivenLists& set = set_of(static_cast<uint32_t>(row));
      const uint64_t* ids = set.neighbors + (row < first.rows ? row : row - first.rows) * set.k;
      uint32_t* out = numbers.data() + row * stride;
      for (uint32_t i = 0; i < stride; ++i) out[i] = i < set.k ? number_of(ids[i]) : kNoRow;
    }
  });
}

Array<uint32_t> KnownLists::halves(uint32_t k, const Execution& execution) const {
  const uint32_t kept = k - k / 2;
  Array<uint32_t> halves(execution.memory, checked_product(rows(), kept));
  parallel_for(execution, rows(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      const uint32_t* list = numbers_of(static_cast<uint32_t>(row));
      uint32_t* out = halves.data() + row * kept;
      uint32_t count = 0;
      for (uint32_t i = 0; i < stride && count < kept; ++i)
        if (list[i] != kNoRow) out[count++] = list[i];
      std::fill(out + count, out + kept, kNoRow);
    }
  });
  return halves;
}

AcrossLists measure_across(const Dataset& both, uint32_t first_rows, const KnnGraph& found,
                           const Execution& execution) {
  const uint32_t k = found.k;
  const size_t places = checked_product(both.rows(), k);
  AcrossLists across{k, Array<uint32_t>(execution.memory, places), Array<float>(execution.memory, places)};
  parallel_for(execution, both.rows(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    Array<uint8_t> values(execution.memory, both.query_bytes());
    for (uint64_t row = begin; row < end; ++row) {
      const uint32_t* list = found.list(row);
      uint32_t* out = across.rows.data() + row * k;
      uint32_t count = 0;
      for (uint32_t i = 0; i < k && list[i] != kNoRow; ++i)
        if ((list[i] < first_rows) != (row < first_rows)) out[count++] = list[i];
      std::fill(out + count, out + k, kNoRow);
      PreparedQuery query;
      both.prepare(both.row(static_cast<uint32_t>(row)), both.element(), values.data(), &query);
      both.distances(query, out, 0, count, across.distances.data() + row * k);
    }
  });
  return across;
}

void join_lists(const KnownLists& known, const AcrossLists& across, uint32_t k, uint64_t* neighbors,
                float* distances, const Execution& execution) {
  const uint32_t first_rows = known.first.rows;
  parallel_for(execution, known.rows(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    Candidate candidates[2 * ANN_DEGREE_MAX];
    uint32_t known_across[ANN_DEGREE_MAX];  // of the list as it was given
    for (uint64_t item = begin; item < end; ++item) {
      const uint32_t row = static_cast<uint32_t>(item);
      const GivenLists& set = known.set_of(row);
      const uint64_t from = uint64_t{row < first_rows ? row : row - first_rows} * set.k;
      const uint32_t* numbers = known.numbers_of(row);
      uint32_t count = 0;
      uint32_t across_count = 0;
      for (uint32_t i = 0; i < set.k && set.neighbors[from + i] != ANN_ID_NONE; ++i) {
        candidates[count++] = {set.distances[from + i], set.neighbors[from + i]};
        if (numbers[i] != kNoRow && (numbers[i] < first_rows) != (row < first_rows))
          known_across[across_count++] = numbers[i];
      }
      const uint32_t* found = across.rows.data() + item * across.k;
      for (uint32_t i = 0; i < across.k && found[i] != kNoRow; ++i) {
        if (std::find(known_across, known_across + across_count, found[i]) == known_across + across_count)
          candidates[count++] = {across.distances[item * across.k + i], known.id_of(found[i])};
      }
      const uint32_t kept = std::min(count, k);
      std::partial_sort(candidates, candidates + kept, candidates + count);
      for (uint32_t i = 0; i < k; ++i) {
        neighbors[item * k + i] = i < kept ? candidates[i].id : ANN_ID_NONE;
        distances[item * k + i] = i < kept ? candidates[i].distance : INFINITY;
      }
    }
  });
}

}  // namespace gannet
