#include "trainer/engine/config.h"

#include <fmt/format.h>

#include "common/contract.h"
#include "common/files.h"

namespace oarlock {
namespace {

using yaml::MapReader;
using yaml::Node;
using yaml::Problems;

template <typename Enum>
using Names = std::vector<std::pair<std::string_view, Enum>>;

template <typename T>
void read_at_least(MapReader& reader, std::string_view key, T& target, T low) {
  if (reader.read(key, target) && target < low) reader.problem(key, fmt::format("{} is below {}", target, low));
}

void read_positive(MapReader& reader, std::string_view key, double& target) {
  if (reader.read(key, target) && !(target > 0)) reader.problem(key, fmt::format("{} is not above 0", target));
}

void read_fraction(MapReader& reader, std::string_view key, double& target) {
  if (reader.read(key, target) && !(target >= 0 && target < 1)) {
    reader.problem(key, fmt::format("{} is not in [0, 1)", target));
  }
}

void read_batch(MapReader& reader, BatchConfig& out) {
  read_at_least<int64_t>(reader, "size", out.size, 1);
  const Names<BatchPer> per = {{"device", BatchPer::kDevice}, {"global", BatchPer::kGlobal}};
  reader.read<BatchPer>("per", out.per, per);
  reader.read("drop_last", out.drop_last);
}

void read_optimizer(MapReader& reader, OptimizerConfig& out) {
  const Names<OptimizerKind> kinds = {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}};
  reader.read<OptimizerKind>("name", out.kind, kinds);
  const bool sgd = out.kind == OptimizerKind::kSgd;
  if (sgd) out.weight_decay = 0;
  read_positive(reader, "lr", out.lr);
  read_at_least<double>(reader, "weight_decay", out.weight_decay, 0);
  read_fraction(reader, "momentum", out.momentum);
  reader.read("nesterov", out.nesterov);
  std::vector<double> betas(out.betas.begin(), out.betas.end());
  if (reader.read("betas", betas)) {
    if (betas.size() != 2 || !(betas[0] >= 0 && betas[0] < 1) || !(betas[1] >= 0 && betas[1] < 1)) {
      reader.problem("betas", "expected two numbers in [0, 1)");
    } else {
      out.betas = {betas[0], betas[1]};
    }
  }
  read_positive(reader, "eps", out.eps);
  for (const char* key : {"momentum", "nesterov"}) {
    if (!sgd && reader.has(key)) reader.problem(key, "belongs to the optimizer sgd; this one is adamw");
  }
  for (const char* key : {"betas", "eps"}) {
    if (sgd && reader.has(key)) reader.problem(key, "belongs to the optimizer adamw; this one is sgd");
  }
  if (out.nesterov && out.momentum == 0) reader.problem("nesterov", "needs a momentum above 0");
}

void read_schedule(MapReader& reader, ScheduleConfig& out) {
  const Names<ScheduleKind> kinds = {{"constant", ScheduleKind::kConstant}, {"cosine", ScheduleKind::kCosine}};
  reader.read<ScheduleKind>("name", out.kind, kinds);
  read_at_least<int64_t>(reader, "warmup_steps", out.warmup_steps, 0);
}

void read_checkpoint(MapReader& reader, CheckpointConfig& out) {
  reader.read("dir", out.dir);
  read_at_least<int64_t>(reader, "every_steps", out.every_steps, 0);
  read_at_least<int64_t>(reader, "every_epochs", out.every_epochs, 0);
  read_at_least(reader, "keep", out.keep, 0);
}

void read_eval(MapReader& reader, EvalConfig& out) {
  read_at_least<int64_t>(reader, "every_epochs", out.every_epochs, 0);
  read_at_least<int64_t>(reader, "batch_size", out.batch_size, 1);
}

void read_ddp(MapReader& reader, DdpConfig& out) {
  read_positive(reader, "bucket_cap_mb", out.bucket_cap_mb);
  reader.read("gradient_as_bucket_view", out.gradient_as_bucket_view);
  reader.read("find_unused_parameters", out.find_unused_parameters);
  reader.read("static_graph", out.static_graph);
  reader.read("broadcast_buffers", out.broadcast_buffers);
}

void read_distributed(MapReader& reader, DistributedConfig& out) {
  const Names<BackendKind> backends = {
      {"auto", BackendKind::kAuto}, {"gloo", BackendKind::kGloo}, {"nccl", BackendKind::kNccl}};
  reader.read<BackendKind>("backend", out.backend, backends);
  read_positive(reader, "rendezvous_timeout_seconds", out.rendezvous_timeout_seconds);
  read_positive(reader, "timeout_seconds", out.timeout_seconds);
}

void read_loader(MapReader& reader, LoaderConfig& out) {
  read_at_least(reader, "threads", out.threads, 0);
  read_at_least(reader, "prefetch", out.prefetch, 1);
}

void read_length(MapReader& root, TrainerConfig& out) {
  root.read("epochs", out.epochs);
  root.read("steps", out.steps);
  if (out.epochs && *out.epochs < 1) root.problem("epochs", fmt::format("{} is below 1", *out.epochs));
  if (out.steps && *out.steps < 1) root.problem("steps", fmt::format("{} is below 1", *out.steps));
  if (out.epochs && out.steps) root.problem("steps", "the length is given twice; remove epochs or steps");
  if (!root.has("epochs") && !root.has("steps")) root.problem("epochs", "is required (or steps): how long to train");
}

void read_task(MapReader& root, const TaskNames& tasks, const Node& nothing, TrainerConfig& out) {
  Names<size_t> names;
  for (const std::string& name : tasks.names) names.emplace_back(name, names.size());
  root.require("task");
  std::optional<size_t> index;
  if (size_t chosen = 0; root.read<size_t>("task", chosen, names)) index = chosen;
  const Node data_node = root.take("data").value_or(nothing);
  const Node model_node = root.take("model").value_or(nothing);
  if (!index) return;  // whose sections they are is not known
  out.task = tasks.names[*index];
  MapReader data(data_node, root.path().empty() ? "data" : root.path() + ".data", root.problems());
  MapReader model(model_node, root.path().empty() ? "model" : root.path() + ".model", root.problems());
  tasks.read_sections(out.task, data, model);
  data.finish();
  model.finish();
}

void read_root(MapReader& root, const TaskNames& tasks, const Node& nothing, TrainerConfig& out) {
  read_task(root, tasks, nothing, out);
  int64_t seed = 0;
  read_at_least<int64_t>(root, "seed", seed, 0);
  out.seed = static_cast<uint64_t>(seed);
  read_length(root, out);
  root.map("batch", [&](MapReader& reader) { read_batch(reader, out.batch); });
  root.map("optimizer", [&](MapReader& reader) { read_optimizer(reader, out.optimizer); });
  root.map("schedule", [&](MapReader& reader) { read_schedule(reader, out.schedule); });
  root.map("checkpoint", [&](MapReader& reader) { read_checkpoint(reader, out.checkpoint); });
  root.map("eval", [&](MapReader& reader) { read_eval(reader, out.eval); });
  root.map("ddp", [&](MapReader& reader) { read_ddp(reader, out.ddp); });
  root.map("distributed", [&](MapReader& reader) { read_distributed(reader, out.distributed); });
  root.map("loader", [&](MapReader& reader) { read_loader(reader, out.loader); });
  root.map("log", [&](MapReader& reader) { read_at_least<int64_t>(reader, "every_steps", out.log_every_steps, 1); });
  const Names<DeviceKind> devices = {
      {"auto", DeviceKind::kAuto}, {"cpu", DeviceKind::kCpu}, {"cuda", DeviceKind::kCuda}};
  root.read<DeviceKind>("device", out.device, devices);
  read_at_least(root, "threads", out.threads, 0);
}

struct Found {
  Node node;
  std::string path;
};

std::string text_of(const Node& map, std::string_view key) {
  const std::optional<Node> value = map.find(key);
  return value ? value->text() : "";
}

tl::unexpected<Error> wrong(const std::string& file_name, std::string_view message) {
  return fail(ExitCode::kConfig, fmt::format("{}: {}", file_name, message));
}

// The trainer configuration among the documents of a file.
Result<Found> find_config(const std::vector<Node>& documents, const std::string& file_name) {
  if (documents.empty()) return wrong(file_name, "the file holds no configuration");
  std::vector<Node> jobs;
  for (const Node& document : documents) {
    if (text_of(document, "kind") == kKind) jobs.push_back(document);
  }
  if (jobs.size() > 1) {
    return wrong(file_name, fmt::format("the file holds {} TrainingJobs; give each its own file", jobs.size()));
  }
  if (jobs.empty()) {
    if (const std::string kind = text_of(documents.front(), "kind"); !kind.empty()) {
      return wrong(file_name, fmt::format("the file holds no TrainingJob, only kind '{}'", kind));
    }
    if (documents.size() > 1) return wrong(file_name, "the file holds several documents and none is a TrainingJob");
    return Found{documents.front(), ""};
  }
  const std::optional<Node> spec = jobs.front().find("spec");
  const std::optional<Node> trainer = spec ? spec->find("trainer") : std::nullopt;
  if (!trainer)
    return wrong(file_name,
                 "the TrainingJob has no spec.trainer, so there is nothing that oarlock-trainer could train");
  return Found{*trainer, "spec.trainer"};
}

}  // namespace

