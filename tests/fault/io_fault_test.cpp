// Proves that any call to the system may fail while an index is saved, opened or checked.
//
// A run without faults counts the calls. Then the same is done again and again with the first, the
// second, ... call failing: with EIO, ENOSPC, EDQUOT and EINTR, with half of the bytes moved and with
// none moved; once, or that call and all later ones. This for every kind of index, for a target that
// is new, that replaces an old file, and that is a link to one, where a killed save has left a file; on a
// system that has files without a name, and on one that has none; opening FULL, LAZY and TRUSTED, checking,
// and reading the description.
//
// After each fault of a save:
//   the status is ANN_OK only where the fault can be overcome (a signal, a short count, the answer of
//     a close that decides nothing, a lock, the removal of what another save left); else ANN_IO with the
//     errno that was injected;
//   the target is, bit for bit, the old file (or not there) if the new one was not renamed over it,
//     and the new one if it was; it opens;
//   no temporary file is left, unless a removal was made to fail;
//   no descriptor is left open; the index gives the answers that it gave before.
// After each fault of an open: ANN_OK with the right answers, or the refusal and nothing left over.
//
// A signal that interrupts every call for ever must end in ANN_IO as well, not in a loop.
//
//     fault_io_fault            a kind of each sort: some 10^4 faults
//     GANNET_FAULT_SCALE=1 fault_io_fault    every graph, metric and element: 10^5
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "boundary.h"
#include "check.h"
#include "made_files.h"
#include "storage/storage.h"
#include "watched_files.h"

using namespace fault;

namespace {

struct Fault {
  const char* name;
  int64_t answer;  // below 0: -errno
};
constexpr int64_t kHalf = 1;
constexpr int64_t kNone = 0;
constexpr Fault kFaults[] = {{"EIO", -EIO},     {"ENOSPC", -ENOSPC}, {"EDQUOT", -EDQUOT},
                             {"EINTR", -EINTR}, {"half", kHalf},     {"nothing", kNone}};

/// Fails call number `at` (1 is the first; 0: none), or it and all later ones.
class FailingFiles final : public WatchedFiles {
 public:
  FailingFiles() = default;
  FailingFiles(uint64_t at, const Fault& fault, bool forever, bool only_names)
      : at_(at), fault_(&fault), forever_(forever) {
    names_only = only_names;
  }

  uint64_t calls = 0;
  uint64_t refused = 0;   // calls that did not get what they asked for
  Op first = Op::kUnmap;  // the first of them
  bool first_after_making = false;
  bool first_after_rename = false;
  bool first_of_left = false;  // while it looked for what another save left
  bool renamed = false;
  bool made = false;  // the new file, by whatever way
  bool removal_failed = false;
  int64_t mapped = 0;

 private:
  Verdict before(const FileCall& call) override {
    ++calls;
    if (call.op == Op::kOpenLeft) left_ = true;
    if (at_ == 0 || calls < at_ || (calls > at_ && !forever_)) return 0;
    const Verdict verdict = fault_->answer < 0 ? fault_->answer : short_count(call);
    if (verdict == 0 || call.op == Op::kUnmap) return 0;
    if (refused++ == 0) {
      first = call.op;
      first_after_making = made;
      first_after_rename = renamed;
      first_of_left = !made && left_;
    }
    return verdict;
  }
  void after(const FileCall& call, int64_t answer) override {
    if (call.op == Op::kCreate || call.op == Op::kCreateUnnamed) made = true;
    if (call.op == Op::kRename && answer == 0) renamed = true;
    if (left_ && !made && answer < 0 && !(call.op == Op::kOpenLeft && answer == -ENOENT))
      removal_failed = true;
    if (call.op == Op::kUnlink && answer < 0) removal_failed = true;
    if (call.op == Op::kMap && answer == 0) ++mapped;
    if (call.op == Op::kUnmap) --mapped;
  }
  Verdict short_count(const FileCall& call) const {
    if (!moves_bytes(call.op) || call.bytes == 0) return 0;
    if (fault_->answer == kNone) return kMovesNothing;
    return call.bytes > 1 ? static_cast<Verdict>(call.bytes / 2) : 0;
  }

