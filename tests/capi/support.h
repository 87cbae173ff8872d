/* support.h: vectors to test with, an oracle that computes distances in the plainest way, and the
 * three or four calls that nearly every test begins with. */
#ifndef GANNET_TESTS_SUPPORT_H
#define GANNET_TESTS_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "../scale.h"
#include "ann.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if GANNET_BACKEND makes a CUDA device the default one, as tests/gpu.sh does. The contract is the same
 * there but for what the header says of devices. */
int test_on_device(void);

/* SplitMix64. */
uint64_t random_next(uint64_t *state);
double random_unit(uint64_t *state);   /* [0, 1) */
double random_normal(uint64_t *state); /* about: the sum of twelve uniform ones */

double seconds_now(void);
void sleep_seconds(double seconds);

/* FNV-1a over bytes, to be chained; starts at HASH_START. */
#define HASH_START 0xcbf29ce484222325ull
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count);

/* --- Elements -------------------------------------------------------------------------------- */

enum { ELEMENTS = 5, METRICS = 3 };
extern const int32_t all_elements[ELEMENTS];
extern const int32_t all_metrics[METRICS];
const char *element_name(int32_t element);
const char *metric_name(int32_t metric);
size_t element_size(int32_t element);
int element_is_integer(int32_t element);

/* To and from one stored coordinate; storing rounds to nearest, ties to even. */
void put_value(int32_t element, void *place, double value);
double get_value(int32_t element, const void *place);

/* --- Vectors --------------------------------------------------------------------------------- */

typedef struct vectors {
  int32_t element;
  uint32_t dim;
  uint64_t rows;
  unsigned char *data; /* packed */
} vectors;

enum {
  DATA_NORMAL,    /* one cloud */
  DATA_CLUSTERED, /* tight clouds far apart */
  DATA_ISLANDS,   /* even rows, odd rows and a few lone rows, much farther apart than their own width */
  DATA_EQUAL      /* one vector, n times */
};

/* Values suit the element: about [-3, 3] for floats, a good part of the range for integers. */
vectors vectors_make(int kind, int32_t element, uint64_t rows, uint32_t dim, uint64_t seed);
void vectors_free(vectors *set);
void *vectors_row(const vectors *set, uint64_t row);
ann_matrix vectors_view(const vectors *set);

/* --- Oracle ---------------------------------------------------------------------------------- */

/* The distance of two stored vectors, in double. `error` gets how far a sum in 32-bit floating
 * point may lie from it; 0 for integer elements with L2 or inner product. */
double true_distance(int32_t metric, uint32_t dim, int32_t element_a, const void *a, int32_t element_b,
                     const void *b, double *error);

/* The k nearest of `rows` to each query by (distance, row): ids [queries, k], distances likewise.
 * Rows are numbered 0, 1, ... Short rows are filled up as the library fills them. `skip_self`
 * leaves out row q for query q. */
void true_neighbors(int32_t metric, const vectors *rows, const vectors *queries, uint32_t k, int skip_self,
                    uint64_t *ids, double *distances);

/* Share of the true neighbours that were found; a found row as near as the true k-th counts. */
double recall_of(int32_t metric, const vectors *rows, const vectors *queries, uint32_t k,
                 const uint64_t *found);

/* --- Answers --------------------------------------------------------------------------------- */

typedef struct answers {
  uint64_t rows;
  uint32_t k;
  uint64_t *ids;
  float *distances;
  uint32_t *counts;
  ann_status *status;
} answers;

answers answers_make(uint64_t rows, uint32_t k); /* filled with a pattern that no answer has */
void answers_free(answers *set);
ann_results answers_view(answers *set);
int answers_equal(const answers *a, const answers *b); /* bit for bit */
/* Places of `found` that the exact search fills better, for the same queries and k. */
uint64_t answers_missed(const answers *exact, const answers *found);
uint64_t answers_hash(uint64_t hash, const answers *set);

/* --- Calls ----------------------------------------------------------------------------------- */

/* An empty index; NULL where that fails. */
ann_index *index_make(uint32_t dim, int32_t metric, int32_t element);

/* A built index; prints the error and gives NULL where that fails. */
ann_index *index_build(int32_t metric, const vectors *rows, const ann_build_params *params);

/* Searches with `procedure` and `beam` (0: the default). */
ann_status index_search(const ann_index *index, const vectors *queries, int32_t procedure, uint32_t beam,
                        answers *found);

/* The search graph: [rows, degree], to be freed; NULL if there is none. */
uint32_t *index_edges(const ann_index *index, uint32_t *degree);
uint64_t index_hash(const ann_index *index); /* of its edges */

#ifdef __cplusplus
}
#endif
#endif
