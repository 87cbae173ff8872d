/* Proves that a file gives back the index that was saved: answers, graph, ids and figures equal bit
 * for bit, through every way in and out, and the same file again when it is saved again. Then what
 * is refused, what becomes of the target, and that searches and saves do not disturb each other. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ann.h"
#include "check.h"
#include "support.h"

static char folder[] = "/tmp/gannet-files-XXXXXX";

static const char *in_folder(const char *name) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

typedef struct bytes {
  unsigned char *data; /* on a multiple of 4,096 */
  uint64_t count, capacity, at;
  int64_t piece; /* a call moves at most this many; below 0: fails with it */
} bytes;

static int64_t take(void *user, const void *data, uint64_t count) {
  bytes *b = user;
  if (b->piece < 0) return b->piece;
  if ((uint64_t)b->piece < count) count = (uint64_t)b->piece;
  if (count == 0) return 0;
  if (b->count + count > b->capacity) {
    b->capacity = (b->count + count) * 2;
    unsigned char *grown = aligned_alloc(4096, (b->capacity + 4095) / 4096 * 4096);
    if (b->count) memcpy(grown, b->data, b->count);
    free(b->data);
    b->data = grown;
  }
  memcpy(b->data + b->count, data, count);
  b->count += count;
  return (int64_t)count;
}

static int64_t give(void *user, void *data, uint64_t count) {
  bytes *b = user;
  if (b->piece < 0) return b->piece;
  if ((uint64_t)b->piece < count) count = (uint64_t)b->piece;
  if (count > b->count - b->at) count = b->count - b->at;
  memcpy(data, b->data + b->at, count);
  b->at += count;
  return (int64_t)count;
}

static bytes read_file(const char *path) {
  bytes b = {0};
  b.piece = INT64_MAX;
  unsigned char buffer[65536];
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL);
  for (size_t got; file && (got = fread(buffer, 1, sizeof buffer, file)) > 0;) take(&b, buffer, got);
  if (file) fclose(file);
  return b;
}

static void write_file(const char *path, const void *data, size_t count) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, count, file) == count);
  if (file) fclose(file);
}

static int same_bytes(const bytes *a, const bytes *b) {
  return a->count == b->count && memcmp(a->data, b->data, a->count) == 0;
}

static bytes saved_bytes(const ann_index *index, int64_t piece, uint32_t threads) {
  bytes b = {0};
  b.piece = piece;
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = take;
  writer.user = &b;
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.threads = threads;
  CHECK_OK(ann_save_stream(index, &writer, &params, NULL, NULL));
  return b;
}

static void check_same(const ann_index *a, const ann_index *b, const vectors *queries, const char *what) {
  ann_index_info first = ANN_INDEX_INFO_INIT, second = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(a, &first, NULL));
  CHECK_OK(ann_index_get_info(b, &second, NULL));
  CHECK_SAY(first.dim == second.dim && first.metric == second.metric && first.element == second.element &&
                first.built == second.built && first.graph == second.graph && first.rows == second.rows &&
                first.degree == second.degree && first.entry_points == second.entry_points &&
                first.seed == second.seed && first.recall_max == second.recall_max &&
                first.repaired_edges == second.repaired_edges &&
                first.knn_iterations == second.knn_iterations,
            "%s: the figures differ", what);
  const uint32_t k = 10;
  answers from_a = answers_make(queries->rows, k), from_b = answers_make(queries->rows, k);
  for (int procedure = ANN_SEARCH_AUTO; procedure <= ANN_SEARCH_EXACT; procedure += 2) {
    CHECK_OK(index_search(a, queries, procedure, 0, &from_a));
    CHECK_OK(index_search(b, queries, procedure, 0, &from_b));
    CHECK_SAY(answers_equal(&from_a, &from_b), "%s: the answers differ", what);
  }
  if (first.graph != ANN_GRAPH_NONE) {
    CHECK_SAY(index_hash(a) == index_hash(b), "%s: the graphs differ", what);
    for (uint32_t depth = 1; depth <= 1000; depth *= 10) {
      uint32_t beam_a = 0, beam_b = 1;
      CHECK_OK(ann_index_beam(a, depth, 0.97f, &beam_a, NULL));
      CHECK_OK(ann_index_beam(b, depth, 0.97f, &beam_b, NULL));
      CHECK_EQUAL(beam_a, beam_b);
    }
  }
  unsigned char row_a[4096], row_b[4096];
  for (uint64_t i = 0; i < 20; i++) {
    int32_t found_a = 0, found_b = 0;
    const uint64_t id = i < 10 ? i : i * 1000003;
    CHECK_OK(ann_index_get(a, id, row_a, sizeof row_a, &found_a, NULL));
    CHECK_OK(ann_index_get(b, id, row_b, sizeof row_b, &found_b, NULL));
    CHECK_SAY(found_a == found_b && (!found_a || !memcmp(row_a, row_b, first.dim)),
              "%s: row of id %llu differs", what, (unsigned long long)id);
  }
  const uint64_t count = first.rows;
  uint64_t *ids_a = malloc(count * sizeof *ids_a + 1), *ids_b = malloc(count * sizeof *ids_b + 1);
  CHECK_OK(ann_index_ids(a, 0, count, ids_a, NULL));
  CHECK_OK(ann_index_ids(b, 0, count, ids_b, NULL));
  CHECK_SAY(memcmp(ids_a, ids_b, count * sizeof *ids_a) == 0, "%s: another list of ids", what);
  const uint64_t bytes = first.dim * element_size(first.element);
  unsigned char *all_a = calloc(count + 1, bytes), *all_b = calloc(count + 1, bytes);
  CHECK_OK(ann_index_get_batch(a, ids_a, count, all_a, count * bytes, NULL, NULL));
  CHECK_OK(ann_index_get_batch(b, ids_b, count, all_b, count * bytes, NULL, NULL));
  CHECK_SAY(memcmp(all_a, all_b, count * bytes) == 0, "%s: vectors differ", what);
  free(ids_a);
  free(ids_b);
  free(all_a);
  free(all_b);
  answers_free(&from_a);
  answers_free(&from_b);
}

