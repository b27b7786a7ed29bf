// The description of a configuration. Every field is named once, in the describe() of its section, with its bounds and
// its help text. Reading a file, printing the complete configuration and writing the reference page are visitors of
// these descriptions (fields_visitors.h), so a new key is added in one place.
//
//   void describe(LoaderConfig& config, Fields& fields) {
//     fields.field("threads", config.threads, at_least(0), "threads that make batches; 0: the training thread");
//     fields.only_if("prefetch", config.threads > 0, "requires loader.threads above 0");
//   }
//
// A field that the file does not contain keeps its value, so the value in the struct is the default. A default that
// depends on another field is assigned before the field is named; the value right after that is printed. Every field is
// named whatever the values of the others (see only_if), because the reference page visits the description with the
// default values. Fields that exclude each other are optional.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace oarlock {

// Bounds of a number. NaN is outside of every range.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_is_open = false;   // low itself is outside
  bool high_is_open = false;  // high itself is outside
  bool allows_infinity = false;

  bool is_bounded() const { return low > -std::numeric_limits<double>::infinity(); }
};

constexpr Range any_number() { return {}; }
constexpr Range any_number_or_infinity() { return {.allows_infinity = true}; }
constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range above(double low) { return {.low = low, .low_is_open = true}; }
constexpr Range from_to(double low, double high) { return {.low = low, .high = high}; }
constexpr Range from_below(double low, double high) { return {.low = low, .high = high, .high_is_open = true}; }
constexpr Range above_to(double low, double high) { return {.low = low, .high = high, .low_is_open = true}; }

template <typename Enum>
using Names = std::vector<std::pair<std::string_view, Enum>>;

// The types that a field can have.
using FieldValue =
    std::variant<bool*, std::string*, std::vector<std::string>*, int*, int64_t*, double*, std::optional<int64_t>*,
                 std::optional<double>*, std::vector<int64_t>*, std::vector<double>*>;

class Fields {
 public:
  virtual ~Fields() = default;

  // A field with a value of one of the types of FieldValue. The range is that of a number, or of each number in a list.
  template <typename Value>
  void field(std::string_view key, Value& value, std::string_view help) {
    visit(key, FieldValue(&value), any_number(), help);
  }
  template <typename Value>
  void field(std::string_view key, Value& value, const Range& range, std::string_view help) {
    visit(key, FieldValue(&value), range, help);
  }

  // A field whose value is one of the names. Returns whether the file contains one of them.
  template <typename Enum>
  bool choice(std::string_view key, Enum& value, const Names<Enum>& names, std::string_view help) {
    std::vector<std::string_view> choices;
    size_t chosen = 0;
    for (const auto& [name, enumerator] : names) {
      if (enumerator == value) chosen = choices.size();
      choices.push_back(name);
    }
    const bool found = visit_choice(key, chosen, choices, help);
    value = names[chosen].second;
    return found;
  }

  // A nested map. `describe` is called also if the file does not contain the key.
  virtual void section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view help) = 0;

  // A list of maps. `describe` is called for the default items if the file does not contain the key.
  template <typename Item>
  void list(std::string_view key, std::vector<Item>& items, const std::function<void(Item&, Fields&)>& describe,
            std::string_view help) {
    visit_list(
        key, items.size(), [&](size_t size) { items.resize(size); },
        [&](size_t index, Fields& fields) { describe(items[index], fields); }, help);
  }

  // Whether the file contains the key with a value that is not null. False in visitors that do not read.
  virtual bool has(std::string_view key) const = 0;
  // Reports an invalid value. A reader collects the problem with its place in the file; other visitors ignore it.
  virtual void problem(std::string_view key, std::string_view message) = 0;
  // Reports a problem if the file does not contain the key.
  virtual void require(std::string_view key) = 0;
  // The key has a meaning only if the condition holds. Otherwise it is a problem to set it, and the printed
  // configuration does not contain it. `why_not`: "belongs to the optimizer sgd".
  virtual void only_if(std::string_view key, bool condition, std::string_view why_not) = 0;
  // Accepts any value of a key.
  virtual void skip(std::string_view key) = 0;

  // The implementation of field(), choice() and list(). visit_choice() changes `chosen`, an index into `choices`.
  virtual void visit(std::string_view key, FieldValue value, const Range& range, std::string_view help) = 0;
  virtual bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                            std::string_view help) = 0;
  virtual void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                          const std::function<void(size_t, Fields&)>& describe, std::string_view help) = 0;
};

}  // namespace oarlock
