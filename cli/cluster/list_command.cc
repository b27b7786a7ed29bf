// oarlock list: the TrainingJobs of a namespace or of the cluster.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/cluster/commands.h"
#include "cli/cluster/job_view.h"
#include "common/json_access.h"
#include "common/standard_streams.h"
#include "common/status_macros.h"
#include "operator/api/codec.h"

namespace oarlock::cli {
namespace {

constexpr char kListFooter[] = R"(
examples:
  oarlock list
  oarlock list -A -o wide
  oarlock list -l team=vision -o name
)";

struct ListFlags {
  ClusterFlags cluster;
  std::string selector;
  OutputFormat format = OutputFormat::kTable;
};

Result<int> list_jobs(const ListFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  const bool is_document = flags.format == OutputFormat::kJson || flags.format == OutputFormat::kYaml;
  std::vector<api::TrainingJob> jobs;
  nlohmann::json items = nlohmann::json::array();
  RETURN_IF_ERROR(cluster.list(
      training_jobs(), {.name_space = cluster.name_space(), .label_selector = flags.selector, .field_selector = ""},
      [&](nlohmann::json object) {
        if (is_document) {
          object["metadata"].erase("managedFields");
          items.push_back(std::move(object));
          return true;
        }
        // The template and the configuration of the trainer are not shown.
        if (object["spec"].is_object()) {
          object["spec"].erase("template");
          object["spec"].erase("trainer");
        }
        jobs.push_back(api::read_training_job(object));
        return true;
      }));
  if (is_document) {
    const nlohmann::json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", std::move(items)}};
    return write_standard_output(document_text(list, flags.format)).map([] { return 0; });
  }
  std::string text;
  if (flags.format == OutputFormat::kName) {
    for (const api::TrainingJob& job : jobs) text += qualified_name(job.metadata.name) + "\n";
  } else if (jobs.empty()) {
    print_error(cluster.name_space().empty()
                    ? "there are no TrainingJobs in this cluster\n"
                    : fmt::format("there are no TrainingJobs in namespace {}; -A lists those of all namespaces\n",
                                  cluster.name_space()));
  } else {
    text = job_table(jobs, flags.format == OutputFormat::kWide, cluster.name_space().empty(), RealClock().now())
               .to_text(detect_style());
  }
  return write_standard_output(text).map([] { return 0; });
}

}  // namespace

void add_list(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<ListFlags>();
  CLI::App* list_app = app.add_subcommand("list", "List TrainingJobs of a cluster, with their state and progress.");
  set_usage(*list_app, "oarlock list [-A] [-l SELECTOR] [-o FORMAT] [OPTIONS]");
  list_app->footer(kListFooter);
  list_app->add_option("-l,--selector", flags->selector, "labels of the jobs, such as team=vision")
      ->type_name("SELECTOR");
  add_output_option(*list_app, flags->format, {"table", "wide", "json", "yaml", "name"});
  add_cluster_options(*list_app, flags->cluster, /*all_namespaces=*/true);
  list_app->callback([flags, &chosen] { chosen = [flags] { return list_jobs(*flags); }; });
}

}  // namespace oarlock::cli
