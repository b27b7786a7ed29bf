// Arrays of zarr 2 and 3 as zarr-python wrote them (tests/data/make_zarr_arrays.py), and damaged ones.
#include "tests/support/paths.h"
#include "workloads/formats/zarr/array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/files.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::zarr {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kArrays = test::data_path("zarr");
const Shape kShape = {3, 4, 5};

double value(int64_t i, int64_t j, int64_t k) { return static_cast<double>(100 * i + 10 * j + k); }

struct Stored {
  const char* name;
  ElementType type;
  double (*element)(int64_t, int64_t, int64_t) = value;
};

constexpr ElementType kInt32{ElementKind::kInt, 4};
constexpr ElementType kFloat{ElementKind::kFloat, 4};

class ZarrArrays : public testing::TestWithParam<Stored> {};

// Reads every box of the array, which covers every way in which a box can intersect chunks.
TEST_P(ZarrArrays, ReadsEveryBox) {
  const Result<Array> array = Array::open(kArrays / GetParam().name);
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->shape(), kShape);
  EXPECT_EQ(array->type(), GetParam().type);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      for (int64_t rows = 0; rows <= 4 - j; ++rows) {
        const Result<std::vector<double>> box = array->read_doubles(Shape{i, j, 1}, Shape{3 - i, rows, 3});
        ASSERT_TRUE(box) << box.error().message;
        std::vector<double> expected;
        for (int64_t a = i; a < 3; ++a)
          for (int64_t b = j; b < j + rows; ++b)
            for (int64_t c = 1; c < 4; ++c) expected.push_back(GetParam().element(a, b, c));
        ASSERT_EQ(*box, expected) << "at " << i << ", " << j << " of " << rows;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Python, ZarrArrays,
    testing::Values(
        Stored{"v2_blosc_f", kInt32}, Stored{"v2_zstd", {ElementKind::kFloat, 8}},
        Stored{"v2_zlib", {ElementKind::kUint, 2}}, Stored{"v2_gzip", {ElementKind::kInt, 8}},
        Stored{"v2_plain_big", kFloat},
        Stored{"v2_nested",
               {ElementKind::kInt, 1},
               [](int64_t i, int64_t j, int64_t k) {
                 return static_cast<double>(static_cast<int64_t>(value(i, j, k)) % 100);
               }},
        Stored{"v3_default", kInt32}, Stored{"v3_blosc", kFloat}, Stored{"v3_gzip_crc", {ElementKind::kFloat, 8}},
        Stored{"v3_crc_zstd", {ElementKind::kFloat, 2}}, Stored{"v3_transposed_big", {ElementKind::kUint, 8}},
        Stored{"v3_v2_keys", {ElementKind::kInt, 2}},
        Stored{"v3_bool", {ElementKind::kBool, 1}, [](int64_t, int64_t, int64_t k) { return k % 2 == 0 ? 1.0 : 0.0; }},
        Stored{"v3_sharded", kInt32},
        Stored{"v3_sharded_start",
               {ElementKind::kUint, 1},
               [](int64_t i, int64_t j, int64_t k) {
                 return static_cast<double>(static_cast<int64_t>(value(i, j, k)) % 256);
               }}),
    [](const auto& stored) { return stored.param.name; });

// Julia writes [i, j, k] in column-major order, which is [k, j, i] in row-major order.
TEST(ZarrArray, ReversesAxesOfJulia) {
  const Result<Array> array = Array::open(kArrays / "v2_julia");
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->shape(), (Shape{5, 4, 3}));
  EXPECT_THAT(
      *array->read_doubles(Shape{4, 1, 0}, Shape{1, 2, 3}),
      ElementsAre(value(0, 1, 4), value(1, 1, 4), value(2, 1, 4), value(0, 2, 4), value(1, 2, 4), value(2, 2, 4)));
}

TEST(ZarrArray, MissingChunksAreErrorsOrFillValues) {
  for (const char* name : {"v2_sparse", "v3_sparse", "v3_sharded_sparse"}) {
    const Array strict = *Array::open(kArrays / name, MissingChunks::kError);
    EXPECT_EQ(strict.read_doubles(Shape{0, 1, 4}, Shape{1, 1, 1}), (std::vector<double>{14})) << name;
    const auto missing = strict.read_doubles(Shape{0, 0, 0}, kShape);
    ASSERT_FALSE(missing) << name;
    EXPECT_EQ(missing.error().code, ExitCode::kDataErr);
    EXPECT_THAT(missing.error().message, AllOf(HasSubstr(name), HasSubstr("chunk [0, 1, 0] ("),
                                               HasSubstr(") is missing: copy the array again, or")));
    const Array filled = *Array::open(kArrays / name);
    EXPECT_THAT(*filled.read_doubles(Shape{0, 2, 0}, Shape{3, 2, 5}), Each(-7.5)) << name;
    EXPECT_EQ(filled.read_doubles(Shape{0, 1, 4}, Shape{1, 1, 1}), (std::vector<double>{14})) << name;
  }
}

