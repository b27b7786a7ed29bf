// oarlock doctor: the assessment as a table, and the measurements that a test can provoke.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/doctor/assess.h"
#include "cli/doctor/child.h"
#include "cli/doctor/probe.h"
#include "common/port_reservation.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::doctor {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine without a GPU on which everything works.
Facts healthy() {
  Facts facts;
  facts.version = "0.1.0";
  facts.system = "Debian";
  facts.kernel = "Linux 6.1";
  facts.trainer_path = "/usr/bin/oarlock-trainer";
  facts.trainer_version = "oarlock-trainer 0.1.0 (abc)";
  facts.ports = {{"rendezvous port", 29500, ""}, {"metrics port", 9400, ""}};
  facts.own_name = "node0";
  facts.shm_bytes = facts.shm_free_bytes = 8 * kGiB;
  facts.clock_synchronized = true;
  facts.directory = {.path = "/ckpt", .is_given = true, .free_bytes = 100 * kGiB};
  facts.open_files = 1 << 20;
  facts.memory_bytes = 64 * kGiB;
  facts.cpus = facts.machine_cpus = 8;
  return facts;
}

Facts healthy_with_gpus() {
  Facts facts = healthy();
  facts.gpu_device_files = 2;
  facts.has_nvidia_pci_device = true;
  facts.kernel_driver = facts.driver_version = "580.65.06";
  facts.cuda_version = "13.0";
  facts.gpus = {{"NVIDIA H100", 80 * kGiB}, {"NVIDIA H100", 80 * kGiB}};
  facts.nccl_version = "2.28.3";
  return facts;
}

std::vector<Finding> findings_of(const std::vector<Finding>& all, const std::string& check) {
  std::vector<Finding> out;
  for (const Finding& finding : all) {
    if (finding.check == check) out.push_back(finding);
  }
  return out;
}

Level worst(const std::vector<Finding>& findings) {
  Level level = Level::kOk;
  for (const Finding& finding : findings) level = std::max(level, finding.level);
  return level;
}

TEST(Assess, HealthyMachinesHaveNoWarning) {
  EXPECT_EQ(worst(assess(healthy())), Level::kNote) << to_text(healthy(), assess(healthy()));  // no GPU
  EXPECT_EQ(worst(assess(healthy_with_gpus())), Level::kOk)
      << to_text(healthy_with_gpus(), assess(healthy_with_gpus()));
}

struct Defect {
  const char* name;
  bool has_gpus = false;
  std::function<void(Facts&)> change;
  const char* check;
  Level level;
  const char* summary;  // a part of it
  const char* remedy;   // likewise
};

class AssessDefect : public testing::TestWithParam<Defect> {};

TEST_P(AssessDefect, IsReportedWithRemedy) {
  const Defect& defect = GetParam();
  Facts facts = defect.has_gpus ? healthy_with_gpus() : healthy();
  defect.change(facts);
  const std::vector<Finding> all = assess(facts);
  const std::vector<Finding> findings = findings_of(all, defect.check);
  EXPECT_EQ(worst(findings), defect.level) << to_text(facts, all);
  EXPECT_THAT(findings, testing::Contains(AllOf(testing::Field(&Finding::level, defect.level),
                                                testing::Field(&Finding::summary, HasSubstr(defect.summary)),
                                                testing::Field(&Finding::remedy, HasSubstr(defect.remedy)))))
      << to_text(facts, all);
}

