#include "cli/launch/rank_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "common/cpu_count.h"

namespace oarlock::launch {
namespace {

constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";

bool all_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "0,2,-1,3" are two: CUDA stops at the first that is none.
int listed_devices(const std::string& list) {
  std::istringstream stream(list);
  int count = 0;
  for (std::string entry; std::getline(stream, entry, ',') && !entry.empty() && entry != "-1";) ++count;
  return count;
}

// nvidia0, nvidia1 ...; not nvidiactl, nvidia-uvm.
int device_files(const std::filesystem::path& folder) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && all_digits(name.substr(kPrefix.size()))) ++count;
  }
  return count;
}

}  // namespace

Processors count_processors(const Environment& environment, const std::filesystem::path& devices) {
  const int files = device_files(devices);
  const auto visible = environment.find(kVisibleDevices);
  const bool chosen = files > 0 && visible != environment.end();
  return {.gpus = chosen ? listed_devices(visible->second) : files, .cpus = usable_cpus()};
}

Result<int> rank_count(const std::string& text, const Processors& processors) {
  if (text == "cpu") return processors.cpus;
  if (text == "gpu" && processors.gpus == 0) {
    return fail(ExitCode::kUnavailable,
                "--nproc gpu: no GPU is to be seen (no /dev/nvidia0, or CUDA_VISIBLE_DEVICES hides it); give a number, "
                "cpu, or auto");
  }
  if (text == "gpu") return processors.gpus;
  if (text == "auto") return processors.gpus > 0 ? processors.gpus : processors.cpus;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    return fail(ExitCode::kUsage, fmt::format("--nproc={} is not a number of at least 1, auto, gpu or cpu", text));
  }
  return value;
}

}  // namespace oarlock::launch