TEST(ZarrArray, ListsArraysOfGroup) {
  EXPECT_THAT(array_names(kArrays / "v3_group"), ElementsAre("more", "numbers"));
  EXPECT_THAT(array_names("/nonexistent"), testing::IsEmpty());
  EXPECT_THAT(*Array::open(kArrays / "v3_group/numbers")->read_doubles(Shape{0}, Shape{3}), ElementsAre(0, 1, 2));
}

class DamagedZarr : public testing::Test {
 protected:
  // Copies a stored array, which the test then damages.
  fs::path copy(const std::string& name) {
    const fs::path to = directory_.path() / name;
    fs::copy(kArrays / name, to, fs::copy_options::recursive);
    return to;
  }

  static void change(const fs::path& file, const std::string& from, const std::string& to) {
    std::string text = *read_file(file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(file) << text.replace(at, from.size(), to);
  }

  static std::string read_error(const fs::path& array) {
    const Result<Array> opened = Array::open(array);
    if (!opened) return opened.error().message;
    const auto read = opened->read(Shape{0, 0, 0}, opened->shape());
    if (read) return "";
    EXPECT_EQ(read.error().code, ExitCode::kDataErr);
    return read.error().message;
  }

  TemporaryDirectory directory_;
};

TEST_F(DamagedZarr, NamesTruncatedChunk) {
  const struct {
    const char* name;
    const char* chunk;
    const char* place;
  } cases[] = {
      {.name = "v2_zstd", .chunk = "1.0.0", .place = "chunk [1, 0, 0]"},
      {.name = "v2_zlib", .chunk = "1.0.0", .place = "chunk [1, 0, 0]"},
      {.name = "v2_plain_big", .chunk = "0.1.0", .place = "chunk [0, 1, 0]"},
      {.name = "v2_blosc_f", .chunk = "0.1.0", .place = "chunk [0, 1, 0]"},
      {.name = "v3_default", .chunk = "c/1/1/0", .place = "chunk [1, 1, 0]"},
      {.name = "v3_blosc", .chunk = "c/1/1/0", .place = "chunk [1, 1, 0]"},
      {.name = "v3_sharded", .chunk = "c/1/0/0", .place = "chunk [2, 0, 0]"},
      {.name = "v3_sharded_start", .chunk = "c/0/1/0", .place = "chunk [0, 2, 0]"},
  };
  for (const auto& [name, chunk, place] : cases) {
    const fs::path array = copy(name);
    for (const uintmax_t size : {fs::file_size(array / chunk) - 3, uintmax_t{2}, uintmax_t{0}}) {
      fs::resize_file(array / chunk, size);
      EXPECT_THAT(read_error(array), AllOf(HasSubstr(place), HasSubstr((array / chunk).string()),
                                           testing::AnyOf(HasSubstr("is truncated"), HasSubstr("checksum"))))
          << name << " of " << size << " bytes";
    }
  }
}

TEST_F(DamagedZarr, ChecksumDetectsChangedByte) {
  const fs::path array = copy("v3_gzip_crc");
  const fs::path chunk = array / "c/1/0/0";
  std::string bytes = *read_file(chunk);
  bytes[20] = static_cast<char>(bytes[20] ^ 1);
  std::ofstream(chunk) << bytes;
  EXPECT_THAT(read_error(array), AllOf(HasSubstr("chunk [1, 0, 0]"), HasSubstr("is damaged: its checksum is ")));
}

// No corrupt file may crash the reader or cause a huge allocation.
TEST_F(DamagedZarr, SurvivesAnyChangedByte) {
  for (const char* name : {"v2_julia", "v2_zlib", "v3_default", "v3_blosc", "v3_sharded", "v3_sharded_start"}) {
    const fs::path array = copy(name);
    for (const auto& entry : fs::recursive_directory_iterator(array)) {
      if (!entry.is_regular_file() || entry.path().filename().string().find_first_not_of("0123456789.") == 0) continue;
      if (entry.path().filename().string().starts_with(".z")) continue;
      const std::string original = *read_file(entry.path());
      for (size_t i = 0; i < original.size(); ++i) {
        std::string bytes = original;
        bytes[i] = static_cast<char>(~bytes[i]);
        std::ofstream(entry.path()) << bytes;
        read_error(array);
      }
      std::ofstream(entry.path()) << original;
    }
    EXPECT_EQ(read_error(array), "");
  }
}

TEST_F(DamagedZarr, RejectsInvalidMetadataWithReason) {
  const auto changed = [&](const std::string& name, const std::string& from, const std::string& to) {
    const fs::path array = copy(name);
    const fs::path file = array / (name.starts_with("v2") ? ".zarray" : "zarr.json");
    change(file, from, to);
    std::string message = read_error(array);
    EXPECT_THAT(message, testing::StartsWith(file.string() + ": "));
    fs::remove_all(array);
    return message;
  };
  EXPECT_THAT(changed("v2_julia", "\"blosc\"", "\"lzma\""),
              HasSubstr("unknown codec \"lzma\"; the supported codecs are blosc, zstd, zlib, gzip and crc32c"));
  EXPECT_THAT(changed("v3_default", "\"zstd\"", "\"pcodec\""), HasSubstr("unknown codec 'pcodec'"));
  EXPECT_THAT(changed("v2_julia", "<i4", "<U9"), HasSubstr("dtype \"<U9\" is not a numeric type"));
  EXPECT_THAT(changed("v3_default", "int32", "complex64"), HasSubstr("data_type \"complex64\""));
  EXPECT_THAT(changed("v2_julia", "\"filters\": null", "\"filters\": [{\"id\": \"delta\"}]"), HasSubstr("filters"));
  EXPECT_THAT(changed("v2_julia", "5,", "-5,"), HasSubstr("-5 is not a valid size"));
  EXPECT_THAT(changed("v2_julia", "5,", "1e30,"), HasSubstr("is not a valid size"));
  EXPECT_THAT(changed("v3_default", "\"zarr_format\": 3", "\"zarr_format\": 4"), HasSubstr("zarr_format is not 3"));
  EXPECT_THAT(changed("v3_default", "{", "["), HasSubstr("not JSON"));
  EXPECT_THAT(changed("v3_default", "\"regular\"", "\"rectilinear\""), HasSubstr("chunk_grid 'rectilinear'"));
  EXPECT_THAT(changed("v3_sharded", "\"sharding_indexed\"", "\"packed\""), HasSubstr("'packed'"));
  EXPECT_THAT(changed("v3_transposed_big", "\"order\"", "\"orders\""),
              HasSubstr("the codec transpose has an invalid order"));
  // A size of 0 must not hide the overflow of the other sizes.
  EXPECT_THAT(changed("v3_default", "3,", "0, 1000000000000000000,"), HasSubstr("has too many elements"));
  EXPECT_THAT(changed("v3_default", "2,", "1000000000,"),
              HasSubstr("a chunk of 40000000000 bytes exceeds the limit of 2 GiB"));
  EXPECT_THAT(changed("v3_sharded", "\"index_codecs\":", "\"index_codecs\": \"bytes\", \"others\":"),
              HasSubstr("are not a list"));
  std::string many = "\"codecs\": [";
  for (int i = 0; i < 16; ++i) many += "{\"name\": \"transpose\"}, ";
  EXPECT_THAT(changed("v3_default", "\"codecs\": [", many), HasSubstr("codecs of a chunk; the maximum is 16"));
  EXPECT_THAT(changed("v3_default", "\"attributes\": {", "\"attributes\": {\"a\": " + std::string(200'000, '[')),
              HasSubstr("nested deeper than 100 levels"));
  for (const char* fill : {"1e300", "2147483648", "-2147483649", "\"NaN\"", "\"-Infinity\"", "18446744073709551615"}) {
    EXPECT_THAT(changed("v3_default", "\"fill_value\": 0", std::string("\"fill_value\": ") + fill),
                HasSubstr("does not fit into an element"));
  }
  const Result<Array> none = Array::open(kArrays / "nothing");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ExitCode::kNoInput);
  EXPECT_THAT(none.error().message, HasSubstr("nothing: not a zarr array"));
}

// The metadata of a small array can state any size.
TEST_F(DamagedZarr, RejectsSizesAboveTheMemory) {
  const fs::path array = copy("v2_julia");
  std::ofstream(array / ".zarray")
      << R"({"zarr_format": 2, "shape": [1048576, 1048576], "chunks": [1, 1], "dtype": "<f8",
    "fill_value": 0, "order": "C", "filters": null, "compressor": null})";
  const auto read = Array::open(array, MissingChunks::kFill)->read(Shape{0, 0}, Shape{1 << 20, 1 << 20});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ExitCode::kOsErr);
  EXPECT_THAT(read.error().message, HasSubstr("v2_julia needs"));
}

