// Proves that a save may be killed at any moment.
//
// A child process saves and is killed by SIGKILL: before and after each of its calls to the system,
// and within each write, when 1 byte, 511, 512, half or all but one byte of it are written. Then the
// parent looks at the target: it must be the old file (or not be there) if the child died before the
// rename had been made, and the new file, whole, afterwards. A later save must work, and remove what the
// dead one left. Where the system has files without a name, little is left: only who dies between naming
// the whole file and renaming it leaves one. What a living process is writing must stay: one is stopped in
// the middle of a save while others save to the same path, and must come to its end when it goes on.
//
// Kills between two calls leave out what happens within one, so further children are killed at a
// random moment while they save over and over: then the target must be one of the two files.
//
// All this holds for the calls of gannet::Files. That a save makes no others is seen once by strace,
// where it is there: the calls that the table made are the calls that the kernel saw.
//
//     fault_kill           about a thousand kills
//     GANNET_FAULT_SCALE=1 fault_kill    all of them
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "boundary.h"
#include "check.h"
#include "made_files.h"
#include "support.h"
#include "watched_files.h"

using namespace fault;

namespace {

using Long = unsigned long long;  // for printf

// --- Where to die ---------------------------------------------------------------------------------

enum class Moment { kBefore, kAfter, kWithin };

struct Death {
  uint64_t call = 0;  // 1 is the first
  Moment moment = Moment::kBefore;
  uint64_t written = 0;  // bytes, of a write that is cut
};

class DeadlyFiles final : public WatchedFiles {
 public:
  DeadlyFiles(const Death& death, bool only_names, int signal) : death_(death), signal_(signal) {
    names_only = only_names;
  }

 private:
  Verdict before(const FileCall&) override {
    if (++calls_ != death_.call) return 0;
    if (death_.moment == Moment::kBefore) kill(getpid(), signal_);
    return static_cast<Verdict>(death_.written);
  }
  void after(const FileCall&, int64_t) override {
    if (calls_ == death_.call && death_.moment != Moment::kBefore) kill(getpid(), signal_);
  }
  Death death_;
  int signal_;
  uint64_t calls_ = 0;
};

struct NotedCall {
  Op op;
  uint64_t bytes;
};

/// Keeps the list of the calls.
class NotingFiles final : public WatchedFiles {
 public:
  explicit NotingFiles(bool only_names) { names_only = only_names; }
  std::vector<NotedCall> calls;

 private:
  Verdict before(const FileCall& call) override {
    calls.push_back({call.op, call.bytes});
    return 0;
  }
};

ann_status save(const Made& made, const std::string& path, bool sync, gannet::Files& files) {
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.threads = 1;
  params.sync = sync ? ANN_ON : ANN_OFF;
  made.index->files = &files;
  const ann_status status = ann_save(made.index.get(), path.c_str(), &params, nullptr, nullptr);
  made.index->files = &gannet::system_files();
  return status;
}

std::vector<Death> deaths_of(const std::vector<NotedCall>& calls) {
  std::vector<Death> deaths;
  for (uint64_t i = 0; i < calls.size(); ++i) {
    deaths.push_back({i + 1, Moment::kBefore});
    deaths.push_back({i + 1, Moment::kAfter});
    if (calls[i].op != Op::kWrite) continue;
    std::vector<uint64_t> cuts = {1, 511, 512, calls[i].bytes / 2, calls[i].bytes - 1};
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (const uint64_t cut : cuts)
      if (cut > 0 && cut < calls[i].bytes) deaths.push_back({i + 1, Moment::kWithin, cut});
  }
  return deaths;
}

// --- One kill -------------------------------------------------------------------------------------

struct Scene {
  const Made& made;
  const Made& other;
  const Folder& folder;
  bool replace;
  bool sync;
  bool names_only;

