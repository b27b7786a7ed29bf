#include "ddp/safetensors.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/json_access.h"
#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "common/work_progress.h"

namespace oarlock {
namespace {

static_assert(std::endian::native == std::endian::little, "the bytes of elements would have to be swapped");

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kProgressBytes = size_t{16} << 20;  // between two reports of the progress of a save
constexpr uint64_t kMaxHeader = 100'000'000;         // bytes; the reference implementation's limit
constexpr size_t kMaxHeaderDepth = 100;
constexpr size_t kMaxValues = 4'000'000;  // of the header; a tensor has about six
constexpr size_t kMaxShown = 200;         // characters of a value that a message quotes
constexpr char kMetadataKey[] = "__metadata__";

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};

// In the order in which the reference implementation writes. LibTorch has no dtypes for its sub-byte types (F4, F6_*).
constexpr std::array kDtypes{
    Dtype{"U64", at::ScalarType::UInt64},
    Dtype{"I64", at::ScalarType::Long},
    Dtype{"F64", at::ScalarType::Double},
    Dtype{"C64", at::ScalarType::ComplexFloat},
    Dtype{"F32", at::ScalarType::Float},
    Dtype{"U32", at::ScalarType::UInt32},
    Dtype{"I32", at::ScalarType::Int},
    Dtype{"BF16", at::ScalarType::BFloat16},
    Dtype{"F16", at::ScalarType::Half},
    Dtype{"U16", at::ScalarType::UInt16},
    Dtype{"I16", at::ScalarType::Short},
    Dtype{"F8_E5M2FNUZ", at::ScalarType::Float8_e5m2fnuz},
    Dtype{"F8_E4M3FNUZ", at::ScalarType::Float8_e4m3fnuz},
    Dtype{"F8_E8M0", at::ScalarType::Float8_e8m0fnu},
    Dtype{"F8_E4M3", at::ScalarType::Float8_e4m3fn},
    Dtype{"F8_E5M2", at::ScalarType::Float8_e5m2},
    Dtype{"I8", at::ScalarType::Char},
    Dtype{"U8", at::ScalarType::Byte},
    Dtype{"BOOL", at::ScalarType::Bool},
};

// ---- reading -------------------------------------------------------------------------------------------------------

// Reads a file sequentially. Messages contain its path.
class Source {
 public:
  static Result<Source> open(const std::filesystem::path& path) {
    return DigestReader::open(path).map([&](DigestReader file) { return Source(path, std::move(file)); });
  }

  uint64_t size() const { return file_.size(); }
  uint64_t remaining() const { return file_.size() - position_; }
  FileDigest digest() const { return file_.digest(); }

  tl::unexpected<Error> invalid(const std::string& reason) const {
    return fail(ExitCode::kDataErr, fmt::format("{}: not a valid safetensors file: {}", path_.string(), reason));
  }

  // Reads the next `size` bytes.
  Result<void> read(void* target, uint64_t size) {
    auto read = file_.read(std::span(static_cast<std::byte*>(target), size));
    position_ += size;
    if (!read && read.error().code == ExitCode::kDataErr) return invalid("it was truncated while it was read");
    return read;
  }

 private:
  Source(std::filesystem::path path, DigestReader file) : path_(std::move(path)), file_(std::move(file)) {}