// A file system stores 1 TiB of zeros in a few bytes, so that the size of a file is not plausible either.
TEST_F(DamagedZarr, RejectsSparseChunks) {
  constexpr uintmax_t kSize = uintmax_t{1} << 40;
  const struct {
    const char* name;
    const char* chunk;
    const char* message;
  } cases[] = {
      {.name = "v2_plain_big", .chunk = "0.1.0", .message = "bytes of elements, found 1099511627776"},
      {.name = "v3_gzip_crc", .chunk = "c/1/0/0", .message = "bytes, found 109951162777"},
      {.name = "v3_default", .chunk = "c/1/1/0", .message = "is damaged"},
      {.name = "v2_blosc_f", .chunk = "0.1.0", .message = "is damaged"},
  };
  for (const auto& [name, chunk, message] : cases) {
    const fs::path array = copy(name);
    fs::resize_file(array / chunk, kSize);
    EXPECT_THAT(read_error(array), AllOf(HasSubstr((array / chunk).string()), HasSubstr(message))) << name;
  }
}

TEST_F(DamagedZarr, RejectsShardIndexAboveTheMemory) {
  const fs::path array = copy("v3_sharded");
  std::ofstream(array / "zarr.json") << R"({"zarr_format": 3, "node_type": "array", "shape": [3, 4, 5],
    "data_type": "int32", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [40960, 16384, 100]}},
    "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1, 1],
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}]})";
  fs::resize_file(array / "c/0/0/0", uintmax_t{1} << 41);
  const auto read = Array::open(array)->read(Shape{0, 0, 0}, Shape{3, 4, 5});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ExitCode::kOsErr);
  EXPECT_THAT(read.error().message, AllOf(HasSubstr("c/0/0/0"), HasSubstr("the index of the shard needs")));
}

