// oarlock convert on the published examples of the other operators, which scripts/setup cluster fetches: each result is
// valid for `oarlock validate` and accepted by a real kube-apiserver, or the example is rejected with its reason. Three
// converted jobs run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "common/contract.h"
#include "common/text.h"
#include "tests/support/api_server.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "tests/support/peer_examples.h"
#include "yaml/reader.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

constexpr char kTrainingOperator[] = "github.com/kubeflow/training-operator/examples/";
constexpr char kMpiOperator[] = "github.com/kubeflow/mpi-operator/examples/v2beta1/";
constexpr char kTrainer[] = "github.com/kubeflow/trainer/v2/examples/yaml/";
constexpr char kRuntimes[] = "github.com/kubeflow/trainer/v2/manifests/base/runtimes/";
constexpr char kJobSet[] = "sigs.k8s.io/jobset/examples/";

struct Example {
  std::string file;
  std::string runtime = "";  // of a TrainJob, in another file
  bool is_converted = true;  // if not, the expectation has the reason
};

const std::vector<Example>& examples() {
  static const std::vector<Example> kExamples = {
      {kTrainingOperator + std::string("pytorch/simple.yaml")},
      {kTrainingOperator + std::string("pytorch/cpu-demo/demo.yaml")},
      {kTrainingOperator + std::string("pytorch/mnist/v1/pytorch_job_mnist_gloo.yaml")},
      {kTrainingOperator + std::string("pytorch/mnist/v1/pytorch_job_mnist_mpi.yaml")},
      {kTrainingOperator + std::string("pytorch/mnist/v1/pytorch_job_mnist_nccl.yaml")},
      {kTrainingOperator + std::string("pytorch/elastic/echo/echo.yaml")},
      {kTrainingOperator + std::string("pytorch/elastic/imagenet/imagenet.yaml")},
      {kTrainingOperator + std::string("pytorch/smoke-dist/pytorch_job_sendrecv.yaml")},
      {kTrainingOperator + std::string("pytorch/deepspeed-demo/pytorch_deepspeed_demo.yaml")},
      {.file = kTrainingOperator + std::string("mpi/tensorflow-mnist.yaml"), .is_converted = false},
      {.file = kMpiOperator + std::string("pi/pi.yaml"), .is_converted = false},
      {.file = kMpiOperator + std::string("pi/pi-intel.yaml"), .is_converted = false},
      {.file = kMpiOperator + std::string("pi/pi-mpich.yaml"), .is_converted = false},
      {.file = kMpiOperator + std::string("tensorflow-benchmarks/tensorflow-benchmarks.yaml"), .is_converted = false},
      {kTrainer + std::string("01-multi-node.yaml"), kRuntimes + std::string("torch_distributed.yaml")},
      {kTrainer + std::string("02-runtime-patches.yaml"), kRuntimes + std::string("torch_distributed.yaml")},
      {kTrainer + std::string("03-kueue-integration.yaml"), kRuntimes + std::string("torch_distributed.yaml")},
      {kTrainer + std::string("04-volcano-integration.yaml")},
      {kTrainer + std::string("05-multi-step.yaml")},
      {kJobSet + std::string("pytorch/cnn-mnist/mnist.yaml")},
      {kJobSet + std::string("pytorch/resnet-cifar10/resnet.yaml")},
      {kJobSet + std::string("simple/ttl-after-finished.yaml")},
      {kJobSet + std::string("simple/exclusive-placement.yaml")},
      {.file = kJobSet + std::string("simple/max-restarts.yaml"), .is_converted = false},
      {.file = kJobSet + std::string("simple/success-policy.yaml"), .is_converted = false},
  };
  return kExamples;
}

std::string short_name(const std::string& file) { return file.substr(file.find_first_of('/') + 1); }

// Removes the directory of the examples from messages.
std::string without_directory(std::string text, const fs::path& directory) {
  const std::string prefix = directory.string() + "/";
  for (size_t at = 0; (at = text.find(prefix, at)) != std::string::npos;) text.erase(at, prefix.size());
  return text;
}

