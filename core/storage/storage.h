// The file of an index: its format, its writers and its readers.
//
// This text is the specification. It is complete: a reader can be written from it alone, and one has
// been (bindings/rust/gannet-fsck), which the tests run over every file that they make.
//
// All numbers are little-endian. u8, u16, u32, u64 are unsigned integers, f32 and f64 IEEE 754.
// "Sum" is XXH3 with 64 bits (XXH3_64bits_withSeed), seed 0 where none is named; "hash" is XXH3 with
// 128 bits, seed 0, in its canonical form: the high 64 bits first, big-endian. [a, b) is a range of
// bytes. round(x) is x rounded up to a multiple of 4,096.
//
// 1  THE WHOLE
//
//     [0, 4096)         header
//     [4096, ...)       section table: 64 bytes for each section, then the sums of all chunks, eight
//                       bytes each, section after section; zeros up to a multiple of 4,096
//     section 1 ... n   each begins at a multiple of 4,096, right after the one before: the first at
//                       round(4096 + 64 n + 8 chunks), each other at round(end of the one before);
//                       zeros between
//     tail              64 bytes at round(end of the last section) (of the table if there is none);
//                       the file ends with it
//
// So every byte of a file is a value, covered by a sum, or a zero that is checked. An index has one
// file: equal indexes have equal files, byte for byte, whatever the machine, the number of threads
// and the place where they were made, if they have been calibrated on the same classes of devices.
//
// 2  THE HEADER
//
//     at  type    meaning
//      0  u8[8]   magic: 8A 47 4E 54 0D 0A 1A 0A ("\x8aGNT\r\n\x1a\n"; a copy in text mode breaks it)
//      8  u32     byte order: 0x01020304
//     12  u16     major version of the format: 1
//     14  u16     minor version: the least that has all that the file has; 12 with section 26, else 11 with section
//                 24, else 10 with bit 2 of the features that a reader must know, else 9 with bit 1 of the next field,
//                 else 8 with bit 0, else 7 with section 23, else 6 with section 20, else 5 with section 18 or 19, else
//                 4 with section 15, else 3 for GGNN and TSDG, else 2 with section 17, else 1 with section 10, else 0
//     16  u64     features that a reader may ignore: bit 0, the recalls of section 9 of beams up to 31 are of walks that
//                 start from groups of entry points (core/search/entry_groups.h); bit 1, those of section 18 of slacks up
//                 to 0.08 are. A reader that starts them from all entry points finds no less, one that starts from
//                 groups without these bits breaks promises
//     24  u64     features that a reader may ignore if it does not write to the file
//     32  u64     features that a reader must know: bit 0, layers, set for GGNN; bit 1, rows of varying
//                 length, set for TSDG; bit 2, of CAGRA alone, the recalls of section 18 are of walks that also
//                 compared the heads that entry points lead to, which 1.10 alone made, and are not used. No other is
//                 defined: all other bits of the three are 0
//     40  u64     bytes of the file, at most 2^56
//     48  u8[16]  content id: the hash of header [100, 4096) followed by the section table,
//                 [4096, 4096 + 64 n), without the sums of the chunks (the table has their sum)
//     64  u32     sections, n: at most 64
//     68  u32     0
//     72  u64     offset of the section table: 4096
//     80  u64     sum of [4096, offset of the first section), or up to the tail if n is 0
//     88  u64     sum of the header, [0, 4096), with these eight bytes zero
//     96  u32     version of the library that wrote the file: major << 16 | minor << 8 | patch
//    100  u32     metric: 1 squared L2, 2 inner product, 3 cosine
//    104  u32     element of the rows: 1 f32, 2 f16, 3 bf16, 4 i8, 5 u8
//    108  u32     graph: 1 CAGRA, 2 none, 3 GGNN (since 1.3), 4 TSDG (since 1.3)
//    112  u64     rows: at most 2,147,483,646
//    120  u32     dim, columns of a row: 1 to 32,768
//    124  u32     degree, edges of a row: 2 to 256, for TSDG no row has more; without a graph 0
//    128  u32     entry points: 1 to rows, 0 if there are no rows; without a graph 0
//    132  u32     ids: 0 a row's id is its number, 1 sections 2 and 3 hold them; 0 if there are no rows
//    136  u64     seed of the build
//    144  u64     bytes from one row to the next in section 1 (see there)
//    152  u64     bytes from one code to the next in section 6; 0 without that section
//    160  u32     codes: 0 none (no graph), 1 the rows serve as codes, 2 bytes, 3 floats
//    164  u32     rounds that the k-NN graph took; 0: another way or none; without a graph 0
//    168  u32     edges spent to make every row reachable; without a graph 0
//    172  f32     the highest mean recall@10 seen while calibrating, 0 to 1; 0: none; without a graph 0
//    176  f32     factor of codes 2 and 3, finite and not negative: (value - centre) * factor is the
//                 coded value; else 0
//    180  u32     0
//    184  f64     the largest length of a row, finite and not negative, for inner product with codes 2
//                 or 3; else 0
//    192          zeros up to 4096
//
// 3  THE SECTION TABLE. An entry:
//
//      0  u32     type, see 4; at least 1 and ascending, so each occurs at most once
//      4  u32     flags. Bit 0: a reader that does not know the type may skip the section; not set for
//                 types 1 to 9, 11 to 13, 15 and 16, set for others. Other bits are 0
//      8  u64     offset
//     16  u64     bytes
//     24  u32     bytes of an item, at least 1. An item is one number where 4 says nothing else
//     28  u32     0
//     32  u64     items; items times bytes of an item is bytes
//     40  u64     bytes of a chunk: 1,048,576
//     48  u64     offset in the file of the sums of its chunks
//     56  u64     sum of those sums, as stored
//
// A section is cut into chunks of 1,048,576 bytes, the last one shorter; one of 0 bytes has none. The
// sum of chunk i of a section of type t has the seed (t << 48) + i, modulo 2^64, so that no chunk can
// stand in for another.
//
// 4  THE SECTIONS. Which of them are there follows from the header: no other may be, except unknown
// ones.
//
//      1  rows        [rows, stride] the vectors. The stride is dim times the bytes of an element,
//                     rounded up to a multiple of 16, or of 64 where metric is L2 and element is i8
//                     or u8; zeros fill each row up. Floats are finite. Item: stride bytes
//      2  ids         [rows] u64, distinct, none of them 2^64 - 1. If ids is 1
//      3  order       [rows] u32, row numbers by ascending id. If ids is 1
//      4  lengths     [rows] f32, Euclidean lengths of the rows, finite and not negative. For cosine
//      5  centre      [columns] f32, finite, for codes 2 and 3. Columns are dim, with 16 more for
//                     inner product (core/dataset/codes.h defines them)
//      6  codes       [rows, stride] for codes 2 and 3: one u8 or one finite f32 a column, rounded up
//                     to a multiple of 64 bytes a row; zeros fill up. Item: stride bytes. For element
//                     i8 or u8 and metric L2 the rows serve as codes and there is no section
//      7  edges       [rows, degree] u32, row numbers best first; 2^32 - 1 in unused places, after
//                     which a row has no further edge. For TSDG each row has as many as section 13 says, row
//                     after row, and no unused places. With a graph
//      8  entries     [entry points] u32, row numbers, ascending, distinct. With a graph. More than 64 of CAGRA's are
//                     its heads, of which searches start at some (core/graph/long_edges.h)
//      9  calibration curves of 392 bytes: u32 k, u32 points (1 to 24), then 24 times { u32 beam, u32
//                     0, f64 recall }, zeros where a curve has fewer. k is at least 1 and ascends
//                     from curve to curve, beams ascend (1 to 65,536), recalls are in [0, 1] and do
//                     not fall. With a graph; no curve if none was measured, at most 4. Item: a curve
//     10  queries     [queries, dim] queries of the caller to calibrate on, in random order, at most 2,048:
//                     f32, finite, where rows are floats, else of the element of the rows. With a graph
//                     and at least one of them; since 1.1. Item: a query
//     11  layers      u32: how many layers the graph has above its bottom, at most 7; how many rows each
//                     has, from the lowest on, at least 1; zeros up to eight numbers. Then of each layer
//                     [rows] the number of each row in the layer below, ascending, distinct, and [rows,
//                     degree] edges as in section 7, within the layer. For graph 3; since 1.3
//     12  nearest     [2] f32, finite and not negative: the greatest and the mean distance of a row to its
//                     nearest neighbour, in the units of codes. For graph 3; since 1.3
//
//     13  prefixes    [rows, levels] u16, how many edges of a row, its first ones, have an occlusion factor of at
//                     most 0, 1, ... levels - 1; they do not fall within a row, and the last one is the length
//                     of the row. Levels are 1 to 64. For TSDG; since 1.3. Item: the prefixes of a row
//     15  scaled codes    [rows, stride] codes that walks take instead of section 6 (but CAGRA's): dim bytes, zeros
//                     up to a multiple of 16, then f32 scale, finite and not negative, f32 offset, finite, u32
//                     cell, below the cells, and u32 0; zeros up to a multiple of 64. May be there with codes
//                     2 or 3, with section 16; since 1.4 (core/dataset/scaled_codes.h). Item: stride bytes
//     16  scaled centres  [cells + 1, dim] f32, finite: the centre that queries are coded about, then that of each
//                     cell, of which there are 1 to 256. With section 15; since 1.4
//     17  device curves  calibration curves of CUDA devices, of 800 bytes: u32 compute capability (10 major +
//                     minor), u32 multiprocessors, u32 rows of the longest list of a block's walk, a multiple
//                     of 8, with 2 more where walks compare bytes in place of codes 3, and 5 more where they start at
//                     covering heads (core/graph/covering_heads.h; 1 or 4 more in files of earlier choices of
//                     these); u32 warps that walk for a query (1, 8, 16), u32 1
//                     where all queries of a batch walk at once (only with one warp) else 0, u32 k (at least
//                     1), u32 points (0 to 24), u32 0; then 24 times { f64 recall, f64 slack, f64 expansions at
//                     most, f64 expansions, mean }, zeros where a curve has fewer. Curves ascend by the first three numbers (a class of devices,
//                     at most 16), then 1 warp, 8, 16, 1 at once, then k, at most 5 of each. Slacks ascend and
//                     are finite, above -1 and at most 100, recalls are in [0, 1] and do not fall, expansions
//                     are 0 to 2,147,483,646. With a graph and at least one curve; since 1.2. Item: a curve
//     18  slack curves   calibration curves of searches with a slack bound on the CPU, of 776 bytes: u32 k, u32
//                    points (1 to 24), then 24 times { f64 slack, f64 recall, f64 expansions of a query, mean, f64 beam
//                    whose walk compares the same number past its starts }, zeros where a curve has fewer. k is at
//                    least 1 and ascends from curve to curve, slacks ascend (0 to 3), recalls are in [0, 1] and do not
//                    fall, expansions are 0 to 2,147,483,646, beams 1 to 65,536. With a graph and 1 to 4 curves; since
//                    1.5. Without it the CPU walks by the beams of section 9. Item: a curve
//     19  code order  [3] f64 in [0, 1]: how well the codes of walks order a sample of rows, or of section 10's kind of
//                     queries, by distance: the share of their true 10 nearest among the first 10 by code, among the
//                     first 20, and that of the tenth of the sample that fares worst. May be there with codes 2 or 3,
//                     without section 20; since 1.5
//     20  projected codes  [rows, width] u8, codes that walks of the CPU take instead of section 6, or of the rows that
//                     serve. The width is a multiple of 64, 64 to 512. May be there with codes 1 or 2 of at most 4,096
//                     bytes from one to the next, with at least one row and another metric than inner product, with
//                     section 21; since 1.6 (core/dataset/projected_codes.h). Without it the CPU walks by the codes
//                     that are projected, which order rows better, so that the curves' promises hold. Item: width bytes
//     21  projection  how a code becomes one of section 20: f32 factor, finite and above 0; zeros up to 64 bytes;
//                     [width] i32 offsets, -134,217,728 to 134,217,728; [width, stride] u8, the directions, 128 added,
//                     where the stride is that of section 6, or of section 1 where the rows serve. With section 20;
//                     since 1.6. Item: a byte
//     22  projected order  [3] f64, the numbers of section 19 of the codes of section 20. May be there with section 20,
//                     with which section 19 is not; since 1.6
//     23  first curves  calibration curves of the first ten answers of walks of CUDA devices for a hundred, which serve
//                     fewer answers: laid out as in section 17, with the same order and ranges, but k is 10, points
//                     are 1 to 24, and each of a class's 1 warp, 8, 16, 1 at once has one curve at most. Every class
//                     has curves in section 17, too. May be there with section 17, with 1 to 64 curves; since 1.7.
//                     Without it such walks go by the curves of section 17 for a hundred. Item: a curve
//     24  covering heads   u32 row numbers, ascending, distinct, 1 to 8,192 of them: where searches with a slack bound
//                     on the CPU may start instead of at entry points (core/graph/covering_heads.h). May be there
//                     with CAGRA, with section 25; since 1.11
//     25  covering curves  calibration curves of searches that start there, like section 18, 1 to 4. With section 24;
//                     since 1.11. Without both walks start at entry points. Item: a curve
//     26  half codes  [rows, stride] f16, finite: the floats of section 6, rounded, which walks of the CPU take instead
//                     of them; zeros up to a multiple of 64 bytes. May be there with codes 3 of at least 17 columns and
//                     at least one row, by another metric than inner product, but not by squared L2 of f16 rows of 64
//                     columns and more, which serve themselves; since 1.12 (core/dataset/codes.h). Without it the CPU
//                     walks by section 6, which orders rows as well, so that the curves' promises hold. Item: stride
//                     bytes
//
// A reader does not check facts that it could check only by computing anew: that lengths and codes are those of the
// rows, and that edges are in their order and distinct.
//
// Types 14 and 27 to 63 are kept for later sections: removed rows, shards.
//
// 5  THE TAIL
//
//      0  u8[8]   magic of the tail: 8A 47 4E 54 0A 45 4F 46 ("\x8aGNT\nEOF")
//      8  u8[16]  content id
//     24  u64     bytes of the file
//     32  u64     sum of the header, as stored there
//     40  u64[2]  0
//     56  u64     sum of tail [0, 56)
//
// 6  READING. In this order, so that no value is believed before those it rests on: size at least 4,160;
// magic; byte order; major version; features to be known; sum of the header; bytes of the file;
// ranges of the header's numbers; the table within the file, its sum; each section where it must be
// and as long as the header's numbers say, products without overflow; content id; tail; sums of the
// chunks; then section 4's conditions on values, because a hostile file has good sums. No memory is
// taken that the file's own bytes do not back.
//
// 7  VERSIONS. A reader takes every minor version of its major version: later ones add sections with
// flag 0 or features that may be ignored; fields that are 0 above stay 0 in them. Another major version, or an
// unknown feature that must be known, or an unknown section without the flag, is refused as ANN_VERSION,
// anything else as ANN_CORRUPT. Every later release reads this one's files; tests/golden/files holds
// such files with the answers that they must give.
//
// 8  SAVING. To a new file in the same folder, without a name where the system has such files, else locked
// and named ".gannet-HASH-N.tmp"; space is reserved first; written, synced, closed; named so if it was not,
// and renamed over NAME; the folder synced. Until the rename NAME is as it was; after it NAME is the new
// file, whole. Files left by processes that died are removed by the next save to NAME (storage/replacement.h).
// Pages are sent to the disk while others are written, so that the sync is short and the save can be ended
// until then. A failed sync is not tried again, since the system may have dropped the pages that it could
// not write (Rebello et al., "Can Applications Recover from fsync Failures?", 2021).
#pragma once