TEST_F(DamagedZarr, RejectsUnusualMetadataFiles) {
  const fs::path array = copy("v2_julia");
  const fs::path file = array / ".zarray";
  change(file, "\"order\": \"", "\"order\": \"" + std::string(1'000'000, 'x'));
  EXPECT_THAT(read_error(array), HasSubstr("is neither C nor F"));
  EXPECT_LT(read_error(array).size(), 1000U);
  fs::resize_file(file, uint64_t{1} << 40);  // sparse
  EXPECT_THAT(read_error(array), HasSubstr(".zarray: longer than 16777216 bytes"));
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(read_error(array), HasSubstr(".zarray: not a regular file"));
}

TEST(ZarrElements, StoresIntegersExactlyOrRejectsThem) {
  const auto stored = [](auto value, ElementType type) {
    std::vector<uint8_t> bytes(type.size);
    return to_element(value, type, bytes) ? bytes : std::vector<uint8_t>();
  };
  const ElementType int64{ElementKind::kInt, 8};
  EXPECT_THAT(stored(std::numeric_limits<int64_t>::max(), int64), ElementsAre(255, 255, 255, 255, 255, 255, 255, 127));
  EXPECT_THAT(stored(0x1p63, int64), testing::IsEmpty());
  EXPECT_THAT(stored(-0x1p63, int64), ElementsAre(0, 0, 0, 0, 0, 0, 0, 128));
  EXPECT_THAT(stored(-0.5, ElementType{ElementKind::kUint, 1}), ElementsAre(0));
  EXPECT_THAT(stored(uint64_t{256}, ElementType{ElementKind::kUint, 1}), testing::IsEmpty());
  EXPECT_THAT(stored(int64_t{1}, ElementType{ElementKind::kFloat, 4}), ElementsAre(0, 0, 128, 63));
}

TEST(ZarrCodecs, ComputesCrc32c) {
  const std::string text = "123456789";  // the check value of the CRC catalogue
  EXPECT_EQ(crc32c({reinterpret_cast<const uint8_t*>(text.data()), text.size()}), 0xe3069283U);
}

}  // namespace
}  // namespace oarlock::zarr
