#include "storage/knn_lists.h"

#include <cstring>

#include "base/parallel_sort.h"
#include "storage/file_source.h"
#include "storage/format.h"
#include "storage/replacement.h"

namespace gannet {
namespace {

using format::chunk_sum;
using format::chunks_of;
using format::kChunkBytes;

constexpr uint8_t kMagic[8] = {0x8a, 'G', 'N', 'K', '\r', '\n', 0x1a, '\n'};
constexpr uint8_t kTailMagic[8] = {0x8a, 'G', 'N', 'K', '\n', 'E', 'O', 'F'};
constexpr uint16_t kMajor = 1;
constexpr uint32_t kSections = 3;

struct Header {
  uint8_t magic[8];
  uint32_t byte_order;
  uint16_t major;
  uint16_t minor;
  uint64_t features;
  uint64_t file_bytes;
  uint64_t rows;
  uint32_t k;
  uint32_t metric;
  uint64_t first_id;
  uint32_t has_ids;
  uint32_t writer;
  uint64_t sums_sum;
  uint64_t zeros[6];
  uint64_t sum;
};
static_assert(sizeof(Header) == 128 && offsetof(Header, sum) == 120);

struct Tail {
  uint8_t magic[8];
  uint64_t file_bytes;
  uint64_t header_sum;
  uint64_t sum;
};
static_assert(sizeof(Tail) == 32);

uint64_t sum_of(const Header& header) { return format::sum(&header, offsetof(Header, sum)); }

Tail tail_of(const Header& header) {
  Tail tail = {};
  std::memcpy(tail.magic, kTailMagic, sizeof tail.magic);
  tail.file_bytes = header.file_bytes;
  tail.header_sum = header.sum;
  tail.sum = format::sum(&tail, offsetof(Tail, sum));
  return tail;
}

/// Where the sections of a file stand. Rows and k are within their ranges, so nothing leaves 64 bits.
struct Places {
  explicit Places(const Header& header) {
    bytes[0] = header.has_ids != 0 ? header.rows * sizeof(uint64_t) : 0;
    bytes[1] = header.rows * header.k * sizeof(uint64_t);
    bytes[2] = header.rows * header.k * sizeof(float);
    for (const uint64_t section : bytes) chunks += chunks_of(section);
    uint64_t end = sizeof(Header) + chunks * sizeof(uint64_t);
    for (uint32_t i = 0; i < kSections; ++i) {
      offset[i] = end;
      end += bytes[i];
    }
    padding = round_up(end, 8) - end;
    tail = end + padding;
  }

