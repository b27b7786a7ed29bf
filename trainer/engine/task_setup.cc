#include "trainer/engine/task_setup.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
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

// Returns whether the configuration sets a key, such as "eval.rows_file", to anything but false, 0 or an empty value.
bool is_set(const nlohmann::json& config, std::string key) {
  std::replace(key.begin(), key.end(), '.', '/');
  const nlohmann::json value = config.value(nlohmann::json::json_pointer("/" + key), nlohmann::json());
  return !value.is_null() && value != false && value != 0 && value != "" && !(value.is_structured() && value.empty());
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
  for (const auto& [key, reason] : out.task->unused_settings()) {
    if (!is_set(out.printed, key)) continue;
    return fail(ExitCode::kConfig,
                fmt::format("{}: has no effect with task {}, because {}; remove it", key, out.config.task, reason));
  }
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
  const auto open = [&task, data]() -> Result<int64_t> {
    RETURN_IF_ERROR(task.prepare());
    *data = agreed_data(task);
    return digest_of(*data);
  };
  ASSIGN_OR_RETURN(const bool is_same, run_and_compare(open, group, stop, kActivity));
  if (!is_same) RETURN_IF_ERROR(check_equal_on_all_ranks(AgreedKind::kData, *data, group));
  return *data;
}

int64_t digest_of(const AgreedValues& data) {
  const size_t hash = std::hash<std::string>()(dump_json(to_json_object(data)));
  return static_cast<int64_t>(hash) & kMaxComparedNumber;
}

// ---- Batches of one sample ---------------------------------------------------------------------------------------

namespace {

// Restores the values of tensors when it is destroyed.
class KeptTensors {
 public:
  explicit KeptTensors(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    for (const at::Tensor& tensor : tensors_) copies_.push_back(tensor.detach().clone());
  }
  ~KeptTensors() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(copies_[i]);
  }
  KeptTensors(const KeptTensors&) = delete;
  KeptTensors& operator=(const KeptTensors&) = delete;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> copies_;
};

}  // namespace

Result<void> try_single_sample(Task& task, torch::nn::Module& module, const at::Device& device) {
  constexpr std::string_view kTooFewValues = "more than 1 value per channel";  // LibTorch's words, and BatchNorm's
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  const KeptTensors kept(std::move(tensors));
  const StepContext context{.step = 0, .recorded = false, .before_parameters_change = [] {}};
  try {
    const std::vector<int64_t> first{0};
    Batch batch = make_batch(task.train_data(), first);
    for (auto& [name, tensor] : batch.tensors) tensor = tensor.to(device);
    task.train_step(module, batch, context);
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    const size_t at = text.find(kTooFewValues);
    if (at == std::string_view::npos) return {};
    const size_t begin = text.rfind('\n', at) + 1;  // 0 for the first line
    return fail(ExitCode::kConfig, std::string(text.substr(begin, text.find('\n', at) - begin)));
  }
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

// Removes tensors that duplicate other state from those of a file, and gives a tied weight its first name. Returns
// the names of those whose values are not those of the model.
std::vector<std::string> remove_derived(const DerivedTensors& derived, TensorMap& file) {
  const auto is_equal = [](const at::Tensor& a, const at::Tensor& b) {
    return a.sizes() == b.sizes() && at::allclose(a.to(at::kDouble), b.to(at::kDouble), 1e-5, 1e-6, /*equal_nan=*/true);
  };
  std::vector<std::string> differing;
  for (const auto& [name, first] : derived.ties) {
    auto node = file.extract(name);
    if (node.empty()) continue;
    const auto [at, is_new] = file.emplace(first, node.mapped());
    if (!is_new && !is_equal(at->second, node.mapped())) differing.push_back(name);
  }
  for (const auto& [name, value] : derived.constants) {
    const auto node = file.extract(name);
    if (!node.empty() && !is_equal(node.mapped(), value)) differing.push_back(name);
  }
  return differing;
}

// Returns whether the file begins as an archive or a pickle of torch.save().
bool is_saved_by_torch(const std::string& path) {
  constexpr std::string_view kZip = "PK\x03\x04";
  constexpr std::string_view kPickle = "\x80\x02";
  std::string begin(kZip.size(), '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == kZip || begin.starts_with(kPickle);
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
  if (!differing.empty())
    parts.push_back("constants or tied weights of the model have other values: " + first_names(differing));
  return fmt::format("{}", fmt::join(parts, "; "));
}

Result<SafetensorsFile> read_pretrained(const PretrainedConfig& config) {
  Result<SafetensorsFile> file = read_safetensors(config.path);
  if (file || file.error().code != ExitCode::kDataErr || !is_saved_by_torch(config.path)) return file;
  return fail(
      ExitCode::kDataErr,
      fmt::format("pretrained.path: {0} was written by torch.save(), and must be safetensors; convert it: python3 "
                  "-c \"import torch; from safetensors.torch import save_file; save_file({{k: v.clone() for k, v "
                  "in torch.load('{0}', map_location='cpu').items()}}, 'weights.safetensors')\"",
                  config.path));
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
  TensorMap from = without_wrappers(std::move(tensors));
  const TensorMap to = tensors_of(module);
  std::vector<std::string> differing = remove_derived(derived_tensors(module), from);
  PretrainedReport report = compare(from, to);
  report.differing = std::move(differing);
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
