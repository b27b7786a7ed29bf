// Folders of derived files, such as converted data sets, which are built once and shared by all processes.
#pragma once

#include <filesystem>
#include <functional>

#include "common/error.h"
#include "common/log.h"

namespace oarlock {

// Does nothing if `folder` exists. Otherwise creates its parent, calls `fill` to write into FOLDER.part, and renames
// that to `folder`, so that a folder is either absent or complete. Only one process at a time builds a folder in a
// parent; others log that they wait. Removes the .part folders of processes that were killed. Returns the error of
// `fill`, or kCantCreate or a similar code if the parent is not writable.
Result<void> build_cache_folder(const std::filesystem::path& folder, const Logger& log,
                                const std::function<Result<void>(const std::filesystem::path& part)>& fill);

}  // namespace oarlock