#include <cstdint>
#include <memory>

#include "base/files.h"
#include "index/index.h"

namespace gannet {

/// Where a save to a stream goes.
struct StreamSink {
  int64_t (*write)(void* user, const void* data, uint64_t bytes);
  void* user;
};

/// Where an open from a stream reads, `bytes` in all.
struct StreamSource {
  int64_t (*read)(void* user, void* data, uint64_t bytes);
  void* user;
  uint64_t bytes;
};

/// Replaces or makes the file at `path`, whole or not at all. `sync`: durable when it returns.
void save_file(const PlacedSegment& built, const char* path, bool sync, Files& files,
               const Execution& execution);

/// Writes the same bytes to a stream, from first to last.
void save_stream(const PlacedSegment& built, const StreamSink& sink, const Execution& execution);

/// The properties that a caller requires of a file; zeros require nothing.
struct Expectation {
  uint32_t dim = 0;
  int32_t metric = 0;
  int32_t element = 0;
};

/// How much of a file is checked, and when: ANN_OPEN_*.
struct OpenPlan {
  int32_t mode = ANN_OPEN_FULL;
  Expectation expected;
};

std::unique_ptr<const PlacedSegment> open_file(const char* path, const OpenPlan& plan, Files& files,
                                               const Execution& execution);
/// FULL copies the sections it needs; the other modes use the caller's bytes, for as long as the index lives.
std::unique_ptr<const PlacedSegment> open_memory(const void* data, uint64_t bytes, const OpenPlan& plan,
                                                 const Execution& execution);
/// Reads from first to last, checking everything.
std::unique_ptr<const PlacedSegment> open_stream(const StreamSource& source, const OpenPlan& plan,
                                                 const Execution& execution);

/// Checks a whole file as FULL does, without keeping it. Throws the fault.
void verify_file(const char* path, const Expectation& expected, Files& files, const Execution& execution);

/// The description in the header; sums of header, table and tail are checked.
void describe_file(const char* path, Files& files, ann_file_description* out);

}  // namespace gannet
