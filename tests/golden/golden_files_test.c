/* Golden files: files that earlier versions of the library wrote, with the answers that they must
 * give for ever.
 *
 *     golden_files FOLDER           checks the files in FOLDER (tests/golden/files)
 *     golden_files --make FOLDER    writes them, with answers.txt
 *
 * One file for each graph, metric and element that exists, half of them with ids, one with codes of
 * floats, two with queries to calibrate on, two with rows of varying length (TSDG), one with layers (GGNN), and since
 * format 1.5 two that say how well their codes order rows, one of which has codes with a scale for each row, one with
 * curves of a slack bound, and one with both; of format 1.7 one with curves of devices, which the second line leaves out
 * and curves.cpp puts into it; of format 1.8 one of copies, whose short lists start from groups of entry points,
 * of 1.9 one whose small slacks do, too, of 1.11 one with covering heads, which curves.cpp puts into it, and of 1.12 one
 * whose codes of floats have halves beside them.
 * answers.txt says of each what its header says, gives queries as the hexadecimal bytes of their vectors, and the
 * answers as id:bits, bits being those of the 32-bit distance:
 *
 *     file NAME METRIC ELEMENT GRAPH IDS ROWS DIM
 *     query BYTES
 *     usual ID:BITS ...      by ann_search_batch
 *     exact ID:BITS ...      by ann_search_exact
 *
 * Each file is opened in every mode from a path and from memory, and from a stream; its answers are
 * compared bit for bit; and saved again it is the same file. Only the writer's version, and with it
 * the sums of header and tail, may have become another. */
#define _GNU_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "support.h"

enum { ROWS = 40, QUERIES = 3, K = 4, NAME = 64, KINDS = METRICS * ELEMENTS * 2 + 15 };
enum { DISTINCT = 80, COPIES = 8 }; /* more unlike rows than the 64 entry points of other graphs */
enum { FILE_BYTES_MAX = 100 << 10 };

/* --- What there is --------------------------------------------------------------------------- */

typedef struct kind {
  char name[NAME];
  int32_t metric, element, graph;
  int ids;
  uint32_t dim;
  int queries; /* has some to calibrate on */
  int order;   /* says how well codes order rows */
  int slack;   /* has curves of a slack bound */
  int devices; /* has curves of devices */
  int groups; /* has rows with copies; 1: short lists start from groups, 3: small slacks, too; 7: and has covering heads */
  int halves; /* has halves of codes of floats */
} kind;

static const char *graph_name(int32_t graph) {
  return graph == ANN_GRAPH_CAGRA  ? "cagra"
         : graph == ANN_GRAPH_GGNN ? "ggnn"
         : graph == ANN_GRAPH_TSDG ? "tsdg"
                                   : "none";
}

