// Files of users on the command line: a path, or "-" for standard input; and the TrainingJobs in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/types.h"
#include "common/error.h"
#include "common/files.h"
#include "yaml/reader.h"

namespace oarlock::cli {

// A file that can be read several times and by other programs. Standard input, pipes such as <(...) of a shell, and the
// paths of descriptors of this process such as /dev/stdin are copied to memory; the copy exists as long as this object.
class InputFile {
 public:
  // Fails with kUsage if `given` is "-" and standard input is a terminal, with kNoInput if it cannot be read, with
  // kConfig if standard input is larger than the largest YAML file (yaml::limits::kFileBytes), and with
  // kOsErr if it cannot be copied. A longer pipe is copied up to one byte beyond this size, so that the reader of
  // the copy reports that it is too large.
  static Result<InputFile> open(const std::string& given);

  const std::string& path() const { return path_; }
  // The name for messages: the given path, or "stdin".
  const std::string& name() const { return name_; }

 private:
  InputFile(std::string path, std::string name) : path_(std::move(path)), name_(std::move(name)) {}

  std::string path_;
  std::string name_;
  FileDescriptor copy_;  // of standard input or a pipe
};

// ---- TrainingJobs ------------------------------------------------------------------------------------------------

// Whether spec.template is checked against the pod schema (pod_schema/pod_schema.h).
enum class TemplateCheck { kNone, kPodSchema };

// Adds a problem for each part of a TrainingJob or a TrainingProfile, the root of a document, that the API server would
// reject in pods. `job` is null if the document is not that of a valid job; the pods are not complete then.
void check_pods(const yaml::Node& document, const api::TrainingJob* job, yaml::Problems& problems);

// The TrainingJobs of a file.
struct JobFile {
  std::vector<api::TrainingJob> jobs;         // in their order, without those that the API server would reject
  std::vector<api::AppliedProfile> profiles;  // the valid TrainingProfiles of the file
  std::optional<Error> problems;              // kConfig, and one line per problem, "file:line:col: path: message"
};

// Reads the TrainingJobs of a Kubernetes YAML file, and skips objects of other kinds. A List, as `kubectl get -o yaml`
// prints, and a TrainingJobList are read as their items. Problems include two jobs with the same name and namespace,
// which are both left out, and a document that is not a Kubernetes object. Fails with kConfig if the file cannot be
// parsed or has no TrainingJob, and as read_file() does.
Result<JobFile> read_jobs(const InputFile& file, TemplateCheck check);

// Returns the documents of a YAML file. Fails with kConfig if it cannot be parsed, and as read_file() does.
Result<std::vector<yaml::Node>> read_documents(const InputFile& file);

// Returns the TrainingJobs of documents as read_jobs() does, and fails with their problems, too. `file` is the name of
// the file in messages.
Result<std::vector<api::TrainingJob>> jobs_of(const std::vector<yaml::Node>& documents, const std::string& file,
                                              TemplateCheck check = TemplateCheck::kNone);

// Writes a note with the problems of the templates in documents that jobs_of() accepts. For commands that continue,
// because a newer API server may know more fields. `command` is the one that runs, such as "render".
void note_template_problems(const std::vector<yaml::Node>& documents, const std::string& file,
                            std::string_view command);

// Returns the job with this name, or the only job if the name is empty. Fails with kUsage if there is no such job.
Result<api::TrainingJob> choose_job(std::vector<api::TrainingJob> jobs, const std::string& name,
                                    const std::string& path);

}  // namespace oarlock::cli
