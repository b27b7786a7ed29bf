// Reflection: the description of a struct that users write or read as YAML or JSON. Every field is named once, in the
// describe() of its struct, with its limits and its help text. Reading, printing, validation, the schema of a CRD and
// reference pages are visitors of these descriptions, so a new field is added in one place:
//
//   void describe(LoaderConfig& config, Fields& fields) {
//     fields.field("threads", config.threads, at_least(0), "threads that make batches; 0: the training thread");
//     fields.only_if("prefetch", config.threads > 0, "requires loader.threads above 0");
//   }
//
//   YamlFieldsReader  yaml_reader.h   strict: every problem with its line and column, and suggestions
//   JsonFieldsReader  json_reader.h   lenient: for objects that a newer version may have written
//   FieldsWriter      writer.h        JSON: whole objects, merge patches, and the configuration that a reader reads
//   FieldsValidator   validator.h     the limits of the values of a struct
//   FieldsSchema      schema.h        OpenAPI v3, for CRDs
//   FieldsReference   reference.h     Markdown tables
//
// A field that the input does not contain keeps its value, so the value in the struct is the default. A default that
// depends on another field is assigned before the field is named; the value right after that is printed. Every field is
// named whatever the values of the others (see only_if), because schema and reference visit the description with the
// default values. Fields that exclude each other are optional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/clock.h"

namespace oarlock {

// The valid values of a field. For a list, the limits of numbers and strings are those of each element.
struct Limits {
  // Numbers. NaN is outside of every range.
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_is_open = false;   // low itself is outside
  bool high_is_open = false;  // high itself is outside
  bool allows_infinity = false;

  // Strings.
  size_t min_length = 0;     // in the schema only: validators take an empty string for an absent one
  size_t max_length = 0;     // 0: any
  const char* pattern = "";  // literal: a regular expression that RE2 and ECMAScript read alike; requires max_length

  // Lists.
  size_t min_items = 0;
  size_t max_items = 0;        // 0: any
  const char* list_type = "";  // x-kubernetes-list-type: "atomic", "set" or "map"
  const char* map_key = "";    // of the list type "map"
  bool drops_unknown = false;  // a lenient reader drops items with unknown members or values

  const char* noun = "";  // a valid value in words, with its article, for messages: "the exit code of a failure"

  bool is_bounded() const { return low > -std::numeric_limits<double>::infinity(); }
  std::string interval() const;  // "[0, 1)"
};

constexpr Limits any_number() { return {}; }
constexpr Limits any_number_or_infinity() { return {.allows_infinity = true}; }
constexpr Limits at_least(double low) { return {.low = low}; }
constexpr Limits above(double low) { return {.low = low, .low_is_open = true}; }
constexpr Limits from_to(double low, double high) { return {.low = low, .high = high}; }
constexpr Limits from_below(double low, double high) { return {.low = low, .high = high, .high_is_open = true}; }
constexpr Limits above_to(double low, double high) { return {.low = low, .high = high, .low_is_open = true}; }

// Returns why a value is outside the limits, such as "0.5 is below 1"; nothing for a value inside. Strings are checked
// for length and pattern.
std::optional<std::string> check_limits(const Limits& limits, double value);
std::optional<std::string> check_limits(const Limits& limits, const std::string& value);

// Names for the values of an enumeration.
template <typename Enum>
using Names = std::vector<std::pair<std::string_view, Enum>>;

// The types that a field can have.
using FieldValue = std::variant<bool*, std::string*, std::optional<std::string>*, std::vector<std::string>*, int*,
                                int64_t*, double*, std::optional<int>*, std::optional<int64_t>*, std::optional<double>*,
                                std::vector<int64_t>*, std::vector<double>*, SystemTime*, std::optional<SystemTime>*>;

// Which processes of a distributed program must have the same value of a field. A resumed run may change any value;
// changes of the fields that must be the same are logged.
enum class Scope {
  kShared,    // the same on all ranks: the default
  kPresence,  // each rank may have its own value, such as a path, but all of them have one or none has
  kRank,      // each rank may have its own value or none
};

// How a field that is a number or a certain name is given.
enum class NumberForm { kNumber, kName, kAbsent };

// The place of a field in nested structs. A path refers to its parent, so it costs nothing until its text is needed.
struct FieldPath {
  const FieldPath* parent = nullptr;
  std::string_view key{};
  std::ptrdiff_t index = -1;  // in the list `key`; -1: the field itself

  std::string text() const;  // "spec.failurePolicy.rules[1].action"
};

class Fields {
 public:
  using Describe = std::function<void(Fields&)>;

