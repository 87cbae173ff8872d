// Target "open": a file as it comes, sums included. Every way to open it gives the same verdict.
//
// Input: a packed file (packed_file.h).
#include "opening.h"
#include "packed_file.h"

using namespace gannet::fuzz;

namespace {

void compare_stream(BoundedContext& context, const PagedBytes& bytes, ann_status status) {
  ann_index* index = nullptr;
  const ann_status streamed = open_bytes(context, bytes, Way::kStream, ANN_OPEN_FULL, 1, &index);
  ann_index_free(index);
  // Damage of several kinds is met in another order by a reader that cannot go back.
  DEMAND((streamed == ANN_OK) == (status == ANN_OK), "from memory %d, from a stream %d", status, streamed);
}

void compare_verification(const PagedBytes& bytes, ann_status status) {
  const ann_status verified = verify_bytes(bytes, 1);
  DEMAND(verified == status, "opened %d, verified %d", status, verified);
}

void compare_lazy(BoundedContext& context, const PagedBytes& bytes, ann_status status) {
  ann_file_description description = ANN_FILE_DESCRIPTION_INIT;
  const ann_status described = describe_bytes(bytes, &description);
  DEMAND(described == ANN_OK || status != ANN_OK, "opened, but not described: %d", described);
  ann_index* unused = nullptr;
  const ann_status lazy = open_bytes(context, bytes, Way::kFile, ANN_OPEN_LAZY, 1, &unused);
  DEMAND(lazy == ANN_OK || status != ANN_OK, "opened, but not lazily: %d", lazy);
  DEMAND(lazy != ANN_OK || described == ANN_OK, "opened lazily, but not described: %d", described);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> file = unpack(data, size);
  const PagedBytes bytes(file);
  BoundedContext context(open_budget(file.size()));
  ann_index* index = nullptr;
  const ann_status status = open_bytes(context, bytes, Way::kMemory, ANN_OPEN_FULL, 1, &index);
  ann_index_free(index);
  // What opens is rare, and is opened in every way. Of what does not, a third for each way: a refusal
  // costs as much as all the rest, and most inputs are refused.
  const uint64_t turn = size == 0 ? 0 : size + data[size / 2];
  if (status == ANN_OK || turn % 3 == 0) compare_stream(context, bytes, status);
  if (status == ANN_OK || turn % 3 == 1) compare_verification(bytes, status);
  if (status == ANN_OK || turn % 3 == 2) compare_lazy(context, bytes, status);
  return 0;
}
