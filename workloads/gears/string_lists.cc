#include "workloads/gears/string_lists.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/files.h"
#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "workloads/formats/json_list.h"

namespace oarlock::gears {
namespace {

constexpr int kDepth = 2;  // of a list in the object
constexpr uint64_t kMaxMemoryRatio =
    32;  // bytes of memory for a byte of such a file: of a list of numbers with one digit

}  // namespace

Result<nlohmann::json> read_string_lists(const std::filesystem::path& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const std::string text, read_regular_file(path, max_bytes));
  const auto bad = [&path](std::string_view what) {
    return fail(ExitCode::kDataErr, fmt::format("{}: {}", path.string(), what));
  };
  if (json_depth(text) > kDepth) return bad("is nested more deeply than a JSON object of lists");
  RETURN_IF_ERROR(expect_memory(text.size(), kMaxMemoryRatio, path.string()));
  try {
    nlohmann::json out = nlohmann::json::parse(text);
    if (!out.is_object()) return bad("is not a JSON object");
    return out;
  } catch (const nlohmann::json::exception& error) {
    return bad("is not JSON: " + json_problem(error));
  }
}

}  // namespace oarlock::gears
