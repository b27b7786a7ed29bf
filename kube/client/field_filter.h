// Selective JSON parsing: only selected fields become part of the result, and the rest is skipped without building a
// tree (the tree of a whole Pod takes 46 KB, half of it managedFields).
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock::kube {

// Immutable, so one filter may be used by several threads.
class FieldFilter {
 public:
  static constexpr int kMaxDepth = 256;
  static constexpr size_t kMaxValues = 50'000;  // a value takes about 100 bytes; a real object has a few hundred values

  // Selects the values at paths such as "metadata.name" or "spec", with everything below them. The elements of an array
  // are filtered by the path of the array: "status.conditions.type" keeps the type of each condition. A '.' in a key is
  // written as "\.".
  FieldFilter(std::initializer_list<std::string_view> paths);

  // Returns a filter for objects whose member `key` is filtered by this filter; it also selects `paths`.
  FieldFilter nested(std::string_view key, std::initializer_list<std::string_view> paths) const;

  // Returns a filter that also selects `paths`.
  FieldFilter with(std::initializer_list<std::string_view> paths) const;

  // Returns a filter that keeps the objects at `paths`, if this filter selects them, as binary values that contain
  // their JSON text. The text is a slice of the input: numbers are unchanged, and the depth is unlimited.
  FieldFilter with_text(std::initializer_list<std::string_view> paths) const;

  // Parses an object or array. Fails with kDataErr and the parser's message if the text is not exactly one JSON value,
  // or if the selected tree is deeper than kMaxDepth or has more than kMaxValues. In values that are skipped or kept as
  // text, only brackets and the UTF-8 encoding are checked. Throws no exception. An integer that does not fit into 64
  // bits becomes a double, a number beyond the range of a double the largest double, and an unpaired surrogate U+FFFD.
  // The last one of duplicate keys applies.
  Result<nlohmann::json> parse(std::string_view text) const;

  // The parser's memory, to be reused from one text to the next. It is released after a long text. Not thread-safe.
  class Buffers {
   public:
    Buffers();
    ~Buffers();
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;

   private:
    friend class FieldFilter;
    struct Parts;
    std::unique_ptr<Parts> parts_;
  };
  Result<nlohmann::json> parse(std::string_view text, Buffers& buffers) const;

  struct Node {
    std::map<std::string, Node, std::less<>> members;
    bool selects_all = false;
    bool is_text = false;
  };

 private:
  FieldFilter() = default;
  void add(std::string_view path);
  Result<nlohmann::json> parse(std::string_view text, Buffers::Parts& parts) const;

  Node root_;
};

}  // namespace oarlock::kube
