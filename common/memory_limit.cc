#include "common/memory_limit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "common/cgroup.h"
#include "common/files.h"
#include "common/text.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxProcFile = size_t{1} << 20;
constexpr uint64_t kAlwaysGranted = uint64_t{64} << 20;  // bytes that are not worth reading /proc

std::optional<uint64_t> number_at(std::string_view text) {
  uint64_t number = 0;
  text = trim(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end != text.data() ? std::optional(number) : std::nullopt;
}

// The memory that the machine can give to new processes without swapping.
std::optional<uint64_t> available_on_machine() {
  constexpr std::string_view kName = "MemAvailable:";
  constexpr uint64_t kUnit = 1024;
  const Result<std::string> text = read_file("/proc/meminfo", kMaxProcFile);
  const size_t at = text ? text->find(kName) : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  const std::optional<uint64_t> number = number_at(std::string_view(*text).substr(at + kName.size()));
  return number ? std::optional(*number * kUnit) : std::nullopt;
}

// Memory of this process that the kernel cannot drop, unlike the pages of files.
uint64_t own_memory() {
  const Result<std::string> text = read_file("/proc/self/statm", kMaxProcFile);
  if (!text) return 0;
  std::istringstream words(*text);
  uint64_t total = 0;
  uint64_t resident = 0;
  uint64_t of_files = 0;
  words >> total >> resident >> of_files;
  return (resident - std::min(of_files, resident)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::optional<uint64_t> cgroup_memory_limit() {
  std::optional<uint64_t> smallest;
  visit_cgroups("memory", [&](const fs::path& directory, bool is_v2) {
    const char* file = is_v2 ? "memory.max" : "memory.limit_in_bytes";
    const Result<std::string> text = read_file(directory / file, kMaxProcFile);
    const std::optional<uint64_t> limit = text ? number_at(*text) : std::nullopt;
    constexpr uint64_t kNone = uint64_t{1} << 60;  // how version 1 expresses that there is no limit
    if (limit && *limit < kNone) smallest = std::min(*limit, smallest.value_or(kNone));
  });
  return smallest;
}

uint64_t available_memory() {
  uint64_t available = available_on_machine().value_or(UINT64_MAX);
  if (const std::optional<uint64_t> limit = cgroup_memory_limit())
    available = std::min(available, *limit - std::min(*limit, own_memory()));
  return available;
}

Result<void> expect_memory(uint64_t count, uint64_t size, const std::string& what) {
  uint64_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(count, size, &bytes);
  if (!overflows && bytes <= kAlwaysGranted) return {};
  const uint64_t available = available_memory();
  if (!overflows && bytes <= available) return {};
  return fail(ExitCode::kOsErr,
              fmt::format("{} needs {} of memory, but only {} are available; give the process more memory, or fetch "
                          "the file again if its size is not plausible",
                          what, size_text(static_cast<double>(count) * static_cast<double>(size)),
                          size_text(static_cast<double>(available))));
}

}  // namespace oarlock
