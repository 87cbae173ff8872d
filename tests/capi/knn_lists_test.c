/* Proves files of k-NN lists: what is saved comes back bit for bit, through the library and through a second reader
 * that is written from the specification alone (core/storage/knn_lists.h); equal lists make equal files; every
 * damaged byte and every cut is refused; values that no list has are refused behind good sums too. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

static char folder[] = "/tmp/gannet-lists-XXXXXX";
static char path[256];

enum { CHUNK = 1048576 };

typedef struct bytes {
  unsigned char *data;
  uint64_t count;
} bytes;

static bytes read_file(void) {
  bytes b = {NULL, 0};
  FILE *file = fopen(path, "rb");
  if (!file) return b;
  fseek(file, 0, SEEK_END);
  b.count = (uint64_t)ftell(file);
  rewind(file);
  b.data = malloc(b.count + 1);
  if (fread(b.data, 1, b.count, file) != b.count) b.count = 0;
  fclose(file);
  return b;
}

static void write_file(const unsigned char *data, uint64_t count) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(data, 1, count, file) == count);
  fclose(file);
}

static uint32_t u32_at(const unsigned char *data) {
  return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
}
static uint64_t u64_at(const unsigned char *data) { return u32_at(data) | (uint64_t)u32_at(data + 4) << 32; }
static void put_u64(unsigned char *data, uint64_t value) {
  for (int i = 0; i < 8; i++) data[i] = (unsigned char)(value >> 8 * i);
}

/* The second reader: bytes of the sections and where they stand. */
typedef struct layout {
  uint64_t rows, k, ids, chunks, section[3], bytes[3], end;
} layout;

static layout layout_of(const bytes *file) {
  layout l = {0};
  l.rows = u64_at(file->data + 32);
  l.k = u32_at(file->data + 40);
  l.ids = u32_at(file->data + 56);
  l.bytes[0] = l.ids ? 8 * l.rows : 0;
  l.bytes[1] = 8 * l.rows * l.k;
  l.bytes[2] = 4 * l.rows * l.k;
  for (int i = 0; i < 3; i++) l.chunks += (l.bytes[i] + CHUNK - 1) / CHUNK;
  l.end = 128 + 8 * l.chunks;
  for (int i = 0; i < 3; i++) {
    l.section[i] = l.end;
    l.end += l.bytes[i];
  }
  return l;
}

/* Sums of a file whose sections were changed, so that nothing but the values is wrong. */
static void seal(bytes *file) {
  const layout l = layout_of(file);
  const int fits = l.end + 32 <= file->count; /* else the header is what is wrong, and its sums are made */
  unsigned char *sums = file->data + 128;
  for (int i = 0; fits && i < 3; i++)
    for (uint64_t at = 0, chunk = 0; at < l.bytes[i]; at += CHUNK, chunk++, sums += 8) {
      const uint64_t left = l.bytes[i] - at;
      const uint64_t seed = ((uint64_t)(i + 1) << 48) + chunk;
      put_u64(sums, XXH3_64bits_withSeed(file->data + l.section[i] + at, left < CHUNK ? left : CHUNK, seed));
    }
  if (fits) put_u64(file->data + 64, XXH3_64bits(file->data + 128, 8 * l.chunks));
  put_u64(file->data + 120, XXH3_64bits(file->data, 120));
  unsigned char *tail = file->data + file->count - 32;
  put_u64(tail + 8, u64_at(file->data + 24));
  put_u64(tail + 16, u64_at(file->data + 120));
  put_u64(tail + 24, XXH3_64bits(tail, 24));
}

/* 1 if the file is as the specification says, but for the order of values, and holds these lists. */
static int second_reader(const bytes *file, const ann_knn_lists *wanted) {
  if (file->count < 160 || memcmp(file->data, "\x8aGNK\r\n\x1a\n", 8) != 0) return 0;
  const unsigned char *tail = file->data + file->count - 32;
  if (memcmp(tail, "\x8aGNK\nEOF", 8) != 0) return 0;
  if (u32_at(file->data + 8) != 0x01020304 || u32_at(file->data + 12) != 1) return 0;
  if (u64_at(file->data + 16) != 0 || u64_at(file->data + 24) != file->count) return 0;
  for (int i = 72; i < 120; i++)
    if (file->data[i] != 0) return 0;
  const layout l = layout_of(file);
  if ((l.end + 7) / 8 * 8 + 32 != file->count) return 0;
  for (uint64_t i = l.end; i < file->count - 32; i++)
    if (file->data[i] != 0) return 0;
  bytes again = {malloc(file->count), file->count};
  memcpy(again.data, file->data, file->count);
  seal(&again);
  const int sums = memcmp(again.data, file->data, file->count) == 0;
  free(again.data);
  if (!sums) return 0;
  if (l.rows != wanted->rows || l.k != wanted->k || l.ids != (wanted->ids && wanted->rows ? 1u : 0u))
    return 0;
  if (u32_at(file->data + 44) != (uint32_t)(wanted->metric ? wanted->metric : 1)) return 0;
  if (u64_at(file->data + 48) != (wanted->ids ? 0 : wanted->first_id)) return 0;
  return (!l.ids || memcmp(file->data + l.section[0], wanted->ids, l.bytes[0]) == 0) &&
         (!l.bytes[1] || memcmp(file->data + l.section[1], wanted->neighbors, l.bytes[1]) == 0) &&
         (!l.bytes[2] || memcmp(file->data + l.section[2], wanted->distances, l.bytes[2]) == 0);
}

