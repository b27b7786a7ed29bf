// Every field of the configuration is named once, in the describe() of its section, with its bounds and its meaning.
// Reading a file, printing the whole configuration and writing the reference page are visitors of these descriptions.
//
//   void describe(LoaderConfig& config, Fields& fields) {
//     fields.field("threads", config.threads, at_least(0), "threads that make batches; 0: the training thread");
//     fields.only_where("prefetch", config.threads > 0, "needs loader.threads above 0");
//   }
//
// A field keeps its value where the file does not give one: the default is the struct's. A default that depends on
// another field is put into the struct before the field is named: what is printed is the value right after. Every field
// is named whatever the others hold (see only_where), for the reference page shows the defaults' description. Fields
// that exclude each other are optional.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/config/range.h"

namespace oarlock {

template <typename Enum>
using Names = std::vector<std::pair<std::string_view, Enum>>;

class Fields {
 public:
  virtual ~Fields() = default;

  virtual void field(std::string_view key, bool& value, std::string_view meaning) = 0;
  virtual void field(std::string_view key, std::string& value, std::string_view meaning) = 0;
  virtual void field(std::string_view key, std::vector<std::string>& value, std::string_view meaning) = 0;
  virtual void field(std::string_view key, int& value, const Range& range, std::string_view meaning) = 0;
  virtual void field(std::string_view key, int64_t& value, const Range& range, std::string_view meaning) = 0;
  virtual void field(std::string_view key, double& value, const Range& range, std::string_view meaning) = 0;
  virtual void field(std::string_view key, std::optional<int64_t>& value, const Range& range,
                     std::string_view meaning) = 0;
  virtual void field(std::string_view key, std::optional<double>& value, const Range& range,
                     std::string_view meaning) = 0;
  // The range is that of each element.
  virtual void field(std::string_view key, std::vector<int64_t>& value, const Range& range,
                     std::string_view meaning) = 0;
  virtual void field(std::string_view key, std::vector<double>& value, const Range& range,
                     std::string_view meaning) = 0;

  // One of the names. Gives whether one was chosen: false where a file gives none or another.
  template <typename Enum>
  bool choice(std::string_view key, Enum& value, const Names<Enum>& names, std::string_view meaning) {
    std::vector<std::string_view> choices;
    size_t chosen = 0;
    for (const auto& [name, enumerator] : names) {
      if (enumerator == value) chosen = choices.size();
      choices.push_back(name);
    }
    const bool made = choose(key, chosen, choices, meaning);
    value = names[chosen].second;
    return made;
  }

  // A map inside. `describe` is called also where the file does not have the key.
  virtual void section(std::string_view key, const std::function<void(Fields&)>& describe,
                       std::string_view meaning) = 0;

  // A sequence of maps; `describe` is called for the default's items where the file does not have the key.
  template <typename Item>
  void list(std::string_view key, std::vector<Item>& items, const std::function<void(Item&, Fields&)>& describe,
            std::string_view meaning) {
    sequence(
        key, items.size(), [&](size_t size) { items.resize(size); },
        [&](size_t index, Fields& fields) { describe(items[index], fields); }, meaning);
  }

  // Whether the file has the key. Only a reader knows; for the others nothing is given.
  virtual bool given(std::string_view key) const = 0;
  // Says what is wrong with the value of a key; a reader collects it with its place, the others have no problems.
  virtual void problem(std::string_view key, std::string_view message) = 0;
  // A problem where the file does not have the key.
  virtual void require(std::string_view key) = 0;
  // The key means something only where the condition holds; elsewhere it is a problem to give it, and the printed
  // configuration does not have it. `why_not`: "belongs to the optimizer sgd".
  virtual void only_where(std::string_view key, bool condition, std::string_view why_not) = 0;
  // Lets the value of a key be, whatever it is.
  virtual void skip(std::string_view key) = 0;

  // What choice() and list() are made of.
  virtual bool choose(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                      std::string_view meaning) = 0;
  virtual void sequence(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                        const std::function<void(size_t, Fields&)>& describe, std::string_view meaning) = 0;
};

}  // namespace oarlock
