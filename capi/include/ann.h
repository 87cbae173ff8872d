/* ann.h: nearest neighbours of vectors, through one shared object.
 *
 * Gannet finds, among n stored vectors ("rows"), the k nearest to a query. It builds a
 * graph whose edges join near rows (CAGRA's: "CAGRA: Highly Parallel Graph Construction and
 * Approximate Nearest Neighbor Search for GPUs"), from a k-nearest-neighbour graph found by
 * comparing blocks of rows, or by NN-Descent as GNND does it ("Large-Scale Approximate k-NN Graph
 * Construction on GPU"). A search walks that graph. It reads a few hundred rows out of millions and
 * still finds nearly all true neighbours; how nearly is the one number that most callers set,
 * `recall`.
 *
 * A whole program:
 *
 *     ann_index_params shape = ANN_INDEX_PARAMS_INIT;
 *     shape.dim = 128;
 *     ann_index *index;
 *     ann_index_create(NULL, &shape, &index, NULL);
 *
 *     ann_matrix rows = ANN_MATRIX_INIT;
 *     rows.data = data; rows.rows = n; rows.dim = 128; rows.element = ANN_F32;
 *     ann_build(index, &rows, NULL, NULL, NULL, NULL);
 *
 *     ann_results found = ANN_RESULTS_INIT;
 *     found.ids = ids; found.distances = distances; found.rows = queries.rows; found.k = 10;
 *     ann_search_batch(index, &queries, NULL, &found, NULL, NULL);
 *     ann_index_free(index);
 *
 * The rules that hold for every function:
 *
 *   Status.    A function that can fail returns ann_status; 0 is success. With an `ann_error *` it
 *              also fills that struct; with NULL it does not. There is no last error kept anywhere,
 *              nothing is printed, nothing aborts, no C++ exception and no signal handler leaves
 *              the library. A thread that pthread_cancel ends, ends after its call, also where the
 *              call is in a callback. A limit on the size of files is ANN_IO and raises no signal.
 *   No change. A call that fails has changed nothing that the caller can see, except its
 *              `ann_error` and, where the entry says so, rows of results already written.
 *   Zero.      In every parameter zero means "choose for me". A NULL parameter struct is one of
 *              zeros. Where zero would be a legal choice, ANN_NONE (-1) says "none".
 *   Sizes.     Structs that cross start with `struct_size`, set by their _INIT macro. The library
 *              reads and writes at most that many bytes, so programs and libraries of different
 *              ages work together. A struct larger than the library knows is accepted if its tail
 *              is zero.
 *   Threads.   A handle passed as `const` may be used from any number of threads at once. A handle
 *              passed as non-const is used by one such call at a time: another answers ANN_BUSY
 *              where its entry says so. Searching while building is safe.
 *   Memory.    The caller owns the data it passes in; the library copies the data it keeps, unless
 *              ANN_ROWS_BORROW says otherwise. Results go to buffers of the caller. Handles of
 *              a `_create` are released by its `_free`, which accepts NULL.
 *   Fork.      A child process may search CPU indexes made before the fork, provided that no call
 *              was running on them then.
 *
 * The header is C99, C11 and C++, and includes two standard headers. No CUDA type crosses it.
 *
 * Sections: 1 version - 2 status and error - 3 elements and metrics - 4 views - 5 context -
 * 6 monitor - 7 devices - 8 index - 9 build - 10 search - 11 k-NN graphs - 12 files - 13 planned
 * functions and fields.
 */
#ifndef GANNET_ANN_H
#define GANNET_ANN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#if defined(__GNUC__)
#define ANN_API __attribute__((visibility("default")))
#else
#define ANN_API
#endif

/* ---------------------------------------------------------------------------------------------
 * 1  Version
 * ------------------------------------------------------------------------------------------ */

#define ANN_VERSION_MAJOR 0
#define ANN_VERSION_MINOR 1
#define ANN_VERSION_PATCH 0

/* The version of the binary interface that this header describes. Additions raise the low 16 bits,
 * anything else the high 16. A program compares its ANN_ABI_VERSION >> 16 with that of the library
 * it opened: equal means compatible. */
#define ANN_ABI_VERSION 0x00000013u

/* A pointer to nothing in the _INIT macros, so that C++ does not take zero for one. */
#if !defined(__cplusplus)
#define ANN_NULL ((void *)0)
#elif __cplusplus >= 201103L
#define ANN_NULL nullptr
#else
#define ANN_NULL 0L
#endif

/* "none" where zero means "choose for me". */
#define ANN_NONE (-1)

/* Marks a result that does not exist; never the id of a row. */
#define ANN_ID_NONE UINT64_MAX

/* The version as "major.minor.patch". The text lives as long as the library. Any thread. */
ANN_API const char *ann_version(void);

/* ANN_ABI_VERSION of the library itself. Any thread. */
ANN_API uint32_t ann_abi_version(void);

/* A description of the build, for bug reports: compiler, CUDA toolkit and architectures or
 * "no CUDA", and the instruction set that this process uses ("avx512vnni", "avx512", "avx2", "neon"
 * or "portable"). The text lives as long as the library. Any thread; touches no device. */
ANN_API const char *ann_build_info(void);

/* ---------------------------------------------------------------------------------------------
 * 2  Status and error
 * ------------------------------------------------------------------------------------------ */

/* Outcome of a call. Values are never reused. The class is value / 100. */
typedef int32_t ann_status;
enum {
  ANN_OK = 0,

  /* 1xx: the caller's arguments. */
  ANN_INVALID_ARGUMENT = 100, /* null, out of range, mismatched; the text says which and why */
  ANN_LIMIT = 101,            /* legal, but above a limit stated here or in a parameter */
  ANN_UNSUPPORTED = 102,      /* legal, but this library, index or device does not do it */
  ANN_NOT_FINITE = 103,       /* NaN or infinity in a vector */

  /* 2xx: the state of a handle. */
  ANN_STATE = 200, /* not in this state: search before build, build after build */
  ANN_BUSY = 201,  /* another call that changes the same handle is running */

  /* 3xx: memory. */
  ANN_NO_MEMORY = 300,
  ANN_DEVICE_NO_MEMORY = 301,

  /* 4xx: devices. */
  ANN_NO_DEVICE = 400,   /* no such device, or no driver for it */
  ANN_DEVICE_LOST = 401, /* a fault ended this process's use of CUDA; CPU indexes go on */

  /* 5xx: files. */
  ANN_IO = 500,      /* the system refused to read or write; os_error says why */
  ANN_CORRUPT = 501, /* the file is damaged, cut, or no file of an index */
  ANN_VERSION = 502, /* the file is in order, but of a format that this library does not know */

  /* 6xx: the caller's own wish, through a monitor. */
  ANN_CANCELLED = 600,
  ANN_DEADLINE = 601,

  /* 7xx: a defect of the library. Please report it. */
  ANN_INTERNAL = 700
};

/* The name of a status, as "ANN_OK"; "unknown status" for any other number. Any thread. */
ANN_API const char *ann_status_name(ann_status status);

/* Where and why a call failed. The caller owns it, the call that gets it fills it (ANN_OK and an
 * empty message on success). */
typedef struct ann_error {
  uint32_t struct_size;
  ann_status status;
  uint64_t row;       /* row of the vector at fault, else UINT64_MAX */
  uint64_t column;    /* column of the value at fault, else UINT64_MAX */
  int32_t os_error;   /* errno, where the system refused something, else 0 */
  int32_t cuda_error; /* cudaError_t, where CUDA did, else 0 */
  char message[256];  /* one line of UTF-8: parameter, value, allowed range. Bytes of a path
                         that are not UTF-8 are replaced by question marks. */
} ann_error;
#define ANN_ERROR_INIT {sizeof(ann_error), 0, 0, 0, 0, 0, {0}}

/* ---------------------------------------------------------------------------------------------
 * 3  Elements and metrics
 * ------------------------------------------------------------------------------------------ */

/* The type of one coordinate. */
enum {
  ANN_ELEMENT_AUTO = 0, /* the element of the matrix given to ann_build */
  ANN_F32 = 1,          /* IEEE binary32 */
  ANN_F16 = 2,          /* IEEE binary16 */
  ANN_BF16 = 3,         /* the upper half of a binary32 */
  ANN_I8 = 4,
  ANN_U8 = 5
};

/* How far apart two vectors are. Smaller is nearer for all of them.
 *   L2              sum (x - q)^2, the squared Euclidean distance.
 *   INNER_PRODUCT   - sum x q, so that the largest product comes first.
 *   COSINE          1 - sum x q / (|x| |q|), in [0, 2]. A zero vector is at distance 1 from
 *                   everything, itself included.
 * Reported distances are computed on the stored rows, never on codes; they are sums in 32-bit
 * floating point (exact 32-bit integers for ANN_I8 and ANN_U8) and equal bit for bit on every CPU.
 * A sum above the range of a float is +infinity and sorts last. */
enum {
  ANN_METRIC_AUTO = 0, /* L2 */
  ANN_METRIC_L2 = 1,
  ANN_METRIC_INNER_PRODUCT = 2,
  ANN_METRIC_COSINE = 3
};

/* A switch with a default: zero leaves it to the library. */
enum { ANN_SWITCH_AUTO = 0, ANN_ON = 1, ANN_OFF = 2 };

/* Limits. Exceeding one gives ANN_LIMIT, before any memory is taken. */
#define ANN_DIM_MAX 32768u       /* columns of a row */
#define ANN_ROWS_MAX 2147483646u /* rows of one index */
#define ANN_DEGREE_MAX 256u      /* edges of a row of a search graph; k-NN lists have up to twice as many */
#define ANN_KNN_DEGREE_MAX 1024u /* rows of a k-NN list that a build is given, or finds by comparing every
                                    pair on the CPU, for ANN_GRAPH_TSDG */
#define ANN_BEAM_MAX 65536u      /* length of a search's beam */

/* ---------------------------------------------------------------------------------------------
 * 4  Views
 * ------------------------------------------------------------------------------------------ */

