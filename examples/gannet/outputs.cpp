#include "outputs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "ann.h"
#include "standard_streams.h"

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw std::runtime_error(path + ": " + why);
}

bool is_index(const std::string& path) {
  ann_file_description file = ANN_FILE_DESCRIPTION_INIT;
  const ann_status status = ann_file_info(path.c_str(), &file, nullptr);
  return status == ANN_OK || status == ANN_VERSION;
}

void check_folder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) refuse(path, "the folder " + folder + " is missing");
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse(path, "the folder " + folder + " cannot be written: " + std::strerror(errno));
  }
}

void check_old_file(const std::string& path, const std::vector<std::string>& read, Replaces may) {
  for (const std::string& name : read) {
    std::error_code failure;
    const std::string file = is_standard_stream(name) ? "/dev/stdin" : name;
    if (fs::equivalent(path, file, failure)) {
      refuse(path, "is a file that this command reads; --force writes over it");
    }
  }
  std::error_code failure;
  if (fs::file_size(path, failure) == 0 && !failure) return;
  if (may == Replaces::kNothing) refuse(path, "exists; --force writes over it");
  if (!is_index(path)) refuse(path, "exists and is no index; --force writes over it");
}

}  // namespace

void check_output(const std::string& path, const std::vector<std::string>& read, Replaces may, bool force) {
  if (is_standard_stream(path)) {
    open_standard_output();
    return;
  }
  std::error_code failure;
  const fs::file_status state = fs::status(path, failure);
  if (state.type() == fs::file_type::none) refuse(path, "cannot be written: " + failure.message());
  if (state.type() == fs::file_type::directory) refuse(path, "is a folder; expected a file");
  if (fs::exists(state) && state.type() != fs::file_type::regular) {
    refuse(path, "is no regular file; \"-\" writes to standard output");
  }
  check_folder(fs::exists(state) ? fs::canonical(path).string() : path);
  if (fs::exists(state) && !force) check_old_file(path, read, may);
}
