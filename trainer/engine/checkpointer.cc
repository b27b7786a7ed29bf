#include "trainer/engine/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/work_progress.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/nn/module_tensors.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

constexpr char kTask[] = "task";  // keys of "extra" in state.json
constexpr char kSeed[] = "seed";
constexpr char kBest[] = "best";
constexpr char kSettings[] = "settings";
constexpr char kData[] = "data";
constexpr char kExtra[] = "the member 'extra'";
constexpr char kReading[] = "checkpoints were read; a new start reads them again";
constexpr char kReduction[] = "reduction";  // also the name of a file of tensors
constexpr auto kHighWaterInterval = std::chrono::milliseconds(500);
constexpr std::chrono::milliseconds kStopGrace{500};           // until reading is abandoned
constexpr std::chrono::milliseconds kHighWaterPatience{1000};  // until the last mark is written
constexpr std::chrono::milliseconds kMarksPatience{1000};      // until the marks are read, while other ranks wait

// While rank 0 waits for a save, the ranks exchange messages at this interval.
constexpr std::chrono::milliseconds kWaitInterval{200};
// How long a stop waits for a save that makes no progress. With the delivery of tracked points this must fit into the
// grace period of a pod, which is 30 s by default. The files of a save may be synced at this rate, during which
// its progress is unknown.
constexpr std::chrono::seconds kStopPatience{15};
constexpr int64_t kSlowestSync = int64_t{16} << 20;  // bytes per second

TensorMap model_tensors(DistributedDataParallel& model) {
  TensorMap out;
  for (const NamedTensor& item : model.parameters()) out[item.name] = item.tensor.detach();
  for (const NamedTensor& item : model.buffers()) out[item.name] = item.tensor.detach();
  return out;
}

// Adds the tensors that Python's load_state_dict() expects in addition to the state.
void add_derived(const torch::nn::Module& module, TensorMap& tensors) {
  DerivedTensors derived = derived_tensors(module);
  for (const auto& [name, first] : derived.ties) tensors[name] = tensors.at(first);
  tensors.merge(std::move(derived.constants));
}

TensorMap without_derived(const torch::nn::Module& module, TensorMap tensors) {
  const DerivedTensors derived = derived_tensors(module);
  for (const auto& [name, first] : derived.ties) tensors.erase(name);
  for (const auto& [name, value] : derived.constants) tensors.erase(name);
  return tensors;
}

TensorSections live_tensors(DistributedDataParallel& model, const std::vector<Stateful*>& parts) {
  TensorSections out;
  out[kModelTensors] = model_tensors(model);
  for (const Stateful* part : parts) {
    if (TensorMap tensors = part->tensors(); !tensors.empty()) out[std::string(part->section())] = std::move(tensors);
  }
  return out;
}

std::string joined_names(const Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::vector<at::Tensor> values(const TensorMap& tensors) {
  std::vector<at::Tensor> out;
  for (const auto& [name, tensor] : tensors) out.push_back(tensor);
  return out;
}

double seconds_between(SteadyTime begin, SteadyTime end) { return std::chrono::duration<double>(end - begin).count(); }

// Reads values of state.json, of which only the general form has been checked. Its checksum was right, so that values
// of other types are those of a later release, and not damage.
Result<void> read_known(const std::filesystem::path& state_file, const std::string& what,
                        const std::function<Result<void>()>& read) {
  std::string reason;
  try {
    Result<void> known = read();
    if (known || known.error().code != ExitCode::kDataErr) return known;
    reason = std::move(known.error().message);
  } catch (const Json::exception& error) {
    reason = error.what();
  }
  return unknown_checkpoint(state_file, fmt::format("this release does not know {} ({})", what, printable(reason)));
}

Result<void> check_identity(const Json& extra, const RunIdentity& identity, const std::string& folder) {
  const std::string task = extra.value(kTask, identity.task);
  const uint64_t seed = extra.value(kSeed, identity.seed);
  if (task != identity.task) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: the checkpoint is of the task '{}', the configuration has '{}'; use another "
                            "checkpoint.dir",
                            folder, task, identity.task));
  }
  if (seed != identity.seed) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: the checkpoint was trained with seed {}, the configuration has {}; restore the seed, "
                            "or use another checkpoint.dir",
                            folder, seed, identity.seed));
  }
  return {};
}

const TensorMap& tensors_of(const Checkpoint& checkpoint, std::string_view section) {
  static const TensorMap kNothing;
  const auto found = checkpoint.tensors.find(std::string(section));
  return found == checkpoint.tensors.end() ? kNothing : found->second;
}