/* Lists of made values: row r has the neighbours r + 1, r + 2, ... as ids, and some unused places. */
static ann_knn_lists make(uint64_t rows, uint32_t k, int with_ids) {
  ann_knn_lists l = ANN_KNN_LISTS_INIT;
  l.rows = rows;
  l.k = k;
  l.first_id = 1ull << 40;
  l.ids = with_ids ? malloc((rows + 1) * 8) : NULL;
  l.neighbors = malloc((rows * k + 1) * 8);
  l.distances = malloc((rows * k + 1) * 4);
  for (uint64_t r = 0; r < rows; r++) {
    if (with_ids) l.ids[r] = r * 977 + 5;
    for (uint32_t i = 0; i < k; i++) {
      const int used = i + r % 3 < k || k == 1;
      l.neighbors[r * k + i] = used ? (1ull << 50) + r + 3 * i : ANN_ID_NONE;
      l.distances[r * k + i] = used ? (float)(r % 11) + (float)i : INFINITY;
    }
  }
  return l;
}

static void drop(ann_knn_lists *l) {
  free(l->ids);
  free(l->neighbors);
  free(l->distances);
}

static ann_status load(ann_knn_lists *out, ann_error *error) {
  ann_knn_lists found = ANN_KNN_LISTS_INIT;
  *out = found;
  ann_status status = ann_knn_load(NULL, path, out, NULL, error);
  if (status != ANN_OK) return status;
  out->ids = out->has_ids ? malloc((out->rows + 1) * 8) : NULL;
  out->neighbors = malloc((out->rows * out->k + 1) * 8);
  out->distances = malloc((out->rows * out->k + 1) * 4);
  status = ann_knn_load(NULL, path, out, NULL, error);
  if (status != ANN_OK) drop(out);
  return status;
}

static void there_and_back(uint64_t rows, uint32_t k, int with_ids, int32_t metric) {
  ann_knn_lists saved = make(rows, k, with_ids), found;
  saved.metric = metric;
  CHECK_OK(ann_knn_save(NULL, &saved, path, NULL, NULL, NULL));
  bytes file = read_file();
  CHECK_SAY(second_reader(&file, &saved), "%d rows, k %u: the second reader refuses the file", (int)rows, k);
  ann_error error = ANN_ERROR_INIT;
  if (CHECK_SAY(load(&found, &error) == ANN_OK, "%d rows, k %u: %s", (int)rows, k, error.message)) {
    CHECK(found.rows == rows && found.k == k && found.metric == (metric ? metric : ANN_METRIC_L2));
    CHECK(found.has_ids == (with_ids && rows > 0) && found.first_id == (with_ids ? 0 : saved.first_id));
    CHECK(memcmp(found.neighbors, saved.neighbors, rows * k * 8) == 0);
    CHECK(memcmp(found.distances, saved.distances, rows * k * 4) == 0);
    CHECK(!found.has_ids || memcmp(found.ids, saved.ids, rows * 8) == 0);
    CHECK_OK(ann_knn_save(NULL, &found, path, NULL, NULL, NULL));
    bytes again = read_file();
    CHECK(again.count == file.count && memcmp(again.data, file.data, file.count) == 0);
    free(again.data);
    drop(&found);
  }
  free(file.data);
  drop(&saved);
}

/* Each byte changed, each cut: refused as damaged, or as another version. */
static void damage(void) {
  ann_knn_lists saved = make(9, 4, 1), found;
  CHECK_OK(ann_knn_save(NULL, &saved, path, NULL, NULL, NULL));
  bytes file = read_file();
  for (uint64_t at = 0; at < file.count; at++) {
    file.data[at] ^= (unsigned char)(1 << at % 8);
    write_file(file.data, file.count);
    ann_error error = ANN_ERROR_INIT;
    const ann_status status = load(&found, &error);
    CHECK_SAY(status == ANN_CORRUPT || (status == ANN_VERSION && at >= 12 && at < 16), "byte %d changed: %s",
              (int)at, ann_status_name(status));
    CHECK(!second_reader(&file, &saved));
    file.data[at] ^= (unsigned char)(1 << at % 8);
  }
  for (uint64_t count = 0; count < file.count; count++) {
    write_file(file.data, count);
    ann_error error = ANN_ERROR_INIT;
    CHECK_STATUS(load(&found, &error), ANN_CORRUPT);
  }
  file.data[file.count] = 0;
  write_file(file.data, file.count + 1);
  ann_error error = ANN_ERROR_INIT;
  CHECK_STATUS(load(&found, &error), ANN_CORRUPT);
  free(file.data);
  drop(&saved);
}

