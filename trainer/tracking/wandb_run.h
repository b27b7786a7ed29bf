// What describes a W&B run: its id, its name and configuration, and the files about it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/settings.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {

// Returns eight letters and digits, as wandb generates them.
std::string random_wandb_id();

// Returns the id, which is the same for all attempts of a job: the configured one, that of the attempt before, one made
// from the uid of the TrainingJob, or a random one. Each may be empty.
std::string choose_wandb_id(const std::string& configured, const std::string& earlier, const std::string& uid);

// Returns the description of an attempt that started at this time.
WandbRun describe_wandb_run(const WandbSettings& settings, const std::string& id, const RunStarted& run,
                            SystemTime start);

// Writes the files that wandb keeps in a run's directory "files", for programs that read them there. `wandb sync` makes
// its own from the log.
Result<void> write_wandb_run_files(const std::filesystem::path& directory, const WandbRun& run,
                                   const std::map<std::string, std::string>& versions);

}  // namespace oarlock