  std::filesystem::path path_;
  DigestReader file_;
  uint64_t position_ = 0;
};

// Formats a value of the header for a message. Nested lists and objects are omitted, because their depth is unbounded.
std::string shown(const json& value) {
  const bool flat = !value.is_structured() ||
                    std::none_of(value.begin(), value.end(), [](const json& item) { return item.is_structured(); });
  std::string text = flat ? dump_json(value) : "(nested)";
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

struct Entry {
  std::string name;
  at::ScalarType type = at::ScalarType::Undefined;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // byte offsets in the data after the header
  uint64_t end = 0;
};

// Checks JSON without keeping it. nlohmann's parser takes only the last one of equal keys, and with a callback, the
// time that it needs grows with the square of the members of an object.
class HeaderCheck final : public json::json_sax_t {
 public:
  // Why the text is not accepted.
  const std::string& reason() const { return reason_; }

  bool null() override { return add_value(); }
  bool boolean(bool) override { return add_value(); }
  bool number_integer(number_integer_t) override { return add_value(); }
  bool number_unsigned(number_unsigned_t) override { return add_value(); }
  bool number_float(number_float_t, const string_t&) override { return add_value(); }
  bool string(string_t&) override { return add_value(); }
  bool binary(binary_t&) override { return add_value(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool key(string_t& name) override { return keys_.back().insert(name).second || reject(kNotAnObject); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return reject(kNotAnObject);
  }

 private:
  static constexpr char kNotAnObject[] = "the header is not a JSON object with distinct keys";

  bool reject(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool add_value() {
    return ++values_ <= kMaxValues || reject(fmt::format("the header has more than {} values", kMaxValues));
  }
  bool open() {
    if (keys_.size() == kMaxHeaderDepth)
      return reject(fmt::format("the header is nested deeper than {} levels", kMaxHeaderDepth));
    keys_.emplace_back();
    return add_value();
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects; empty sets for arrays
  size_t values_ = 0;
  std::string reason_;
};

std::optional<uint64_t> unsigned_integer(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

// Returns the number of bytes of a tensor, or nothing if it overflows.
std::optional<uint64_t> byte_size(const std::vector<int64_t>& shape, at::ScalarType type) {
  uint64_t bytes = c10::elementSize(type);
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<Entry> entry_from(const Source& source, const std::string& name, const json& value, uint64_t data_size) {
  const auto invalid = [&](const std::string& reason) {
    return source.invalid(fmt::format("tensor \"{}\": {}", name, reason));
  };
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    return invalid("expected exactly dtype, shape and data_offsets");
  }
  Entry entry;
  entry.name = name;
  const json& dtype = value["dtype"];
  const auto* known =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return dtype == json(d.name); });
  if (known == kDtypes.end()) return invalid(fmt::format("dtype {} is not supported", shown(dtype)));
  entry.type = known->type;

  if (!value["shape"].is_array()) return invalid("shape is not a list");
  for (const json& item : value["shape"]) {
    const auto dimension = unsigned_integer(item);
    if (!dimension || *dimension > INT64_MAX)
      return invalid(fmt::format("shape {} is not a list of sizes", shown(value["shape"])));
    entry.shape.push_back(static_cast<int64_t>(*dimension));
  }
  const json& offsets = value["data_offsets"];
  const auto begin = offsets.is_array() && offsets.size() == 2 ? unsigned_integer(offsets[0]) : std::nullopt;
  const auto end = begin ? unsigned_integer(offsets[1]) : std::nullopt;
  if (!end || *begin > *end || *end > data_size) {
    return invalid(fmt::format("data_offsets {} are not inside the {} bytes of data", shown(offsets), data_size));
  }
  entry.begin = *begin;
  entry.end = *end;
  const auto bytes = byte_size(entry.shape, entry.type);
  if (!bytes || *bytes != *end - *begin) {
    return invalid(
        fmt::format("data_offsets {} do not match {} of shape {}", shown(offsets), known->name, shown(value["shape"])));
  }
  return entry;
}

Result<SafetensorsMetadata> metadata_from(const Source& source, const json& value) {
  if (!value.is_object()) return source.invalid("__metadata__ is not an object");
  SafetensorsMetadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return source.invalid(fmt::format("__metadata__: the value of \"{}\" is not a string", key));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// Checks that the tensors cover the data without gaps and overlaps, and sorts them by offset.
Result<void> check_layout(const Source& source, std::vector<Entry>& entries, uint64_t data_size) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      return source.invalid(fmt::format("tensor \"{}\" starts at byte {} of the data, expected byte {}: {}", entry.name,
                                        entry.begin, at, entry.begin < at ? "tensors overlap" : "there is a gap"));
    }
    at = entry.end;
  }
  if (at != data_size)
    return source.invalid(fmt::format("the tensors end at byte {} of {} bytes of data", at, data_size));
  return {};
}

// Reads the length and the JSON of the header.
Result<json> read_header(Source& source) {
  uint64_t header_size = 0;
  if (source.size() < sizeof(header_size)) return source.invalid(fmt::format("it has only {} bytes", source.size()));
  RETURN_IF_ERROR(source.read(&header_size, sizeof(header_size)));
  if (header_size > kMaxHeader || header_size > source.size() - sizeof(header_size)) {
    return source.invalid(
        fmt::format("the header length {} does not fit a file of {} bytes", header_size, source.size()));
  }
  std::string text(header_size, '\0');
  RETURN_IF_ERROR(source.read(text.data(), header_size));
  HeaderCheck check;
  if (!text.starts_with('{')) return source.invalid("the header is not a JSON object");
  if (!json::sax_parse(text, &check)) return source.invalid(check.reason());
  return json::parse(text);
}

// Reads the tensor at the current position of the file.
Result<at::Tensor> read_tensor(Source& source, const Entry& entry, const std::filesystem::path& path) {
  const uint64_t bytes = entry.end - entry.begin;
  at::Tensor tensor;
  try {
    tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.type));
  } catch (const c10::Error&) {
    if (bytes > 0) {  // the file has this size, so memory is insufficient
      return fail(ExitCode::kOsErr,
                  fmt::format("{}: not enough memory for tensor \"{}\" of {} bytes", path.string(), entry.name, bytes));
    }
    return source.invalid(
        fmt::format("tensor \"{}\": shape [{}] is not possible", entry.name, fmt::join(entry.shape, ", ")));
  }
  if (bytes > 0) RETURN_IF_ERROR(source.read(tensor.mutable_data_ptr(), bytes));
  return tensor;
}

// ---- writing -------------------------------------------------------------------------------------------------------

struct Planned {
  std::string name;
  at::Tensor tensor;
  size_t dtype = 0;  // index in kDtypes
};

Result<std::vector<Planned>> plan(const std::filesystem::path& path, const TensorMap& tensors) {
  std::vector<Planned> planned;
  for (const auto& [name, tensor] : tensors) {
    const auto refuse = [&, tensor_name = name](const std::string& what) {
      return fail(ExitCode::kUsage, fmt::format("{}: tensor \"{}\": {}", path.string(), tensor_name, what));
    };
    if (name == kMetadataKey) return refuse("the name is reserved by the format");
    if (!tensor.defined() || tensor.layout() != at::kStrided) return refuse("only dense tensors can be saved");
    const auto* known =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.type == tensor.scalar_type(); });
    if (known == kDtypes.end())
      return refuse(fmt::format("safetensors has no dtype {}", c10::toString(tensor.scalar_type())));
    planned.push_back({name, tensor.detach().cpu().contiguous(), static_cast<size_t>(known - kDtypes.begin())});
  }
  std::stable_sort(planned.begin(), planned.end(),
                   [](const Planned& a, const Planned& b) { return a.dtype < b.dtype; });
  return planned;
}