  uint64_t at_ = 0;
  const Fault* fault_ = &kFaults[0];
  bool forever_ = false;
  bool left_ = false;
};

struct Counts {
  uint64_t injected = 0;
  uint64_t overcome = 0;
};

/// What is tested, for messages.
struct Point {
  const Made& made;
  const char* what;
  uint64_t call;
  const Fault& fault;
  bool forever;
  bool names_only;

  std::string text(const FailingFiles& files) const {
    char text[200];
    std::snprintf(text, sizeof text, "%s, %s%s, call %llu (%s), %s %s", made.name.c_str(), what,
                  names_only ? " with names only" : "", static_cast<unsigned long long>(call),
                  op_name(files.first), fault.name, forever ? "for ever" : "once");
    return text;
  }
};

/// Status and text of a call that failed agree with what was injected.
void check_refusal(const Point& point, const FailingFiles& files, ann_status status, const ann_error& error) {
  const std::string text = point.text(files);
  const bool ended_early = point.fault.answer == kNone && files.first == Op::kReadAt;
  if (ended_early && status == ANN_CORRUPT) return;  // a reader takes it for a file that was cut
  const int wanted = point.fault.answer < 0 ? static_cast<int>(-point.fault.answer) : EIO;
  CHECK_SAY(status == ANN_IO && error.status == ANN_IO, "%s: answers %s", text.c_str(),
            ann_status_name(status));
  CHECK_SAY(error.os_error == wanted, "%s: os_error is %d", text.c_str(), error.os_error);
  char number[32];
  std::snprintf(number, sizeof number, "errno %d", wanted);
  CHECK_SAY(std::strstr(error.message, number) != nullptr, "%s: says \"%s\"", text.c_str(), error.message);
}

// --- Saving ---------------------------------------------------------------------------------------

enum class Target { kNew, kOld, kLink };
constexpr const char* kTargetNames[] = {"save to a new file", "save over a file", "save by a link"};

/// Puts the folder into the state before a save; returns the path to save to.
std::string prepare(const Folder& folder, Target target, const Bytes& old) {
  folder.clear();
  if (target == Target::kLink) write_file(folder.path(left_name("index.gannet", 0)), "left", 4);
  if (target != Target::kNew) write_file(folder.path("index.gannet"), old.data(), old.size());
  if (target != Target::kLink) return folder.path("index.gannet");
  CHECK(symlink("index.gannet", folder.path("link").c_str()) == 0);
  return folder.path("link");
}

ann_status save(const Made& made, const std::string& path, gannet::Files& files, ann_error* error) {
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.threads = 1;
  made.index->files = &files;
  const ann_status status = ann_save(made.index.get(), path.c_str(), &params, nullptr, error);
  made.index->files = &gannet::system_files();
  return status;
}

/// Whether a fault may end in ANN_OK.
bool can_be_overcome(const Point& point, const FailingFiles& files) {
  if (point.fault.answer == -EINTR || point.fault.answer == kHalf) return true;
  // An error of the disk that a lock or a look at what is left meets shows again where it matters.
  if (files.first_of_left || files.first == Op::kLock) return true;
  // Of a folder: that of a link, that of the target after its sync.
  return files.first == Op::kClose && (files.first_after_rename || !files.first_after_making);
}

void check_folder(const Point& point, const FailingFiles& files, const Folder& folder, Target target,
                  const Bytes& old) {
  const std::string text = point.text(files);
  bool found = false;
  const Bytes now = read_file(folder.path("index.gannet"), &found);
  if (files.renamed) {
    CHECK_SAY(found && now == point.made.file, "%s: the target is not the new file", text.c_str());
  } else if (target == Target::kNew) {
    CHECK_SAY(!found, "%s: there is a target that was not renamed", text.c_str());
  } else {
    CHECK_SAY(found && now == old, "%s: the old file is not what it was", text.c_str());
  }
  if (found)
    CHECK_SAY(ann_verify(folder.path("index.gannet").c_str(), nullptr, nullptr, nullptr) == ANN_OK,
              "%s: the target does not verify", text.c_str());
  struct stat facts;
  if (target == Target::kLink)
    CHECK_SAY(lstat(folder.path("link").c_str(), &facts) == 0 && S_ISLNK(facts.st_mode),
              "%s: the link is gone", text.c_str());
  // What another save left stays where this one ends before it looks.
  const bool looked_away = !files.made && target == Target::kLink &&
                           folder.temporary() == std::vector{left_name("index.gannet", 0)};
  CHECK_SAY(files.removal_failed || looked_away || folder.temporary().empty(), "%s: a temporary file is left",
            text.c_str());
}

/// False once there is no such call.
bool save_with_fault(const Point& point, const Folder& folder, Target target, const Bytes& old,
                     Counts& counts) {
  const std::string path = prepare(folder, target, old);
  FailingFiles files(point.call, point.fault, point.forever, point.names_only);
  const int descriptors = open_descriptors();
  ann_error error = ANN_ERROR_INIT;
  const ann_status status = save(point.made, path, files, &error);
  if (files.calls < point.call) return false;
  if (files.refused == 0) return true;  // nothing here that could be cut short
  ++counts.injected;
  const std::string text = point.text(files);
  CHECK_SAY(open_descriptors() == descriptors, "%s: a descriptor is left open", text.c_str());
  if (status == ANN_OK) {
    ++counts.overcome;
    CHECK_SAY(can_be_overcome(point, files), "%s: answers ANN_OK", text.c_str());
    CHECK_SAY(files.renamed, "%s: answers ANN_OK without a new file", text.c_str());
  } else {
    check_refusal(point, files, status, error);
    const bool once = point.fault.answer == kHalf || (point.fault.answer == -EINTR && !point.forever);
    const bool retried = files.first == Op::kWrite || files.first == Op::kReadAt ||
                         files.first == Op::kCreate || files.first == Op::kReserve;
    CHECK_SAY(!(once && retried), "%s: could have been overcome", text.c_str());
  }
  check_folder(point, files, folder, target, old);
  CHECK_SAY(point.made.answers(point.made.index.get()) == point.made.expected,
            "%s: the index answers otherwise", text.c_str());
  if (counts.injected % 16 == 0) {
    CHECK_SAY(save(point.made, path, gannet::system_files(), &error) == ANN_OK, "%s: the next save fails: %s",
              text.c_str(), error.message);
    CHECK(read_file(folder.path("index.gannet")) == point.made.file);
  }
  return true;
}

// --- Opening --------------------------------------------------------------------------------------

enum class Reading { kFull, kLazy, kTrusted, kVerify, kDescribe };
constexpr const char* kReadingNames[] = {"open FULL", "open LAZY", "open TRUSTED", "verify", "describe"};

/// Opens or checks; what does not go through a context is called where the boundary calls it.
ann_status read_index(Reading reading, const std::string& path, ann_context* context, ann_index** out,
                      ann_error* error) {
  if (reading <= Reading::kTrusted) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = static_cast<int32_t>(reading) + ANN_OPEN_FULL;
    params.threads = 1;
    return ann_open(context, path.c_str(), &params, out, nullptr, error);
  }
  return gannet::guarded(error, [&] {
    const gannet::Execution execution{gannet::Allocator(), 1, nullptr};
    if (reading == Reading::kVerify) {
      gannet::verify_file(path.c_str(), {}, *context->files, execution);
    } else {
      ann_file_description description = ANN_FILE_DESCRIPTION_INIT;
      gannet::describe_file(path.c_str(), *context->files, &description);
      CHECK(description.file_bytes > 0);
    }
  });
}

