#include "vector_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
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
    {".fbin", Layout::kBin, ANN_F32},       {".f16bin", Layout::kBin, ANN_F16},
    {".i8bin", Layout::kBin, ANN_I8},       {".u8bin", Layout::kBin, ANN_U8},
    {".ibin", Layout::kBin, kElementI32},   {".u64bin", Layout::kBin, kElementU64},
    {".fvecs", Layout::kVecs, ANN_F32},     {".bvecs", Layout::kVecs, ANN_U8},
    {".ivecs", Layout::kVecs, kElementI32}, {".npy", Layout::kNpy, 0},
};

const Format& format_of(const std::string& path) {
  const std::string ending = ending_of(path);
  for (const Format& format : kFormats) {
    if (format.ending == ending) return format;
  }
  throw VectorFileError(path, "the ending \"" + ending +
                                  "\" is not known; expected .fbin, .f16bin, .i8bin, .u8bin, "
                                  ".ibin, .u64bin, .fvecs, .bvecs, .ivecs or .npy");
}

// NumPy's names of the elements.
struct NpyType {
  std::string_view descr;
  int32_t element;
};
constexpr NpyType kNpyTypes[] = {{"'<f4'", ANN_F32},     {"'<f2'", ANN_F16},     {"'|i1'", ANN_I8},
                                 {"'|u1'", ANN_U8},      {"'<f8'", kElementF64}, {"'<i4'", kElementI32},
                                 {"'<u4'", kElementU32}, {"'<i8'", kElementI64}, {"'<u8'", kElementU64}};