/* Good sums over values that no list has, and over numbers that no file has. */
static void hostile(void) {
  ann_knn_lists saved = make(9, 4, 1), found;
  CHECK_OK(ann_knn_save(NULL, &saved, path, NULL, NULL, NULL));
  bytes file = read_file();
  const layout l = layout_of(&file);
  const float nan_value = NAN, below = -1;
#define FORGED(place, value, wanted)                                                   \
  do {                                                                                 \
    bytes forged = {malloc(file.count + 1), file.count};                               \
    memcpy(forged.data, file.data, file.count);                                        \
    memcpy(forged.data + (place), &(value), sizeof(value));                            \
    seal(&forged);                                                                     \
    write_file(forged.data, forged.count);                                             \
    ann_error error = ANN_ERROR_INIT;                                                  \
    CHECK_SAY(load(&found, &error) == wanted, "line %d: %s", __LINE__, error.message); \
    free(forged.data);                                                                 \
  } while (0)
  const uint64_t none = ANN_ID_NONE, own = saved.ids[2], again = saved.neighbors[8], first = saved.ids[0];
  FORGED(l.section[2] + 4 * (2 * 4 + 1), nan_value, ANN_CORRUPT);
  FORGED(l.section[2] + 4 * (2 * 4 + 1), below, ANN_CORRUPT);
  FORGED(l.section[1] + 8 * (2 * 4 + 1), own, ANN_CORRUPT);
  FORGED(l.section[1] + 8 * (2 * 4 + 1), again, ANN_CORRUPT);
  FORGED(l.section[1] + 8 * (3 * 4 + 1), none, ANN_CORRUPT);
  FORGED(l.section[0] + 8 * 3, first, ANN_CORRUPT);
  FORGED(l.section[0] + 8 * 3, none, ANN_CORRUPT);
  const uint64_t rows_many = 1ull << 40, rows_wrap = 1ull << 60, one = 1;
  const uint32_t k_none = 0, k_many = 257, metric_none = 0, metric_many = 4, ids_two = 2,
                 minor = 1u << 16 | 1;
  FORGED(16, one, ANN_VERSION); /* a feature */
  FORGED(40, k_none, ANN_CORRUPT);
  FORGED(40, k_many, ANN_CORRUPT);
  FORGED(44, metric_none, ANN_CORRUPT);
  FORGED(44, metric_many, ANN_CORRUPT);
  FORGED(48, one, ANN_CORRUPT);
  FORGED(72, one, ANN_CORRUPT);
  FORGED(12, minor, ANN_OK); /* a later minor version */
  if (found.neighbors) drop(&found);
#undef FORGED
  /* Numbers that would move the sections: only header and tail are made anew. */
#define HEADER(place, value)                                   \
  do {                                                         \
    bytes forged = {malloc(file.count), file.count};           \
    memcpy(forged.data, file.data, file.count);                \
    memcpy(forged.data + (place), &(value), sizeof(value));    \
    put_u64(forged.data + 120, XXH3_64bits(forged.data, 120)); \
    unsigned char *tail = forged.data + forged.count - 32;     \
    put_u64(tail + 16, u64_at(forged.data + 120));             \
    put_u64(tail + 24, XXH3_64bits(tail, 24));                 \
    write_file(forged.data, forged.count);                     \
    ann_error error = ANN_ERROR_INIT;                          \
    CHECK_STATUS(load(&found, &error), ANN_CORRUPT);           \
    free(forged.data);                                         \
  } while (0)
  HEADER(32, rows_many);
  HEADER(32, rows_wrap);
  HEADER(32, one);
  HEADER(56, ids_two);
#undef HEADER
  free(file.data);
  drop(&saved);
}

