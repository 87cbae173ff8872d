#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int test_on_device(void) {
  const char *backend = getenv("GANNET_BACKEND");
  return backend != NULL && strcmp(backend, "cuda") == 0;
}

uint64_t random_next(uint64_t *state) {
  uint64_t word = *state += 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}

double random_unit(uint64_t *state) { return (double)(random_next(state) >> 11) * 0x1p-53; }

double random_normal(uint64_t *state) {
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += random_unit(state);
  return sum;
}

double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void sleep_seconds(double seconds) {
  struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&rest, &rest) != 0) {
  }
}

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *byte = bytes;
  for (size_t i = 0; i < count; i++) hash = (hash ^ byte[i]) * 0x100000001b3ull;
  return hash;
}

/* --- Elements -------------------------------------------------------------------------------- */

const int32_t all_elements[ELEMENTS] = {ANN_F32, ANN_F16, ANN_BF16, ANN_I8, ANN_U8};
const int32_t all_metrics[METRICS] = {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE};

const char *element_name(int32_t element) {
  static const char *const names[] = {"auto", "f32", "f16", "bf16", "i8", "u8"};
  return element >= 0 && element <= ANN_U8 ? names[element] : "?";
}

const char *metric_name(int32_t metric) {
  static const char *const names[] = {"auto", "l2", "ip", "cosine"};
  return metric >= 0 && metric <= ANN_METRIC_COSINE ? names[metric] : "?";
}

size_t element_size(int32_t element) {
  return element == ANN_F32 ? 4 : element == ANN_F16 || element == ANN_BF16 ? 2 : 1;
}

int element_is_integer(int32_t element) { return element == ANN_I8 || element == ANN_U8; }

/* Binary16 by way of its definition: a value is a whole multiple of its ulp. */
static uint16_t f16_of(double value) {
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const double size = fabs(value);
  if (isnan(value)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  int exponent = 0;
  frexp(size, &exponent); /* size < 2^exponent */
  if (exponent < -13) exponent = -13;
  const double steps = nearbyint(ldexp(size, 11 - exponent)); /* ulp is 2^(exponent - 11) */
  if (steps < 1024) return sign | (uint16_t)steps;            /* subnormal */
  return (uint16_t)(sign + ((exponent + 13) << 10) + (uint16_t)steps);
}

static double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double size;
  if (exponent == 31)
    size = fraction ? NAN : INFINITY;
  else
    size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return bits & 0x8000 ? -size : size;
}

