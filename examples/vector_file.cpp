#include "vector_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

static_assert(std::endian::native == std::endian::little, "the formats are little endian");
static_assert(sizeof(off_t) == 8, "files may be larger than 4 GB");

namespace {

// The formats, by the endings of their names.
enum class Layout { kBin, kVecs, kNpy };
struct Format {
  std::string_view ending;
  Layout layout;
  int32_t element;  // 0: the head says
};
constexpr Format kFormats[] = {
    {".fbin", Layout::kBin, ANN_F32},    {".f16bin", Layout::kBin, ANN_F16},
    {".i8bin", Layout::kBin, ANN_I8},    {".u8bin", Layout::kBin, ANN_U8},
    {".ibin", Layout::kBin, kElementI32}, {".fvecs", Layout::kVecs, ANN_F32},
    {".bvecs", Layout::kVecs, ANN_U8},   {".ivecs", Layout::kVecs, kElementI32},
    {".npy", Layout::kNpy, 0},
};

const Format& format_of(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  for (const Format& format : kFormats) {
    if (format.ending == ending) return format;
  }
  throw VectorFileError(path, "the ending \"" + ending +
                                  "\" is not known; expected .fbin, .f16bin, .i8bin, .u8bin, "
                                  ".ibin, .fvecs, .bvecs, .ivecs or .npy");
}

// NumPy's names of the elements.
struct NpyType {
  std::string_view descr;
  int32_t element;
};
constexpr NpyType kNpyTypes[] = {{"'<f4'", ANN_F32}, {"'<f2'", ANN_F16}, {"'|i1'", ANN_I8},
                                 {"'|u1'", ANN_U8},  {"'<i4'", kElementI32}};

// A file opened for reading that knows its size, its name and how far it was read.
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
  File take_file() { return std::move(file_); }

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
  void expect_size(uint64_t wanted, const std::string& claim) const {
    if (size_ < wanted) {
      fail_at(size_, "the file ends", std::to_string(wanted) + " bytes for " + claim);
    }
    if (size_ > wanted) {
      fail_at(wanted, std::to_string(size_ - wanted) + " more bytes",
              "the end of the file after " + claim);
    }
  }

  void check_rows(uint64_t offset, int64_t rows) const {
    if (rows < 1 || rows > kFileRowsMax) {
      fail_at(offset, "the number of rows is " + std::to_string(rows),
              "1 to " + std::to_string(kFileRowsMax));
    }
  }

  void check_dim(uint64_t offset, int64_t dim) const {
    if (dim < 1 || dim > static_cast<int64_t>(ANN_DIM_MAX)) {
      fail_at(offset, "the dimension is " + std::to_string(dim),
              "1 to " + std::to_string(ANN_DIM_MAX));
    }
  }

 private:
  std::string path_;
  File file_;
  uint64_t size_ = 0;
  uint64_t offset_ = 0;
};

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

}  // namespace

// Reads the heads of files into a reader.
struct VectorHeads {
  Input& in;
  VectorReader& out;

  std::string claim() const {
    return std::to_string(out.rows_) + " rows of " + std::to_string(out.dim_) + " " +
           element_name(out.element_) + " values";
  }

  // .fbin and its kin: one head, then all values.
  void read_bin(int32_t element) {
    if (in.size() < 8) {
      in.fail_at(in.size(), "the file ends", "8 bytes: uint32 rows, uint32 dimension");
    }
    out.element_ = element;
    out.rows_ = in.read<uint32_t>();
    in.check_rows(0, static_cast<int64_t>(out.rows_));
    out.dim_ = in.read<uint32_t>();
    in.check_dim(4, out.dim_);
    out.data_at_ = in.offset();
    const uint64_t end = out.data_at_ + out.rows_ * out.row_bytes();
    // True neighbours have their distances behind them, which are no part of the matrix.
    const uint64_t distances = element == kElementI32 ? out.rows_ * out.row_bytes() : 0;
    if (in.size() != end + distances) in.expect_size(end, claim());
  }

  // .fvecs and its kin: each row has a head of its own.
  void read_vecs(int32_t element) {
    if (in.size() < 4) in.fail_at(in.size(), "the file ends", "4 bytes: int32 dimension");
    out.element_ = element;
    const int32_t dim = in.read<int32_t>();
    in.check_dim(0, dim);
    out.dim_ = static_cast<uint32_t>(dim);
    out.row_head_ = 4;
    const uint64_t record = out.row_head_ + out.row_bytes();
    out.rows_ = in.size() / record;
    if (in.size() % record != 0) {
      in.fail_at(out.rows_ * record,
                 std::to_string(in.size() % record) + " bytes at the end of the file",
                 "whole rows of " + std::to_string(record) + " bytes (dimension " +
                     std::to_string(dim) + ")");
    }
    in.check_rows(0, static_cast<int64_t>(out.rows_));
  }