  virtual ~Fields() = default;

  // A field with a value of one of the types of FieldValue.
  template <typename Value>
  void field(std::string_view key, Value& value, std::string_view help) {
    static constexpr Limits kNone;
    visit(key, FieldValue(&value), kNone, help);
  }
  template <typename Value>
  void field(std::string_view key, Value& value, const Limits& limits, std::string_view help) {
    visit(key, FieldValue(&value), limits, help);
  }

  // A field whose value is one of the names. `names` is a list or range of pairs of a name and a value of `Enum`.
  // Returns whether the input contains one of them.
  template <typename Enum, typename List = std::initializer_list<std::pair<std::string_view, Enum>>>
  bool choice(std::string_view key, Enum& value, const List& names, std::string_view help) {
    std::vector<std::string_view> choices;
    choices.reserve(std::size(names));
    size_t chosen = std::size(names);
    for (const auto& [name, enumerator] : names) {
      if (enumerator == value && chosen == std::size(names)) chosen = choices.size();
      choices.push_back(name);
    }
    const size_t before = chosen;
    const bool found = visit_choice(key, chosen, choices, help);
    if (chosen != before) value = std::data(names)[chosen].second;
    return found;
  }

  // A nested map. `describe` is called also if the input does not contain the key, except by a lenient reader.
  virtual void section(std::string_view key, const Describe& describe, std::string_view help) = 0;

  // A nested map that may be absent: a std::optional or BoxedOptional.
  template <template <typename> typename Optional, typename Struct>
  void section(std::string_view key, Optional<Struct>& value,
               const std::type_identity_t<std::function<void(Struct&, Fields&)>>& describe, std::string_view help) {
    visit_optional(
        key, value.has_value(),
        [&](Fields& fields) {
          if (!value) value.emplace();
          describe(*value, fields);
        },
        help);
  }

  // A list of maps. `describe` is called for the default items if the input does not contain the key.
  template <typename Item>
  void list(std::string_view key, std::vector<Item>& items,
            const std::type_identity_t<std::function<void(Item&, Fields&)>>& describe, std::string_view help) {
    list(key, items, describe, Limits{}, help);
  }
  template <typename Item>
  void list(std::string_view key, std::vector<Item>& items,
            const std::type_identity_t<std::function<void(Item&, Fields&)>>& describe, const Limits& limits,
            std::string_view help) {
    visit_list(
        key, items.size(), [&](size_t size) { items.resize(size); },
        [&](size_t index, Fields& fields) { describe(items[index], fields); }, limits, help);
  }

  // A field whose value is an integer or `name`. Sets `form`, and `number` if the input contains a number. An absent
  // value is a separate form, so the schema has no default.
  virtual void number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name,
                              const Limits& limits, std::string_view help) = 0;

  // A map with arbitrary members, as JSON text. Numbers and the order of members may be kept as written.
  virtual void raw_object(std::string_view key, std::string& text, std::string_view help) = 0;

  // The members of the current map that were not named before this call, as a JSON object in text form; unchanged if
  // there are none. Merge patches replace lists as a whole, so such a text preserves members of a newer version.
  virtual void unknown_members(std::string& /*text*/) {}

  // Whether the input contains the key with a value that is not null. False in visitors that do not read.
  virtual bool has(std::string_view /*key*/) const { return false; }
  // Reports an invalid value. A strict reader collects the problem with its place; other visitors ignore it.
  virtual void problem(std::string_view /*key*/, std::string_view /*message*/) {}
  // Reports a problem if the input does not contain the key.
  virtual void require(std::string_view /*key*/) {}
  // The key has a meaning only if the condition holds. Otherwise it is a problem to set it, and the printed
  // configuration does not contain it. `why_not`: "belongs to the optimizer sgd".
  virtual void only_if(std::string_view /*key*/, bool /*condition*/, std::string_view /*why_not*/) {}
  // The scope of a field, or of all fields of a section.
  virtual void scope(std::string_view /*key*/, Scope /*scope*/) {}
  // Accepts any value of a key.
  virtual void skip(std::string_view /*key*/) {}

  // The implementation of field(), choice(), section() and list(). visit_choice() changes `chosen`, an index into
  // `choices`, or their number if the value has no name. visit_optional() calls `describe` if the value is or becomes
  // present, or if a description is wanted.
  virtual void visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) = 0;
  virtual bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                            std::string_view help) = 0;
  virtual void visit_optional(std::string_view key, bool is_present, const Describe& describe,
                              std::string_view help) = 0;
  virtual void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                          const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                          std::string_view help) = 0;
};

}  // namespace oarlock
