#include "trainer/engine/task_setup.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

bool prepares(PrepareOn on, int rank, int local_rank) {
  switch (on) {
    case PrepareOn::kOneRank:
      return rank == 0;
    case PrepareOn::kOneRankPerNode:
      return local_rank == 0;
    case PrepareOn::kEveryRank:
      return true;
  }
  return true;
}

constexpr size_t kMetricsShown = 20;

// Checks the metrics that the configuration names. The evaluation that needs them is at the end of an epoch.
Result<void> check_metrics(const TrainerConfig& config, std::vector<std::string> known) {
  std::sort(known.begin(), known.end());
  std::vector<std::pair<std::string, std::string>> named = {{"checkpoint.best.metric", config.checkpoint.best.metric}};
  const std::vector<WatchedMetric>& watched = config.early_stopping.metrics;
  for (size_t i = 0; i < watched.size(); ++i) {
    named.emplace_back(
        watched.size() == 1 ? "early_stopping.metric" : fmt::format("early_stopping.metrics[{}].name", i),
        watched[i].name);
  }
  if (config.schedule.kind == ScheduleKind::kPlateau)
    named.emplace_back("schedule.plateau.metric", config.schedule.plateau.metric);
  for (const auto& [key, name] : named) {
    if (name.empty() || std::binary_search(known.begin(), known.end(), name)) continue;
    const std::string near = suggest(name, known);
    const size_t hidden = known.size() - std::min(known.size(), kMetricsShown);
    known.resize(known.size() - hidden);
    return fail(ExitCode::kConfig, fmt::format("{}: the evaluation of {} has no metric '{}', only {}{}{}", key,
                                               config.task, shortened(name), fmt::join(known, ", "),
                                               hidden == 0 ? "" : fmt::format(" and {} more", hidden),
                                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  return {};
}

constexpr char kActivity[] = "the data were prepared; a new start prepares them";

}  // namespace

Result<ConfiguredTask> load_task(const ConfigSource& source, const TaskTable& tasks) {
  ConfiguredTask out;
  TaskNames names = task_names(tasks);
  names.describe_sections = [&](const std::string& name, Fields& root) { out.task = tasks.at(name)(root); };
  ASSIGN_OR_RETURN(CompleteConfig complete, load_complete_config(source, names));
  out.config = std::move(complete.config);
  out.printed = nlohmann::json(complete.printed);
  out.agreed = std::move(complete.agreed);
  out.is_of_job = complete.is_of_job;
  if (const std::string obstacle = out.task->graph_obstacle(); out.config.cuda.graphs && !obstacle.empty()) {
    return fail(ExitCode::kConfig, fmt::format("cuda.graphs: a step of {} cannot be recorded, because {}; remove it",
                                               out.config.task, obstacle));
  }
  RETURN_IF_ERROR(check_metrics(out.config, out.task->metric_names()));
  return out;
}

TaskNames task_names(const TaskTable& tasks) {
  TaskNames out;
  for (const auto& [name, factory] : tasks) out.names.push_back(name);
  out.describe_sections = [&tasks](const std::string& name, Fields& root) { tasks.at(name)(root); };
  return out;
}

Result<void> prepare_data(Task& task, const ProcessGroup& group, int local_rank, StopAgreement& stop,
                          const Logger& log) {
  const bool mine = prepares(task.prepare_on(), group.rank(), local_rank);
  const Result<void> prepared = run_on_all_ranks(
      [&task, mine, log] { return mine ? task.prepare_data(log) : Result<void>(); }, group, stop, kActivity);
  if (stop.agreed()) return prepared;
  if (task.prepare_on() != PrepareOn::kOneRank) return group.agree(prepared);
  return group.broadcast(prepared.map([] { return std::string(); })).map([](const std::string&) {});
}

namespace {

AgreedValues agreed_data(const Task& task) {
  AgreedValues out;
  const auto add = [&out](const char* name, const Dataset& data) {
    out[fmt::format("data.{}.samples", name)] = fmt::format("{}", data.size());
    if (const std::string content = data.fingerprint(); !content.empty())
      out[fmt::format("data.{}.fingerprint", name)] = content;
  };
  add("train", task.train_data());
  add("eval", task.eval_data());
  for (const auto& [name, content] : task.fingerprints()) out[fmt::format("data.{}.fingerprint", name)] = content;
  return out;
}

}  // namespace

Result<AgreedValues> open_data(Task& task, const ProcessGroup& group, StopAgreement& stop) {
  const auto data = std::make_shared<AgreedValues>();  // the thread may be abandoned
  const auto open = [&task, data] { return task.prepare().map([&] { *data = agreed_data(task); }); };
  RETURN_IF_ERROR(run_on_all_ranks(open, group, stop, kActivity));
  return *data;
}

Result<void> check_same_data(const AgreedValues& data, const ProcessGroup& group) {
  const std::string text = dump_json(to_json_object(data));
  const std::vector<int64_t> hashes = group.all_gather(static_cast<int64_t>(std::hash<std::string>()(text)));
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) return {};
  const std::vector<std::string> texts = group.all_gather(text);
  const auto values_of = [&](size_t rank) {
    return agreed_values_from_json(nlohmann::json::parse(texts[rank], nullptr, /*allow_exceptions=*/false));
  };
  for (size_t rank = 1; rank < texts.size(); ++rank)
    RETURN_IF_ERROR(check_agreement(AgreedKind::kData, static_cast<int>(rank), values_of(rank), values_of(0)));
  return {};
}

// ---- Pretrained weights ------------------------------------------------------------------------------------------

namespace {

constexpr std::array<std::string_view, 2> kWrappers = {"module.", "_orig_mod."};
constexpr size_t kNamesShown = 3;

TensorMap tensors_of(const torch::nn::Module& module) {
  TensorMap out;
  for (const NamedTensor& item : unique_parameters(module)) out[item.name] = item.tensor;
  for (const NamedTensor& item : unique_buffers(module)) out[item.name] = item.tensor;
  return out;
}

PretrainedReport compare(const TensorMap& file, const TensorMap& model) {
  PretrainedReport out;
  for (const auto& [name, tensor] : model) {
    const auto found = file.find(name);
    if (found == file.end()) {
      out.missing.push_back(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      out.misshapen.push_back(fmt::format("{} [{}] for [{}]", name, fmt::join(found->second.sizes(), ", "),
                                          fmt::join(tensor.sizes(), ", ")));
    } else {
      ++out.loaded;
    }
  }
  for (const auto& [name, tensor] : file) {
    if (!model.contains(name)) out.unexpected.push_back(name);
  }
  return out;
}

std::string first_names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string out =
      fmt::format("'{}'", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"));
  if (names.size() > shown) out += fmt::format(" and {} more", names.size() - shown);
  return out;
}

}  // namespace

std::string PretrainedReport::misfit() const {
  std::vector<std::string> parts;
  if (!missing.empty()) parts.push_back("it has no " + first_names(missing));
  if (!unexpected.empty()) parts.push_back("the model has no " + first_names(unexpected));
  if (!misshapen.empty()) parts.push_back("shapes differ: " + first_names(misshapen));
  return fmt::format("{}", fmt::join(parts, "; "));
}

TensorMap without_wrappers(TensorMap tensors) {
  const auto shared = [&](std::string_view prefix) {
    return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(),
                                           [&](const auto& item) { return item.first.starts_with(prefix); });
  };
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : kWrappers) {
      if (!shared(prefix)) continue;
      TensorMap shorter;
      for (auto& [name, tensor] : tensors) shorter.emplace(name.substr(prefix.size()), std::move(tensor));
      tensors = std::move(shorter);
      again = true;
    }
  }
  return tensors;
}

Result<PretrainedReport> load_pretrained(const PretrainedConfig& config, TensorMap tensors,
                                         const torch::nn::Module& module) {
  const TensorMap from = without_wrappers(std::move(tensors));
  const TensorMap to = tensors_of(module);
  PretrainedReport report = compare(from, to);
  if (config.strict ? !report.fits() : report.loaded == 0) {
    return fail(
        ExitCode::kDataErr,
        fmt::format("pretrained.path: {} does not fit the model: {}; {}", config.path, report.misfit(),
                    config.strict ? "correct the model, or load only the matching tensors with pretrained.strict: false"
                                  : "nothing fits"));
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, target] : to) {
    const auto found = from.find(name);
    if (found != from.end() && found->second.sizes() == target.sizes()) at::Tensor(target).copy_(found->second);
  }
  return report;
}

}  // namespace oarlock
