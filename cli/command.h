// The interface between main() and the subcommands of `oarlock`.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"

namespace oarlock::cli {

// The selected subcommand. It returns the exit code of the program.
using Chosen = std::function<Result<int>()>;
using Words = std::vector<std::string>;

// Each function adds a subcommand with its options to the application. When the subcommand is parsed, it is assigned to
// `chosen`. `after_marker` holds the words after the first "--", which CLI11 does not see. All references must outlive
// the call of `chosen`.
void add_launch(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen);
void add_run(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_validate(CLI::App& app, Chosen& chosen);
void add_render(CLI::App& app, Chosen& chosen);
void add_convert(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen);
void add_doctor(CLI::App& app, Chosen& chosen);
void add_install(CLI::App& app, Chosen& chosen);
void add_help(CLI::App& app, Chosen& chosen);  // help, version, completion and man

// The values of CLI::IsMember, whose description "{a,b}" follows the name of the value in CLI11's type name.
inline Words choices_of(const std::string& type) {
  const size_t open = type.find('{');
  const size_t close = type.find('}', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

// The name of an option's value, of which CLI11's type name is followed by the validators: "SECONDS" of
// "SECONDS:FLOAT in [0 - 1e+06]", and "yaml|json" of "FORMAT:{yaml,json}".
inline std::string value_name(const std::string& type) {
  if (const Words choices = choices_of(type); !choices.empty()) return CLI::detail::join(choices, "|");
  return type.substr(0, std::min(type.find(":INT in "), type.find(":FLOAT in ")));
}

// The description of an option, followed by its default.
inline std::string option_help(const CLI::Option& option) {
  const std::string value = option.get_default_str();
  return option.get_description() + (value.empty() ? "" : "; default: " + value);
}

// Prints a given usage line, and options as "--grace SECONDS  description; default: 20". CLI11 would print "[OPTIONS]"
// only, and "--grace SECONDS:FLOAT in [0 - 1e+06]=20".
class UsageFormatter final : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string usage) : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "usage: " + usage_ + "\n";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";  // a flag
    const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    const std::string name = value_name(option->get_type_name());
    return (name.empty() ? "" : " " + name) + (is_list ? " ..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override { return option_help(*option); }

 private:
  std::string usage_;
};

inline void set_usage(CLI::App& app, std::string usage) {
  app.formatter(std::make_shared<UsageFormatter>(std::move(usage)));
}

}  // namespace oarlock::cli
