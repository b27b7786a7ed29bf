// The termination message of a rank.
#include "trainer/process/termination.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/files.h"
#include "tests/support/temporary_folder.h"

namespace oarlock {
namespace {

TEST(TerminationLog, PrefersPathOfEnvironment) { EXPECT_EQ(termination_log_path("/tmp/x"), "/tmp/x"); }

TEST(TerminationLog, OverwritesFileInPlace) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "termination-log";
  std::ofstream(path) << std::string(5000, 'x');
  std::filesystem::create_hard_link(path,
                                    folder.path() / "mount");  // as the kubelet's bind mount: the same file elsewhere
  const TerminationMessage message = {3, 120, 100, "PeerLost", "another rank was lost"};
  ASSERT_TRUE(write_termination_message(path, message));
  EXPECT_EQ(termination_message_from_json(*read_file(folder.path() / "mount")), message);
}

TEST(TerminationLog, ErrorNamesPath) {
  const auto written = write_termination_message("/nowhere/termination-log", {});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("/nowhere/termination-log"), std::string::npos);
}

TEST(TerminationLog, MapsExitCodeToReason) {
  EXPECT_EQ(exit_reason(ExitCode::kOk), "Completed");
  EXPECT_EQ(exit_reason(ExitCode::kConfig), "ConfigInvalid");
  EXPECT_EQ(exit_reason(ExitCode::kPeerLost), "PeerLost");
  EXPECT_EQ(exit_reason(ExitCode::kDeviceFailed), "DeviceFailed");
}

}  // namespace
}  // namespace oarlock
