// Proves that the power may fail at any moment of a save.
//
// The calls of a real save are logged. A power failure after any of them leaves on the disk what was
// synced, and of the rest whatever the system had happened to write: a state is legal if it follows
// from the log by these rules.
//
//   Bytes     A write that a sync of its file follows in the log is there whole. Any other is there,
//             not there, or there in part, in pieces of 512 or of 4,096 bytes; writes reach the disk in
//             any order. Where nothing was written are zeros or, on file systems that hand out old
//             blocks, anything.
//   Length    Reserved space counts as length, or it does not; else a file ends behind the last piece
//             that is there.
//   Names     A new name or a rename that a sync of the folder follows is there. Any other is there or
//             not, whatever has become of the bytes. A rename may be half there: both names. A file gets its
//             name when it is made or, where the system has files without one, when it is whole.
//
// All states with one write lost, with one write alone, with each write torn, and many mixtures are
// made as real files, over an old file and without one, for each moment, and the target is opened. It
// must be the old file, the new one, or (where there was none) absent, and the new one once ann_save
// has answered ANN_OK. A later save must work in any state.
//
// That the machinery finds what it looks for is proved by saves that are wrong on purpose: without
// any sync, with one that is left out, with the folder's left out. Each must be caught. Their damaged
// files must all be refused: not one may open as something else.
//
//     fault_power_loss     some 10^4 states
//     GANNET_FAULT_SCALE=1 fault_power_loss    all kinds, more mixtures
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "boundary.h"
#include "check.h"
#include "made_files.h"
#include "support.h"
#include "watched_files.h"

using namespace fault;

namespace {

using Long = unsigned long long;  // for printf

// --- The log --------------------------------------------------------------------------------------

/// What of a save matters to a disk. There are two files: the old one, which no call writes to, and
/// the new one.
struct DiskOp {
  enum What { kCreate, kWrite, kReserve, kSyncFile, kRename, kSyncFolder, kUnlink } what;
  uint64_t offset = 0;
  Bytes data;          // kWrite
  uint64_t bytes = 0;  // kReserve
};

/// What is wrong with a save on purpose.
enum class Defect { kNone, kFileNotSynced, kFolderNotSynced, kSyncFails };

class LoggingFiles final : public WatchedFiles {
 public:
  LoggingFiles(Defect defect, bool only_names) : defect_(defect) { names_only = only_names; }
  std::vector<DiskOp> log;
  std::string temporary;  // name of the new file before the rename

 private:
  Verdict before(const FileCall& call) override {
    return defect_ == Defect::kSyncFails && call.op == Op::kSync ? -EIO : 0;
  }
  void after(const FileCall& call, int64_t answer) override {
    if (answer < 0) return;
    const int descriptor = static_cast<int>(answer);
    switch (call.op) {
      case Op::kCreate:
        file_ = descriptor;
        temporary = call.path;
        log.push_back({DiskOp::kCreate, 0, {}, 0});
        return;
      case Op::kCreateUnnamed:
        file_ = descriptor;
        return;
      case Op::kLink:
        temporary = call.path;
        log.push_back({DiskOp::kCreate, 0, {}, 0});
        return;
      case Op::kOpenFolder:
        folder_ = descriptor;
        return;
      case Op::kWrite:
        CHECK(call.file == file_);
        log.push_back({DiskOp::kWrite, written_, Bytes(call.data, static_cast<uint64_t>(answer)), 0});
        written_ += static_cast<uint64_t>(answer);
        return;
      case Op::kReserve:
        log.push_back({DiskOp::kReserve, 0, {}, call.offset + call.bytes});
        return;
      case Op::kSync:
        log_sync(call.file);
        return;
      case Op::kRename:
        log.push_back({DiskOp::kRename, 0, {}, 0});
        return;
      case Op::kUnlink:
        log.push_back({DiskOp::kUnlink, 0, {}, 0});
        return;
      default:
        return;
    }
  }
  /// A sync that is left out on purpose is not in the log: the disk never heard of it.
  void log_sync(int descriptor) {
    CHECK(descriptor == file_ || descriptor == folder_);
    if (descriptor == file_ && defect_ != Defect::kFileNotSynced)
      log.push_back({DiskOp::kSyncFile, 0, {}, 0});
    if (descriptor == folder_ && defect_ != Defect::kFolderNotSynced)
      log.push_back({DiskOp::kSyncFolder, 0, {}, 0});
    if (descriptor == file_) file_ = -1;  // its number may be the folder's next
  }

