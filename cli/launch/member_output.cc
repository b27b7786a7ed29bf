#include "cli/launch/member_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "cli/launch/polling.h"
#include "cli/launch/progress.h"
#include "common/status_macros.h"

namespace oarlock::launch {
namespace {

constexpr int kMaxTailReads = 16;
constexpr size_t kMaxLineBytes = 2000;  // of a line that is searched for errors and progress

}  // namespace

std::vector<const Command*> commands_of(const std::vector<Member>& members) {
  std::vector<const Command*> commands;
  for (const Member& member : members) commands.push_back(&member.command);
  return commands;
}

Result<void> MemberOutput::add(size_t member, Child child, int64_t attempt, bool is_restart) {
  errors_[member] = {};
  for (Stream& stream : streams_) stream.is_earlier = stream.is_earlier || stream.member == member;
  const Member& settings = members_[member];
  const auto add_stream = [&](FileDescriptor from, OutputQueue& to, const char* name, LogMode mode,
                              bool is_error) -> Result<void> {
    if (!from.open()) return {};
    Result<LogFile> file = open_log(settings, attempt, name);
    if (!file && !is_restart) return tl::make_unexpected(file.error());
    if (!file) {
      console_.print_line(
          fmt::format("{}; {} has no such file after this restart", file.error().message, settings.name));
      file = LogFile();
    }
    // Only the first rank of a node shows its progress.
    const auto progress_lines =
        member == 0 ? LinePrefixer::ProgressLines::kShow : LinePrefixer::ProgressLines::kLeaveOut;
    const bool on_console = settings.on_console && (!file->is_open() || mode == LogMode::kConsoleAndFiles);
    std::optional<LinePrefixer> prefixer;
    if (members_.size() > 1 || !settings.prefix.empty() || to.columns() > 0)
      prefixer.emplace(settings.prefix, to.columns(), progress_lines);
    streams_.push_back({std::move(from), &to, std::move(prefixer), *std::move(file), on_console, member, is_error,
                        /*is_earlier=*/false, LineSplitter(kMaxLineBytes)});
    return {};
  };
  RETURN_IF_ERROR(add_stream(std::move(child.out), console_.out(), "stdout.log", settings.out, false));
  return add_stream(std::move(child.err), console_.err(), "stderr.log", settings.err, true);
}

// Opens a file for the output of the next start of a member; not open if the member has no directory.
Result<LogFile> MemberOutput::open_log(const Member& member, int64_t attempt, const char* name) const {
  if (member.log_directory.empty()) return LogFile();
  std::string directory = member.name;
  std::ranges::replace(directory, ' ', '_');
  return LogFile::open(member.log_directory / fmt::format("attempt_{}", attempt) / directory / name);
}

bool MemberOutput::discards(const OutputQueue& queue, SteadyTime now) const {
  return queue.full() && queue.waiting_since() && *queue.waiting_since() + reader_timeout_ <= now;
}

void MemberOutput::add_descriptors(SteadyTime now, std::chrono::milliseconds reader_timeout, std::vector<pollfd>& out) {
  reader_timeout_ = reader_timeout;
  for (OutputQueue* queue : console_.queues()) {
    queue->observe(now);
    out.push_back({queue->empty() ? -1 : queue->fd(), POLLOUT, 0});
  }
  for (const Stream& stream : streams_) {
    const bool waits = stream.to->full() && !discards(*stream.to, now);
    out.push_back({waits ? -1 : stream.from.get(), POLLIN, 0});
  }
}

void MemberOutput::handle(std::span<const pollfd> polled) {
  const std::vector<OutputQueue*> queues = console_.queues();
  // Once for each descriptor: a second write could block, see OutputQueue.
  for (size_t i = 0; i < queues.size(); ++i) {
    if (polled[i].revents != 0) queues[i]->write_some(clock_.steady());
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (polled[queues.size() + i].revents != 0) read_some(streams_[i]);
  }
  std::erase_if(streams_, [](const Stream& stream) { return !stream.from.open(); });
}

std::optional<SteadyTime> MemberOutput::deadline(SteadyTime now) const {
  std::optional<SteadyTime> out;
  for (const OutputQueue* queue : console_.queues()) {
    if (queue->full() && queue->waiting_since() && !discards(*queue, now))
      out = earlier(out, *queue->waiting_since() + reader_timeout_);
  }
  return out;
}

// Returns true if there may be more data.
bool MemberOutput::read_some(Stream& stream) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(stream.from.get(), buffer.data(), buffer.size());
  if (got <= 0) {
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    close(stream);
    return false;
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  if (stream.file.is_open()) {
    if (const auto problem = stream.file.write(bytes)) {
      console_.print_line(*problem);
      if (!stream.on_console) lost_output_ = stream.file.path().string();
    }
  }
  const bool is_searched = progress_ != nullptr && progress_->reads_output();
  if (!stream.is_earlier && (stream.is_error || is_searched)) {
    stream.lines.feed(bytes, [&](std::string_view line) {
      if (stream.is_error) errors_[stream.member].add(line);
      if (is_searched) progress_->read_output(stream.member, line);
    });
  }
  if (!stream.on_console) return true;
  if (stream.to->closed()) {  // the rank then receives SIGPIPE
    close(stream);
    return false;
  }
  std::string lines;
  if (stream.prefixer) stream.prefixer->feed(bytes, lines);
  const std::string_view text = stream.prefixer ? std::string_view(lines) : bytes;
  if (discards(*stream.to, clock_.steady())) {
    stream.to->discard(text);
  } else {
    stream.to->push(text);
  }
  return true;
}

void MemberOutput::close(Stream& stream) {
  std::string rest;
  if (stream.prefixer) stream.prefixer->finish(rest);
  stream.to->push(rest);
  if (stream.is_error && !stream.is_earlier) errors_[stream.member].add(stream.lines.pending());
  stream.from.close();
}

void MemberOutput::read_errors(size_t member) {
  for (Stream& stream : streams_) {
    for (int i = 0;
         i < kMaxTailReads && stream.is_error && stream.member == member && stream.from.open() && read_some(stream);
         ++i) {
    }
  }
}

void MemberOutput::drain(std::chrono::milliseconds reader_timeout) {
  reader_timeout_ = reader_timeout;
  // The reader may have waited for this process meanwhile.
  for (OutputQueue* queue : console_.queues()) {
    pollfd fd{queue->empty() ? -1 : queue->fd(), POLLOUT, 0};
    if (::poll(&fd, 1, 0) > 0) queue->write_some(clock_.steady());
  }
  for (Stream& stream : streams_) {
    while (read_some(stream)) {
    }
    if (stream.from.open()) close(stream);
  }
  streams_.clear();
}

}  // namespace oarlock::launch
