#include "standard_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

constexpr const char* kInputName = "/dev/stdin";

bool can_be_opened() {
  struct stat state{};
  return fstat(STDIN_FILENO, &state) == 0 && S_ISREG(state.st_mode) &&
         lseek(STDIN_FILENO, 0, SEEK_CUR) == 0 && access(kInputName, R_OK) == 0;
}

void write_all(int to, const char* from, size_t bytes) {
  while (bytes > 0) {
    const ssize_t took = write(to, from, bytes);
    if (took < 0 && errno == EINTR) continue;
    if (took <= 0) fail("the copy of standard input cannot be written");
    from += took;
    bytes -= static_cast<size_t>(took);
  }
}

// Copies standard input to the end.
void copy_input(int to) {
  std::vector<char> block(1 << 20);
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("standard input cannot be read");
    if (got == 0) return;
    write_all(to, block.data(), static_cast<size_t>(got));
  }
}

}  // namespace

bool is_standard_stream(const std::string& path) {
  return path == "-" || (path.ends_with(":-") && path.find_first_of("/:") == path.size() - 2);
}

std::string ending_of(const std::string& path) {
  if (path == "-") return ".npy";
  if (is_standard_stream(path)) return "." + path.substr(0, path.size() - 2);
  return std::filesystem::path(path).extension().string();
}

std::string file_of_standard_input() {
  if (can_be_opened()) return kInputName;
  std::string pattern = (std::filesystem::temp_directory_path() / "gannet-XXXXXX").string();
  const int copy = mkstemp(pattern.data());
  if (copy < 0) fail(pattern + " cannot be made for a copy of standard input");
  unlink(pattern.c_str());
  copy_input(copy);
  if (lseek(copy, 0, SEEK_SET) != 0 || dup2(copy, STDIN_FILENO) < 0) fail("standard input");
  close(copy);
  if (!can_be_opened()) throw std::runtime_error("standard input cannot be read as a file");
  return kInputName;
}

File open_standard_output() {
  if (isatty(STDOUT_FILENO) != 0) {
    throw std::runtime_error("standard output is a terminal; send it to a file or a pipe");
  }
  const int descriptor = dup(STDOUT_FILENO);
  File out(descriptor < 0 ? nullptr : fdopen(descriptor, "wb"));
  if (!out) fail("standard output cannot be written");
  return out;
}

void keep_standard_descriptors() {
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    // For reading alone, so that a write to a closed stream goes on failing.
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != descriptor) std::exit(1);
  }
}

int finish_standard_output(const char* program, int status, int fault) {
  std::cout.flush();
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return status;
  std::fprintf(stderr, "%s: standard output cannot be written%s%s\n", program, errno == 0 ? "" : ": ",
               errno == 0 ? "" : std::strerror(errno));
  return fault;
}
