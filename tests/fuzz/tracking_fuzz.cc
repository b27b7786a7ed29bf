// The files that an earlier attempt left for experiment tracking: encoded events, the journal, the log and the row of a
// W&B run, and TensorBoard's event files. The first byte selects the reader. An event that is accepted is encoded as
// the same event.
#include <string>

#include "tests/fuzz/input.h"
#include "tests/support/temporary_directory.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/journal.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/wandb_file.h"
#include "trainer/tracking/wandb_history.h"

using namespace oarlock;

namespace {

const std::filesystem::path& directory() {
  static const test::TemporaryDirectory temporary;
  return temporary.path();
}

void read_event(std::string_view bytes) {
  const std::optional<Event> event = decode_event(bytes);
  if (!event) return;
  const std::string encoded = encode_event(*event);
  const std::optional<Event> again = decode_event(encoded);
  fuzz::require(again && encode_event(*again) == encoded);
}

// All events are delivered, whatever the file contained before, and one that is appended is the last one.
void read_journal(std::string_view bytes) {
  fuzz::write_file(directory() / "sink.journal", bytes);
  Result<std::unique_ptr<Journal>> journal = Journal::open(directory(), "sink", 1 << 20);
  fuzz::require(journal && (*journal)->warning().find('\n') == std::string::npos);
  Event last;
  last.step = 7;
  last.content = Text{.name = "last", .text = ""};
  fuzz::require((*journal)->append({encode_event(last)}).has_value());
  std::optional<Event> read;
  while (!(*journal)->is_empty()) {
    const Result<Journal::Batch> batch = (*journal)->read(3, 1 << 16);
    fuzz::require(batch && batch->events.size() == batch->ends.size());
    if (batch->events.empty()) continue;
    read = batch->events.back();
    fuzz::require((*journal)->discard(batch->ends.back()).has_value());
  }
  fuzz::require(read == last);
  for (const auto& entry : std::filesystem::directory_iterator(directory())) std::filesystem::remove(entry.path());
}

void read_log(std::string_view bytes) {
  const size_t size = bytes.size();
  WandbContents contents;
  const std::optional<WandbLogEnd> end = read_wandb_contents(source_of(bytes), contents);
  fuzz::require(!end || end->offset <= size);
}

void read_row(std::string_view bytes) {
  const std::filesystem::path path = directory() / "row";
  fuzz::write_file(path, bytes);
  const Result<std::optional<WandbRowState>> state = WandbRowFile::load(path);
  fuzz::require(state.has_value());
  if (!*state) return;
  fuzz::require(WandbRowFile(path).save(**state).has_value());
  const Result<std::optional<WandbRowState>> again = WandbRowFile::load(path);
  fuzz::require(again && *again && (*again)->run_id == (*state)->run_id && (*again)->row.items == (*state)->row.items);
}

void read_event_file(std::string_view bytes) {
  const ByteSource source = source_of(bytes);
  while (const std::optional<std::string_view> record = next_record(source))
    fuzz::require(frame_record(*record).size() > record->size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest = fuzz::text_of(data + 1, size - 1);
  switch (data[0]) {
    case 'e':
      read_event(rest);
      break;
    case 'j':
      read_journal(rest);
      break;
    case 'l':
      read_log(rest);
      break;
    case 'r':
      read_row(rest);
      break;
    case 't':
      read_event_file(rest);
      break;
    default:
      return -1;  // not kept as an input
  }
  return 0;
}
