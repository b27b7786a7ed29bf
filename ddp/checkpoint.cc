#include "ddp/checkpoint.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/temporary_files.h"
#include "ddp/library_errors.h"
#include "ddp/named_tensors.h"
#include "ddp/optimizer_state.h"
#include "ddp/safetensors.h"

namespace oarlock {
namespace {

// Sections: prefixes of the names in the file.
constexpr char kModelSection[] = "model.";
constexpr char kOptimizerSection[] = "optimizer.";
constexpr char kExtraSection[] = "extra.";

// Keys of the metadata.
constexpr char kOptimizerClass[] = "optimizer";
constexpr char kStep[] = "step";
constexpr char kEpoch[] = "epoch";
constexpr char kEpochSamples[] = "epoch_samples";

void add_section(const std::string& section, const TensorMap& from, TensorMap& to) {
  for (const auto& [name, tensor] : from) to[section + name] = tensor;
}

// The tensors of a section under their names without its prefix.
TensorMap section_of(const TensorMap& tensors, const std::string& section) {
  TensorMap out;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(section)) out[name.substr(section.size())] = tensor;
  }
  return out;
}

TensorMap module_tensors(const torch::nn::Module& module) {
  TensorMap out;
  for (const NamedTensor& item : unique_parameters(module)) out[item.name] = item.tensor.detach();
  for (const NamedTensor& item : unique_buffers(module)) out[item.name] = item.tensor.detach();
  return out;
}

// ---- saving --------------------------------------------------------------------------------------------------------

Result<void> replace_file(const std::filesystem::path& path, const TensorMap& tensors,
                          const SafetensorsMetadata& metadata) {
  const std::filesystem::path temporary = new_temporary_path(path);
  Result<FileDigest> written = catch_errors([&] { return write_safetensors(temporary, tensors, metadata); });
  if (written && std::rename(temporary.c_str(), path.c_str()) != 0)
    written = fail_errno(errno, fmt::format("{}: cannot be replaced", path.string()));
  if (!written) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    return tl::make_unexpected(written.error());
  }
  return sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

Result<void> write_state(const std::filesystem::path& path, const TrainingState& state,
                         const TrainingPosition& position) {
  SafetensorsMetadata metadata{{"format", "pt"},  // which Python readers expect for tensors of PyTorch
                               {kStep, std::to_string(position.step)},
                               {kEpoch, std::to_string(position.epoch)},
                               {kEpochSamples, std::to_string(position.epoch_samples)}};
  TensorMap tensors;
  add_section(kModelSection, module_tensors(state.module), tensors);
  if (state.optimizer != nullptr) {
    ASSIGN_OR_RETURN(metadata[kOptimizerClass], optimizer_name(*state.optimizer));
    ASSIGN_OR_RETURN(const TensorMap saved, optimizer_tensors(*state.optimizer, unique_parameters(state.module)));
    add_section(kOptimizerSection, saved, tensors);
  }
  add_section(kExtraSection, state.tensors, tensors);
  return replace_file(path, tensors, metadata);
}

// ---- distributing the content of the file from rank 0 --------------------------------------------------------------

struct FileContent {
  SafetensorsMetadata metadata;
  TensorMap tensors;
};

// Returns the content without the elements of the tensors as JSON.
std::string describe(const SafetensorsFile& file) {
  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& [name, tensor] : file.tensors)
    tensors[name] = {static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()};
  return dump_json({{"metadata", file.metadata}, {"tensors", std::move(tensors)}});
}

// Returns rank 0's content on all ranks, with the tensors on the device of the group. All ranks have the `description`.
FileContent broadcast_content(const std::string& description, TensorMap of_rank_0, const ProcessGroup& group) {
  const nlohmann::json json = nlohmann::json::parse(description);
  FileContent out{.metadata = json["metadata"].get<SafetensorsMetadata>(), .tensors = std::move(of_rank_0)};
  std::vector<at::Tensor> bytes;  // views: Gloo and NCCL do not support all dtypes
  for (const auto& [name, type_and_shape] : json["tensors"].items()) {
    at::Tensor& tensor = out.tensors[name];
    if (!tensor.defined()) {
      const auto type = static_cast<at::ScalarType>(type_and_shape[0].get<int>());
      tensor = at::empty(type_and_shape[1].get<std::vector<int64_t>>(), at::TensorOptions(group.device()).dtype(type));
    }
    tensor = tensor.to(group.device());
    if (tensor.numel() > 0) bytes.push_back(tensor.reshape(-1).view(at::kByte));
  }
  group.broadcast(bytes);
  return out;
}

// ---- restoring -----------------------------------------------------------------------------------------------------

