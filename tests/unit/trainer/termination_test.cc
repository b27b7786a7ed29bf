// The termination message of a rank.
#include "trainer/process/termination.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/files.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

TEST(TerminationLog, PrefersPathOfEnvironment) { EXPECT_EQ(termination_log_path("/tmp/x"), "/tmp/x"); }

TEST(TerminationLog, OverwritesFileInPlace) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() / "termination-log";
  std::ofstream(path) << std::string(5000, 'x');
  std::filesystem::create_hard_link(
      path,
      directory.path() / "mount");  // as the kubelet's bind mount: the same file elsewhere
  const TerminationMessage message = {3, 120, 100, "PeerLost", "another rank was lost"};
  ASSERT_TRUE(write_termination_message(path, message));
  EXPECT_EQ(termination_message_from_json(*read_file(directory.path() / "mount")), message);
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

class MappedFileFault : public testing::Test {
 protected:
  static constexpr size_t kSize = size_t{1} << 20;

  MappedFileFault() { std::ofstream(path_, std::ios::binary) << std::string(kSize, 'x'); }

  // Maps the file, changes it, and reads its end.
  template <typename Change>
  void read_after(const Change& change) const {
    install_terminate_handler({.path = message_.string(), .rank = 3, .line_prefix = "RANK 3"},
                              [](const std::exception_ptr& exception) {
                                try {
                                  std::rethrow_exception(exception);
                                } catch (const ErrorException& error) {
                                  return ProcessExit{error.error().code, {3, 0, -1, "Reason", error.error().message}};
                                }
                              });
    const MappedFile file = MappedFile::open(path_, MappedFile::Access::kRandom).value();
    change();
    std::exit(file.bytes().back() == 'x' ? 0 : 1);
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "data.bin";
  std::filesystem::path message_ = directory_.path() / "message";
};

TEST_F(MappedFileFault, TruncatedFileIsOneErrorWithItsName) {
  EXPECT_EXIT(read_after([this] { std::filesystem::resize_file(path_, 4096); }), testing::ExitedWithCode(65),
              "\\[RANK 3\\] ERROR .*data.bin: was truncated from 1048576 to 4096 bytes while it was read");
  EXPECT_EQ(termination_message_from_json(*read_file(message_))->rank, 3);
}

TEST_F(MappedFileFault, ReplacedFileIsReadToItsEnd) {
  EXPECT_EXIT(read_after([this] {
                std::filesystem::remove(path_);
                std::ofstream(path_) << "other";
              }),
              testing::ExitedWithCode(0), "");
}

TEST_F(MappedFileFault, AnyOtherBusErrorEndsTheProcessAsBefore) {
  EXPECT_EXIT(read_after([] { std::raise(SIGBUS); }), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace oarlock