  uint64_t bytes[kSections];
  uint64_t offset[kSections];
  uint64_t chunks = 0;
  uint64_t padding;
  uint64_t tail;
};

/// Visits chunk `number` of all: visit(section, chunk of it, its first byte in the section, its bytes).
template <class Visit>
void visit_chunk(const Places& places, uint64_t number, const Visit& visit) {
  uint32_t section = 0;
  while (number >= chunks_of(places.bytes[section])) number -= chunks_of(places.bytes[section++]);
  const uint64_t begin = number * kChunkBytes;
  visit(section, number, begin, std::min(kChunkBytes, places.bytes[section] - begin));
}

/// Refuses ids that are repeated or none.
void check_row_ids(const uint64_t* ids, uint64_t rows, const char* name, const Execution& execution) {
  Array<uint64_t> sorted(execution.memory, rows);
  std::copy_n(ids, rows, sorted.data());
  parallel_sort(sorted, [](uint64_t a, uint64_t b) { return a < b; }, execution);
  if (rows > 0 && sorted[rows - 1] == ANN_ID_NONE)
    fail(ANN_INVALID_ARGUMENT, "%s.ids: an id is ANN_ID_NONE; ids are below 2^64 - 1", name);
  const uint64_t* again = std::adjacent_find(sorted.begin(), sorted.end());
  if (again != sorted.end())
    fail(ANN_INVALID_ARGUMENT, "%s.ids: id %llu stands twice; ids must be distinct", name,
         static_cast<unsigned long long>(*again));
}

Header header_of(const GivenLists& lists, int32_t metric) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.byte_order = format::kByteOrder;
  header.major = kMajor;
  header.rows = lists.rows;
  header.k = lists.k;
  header.metric = static_cast<uint32_t>(metric);
  header.has_ids = lists.ids != nullptr && lists.rows > 0 ? 1 : 0;
  header.first_id = lists.ids != nullptr ? 0 : lists.first_id;
  header.writer = ANN_VERSION_MAJOR << 16 | ANN_VERSION_MINOR << 8 | ANN_VERSION_PATCH;
  header.file_bytes = Places(header).tail + sizeof(Tail);
  return header;
}

void check_header(const Header& header, uint64_t bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) fail_corrupt("this is no file of k-NN lists");
  if (header.byte_order != format::kByteOrder) fail_corrupt("the byte order is not little-endian");
  if (header.major != kMajor)
    fail(ANN_VERSION, "the format's major version is %u, this library knows %u", header.major, kMajor);
  if (sum_of(header) != header.sum) fail_corrupt("the header does not match its sum");
  if (header.features != 0) fail(ANN_VERSION, "the file has features that this library does not know");
  if (header.file_bytes != bytes)
    fail_corrupt("the file has %llu bytes, its header says %llu", static_cast<unsigned long long>(bytes),
                 static_cast<unsigned long long>(header.file_bytes));
  if (header.rows > ANN_ROWS_MAX) fail_corrupt("the header's rows are out of range");
  if (header.k == 0 || header.k > ANN_DEGREE_MAX) fail_corrupt("the header's k is out of range");
  if (header.metric == 0 || header.metric > ANN_METRIC_COSINE) fail_corrupt("the header's metric is unknown");
  if (header.has_ids > 1 || (header.has_ids == 1 && (header.rows == 0 || header.first_id != 0)) ||
      header.first_id > UINT64_MAX - header.rows)
    fail_corrupt("the header's ids are out of range");
  for (const uint64_t zero : header.zeros)
    if (zero != 0) fail_corrupt("bytes of the header that must be zero are not");
  if (Places(header).tail + sizeof(Tail) != bytes) fail_corrupt("the sections are not as long as the file");
}

/// Makes a refusal of lists that a file holds one of the file.
template <class Check>
void as_corrupt(const Check& check) {
  try {
    check();
  } catch (Error& error) {
    if (error.status == ANN_INVALID_ARGUMENT) error.status = ANN_CORRUPT;
    throw;
  }
}

}  // namespace

void save_lists(const GivenLists& lists, int32_t metric, const char* path, bool sync, Files& files,
                const Execution& execution) {
  execution.enter("check");
  if (lists.ids != nullptr) check_row_ids(lists.ids, lists.rows, lists.name, execution);
  check_lists(lists, execution);
  Header header = header_of(lists, metric);
  const Places places(header);
  const uint8_t* sections[kSections] = {reinterpret_cast<const uint8_t*>(lists.ids),
                                        reinterpret_cast<const uint8_t*>(lists.neighbors),
                                        reinterpret_cast<const uint8_t*>(lists.distances)};
  execution.span(0.2, 0.4).enter("sums");
  Array<uint64_t> sums(execution.memory, places.chunks);
  parallel_for(execution, places.chunks, 1, [&](uint64_t number, uint64_t, uint32_t) {
    visit_chunk(places, number, [&](uint32_t section, uint64_t chunk, uint64_t begin, uint64_t bytes) {
      sums[number] = chunk_sum(section + 1, chunk, sections[section] + begin, bytes);
    });
  });
  header.sums_sum = format::sum(sums.data(), places.chunks * sizeof(uint64_t));
  header.sum = sum_of(header);

  const Execution writing = execution.span(0.4, 0.9);
  writing.enter("write");
  const Target target(path, files);
  Replacement file(target, sync, files);
  file.fill([&] {
    file.reserve(header.file_bytes, execution);
    file.put(&header, sizeof header);
    file.put(sums.data(), places.chunks * sizeof(uint64_t));
    for (uint64_t number = 0; number < places.chunks; ++number) {
      writing.check();
      visit_chunk(places, number, [&](uint32_t section, uint64_t, uint64_t begin, uint64_t bytes) {
        file.put(sections[section] + begin, bytes);
      });
      writing.advance(static_cast<double>(number) / static_cast<double>(places.chunks));
    }
    static constexpr uint8_t kZeros[8] = {};
    if (places.padding != 0) file.put(kZeros, places.padding);
    const Tail tail = tail_of(header);
    file.put(&tail, sizeof tail);
    execution.span(0.9, 1).enter("sync");
    if (sync) file.sync(execution);
    execution.check();
  });
  file.replace();
  if (sync) target.sync();
  execution.advance(1);
}

