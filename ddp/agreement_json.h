// Agreed values as JSON. A program that includes this header needs the headers of nlohmann-json.
#pragma once

#include <nlohmann/json.hpp>

#include "ddp/agreement.h"

namespace oarlock {

// Conversion to a JSON object of strings and back. Members of other types are ignored.
nlohmann::json to_json_object(const AgreedValues& values);
AgreedValues agreed_values_from_json(const nlohmann::json& object);

}  // namespace oarlock
