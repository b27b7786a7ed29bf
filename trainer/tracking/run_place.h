// Detects that a checkpoint folder is a copy of another one. Both folders have the state of the run, and must not
// report the same run.
#pragma once

#include <filesystem>
#include <string>

namespace oarlock {

// Returns the place of a folder: "<number of its inode> <absolute path>", in UTF-8. Empty if it does not exist.
std::string place_of(const std::filesystem::path& folder);

// Where, and by which job, a run was reported.
struct RunPlace {
  std::string folder;  // as of place_of(); may be empty
  std::string uid;     // of the TrainingJob; may be empty

  bool operator==(const RunPlace&) const = default;
};

// Whether the folder of `place` is a copy of that of `earlier`: it has another inode, and another path or another job.
// A folder that was renamed, or mounted elsewhere, has the same inode, and one that was restored for its job has the
// same path. In a pod, all jobs may have the same path. A folder that was moved to another file system and another path
// counts as a copy: its report is split into two runs, while one run of two folders would lose the points of one of
// them. False if one of the folders is not known.
bool is_copied(const RunPlace& earlier, const RunPlace& place);

}  // namespace oarlock
