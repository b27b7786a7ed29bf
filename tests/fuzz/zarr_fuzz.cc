// Reads a zarr array of version 2 or 3. The input is the metadata and the first chunk (or shard), separated by a NUL.
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "tests/fuzz/input.h"
#include "tests/support/temporary_directory.h"
#include "workloads/formats/zarr/array.h"

using namespace oarlock;

namespace {

constexpr size_t kMaxKeyBytes = 200;           // a longer key is not a valid file name
constexpr double kMaxChunkBytes = 16'777'216;  // the reader allows 2 GiB, which would take too long here

// Returns the key of the chunk with number 0 along each axis, or an empty string if the metadata is rejected.
std::string first_chunk(std::string_view text, bool version3) {
  if (json_depth(text) > 100) return "";  // as Array::open()
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return "";
  const Result<zarr::ArrayMetadata> metadata = version3 ? zarr::parse_v3(json) : zarr::parse_v2(json);
  if (!metadata) {
    fuzz::require(metadata.error().code == ExitCode::kDataErr);
    return "";
  }
  fuzz::require(metadata->shape.size() == metadata->chunk.size());
  fuzz::require(metadata->fill.size() == metadata->type.size);
  return metadata->key(std::vector<int64_t>(metadata->shape.size(), 0));
}

void read_corner(const zarr::Array& array) {
  const std::vector<int64_t> begin(array.shape().size(), 0);
  std::vector<int64_t> count;
  size_t elements = 1;
  for (const int64_t length : array.shape()) {
    count.push_back(std::min<int64_t>(length, 3));
    elements *= static_cast<size_t>(count.back());
  }
  double chunk_bytes = static_cast<double>(array.type().size);
  for (const int64_t length : array.chunk()) chunk_bytes *= static_cast<double>(length);
  if (elements > 100'000 || chunk_bytes > kMaxChunkBytes) return;
  const auto bytes = array.read(begin, count);
  const auto numbers = array.read_doubles(begin, count);
  if (bytes) fuzz::require(bytes->size() == elements * array.type().size);
  fuzz::require(bytes.has_value() == numbers.has_value());
  if (numbers) fuzz::require(numbers->size() == elements);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::TemporaryDirectory root;
  const std::string_view text = fuzz::text_of(data, size);
  const size_t end = std::min(text.find('\0'), text.size());
  const std::string_view metadata = text.substr(0, end);
  const std::string_view chunk = text.substr(std::min(end + 1, text.size()));
  for (const bool version3 : {false, true}) {
    const std::string key = first_chunk(metadata, version3);
    // A key must be a path below the directory of the array.
    fuzz::require(key.empty() || (key.front() != '/' && key.find("..") == std::string::npos));
    if (key.empty() || key.size() > kMaxKeyBytes) continue;
    const std::filesystem::path directory = root.path() / "array";
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories((directory / key).parent_path());
    fuzz::write_file(directory / (version3 ? "zarr.json" : ".zarray"), metadata);
    fuzz::write_file(directory / key, chunk);
    const Result<zarr::Array> array = zarr::Array::open(directory, zarr::MissingChunks::kFill);
    if (array) read_corner(*array);
  }
  return 0;
}