/* Leaves a file in the folder that GANNET_KEEP_FILES names, where gannet-fsck looks at it later. */
static void keep_file(const bytes *file) {
  static int kept;
  const char *keep = getenv("GANNET_KEEP_FILES");
  char path[512];
  if (keep == NULL) return;
  snprintf(path, sizeof path, "%s/%04d.gannet", keep, kept++);
  write_file(path, file->data, file->count);
}

/* Through every way in and out. */
static void round_trip(const ann_index *index, const vectors *queries, const char *what) {
  const char *path = in_folder("index.gannet");
  ann_save_params save = ANN_SAVE_PARAMS_INIT;
  static int calls;
  save.sync = calls++ % 8 ? ANN_OFF : ANN_SWITCH_AUTO; /* waiting for the disk shows nothing here */
  CHECK_OK(ann_save(index, path, &save, NULL, NULL));
  CHECK_OK(ann_verify(path, NULL, NULL, NULL));
  const bytes file = read_file(path);
  keep_file(&file);
  bytes streamed = saved_bytes(index, 4093, 1);
  CHECK_SAY(same_bytes(&file, &streamed), "%s: file and stream differ", what);

  for (int way = 0; way < 7; way++) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = way % 3 + ANN_OPEN_FULL;
    ann_index *opened = NULL;
    ann_error error = ANN_ERROR_INIT;
    if (way < 3) {
      CHECK_OK(ann_open(NULL, path, &params, &opened, NULL, &error));
    } else if (way < 6) {
      CHECK_OK(ann_open_memory(NULL, file.data, file.count, &params, &opened, NULL, &error));
    } else {
      ann_reader reader = ANN_READER_INIT;
      streamed.at = 0;
      streamed.piece = 777;
      reader.read = give;
      reader.user = &streamed;
      reader.bytes = streamed.count;
      CHECK_OK(ann_open_stream(NULL, &reader, NULL, &opened, NULL, &error));
    }
    CHECK_SAY(opened != NULL, "%s, way %d: %s", what, way, error.message);
    if (!opened) continue;
    check_same(index, opened, queries, what);
    bytes again = saved_bytes(opened, INT64_MAX, 2);
    CHECK_SAY(same_bytes(&file, &again), "%s, way %d: saved again it is another file", what, way);
    free(again.data);
    const ann_matrix rows = vectors_view(queries);
    CHECK_STATUS(ann_build(opened, &rows, NULL, NULL, NULL, NULL), ANN_STATE);
    ann_index_free(opened);
  }
  free(file.data);
  free(streamed.data);
}

static void every_kind(void) {
  const uint64_t sizes[] = {0, 1, 2, 33, 300, 2500};
  for (int metric = 0; metric < METRICS; metric++)
    for (int element = 0; element < ELEMENTS; element++)
      for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
        for (int kind = 0; kind < 4; kind++) {
          /* Kinds: plain, with ids, without a graph, borrowed. */
          if (size > 3 && (metric + element + kind) % 3) continue;
          if (size > 4 && kind > 1) continue;
          const uint32_t dim = size % 2 ? 24 : 7;
          vectors rows = vectors_make(DATA_NORMAL, all_elements[element], sizes[size], dim, 5);
          vectors queries = vectors_make(DATA_NORMAL, all_elements[element], 9, dim, 6);
          ann_index *index = index_make(dim, all_metrics[metric], 0);
          ann_build_params params = ANN_BUILD_PARAMS_INIT;
          params.degree = 16;
          params.threads = 2;
          params.graph = kind == 2 ? ANN_GRAPH_NONE : ANN_GRAPH_AUTO;
          params.rows_mode = kind == 3 ? ANN_ROWS_BORROW : ANN_ROWS_COPY;
          uint64_t *ids = malloc((sizes[size] + 1) * sizeof *ids);
          for (uint64_t i = 0; i < sizes[size]; i++) ids[i] = (sizes[size] - i) * 1000003 + i % 2;
          const ann_matrix view = vectors_view(&rows);
          CHECK_OK(ann_build(index, &view, kind == 1 ? ids : NULL, &params, NULL, NULL));
          char what[96];
          snprintf(what, sizeof what, "%s, %s, %llu rows, kind %d", metric_name(all_metrics[metric]),
                   element_name(all_elements[element]), (unsigned long long)sizes[size], kind);
          round_trip(index, &queries, what);
          ann_index_free(index);
          free(ids);
          vectors_free(&rows);
          vectors_free(&queries);
        }
}

/* Equal indexes give equal files, whatever the threads and whether rows are borrowed. */
static void equal_files(void) {
  vectors rows = vectors_make(DATA_CLUSTERED, ANN_F32, 6000 / (unsigned)test_scale(), 20, 3);
  bytes first = {0};
  for (int variant = 0; variant < 4; variant++) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.threads = (uint32_t)(variant % 2 + 1);
    params.rows_mode = variant < 2 ? ANN_ROWS_COPY : ANN_ROWS_BORROW;
    ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
    bytes b = saved_bytes(index, INT64_MAX, (uint32_t)(variant % 2 + 1));
    if (variant == 0) first = b;
    CHECK_SAY(same_bytes(&first, &b), "variant %d gives another file", variant);
    if (variant != 0) free(b.data);
    ann_index_free(index);
  }
  free(first.data);
  vectors_free(&rows);
}

