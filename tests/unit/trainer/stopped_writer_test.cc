// A process that is stopped at any system call on its tracking files, while a later attempt reports the rest of the
// run, and that continues afterwards: each point is there once, and the end of the run is that of the later attempt.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/files.h"
#include "tests/support/system_calls.h"
#include "tests/support/tracking_events.h"
#include "trainer/tracking/directory_claim.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/sink.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::scalar_at;
using test::started;
using test::SystemCall;
using testing::ElementsAre;

constexpr char kUid[] = "job";

Event finished_at(int64_t step, bool resumes) {
  return {.time = SystemTime(std::chrono::seconds(1700000000)),
          .step = step,
          .content = RunFinished{.success = !resumes,
                                 .resumes = resumes,
                                 .reason = resumes ? "Interrupted" : "Completed",
                                 .message = "",
                                 .summary = {},
                                 .time_table = ""}};
}

class StoppedWriterTest : public testing::Test {
 protected:
  using MakeSink = std::function<std::unique_ptr<Sink>(const SinkContext&)>;

  static SinkContext context(const fs::path& run) {
    static const RealClock clock;
    return {.directory = run / "tracking", .logger = Logger::silent(), .clock = clock};
  }

  // Reports as the tracker does. Returns 0, also if another process has the directory.
  static int report(const fs::path& run, const MakeSink& make, int attempt,
                    const std::vector<std::vector<Event>>& batches) {
    DirectoryClaim claim(run / "tracking", kUid, attempt);
    if (const Result<void> claimed = claim.claim(); !claimed)
      return claimed.error().code == ExitCode::kTempFail ? 0 : 1;
    const std::unique_ptr<Sink> sink = make(context(run));
    sink->set_guard([&claim] { return !claim.is_superseded(); });
    if (!claim.try_lock()) {
      if (!sink->fence_earlier_process()) return 2;
    } else if (claim.has_later_attempt_begun()) {
      return 0;
    }
    claim.begin();
    for (const std::vector<Event>& batch : batches) {
      if (claim.is_superseded()) return 0;
      if (!sink->write(batch) || !sink->sync()) return 3;
      if (attempt == 0) std::ofstream(run / "checkpoint");  // its points are durable before
    }
    claim.release();
    return 0;
  }

  // Calls `check` with the directory of a run for each system call at which the first attempt is stopped.
  static void stop_everywhere(const MakeSink& make, const std::function<void(const fs::path& run)>& check) {
    // In memory, because each of many runs syncs its files.
    const fs::path memory = "/dev/shm";
    const fs::path parent = fs::is_directory(memory) ? memory : fs::temp_directory_path();
    int stops = 0;
    for (bool was_stopped = true; was_stopped; ++stops) {
      const Result<ScratchDirectory> directory = ScratchDirectory::create(parent, "oarlock-test-");
      ASSERT_TRUE(directory) << directory.error().message;
      const fs::path run = directory->path() / "run";
      fs::create_directory(run);
      was_stopped = false;
      int calls = 0;
      std::string at;
      const int code = test::with_system_calls(
          [&] {
            return report(
                run, make, 0,
                {{started(0), scalar_at(1), scalar_at(2)}, {scalar_at(3)}, {scalar_at(4), finished_at(4, true)}});
          },
          [&](const SystemCall& call) {
            if (!call.path.starts_with(run.string()) || calls++ != stops) return 0;
            was_stopped = true;
            at = call.name + " " + call.path + " " + call.target;
            const int64_t restart = fs::exists(run / "checkpoint") ? 2 : 0;
            std::vector<Event> events = {started(restart)};
            for (int64_t step = restart + 1; step <= 5; ++step) events.push_back(scalar_at(step));
            events.push_back(finished_at(5, false));
            EXPECT_EQ(report(run, make, 1, {events}), 0);
            return 0;
          });
      SCOPED_TRACE(testing::Message() << "stopped at call " << stops << ": " << at);
      EXPECT_EQ(code, 0);
      if (!was_stopped) break;
      check(run);
      // A third attempt continues.
      EXPECT_EQ(report(run, make, 2, {{started(5), scalar_at(6)}}), 0);
      if (HasFailure()) return;
    }
    EXPECT_GT(stops, 20);
  }
};

// The steps of the points, as TensorBoard shows them.
std::vector<int64_t> steps_in_event_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<int64_t> out;
  for (const fs::path& path : files) {
    const Result<std::string> content = read_file(path);
    EXPECT_TRUE(content);
    std::string_view left = *content;
    const ByteSource read = source_of(left);
    while (const std::optional<std::string_view> record = next_record(read)) {
      const std::optional<EventPoints> points = read_points(*record);
      if (!points) continue;
      if (points->is_session_start) std::erase_if(out, [&](int64_t step) { return step >= points->step; });
      if (std::count(points->tags.begin(), points->tags.end(), "loss") > 0) out.push_back(points->step);
    }
  }
  return out;
}

TEST_F(StoppedWriterTest, TensorBoard) {
  stop_everywhere(
      [](const SinkContext& context) { return make_tensorboard_sink({}, context); },
      [](const fs::path& run) { EXPECT_THAT(steps_in_event_files(run / "tensorboard"), ElementsAre(1, 2, 3, 4, 5)); });
}

// The steps of the rows that `wandb sync` uploads, and the exit codes of the attempts.
struct WandbUpload {
  std::vector<int64_t> steps;
  std::vector<int> exit_codes;
};

WandbUpload wandb_upload(const fs::path& directory) {
  std::vector<fs::path> directories;
  for (const auto& entry : fs::directory_iterator(directory)) directories.push_back(entry.path());
  std::sort(directories.begin(), directories.end());
  WandbUpload out;
  for (const fs::path& path : directories) {
    const Result<std::string> content = read_file(path / fmt::format("run-{}.wandb", kUid));
    if (!content) continue;
    std::string_view left = *content;
    read_wandb_log(source_of(left), [&](std::string_view bytes) {
      protozero::pbf_reader record(bytes.data(), bytes.size());
      while (record.next()) {
        if (record.tag() == 2) {  // history
          protozero::pbf_reader history = record.get_message();
          while (history.next(2)) {
            protozero::pbf_reader step = history.get_message();
            while (step.next(1)) out.steps.push_back(step.get_int64());
          }
        } else if (record.tag() == 18) {  // exit
          int code = 0;
          protozero::pbf_reader exit = record.get_message();
          while (exit.next(1)) code = exit.get_int32();
          out.exit_codes.push_back(code);
        } else {
          record.skip();
        }
      }
    });
  }
  return out;
}

TEST_F(StoppedWriterTest, WeightsAndBiases) {
  WandbSettings settings;
  settings.run_id = kUid;
  stop_everywhere([&](const SinkContext& context) { return make_wandb_sink(settings, context); },
                  [](const fs::path& run) {
                    const WandbUpload upload = wandb_upload(run / "wandb");
                    EXPECT_THAT(upload.steps, ElementsAre(1, 2, 3, 4, 5));
                    ASSERT_FALSE(upload.exit_codes.empty());
                    EXPECT_EQ(upload.exit_codes.back(), 0);
                  });
}

}  // namespace
}  // namespace oarlock
