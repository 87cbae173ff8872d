// outputs.h: whether a file may be written, checked before the work that leads to it.
#pragma once

#include <string>
#include <vector>

// What a command may put its output in the place of without being told to.
enum class Replaces {
  kNothing,
  kIndexes,  // files that ann_file_info knows
};

// Throws std::runtime_error where writing `path` would fail or cost something: it is one of the files that
// are read, or holds anything that may not be replaced (unless `force` says so), or is a device, a pipe or a
// folder; its folder is missing or not to be written; or it is standard output and that is a terminal. Empty
// files may be replaced.
void check_output(const std::string& path, const std::vector<std::string>& read, Replaces may, bool force);