static ann_index *small_index(uint64_t seed) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_U8, 200, 12, seed);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  vectors_free(&rows);
  return index;
}

static int temporary_files(void) {
  char command[320];
  snprintf(command, sizeof command, "ls -A %s | grep -c tmp", folder);
  FILE *list = popen(command, "r");
  int count = -1;
  CHECK(list && fscanf(list, "%d", &count) == 1);
  if (list) pclose(list);
  return count;
}

static void misuse(void) {
  ann_index *index = small_index(1), *opened = NULL;
  ann_index *unbuilt = index_make(12, ANN_METRIC_L2, 0);
  const char *path = in_folder("misuse.gannet");
  ann_error error = ANN_ERROR_INIT;
  CHECK_STATUS(ann_save(NULL, path, NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_save(index, NULL, NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_save(index, "", NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_save(unbuilt, path, NULL, NULL, &error), ANN_STATE);
  CHECK(strlen(error.message) > 10);
  ann_save_params save = ANN_SAVE_PARAMS_INIT;
  save.sync = 3;
  CHECK_STATUS(ann_save(index, path, &save, NULL, NULL), ANN_INVALID_ARGUMENT);
  save.sync = 0;
  save.reserved = 1;
  CHECK_STATUS(ann_save(index, path, &save, NULL, NULL), ANN_INVALID_ARGUMENT);
  save.reserved = 0;
  save.sync = ANN_OFF;
  CHECK_OK(ann_save(index, path, &save, NULL, NULL));

  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  CHECK_STATUS(ann_open(NULL, NULL, NULL, &opened, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_open(NULL, "", NULL, &opened, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_open(NULL, path, NULL, NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  params.mode = 4;
  CHECK_STATUS(ann_open(NULL, path, &params, &opened, NULL, NULL), ANN_INVALID_ARGUMENT);
  params.mode = -1;
  CHECK_STATUS(ann_open(NULL, path, &params, &opened, NULL, NULL), ANN_INVALID_ARGUMENT);
  for (int field = 0; field < 3; field++) {
    ann_open_params expect = ANN_OPEN_PARAMS_INIT;
    expect.expect_dim = field == 0 ? 13 : 12;
    expect.expect_metric = field == 1 ? ANN_METRIC_COSINE : ANN_METRIC_L2;
    expect.expect_element = field == 2 ? ANN_I8 : ANN_U8;
    for (int mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
      expect.mode = mode;
      CHECK_STATUS(ann_open(NULL, path, &expect, &opened, NULL, &error), ANN_INVALID_ARGUMENT);
      CHECK(strstr(error.message, "expect_") != NULL);
    }
    CHECK_STATUS(ann_verify(path, &expect, NULL, NULL), ANN_INVALID_ARGUMENT);
  }
  CHECK(opened == NULL);

  const bytes file = read_file(path);
  for (int mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
    ann_open_params expect = ANN_OPEN_PARAMS_INIT;
    expect.expect_dim = 13;
    expect.mode = mode;
    void *aligned = aligned_alloc(64, (file.count + 63) / 64 * 64); /* to be used in place */
    memcpy(aligned, file.data, file.count);
    CHECK_STATUS(ann_open_memory(NULL, aligned, file.count, &expect, &opened, NULL, &error),
                 ANN_INVALID_ARGUMENT);
    CHECK(strstr(error.message, "expect_dim") != NULL);
    free(aligned);
  }
  CHECK_STATUS(ann_open_memory(NULL, NULL, 5000, NULL, &opened, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_open_memory(NULL, NULL, 0, NULL, &opened, NULL, NULL), ANN_CORRUPT);
  params.mode = ANN_OPEN_LAZY;
  CHECK_STATUS(ann_open_memory(NULL, file.data + 1, file.count - 1, &params, &opened, NULL, NULL),
               ANN_INVALID_ARGUMENT);
  ann_writer writer = ANN_WRITER_INIT;
  CHECK_STATUS(ann_save_stream(index, NULL, NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_save_stream(index, &writer, NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  bytes broken = {0};
  writer.write = take;
  writer.user = &broken;
  broken.piece = -ENOSPC;
  CHECK_STATUS(ann_save_stream(index, &writer, NULL, NULL, &error), ANN_IO);
  CHECK_EQUAL(error.os_error, ENOSPC);
  broken.piece = 0;
  CHECK_STATUS(ann_save_stream(index, &writer, NULL, NULL, NULL), ANN_IO);
  ann_reader reader = ANN_READER_INIT;
  CHECK_STATUS(ann_open_stream(NULL, &reader, NULL, &opened, NULL, NULL), ANN_INVALID_ARGUMENT);
  bytes source = file;
  reader.read = give;
  reader.user = &source;
  reader.bytes = file.count;
  CHECK_STATUS(ann_open_stream(NULL, &reader, &params, &opened, NULL, NULL), ANN_UNSUPPORTED);
  source.piece = -EIO;
  CHECK_STATUS(ann_open_stream(NULL, &reader, NULL, &opened, NULL, &error), ANN_IO);
  CHECK_EQUAL(error.os_error, EIO);
  source.piece = 1000;
  source.count = file.count - 1;
  source.at = 0;
  CHECK_STATUS(ann_open_stream(NULL, &reader, NULL, &opened, NULL, NULL), ANN_CORRUPT);
  CHECK(opened == NULL);

  ann_file_description facts = ANN_FILE_DESCRIPTION_INIT;
  CHECK_STATUS(ann_file_info(NULL, &facts, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_file_info(path, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_OK(ann_file_info(path, &facts, NULL));
  CHECK(facts.rows == 200 && facts.dim == 12 && facts.metric == ANN_METRIC_L2 && facts.element == ANN_U8 &&
        facts.graph == ANN_GRAPH_CAGRA && facts.degree == 32 && facts.file_bytes == file.count &&
        facts.format == 0x10005 && facts.has_ids == 0);

  ann_monitor *monitor = NULL;
  CHECK_OK(ann_monitor_create(&monitor, NULL));
  ann_monitor_cancel(monitor);
  CHECK_STATUS(ann_save(index, in_folder("never"), NULL, monitor, NULL), ANN_CANCELLED);
  CHECK(access(in_folder("never"), F_OK) != 0);
  CHECK_STATUS(ann_open(NULL, path, NULL, &opened, monitor, NULL), ANN_CANCELLED);
  CHECK_STATUS(ann_verify(path, NULL, monitor, NULL), ANN_CANCELLED);
  ann_monitor_free(monitor);
  CHECK_EQUAL(temporary_files(), 0);
  free(file.data);
  ann_index_free(unbuilt);
  ann_index_free(index);
}

/* ann_file_info checks the sums of header, table and tail, and looks at nothing between table and tail. */
static void facts_of_damaged_files(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 3000, 24, 7);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  const char *path = in_folder("facts");
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  bytes file = read_file(path);
  const struct {
    const char *part;
    uint64_t at;
    int is_read;
  } places[] = {{"header", 40, 1},
                {"table", 4096 + 20, 1},
                {"middle", file.count / 2, 0},
                {"end", file.count - 1000, 0},
                {"tail", file.count - 64 + 20, 1}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    file.data[places[i].at] ^= 1;
    write_file(path, file.data, file.count);
    ann_file_description facts = ANN_FILE_DESCRIPTION_INIT;
    const ann_status status = ann_file_info(path, &facts, NULL);
    CHECK_SAY(status == (places[i].is_read ? ANN_CORRUPT : ANN_OK), "damage of the %s: %s", places[i].part,
              ann_status_name(status));
    CHECK(places[i].is_read || (facts.rows == 3000 && facts.file_bytes == file.count));
    file.data[places[i].at] ^= 1;
  }
  remove(path);
  free(file.data);
  ann_index_free(index);
  vectors_free(&rows);
}

static void strange_targets(void) {
  ann_index *index = small_index(1), *other = small_index(2), *opened = NULL;
  ann_error error = ANN_ERROR_INIT;
  const char *places[] = {folder, "/dev/full", "/dev/null", "/proc/gannet", in_folder("no/such/file")};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const ann_status status = ann_save(index, places[i], NULL, NULL, &error);
    CHECK_SAY(status == ANN_IO && error.os_error != 0 && strlen(error.message) > 10, "%s: status %d",
              places[i], status);
    const ann_status opening = ann_open(NULL, places[i], NULL, &opened, NULL, NULL);
    CHECK_SAY(opening == ANN_IO, "%s: opening gives %d", places[i], opening);
  }
  char slash[300];
  snprintf(slash, sizeof slash, "%s/", folder);
  CHECK_STATUS(ann_save(index, slash, NULL, NULL, NULL), ANN_IO);
  snprintf(slash, sizeof slash, "%s/not-there/", folder);
  CHECK_STATUS(ann_save(index, slash, NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  char *longest = malloc(6000);
  memset(longest, 'x', 5999);
  longest[5999] = 0;
  CHECK_STATUS(ann_save(index, longest, NULL, NULL, NULL), ANN_IO);
  /* Names as long as they can be, and one byte longer. */
  longest[256] = 0;
  char long_path[400];
  snprintf(long_path, sizeof long_path, "%s/%s", folder, longest);
  free(longest);
  CHECK_STATUS(ann_save(index, long_path, NULL, NULL, &error), ANN_IO);
  CHECK_EQUAL(error.os_error, ENAMETOOLONG);
  long_path[strlen(long_path) - 1] = 0;
  CHECK_OK(ann_save(index, long_path, NULL, NULL, NULL));
  CHECK_OK(ann_save(other, long_path, NULL, NULL, NULL));
  CHECK_OK(ann_verify(long_path, NULL, NULL, NULL));
  const char *pipe_path = in_folder("pipe");
  CHECK(mkfifo(pipe_path, 0600) == 0);
  CHECK_STATUS(ann_save(index, pipe_path, NULL, NULL, NULL), ANN_IO);
  CHECK_STATUS(ann_open(NULL, pipe_path, NULL, &opened, NULL, NULL), ANN_IO);

  /* A link is followed and stays one; permissions stay. */
  const char *real = in_folder("real.gannet"), *name = in_folder("link.gannet");
  CHECK_OK(ann_save(index, real, NULL, NULL, NULL));
  CHECK(chmod(real, 0640) == 0 && symlink("real.gannet", name) == 0);
  CHECK_OK(ann_save(other, name, NULL, NULL, NULL));
  struct stat facts;
  CHECK(lstat(name, &facts) == 0 && S_ISLNK(facts.st_mode));
  CHECK(stat(real, &facts) == 0 && (facts.st_mode & 0777) == 0640);
  bytes wanted = saved_bytes(other, INT64_MAX, 1), found = read_file(real);
  CHECK(same_bytes(&wanted, &found));
  free(wanted.data);
  free(found.data);
  CHECK(symlink("nowhere", in_folder("dangling")) == 0);
  CHECK_STATUS(ann_save(index, in_folder("dangling"), NULL, NULL, NULL), ANN_IO);

  /* A mapped index keeps the file that it was opened from. */
  vectors queries = vectors_make(DATA_NORMAL, ANN_U8, 5, 12, 9);
  ann_open_params lazy = ANN_OPEN_PARAMS_INIT;
  lazy.mode = ANN_OPEN_LAZY;
  CHECK_OK(ann_open(NULL, real, &lazy, &opened, NULL, NULL));
  CHECK_OK(ann_save(index, real, NULL, NULL, NULL));
  check_same(other, opened, &queries, "the file was replaced");
  CHECK_OK(ann_save(opened, real, NULL, NULL, NULL)); /* over the file that is not mapped any more */
  ann_index_free(opened);
  vectors_free(&queries);

  write_file(in_folder("empty"), "", 0);
  CHECK_STATUS(ann_open(NULL, in_folder("empty"), NULL, &opened, NULL, NULL), ANN_CORRUPT);
  CHECK_STATUS(ann_open(NULL, in_folder("empty"), &lazy, &opened, NULL, NULL), ANN_CORRUPT);
  CHECK_EQUAL(temporary_files(), 0);
  ann_index_free(index);
  ann_index_free(other);
}

/* Ids that lie in a damaged part of a lazily opened file are refused, in lists too. */
static void lazy_damage_of_ids(void) {
  enum { N = 300000 }; /* more ids than the megabyte that is checked at once */
  vectors rows = vectors_make(DATA_NORMAL, ANN_U8, N, 2, 4);
  uint64_t *ids = malloc(N * sizeof *ids), *got = calloc(N, sizeof *ids);
  for (uint64_t i = 0; i < N; i++) ids[i] = 0x1122334400000000 + i * 3;
  ann_index *index = index_make(2, ANN_METRIC_L2, ANN_ELEMENT_AUTO), *opened = NULL;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_NONE;
  const ann_matrix view = vectors_view(&rows);
  CHECK_OK(ann_build(index, &view, ids, &params, NULL, NULL));
  bytes file = saved_bytes(index, INT64_MAX, 2);
  unsigned char *place = memmem(file.data, file.count, ids, 64);
  CHECK(place != NULL);
  place[(N - 1) * sizeof *ids] ^= 1;
  ann_open_params lazy = ANN_OPEN_PARAMS_INIT;
  lazy.mode = ANN_OPEN_LAZY;
  CHECK_OK(ann_open_memory(NULL, file.data, file.count, &lazy, &opened, NULL, NULL));
  CHECK_OK(ann_index_ids(opened, 0, 1000, got, NULL));
  CHECK(memcmp(got, ids, 1000 * sizeof *ids) == 0);
  CHECK_STATUS(ann_index_ids(opened, 0, N, got, NULL), ANN_CORRUPT);
  CHECK_STATUS(ann_index_ids(opened, N - 1, 1, got, NULL), ANN_CORRUPT);
  CHECK_OK(ann_index_ids(opened, 1000, 1000, got, NULL));
  CHECK(memcmp(got, ids + 1000, 1000 * sizeof *ids) == 0);
  ann_index_free(opened);
  ann_index_free(index);
  free(file.data);
  free(ids);
  free(got);
  vectors_free(&rows);
}

/* A lazily opened file with damage answers CORRUPT where it is met, and goes on elsewhere. */
static void lazy_damage(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 3000, 200, 4);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 20, 200, 8);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL), *opened = NULL;
  bytes file = saved_bytes(index, INT64_MAX, 2);
  answers found = answers_make(queries.rows, 10), exact = answers_make(queries.rows, 10);
  ann_open_params lazy = ANN_OPEN_PARAMS_INIT;
  lazy.mode = ANN_OPEN_LAZY;
  const uint64_t first_row = 8192, last_row = first_row + 2999 * 800; /* behind header and table */
  file.data[last_row + 5] ^= 1;
  CHECK_OK(ann_open_memory(NULL, file.data, file.count, &lazy, &opened, NULL, NULL));
  CHECK_STATUS(ann_open_memory(NULL, file.data, file.count, NULL, &(ann_index *){NULL}, NULL, NULL),
               ANN_CORRUPT);
  for (int round = 0; round < 2; round++) {
    CHECK_STATUS(index_search(opened, &queries, ANN_SEARCH_EXACT, 0, &exact), ANN_CORRUPT);
    bytes unsaved = {0};
    unsaved.piece = INT64_MAX;
    ann_writer writer = ANN_WRITER_INIT;
    writer.write = take;
    writer.user = &unsaved;
    CHECK_STATUS(ann_save_stream(opened, &writer, NULL, NULL, NULL), ANN_CORRUPT);
    CHECK_EQUAL(unsaved.count, 0);
    int32_t there = 0;
    float vector[200];
    CHECK_STATUS(ann_index_get(opened, 2999, vector, sizeof vector, &there, NULL), ANN_CORRUPT);
    const uint64_t ids[2] = {0, 2999};
    float both[400];
    CHECK_STATUS(ann_index_get_batch(opened, ids, 2, both, sizeof both, NULL, NULL), ANN_CORRUPT);
    CHECK_OK(ann_index_get_batch(opened, ids, 1, both, sizeof both, NULL, NULL));
    CHECK_OK(ann_index_get(opened, 0, vector, sizeof vector, &there, NULL));
    CHECK(memcmp(both, vector, sizeof vector) == 0);
    CHECK(there == 1 && memcmp(vector, vectors_row(&rows, 0), sizeof vector) == 0);
  }
  /* Mended, it is in order: what was found bad is looked at again. */
  file.data[last_row + 5] ^= 1;
  check_same(index, opened, &queries, "mended");
  ann_index_free(opened);
  answers_free(&found);
  answers_free(&exact);
  free(file.data);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

/* --- Many at once ------------------------------------------------------------------------------ */

typedef struct saver {
  const ann_index *indexes[2];
  const ann_index *lazy; /* the first of them, mapped: all threads touch it first at once */
  const vectors *queries;
  const answers *expected[2];
  const char *path;
  int failures;
} saver;

/* KiB of mappings of a file that the system was told of that reads are scattered ("rr"); -1 where it shows no
 * mapping of the file at all, as emulators do. */
static long scattered_kib(const char *path) {
  FILE *maps = fopen("/proc/self/smaps", "r");
  if (!CHECK(maps != NULL)) return -1;
  char line[512];
  long kib = 0, sum = -1;
  int ours = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    if (strchr(line, '-') != NULL && strstr(line, " r--s ") != NULL)
      ours = strstr(line, path) != NULL;
    else if (strncmp(line, "Size:", 5) == 0)
      kib = atol(line + 5);
    else if (strncmp(line, "VmFlags:", 8) == 0) {
      if (ours && sum < 0) sum = 0;
      if (ours && strstr(line, " rr") != NULL) sum += kib;
      ours = 0;
    }
  }
  fclose(maps);
  return sum;
}

/* A mapped index larger than memory answers 100 times as often where the system does not read around each row. */
static void scattered_reads(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 3000, 200, 4);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 20, 200, 8);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL), *opened = NULL;
  const char *path = in_folder("scattered");
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  struct stat facts;
  CHECK(stat(path, &facts) == 0);
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = ANN_OPEN_LAZY;
  CHECK_OK(ann_open(NULL, path, &params, &opened, NULL, NULL));
  check_same(index, opened, &queries, "mapped");
  answers found = answers_make(queries.rows, 10); /* rows are read in order, and scattered again afterwards */
  CHECK_OK(index_search(opened, &queries, ANN_SEARCH_EXACT, 0, &found));
  answers_free(&found);
  const long kib = scattered_kib(path);
  CHECK_SAY(kib < 0 || kib >= facts.st_size / 1024 * 9 / 10,
            "%ld KiB of a file of %lld bytes are read here and there", kib, (long long)facts.st_size);
  ann_index_free(opened);
  params.mode = ANN_OPEN_TRUSTED; /* has no first touch that would fetch pieces whole */
  CHECK_OK(ann_open(NULL, path, &params, &opened, NULL, NULL));
  CHECK(scattered_kib(path) <= 0);
  ann_index_free(opened);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

static void *save_and_open(void *user) {
  saver *s = user;
  answers first = answers_make(s->queries->rows, 10);
  s->failures += index_search(s->lazy, s->queries, ANN_SEARCH_AUTO, 40, &first) != ANN_OK;
  s->failures += !answers_equal(&first, s->expected[0]);
  answers_free(&first);
  for (int round = 0; round < 30 / test_scale() + 2; round++) {
    const int which = round % 2;
    ann_save_params quick = ANN_SAVE_PARAMS_INIT;
    quick.sync = ANN_OFF;
    quick.threads = 1;
    s->failures += ann_save(s->indexes[which], s->path, &quick, NULL, NULL) != ANN_OK;
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = round % 3 + 1;
    ann_index *opened = NULL;
    s->failures += ann_open(NULL, s->path, &params, &opened, NULL, NULL) != ANN_OK;
    answers found = answers_make(s->queries->rows, 10);
    s->failures += index_search(opened, s->queries, ANN_SEARCH_AUTO, 40, &found) != ANN_OK;
    s->failures += !answers_equal(&found, s->expected[0]) && !answers_equal(&found, s->expected[1]);
    answers_free(&found);
    ann_index_free(opened);
  }
  return NULL;
}

static void many_at_once(void) {
  vectors queries = vectors_make(DATA_NORMAL, ANN_U8, 5, 12, 9);
  ann_index *indexes[2] = {small_index(1), small_index(2)};
  answers expected[2];
  for (int i = 0; i < 2; i++) {
    expected[i] = answers_make(5, 10);
    CHECK_OK(index_search(indexes[i], &queries, ANN_SEARCH_AUTO, 40, &expected[i]));
  }
  bytes file = saved_bytes(indexes[0], INT64_MAX, 1);
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = ANN_OPEN_LAZY;
  ann_index *lazy = NULL;
  CHECK_OK(ann_open_memory(NULL, file.data, file.count, &params, &lazy, NULL, NULL));
  pthread_t threads[6];
  saver savers[6];
  for (int i = 0; i < 6; i++) {
    savers[i] = (saver){{indexes[0], indexes[1]},   lazy, &queries, {&expected[0], &expected[1]},
                        in_folder("shared.gannet"), 0};
    CHECK(pthread_create(&threads[i], NULL, save_and_open, &savers[i]) == 0);
  }
  for (int i = 0; i < 6; i++) {
    pthread_join(threads[i], NULL);
    CHECK_EQUAL(savers[i].failures, 0);
  }
  ann_index_free(lazy);
  free(file.data);
  CHECK_EQUAL(temporary_files(), 0);
  for (int i = 0; i < 2; i++) {
    answers_free(&expected[i]);
    ann_index_free(indexes[i]);
  }
  vectors_free(&queries);
}

static float share_of(const ann_index *index) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  return info.knn_share;
}

/* What cells have seen of their lists is said by the index that they built, and kept in no file. */
static void shares(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_U8, 5000, 24, 3);
  const int32_t methods[] = {ANN_KNN_AUTO, ANN_KNN_NN_DESCENT, ANN_KNN_EXACT};
  for (int i = 0; i < 3; i++) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.knn = methods[i];
    params.calibrate = ANN_OFF;
    ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
    if (i == 0)
      CHECK(share_of(index) > 0.9f && share_of(index) <= 1);
    else
      CHECK(share_of(index) == 0);
    bytes file = saved_bytes(index, INT64_MAX, 0);
    ann_index *opened = NULL;
    CHECK_OK(ann_open_memory(NULL, file.data, file.count, NULL, &opened, NULL, NULL));
    CHECK(share_of(opened) == 0);
    ann_index_free(opened);
    ann_index_free(index);
    free(file.data);
  }
  vectors_free(&rows);
}

/* A file says of codes what the index that was saved does, in every mode. */
static void check_codes_kept(const bytes *file, const ann_index_info *made) {
  for (int mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
    ann_open_params open = ANN_OPEN_PARAMS_INIT;
    open.mode = mode;
    ann_index *opened = NULL;
    ann_index_info kept = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_open_memory(NULL, file->data, file->count, &open, &opened, NULL, NULL));
    CHECK_OK(ann_index_get_info(opened, &kept, NULL));
    CHECK(kept.codes == made->codes && kept.code_centres == made->code_centres &&
          kept.code_bytes == made->code_bytes && kept.code_first_ten == made->code_first_ten &&
          kept.code_first_twenty == made->code_first_twenty &&
          kept.code_worst_twenty == made->code_worst_twenty);
    ann_index_free(opened);
  }
}

/* An index of the CPU, with codes of this kind of which its walks read so many bytes of a row. */
static ann_index *build_with_codes(int32_t metric, const vectors *rows, int32_t codes, uint32_t code_bytes,
                                   ann_index_info *made) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = ANN_DEVICE_CPU;
  ann_index *index = index_build(metric, rows, &params);
  *made = (ann_index_info)ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, made, NULL));
  CHECK_EQUAL(made->codes, codes);
  CHECK_EQUAL(made->code_bytes, code_bytes);
  return index;
}

/* What codes an index has and how well they order its rows is said alike by the index that was built and by its file,
 * and no file has it where rows are their own codes. */
static void code_orders(void) {
  const struct {
    int32_t element, metric, codes;
  } kinds[] = {{ANN_U8, ANN_METRIC_L2, ANN_CODES_ROWS},
               {ANN_F32, ANN_METRIC_L2, ANN_CODES_BYTES},
               {ANN_U8, ANN_METRIC_COSINE, ANN_CODES_BYTES},
               {ANN_F16, ANN_METRIC_INNER_PRODUCT, ANN_CODES_SCALED}};
  for (int i = 0; i < 4; i++) {
    vectors rows = vectors_make(DATA_NORMAL, kinds[i].element, 3000, 24, 3);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.calibrate = ANN_OFF;
    ann_index *index = index_build(kinds[i].metric, &rows, &params);
    ann_index_info made = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_index_get_info(index, &made, NULL));
    CHECK_EQUAL(made.codes, kinds[i].codes);
    CHECK(made.code_bytes >= 24 && made.code_bytes % 16 == 0);
    CHECK((made.code_centres > 0) == (made.codes == ANN_CODES_SCALED));
    CHECK_SAY(made.code_first_ten > 0.9f && made.code_first_ten <= 1 &&
                  made.code_first_twenty >= made.code_first_ten && made.code_first_twenty <= 1 &&
                  made.code_worst_twenty <= made.code_first_twenty && made.code_worst_twenty > 0.5f,
              "codes %d order %.3f, %.3f, at worst %.3f", made.codes, (double)made.code_first_ten,
              (double)made.code_first_twenty, (double)made.code_worst_twenty);
    if (made.codes == ANN_CODES_ROWS) CHECK(made.code_first_ten == 1 && made.code_worst_twenty == 1);
    bytes file = saved_bytes(index, INT64_MAX, 0);
    check_codes_kept(&file, &made);
    ann_index_free(index);
    free(file.data);
    vectors_free(&rows);
  }
  /* One row far beyond all others, by which one step for all is set, and codes tell nothing: the info says so. */
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 3000, 24, 3);
  ((float *)rows.data)[0] = 40;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = ANN_OFF;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_SAY(info.codes != ANN_CODES_BYTES || info.code_first_ten < 0.98f, "codes %d order %.3f", info.codes,
            (double)info.code_first_ten);
  ann_index_free(index);
  params.graph = ANN_GRAPH_NONE;
  index = index_build(ANN_METRIC_L2, &rows, &params);
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK(info.codes == ANN_CODES_NONE && info.code_bytes == 0 && info.code_first_ten == 0);
  ann_index_free(index);
  vectors_free(&rows);
}

