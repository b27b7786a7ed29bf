// A strict typed reader over YAML (and so JSON): every problem is collected with file:line:column, unknown keys are
// problems with a suggestion, and types are never guessed ("2" is not 2). yaml-cpp stays behind this header.
//
//   Problems problems("job.yaml");
//   MapReader spec(node, "spec", problems);
//   spec.read("nodes", nodes);
//   spec.map("trainer", [&](MapReader& trainer) { trainer.read("seed", seed); });
//   spec.finish();                       // reports unknown keys; map() does this for the nested reader itself
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

struct Mark {
  int line = 0;                  // from 1; 0: not known
  int column = 0;                // from 1
  bool on_command_line = false;  // not in the file at all

  bool operator==(const Mark&) const = default;
};

// A handle on one node of a parsed document; copies are cheap and share the document.
class Node {
 public:
  enum class Kind { kNull, kScalar, kSequence, kMap };
  struct Entry;

  Kind kind() const;
  Mark mark() const;
  std::string text() const;            // of a scalar, as written without quotes
  bool is_quoted() const;              // a scalar in quotes is a string whatever it holds
  std::vector<Entry> entries() const;  // of a map, in the file's order
  std::vector<Node> items() const;     // of a sequence
  std::optional<Node> find(std::string_view key) const;

  // JSON with the types kubectl would give the scalars (YAML 1.1 booleans other than true/false are strings).
  nlohmann::json to_json() const;

  // A copy of the tree in which the place that `path` leads to holds the value; what is not on the way is shared. The
  // path is of keys and indices, "optimizer.groups[0].lr"; maps on the way are made where there are none, and the index
  // after a list's last appends. kUsage: there is no such place.
  Result<Node> with(std::string_view path, const Node& value) const;

  struct Data;
  explicit Node(std::shared_ptr<const Data> data);

 private:
  std::shared_ptr<const Data> data_;
};

struct Node::Entry {
  std::string key;
  Mark key_mark;
  Node value;
};

// Limits of one input, so that no file can exhaust memory or the stack. The largest accepted input is read within
// seconds.
namespace limits {
inline constexpr size_t kFileBytes = size_t{2} << 20;
inline constexpr size_t kDocuments = 1000;
inline constexpr size_t kNodes = 200'000;                  // with aliases expanded
inline constexpr size_t kExpandedBytes = size_t{8} << 20;  // of scalars and keys, with aliases expanded
inline constexpr size_t kDepth = 200;                      // of lists and maps, with aliases expanded
inline constexpr size_t kTagBytes = 1024;
}  // namespace limits

// All documents of a text; `name` is the file's name in messages. Empty documents are left out. An alias and its anchor
// share one node. Fails with kConfig: no YAML, a key that is there twice in a map or is not a string, control
// characters outside of escape sequences, or more than the limits.
Result<std::vector<Node>> parse_all(const std::string& text, const std::string& name);
// The same from a file; fails also as read_file does.
Result<std::vector<Node>> load_all(const std::string& path);

// `root` with what a command line sets: each word is "path=value", the value YAML ("optimizer.lr=4e-3",
// "loader={threads: 2}", "data.path="). A later word wins. Problems with these values say "command line" for the place.
// kUsage: with one line for each word that is no such thing.
Result<Node> with_overrides(const Node& root, const std::vector<std::string>& words);
// A map without entries, to begin with where there is no file.
Node empty_map();

// The problems of one file. The first kMostShown are kept, the others are counted.
class Problems {
 public:
  static constexpr size_t kMostShown = 20;

  explicit Problems(std::string file) : file_(std::move(file)) {}

  // Control characters in `path` and `message` are escaped, and both are cut where they are very long.
  void add(Mark mark, std::string_view path, std::string_view message);
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  // Whether further problems are only counted: their place and message need not be computed.
  bool is_full() const { return count_ >= kMostShown; }
  // kConfig; one line per problem: "file:line:col: path: message", or "command line: path: message". If there are more
  // than kMostShown, the last line is "file: and N more problems".
  Error to_error() const;

 private:
  std::string file_;
  std::vector<std::string> lines_;
  size_t count_ = 0;
};

class MapReader {
 public:
  // A node that is null reads as an empty map; one that is no map is a problem.
  MapReader(const Node& node, std::string path, Problems& problems);

  // Each leaves the target alone and returns false when the key is absent or its value is a problem.
  bool read(std::string_view key, bool& target);
  bool read(std::string_view key, int& target);
  bool read(std::string_view key, int64_t& target);
  bool read(std::string_view key, double& target);  // integers too; "1e-4", ".inf", and !!float "1e-4"
  bool read(std::string_view key,
            std::string& target);  // scalars that are numbers or booleans are a problem unless quoted
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

  // A scalar that must be one of the names.
  template <typename Enum>
  bool read(std::string_view key, Enum& target, std::span<const std::pair<std::string_view, Enum>> names) {
    std::vector<std::string_view> choices;
    for (const auto& [name, value] : names) choices.push_back(name);
    const std::optional<size_t> index = read_choice(key, choices);
    if (index) target = names[*index].second;
    return index.has_value();
  }

  // Calls read_fields with a reader for the nested map, if the key is there, and finishes it.
  bool map(std::string_view key, const std::function<void(MapReader&)>& read_fields);

  // The raw value, marked as known. Null when absent.
  std::optional<Node> take(std::string_view key);
  bool has(std::string_view key) const { return node_.find(key).has_value(); }

  // Adds a problem at the key's value (at the map itself when the key is absent).
  void problem(std::string_view key, std::string_view message);
  void require(std::string_view key);  // a problem when the key is absent

  // Reports the keys that nobody asked for, each with the nearest known one.
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
