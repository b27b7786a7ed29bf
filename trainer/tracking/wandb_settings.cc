#include "trainer/tracking/wandb_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "common/text.h"

namespace oarlock {
namespace {

constexpr size_t kMaxWandbIdLength = 128;

}  // namespace

bool is_wandb_id(const std::string& id) {
  return !id.empty() && id.size() <= kMaxWandbIdLength && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return (std::isalnum(c) != 0 && c < 0x80) || c == '_' || c == '-' || c == '.';
  });
}

Result<WandbSettings> resolve_wandb_settings(const WandbConfig& config, const TrackingVariables& variables) {
  const auto choose = [&](const std::string& configured, const char* variable) {
    return configured.empty() ? variables(variable).value_or("") : configured;
  };
  WandbSettings out;
  out.mode = config.mode;
  if (out.mode == WandbMode::kDefault) {
    const std::string mode = variables("WANDB_MODE").value_or("");
    if (mode.empty() || mode == "offline" || mode == "dryrun") {
      out.mode = WandbMode::kOffline;
    } else if (mode == "online" || mode == "run" || mode == "shared") {
      out.mode = WandbMode::kOnline;
    } else if (mode == "disabled") {
      out.mode = WandbMode::kDisabled;
    } else {
      return fail(ExitCode::kConfig,
                  fmt::format("WANDB_MODE={}: must be online, offline or disabled", shortened(mode)));
    }
  }
  out.dir = choose(config.dir, "WANDB_DIR");
  out.project = choose(config.project, "WANDB_PROJECT");
  out.entity = choose(config.entity, "WANDB_ENTITY");
  out.name = choose(config.name, "WANDB_NAME");
  out.run_id = choose(config.run_id, "WANDB_RUN_ID");
  if (!out.run_id.empty() && !is_wandb_id(out.run_id))
    return fail(ExitCode::kConfig, fmt::format("WANDB_RUN_ID={}: must consist of letters, digits, '_', '-' and '.', at "
                                               "most {} of them",
                                               shortened(out.run_id), kMaxWandbIdLength));
  out.group = choose(config.group, "WANDB_RUN_GROUP");
  out.job_type = choose(config.job_type, "WANDB_JOB_TYPE");
  out.notes = choose(config.notes, "WANDB_NOTES");
  out.tags = config.tags;
  if (out.tags.empty()) {
    std::string list = variables("WANDB_TAGS").value_or("");
    for (std::string_view rest = list; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (const std::string_view tag = trim(rest.substr(0, comma)); !tag.empty()) out.tags.emplace_back(tag);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return out;
}

}  // namespace oarlock
