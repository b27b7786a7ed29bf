#include "ddp/agreement_json.h"

#include <string>

namespace oarlock {

nlohmann::json to_json_object(const AgreedValues& values) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : values) out[key] = value;
  return out;
}

AgreedValues agreed_values_from_json(const nlohmann::json& object) {
  AgreedValues out;
  if (!object.is_object()) return out;
  for (const auto& [key, value] : object.items())
    if (value.is_string()) out[key] = value.get<std::string>();
  return out;
}

}  // namespace oarlock
