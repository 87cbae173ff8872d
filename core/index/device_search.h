// Searches on CUDA devices: copies of an index there, the way from a caller's queries into a space of a
// device, and back.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "index/device_calibration.h"
#include "search/best_first.h"
#include "search/device_index.h"
#include "search/queries.h"

namespace gannet {

struct Built;

/// A space of a device for the duration of a search.
class BorrowedSpace {
 public:
  BorrowedSpace(DeviceIndex& index, uint64_t queries, uint32_t k)
      : index_(index), space_(index.take_space(queries, k)) {}
  ~BorrowedSpace() { index_.give_back(std::move(space_)); }
  BorrowedSpace(const BorrowedSpace&) = delete;
  DeviceSpace& operator*() { return *space_; }
  DeviceSpace* operator->() { return space_.get(); }

 private:
  DeviceIndex& index_;
  std::unique_ptr<DeviceSpace> space_;
};

/// An index on one device.
struct Placement {
  int32_t device = 0;  // CUDA ordinal
  std::unique_ptr<DeviceIndex> index;
  DeviceCalibration calibration;

  /// Of CAGRA's searches, by one CTA or several, on codes or rows as stored: each measured at the first
  /// search that asks it for a recall.
  mutable std::mutex cagra_mutex;
  mutable std::unique_ptr<const CagraCalibration> cagra[2][2];
};

/// The placements of one index. A search holds on to its own, so taking one away waits for nobody.
class Placements {
 public:
  /// The placement on a CUDA ordinal, or null.
  std::shared_ptr<const Placement> find(int32_t device) const;
  /// The placement on a CUDA ordinal; made and calibrated if there is none.
  std::shared_ptr<const Placement> get(const Built& built, int32_t device,
                                       const Execution& execution);
  /// Takes over one that was made elsewhere; the device has none yet.
  void adopt(std::shared_ptr<const Placement> placement);
  /// Takes a placement away, if there is one.
  void drop(int32_t device);
  /// Of host memory that they hold.
  uint64_t host_bytes() const;

 private:
  std::mutex making_;  // one at a time, held while an index is sent
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Placement>> placed_;
};

/// How a device is to walk. `beam` 0 lets `recall` decide, by two lists where they serve and `one_list` is
/// not set; another beam stands for the recall that the index's calibration has measured with it, unless
/// `one_list` is set or that is beyond two lists. How many warps walk for a query depends on the
/// batch unless `warps` says it; a procedure that is named so answers or is refused.
struct DeviceRequest {
  int32_t device = 0;  // CUDA ordinal
  uint32_t beam = 0;
  float recall = 0;
  bool one_list = false;
  uint32_t warps = 0;  // 1, 8 or 16
  const ann_search_params* cagra = nullptr;  // of a search of CAGRA's, else null
};

/// What a device would do for a batch of so many queries. Errors: ANN_LIMIT, ANN_UNSUPPORTED where the
/// request names what cannot be done.
WalkEffort choose_effort(const Built& built, const Placement& placement, const DeviceRequest& request,
                         uint64_t queries, uint32_t k, const Execution& execution);

/// Answers queries by the graph on a device. False, and nothing done, where the recall needs a beam that
/// devices do not have.
bool search_on_device(const Built& built, const DeviceRequest& request, const MatrixView& queries,
                      const ResultsView& results, const Execution& execution,
                      SearchCounts* counts);

/// The same for queries and results that lie on the device.
bool search_on_device(const Built& built, const DeviceRequest& request, const DeviceBatch& batch,
                      const Execution& execution, SearchCounts* counts);

/// Answers such queries by comparing with every row. Errors: ANN_UNSUPPORTED where the smaller of k and
/// the rows is above 1,024.
void search_exact_on_device(const Built& built, const DeviceBatch& batch, const Execution& execution);

/// Writes queries [first, first + count) as records of a space, and which of them are finite; the record
/// of one that is not holds zeros.
void fill_space(const Dataset& dataset, const Codes& codes, const MatrixView& queries,
                uint64_t first, uint32_t count, DeviceSpace& space, const Execution& execution);

}  // namespace gannet