static void list_kinds(kind *kinds) {
  static const char *const group_names[] = {"",   "-groups", NULL, "-groups-of-both",
                                            NULL, NULL,      NULL, "-groups-of-both-covering"};
  int count = 0;
  for (int graph = ANN_GRAPH_CAGRA; graph <= ANN_GRAPH_NONE; graph++)
    for (int metric = 0; metric < METRICS; metric++)
      for (int element = 0; element < ELEMENTS; element++) {
        kind *k = &kinds[count];
        k->metric = all_metrics[metric];
        k->element = all_elements[element];
        k->graph = graph;
        k->ids = count++ % 2;
        k->dim = 8;
        k->queries = k->order = k->slack = k->devices = k->groups = k->halves = 0;
      }
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_F32, ANN_GRAPH_CAGRA, 0, 2, 0, 0, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_U8, ANN_GRAPH_CAGRA, 0, 8, 1, 0, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_COSINE, ANN_F16, ANN_GRAPH_CAGRA, 1, 8, 1, 0, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_U8, ANN_GRAPH_TSDG, 0, 8, 0, 0, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_COSINE, ANN_F32, ANN_GRAPH_TSDG, 1, 8, 0, 0, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_F32, ANN_GRAPH_GGNN, 1, 8, 0, 0, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_F32, ANN_GRAPH_CAGRA, 0, 8, 0, 1, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_INNER_PRODUCT, ANN_F16, ANN_GRAPH_CAGRA, 1, 8, 0, 1, 0, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_U8, ANN_GRAPH_CAGRA, 0, 8, 0, 0, 1, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_COSINE, ANN_F16, ANN_GRAPH_CAGRA, 1, 8, 1, 1, 1, 0, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_F32, ANN_GRAPH_CAGRA, 0, 8, 0, 1, 1, 1, 0, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_U8, ANN_GRAPH_CAGRA, 0, 8, 0, 0, 1, 0, 1, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_U8, ANN_GRAPH_CAGRA, 0, 8, 0, 0, 1, 0, 3, 0};
  kinds[count++] = (kind){"", ANN_METRIC_L2, ANN_U8, ANN_GRAPH_CAGRA, 0, 8, 0, 0, 1, 0, 7, 0};
  kinds[count] = (kind){"", ANN_METRIC_L2, ANN_F32, ANN_GRAPH_CAGRA, 0, 24, 0, 1, 1, 0, 0, 1};
  for (int i = 0; i < KINDS; i++)
    snprintf(kinds[i].name, NAME, "%s-%s-%s%s%s%s%s%s%s%s%s", metric_name(kinds[i].metric),
             element_name(kinds[i].element), graph_name(kinds[i].graph), kinds[i].ids ? "-ids" : "",
             kinds[i].dim == 2 ? "-float-codes" : "", kinds[i].queries ? "-queries" : "",
             kinds[i].order ? "-order" : "", kinds[i].slack ? "-slack" : "",
             kinds[i].devices ? "-device-curves" : "", group_names[kinds[i].groups],
             kinds[i].halves ? "-half-codes" : "");
}

static const char *path_of(const char *folder, const char *name, const char *ending) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s%s", folder, name, ending);
  return path;
}

static answers search(const ann_index *index, const vectors *queries, int exact) {
  answers found = answers_make(queries->rows, K);
  const ann_matrix view = vectors_view(queries);
  ann_results results = answers_view(&found);
  CHECK_OK((exact ? ann_search_exact : ann_search_batch)(index, &view, NULL, &results, NULL, NULL));
  return found;
}

/* --- Making ---------------------------------------------------------------------------------- */

static void print_answers(FILE *list, const char *which, const answers *found, uint64_t query) {
  fprintf(list, "%s", which);
  for (uint32_t i = 0; i < K; i++) {
    uint32_t bits;
    memcpy(&bits, &found->distances[query * K + i], sizeof bits);
    fprintf(list, " %" PRIu64 ":%08" PRIx32, found->ids[query * K + i], bits);
  }
  fputc('\n', list);
}

/* Where there are to be groups, the first rows are unlike and the others copy them in turn. */
static vectors make_rows(const kind *what) {
  const uint64_t count = what->groups ? DISTINCT * COPIES : ROWS;
  const int islands = what->halves; /* whose rows bytes do not distinguish */
  vectors rows = vectors_make(islands ? DATA_ISLANDS : DATA_NORMAL, what->element, count, what->dim, 11);
  const size_t bytes = what->dim * element_size(what->element);
  for (uint64_t i = DISTINCT; i < count; i++)
    memcpy(vectors_row(&rows, i), vectors_row(&rows, i % DISTINCT), bytes);
  return rows;
}

