// What a program reports: a line of OARLOCK_PROGRESS, a body of Kubeflow's protocol, and a line of output. Accepted
// values are written and read again unchanged, and the board that they change stays small.
#include "cli/launch/kubeflow.h"
#include "cli/launch/line_splitter.h"
#include "cli/launch/progress_board.h"
#include "cli/launch/rank_errors.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

void require_same(const ProgressReport& report) {
  if (report.metrics.size() <= 16) fuzz::require(progress_report_from_json(to_json(report)) == report);
  fuzz::require(to_json(report).size() < kProgressLineLimit);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const RealClock clock;
  launch::ProgressBoard board({}, clock);
  launch::LineSplitter lines(kProgressLineLimit);
  launch::RankErrors errors;
  lines.feed(text, [&](std::string_view line) {
    errors.add(line);
    const auto report = progress_report_from_json(line);
    if (!report) return;
    require_same(*report);
    board.add(0, *report);
  });
  fuzz::require(errors.reason().size() <= 1100);
  launch::KubeflowReports reports;
  if (const auto report = reports.convert(text)) {
    fuzz::require(to_json(*report).size() < kProgressLineLimit || report->metrics.empty());
    fuzz::require(!report->step || *report->step >= 0);
  }
  if (board.has_reports()) fuzz::require(rank_status_from_json(board.status()).has_value());
  fuzz::require(board.metrics().size() < size_t{1} << 18);
  return 0;
}
