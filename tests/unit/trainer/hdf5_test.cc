#include <gmock/gmock.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "workloads/formats/hdf5/reader.h"
#include "workloads/formats/hdf5/writer.h"

namespace oarlock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Hdf5Test : public ::testing::Test {
 protected:
  Hdf5Group open() const {
    Result<Hdf5Group> root = Hdf5Group::open_file(path_);
    if (!root) throw std::runtime_error(root.error().message);
    return std::move(*root);
  }

  template <typename T>
  static void expect_error(const Result<T>& result, const std::vector<std::string>& parts,
                           ExitCode code = ExitCode::kDataErr) {
    ASSERT_FALSE(result);
    EXPECT_EQ(to_int(result.error().code), to_int(code)) << result.error().message;
    for (const std::string& part : parts) EXPECT_THAT(result.error().message, HasSubstr(part));
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
  }

  test::TemporaryDirectory directory_;
  fs::path path_ = directory_.path() / "file.h5";
};

TEST_F(Hdf5Test, ReadsAndConvertsNumbersOfAnyRank) {
  Hdf5Writer(path_).numbers<int32_t>("cube", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 2, 2}, 2);
  const Hdf5Dataset cube = open().dataset("cube").value();
  EXPECT_THAT(cube.shape(), ElementsAre(3, 2, 2));
  EXPECT_EQ(cube.rows(), 3);
  EXPECT_EQ(cube.row_size(), 4);
  EXPECT_EQ(cube.kind(), Hdf5Kind::kInteger);
  EXPECT_THAT(cube.read_rows<float>(1, 2).value(), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(cube.read<int64_t>().value(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  std::array<double, 4> row{};
  ASSERT_TRUE(cube.read_rows(2, 1, std::span<double>(row)));
  EXPECT_THAT(row, ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(cube.read_rows<int8_t>(3, 0).value(), ElementsAre());
}

// Each file has a few kilobytes.
TEST_F(Hdf5Test, RejectsSizesThatTheFileCannotHave) {
  const hsize_t many = hsize_t{1} << 40;
  {
    Hdf5Writer file(path_);
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    const hid_t wide = H5Tcopy(H5T_C_S1);
    H5Tset_size(wide, size_t{1} << 31);
    const hid_t table = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(table, "number", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(table, "text", 8, text);
    H5Dclose(file.dataset("numbers", H5T_NATIVE_DOUBLE, {many}, 100));
    H5Dclose(file.dataset("text", text, {many}, 100));
    H5Dclose(file.dataset("wide", wide, {hsize_t{1} << 20}, 1));
    H5Dclose(file.dataset("table", table, {many}, 100));
    H5Dclose(file.dataset("matrices", H5T_NATIVE_DOUBLE, {1, hsize_t{1} << 26, hsize_t{1} << 26}, 0));
    H5Dclose(file.dataset("overflow", H5T_NATIVE_DOUBLE, {0, hsize_t{1} << 40, hsize_t{1} << 40}, 0));
    H5Tclose(table);
    H5Tclose(wide);
    H5Tclose(text);
  }
  const Hdf5Group root = open();
  const auto set = [&](const char* name) { return root.dataset(name).value(); };
  const std::string impossible = "has 1099511627776 elements, which a file of";
  expect_error(set("numbers").read<double>(), {"/numbers", impossible});
  expect_error(set("text").read_strings(), {"/text", impossible});
  expect_error(set("table").read_member_numbers("number"), {"/table", impossible});
  expect_error(set("table").read_member_strings("text"), {"/table", impossible});
  expect_error(set("wide").read_strings(), {"/wide", "of memory"}, ExitCode::kOsErr);
  // Values that were never written are zeros. A reader of blocks would read them for days.
  const std::vector<int64_t> origin(3, 0);
  const std::vector<int64_t> block{1, 1, 1};
  expect_error(set("matrices").read_box(origin, block),
               {"/matrices", "has 4503599627370496 elements, which a file of"});
  expect_error(root.dataset("overflow"), {"/overflow", "invalid dimensions 0 x 1099511627776 x 1099511627776"});
}

// Any number of strings can refer to the same bytes of the file.
TEST_F(Hdf5Test, RejectsStringsOfMoreBytesThanTheFile) {
  constexpr size_t kLength = size_t{1} << 20;
  constexpr size_t kReferenceBytes = 16;  // of a string in the file
  constexpr size_t kCount = 100'000;      // 100 GiB
  std::string shared;
  hsize_t begin = 0;
  {
    Hdf5Writer file(path_);
    std::vector<std::string> values(kCount);
    values.front() = std::string(kLength, 'x');
    file.strings("text", values);
    const hid_t set = H5Dopen2(file.file(), "text", H5P_DEFAULT);
    begin = H5Dget_offset(set);
    H5Dclose(set);
  }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    shared.resize(kReferenceBytes);
    file.seekg(static_cast<std::streamoff>(begin));
    file.read(shared.data(), kReferenceBytes);
    file.seekp(static_cast<std::streamoff>(begin));
    for (size_t i = 0; i < kCount; ++i) file.write(shared.data(), kReferenceBytes);
  }
  expect_error(open().dataset("text").value().read_strings(), {"/text", "has strings of more than"});
}

TEST_F(Hdf5Test, ReadsBoxAlongAnyAxis) {
  Hdf5Writer(path_).numbers<int32_t>("cube", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 2, 2}, 2);
  const Hdf5Dataset cube = open().dataset("cube").value();
  const auto box = [&](std::vector<int64_t> begin, std::vector<int64_t> count) { return cube.read_box(begin, count); };
  EXPECT_THAT(box({0, 0, 1}, {3, 2, 1}).value(), ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_THAT(box({1, 1, 0}, {2, 1, 2}).value(), ElementsAre(6, 7, 10, 11));
  EXPECT_THAT(box({3, 0, 0}, {0, 2, 2}).value(), ElementsAre());
  expect_error(box({2, 0, 0}, {2, 2, 2}),
               {"cube", "3 x 2 x 2", "a box at [2, 0, 0] of shape [2, 2, 2] is out of range"});
  expect_error(box({0}, {1}), {"cube", "a box at [0]"});
}

TEST_F(Hdf5Test, ScalarHasOneRowAndEmptyDatasetNone) {
  {
    Hdf5Writer file(path_);
    file.numbers<double>("scalar", {2.5}, {});
    file.numbers<float>("empty", {}, {0, 7});
  }
  EXPECT_THAT(open().dataset("scalar").value().read<double>().value(), ElementsAre(2.5));
  const Hdf5Dataset empty = open().dataset("empty").value();
  EXPECT_EQ(empty.row_size(), 7);
  EXPECT_THAT(empty.read<float>().value(), ElementsAre());
}

TEST_F(Hdf5Test, ReadsBooleansOfH5pyAsNumbers) {
  {
    Hdf5Writer file(path_);
    const hid_t boolean = Hdf5Writer::check(H5Tenum_create(H5T_NATIVE_INT8));
    const int8_t no = 0;
    const int8_t yes = 1;
    H5Tenum_insert(boolean, "FALSE", &no);
    H5Tenum_insert(boolean, "TRUE", &yes);
    const hid_t set = file.dataset("mask", boolean, {3}, 0);
    const std::array<int8_t, 3> values{1, 0, 1};
    Hdf5Writer::check(H5Dwrite(set, boolean, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    H5Dclose(set);
    H5Tclose(boolean);
  }
  EXPECT_THAT(open().dataset("mask").value().read<int8_t>().value(), ElementsAre(1, 0, 1));
  EXPECT_THAT(open().dataset("mask").value().read<float>().value(), ElementsAre(1, 0, 1));
}

TEST_F(Hdf5Test, ReadsStringsAndAttributes) {
  {
    Hdf5Writer file(path_);
    file.strings("words", {"ctrl", "", "AHR+ctrl", "β"});
    file.strings("latin1", {"\xC5ngstr\xF6m", "Ångström"});
    const hid_t fixed = Hdf5Writer::check(H5Tcopy(H5T_C_S1));
    H5Tset_size(fixed, 4);
    const hid_t set = file.dataset("fixed", fixed, {3}, 0);
    Hdf5Writer::check(H5Dwrite(set, fixed, H5S_ALL, H5S_ALL, H5P_DEFAULT, "AB\0\0CDEF\0\0\0\0"));
    H5Dclose(set);
    H5Tset_strpad(fixed, H5T_STR_SPACEPAD);
    const hid_t padded = file.dataset("padded", fixed, {2}, 0);
    Hdf5Writer::check(H5Dwrite(padded, fixed, H5S_ALL, H5S_ALL, H5P_DEFAULT, "A B CD  "));
    H5Dclose(padded);
    H5Tclose(fixed);
    file.attribute("words", "encoding-type", "string-array");
    file.attribute("/", "shape", std::vector<int64_t>{3, 5});
    file.attribute("/", "columns", std::vector<std::string>{"a", "b"});
  }
  const Hdf5Group root = open();
  EXPECT_THAT(root.dataset("words").value().read_strings().value(), ElementsAre("ctrl", "", "AHR+ctrl", "β"));
  EXPECT_THAT(root.dataset("latin1").value().read_strings().value(), ElementsAre("Ångström", "Ångström"));
  EXPECT_THAT(root.dataset("fixed").value().read_strings().value(), ElementsAre("AB", "CDEF", ""));
  EXPECT_THAT(root.dataset("padded").value().read_strings().value(), ElementsAre("A B", "CD"));
  EXPECT_EQ(root.dataset("words").value().string_attribute("encoding-type").value(), "string-array");
  EXPECT_THAT(root.integers_attribute("shape").value(), ElementsAre(3, 5));
  EXPECT_THAT(root.strings_attribute("columns").value(), ElementsAre("a", "b"));
  EXPECT_FALSE(root.has_attribute("nothing"));
  expect_error(root.string_attribute("columns"), {path_.string(), "attribute columns", "2 values"});
  expect_error(root.integers_attribute("columns"), {"attribute columns", "does not contain integers"});
  expect_error(root.string_attribute("nothing"), {path_.string(), "no attribute nothing"});
}

TEST_F(Hdf5Test, ReadsMembersOfCompoundTypes) {
  struct Row {
    char index[5];
    int8_t code;
    float score;
  };
  {
    Hdf5Writer file(path_);
    const hid_t name = Hdf5Writer::check(H5Tcopy(H5T_C_S1));
    H5Tset_size(name, sizeof(Row::index));
    const hid_t type = Hdf5Writer::check(H5Tcreate(H5T_COMPOUND, sizeof(Row)));
    H5Tinsert(type, "index", HOFFSET(Row, index), name);
    H5Tinsert(type, "code", HOFFSET(Row, code), H5T_NATIVE_INT8);
    H5Tinsert(type, "score", HOFFSET(Row, score), H5T_NATIVE_FLOAT);
    const std::array<Row, 2> rows{Row{"AAAC", 1, 0.5F}, Row{"C", 0, -1}};
    const hid_t set = file.dataset("obs", type, {2}, 0);
    Hdf5Writer::check(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows.data()));
    H5Dclose(set);
    H5Tclose(type);
    H5Tclose(name);
  }
  const Hdf5Dataset obs = open().dataset("obs").value();
  EXPECT_EQ(obs.kind(), Hdf5Kind::kCompound);
  EXPECT_THAT(obs.members(), ElementsAre("index", "code", "score"));
  EXPECT_EQ(obs.member_kind("code").value(), Hdf5Kind::kInteger);
  EXPECT_THAT(obs.read_member_strings("index").value(), ElementsAre("AAAC", "C"));
  EXPECT_THAT(obs.read_member_numbers("code").value(), ElementsAre(1, 0));
  EXPECT_THAT(obs.read_member_numbers("score").value(), ElementsAre(0.5, -1));
  expect_error(obs.read_member_numbers("condition"), {path_.string(), "/obs", "no column condition", "index, code"});
  expect_error(obs.read_member_strings("score"), {"/obs/score", "does not contain strings"});
}

TEST_F(Hdf5Test, NamesMissingObjects) {
  {
    Hdf5Writer file(path_);
    file.group("X");
    file.numbers<float>("X/data", {1, 2}, {2});
  }
  const Hdf5Group root = open();
  EXPECT_TRUE(root.has("X/data"));
  EXPECT_FALSE(root.has("Y/data"));
  EXPECT_TRUE(root.has_group("X"));
  EXPECT_FALSE(root.has_dataset("X"));
  EXPECT_THAT(root.names().value(), ElementsAre("X"));
  expect_error(root.dataset("X/indptr"), {path_.string(), "/X/indptr does not exist"});
  expect_error(root.group("Y/Z"), {path_.string(), "/Y/Z does not exist"});
  expect_error(root.group("X/data"), {"/X/data is a dataset, expected a group"});
  expect_error(root.dataset("X"), {"/X is a group, expected a dataset"});
}

TEST_F(Hdf5Test, ReportsUnexpectedRankTypeOrRows) {
  {
    Hdf5Writer file(path_);
    file.numbers<float>("x", {1, 2, 3, 4}, {2, 2});
    file.strings("s", {"a"});
  }
  const Hdf5Dataset x = open().dataset("x").value();
  EXPECT_TRUE(x.expect_dimensions(2));
  expect_error(x.expect_dimensions(1), {path_.string(), "/x", "2 dimension(s) (2 x 2), expected 1"});
  expect_error(x.read_rows<float>(1, 2), {"/x", "2 row(s); rows 1 to 3"});
  expect_error(x.read_rows<float>(-1, 1), {"/x", "rows -1 to"});
  expect_error(x.read_strings(), {"/x", "does not contain strings"});
  expect_error(open().dataset("s").value().read<float>(), {"/s", "does not contain numbers"});
}

TEST_F(Hdf5Test, RejectsFilesThatAreNotHdf5) {
  expect_error(Hdf5Group::open_file(path_), {path_.string(), "cannot be opened"}, ExitCode::kNoInput);
  expect_error(Hdf5Group::open_file(directory_.path()), {"not a regular file"}, ExitCode::kNoInput);
  std::ofstream(path_) << "id,gene\n1,A\n";
  expect_error(Hdf5Group::open_file(path_), {path_.string(), "as HDF5", "complete?"});
}

TEST_F(Hdf5Test, RejectsTruncatedFile) {
  Hdf5Writer(path_).numbers<float>("x", std::vector<float>(10000, 1.5F), {10000});
  fs::resize_file(path_, fs::file_size(path_) - 1000);
  expect_error(Hdf5Group::open_file(path_), {path_.string(), "truncated"});
}

// A named pipe without a writer can never be opened.
TEST_F(Hdf5Test, RejectsDataInOtherFiles) {
  const std::string pipe = (directory_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  {
    const Hdf5Writer file(path_);
    Hdf5Writer::check(H5Lcreate_external(pipe.c_str(), "/x", file.file(), "link", H5P_DEFAULT, H5P_DEFAULT));
    Hdf5Writer::check(H5Lcreate_soft("/link", file.file(), "soft", H5P_DEFAULT, H5P_DEFAULT));
    const hsize_t size = 4;
    const hid_t space = Hdf5Writer::check(H5Screate_simple(1, &size, nullptr));
    const hid_t external = H5Pcreate(H5P_DATASET_CREATE);
    Hdf5Writer::check(H5Pset_external(external, pipe.c_str(), 0, size * sizeof(double)));
    const hid_t view = H5Pcreate(H5P_DATASET_CREATE);
    Hdf5Writer::check(H5Pset_virtual(view, space, pipe.c_str(), "x", space));
    for (const auto& [name, properties] : {std::pair("raw", external), std::pair("view", view)}) {
      H5Dclose(Hdf5Writer::check(
          H5Dcreate2(file.file(), name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, properties, H5P_DEFAULT)));
      H5Pclose(properties);
    }
    H5Sclose(space);
  }
  const Hdf5Group root = open();
  for (const char* name : {"link", "soft", "link/below"})
    expect_error(root.dataset(name), {path_.string(), name, "is in another file, '" + pipe + "'", "copy it into"});
  expect_error(root.dataset("raw"), {"/raw has its elements in another file"});
  expect_error(root.dataset("view"), {"/view is a virtual dataset of other files"});
  expect_error(root.group("link"), {"is in another file"});
  EXPECT_TRUE(root.has_dataset("link"));
  EXPECT_FALSE(root.has_group("link"));
}

TEST_F(Hdf5Test, TruncatedChunkNamesDataset) {
  {
    Hdf5Writer file(path_);
    file.group("X");
    const hid_t set = file.dataset("X/data", H5T_NATIVE_FLOAT, {200}, 100);
    const std::array<unsigned char, 6> cut{0x78, 0x9c, 0x63, 0x60, 0x18, 0x05};  // the beginning of a zlib stream
    const hsize_t offset = 100;
    Hdf5Writer::check(H5Dwrite_chunk(set, H5P_DEFAULT, 0, &offset, cut.size(), cut.data()));
    H5Dclose(set);
  }
  const Hdf5Dataset data = open().dataset("X/data").value();
  EXPECT_EQ(data.read_rows<float>(0, 100).value(), std::vector<float>(100, 0));
  ::testing::internal::CaptureStderr();
  expect_error(data.read_rows<float>(50, 100), {path_.string(), "/X/data", "rows 50 to 150", "inflate", "damaged"});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "the library prints its stack of errors";
}

// As h5py's lzf, whose filter only h5py has.
TEST_F(Hdf5Test, NamesAFilterThatIsMissing) {
  constexpr H5Z_filter_t kLzf = 32000;
  {
    Hdf5Writer file(path_);
    const hsize_t size = 4;
    const hid_t space = Hdf5Writer::check(H5Screate_simple(1, &size, nullptr));
    const hid_t properties = Hdf5Writer::check(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_chunk(properties, 1, &size);
    Hdf5Writer::check(H5Pset_filter(properties, kLzf, H5Z_FLAG_OPTIONAL, 0, nullptr));
    const hid_t text = Hdf5Writer::check(H5Tcopy(H5T_C_S1));
    H5Tset_size(text, 2);
    for (const auto& [name, type] : {std::pair{"numbers", H5T_NATIVE_INT16}, std::pair{"strings", text}}) {
      const hid_t set = H5Dcreate2(file.file(), name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
      const hsize_t offset = 0;
      Hdf5Writer::check(H5Dwrite_chunk(Hdf5Writer::check(set), H5P_DEFAULT, 0, &offset, 4, "\x01\x02\x03\x04"));
      H5Dclose(set);
    }
    H5Tclose(text);
    H5Pclose(properties);
    H5Sclose(space);
  }
  const Hdf5Group root = open();
  expect_error(root.dataset("numbers").value().read<float>(),
               {"/numbers is compressed with the filter", "(number 32000)", "write the file again with gzip"});
  expect_error(root.dataset("strings").value().read_strings(), {"/strings is compressed with the filter"});
}

}  // namespace
}  // namespace oarlock
