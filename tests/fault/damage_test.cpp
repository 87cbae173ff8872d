// Proves that a damaged file never answers wrongly.
//
// Small files of each kind are damaged in every way that disks, copies and transfers do it:
//
//   bits       each bit of the file flipped
//   bytes      each byte replaced by 0, 255, its complement, its successor
//   lengths    the file cut at every length; bytes appended
//   sectors    each 512 bytes and each page zeroed; each pair of them exchanged
//   sections   the contents of each pair of sections exchanged
//   bursts     several random bytes at once, near each other and far apart
//
// Opened FULL every one of them must be refused as ANN_CORRUPT or ANN_VERSION: every byte of a file
// is covered. Opened LAZY it must be refused, or each search must either answer ANN_CORRUPT or give
// what the whole file gives, bit for bit. ann_verify says of every hundredth of them what FULL says. Nothing
// may crash or hang; buffers end where the file ends, so that a sanitizer sees whoever reads on.
//
//     fault_damage         some 10^5 damaged files
//     GANNET_FAULT_SCALE=1 fault_damage    all of them: over two million
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "ann.h"
#include "check.h"
#include "made_files.h"
#include "storage/format.h"
#include "support.h"

using namespace fault;
using namespace gannet::format;

namespace {

using Long = unsigned long long;  // for printf

/// Damages one file, again and again, and counts what becomes of that.
class Damager {
 public:
  Damager(const Made& made, uint64_t step) : made_(made), bytes_(made.file), step_(step) {}

  uint64_t damaged = 0;
  uint64_t refused = 0;  // by FULL, each
  uint64_t verified = 0;
  uint64_t lazy_refused = 0;
  uint64_t lazy_found = 0;  // by a search
  uint64_t lazy_same = 0;   // the damage was nowhere that a search looks

