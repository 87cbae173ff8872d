// handles.h: the handles of ann.h as C++ owns them, and its errors as C++ throws them.
//
// The common part of the programs here; a program of your own can take it as it is.
#pragma once

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ann.h"

struct Free {
  void operator()(ann_index* index) const { ann_index_free(index); }
  void operator()(ann_monitor* monitor) const { ann_monitor_free(monitor); }
};
using Index = std::unique_ptr<ann_index, Free>;
using Monitor = std::unique_ptr<ann_monitor, Free>;

// The user's own wish, through Ctrl-C.
struct Cancelled : std::exception {};

// A call that failed.
struct AnnError : std::runtime_error {
  AnnError(ann_status status, const std::string& text)
      : std::runtime_error(text + " (" + ann_status_name(status) + ")"), status(status) {}
  ann_status status;
};

// Throws unless `status` is ANN_OK; `what` says what was being done.
inline void check(ann_status status, const ann_error& error, const std::string& what) {
  if (status == ANN_OK) return;
  if (status == ANN_CANCELLED) throw Cancelled();
  throw AnnError(status, what + ": " + error.message);
}

inline Monitor make_monitor() {
  ann_error error = ANN_ERROR_INIT;
  ann_monitor* made = nullptr;
  check(ann_monitor_create(&made, &error), error, "making a monitor");
  return Monitor(made);
}

inline Index make_index(uint32_t dim, int32_t metric, int32_t element = ANN_ELEMENT_AUTO) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = dim;
  shape.metric = metric;
  shape.element = element;
  ann_error error = ANN_ERROR_INIT;
  ann_index* made = nullptr;
  check(ann_index_create(nullptr, &shape, &made, &error), error, "making an index");
  return Index(made);
}

inline ann_index_info info_of(const ann_index* index) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  ann_error error = ANN_ERROR_INIT;
  check(ann_index_get_info(index, &info, &error), error, "reading the state of an index");
  return info;
}

// Neighbours of some queries, in buffers of their own.
struct Neighbours {
  Neighbours() = default;
  Neighbours(uint64_t queries, uint32_t k)
      : queries(queries), k(k), ids(queries * k), distances(queries * k) {}

  // The buffers for `count` queries from `first` on.
  ann_results view(uint64_t first, uint64_t count) {
    ann_results out = ANN_RESULTS_INIT;
    out.k = k;
    out.rows = count;
    out.ids = ids.data() + first * k;
    out.distances = distances.data() + first * k;
    return out;
  }

  uint64_t queries = 0;
  uint32_t k = 0;
  std::vector<uint64_t> ids;
  std::vector<float> distances;
};
