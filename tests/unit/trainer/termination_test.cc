// The last word of a rank, and how many cores it may use.
#include "trainer/process/termination.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/device_failed.h"
#include "common/files.h"
#include "tests/support/temporary_folder.h"

namespace oarlock {
namespace {

TEST(TerminationLog, ThePathOfTheEnvironmentWins) { EXPECT_EQ(termination_log_path("/tmp/x"), "/tmp/x"); }

TEST(TerminationLog, OverwritesInPlaceWhatAnEarlierProcessLeft) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "termination-log";
  std::ofstream(path) << std::string(5000, 'x');
  std::filesystem::create_hard_link(path,
                                    folder.path() / "mount");  // as the kubelet's bind mount: the same file elsewhere
  const TerminationMessage message = {3, 120, 100, "PeerLost", "another rank was lost"};
  ASSERT_TRUE(write_termination_message(path, message));
  EXPECT_EQ(termination_message_from_json(*read_file(folder.path() / "mount")), message);
}

TEST(TerminationLog, FailureNamesThePath) {
  const auto written = write_termination_message("/nowhere/termination-log", {});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("/nowhere/termination-log"), std::string::npos);
}

TEST(TerminationLog, EveryExitCodeHasItsReason) {
  EXPECT_EQ(reason_of(ExitCode::kOk), "Completed");
  EXPECT_EQ(reason_of(ExitCode::kConfig), "ConfigInvalid");
  EXPECT_EQ(reason_of(ExitCode::kPeerLost), "PeerLost");
  EXPECT_EQ(reason_of(kDeviceFailed), "DeviceFailed");
}

}  // namespace
}  // namespace oarlock
