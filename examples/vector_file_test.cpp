// What read_vectors accepts, and what it says of files that are not what they claim to be.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "vector_file.h"

namespace {

// A folder that is gone when the test is.
class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "gannet-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out;
  for (const T value : values) out.append(reinterpret_cast<const char*>(&value), sizeof value);
  return out;
}

std::string npy(const std::string& head, const std::string& data, char major = 1) {
  std::string out = "\x93NUMPY";
  out += major;
  out += '\0';
  const uint32_t length = static_cast<uint32_t>(head.size());
  out.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return out + head + data;
}

// The message of the refusal, without the folder.
std::string refusal(const std::string& name, const std::string& bytes) {
  const Folder folder;
  const std::string path = folder.write(name, bytes);
  try {
    read_vectors(path);
  } catch (const VectorFileError& error) {
    const std::string text = error.what();
    REQUIRE(text.substr(0, path.size()) == path);
    return text.substr(path.size() + 2);
  }
  return "accepted";
}

float value_at(const Vectors& vectors, size_t index) {
  float out;
  std::memcpy(&out, vectors.data.data() + 4 * index, sizeof out);
  return out;
}

TEST_CASE("bin files of every element") {
  const Folder folder;
  const std::string head = bytes_of<uint32_t>({2, 3});
  const Vectors f32 = read_vectors(folder.write("a.fbin", head + bytes_of<float>({1, 2, 3, 4, 5, 6})));
  CHECK(f32.element == ANN_F32);
  CHECK(f32.rows == 2);
  CHECK(f32.dim == 3);
  CHECK(value_at(f32, 5) == 6.0f);
  CHECK(read_vectors(folder.write("a.f16bin", head + std::string(12, '\0'))).element == ANN_F16);
  CHECK(read_vectors(folder.write("a.i8bin", head + std::string(6, '\xff'))).element == ANN_I8);
  const Vectors u8 = read_vectors(folder.write("a.u8bin", head + "abcdef"));
  CHECK(u8.element == ANN_U8);
  CHECK(static_cast<char>(u8.data[3]) == 'd');
}

TEST_CASE("a view is a window on the rows") {
  const Folder folder;
  const Vectors all = read_vectors(folder.write("a.u8bin", bytes_of<uint32_t>({3, 2}) + "abcdef"));
  const ann_matrix last = all.view(2, 1);
  CHECK(last.rows == 1);
  CHECK(last.dim == 2);
  CHECK(last.element == ANN_U8);
  CHECK(std::memcmp(last.data, "ef", 2) == 0);
}

TEST_CASE("vecs files") {
  const Folder folder;
  const std::string fvecs =
      bytes_of<int32_t>({2}) + bytes_of<float>({1, 2}) + bytes_of<int32_t>({2}) + bytes_of<float>({3, 4});
  const Vectors f32 = read_vectors(folder.write("a.fvecs", fvecs));
  CHECK(f32.rows == 2);
  CHECK(f32.dim == 2);
  CHECK(value_at(f32, 2) == 3.0f);
  const std::string head = bytes_of<int32_t>({3});
  const Vectors u8 = read_vectors(folder.write("a.bvecs", head + "abc" + head + "def"));
  CHECK(u8.element == ANN_U8);
  CHECK(u8.rows == 2);
  CHECK(static_cast<char>(u8.data[3]) == 'd');
}

TEST_CASE("NumPy files") {
  const Folder folder;
  const std::string data = bytes_of<float>({1, 2, 3, 4, 5, 6});
  const std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";
  for (const char major : {1, 2, 3}) {
    const Vectors read = read_vectors(folder.write("a.npy", npy(head, data, major)));
    CHECK(read.element == ANN_F32);
    CHECK(read.rows == 2);
    CHECK(read.dim == 3);
    CHECK(value_at(read, 5) == 6.0f);
  }
  const std::string bytes = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 1), }\n";
  CHECK(read_vectors(folder.write("b.npy", npy(bytes, "abc"))).element == ANN_U8);
}