// A file opened for reading that knows its size, its name and how far it was read.
class Input {
 public:
  explicit Input(const std::string& name) : path_(is_standard_stream(name) ? "standard input" : name) {
    const std::string path = is_standard_stream(name) ? file_of_standard_input() : name;
    std::error_code failure;
    const auto kind = std::filesystem::status(path, failure).type();
    if (kind == std::filesystem::file_type::not_found) fail("no such file");
    if (kind != std::filesystem::file_type::regular) fail("not a regular file");
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) fail(std::string("cannot be opened: ") + std::strerror(errno));
    size_ = std::filesystem::file_size(path, failure);
    if (failure) fail("cannot be measured: " + failure.message());
  }

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint64_t offset() const { return offset_; }
  File take_file() { return std::move(file_); }

  void read(void* to, size_t bytes) {
    const size_t got = std::fread(to, 1, bytes, file_.get());
    if (got != bytes) {
      fail_at(offset_ + got, "the file ends or cannot be read", std::to_string(bytes - got) + " more bytes");
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
  [[noreturn]] void fail_at(uint64_t offset, const std::string& found, const std::string& expected) const {
    throw VectorFileError(path_, offset, found, expected);
  }

  // Refuses a file whose size is not what its head says.
  void expect_size(uint64_t wanted, const std::string& claim) const {
    if (size_ < wanted) {
      fail_at(size_, "the file ends", std::to_string(wanted) + " bytes for " + claim);
    }
    if (size_ > wanted) {
      fail_at(wanted, std::to_string(size_ - wanted) + " more bytes", "the end of the file after " + claim);
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
      fail_at(offset, "the dimension is " + std::to_string(dim), "1 to " + std::to_string(ANN_DIM_MAX));
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

// "(1000, 128)" as two numbers, and "(1000,)" as 1000 and 1 where a list will do.
std::optional<std::pair<int64_t, int64_t>> npy_shape(std::string_view text, bool list_will_do) {
  int64_t numbers[2] = {0, 1};
  size_t at = 1;
  for (int i = 0; i < 2; ++i) {
    while (at < text.size() && text[at] == ' ') ++at;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), numbers[i]);
    if (error != std::errc()) return std::nullopt;
    at = static_cast<size_t>(end - text.data());
    while (at < text.size() && text[at] == ' ') ++at;
    if (at >= text.size() || text[at] != (i == 0 ? ',' : ')')) return std::nullopt;
    ++at;
    if (i == 0 && list_will_do && text.substr(at) == ")") break;
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
           element_name(out.stored_element_) + " values";
  }

  // .fbin and its kin: one head, then all values.
  void read_bin(int32_t element) {
    if (in.size() < 8) {
      in.fail_at(in.size(), "the file ends", "8 bytes: uint32 rows, uint32 dimension");
    }
    out.element_ = out.stored_element_ = element;
    out.rows_ = in.read<uint32_t>();
    in.check_rows(0, static_cast<int64_t>(out.rows_));
    out.dim_ = in.read<uint32_t>();
    in.check_dim(4, out.dim_);
    out.data_at_ = in.offset();
    const uint64_t end = out.data_at_ + out.rows_ * out.row_bytes();
    // True neighbours have their distances behind them, which are no part of the matrix.
    const uint64_t distances = is_of_ids(element) ? out.rows_ * out.dim_ * sizeof(float) : 0;
    out.has_distances_ = distances > 0 && in.size() == end + distances;
    if (!out.has_distances_) in.expect_size(end, claim());
  }

  // .fvecs and its kin: each row has a head of its own.
  void read_vecs(int32_t element) {
    if (in.size() < 4) in.fail_at(in.size(), "the file ends", "4 bytes: int32 dimension");
    out.element_ = out.stored_element_ = element;
    const int32_t dim = in.read<int32_t>();
    in.check_dim(0, dim);
    out.dim_ = static_cast<uint32_t>(dim);
    out.row_head_ = 4;
    const uint64_t record = out.row_head_ + out.row_bytes();
    out.rows_ = in.size() / record;
    if (in.size() % record != 0) {
      in.fail_at(
          out.rows_ * record, std::to_string(in.size() % record) + " bytes at the end of the file",
          "whole rows of " + std::to_string(record) + " bytes (dimension " + std::to_string(dim) + ")");
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
                 "at most the " + std::to_string(in.size() - in.offset()) + " bytes left in the file");
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
      if (type.descr == *descr) out.stored_element_ = type.element;
    }
    if (out.stored_element_ == 0) {
      in.fail_at(head_at, "elements of type " + std::string(*descr),
                 "'<f4', '<f2', '<f8', '|i1', '|u1', or '<i4', '<u4', '<i8', '<u8' for ids "
                 "(array.astype('float32') makes the first)");
    }
    out.element_ = out.stored_element_ == kElementF64 ? int32_t{ANN_F32} : out.stored_element_;
    if (*order != "False") {
      in.fail_at(head_at, "fortran_order is " + std::string(*order),
                 "False (numpy.ascontiguousarray(array) makes it so)");
    }
    const auto sizes = npy_shape(*shape, is_of_ids(out.element_));
    if (!sizes) in.fail_at(head_at, "shape " + std::string(*shape), "(rows, dimension)");
    in.check_rows(head_at, sizes->first);
    in.check_dim(head_at, sizes->second);
    out.rows_ = static_cast<uint64_t>(sizes->first);
    out.dim_ = static_cast<uint32_t>(sizes->second);
    out.data_at_ = in.offset();
    in.expect_size(out.data_at_ + out.rows_ * out.stored_row_bytes(), claim());
  }
};

bool is_of_ids(int32_t element) {
  return element == kElementI32 || element == kElementU32 || element == kElementI64 || element == kElementU64;
}

uint32_t element_bytes(int32_t element) {
  switch (element) {
    case kElementI64:
    case kElementU64:
    case kElementF64:
      return 8;
    case ANN_F32:
    case kElementI32:
    case kElementU32:
      return 4;
    case ANN_F16:
    case ANN_BF16:
      return 2;
    default:
      return 1;
  }
}

const char* element_name(int32_t element) {
  switch (element) {
    case ANN_F32:
      return "f32";
    case ANN_F16:
      return "f16";
    case ANN_BF16:
      return "bf16";
    case ANN_I8:
      return "i8";
    case ANN_U8:
      return "u8";
    case kElementI32:
      return "i32";
    case kElementU32:
      return "u32";
    case kElementI64:
      return "i64";
    case kElementU64:
      return "u64";
    case kElementF64:
      return "f64";
    default:
      return "?";
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
  if (is_standard_stream(path)) format_of(path);  // before everything is read from there
  Input in(path);
  const Format& format = format_of(path);
  path_ = in.path();
  size_ = in.size();
  VectorHeads heads{in, *this};
  switch (format.layout) {
    case Layout::kBin:
      heads.read_bin(format.element);
      break;
    case Layout::kVecs:
      heads.read_vecs(format.element);
      break;
    case Layout::kNpy:
      heads.read_npy();
      break;
  }
  file_ = in.take_file();
}

void VectorReader::read(uint64_t first, uint64_t count, void* out) {
  if (first > rows_ || count > rows_ - first) {
    throw VectorFileError(path_, "has " + std::to_string(rows_) + " rows; asked for " +
                                     std::to_string(count) + " from row " + std::to_string(first) + " on");
  }
  std::byte* values = static_cast<std::byte*>(out);
  if (row_head_ != 0) return read_headed(first, count, values);
  if (stored_element_ != element_) return read_as_f32(first, count, values);
  read_packed(first, count, values);
}

void VectorReader::seek(uint64_t at) {
  if (fseeko(file_.get(), static_cast<off_t>(at), SEEK_SET) != 0) {
    throw VectorFileError(path_, at, std::strerror(errno), "to read there");
  }
}

void VectorReader::read_bytes(uint64_t at, void* to, size_t bytes) {
  const size_t got = std::fread(to, 1, bytes, file_.get());
  if (got != bytes) {
    throw VectorFileError(path_, at + got, "the file ends or cannot be read",
                          std::to_string(bytes - got) + " more bytes");
  }
}

// Rows as the file holds them.
void VectorReader::read_packed(uint64_t first, uint64_t count, std::byte* out) {
  const uint64_t at = data_at_ + first * stored_row_bytes();
  seek(at);
  read_bytes(at, out, count * stored_row_bytes());
}

void VectorReader::read_headed(uint64_t first, uint64_t count, std::byte* out) {
  const uint64_t record = row_head_ + row_bytes();
  seek(data_at_ + first * record);
  for (uint64_t row = first; row < first + count; ++row) {
    const uint64_t at = data_at_ + row * record;
    int32_t dim = 0;
    read_bytes(at, &dim, sizeof dim);
    if (dim != static_cast<int32_t>(dim_)) {
      throw VectorFileError(path_, at, "row " + std::to_string(row) + " has dimension " + std::to_string(dim),
                            std::to_string(dim_) + ", as in row 0");
    }
    read_bytes(at + sizeof dim, out + (row - first) * row_bytes(), row_bytes());
  }
}

// Some rows at a time, so that the wider values are never all in memory.
void VectorReader::read_as_f32(uint64_t first, uint64_t count, std::byte* out) {
  const uint64_t rows_at_once = std::max<uint64_t>(1, (uint64_t{1} << 20) / stored_row_bytes());
  std::vector<double> wide;
  for (uint64_t done = 0; done < count; done += rows_at_once) {
    const uint64_t rows = std::min(rows_at_once, count - done);
    wide.resize(rows * dim_);
    read_packed(first + done, rows, reinterpret_cast<std::byte*>(wide.data()));
    float* narrow = reinterpret_cast<float*>(out + done * row_bytes());
    for (uint64_t i = 0; i < wide.size(); ++i) {
      narrow[i] = static_cast<float>(wide[i]);
      if (std::isinf(narrow[i]) && std::isfinite(wide[i])) {
        throw VectorFileError(
            path_, data_at_ + ((first + done) * dim_ + i) * sizeof(double),
            "row " + std::to_string(first + done + i / dim_) + " holds " + std::to_string(wide[i]),
            "a value that f32 can hold");
      }
    }
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

void VectorReader::expect_vectors() const {
  if (!is_of_ids(element_)) return;
  throw VectorFileError(path_, std::string("holds ids (") + element_name(element_) +
                                   "); expected vectors, of f32, f64, f16, i8 or u8");
}

Vectors read_vectors(const std::string& path) {
  VectorReader reader(path);
  reader.expect_vectors();
  return reader.read(0, reader.rows());
}

// --- Writing ------------------------------------------------------------------------------------

VectorWriter::VectorWriter(const std::string& path, int32_t element, uint32_t dim,
                           std::optional<uint64_t> rows_to_come)
    : path_(path), element_(element), dim_(dim), rows_to_come_(rows_to_come) {
  const Format& format = format_of(path);
  ending_ = format.ending;
  if (format.element != 0 && format.element != element) {
    throw VectorFileError(path, std::string("the ending ") + ending_ + " means " +
                                    element_name(format.element) + " values; these are " +
                                    element_name(element));
  }
  if (is_standard_stream(path)) {
    if (!rows_to_come) {
      throw VectorFileError(shown_name(), "the number of rows is not known beforehand");
    }
    file_ = open_standard_output();
  } else {
    open_part();
  }
  write_head(rows_to_come.value_or(0));
}

// The part lies where the file will, so that a rename is enough, and has a name that no file has yet.
void VectorWriter::open_part() {
  std::error_code failure;
  real_path_ = path_;
  if (std::filesystem::exists(path_, failure)) {
    real_path_ = std::filesystem::canonical(path_).string();
  }
  int descriptor = -1;
  for (int attempt = 0; descriptor < 0; ++attempt) {
    part_path_ = real_path_ + "." + std::to_string(getpid()) + "-" + std::to_string(attempt) + ".part";
    descriptor = open(part_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) fail();
  }
  struct stat old{};
  if (stat(real_path_.c_str(), &old) == 0) fchmod(descriptor, old.st_mode & 07777);
  file_.reset(fdopen(descriptor, "wb"));
  if (!file_) fail();
}

VectorWriter::~VectorWriter() {
  file_.reset();
  std::error_code ignored;
  if (!part_path_.empty()) std::filesystem::remove(part_path_, ignored);
}

std::string VectorWriter::shown_name() const { return is_standard_stream(path_) ? "standard output" : path_; }

void VectorWriter::fail() const {
  throw VectorFileError(shown_name(), std::string("cannot be written: ") + std::strerror(errno));
}

void VectorWriter::write(const void* from, uint64_t bytes) {
  if (std::fwrite(from, 1, bytes, file_.get()) != bytes) fail();
}

// The head for so many rows; of the same length whatever their number.
void VectorWriter::write_head(uint64_t rows) {
  if (format_of(path_).layout == Layout::kBin) {
    if (rows > UINT32_MAX) {
      throw VectorFileError(shown_name(), ending_ + " files hold at most 4294967295 rows");
    }
    const uint32_t head[2] = {static_cast<uint32_t>(rows), dim_};
    write(head, sizeof head);
  } else if (format_of(path_).layout == Layout::kNpy) {
    std::string_view descr;
    for (const NpyType& type : kNpyTypes) {
      if (type.element == element_) descr = type.descr;
    }
    std::string head = "{'descr': " + std::string(descr) + ", 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(dim_) + "), }";
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
    throw VectorFileError(shown_name(), ending_ + " files hold at most 4294967295 rows");
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
  if (part_path_.empty()) {
    if (rows_ != *rows_to_come_) {
      throw VectorFileError(shown_name(), std::to_string(rows_) + " rows came of " +
                                              std::to_string(*rows_to_come_) + " that were announced");
    }
  } else {
    if (fseeko(file_.get(), 0, SEEK_SET) != 0) fail();
    write_head(rows_);
  }
  if (std::fclose(file_.release()) != 0) fail();
  if (part_path_.empty()) return;
  std::error_code failure;
  std::filesystem::rename(part_path_, real_path_, failure);
  if (failure) throw VectorFileError(shown_name(), "cannot be written: " + failure.message());
  part_path_.clear();
}

// --- Ids ----------------------------------------------------------------------------------------

std::vector<float> VectorReader::read_distances() {
  std::vector<float> out(has_distances_ ? rows_ * dim_ : 0);
  const uint64_t at = data_at_ + rows_ * row_bytes();
  if (out.empty()) return out;
  seek(at);
  read_bytes(at, out.data(), out.size() * sizeof(float));
  return out;
}

std::vector<uint64_t> VectorReader::read_ids(uint64_t first, uint64_t count, bool none_allowed) {
  std::vector<uint64_t> out(count * dim_);
  std::vector<std::byte> stored(count * row_bytes());
  read(first, count, stored.data());
  const uint32_t bytes = element_bytes(element_);
  const bool is_signed = element_ == kElementI32 || element_ == kElementI64;
  for (size_t i = 0; i < out.size(); ++i) {
    uint64_t id = 0;
    std::memcpy(&id, stored.data() + i * bytes, bytes);
    const int64_t number = bytes == 4 ? static_cast<int32_t>(id) : static_cast<int64_t>(id);
    if (is_signed && number < 0) {
      if (number != -1 || !none_allowed) {
        throw VectorFileError(path_, "row " + std::to_string(first + i / dim_) + " holds the id " +
                                         std::to_string(number) + "; expected 0 or more");
      }
      id = ANN_ID_NONE;
    }
    out[i] = id;
  }
  return out;
}

std::vector<uint64_t> read_ids(const std::string& path) {
  VectorReader reader(path);
  if (!is_of_ids(reader.element()) || reader.dim() != 1) {
    throw VectorFileError(reader.path(), "holds " + std::to_string(reader.dim()) + " " +
                                             element_name(reader.stored_element()) +
                                             " values a row; expected one id, of 32 or 64 bits");
  }
  return reader.read_ids(0, reader.rows(), false);
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
  if (reader.has_distances()) out.distances = reader.read_distances();
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
