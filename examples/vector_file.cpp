#include "vector_file.h"

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

static_assert(std::endian::native == std::endian::little, "the formats are little endian");

namespace {

// A file opened for reading that knows its size and its name.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path) {
    std::error_code failure;
    const auto kind = std::filesystem::status(path, failure).type();
    if (kind == std::filesystem::file_type::not_found) fail("no such file");
    if (kind != std::filesystem::file_type::regular) fail("not a regular file");
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) fail(std::string("cannot be opened: ") + std::strerror(errno));
    size_ = std::filesystem::file_size(path, failure);
    if (failure) fail("cannot be measured: " + failure.message());
  }

  uint64_t size() const { return size_; }
  uint64_t offset() const { return offset_; }

  void read(void* to, size_t bytes) {
    const size_t got = std::fread(to, 1, bytes, file_.get());
    if (got != bytes) {
      fail_at(offset_ + got, "the file ends or cannot be read",
              std::to_string(bytes - got) + " more bytes");
    }
    offset_ += bytes;
  }

  template <typename T>
  T read() {
    T value;
    read(&value, sizeof value);
    return value;
  }

  [[noreturn]] void fail(const std::string& text) const { throw VectorFileError(path_, text); }
  [[noreturn]] void fail_at(uint64_t offset, const std::string& found,
                            const std::string& expected) const {
    throw VectorFileError(path_, offset, found, expected);
  }

  // Refuses a file whose size is not what its head says.
  void expect_size(uint64_t wanted, const Vectors& shape) const {
    if (size_ == wanted) return;
    const std::string claim = std::to_string(shape.rows) + " rows of " + std::to_string(shape.dim) +
                              " " + element_name(shape.element) + " values";
    if (size_ < wanted) {
      fail_at(size_, "the file ends", std::to_string(wanted) + " bytes for " + claim);
    }
    fail_at(wanted, std::to_string(size_ - wanted) + " more bytes",
            "the end of the file after " + claim);
  }

  void check_rows(uint64_t offset, int64_t rows) const {
    if (rows < 1 || rows > static_cast<int64_t>(ANN_ROWS_MAX)) {
      fail_at(offset, "the number of rows is " + std::to_string(rows),
              "1 to " + std::to_string(ANN_ROWS_MAX));
    }
  }

  void check_dim(uint64_t offset, int64_t dim) const {
    if (dim < 1 || dim > static_cast<int64_t>(ANN_DIM_MAX)) {
      fail_at(offset, "the dimension is " + std::to_string(dim),
              "1 to " + std::to_string(ANN_DIM_MAX));
    }
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t size_ = 0;
  uint64_t offset_ = 0;
};

// .fbin and its kin: one head, then all values.
Vectors read_bin(Input& in, int32_t element) {
  if (in.size() < 8) {
    in.fail_at(in.size(), "the file ends", "8 bytes: uint32 rows, uint32 dimension");
  }
  Vectors out;
  out.element = element;
  out.rows = in.read<uint32_t>();
  in.check_rows(0, static_cast<int64_t>(out.rows));
  out.dim = in.read<uint32_t>();
  in.check_dim(4, out.dim);
  in.expect_size(8 + out.rows * out.row_bytes(), out);
  out.data.resize(out.rows * out.row_bytes());
  in.read(out.data.data(), out.data.size());
  return out;
}

// .fvecs and .bvecs: each row has a head of its own.
Vectors read_vecs(Input& in, int32_t element) {
  if (in.size() < 4) in.fail_at(in.size(), "the file ends", "4 bytes: int32 dimension");
  Vectors out;
  out.element = element;
  const int32_t dim = in.read<int32_t>();
  in.check_dim(0, dim);
  out.dim = static_cast<uint32_t>(dim);
  const uint64_t record = 4 + out.row_bytes();
  out.rows = in.size() / record;
  if (in.size() % record != 0) {
    in.fail_at(out.rows * record,
               std::to_string(in.size() % record) + " bytes at the end of the file",
               "whole rows of " + std::to_string(record) + " bytes (dimension " +
                   std::to_string(dim) + ")");
  }
  in.check_rows(0, static_cast<int64_t>(out.rows));
  out.data.resize(out.rows * out.row_bytes());
  for (uint64_t row = 0; row < out.rows; ++row) {
    if (row > 0) {
      const uint64_t at = in.offset();
      const int32_t dim_here = in.read<int32_t>();
      if (dim_here != dim) {
        in.fail_at(at, "row " + std::to_string(row) + " has dimension " + std::to_string(dim_here),
                   std::to_string(dim) + ", as in row 0");
      }
    }
    in.read(out.data.data() + row * out.row_bytes(), out.row_bytes());
  }
  return out;
}

// The head of a .npy file is a Python dict, as
//   {'descr': '<f4', 'fortran_order': False, 'shape': (1000, 128), }
// This finds the text after 'key': up to the comma or brace that ends the value.
std::optional<std::string_view> npy_value(std::string_view head, std::string_view key) {
  const std::string quoted = std::string("'").append(key).append("'");
  size_t at = head.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  at = head.find_first_not_of(" ", at + quoted.size());
  if (at == std::string_view::npos || head[at] != ':') return std::nullopt;
  at = head.find_first_not_of(" ", at + 1);
  if (at == std::string_view::npos) return std::nullopt;
  size_t end;
  if (head[at] == '(') {
    end = head.find(')', at);
    if (end == std::string_view::npos) return std::nullopt;
    ++end;
  } else {
    end = head.find_first_of(",}", at);
    if (end == std::string_view::npos) return std::nullopt;
  }
  return head.substr(at, end - at);
}