static void make_file(const char *folder, const kind *what, FILE *list) {
  vectors rows = make_rows(what);
  vectors queries = vectors_make(DATA_NORMAL, what->element, QUERIES, what->dim, 12);
  uint64_t ids[DISTINCT * COPIES];
  for (uint64_t i = 0; i < rows.rows; i++) ids[i] = (rows.rows - i) * 1000000007ull + i % 3;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = 8;
  /* AUTO's graph is a file's CAGRA: the paper's own differs in its edges alone. */
  params.graph = what->graph == ANN_GRAPH_CAGRA ? ANN_GRAPH_AUTO : what->graph;
  params.segment_rows = 8; /* so that so few rows have layers */
  vectors like_queries = vectors_make(DATA_NORMAL, what->element, 30, what->dim, 13);
  const ann_matrix calibration = vectors_view(&like_queries);
  if (what->queries) params.calibration = &calibration;
  ann_index *index = index_make(what->dim, what->metric, ANN_ELEMENT_AUTO);
  const ann_matrix view = vectors_view(&rows);
  CHECK_OK(ann_build(index, &view, what->ids ? ids : NULL, &params, NULL, NULL));
  CHECK_OK(ann_save(index, path_of(folder, what->name, ".gannet"), NULL, NULL, NULL));
  answers usual = search(index, &queries, 0), exact = search(index, &queries, 1);
  fprintf(list, "file %s %d %d %d %d %" PRIu64 " %u\n", what->name, what->metric, what->element, what->graph,
          what->ids, rows.rows, what->dim);
  for (uint64_t q = 0; q < QUERIES; q++) {
    const unsigned char *bytes = vectors_row(&queries, q);
    fprintf(list, "query ");
    for (size_t i = 0; i < what->dim * element_size(what->element); i++) fprintf(list, "%02x", bytes[i]);
    fputc('\n', list);
    print_answers(list, "usual", &usual, q);
    print_answers(list, "exact", &exact, q);
  }
  answers_free(&usual);
  answers_free(&exact);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
  vectors_free(&like_queries);
}

static int make_all(const char *folder) {
  kind kinds[KINDS];
  list_kinds(kinds);
  FILE *list = fopen(path_of(folder, "answers", ".txt"), "w");
  if (!CHECK(list != NULL)) return 1;
  for (int i = 0; i < KINDS; i++) make_file(folder, &kinds[i], list);
  CHECK(fclose(list) == 0);
  return finish("golden_files --make");
}

/* --- Reading what was made ------------------------------------------------------------------- */

typedef struct golden {
  kind what;
  uint64_t rows;
  vectors queries;
  uint64_t ids[2][QUERIES * K]; /* usual, exact */
  uint32_t bits[2][QUERIES * K];
} golden;

static void read_query(const char *text, golden *file, uint64_t query) {
  unsigned char *bytes = vectors_row(&file->queries, query);
  const size_t count = file->what.dim * element_size(file->what.element);
  CHECK_EQUAL(strspn(text, "0123456789abcdef"), 2 * count);
  for (size_t i = 0; i < count; i++) {
    unsigned byte = 0;
    CHECK(sscanf(text + 2 * i, "%2x", &byte) == 1);
    bytes[i] = (unsigned char)byte;
  }
}

static void read_answers(const char *text, golden *file, int exact, uint64_t query) {
  int used = 0;
  for (uint32_t i = 0; i < K; i++, text += used)
    CHECK(sscanf(text, " %" SCNu64 ":%" SCNx32 "%n", &file->ids[exact][query * K + i],
                 &file->bits[exact][query * K + i], &used) == 2);
}

/* The next file of the list; 0 at its end. */
static int read_golden(FILE *list, golden *file) {
  char line[1024];
  memset(file, 0, sizeof *file);
  if (!fgets(line, sizeof line, list)) return 0;
  kind *k = &file->what;
  if (!CHECK(sscanf(line, "file %63s %d %d %d %d %" SCNu64 " %u", k->name, &k->metric, &k->element, &k->graph,
                    &k->ids, &file->rows, &k->dim) == 7))
    return 0;
  k->queries = strstr(k->name, "-queries") != NULL;
  k->order = strstr(k->name, "-order") != NULL;
  k->slack = strstr(k->name, "-slack") != NULL;
  k->devices = strstr(k->name, "-device-curves") != NULL;
  k->groups = strstr(k->name, "-covering") != NULL         ? 7
              : strstr(k->name, "-groups-of-both") != NULL ? 3
                                                           : strstr(k->name, "-groups") != NULL;
  k->halves = strstr(k->name, "-half-codes") != NULL;
  file->queries = vectors_make(DATA_EQUAL, k->element, QUERIES, k->dim, 0);
  for (uint64_t q = 0; q < QUERIES; q++) {
    CHECK(fgets(line, sizeof line, list) && strncmp(line, "query ", 6) == 0);
    read_query(line + 6, file, q);
    CHECK(fgets(line, sizeof line, list) && strncmp(line, "usual", 5) == 0);
    read_answers(line + 5, file, 0, q);
    CHECK(fgets(line, sizeof line, list) && strncmp(line, "exact", 5) == 0);
    read_answers(line + 5, file, 1, q);
  }
  return 1;
}

