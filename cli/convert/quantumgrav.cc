#include "cli/convert/converters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

#include "common/contract.h"

namespace oarlock::convert {
namespace {

using yaml::MapReader;
using yaml::Node;
using Kind = yaml::Node::Kind;

// Names of PyTorch's types and arguments, and their counterparts in the configuration of the trainer.
using NameTable = std::map<std::string, std::string>;

const NameTable& optimizer_types() {
  static const NameTable kTypes = {{"AdamW", "adamw"}, {"Adam", "adam"}, {"SGD", "sgd"}};
  return kTypes;
}

const NameTable& optimizer_arguments() {
  static const NameTable kArguments = {{"lr", "lr"},
                                       {"weight_decay", "weight_decay"},
                                       {"momentum", "momentum"},
                                       {"dampening", "dampening"},
                                       {"nesterov", "nesterov"},
                                       {"betas", "betas"},
                                       {"eps", "eps"},
                                       {"amsgrad", "amsgrad"},
                                       {"maximize", "maximize"}};
  return kArguments;
}

const NameTable& schedule_types() {
  static const NameTable kTypes = {{"StepLR", "step"},
                                   {"MultiStepLR", "multistep"},
                                   {"ExponentialLR", "exponential"},
                                   {"CosineAnnealingLR", "cosine"}};
  return kTypes;
}

const NameTable& schedule_arguments() {
  static const NameTable kArguments = {
      {"step_size", "step_size"}, {"milestones", "milestones"}, {"gamma", "gamma"}, {"T_max", "length"}};
  return kArguments;
}

// Modules and functions of torch.nn.
const NameTable& criterion_types() {
  static const NameTable kTypes = {{"CrossEntropyLoss", "cross_entropy"},
                                   {"cross_entropy", "cross_entropy"},
                                   {"MSELoss", "mse"},
                                   {"mse_loss", "mse"},
                                   {"L1Loss", "l1"},
                                   {"l1_loss", "l1"},
                                   {"SmoothL1Loss", "smooth_l1"},
                                   {"smooth_l1_loss", "smooth_l1"},
                                   {"BCEWithLogitsLoss", "bce_with_logits"},
                                   {"binary_cross_entropy_with_logits", "bce_with_logits"}};
  return kTypes;
}

// Returns "AdamW, Adam and SGD are", for messages.
std::string list_of(const NameTable& known) {
  std::vector<std::string> names;
  for (const auto& [name, ours] : known) names.push_back(name);
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} and {} are", fmt::join(names, ", "), last);
}

// Copies a value unchanged, under the name of its key in the trainer's configuration.
void copy(MapReader& from, const char* key, Json& to, const char* name) {
  const std::optional<Node> value = from.take(key);
  if (value && value->kind() != Kind::kNull) to[name] = value->to_json();
}

class Conversion {
 public:
  Conversion(std::string file, const QuantumGravOptions& options)
      : file_(std::move(file)), options_(options), problems_(file_) {}

  Result<Converted> run(const Node& root) {
    MapReader reader(root, "", problems_);
    trainer_ = {{"task", "causal_set"}};
    if (!reader.has("parallel"))
      problems_.add(root.mark(), "parallel", "the configuration must have a section 'parallel' for training with DDP");
    reader.map("training", [&](MapReader& section) { training(section); });
    read_data(reader);
    reader.map("model", [&](MapReader& section) { model(section); });
    criterion(reader);
    reader.map("parallel", [&](MapReader& section) { parallel(section); });
    reader.map("validation", [&](MapReader& section) { evaluation(section, "validator", trainer_["eval"]); });
    reader.map("testing", [&](MapReader& section) { evaluation(section, "tester", trainer_["testing"]); });
    reader.map("early_stopping", [&](MapReader& section) { early_stopping(section); });
    reader.finish();
    if (!problems_.empty()) return tl::make_unexpected(problems_.to_error());
    return Converted{job(), std::move(notes_)};
  }

 private:
  void note(MapReader& section, const char* key, const Node& value, const std::string& text) {
    const std::string path = section.path().empty() ? key : fmt::format("{}.{}", section.path(), key);
    notes_.push_back(fmt::format("{}:{}:{}: {}", file_, value.mark().line, value.mark().column, to_note(path, text)));
  }

