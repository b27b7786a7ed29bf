// ConfigMaps next to a TrainingJob in its file: the volumes of the pod that they fill become directories of this
// machine.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "api/types.h"
#include "common/error.h"
#include "yaml/reader.h"

namespace oarlock::run {

// By name: the files of a ConfigMap, by key.
using ConfigMaps = std::map<std::string, std::map<std::string, std::string>>;

// Returns the ConfigMaps in the documents of a file. Ignores binaryData. Pure.
ConfigMaps config_maps_of(const std::vector<yaml::Node>& documents);

// A mounted volume of the trainer container, as a directory.
struct LocalVolume {
  std::string name;
  std::string config_map;
  std::string mount_path;                    // in the pod, without "/" at the end
  std::filesystem::path target;              // the file or directory that replaces mount_path
  std::filesystem::path directory;           // of the files below
  std::map<std::string, std::string> files;  // by path in the directory

  bool operator==(const LocalVolume&) const = default;
};

// Returns the mounted volumes of the job that its ConfigMaps fill, as directories in `parent`. Pure.
std::vector<LocalVolume> local_volumes(const api::TrainingJob& job, const ConfigMaps& config_maps,
                                       const std::filesystem::path& parent);

// Writes the files of the volumes, in place of those of an earlier run.
Result<void> write_volumes(const std::vector<LocalVolume>& volumes);

// Replaces each path on a volume in `text` by the path of this machine. A path begins where no letter, digit, ".", "_",
// "-" or "/" precedes it. Pure.
std::string localize(std::string text, const std::vector<LocalVolume>& volumes);

}  // namespace oarlock::run
