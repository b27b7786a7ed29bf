#include "trainer/formats/zarr/element_type.h"

#include <c10/util/Half.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace oarlock::zarr {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void convert(std::span<const uint8_t> bytes, std::span<double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(element);
  }
}

// Calls `use` with a value of the corresponding C++ type.
template <typename Use>
void with_type(ElementType type, const Use& use) {
  switch (type.kind) {
    case ElementKind::kBool:
      return use(uint8_t{});
    case ElementKind::kInt:
      if (type.size == 1) return use(int8_t{});
      if (type.size == 2) return use(int16_t{});
      return type.size == 4 ? use(int32_t{}) : use(int64_t{});
    case ElementKind::kUint:
      if (type.size == 1) return use(uint8_t{});
      if (type.size == 2) return use(uint16_t{});
      return type.size == 4 ? use(uint32_t{}) : use(uint64_t{});
    case ElementKind::kFloat:
      if (type.size == 2) return use(c10::Half{});
      return type.size == 4 ? use(float{}) : use(double{});
  }
}

// Returns whether the conversion to T is defined.
template <typename T, typename Number>
bool is_in_range(Number value) {
  if constexpr (!std::is_integral_v<T>) {
    return true;
  } else if constexpr (std::is_integral_v<Number>) {
    return std::in_range<T>(value);
  } else {
    using Limits = std::numeric_limits<T>;
    return std::trunc(value) >= static_cast<double>(Limits::min()) && value < std::ldexp(1.0, Limits::digits);
  }
}

template <typename Number>
bool store(Number value, ElementType type, std::span<uint8_t> out) {
  bool fits = false;
  with_type(type, [&]<typename T>(T) {
    fits = is_in_range<T>(value);
    if (!fits) return;
    const T element = std::is_integral_v<T> ? static_cast<T>(value) : static_cast<T>(static_cast<double>(value));
    std::memcpy(out.data(), &element, sizeof(T));
  });
  return fits;
}

bool is_valid_size(ElementKind kind, size_t size) {
  if (kind == ElementKind::kBool) return size == 1;
  if (size == 1) return kind != ElementKind::kFloat;
  return size == 2 || size == 4 || size == 8;
}

}  // namespace

std::optional<ElementType> type_of_name(std::string_view name) {
  if (name == "bool") return ElementType{ElementKind::kBool, 1};
  static constexpr struct {
    std::string_view prefix;
    ElementKind kind;
  } kKinds[] = {{"int", ElementKind::kInt}, {"uint", ElementKind::kUint}, {"float", ElementKind::kFloat}};
  for (const auto& [prefix, kind] : kKinds) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view bits = name.substr(prefix.size());
    for (const size_t size : {1UL, 2UL, 4UL, 8UL}) {
      static constexpr std::string_view kBits[] = {"8", "16", "32", "64"};
      if (bits == kBits[std::countr_zero(size)] && is_valid_size(kind, size)) return ElementType{kind, size};
    }
  }
  return std::nullopt;
}

std::optional<TypeAndOrder> type_of_typestr(std::string_view typestr) {
  if (typestr.size() != 3 || typestr[2] < '1' || typestr[2] > '8') return std::nullopt;
  const auto size = static_cast<size_t>(typestr[2] - '0');
  const char order = typestr[0];
  if (order != '<' && order != '>' && (order != '|' || size != 1)) return std::nullopt;
  static constexpr std::string_view kLetters = "biuf";  // in the order of ElementKind
  const size_t letter = kLetters.find(typestr[1]);
  if (letter == std::string_view::npos) return std::nullopt;
  const auto kind = static_cast<ElementKind>(letter);
  if (!is_valid_size(kind, size)) return std::nullopt;
  return TypeAndOrder{{kind, size}, order == '>'};
}

void to_doubles(std::span<const uint8_t> bytes, ElementType type, std::span<double> values) {
  with_type(type, [&]<typename T>(T) { convert<T>(bytes, values); });
}

bool to_element(double value, ElementType type, std::span<uint8_t> out) { return store(value, type, out); }
bool to_element(int64_t value, ElementType type, std::span<uint8_t> out) { return store(value, type, out); }
bool to_element(uint64_t value, ElementType type, std::span<uint8_t> out) { return store(value, type, out); }

}  // namespace oarlock::zarr
