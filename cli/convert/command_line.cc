#include "cli/convert/converters.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/contract.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::convert {

Result<Converted> convert_command_line(const std::vector<std::string>& words, LauncherKind kind,
                                       const ConvertOptions& options) {
  const char* example = kind == LauncherKind::kTorchrun
                            ? "oarlock convert torchrun -- torchrun --nproc-per-node 4 train.py"
                            : "oarlock convert accelerate -- accelerate launch train.py";
  if (words.empty()) return fail(ExitCode::kUsage, fmt::format("missing command; write it after --: {}", example));
  if (!std::ranges::all_of(words, is_utf8)) return fail(ExitCode::kUsage, "the command is not UTF-8 text");
  if (launcher_of(words) != kind)
    return fail(ExitCode::kUsage,
                fmt::format("'{}' is not {}; write the whole command after --: {}", shortened(words.front()),
                            kind == LauncherKind::kTorchrun ? "torchrun or python -m torch.distributed.run"
                                                            : "accelerate launch",
                            example));
  Converted out;
  const NoteSink sink = [&](const std::string& what, const std::string& message) {
    out.notes.push_back(to_note(what, message));
  };
  ASSIGN_OR_RETURN(const LaunchCommand launch, convert_command(words, std::nullopt, sink));
  JobDraft draft;
  draft.nodes = launch.nodes.value_or(1);
  take_node_bounds(launch, draft);
  draft.processes = launch.processes;
  draft.max_restarts = launch.max_restarts;
  draft.port = launch.port;
  Json trainer = {{"name", kTrainerContainer}};
  if (!options.image.empty()) trainer["image"] = options.image;
  trainer["command"] = launch.words;
  for (const auto& [name, value] : launch.environment) set_variable(trainer, name, value);
  if (options.gpus) trainer["resources"]["limits"][kGpuResource] = *options.gpus;
  // The script names the job: the first word that ends in .py, or the word after -m.
  std::string program;
  for (size_t i = 1; i < launch.words.size() && program.empty(); ++i) {
    const bool is_module = launch.words[i - 1] == "-m" && !launch.words[i].starts_with("torch.distributed");
    if (launch.words[i].ends_with(".py") || is_module) program = launch.words[i];
  }
  draft.metadata["name"] =
      options.name.empty() ? object_name(stem_of(program.empty() ? "train" : program)) : options.name;
  draft.pod = {{"spec", {{"containers", Json::array({trainer})}}}};
  if (options.image.empty()) out.notes.push_back(to_note("spec.template", "no image is known; give it with --image"));
  if (!options.gpus)
    out.notes.push_back(to_note("spec.template", draft.processes == "auto"
                                                     ? "one rank for each GPU, but their number is not known; give it "
                                                       "with --gpus"
                                                     : "no GPUs are requested; give their number on each node with "
                                                       "--gpus if the ranks use them"));
  if (program.ends_with(".py") && !program.starts_with('/'))
    out.notes.push_back(to_note(program, "is relative to the working directory of the image"));
  ASSIGN_OR_RETURN(out.job, finish_job(draft, "oarlock convert"));
  return out;
}

}  // namespace oarlock::convert
