/* Proves that answers depend on query, index and parameters alone: a batch equals its queries one
 * by one, any number of threads builds the same graph and gives the same answers, equal seeds give
 * equal indexes, and counters add up. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "support.h"

enum { DIM = 12, Q = 100, K = 10 };

static void batches(const ann_index *index, const vectors *queries) {
  for (int procedure = ANN_SEARCH_BEST_FIRST; procedure <= ANN_SEARCH_CAGRA_MULTI_CTA; procedure++) {
    answers all = answers_make(Q, K), parts = answers_make(Q, K);
    ann_matrix view = vectors_view(queries);
    ann_results results = answers_view(&all);
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.procedure = procedure;
    CHECK_OK(ann_search_batch(index, &view, &params, &results, NULL, NULL));
    const uint64_t distance_count = results.distance_count;
    const uint64_t expansion_count = results.expansion_count;
    const uint64_t splits[] = {1, 3, 16, 33, 64};
    for (int s = 0; s < 5; s++) {
      if (!test_takes(s + procedure)) continue;
      uint64_t distances = 0, expansions = 0;
      for (uint64_t at = 0; at < Q; at += splits[s]) {
        const uint64_t rows = at + splits[s] <= Q ? splits[s] : Q - at;
        view = vectors_view(queries);
        view.data = vectors_row(queries, at);
        view.rows = rows;
        results = answers_view(&parts);
        results.rows = rows;
        results.ids += at * K;
        results.distances += at * K;
        results.counts += at;
        results.status += at;
        CHECK_OK(ann_search_batch(index, &view, &params, &results, NULL, NULL));
        distances += results.distance_count;
        expansions += results.expansion_count;
      }
      CHECK_SAY(answers_equal(&all, &parts), "procedure %d in pieces of %d: other answers", procedure,
                (int)splits[s]);
      CHECK_EQUAL(distances, distance_count);
      CHECK_EQUAL(expansions, expansion_count);
    }
    for (uint32_t threads = 1; threads <= 5; threads++) {
      if (!test_takes((int)threads + procedure)) continue;
      params.threads = threads;
      view = vectors_view(queries);
      results = answers_view(&parts);
      CHECK_OK(ann_search_batch(index, &view, &params, &results, NULL, NULL));
      CHECK_SAY(answers_equal(&all, &parts), "procedure %d, %u threads: other answers", procedure, threads);
      CHECK_EQUAL(results.distance_count, distance_count);
      CHECK_EQUAL(results.expansion_count, expansion_count);
    }
    answers_free(&all);
    answers_free(&parts);
  }
}

static void threads(int kind, int32_t metric, int32_t element, uint64_t n, int32_t knn) {
  vectors rows = vectors_make(kind, element, n, DIM, 1);
  vectors queries = vectors_make(kind, element, Q, DIM, 1); /* the same clusters */
  uint64_t graph = 0, answer = 0;
  uint32_t beam = 0;
  for (uint32_t threads = 1; threads <= 4; threads++) {
    if (test_scale() > 1 && threads == 2) continue; /* three are odd, four as many as there are at most */
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.threads = threads;
    params.knn = knn;
    ann_index *index = index_build(metric, &rows, &params);
    answers found = answers_make(Q, K);
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_AUTO, 0, &found));
    uint32_t beam_now = 0;
    CHECK_OK(ann_index_beam(index, K, 0.9f, &beam_now, NULL)); /* calibration is the same too */
    if (threads == 1) {
      graph = index_hash(index);
      answer = answers_hash(HASH_START, &found);
      beam = beam_now;
    }
    CHECK_SAY(graph == index_hash(index), "%s %s n %d knn %d: %u threads build another graph",
              metric_name(metric), element_name(element), (int)n, knn, threads);
    CHECK_SAY(answer == answers_hash(HASH_START, &found), "%s %s: %u threads, other answers",
              metric_name(metric), element_name(element), threads);
    CHECK_EQUAL(beam_now, beam);
    answers_free(&found);
    if (threads == 4) batches(index, &queries);
    ann_index_free(index);
  }
  uint32_t *lists[2];
  float *distances[2];
  /* NN-Descent and cells are not offered for inner product here; knn_graph_test has that. */
  if (metric == ANN_METRIC_INNER_PRODUCT) knn = ANN_KNN_EXACT;
  for (int i = 0; i < 2; i++) {
    lists[i] = malloc(n * K * 4);
    distances[i] = malloc(n * K * 4);
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.metric = metric;
    params.method = knn;
    params.k = K;
    params.threads = (uint32_t)(1 + 2 * i);
    const ann_matrix view = vectors_view(&rows);
    CHECK_OK(ann_knn_graph(NULL, &view, &params, lists[i], distances[i], NULL, NULL));
  }
  CHECK(memcmp(lists[0], lists[1], n * K * 4) == 0);
  CHECK(memcmp(distances[0], distances[1], n * K * 4) == 0);
  for (int i = 0; i < 2; i++) {
    free(lists[i]);
    free(distances[i]);
  }
  vectors_free(&rows);
  vectors_free(&queries);
}