TEST_CASE("NumPy's floats of 64 bits are read as f32") {
  const Folder folder;
  const auto head = [](const std::string& shape) {
    return "{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + ", }\n";
  };
  const std::string path =
      folder.write("a.npy", npy(head("(3, 2)"), bytes_of<double>({1, 0.1, -3, 4, 1e-320, INFINITY})));
  VectorReader reader(path);
  CHECK(reader.element() == ANN_F32);
  CHECK(reader.stored_element() == kElementF64);
  const Vectors all = reader.read(0, 3);
  CHECK(all.data.size() == 24);
  CHECK(value_at(all, 1) == 0.1f);
  CHECK(value_at(all, 4) == 0.0f);
  CHECK(value_at(all, 5) == INFINITY);  // which the library refuses, with its place
  CHECK(value_at(reader.read(1, 1), 0) == -3.0f);
  CHECK(refusal("b.npy", npy(head("(2, 1)"), bytes_of<double>({1, -1e39}))) ==
        "at byte " + std::to_string(10 + head("(2, 1)").size() + 8) + ": row 1 holds " +
            std::to_string(-1e39) + "; expected a value that f32 can hold");
}

TEST_CASE("lists of ids") {
  const Folder folder;
  const auto head = [](const std::string& descr, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  };
  using Ids = std::vector<uint64_t>;
  const uint64_t large = UINT64_MAX - 1;
  CHECK(read_ids(folder.write("a.npy", npy(head("<u8", "(2,)"), bytes_of<uint64_t>({large, 0})))) ==
        Ids{large, 0});
  CHECK(read_ids(folder.write("b.npy", npy(head("<i8", "(2, 1)"), bytes_of<int64_t>({5, 1})))) == Ids{5, 1});
  CHECK(read_ids(folder.write("c.npy", npy(head("<u4", "(1,)"), bytes_of<uint32_t>({UINT32_MAX})))) ==
        Ids{UINT32_MAX});
  CHECK(read_ids(folder.write("d.ibin", bytes_of<uint32_t>({2, 1, 7, 8}))) == Ids{7, 8});
  const std::string negative = folder.write("e.npy", npy(head("<i4", "(2,)"), bytes_of<int32_t>({3, -1})));
  CHECK_THROWS_WITH(read_ids(negative), negative + ": row 1 holds the id -1; expected 0 or more");
  CHECK(VectorReader(negative).read_ids(0, 2, true) == Ids{3, ANN_ID_NONE});
  const std::string floats = folder.write("f.npy", npy(head("<f4", "(1, 1)"), "abcd"));
  CHECK_THROWS_WITH(read_ids(floats),
                    floats + ": holds 1 f32 values a row; expected one id, of 32 or 64 bits");
  const std::string pairs = folder.write("g.ibin", bytes_of<uint32_t>({1, 2, 7, 8}));
  CHECK_THROWS_WITH(read_ids(pairs), pairs + ": holds 2 i32 values a row; expected one id, of 32 or 64 bits");
}

TEST_CASE("a part of a file") {
  const Folder folder;
  const std::string bin = folder.write("a.u8bin", bytes_of<uint32_t>({4, 2}) + "abcdefgh");
  VectorReader reader(bin);
  CHECK(reader.rows() == 4);
  const Vectors middle = reader.read(1, 2);
  CHECK(middle.rows == 2);
  CHECK(std::memcmp(middle.data.data(), "cdef", 4) == 0);
  CHECK(reader.read(4, 0).rows == 0);
  CHECK_THROWS_WITH(reader.read(3, 2), bin + ": has 4 rows; asked for 2 from row 3 on");
  CHECK_THROWS_WITH(reader.read(0, UINT64_MAX),
                    bin + ": has 4 rows; asked for 18446744073709551615 from row 0 on");
  const std::string head = bytes_of<int32_t>({3});
  VectorReader vecs(folder.write("a.bvecs", head + "abc" + head + "def" + head + "ghi"));
  CHECK(std::memcmp(vecs.read(2, 1).data.data(), "ghi", 3) == 0);
}

TEST_CASE("a file larger than 4 GiB is read behind that, at no cost in memory") {
  const Folder folder;
  const std::string path = folder.write("a.u8bin", bytes_of<uint32_t>({3000000, 2000}));
  std::filesystem::resize_file(path, 8 + uint64_t{3000000} * 2000);  // a hole
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(8 + uint64_t{2999999} * 2000));
    file << "last";
  }
  VectorReader reader(path);
  CHECK(std::memcmp(reader.read(2999999, 1).data.data(), "last", 5) == 0);
}

TEST_CASE("what is written is read back") {
  const Folder folder;
  for (const char* name : {"a.fbin", "a.fvecs", "a.npy"}) {
    const std::string path = folder.path() + "/" + name;
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    {
      VectorWriter writer(path, ANN_F32, 2);
      writer.append(values.data(), 1);
      writer.append(values.data() + 2, 2);
      CHECK(!std::filesystem::exists(path));
      writer.finish();
    }
    const Vectors read = read_vectors(path);
    CHECK(read.rows == 3);
    CHECK(read.dim == 2);
    CHECK(std::memcmp(read.data.data(), values.data(), 24) == 0);
  }
  const std::string path = folder.path() + "/b.fbin";
  {
    VectorWriter unfinished(path, ANN_F32, 2);
  }
  CHECK(std::filesystem::is_empty(folder.path()) == false);
  CHECK(!std::filesystem::exists(path));
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    CHECK(file.path().extension() != ".part");
  }
  CHECK_THROWS_WITH(VectorWriter(path, ANN_U8, 2),
                    path + ": the ending .fbin means f32 values; these are u8");
}

