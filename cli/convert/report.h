// The result of a conversion, the notes and problems that it collects, and a reader for the objects of other APIs.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "common/error.h"
#include "yaml/reader.h"

namespace oarlock::convert {

using Json = nlohmann::ordered_json;

struct Converted {
  Json job;
  std::vector<std::string> notes;  // for users: "file:line:column: note: path: message"
};

// Receives each option or field that has no counterpart in a TrainingJob, with a message.
using NoteSink = std::function<void(const std::string& what, const std::string& message)>;

// Converts a tree to JSON and keeps the order of the keys.
Json to_ordered_json(const yaml::Node& node);

// Collects the notes and the problems of one document, and the paths of the values that were converted, so that
// note_unhandled() can report every other value. Not thread-safe.
class Report {
 public:
  static constexpr size_t kMaxNotes = 100;  // further notes are counted

  // `file` is the name in messages.
  Report(yaml::Node root, std::string file) : root_(std::move(root)), file_(std::move(file)), problems_(file_) {}

  // `path` begins at the root of the document.
  void note(const std::string& path, const std::string& message);
  void problem(const std::string& path, const std::string& message);

  // Records that the value at the path, with everything below it, is part of the result or has a note.
  void mark_handled(const std::string& path) { handled_.insert(path); }
  // Records that the members of the map or list at the path are handled one by one.
  void mark_entered(const std::string& path) { entered_.insert(path); }
  // Adds a note for each value of the document that was not handled. A null value counts as absent.
  void note_unhandled(const Json& document);

  bool has_problems() const { return !problems_.empty(); }
  Error to_error() const { return problems_.to_error(); }
  // Returns the notes, each with its place. The last one states how many were left out.
  std::vector<std::string> notes() const;

 private:
  void note_unhandled_below(const Json& value, const std::string& path);

  yaml::Node root_;
  std::string file_;
  yaml::Problems problems_;
  std::vector<std::string> notes_;
  size_t count_ = 0;
  std::unordered_set<std::string> handled_;
  std::unordered_set<std::string> entered_;
};

// Formats a note without a position in a file: "note: what: message".
std::string to_note(std::string_view what, std::string_view message);

// Returns whether a text is well-formed UTF-8, as JSON requires.
bool is_utf8(std::string_view text);

// Reads the members of an object of another API. A null member counts as absent, and an object that is null as empty.
// A member of the wrong type is a problem. Each member that is read is handled; Report::note_unhandled() reports the
// others. Not thread-safe; `object` and `report` must outlive the reader.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string path, Report& report);

  // Null if the member is absent. The caller converts all of it, or adds notes for the rest.
  const Json* take(const std::string& key);
  std::string text(const std::string& key);  // "" if the member is absent
  std::optional<int64_t> integer(const std::string& key);
  std::optional<bool> boolean(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  ObjectReader object(const std::string& key);
  std::vector<ObjectReader> objects(const std::string& key);

  // Adds a note if the member is present.
  void drop(const std::string& key, const std::string& message);
  // Adds a note if the member is present and has none of the values that describe what a TrainingJob does anyway.
  void drop_unless(const std::string& key, std::initializer_list<Json> equivalents, const std::string& message);
  void note(const std::string& key, const std::string& message) { report_.note(path_of(key), message); }
  void problem(const std::string& key, const std::string& message) { report_.problem(path_of(key), message); }

  bool empty() const { return object_->empty(); }
  const Json& json() const { return *object_; }
  const std::string& path() const { return path_; }
  // Returns the path of a member; that of the object itself for "".
  std::string path_of(const std::string& key) const {
    return path_.empty() || key.empty() ? path_ + key : path_ + "." + key;
  }
  Report& report() { return report_; }

 private:
  const Json* of_type(const std::string& key, Json::value_t type, const char* name);

  const Json* object_;
  std::string path_;
  Report& report_;
};

// Returns the strings of a list; other elements are skipped.
std::vector<std::string> json_words(const Json& list);

}  // namespace oarlock::convert