static uint16_t bf16_of(double value) {
  const float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, 4);
  if (isnan(narrow)) return (uint16_t)(bits >> 16 | 64);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double bf16_value(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

void put_value(int32_t element, void *place, double value) {
  const float f32 = (float)value;
  uint16_t half = 0;
  int8_t i8 = 0;
  uint8_t u8 = 0;
  switch (element) {
    case ANN_F32:
      memcpy(place, &f32, 4);
      break;
    case ANN_F16:
      half = f16_of(value);
      memcpy(place, &half, 2);
      break;
    case ANN_BF16:
      half = bf16_of(value);
      memcpy(place, &half, 2);
      break;
    case ANN_I8:
      i8 = (int8_t)fmax(-128, fmin(127, nearbyint(value)));
      memcpy(place, &i8, 1);
      break;
    default:
      u8 = (uint8_t)fmax(0, fmin(255, nearbyint(value)));
      memcpy(place, &u8, 1);
  }
}

double get_value(int32_t element, const void *place) {
  float f32;
  uint16_t half;
  switch (element) {
    case ANN_F32:
      memcpy(&f32, place, 4);
      return f32;
    case ANN_F16:
      memcpy(&half, place, 2);
      return f16_value(half);
    case ANN_BF16:
      memcpy(&half, place, 2);
      return bf16_value(half);
    case ANN_I8:
      return *(const int8_t *)place;
    default:
      return *(const uint8_t *)place;
  }
}

/* --- Vectors --------------------------------------------------------------------------------- */

static double suited(int32_t element, double value) {
  if (element == ANN_I8) return 40 * value;
  if (element == ANN_U8) return 128 + 40 * value;
  return value;
}

vectors vectors_make(int kind, int32_t element, uint64_t rows, uint32_t dim, uint64_t seed) {
  vectors set = {element, dim, rows, NULL};
  const size_t size = element_size(element);
  set.data = malloc(rows * dim * size + 1);
  uint64_t state = seed * 1000003 + 17;
  for (uint64_t row = 0; row < rows; row++) {
    uint64_t center = 0;
    double width = 1, spread = 0;
    if (kind == DATA_CLUSTERED) {
      center = 1 + row % 40, width = 0.02, spread = 2;
    } else if (kind == DATA_ISLANDS) {
      center = row % 97 == 13 ? 1000 + row : 1 + (row & 1), width = 0.01, spread = 2;
    } else if (kind == DATA_EQUAL) {
      width = 0, center = 1, spread = 1;
    }
    uint64_t center_state = seed * 7919 + center * 104729;
    for (uint32_t column = 0; column < dim; column++) {
      const double value = width * random_normal(&state) + spread * (random_unit(&center_state) - 0.5);
      put_value(element, set.data + (row * dim + column) * size, suited(element, value));
    }
  }
  return set;
}

void vectors_free(vectors *set) {
  free(set->data);
  set->data = NULL;
}

void *vectors_row(const vectors *set, uint64_t row) {
  return set->data + row * set->dim * element_size(set->element);
}

ann_matrix vectors_view(const vectors *set) {
  ann_matrix view = ANN_MATRIX_INIT;
  view.element = set->element;
  view.data = set->data;
  view.rows = set->rows;
  view.dim = set->dim;
  return view;
}

/* --- Oracle ---------------------------------------------------------------------------------- */

static double distance_of_values(int32_t metric, uint32_t dim, const double *a, const double *b, int integers,
                                 double *error) {
  double squares = 0, product = 0, product_size = 0, norm_a = 0, norm_b = 0;
  for (uint32_t i = 0; i < dim; i++) {
    const double x = a[i], y = b[i];
    squares += (x - y) * (x - y);
    product += x * y;
    product_size += fabs(x * y);
    norm_a += x * x;
    norm_b += y * y;
  }
  double distance, allowed;
  if (metric == ANN_METRIC_L2) {
    distance = squares;
    allowed = integers ? 0 : 4e-6 * squares + 1e-37;
  } else if (metric == ANN_METRIC_INNER_PRODUCT) {
    distance = -product;
    allowed = integers ? 0 : 4e-6 * product_size + 1e-37;
  } else {
    distance = norm_a == 0 || norm_b == 0 ? 1 : 1 - product / sqrt(norm_a) / sqrt(norm_b);
    allowed = norm_a == 0 || norm_b == 0 ? 0 : 4e-6;
  }
  if (integers && metric != ANN_METRIC_COSINE) distance = (float)distance;
  if (error) *error = allowed;
  return distance;
}

static void get_values(int32_t element, const void *data, uint64_t count, double *values) {
  const size_t size = element_size(element);
  for (uint64_t i = 0; i < count; i++) values[i] = get_value(element, (const unsigned char *)data + i * size);
}

double true_distance(int32_t metric, uint32_t dim, int32_t element_a, const void *a, int32_t element_b,
                     const void *b, double *error) {
  double x[dim + 1], y[dim + 1];
  get_values(element_a, a, dim, x);
  get_values(element_b, b, dim, y);
  const int integers = element_is_integer(element_a) && element_is_integer(element_b);
  return distance_of_values(metric, dim, x, y, integers, error);
}

/* All of a set's, to be freed. */
static double *values_of(const vectors *set) {
  double *values = malloc((set->rows * set->dim + 1) * sizeof *values);
  get_values(set->element, set->data, set->rows * set->dim, values);
  return values;
}

void true_neighbors(int32_t metric, const vectors *rows, const vectors *queries, uint32_t k, int skip_self,
                    uint64_t *ids, double *distances) {
  const uint32_t dim = rows->dim;
  const int integers = element_is_integer(rows->element) && element_is_integer(queries->element);
  double *stored = values_of(rows), *asked = values_of(queries);
  double *nearest = malloc((k + 1) * sizeof *nearest); /* by distance, and of equal ones by row */
  uint64_t *numbers = malloc((k + 1) * sizeof *numbers);
  for (uint64_t q = 0; q < queries->rows; q++) {
    uint32_t count = 0;
    for (uint64_t row = 0; row < rows->rows; row++) {
      if (skip_self && row == q) continue;
      const double distance =
          distance_of_values(metric, dim, stored + row * dim, asked + q * dim, integers, NULL);
      if (count == k && (k == 0 || !(distance < nearest[k - 1]))) continue;
      uint32_t place = count < k ? count++ : k - 1;
      for (; place > 0 && distance < nearest[place - 1]; place--) {
        nearest[place] = nearest[place - 1];
        numbers[place] = numbers[place - 1];
      }
      nearest[place] = distance;
      numbers[place] = row;
    }
    for (uint32_t i = 0; i < k; i++) {
      if (ids) ids[q * k + i] = i < count ? numbers[i] : ANN_ID_NONE;
      if (distances) distances[q * k + i] = i < count ? nearest[i] : INFINITY;
    }
  }
  free(stored);
  free(asked);
  free(nearest);
  free(numbers);
}

double recall_of(int32_t metric, const vectors *rows, const vectors *queries, uint32_t k,
                 const uint64_t *found) {
  const uint32_t wanted = k < rows->rows ? k : (uint32_t)rows->rows;
  if (wanted == 0 || queries->rows == 0) return 1;
  double *distances = malloc(queries->rows * k * sizeof *distances);
  true_neighbors(metric, rows, queries, k, 0, NULL, distances);
  uint64_t hits = 0;
  for (uint64_t q = 0; q < queries->rows; q++) {
    const double last = distances[q * k + wanted - 1];
    for (uint32_t i = 0; i < wanted; i++) {
      const uint64_t id = found[q * k + i];
      if (id >= rows->rows) continue;
      double error;
      const double distance = true_distance(metric, rows->dim, rows->element, vectors_row(rows, id),
                                            queries->element, vectors_row(queries, q), &error);
      hits += distance <= last + error;
    }
  }
  free(distances);
  return (double)hits / (double)(queries->rows * wanted);
}

/* --- Answers --------------------------------------------------------------------------------- */

answers answers_make(uint64_t rows, uint32_t k) {
  answers set = {rows, k, NULL, NULL, NULL, NULL};
  const size_t places = rows * k;
  set.ids = malloc(places * sizeof *set.ids + 1);
  set.distances = malloc(places * sizeof *set.distances + 1);
  set.counts = malloc(rows * sizeof *set.counts + 1);
  set.status = malloc(rows * sizeof *set.status + 1);
  memset(set.ids, 0xa5, places * sizeof *set.ids);
  memset(set.distances, 0xa5, places * sizeof *set.distances);
  memset(set.counts, 0xa5, rows * sizeof *set.counts);
  memset(set.status, 0xa5, rows * sizeof *set.status);
  return set;
}

void answers_free(answers *set) {
  free(set->ids);
  free(set->distances);
  free(set->counts);
  free(set->status);
}

ann_results answers_view(answers *set) {
  ann_results view = ANN_RESULTS_INIT;
  view.k = set->k;
  view.rows = set->rows;
  view.ids = set->ids;
  view.distances = set->distances;
  view.counts = set->counts;
  view.status = set->status;
  return view;
}

int answers_equal(const answers *a, const answers *b) {
  const size_t places = a->rows * a->k;
  return a->rows == b->rows && a->k == b->k && memcmp(a->ids, b->ids, places * sizeof *a->ids) == 0 &&
         memcmp(a->distances, b->distances, places * sizeof *a->distances) == 0 &&
         memcmp(a->counts, b->counts, a->rows * sizeof *a->counts) == 0 &&
         memcmp(a->status, b->status, a->rows * sizeof *a->status) == 0;
}

uint64_t answers_missed(const answers *exact, const answers *found) {
  uint64_t missed = 0;
  for (uint64_t q = 0; q < exact->rows; q++)
    for (uint32_t i = 0; i < exact->counts[q]; i++)
      missed += i >= found->counts[q] ||
                found->distances[q * found->k + i] > exact->distances[q * exact->k + exact->counts[q] - 1];
  return missed;
}

uint64_t answers_hash(uint64_t hash, const answers *set) {
  const size_t places = set->rows * set->k;
  hash = hash_bytes(hash, set->ids, places * sizeof *set->ids);
  hash = hash_bytes(hash, set->distances, places * sizeof *set->distances);
  hash = hash_bytes(hash, set->counts, set->rows * sizeof *set->counts);
  return hash_bytes(hash, set->status, set->rows * sizeof *set->status);
}

/* --- Calls ----------------------------------------------------------------------------------- */

static void tell(const char *call, const ann_error *error) {
  fprintf(stderr, "%s: %s: %s\n", call, ann_status_name(error->status), error->message);
}

ann_index *index_make(uint32_t dim, int32_t metric, int32_t element) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  ann_error error = ANN_ERROR_INIT;
  ann_index *index = NULL;
  shape.dim = dim;
  shape.metric = metric;
  shape.element = element;
  if (ann_index_create(NULL, &shape, &index, &error) == ANN_OK) return index;
  tell("ann_index_create", &error);
  return NULL;
}