/* Rows of 256 columns within 16 dimensions, and very little beside them. */
static vectors flat_rows(int32_t element, uint64_t count, uint64_t seed) {
  enum { COLUMNS = 256, DIMENSIONS = 16 };
  vectors rows = vectors_make(DATA_EQUAL, element, count, COLUMNS, 1);
  uint64_t of_directions = 77;
  double directions[DIMENSIONS][COLUMNS], factors[DIMENSIONS];
  for (int i = 0; i < DIMENSIONS * COLUMNS; i++)
    directions[i / COLUMNS][i % COLUMNS] = random_normal(&of_directions);
  for (uint64_t row = 0; row < count; row++) {
    for (int i = 0; i < DIMENSIONS; i++) factors[i] = random_normal(&seed);
    for (int column = 0; column < COLUMNS; column++) {
      double value = 0.001 * random_normal(&seed);
      for (int i = 0; i < DIMENSIONS; i++) value += factors[i] * directions[i][column];
      if (element_is_integer(element)) value = value < -20 ? -120 : value > 20 ? 120 : 6 * value;
      put_value(element, (unsigned char *)vectors_row(&rows, row) + column * element_size(element), value);
    }
  }
  return rows;
}

/* Rows of many columns that fill few dimensions are walked on the CPU by fewer bytes, and files keep those. */
static void projections(void) {
  const struct {
    int32_t element, metric;
  } kinds[] = {{ANN_F32, ANN_METRIC_L2}, {ANN_I8, ANN_METRIC_L2}, {ANN_F16, ANN_METRIC_COSINE}};
  for (int i = 0; i < 3; i++) {
    vectors rows = flat_rows(kinds[i].element, 2000, 5), queries = flat_rows(kinds[i].element, 30, 6);
    ann_index_info made;
    ann_index *index = build_with_codes(kinds[i].metric, &rows, ANN_CODES_PROJECTED, 64, &made);
    CHECK(made.code_centres == 0 && made.code_first_twenty > 0.99f);
    /* The tables of a device that searches by default are made by its first search, and files keep them. */
    check_same(index, index, &queries, "projected codes");
    round_trip(index, &queries, "projected codes");
    bytes file = saved_bytes(index, INT64_MAX, 0);
    /* The minor version of the format: of rows that a device walks by other codes there is a curve more. */
    CHECK(file.data[14] == (test_on_device() && kinds[i].element != ANN_I8 ? 7 : 6));
    check_codes_kept(&file, &made);
    free(file.data);
    ann_index_free(index);
    vectors_free(&rows);
    vectors_free(&queries);
  }
}