/* A race shows in one build of many, so many are made: NN-Descent on small sets that are soon done,
 * where the decision to stop depends on the count of a few changes. */
static void many_builds(void) {
  const int rounds = 60 / test_scale() + 10;
  const int32_t elements[] = {ANN_F32, ANN_BF16, ANN_I8};
  for (int e = 0; e < 3; e++)
    for (int set = 0; set < 4; set++) {
      if (!test_takes(e + set)) continue;
      vectors rows = vectors_make(set % 2 ? DATA_NORMAL : DATA_CLUSTERED, elements[e], set < 2 ? 120 : 200,
                                  set < 2 ? 130 : 12, 10);
      uint64_t wanted = 0;
      int differ = 0;
      for (int round = 0; round < rounds; round++) {
        ann_build_params params = ANN_BUILD_PARAMS_INIT;
        params.knn = ANN_KNN_NN_DESCENT;
        params.degree = 16;
        params.calibrate = ANN_OFF;
        params.threads = round == 0 ? 1 : 4;
        ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
        if (round == 0) wanted = index_hash(index);
        differ += index_hash(index) != wanted;
        ann_index_free(index);
      }
      CHECK_SAY(differ == 0, "%s, set %d: %d of %d builds by 4 threads differ from that by 1",
                element_name(elements[e]), set, differ, rounds - 1);
      vectors_free(&rows);
    }
}

/* Memory as a long-lived process has it: full of what lay there before. A value that is read before it is
 * written shows as another file. */
static struct {
  uint64_t state; /* 0: memory is zeroed */
} garbage;

static void *allocate_filled(void *user, size_t bytes, size_t alignment) {
  (void)user;
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  uint64_t *memory = aligned_alloc(alignment, whole);
  if (!memory) return NULL;
  memset(memory, 0, whole);
  /* Many threads may ask at once; whatever their updates leave will do. */
  uint64_t value = __atomic_load_n(&garbage.state, __ATOMIC_RELAXED);
  for (size_t i = 0; value && i < whole / 8; i++) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    /* Doubles between 1/2 and 1, as recalls are, among anything. */
    memory[i] = i % 2 ? value : value >> 12 | 0x3fe0000000000000u;
  }
  if (value) __atomic_store_n(&garbage.state, value | 1, __ATOMIC_RELAXED);
  return memory;
}

static void release_filled(void *user, void *memory, size_t bytes, size_t alignment) {
  (void)user, (void)bytes, (void)alignment;
  free(memory);
}

typedef struct {
  uint8_t *data;
  size_t size, capacity;
} file;

static int64_t write_file(void *user, const void *data, uint64_t bytes) {
  file *to = user;
  if (to->size + bytes > to->capacity) {
    to->capacity = 2 * (to->size + bytes);
    to->data = realloc(to->data, to->capacity);
    if (!to->data) return -12;
  }
  memcpy(to->data + to->size, data, bytes);
  to->size += bytes;
  return (int64_t)bytes;
}

