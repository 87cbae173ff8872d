// What the target "calls" passes to the library and what it knows about the answers: structs of any
// size, matrices of any kind, and a model of each index that says what a search must find.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "ann.h"
#include "demand.h"
#include "input.h"
#include "opening.h"

namespace gannet::fuzz {

/// A struct as a caller of another age passes it: as many bytes of memory as struct_size says and no
/// more, so that a sanitizer sees a read or a write behind them.
template <class T>
class Given {
 public:
  Given(const T& value, Input& input) {
    size_t size = sizeof(T);
    size_t memory = sizeof(T);
    const uint64_t kind = input.below(24);
    if (kind == 20) {
      size = memory = input.below(sizeof(T));  // older, or cut in the middle of a field
    } else if (kind == 21 || kind == 22) {
      size = memory = sizeof(T) + 1 + input.below(64);
      tail_set_ = kind == 22;
    } else if (kind == 23) {
      size = input.below(2) == 0 ? 65537 : UINT32_MAX;  // the size is refused, so nothing is read
    }
    usual_ = size == sizeof(T);
    bytes_ = std::max(memory, sizeof(uint32_t));
    given_ = static_cast<uint8_t*>(std::calloc(1, bytes_));
    std::memcpy(given_, &value, std::min(bytes_, sizeof(T)));
    const uint32_t written = static_cast<uint32_t>(size);
    std::memcpy(given_, &written, sizeof written);
    if (tail_set_) given_[bytes_ - 1] = 1;
  }
  ~Given() { std::free(given_); }
  Given(const Given&) = delete;

  T* get() { return reinterpret_cast<T*>(given_); }
  /// Whether the library takes it for what it is: neither cut nor with a tail.
  bool usual() const { return usual_; }
  bool tail_set() const { return tail_set_; }
  /// What is in it now, zeros where it is cut.
  T value() const {
    T value = {};
    std::memcpy(&value, given_, std::min(bytes_, sizeof(T)));
    return value;
  }

 private:
  uint8_t* given_ = nullptr;
  size_t bytes_ = 0;
  bool usual_ = true;
  bool tail_set_ = false;
};

/// Vectors and the view of them that is passed on.
struct Block {
  std::vector<uint8_t> bytes;  // packed, before the stride
  std::vector<uint8_t> strided;
  ann_matrix view = ANN_MATRIX_INIT;
  bool finite = true;
  bool legal = true;  // no misuse was built in

  const uint8_t* row(uint64_t number) const { return strided.data() + number * view.row_stride; }
};

Block make_block(Input& input, uint32_t dim, int32_t element, uint64_t rows);

/// What is known about an index.
struct Model {
  ann_index* handle = nullptr;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  bool built = false;
  bool graph = false;
  bool lazy = false;
  Block rows;  // as given to the build; not known after a conversion
  bool rows_known = false;
  uint64_t row_count = 0;
  std::vector<uint64_t> ids;        // by row, always filled in
  std::shared_ptr<Block> borrowed;  // must outlive the handle
  std::shared_ptr<const PagedBytes> file;
};

/// The distance that an exact search reports under L2 for elements of one byte.
uint32_t squared_distance(const uint8_t* a, const uint8_t* b, uint32_t dim, int32_t element);

}  // namespace gannet::fuzz