std::string name_of(const Stateful& part) { return std::string(part.section()); }

// The part of the state that the other ranks need in addition to the tensors.
std::string for_other_ranks(const CheckpointState& state, const Json& reduction) {
  return Json{{"step", state.step},
              {"epoch", state.epoch},
              {"epoch_samples", state.epoch_samples},
              {"sections", state.sections},
              {kReduction, reduction}}
      .dump();
}

bool is_better(MetricMode mode, double value, double than) {
  return mode == MetricMode::kMin ? value < than : value > than;
}

const char* name_of(MetricMode mode) { return mode == MetricMode::kMin ? "min" : "max"; }

}  // namespace

CheckpointerOptions checkpointer_options(const CheckpointConfig& config, const CheckpointOwner& owner,
                                         RunIdentity identity, const Monitor& monitor) {
  CheckpointerOptions out;
  out.store = {.root = config.dir, .owner = owner, .keep = config.keep};
  out.identity = std::move(identity);
  out.on_error = config.on_error;
  out.on_all_damaged = config.on_all_damaged;
  if (config.best.save) {
    out.best = config.best.metric.empty() ? monitor : Monitor{.metric = config.best.metric, .mode = config.best.mode};
  }
  return out;
}

// ---- opening and restoring -----------------------------------------------------------------------------------------

Checkpointer::Checkpointer(CheckpointerOptions options, const ProcessGroup& group, StopAgreement& stop,
                           Telemetry& telemetry, const Clock& clock)
    : options_(std::move(options)), group_(group), stop_(stop), telemetry_(telemetry), clock_(clock) {}

Checkpointer::~Checkpointer() = default;

Result<std::unique_ptr<Checkpointer>> Checkpointer::open(const CheckpointerOptions& options, const ProcessGroup& group,
                                                         StopAgreement& stop, Telemetry& telemetry,
                                                         const Clock& clock) {
  std::unique_ptr<Checkpointer> out(new Checkpointer(options, group, stop, telemetry, clock));
  Result<std::unique_ptr<CheckpointStore>> store = read_on_rank_0<std::unique_ptr<CheckpointStore>>(
      [store = options.store, logger = telemetry.logger()] { return CheckpointStore::open(store, logger); }, group,
      stop, kReading);
  if (stop.agreed()) return tl::make_unexpected(store.error());
  const bool needs_store = !options.is_replacement || options.on_error == CheckpointErrors::kStop;
  if (!store && !needs_store && !is_fenced_off(store.error())) {
    telemetry.logger().warn("the checkpoint folder is not available; the next save tries again",
                            {{"folder", options.store.root.string()}, {"reason", store.error().message}});
    store = CheckpointStore::open_unclaimed(options.store, telemetry.logger());
  }
  RETURN_IF_ERROR(group.agree(store.map([](const auto&) {})));
  if (group.rank() == 0) {
    out->store_ = std::make_unique<AsyncCheckpointStore>(std::move(*store), clock);
    out->high_water_ = std::make_unique<AsyncHighWater>(options.store.root);
  }
  return out;
}

// Returns for_other_ranks() as JSON, or "" if there is no checkpoint.
Result<std::string> Checkpointer::load_newest(const Found& found, DistributedDataParallel& model,
                                              const std::vector<Stateful*>& parts) {
  const CheckpointSearch& search = found.latest.search;
  for (const SkippedCheckpoint& skipped : search.skipped) {
    telemetry_.logger().warn("a checkpoint is not valid and was skipped",
                             {{"folder", skipped.folder.string()}, {"reason", skipped.reason}});
  }
  high_water_step_ = found.high_water_step;
  if (!found.latest.checkpoint) {
    RETURN_IF_ERROR(check_restart(search));
    return "";
  }
  const Checkpoint& checkpoint = *found.latest.checkpoint;
  const CheckpointState& state = checkpoint.state;
  RETURN_IF_ERROR(read_known(*search.folder / kStateFile, kExtra,
                             [&] { return check_identity(state.extra, options_.identity, search.folder->string()); }));
  RETURN_IF_ERROR(check_changes(state, *search.folder));
  RETURN_IF_ERROR(restore_marks(state, *search.folder));
  RETURN_IF_ERROR(load(checkpoint, model, parts));
  warn_of_sections(checkpoint, parts);
  keep_reduction(checkpoint, model);
  last_save_ = Position{state.step, state.epoch, state.epoch_samples};
  return for_other_ranks(state, reduction_.values);
}

