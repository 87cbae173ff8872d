#include "search/exact_device.h"

#include <algorithm>
#include <cstring>

#include "search/exact_cuda.h"

namespace gannet {
namespace {

constexpr uint32_t kQueriesAtOnce = 1024;  // between two questions to the monitor, of few answers each

/// The queries side by side, as the kernel takes them; empty where the block has them so.
Array<uint8_t> pack(const Dataset& dataset, const QueryBlock& queries, const Execution& execution) {
  const size_t bytes = dataset.query_bytes();
  if (bytes == queries.value_bytes()) return {};
  Array<uint8_t> packed(execution.memory, checked_product(queries.size(), bytes));
  parallel_for(execution, queries.size(), kQueriesAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t query = begin; query < end; ++query)
      std::memcpy(packed.data() + query * bytes, queries[query].values, bytes);
  });
  return packed;
}

}  // namespace

void search_exact_on_device(const Dataset& dataset, const QueryBlock& queries, const uint32_t* excluded,
                            int32_t device, const ResultsView& results, const Execution& execution,
                            const DevicePlacement* placed, const RowSetView& removed) {
  if (placed == nullptr) dataset.touch_all();
  const uint64_t count = queries.size();
  if (count > UINT32_MAX)
    fail(ANN_LIMIT, "queries.rows is %llu, at most %u are answered on a device",
         static_cast<unsigned long long>(count), UINT32_MAX);
  const Array<uint8_t> packed = pack(dataset, queries, execution);
  // One more than k, so that an excluded row leaves enough of them.
  const uint64_t wanted = results.k + (excluded != nullptr ? uint64_t{1} : 0);
  const uint32_t kept = static_cast<uint32_t>(std::min<uint64_t>(wanted, dataset.rows()));
  Array<uint32_t> rows(execution.memory, checked_product(count, kept));
  Array<float> distances(execution.memory, checked_product(count, kept));
  cuda::ExactRequest request;
  request.device = device - ANN_DEVICE_CUDA;
  request.rows = dataset.view();
  request.row_count = dataset.rows();
  request.metric = dataset.metric();
  request.norms = dataset.norms();
  request.ids = dataset.ids();
  request.queries = packed.size() != 0 ? packed.data() : queries.values();
  request.query_norms = queries.norms();
  request.query_count = static_cast<uint32_t>(count);
  request.k = kept;
  request.removed = removed;
  request.out_rows = rows.data();
  request.out_distances = distances.data();
  if (placed != nullptr) cuda::lend_rows(placed->view(), &request);
  if (kept > 0) cuda::search_exact(request, execution);
  Array<Neighbor> answers(execution.memory, checked_product(execution.threads, kept));
  const uint64_t grain = std::max<uint64_t>(1, kQueriesAtOnce * 8 / std::max(8u, kept));
  parallel_for(execution, count, grain, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    Neighbor* answer = answers.data() + size_t{worker} * kept;
    for (uint64_t query = begin; query < end; ++query) {
      uint32_t found = 0;
      for (uint32_t i = 0; i < kept; ++i) {
        const uint32_t row = rows[query * kept + i];
        if (row != kNoRow && (excluded == nullptr || row != excluded[query]))
          answer[found++] = {distances[query * kept + i], dataset.id(row)};
      }
      const bool usable = queries.usable(query);
      write_answer(results, query, answer, usable ? std::min(found, results.k) : 0,
                   usable ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE});
    }
  });
}

void first_by_code_on_device(const Codes& codes, const Array<uint32_t>& rows, const DevicePlacement& placed,
                             uint32_t* first, const Execution& execution) {
  constexpr uint32_t kLooked = CodeOrder::kLooked;
  const auto count = static_cast<uint32_t>(rows.size());
  const uint32_t kept = std::min(kLooked + 1, codes.rows());  // and the row itself
  Array<uint8_t> queries(execution.memory, rows.size() * codes.stride());
  codes.gather(rows.data(), count, queries.data());
  Array<uint32_t> found(execution.memory, size_t{count} * kept);
  Array<float> distances(execution.memory, found.size());
  // Codes are vectors like others: of bytes, or of floats.
  cuda::ExactRequest request;
  request.device = placed.device();
  const auto stride = static_cast<uint32_t>(codes.stride());
  request.rows = {placed.view().codes, stride, codes.wide() ? stride / uint32_t{sizeof(float)} : stride,
                  codes.wide() ? ANN_F32 : ANN_U8};
  request.rows_are_there = true;
  request.row_count = codes.rows();
  request.metric = ANN_METRIC_L2;
  request.queries = queries.data();
  request.query_count = count;
  request.k = kept;
  request.out_rows = found.data();
  request.out_distances = distances.data();
  cuda::search_exact(request, execution);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t* to = first + size_t{i} * kLooked;
    uint32_t size = 0;
    for (uint32_t place = 0; place < kept && size < kLooked; ++place) {
      const uint32_t row = found[size_t{i} * kept + place];
      if (row != rows[i]) to[size++] = row;
    }
    std::fill(to + size, to + kLooked, kNoRow);
  }
}

}  // namespace gannet
