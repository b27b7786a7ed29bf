// The types of plain scalars, which are the scalars without quotes. Other folders do not include this header.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oarlock::yaml {

// Returns the value that kubectl gives a plain scalar without a tag: null, a boolean, an integer, a floating-point
// number or a string. kubectl reads YAML 1.1 with sigs.k8s.io/yaml, whose package goyaml.v2 resolves scalars in
// resolve.go: y, yes and on are true, n, no and off are false, 017 and 0o17 are 15, and 1_000 is 1000. 1:30 and
// 2026-11-24 are strings. The value can be infinite or NaN, which JSON does not have. An integer that does not fit
// int64_t is a floating-point number, as the API server stores it.
nlohmann::json resolve_plain_scalar(const std::string& text);

// Converts a finite floating-point number as kubectl does on its way to the API server: 1e3 and 2.0 become the integers
// 1000 and 2. Other values are returned unchanged.
nlohmann::json with_whole_number(nlohmann::json value);

}  // namespace oarlock::yaml
