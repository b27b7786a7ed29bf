// oarlock doctor: checks whether this machine, pod or Slurm job can train.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/doctor/assess.h"
#include "cli/doctor/probe.h"
#include "common/terminal.h"

namespace oarlock::cli {
namespace {

constexpr char kDoctorDescription[] =
    "Check this machine, pod or Slurm job: GPUs and driver, NCCL, oarlock-trainer, ports, names, shared memory, "
    "clock,\n"
    "checkpoint directory, limits, memory and CPUs. Prints a report for an issue, with a remedy for each finding. The\n"
    "report contains host names, addresses and paths; read it before you publish it.";

constexpr char kDoctorFooter[] = R"(
It measures from within this process: run it in the pod (kubectl exec POD -- oarlock doctor) or in the job (srun oarlock
doctor) that has the problem. Each measurement ends after 3 seconds, even if a name server or a file system hangs.
The clock is compared with that of the API server in a pod, or of --server, if curl is installed.

exit codes: 0: no problems; 69: at least one problem, which prevents training. Warnings do not change the exit code.

examples:
  oarlock doctor
  oarlock doctor --checkpoint-dir /scratch/runs
  oarlock doctor -o json | jq '.findings[] | select(.level != "ok")'
)";

struct DoctorFlags {
  doctor::ProbeOptions probe;
  std::string output = "text";
};

Result<int> check_machine(const DoctorFlags& flags) {
  const doctor::Facts facts = doctor::probe(flags.probe);
  const std::vector<doctor::Finding> findings = doctor::assess(facts);
  const bool has_problem = std::ranges::any_of(
      findings, [](const doctor::Finding& finding) { return finding.level == doctor::Level::kProblem; });
  const std::string text =
      flags.output == "json" ? doctor::to_json_text(facts, findings) : doctor::to_text(facts, findings);
  return write_standard_output(text).map([&] { return has_problem ? to_int(ExitCode::kUnavailable) : 0; });
}

}  // namespace

void add_doctor(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<DoctorFlags>();
  flags->probe.version = OARLOCK_VERSION;
  CLI::App* doctor_app = app.add_subcommand("doctor", kDoctorDescription);
  set_usage(*doctor_app, "oarlock doctor [OPTIONS]");
  doctor_app->footer(kDoctorFooter);
  doctor_app
      ->add_option("--checkpoint-dir", flags->probe.checkpoint_dir,
                   "directory for checkpoints; default: OARLOCK_CHECKPOINT_DIR, else the current directory")
      ->type_name("DIR");
  doctor_app->add_option("--server", flags->probe.server, "URL of an API server, to compare clocks")->type_name("URL");
  doctor_app->add_option("-o,--output", flags->output, "text or json")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  doctor_app->callback([flags, &chosen] { chosen = [flags] { return check_machine(*flags); }; });
}

}  // namespace oarlock::cli
