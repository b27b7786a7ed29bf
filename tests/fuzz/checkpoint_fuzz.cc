// A checkpoint directory whose manifest fits. Byte 0 selects what the rest of the input is: the state, or the file with
// the model's tensors. A content that the manifest promises is never taken for damage (R36), and a checkpoint that is
// accepted is written as one that reads back as the same.
#include <nlohmann/json.hpp>

#include "ddp/digest_file.h"
#include "tests/fuzz/input.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/store.h"

using namespace oarlock;

namespace {

constexpr char kState[] =
    R"({"step":1,"high_water_step":1,"epoch":0,"epoch_samples":0,"world_size":1,"uid":"","attempt":0,"sections":{},"extra":{}})";

void write_manifest(const std::filesystem::path& directory) {
  Manifest manifest{.step = 1, .files = {}};
  for (const std::string& name : {std::string(kStateFile), tensor_file_name(kModelTensors)})
    manifest.files[name] = digest_of(directory / name).value();
  fuzz::write_file(directory / kManifestFile, to_text(manifest));
}

void require_same_after_writing(const Checkpoint& checkpoint, const std::filesystem::path& directory) {
  const CheckpointState& state = checkpoint.state;
  fuzz::require(state.step >= 0 && state.epoch >= 0 && state.epoch_samples >= 0 && state.world_size >= 0 &&
                state.owner.attempt >= 0);
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  fuzz::require(write_checkpoint(checkpoint, directory).has_value());
  const Result<Checkpoint> again = read_checkpoint(directory);
  fuzz::require(again && again->state.sections == state.sections && again->state.extra == state.extra &&
                again->state.owner == state.owner && again->state.epoch_samples == state.epoch_samples);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  static const test::TemporaryDirectory root;
  const std::filesystem::path directory = root.path() / checkpoint_directory_name(1);
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const std::string_view input = fuzz::text_of(data + 1, size - 1);
  const bool is_state = data[0] % 2 == 0;
  const std::filesystem::path model = directory / tensor_file_name(kModelTensors);
  fuzz::write_file(directory / kStateFile, is_state ? input : kState);
  if (is_state) fuzz::require(write_safetensors(model, {}).has_value());
  if (!is_state) fuzz::write_file(model, input);
  write_manifest(directory);

  const Result<LatestCheckpoint> latest = read_latest_checkpoint(root.path());
  const Result<Checkpoint> checkpoint = read_checkpoint(directory);
  // A state of another step contradicts its manifest, which is damage; all else needs another release.
  if (checkpoint) {
    fuzz::require(latest && latest->checkpoint && latest->search.step == 1 && checkpoint->state.step == 1);
    require_same_after_writing(*checkpoint, root.path() / "written");
  } else if (checkpoint.error().code != ExitCode::kDataErr) {
    fuzz::require(checkpoint.error().code == ExitCode::kCheckpoint && !latest);
  } else {
    fuzz::require(is_state && latest && !latest->checkpoint && latest->search.skipped.size() == 1);
  }
  return 0;
}