/* Where memory is. `space` 0 is host memory, ANN_DEVICE_CUDA + i the memory of CUDA device i: memory of
 * cudaMalloc, cudaMallocAsync and the like there, or managed memory. Host memory is accepted
 * everywhere; device memory for the rows of ann_build, its calibration queries and ann_knn_graph, and
 * for queries together with results of the two searches. Pointers are checked before anything is done:
 * host memory called device memory, or memory of another device, gives ANN_INVALID_ARGUMENT. (Device
 * memory called host memory cannot be detected on the CPU's way and ends the process.) */

/* Vectors of the caller, one a row. Any alignment is accepted. The memory must stay valid and
 * unchanged during the call (and beyond it where ANN_ROWS_BORROW says so, or where a search was given a
 * stream). */
typedef struct ann_matrix {
  uint32_t struct_size;
  int32_t element;     /* ANN_F32 ... ANN_U8; no default */
  const void *data;    /* [rows, dim]; may be NULL if rows is 0 */
  uint64_t rows;       /* 0 to ANN_ROWS_MAX */
  uint32_t dim;        /* 1 to ANN_DIM_MAX */
  int32_t space;       /* 0: host memory; ANN_DEVICE_CUDA + i: memory of CUDA device i */
  uint64_t row_stride; /* bytes from a row to the next; 0: dim elements, packed */
} ann_matrix;
#define ANN_MATRIX_INIT {sizeof(ann_matrix), 0, ANN_NULL, 0, 0, 0, 0}

/* Buffers of the caller for the neighbours of `rows` queries, `k` a query: element [q, i] is at
 * q * k + i. Nearest first, equal distances by ascending id. A query with fewer than k neighbours
 * is filled up with ANN_ID_NONE and +infinity. The buffers must not overlap each other or the
 * queries; they may lie behind the last query's values within its stride. */
typedef struct ann_results {
  uint32_t struct_size;
  uint32_t k;            /* neighbours wanted for each query, at least 1; no default. A search by graph
                            finds at most ANN_BEAM_MAX; an exact one as many as there are rows. */
  uint64_t rows;         /* queries that the buffers hold; must equal the matrix's rows */
  uint64_t *ids;         /* [rows, k]; required if rows > 0 */
  float *distances;      /* [rows, k]; may be NULL */
  uint32_t *counts;      /* [rows] neighbours found, at most k; may be NULL */
  ann_status *status;    /* [rows] ANN_OK, or ANN_NOT_FINITE for a query with NaN or infinity, which
                            has no neighbours and disturbs no other; may be NULL */
  uint64_t distance_count;  /* out: distances that were computed for all queries together */
  uint64_t expansion_count; /* out: rows whose edges were read, for all queries together. Both are 0
                               where a stream was given: they are not known yet. */
  int32_t space;         /* where the four buffers lie; must equal the matrix's space */
  int32_t reserved;      /* zero */
  int32_t procedure;     /* out: the procedure that answered, ANN_SEARCH_*; EXACT where every row was
                            compared, whatever was asked for */
  float recall;          /* out: the recall that calibration promises of this search for queries
                            distributed like the rows or like `calibration`; 1 where every row was
                            compared, 0 where nothing has been measured. By AUTO without a beam never
                            less than was asked for, where there is a calibration. */
  uint32_t warps_per_query; /* out: where TWO_LISTS answered, the warps that walked for a query: 1, 8 or 16;
                               else 0 */
  uint32_t reserved_2;      /* zero */
} ann_results;
#define ANN_RESULTS_INIT \
  {sizeof(ann_results), 0, 0, ANN_NULL, ANN_NULL, ANN_NULL, ANN_NULL, 0, 0, 0, 0, 0, 0, 0, 0}

/* ---------------------------------------------------------------------------------------------
 * 5  Context: where memory comes from (optional; NULL means the defaults everywhere)
 * ------------------------------------------------------------------------------------------ */

typedef struct ann_context ann_context;

/* Settings of a context. `allocate` returns `bytes` of memory aligned to `alignment` (a power of
 * two, at most 4096), or NULL; `release` takes back that memory, with the same sizes. Both may
 * be called on any thread, must not call the library and must not unwind. Both or neither are
 * given; neither means the C library's. They serve everything whose size depends on data.
 * Handles, error texts and a call's notes of its threads, less than 2 KB for each of them, come from
 * C++'s own operator new, whose failure is reported as ANN_NO_MEMORY just the same. The tables of a copy on a
 * CUDA device do so too, less than 128 KB however large it is. */
typedef struct ann_context_params {
  uint32_t struct_size;
  uint32_t threads_max; /* no call uses more threads than this; 0: the hardware's number */
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *memory, size_t bytes, size_t alignment);
  void *user;
} ann_context_params;
#define ANN_CONTEXT_PARAMS_INIT {sizeof(ann_context_params), 0, ANN_NULL, ANN_NULL, ANN_NULL}

/* Makes a context. Errors: ANN_INVALID_ARGUMENT, ANN_NO_MEMORY. */
ANN_API ann_status ann_context_create(const ann_context_params *params, ann_context **out,
                                      ann_error *error);

/* Lets go of a context. Indexes made with it keep the parts they need: any order is right. */
ANN_API void ann_context_free(ann_context *context);

/* ---------------------------------------------------------------------------------------------
 * 6  Monitor: progress, cancelling and deadlines (optional)
 * ------------------------------------------------------------------------------------------ */

/* One long call at a time reports to a monitor (two at once do no harm and share its cancel and
 * deadline, but mix their progress); other threads read and cancel it. All functions
 * but create and free may be called from any thread, cancel also from a signal handler. A monitor
 * must outlive the calls that use it. */
typedef struct ann_monitor ann_monitor;

/* The progress of a call. `fraction` never falls during a call. */
typedef struct ann_progress {
  uint32_t struct_size;
  uint32_t step;       /* place of the phase in the call, from 1; 0: nothing has run */
  double fraction;     /* of the whole call, 0 to 1 */
  const char *phase;   /* "copy", "k-NN graph", ...; lives as long as the library; never NULL */
} ann_progress;
#define ANN_PROGRESS_INIT {sizeof(ann_progress), 0, 0, ANN_NULL}

/* Makes a monitor. Errors: ANN_INVALID_ARGUMENT, ANN_NO_MEMORY. */
ANN_API ann_status ann_monitor_create(ann_monitor **out, ann_error *error);
ANN_API void ann_monitor_free(ann_monitor *monitor);

/* Asks the running call, and every later one, to stop: it returns ANN_CANCELLED within 100 ms.
 * Stays until ann_monitor_reset. NULL is ignored. */
ANN_API void ann_monitor_cancel(ann_monitor *monitor);

/* Takes back cancel, deadline and progress. NULL is ignored. */
ANN_API void ann_monitor_reset(ann_monitor *monitor);

/* Calls return ANN_DEADLINE once `nanoseconds` from now have passed; 0 takes the deadline back.
 * NULL is ignored. */
ANN_API void ann_monitor_set_deadline(ann_monitor *monitor, uint64_t nanoseconds);

/* Reads the progress. Errors: ANN_INVALID_ARGUMENT. */
ANN_API ann_status ann_monitor_progress(const ann_monitor *monitor, ann_progress *out,
                                        ann_error *error);

/* ---------------------------------------------------------------------------------------------
 * 7  Devices
 * ------------------------------------------------------------------------------------------ */

/* Device numbers: ANN_DEVICE_CUDA + i is CUDA device i. AUTO is the CPU, except for searches whose queries
 * are in device memory, which run there. In the environment GANNET_BACKEND=cpu hides CUDA devices, =cuda
 * makes AUTO mean the first of them where the call has a CUDA procedure (builds, k-NN graphs, searches).
 *
 * The first search by graph on a CUDA device copies the index there (codes, edges and, where answers
 * are not computed on codes alone, rows) and calibrates it for the device, which takes 0.05 to some
 * seconds; ANN_DEVICE_NO_MEMORY leaves the index as it was. A build on a CUDA device leaves such a copy
 * there, calibrated if it calibrates at all, where the device's memory holds one. Both calibrate for 10 and
 * 100 neighbours; the first search for another number, ann_index_place or ann_save does so for all
 * numbers, in 0.03 to 0.3 s. Copies are kept until ann_index_evict or ann_index_free. Several devices may hold
 * copies of one index. */
enum { ANN_DEVICE_AUTO = 0, ANN_DEVICE_CPU = 1, ANN_DEVICE_CUDA = 2 };

typedef struct ann_device_info {
  uint32_t struct_size;
  int32_t device;          /* ANN_DEVICE_CPU, ANN_DEVICE_CUDA + i */
  uint64_t memory_total;   /* bytes */
  uint64_t memory_free;    /* bytes, at the moment of asking */
  uint32_t compute_units;  /* hardware threads, or multiprocessors */
  uint32_t capability;     /* CUDA: 10 * major + minor; CPU: 0 */
  char name[128];
} ann_device_info;
#define ANN_DEVICE_INFO_INIT {sizeof(ann_device_info), 0, 0, 0, 0, 0, {0}}

/* Number of devices, the CPU counted, so at least 1. This calls the CUDA driver, which costs some
 * 100 ms at first and makes CUDA unusable in children forked later; nothing on the CPU path does that.
 * `reason` may be NULL; else it gets a text, alive as long as the library, that says why there is
 * no CUDA device, or "" if there is one. Any thread. Errors: ANN_INVALID_ARGUMENT. */
ANN_API ann_status ann_device_count(uint32_t *count, const char **reason, ann_error *error);

/* Describes a device. ANN_DEVICE_CPU touches no driver. Errors: ANN_INVALID_ARGUMENT,
 * ANN_NO_DEVICE. Any thread. */
ANN_API ann_status ann_device_get_info(int32_t device, ann_device_info *out, ann_error *error);

/* ---------------------------------------------------------------------------------------------
 * 8  Index: life and state
 * ------------------------------------------------------------------------------------------ */

typedef struct ann_index ann_index;

