// Collects what describe() names, as tables for people.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

class FieldsReference final : public Fields {
 public:
  // `path` leads to the section: "" for the root, "optimizer.groups[]" for the items of a list.
  explicit FieldsReference(std::string path, std::string_view meaning = "")
      : path_(std::move(path)), meaning_(meaning) {}

  // A heading for each section, of this level (2: "##") and below it the table of its keys; the root has no heading.
  std::string markdown(size_t level) const;

  using Fields::field;
  void field(std::string_view key, bool& value, std::string_view meaning) override;
  void field(std::string_view key, std::string& value, std::string_view meaning) override;
  void field(std::string_view key, std::vector<std::string>& value, std::string_view meaning) override;
  void field(std::string_view key, int& value, const Range& range, std::string_view meaning) override;
  void field(std::string_view key, int64_t& value, const Range& range, std::string_view meaning) override;
  void field(std::string_view key, double& value, const Range& range, std::string_view meaning) override;
  void field(std::string_view key, std::optional<int64_t>& value, const Range& range,
             std::string_view meaning) override;
  void field(std::string_view key, std::optional<double>& value, const Range& range, std::string_view meaning) override;
  void field(std::string_view key, std::vector<int64_t>& value, const Range& range, std::string_view meaning) override;
  void field(std::string_view key, std::vector<double>& value, const Range& range, std::string_view meaning) override;
  void section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view meaning) override;
  bool given(std::string_view) const override { return false; }
  void problem(std::string_view, std::string_view) override {}
  void require(std::string_view key) override { required_.emplace_back(key); }
  void only_where(std::string_view, bool, std::string_view) override {}
  void skip(std::string_view) override {}
  bool choose(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
              std::string_view meaning) override;
  void sequence(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                const std::function<void(size_t, Fields&)>& describe, std::string_view meaning) override;

 private:
  struct Row {
    std::string key;
    std::string type;
    std::string initial;  // the default
    std::string meaning;
  };
  void add(std::string_view key, std::string_view type, std::string initial, std::string_view meaning);
  template <typename Number>
  void number(std::string_view key, const Number& value, const Range& range, std::string_view type,
              std::string_view meaning);
  std::string path_of(std::string_view key) const;

  std::string path_;
  std::string meaning_;
  std::vector<Row> rows_;
  std::vector<std::string> required_;
  std::vector<FieldsReference> sections_;
};

}  // namespace oarlock