ann_index *index_build(int32_t metric, const vectors *rows, const ann_build_params *params) {
  ann_index *index = index_make(rows->dim, metric, ANN_ELEMENT_AUTO);
  if (!index) return NULL;
  const ann_matrix view = vectors_view(rows);
  ann_error error = ANN_ERROR_INIT;
  if (ann_build(index, &view, NULL, params, NULL, &error) == ANN_OK) return index;
  tell("ann_build", &error);
  ann_index_free(index);
  return NULL;
}

ann_status index_search(const ann_index *index, const vectors *queries, int32_t procedure, uint32_t beam,
                        answers *found) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = procedure;
  params.beam = beam;
  const ann_matrix view = vectors_view(queries);
  ann_results results = answers_view(found);
  return ann_search_batch(index, &view, &params, &results, NULL, NULL);
}

uint32_t *index_edges(const ann_index *index, uint32_t *degree) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  if (ann_index_get_info(index, &info, NULL) != ANN_OK) return NULL;
  if (ann_index_graph(index, NULL, 0, degree, NULL) != ANN_OK) return NULL;
  const uint64_t places = info.rows * *degree;
  uint32_t *edges = malloc(places * sizeof *edges + 1);
  if (ann_index_graph(index, edges, places, degree, NULL) == ANN_OK) return edges;
  free(edges);
  return NULL;
}

uint64_t index_hash(const ann_index *index) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  uint32_t degree = 0;
  uint32_t *edges = index_edges(index, &degree);
  if (!edges || ann_index_get_info(index, &info, NULL) != ANN_OK) return 0;
  const uint64_t hash = hash_bytes(HASH_START, edges, info.rows * degree * sizeof *edges);
  free(edges);
  return hash;
}
