// The chemical elements by symbol.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace oarlock {

constexpr uint8_t kElements = 118;

// "Si" -> 14; nothing for what is no element.
std::optional<uint8_t> atomic_number(std::string_view symbol);

// 14 -> "Si"; `number` is 1 to kElements.
std::string_view element_symbol(uint8_t number);

}  // namespace oarlock
