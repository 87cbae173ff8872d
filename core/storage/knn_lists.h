// The file of k-NN lists, which ann_knn_save writes and ann_knn_load reads.
//
// This text is the specification. A reader can be written from it alone, and one has been
// (tests/capi/knn_lists_test.c). Numbers are little-endian; "sum" is XXH3 with 64 bits, as in storage.h.
//
//     [0, 128)   header
//     sums       8 bytes for each chunk of each section, section after section
//     ids        section 1: [rows] u64, distinct, none of them 2^64 - 1. If ids is 1
//     neighbours section 2: [rows, k] u64, ids; 2^64 - 1 in unused places at the end of a row
//     distances  section 3: [rows, k] f32, ascending in a row, none NaN; +infinity in unused places
//     zeros      up to a multiple of 8
//     tail       32 bytes; the file ends with it
//
// A section is cut into chunks of 1,048,576 bytes, the last one shorter. The sum of chunk i of section t has the
// seed (t << 48) + i. A row's own id is not among its neighbours, nor any id twice; an id need not be that of a row
// of the file.
//
//     header  0  u8[8]   magic: 8A 47 4E 4B 0D 0A 1A 0A ("\x8aGNK\r\n\x1a\n")
//             8  u32     byte order: 0x01020304
//            12  u16     major version of the format: 1
//            14  u16     minor version: 0
//            16  u64     features that a reader must know: 0
//            24  u64     bytes of the file
//            32  u64     rows: at most 2,147,483,646
//            40  u32     k: 1 to 256
//            44  u32     metric of the distances: 1 squared L2, 2 inner product, 3 cosine
//            48  u64     id of row 0, the others follow; at most 2^64 - 1 - rows. 0 if ids is 1
//            56  u32     ids: 0 as said before, 1 section 1 holds them; 0 if there are no rows
//            60  u32     version of the library that wrote the file: major << 16 | minor << 8 | patch
//            64  u64     sum of the sums, as stored
//            72          zeros
//           120  u64     sum of [0, 120)
//     tail    0  u8[8]   magic of the tail: 8A 47 4E 4B 0A 45 4F 46 ("\x8aGNK\nEOF")
//             8  u64     bytes of the file
//            16  u64     sum of the header, as stored there
//            24  u64     sum of tail [0, 24)
//
// Equal lists have equal files. Every byte is covered by a sum, or a zero that is checked. Another major version, or
// a feature that is not known, is refused as ANN_VERSION, everything else as ANN_CORRUPT. Files take the place of
// others as those of an index do (storage.h, section 8).
#pragma once

#include <cstdint>
#include <memory>

#include "base/execution.h"
#include "base/files.h"
#include "knn/merge.h"

namespace gannet {

/// Replaces or makes the file at `path`, whole or not at all. `sync`: durable when it returns.
void save_lists(const GivenLists& lists, int32_t metric, const char* path, bool sync, Files& files,
                const Execution& execution);

/// The description of the lists in the header.
struct ListsShape {
  uint64_t rows = 0;
  uint32_t k = 0;
  int32_t metric = 0;
  uint64_t first_id = 0;
  bool has_ids = false;
};

/// A file of lists that is open; its header and its tail are in order.
class ListsFile {
 public:
  ListsFile(const char* path, Files& files);
  ~ListsFile();
  ListsFile(const ListsFile&) = delete;

  const ListsShape& shape() const;
  /// Reads and checks everything: [rows] ids if there are any, [rows, k] neighbours, [rows, k] distances.
  void read(uint64_t* ids, uint64_t* neighbors, float* distances, const Execution& execution);

 private:
  struct Opened;
  std::unique_ptr<Opened> opened_;
};

}  // namespace gannet