TEST_CASE("true neighbours") {
  const Folder folder;
  GroundTruth truth;
  truth.queries = 2;
  truth.k = 3;
  truth.ids = {5, 4, 3, 2, 1, -1};
  truth.distances = {0, 1, 2, 0.5f, 1, 9};
  const std::string path = folder.path() + "/gt.ibin";
  write_ground_truth(path, truth);
  const GroundTruth read = read_ground_truth(path);
  CHECK(read.queries == 2);
  CHECK(read.k == 3);
  CHECK(read.ids == truth.ids);
  CHECK(read.distances == truth.distances);
  CHECK(VectorReader(path).rows() == 2);  // as a matrix: the row numbers alone
  CHECK_THROWS_WITH(read_vectors(path),
                    path + ": holds ids (i32); expected vectors, of f32, f64, f16, i8 or u8");
  write_ground_truth(folder.path() + "/gt.ivecs", truth);
  CHECK(read_ground_truth(folder.path() + "/gt.ivecs").ids == truth.ids);
  CHECK(read_ground_truth(folder.path() + "/gt.ivecs").distances.empty());
  const std::string plain = folder.write("b.ibin", bytes_of<uint32_t>({1, 2, 7, 8}));
  CHECK(read_ground_truth(plain).ids == std::vector<int32_t>{7, 8});
  CHECK(refusal("c.ibin", bytes_of<uint32_t>({1, 2, 7, 8, 9})) ==
        "at byte 16: 4 more bytes; expected the end of the file after 1 rows of 2 i32 values");
  const std::string floats = folder.write("d.fbin", bytes_of<uint32_t>({1, 1}) + "abcd");
  CHECK_THROWS_WITH(read_ground_truth(floats),
                    floats + ": holds f32 values; expected row numbers, as .ibin, .ivecs or .npy");
}

TEST_CASE("ids of 64 bits, with distances behind them and without") {
  const Folder folder;
  const std::string ids = bytes_of<uint32_t>({2, 1}) + bytes_of<uint64_t>({uint64_t{1} << 63, 7});
  CHECK(read_ids(folder.write("a.u64bin", ids)) == std::vector<uint64_t>{uint64_t{1} << 63, 7});
  VectorReader reader(folder.write("b.u64bin", ids + bytes_of<float>({0.5f, 2})));
  CHECK(reader.has_distances());
  CHECK(reader.read_distances() == std::vector<float>{0.5f, 2});
  CHECK(reader.read_ids(0, 2, true) == std::vector<uint64_t>{uint64_t{1} << 63, 7});
  CHECK(refusal("c.u64bin", ids + "abcd") ==
        "at byte 24: 4 more bytes; expected the end of the file after 2 rows of 1 u64 values");
}

TEST_CASE("bin files that are refused") {
  const auto head = [](uint32_t rows, uint32_t dim) { return bytes_of<uint32_t>({rows, dim}); };
  CHECK(refusal("a.fbin", "") == "at byte 0: the file ends; expected 8 bytes: uint32 rows, uint32 dimension");
  CHECK(refusal("a.fbin", "1234567") ==
        "at byte 7: the file ends; expected 8 bytes: uint32 rows, uint32 dimension");
  CHECK(refusal("a.fbin", head(0, 3)) == "at byte 0: the number of rows is 0; expected 1 to 1099511627776");
  // More rows than an index takes are legal in a file: a part of it may be read.
  CHECK(refusal("a.fbin", head(0xffffffff, 3)) ==
        "at byte 8: the file ends; expected 51539607548 bytes for 4294967295 rows of 3 f32 values");
  CHECK(refusal("a.fbin", head(1, 0)) == "at byte 4: the dimension is 0; expected 1 to 32768");
  CHECK(refusal("a.fbin", head(1, 32769)) == "at byte 4: the dimension is 32769; expected 1 to 32768");
  // A head that promises 256 TiB costs nothing.
  CHECK(refusal("a.fbin", head(2147483646, 32768)) ==
        "at byte 8: the file ends; expected 281474976448520 bytes for 2147483646 rows of 32768 f32 "
        "values");
  CHECK(refusal("a.u8bin", head(2, 3) + "abcde") ==
        "at byte 13: the file ends; expected 14 bytes for 2 rows of 3 u8 values");
  CHECK(refusal("a.u8bin", head(2, 3) + "abcdefg") ==
        "at byte 14: 1 more bytes; expected the end of the file after 2 rows of 3 u8 values");
}

