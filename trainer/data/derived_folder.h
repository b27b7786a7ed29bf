// A folder of files that were made from others, as a conversion's: made once, whole or not at all.
#pragma once

#include <filesystem>
#include <functional>

#include "common/error.h"

namespace oarlock {

// Nothing where the folder is there already. Otherwise `fill` writes into a folder FOLDER.part, which then takes the
// name, with its parent. Waits while another process is at work in the parent; what one that was killed left there is
// removed. kCantCreate and kin: the parent cannot be written to.
Result<void> make_folder_once(const std::filesystem::path& folder,
                              const std::function<Result<void>(const std::filesystem::path& part)>& fill);

}  // namespace oarlock