// Returns the length and the header, padded with spaces to a multiple of 8.
std::string header_of(const std::vector<Planned>& planned, const SafetensorsMetadata& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  uint64_t at = 0;
  for (const Planned& item : planned) {
    const uint64_t end = at + item.tensor.nbytes();
    ordered_json entry;
    entry["dtype"] = kDtypes[item.dtype].name;
    entry["shape"] = item.tensor.sizes().vec();
    entry["data_offsets"] = {at, end};
    header[item.name] = std::move(entry);
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  return prefix + text;
}

}  // namespace

Result<SafetensorsFile> read_safetensors(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(Source source, Source::open(path));
  ASSIGN_OR_RETURN(const json header, read_header(source));
  const uint64_t data_size = source.remaining();
  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      ASSIGN_OR_RETURN(file.metadata, metadata_from(source, value));
      continue;
    }
    ASSIGN_OR_RETURN(Entry entry, entry_from(source, name, value, data_size));
    entries.push_back(std::move(entry));
  }
  RETURN_IF_ERROR(check_layout(source, entries, data_size));
  RETURN_IF_ERROR(expect_memory(data_size, 1, path.string()));

  // The tensors are contiguous and sorted by offset, so this reads the file sequentially.
  for (const Entry& entry : entries) {
    ASSIGN_OR_RETURN(at::Tensor tensor, read_tensor(source, entry, path));
    file.tensors.emplace(entry.name, std::move(tensor));
  }
  file.digest = source.digest();
  return file;
}

Result<FileDigest> write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                                     const SafetensorsMetadata& metadata) {
  ASSIGN_OR_RETURN(const std::vector<Planned> planned, plan(path, tensors));
  ASSIGN_OR_RETURN(DigestWriter file, DigestWriter::create(path));
  RETURN_IF_ERROR(file.write(header_of(planned, metadata)));
  for (const Planned& item : planned) {
    if (item.tensor.nbytes() == 0) continue;
    std::span bytes(static_cast<const std::byte*>(item.tensor.const_data_ptr()), item.tensor.nbytes());
    while (!bytes.empty()) {
      const auto block = bytes.first(std::min(bytes.size(), kProgressBytes));
      RETURN_IF_ERROR(file.write(block));
      advance_work(LongWork::kSave, static_cast<int64_t>(block.size()));
      bytes = bytes.subspan(block.size());
    }
  }
  return file.finish();
}

}  // namespace oarlock
