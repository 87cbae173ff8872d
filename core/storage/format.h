// The parts of a file as structs, and the arithmetic of their places. storage.h is the specification.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/first_touch.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "files are little-endian; a big-endian machine needs conversions that are not written");

namespace gannet::format {

inline constexpr uint8_t kMagic[8] = {0x8a, 'G', 'N', 'T', '\r', '\n', 0x1a, '\n'};
inline constexpr uint8_t kTailMagic[8] = {0x8a, 'G', 'N', 'T', '\n', 'E', 'O', 'F'};
inline constexpr uint32_t kByteOrder = 0x01020304;
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 0;
inline constexpr uint16_t kMinorWithQueries = 1;
inline constexpr uint16_t kMinorWithDeviceCurves = 2;
inline constexpr uint16_t kMinorWithLayers = 3;
inline constexpr uint64_t kFeatureLayers = 1;  // to be known: the graph has layers
inline constexpr uint16_t kMinorWithVariableRows = 3;
inline constexpr uint16_t kMinorWithScaledCodes = 4;
inline constexpr uint16_t kMinorWithSlackCurves = 5;
inline constexpr uint16_t kMinorWithCodeOrder = 5;
inline constexpr uint16_t kMinorWithProjectedCodes = 6;
inline constexpr uint16_t kMinorWithFirstCurves = 7;
inline constexpr uint16_t kMinorWithEntryGroups = 8;
inline constexpr uint16_t kMinorWithSlackGroups = 9;
inline constexpr uint64_t kFeatureEntryGroups = 1;  // to be ignored: short lists start from groups
inline constexpr uint64_t kFeatureSlackGroups = 2;  // likewise: and small slacks do
inline constexpr uint16_t kMinorWithSlackSpread = 10;
inline constexpr uint16_t kMinorWithCoveringHeads = 11;
inline constexpr uint16_t kMinorWithHalfCodes = 12;
inline constexpr uint64_t kFeatureVariableRows = 2;
inline constexpr uint64_t kFeatureSlackSpread =
    4;  // to be known: curves of slacks are of walks that 1.10 alone made
inline constexpr uint64_t kFeaturesKnown = kFeatureLayers | kFeatureVariableRows | kFeatureSlackSpread;
inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kChunkBytes = FirstTouch::kChunkBytes;
inline constexpr uint32_t kSectionsMax = 64;

enum GraphKind : uint32_t { kGraphCagra = 1, kGraphNone = 2, kGraphGgnn = 3, kGraphTsdg = 4 };
enum CodeKind : uint32_t { kCodesNone = 0, kCodesRows = 1, kCodesBytes = 2, kCodesFloats = 3 };
enum SectionType : uint32_t {
  kRows = 1,
  kIds = 2,
  kOrder = 3,
  kLengths = 4,
  kCentre = 5,
  kCodes = 6,
  kEdges = 7,
  kEntries = 8,
  kCalibration = 9,
  kQueries = 10,
  kLayers = 11,
  kNearest = 12,
  kPrefixes = 13,
  kScaledCodes = 15,
  kScaledCentres = 16,
  kDeviceCurves = 17,
  kSlackCurves = 18,
  kCodeOrder = 19,
  kProjectedCodes = 20,
  kProjection = 21,
  kProjectedOrder = 22,
  kFirstCurves = 23,
  kCoveringHeads = 24,
  kCoveringCurves = 25,
  kHalfCodes = 26,
};
inline constexpr uint32_t kTypesMax = 26;
constexpr bool is_known(uint32_t type) {
  return (type >= kRows && type <= kPrefixes) || (type >= kScaledCodes && type <= kHalfCodes);
}
inline constexpr uint32_t kLayerWords = 8;  // before the layers: how many, and the rows of each
inline constexpr uint32_t kSkippable = 1;   // flag of a section

/// The flags of a section: a reader of 1.0 skips later sections, unless a file has a feature for one, or without it
/// calibration makes promises that are not kept.
constexpr uint32_t flags_of(uint32_t type) {
  return type <= kCalibration || (type >= kLayers && type <= kPrefixes) || type == kScaledCodes ||
                 type == kScaledCentres
             ? 0
             : kSkippable;
}

struct Header {
  uint8_t magic[8];
  uint32_t byte_order;
  uint16_t major;
  uint16_t minor;
  uint64_t features;
  uint64_t features_to_write;
  uint64_t features_to_read;
  uint64_t file_bytes;
  uint8_t content_id[16];
  uint32_t sections;
  uint32_t zero_68;
  uint64_t table_offset;
  uint64_t table_sum;
  uint64_t header_sum;
  uint32_t writer;

