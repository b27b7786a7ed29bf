// The reference of every key, made from the same descriptions that read a file.
#pragma once

#include "trainer/config/config.h"

namespace oarlock {

// docs/trainer-config.md: for each section the keys with type, default, bounds and meaning, then the sections of every
// task. Markdown.
std::string reference_page(const TaskNames& tasks);

}  // namespace oarlock
