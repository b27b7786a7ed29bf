// Compares the safetensors reader and writer with a file of the Python package (tests/data/make_safetensors_golden.py),
// and reads every kind of damaged file.
#include "ddp/safetensors.h"
#include "tests/support/paths.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

using testing::HasSubstr;

const std::string kGolden = test::data_path("golden.safetensors");

std::string raw(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  return prefix + header + data;
}

void write_raw(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::vector<double> as_doubles(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).flatten().contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

TEST(Safetensors, ReadsFilesOfPython) {
  const auto file = read_safetensors(kGolden);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors.size(), 24U);
  EXPECT_THAT(file->metadata.at("written_by"), HasSubstr("safetensors "));

  const std::map<std::string, at::ScalarType> counted{
      {"uint8", at::kByte},   {"int8", at::kChar},      {"int16", at::kShort},      {"uint16", at::kUInt16},
      {"int32", at::kInt},    {"uint32", at::kUInt32},  {"int64", at::kLong},       {"uint64", at::kUInt64},
      {"float16", at::kHalf}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}};
  for (const auto& [name, type] : counted) {
    EXPECT_EQ(file->tensors.at(name).scalar_type(), type) << name;
    EXPECT_EQ(as_doubles(file->tensors.at(name)), (std::vector<double>{0, 1, 2, 3, 4, 5})) << name;
  }
  const std::map<std::string, at::ScalarType> eighths{{"float8_e5m2", at::kFloat8_e5m2},
                                                      {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                                      {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
                                                      {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
                                                      {"float8_e8m0fnu", at::ScalarType::Float8_e8m0fnu}};
  for (const auto& [name, type] : eighths) {
    EXPECT_EQ(file->tensors.at(name).scalar_type(), type) << name;
    EXPECT_EQ(as_doubles(file->tensors.at(name).to(at::kFloat)), (std::vector<double>{1, 2, 4, 8})) << name;
  }
  EXPECT_EQ(as_doubles(file->tensors.at("f32")), (std::vector<double>{0, 0.25, 0.5, 0.75, 1, 1.25}));
  EXPECT_EQ(as_doubles(file->tensors.at("bool")), (std::vector<double>{0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(file->tensors.at("complex64").scalar_type(), at::kComplexFloat);
  const at::Tensor limits = file->tensors.at("int64_limits");
  EXPECT_EQ(limits.const_data_ptr<int64_t>()[0], INT64_MIN);
  EXPECT_EQ(limits.const_data_ptr<int64_t>()[1], INT64_MAX);
  EXPECT_TRUE(at::equal(file->tensors.at("matrix"), at::arange(12).to(at::kFloat).reshape({3, 4})));
  EXPECT_EQ(file->tensors.at("scalar").dim(), 0);
  EXPECT_EQ(file->tensors.at("scalar").item<float>(), 2.5F);
  EXPECT_EQ(file->tensors.at("empty").sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ(file->tensors.at("conv \"1\".weight\n\u00e9").item<int>(), 7);
}

// The files are identical to those of the Python package.
TEST(Safetensors, WritesIdenticalToPython) {
  const auto file = read_safetensors(kGolden);
  ASSERT_TRUE(file);
  const test::TemporaryDirectory directory;
  const auto digest = write_safetensors(directory.path() / "again", file->tensors, file->metadata);
  ASSERT_TRUE(digest) << digest.error().message;
  EXPECT_EQ(*read_file(directory.path() / "again"), *read_file(kGolden));
  EXPECT_EQ(*digest, *digest_of(kGolden));
  EXPECT_EQ(digest->bytes, static_cast<int64_t>(std::filesystem::file_size(kGolden)));
}

TEST(Safetensors, WritesViewsAndEmptyTensors) {
  const test::TemporaryDirectory directory;
  const at::Tensor matrix = at::arange(12).reshape({3, 4});
  ASSERT_TRUE(
      write_safetensors(directory.path() / "view", {{"t", matrix.t()}, {"row", matrix[1].requires_grad_(false)}}));
  const auto file = read_safetensors(directory.path() / "view");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(at::equal(file->tensors.at("t"), matrix.t()));
  EXPECT_TRUE(at::equal(file->tensors.at("row"), matrix[1]));
  ASSERT_TRUE(write_safetensors(directory.path() / "nothing", {}));
  EXPECT_EQ(*read_file(directory.path() / "nothing"), raw("{}      "));
  EXPECT_TRUE(read_safetensors(directory.path() / "nothing"));
}

TEST(Safetensors, RejectsUnsupportedTensors) {
  const test::TemporaryDirectory directory;
  const auto complex = write_safetensors(directory.path() / "a", {{"z", at::zeros({1}, at::kComplexDouble)}});
  ASSERT_FALSE(complex);
  EXPECT_EQ(complex.error().code, ExitCode::kUsage);
  EXPECT_THAT(complex.error().message, HasSubstr("tensor \"z\": safetensors has no dtype ComplexDouble"));
  EXPECT_FALSE(write_safetensors(directory.path() / "b", {{"__metadata__", at::zeros({1})}}));
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "a"));
}

TEST(Safetensors, ComputesXxh3Digest) {
  const test::TemporaryDirectory directory;
  write_raw(directory.path() / "empty", "");
  // XXH3-128 of nothing, from the reference implementation's documentation of its test vectors.
  EXPECT_EQ(digest_of(directory.path() / "empty")->xxh3_128, "99aa06d3014798d86001c324468d497f");
}

struct Damage {
  const char* header;
  size_t data_bytes;
  const char* message;
};

TEST(Safetensors, RejectsInvalidFilesWithReason) {
  const std::vector<Damage> cases{
      {R"([])", 0, "the header is not a JSON object"},
      {R"({"a":)", 0, "the header is not a JSON object"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "distinct keys"},
      {R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "distinct keys"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 0, "tensor \"a\": expected exactly dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "expected exactly"},
      {R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1, "dtype \"F4\" is not supported"},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype 7 is not supported"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "shape [-1] is not a list of sizes"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "is not a list of sizes"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1, "is not a list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,1]}})", 1, "do not match F32 of shape"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}})", 3, "do not match F32 of shape [1]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", 1, "are not inside the 1 bytes of data"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "are not inside"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "are not inside"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor \"b\" starts at byte 1 of the data, expected byte 2: tensors overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "expected byte 0: there is a gap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, "the tensors end at byte 1 of 2 bytes of data"},
      {R"({"a":{"dtype":"U8","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0]}})", 0,
       "is not possible"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1, "is not a list of sizes"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})", 1,
       "are not inside the 1 bytes of data"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,1]}})", 1, "do not match U8 of shape"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "do not match F64 of shape"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "do not match U8 of shape"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551616]}})", 1,
       "are not inside"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "tensors overlap"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__: the value of \"a\" is not a string"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
  };
  const test::TemporaryDirectory directory;
  for (const Damage& damage : cases) {
    SCOPED_TRACE(damage.header);
    write_raw(directory.path() / "file", raw(damage.header, std::string(damage.data_bytes, 'x')));
    const auto file = read_safetensors(directory.path() / "file");
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ExitCode::kDataErr);
    EXPECT_THAT(file.error().message, HasSubstr(damage.message));
    EXPECT_THAT(file.error().message, HasSubstr((directory.path() / "file").string()));
  }
  write_raw(directory.path() / "file", "short");
  EXPECT_THAT(read_safetensors(directory.path() / "file").error().message, HasSubstr("it has only 5 bytes"));
  write_raw(directory.path() / "file", std::string(8, '\xff') + "{}");
  EXPECT_THAT(read_safetensors(directory.path() / "file").error().message, HasSubstr("the header length"));
  EXPECT_EQ(read_safetensors(directory.path() / "none").error().code, ExitCode::kNoInput);
}

