#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/printable.h"
#include "common/yaml/node_data.h"

namespace oarlock::yaml {
namespace {

constexpr size_t kLongestPath = 200;
constexpr size_t kLongestMessage = 1000;

}  // namespace

std::string place_text(const std::string& file, Mark mark) {
  if (mark.on_command_line) return "command line";
  const std::string name = printable(file);
  return mark.line == 0 ? name : fmt::format("{}:{}:{}", name, mark.line, mark.column);
}

void Problems::add(Mark mark, std::string_view path, std::string_view message) {
  ++count_;
  if (lines_.size() == kMostShown) return;
  std::string line = place_text(file_, mark) + ": ";
  if (!path.empty()) line += shortened(path, kLongestPath) + ": ";
  lines_.push_back(line + shortened(message, kLongestMessage));
}

Error Problems::to_error() const {
  std::string text = fmt::format("{}", fmt::join(lines_, "\n"));
  if (count_ > lines_.size()) {
    const size_t more = count_ - lines_.size();
    text += fmt::format("\n{}: and {} more problem{}", printable(file_), more, more == 1 ? "" : "s");
  }
  return {ExitCode::kConfig, text};
}

}  // namespace oarlock::yaml
