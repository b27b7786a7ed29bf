// A strict typed reader for YAML, and thus JSON. It collects all problems with file:line:column, reports unknown keys
// with a suggestion, and does not convert between types ("2" is not 2). Plain scalars have the types that kubectl gives
// them: yes and on are booleans, 017 is 15. Users of this header do not see yaml-cpp.
//
//   Problems problems("job.yaml");
//   MapReader spec(node, "spec", problems);
//   spec.read("nodes", nodes);
//   spec.map("trainer", [&](MapReader& trainer) { trainer.read("seed", seed); });
//   spec.finish();                       // reports unknown keys; map() calls it for nested readers
//   if (!problems.empty()) return tl::make_unexpected(problems.to_error());
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"

namespace oarlock::yaml {

// The position of a value in its source.
struct Mark {
  int line = 0;                  // from 1; 0: unknown
  int column = 0;                // from 1
  bool on_command_line = false;  // the value was given on the command line

  bool operator==(const Mark&) const = default;
};

// An immutable node of a parsed document. Copies are cheap and share the content. Thread-safe.
class Node {
 public:
  enum class Kind { kNull, kScalar, kSequence, kMap };
  struct Entry;

  Kind kind() const;
  Mark mark() const;
  std::string text() const;            // of a scalar, as written without quotes
  bool is_quoted() const;              // true for a scalar in quotes, which is always a string
  std::vector<Entry> entries() const;  // of a map, in the order of the file
  std::vector<Node> items() const;     // of a sequence
  std::optional<Node> find(std::string_view key) const;

  // Returns the value of a scalar with the type that kubectl gives it: a boolean, a number, or a string. A number can
  // be infinite or NaN. A whole number that fits int64_t is an integer, however it is written: 2.0, 1e3, 0x1F.
  nlohmann::json value() const;
  // Converts the tree to JSON. Scalars are their value(); those that JSON does not have, such as .inf, are strings.
  nlohmann::json to_json() const;

  // Returns a copy of the tree with the node at `path` replaced by `value`; unchanged subtrees are shared. The path
  // consists of keys and indices, such as "optimizer.groups[0].lr". Missing maps are created, and the index after the
  // last element of a list appends. Fails with kUsage if the path does not fit the tree.
  Result<Node> with(std::string_view path, const Node& value) const;

  struct Data;
  explicit Node(std::shared_ptr<const Data> data);

 private:
  std::shared_ptr<const Data> data_;
};

struct Node::Entry {
  std::string key;  // as written, without quotes
  Mark key_mark;
  Node value;
  bool is_key_quoted = false;
};

// Limits of one input, so that no file can exhaust the memory or the stack. Reading the largest accepted input takes
// seconds.
namespace limits {
inline constexpr size_t kFileBytes = size_t{2} << 20;
inline constexpr size_t kDocuments = 1000;
inline constexpr size_t kNodes = 200'000;                  // with aliases expanded
inline constexpr size_t kExpandedBytes = size_t{8} << 20;  // of scalars and keys, with aliases expanded
inline constexpr size_t kDepth = 200;                      // of lists and maps, with aliases expanded
inline constexpr size_t kTagBytes = 1024;
}  // namespace limits

// Parses all documents of a text and skips empty ones. `name` is the file name in messages. An alias and its anchor
// share one node. The entries of a merge key (<<) are added to its map. Fails with kConfig if the text is not YAML, has
// a duplicate key, a key that is not a scalar, or control characters outside of escape sequences, or exceeds a limit.
Result<std::vector<Node>> parse_all(const std::string& text, const std::string& name);
// Like parse_all() for the content of a file. Also fails as read_file() does.
Result<std::vector<Node>> load_all(const std::string& path);

// Returns `root` with the overrides of a command line applied. Each word has the form "path=value" with a YAML value:
// "optimizer.lr=4e-3", "loader={threads: 2}", "data.path=". Later words take precedence. Problems with these values
// have the position "command line". Fails with kUsage and one line for each invalid word.
Result<Node> with_overrides(const Node& root, const std::vector<std::string>& words);
// Returns a map without entries, for configurations without a file.
Node empty_map();

// The problems of one file. It stores the first kMaxShown problems and counts the others.
class Problems {
 public:
  static constexpr size_t kMaxShown = 20;