  void bits() {
    for (uint64_t bit = 0; bit < bytes_.size() * 8; ++bit) {
      if (!taken()) continue;
      bytes_[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      judge("bit", bit);
      bytes_[bit / 8] = made_.file[bit / 8];
    }
  }

  void every_byte() {
    for (uint64_t at = 0; at < bytes_.size(); ++at) {
      const uint8_t was = made_.file[at];
      for (const int value : {0, 255, ~was & 255, (was + 1) & 255}) {
        if (value == was || !taken()) continue;
        bytes_[at] = static_cast<uint8_t>(value);
        judge("byte", at);
      }
      bytes_[at] = was;
    }
  }

  void lengths() {
    for (uint64_t length = 0; length < bytes_.size(); ++length)
      if (taken()) judge(Bytes(made_.file.data(), length), "length", length);
    for (const uint64_t more : {1, 7, 8, 64, 511, 512, 4095, 4096, 4160, 70000})
      for (const int filling : {0, 0x5a}) {
        Bytes longer(made_.file.size() + more);
        std::memcpy(longer.data(), made_.file.data(), made_.file.size());
        std::memset(longer.data() + made_.file.size(), filling, more);
        judge(longer, "bytes appended", more);
      }
  }

  void sectors(uint64_t size) {
    const uint64_t count = bytes_.size() / size;
    for (uint64_t sector = 0; sector < count; ++sector) {
      if (taken()) {
        std::memset(bytes_.data() + sector * size, 0, size);
        judge_changed("sector zeroed", sector);
        restore();
      }
      for (uint64_t other = sector + 1; other < count; ++other) {
        if (!taken()) continue;
        exchange(sector * size, other * size, size);
        judge_changed("sectors exchanged", sector * count + other);
        restore();
      }
    }
  }

  void sections() {
    Header header;
    std::memcpy(&header, made_.file.data(), sizeof header);
    Section table[kSectionsMax];
    std::memcpy(table, made_.file.data() + kPage, header.sections * sizeof(Section));
    for (uint32_t i = 0; i < header.sections; ++i)
      for (uint32_t j = i + 1; j < header.sections; ++j) {
        exchange(table[i].offset, table[j].offset, std::min(table[i].bytes, table[j].bytes));
        judge_changed("sections exchanged", i * kSectionsMax + j);
        restore();
      }
  }

  void bursts(uint64_t count, uint64_t seed) {
    for (uint64_t burst = 0; burst < count; ++burst) {
      const uint64_t bytes = 2 + random_next(&seed) % 30;
      const uint64_t reach = burst % 2 ? 64 : bytes_.size();
      const uint64_t start = random_next(&seed) % bytes_.size();
      for (uint64_t i = 0; i < bytes; ++i) {
        const uint64_t at = (start + random_next(&seed) % reach) % bytes_.size();
        bytes_[at] = static_cast<uint8_t>(random_next(&seed));
      }
      judge_changed("burst", burst);
      restore();
    }
  }

 private:
  /// One of `step` damages is tried.
  bool taken() { return turn_++ % step_ == 0; }

  void restore() { std::memcpy(bytes_.data(), made_.file.data(), bytes_.size()); }

  void exchange(uint64_t a, uint64_t b, uint64_t count) {
    std::swap_ranges(bytes_.data() + a, bytes_.data() + a + count, bytes_.data() + b);
  }

  void judge_changed(const char* what, uint64_t place) {
    if (!(bytes_ == made_.file)) judge(what, place);
  }
  void judge(const char* what, uint64_t place) { judge(bytes_, what, place); }

  void judge(const Bytes& bytes, const char* what, uint64_t place) {
    if (damaged++ % 256 == 0) alarm(60);  // a hang is a failure, not a wait
    std::snprintf(being_tried, sizeof being_tried, "%s, %s %llu", made_.name.c_str(), what,
                  static_cast<Long>(place));
    judge_full(bytes, what, place);
    judge_lazy(bytes, what, place);
  }

  void judge_full(const Bytes& bytes, const char* what, uint64_t place) {
    ann_index* opened = nullptr;
    ann_error error = ANN_ERROR_INIT;
    const ann_status status = open(bytes, ANN_OPEN_FULL, &opened, &error);
    const bool good = (status == ANN_CORRUPT || status == ANN_VERSION) && opened == nullptr;
    CHECK_SAY(good && error.message[0] != 0, "%s, %s %llu: FULL answers %s", made_.name.c_str(), what,
              static_cast<Long>(place), ann_status_name(status));
    refused += good;
    ann_index_free(opened);
    if (damaged % 100 == 0) judge_verify(bytes, status, what, place);
  }

  void judge_verify(const Bytes& bytes, ann_status by_full, const char* what, uint64_t place) {
    write_file(path_, bytes.data(), bytes.size());
    const ann_status status = ann_verify(path_.c_str(), nullptr, nullptr, nullptr);
    CHECK_SAY(status == by_full, "%s, %s %llu: ann_verify answers %s, FULL %s", made_.name.c_str(), what,
              static_cast<Long>(place), ann_status_name(status), ann_status_name(by_full));
    ++verified;
  }

  void judge_lazy(const Bytes& bytes, const char* what, uint64_t place) {
    ann_index* opened = nullptr;
    const ann_status status = open(bytes, ANN_OPEN_LAZY, &opened, nullptr);
    if (status != ANN_OK) {
      CHECK_SAY((status == ANN_CORRUPT || status == ANN_VERSION) && opened == nullptr,
                "%s, %s %llu: LAZY answers %s", made_.name.c_str(), what, static_cast<Long>(place),
                ann_status_name(status));
      ++lazy_refused;
      return;
    }
    const Outcome answers = made_.answers(opened);
    const auto honest = [&](const Answer& got, const Answer& wanted) {
      return got.status == ANN_CORRUPT || got == wanted;
    };
    CHECK_SAY(honest(answers.usual, made_.expected.usual) && honest(answers.exact, made_.expected.exact),
              "%s, %s %llu: LAZY gives a wrong answer", made_.name.c_str(), what, static_cast<Long>(place));
    const bool found = answers.usual.status != ANN_OK || answers.exact.status != ANN_OK;
    ++(found ? lazy_found : lazy_same);
    ann_index_free(opened);
  }

  static ann_status open(const Bytes& bytes, int32_t mode, ann_index** opened, ann_error* error) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = mode;
    params.threads = 1;
    return ann_open_memory(nullptr, bytes.data(), bytes.size(), &params, opened, nullptr, error);
  }

  const Made& made_;
  Bytes bytes_;
  Folder folder_;
  std::string path_ = folder_.path("damaged.gannet");
  uint64_t step_;
  uint64_t turn_ = 0;
};

}  // namespace

int main() {
  tell_if_it_dies();
  const uint64_t step = fault_scale(16);
  uint64_t damaged = 0, refused = 0, verified = 0, lazy_refused = 0, lazy_found = 0, lazy_same = 0;
  for (const Kind& kind : few_kinds()) {
    const Made made(kind, 1);
    Damager damager(made, step);
    damager.bits();
    damager.every_byte();
    damager.lengths();
    damager.sectors(512);
    damager.sectors(4096);
    damager.sections();
    damager.bursts(100000 / step, 1);
    damaged += damager.damaged;
    refused += damager.refused;
    verified += damager.verified;
    lazy_refused += damager.lazy_refused;
    lazy_found += damager.lazy_found;
    lazy_same += damager.lazy_same;
  }
  CHECK(damaged >= 10000);
  CHECK(refused == damaged);
  CHECK(verified >= 100);
  CHECK(lazy_found > 0 && lazy_refused > 0);
  std::printf(
      "damaged files: %llu, refused by FULL: %llu; LAZY: %llu refused, %llu found by a search, "
      "%llu same answers\n",
      static_cast<Long>(damaged), static_cast<Long>(refused), static_cast<Long>(lazy_refused),
      static_cast<Long>(lazy_found), static_cast<Long>(lazy_same));
  return finish("damage");
}
