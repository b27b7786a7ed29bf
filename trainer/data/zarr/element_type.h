// The element types of zarr arrays that are numbers, and their values in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace oarlock::zarr {

enum class ElementKind { kBool, kInt, kUint, kFloat };

struct ElementType {
  ElementKind kind = ElementKind::kFloat;
  size_t size = 8;  // bytes: 1, 2, 4 or 8; a float has 2, 4 or 8

  bool operator==(const ElementType&) const = default;
};

// "float32", "uint8", "bool" as in zarr v3; nothing for another type.
std::optional<ElementType> type_of_name(std::string_view name);

// NumPy's "<f4", "|b1" as in zarr v2.
struct TypeAndOrder {
  ElementType type;
  bool big_endian = false;
};
std::optional<TypeAndOrder> type_of_typestr(std::string_view typestr);

// Elements of one type, little-endian, as numbers; `bytes` holds values.size() of them. Integers beyond 2^53 are
// rounded.
void to_doubles(std::span<const uint8_t> bytes, ElementType type, std::span<double> values);

// The bytes of one number as an element, little-endian; `out` has type.size bytes. False if the value is outside the
// range of an integer type, or not a number there.
bool to_element(double value, ElementType type, std::span<uint8_t> out);
bool to_element(int64_t value, ElementType type, std::span<uint8_t> out);
bool to_element(uint64_t value, ElementType type, std::span<uint8_t> out);

}  // namespace oarlock::zarr