  Defect defect_;
  int file_ = -1;
  int folder_ = -1;
  uint64_t written_ = 0;
};

// --- States ---------------------------------------------------------------------------------------

/// What of a write that was not synced is on the disk.
struct Fate {
  enum Part { kThere, kLost, kTorn } part = kThere;
  uint64_t piece = 512;  // of a torn write
  uint64_t pattern = 0;  // which pieces are there, by number modulo 64
};

struct Choice {
  std::vector<Fate> fates;  // one for each write of the log
  bool length_reserved = true;
  bool zeros = true;  // in places that nothing was written to
};

/// The new file as the disk has it after the first `moment` entries of the log.
Bytes disk_bytes(const std::vector<DiskOp>& log, size_t moment, const Choice& choice) {
  size_t synced = 0;
  for (size_t i = 0; i < moment; ++i)
    if (log[i].what == DiskOp::kSyncFile) synced = i;
  std::vector<uint8_t> bytes;
  const auto fill_to = [&](uint64_t length) {
    const uint8_t rest = choice.zeros ? 0 : 0xa5;
    if (bytes.size() < length) bytes.resize(length, rest);
  };
  const auto keep = [&](const DiskOp& op, uint64_t begin, uint64_t end) {
    fill_to(op.offset + end);
    std::memcpy(bytes.data() + op.offset + begin, op.data.data() + begin, end - begin);
  };
  size_t write = 0;
  for (size_t i = 0; i < moment; ++i) {
    const DiskOp& op = log[i];
    if (op.what == DiskOp::kReserve && (i < synced || choice.length_reserved)) fill_to(op.bytes);
    if (op.what != DiskOp::kWrite) continue;
    const Fate fate = i < synced ? Fate{} : choice.fates[write];
    ++write;
    if (fate.part == Fate::kLost) continue;
    if (fate.part == Fate::kThere) {
      keep(op, 0, op.data.size());
      continue;
    }
    // Pieces are those of the disk, not of the write.
    for (uint64_t at = 0; at < op.data.size();) {
      const uint64_t number = (op.offset + at) / fate.piece;
      const uint64_t end = std::min(op.data.size(), (number + 1) * fate.piece - op.offset);
      if (fate.pattern >> (number % 64) & 1) keep(op, at, end);
      at = end;
    }
  }
  return Bytes(bytes.data(), bytes.size());
}

/// Which names are on the disk, and what they name.
struct Names {
  bool temporary = false;
  bool renamed = false;
  auto operator<=>(const Names&) const = default;
};

std::vector<Names> legal_names(const std::vector<DiskOp>& log, size_t moment) {
  std::set<Names> legal = {{}};
  for (size_t i = 0; i < moment; ++i) {
    std::set<Names> next = legal;  // a change that is not on the disk yet
    for (const Names& names : legal) {
      if (log[i].what == DiskOp::kCreate) next.insert({true, names.renamed});
      if (log[i].what == DiskOp::kUnlink) next.insert({false, names.renamed});
      if (log[i].what == DiskOp::kRename) {
        next.insert({false, true});
        next.insert({true, true});
      }
    }
    if (log[i].what == DiskOp::kSyncFolder) {
      bool made = false, renamed = false;  // what is there by now for certain
      for (size_t past = 0; past < i; ++past) {
        if (log[past].what == DiskOp::kCreate) made = true;
        if (log[past].what == DiskOp::kUnlink) made = false;
        if (log[past].what == DiskOp::kRename) made = false, renamed = true;
      }
      next = {{made, renamed}};
    }
    legal = next;
  }
  return {legal.begin(), legal.end()};
}

/// The choices that are tried at a moment with `writes` writes of which any may be unsynced.
std::vector<Choice> choices_of(size_t writes, uint64_t mixtures, uint64_t seed) {
  const std::vector<Fate> all(writes);
  std::vector<Choice> choices = {{all, true, true}, {all, false, true}};
  const auto add = [&](const std::vector<Fate>& fates) {
    const bool odd = choices.size() % 2 != 0;
    choices.push_back({fates, odd, choices.size() % 3 != 0});
  };
  const std::vector<Fate> none(writes, Fate{Fate::kLost, 0, 0});
  add(none);
  add(none);
  for (size_t i = 0; i < writes; ++i) {
    std::vector<Fate> fates = all;
    fates[i].part = Fate::kLost;
    add(fates);
    fates = none;
    fates[i].part = Fate::kThere;
    add(fates);
    for (const uint64_t piece : {uint64_t{512}, uint64_t{4096}})
      for (const uint64_t pattern : {uint64_t{0x5555555555555555}, random_next(&seed)}) {
        fates = all;
        fates[i] = {Fate::kTorn, piece, pattern};
        add(fates);
      }
  }
  for (uint64_t mixture = 0; writes > 0 && mixture < mixtures; ++mixture) {
    std::vector<Fate> fates = all;
    for (Fate& fate : fates) {
      const uint64_t word = random_next(&seed);
      fate = {static_cast<Fate::Part>(word % 3), word & 8 ? uint64_t{512} : uint64_t{4096},
              random_next(&seed)};
    }
    add(fates);
  }
  return choices;
}

// --- Judging --------------------------------------------------------------------------------------

struct Counts {
  uint64_t states = 0;
  uint64_t as_old = 0;
  uint64_t as_new = 0;
  uint64_t absent = 0;
  uint64_t damaged = 0;      // the target is neither
  uint64_t not_durable = 0;  // ANN_OK was answered, and the target is not the new file
  uint64_t believed = 0;     // damaged, and opens
};

struct Scene {
  const Made& made;
  const Made& other;
  const Folder& folder;
  bool replace;
  bool sync;
  Defect defect;
  bool names_only;
};

/// One state as files of a folder.
struct State {
  std::optional<Bytes> target;
  std::optional<Bytes> temporary;