/* Where codes are floats, walks of the CPU compare halves of them that files keep, unless halves take as many lines of a
 * cache or do not order the rows. */
static void half_codes(void) {
  const struct {
    int32_t element, metric;
    uint32_t dim, tight, code_bytes;
  } kinds[] = {{ANN_F32, ANN_METRIC_L2, 24, 0, 64},       {ANN_F16, ANN_METRIC_L2, 40, 0, 128},
               {ANN_BF16, ANN_METRIC_COSINE, 70, 0, 192}, {ANN_U8, ANN_METRIC_COSINE, 24, 0, 64},
               {ANN_F32, ANN_METRIC_L2, 16, 0, 64},       {ANN_F32, ANN_METRIC_L2, 24, 1, 128},
               {ANN_F16, ANN_METRIC_L2, 72, 0, 144}}; /* rows that serve as they are */
  for (int i = 0; i < 7; i++) {
    vectors rows = vectors_make(DATA_ISLANDS, kinds[i].element, 2000, kinds[i].dim, 5);
    vectors queries = vectors_make(DATA_ISLANDS, kinds[i].element, 30, kinds[i].dim, 6);
    for (uint64_t at = 0; kinds[i].tight && at < rows.rows * rows.dim; at++) {
      float *value = (float *)rows.data + at;
      *value = 1e-4f * *value + (at / rows.dim % 2 ? 1 : -1);
    }
    if (kinds[i].element == ANN_U8) /* two places, and little beside them */
      for (uint64_t at = 0; at < rows.rows * rows.dim; at++)
        rows.data[at] = (unsigned char)(at / rows.dim % 2 ? 250 - at % 7 % 3 : 2 + at % 11 % 3);
    ann_index_info made;
    ann_index *index = build_with_codes(kinds[i].metric, &rows, ANN_CODES_FLOATS, kinds[i].code_bytes, &made);
    CHECK_SAY(made.code_first_twenty >= 0.999f, "halves order %.4f", (double)made.code_first_twenty);
    /* By walks of many rows, which halves of other rows would lead astray. */
    answers exact = answers_make(queries.rows, 10), walked = answers_make(queries.rows, 10);
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, 200, &walked));
    const uint64_t missed = answers_missed(&exact, &walked);
    CHECK_SAY(missed <= 15, "kind %d: a beam of 200 misses %llu of 300", i, (unsigned long long)missed);
    answers_free(&exact);
    answers_free(&walked);
    round_trip(index, &queries, "half codes");
    bytes file = saved_bytes(index, INT64_MAX, 0);
    const int has_halves = made.code_bytes < (kinds[i].dim * 4 + 63) / 64 * 64 && made.code_bytes % 64 == 0;
    CHECK_SAY((file.data[14] == 12) == has_halves, "kind %d has format 1.%d", i, file.data[14]);
    check_codes_kept(&file, &made);
    free(file.data);
    ann_index_free(index);
    vectors_free(&rows);
    vectors_free(&queries);
  }
}

/* With the argument "threads" only what several threads do at once. */
int main(int count, char **arguments) {
  CHECK(mkdtemp(folder) != NULL);
  if (count < 2 || strcmp(arguments[1], "threads") != 0) {
    every_kind();
    equal_files();
    misuse();
    facts_of_damaged_files();
    strange_targets();
    lazy_damage();
    lazy_damage_of_ids();
    scattered_reads();
    shares();
    code_orders();
    projections();
    half_codes();
  }
  many_at_once();
  char command[320];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return finish("files");
}