// Sizes in the header are compared with the file before memory is allocated.
TEST(Safetensors, RejectsHostileSizesWithoutAllocation) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto before = peak_kib();
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX}) {
    std::string prefix(8, '\0');
    std::memcpy(prefix.data(), &length, 8);
    write_raw(path, prefix + "{}");
    std::filesystem::resize_file(path, uint64_t{1} << 33);  // sparse: the file itself is large
    const auto file = read_safetensors(path);
    ASSERT_FALSE(file) << length;
    EXPECT_EQ(file.error().code, ExitCode::kDataErr);
    EXPECT_THAT(file.error().message, HasSubstr("the header length " + std::to_string(length)));
  }
  for (const char* size : {"9223372036854775807", "1099511627776"}) {
    const std::string tensor =
        std::string(R"({"dtype":"U8","shape":[)") + size + R"(],"data_offsets":[0,)" + size + "]}";
    write_raw(path, raw(R"({"a":)" + tensor + "}", "x"));
    EXPECT_FALSE(read_safetensors(path)) << size;
  }
  EXPECT_LT(peak_kib() - before, 64 << 10);
}

// The parser must not need the square of their number, and must not keep any number of sizes.
TEST(Safetensors, ManyTensorsTakeLinearTime) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  std::string header = "{";
  constexpr int kTensors = 200'000;
  for (int i = 0; i < kTensors; ++i)
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  write_raw(path, raw(header + "}", ""));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read_safetensors(path).value().tensors.size(), size_t{kTensors});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));

  std::string sizes;
  for (int i = 0; i < 5'000'000; ++i) sizes += "1,";
  write_raw(path, raw(R"({"a":{"dtype":"F32","shape":[)" + sizes + R"(0],"data_offsets":[0,0]}})", ""));
  const auto file = read_safetensors(path);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("the header has more than 4000000 values"));
}