INSTANTIATE_TEST_SUITE_P(
    Defects, AssessDefect,
    testing::Values(
        Defect{"NoDriver", false, [](Facts& f) { f.has_nvidia_pci_device = true; }, "gpu", Level::kProblem,
               "no driver is loaded", "modprobe nvidia"},
        Defect{"NoDeviceInPod", false,
               [](Facts& f) {
                 f.kernel_driver = "580";
                 f.place = Place::kPod;
               },
               "gpu", Level::kWarning, "no device /dev/nvidia0", "nvidia.com/gpu: 1"},
        Defect{"NvmlFails", true, [](Facts& f) { f.nvml_error = "Driver/library version mismatch"; }, "gpu",
               Level::kProblem, "version mismatch", "NVIDIA container runtime"},
        Defect{"DriverVersionsDiffer", true, [](Facts& f) { f.kernel_driver = "570.1"; }, "gpu", Level::kProblem,
               "the kernel module has version 570.1", "reboot"},
        Defect{"DevicesHidden", true, [](Facts& f) { f.restricts_devices = true; }, "gpu", Level::kWarning,
               "hides every GPU", "unset"},
        Defect{"MoreRanksThanGpus", true, [](Facts& f) { f.local_world_size = 4; }, "gpu", Level::kProblem,
               "4 ranks on this node, but 2 GPUs", "processesPerNode: auto"},
        Defect{"NoNccl", true, [](Facts& f) { f.nccl_version.clear(); }, "nccl", Level::kWarning, "was not found",
               "libnccl2"},
        Defect{"TrainerDoesNotStart", false, [](Facts& f) { f.trainer_error = "libtorch_cpu.so: cannot open"; },
               "trainer", Level::kProblem, "libtorch_cpu.so", "LD_LIBRARY_PATH"},
        Defect{"TrainerOfOtherVersion", false, [](Facts& f) { f.trainer_version = "oarlock-trainer 0.2.0 (abc)"; },
               "trainer", Level::kWarning, "has version 0.2.0, this program 0.1.0", "same version"},
        Defect{"NoTrainer", false, [](Facts& f) { f.trainer_path.clear(); }, "trainer", Level::kNote, "neither",
               "nothing"},
        Defect{"PortInUse", false, [](Facts& f) { f.ports[0].error = "Address already in use"; }, "port",
               Level::kWarning, "rendezvous port 29500: Address already in use", "--master-port"},
        Defect{"MasterUnknown", false,
               [](Facts& f) {
                 f.master_address = "train-0.train";
                 f.master_error = "Name or service not known";
                 f.place = Place::kPod;
               },
               "names", Level::kProblem, "MASTER_ADDR train-0.train cannot be resolved", "headless Service"},
        Defect{"OwnNameUnknown", false, [](Facts& f) { f.own_error = "Name or service not known"; }, "names",
               Level::kWarning, "this machine's host name node0", "GLOO_SOCKET_IFNAME"},
        Defect{"SlowLookup", false, [](Facts& f) { f.lookup_seconds = 2.5; }, "names", Level::kWarning, "2.5 s",
               "/etc/resolv.conf"},
        Defect{"NoSharedMemory", false, [](Facts& f) { f.shm_bytes = -1; }, "shared memory", Level::kProblem,
               "there is no /dev/shm", "--shm-size"},
        Defect{"SharedMemoryOfDocker", false, [](Facts& f) { f.shm_bytes = f.shm_free_bytes = 64 << 20; },
               "shared memory", Level::kProblem, "64 MiB", "--shm-size"},
        Defect{"SharedMemoryFull", false, [](Facts& f) { f.shm_free_bytes = 1 << 20; }, "shared memory",
               Level::kWarning, "1 MiB of it free", "enlarge"},
        Defect{"ClockBehind", false, [](Facts& f) { f.server_skew_seconds = 30; }, "clock", Level::kWarning,
               "30 s ahead of", "chrony"},
        Defect{"ClockNotSynchronized", false, [](Facts& f) { f.clock_synchronized = false; }, "clock", Level::kNote,
               "does not report", "chrony"},
        Defect{"DirectoryReadOnly", false, [](Facts& f) { f.directory.create_error = "Read-only file system"; },
               "checkpoints", Level::kProblem, "/ckpt: no directory can be created: Read-only", "fsGroup"},
        Defect{"CurrentDirectoryReadOnly", false,
               [](Facts& f) {
                 f.directory.is_given = false;
                 f.directory.create_error = "Read-only file system";
               },
               "checkpoints", Level::kNote, "the current directory: no directory can be created", "--checkpoint-dir"},
        Defect{"DiskFull", false, [](Facts& f) { f.directory.write_error = "No space left on device"; }, "checkpoints",
               Level::kProblem, "No space left", "quota"},
        Defect{"NoSync", false, [](Facts& f) { f.directory.sync_error = "Invalid argument"; }, "checkpoints",
               Level::kProblem, "fsync fails", "durable"},
        Defect{"NoRename", false, [](Facts& f) { f.directory.rename_error = "Function not implemented"; },
               "checkpoints", Level::kProblem, "rename fails", "FUSE"},
        Defect{"NoSymlink", false, [](Facts& f) { f.directory.symlink_error = "Operation not permitted"; },
               "checkpoints", Level::kProblem, "symbolic link", "symbolic links"},
        Defect{"LittleSpace", false, [](Facts& f) { f.directory.free_bytes = 1 << 20; }, "checkpoints", Level::kWarning,
               "1 MiB free", "room for one more"},
        Defect{"SlowSync", false, [](Facts& f) { f.directory.sync_seconds = 3; }, "checkpoints", Level::kWarning,
               "took 3.0 s", "checkpoint.every_steps"},
        Defect{"FewDescriptors", false, [](Facts& f) { f.open_files = 1024; }, "limits", Level::kWarning, "1024",
               "ulimit -n"},
        Defect{"FewProcesses", false, [](Facts& f) { f.processes = 100; }, "limits", Level::kWarning, "100",
               "ulimit -u"},
        Defect{"LittleLockedMemory", true, [](Facts& f) { f.locked_memory = 8 << 20; }, "limits", Level::kNote, "8 MiB",
               "IPC_LOCK"},
        Defect{"LittleMemory", false, [](Facts& f) { f.memory_limit_bytes = 512 << 20; }, "memory", Level::kWarning,
               "512 MiB, the limit of the container", "1 GiB for each rank"},
        Defect{"TooManyThreads", false, [](Facts& f) { f.omp_threads = "16"; }, "cpu", Level::kWarning,
               "would use 16 threads", "OMP_NUM_THREADS=8"},
        Defect{"ThreadsNotSet", false, [](Facts& f) { f.local_world_size = 4; }, "cpu", Level::kNote,
               "4 ranks would each use 8 threads", "OMP_NUM_THREADS=2"},
        Defect{"ThreadsNotANumber", false, [](Facts& f) { f.omp_threads = "all"; }, "cpu", Level::kWarning, "is all",
               "a number"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Report, EveryFindingButOkHasRemedy) {
  Facts nothing;  // nothing could be measured
  for (const Finding& finding : assess(nothing)) {
    if (finding.level != Level::kOk) {
      EXPECT_THAT(finding.remedy, Not(IsEmpty())) << finding.summary;
    }
  }
}

TEST(Report, TextAndJsonAgree) {
  Facts facts = healthy();
  facts.own_name = "node\x1b[31m";
  facts.shm_bytes = -1;
  const std::vector<Finding> findings = assess(facts);
  const std::string text = to_text(facts, findings);
  EXPECT_THAT(text, AllOf(HasSubstr("oarlock 0.1.0 on Debian, Linux 6.1\non a machine\n"),
                          HasSubstr("problem  shared memory  there is no /dev/shm"),
                          HasSubstr("\n1 problem, 0 warnings\n"), Not(HasSubstr("\x1b"))));
  const nlohmann::json json = nlohmann::json::parse(to_json_text(facts, findings));
  EXPECT_EQ(json["problems"], 1);
  EXPECT_EQ(json["findings"].size(), findings.size());
}

TEST(Probe, HangingMeasurementEndsAtTheLimit) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run_with_limit(
                []() -> std::string {
                  while (true) ::pause();
                },
                200ms),
            std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_EQ(run_with_limit([] { return std::string("text"); }, 30s), "text");
  EXPECT_EQ(run_with_limit([]() -> std::string { std::abort(); }, 30s), std::nullopt);
}

TEST(Probe, ReturnsOutputOfPrograms) {
  int exit_code = 0;
  EXPECT_EQ(program_output({"sh", "-c", "echo out; echo err >&2; exit 3"}, 30s, exit_code), "out\nerr\n");
  EXPECT_EQ(exit_code, 3);
  program_output({"/does/not/exist"}, 30s, exit_code);
  EXPECT_EQ(exit_code, 127);
  program_output({"sleep", "600"}, 200ms, exit_code);
  EXPECT_EQ(exit_code, -1);
}

TEST(Probe, ExercisesCheckpointDirectory) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() / "runs" / "new";  // its parent exists
  const DirectoryFact works = probe_directory(path, true, 30s);
  EXPECT_EQ(works.create_error + works.write_error + works.sync_error + works.rename_error + works.symlink_error, "");
  EXPECT_GT(works.free_bytes, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_THAT(probe_directory("/proc/none", true, 30s).create_error, Not(IsEmpty()));
}

TEST(Probe, DetectsPortsInUse) {
  const auto reserved = PortReservation::make(1);
  ASSERT_TRUE(reserved);
  EXPECT_EQ(probe_port(reserved->first()), "");  // a reservation does not listen
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = 0;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_THAT(probe_port(ntohs(address.sin_port)), HasSubstr("in use"));
}

TEST(Probe, ParsesDateOfHeaders) {
  EXPECT_EQ(date_of_headers("HTTP/2 200\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"), 784111777);
  EXPECT_EQ(date_of_headers("HTTP/2 200\r\nDate: Sunday\r\n"), std::nullopt);
  EXPECT_EQ(date_of_headers(""), std::nullopt);
}

TEST(Probe, MeasuresThisMachine) {
  const test::TemporaryDirectory directory;
  const Facts facts = probe({.version = "1", .checkpoint_dir = directory.path(), .server = "", .limit = 20s});
  EXPECT_THAT(facts.kernel, HasSubstr("Linux"));
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_GE(facts.machine_cpus, 1);
  EXPECT_EQ(facts.ports.size(), 2);
  EXPECT_THAT(to_text(facts, assess(facts)), HasSubstr("warning"));  // the last line counts them
}

}  // namespace
}  // namespace oarlock::doctor
