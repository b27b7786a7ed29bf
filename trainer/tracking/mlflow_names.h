// Names and values as MLflow accepts them. All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace oarlock {

// Returns the name of a metric, parameter or tag: at most 250 bytes of letters, digits and "_-. :/" that are a relative
// path in its shortest form. Letters of other scripts are kept if every version of MLflow knows them. A name that must
// be changed gets a checksum of the original as its end, so that different names remain different.
std::string mlflow_key(std::string_view name);

// Returns the path of an artifact in its run: "images/eval/predictions/00000100.png". The name is changed as by
// mlflow_key(), and has no dots or colons, so that it is valid for every store.
std::string mlflow_artifact_path(std::string_view folder, std::string_view name, int64_t step,
                                 std::string_view extension);

// Returns a value of at most `max_bytes` bytes without control characters: "..." replaces the end of a longer one.
std::string mlflow_text(std::string_view value, size_t max_bytes);

}  // namespace oarlock