  std::string path() const { return folder.path("index.gannet"); }
  void prepare() const {
    folder.clear();
    if (replace) write_file(path(), other.file.data(), other.file.size());
  }
};

/// Whether the child was killed.
bool run_to_death(const Scene& scene, const Death& death) {
  std::fflush(nullptr);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    DeadlyFiles files(death, scene.names_only, SIGKILL);
    _exit(save(scene.made, scene.path(), scene.sync, files) == ANN_OK ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

void check_later_save(const Scene& scene, const std::string& text) {
  const std::vector<std::string> left = scene.folder.temporary();
  CHECK_SAY(left.empty() || left == std::vector{left_name("index.gannet", 0)}, "%s: %zu files are left",
            text.c_str(), left.size());
  // As if more saves had died, at once.
  if (!left.empty())
    for (const uint32_t number : {1u, 2u, 6u})
      write_file(scene.folder.path(left_name("index.gannet", number)), "left", 4);
  NotingFiles files(scene.names_only);
  CHECK_SAY(save(scene.made, scene.path(), scene.sync, files) == ANN_OK, "%s: a later save fails",
            text.c_str());
  CHECK_SAY(read_file(scene.path()) == scene.made.file, "%s: a later save gives another file", text.c_str());
  CHECK_SAY(scene.folder.temporary().empty(), "%s: what was left is still there", text.c_str());
}

void kill_once(const Scene& scene, const std::vector<NotedCall>& calls, const Death& death) {
  char text[160];
  static constexpr const char* kMoments[] = {"before", "after", "within"};
  const Op op = calls[death.call - 1].op;
  std::snprintf(text, sizeof text, "%s, %s%s, killed %s call %llu (%s) %llu", scene.made.name.c_str(),
                scene.replace ? "over a file" : "new", scene.sync ? "" : ", no sync",
                kMoments[static_cast<int>(death.moment)], static_cast<Long>(death.call), op_name(op),
                static_cast<Long>(death.written));
  scene.prepare();
  CHECK_SAY(run_to_death(scene, death), "%s: the child was not killed", text);
  const bool left = !scene.folder.temporary().empty();
  if (left && !scene.names_only) {
    CHECK_SAY((op == Op::kLink && death.moment == Moment::kAfter) ||
                  (op == Op::kRename && death.moment == Moment::kBefore),
              "%s: leaves a file", text);
  }
  uint64_t rename_call = 1;
  while (calls[rename_call - 1].op != Op::kRename) ++rename_call;
  const bool renamed =
      death.call > rename_call || (death.call == rename_call && death.moment == Moment::kAfter);
  bool found = false;
  const Bytes now = read_file(scene.path(), &found);
  if (renamed || scene.replace) {
    CHECK_SAY(found && now == (renamed ? scene.made.file : scene.other.file),
              "%s: the target is not the %s file", text, renamed ? "new" : "old");
    CHECK_SAY(ann_verify(scene.path().c_str(), nullptr, nullptr, nullptr) == ANN_OK,
              "%s: the target does not verify", text);
  } else {
    CHECK_SAY(!found, "%s: there is a target before the rename", text);
  }
  check_later_save(scene, text);
}

/// Kills at all calls, one of `step`; returns how many.
uint64_t kill_at_calls(const Scene& scene, uint64_t step, uint64_t first) {
  scene.prepare();
  NotingFiles noting(scene.names_only);
  CHECK_OK(save(scene.made, scene.path(), scene.sync, noting));
  const std::vector<Death> deaths = deaths_of(noting.calls);
  uint64_t kills = 0;
  for (uint64_t i = first % step; i < deaths.size(); i += step, ++kills)
    kill_once(scene, noting.calls, deaths[i]);
  return kills;
}

// --- Kills at any time ----------------------------------------------------------------------------

[[noreturn]] void save_for_ever(const Scene& scene) {
  for (;;) {
    if (save(scene.made, scene.path(), scene.sync, gannet::system_files()) != ANN_OK) _exit(1);
    if (save(scene.other, scene.path(), scene.sync, gannet::system_files()) != ANN_OK) _exit(1);
  }
}

uint64_t kill_at_any_time(const Scene& scene, uint64_t count, uint64_t seed) {
  for (uint64_t i = 0; i < count; ++i) {
    scene.prepare();
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) save_for_ever(scene);
    sleep_seconds(random_unit(&seed) * 0.004);
    int status = 0;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK_SAY(WIFSIGNALED(status), "a save failed before its process was killed");
    bool found = false;
    const Bytes now = read_file(scene.path(), &found);
    CHECK_SAY(found ? now == scene.made.file || now == scene.other.file : !scene.replace,
              "%s: killed at some time, the target is neither file", scene.made.name.c_str());
    check_later_save(scene, "killed at some time");
  }
  return count;
}

// --- What lives -----------------------------------------------------------------------------------

/// A save that is stopped within a write, while it has a name, does not lose its file to other saves.
void stop_and_go_on(const Scene& scene) {
  scene.prepare();
  NotingFiles noting(true);
  CHECK_OK(save(scene.made, scene.path(), scene.sync, noting));
  uint64_t write = 1;
  while (noting.calls[write - 1].op != Op::kWrite) ++write;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    DeadlyFiles files({write, Moment::kAfter, 0}, true, SIGSTOP);
    _exit(save(scene.made, scene.path(), scene.sync, files) == ANN_OK ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
  const std::vector<std::string> living = {left_name("index.gannet", 0)};
  CHECK(scene.folder.temporary() == living);
  // What is left stands behind it.
  write_file(scene.folder.path(left_name("index.gannet", 1)), "left", 4);
  for (const bool names_only : {true, false}) {
    NotingFiles files(names_only);
    CHECK_OK(save(scene.other, scene.path(), scene.sync, files));
    CHECK(read_file(scene.path()) == scene.other.file);
    CHECK_SAY(scene.folder.temporary() == living, "a living save lost its file, or a dead one's stays");
  }
  CHECK(kill(child, SIGCONT) == 0 && waitpid(child, &status, 0) == child);
  CHECK_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a save that was stopped for a while fails");
  CHECK(read_file(scene.path()) == scene.made.file);
  CHECK(scene.folder.temporary().empty());
}

// --- What the kernel sees -------------------------------------------------------------------------

constexpr const char* kMark = "/gannet-marks-this-moment";

/// The part of this program that runs below strace: saves and opens between two marks and writes the
/// calls of the table to `out`.
int trace(const char* path, const char* out) {
  const Made made(few_kinds()[1], 1);
  NotingFiles noting(false);
  ann_context* context = nullptr;
  CHECK_OK(ann_context_create(nullptr, &context, nullptr));
  context->files = &noting;
  noting.calls.reserve(1000);
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.threads = 1;
  access(kMark, F_OK);
  CHECK_OK(save(made, path, true, noting));
  for (params.mode = ANN_OPEN_FULL; params.mode <= ANN_OPEN_LAZY; ++params.mode) {
    ann_index* opened = nullptr;
    CHECK_OK(ann_open(context, path, &params, &opened, nullptr, nullptr));
    ann_index_free(opened);
  }
  access(kMark, F_OK);
  std::ofstream list(out);
  for (const NotedCall& call : noting.calls) list << op_name(call.op) << '\n';
  ann_context_free(context);
  return finish("trace");
}

/// Which of the table's calls a line of strace stands for, or "" where none does.
std::string table_call(const std::string& line) {
  const size_t start = line.find_first_not_of("0123456789 ");
  const std::string name = line.substr(start, line.find('(') - start);
  const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
  if (name == "openat" || name == "open")
    return has("O_TMPFILE")     ? "create_unnamed"
           : has("O_CREAT")     ? "create"
           : has("O_DIRECTORY") ? "open_folder"
           : has("O_RDWR")      ? "open_left"
                                : "open_to_read";
  if (name == "newfstatat") return has("AT_EMPTY_PATH") ? "facts" : "facts_in";
  if (name == "fcntl") return has("F_DUPFD_CLOEXEC") ? "duplicate" : name;
  // Whether a file without a name can be linked is a part of making it.
  if (name == "access") return has("/proc/self/fd/") ? "" : name;
  if (name == "mmap") return has("MAP_ANONYMOUS") ? "" : "map";
  static const std::array<std::array<const char*, 2>, 14> kNames = {{{"close", "close"},
                                                                     {"pread64", "read_at"},
                                                                     {"write", "write"},
                                                                     {"fallocate", "reserve"},
                                                                     {"fchmod", "set_mode"},
                                                                     {"fchown", "set_owner"},
                                                                     {"fsync", "sync"},
                                                                     {"renameat", "rename"},
                                                                     {"unlinkat", "unlink"},
                                                                     {"linkat", "link"},
                                                                     {"flock", "lock"},
                                                                     {"sync_file_range", "write_back"},
                                                                     {"fstat", "facts"},
                                                                     {"readlinkat", "read_link"}}};
  for (const auto& [call, ours] : kNames)
    if (name == call) return ours;
  return name;
}

/// The kernel's list between the marks.
std::vector<std::string> seen_by_kernel(const std::string& path) {
  std::vector<std::string> seen;
  std::ifstream log(path);
  bool between = false;
  for (std::string line; std::getline(log, line);) {
    if (line.find(kMark) != std::string::npos) {
      between = !between;
      continue;
    }
    const std::string call = between ? table_call(line) : "";
    if (!call.empty()) seen.push_back(call);
  }
  return seen;
}

std::vector<std::string> made_by_table(const std::string& path) {
  std::vector<std::string> made;
  std::ifstream list(path);
  for (std::string line; std::getline(list, line);)
    if (line != "unmap") made.push_back(line);  // strace counts it to memory, not to files
  return made;
}

/// Whether strace was there to look.
bool compare_with_kernel(const char* program, const Folder& folder) {
  if (test_sanitized()) return false;  // a sanitizer makes calls of its own
  folder.clear();
  const std::string log = folder.path("log"), list = folder.path("list");
  CHECK(symlink("index.gannet", folder.path("link").c_str()) == 0);
  write_file(folder.path("index.gannet"), "", 0);
  const std::string command = "strace -f -o " + log +
                              " -e trace=%file,%desc,fsync,fdatasync,sync,sync_file_range " + program +
                              " --trace " + folder.path("link") + " " + list + " > /dev/null 2>&1";
  if (std::system("strace -o /dev/null true > /dev/null 2>&1") != 0) return false;
  CHECK(std::system(command.c_str()) == 0);
  const std::vector<std::string> kernel = seen_by_kernel(log), table = made_by_table(list);
  CHECK(table.size() > 30);
  CHECK_SAY(kernel.size() == table.size(), "the kernel saw %zu calls, the table made %zu", kernel.size(),
            table.size());
  for (size_t i = 0; i < std::min(kernel.size(), table.size()); ++i)
    if (!CHECK_SAY(kernel[i] == table[i], "call %zu: the kernel saw %s, the table made %s", i + 1,
                   kernel[i].c_str(), table[i].c_str()))
      break;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--trace") == 0) return trace(argv[2], argv[3]);
  const uint64_t step = fault_scale(2);
  const Folder folder;
  const std::vector<Kind> kinds = step == 1 ? all_kinds() : few_kinds();
  uint64_t at_calls = 0, at_any_time = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Made made(kinds[i], 1);
    const Made other(kinds[i], 2);
    for (const bool replace : {false, true})
      for (const bool sync : {true, false})
        for (const bool names_only : {false, true})
          at_calls += kill_at_calls({made, other, folder, replace, sync, names_only}, step, i);
    at_any_time += kill_at_any_time({made, other, folder, i % 2 == 0, true, false}, 100 / step, i);
    stop_and_go_on({made, other, folder, true, i % 2 == 0, true});
  }
  const bool compared = compare_with_kernel(argv[0], folder);
  CHECK(at_calls >= 100);  // nothing killed would prove nothing
  std::printf("kills: %llu at calls and within writes, %llu at any time; calls %s\n",
              static_cast<Long>(at_calls), static_cast<Long>(at_any_time),
              compared ? "as strace sees them" : "not compared with strace, which is not there");
  return finish("kill");
}
