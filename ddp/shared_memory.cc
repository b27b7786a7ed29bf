#include "ddp/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <sstream>
#include <string>
#include <utility>

#include "common/random.h"
#include "ddp/library_errors.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kPageSize = 4096;
// Longer than the usual skew between ranks, because sleeping and waking up costs more.
constexpr std::chrono::microseconds kSpinTime{50};
constexpr milliseconds kLivenessInterval{50};  // between two checks whether a rank has exited

struct alignas(64) Signal {  // a separate cache line
  sem_t semaphore;
};

size_t round_up_to_page(size_t bytes) { return (bytes + kPageSize - 1) / kPageSize * kPageSize; }

FileDescriptor open_pidfd(int64_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

// On Linux steady_clock is CLOCK_MONOTONIC.
timespec to_timespec(steady_clock::time_point instant) {
  const auto since = instant.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  return {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(since - seconds).count()};
}

std::span<std::byte> map_shared(int descriptor, size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return at == MAP_FAILED ? std::span<std::byte>() : std::span(static_cast<std::byte*>(at), bytes);
}

}  // namespace

// Identifies the memory of rank 0.
struct SharedMemory::Location {
  int64_t pid = 0;
  int descriptor = -1;
  uint64_t token = 0;

  static Location parse(const std::string& text) {
    Location location;
    std::istringstream(text) >> location.pid >> location.descriptor >> location.token;
    return location;
  }
  std::string to_text() const { return fmt::format("{} {} {}", pid, descriptor, token); }
};

struct SharedMemory::Control {
  uint64_t token = 0;  // verifies the mapping: a pid may denote another process in the reader's pid namespace
  std::array<std::atomic<bool>, kMaxRanks> exited{};
  std::array<std::array<Signal, kMaxRanks>, kMaxRanks> signals{};  // [from][to]
};

// Called on rank 0. `descriptor` must stay open until the other ranks have opened the memory.
std::span<std::byte> SharedMemory::create_mapping(size_t bytes, FileDescriptor& descriptor, Location& location) {
  descriptor = FileDescriptor(::memfd_create("oarlock-gradients", MFD_CLOEXEC));
  if (!descriptor.open() || ::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) return {};
  const std::span<std::byte> mapping = map_shared(descriptor.get(), bytes);
  if (mapping.empty()) return {};
  auto* const control = new (mapping.data()) Control;
  for (auto& from_one : control->signals) {
    for (Signal& signal : from_one) ::sem_init(&signal.semaphore, /*pshared=*/1, 0);
  }
  control->token = random_number();
  location = {.pid = ::getpid(), .descriptor = descriptor.get(), .token = control->token};
  return mapping;
}

// Called on the other ranks.
std::span<std::byte> SharedMemory::open_mapping(const Location& location, size_t bytes) {
  if (location.descriptor < 0) return {};
  const std::string path = fmt::format("/proc/{}/fd/{}", location.pid, location.descriptor);
  const FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));  // it may be any kind of file
  struct stat status{};
  if (!descriptor.open() || ::fstat(descriptor.get(), &status) != 0) return {};
  if (!S_ISREG(status.st_mode) || static_cast<size_t>(status.st_size) != bytes) return {};
  const std::span<std::byte> mapping = map_shared(descriptor.get(), bytes);
  if (mapping.empty() || reinterpret_cast<const Control*>(mapping.data())->token == location.token) return mapping;
  ::munmap(mapping.data(), mapping.size());
  return {};
}

std::unique_ptr<SharedMemory> SharedMemory::open(const ProcessGroup& group, size_t slot_bytes, milliseconds timeout) {
  const int world_size = group.world_size();
  if (world_size < 2 || world_size > kMaxRanks) return nullptr;
  slot_bytes = round_up_to_page(slot_bytes);
  const size_t bytes = round_up_to_page(sizeof(Control)) + slot_bytes * kSlots * static_cast<size_t>(world_size);

  FileDescriptor descriptor;
  Location location;
  std::span<std::byte> mapping;
  if (group.rank() == 0) mapping = create_mapping(bytes, descriptor, location);
  location = Location::parse(group.broadcast(location.to_text()));
  if (group.rank() != 0) mapping = open_mapping(location, bytes);

  std::unique_ptr<SharedMemory> out;
  if (!mapping.empty()) out.reset(new SharedMemory(mapping, group, slot_bytes, timeout));
  std::vector<FileDescriptor> peers;
  for (const int64_t pid : group.all_gather(int64_t{::getpid()})) peers.push_back(open_pidfd(pid));
  const bool reached = out && std::ranges::all_of(peers, [](const FileDescriptor& peer) { return peer.open(); });
  const std::vector<int64_t> all = group.all_gather(int64_t{reached});
  if (std::ranges::find(all, 0) != all.end()) return nullptr;
  out->peers_ = std::move(peers);
  return out;
}

SharedMemory::SharedMemory(std::span<std::byte> mapping, ProcessGroup group, size_t slot_bytes, milliseconds timeout)
    : mapping_(mapping),
      group_(std::move(group)),
      rank_(group_.rank()),
      world_size_(group_.world_size()),
      slot_bytes_(slot_bytes),
      timeout_(timeout) {}

SharedMemory::~SharedMemory() {
  control().exited[static_cast<size_t>(rank_)] = true;
  ::munmap(mapping_.data(), mapping_.size());
}

SharedMemory::Control& SharedMemory::control() const { return *reinterpret_cast<Control*>(mapping_.data()); }

std::span<std::byte> SharedMemory::slot(int rank, int index) const {
  const size_t number = static_cast<size_t>(rank) * kSlots + static_cast<size_t>(index);
  return mapping_.subspan(round_up_to_page(sizeof(Control)) + number * slot_bytes_, slot_bytes_);
}

void SharedMemory::barrier() {
  auto& from_here = control().signals[static_cast<size_t>(rank_)];
  for (int peer = 0; peer < world_size_; ++peer)
    if (peer != rank_) ::sem_post(&from_here[static_cast<size_t>(peer)].semaphore);
  for (int peer = 0; peer < world_size_; ++peer)
    if (peer != rank_) wait_for(peer);
}

void SharedMemory::wait_for(int peer) const {
  sem_t& signal = control().signals[static_cast<size_t>(peer)][static_cast<size_t>(rank_)].semaphore;
  const steady_clock::time_point begin = steady_clock::now();
  do {
    if (::sem_trywait(&signal) == 0) return;
  } while (steady_clock::now() - begin < kSpinTime);
  for (;;) {
    const timespec until = to_timespec(steady_clock::now() + kLivenessInterval);
    const bool exited = has_exited(peer);  // checked first: a rank may signal just before it exits
    if (::sem_clockwait(&signal, CLOCK_MONOTONIC, &until) == 0) return;
    if (errno != ETIMEDOUT) continue;
    if (group_.has_left()) throw ErrorException(peer_lost_error("this rank has left the group"));
    if (exited) throw ErrorException(peer_lost_error(fmt::format("rank {} has exited", peer)));
    if (steady_clock::now() - begin >= timeout_) {
      throw ErrorException(peer_timeout_error(
          fmt::format("no signal from rank {} for {} s", peer, std::chrono::duration<double>(timeout_).count())));
    }
  }
}

bool SharedMemory::has_exited(int peer) const {
  if (control().exited[static_cast<size_t>(peer)]) return true;
  pollfd process{peers_[static_cast<size_t>(peer)].get(), POLLIN, 0};
  return ::poll(&process, 1, 0) > 0;
}

}  // namespace oarlock
