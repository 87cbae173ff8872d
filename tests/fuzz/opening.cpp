#include "opening.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/storage.h"

namespace gannet::fuzz {
namespace {

/// One file that is the bytes. Reads come in pieces and are interrupted now and then, as the system
/// may do it.
class BytesAsFile final : public Files {
 public:
  explicit BytesAsFile(const PagedBytes& bytes) : bytes_(bytes) {}

  int open_to_read(const char*) override { return ++opened_, 3; }
  int close(int) override { return ++closed_, 0; }
  int facts(int, FileFacts* out) override {
    *out = {};
    out->bytes = bytes_.size();
    out->mode = 0600;
    out->regular = true;
    return 0;
  }
  int64_t read_at(int, void* data, size_t count, uint64_t offset) override {
    if (++reads_ % 7 == 0) return -EINTR;
    if (offset >= bytes_.size()) return 0;
    const uint64_t left = std::min<uint64_t>({count, bytes_.size() - offset, 5000});
    std::memcpy(data, bytes_.data() + offset, left);
    return static_cast<int64_t>(left);
  }
  const void* map(int, uint64_t bytes, int*) override {
    DEMAND(bytes == bytes_.size(), "mapped are %llu bytes", static_cast<unsigned long long>(bytes));
    return bytes_.data();
  }
  void unmap(const void*, uint64_t) override {}

  // Opening writes nothing.
  int open_folder(int, const char*) override { return -EROFS; }
  int create(int, const char*, uint32_t) override { return -EROFS; }
  int create_unnamed(int, uint32_t) override { return -EROFS; }
  int open_left(int, const char*) override { return -EROFS; }
  int duplicate(int) override { return -EROFS; }
  int hold(int, const char*) override { return -EROFS; }
  void close_aside(int file) override { close(file); }
  int64_t write(int, const void*, size_t) override { return -EROFS; }
  int reserve(int, uint64_t, uint64_t) override { return -EROFS; }
  int set_owner(int, uint32_t, uint32_t) override { return -EROFS; }
  int set_mode(int, uint32_t) override { return -EROFS; }
  int write_back(int, uint64_t, uint64_t, bool) override { return -EROFS; }
  int sync(int) override { return -EROFS; }
  int lock(int) override { return -EROFS; }
  int link(int, int, const char*) override { return -EROFS; }
  int rename(int, const char*, const char*) override { return -EROFS; }
  int unlink(int, const char*) override { return -EROFS; }
  int facts_in(int, const char*, FileFacts*) override { return -EROFS; }
  int read_link(int, const char*, char*, size_t) override { return -EROFS; }

  void demand_closed() const {
    DEMAND(opened_ == closed_, "%d files were opened, %d closed", opened_, closed_);
  }

 private:
  const PagedBytes& bytes_;
  int opened_ = 0;
  int closed_ = 0;
  int reads_ = 0;
};

struct Stream {
  const PagedBytes& bytes;
  uint64_t at = 0;

  static int64_t read(void* user, void* data, uint64_t count) {
    Stream& stream = *static_cast<Stream*>(user);
    const uint64_t left = std::min<uint64_t>({count, stream.bytes.size() - stream.at, 7000});
    if (left != 0) std::memcpy(data, stream.bytes.data() + stream.at, left);
    stream.at += left;
    return static_cast<int64_t>(left);
  }
};

/// The core's function as the C boundary would report it. There is no public way to put another file
/// system under ann_verify and ann_file_info.
template <class Body>
ann_status status_of(const Body& body) {
  try {
    body();
    return ANN_OK;
  } catch (const Error& error) {
    DEMAND(error.message[0] != 0, "a refusal without a reason");
    return error.status;
  }
}

bool may_refuse(ann_status status) { return status == ANN_CORRUPT || status == ANN_VERSION; }

ann_status open_as_file(BoundedContext& context, const PagedBytes& bytes, int32_t mode, uint32_t threads) {
  BytesAsFile file(bytes);
  const Execution execution{context.memory().allocator(), threads};
  const ann_status status = status_of([&] {
    const auto built = open_file("bytes", {mode, {}}, file, execution);
    DEMAND(built != nullptr, "neither an index nor an error");
  });
  file.demand_closed();
  return status;
}

ann_status open_as_stream(BoundedContext& context, const PagedBytes& bytes, const ann_open_params& params,
                          ann_index** out, ann_error* error) {
  Stream stream{bytes};
  ann_reader reader = ANN_READER_INIT;
  reader.read = Stream::read;
  reader.user = &stream;
  reader.bytes = bytes.size();
  return ann_open_stream(context.get(), &reader, &params, out, nullptr, error);
}

}  // namespace

PagedBytes::PagedBytes(const std::vector<uint8_t>& bytes) : size_(bytes.size()) {
  void* taken = nullptr;
  DEMAND(::posix_memalign(&taken, 4096, std::max<size_t>(1, size_)) == 0, "no memory for the test itself");
  data_ = static_cast<uint8_t*>(taken);
  if (size_ != 0) std::memcpy(data_, bytes.data(), size_);
}

PagedBytes::~PagedBytes() { std::free(data_); }

BoundedContext::BoundedContext(uint64_t budget) : memory_(budget) {
  const ann_context_params params = memory_.params();
  DEMAND(ann_context_create(&params, &context_, nullptr) == ANN_OK, "no context");
}

ann_status open_bytes(BoundedContext& context, const PagedBytes& bytes, Way way, int32_t mode,
                      uint32_t threads, ann_index** out) {
  const int64_t live = context.memory().live();
  ann_index* const before = *out;
  ann_error error = ANN_ERROR_INIT;
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = mode;
  params.threads = threads;
  ann_status status;
  if (way == Way::kFile) {
    status = open_as_file(context, bytes, mode, threads);
  } else {
    status = way == Way::kStream
                 ? open_as_stream(context, bytes, params, out, &error)
                 : ann_open_memory(context.get(), bytes.data(), bytes.size(), &params, out, nullptr, &error);
    DEMAND(error.status == status && (status == ANN_OK) == (error.message[0] == 0),
           "status %d, error %d: \"%s\"", status, error.status, error.message);
    DEMAND((*out != before) == (status == ANN_OK), "%s, but the handle says otherwise",
           ann_status_name(status));
  }
  if (status == ANN_OK) return status;
  DEMAND(may_refuse(status), "%s: %s", ann_status_name(status), error.message);
  DEMAND(context.memory().live() == live, "a refused open keeps memory");
  return status;
}

ann_status verify_bytes(const PagedBytes& bytes, uint32_t threads) {
  BytesAsFile file(bytes);
  BoundedMemory memory(open_budget(bytes.size()));
  const Execution execution{memory.allocator(), threads};
  const ann_status status = status_of([&] { verify_file("bytes", {}, file, execution); });
  file.demand_closed();
  DEMAND(status == ANN_OK || may_refuse(status), "%s", ann_status_name(status));
  return status;
}

ann_status describe_bytes(const PagedBytes& bytes, ann_file_description* out) {
  BytesAsFile file(bytes);
  const ann_status status = status_of([&] { describe_file("bytes", file, out); });
  file.demand_closed();
  DEMAND(status == ANN_OK || may_refuse(status), "%s", ann_status_name(status));
  return status;
}

}  // namespace gannet::fuzz
