// Puts made-up calibration curves of CUDA devices into a golden file: those of tests/fault/forged.cpp, sections 17 and 23
// of format 1.7.
//
//     golden_device_curves FILE     replaces FILE, of an index with a graph and without such curves
//
// Only a device measures such curves. That none has measured these does not matter to what a golden file is for: readers
// must take them and save them again as they are. The library opens what was forged and writes the file, so that it is
// one of the library's own.
#include <cstdio>

#include "check.h"
#include "forged.h"
#include "support.h"

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "golden_device_curves FILE\n");
    return 2;
  }
  bool found = false;
  const fault::Bytes plain = fault::read_file(argv[1], &found);
  CHECK_SAY(found, "there is no %s", argv[1]);
  if (!found) return finish("golden_device_curves");
  const fault::Bytes forged = fault::with_device_curves(plain);
  ann_index *opened = nullptr;
  CHECK_OK(ann_open_memory(nullptr, forged.data(), forged.size(), nullptr, &opened, nullptr, nullptr));
  if (opened == nullptr) return finish("golden_device_curves");
  const fault::Index index(opened);
  CHECK_OK(ann_save(index.get(), argv[1], nullptr, nullptr, nullptr));
  CHECK_SAY(fault::read_file(argv[1]) == forged, "%s: the library writes another file than was forged",
            argv[1]);
  return finish("golden_device_curves");
}