  std::string read_npy_head() {
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
    const uint64_t bytes = major == 1 ? in.read<uint16_t>() : in.read<uint32_t>();
    if (bytes > in.size() - in.offset()) {
      in.fail_at(in.offset(), "a head of " + std::to_string(bytes) + " bytes",
                 "at most the " + std::to_string(in.size() - in.offset()) +
                     " bytes left in the file");
    }
    std::string head(bytes, '\0');
    in.read(head.data(), head.size());
    return head;
  }

  void read_npy() {
    const std::string head = read_npy_head();
    const uint64_t head_at = in.offset() - head.size();
    const auto descr = npy_value(head, "descr");
    const auto order = npy_value(head, "fortran_order");
    const auto shape = npy_value(head, "shape");
    if (!descr || !order || !shape) {
      in.fail_at(head_at, "a head without descr, fortran_order or shape", "all three");
    }
    for (const NpyType& type : kNpyTypes) {
      if (type.descr == *descr) out.element_ = type.element;
    }
    if (out.element_ == 0) {
      in.fail_at(head_at, "elements of type " + std::string(*descr),
                 "'<f4', '<f2', '|i1', '|u1' or '<i4' (array.astype('float32') makes the first)");
    }
    if (*order != "False") {
      in.fail_at(head_at, "fortran_order is " + std::string(*order),
                 "False (numpy.ascontiguousarray(array) makes it so)");
    }
    const auto sizes = npy_shape(*shape);
    if (!sizes) in.fail_at(head_at, "shape " + std::string(*shape), "(rows, dimension)");
    in.check_rows(head_at, sizes->first);
    in.check_dim(head_at, sizes->second);
    out.rows_ = static_cast<uint64_t>(sizes->first);
    out.dim_ = static_cast<uint32_t>(sizes->second);
    out.data_at_ = in.offset();
    in.expect_size(out.data_at_ + out.rows_ * out.row_bytes(), claim());
  }
};

uint32_t element_bytes(int32_t element) {
  switch (element) {
    case ANN_F32:
    case kElementI32: return 4;
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
    case kElementI32: return "i32";
    default: return "?";
  }
}

int32_t element_of_name(const std::string& path) { return format_of(path).element; }

ann_matrix Vectors::view(uint64_t first, uint64_t count) const {
  ann_matrix out = ANN_MATRIX_INIT;
  out.element = element;
  out.data = data.data() + first * row_bytes();
  out.rows = count;
  out.dim = dim;
  return out;
}

// --- Reading ------------------------------------------------------------------------------------

VectorReader::VectorReader(const std::string& path) : path_(path) {
  Input in(path);
  const Format& format = format_of(path);
  size_ = in.size();
  VectorHeads heads{in, *this};
  switch (format.layout) {
    case Layout::kBin: heads.read_bin(format.element); break;
    case Layout::kVecs: heads.read_vecs(format.element); break;
    case Layout::kNpy: heads.read_npy(); break;
  }
  file_ = in.take_file();
}

void VectorReader::read(uint64_t first, uint64_t count, void* out) {
  if (first > rows_ || count > rows_ - first) {
    throw VectorFileError(path_, "has " + std::to_string(rows_) + " rows; asked for " +
                                     std::to_string(count) + " from row " + std::to_string(first) +
                                     " on");
  }
  const uint64_t record = row_head_ + row_bytes();
  uint64_t at = data_at_ + first * record;
  if (fseeko(file_.get(), static_cast<off_t>(at), SEEK_SET) != 0) {
    throw VectorFileError(path_, at, std::strerror(errno), "to read there");
  }
  const auto read_bytes = [&](void* to, size_t bytes) {
    const size_t got = std::fread(to, 1, bytes, file_.get());
    if (got != bytes) {
      throw VectorFileError(path_, at + got, "the file ends or cannot be read",
                            std::to_string(bytes - got) + " more bytes");
    }
    at += bytes;
  };
  if (row_head_ == 0) return read_bytes(out, count * record);
  for (uint64_t row = first; row < first + count; ++row) {
    int32_t dim = 0;
    read_bytes(&dim, sizeof dim);
    if (dim != static_cast<int32_t>(dim_)) {
      throw VectorFileError(
          path_, at - sizeof dim,
          "row " + std::to_string(row) + " has dimension " + std::to_string(dim),
          std::to_string(dim_) + ", as in row 0");
    }
    read_bytes(static_cast<std::byte*>(out) + (row - first) * row_bytes(), row_bytes());
  }
}

Vectors VectorReader::read(uint64_t first, uint64_t count) {
  Vectors out;
  out.element = element_;
  out.dim = dim_;
  if (first <= rows_ && count <= rows_ - first) {  // else the call below refuses, with a message
    out.rows = count;
    out.data.resize(count * row_bytes());
  }
  read(first, count, out.data.data());
  return out;
}

Vectors read_vectors(const std::string& path) {
  VectorReader reader(path);
  return reader.read(0, reader.rows());
}

// --- Writing ------------------------------------------------------------------------------------

