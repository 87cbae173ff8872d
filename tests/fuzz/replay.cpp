// Runs kept inputs through a target, without a fuzzer: any compiler, any sanitizer, seconds.
//
//   replay_TARGET PATH...              each file, or each file of a folder; a finding aborts
//   replay_TARGET --must-fail PATH...  each must end in a finding, in a process of its own
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

/// The files that the arguments name, in an order that does not depend on the file system.
std::vector<fs::path> inputs_of(char** first, char** last) {
  std::vector<fs::path> inputs;
  for (char** argument = first; argument != last; ++argument) {
    if (!fs::is_directory(*argument)) {
      inputs.emplace_back(*argument);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(*argument)) {
      if (entry.is_regular_file()) inputs.push_back(entry.path());
    }
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

void run_one(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    std::fprintf(stderr, "replay: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  // A copy that ends where its memory does.
  uint8_t* exact = new uint8_t[bytes.size()];
  std::copy(bytes.begin(), bytes.end(), exact);
  LLVMFuzzerTestOneInput(exact, bytes.size());
  delete[] exact;
}

/// Whether an input ends its process by a signal or a sanitizer's exit.
bool fails(const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    run_one(path);
    ::_exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    std::perror("replay");
    std::exit(2);
  }
  return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

}  // namespace

int main(int count, char** arguments) {
  const bool must_fail = count > 1 && std::strcmp(arguments[1], "--must-fail") == 0;
  const std::vector<fs::path> inputs = inputs_of(arguments + (must_fail ? 2 : 1), arguments + count);
  if (inputs.empty()) {
    std::fprintf(stderr, "replay: no input was named\n");
    return 2;
  }
  int missed = 0;
  for (const fs::path& path : inputs) {
    if (!must_fail) {
      std::fprintf(stderr, "%s\r", path.filename().c_str());  // the last line of a crash names it
      run_one(path);
    } else if (!fails(path)) {
      std::fprintf(stderr, "replay: no finding in %s\n", path.c_str());
      ++missed;
    }
  }
  std::printf("%zu inputs%s\n", inputs.size(), must_fail ? ", each of which must fail" : "");
  return missed == 0 ? 0 : 1;
}