/* The file of an index that is built in memory of one kind, and its answers. */
static file build_in(uint64_t state, int32_t metric, int32_t graph, const vectors *rows,
                     const vectors *queries, answers *found) {
  ann_context_params settings = ANN_CONTEXT_PARAMS_INIT;
  settings.allocate = allocate_filled;
  settings.release = release_filled;
  garbage.state = state;
  ann_context *context = NULL;
  CHECK_OK(ann_context_create(&settings, &context, NULL));
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows->dim;
  shape.metric = metric;
  ann_index *index = NULL;
  CHECK_OK(ann_index_create(context, &shape, &index, NULL));
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = graph;
  const ann_matrix view = vectors_view(rows);
  ann_error error = ANN_ERROR_INIT;
  CHECK_SAY(ann_build(index, &view, NULL, &params, NULL, &error) == ANN_OK, "%s", error.message);
  CHECK_OK(index_search(index, queries, ANN_SEARCH_AUTO, 0, found));
  file out = {NULL, 0, 0};
  ann_writer writer = ANN_WRITER_INIT;
  writer.user = &out;
  writer.write = write_file;
  CHECK_OK(ann_save_stream(index, &writer, NULL, NULL, NULL));
  ann_index_free(index);
  ann_context_free(context);
  return out;
}

static void garbage_in_memory(void) {
  const int32_t graphs[] = {ANN_GRAPH_AUTO, ANN_GRAPH_CAGRA, ANN_GRAPH_GGNN, ANN_GRAPH_TSDG};
  const uint64_t sizes[] = {1000, 3000};
  for (int s = 0; s < 2; s++)
    for (int m = 0; m < METRICS; m++)
      for (int g = 0; g < 4; g++) {
        const int slow = graphs[g] == ANN_GRAPH_TSDG; /* by its long lists */
        if (s == 0 ? !test_takes(m + g) : slow || (m + g) % 4) continue;
        if (slow && (m != 0 || test_scale() > 1)) continue;
        vectors rows = vectors_make(DATA_CLUSTERED, ANN_F32, sizes[s], 24, 23);
        vectors queries = vectors_make(DATA_CLUSTERED, ANN_F32, Q, 24, 23);
        answers found[2] = {answers_make(Q, K), answers_make(Q, K)};
        const file zeroed = build_in(0, all_metrics[m], graphs[g], &rows, &queries, &found[0]);
        const file filled =
            build_in(0x9e3779b97f4a7c15u, all_metrics[m], graphs[g], &rows, &queries, &found[1]);
        size_t same = 0;
        while (same < zeroed.size && same < filled.size && zeroed.data[same] == filled.data[same]) same++;
        CHECK_SAY(
            zeroed.size == filled.size && same == zeroed.size,
            "%s, graph %d, %d rows: memory that is not zeroed makes another file, of %d and %d bytes, from "
            "byte %d on",
            metric_name(all_metrics[m]), (int)graphs[g], (int)sizes[s], (int)zeroed.size, (int)filled.size,
            (int)same);
        CHECK(answers_equal(&found[0], &found[1]));
        free(zeroed.data);
        free(filled.data);
        for (int i = 0; i < 2; i++) answers_free(&found[i]);
        vectors_free(&rows);
        vectors_free(&queries);
      }
}

static void seeds(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 1500, DIM, 9);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.knn = ANN_KNN_NN_DESCENT;
  params.samples = 4;
  params.iterations = 2;
  uint64_t hashes[4];
  const uint64_t values[] = {0, 1, 1, 2};
  for (int i = 0; i < 4; i++) {
    params.seed = values[i];
    ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
    ann_index_info info = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_index_get_info(index, &info, NULL));
    CHECK_EQUAL(info.seed, values[i] ? values[i] : 1);
    CHECK(info.knn_iterations >= 1 && info.knn_iterations <= 2);
    hashes[i] = index_hash(index);
    ann_index_free(index);
  }
  CHECK(hashes[0] == hashes[1] && hashes[1] == hashes[2] && hashes[2] != hashes[3]);
  vectors_free(&rows);
}

int main(void) {
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      if (!test_takes(e + m)) continue;
      threads(DATA_NORMAL, all_metrics[m], all_elements[e], 500, ANN_KNN_NN_DESCENT);
      threads(DATA_CLUSTERED, all_metrics[m], all_elements[e], 300, ANN_KNN_EXACT);
      threads(DATA_CLUSTERED, all_metrics[m], all_elements[e], 900, ANN_KNN_CELLS);
    }
  threads(DATA_NORMAL, ANN_METRIC_L2, ANN_F32, (uint64_t)(5000 / test_scale()), ANN_KNN_AUTO);
  many_builds();
  garbage_in_memory();
  seeds();
  return finish("sameness");
}
