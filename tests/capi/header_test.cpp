// Proves that the header's macros begin every struct without a warning in C++, and that they give what zeros
// give: the compiler's options are part of the test.
#include "ann.h"
#include "check.h"

#include <cstring>

namespace {

/// Whether all but the size is zero.
template <class Struct>
void begins(const Struct &made, const char *name) {
  Struct zeros;
  std::memset(&zeros, 0, sizeof zeros);
  zeros.struct_size = sizeof zeros;
  CHECK_SAY(std::memcmp(&made, &zeros, sizeof zeros) == 0, "%s is not a size and zeros", name);
}

#define BEGINS(type, macro)         \
  do {                              \
    static const type made = macro; \
    begins(made, #macro);           \
  } while (false)

}  // namespace

int main() {
  BEGINS(ann_error, ANN_ERROR_INIT);
  BEGINS(ann_matrix, ANN_MATRIX_INIT);
  BEGINS(ann_results, ANN_RESULTS_INIT);
  BEGINS(ann_context_params, ANN_CONTEXT_PARAMS_INIT);
  BEGINS(ann_progress, ANN_PROGRESS_INIT);
  BEGINS(ann_device_info, ANN_DEVICE_INFO_INIT);
  BEGINS(ann_index_params, ANN_INDEX_PARAMS_INIT);
  BEGINS(ann_index_info, ANN_INDEX_INFO_INIT);
  BEGINS(ann_graph_stats, ANN_GRAPH_STATS_INIT);
  BEGINS(ann_build_params, ANN_BUILD_PARAMS_INIT);
  BEGINS(ann_plan, ANN_PLAN_INIT);
  BEGINS(ann_search_params, ANN_SEARCH_PARAMS_INIT);
  BEGINS(ann_knn_params, ANN_KNN_PARAMS_INIT);
  BEGINS(ann_save_params, ANN_SAVE_PARAMS_INIT);
  BEGINS(ann_writer, ANN_WRITER_INIT);
  BEGINS(ann_open_params, ANN_OPEN_PARAMS_INIT);
  BEGINS(ann_reader, ANN_READER_INIT);
  BEGINS(ann_file_description, ANN_FILE_DESCRIPTION_INIT);
  return finish("header");
}
