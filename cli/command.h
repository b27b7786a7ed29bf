// The interface between main() and the subcommands of `oarlock`.
#pragma once

#include <CLI/CLI.hpp>
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
void add_validate(CLI::App& app, Chosen& chosen);
void add_render(CLI::App& app, Chosen& chosen);
void add_convert(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen);
void add_doctor(CLI::App& app, Chosen& chosen);
void add_help(CLI::App& app, Chosen& chosen);  // help, version, completion and man

// Prints a given usage line. CLI11 would print "[OPTIONS]" only.
class UsageFormatter final : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string usage) : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "usage: " + usage_ + "\n";
  }

 private:
  std::string usage_;
};

inline void set_usage(CLI::App& app, std::string usage) {
  app.formatter(std::make_shared<UsageFormatter>(std::move(usage)));
}

}  // namespace oarlock::cli
