// Puts made-up calibration curves into a golden file, those of tests/fault/forged.cpp: of CUDA devices, sections 17 and 23
// of format 1.7, or covering heads with curves of slacks from there, sections 24 and 25 of format 1.11.
//
//     golden_curves devices|covering FILE     replaces FILE, of an index with CAGRA's graph and without such curves
//
// Only a device measures the first, and only an index of many more rows than a golden file has the others. That these are
// of no device and no islands does not matter to what a golden file is for: readers must take them and save them again as
// they are. The library opens what was forged and writes the file, so that it is one of the library's own.
#include <cstdio>
#include <string>

#include "check.h"
#include "forged.h"
#include "support.h"

int main(int argc, char **argv) {
  const std::string kind = argc == 3 ? argv[1] : "";
  if (kind != "devices" && kind != "covering") {
    std::fprintf(stderr, "golden_curves devices|covering FILE\n");
    return 2;
  }
  const char *const path = argv[2];
  bool found = false;
  const fault::Bytes plain = fault::read_file(path, &found);
  CHECK_SAY(found, "there is no %s", path);
  if (!found) return finish("golden_curves");
  const fault::Bytes forged =
      kind == "devices" ? fault::with_device_curves(plain) : fault::with_covering_heads(plain);
  ann_index *opened = nullptr;
  CHECK_OK(ann_open_memory(nullptr, forged.data(), forged.size(), nullptr, &opened, nullptr, nullptr));
  if (opened == nullptr) return finish("golden_curves");
  const fault::Index index(opened);
  CHECK_OK(ann_save(index.get(), path, nullptr, nullptr, nullptr));
  CHECK_SAY(fault::read_file(path) == forged, "%s: the library writes another file than was forged", path);
  return finish("golden_curves");
}