/* --- Checking -------------------------------------------------------------------------------- */

typedef struct bytes {
  unsigned char *data; /* on a multiple of 4,096 */
  uint64_t count, at;
} bytes;

static int64_t take(void *user, const void *data, uint64_t count) {
  bytes *b = user;
  if (b->count + count > 2 * FILE_BYTES_MAX) return -1;
  memcpy(b->data + b->count, data, count);
  b->count += count;
  return (int64_t)count;
}

static int64_t give(void *user, void *data, uint64_t count) {
  bytes *b = user;
  if (count > b->count - b->at) count = b->count - b->at;
  if (count > 1000) count = 1000;
  memcpy(data, b->data + b->at, count);
  b->at += count;
  return (int64_t)count;
}

static bytes empty_bytes(void) { return (bytes){aligned_alloc(4096, 2 * FILE_BYTES_MAX), 0, 0}; }

static bytes read_file(const char *path) {
  bytes b = empty_bytes();
  FILE *file = fopen(path, "rb");
  CHECK_SAY(file != NULL, "%s is not there; to take a golden file away breaks compatibility", path);
  if (file) {
    b.count = fread(b.data, 1, FILE_BYTES_MAX + 1, file);
    fclose(file);
  }
  CHECK_SAY(b.count <= FILE_BYTES_MAX, "%s is larger than a golden file may be", path);
  return b;
}

/* Blanks what depends on who wrote a file: version (header 96), sum of the header (88; tail 32) and
 * sum of the tail (56). */
static void blank_writer(bytes *file) {
  unsigned char *tail = file->data + file->count - 64;
  memset(file->data + 88, 0, 12);
  memset(tail + 32, 0, 8);
  memset(tail + 56, 0, 8);
}

static void check_saved_again(const ann_index *index, const golden *file, const bytes *wanted,
                              uint32_t writer) {
  bytes again = empty_bytes();
  ann_writer sink = ANN_WRITER_INIT;
  sink.write = take;
  sink.user = &again;
  CHECK_OK(ann_save_stream(index, &sink, NULL, NULL, NULL));
  bytes copy = empty_bytes();
  take(&copy, wanted->data, wanted->count);
  const uint32_t ours = ANN_VERSION_MAJOR << 16 | ANN_VERSION_MINOR << 8 | ANN_VERSION_PATCH;
  if (writer != ours && again.count > 4096) {
    blank_writer(&again);
    blank_writer(&copy);
  }
  CHECK_SAY(again.count == copy.count && memcmp(again.data, copy.data, copy.count) == 0,
            "%s: saved again it is another file", file->what.name);
  free(again.data);
  free(copy.data);
}

static void check_answers(const ann_index *index, const golden *file, int way) {
  for (int exact = 0; exact < 2; exact++) {
    answers found = search(index, &file->queries, exact);
    CHECK_SAY(memcmp(found.ids, file->ids[exact], sizeof file->ids[exact]) == 0 &&
                  memcmp(found.distances, file->bits[exact], sizeof file->bits[exact]) == 0,
              "%s, way %d: other answers by the %s search", file->what.name, way, exact ? "exact" : "usual");
    answers_free(&found);
  }
}

static void check_description(const char *path, const golden *file, uint32_t *writer) {
  ann_file_description facts = ANN_FILE_DESCRIPTION_INIT;
  CHECK_OK(ann_file_info(path, &facts, NULL));
  const kind *k = &file->what;
  const int grown = k->graph == ANN_GRAPH_TSDG || k->graph == ANN_GRAPH_GGNN;
  const int measured = k->order || k->slack;
  const uint32_t format = k->halves       ? 0x1000c
                          : k->groups > 3 ? 0x1000b
                          : k->groups > 1 ? 0x10009
                          : k->groups     ? 0x10008
                          : k->devices    ? 0x10007
                          : measured      ? 0x10005
                          : grown         ? 0x10003
                          : k->queries    ? 0x10001
                                          : 0x10000;
  CHECK_SAY(facts.format == format && facts.rows == file->rows && facts.dim == k->dim &&
                facts.metric == k->metric && facts.element == k->element && facts.graph == k->graph &&
                facts.has_ids == (uint32_t)k->ids,
            "%s: its header says something else", k->name);
  *writer = facts.writer;
}

