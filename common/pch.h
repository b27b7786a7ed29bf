// The precompiled header of everything that has no LibTorch: the third-party and standard headers that most files
// include. Headers of Oarlock are not in it, so that a change of one does not compile everything again.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <variant>
#include <vector>