// A sparse file can declare tensors that are larger than the memory.
TEST(Safetensors, RejectsTensorsAboveTheMemory) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  write_raw(path, raw(R"({"a":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}})", ""));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + (uint64_t{1} << 40));
  const auto file = read_safetensors(path);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ExitCode::kOsErr);
  EXPECT_THAT(file.error().message, HasSubstr("needs 1 TiB of memory"));
}

// The nesting depth is bounded only by the length of the header.
TEST(Safetensors, RejectsDeepNestingAndTruncatesMessage) {
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& header :
       {R"({"a":{"dtype":)" + deep + R"(,"shape":[1],"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":)" + deep + R"(,"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":)" + deep + "}}", R"({"__metadata__":)" + deep + "}",
        R"({"a":{"dtype":")" + std::string(1'000'000, 'x') + R"(","shape":[1],"data_offsets":[0,1]}})"}) {
    write_raw(path, raw(header, "x"));
    const auto file = read_safetensors(path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ExitCode::kDataErr);
    EXPECT_LT(file.error().message.size(), 1000U);
  }
}

TEST(Safetensors, DigestMatchesFile) {
  EXPECT_EQ(read_safetensors(kGolden).value().digest, digest_of(kGolden).value());
}

TEST(Safetensors, DetectsEveryTruncation) {
  const std::string whole = *read_file(kGolden);
  const test::TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  write_raw(path, whole);
  for (size_t size = whole.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    const auto file = read_safetensors(path);
    ASSERT_FALSE(file) << size;
    EXPECT_EQ(file.error().code, ExitCode::kDataErr);
  }
}

// A damaged header is rejected, or still describes a file of this size. It never causes a crash or an invalid access.
TEST(Safetensors, SurvivesDamageOfEveryHeaderByte) {
  const std::string whole = *read_file(kGolden);
  const size_t header_end = whole.rfind('}') + 1;
  const test::TemporaryDirectory directory;
  int refused = 0;
  for (size_t i = 0; i < header_end; ++i) {
    for (const int bit : {0, 3, 6}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      write_raw(directory.path() / "file", damaged);
      refused += read_safetensors(directory.path() / "file") ? 0 : 1;
    }
  }
  EXPECT_GT(refused, static_cast<int>(header_end));
}

}  // namespace
}  // namespace oarlock