Result<int64_t> count_at(const SafetensorsMetadata& metadata, const char* key, const std::string& source) {
  const auto found = metadata.find(key);
  int64_t value = -1;
  if (found != metadata.end()) {
    const char* const end = found->second.data() + found->second.size();
    const auto [last, error] = std::from_chars(found->second.data(), end, value);
    if (error != std::errc() || last != end) value = -1;
  }
  if (value < 0) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: its metadata has no count '{}': save_checkpoint() did not write it", source, key));
  }
  return value;
}

Result<TrainingPosition> position_from(const SafetensorsMetadata& metadata, const std::string& source) {
  TrainingPosition out;
  ASSIGN_OR_RETURN(out.step, count_at(metadata, kStep, source));
  ASSIGN_OR_RETURN(out.epoch, count_at(metadata, kEpoch, source));
  ASSIGN_OR_RETURN(out.epoch_samples, count_at(metadata, kEpochSamples, source));
  return out;
}

Result<void> check_optimizer_class(const FileContent& content, const torch::optim::Optimizer& optimizer,
                                   const std::string& source) {
  ASSIGN_OR_RETURN(const std::string name, optimizer_name(optimizer));
  const auto saved = content.metadata.find(kOptimizerClass);
  if (saved != content.metadata.end() && saved->second == name) return {};
  return fail(ExitCode::kDataErr, fmt::format("{}: it has the state of the optimizer {}, this program's is {}", source,
                                              saved == content.metadata.end() ? "(none)" : saved->second, name));
}

// Returns the position if the content can be loaded, and otherwise one error. Changes nothing.
Result<TrainingPosition> check_content(const FileContent& content, const TrainingState& state,
                                       const std::string& source) {
  ASSIGN_OR_RETURN(const TrainingPosition position, position_from(content.metadata, source));
  TensorMap expected;
  add_section(kModelSection, module_tensors(state.module), expected);
  add_section(kExtraSection, state.tensors, expected);
  TensorMap found = content.tensors;
  if (state.optimizer == nullptr) {
    std::erase_if(found, [](const auto& item) { return item.first.starts_with(kOptimizerSection); });
  } else {
    RETURN_IF_ERROR(check_optimizer_class(content, *state.optimizer, source));
    ASSIGN_OR_RETURN(const TensorMap tensors,
                     expected_optimizer_tensors(*state.optimizer, unique_parameters(state.module),
                                                section_of(found, kOptimizerSection)));
    add_section(kOptimizerSection, tensors, expected);
  }
  RETURN_IF_ERROR(check_tensors(found, expected, source));
  return position;
}

Result<void> load_content(const FileContent& content, const TrainingState& state, const std::string& source) {
  RETURN_IF_ERROR(copy_tensors(section_of(content.tensors, kModelSection), module_tensors(state.module), source));
  RETURN_IF_ERROR(copy_tensors(section_of(content.tensors, kExtraSection), state.tensors, source));
  if (state.optimizer == nullptr) return {};
  return set_optimizer_tensors(*state.optimizer, unique_parameters(state.module),
                               section_of(content.tensors, kOptimizerSection));
}

Result<std::optional<TrainingPosition>> load_state(const std::filesystem::path& path, const TrainingState& state,
                                                   const ProcessGroup& group) {
  Result<std::string> description = "";
  TensorMap tensors;
  std::error_code unknown;  // reading reports it
  if (group.rank() == 0 && (std::filesystem::exists(path, unknown) || unknown)) {
    Result<SafetensorsFile> file = catch_errors([&] { return read_safetensors(path); });
    description = catch_errors([&] { return file.map(describe); });
    if (file) tensors = std::move(file->tensors);
  }
  ASSIGN_OR_RETURN(description, group.broadcast(description));
  if (description->empty()) return std::nullopt;
  const FileContent content = broadcast_content(*description, std::move(tensors), group);
  const auto position = catch_errors([&] { return check_content(content, state, path.string()); });
  RETURN_IF_ERROR(group.agree(position.map([](const TrainingPosition&) {})));
  RETURN_IF_ERROR(load_content(content, state, path.string()));
  return *position;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const TrainingState& state, const TrainingPosition& position,
                     const ProcessGroup& group) {
  Result<std::string> written = "";
  if (group.rank() == 0)
    written = catch_errors([&] { return write_state(path, state, position); }).map([] { return std::string(); });
  written = group.broadcast(written);
  if (!written) throw ErrorException(written.error());
}

std::optional<TrainingPosition> load_checkpoint(const std::filesystem::path& path, const TrainingState& state,
                                                const ProcessGroup& group) {
  Result<std::optional<TrainingPosition>> position = load_state(path, state, group);
  if (!position) throw ErrorException(std::move(position).error());
  return *position;
}

}  // namespace oarlock
