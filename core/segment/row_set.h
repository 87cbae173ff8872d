// RowSet: a set of rows as bits, and the two questions that every search asks of rows.
//
//   answers(row)  whether the row may be returned. Removed rows and those that a filter refuses are walked
//                 through, since others may only be reached by way of them, and never returned.
//   walks(row)    whether the row may be expanded or returned. Rows held out for calibration are neither: a row
//                 that is in the graph is no query, since its own edges lead to its neighbours (expanding them
//                 measured a recall of 1.00 where unseen queries get .89).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/memory.h"
#include "traverse/row_key.h"

namespace gannet {

/// Rows are held out on the CPU all at once: one in this many at most.
inline constexpr uint32_t kHeldOutShare = 4;

/// A view of a set, for walks on the CPU and on devices. No set holds no row.
struct RowSetView {
  const uint32_t* words = nullptr;  // [(rows + 31) / 32] a bit for each row, or null
  uint64_t version = 0;             // of the set; views of one version show the same rows

  constexpr bool empty() const { return words == nullptr; }
  constexpr bool holds(uint32_t row) const {
    return words != nullptr && (words[row / 32] >> row % 32 & 1) != 0;
  }
};

class RowSet {
 public:
  RowSet() = default;
  RowSet(const Allocator& memory, uint32_t rows)
      : words_(Array<uint32_t>::zeroed(memory, word_count(rows))), version_(next_version()) {}

  static constexpr size_t word_count(uint32_t rows) { return (size_t{rows} + 31) / 32; }

  void insert(uint32_t row) {
    uint32_t& word = words_[row / 32];
    const uint32_t bit = 1u << row % 32;
    count_ += (word & bit) == 0 ? 1 : 0;
    word |= bit;
    version_ = next_version();
  }
  bool holds(uint32_t row) const { return view().holds(row); }
  uint32_t count() const { return count_; }
  uint64_t bytes() const { return words_.bytes(); }
  const Array<uint32_t>& words() const { return words_; }
  RowSetView view() const { return {words_.data(), version_}; }

 private:
  static uint64_t next_version() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

  Array<uint32_t> words_;
  uint64_t version_ = 0;
  uint32_t count_ = 0;
};

/// The rows that the search for one query may walk, and those that it may return.
struct Admission {
  RowSetView removed = {};   // walked through, never returned
  RowSetView held_out = {};  // neither expanded nor returned
  uint32_t masked = kNoRow;  // one row more that is held out, of this query alone

  constexpr bool answers(uint32_t row) const { return !removed.holds(row); }
  constexpr bool walks(uint32_t row) const { return row != masked && !held_out.holds(row); }
  /// Whether every row but the masked one is walked, which spares a walk the question.
  constexpr bool walks_all() const { return held_out.empty(); }
  constexpr bool answers_all() const { return removed.empty(); }

  /// Leaves those of `rows` that are walked, in order; how many.
  uint32_t keep_walked(uint32_t* rows, uint32_t count) const {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
      rows[kept] = rows[i];
      kept += walks(rows[i]) ? 1 : 0;
    }
    return kept;
  }
};

/// The same for the queries of a batch.
struct BatchAdmission {
  RowSetView removed = {};
  RowSetView held_out = {};
  const uint32_t* masked = nullptr;  // [queries] one row more that is held out of each, or null

  constexpr Admission of(uint64_t query) const {
    return {removed, held_out, masked != nullptr ? masked[query] : uint32_t{kNoRow}};
  }
  constexpr bool admits_all() const { return removed.empty() && held_out.empty() && masked == nullptr; }
};

}  // namespace gannet
