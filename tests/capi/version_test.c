/* Proves section 1 and 2 of the header: versions, names of statuses, the error struct, and the
 * layout of every struct that crosses. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

static void versions(void) {
  char wanted[40];
  snprintf(wanted, sizeof wanted, "%d.%d.%d", ANN_VERSION_MAJOR, ANN_VERSION_MINOR, ANN_VERSION_PATCH);
  CHECK_SAY(strcmp(ann_version(), wanted) == 0, "version is %s, wanted %s", ann_version(), wanted);
  CHECK_EQUAL(ann_abi_version(), ANN_ABI_VERSION);
  const char *info = ann_build_info();
  CHECK(info != NULL && info == ann_build_info());
  CHECK_SAY(mentions(info, "portable") || mentions(info, "neon") || mentions(info, "avx2") ||
                mentions(info, "avx512"),
            "build info \"%s\" names no instruction set", info);
  CHECK_SAY(mentions(info, "CUDA"), "build info \"%s\" does not mention CUDA", info);
}

static void status_names(void) {
#define NAME(status) {status, #status}
  static const struct {
    ann_status status;
    const char *name;
  } all[] = {NAME(ANN_OK),          NAME(ANN_INVALID_ARGUMENT), NAME(ANN_LIMIT),
             NAME(ANN_UNSUPPORTED), NAME(ANN_NOT_FINITE),       NAME(ANN_STATE),
             NAME(ANN_BUSY),        NAME(ANN_NO_MEMORY),        NAME(ANN_DEVICE_NO_MEMORY),
             NAME(ANN_NO_DEVICE),   NAME(ANN_DEVICE_LOST),      NAME(ANN_CANCELLED),
             NAME(ANN_DEADLINE),    NAME(ANN_INTERNAL),         NAME(ANN_IO),
             NAME(ANN_CORRUPT),     NAME(ANN_VERSION)};
  const int count = sizeof all / sizeof all[0];
  for (int i = 0; i < count; i++)
    CHECK_SAY(strcmp(ann_status_name(all[i].status), all[i].name) == 0, "%d is named %s", all[i].status,
              ann_status_name(all[i].status));
  for (ann_status status = -1000; status < 1000; status++) {
    int known = 0;
    for (int i = 0; i < count; i++) known |= all[i].status == status;
    if (!known)
      CHECK_SAY(strcmp(ann_status_name(status), "unknown status") == 0, "%d is named %s", status,
                ann_status_name(status));
  }
  CHECK(strcmp(ann_status_name(INT32_MAX), "unknown status") == 0);
  CHECK(strcmp(ann_status_name(INT32_MIN), "unknown status") == 0);
}

/* An error struct that carries an old failure is cleared by the next success. */
static void error_struct(void) {
  ann_error error = ANN_ERROR_INIT;
  ann_monitor *monitor = NULL;
  CHECK_STATUS(ann_monitor_create(NULL, &error), ANN_INVALID_ARGUMENT);
  CHECK_EQUAL(error.status, ANN_INVALID_ARGUMENT);
  CHECK(error.row == UINT64_MAX && error.column == UINT64_MAX);
  CHECK_EQUAL(error.os_error, 0);
  CHECK_EQUAL(error.cuda_error, 0);
  CHECK_EQUAL(error.struct_size, sizeof error);
  CHECK_OK(ann_monitor_create(&monitor, &error));
  CHECK_EQUAL(error.status, ANN_OK);
  CHECK_EQUAL(error.message[0], 0);
  ann_monitor_free(monitor);
}

/* Offsets are the binary interface: a change here breaks programs that are compiled already. */
static void layout(void) {
#define AT(type, field, offset) CHECK_EQUAL(offsetof(type, field), offset)
  CHECK_EQUAL(sizeof(ann_error), 288);
  AT(ann_error, row, 8);
  AT(ann_error, os_error, 24);
  AT(ann_error, message, 32);
  if (sizeof(void *) != 8) return;
  CHECK_EQUAL(sizeof(ann_matrix), 40);
  AT(ann_matrix, data, 8);
  AT(ann_matrix, dim, 24);
  AT(ann_matrix, row_stride, 32);
  CHECK_EQUAL(sizeof(ann_results), 88);
  AT(ann_results, ids, 16);
  AT(ann_results, status, 40);
  AT(ann_results, expansion_count, 56);
  AT(ann_results, space, 64);
  AT(ann_results, warps_per_query, 80);
  CHECK_EQUAL(sizeof(ann_context_params), 32);
  CHECK_EQUAL(sizeof(ann_progress), 24);
  CHECK_EQUAL(sizeof(ann_device_info), 160);
  CHECK_EQUAL(sizeof(ann_index_params), 16);
  CHECK_EQUAL(sizeof(ann_index_info), 112);
  AT(ann_index_info, recall_max, 72);
  AT(ann_index_info, knn_share, 84);
  AT(ann_index_info, code_worst_twenty, 108);
  CHECK_EQUAL(sizeof(ann_graph_stats), 120);
  AT(ann_graph_stats, two_hop_rows, 112);
  CHECK_EQUAL(sizeof(ann_build_params), 152);
  AT(ann_build_params, detours, 136);
  AT(ann_build_params, build_slack, 144);
  AT(ann_build_params, seed, 40);
  AT(ann_build_params, calibrate, 56);
  AT(ann_build_params, memory_limit, 64);
  AT(ann_build_params, calibration, 80);
  CHECK_EQUAL(sizeof(ann_plan), 40);
  AT(ann_plan, device_bytes, 32);
  CHECK_EQUAL(sizeof(ann_search_params), 128);
  AT(ann_search_params, warps_per_query, 120);
  AT(ann_search_params, slack, 112);
  AT(ann_search_params, beam, 20);
  AT(ann_search_params, stream, 24);
  AT(ann_search_params, search_width, 32);
  AT(ann_search_params, compare, 64);
  CHECK_EQUAL(sizeof(ann_search_forecast), 40);
  AT(ann_search_forecast, warps_per_query, 32);
  CHECK_EQUAL(sizeof(ann_knn_params), 48);
  AT(ann_knn_params, device, 40);
}

int main(void) {
  versions();
  status_names();
  error_struct();
  layout();
  return finish("version");
}
