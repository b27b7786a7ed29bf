#include "trainer/engine/checkpointer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace oarlock {
namespace {

using Json = nlohmann::json;

constexpr char kTask[] = "task";
constexpr char kSeed[] = "seed";

TensorMap model_tensors(DistributedModel& model) {
  TensorMap out;
  for (const NamedTensor& item : model.parameters()) out[item.name] = item.tensor.detach();
  for (const NamedTensor& item : model.buffers()) out[item.name] = item.tensor.detach();
  return out;
}

std::vector<at::Tensor> values(const TensorMap& tensors) {
  std::vector<at::Tensor> out;
  for (const auto& [name, tensor] : tensors) out.push_back(tensor);
  return out;
}

Json to_json(const Position& position) {
  return {{"step", position.step}, {"epoch", position.epoch}, {"epoch_samples", position.epoch_samples}};
}

Position position_from(const Json& json) { return {json["step"], json["epoch"], json["epoch_samples"]}; }

double seconds_between(SteadyTime begin, SteadyTime end) { return std::chrono::duration<double>(end - begin).count(); }

Result<void> check_identity(const Json& extra, const RunIdentity& identity, const std::string& folder) {
  const std::string task = extra.value(kTask, identity.task);
  const uint64_t seed = extra.value(kSeed, identity.seed);
  if (task != identity.task) {
    return fail(ExitCode::kConfig,
                fmt::format("{}: the checkpoint is of the task '{}', the configuration says '{}'; use another "
                            "checkpoint.dir",
                            folder, task, identity.task));
  }
  if (seed != identity.seed) {
    return fail(
        ExitCode::kConfig,
        fmt::format("{}: the checkpoint was trained with seed {}, the configuration says {}; put the seed back, "
                    "or use another checkpoint.dir",
                    folder, seed, identity.seed));
  }
  return {};
}

const TensorMap& section(const Checkpoint& checkpoint, const char* name) {
  static const TensorMap kNothing;
  const auto found = checkpoint.tensors.find(name);
  return found == checkpoint.tensors.end() ? kNothing : found->second;
}

}  // namespace

Result<std::unique_ptr<Checkpointer>> Checkpointer::open(const StoreOptions& options, RunIdentity identity,
                                                         const RankGroup& group, Telemetry& telemetry,
                                                         const Clock& clock) {
  std::unique_ptr<Checkpointer> out(new Checkpointer(options, std::move(identity), group, telemetry, clock));
  Result<void> opened;
  if (group.rank() == 0) {
    Result<std::unique_ptr<CheckpointStore>> store = CheckpointStore::open(options, telemetry.logger());
    if (store) {
      out->store_ = std::move(*store);
    } else {
      opened = tl::make_unexpected(store.error());
    }
  }
  if (const Result<void> all = group.agree(opened); !all) return tl::make_unexpected(all.error());
  return out;
}

Result<std::string> Checkpointer::load_newest(DistributedModel& model, Optimizer& optimizer) {
  const SteadyTime begin = clock_.steady();
  const Result<CheckpointSearch> search = find_latest_checkpoint(options_.root);
  if (!search) return tl::make_unexpected(search.error());
  for (const SkippedCheckpoint& skipped : search->skipped) {
    telemetry_.logger().warn("a checkpoint is not valid and was skipped",
                             {{"folder", skipped.folder.string()}, {"reason", skipped.reason}});
  }
  if (!search->folder) return "";
  const std::string folder = search->folder->string();
  const Result<Checkpoint> checkpoint = read_checkpoint(*search->folder);
  if (!checkpoint) return tl::make_unexpected(checkpoint.error());
  const Result<void> loaded =
      check_identity(checkpoint->state.extra, identity_, folder)
          .and_then([&] { return copy_tensors(section(*checkpoint, kModelTensors), model_tensors(model), "model"); })
          .and_then([&] { return optimizer.load(section(*checkpoint, kOptimizerTensors)); });
  if (!loaded) return tl::make_unexpected(loaded.error());
  folder_ = folder;
  telemetry_.checkpoint_restored(checkpoint->state.step, folder, seconds_between(begin, clock_.steady()));
  return to_json(Position{checkpoint->state.step, checkpoint->state.epoch, checkpoint->state.epoch_samples}).dump();
}

Result<std::optional<Position>> Checkpointer::restore(DistributedModel& model, Optimizer& optimizer) {
  telemetry_.enter(Phase::kRestore);
  Result<std::string> own = "";
  if (group_.rank() == 0) own = load_newest(model, optimizer);
  if (!own) telemetry_.checkpoint_failed(/*save=*/false);
  const Result<std::string> shared = group_.broadcast(own);
  if (!shared) return tl::make_unexpected(shared.error());
  if (shared->empty()) return std::nullopt;
  model.broadcast_state();
  group_.broadcast(values(optimizer.state()));
  last_ = position_from(Json::parse(*shared));
  if (group_.rank() != 0) telemetry_.checkpoint_known(last_->step);
  return last_;
}

Result<void> Checkpointer::write(const Position& position, DistributedModel& model, const Optimizer& optimizer) {
  const SteadyTime begin = clock_.steady();
  Checkpoint checkpoint;
  checkpoint.state.step = position.step;
  checkpoint.state.epoch = position.epoch;
  checkpoint.state.epoch_samples = position.epoch_samples;
  checkpoint.state.world_size = group_.world_size();
  checkpoint.state.extra = {{kTask, identity_.task}, {kSeed, identity_.seed}};
  checkpoint.tensors[kModelTensors] = copy_to_cpu(model_tensors(model));
  checkpoint.tensors[kOptimizerTensors] = copy_to_cpu(optimizer.state());
  const Result<SavedCheckpoint> saved = store_->save(checkpoint);
  if (!saved) return tl::make_unexpected(saved.error());
  folder_ = saved->folder.string();
  telemetry_.checkpoint_saved(position.step, folder_, saved->bytes, seconds_between(begin, clock_.steady()));
  return {};
}

Result<void> Checkpointer::save(const Position& position, DistributedModel& model, const Optimizer& optimizer) {
  if (last_ == position) return {};
  telemetry_.enter(Phase::kCheckpoint);
  Result<void> written;
  if (group_.rank() == 0) written = write(position, model, optimizer);
  if (!written) telemetry_.checkpoint_failed(/*save=*/true);
  if (const Result<void> all = group_.agree(written); !all) return all;
  last_ = position;
  if (group_.rank() != 0) telemetry_.checkpoint_known(position.step);
  return {};
}

}  // namespace oarlock