  uint64_t hash() const {
    uint64_t hash = HASH_START;
    for (const auto* file : {&target, &temporary}) {
      const uint64_t count = file->has_value() ? (*file)->size() : UINT64_MAX;
      hash = hash_bytes(hash, &count, sizeof count);
      if (file->has_value()) hash = hash_bytes(hash, (*file)->data(), (*file)->size());
    }
    return hash;
  }
};

/// Opens the target of a state and counts what it is.
void judge(const Scene& scene, const State& state, const std::string& temporary, Counts& counts) {
  const std::string path = scene.folder.path("index.gannet");
  scene.folder.clear();
  if (state.target) write_file(path, state.target->data(), state.target->size());
  if (state.temporary)
    write_file(scene.folder.path(temporary), state.temporary->data(), state.temporary->size());
  ++counts.states;
  ann_index* opened = nullptr;
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.threads = 1;
  const ann_status status = ann_open(nullptr, path.c_str(), &params, &opened, nullptr, nullptr);
  if (!state.target) {
    CHECK(status == ANN_IO);
    ++counts.absent;
  } else if (status != ANN_OK) {
    CHECK_SAY(status == ANN_CORRUPT, "a damaged file answers %s", ann_status_name(status));
    ++counts.damaged;
  } else {
    const Outcome answers = scene.made.answers(opened);
    const bool is_new = *state.target == scene.made.file && answers == scene.made.expected;
    const bool is_old = *state.target == scene.other.file;
    counts.as_new += is_new;
    counts.as_old += is_old;
    counts.believed += !is_new && !is_old;
  }
  ann_index_free(opened);
  if (counts.states % 8 == 0) {
    ann_save_params quick = ANN_SAVE_PARAMS_INIT;
    quick.threads = 1;
    CHECK_OK(ann_save(scene.made.index.get(), path.c_str(), &quick, nullptr, nullptr));
    CHECK(read_file(path) == scene.made.file);
  }
}

State state_of(const Scene& scene, const Names& names, const Bytes& bytes) {
  State state;
  if (names.temporary) state.temporary = bytes;
  if (names.renamed) {
    state.target = bytes;
  } else if (scene.replace) {
    state.target = scene.other.file;
  }
  return state;
}

/// All states of one save.
Counts all_states(const Scene& scene, uint64_t mixtures) {
  scene.folder.clear();
  const std::string path = scene.folder.path("index.gannet");
  if (scene.replace) write_file(path, scene.other.file.data(), scene.other.file.size());
  LoggingFiles files(scene.defect, scene.names_only);
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.threads = 1;
  params.sync = scene.sync ? ANN_ON : ANN_OFF;
  scene.made.index->files = &files;
  const ann_status status = ann_save(scene.made.index.get(), path.c_str(), &params, nullptr, nullptr);
  scene.made.index->files = &gannet::system_files();
  CHECK(status == (scene.defect == Defect::kSyncFails ? ANN_IO : ANN_OK));

  Counts counts;
  std::set<uint64_t> seen;
  size_t writes = 0;
  for (size_t moment = 0; moment <= files.log.size(); ++moment) {
    if (moment > 0 && files.log[moment - 1].what == DiskOp::kWrite) ++writes;
    const bool promised = moment == files.log.size() && status == ANN_OK && scene.sync;
    for (const Choice& choice : choices_of(writes, mixtures, moment)) {
      const Bytes bytes = disk_bytes(files.log, moment, choice);
      for (const Names& names : legal_names(files.log, moment)) {
        if (promised && !names.renamed) ++counts.not_durable;
        const State state = state_of(scene, names, bytes);
        if (seen.insert(state.hash()).second) judge(scene, state, files.temporary, counts);
      }
    }
  }
  return counts;
}

void check_right(const Scene& scene, const Counts& counts) {
  const char* name = scene.made.name.c_str();
  CHECK_SAY(counts.damaged == 0 && counts.believed == 0 && counts.not_durable == 0,
            "%s, %s: of %llu states %llu are damaged, %llu lose a save that was answered ANN_OK", name,
            scene.replace ? "over a file" : "new", static_cast<Long>(counts.states),
            static_cast<Long>(counts.damaged + counts.believed), static_cast<Long>(counts.not_durable));
  CHECK_SAY(counts.as_old + counts.as_new + counts.absent == counts.states, "%s: states uncounted", name);
  // A file without a name until it is synced leaves few: the old file or nothing, whatever its bytes are.
  CHECK_SAY(counts.states > (scene.names_only ? 50 : 0), "%s: only %llu states", name,
            static_cast<Long>(counts.states));
  CHECK_SAY((scene.replace ? counts.as_old : counts.absent) > 0, "%s: never the old state", name);
  CHECK_SAY((counts.as_new > 0) == (scene.defect != Defect::kSyncFails), "%s: new in %llu states", name,
            static_cast<Long>(counts.as_new));
}

/// Saves that are wrong on purpose: returns states in which that showed.
uint64_t check_canaries(const Made& made, const Made& other, const Folder& folder, uint64_t mixtures) {
  uint64_t caught = 0;
  for (const bool replace : {false, true}) {
    const Counts unsynced =
        all_states({made, other, folder, replace, false, Defect::kNone, replace}, mixtures);
    CHECK_SAY(unsynced.damaged > 0, "a save without any sync is not caught");
    const Counts forgotten =
        all_states({made, other, folder, replace, true, Defect::kFileNotSynced, replace}, mixtures);
    CHECK_SAY(forgotten.damaged > 0, "a save that does not sync its file is not caught");
    const Counts folderless =
        all_states({made, other, folder, replace, true, Defect::kFolderNotSynced, replace}, mixtures);
    CHECK_SAY(folderless.not_durable > 0, "a save that does not sync the folder is not caught");
    CHECK_SAY(unsynced.believed + forgotten.believed + folderless.believed == 0,
              "a file that a power failure damaged opens");
    caught += unsynced.damaged + forgotten.damaged + folderless.not_durable;
  }
  return caught;
}

}  // namespace

int main() {
  const Folder folder;
  const uint64_t scale = fault_scale(4);
  const uint64_t mixtures = 64 / scale;
  uint64_t states = 0, caught = 0;
  std::vector<Kind> kinds = scale == 1 ? all_kinds() : few_kinds();
  if (scale > 4) kinds.resize(2);
  for (const Kind& kind : kinds) {
    const Made made(kind, 1);
    const Made other(kind, 2);
    for (const bool replace : {false, true})
      for (const Defect defect : {Defect::kNone, Defect::kSyncFails})
        for (const bool names_only : {false, true}) {
          const Scene scene{made, other, folder, replace, true, defect, names_only};
          const Counts counts = all_states(scene, mixtures);
          check_right(scene, counts);
          states += counts.states;
        }
    if (&kind == &kinds[0] || scale == 1) caught += check_canaries(made, other, folder, mixtures);
  }
  CHECK(states >= 500);
  std::printf("power failures: %llu states, all old, new or absent; wrong saves show in %llu states\n",
              static_cast<Long>(states), static_cast<Long>(caught));
  return finish("power_loss");
}
