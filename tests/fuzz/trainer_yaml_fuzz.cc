// A trainer configuration with the sections of its task, and the overrides of the command line, each of which follows a
// NUL. One that is accepted prints as a configuration that is accepted without overrides and prints the same.
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/input.h"
#include "trainer/config/load.h"
#include "workloads/causal_set/config.h"
#include "workloads/comformer/config.h"
#include "workloads/gears/config.h"
#include "workloads/image_classification/config.h"
#include "workloads/protein_diffusion/config.h"

using namespace oarlock;

namespace {

constexpr size_t kMaxOverrides = 16;

template <typename Config>
void describe_section(std::string_view key, Fields& root) {
  Config config;
  root.section(key, [&](Fields& fields) { describe(config, fields); }, "");
}

template <typename Config>
void describe_root(Fields& root) {
  Config config;
  describe(config, root);
}

// The sections that the constructor of a task's class describes, without LibTorch.
struct TaskSections {
  std::string_view task;
  void (*describe)(Fields& root);
};

void describe_causal_set(Fields& root) {
  describe_section<causal_set::CausalSetDataConfig>("data", root);
  describe_section<causal_set::CausalSetModelConfig>("model", root);
  describe_section<causal_set::TestingConfig>("testing", root);
}

void describe_comformer(Fields& root) {
  describe_section<comformer::CrystalDataConfig>("data", root);
  describe_section<comformer::ComformerConfig>("model", root);
  describe_section<comformer::TestConfig>("test", root);
}

void describe_image_classification(Fields& root) {
  describe_section<image_classification::ImageDataConfig>("data", root);
  describe_section<image_classification::ImageModelConfig>("model", root);
}

constexpr TaskSections kTaskSections[] = {
    {"causal_set", describe_causal_set},
    {"comformer", describe_comformer},
    {"gears", describe_root<gears::GearsTaskConfig>},
    {"image_classification", describe_image_classification},
    {"protein_diffusion", describe_root<protein_diffusion::DiffusionConfig>},
};

// OARLOCK_WORKLOADS is the list of workloads/CMakeLists.txt, each name with a comma after it.
constexpr bool has_all_workloads() {
  std::string_view rest = OARLOCK_WORKLOADS;
  for (const TaskSections& one : kTaskSections) {
    if (!rest.starts_with(one.task)) return false;
    rest.remove_prefix(one.task.size());
    if (!rest.starts_with(',')) return false;
    rest.remove_prefix(1);
  }
  return rest.empty();
}
static_assert(has_all_workloads(), "kTaskSections must have the tasks of workloads/CMakeLists.txt, in that order");

TaskNames task_names() {
  TaskNames out;
  for (const TaskSections& one : kTaskSections) out.names.emplace_back(one.task);
  out.describe_sections = [](const std::string& task, Fields& root) {
    for (const TaskSections& one : kTaskSections) {
      if (one.task == task) one.describe(root);
    }
  };
  return out;
}

// Splits a text at its first NULs; the last part has the rest.
std::vector<std::string> split_at_nul(std::string_view text, size_t max_parts) {
  std::vector<std::string> parts;
  while (parts.size() + 1 < max_parts) {
    const size_t end = text.find('\0');
    if (end == std::string_view::npos) break;
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.emplace_back(text);
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TaskNames tasks = task_names();
  std::vector<std::string> overrides = split_at_nul(fuzz::text_of(data, size), 1 + kMaxOverrides);
  const std::string text = std::move(overrides.front());
  overrides.erase(overrides.begin());
  const Result<TrainerConfig> config = parse_config(text, "trainer.yaml", tasks, overrides);
  const Result<std::string> printed = print_parsed_config(text, "trainer.yaml", tasks, overrides);
  fuzz::require(config.has_value() == printed.has_value());
  if (!config) {
    fuzz::require_printable_lines(config.error().message);
    fuzz::require(config.error().message.size() < 100'000);
    return 0;
  }
  const Result<std::string> again = print_parsed_config(*printed, "printed.yaml", tasks);
  fuzz::require(again.has_value() && *again == *printed);
  return 0;
}
