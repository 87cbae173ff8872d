// Small indexes of every kind, the files that they are saved as and the answers that they give: what
// the tests of this folder break, and what they compare with.
//
// A file of 40 rows has some 30 KB, so that a test can break it a million times. The kinds differ in
// what the format lets differ: metric, element, graph or none, ids or row numbers, codes of bytes,
// codes of floats, or rows that serve as codes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ann.h"
#include "base/files.h"

namespace fault {

/// Bytes at a multiple of 4,096, as a mapping has them, and not one byte more: a sanitizer sees
/// whoever reads behind the end.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(uint64_t count);
  Bytes(const void* data, uint64_t count);
  Bytes(const Bytes& other) : Bytes(other.data(), other.size()) {}
  Bytes(Bytes&& other) noexcept { swap(other); }
  Bytes& operator=(Bytes other) noexcept {
    swap(other);
    return *this;
  }
  ~Bytes();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  uint8_t& operator[](uint64_t place) { return data_[place]; }
  const uint8_t& operator[](uint64_t place) const { return data_[place]; }
  bool operator==(const Bytes& other) const;

 private:
  void swap(Bytes& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

struct Kind {
  int32_t metric;
  int32_t element;
  bool graph;
  bool ids;
  uint32_t dim;
  uint64_t rows;
  bool islands = false;  // whose rows bytes do not distinguish

  std::string name() const;
};

/// One kind for each way in which files differ.
std::vector<Kind> few_kinds();
/// Every graph, metric and element, with and without ids.
std::vector<Kind> all_kinds();

struct Freed {
  void operator()(ann_index* index) const { ann_index_free(index); }
};
using Index = std::unique_ptr<ann_index, Freed>;

/// What a search gave; equal only if bit for bit.
struct Answer {
  ann_status status = ANN_INTERNAL;
  std::vector<uint64_t> ids;
  std::vector<uint32_t> distance_bits;

  bool operator==(const Answer&) const = default;
};

/// What both searches gave: ann_search_batch and ann_search_exact.
struct Outcome {
  Answer usual, exact;

  bool operator==(const Outcome&) const = default;
};

/// An index, its file and its answers.
struct Made {
  Made(const Kind& kind, uint64_t seed, uint32_t degree = 8);

  /// Of another index to the same queries.
  Outcome answers(const ann_index* opened) const;

  Kind kind;
  std::string name;
  Index index;
  Bytes file;
  Outcome expected;

 private:
  Answer answer(const ann_index* opened, bool exact) const;
  std::vector<uint8_t> queries_;
};

Bytes saved(const ann_index* index);

/// A folder of its own in memory where the machine has that, gone with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  /// Names in the folder, sorted.
  std::vector<std::string> names() const;
  /// Names that a save gives to files that are not finished.
  std::vector<std::string> temporary() const;
  void clear() const;

 private:
  std::string path_;
};

/// The name that a save to `name` gives its new file if the names with lower numbers are taken.
std::string left_name(const std::string& name, uint32_t number);

/// The whole of a file; nothing if it is not there.
Bytes read_file(const std::string& path, bool* found = nullptr);
void write_file(const std::string& path, const void* data, uint64_t count);

/// Open descriptors of this process.
int open_descriptors();

/// What is being tried; tell_if_it_dies() has it printed if the process dies of it, or hangs until an
/// alarm.
extern char being_tried[256];
void tell_if_it_dies();

/// What a test divides its work by: GANNET_FAULT_SCALE, with 1 for a full run; without it `usual`, and
/// eight times that under a sanitizer.
uint64_t fault_scale(uint64_t usual);

}  // namespace fault
