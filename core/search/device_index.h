// DeviceIndex: the copy of an index on a CUDA device, and searches there.
//
// What is copied: codes, edges and entry points, and pivots, which are drawn there; where code distances
// are not the reported ones also the rows as stored and, for cosine, their lengths; and ids that are not
// row numbers. Of an index without a graph only what exact search needs.
//
// A search of host memory runs in a DeviceSpace: a stream, device memory for a number of queries, and
// pinned host memory of the same shape. Spaces are kept for the next search, so that searches of a shape
// that has been seen allocate nothing, and each of many host threads has a stream of its own. A batch takes
// several, so that copies of one part pass while another is walked for.
//
// A search of device memory runs on the caller's stream, with memory from the device's pool in the order
// of that stream, and copies nothing through the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/execution.h"
#include "base/random.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "search/best_first.h"
#include "search/cagra.h"
#include "search/queries.h"
#include "traverse/row_key.h"

namespace gannet {
namespace cuda {
struct ExactRequest;
}

/// How far a walk goes, and who walks. Either with two lists, where `beam` is 0, or with one list of
/// `beam` rows; or as CAGRA, where its plan has lists.
struct WalkEffort {
  float slack = 0;              // s: rows up to 1 + s times as far as the k-th best are expanded
  uint32_t expansions_max = 0;  // of one query, where two lists walk
  uint32_t beam = 0;
  uint32_t warps = 1;           // of two lists, for one query: 1, or a block of 8 or 16
  bool hidden = false;          // on the graph without the rows that hide_rows() has taken out
  CagraPlan cagra;

  /// Whether a block walks for each query.
  bool by_blocks() const { return beam == 0 && warps > 1 && cagra.lists == 0; }
};

/// Rows that two lists of one warp and of a block can keep, and the longest beam of one list
/// (search/walk_cuda.cu, search/walk_block_cuda.cu).
inline constexpr uint32_t kTwoListsMax = 128;
inline constexpr uint32_t kBlockKeptMax = 1280;
inline constexpr uint32_t kWideBlockKeptMax = 32;  // of 16 warps
inline constexpr uint32_t kDeviceBeamMax = 1984;

/// Lists and filter of a block's walk.
struct BlockShape {
  uint32_t best;           // rows
  uint32_t queue;          // rows
  uint32_t met_word_bits;  // log2 of the words of the filter
};

/// Those that keep so many rows. 1,000 answers meet ten times as many rows as 10 and need as much more of
/// the filter and of the queue.
constexpr BlockShape block_shape(uint32_t kept) {
  if (kept <= 32) return {32, 64, 13};
  if (kept <= 128) return {128, 128, 13};
  return {kBlockKeptMax, 512, 15};
}

/// Rows spread over an index; searches start at the nearest of them. They are drawn from equal strata of
/// the rows, kNoRow in unused places at the end.
inline constexpr uint32_t kPivots = 512;
inline void draw_pivots(uint32_t rows, uint32_t* pivots) {
  for (uint32_t i = 0; i < kPivots; ++i) pivots[i] = kNoRow;
  random_strata(rows, rows < kPivots ? rows : kPivots, 0, 0x7069766f7473, pivots);  // "pivots"
}

/// Rows that two lists keep for k answers: where codes are lossy as many as are compared once more on the CPU,
/// but beyond 85 answers no more than a warp keeps, or a quarter more than k.
constexpr uint32_t kept_count(uint32_t k, bool exact_codes) {
  return exact_codes ? k : std::max(k + k / 4, std::min(rerank_count(k), kTwoListsMax));
}

/// Of these rows, those whose codes lie farther than the k-th by more than so many steps of the codes are not
/// compared once more where a warp walks: rounding moves a distance by 0.4 steps (dataset/codes.h). Of 26 rows
/// for 10 answers 13 to 15 are left (SIFT, GIST, words), and recall loses 0.0006 at most; of Gaussian
/// clusters by inner product, where rows are all about as far, 18, and 0.0009.
inline constexpr float kAgainWithin = 2.5f;

/// Whether k answers can be found with two lists of a warp.
constexpr bool two_lists_serve(uint32_t k, bool exact_codes) {
  return kept_count(k, exact_codes) <= kTwoListsMax;
}

/// Room for one search of up to capacity() queries.
class DeviceSpace {
 public:
  virtual ~DeviceSpace() = default;

  uint32_t capacity() const { return capacity_; }

  // The queries, to be filled in by the caller before run() or start(); pinned host memory.

  /// For start(): vectors as a caller gives them, side by side from here on. They take no more than records.
  uint8_t* vectors() { return records_; }

  // For run():

  /// [value_bytes()] of a query with zeros behind: where codes are exact its elements, as they are, else
  /// its prepared values.
  uint8_t* values(uint32_t query) { return records_ + query * record_bytes_; }
  size_t value_bytes() const { return value_bytes_; }
  size_t record_bytes() const { return record_bytes_; }  // from a query to the next
  /// The length of the prepared values, for cosine.
  void set_norm(uint32_t query, double norm) {
    std::memcpy(values(query) + value_bytes_, &norm, sizeof norm);
  }