// Returns the numbers of nodes and ranks of a TrainingJob.
std::string size_of(const Json& spec) {
  std::string nodes = counted(spec["nodes"].get<int64_t>(), "node");
  if (spec.contains("elastic")) {
    const Json& elastic = spec["elastic"];
    nodes += fmt::format(" ({} to {})", elastic["minNodes"].dump(), elastic.value("maxNodes", Json()).dump());
  }
  const Json processes = spec.value("processesPerNode", Json(1));
  return nodes + (processes.is_string() ? ", one rank for each GPU"
                                        : ", " + counted(processes.get<int64_t>(), "rank") + " each");
}

class ConvertPeers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = peer_examples();
    ASSERT_TRUE(fs::is_directory(directory_)) << directory_ << " does not exist: run scripts/setup cluster";
  }

  // Converts an example, and writes the job to a file.
  static int convert(const Example& example, const fs::path& job, std::string& errors) {
    std::vector<std::string> argv = {oarlock(), "convert", "-f", (directory_ / example.file).string()};
    if (!example.runtime.empty()) argv.insert(argv.end(), {"-f", (directory_ / example.runtime).string()});
    Program program(argv);
    const int exit_code = program.wait();
    errors = without_directory(program.err(), directory_);
    std::ofstream(job) << program.out();
    return exit_code;
  }

  static inline fs::path directory_;
};

TEST_F(ConvertPeers, ResultsAreValidAndAcceptedByTheApiServer) {
  ApiServer server(ApiServer::Parts::kApiOnly);
  const TemporaryDirectory work;
  std::string report;
  size_t accepted = 0;
  for (const Example& example : examples()) {
    const fs::path job = work.path() / "job.yaml";
    std::string errors;
    const int exit_code = convert(example, job, errors);
    report += fmt::format("==== {}\n", short_name(example.file));
    if (!example.is_converted) {
      EXPECT_EQ(exit_code, 78) << example.file;
      report += errors;
      continue;
    }
    ASSERT_EQ(exit_code, 0) << example.file << "\n" << errors;
    Program validate({oarlock(), "validate", job.string()});
    EXPECT_EQ(validate.wait(), 0) << example.file << "\n" << validate.err();
    const auto documents = yaml::load_all(job.string());
    ASSERT_TRUE(documents) << documents.error().message;
    ASSERT_EQ(documents->size(), 1) << example.file;
    Json object = documents->front().to_json();
    const Json& spec = object["spec"];
    report += fmt::format("{}: {}\n", object["metadata"]["name"].get<std::string>(), size_of(spec));
    report += errors;
    object["metadata"]["namespace"] = "default";
    object["metadata"]["name"] = fmt::format("example-{}", accepted);
    const Reply reply = server.call(
        "POST", fmt::format("/apis/{}/namespaces/default/{}?fieldValidation=Strict", kApiVersion, kPlural), object);
    EXPECT_TRUE(reply.ok()) << example.file << ": " << reply.message();
    if (reply.ok()) ++accepted;
  }
  EXPECT_GE(accepted, 12);
  expect_golden("convert/peers.golden", report);
}

// These need neither PyTorch nor a data set.
TEST_F(ConvertPeers, ConvertedJobsRun) {
  const TemporaryDirectory work;
  struct Run {
    const char* file;
    const char* line;  // of its output
    std::unique_ptr<Program> program;
  };
  std::array<Run, 3> runs = {{{"04-volcano-integration.yaml", "Node 3 training complete", nullptr},
                              {"05-multi-step.yaml", "Training complete", nullptr},
                              {"03-kueue-integration.yaml", "Step 10/10", nullptr}}};
  for (Run& run : runs) {
    const fs::path job = work.path() / run.file;
    std::string errors;
    ASSERT_EQ(convert({kTrainer + std::string(run.file)}, job, errors), 0) << errors;
    run.program = std::make_unique<Program>(std::vector<std::string>{oarlock(), "run", job.string()});
  }
  for (Run& run : runs) {
    EXPECT_EQ(run.program->wait(), 0) << run.program->err();
    EXPECT_THAT(run.program->out(), HasSubstr(run.line)) << run.file;
  }
}

}  // namespace
}  // namespace oarlock::test
