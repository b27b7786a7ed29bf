#include "trainer/checkpoint/high_water.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <string>

#include "common/files.h"

namespace oarlock {
namespace {

constexpr char kFile[] = "reached";

}  // namespace

HighWater::HighWater(const std::filesystem::path& root)
    : fd_(::open((root / kFile).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)), step_(read_high_water(root)) {}

HighWater::~HighWater() {
  if (fd_ >= 0) ::close(fd_);
}

void HighWater::raise(int64_t step) {
  if (fd_ < 0 || step <= step_) return;
  step_ = step;
  const std::string text = fmt::format("{:020}\n", step);  // always as long: each write replaces the one before
  [[maybe_unused]] const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
}

int64_t read_high_water(const std::filesystem::path& root) {
  const auto text = read_file(root / kFile);
  int64_t step = 0;
  if (!text || text->size() != 21) return 0;
  const auto parsed = std::from_chars(text->data(), text->data() + 20, step);
  return parsed.ec == std::errc{} && parsed.ptr == text->data() + 20 && step > 0 ? step : 0;
}

}  // namespace oarlock
