// A usage line of one's own; CLI11's would say [OPTIONS] only.
#pragma once

#include <CLI/Formatter.hpp>
#include <memory>
#include <string>
#include <utility>

namespace oarlock::cli {

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