TEST_CASE("vecs files that are refused") {
  CHECK(refusal("a.fvecs", "") == "at byte 0: the file ends; expected 4 bytes: int32 dimension");
  CHECK(refusal("a.fvecs", bytes_of<int32_t>({-1})) == "at byte 0: the dimension is -1; expected 1 to 32768");
  CHECK(refusal("a.bvecs", bytes_of<int32_t>({3}) + "ab") ==
        "at byte 0: 6 bytes at the end of the file; expected whole rows of 7 bytes (dimension 3)");
  const std::string row = bytes_of<int32_t>({3}) + "abc";
  CHECK(refusal("a.bvecs", row + row + "a") ==
        "at byte 14: 1 bytes at the end of the file; expected whole rows of 7 bytes (dimension 3)");
  CHECK(refusal("a.bvecs", row + bytes_of<int32_t>({4}) + "abc") ==
        "at byte 7: row 1 has dimension 4; expected 3, as in row 0");
}

TEST_CASE("NumPy files that are refused") {
  const auto head = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  };
  CHECK(refusal("a.npy", "") == "at byte 0: the file ends; expected the head of a NumPy array");
  CHECK(refusal("a.npy", std::string(64, 'x')) ==
        "at byte 0: other bytes; expected the mark of a NumPy array, \"\\x93NUMPY\"");
  CHECK(refusal("a.npy", npy("{}", "", 4)) == "at byte 6: format version 4; expected 1 to 3");
  CHECK(refusal("a.npy", std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)) ==
        "at byte 10: a head of 65535 bytes; expected at most the 2 bytes left in the file");
  CHECK(refusal("a.npy", std::string("\x93NUMPY\x02\x00\x01\x00", 10)) ==
        "at byte 10: the file ends; expected the length of the head");
  CHECK(refusal("a.npy", npy("{'descr': '<f4'}", "")) ==
        "at byte 10: a head without descr, fortran_order or shape; expected all three");
  CHECK(refusal("a.npy", npy(head("'>f4'", "False", "(1, 2)"), "")) ==
        "at byte 10: elements of type '>f4'; expected '<f4', '<f2', '<f8', '|i1', '|u1', or '<i4', "
        "'<u4', '<i8', '<u8' for ids (array.astype('float32') makes the first)");
  CHECK(refusal("a.npy", npy(head("'<f4'", "True", "(1, 2)"), "")) ==
        "at byte 10: fortran_order is True; expected False (numpy.ascontiguousarray(array) makes "
        "it so)");
  for (const char* shape : {"(3,)", "()", "(1, 2, 3)", "(1; 2)", "(99999999999999999999, 2)"}) {
    CHECK(refusal("a.npy", npy(head("'<f4'", "False", shape), "")) ==
          "at byte 10: shape " + std::string(shape) + "; expected (rows, dimension)");
  }
  CHECK(refusal("a.npy", npy(head("'<f4'", "False", "(-2, 3)"), "")) ==
        "at byte 10: the number of rows is -2; expected 1 to 1099511627776");
  CHECK(refusal("a.npy", npy(head("'<f4'", "False", "(2, 40000)"), "")) ==
        "at byte 10: the dimension is 40000; expected 1 to 32768");
  const std::string good = head("'|u1'", "False", "(2, 3)");
  CHECK(refusal("a.npy", npy(good, "abcde")) ==
        "at byte " + std::to_string(10 + good.size() + 5) + ": the file ends; expected " +
            std::to_string(10 + good.size() + 6) + " bytes for 2 rows of 3 u8 values");
}

TEST_CASE("names that are refused") {
  const Folder folder;
  CHECK_THROWS_WITH(read_vectors(folder.path() + "/none.fbin"), folder.path() + "/none.fbin: no such file");
  CHECK_THROWS_WITH(read_vectors(folder.path()), folder.path() + ": not a regular file");
  CHECK(refusal("a.hdf5", "x") ==
        "the ending \".hdf5\" is not known; expected .fbin, .f16bin, .i8bin, .u8bin, .ibin, "
        ".u64bin, .fvecs, .bvecs, .ivecs or .npy");
}

}  // namespace