  // Notes a key that needs no counterpart.
  void drop(MapReader& section, const char* key, const std::string& why) {
    const std::optional<Node> value = section.take(key);
    if (value && value->kind() != Kind::kNull) note(section, key, *value, why);
  }

  // Returns the last part of the name of a type, "AdamW" for "torch.optim.AdamW", written with or without !pyobject.
  static std::optional<std::string> type_of(MapReader& section, const char* key) {
    std::string name;
    if (!section.read(key, name)) return std::nullopt;
    return name.substr(name.rfind('.') + 1);
  }

  void only_empty(MapReader& section, const char* key) {
    const std::optional<Node> value = section.take(key);
    if (value && value->kind() == Kind::kSequence && !value->items().empty())
      section.problem(key, "arguments by position are not known by name; write them as keywords");
  }

  void training(MapReader& section) {
    copy(section, "seed", trainer_, "seed");
    copy(section, "num_epochs", trainer_, "epochs");
    copy(section, "batch_size", trainer_["batch"], "size");
    copy(section, "drop_last", trainer_["batch"], "drop_last");
    copy(section, "num_workers", trainer_["loader"], "threads");
    copy(section, "pin_memory", trainer_["loader"], "pin_memory");
    copy(section, "prefetch_factor", trainer_["loader"], "prefetch");
    copy(section, "path", trainer_["checkpoint"], "dir");
    copy(section, "checkpoint_at", trainer_["checkpoint"], "every_epochs");
    device(section);
    only_empty(section, "optimizer_args");
    const std::optional<std::string> optimizer = type_of(section, "optimizer_type");
    section.map("optimizer_kwargs", [&](MapReader& kwargs) { arguments(kwargs, optimizer_arguments(), "optimizer"); });
    if (optimizer) place_type(section, "optimizer_type", *optimizer, optimizer_types(), "optimizer");
    only_empty(section, "lr_scheduler_args");
    const std::optional<std::string> schedule = type_of(section, "lr_scheduler_type");
    section.map("lr_scheduler_kwargs", [&](MapReader& kwargs) { arguments(kwargs, schedule_arguments(), "schedule"); });
    if (!schedule) return;
    place_type(section, "lr_scheduler_type", *schedule, schedule_types(), "schedule");
    trainer_["schedule"]["interval"] = "epoch";
  }

  void device(MapReader& section) {
    std::string device;
    if (!section.read("device", device)) return;
    const std::string kind = device.substr(0, device.find(':'));
    if (kind != "cuda" && kind != "cpu") return section.problem("device", "is neither cuda nor cpu");
    trainer_["device"] = kind;
    if (kind != device)
      note(section, "device", *section.take("device"), "each rank takes the device of its local rank");
  }

  void place_type(MapReader& section, const char* key, const std::string& type, const NameTable& known,
                  const char* target) {
    const auto found = known.find(type);
    if (found == known.end())
      return section.problem(key, fmt::format("'{}' is not supported; {}", type, list_of(known)));
    trainer_[target]["name"] = found->second;
  }

  void arguments(MapReader& kwargs, const NameTable& known, const char* target) {
    for (const auto& [name, ours] : known) copy(kwargs, name.c_str(), trainer_[target], ours.c_str());
  }

  void read_data(MapReader& reader) {
    Json data = Json::object();
    if (const std::optional<Node> section = reader.take("data"); section && section->kind() == Kind::kMap)
      data = Json(section->to_json());
    if (data.contains("files")) {
      data["paths"] = data["files"];
      data.erase("files");
    }
    if (!options_.data.empty()) data["paths"] = options_.data;
    if (!data.contains("paths"))
      reader.problem("data", "the stores are not named; give them with --data, or as data.paths in the file");
    trainer_["data"] = std::move(data);
  }

  // The guide does not define the network. Its keys may have the names of the trainer's configuration.
  void model(MapReader& section) {
    Json out = Json::object();
    for (const char* key : {"blocks", "pooling", "tasks", "graph_features"}) copy(section, key, out, key);
    const std::optional<Node> given = section.take("type");
    if (const std::optional<std::string> type = type_of(section, "type"); type && *type != "GNNModel") {
      section.problem("type", fmt::format("'{}' is not supported; GNNModel is", *type));
    } else if (type && !out.contains("blocks")) {
      note(section, "type", *given,
           "the network of QuantumGrav's documentation; model.blocks, pooling and tasks override it");
    }
    trainer_["model"] = std::move(out);
  }