// Checkpoints of older releases have neither settings nor data.
Result<void> Checkpointer::check_changes(const CheckpointState& state, const std::filesystem::path& folder) const {
  const AgreedValues settings = agreed_values_from_json(state.extra.value(kSettings, Json()));
  const AgreedValues data = agreed_values_from_json(state.extra.value(kData, Json()));
  const int64_t samples = options_.identity.train_samples;
  // The last step of an epoch may have counted some samples twice, so that each rank had the same number.
  if (samples >= 0 && state.epoch_samples >= samples + state.world_size) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: the checkpoint has trained on {} samples of its epoch, but the training data have {}; "
                            "restore the data, or use another checkpoint.dir",
                            folder.string(), state.epoch_samples, samples));
  }
  if (!data.empty() && data != options_.identity.data) {
    telemetry_.logger().warn("the data changed since the checkpoint",
                             {{"changes", changes(data, options_.identity.data)}, {"step", state.step}});
  }
  AgreedValues before = settings;
  AgreedValues now = options_.identity.settings;
  if (before.empty()) now.clear();
  if (state.world_size != group_.world_size()) {
    before["ranks"] = fmt::format("{}", state.world_size);
    now["ranks"] = fmt::format("{}", group_.world_size());
  }
  if (before != now) {
    telemetry_.logger().info("the configuration changed since the checkpoint",
                             {{"changes", changes(before, now)}, {"step", state.step}});
  }
  return {};
}

// Called if no checkpoint is valid.
Result<void> Checkpointer::check_restart(const CheckpointSearch& search) const {
  if (!search.skipped.empty() && options_.on_all_damaged == AllDamaged::kStop) {
    return fail(
        ExitCode::kCheckpoint,
        fmt::format("{}: every checkpoint is damaged ({}), the newest: {}; nothing was changed: put one back, or "
                    "set checkpoint.on_all_damaged to restart to set them aside and train from the beginning",
                    options_.store.root.string(), search.skipped.size(), search.skipped.front().reason));
  }
  return {};
}

// The run will reach the steps of the `damaged` checkpoints of rank 0 again, and must not write over them. A crash may
// have prevented that the links are set to the checkpoint that was restored, if any.
Result<void> Checkpointer::repair_folder(const std::vector<SkippedCheckpoint>& damaged, bool is_restored) {
  struct Repairs {
    std::vector<Result<std::filesystem::path>> set_aside;
    Result<void> links;
  };
  const std::shared_ptr<const CheckpointStore> store = store_ ? store_->store() : nullptr;
  const Result<Repairs> repairs = read_on_rank_0<Repairs>(
      [damaged, store, is_restored, step = known_step_,
       best = best_ ? std::optional(best_->step) : std::nullopt]() -> Result<Repairs> {
        Repairs out;
        for (const SkippedCheckpoint& skipped : damaged) {
          out.set_aside.push_back(store->set_aside(skipped.folder));
          if (!out.set_aside.back() && is_fenced_off(out.set_aside.back().error())) return out;
        }
        if (is_restored) out.links = store->repair_links(step, best);
        return out;
      },
      group_, stop_, kReading);
  if (!repairs) return tl::make_unexpected(repairs.error());
  for (const Result<std::filesystem::path>& aside : repairs->set_aside) {
    if (aside) {
      telemetry_.logger().warn("a damaged checkpoint was set aside; remove it when it is no longer needed",
                               {{"folder", aside->string()}});
    } else if (is_fenced_off(aside.error())) {
      return tl::make_unexpected(aside.error());
    } else {  // a save of its step will try again, and fail rather than replace it
      telemetry_.logger().warn("a damaged checkpoint could not be set aside", {{"reason", aside.error().message}});
    }
  }
  if (repairs->links) return {};
  if (const auto error = fatal(repairs->links)) return tl::make_unexpected(*error);
  telemetry_.logger().warn("the links to the checkpoints could not be set; the next save tries again",
                           {{"reason", repairs->links.error().message}});
  last_save_.reset();
  return {};
}

// As load_newest(). Without a best checkpoint it returns "".
Result<std::string> Checkpointer::load_best(const Result<std::optional<Checkpoint>>& best,
                                            DistributedDataParallel& model, const std::vector<Stateful*>& parts) {
  if (!best && best.error().code == ExitCode::kNoInput) {
    telemetry_.logger().warn("the best checkpoint no longer exists: the last weights are used instead",
                             {{"reason", best.error().message}});
    return "";
  }
  if (!best) return tl::make_unexpected(best.error());
  if (!*best) return "";
  RETURN_IF_ERROR(load(**best, model, parts));
  return for_other_ranks((*best)->state, nullptr);
}

