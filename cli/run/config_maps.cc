#include "cli/run/config_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "common/contract.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "operator/core/desired.h"
#include "yaml/object_list.h"

namespace oarlock::run {
namespace {

namespace fs = std::filesystem;

std::string text_of(const yaml::Node& node, std::string_view key) {
  const std::optional<yaml::Node> value = node.find(key);
  return value && value->kind() == yaml::Node::Kind::kScalar ? value->text() : "";
}

std::string member_of(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

nlohmann::json list_in(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_array() ? *it : nlohmann::json::array();
}

// Returns false for paths that would leave the directory of their volume.
bool is_inside(const fs::path& path) {
  return !path.empty() && path.is_relative() &&
         std::ranges::none_of(path, [](const fs::path& part) { return part == ".."; });
}

// The files of a volume: all keys, or those of its items under their paths.
std::map<std::string, std::string> files_of(const nlohmann::json& volume,
                                            const std::map<std::string, std::string>& data) {
  const nlohmann::json items = list_in(volume, "items");
  if (items.empty()) return data;
  std::map<std::string, std::string> out;
  for (const nlohmann::json& item : items) {
    const auto found = data.find(member_of(item, "key"));
    if (found != data.end()) out[member_of(item, "path")] = found->second;
  }
  return out;
}

bool continues_path(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

std::string replace_path(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != std::string::npos;) {
    const size_t end = found + from.size();
    const bool begins = found == 0 || !(continues_path(text[found - 1]) || text[found - 1] == '/');
    const bool ends = end == text.size() || !continues_path(text[end]);
    out.append(text, at, found - at);
    out += begins && ends ? to : from;
    at = end;
  }
  return out.append(text, at);
}

}  // namespace

ConfigMaps config_maps_of(const std::vector<yaml::Node>& documents) {
  ConfigMaps out;
  for (const auto& [document, list_path] : yaml::list_objects(documents)) {
    if (document.kind() != yaml::Node::Kind::kMap || text_of(document, "kind") != "ConfigMap") continue;
    const std::optional<yaml::Node> metadata = document.find("metadata");
    const std::optional<yaml::Node> data = document.find("data");
    if (!metadata || metadata->kind() != yaml::Node::Kind::kMap || !data || data->kind() != yaml::Node::Kind::kMap)
      continue;
    std::map<std::string, std::string>& files = out[text_of(*metadata, "name")];
    for (const auto& entry : data->entries()) {
      if (entry.value.kind() == yaml::Node::Kind::kScalar) files[entry.key] = entry.value.text();
    }
  }
  return out;
}

std::vector<LocalVolume> local_volumes(const api::TrainingJob& job, const ConfigMaps& config_maps,
                                       const fs::path& parent) {
  std::vector<LocalVolume> out;
  const nlohmann::json pod = control::make_pod_template(job, {});
  for (const nlohmann::json& container : list_in(pod["spec"], "containers")) {
    if (member_of(container, "name") != kTrainerContainer) continue;
    for (const nlohmann::json& mount : list_in(container, "volumeMounts")) {
      for (const nlohmann::json& volume : list_in(pod["spec"], "volumes")) {
        const auto source = volume.find("configMap");
        const std::string name = member_of(volume, "name");
        if (name != member_of(mount, "name") || source == volume.end() || !source->is_object()) continue;
        const auto data = config_maps.find(member_of(*source, "name"));
        std::string mount_path = member_of(mount, "mountPath");
        while (mount_path.size() > 1 && mount_path.back() == '/') mount_path.pop_back();
        if (data == config_maps.end() || mount_path.empty()) continue;
        if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) continue;
        LocalVolume local;
        local.name = name;
        local.config_map = data->first;
        local.mount_path = mount_path;
        local.directory = parent / name;
        const std::string sub_path = member_of(mount, "subPath");
        local.target = is_inside(sub_path) ? local.directory / sub_path : local.directory;
        local.files = files_of(*source, data->second);
        std::erase_if(local.files, [](const auto& file) { return !is_inside(file.first); });
        out.push_back(std::move(local));
      }
    }
  }
  // The longest path decides if volumes are mounted in each other.
  std::ranges::stable_sort(
      out, [](const LocalVolume& a, const LocalVolume& b) { return a.mount_path.size() > b.mount_path.size(); });
  return out;
}

Result<void> write_volumes(const std::vector<LocalVolume>& volumes) {
  for (const LocalVolume& volume : volumes) {
    std::error_code ignored;
    fs::remove_all(volume.directory, ignored);
  }
  for (const LocalVolume& volume : volumes) {
    RETURN_IF_ERROR(make_writable_directory(volume.directory));
    for (const auto& [path, text] : volume.files) {
      RETURN_IF_ERROR(make_writable_directory((volume.directory / path).parent_path()));
      RETURN_IF_ERROR(write_file_atomically(volume.directory / path, text));
    }
  }
  return {};
}

std::string localize(std::string text, const std::vector<LocalVolume>& volumes) {
  for (const LocalVolume& volume : volumes) text = replace_path(text, volume.mount_path, volume.target.string());
  return text;
}

}  // namespace oarlock::run
