// The strict reader of described fields, for files that users write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fields/fields.h"
#include "yaml/reader.h"

namespace oarlock {

// Reads the described fields from YAML and collects every problem with its place in the file. Not thread-safe.
class YamlFieldsReader final : public Fields {
 public:
  // Whether values outside their limits are problems. A caller that validates the whole struct afterwards with
  // FieldsValidator does not need to report them twice.
  enum class LimitChecks { kOn, kOff };

  // Reads `node`, whose path within the file is `path` ("" for the root). The problems must outlive the reader.
  YamlFieldsReader(const yaml::Node& node, const std::string& path, yaml::Problems& problems,
                   LimitChecks limit_checks = LimitChecks::kOn);

  // Reports the keys that were not described. Sections and list items do this themselves.
  void finish() { reader_.finish(); }

  void section(std::string_view key, const Describe& describe, std::string_view help) override;
  void number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name, const Limits& limits,
                      std::string_view help) override;
  void raw_object(std::string_view key, std::string& text, std::string_view help) override;
  bool has(std::string_view key) const override { return reader_.has(key); }
  void problem(std::string_view key, std::string_view message) override { reader_.problem(key, message); }
  void require(std::string_view key) override { reader_.require(key); }
  void only_if(std::string_view key, bool condition, std::string_view why_not) override;
  void skip(std::string_view key) override { reader_.take(key); }
  void visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) override;
  bool visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                    std::string_view help) override;
  void visit_optional(std::string_view key, bool is_present, const Describe& describe, std::string_view help) override;
  void visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                  const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                  std::string_view help) override;

 private:
  std::string path_of(std::string_view key) const;

  yaml::MapReader reader_;
  const LimitChecks limit_checks_;
};

}  // namespace oarlock