VectorWriter::VectorWriter(const std::string& path, int32_t element, uint32_t dim)
    : path_(path), part_path_(path + ".part"), element_(element), dim_(dim) {
  const Format& format = format_of(path);
  ending_ = format.ending;
  if (format.element != 0 && format.element != element) {
    throw VectorFileError(path, std::string("the ending ") + ending_ + " means " +
                                    element_name(format.element) + " values; these are " +
                                    element_name(element));
  }
  file_.reset(std::fopen(part_path_.c_str(), "wb"));
  if (!file_) throw VectorFileError(part_path_, std::strerror(errno));
  write_head();
}

VectorWriter::~VectorWriter() {
  if (!file_) return;  // finished
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(part_path_, ignored);
}

void VectorWriter::write(const void* from, uint64_t bytes) {
  if (std::fwrite(from, 1, bytes, file_.get()) != bytes) {
    throw VectorFileError(part_path_, std::string("cannot be written: ") + std::strerror(errno));
  }
}

// The head, with the number of rows so far; of the same length whatever that is.
void VectorWriter::write_head() {
  if (format_of(path_).layout == Layout::kBin) {
    const uint32_t head[2] = {static_cast<uint32_t>(rows_), dim_};
    write(head, sizeof head);
  } else if (format_of(path_).layout == Layout::kNpy) {
    std::string_view descr;
    for (const NpyType& type : kNpyTypes) {
      if (type.element == element_) descr = type.descr;
    }
    std::string head = "{'descr': " + std::string(descr) +
                       ", 'fortran_order': False, 'shape': (" + std::to_string(rows_) + ", " +
                       std::to_string(dim_) + "), }";
    constexpr size_t head_bytes = 128;
    head.resize(head_bytes - 11, ' ');
    head += '\n';
    const uint16_t length = static_cast<uint16_t>(head.size());
    std::string start("\x93NUMPY\x01\x00", 8);
    start.append(reinterpret_cast<const char*>(&length), sizeof length);
    write((start + head).data(), head_bytes);
  }
}

void VectorWriter::append(const void* rows, uint64_t count) {
  const uint64_t bytes = uint64_t{dim_} * element_bytes(element_);
  rows_ += count;
  if (format_of(path_).layout == Layout::kBin && rows_ > UINT32_MAX) {
    throw VectorFileError(path_, ending_ + " files hold at most 4294967295 rows");
  }
  if (format_of(path_).layout != Layout::kVecs) return write(rows, count * bytes);
  const int32_t dim = static_cast<int32_t>(dim_);
  for (uint64_t row = 0; row < count; ++row) {
    write(&dim, sizeof dim);
    write(static_cast<const std::byte*>(rows) + row * bytes, bytes);
  }
}

void VectorWriter::append_tail(const void* from, uint64_t bytes) { write(from, bytes); }

void VectorWriter::finish() {
  if (fseeko(file_.get(), 0, SEEK_SET) != 0) {
    throw VectorFileError(part_path_, std::string("cannot be written: ") + std::strerror(errno));
  }
  write_head();
  if (std::fclose(file_.release()) != 0) {
    throw VectorFileError(part_path_, std::string("cannot be written: ") + std::strerror(errno));
  }
  std::error_code failure;
  std::filesystem::rename(part_path_, path_, failure);
  if (failure) throw VectorFileError(path_, "cannot be written: " + failure.message());
}

// --- True neighbours ----------------------------------------------------------------------------

GroundTruth read_ground_truth(const std::string& path) {
  VectorReader reader(path);
  if (reader.element() != kElementI32) {
    throw VectorFileError(path, "holds " + std::string(element_name(reader.element())) +
                                    " values; expected row numbers, as .ibin, .ivecs or .npy");
  }
  GroundTruth out;
  out.queries = reader.rows();
  out.k = reader.dim();
  out.ids.resize(out.queries * out.k);
  reader.read(0, out.queries, out.ids.data());
  const uint64_t ids_bytes = out.ids.size() * sizeof(int32_t);
  if (std::filesystem::path(path).extension() == ".ibin" &&
      std::filesystem::file_size(path) == 8 + 2 * ids_bytes) {
    out.distances.resize(out.ids.size());
    const File file(std::fopen(path.c_str(), "rb"));
    if (!file || fseeko(file.get(), static_cast<off_t>(8 + ids_bytes), SEEK_SET) != 0 ||
        std::fread(out.distances.data(), 1, ids_bytes, file.get()) != ids_bytes) {
      throw VectorFileError(path, 8 + ids_bytes, "the distances cannot be read",
                            std::to_string(ids_bytes) + " bytes");
    }
  }
  return out;
}

void write_ground_truth(const std::string& path, const GroundTruth& truth) {
  VectorWriter writer(path, kElementI32, truth.k);
  writer.append(truth.ids.data(), truth.queries);
  if (std::filesystem::path(path).extension() == ".ibin" && !truth.distances.empty()) {
    writer.append_tail(truth.distances.data(), truth.distances.size() * sizeof(float));
  }
  writer.finish();
}
