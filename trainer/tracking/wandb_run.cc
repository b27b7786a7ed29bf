#include "trainer/tracking/wandb_run.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <set>

#include "common/cpu.h"
#include "common/files.h"
#include "common/host_name.h"
#include "common/json_access.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

using nlohmann::json;

void add_config(const RunStarted& run, WandbRun& record) {
  std::set<std::string> keys;
  const auto add_item = [&](const std::string& key, const json& value) {
    if (keys.insert(key).second) record.config.emplace_back(key, dump_json(value));
  };
  for (const auto& [key, value] : run.derived) add_item(key, value);
  if (run.config.is_object()) {
    for (const auto& [key, value] : run.config.items()) add_item(key, value);
  }
  add_item("task", run.task);
  add_item("versions", run.versions);
  add_item("attempt", run.attempt);
  add_item("restart_step", run.restart_step);
  if (!run.job.empty()) add_item("job", run.job_namespace.empty() ? run.job : run.job_namespace + "/" + run.job);
}

}  // namespace

std::string random_wandb_id() {
  std::array<uint8_t, 8> bytes{};
  fill_random(bytes);
  std::string id;
  for (const uint8_t byte : bytes) id += "abcdefghijklmnopqrstuvwxyz0123456789"[byte % 36];
  return id;
}

std::string choose_wandb_id(const std::string& configured, const std::string& earlier, const std::string& uid) {
  if (!configured.empty()) return configured;
  if (is_wandb_id(earlier)) return earlier;
  std::string id;
  for (const char c : uid) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) id += c;
  }
  return is_wandb_id(id) ? id : random_wandb_id();
}

WandbRun describe_wandb_run(const WandbSettings& settings, const std::string& id, const RunStarted& run,
                            SystemTime start) {
  WandbRun out;
  out.id = id;
  out.entity = settings.entity;
  out.project = settings.project.empty() ? run.task : settings.project;
  out.group = settings.group;
  out.job_type = settings.job_type;
  out.name = settings.name.empty() ? run.name : settings.name;
  out.notes = settings.notes;
  out.tags = settings.tags;
  out.host = host_name();
  if (const auto revision = run.versions.find("revision"); revision != run.versions.end())
    out.commit = revision->second;
  out.start_time = start;
  add_config(run, out);
  return out;
}

Result<void> write_wandb_run_files(const std::filesystem::path& directory, const WandbRun& run,
                                   const std::map<std::string, std::string>& versions) {
  std::string yaml;  // JSON is YAML
  for (const auto& [key, value] : run.config) yaml += fmt::format("{}:\n  value: {}\n", dump_json(key), value);
  RETURN_IF_ERROR(write_file_atomically(directory / "config.yaml", yaml));
  const json metadata = {{"os", "Linux"},
                         {"program", "oarlock-trainer"},
                         {"host", run.host},
                         {"startedAt", to_rfc3339_micro(run.start_time)},
                         {"cpu_count", usable_cpus()},
                         {"git", {{"commit", run.commit}}},
                         {"versions", versions}};
  return write_file_atomically(directory / "wandb-metadata.json", dump_json(metadata, 2) + "\n");
}

}  // namespace oarlock
