// The visitors of a configuration's description (fields.h): a reader, a printer, and a writer of reference tables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/yaml/reader.h"
#include "trainer/config/fields.h"

namespace oarlock {

// Reads the described fields from YAML and collects every problem with its place in the file.
class FieldsReader final : public Fields {
 public:
  // Reads `node`, whose path within the file is `path` ("" for the root). The problems must outlive the reader.
  FieldsReader(const yaml::Node& node, const std::string& path, yaml::Problems& problems);

  // Reports the keys that were not described. Sections and list items do this themselves.
  void finish() { reader_.finish(); }

  void section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view help) override;
  bool has(std::string_view key) const override { return reader_.has(key); }
  void problem(std::string_view key, std::string_view message) override { reader_.problem(key, message); }
  void require(std::string_view key) override { reader_.require(key); }
  void only_if(std::string_view key, bool condition, std::string_view why_not) override;
  void skip(std::string_view key) override { reader_.take(key); }
  void visit(std::string_view key, FieldValue value, const Range& range, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, std::string_view help) override;

 private:
  std::string path_of(std::string_view key) const;

  yaml::MapReader reader_;
};

// Records the described fields while a reader fills them in: the complete configuration with every default. Leaves out
// the keys that have no meaning with the other values (Fields::only_if) and the optional ones that are not set.
class FieldsPrinter final : public Fields {
 public:
  // Forwards every call to `reader`, which must outlive the printer.
  explicit FieldsPrinter(Fields& reader) : reader_(reader) {}

  // In the order of the descriptions.
  const nlohmann::ordered_json& printed() const { return printed_; }

  void section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view help) override;
  bool has(std::string_view key) const override { return reader_.has(key); }
  void problem(std::string_view key, std::string_view message) override { reader_.problem(key, message); }
  void require(std::string_view key) override { reader_.require(key); }
  void only_if(std::string_view key, bool condition, std::string_view why_not) override;
  void skip(std::string_view key) override { reader_.skip(key); }
  void visit(std::string_view key, FieldValue value, const Range& range, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, std::string_view help) override;

 private:
  template <typename Value>
  void record(std::string_view key, const Value& value);
  template <typename Value>
  void record(std::string_view key, const std::optional<Value>& value);

  Fields& reader_;
  nlohmann::ordered_json printed_ = nlohmann::ordered_json::object();
  std::vector<std::string> omitted_;
};

// Collects the described fields as Markdown tables.
class FieldsReference final : public Fields {
 public:
  // `path` is the path of the section: "" for the root, "optimizer.groups[]" for the items of a list.
  explicit FieldsReference(std::string path, std::string_view help = "") : path_(std::move(path)), help_(help) {}

  // A heading of `level` (2: "##") for each section, followed by the table of its keys. The root has no heading.
  std::string markdown(size_t level) const;

  void section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view help) override;
  bool has(std::string_view) const override { return false; }
  void problem(std::string_view, std::string_view) override {}
  void require(std::string_view key) override { required_.emplace_back(key); }
  void only_if(std::string_view, bool, std::string_view) override {}
  void skip(std::string_view) override {}
  void visit(std::string_view key, FieldValue value, const Range& range, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, std::string_view help) override;

 private:
  struct Row {
    std::string key;
    std::string type;  // with the bounds
    std::string default_value;
    std::string help;
  };
  std::string path_of(std::string_view key) const;

  std::string path_;
  std::string help_;
  std::vector<Row> rows_;
  std::vector<std::string> required_;
  std::vector<FieldsReference> sections_;
};

}  // namespace oarlock
