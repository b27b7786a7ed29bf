// The settings of a configuration that must be equal on all ranks; ddp/agreement.h compares them. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ddp/agreement.h"
#include "ddp/agreement_json.h"
#include "fields/writer.h"

namespace oarlock {

// Returns the values of a printed configuration that must be equal, according to the scopes of its fields. A list of
// numbers or strings is one value. The value of a field with Scope::kPresence is "set" or "not set".
AgreedValues agreed_settings(const nlohmann::ordered_json& printed, const FieldScopes& scopes);

// The value of a field with Scope::kPresence.
std::string presence(const std::string& value);

}  // namespace oarlock
