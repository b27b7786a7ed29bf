// Records what describe() names while another visitor, the reader, fills it in: the complete configuration with every
// default, without the keys that mean nothing under the other settings and without the optional ones that are not set.
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/config/fields.h"

namespace oarlock {

class FieldsPrinter final : public Fields {
 public:
  // The reader must outlive the printer.
  explicit FieldsPrinter(Fields& reader) : reader_(reader) {}

  // In the order of the descriptions.
  const nlohmann::ordered_json& printed() const { return printed_; }

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
  bool given(std::string_view key) const override { return reader_.given(key); }
  void problem(std::string_view key, std::string_view message) override { reader_.problem(key, message); }
  void require(std::string_view key) override { reader_.require(key); }
  void only_where(std::string_view key, bool condition, std::string_view why_not) override;
  void skip(std::string_view key) override { reader_.skip(key); }
  bool choose(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
              std::string_view meaning) override;
  void sequence(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                const std::function<void(size_t, Fields&)>& describe, std::string_view meaning) override;

 private:
  template <typename Value>
  void record(std::string_view key, const Value& value);
  template <typename Value>
  void record(std::string_view key, const std::optional<Value>& value);

  Fields& reader_;
  nlohmann::ordered_json printed_ = nlohmann::ordered_json::object();
  std::vector<std::string> left_out_;
};

}  // namespace oarlock