  // Whether a query is finite: before run() the caller says so, for itself alone; after finish() the device.
  bool usable(uint32_t query) const { return found_usable_ == nullptr || found_usable_[query] != 0; }
  void set_usable(uint32_t query, bool usable) {
    usable_[query] = usable ? 1 : 0;
    found_usable_ = usable_.data();
  }

  /// Answers the first `count` queries and waits for the answers. `masked`, unless null, is [count] a
  /// row that each query neither expands nor returns. With `timed` the kernels are timed.
  virtual void run(uint32_t count, const WalkEffort& effort, const uint32_t* masked,
                   bool timed) = 0;

  /// The same in two steps, for vectors of an element that can be compared with the rows: the first queues
  /// all work, which begins with making records of them, the second waits for it. In between the space is
  /// left alone.
  virtual void start(uint32_t count, int32_t element, const WalkEffort& effort) = 0;
  virtual void finish() = 0;

  // The answers, [count, k]: nearest first, equal distances by row; kNoRow and +infinity where there
  // are no more.
  const uint32_t* rows() const { return rows_; }
  const float* distances() const { return distances_; }
  uint64_t distance_count() const { return distance_count_; }
  uint64_t expansion_count() const { return expansion_count_; }
  double kernel_seconds() const { return kernel_seconds_; }

 protected:
  uint32_t capacity_ = 0;
  size_t value_bytes_ = 0;
  size_t record_bytes_ = 0;
  Array<uint8_t> usable_;       // [capacity]
  const uint8_t* found_usable_ = nullptr;  // [count] of the last run, or null: all are
  uint8_t* records_ = nullptr;  // [capacity, record_bytes] values and norm of a query
  const uint32_t* rows_ = nullptr;
  const float* distances_ = nullptr;
  uint64_t distance_count_ = 0;
  uint64_t expansion_count_ = 0;
  double kernel_seconds_ = 0;
};

/// Queries on the device, and where their answers go there.
struct DeviceBatch {
  MatrixView queries;    // device memory at any address
  ResultsView results;   // device memory
  void* stream = nullptr;  // the caller's cudaStream_t; null: a stream of the library, which is waited for
};

/// Distances computed and rows expanded, for calls that wait for their answers.
struct DeviceCounts {
  uint64_t distances = 0;
  uint64_t expansions = 0;
};

class DeviceIndex {
 public:
  virtual ~DeviceIndex() = default;

  virtual uint64_t bytes() const = 0;       // of device memory, spaces not included
  virtual uint64_t host_bytes() const = 0;  // of host memory, pinned or not, in spaces that are not in use

  /// Whether a block can walk for k answers.
  virtual bool blocks_serve(uint32_t k) const = 0;
  /// Queries of k answers that a warp each walks for at the same time; 0 where no kernel is made for that.
  virtual uint32_t walks_at_once(uint32_t k) const = 0;
  virtual uint32_t multiprocessors() const = 0;

  /// Room for `queries` queries of k answers each, or for as many of them as one run takes.
  virtual std::unique_ptr<DeviceSpace> take_space(uint64_t queries, uint32_t k) = 0;
  virtual void give_back(std::unique_ptr<DeviceSpace> space) noexcept = 0;

  /// Answers a batch by walks, or by comparing with every row, without a copy through the host. With a
  /// stream of the caller the work is queued there, and the index waits for it before it goes. The
  /// monitor is asked between pieces of the batch.
  virtual void search(const DeviceBatch& batch, const WalkEffort& effort, const Execution& execution,
                      DeviceCounts* counts) = 0;
  virtual void search_exact(const DeviceBatch& batch, const Execution& execution) = 0;

  /// Until show_rows() walks of a `hidden` effort find what they would had these rows never been in the
  /// graph (search/hidden_rows_cuda.h). False, and nothing done, where memory does not hold the edges a
  /// second time.
  virtual bool hide_rows(const uint32_t* rows, uint32_t count) = 0;
  virtual void show_rows() noexcept = 0;

  /// Makes an exact search of host memory compare with the rows that stand here.
  virtual void lend_rows(cuda::ExactRequest* request) const = 0;
};

namespace cuda {

/// Copies an index to a device (a CUDA ordinal, from 0); codes and graph are empty where it has none.
/// Everything of a mapped file has been touched before. Errors: ANN_NO_DEVICE, ANN_DEVICE_NO_MEMORY,
/// ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE; nothing is held then.
std::unique_ptr<DeviceIndex> place_index(int32_t device, const Dataset& dataset,
                                         const Codes& codes, const SearchGraph& graph,
                                         const Execution& execution);

}  // namespace cuda
}  // namespace gannet
