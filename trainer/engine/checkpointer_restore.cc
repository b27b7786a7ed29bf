// Opening the directory of checkpoints, and restoring from it.

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/engine/checkpoint_contents.h"
#include "trainer/engine/checkpointer.h"
#include "trainer/engine/stop_agreement.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

constexpr char kExtra[] = "the member 'extra'";

// Copies the tensors of a section of the checkpoint into the live ones.
Result<void> copy_section(const TensorMap& from, const TensorMap& to, const std::string& section) {
  return copy_tensors(from, to, fmt::format("the checkpoint's {}", section)).map_error([](Error error) {
    error.message += "; correct the configuration or use another checkpoint.dir";
    return error;
  });
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

std::string section_of(const Stateful& part) { return std::string(part.section()); }

// The part of the state that the other ranks need in addition to the tensors.
std::string for_other_ranks(const CheckpointState& state, const Json& reduction) {
  return Json{{"step", state.step},
              {"epoch", state.epoch},
              {"epoch_samples", state.epoch_samples},
              {"sections", state.sections},
              {kReductionSection, reduction}}
      .dump();
}

}  // namespace

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
      stop, kReadingCheckpoints);
  if (stop.agreed()) return tl::make_unexpected(store.error());
  const bool needs_store = !options.is_replacement || options.on_error == CheckpointErrors::kStop;
  if (!store && !needs_store && !is_fenced_off(store.error())) {
    telemetry.logger().warn("the checkpoint directory is not available; the next save tries again",
                            {{"directory", options.store.root.string()}, {"reason", store.error().message}});
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
Result<std::string> Checkpointer::load_newest(const Found& found, DistributedDataParallelBase& model,
                                              const std::vector<Stateful*>& parts) {
  const CheckpointSearch& search = found.latest.search;
  for (const SkippedCheckpoint& skipped : search.skipped) {
    telemetry_.logger().warn("a checkpoint is not valid and was skipped",
                             {{"directory", skipped.directory.string()}, {"reason", skipped.reason}});
  }
  high_water_step_ = found.high_water_step;
  if (!found.latest.checkpoint) {
    RETURN_IF_ERROR(check_restart(search));
    return "";
  }
  const Checkpoint& checkpoint = *found.latest.checkpoint;
  const CheckpointState& state = checkpoint.state;
  RETURN_IF_ERROR(read_known(*search.directory / kStateFile, kExtra, [&] {
    return check_identity(state.extra, options_.identity, search.directory->string());
  }));
  RETURN_IF_ERROR(check_changes(state, *search.directory));
  RETURN_IF_ERROR(restore_marks(state, *search.directory));
  RETURN_IF_ERROR(load(checkpoint, model, parts));
  warn_of_sections(checkpoint, parts);
  keep_reduction(checkpoint, model);
  last_save_ = TrainingPosition{state.step, state.epoch, state.epoch_samples};
  return for_other_ranks(state, reduction_.values);
}

// Checkpoints of older releases have neither settings nor data.
Result<void> Checkpointer::check_changes(const CheckpointState& state, const std::filesystem::path& directory) const {
  const AgreedValues settings = agreed_values_from_json(state.extra.value(kExtraSettings, Json()));
  const AgreedValues data = agreed_values_from_json(state.extra.value(kExtraData, Json()));
  const int64_t samples = options_.identity.train_samples;
  // The last step of an epoch may have counted some samples twice, so that each rank had the same number.
  if (samples >= 0 && state.epoch_samples >= samples + state.world_size) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: the checkpoint has trained on {} samples of its epoch, but the training data have {}; "
                            "restore the data, or use another checkpoint.dir",
                            directory.string(), state.epoch_samples, samples));
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
Result<void> Checkpointer::repair_directory(const std::vector<SkippedCheckpoint>& damaged, bool is_restored) {
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
          out.set_aside.push_back(store->set_aside(skipped.directory));
          if (!out.set_aside.back() && is_fenced_off(out.set_aside.back().error())) return out;
        }
        if (is_restored) out.links = store->repair_links(step, best);
        return out;
      },
      group_, stop_, kReadingCheckpoints);
  if (!repairs) return tl::make_unexpected(repairs.error());
  for (const Result<std::filesystem::path>& aside : repairs->set_aside) {
    if (aside) {
      telemetry_.logger().warn("a damaged checkpoint was set aside; remove it when it is no longer needed",
                               {{"directory", aside->string()}});
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
                                            DistributedDataParallelBase& model, const std::vector<Stateful*>& parts) {
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

Result<void> Checkpointer::load(const Checkpoint& checkpoint, DistributedDataParallelBase& model,
                                const std::vector<Stateful*>& parts) {
  Result<void> loaded = copy_section(without_derived(model.module(), tensors_of(checkpoint, kModelTensors)),
                                     model_tensors(model), kModelTensors);
  for (const Stateful* part : parts) {
    if (!loaded || !checkpoint.state.sections.contains(section_of(*part))) continue;
    loaded = copy_section(tensors_of(checkpoint, part->section()), part->tensors(), section_of(*part));
  }
  return loaded;
}

void Checkpointer::warn_of_sections(const Checkpoint& checkpoint, const std::vector<Stateful*>& parts) {
  std::set<std::string> names;
  for (const Stateful* part : parts) {
    names.insert(section_of(*part));
    if (checkpoint.state.sections.contains(section_of(*part))) continue;
    telemetry_.logger().warn(
        "the checkpoint has no such section, which the configuration now needs: it starts with its initial state",
        {{"section", section_of(*part)}, {"step", checkpoint.state.step}});
  }
  for (const auto& [name, values] : checkpoint.state.sections.items()) {
    if (names.contains(name)) continue;
    telemetry_.logger().warn("the checkpoint has a section that the configuration does not use: it is ignored",
                             {{"section", name}, {"step", checkpoint.state.step}});
  }
}

void Checkpointer::keep_reduction(const Checkpoint& checkpoint, const DistributedDataParallelBase& model) {
  reduction_ = {checkpoint.state.extra.value(kReductionSection, Json()), tensors_of(checkpoint, kReductionSection)};
  const std::string why = model.drop_incompatible_state(reduction_, checkpoint.state.world_size);
  if (!why.empty())
    telemetry_.logger().warn("PowerSGD starts with plain averaging: its state cannot be restored",
                             {{"reason", why}, {"step", checkpoint.state.step}});
}

Result<void> Checkpointer::restore_marks(const CheckpointState& state, const std::filesystem::path& directory) {
  directory_ = directory.string();
  known_step_ = state.step;
  high_water_step_ = std::max({high_water_step_, state.high_water_step, state.step});
  return read_known(directory / kStateFile, kExtra, [&]() -> Result<void> {
    const Json best = state.extra.value(kExtraBest, Json());
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

Result<std::optional<TrainingPosition>> Checkpointer::restore(DistributedDataParallelBase& model,
                                                              const std::vector<Stateful*>& parts) {
  telemetry_.enter(Phase::kRestore);
  const SteadyTime begin = clock_.steady();
  Result<Found> found = read_on_rank_0<Found>(
      [root = options_.store.root]() -> Result<Found> {
        ASSIGN_OR_RETURN(LatestCheckpoint latest, read_latest_checkpoint(root));
        return Found{.latest = std::move(latest), .high_water_step = read_high_water(root)};
      },
      group_, stop_, kReadingCheckpoints);
  if (stop_.agreed()) return tl::make_unexpected(found.error());
  Result<std::string> own = "";
  std::vector<SkippedCheckpoint> damaged;
  if (group_.rank() == 0) {
    own = found.and_then([&](const Found& read) { return load_newest(read, model, parts); });
    if (own) damaged = found->latest.search.skipped;
  }
  found = Found{};  // its memory
  const Result<void> repaired = repair_directory(damaged, own && !own->empty());
  if (stop_.agreed()) return tl::make_unexpected(repaired.error());
  if (own && !repaired) own = tl::make_unexpected(repaired.error());
  if (group_.rank() == 0 && own && own->empty() && high_water_step_ > 0)
    telemetry_.logger().warn("there is no checkpoint: training starts from the beginning",
                             {{"lost_steps", high_water_step_}});
  if (!own) telemetry_.record_checkpoint_failure(/*save=*/false);
  ASSIGN_OR_RETURN(const std::string shared, group_.broadcast(own));
  if (group_.rank() == 0 && !shared.empty())
    telemetry_.record_checkpoint_restored(known_step_, directory_, seconds_between(begin, clock_.steady()),
                                          high_water_step_ - known_step_);
  if (group_.rank() == 0) copy_.reserve(live_tensors(model, parts));
  if (shared.empty()) return std::nullopt;
  const Json json = Json::parse(shared);
  RETURN_IF_ERROR(broadcast(json, model, parts));
  model.load_reduction_state({json[kReductionSection], std::exchange(reduction_.tensors, {})});
  const TrainingPosition position{json["step"], json["epoch"], json["epoch_samples"]};
  if (group_.rank() != 0) telemetry_.record_known_checkpoint(position.step);
  known_step_ = position.step;
  return position;
}

Result<std::optional<int64_t>> Checkpointer::restore_best(DistributedDataParallelBase& model,
                                                          const std::vector<Stateful*>& parts) {
  telemetry_.enter(Phase::kRestore);
  const Result<std::optional<Checkpoint>> best = read_on_rank_0<std::optional<Checkpoint>>(
      [root = options_.store.root, is_tracked = options_.best.has_value(),
       step = best_ ? std::optional(best_->step) : std::nullopt]() -> Result<std::optional<Checkpoint>> {
        if (!is_tracked) return std::nullopt;
        // The step is valid also if the links "best" and "last" could not be written.
        const std::optional<std::string> name =
            step ? std::optional(checkpoint_directory_name(*step)) : link_target(root, kBestLink);
        if (!name) return std::nullopt;
        ASSIGN_OR_RETURN(Checkpoint read, read_checkpoint(root / *name));
        return read;
      },
      group_, stop_, kReadingCheckpoints);
  if (stop_.agreed()) return tl::make_unexpected(best.error());
  ASSIGN_OR_RETURN(const std::string shared,
                   group_.broadcast(group_.rank() == 0 ? load_best(best, model, parts) : Result<std::string>("")));
  if (shared.empty()) return std::nullopt;
  const Json json = Json::parse(shared);
  RETURN_IF_ERROR(broadcast(json, model, parts));
  return json["step"].get<int64_t>();
}

// Distributes the state that rank 0 has loaded to all ranks.
Result<void> Checkpointer::broadcast(const Json& state, DistributedDataParallelBase& model,
                                     const std::vector<Stateful*>& parts) {
  model.broadcast_state();
  for (Stateful* part : parts) {
    const auto saved = state["sections"].find(section_of(*part));
    const bool found = saved != state["sections"].end();
    if (const TensorMap tensors = part->tensors(); found && !tensors.empty()) group_.broadcast(values(tensors));
    if (!found) {
      RETURN_IF_ERROR(part->missing());
      continue;
    }
    RETURN_IF_ERROR(read_known(options_.store.root / checkpoint_directory_name(state["step"]) / kStateFile,
                               fmt::format("the section '{}'", part->section()),
                               [&] { return part->restored(*saved); }));
  }
  return {};
}

}  // namespace oarlock
