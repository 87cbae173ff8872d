// Target "repaired": a file whose sums are always right, as a hostile sender makes it. What is
// accepted must answer within bounds, save and come back; see exercise.h.
//
// Input: a packed file (packed_file.h). The repair is made here, so that the product needs no switch
// that weakens it.
#include "exercise.h"
#include "packed_file.h"
#include "repair.h"

using namespace gannet::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> file = unpack(data, size);
  repair(file);
  open_and_exercise(file, 1);
  return 0;
}