  void criterion(MapReader& reader) {
    const std::optional<Node> given = reader.take("criterion");
    const std::optional<std::string> type = type_of(reader, "criterion");
    if (!type) return;
    const auto found = criterion_types().find(*type);
    if (found == criterion_types().end())
      return note(reader, "criterion", *given,
                  fmt::format("'{}' is a custom function; each of model.tasks names its loss", *type));
    if (trainer_["model"].contains("tasks"))
      return note(reader, "criterion", *given, "each of model.tasks has its own loss");
    trainer_["model"]["tasks"] = {{{"name", "manifold_like"}, {"loss", found->second}, {"hidden", {48, 18}}}};
  }

  void parallel(MapReader& section) {
    section.read("world_size", ranks_);
    if (ranks_ < 1) section.problem("world_size", "must be at least 1");
    copy(section, "find_unused_parameters", trainer_["ddp"], "find_unused_parameters");
    drop(section, "rank", "the launcher gives each rank its number");
    drop(section, "output_device", "each rank takes the device of its local rank; gpu_ids chooses others");
    for (const char* key : {"master_addr", "master_port"}) drop(section, key, "the launcher or the operator sets it");
  }

  void evaluation(MapReader& section, const char* what, Json& out) {
    copy(section, "batch_size", out, "batch_size");
    for (const char* key : {"num_workers", "pin_memory", "prefetch_factor"}) section.take(key);  // training's
    bool drop_last = false;
    if (section.read("drop_last", drop_last) && drop_last)
      note(section, "drop_last", *section.take("drop_last"), "every sample is evaluated, once");
    section.map(what, [](MapReader& inner) { inner.take("device"); });  // it is training's
  }

  void early_stopping(MapReader& section) {
    if (const std::optional<std::string> type = type_of(section, "type"); type && *type != "DefaultEarlyStopping")
      section.problem("type", fmt::format("'{}' is not supported; DefaultEarlyStopping is", *type));
    only_empty(section, "args");
    Json& out = trainer_["early_stopping"];
    section.map("kwargs", [&](MapReader& kwargs) {
      copy(kwargs, "patience", out, "patience");
      copy(kwargs, "mode", out, "aggregate");
      const std::optional<Node> tasks = kwargs.take("tasks");
      if (!tasks || tasks->kind() != Kind::kMap) return;
      for (const Node::Entry& entry : tasks->entries()) {
        MapReader task(entry.value, fmt::format("{}.tasks.{}", kwargs.path(), entry.key), problems_);
        Json metric = Json::object();
        copy(task, "metric", metric, "name");
        copy(task, "mode", metric, "mode");
        copy(task, "delta", metric, "min_delta");
        copy(task, "grace_period", metric, "grace_period");
        copy(task, "init_best_score", metric, "init_best_score");
        task.finish();
        out["metrics"].push_back(std::move(metric));
      }
    });
  }

  Json job() {
    Json trainer = Json::object();
    for (const auto& [key, value] : trainer_.items())
      if (!value.is_null() && !(value.is_object() && value.empty())) trainer[key] = value;
    Json container = {{"name", "trainer"}, {"image", options_.image}};
    if (trainer_.value("device", "") == "cuda") container["resources"] = {{"limits", {{"nvidia.com/gpu", ranks_}}}};
    return {{"apiVersion", kApiVersion},
            {"kind", kKind},
            {"metadata", {{"name", options_.name}}},
            {"spec",
             {{"nodes", 1},
              {"processesPerNode", ranks_},
              {"trainer", trainer},
              {"template", {{"spec", {{"containers", Json::array({container})}}}}}}}};
  }

  std::string file_;
  const QuantumGravOptions& options_;
  yaml::Problems problems_;
  std::vector<std::string> notes_;
  Json trainer_;
  int ranks_ = 1;
};

}  // namespace

Result<Converted> convert_quantumgrav(const Node& root, const std::string& file, const QuantumGravOptions& options) {
  return Conversion(file, options).run(root);
}

}  // namespace oarlock::convert
