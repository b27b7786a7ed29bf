// Parses JSON and keeps only the fields that somebody reads: the rest is skipped while it is read and never becomes a
// tree (a whole Pod as a tree takes 46 KB, half of it managedFields).
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock::kube {

class FieldFilter {
 public:
  static constexpr int kMaxDepth = 256;

  // Paths as "metadata.name" or "spec"; all below a path is kept, and the elements of an array are each filtered as the
  // array's own path says: "status.conditions.type" keeps the type of each condition. A '.' in a key is written "\.".
  FieldFilter(std::initializer_list<std::string_view> paths);

  // A filter for objects that have this one's object in the member `key`, and these paths beside it.
  FieldFilter nested(std::string_view key, std::initializer_list<std::string_view> beside) const;

  // This filter and more.
  FieldFilter with(std::initializer_list<std::string_view> paths) const;

  // This filter, with the objects at these paths kept as their JSON text, a binary value, wherever this filter keeps
  // them. The text is a slice of the input: numbers stay as they are written, and the depth is not limited.
  FieldFilter with_text(std::initializer_list<std::string_view> paths) const;

  // Parses an object or array. Fails with kDataErr and the parser's words when the text is not one JSON value; of what
  // is left out or kept as text, only the brackets and the encoding (UTF-8) are checked. Throws no exception.
  // A number that does not fit into 64 bits becomes a double, one beyond the range of a double the largest double, and
  // an unpaired surrogate U+FFFD. Of duplicate keys the last one counts. Kept trees are at most kMaxDepth deep.
  Result<nlohmann::json> parse(std::string_view text) const;

  // The parser's memory, for those who parse one text after the other. Short texts use it again and again, what a long
  // one needs is given back. One thread at a time.
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
    bool everything = false;
    bool as_text = false;
  };

 private:
  FieldFilter() = default;
  void add(std::string_view path);
  Result<nlohmann::json> parse(std::string_view text, Buffers::Parts& parts) const;

  Node root_;
};

}  // namespace oarlock::kube