static void arguments(void) {
  ann_knn_lists good = make(9, 4, 1);
  const ann_status invalid = ANN_INVALID_ARGUMENT;
#define BAD(change, wanted, words)                                            \
  do {                                                                        \
    ann_knn_lists l = good;                                                   \
    change;                                                                   \
    REFUSED(ann_knn_save(NULL, &l, path, NULL, NULL, &error), wanted, words); \
  } while (0)
  unlink(path);
  BAD(l.k = 0, invalid, "lists.k 0 256");
  BAD(l.k = 257, ANN_LIMIT, "lists.k 257");
  BAD(l.rows = 1ull << 32, ANN_LIMIT, "lists.rows");
  BAD(l.metric = 4, invalid, "lists.metric 4");
  BAD(l.metric = -1, invalid, "lists.metric");
  BAD(l.neighbors = NULL, invalid, "lists.neighbors");
  BAD(l.distances = NULL, invalid, "lists.distances");
  BAD(l.struct_size = 16, invalid, "lists.struct_size");
  BAD((l.ids = NULL, l.first_id = UINT64_MAX), invalid, "lists.first_id");
#undef BAD
  const uint64_t kept = good.ids[3];
  good.ids[3] = good.ids[7];
  REFUSED(ann_knn_save(NULL, &good, path, NULL, NULL, &error), invalid, "ids");
  good.ids[3] = ANN_ID_NONE;
  REFUSED(ann_knn_save(NULL, &good, path, NULL, NULL, &error), invalid, "ids ANN_ID_NONE");
  good.ids[3] = kept;
  const float near = good.distances[5];
  good.distances[5] = -7;
  REFUSED(ann_knn_save(NULL, &good, path, NULL, NULL, &error), invalid, "lists neighbour 1 row 1");
  good.distances[5] = near;
  REFUSED(ann_knn_save(NULL, NULL, path, NULL, NULL, &error), invalid, "lists");
  REFUSED(ann_knn_save(NULL, &good, NULL, NULL, NULL, &error), invalid, "path");
  REFUSED(ann_knn_save(NULL, &good, "/no/such/folder/x", NULL, NULL, &error), ANN_IO, "");
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.sync = 3;
  REFUSED(ann_knn_save(NULL, &good, path, &params, NULL, &error), invalid, "params.sync 3");
  CHECK(access(path, F_OK) != 0);
  ann_monitor *monitor = NULL;
  CHECK_OK(ann_monitor_create(&monitor, NULL));
  ann_monitor_cancel(monitor);
  CHECK_STATUS(ann_knn_save(NULL, &good, path, NULL, monitor, NULL), ANN_CANCELLED);
  CHECK(access(path, F_OK) != 0);
  params.sync = ANN_OFF;
  CHECK_OK(ann_knn_save(NULL, &good, path, &params, NULL, NULL));
  ann_knn_lists found = good;
  CHECK_STATUS(ann_knn_load(NULL, path, &found, monitor, NULL), ANN_CANCELLED);
  ann_monitor_free(monitor);
  REFUSED(ann_knn_load(NULL, NULL, &found, NULL, &error), invalid, "path");
  REFUSED(ann_knn_load(NULL, path, NULL, NULL, &error), invalid, "lists");
  REFUSED(ann_knn_load(NULL, "/no/such/file", &found, NULL, &error), ANN_IO, "");
  REFUSED(ann_knn_load(NULL, "", &found, NULL, &error), invalid, "path");
  found.rows = 8;
  REFUSED(ann_knn_load(NULL, path, &found, NULL, &error), invalid, "lists.rows 8 9");
  found.rows = 9;
  found.k = 5;
  REFUSED(ann_knn_load(NULL, path, &found, NULL, &error), invalid, "lists.k 5 4");
  found.k = 4;
  found.ids = NULL;
  REFUSED(ann_knn_load(NULL, path, &found, NULL, &error), invalid, "lists.ids");
  found.ids = good.ids;
  found.distances = NULL;
  REFUSED(ann_knn_load(NULL, path, &found, NULL, &error), invalid, "lists.distances");
  /* A file of an index is none of lists, and the other way round. */
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 50, 4, 1);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL), *opened = NULL;
  CHECK_STATUS(ann_open(NULL, path, NULL, &opened, NULL, NULL), ANN_CORRUPT);
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  found = good;
  CHECK_STATUS(ann_knn_load(NULL, path, &found, NULL, NULL), ANN_CORRUPT);
  ann_index_free(index);
  vectors_free(&rows);
  drop(&good);
}

int main(void) {
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/lists", folder);
  there_and_back(0, 3, 0, 0);
  there_and_back(0, 3, 1, 0);
  there_and_back(1, 1, 0, ANN_METRIC_COSINE);
  there_and_back(9, 5, 0, ANN_METRIC_L2);
  there_and_back(100, 256, 1, ANN_METRIC_INNER_PRODUCT);
  there_and_back(150000 / (uint64_t)test_scale(), 3, 1, 0); /* some chunks a section */
  damage();
  hostile();
  arguments();
  unlink(path);
  rmdir(folder);
  return finish("knn_lists");
}
