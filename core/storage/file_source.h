// FileSource: the bytes of a file of the system, read by place.
#pragma once

#include <cerrno>

#include "storage/map.h"

namespace gannet {

class FileSource final : public Source {
 public:
  FileSource(const char* path, Files& files) : files_(files), path_(path) {
    if (*path == 0) fail(ANN_INVALID_ARGUMENT, "path is empty");
    file_ = uninterrupted([&] { return files.open_to_read(path); });
    if (file_ < 0) fail_system(file_, "opening", path);
    FileFacts facts;
    const int result = files.facts(file_, &facts);
    if (result < 0 || !facts.regular) {
      files.close(file_);
      if (result < 0) fail_system(result, "looking at the file", path);
      fail_system(-EINVAL, "the path names no regular file", path);
    }
    bytes_ = facts.bytes;
  }
  ~FileSource() override { files_.close(file_); }

  uint64_t bytes() const override { return bytes_; }
  void read(uint64_t offset, void* out, uint64_t count) override {
    uint8_t* to = static_cast<uint8_t*>(out);
    while (count > 0) {
      const int64_t done = uninterrupted([&] { return files_.read_at(file_, to, count, offset); });
      if (done < 0) fail_system(done, "reading", path_);
      if (done == 0) fail_corrupt("the file became shorter while it was read");
      to += done;
      offset += static_cast<uint64_t>(done);
      count -= static_cast<uint64_t>(done);
    }
  }
  const void* map() {
    int error = 0;
    const void* data = files_.map(file_, bytes_, &error);
    if (data == nullptr) fail_system(error, "mapping", path_);
    return data;
  }

 private:
  Files& files_;
  const char* path_;
  int file_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace gannet