  // From here on the content, which content_id covers.
  uint32_t metric;
  uint32_t element;
  uint32_t graph;
  uint64_t rows;
  uint32_t dim;
  uint32_t degree;
  uint32_t entries;
  uint32_t has_ids;
  uint64_t seed;
  uint64_t row_stride;
  uint64_t code_stride;
  uint32_t codes;
  uint32_t knn_iterations;
  uint32_t repaired_edges;
  float recall_max;
  float code_factor;
  uint32_t zero_180;
  double norm_max;
  uint8_t zeros[kPage - 192];
};
static_assert(sizeof(Header) == kPage && offsetof(Header, writer) == 96 && offsetof(Header, metric) == 100 &&
              offsetof(Header, rows) == 112 && offsetof(Header, code_stride) == 152 &&
              offsetof(Header, norm_max) == 184);
inline constexpr size_t kContentStart = offsetof(Header, metric);

struct Section {
  uint32_t type;
  uint32_t flags;
  uint64_t offset;
  uint64_t bytes;
  uint32_t item_bytes;
  uint32_t zero;
  uint64_t items;
  uint64_t chunk_bytes;
  uint64_t sums_offset;
  uint64_t sums_sum;
};
static_assert(sizeof(Section) == 64);

struct Tail {
  uint8_t magic[8];
  uint8_t content_id[16];
  uint64_t file_bytes;
  uint64_t header_sum;
  uint64_t zeros[2];
  uint64_t sum;
};
static_assert(sizeof(Tail) == 64);
inline constexpr uint64_t kFileBytesMin = sizeof(Header) + sizeof(Tail);
/// A stream may claim any length. With this one, no sum over kSectionsMax sections leaves 64 bits.
inline constexpr uint64_t kFileBytesMax = uint64_t{1} << 56;

inline constexpr uint32_t kCurvesMax = 4;
inline constexpr uint32_t kPointsMax = 24;
inline constexpr uint64_t kQueriesMax = 2048;
inline constexpr uint32_t kLevelsMax = 64;
inline constexpr uint64_t kCellsMax = 256;
inline constexpr uint64_t kOrderNumbers = 3;
inline constexpr uint32_t kProjectedStep = 64;
inline constexpr uint64_t kProjectedStrideMax = 4096;
inline constexpr int32_t kProjectedOffsetMax = 1 << 27;
struct Point {
  uint32_t beam;
  uint32_t zero;
  double recall;
};
struct Curve {
  uint32_t k;
  uint32_t count;
  Point points[kPointsMax];
};
static_assert(sizeof(Curve) == 392);

inline constexpr uint32_t kDeviceCurvesMax = 320;
inline constexpr uint32_t kFirstCurvesMax = 64;
struct DevicePoint {
  double recall;
  double slack;
  double expansions_max;
  double expansions;
};
struct DeviceCurve {
  uint32_t capability;
  uint32_t multiprocessors;
  uint32_t block_list_max;
  uint32_t warps;
  uint32_t resident;
  uint32_t k;
  uint32_t count;
  uint32_t zero;
  DevicePoint points[kPointsMax];
};
static_assert(sizeof(DeviceCurve) == 800);

inline constexpr uint32_t kSlackCurvesMax = 4;
inline constexpr uint32_t kCoveringHeadsMax = 8192;
inline constexpr double kSlackMax = 3;
struct SlackPoint {
  double slack;
  double recall;
  double expansions;
  double beam;
};
struct SlackCurve {
  uint32_t k;
  uint32_t count;
  SlackPoint points[kPointsMax];
};
static_assert(sizeof(SlackCurve) == 776);

constexpr uint64_t round_to_page(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
constexpr uint64_t chunks_of(uint64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }

uint64_t sum(const void* data, size_t bytes, uint64_t seed = 0);
/// The sum of one chunk of a section.
uint64_t chunk_sum(uint32_t type, uint64_t chunk, const void* data, size_t bytes);
/// The header's sum, its own field taken as zero.
uint64_t header_sum(const Header& header);
/// The content id of a header with its section table.
void content_id(const Header& header, const Section* table, uint8_t out[16]);
/// The tail that belongs to a finished header.
Tail tail_of(const Header& header);

}  // namespace gannet::format