Result<TrainerConfig> parse_config(const std::string& text, const std::string& file_name, const TaskNames& tasks) {
  const Result<std::vector<Node>> documents = yaml::parse_all(text, file_name);
  if (!documents) return tl::make_unexpected(documents.error());
  const Result<Found> found = find_config(*documents, file_name);
  if (!found) return tl::make_unexpected(found.error());
  const Result<std::vector<Node>> nothing = yaml::parse_all("{}", file_name);
  if (!nothing) return tl::make_unexpected(nothing.error());

  TrainerConfig out;
  Problems problems(file_name);
  MapReader root(found->node, found->path, problems);
  read_root(root, tasks, nothing->front(), out);
  root.finish();
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  return out;
}

Result<TrainerConfig> load_config(const std::string& path, const TaskNames& tasks) {
  return read_file(path).and_then([&](const std::string& text) { return parse_config(text, path, tasks); });
}

Result<int64_t> batch_size_per_rank(const BatchConfig& batch, int world_size) {
  if (batch.per == BatchPer::kDevice) return batch.size;
  if (batch.size % world_size != 0) {
    return fail(ExitCode::kConfig,
                fmt::format("batch: a global batch of {} does not divide by {} ranks; choose a multiple of {}",
                            batch.size, world_size, world_size));
  }
  return batch.size / world_size;
}

}  // namespace oarlock
