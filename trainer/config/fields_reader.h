// Reads what describe() names from YAML: every problem is collected, with its place in the file.
#pragma once

#include "common/yaml/reader.h"
#include "trainer/config/fields.h"

namespace oarlock {

class FieldsReader final : public Fields {
 public:
  // Reads `node`, which `path` leads to ("" for the root of the file). The problems must outlive the reader.
  FieldsReader(const yaml::Node& node, const std::string& path, yaml::Problems& problems);

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
  bool given(std::string_view key) const override;
  void problem(std::string_view key, std::string_view message) override;
  void require(std::string_view key) override;
  void only_where(std::string_view key, bool condition, std::string_view why_not) override;
  void skip(std::string_view key) override;

  bool choose(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
              std::string_view meaning) override;
  void sequence(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                const std::function<void(size_t, Fields&)>& describe, std::string_view meaning) override;

  // Reports the keys that nobody described. Sections and the items of lists do it themselves.
  void finish() { reader_.finish(); }

 private:
  template <typename Number>
  void number(std::string_view key, Number& value, const Range& range);
  template <typename Number>
  void numbers(std::string_view key, std::vector<Number>& value, const Range& range);
  std::string path_of(std::string_view key) const;

  yaml::MapReader reader_;
};

}  // namespace oarlock