struct ListsFile::Opened {
  Opened(const char* path, Files& files) : source(path, files) {}
  FileSource source;
  Header header;
  ListsShape shape;
};

ListsFile::ListsFile(const char* path, Files& files) : opened_(new Opened(path, files)) {
  Opened& opened = *opened_;
  const uint64_t bytes = opened.source.bytes();
  if (bytes < sizeof(Header) + sizeof(Tail))
    fail_corrupt("the file has %llu bytes, fewer than the smallest one of k-NN lists",
                 static_cast<unsigned long long>(bytes));
  Header& header = opened.header;
  opened.source.read(0, &header, sizeof header);
  check_header(header, bytes);
  Tail tail;
  opened.source.read(bytes - sizeof tail, &tail, sizeof tail);
  const Tail wanted = tail_of(header);
  if (std::memcmp(&tail, &wanted, sizeof tail) != 0) fail_corrupt("the tail does not match the header");
  opened.shape = {header.rows, header.k, static_cast<int32_t>(header.metric), header.first_id,
                  header.has_ids != 0};
}

ListsFile::~ListsFile() = default;

const ListsShape& ListsFile::shape() const { return opened_->shape; }

void ListsFile::read(uint64_t* ids, uint64_t* neighbors, float* distances, const Execution& execution) {
  const Header& header = opened_->header;
  FileSource& source = opened_->source;
  const Places places(header);
  Array<uint64_t> sums(execution.memory, places.chunks);
  source.read(sizeof(Header), sums.data(), places.chunks * sizeof(uint64_t));
  if (format::sum(sums.data(), places.chunks * sizeof(uint64_t)) != header.sums_sum)
    fail_corrupt("the sums do not match theirs");
  uint8_t* sections[kSections] = {reinterpret_cast<uint8_t*>(ids), reinterpret_cast<uint8_t*>(neighbors),
                                  reinterpret_cast<uint8_t*>(distances)};
  static constexpr const char* kNames[kSections] = {"ids", "neighbours", "distances"};
  execution.enter("read");
  parallel_for(execution, places.chunks, 1, [&](uint64_t number, uint64_t, uint32_t) {
    visit_chunk(places, number, [&](uint32_t section, uint64_t chunk, uint64_t begin, uint64_t bytes) {
      source.read(places.offset[section] + begin, sections[section] + begin, bytes);
      if (chunk_sum(section + 1, chunk, sections[section] + begin, bytes) != sums[number])
        fail_corrupt("section %u (%s), chunk %llu does not match its sum", section + 1, kNames[section],
                     static_cast<unsigned long long>(chunk));
    });
    execution.advance(0.8 * static_cast<double>(number) / static_cast<double>(places.chunks));
  });
  uint8_t padding[8] = {};
  source.read(places.tail - places.padding, padding, places.padding);
  if (!all_zero(padding, places.padding)) fail_corrupt("bytes before the tail are not zero");
  as_corrupt([&] {
    if (header.has_ids != 0) check_row_ids(ids, header.rows, "file", execution);
    check_lists({"file", static_cast<uint32_t>(header.rows), header.k, header.first_id,
                 header.has_ids != 0 ? ids : nullptr, neighbors, distances},
                execution);
  });
  execution.advance(1);
}

}  // namespace gannet
