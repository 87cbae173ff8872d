// Target "shape": small legal files of every shape, then damage by the tables of the format. It
// reaches what packed files do not: each combination of metric, element, codes and sections from a
// dozen bytes, several chunks, several threads.
//
// Input: the shape (made_file.h); a byte for the threads; then, until the input ends, bytes of damage
// (damage.h), each preceded by one that may ask for a repair.
#include "damage.h"
#include "demand.h"
#include "exercise.h"
#include "made_file.h"
#include "repair.h"

using namespace gannet::fuzz;

namespace {

constexpr uint64_t kFileBytesMax = 2 << 20;
constexpr uint32_t kDamagesMax = 12;
constexpr uint32_t kThreads[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1000};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const FileShape shape = read_shape(input, true);
  const uint32_t threads = input.one_of(kThreads);
  std::vector<uint8_t> file = make_file(shape);
  bool sound = true;
  for (uint32_t i = 0; i < kDamagesMax && !input.empty(); ++i) {
    const bool repaired = input.byte() % 4 != 0;
    damage(file, input, kFileBytesMax);
    if (repaired) repair(file);
    sound = false;
  }
  const ann_status status = open_and_exercise(file, threads);
  DEMAND(status == ANN_OK || !sound, "a legal file is refused: %s", ann_status_name(status));
  return 0;
}
