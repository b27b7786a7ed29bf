#include "trainer/tasks/gears/string_lists.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/files.h"
#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::gears {
namespace {

constexpr int kDepth = 2;             // of a list in the object
constexpr uint64_t kMostMemory = 32;  // bytes of memory for a byte of such a file: of a list of numbers with one digit

// Without the name of the exception: "parse error at line 1, column 9: ..."
std::string_view without_name(std::string_view message) {
  const size_t begin = message.find("] ");
  return begin == std::string_view::npos ? message : message.substr(begin + 2);
}

}  // namespace

Result<nlohmann::json> read_string_lists(const std::filesystem::path& path, size_t max_bytes) {
  constexpr size_t kShown = 300;  // of a message that quotes a token of any length
  ASSIGN_OR_RETURN(const std::string text, read_regular_file(path, max_bytes));
  const auto bad = [&path](std::string_view what) {
    return fail(ExitCode::kDataErr, fmt::format("{}: {}", path.string(), what));
  };
  if (json_depth(text) > kDepth) return bad("is nested more deeply than a JSON object of lists");
  RETURN_IF_ERROR(expect_memory(text.size(), kMostMemory, path.string()));
  try {
    nlohmann::json out = nlohmann::json::parse(text);
    if (!out.is_object()) return bad("is not a JSON object");
    return out;
  } catch (const nlohmann::json::exception& error) {
    return bad(fmt::format("is not JSON: {}", shortened(without_name(error.what()), kShown)));
  }
}

}  // namespace oarlock::gears