bool read_with_fault(const Point& point, Reading reading, const std::string& path, ann_context* context,
                     Counts& counts) {
  FailingFiles files(point.call, point.fault, point.forever, false);
  const int descriptors = open_descriptors();
  ann_error error = ANN_ERROR_INIT;
  ann_index* opened = nullptr;
  context->files = &files;
  const ann_status status = read_index(reading, path, context, &opened, &error);
  context->files = &gannet::system_files();
  if (opened != nullptr)
    CHECK_SAY(point.made.answers(opened) == point.made.expected, "%s: answers otherwise",
              point.text(files).c_str());
  ann_index_free(opened);
  if (files.calls < point.call) return false;
  if (files.refused == 0) return true;
  ++counts.injected;
  const std::string text = point.text(files);
  CHECK_SAY((opened != nullptr) == (status == ANN_OK && reading <= Reading::kTrusted),
            "%s: status %d and an index that does not fit it", text.c_str(), status);
  CHECK_SAY(open_descriptors() == descriptors, "%s: a descriptor is left open", text.c_str());
  CHECK_SAY(files.mapped == 0, "%s: a mapping is left", text.c_str());
  if (status == ANN_OK) {
    ++counts.overcome;
    CHECK_SAY(point.fault.answer == -EINTR || point.fault.answer == kHalf || files.first == Op::kClose,
              "%s: answers ANN_OK", text.c_str());
  } else {
    check_refusal(point, files, status, error);
    CHECK_SAY(point.fault.answer != kHalf, "%s: could have been overcome", text.c_str());
  }
  return true;
}

