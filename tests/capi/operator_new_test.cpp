// Proves what ann.h says of operator new: with hooks it serves handles, error texts and what a call notes of
// its threads, less than 2 KB for each of them, the tables of a copy on a device, and nothing that grows with the
// data.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <new>

#include "ann.h"
#include "check.h"
#include "support.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> held{0};
std::atomic<int64_t> most{0};

constexpr size_t kHead = 64;  // in front of each piece: its size

void *take(size_t bytes, size_t alignment) {
  const size_t head = alignment > kHead ? alignment : kHead;
  void *piece = nullptr;
  if (posix_memalign(&piece, head, bytes + head) != 0) throw std::bad_alloc();
  auto *user = static_cast<unsigned char *>(piece) + head;
  reinterpret_cast<size_t *>(user)[-1] = counting ? bytes : 0;
  reinterpret_cast<size_t *>(user)[-2] = head;
  if (counting) {
    const int64_t now = held += static_cast<int64_t>(bytes);
    int64_t known = most;
    while (now > known && !most.compare_exchange_weak(known, now)) {
    }
  }
  return user;
}

void give_back(void *memory) noexcept {
  if (memory == nullptr) return;
  held -= static_cast<int64_t>(static_cast<size_t *>(memory)[-1]);
  std::free(static_cast<unsigned char *>(memory) - static_cast<size_t *>(memory)[-2]);
}

/// What operator new held at most while an index was built, searched, saved to a stream and freed.
int64_t held_at_most(uint64_t count, uint32_t threads, int32_t knn) {
  ann_context_params hooks = ANN_CONTEXT_PARAMS_INIT;
  hooks.allocate = [](void *, size_t bytes, size_t alignment) -> void * {
    void *memory = nullptr;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
  };
  hooks.release = [](void *, void *memory, size_t, size_t) { std::free(memory); };
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, count, 8, 1);
  answers found = answers_make(count, 5);
  const ann_matrix view = vectors_view(&rows);
  most = held = 0;
  counting = true;
  ann_context *context = nullptr;
  CHECK_OK(ann_context_create(&hooks, &context, nullptr));
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 8;
  ann_index *index = nullptr;
  CHECK_OK(ann_index_create(context, &shape, &index, nullptr));
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.threads = threads;
  build.knn = knn;
  CHECK_OK(ann_build(index, &view, nullptr, &build, nullptr, nullptr));
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.threads = threads;
  ann_results results = answers_view(&found);
  CHECK_OK(ann_search_batch(index, &view, &search, &results, nullptr, nullptr));
  CHECK_OK(ann_search_exact(index, &view, &search, &results, nullptr, nullptr));
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = [](void *, const void *, uint64_t bytes) { return static_cast<int64_t>(bytes); };
  CHECK_OK(ann_save_stream(index, &writer, nullptr, nullptr, nullptr));
  ann_index_free(index);
  ann_context_free(context);
  counting = false;
  answers_free(&found);
  vectors_free(&rows);
  return most;
}

}  // namespace

void *operator new(size_t bytes) { return take(bytes, kHead); }
void *operator new[](size_t bytes) { return take(bytes, kHead); }
void *operator new(size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<size_t>(alignment));
}
void operator delete(void *memory) noexcept { give_back(memory); }
void operator delete[](void *memory) noexcept { give_back(memory); }
void operator delete(void *memory, size_t) noexcept { give_back(memory); }
void operator delete[](void *memory, size_t) noexcept { give_back(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { give_back(memory); }

int main() {
  const int64_t fixed = 16384 + (test_on_device() != 0 ? 128 << 10 : 0);
  // Under a sanitizer each number of threads meets one method, at half the rows: they take minutes.
  const uint64_t rows = test_scale() > 1 ? 4000 : 8000;
  int number = 0;
  for (const int32_t knn : {ANN_KNN_EXACT, ANN_KNN_NN_DESCENT, ANN_KNN_CELLS}) {
    ++number;
    for (const uint32_t threads : {1u, 8u, 64u}) {
      if (!test_takes(++number)) continue;
      const int64_t few = held_at_most(1000, threads, knn), many = held_at_most(rows, threads, knn);
      std::printf("  method %d, %2u threads: %lld bytes for 1,000 rows, %lld for %d\n", knn, threads,
                  static_cast<long long>(few), static_cast<long long>(many), static_cast<int>(rows));
      CHECK(few > 0);  // else nothing was counted
      CHECK_SAY(few <= fixed + 2048 * int64_t{threads} && many <= fixed + 2048 * int64_t{threads},
                "%u threads: operator new gave %lld bytes for 1,000 rows, %lld for %d", threads,
                static_cast<long long>(few), static_cast<long long>(many), static_cast<int>(rows));
    }
  }
  return finish("operator_new");
}
