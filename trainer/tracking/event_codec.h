// Events as bytes, for the journal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/tracking/event.h"

namespace oarlock {

// Returns CBOR.
std::string encode_event(const Event& event);

// Returns nothing if the bytes are not an event that this version knows. Unknown members are ignored, and absent ones
// have their default values, because another version of the program may have written the journal.
std::optional<Event> decode_event(std::string_view bytes);

}  // namespace oarlock