Result<void> Checkpointer::load(const Checkpoint& checkpoint, DistributedDataParallel& model,
                                const std::vector<Stateful*>& parts) {
  Result<void> loaded = copy_tensors(without_derived(model.module(), tensors_of(checkpoint, kModelTensors)),
                                     model_tensors(model), kModelTensors);
  for (const Stateful* part : parts) {
    if (!loaded || !checkpoint.state.sections.contains(name_of(*part))) continue;
    loaded = copy_tensors(tensors_of(checkpoint, part->section()), part->tensors(), name_of(*part));
  }
  return loaded;
}

void Checkpointer::warn_of_sections(const Checkpoint& checkpoint, const std::vector<Stateful*>& parts) {
  std::set<std::string> names;
  for (const Stateful* part : parts) {
    names.insert(name_of(*part));
    if (checkpoint.state.sections.contains(name_of(*part))) continue;
    telemetry_.logger().warn(
        "the checkpoint has no such section, which the configuration now needs: it starts with its initial state",
        {{"section", name_of(*part)}, {"step", checkpoint.state.step}});
  }
  for (const auto& [name, values] : checkpoint.state.sections.items()) {
    if (names.contains(name)) continue;
    telemetry_.logger().warn("the checkpoint has a section that the configuration does not use: it is ignored",
                             {{"section", name}, {"step", checkpoint.state.step}});
  }
}

void Checkpointer::keep_reduction(const Checkpoint& checkpoint, const DistributedDataParallel& model) {
  reduction_ = {checkpoint.state.extra.value(kReduction, Json()), tensors_of(checkpoint, kReduction)};
  const std::string why = model.drop_incompatible_state(reduction_, checkpoint.state.world_size);
  if (!why.empty())
    telemetry_.logger().warn("PowerSGD starts with plain averaging: its state cannot be restored",
                             {{"reason", why}, {"step", checkpoint.state.step}});
}

Result<void> Checkpointer::restore_marks(const CheckpointState& state, const std::filesystem::path& folder) {
  folder_ = folder.string();
  known_step_ = state.step;
  high_water_step_ = std::max({high_water_step_, state.high_water_step, state.step});
  return read_known(folder / kStateFile, kExtra, [&]() -> Result<void> {
    const Json best = state.extra.value(kBest, Json());
    if (!options_.best || !best.is_object()) return {};
    if (best.value("metric", "") != options_.best->metric || best.value("mode", "") != name_of(options_.best->mode)) {
      telemetry_.logger().warn(
          "the best checkpoint was chosen by another metric: the next evaluation counts as the best",
          {{"metric", best.value("metric", "")}});
      return {};
    }
    best_ = Best{.step = best.value("step", int64_t{0}), .value = best.value("value", 0.0)};
    return {};
  });
}

Result<std::optional<Position>> Checkpointer::restore(DistributedDataParallel& model,
                                                      const std::vector<Stateful*>& parts) {
  telemetry_.enter(Phase::kRestore);
  const SteadyTime begin = clock_.steady();
  Result<Found> found = read_on_rank_0<Found>(
      [root = options_.store.root]() -> Result<Found> {
        ASSIGN_OR_RETURN(LatestCheckpoint latest, read_latest_checkpoint(root));
        return Found{.latest = std::move(latest), .high_water_step = read_high_water(root)};
      },
      group_, stop_, kReading);
  if (stop_.agreed()) return tl::make_unexpected(found.error());
  Result<std::string> own = "";
  std::vector<SkippedCheckpoint> damaged;
  if (group_.rank() == 0) {
    own = found.and_then([&](const Found& read) { return load_newest(read, model, parts); });
    if (own) damaged = found->latest.search.skipped;
  }
  found = Found{};  // its memory
  const Result<void> repaired = repair_folder(damaged, own && !own->empty());
  if (stop_.agreed()) return tl::make_unexpected(repaired.error());
  if (own && !repaired) own = tl::make_unexpected(repaired.error());
  if (group_.rank() == 0 && own && own->empty() && high_water_step_ > 0)
    telemetry_.logger().warn("there is no checkpoint: training starts from the beginning",
                             {{"lost_steps", high_water_step_}});
  if (!own) telemetry_.record_checkpoint_failure(/*save=*/false);
  ASSIGN_OR_RETURN(const std::string shared, group_.broadcast(own));
  if (group_.rank() == 0 && !shared.empty())
    telemetry_.record_checkpoint_restored(known_step_, folder_, seconds_between(begin, clock_.steady()),
                                          high_water_step_ - known_step_);
  if (group_.rank() == 0) copy_.reserve(live_tensors(model, parts));
  if (shared.empty()) return std::nullopt;
  const Json json = Json::parse(shared);
  RETURN_IF_ERROR(broadcast(json, model, parts));
  model.load_reduction_state({json[kReduction], std::exchange(reduction_.tensors, {})});
  const Position position{json["step"], json["epoch"], json["epoch_samples"]};
  if (group_.rank() != 0) telemetry_.record_known_checkpoint(position.step);
  known_step_ = position.step;
  return position;
}

