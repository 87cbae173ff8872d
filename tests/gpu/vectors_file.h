// Rows of a .u8bin or .f16bin file: uint32 rows, uint32 dim, then the values.
#pragma once

#include "claims.h"

namespace gannet::test {

/// The first rows of a file.
inline Rows read_vectors(const std::string& path, uint32_t rows_max) {
  if (path.find(".f16bin") == std::string::npos) return read_u8bin(path, rows_max);
  std::ifstream file(path, std::ios::binary);
  uint32_t shape[2] = {};
  file.read(reinterpret_cast<char*>(shape), sizeof shape);
  expect(file.good(), "no data in " + path);
  Rows rows(ANN_F16, 0, shape[1], Values::kEqual, 1);
  rows.rows = std::min(shape[0], rows_max);
  rows.bytes.resize(uint64_t{rows.rows} * rows.stride);
  file.read(reinterpret_cast<char*>(rows.bytes.data()), static_cast<std::streamsize>(rows.bytes.size()));
  expect(file.good(), path + " is too short");
  return rows;
}

/// A metric by its name: L2, cosine or ip.
inline int32_t metric_named(const std::string& name) {
  if (name == "cosine") return ANN_METRIC_COSINE;
  return name == "ip" ? ANN_METRIC_INNER_PRODUCT : ANN_METRIC_L2;
}

}  // namespace gannet::test
