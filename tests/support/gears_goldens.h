// Access to the golden files tests/data/gears_*.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include "tests/support/paths.h"

namespace oarlock::test {

// Returns the path of a file: "dataset.json" is tests/data/gears_dataset.json.
inline std::string gears_file(const std::string& name) { return test::data_path("gears_") + name; }

inline nlohmann::json gears_golden(const std::string& name) {
  std::ifstream file(gears_file(name));
  return nlohmann::json::parse(file);
}

}  // namespace oarlock::test