Result<std::optional<int64_t>> Checkpointer::restore_best(DistributedDataParallel& model,
                                                          const std::vector<Stateful*>& parts) {
  telemetry_.enter(Phase::kRestore);
  const Result<std::optional<Checkpoint>> best = read_on_rank_0<std::optional<Checkpoint>>(
      [root = options_.store.root, is_tracked = options_.best.has_value(),
       step = best_ ? std::optional(best_->step) : std::nullopt]() -> Result<std::optional<Checkpoint>> {
        if (!is_tracked) return std::nullopt;
        // The step is valid also if the links "best" and "last" could not be written.
        const std::optional<std::string> name =
            step ? std::optional(checkpoint_folder_name(*step)) : link_target(root, kBestLink);
        if (!name) return std::nullopt;
        ASSIGN_OR_RETURN(Checkpoint read, read_checkpoint(root / *name));
        return read;
      },
      group_, stop_, kReading);
  if (stop_.agreed()) return tl::make_unexpected(best.error());
  ASSIGN_OR_RETURN(const std::string shared,
                   group_.broadcast(group_.rank() == 0 ? load_best(best, model, parts) : Result<std::string>("")));
  if (shared.empty()) return std::nullopt;
  const Json json = Json::parse(shared);
  RETURN_IF_ERROR(broadcast(json, model, parts));
  return json["step"].get<int64_t>();
}

// Distributes the state that rank 0 has loaded to all ranks.
Result<void> Checkpointer::broadcast(const Json& state, DistributedDataParallel& model,
                                     const std::vector<Stateful*>& parts) {
  model.broadcast_state();
  for (Stateful* part : parts) {
    const auto saved = state["sections"].find(name_of(*part));
    const bool found = saved != state["sections"].end();
    if (const TensorMap tensors = part->tensors(); found && !tensors.empty()) group_.broadcast(values(tensors));
    if (!found) {
      RETURN_IF_ERROR(part->missing());
      continue;
    }
    RETURN_IF_ERROR(read_known(options_.store.root / checkpoint_folder_name(state["step"]) / kStateFile,
                               fmt::format("the section '{}'", part->section()),
                               [&] { return part->restored(*saved); }));
  }
  return {};
}

// ---- saving --------------------------------------------------------------------------------------------------------

Result<bool> Checkpointer::evaluated(int64_t step, const Metrics& metrics) {
  if (!options_.best) return false;
  const auto metric = metrics.find(options_.best->metric);
  if (metric == metrics.end()) {
    return fail(ExitCode::kConfig, fmt::format("checkpoint.best.metric: the evaluation has no metric '{}', only {}",
                                               options_.best->metric, joined_names(metrics)));
  }
  Result<std::string> own = "";
  if (group_.rank() == 0) {
    const double value = metric->second;
    static_cast<void>(read_missing_marks());  // otherwise, the next save compares the value
    const std::optional<Best>& before = candidate_ ? candidate_ : best_;
    const bool better = std::isfinite(value) && (!before || is_better(options_.best->mode, value, before->value));
    own = better ? "better" : "";
  }
  ASSIGN_OR_RETURN(const std::string answer, group_.broadcast(own));
  const bool is_best = !answer.empty();
  if (is_best) candidate_ = Best{.step = step, .value = metric->second};
  return is_best;
}

std::optional<BestEvaluation> Checkpointer::best() const {
  if (!options_.best || !best_) return std::nullopt;
  return BestEvaluation{.metric = options_.best->metric, .value = best_->value, .step = best_->step};
}

bool Checkpointer::is_saved(const Position& position) const {
  return last_save_ == position && !(candidate_ && candidate_->step == position.step);
}

