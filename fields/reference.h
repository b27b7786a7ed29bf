// The reference of described fields, for documentation.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fields/fields.h"

namespace oarlock {

// Collects the described fields as Markdown tables. Not thread-safe.
class FieldsReference final : public Fields {
 public:
  // `path` is the path of the section: "" for the root, "optimizer.groups[]" for the items of a list.
  explicit FieldsReference(std::string path, std::string_view help = "") : path_(std::move(path)), help_(help) {}

  // A heading of `level` (2: "##") for each section, followed by the table of its keys. The root has no heading.
  std::string markdown(size_t level) const { return markdown(level, ""); }

  void section(std::string_view key, const Describe& describe, std::string_view help) override;
  void number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name, const Limits& limits,
                      std::string_view help) override;
  void raw_object(std::string_view key, std::string& text, std::string_view help) override;
  void require(std::string_view key) override { required_.emplace_back(key); }
  void scope(std::string_view key, Scope scope) override { scopes_[std::string(key)] = scope; }
  void visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_optional(std::string_view key, bool is_present, const Describe& describe, std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                  std::string_view help) override;

 private:
  struct Row {
    std::string key;
    std::string type;  // with the bounds
    std::string default_value;
    std::string help;
  };
  std::string path_of(std::string_view key) const;
  std::string note_of_scope(const std::string& key) const;
  std::string markdown(size_t level, const std::string& note) const;

  std::string path_;
  std::string help_;
  std::vector<Row> rows_;
  std::vector<std::string> required_;
  std::map<std::string, Scope> scopes_;
  std::vector<FieldsReference> sections_;
};

}  // namespace oarlock