  explicit Problems(std::string file) : file_(std::move(file)) {}

  // Sets the path of the object that later problems belong to, such as "items[0]". It precedes the paths of add().
  void set_root(std::string path) { root_ = std::move(path); }
  // `path` and `message` are escaped by printable() and truncated if very long.
  void add(Mark mark, std::string_view path, std::string_view message);
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  // Returns true if further problems are only counted, so that callers can skip computing their messages.
  bool is_full() const { return count_ >= kMaxShown; }
  // Returns a kConfig error with one line per problem: "file:line:col: path: message", or "command line: path:
  // message". If there are more than kMaxShown, the last line is "file: and N more problems".
  Error to_error() const;

 private:
  std::string file_;
  std::string root_;
  std::vector<std::string> lines_;
  size_t count_ = 0;
};

// Adds a problem at `path` and returns false if the value is not a string, as an unquoted number or boolean.
bool check_string(const Node& value, std::string_view path, Problems& problems);
// Adds a problem for each part of a Kubernetes object that kubectl rejects or changes when it converts YAML to JSON:
// infinite numbers, and unquoted keys that are null, booleans or numbers in YAML, such as on, 017 or 1.0.
void check_json_conversion(const Node& object, Problems& problems);

// Reads the entries of one map. Not thread-safe.
class MapReader {
 public:
  // A null node reads as an empty map. Any other node that is not a map is a problem.
  MapReader(const Node& node, std::string path, Problems& problems);

  // Each overload assigns the value of the key to `target`. If the key is absent or null, or its value is a problem, it
  // leaves `target` unchanged and returns false.
  bool read(std::string_view key, bool& target);
  bool read(std::string_view key, int& target);
  bool read(std::string_view key, int64_t& target);
  bool read(std::string_view key, double& target);       // integers too; "1e-4", ".inf", and !!float "1e-4"
  bool read(std::string_view key, std::string& target);  // an unquoted number or boolean is a problem
  bool read(std::string_view key, std::vector<std::string>& target);
  bool read(std::string_view key, std::vector<double>& target);
  bool read(std::string_view key, std::vector<int64_t>& target);
  template <typename T>
  bool read(std::string_view key, std::optional<T>& target) {
    T value{};
    if (!read(key, value)) return false;
    target = std::move(value);
    return true;
  }

  // Reads a scalar that must be one of `names`.
  template <typename Enum>
  bool read(std::string_view key, Enum& target, std::span<const std::pair<std::string_view, Enum>> names) {
    std::vector<std::string_view> choices;
    for (const auto& [name, value] : names) choices.push_back(name);
    const std::optional<size_t> index = read_choice(key, choices);
    if (index) target = names[*index].second;
    return index.has_value();
  }

  // If the key is present, calls read_fields() with a reader for the nested map and finishes that reader.
  bool map(std::string_view key, const std::function<void(MapReader&)>& read_fields);

  // Returns the value and marks the key as known. Empty if the key is absent.
  std::optional<Node> take(std::string_view key);
  // Whether the map contains the key with a value that is not null. A null value selects the default, as in Kubernetes.
  bool has(std::string_view key) const;

  // Adds a problem at the value of the key, or at the map if the key is absent.
  void problem(std::string_view key, std::string_view message);
  // Adds a problem unless has(key).
  void require(std::string_view key);

  // Adds a problem for each key that was neither read nor taken, with a suggestion.
  void finish();

  const std::string& path() const { return path_; }
  Problems& problems() { return problems_; }

 private:
  std::optional<size_t> read_choice(std::string_view key, const std::vector<std::string_view>& choices);
  std::optional<Node> scalar(std::string_view key, std::string_view expected);
  std::string path_of(std::string_view key) const;
  template <typename T, typename Convert>
  bool read_list(std::string_view key, std::vector<T>& target, std::string_view expected, Convert convert);

  Node node_;
  std::string path_;
  Problems& problems_;
  std::vector<std::string> known_;
};

}  // namespace oarlock::yaml