void Checkpointer::begin_save(const Position& position, DistributedDataParallel& model,
                              const std::vector<Stateful*>& parts, ReductionState reduction) {
  std::set<std::string> written_in_forward;
  for (const NamedTensor& item : model.buffers()) written_in_forward.insert(item.name);
  copy_.begin(live_tensors(model, parts), written_in_forward);
  high_water_step_ = std::max(high_water_step_, position.step);
  Checkpoint checkpoint;
  checkpoint.state.step = position.step;
  checkpoint.state.high_water_step = high_water_step_;
  checkpoint.state.epoch = position.epoch;
  checkpoint.state.epoch_samples = position.epoch_samples;
  checkpoint.state.world_size = group_.world_size();
  checkpoint.state.extra = {{kTask, options_.identity.task},
                            {kSeed, options_.identity.seed},
                            {kSettings, to_json_object(options_.identity.settings)},
                            {kData, to_json_object(options_.identity.data)}};
  for (const Stateful* part : parts) checkpoint.state.sections[name_of(*part)] = part->values();
  if (candidate_ && candidate_->step != position.step) candidate_.reset();  // the model has changed since
  const std::optional<Best>& best = candidate_ ? candidate_ : best_;
  if (best) {
    checkpoint.state.extra[kBest] = {{"step", best->step},
                                     {"value", best->value},
                                     {"metric", options_.best->metric},
                                     {"mode", name_of(options_.best->mode)}};
  }
  checkpoint.tensors = copy_.tensors();
  checkpoint.model_metadata = options_.model_metadata;
  add_derived(model.module(), checkpoint.tensors[kModelTensors]);
  if (!reduction.values.is_null()) checkpoint.state.extra[kReduction] = std::move(reduction.values);
  if (!reduction.tensors.empty()) checkpoint.tensors[kReduction] = std::move(reduction.tensors);
  last_save_ = position;
  store_->set_generation(options_.store.owner.generation);
  store_->start(std::move(checkpoint), best ? std::optional(best->step) : std::nullopt, [this] {
    copy_.finish();
    if (before_commit_) before_commit_();
  });
}

void Checkpointer::wait_for_copy() {
  if (!copy_.released()) telemetry_.enter(Phase::kCheckpoint);
  copy_.wait_for_release();
}

// Records and reports the outcome of a save.
Result<void> Checkpointer::finish_save(std::optional<FinishedSave> finished) {
  if (!finished) return {};
  const CheckpointState& state = finished->state;
  if (!finished->result) {
    last_save_.reset();
    telemetry_.record_checkpoint_failure(/*save=*/true);
    telemetry_.logger().warn("a checkpoint could not be saved; the older ones are intact",
                             {{"step", state.step}, {"reason", finished->result.error().message}});
    return tl::make_unexpected(finished->result.error());
  }
  if (candidate_ && candidate_->step == state.step) best_ = std::exchange(candidate_, std::nullopt);
  known_step_ = state.step;
  folder_ = finished->result->folder.string();
  telemetry_.record_checkpoint_saved(state.step, folder_, finished->result->bytes, finished->seconds);
  if (!finished->result->links) {
    last_save_.reset();  // the last save of the run sets them again
    telemetry_.record_checkpoint_failure(/*save=*/true);
    telemetry_.logger().warn("a checkpoint is saved, but the links to the checkpoints could not be set",
                             {{"step", state.step}, {"reason", finished->result->links.error().message}});
  }
  return finished->result->links;
}

std::function<Result<void>()> Checkpointer::writer_check() const {
  return [root = options_.store.root, owner = options_.store.owner]() -> Result<void> {
    Result<void> admitted = check_fence(root, owner);
    return admitted || is_fenced_off(admitted.error()) ? admitted : Result<void>();
  };
}

std::optional<Error> Checkpointer::fatal(const Result<void>& saved) const {
  if (saved) return std::nullopt;
  if (is_fenced_off(saved.error()) || options_.on_error == CheckpointErrors::kStop) return saved.error();
  return std::nullopt;
}

// Broadcasts rank 0's result and the step of the newest checkpoint.
Result<void> Checkpointer::share_result(const Result<void>& own) {
  ASSIGN_OR_RETURN(const std::string shared, group_.broadcast(own.map([&] { return std::to_string(known_step_); })));
  const int64_t step = std::stoll(shared);
  if (step != known_step_) telemetry_.record_known_checkpoint(step);
  known_step_ = step;
  return {};
}

