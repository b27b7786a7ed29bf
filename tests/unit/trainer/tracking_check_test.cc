// The settings of the sinks as `oarlock-trainer --check` resolves them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "tests/support/temporary_directory.h"
#include "trainer/tracking/settings.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CheckTrackingTest : public testing::Test {
 protected:
  CheckTrackingTest() {
    config_.mlflow.enabled = true;
    config_.mlflow.uri = "https://mlflow.example.com";
    config_.wandb.enabled = true;
    config_.tensorboard.enabled = true;
  }

  // Returns the message; empty if the settings are valid.
  std::string check(bool runs_in_pods = false) const {
    const auto variables = [this](std::string_view name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
    const Result<void> checked = check_tracking(config_, directory_.path() / "run", variables, runs_in_pods);
    if (checked) return "";
    const ExitCode code = checked.error().code;
    EXPECT_TRUE(code == ExitCode::kConfig || code == ExitCode::kNoInput) << checked.error().message;
    EXPECT_EQ(checked.error().message.find('\n'), std::string::npos) << checked.error().message;
    return checked.error().message;
  }

  TrackingConfig config_;
  std::map<std::string, std::string, std::less<>> variables_;
  test::TemporaryDirectory directory_;
};

TEST_F(CheckTrackingTest, AcceptsValidSettings) {
  EXPECT_EQ(check(), "");
  config_.tensorboard.dir = directory_.path() / "new" / "board";
  variables_ = {{"WANDB_DIR", directory_.path()}, {"MLFLOW_TRACKING_USERNAME", "u"}, {"MLFLOW_TRACKING_PASSWORD", "p"}};
  EXPECT_EQ(check(), "");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "new"));
}

TEST_F(CheckTrackingTest, NamesADirectoryThatCannotBeUsed) {
  std::ofstream(directory_.path() / "file") << "content";
  config_.tensorboard.dir = directory_.path() / "file" / "board";
  EXPECT_THAT(check(), HasSubstr("tracking.tensorboard.dir: "));
  EXPECT_THAT(check(), HasSubstr("file is not a directory"));
  config_.tensorboard.dir.clear();
  variables_["WANDB_DIR"] = directory_.path() / "file";
  EXPECT_THAT(check(), HasSubstr("WANDB_DIR: "));
  config_.wandb.dir = directory_.path() / "file";
  EXPECT_THAT(check(), HasSubstr("tracking.wandb.dir: "));
  EXPECT_EQ(check(/*runs_in_pods=*/true), "");
}

TEST_F(CheckTrackingTest, NamesAnAddressThatIsInvalidOrMissing) {
  for (const std::string uri : {"mlflow.example.com", "ftp://mlflow.example.com", "https://", "https://mlflow:99999"}) {
    config_.mlflow.uri = uri;
    EXPECT_NE(check(), "") << uri;
    EXPECT_NE(check(/*runs_in_pods=*/true), "") << uri;
  }
  config_.mlflow.uri.clear();
  EXPECT_THAT(check(), HasSubstr("MLFLOW_TRACKING_URI"));
  EXPECT_EQ(check(/*runs_in_pods=*/true), "");  // the pods may have the variable
  variables_["MLFLOW_TRACKING_URI"] = "http://localhost:5000";
  EXPECT_EQ(check(), "");
}

TEST_F(CheckTrackingTest, ShowsNoSecretsOfAnInvalidAddress) {
  for (const std::string uri : {"http://user:secret@mlflow", "http://user:secret%40mlflow",
                                "ftp://user:secret%40mlflow", "https://mlflow/path?api_key=secret", "mlflow/secret"}) {
    config_.mlflow.uri = uri;
    EXPECT_THAT(check(), AllOf(Not(IsEmpty()), Not(HasSubstr("secret")))) << uri;
  }
}

TEST_F(CheckTrackingTest, NamesCredentialsThatAreMissing) {
  config_.mlflow.token_file = directory_.path() / "token";
  EXPECT_THAT(check(), HasSubstr("tracking.mlflow.token_file: "));
  EXPECT_EQ(check(/*runs_in_pods=*/true), "");
  std::ofstream(directory_.path() / "token") << " \n";
  EXPECT_THAT(check(), HasSubstr("is empty"));
  std::ofstream(directory_.path() / "token") << "secret\n";
  EXPECT_EQ(check(), "");
  config_.mlflow.token_file.clear();
  variables_["MLFLOW_TRACKING_USERNAME"] = "u";
  EXPECT_THAT(check(), HasSubstr("MLFLOW_TRACKING_PASSWORD"));
  variables_.clear();
  config_.mlflow.ca_file = directory_.path() / "absent.pem";
  EXPECT_THAT(check(), HasSubstr("absent.pem"));
}

TEST_F(CheckTrackingTest, NamesAModeThatIsUnknown) {
  variables_["WANDB_MODE"] = "sometimes";
  EXPECT_THAT(check(), HasSubstr("WANDB_MODE=sometimes"));
  EXPECT_EQ(check(/*runs_in_pods=*/true), "");
}

}  // namespace
}  // namespace oarlock
