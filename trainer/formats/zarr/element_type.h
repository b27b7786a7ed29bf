// The numeric element types of zarr arrays, and their values in memory.
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
  size_t size = 8;  // bytes: 1, 2, 4 or 8; at least 2 for kFloat

  bool operator==(const ElementType&) const = default;
};

// Parses a data type of zarr v3 ("float32", "uint8", "bool"). Returns nothing if it is not a numeric type.
std::optional<ElementType> type_of_name(std::string_view name);

// Parses a NumPy typestr of zarr v2 ("<f4", "|b1"). Returns nothing if it is not a numeric type.
struct TypeAndOrder {
  ElementType type;
  bool big_endian = false;
};
std::optional<TypeAndOrder> type_of_typestr(std::string_view typestr);

// Converts little-endian elements to numbers. `bytes` must contain values.size() elements. Integers beyond 2^53 are
// rounded.
void to_doubles(std::span<const uint8_t> bytes, ElementType type, std::span<double> values);

// Converts a number to a little-endian element of type.size bytes in `out`. Returns false if the value is outside the
// range of an integer type, or is NaN and the type is an integer type.
bool to_element(double value, ElementType type, std::span<uint8_t> out);
bool to_element(int64_t value, ElementType type, std::span<uint8_t> out);
bool to_element(uint64_t value, ElementType type, std::span<uint8_t> out);

}  // namespace oarlock::zarr