// Whether a stop no longer waits for a save that has written so many bytes and made no progress since.
bool Checkpointer::has_given_up(SteadyTime since, int64_t written) const {
  return is_abandoned_ || clock_.steady() - since > kStopPatience + std::chrono::seconds(written / kSlowestSync);
}

// Returns the outcome of the save in flight on rank 0, or nothing without one. Returns kTempFail if the ranks agree to
// stop and it makes no progress. The ranks exchange messages meanwhile, so that it may take longer than a collective
// may.
Result<std::optional<FinishedSave>> Checkpointer::wait_for_save() {
  int64_t written = 0;
  SteadyTime since = clock_.steady();  // of the last progress, or of the agreement to stop
  for (;;) {
    if (store_ && !finished_) finished_ = store_->wait(kWaitInterval);
    const bool is_waiting = store_ && store_->is_busy();
    const int64_t progress = work_progress(LongWork::kSave).done;
    if (!stop_.agreed() || std::exchange(written, progress) != progress) since = clock_.steady();
    is_abandoned_ = is_waiting && stop_.agreed() && has_given_up(since, written);
    std::array<double, 2> state = {is_waiting ? 1.0 : 0.0, is_abandoned_ ? 1.0 : 0.0};
    group_.all_reduce_sum(state);
    if (state[1] > 0) {
      return fail(ExitCode::kTempFail,
                  fmt::format("interrupted by a signal while {} does not respond: the last save is not complete, and a "
                              "new start resumes from an older checkpoint",
                              options_.store.root.string()));
    }
    if (state[0] == 0) return std::exchange(finished_, std::nullopt);
    stop_.agree();
  }
}

Result<void> Checkpointer::save(const Position& position, DistributedDataParallel& model,
                                const std::vector<Stateful*>& parts, SaveUntil until) {
  telemetry_.enter(Phase::kCheckpoint);
  model.synchronize_reduction_state();
  requested_step_ = position.step;
  Result<std::optional<FinishedSave>> earlier = wait_for_save();
  if (!earlier) return tl::make_unexpected(earlier.error());
  Result<void> own;
  bool due = false;
  if (group_.rank() == 0) {
    if (!failure_) failure_ = fatal(finish_save(*std::move(earlier)));
    if (failure_) own = tl::make_unexpected(*failure_);
    const Result<void> marks = own ? read_missing_marks() : own;
    due = own && marks && !is_saved(position);
    if (own && !marks) {
      FinishedSave failed{.state = {}, .result = tl::make_unexpected(marks.error()), .seconds = 0};
      failed.state.step = position.step;
      const Result<void> reported = finish_save(std::move(failed));
      if (until == SaveUntil::kOnDisk) own = reported;
    }
  }
  if (model.is_reduction_state_collective()) due = !group_.broadcast(std::string(due ? "due" : "")).empty();
  ReductionState reduction = due ? model.reduction_state() : ReductionState{};
  if (group_.rank() == 0 && due) begin_save(position, model, parts, std::move(reduction));
  if (until == SaveUntil::kOnDisk) {
    if (high_water_) high_water_->raise(position.step);
    Result<std::optional<FinishedSave>> finished = wait_for_save();
    if (!finished) return tl::make_unexpected(finished.error());
    if (due) own = finish_save(*std::move(finished));
    if (high_water_) high_water_->flush(kHighWaterPatience);
  }
  return share_result(own);
}

// ---- recovery without a checkpoint -----------------------------------------------------------------------------

Json Checkpointer::state_for_joining() const {
  Json out = {{"known_step", known_step_}, {"requested_step", requested_step_}};
  if (candidate_) out["candidate"] = {{"step", candidate_->step}, {"value", candidate_->value}};
  return out;
}

void Checkpointer::undo_evaluation(const Json& state) {
  candidate_.reset();
  if (state.contains("candidate"))
    candidate_ = Best{.step = state["candidate"].at("step"), .value = state["candidate"].at("value")};
}

void Checkpointer::take_state(const Json& state) {
  undo_evaluation(state);
  requested_step_ = state.at("requested_step");
  known_step_ = std::max(known_step_, state.at("known_step").get<int64_t>());
}