// --- All points -----------------------------------------------------------------------------------

/// Calls test(point) for every call, fault and duration; `test` says when there are no more calls.
template <class Test>
void all_points(const Made& made, const char* what, bool names_only, const Test& test) {
  for (const Fault& fault : kFaults)
    for (const bool forever : {false, true}) {
      uint64_t call = 1;
      while (test(Point{made, what, call, fault, forever, names_only})) ++call;
      CHECK_SAY(call > 3, "%s, %s: made only %llu calls", made.name.c_str(), what,
                static_cast<unsigned long long>(call));
    }
}

void all_of_kind(const Kind& kind, const Folder& folder, Counts& saving, Counts& reading) {
  const Made made(kind, 1);
  const Made other(kind, 2);
  for (const Target target : {Target::kNew, Target::kOld, Target::kLink})
    for (const bool names_only : {false, true})
      all_points(made, kTargetNames[static_cast<int>(target)], names_only, [&](const Point& point) {
        return save_with_fault(point, folder, target, other.file, saving);
      });

  folder.clear();
  const std::string path = folder.path("index.gannet");
  write_file(path, made.file.data(), made.file.size());
  ann_context* context = nullptr;
  CHECK_OK(ann_context_create(nullptr, &context, nullptr));
  for (int way = 0; way <= static_cast<int>(Reading::kDescribe); ++way)
    all_points(made, kReadingNames[way], false, [&](const Point& point) {
      return read_with_fault(point, static_cast<Reading>(way), path, context, reading);
    });
  CHECK(read_file(path) == made.file);
  ann_context_free(context);
}

}  // namespace

int main() {
  const Folder folder;
  Counts saving, reading;
  for (const Kind& kind : fault_scale(4) == 1 ? all_kinds() : few_kinds())
    all_of_kind(kind, folder, saving, reading);
  // Nothing injected would prove nothing.
  CHECK(saving.injected >= 1000 && reading.injected >= 1000);
  std::printf(
      "faults injected: %llu into saves (%llu overcome), %llu into opens and checks "
      "(%llu overcome)\n",
      static_cast<unsigned long long>(saving.injected), static_cast<unsigned long long>(saving.overcome),
      static_cast<unsigned long long>(reading.injected), static_cast<unsigned long long>(reading.overcome));
  return finish("io_fault");
}