/* The shape of an index, fixed for its life. */
typedef struct ann_index_params {
  uint32_t struct_size;
  uint32_t dim;    /* columns, 1 to ANN_DIM_MAX; no default */
  int32_t metric;  /* ANN_METRIC_*; default L2 */
  int32_t element; /* as stored; default: that of the rows. Float rows may be stored as another float
                      type, rounded to nearest even; i8 and u8 only as themselves or, exactly, as a
                      float type that holds every value. */
} ann_index_params;
#define ANN_INDEX_PARAMS_INIT {sizeof(ann_index_params), 0, 0, 0}

/* Makes an empty index. `context` may be NULL. Errors: ANN_INVALID_ARGUMENT, ANN_LIMIT,
 * ANN_NO_MEMORY. */
ANN_API ann_status ann_index_create(const ann_context *context, const ann_index_params *params,
                                    ann_index **out, ann_error *error);

/* Frees an index; waits for calls that run on it and for searches that are queued on streams. No call
 * may begin on it afterwards. */
ANN_API void ann_index_free(ann_index *index);

/* State of an index. */
typedef struct ann_index_info {
  uint32_t struct_size;
  uint32_t dim;
  int32_t metric;
  int32_t element;       /* as stored; ANN_ELEMENT_AUTO before the build if it was left open */
  int32_t built;         /* 0 or 1 */
  int32_t graph;         /* ANN_GRAPH_*; 0 before the build */
  uint64_t rows;
  uint32_t degree;       /* edges per row of the search graph */
  uint32_t entry_points; /* rows where searches may start */
  uint64_t memory_bytes; /* host memory held, the caller's borrowed rows not counted */
  uint64_t seed;
  double build_seconds;      /* wall time of ann_build, calibration included; 0 if opened from a file */
  double calibrate_seconds;  /* of that, calibration */
  float recall_max;          /* the highest mean recall@10 seen while calibrating; 0: none was made */
  uint32_t repaired_edges;   /* edges spent to make every row reachable */
  uint32_t knn_iterations;   /* rounds that NN-Descent ran, or rounds of neighbours' neighbours that
                                cells needed; 0: another way or none */
  float knn_share;           /* share of the true neighbours of a sample of rows, by distances of the rows,
                                that the lists under the graph hold, 0 to 1, if cells made them; 0: not
                                measured, or opened from a file */
  int32_t codes;             /* ANN_CODES_*; 0 without a graph */
  uint32_t code_centres;     /* of ANN_CODES_SCALED, 1 to 256; else 0 */
  uint32_t code_bytes;       /* that a walk of the CPU reads of a row */
  float code_first_ten;      /* share of the true 10 nearest of a sample of rows, or by inner product of the
                                given calibration, that are among the first 10 by code, 0 to 1, as the build
                                measured it; an index and its file keep it. Negative: not measured, or
                                the file is older than 1.5. 0 without a graph */
  float code_first_twenty;   /* among the first 20, of which searches compare the best as stored */
  float code_worst_twenty;   /* the same of the worst tenth of the sample */
} ann_index_info;
#define ANN_INDEX_INFO_INIT \
  {sizeof(ann_index_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
/* The form of rows that walks compare. */
enum {
  ANN_CODES_NONE = 0,
  ANN_CODES_ROWS = 1,   /* rows of u8 and i8 under squared L2, which are their own codes */
  ANN_CODES_BYTES = 2,  /* a byte a column, one step for all rows */
  ANN_CODES_FLOATS = 3, /* floats, where bytes cannot tell near rows apart. Walks of the CPU compare rows of f16 by
                           squared L2, of 64 columns and more, as they are stored; of others from 17 columns on, by L2 and
                           cosine, halves of the floats, if a build on the CPU finds that these order the rows: the index
                           and its file keep both, and `code_bytes` is half of that of the floats, two thirds at most */
  ANN_CODES_SCALED = 4, /* by inner product: a byte a column, a scale for each row about a centre */
  ANN_CODES_PROJECTED = 5 /* by squared L2 and cosine, of 193 to 4096 columns, where a build on the CPU finds that fewer
                             bytes order the rows: walks of the CPU compare a projection of a row's bytes, `code_bytes`
                             of them, 64 to 512, which the index and its file keep beside those bytes; devices compare
                             the bytes */
};

/* Reads the state, built or not. Errors: ANN_INVALID_ARGUMENT. */
ANN_API ann_status ann_index_get_info(const ann_index *index, ann_index_info *out,
                                      ann_error *error);

/* Copies the vector with `id` to `vector`, [dim] of the stored element, and writes 1 to `found`; 0
 * and nothing if no row has the id. `vector` may be NULL to ask only; `capacity` is its size in
 * bytes. Errors: ANN_INVALID_ARGUMENT (also: capacity too small), ANN_STATE before the build,
 * ANN_CORRUPT as ann_search_batch. */
ANN_API ann_status ann_index_get(const ann_index *index, uint64_t id, void *vector,
                                 uint64_t capacity, int32_t *found, ann_error *error);

/* Copies the vectors of `count` ids, in any order and as often as they are named: `vectors` is
 * [count, dim] of the stored element, packed, and `capacity` its size in bytes; `found` is [count], 1
 * where a row has the id, else 0, and that place of `vectors` stays as it was. `vectors` may be NULL to
 * ask only. `found` may be NULL where every id is there for certain: an id without a row is then
 * refused, with its place in `row` of the error, before anything is written. Any thread. Errors:
 * ANN_INVALID_ARGUMENT (also: capacity too small), ANN_STATE before the build, ANN_CORRUPT as
 * ann_search_batch, with some vectors written. */
ANN_API ann_status ann_index_get_batch(const ann_index *index, const uint64_t *ids, uint64_t count,
                                       void *vectors, uint64_t capacity, int32_t *found,
                                       ann_error *error);

/* Copies the ids of the rows `first` to `first + count - 1` to `ids`, [count], in the order of the rows
 * of ann_build, which is that of ann_index_graph too; an index built without ids has row numbers. All of
 * them: `first` 0 and `count` the `rows` of ann_index_info; pieces of any length make the same list.
 * `ids` may be NULL if count is 0. Any thread. Errors: ANN_INVALID_ARGUMENT (also: rows beyond the
 * last), ANN_STATE before the build, ANN_CORRUPT as ann_search_batch, with some ids written. */
ANN_API ann_status ann_index_ids(const ann_index *index, uint64_t first, uint64_t count, uint64_t *ids,
                                 ann_error *error);

/* Copies the search graph: `edges` is [rows, degree] row numbers (not ids), UINT32_MAX in unused
 * places, `capacity` its size in edges. With `edges` NULL only `degree` is written. Errors:
 * ANN_INVALID_ARGUMENT, ANN_STATE before the build, ANN_UNSUPPORTED without a graph, ANN_CORRUPT as
 * ann_search_batch. */
ANN_API ann_status ann_index_graph(const ann_index *index, uint32_t *edges, uint64_t capacity,
                                   uint32_t *degree, ann_error *error);

/* How well a search can move on the graph (CAGRA, section III-A, uses the same measures). */
typedef struct ann_graph_stats {
  uint32_t struct_size;
  uint32_t degree;
  uint64_t rows;
  uint64_t edges;                 /* places used */
  uint64_t unreachable;           /* rows that no path from an entry point reaches */
  uint64_t weak_components;       /* parts, edges taken both ways */
  uint64_t strong_components;     /* parts in which each row reaches each other */
  uint64_t largest_strong;        /* rows of the largest of those */
  uint32_t in_degree_min;
  uint32_t in_degree_max;
  double two_hop_mean;            /* mean number of distinct rows within two edges, over a sample of
                                     `two_hop_rows` rows */

  /* Of ANN_GRAPH_TSDG, edges of all rows together after each stage; 0 of other graphs, and of an index opened
   * from a file, which does not keep them. */
  uint64_t knn_edges;             /* of the k-NN lists */
  uint64_t relaxed_edges;         /* that stage one has kept */
  uint64_t joined_edges;          /* with reverse edges, the nearest of a hub's */
  uint64_t soft_edges;            /* with an occlusion factor below `occlusion_bound`, before rows are cut at
                                     `degree` */
  uint32_t occlusion_levels;      /* distinct occlusion factors of edges, kept in files too: a row's
                                     edges have factors from 0 to one less. 0: edges have no factors */
  uint32_t reserved;              /* zero */

  uint32_t two_hop_rows;          /* set before the call: rows that two_hop_mean is of, 0: 1,000; at most the rows
                                     of the graph (UINT32_MAX: all, as in the paper, which takes
                                     some seconds for a million). It stays as it is */
  uint32_t reserved_2;            /* zero */
} ann_graph_stats;
#define ANN_GRAPH_STATS_INIT {sizeof(ann_graph_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Measures the graph; takes time and memory in proportion to its edges. Errors: as
 * ann_index_graph, and ANN_NO_MEMORY. */
ANN_API ann_status ann_index_graph_stats(const ann_index *index, ann_graph_stats *out,
                                         ann_error *error);

/* Copies a built index with a graph to a CUDA device (ANN_DEVICE_CUDA + i) and calibrates it there,
 * for any k, now rather than at the first searches; nothing where both have been done already. It takes as much
 * device memory as codes and edges, and as the rows where codes are lossy. An index that a device of the
 * same compute capability and number of multiprocessors has calibrated is not calibrated again: it keeps the
 * curves of up to 16 such classes, and so does its file. Any thread; searches go on meanwhile. `monitor` may
 * be NULL. Errors: ANN_INVALID_ARGUMENT, ANN_STATE before the build, ANN_UNSUPPORTED without a graph,
 * ANN_NO_DEVICE, ANN_NO_MEMORY, ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CORRUPT as ann_search_batch,
 * ANN_CANCELLED, ANN_DEADLINE; nothing is kept on the device then. */
ANN_API ann_status ann_index_place(const ann_index *index, int32_t device, ann_monitor *monitor,
                                   ann_error *error);

/* Releases the memory of that copy once the searches that use it are done, those queued on streams
 * too, and with it the device memory that the library keeps for later calls; nothing where there is
 * no copy. A later search on the device copies the index anew. Any thread. Errors: ANN_INVALID_ARGUMENT,
 * ANN_STATE before the build. */
ANN_API ann_status ann_index_evict(const ann_index *index, int32_t device, ann_error *error);

/* ---------------------------------------------------------------------------------------------
 * 9  Build
 * ------------------------------------------------------------------------------------------ */

/* The graph that searches walk. */
enum {
  ANN_GRAPH_AUTO = 0,  /* a variation on CAGRA's graph: shorter lists, by cells; detours by their nearer
                          entries only; then repaired, so that searches reach every row. An index and a file call
                          it ANN_GRAPH_CAGRA too: it is searched in the same way */
  ANN_GRAPH_CAGRA = 1, /* CAGRA's graph as its paper has it (section III): lists of three times the degree by
                          NN-Descent, pruned by detours over whole lists, then reverse edges; no repair */
  ANN_GRAPH_NONE = 2,  /* rows only; ann_search_exact answers */
  ANN_GRAPH_GGNN = 3,  /* GGNN's hierarchy of k-NN graphs with symmetric links (its section 5), equal from any
                          device; searches start from its whole top layer. It finds its neighbours itself */
  ANN_GRAPH_TSDG = 4,  /* k-NN graph diversified in two stages, rows of varying length ("Graph-based
                          Approximate NN Search: A Revisit", section 3). With the default lists of 200 rows a
                          build takes some times longer than CAGRA's. A CUDA device finds its k-NN graph
                          and diversifies it, with the graph that the CPU makes of equal lists. */
  ANN_GRAPH_GIVEN = 5  /* a finished search graph, in the place of the lists of ANN_KNN_GIVEN: `knn_degree`
                          edges a row, 2 to ANN_DEGREE_MAX, best first. It is checked, calibrated and saved;
                          an index and a file call it ANN_GRAPH_CAGRA, as which it is searched */
};

/* To get the graph of CAGRA's paper, build with ANN_GRAPH_CAGRA, or change one thing of a graph at a time:
 *
 *   the paper's (section III)               ANN_GRAPH_CAGRA        ANN_GRAPH_AUTO         set
 *   k-NN graph by NN-Descent                as the paper           exact, or by cells     knn
 *   d_init = 2 d or 3 d                     3 degree, at most      1.5 degree, at most    knn_degree
 *                                           ANN_DEGREE_MAX         ANN_DEGREE_MAX
 *   detours by whole lists                  WHOLE                  NEAR                   detours
 *   edges reordered by rank, not distance   RANK                   RANK                   reorder
 *   d/2 of reverse and pruned edges         as the paper           as the paper           -
 *   no repair                               off                    on                     repair
 *   starts drawn at random, M, p            by the search: ANN_SEARCH_CAGRA, beam, search_width
 *   FP16                                    element ANN_F16, compare ANN_COMPARE_STORED
 *   2-hop counts of all rows                two_hop_rows UINT32_MAX of ann_graph_stats
 *
 * By inner product both graphs get edges to large products beside those of near rows. */

/* The entries of each k-NN list that detours go by: of AUTO's and CAGRA's graph an edge from x to y counts a detour
 * for each z such that the edges from x to z and from z to y are both shorter, or of better ranks. */
enum {
  ANN_DETOURS_AUTO = 0, /* NEAR for ANN_GRAPH_AUTO, WHOLE for ANN_GRAPH_CAGRA */
  ANN_DETOURS_NEAR = 1, /* the first `degree` */
  ANN_DETOURS_WHOLE = 2 /* all: several times the work of a phase that is a small part of a build */
};

/* The order by which one of two edges is the shorter one there. */
enum {
  ANN_REORDER_AUTO = 0,    /* RANK */
  ANN_REORDER_RANK = 1,    /* their places in the lists of their rows */
  ANN_REORDER_DISTANCE = 2 /* their code distances, 4 more bytes for each entry of the lists */
};

/* How ANN_GRAPH_TSDG diversifies: the paper's way, and those of its Table 2. All append the reverse of the edges
 * that they keep. */
enum {
  ANN_DIVERSIFY_AUTO = 0, /* TSDG */
  ANN_DIVERSIFY_TSDG = 1, /* an edge goes that one kept before it occludes with `alpha`; then occlusion factors
                             are counted, against all edges of the row, and order the edges */
  ANN_DIVERSIFY_GD = 2,   /* an edge goes that one kept before it occludes; no factors, and `degree` the
                             nearest stay, as with all that follow */
  ANN_DIVERSIFY_DPG = 3,  /* the half of each list stays that the fewest others occlude */
  ANN_DIVERSIFY_SSG = 4,  /* of a row's neighbours and theirs, those stay that are at least `angle` apart */
  ANN_DIVERSIFY_VAMANA = 5 /* RobustPrune of DiskANN, of k-NN lists, with `alpha` */
};

/* How the k-NN graph under it is found. */
enum {
  ANN_KNN_AUTO = 0,       /* exact up to 4,096 rows; above, cells */
  ANN_KNN_NN_DESCENT = 1, /* GNND, Algorithm 1; with fewer than 4 rows for each place of a list every
                             pair is compared instead */
  ANN_KNN_EXACT = 2,      /* every pair; n^2 distances */
  ANN_KNN_GIVEN = 3,      /* `knn_graph` holds it */
  ANN_KNN_CELLS = 4,      /* every row is compared with the k-means cells around it, so that about
                             0.97 of its true neighbours are found. A sample of rows is compared with
                             all: where it falls short, neighbours of neighbours follow, and
                             NN-Descent where that does not help. Times of both are in
                             tests/bench/results.csv. The CPU and CUDA devices use different algorithms: their
                             lists are as good, but not the same. Sets that are too small for
                             NN-Descent are compared pair by pair here too. */
  ANN_KNN_GGNN = 5        /* for ann_knn_graph alone: GGNN's build for twice as many neighbours (its section
                             6.2.4), approximate, or every pair as above. CPU and CUDA devices give equal lists */
};

/* Whose memory the rows live in. */
enum {
  ANN_ROWS_AUTO = 0, /* copy */
  ANN_ROWS_COPY = 1,
  ANN_ROWS_BORROW = 2 /* the caller keeps them unchanged until ann_index_free; the stored element is
                         theirs */
};

/* The quantity that GGNN's slack xi = tau * min(d_1, d_nn1) is added to, in a build's queries and in searches: rows
 * are still expanded so far beyond d_k, the distance of the last of a query's best rows.
 *   DISTANCES  up to d_k + xi, as the paper's text has it
 *   SQUARES    up to the root of d_k^2 + xi^2, as its authors' code has it: with the same tau a fifth as far */
enum {
  ANN_SLACK_AUTO = 0, /* DISTANCES */
  ANN_SLACK_DISTANCES = 1,
  ANN_SLACK_SQUARES = 2
};

typedef struct ann_build_params {
  uint32_t struct_size;
  int32_t graph;       /* ANN_GRAPH_* */
  int32_t knn;         /* ANN_KNN_* */
  int32_t device;      /* ANN_DEVICE_*; the same graph comes from all of them, except by cells, whose
                          graphs on the CPU and on CUDA devices are as good, there with more edges where
                          `degree` says so, and except for the edges of `repair` from island to island
                          and to missed rows, which go by walks; each calibrates itself. On a CUDA
                          device the k-NN graph and the search graph are made in its memory, and
                          the copy that stays there is calibrated there. What the CPU's searches need is
                          then calibrated by the first call that wants it, in some tenths of a second
                          and with a second copy of the edges meanwhile, if memory holds it: a search on
                          the CPU, ann_save, ann_index_beam, and on a device a search with a beam, or that
                          goes by the CPU's beam (`recall` of ann_search_params). */
  int32_t rows_mode;   /* ANN_ROWS_* */
  uint32_t degree;     /* edges per row of the search graph, 2 to ANN_DEGREE_MAX; default 32, of
                          ANN_GRAPH_AUTO 48 for 100,000 rows or more of at most 256 columns, but not by inner
                          product nor where a `knn_degree` below 48 is given. A CUDA device that builds by
                          cells makes 64 of these 48 where neighbours are hard to tell apart (a local intrinsic
                          dimension of 22 and more by its lists, which must have 64). More: higher recall at a beam,
                          slower steps, 4 bytes a row each. For TSDG the edges of the longest row, default
                          128: a CUDA device pads rows to it. */
  uint32_t knn_degree; /* neighbours per row of the k-NN graph, degree to 2 ANN_DEGREE_MAX; default
                          1.5 times the degree, by cells 64 for degrees of 43 to 48, on CUDA devices to 64, of
                          ANN_GRAPH_CAGRA 3 times the degree, and ANN_DEGREE_MAX where that is less.
                          More: better graph, build time grows, by cells on a device above 64
                          several times. For TSDG 1 to 2 ANN_DEGREE_MAX, or ANN_KNN_DEGREE_MAX where it is
                          given or every pair is compared on the CPU; default 200. */
  uint32_t samples;    /* GNND's p: new and old neighbours of a row that meet in one round, 2 to 64,
                          at most knn_degree; default 16 */
  uint32_t iterations; /* rounds of NN-Descent at most, 1 to 1,000; default 24 */
  float convergence;   /* NN-Descent ends when fewer than this share of all list entries are new, in
                          (0, 1); default 0.02 */
  uint64_t seed;       /* of every random choice; default 1. Equal input and seed give an equal
                          index, whatever the threads and the CPU; and the device, except as `device`
                          says. */
  uint32_t threads;    /* default: as many as the hardware has */
  int32_t repair;      /* ANN_SWITCH: give unreachable rows an edge and, by L2 and cosine but for GGNN, TSDG
                          and given graphs, edges from island to island where searches do not find
                          rows, and an edge to rows of a sample that short walks miss; a CUDA device
                          that builds leaves out the latter where it has no room; default on, of
                          ANN_GRAPH_CAGRA and _GIVEN off */
  int32_t calibrate;   /* ANN_SWITCH: learn which beam gives which recall; default on. Off saves
                          build time and leaves `recall` to a cautious rule: see ann_search_params */
  int32_t reserved;    /* zero */
  uint64_t memory_limit; /* bytes that the build may hold at once beside borrowed rows; the build
                            answers ANN_LIMIT before it starts if it would need more; default: no
                            limit */
  const uint32_t *knn_graph;     /* [rows, knn_degree] row numbers, nearest first, for
                                    ANN_KNN_GIVEN; UINT32_MAX in unused places at the end of a row.
                                    knn_degree has no default then and may be less than degree. */
  const ann_matrix *calibration; /* queries like those to come, to calibrate on, read during the call;
                                    default: a sample of the rows, held out while they serve as queries.
                                    Where queries are unlike the rows, as texts and images are, that
                                    promises too much: give some hundred queries, at best 2,048. Of fewer
                                    than 300, less is promised for up to ten neighbours: where they miss
                                    none, one less three in their number is, and 0.01 more. The
                                    index and its file keep a sample of up to 2,048, as f32 where rows are
                                    floats: CUDA devices calibrate on it too, also when the index is
                                    placed later or opened elsewhere. Devices need 64 of them; with fewer
                                    they walk with the beam of the CPU. */

  /* These are for ANN_GRAPH_TSDG and not read by others. */
  int32_t diversify;        /* ANN_DIVERSIFY_* */
  float alpha;              /* how much longer than both edges that lead past it an edge has to be to go in stage
                               one, as a ratio of distances (of squares it is alpha^2), 1 to 4; default 1.1,
                               of VAMANA 1.2. More: more edges. TSDG and VAMANA only. */
  uint32_t occlusion_bound; /* lambda_0 + 1: edges with occlusion factors below it stay, 1 to 64; default 10. TSDG
                               only. */
  uint32_t reverse_max;     /* reverse edges that a row gets at most, the nearest ones, 1 to 4,096; default 256 */
  uint32_t pool;            /* SSG: candidates of a row, the nearest, 1 to 4,096; default 500 */
  float angle;              /* SSG: degrees, 1 to 90; default 60 */

  /* For ANN_GRAPH_GGNN, and not read otherwise. `degree` is the paper's k, default 24 there; half of a row's
   * edges lead to its nearest neighbours, the others are inverse links and next neighbours. `knn` must be AUTO,
   * and knn_degree to convergence are not read. */
  uint32_t segment_rows;    /* s: rows that are compared with each other at first, and the rows of the top layer;
                               more than degree / 2, at most 1,024; default as few as a multiple of 32 allows */
  uint32_t layers;          /* L, 2 to 8; default 4. Sets too small for so many get fewer */
  int32_t refinements;      /* r: passes over the layers below the top when all is merged, 1 to 16, or ANN_NONE;
                               default 2. More: longer builds, better lists */
  float build_stretch;      /* 1 + tau_b, 1 to 3: how far queries of the build go; default 1.15. More: longer
                               builds, better lists */
  int32_t midpoint;         /* ANN_SWITCH: an inverse link is left out only where a path leads back within the
                               sphere around the midpoint; default on. Off: fewer links */

  int32_t reserved_2;       /* not read: in the structs of older programs it is padding */
  int32_t detours;          /* ANN_DETOURS_*, of ANN_GRAPH_AUTO and ANN_GRAPH_CAGRA */
  int32_t reorder;          /* ANN_REORDER_*, of the same */
  int32_t build_slack;      /* ANN_SLACK_*, of ANN_GRAPH_GGNN; by SQUARES the default of `build_stretch` is 1.50 */
  int32_t reserved_3;       /* zero */
} ann_build_params;
#define ANN_BUILD_PARAMS_INIT                                                                              \
  {sizeof(ann_build_params), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ANN_NULL, ANN_NULL, 0, 0, 0, 0, 0, \
   0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Builds the index over `rows`, once in its life. `ids` is [rows] distinct numbers below
 * ANN_ID_NONE, or NULL for 0, 1, 2, ... Rows with NaN or infinity are refused with their place.
 * Zero rows are legal: searches then find nothing.
 *
 * Rows in memory of the device that builds are used in place, if they are stored as they are and
 * a graph is built; the index gets its copy in host memory meanwhile. Work that writes them must be done
 * before the call, or queued on a default stream of CUDA, for which the call waits. Rows in memory of
 * another device are copied first. The index is the same.
 *
 * Cost: some seconds per 100,000 rows and core; memory as ann_estimate says. Searches running
 * meanwhile answer ANN_STATE, as before the build.
 * Errors: ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED, ANN_NOT_FINITE, ANN_STATE (built
 * already), ANN_BUSY (another thread is building it), ANN_NO_MEMORY, ANN_NO_DEVICE,
 * ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE.
 * After any of them the index is as empty as before and can be built again. */
ANN_API ann_status ann_build(ann_index *index, const ann_matrix *rows, const uint64_t *ids,
                             const ann_build_params *params, ann_monitor *monitor,
                             ann_error *error);

/* The memory and time that a build will need. */
typedef struct ann_plan {
  uint32_t struct_size;
  uint32_t threads;           /* that the build would use */
  uint64_t index_bytes;       /* held when built, beside what searches keep to work in, which a device's calibration
                                 begins with; with the most edges where `degree` is left to the data */
  uint64_t peak_bytes;        /* held at most while building; an upper bound */
  double seconds;             /* a guess at the wall time; rows without structure may take 20 times as long */
  uint64_t device_bytes;      /* of a CUDA device, held at most while building on it; else 0. Codes are
                                 assumed to be bytes from 4 columns on: rows that bytes cannot
                                 distinguish take three more a column. */
} ann_plan;
#define ANN_PLAN_INIT {sizeof(ann_plan), 0, 0, 0, 0, 0}

/* Plans a build of `rows` rows of `element` without doing it; touches no data. Errors:
 * ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED. Any thread. */
ANN_API ann_status ann_estimate(const ann_index_params *shape, uint64_t rows, int32_t element,
                                const ann_build_params *params, ann_plan *out, ann_error *error);

/* ---------------------------------------------------------------------------------------------
 * 10  Search
 * ------------------------------------------------------------------------------------------ */

/* How a search walks.
 *   AUTO        on an index with a graph BEST_FIRST or SLACK, EXACT without; also EXACT where no walk was found
 *               to reach `recall`. The CPU takes the procedure that reaches it at the least cost (a count of
 *               work, not of time; queries of a batch share that of EXACT), with a beam given BEST_FIRST.
 *               On a CUDA device walks keep two lists: the nearest rows, and the nearest of those not yet
 *               expanded. They stop when the next row is farther than (1 + slack) times the k-th best distance;
 *               calibration on the device chooses the slack for a recall.
 *               The warps of a query depend on the batch: 16 for each of few queries, 8 for each of some more,
 *               one for each of many; for more than 100 neighbours always 8, up to 1,000.
 *               Batches of a size at which the device walks for all queries at once, a warp each (some 500 to
 *               2,000 queries, up to 32 neighbours, rows of 65 to 128 columns, 33 to 64 edges), take as long as
 *               their longest walk: there walks have more slack, and end at the latest after about the mean
 *               expansions of whole ones. So answers may differ between batches of different
 *               sizes; recall does not.
 *   BEST_FIRST  on every device: expand the nearest unexpanded row of the beam until none is left. On
 *               a CUDA device a filter holds the visited rows, which takes some new rows for visited ones,
 *               less than 1 in 1,000 for beams up to some 100; otherwise the answers are those of the
 *               CPU.
 *   EXACT       compare with every row.
 *   CAGRA       one of the next two, by the rule of the paper's figure 7: MULTI_CTA for fewer queries
 *               than `batch_threshold` or a beam above `beam_threshold`, else SINGLE_CTA. Answers may
 *               differ between the two; name one of them where batches of all sizes must agree.
 *   CAGRA_SINGLE_CTA  CAGRA's search for batches (its section IV-C1): a beam of M rows, `search_width`
 *               of them expanded in each iteration, starting from random rows that the query's content
 *               chooses. One block of a CUDA device answers one query.
 *   CAGRA_MULTI_CTA  CAGRA's search for few queries (section IV-C2): `ctas_per_query` blocks answer one
 *               query, each with a beam of its own of which it expands one row in each iteration, and a
 *               common table of visited rows. The beams are merged at the end.
 *   TWO_LISTS   AUTO's walk with two lists on a CUDA device, by name: `warps_per_query` warps walk for each
 *               query of a batch of any size, so that answers depend on the query alone. For rows of i8 and
 *               u8 by L2 one warp finds up to 128 neighbours, 8 warps 1,280 (fewer where rows are long) and
 *               16 warps 32; else, as some more are re-ranked, 103, 1,024 and 16. ANN_LIMIT beyond,
 *               ANN_UNSUPPORTED on the CPU, and of 8 and 16 warps for rows that are too long for any.
 *               `beam` must be 0. A recall or a k beyond the device's calibration gets the most effort that
 *               it has tried; without a calibration the slack is 0.1, and 0.05 more for each halving of
 *               1 - recall below 0.05. WARP, BLOCK and WIDE_BLOCK are deprecated: WARP is another name of
 *               TWO_LISTS, BLOCK and WIDE_BLOCK are TWO_LISTS with 8 and with 16 warps, and are reported so.
 *   GGNN        GGNN's search (section 4), on the CPU and on CUDA devices: a cache of the nearest rows, a
 *               queue and the rows expanded last, and a slack that is added to the distance of the k-th
 *               best row and says how far the walk goes. k to 1,984. On CUDA devices one block a query.
 *   TSDG_SMALL  TSDG's search for small batches (section 4.1), on the CPU and on CUDA devices: `walks` walks
 *               from random rows for each query, each of which goes to the nearest of the rows that it compares
 *               in a step. k to 1,024. On CUDA devices a block a walk.
 *   TSDG_LARGE  TSDG's search for large batches (section 4.2), on the CPU and on CUDA devices: one walk with a
 *               queue in segments, which goes on up to `delta` times as far as the last of the answers. k to
 *               1,024. On CUDA devices a warp a query.
 *   TSDG        On the CPU TSDG's search of section 5.3: best-first with a beam, from the entry points and 32
 *               random rows. On a CUDA device TSDG_SMALL for batches below a bound, which follows from its
 *               multiprocessors and the columns of rows, else TSDG_LARGE; ann_results.procedure says which, and
 *               `beam` must be 0.
 *   SLACK       on the CPU, one list of the nearest rows: expand the nearest unexpanded row, two at a
 *               time, until it is more than `delta` times as far as the k-th best, so that easy queries
 *               end early. A `recall` becomes a `delta` by calibration; where there can be none it is 1
 *               and the slack of TWO_LISTS. `beam` must be 0.
 * SLACK is ANN_UNSUPPORTED on CUDA devices. SLACK where the index's calibration leaves it out (k above 100, by
 * inner product) and TSDG's three are calibrated by the first search that names them and gives a `recall`.
 * CAGRA's procedures, GGNN and TSDG's run on every graph, of any build. From random rows clusters that few edges lead
 * to may not be reached; the other procedures start from entry points that reach every row, on the CPU for
 * recalls that calibration has found so from the nearest of these. For a beam
 * a device and the CPU give equal answers, bit for bit, and equal counts. */
enum {
  ANN_SEARCH_AUTO = 0,
  ANN_SEARCH_BEST_FIRST = 1,
  ANN_SEARCH_EXACT = 2,
  ANN_SEARCH_CAGRA = 3,
  ANN_SEARCH_CAGRA_SINGLE_CTA = 4,
  ANN_SEARCH_CAGRA_MULTI_CTA = 5,
  ANN_SEARCH_TWO_LISTS = 6,
  ANN_SEARCH_WARP = ANN_SEARCH_TWO_LISTS, /* deprecated, as are the next two */
  ANN_SEARCH_BLOCK = 7,                   /* TWO_LISTS, warps_per_query 8 */
  ANN_SEARCH_WIDE_BLOCK = 8,              /* TWO_LISTS, warps_per_query 16 */
  ANN_SEARCH_GGNN = 9,
  ANN_SEARCH_TSDG = 10,
  ANN_SEARCH_TSDG_SMALL = 11,
  ANN_SEARCH_TSDG_LARGE = 12,
  ANN_SEARCH_SLACK = 13
};

/* The rows that TSDG_LARGE keeps to be expanded. */
enum {
  ANN_QUEUE_AUTO = 0,     /* COMPARED */
  ANN_QUEUE_COMPARED = 1, /* every row compared that is within the bound, as the paper's text has it */
  ANN_QUEUE_NEARER = 2    /* rows that improve the answers, as its algorithm 2 has it */
};

/* The form of rows with which CAGRA's procedures compare queries on their way. Reported distances are exact either way.
 *   CODES   one byte a column as a rule (four where bytes cannot distinguish rows), the k best and some
 *           more re-ranked as stored
 *   STORED  rows as stored: f32, f16 (the paper's FP16 option: an index whose `element` is F16) or bf16,
 *           four or two bytes a column. Rows of i8 and u8 are compared by their codes all the same. */
enum {
  ANN_COMPARE_AUTO = 0, /* CODES */
  ANN_COMPARE_CODES = 1,
  ANN_COMPARE_STORED = 2
};

typedef struct ann_search_params {
  uint32_t struct_size;
  int32_t procedure; /* ANN_SEARCH_* */
  int32_t device;    /* ANN_DEVICE_* */
  uint32_t threads;  /* of the CPU; default: as many as the hardware has and the batch can use. One
                        query runs on the calling thread; they measure curves that it is the first to
                        need, and copy the index to a device */
  float recall;      /* wanted share of true neighbours found, mean over queries, in (0, 1]; default
                        0.95. The build's calibration turns it into an effort, for queries spread
                        like the rows or like `calibration`. For targets above what calibration
                        reached AUTO compares every row; BEST_FIRST uses the longest beam it tried.
                        Without calibration the beam is 4 * k + 64, doubled for each halving of
                        1 - recall below 0.05.
                        On a CUDA device two lists have calibrations of their own; recalls that they do
                        not reach go by a beam that the first search which needs one measures there, in
                        20 to 250 ms. Where it cannot, for k above 1,000, without `calibration` for fewer
                        than 10,000 rows or where device memory is short, the beam is that of the CPU;
                        AUTO compares every row where rows are so few.
                        Where that is above 1,984, or by AUTO the target has not been reached either,
                        every row is compared (ANN_UNSUPPORTED if k is above 1,024 and the beam above
                        1,984). */
  uint32_t beam;     /* rows kept while walking, k to ANN_BEAM_MAX; overrides `recall`. More: higher
                        recall, time grows in proportion. On a CUDA device at most 1,984 (ANN_LIMIT).
                        There AUTO walks with two lists for the recall that the build's calibration has
                        measured with this beam, which takes a third of the time; recall does not fall
                        with the beam, and one below 16 may do what 16 does. Where two lists do not
                        reach that recall, without a calibration, and by BEST_FIRST, the walk has one
                        list of `beam` rows. For CAGRA's procedures this is M ("internal top-M"), k to 1,984,
                        default by `recall`, a multiple of 32 and at most 1,984, with a calibration of their
                        own, which the first search that gives a recall makes, in 20 to 500 ms on a
                        CUDA device, for either procedure and the defaults below; for fewer than 512 rows, of a
                        device 10,000, and fewer than 64 queries in the build's `calibration` the beam of
                        BEST_FIRST, with which they may find less. MULTI_CTA divides M: each beam has
                        M / ctas_per_query places, 32 to 512. */
  void *stream;      /* a cudaStream_t of the caller, for queries and results in device memory; default:
                        a stream of the library, which is waited for. CUDA's own default streams have
                        names that are not NULL: cudaStreamLegacy, cudaStreamPerThread. */

  /* The rest is for CAGRA's procedures and not read by others. */
  uint32_t search_width;     /* p: rows expanded in each iteration, 1 to 64, p times the degree at most
                                2,048; default 1, and where M goes by a recall on a CUDA device the width
                                that calibration has found for random starts, up to 8. More: fewer iterations,
                                more distances. MULTI_CTA: default 4, in the paper 1; 512 / degree at most. */
  uint32_t iterations_max;   /* iterations that expand rows, at most, 1 to 4,096; default 24 and 1.25
                                times the beam over p, which few queries need. Fewer: less time at worst,
                                lower recall. Tables in device memory are sized by it. */
  uint32_t hash_bits;        /* SINGLE_CTA: log2 of the places of the forgettable table of visited rows, 8 to
                                13; default as few as hold the beam and the candidates of 4 iterations
                                half full. A smaller table leaves room for more queries at once. */
  int32_t hash_reset;        /* SINGLE_CTA: iterations after which that table is emptied except for the rows
                                of the beam, 1 to 4,096; default up to 4, as `hash_bits` allows. ANN_NONE:
                                never, and the table is in device memory with room for all iterations.
                                Answers are the same; forgetting costs repeated distances. */
  uint32_t team_size;        /* threads that compare a row: 2, 4, 8, 16 or 32; default 4 to 32 by the bytes
                                of a row, as measured. Answers are the same. */
  uint32_t ctas_per_query;   /* MULTI_CTA: blocks of a query, 1 to 64; default one for each 32 rows of the
                                beam. More: shorter beams and fewer iterations, more distances. */
  uint32_t batch_threshold;  /* CAGRA: b_T in queries; default the number of multiprocessors of the
                                device, 0 on the CPU */
  uint32_t beam_threshold;   /* CAGRA: M_T in rows; default 512 */
  int32_t compare;           /* ANN_COMPARE_* */
  int32_t reserved;          /* zero */

  /* For GGNN, which also reads `beam` (the place of the best list whose distance bounds the walk, k to
   * 1,984; default k, at least 10), `iterations_max` (rows expanded, 1 to 8,192; default 400 up to 10
   * answers, else a little more than `visited`), `team_size` and `compare` (by inner product rows are
   * always compared by CODES). Not read by others. */
  float stretch;        /* 1 + tau, 1 to 3: rows are expanded up to d_k + tau * min(d_1, d_nn1), in true
                           distances, d_nn1 the distance of rows to their nearest neighbours; overrides `recall`.
                           More: higher recall, more distances. Default by `recall`, with a calibration of
                           its own, which the first search that needs it makes and which on a CUDA device
                           also bounds `iterations_max`; without one 1.10 for .95 and 0.022 more for each
                           halving of 1 - recall, of squares by the paper's Table 1 1.30 and 0.05 */
  uint32_t queue;       /* rows that wait to be expanded, 1 to 2,048; default 54 up to 10 answers, else the
                           number that makes the lists a multiple of 32, at least 22 */
  uint32_t visited;     /* rows expanded that are remembered, 1 to 8,192; default 384 up to 10 answers,
                           else 3 * k and at least 896. With fewer, rows are compared and expanded anew */
  float nearest_share;  /* d_nn1 is the distance that this share of rows do not exceed, above 0 and at most 1, on
                           a sample of 2,048 rows; default 1, the greatest. Less: rows far from all others
                           do not loosen the bound */

  /* For TSDG's searches, which also read `team_size`; `occlusion_max` for BEST_FIRST on the CPU and `delta` for SLACK
   * too. Not read by others. */
  uint32_t occlusion_max; /* edges of a row with occlusion factors below this are read, 1 to 64; default 10 of
                             TSDG_SMALL, 5 of TSDG_LARGE, else all. Graphs without factors are read whole.
                             Fewer: shorter steps, lower recall at an effort. A beam of BEST_FIRST that goes by
                             `recall` is of whole rows. */
  uint32_t walks;         /* t_0 of TSDG_SMALL, 1 to 64 and at least k / 32 (of lossy codes some more); overrides
                             `recall`. More: higher recall, time grows in proportion on the CPU, and on a CUDA device
                             where its multiprocessors are all at work */
  uint32_t hops_max;      /* T of TSDG_SMALL and TSDG_LARGE: rows that a walk expands at most, 1 to 4,096; default
                             4,096, which walks do not need */
  uint32_t segments;      /* m of TSDG_LARGE: its queue, and its memory of the rows expanded, have 32 places for
                             each, 1 to 64; default 8 */
  float delta;            /* Delta of TSDG_LARGE as a factor: rows are expanded up to `delta` times as far as the
                             last of the answers, in true distances, 1 to 4; overrides `recall`. More: higher
                             recall, more distances. For SLACK the last of k answers; by inner product rows are
                             expanded down to 2 - delta^2 times its product */
  int32_t queue_takes;    /* ANN_QUEUE_* of TSDG_LARGE */

  /* Two more for GGNN, not read by others. */
  int32_t slack;          /* ANN_SLACK_* */
  int32_t descent;        /* ANN_SWITCH: the walk comes down through the layers of ANN_GRAPH_GGNN, each with
                             `iterations_max`; default off: from the top straight to the bottom. On: more distances.
                             ANN_UNSUPPORTED on other graphs, ANN_LIMIT with a best list of more than 512 rows */

  /* For TWO_LISTS, not read by others. */
  uint32_t warps_per_query; /* warps that walk for a query: 1, 8 or 16; default 1, of BLOCK 8 and of WIDE_BLOCK 16,
                               which take no other number. More: a query takes less time, and fewer are answered at
                               once */
  int32_t reserved_2;       /* zero */
} ann_search_params;
#define ANN_SEARCH_PARAMS_INIT                                                                                      \
  {sizeof(ann_search_params), 0, 0, 0, 0, 0, ANN_NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
   0, 0, 0}

/* Queries and results in device memory, and streams.
 *
 * With queries and results on a CUDA device the search runs there (`device` is AUTO or names it) and
 * copies nothing through the host. Without a stream the call returns when the results are written; work
 * that writes the queries must be done before the call, or queued on a default stream of CUDA.
 *
 * With a stream the call checks its arguments, queues its work and returns; the results are there when
 * the stream has reached that point. Errors that are known by then are returned; a query with NaN or
 * infinity is found on the device and reported in `status`; a fault of the device is reported by the next call
 * (ANN_DEVICE_LOST). Queries and result buffers must stay until then. The monitor is checked while work is
 * queued only. Memory comes from a pool that the library keeps for the device: after the first search of a shape
 * the driver allocates none. A first search places the index and calibrates its procedure before it queues its work,
 * or an earlier ann_search_estimate of equal `params`, stream included, queries and k has done so. ann_index_evict and
 * ann_index_free wait for queued work. The stream must belong to the device and to the context that the CUDA
 * runtime uses there (ANN_INVALID_ARGUMENT), and must not be in capture (ANN_UNSUPPORTED). */

/* Finds k near rows for each query. `queries` has the index's dim; for an index of floats any
 * element, for one of i8 or u8 the same element. Answers depend on the query, the index, the
 * parameters and the kind of device alone: not on the threads or the CPU, on the batch only where its
 * size chooses the procedure (AUTO, CAGRA; on the CPU AUTO compares all rows for batches that share so much
 * of that work that walks take more, and finds every neighbour then). Reported distances are equal bit for bit on
 * all devices. Any thread; on a CUDA device each of several calls at once has a stream of its own. Larger
 * batches than memory holds are answered in parts. `monitor` may be NULL; a cancelled call fills some rows.
 * Errors: ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED, ANN_STATE (not built), ANN_NO_DEVICE,
 * ANN_NO_MEMORY, ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CORRUPT (an index opened LAZY met damage
 * in its file; the rest of it goes on answering), ANN_CANCELLED, ANN_DEADLINE. */
ANN_API ann_status ann_search_batch(const ann_index *index, const ann_matrix *queries,
                                    const ann_search_params *params, ann_results *results,
                                    ann_monitor *monitor, ann_error *error);

/* Finds the k nearest rows for each query by comparing with every row. As ann_search_batch;
 * `procedure`, `recall` and `beam` are not used. Runs on the CPU or, where the library was built
 * with CUDA, on `device`; the answers are equal bit for bit. On a device where the index has been placed
 * its rows are compared; elsewhere they are sent there for every call, or in parts where they do not fit.
 * With queries in device memory the index is placed first. */
ANN_API ann_status ann_search_exact(const ann_index *index, const ann_matrix *queries,
                                    const ann_search_params *params, ann_results *results,
                                    ann_monitor *monitor, ann_error *error);

/* The choices of a search, without searching. */
typedef struct ann_search_forecast {
  uint32_t struct_size;
  int32_t procedure;  /* that would answer, ANN_SEARCH_* */
  float recall;       /* that calibration promises, as in ann_results */
  int32_t reserved;   /* zero */
  double distances;   /* that would be computed for a query, about; 0 where not known */
  double expansions;  /* rows whose edges would be read for a query, about; 0 where not known or every
                         row is compared */
  uint32_t warps_per_query; /* as in ann_results */
  uint32_t reserved_2;      /* zero */
} ann_search_forecast;
#define ANN_SEARCH_FORECAST_INIT {sizeof(ann_search_forecast), 0, 0, 0, 0, 0, 0, 0}

/* The choices of ann_search_batch for `queries` queries with k neighbours each, of host memory or, where `params`
 * has a stream, which is not touched, of the device's: which procedure answers, the recall that it promises and the
 * cost of a query. The index is placed and calibrated as by that search, which then does neither. Errors: as
 * ann_search_batch's of `params` and k, and ANN_INVALID_ARGUMENT without `out`. Any thread. */
ANN_API ann_status ann_search_estimate(const ann_index *index, uint64_t queries, uint32_t k,
                                       const ann_search_params *params, ann_search_forecast *out,
                                       ann_error *error);

/* The beam that ann_search_batch would use for this k and recall (0: the default) on the CPU, by BEST_FIRST, and by
 * AUTO where it takes that. Errors: ANN_INVALID_ARGUMENT, ANN_STATE, ANN_UNSUPPORTED without a graph, ANN_NO_MEMORY where it
 * has to calibrate. Any thread. */
ANN_API ann_status ann_index_beam(const ann_index *index, uint32_t k, float recall, uint32_t *beam,
                                  ann_error *error);

/* ---------------------------------------------------------------------------------------------
 * 11  k-NN graphs
 * ------------------------------------------------------------------------------------------ */

typedef struct ann_knn_params {
  uint32_t struct_size;
  int32_t metric;      /* default L2 */
  int32_t method;      /* ANN_KNN_AUTO, _NN_DESCENT, _EXACT, _CELLS or _GGNN */
  uint32_t k;          /* neighbours per row, 1 to 2 ANN_DEGREE_MAX, by GGNN to a quarter of that; no
                          default */
  uint32_t samples;    /* the next four as in ann_build_params */
  uint32_t iterations;
  float convergence;
  uint32_t threads;
  uint64_t seed;
  int32_t device;      /* ANN_DEVICE_*; the same lists come from all of them, except by cells */
  int32_t reserved;    /* zero */
} ann_knn_params;
#define ANN_KNN_PARAMS_INIT {sizeof(ann_knn_params), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Finds the k nearest other rows of every row. `neighbors` is [rows, k] row numbers, nearest first,
 * ties by row number, UINT32_MAX where a row has fewer than k others; `distances` is [rows, k] or
 * NULL. `context` and `monitor` may be NULL. By cells and NN-Descent the lists are approximate
 * and their distances still exact. Lists by them of fewer than 16 are the first of those for 16. For the inner
 * product, which is no metric, _AUTO takes _EXACT; _CELLS finds near rows first and walks from these to the
 * largest products, on the CPU alone (ANN_UNSUPPORTED on a device); _NN_DESCENT finds less where lengths differ
 * widely, and compares every pair where codes would be floats; _GGNN is ANN_UNSUPPORTED. Any thread.
 * Errors: as ann_build, except ANN_STATE and ANN_BUSY; on cancel the buffers hold nothing of use. */
ANN_API ann_status ann_knn_graph(const ann_context *context, const ann_matrix *rows,
                                 const ann_knn_params *params, uint32_t *neighbors,
                                 float *distances, ann_monitor *monitor, ann_error *error);

/* k-NN lists with distances, by ids of 64 bits, which ann_knn_merge joins and files of lists hold. The buffers are
 * the caller's, in host memory. The lists of ann_knn_graph take this form when its row numbers are written as ids. */
typedef struct ann_knn_lists {
  uint32_t struct_size;
  uint32_t k;          /* places of a row, 1 to ANN_DEGREE_MAX; no default */
  uint64_t rows;       /* 0 to ANN_ROWS_MAX */
  int32_t metric;      /* of the distances, ANN_METRIC_*; default L2 */
  int32_t has_ids;     /* out: 1 where the rows have ids that are not numbers in a row, else 0; not read */
  uint64_t first_id;   /* the id of row 0 where `ids` is NULL; row r has first_id + r */
  uint64_t *ids;       /* [rows] distinct ids of the rows, below ANN_ID_NONE; may be NULL */
  uint64_t *neighbors; /* [rows, k] ids, nearest first, ANN_ID_NONE in unused places at the end */
  float *distances;    /* [rows, k], +infinity in unused places */
} ann_knn_lists;
#define ANN_KNN_LISTS_INIT {sizeof(ann_knn_lists), 0, 0, 0, 0, 0, ANN_NULL, ANN_NULL, ANN_NULL}

/* Joins the k-NN lists of two sets of rows (GGM, section 5.1 of GNND's paper): those of both sets together, the
 * first set's rows before the second's. The lists of each set are taken as they are; only rows of different sets
 * are compared. Each list keeps its nearer half and gets an equal number of random rows of the other set, NN-Descent
 * goes on from there, and its lists are joined with the given ones, no row twice. Matrices of one
 * element and dim; ids of both sets distinct. A list may name rows of neither set: they stay, with their
 * distances, if they are near enough, so that parts of a graph can be merged pair by pair, again and in any order.
 *
 * Of `params`, `metric` is that of both lists; `k`, which must be that of `merged`, may differ from theirs;
 * `method` is AUTO or NN_DESCENT, as said above, or EXACT: each row is compared with every row of the other set,
 * as it is where one set is small and for the inner product. The others are as in ann_knn_graph; CPU and CUDA
 * devices give equal lists. `merged` has room for all rows; its `ids` may be NULL where the ids of the two sets are
 * numbers in a row, and `first_id`, `metric` and `has_ids` are written. Equal distances are in order of ids. A
 * distance that was given is taken as given: it should be as ann_knn_graph reports it. `merged` must not overlap
 * the given lists. Any thread; `context` and `monitor` may be NULL.
 * Errors: as ann_knn_graph; ANN_INVALID_ARGUMENT with row and column also where a list is none: distances that
 * fall or are NaN, a row's own id, an id twice. On cancel the buffers hold nothing of use. */
ANN_API ann_status ann_knn_merge(const ann_context *context, const ann_matrix *first_rows,
                                 const ann_knn_lists *first_lists, const ann_matrix *second_rows,
                                 const ann_knn_lists *second_lists, const ann_knn_params *params,
                                 ann_knn_lists *merged, ann_monitor *monitor, ann_error *error);

/* ---------------------------------------------------------------------------------------------
 * 12  Files
 *
 * A file holds a built index whole: rows, ids, codes, graph, calibration and the queries kept for it.
 * It is opened without a build and answers bit for bit as the index that was saved. Every byte is
 * covered by a 64-bit sum, so that a damaged file is refused and never answers wrongly. Equal indexes
 * give equal files, whatever the threads and the machine (the measured times of the build are not
 * kept). Files of version 1.x of the format are read by every later library. The format is specified in
 * core/storage/storage.h.
 * ------------------------------------------------------------------------------------------ */

typedef struct ann_save_params {
  uint32_t struct_size;
  uint32_t threads; /* for the sums; default: as many as the hardware has */
  int32_t sync;     /* ANN_SWITCH: wait until the disk has file and name, so that the save survives a
                       power failure; default on. Off: only a crash of the process is survived. */
  int32_t reserved; /* zero */
} ann_save_params;
#define ANN_SAVE_PARAMS_INIT {sizeof(ann_save_params), 0, 0, 0}

/* Saves to the file `path` (UTF-8 or whatever the system takes), replacing one that is there. The
 * new file is written beside it, synced and renamed over it: at every moment, also after a crash or
 * with a full disk, `path` is the old file or the new one, whole. Permissions of an old file are
 * kept, its owner and group as far as the process may set them; a symbolic link is followed. A
 * relative path is resolved once, when the call begins. Where the system has files without a name, the
 * new file gets one when it is whole; a file that a killed process leaves is removed by the next
 * save to `path`. Needs room for both. Searches may run meanwhile. Any thread;
 * several may save to one path, the last rename wins. `params` and `monitor` may be NULL.
 * Errors: ANN_INVALID_ARGUMENT, ANN_STATE before the build, ANN_IO (nothing changed, unless the text
 * says that the new file is in place and its durability unknown), ANN_CORRUPT (an index opened LAZY
 * found damage in its own file), ANN_NO_MEMORY, ANN_CANCELLED, ANN_DEADLINE. */
ANN_API ann_status ann_save(const ann_index *index, const char *path,
                            const ann_save_params *params, ann_monitor *monitor, ann_error *error);

/* Where a stream goes. `write` takes `bytes` bytes and returns how many it took, at least 1, or a
 * negative errno. It runs on the calling thread, must not call the library on the same index's
 * non-const functions and must not unwind. */
typedef struct ann_writer {
  uint32_t struct_size;
  uint32_t reserved; /* zero */
  int64_t (*write)(void *user, const void *data, uint64_t bytes);
  void *user;
} ann_writer;
#define ANN_WRITER_INIT {sizeof(ann_writer), 0, ANN_NULL, ANN_NULL}

/* Writes the same bytes from first to last through `writer`; making them durable is the caller's
 * part. As ann_save. */
ANN_API ann_status ann_save_stream(const ann_index *index, const ann_writer *writer,
                                   const ann_save_params *params, ann_monitor *monitor,
                                   ann_error *error);

/* How much of a file is checked, and when. */
enum {
  ANN_OPEN_AUTO = 0, /* FULL */
  ANN_OPEN_FULL = 1, /* everything is read into memory and checked before the call returns */
  ANN_OPEN_LAZY = 2, /* the file is mapped and opens in milliseconds; each megabyte is checked when it
                        is first read. A search that meets damage answers ANN_CORRUPT. The file must
                        not be cut or rewritten in place while the index lives (ann_save never does
                        that): the system then ends the process with SIGBUS. */
  ANN_OPEN_TRUSTED = 3 /* mapped, and only header, table and tail are checked. A damaged or hostile
                          file makes behaviour undefined. */
};

typedef struct ann_open_params {
  uint32_t struct_size;
  int32_t mode;            /* ANN_OPEN_* */
  uint32_t threads;        /* that read and check; default: as many as the hardware has */
  uint32_t expect_dim;     /* refuse (ANN_INVALID_ARGUMENT) a file of another dim; 0: any */
  int32_t expect_metric;   /* likewise; 0: any */
  int32_t expect_element;  /* likewise; 0: any */
} ann_open_params;
#define ANN_OPEN_PARAMS_INIT {sizeof(ann_open_params), 0, 0, 0, 0, 0}

/* Opens the file `path` as a new built index. `context`, `params` and `monitor` may be NULL. Memory:
 * FULL as much as the file; LAZY and TRUSTED nothing but the system's page cache. Replacing the file
 * by a save leaves an open index as it is. Any thread.
 * Errors: ANN_INVALID_ARGUMENT, ANN_IO, ANN_CORRUPT, ANN_VERSION, ANN_NO_MEMORY, ANN_CANCELLED,
 * ANN_DEADLINE. */
ANN_API ann_status ann_open(const ann_context *context, const char *path,
                            const ann_open_params *params, ann_index **out, ann_monitor *monitor,
                            ann_error *error);

/* The same from the bytes of a file in memory. FULL copies the data it keeps; LAZY and TRUSTED use the
 * bytes in place: they start on a multiple of 64 and stay, unchanged, until ann_index_free. */
ANN_API ann_status ann_open_memory(const ann_context *context, const void *data, uint64_t bytes,
                                   const ann_open_params *params, ann_index **out,
                                   ann_monitor *monitor, ann_error *error);

/* Where a stream comes from. `read` gives up to `bytes` bytes and returns how many, 0 at the end, or
 * a negative errno. It runs on the calling thread and must not unwind. */
typedef struct ann_reader {
  uint32_t struct_size;
  uint32_t reserved; /* zero */
  int64_t (*read)(void *user, void *data, uint64_t bytes);
  void *user;
  uint64_t bytes;    /* that the stream holds in all; no default */
} ann_reader;
#define ANN_READER_INIT {sizeof(ann_reader), 0, ANN_NULL, ANN_NULL, 0}

/* The same from a stream, read from first to last on the calling thread. Mode FULL only. */
ANN_API ann_status ann_open_stream(const ann_context *context, const ann_reader *reader,
                                   const ann_open_params *params, ann_index **out,
                                   ann_monitor *monitor, ann_error *error);

/* Checks the file `path` as ann_open does in mode FULL, without keeping it. `params` may be NULL;
 * `mode` is not used. ANN_OK means that ann_open would succeed. Errors: as ann_open; the text of
 * ANN_CORRUPT names section and place. */
ANN_API ann_status ann_verify(const char *path, const ann_open_params *params,
                              ann_monitor *monitor, ann_error *error);

/* The contents of a file's header. */
typedef struct ann_file_description {
  uint32_t struct_size;
  uint32_t format;         /* major << 16 | minor of the format */
  uint64_t file_bytes;
  uint64_t rows;
  uint32_t dim;
  int32_t metric;          /* ANN_METRIC_* */
  int32_t element;         /* ANN_F32 ... */
  int32_t graph;           /* ANN_GRAPH_* */
  uint32_t degree;
  uint32_t entry_points;
  uint32_t has_ids;        /* 0: ids are row numbers */
  uint32_t writer;         /* version of the library that wrote it: major << 16 | minor << 8 | patch */
  uint64_t seed;
  uint8_t content_id[16];  /* equal for equal indexes, and only for them */
} ann_file_description;
#define ANN_FILE_DESCRIPTION_INIT {sizeof(ann_file_description), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}

/* Reads header, table and tail of the file `path` and checks their sums; the rest is not read.
 * Errors: ANN_INVALID_ARGUMENT, ANN_IO, ANN_CORRUPT, ANN_VERSION. Any thread. */
ANN_API ann_status ann_file_info(const char *path, ann_file_description *out, ann_error *error);

/* Saves k-NN lists to the file `path`, replacing one that is there as ann_save does. Lists that ann_knn_merge
 * would refuse are refused. Equal lists give equal files. core/storage/knn_lists.h specifies the format. `context`,
 * `params` and `monitor` may be NULL. Any thread. Errors: ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_IO, ANN_NO_MEMORY,
 * ANN_CANCELLED, ANN_DEADLINE. */
ANN_API ann_status ann_knn_save(const ann_context *context, const ann_knn_lists *lists, const char *path,
                                const ann_save_params *params, ann_monitor *monitor, ann_error *error);

/* Loads such a file. With `neighbors` NULL only header and tail are read, and `rows`, `k`, `metric`, `has_ids` and
 * `first_id` are written. With buffers for the `rows` and `k` of the file, and for ids where it has any, all of it
 * is read and checked: a damaged file is refused. `context` and `monitor` may be NULL. Any thread. Errors:
 * ANN_INVALID_ARGUMENT, ANN_IO, ANN_CORRUPT, ANN_VERSION, ANN_NO_MEMORY, ANN_CANCELLED, ANN_DEADLINE; the buffers
 * hold nothing of use then. */
ANN_API ann_status ann_knn_load(const ann_context *context, const char *path, ann_knn_lists *lists,
                                ann_monitor *monitor, ann_error *error);

/* ---------------------------------------------------------------------------------------------
* 13  Planned functions and fields
 *
 * Changes (ann_add, ann_remove, ann_compact), filters (a bit per row, in ann_search_params) and range search append
 * functions and fields to this header. Nothing above changes when they come.
 * ------------------------------------------------------------------------------------------ */

#if defined(__cplusplus)
}
#endif
#endif /* GANNET_ANN_H */