// "(1000, 128)" as two numbers.
std::optional<std::pair<int64_t, int64_t>> npy_shape(std::string_view text) {
  int64_t numbers[2];
  size_t at = 1;
  for (int i = 0; i < 2; ++i) {
    while (at < text.size() && text[at] == ' ') ++at;
    const auto [end, error] =
        std::from_chars(text.data() + at, text.data() + text.size(), numbers[i]);
    if (error != std::errc()) return std::nullopt;
    at = static_cast<size_t>(end - text.data());
    while (at < text.size() && text[at] == ' ') ++at;
    if (at >= text.size() || text[at] != (i == 0 ? ',' : ')')) return std::nullopt;
    ++at;
  }
  return std::pair(numbers[0], numbers[1]);
}

Vectors read_npy(Input& in) {
  constexpr std::string_view magic = "\x93NUMPY";
  if (in.size() < 10) in.fail_at(in.size(), "the file ends", "the head of a NumPy array");
  char start[6];
  in.read(start, sizeof start);
  if (std::string_view(start, sizeof start) != magic) {
    in.fail_at(0, "other bytes", "the mark of a NumPy array, \"\\x93NUMPY\"");
  }
  const uint8_t major = in.read<uint8_t>();
  in.read<uint8_t>();  // minor
  if (major < 1 || major > 3) {
    in.fail_at(6, "format version " + std::to_string(major), "1 to 3");
  }
  if (major > 1 && in.size() < 12) {
    in.fail_at(in.size(), "the file ends", "the length of the head");
  }
  const uint64_t head_bytes = major == 1 ? in.read<uint16_t>() : in.read<uint32_t>();
  const uint64_t head_at = in.offset();
  if (head_bytes > in.size() - head_at) {
    in.fail_at(head_at, "a head of " + std::to_string(head_bytes) + " bytes",
               "at most the " + std::to_string(in.size() - head_at) + " bytes left in the file");
  }
  std::string head(head_bytes, '\0');
  in.read(head.data(), head.size());

  const auto descr = npy_value(head, "descr");
  const auto order = npy_value(head, "fortran_order");
  const auto shape = npy_value(head, "shape");
  if (!descr || !order || !shape) {
    in.fail_at(head_at, "a head without descr, fortran_order or shape", "all three");
  }
  Vectors out;
  if (*descr == "'<f4'") {
    out.element = ANN_F32;
  } else if (*descr == "'<f2'") {
    out.element = ANN_F16;
  } else if (*descr == "'|i1'") {
    out.element = ANN_I8;
  } else if (*descr == "'|u1'") {
    out.element = ANN_U8;
  } else {
    in.fail_at(head_at, "elements of type " + std::string(*descr),
               "'<f4', '<f2', '|i1' or '|u1' (array.astype('float32') makes the first)");
  }
  if (*order != "False") {
    in.fail_at(head_at, "fortran_order is " + std::string(*order),
               "False (numpy.ascontiguousarray(array) makes it so)");
  }
  const auto sizes = npy_shape(*shape);
  if (!sizes) in.fail_at(head_at, "shape " + std::string(*shape), "(rows, dimension)");
  in.check_rows(head_at, sizes->first);
  in.check_dim(head_at, sizes->second);
  out.rows = static_cast<uint64_t>(sizes->first);
  out.dim = static_cast<uint32_t>(sizes->second);
  in.expect_size(in.offset() + out.rows * out.row_bytes(), out);
  out.data.resize(out.rows * out.row_bytes());
  in.read(out.data.data(), out.data.size());
  return out;
}

}  // namespace

uint32_t element_bytes(int32_t element) {
  switch (element) {
    case ANN_F32: return 4;
    case ANN_F16:
    case ANN_BF16: return 2;
    default: return 1;
  }
}

const char* element_name(int32_t element) {
  switch (element) {
    case ANN_F32: return "f32";
    case ANN_F16: return "f16";
    case ANN_BF16: return "bf16";
    case ANN_I8: return "i8";
    case ANN_U8: return "u8";
    default: return "?";
  }
}

uint64_t Vectors::row_bytes() const { return uint64_t{dim} * element_bytes(element); }

ann_matrix Vectors::view(uint64_t first, uint64_t count) const {
  ann_matrix out = ANN_MATRIX_INIT;
  out.element = element;
  out.data = data.data() + first * row_bytes();
  out.rows = count;
  out.dim = dim;
  return out;
}

Vectors read_vectors(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  Input in(path);
  if (ending == ".fbin") return read_bin(in, ANN_F32);
  if (ending == ".f16bin") return read_bin(in, ANN_F16);
  if (ending == ".i8bin") return read_bin(in, ANN_I8);
  if (ending == ".u8bin") return read_bin(in, ANN_U8);
  if (ending == ".fvecs") return read_vecs(in, ANN_F32);
  if (ending == ".bvecs") return read_vecs(in, ANN_U8);
  if (ending == ".npy") return read_npy(in);
  throw VectorFileError(path, "the ending \"" + ending +
                                  "\" is not known; expected .fbin, .f16bin, .i8bin, .u8bin, "
                                  ".fvecs, .bvecs or .npy");
}