/* The features that a reader may ignore (header 16): bit 0, short lists start from groups; bit 1, small slacks do. */
static void check_features(const bytes *whole, const golden *file) {
  uint64_t features;
  memcpy(&features, whole->data + 16, sizeof features);
  CHECK_SAY(features == (uint64_t)(file->what.groups & 3), "%s: features %" PRIx64, file->what.name,
            features);
}

/* Of codes beside the rows most of these files say nothing but what they are: they are older than what tells how well
 * codes order rows. */
static void check_codes(const ann_index *index, const golden *file) {
  const kind *k = &file->what;
  const int own = k->metric == ANN_METRIC_L2 && (k->element == ANN_I8 || k->element == ANN_U8);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  const float wanted = k->graph == ANN_GRAPH_NONE ? 0 : own ? 1 : -1;
  CHECK_SAY(k->order ? info.code_first_ten > 0 && info.code_worst_twenty > 0
                     : info.code_first_ten == wanted && info.code_worst_twenty == wanted,
            "%s: codes order %g", file->what.name, (double)info.code_first_ten);
  if (k->halves) CHECK_EQUAL(info.code_bytes, 64); /* floats have 128 */
}

static void check_file(const char *folder, const golden *file) {
  const char *path = path_of(folder, file->what.name, ".gannet");
  bytes whole = read_file(path);
  if (whole.count == 0) return;
  uint32_t writer = 0;
  check_description(path, file, &writer);
  check_features(&whole, file);
  CHECK_OK(ann_verify(path, NULL, NULL, NULL));
  for (int way = 0; way < 7; way++) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = way % 3 + ANN_OPEN_FULL;
    ann_index *index = NULL;
    ann_reader reader = ANN_READER_INIT;
    reader.read = give;
    reader.user = &whole;
    reader.bytes = whole.count;
    if (way < 3)
      CHECK_OK(ann_open(NULL, path, &params, &index, NULL, NULL));
    else if (way < 6)
      CHECK_OK(ann_open_memory(NULL, whole.data, whole.count, &params, &index, NULL, NULL));
    else
      CHECK_OK(ann_open_stream(NULL, &reader, NULL, &index, NULL, NULL));
    if (!index) continue;
    check_answers(index, file, way);
    check_codes(index, file);
    check_saved_again(index, file, &whole, writer);
    ann_index_free(index);
  }
  free(whole.data);
}

/* Files that answers.txt does not know would be checked by nobody. */
static uint64_t count_files(const char *folder) {
  uint64_t count = 0;
  DIR *entries = opendir(folder);
  for (struct dirent *entry; entries && (entry = readdir(entries));)
    count += strstr(entry->d_name, ".gannet") != NULL;
  if (entries) closedir(entries);
  return count;
}

static int check_all(const char *folder) {
  kind kinds[KINDS];
  int there[KINDS] = {0};
  list_kinds(kinds);
  FILE *list = fopen(path_of(folder, "answers", ".txt"), "r");
  if (!CHECK(list != NULL)) return finish("golden_files");
  golden file;
  uint64_t files = 0;
  for (; read_golden(list, &file); files++) {
    check_file(folder, &file);
    for (int i = 0; i < KINDS; i++) there[i] |= strcmp(kinds[i].name, file.what.name) == 0;
    vectors_free(&file.queries);
  }
  fclose(list);
  for (int i = 0; i < KINDS; i++) CHECK_SAY(there[i], "there is no golden file %s", kinds[i].name);
  CHECK_EQUAL(files, count_files(folder));
  printf("golden files: %llu\n", (unsigned long long)files);
  return finish("golden_files");
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--make") == 0) return make_all(argv[2]);
  if (argc == 2) return check_all(argv[1]);
  fprintf(stderr, "golden_files [--make] FOLDER\n");
  return 2;
}