Result<bool> Checkpointer::join(bool is_new, DistributedDataParallel& model, const std::vector<Stateful*>& parts) {
  if (!is_new) return false;
  if (group_.rank() != 0) {
    if (known_step_ >= 0) telemetry_.record_known_checkpoint(known_step_);
    return false;
  }
  copy_.reserve(live_tensors(model, parts));
  const int64_t known = std::exchange(known_step_, -1);  // what is on disk counts
  const Result<Marks> marks = read_marks(std::chrono::milliseconds::max());
  if (!marks && options_.on_error == CheckpointErrors::kContinue) {
    if (stop_.flag().is_raised())
      return fail(ExitCode::kTempFail, std::string("interrupted by a signal while ") + kReading);
    telemetry_.logger().warn("the newest checkpoint cannot be read; the next save tries again",
                             {{"reason", marks.error().message}});
    known_step_ = known;
    lacks_marks_ = true;
    return requested_step_ >= 0;
  }
  if (!marks) return tl::make_unexpected(marks.error());
  RETURN_IF_ERROR(take_marks(*marks));
  forget_worse_candidate();
  // A checkpoint may be saved again, with the mark of the best one, after an evaluation at the end of an epoch.
  const bool has_mark =
      !candidate_ || candidate_->step != requested_step_ || (best_ && best_->step == candidate_->step);
  return requested_step_ > known_step_ || (requested_step_ >= 0 && !marks->is_last) || !has_mark;
}

// Reads the marks of the newest checkpoint on disk. The other ranks wait in a collective, so that the time may be
// limited.
Result<Checkpointer::Marks> Checkpointer::read_marks(std::chrono::milliseconds limit) const {
  std::optional<Result<Marks>> marks = run_interruptibly<Result<Marks>>(
      [root = options_.store.root]() -> Result<Marks> {
        // A folder that is missing is not one without checkpoints: its volume may not be mounted.
        RETURN_IF_ERROR(make_writable_folder(root));
        Marks out{.high_water_step = read_high_water(root), .latest = {}, .is_last = false};
        ASSIGN_OR_RETURN(out.latest, read_latest_state(root));
        const std::optional<std::filesystem::path>& folder = out.latest.search.folder;
        out.is_last = folder && link_target(root, kLastLink) == folder->filename();
        return out;
      },
      stop_.flag(), kStopGrace, limit);
  if (marks) return std::move(*marks);
  if (stop_.flag().is_raised())
    return fail(ExitCode::kTempFail, std::string("interrupted by a signal while ") + kReading);
  return fail(ExitCode::kIoErr, fmt::format("{} does not respond", options_.store.root.string()));
}

// The other ranks have the state of the run, so that damaged checkpoints do not end the run: they are left as they are.
Result<void> Checkpointer::take_marks(const Marks& marks) {
  high_water_step_ = std::max(high_water_step_, marks.high_water_step);
  for (const SkippedCheckpoint& damaged : marks.latest.search.skipped)
    telemetry_.logger().warn("a checkpoint is damaged; the ranks continue from memory", {{"reason", damaged.reason}});
  if (!marks.latest.search.folder) return {};
  RETURN_IF_ERROR(restore_marks(*marks.latest.state, *marks.latest.search.folder));
  telemetry_.record_known_checkpoint(known_step_);
  return {};
}

void Checkpointer::forget_worse_candidate() {
  if (!candidate_ || !best_ || candidate_->step == best_->step) return;
  if (!is_better(options_.best->mode, candidate_->value, best_->value)) candidate_.reset();
}

// Reads the marks on rank 0 if the folder was not available when this rank replaced a lost one. Without them, a save
// would remove the best checkpoint as an old one.
Result<void> Checkpointer::read_missing_marks() {
  if (!lacks_marks_) return {};
  ASSIGN_OR_RETURN(const Marks marks, read_marks(kMarksPatience));
  RETURN_IF_ERROR(take_marks(marks));
  lacks_marks_ = false;
  forget_worse_candidate();
  high_water_ = std::make_unique<AsyncHighWater>(options_.store.root);
  return {};
}

bool Checkpointer::poll(int64_t step) {
  if (group_.rank() != 0) return false;
  if (const SteadyTime now = clock_.steady(); now - high_water_time_ >= kHighWaterInterval) {
    high_water_time_ = now;
    high_water_->raise(step);
  }
  if (!failure_ && store_->is_busy()) failure_ = fatal(finish_save(store_->poll()));
  return failure_.has_value();
}

Result<void> Checkpointer::agree_on_failure() {
  Result<std::string> own = "";
  if (failure_) own = tl::make_unexpected(*failure_);
  return group_.broadcast(own).map([](const std::string&) {});
}

void Checkpointer::settle(std::chrono::milliseconds patience) {
  if (store_ && !is_abandoned_) static_cast<void>(finish_save(store_->wait(patience)));
}

}  // namespace oarlock
