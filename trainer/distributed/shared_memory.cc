#include "trainer/distributed/shared_memory.h"

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
#include <random>
#include <sstream>
#include <string>

#include "trainer/distributed/failure.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kPage = 4096;
// Longer than ranks differ that work alike: to sleep and to be woken costs more.
constexpr std::chrono::microseconds kSpin{50};
constexpr milliseconds kLook{50};  // between two looks whether a rank is still there

struct alignas(64) Signal {  // a cache line of its own
  sem_t semaphore;
};

size_t rounded_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

uint64_t new_token() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

FileDescriptor process_descriptor(int64_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

// On Linux the steady clock is CLOCK_MONOTONIC.
timespec to_timespec(steady_clock::time_point instant) {
  const auto since = instant.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  return {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(since - seconds).count()};
}

std::span<std::byte> map(int descriptor, size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return at == MAP_FAILED ? std::span<std::byte>() : std::span(static_cast<std::byte*>(at), bytes);
}

}  // namespace

// Where rank 0's memory is to be found.
struct SharedMemory::Place {
  int64_t pid = 0;
  int descriptor = -1;
  uint64_t token = 0;

  static Place from(const std::string& text) {
    Place place;
    std::istringstream(text) >> place.pid >> place.descriptor >> place.token;
    return place;
  }
  std::string text() const { return fmt::format("{} {} {}", pid, descriptor, token); }
};

struct SharedMemory::Control {
  uint64_t token = 0;  // the number of a process may mean another one in this rank's namespace
  std::array<std::atomic<bool>, kMostRanks> left{};
  std::array<std::array<Signal, kMostRanks>, kMostRanks> signals{};  // [from][to]
};

// On rank 0. The descriptor is needed until the others have opened it.
std::span<std::byte> SharedMemory::make(size_t bytes, FileDescriptor& descriptor, Place& place) {
  descriptor = FileDescriptor(::memfd_create("oarlock-gradients", MFD_CLOEXEC));
  if (!descriptor.open() || ::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) return {};
  const std::span<std::byte> mapping = map(descriptor.get(), bytes);
  if (mapping.empty()) return {};
  auto* const control = new (mapping.data()) Control;
  for (auto& from_one : control->signals) {
    for (Signal& signal : from_one) ::sem_init(&signal.semaphore, /*pshared=*/1, 0);
  }
  control->token = new_token();
  place = {.pid = ::getpid(), .descriptor = descriptor.get(), .token = control->token};
  return mapping;
}

// On the other ranks.
std::span<std::byte> SharedMemory::reach(const Place& place, size_t bytes) {
  if (place.descriptor < 0) return {};
  const std::string path = fmt::format("/proc/{}/fd/{}", place.pid, place.descriptor);
  const FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));  // it may be anything
  struct stat is{};
  if (!descriptor.open() || ::fstat(descriptor.get(), &is) != 0) return {};
  if (!S_ISREG(is.st_mode) || static_cast<size_t>(is.st_size) != bytes) return {};
  const std::span<std::byte> mapping = map(descriptor.get(), bytes);
  if (mapping.empty() || reinterpret_cast<const Control*>(mapping.data())->token == place.token) return mapping;
  ::munmap(mapping.data(), mapping.size());
  return {};
}

std::unique_ptr<SharedMemory> SharedMemory::open(const RankGroup& group, size_t slot_bytes, milliseconds timeout) {
  const int world_size = group.world_size();
  if (world_size < 2 || world_size > kMostRanks) return nullptr;
  slot_bytes = rounded_up(slot_bytes);
  const size_t bytes = rounded_up(sizeof(Control)) + slot_bytes * kSlots * static_cast<size_t>(world_size);

  FileDescriptor descriptor;
  Place place;
  std::span<std::byte> mapping;
  if (group.rank() == 0) mapping = make(bytes, descriptor, place);
  place = Place::from(group.broadcast(place.text()));
  if (group.rank() != 0) mapping = reach(place, bytes);

  std::unique_ptr<SharedMemory> out;
  if (!mapping.empty()) out.reset(new SharedMemory(mapping, group.rank(), world_size, slot_bytes, timeout));
  std::vector<FileDescriptor> peers;
  for (const int64_t pid : group.gather(int64_t{::getpid()})) peers.push_back(process_descriptor(pid));
  const bool reached = out && std::ranges::all_of(peers, [](const FileDescriptor& peer) { return peer.open(); });
  const std::vector<int64_t> all = group.gather(int64_t{reached});
  if (std::ranges::find(all, 0) != all.end()) return nullptr;
  out->peers_ = std::move(peers);
  return out;
}

SharedMemory::SharedMemory(std::span<std::byte> mapping, int rank, int world_size, size_t slot_bytes,
                           milliseconds timeout)
    : mapping_(mapping), rank_(rank), world_size_(world_size), slot_bytes_(slot_bytes), timeout_(timeout) {}

SharedMemory::~SharedMemory() {
  control().left[static_cast<size_t>(rank_)] = true;
  ::munmap(mapping_.data(), mapping_.size());
}

SharedMemory::Control& SharedMemory::control() const { return *reinterpret_cast<Control*>(mapping_.data()); }

std::span<std::byte> SharedMemory::slot(int rank, int index) const {
  const size_t number = static_cast<size_t>(rank) * kSlots + static_cast<size_t>(index);
  return mapping_.subspan(rounded_up(sizeof(Control)) + number * slot_bytes_, slot_bytes_);
}

void SharedMemory::meet() {
  auto& from_here = control().signals[static_cast<size_t>(rank_)];
  for (int peer = 0; peer < world_size_; ++peer)
    if (peer != rank_) ::sem_post(&from_here[static_cast<size_t>(peer)].semaphore);
  for (int peer = 0; peer < world_size_; ++peer)
    if (peer != rank_) await(peer);
}

void SharedMemory::await(int peer) const {
  sem_t& signal = control().signals[static_cast<size_t>(peer)][static_cast<size_t>(rank_)].semaphore;
  const steady_clock::time_point begin = steady_clock::now();
  do {
    if (::sem_trywait(&signal) == 0) return;
  } while (steady_clock::now() - begin < kSpin);
  for (;;) {
    const timespec until = to_timespec(steady_clock::now() + kLook);
    const bool left = has_left(peer);  // asked first: its signal may be its last deed
    if (::sem_clockwait(&signal, CLOCK_MONOTONIC, &until) == 0) return;
    if (errno != ETIMEDOUT) continue;
    if (left) throw Failure(lost_peer(fmt::format("rank {} has ended", peer)));
    if (steady_clock::now() - begin >= timeout_) {
      throw Failure(
          late_peer(fmt::format("no sign of rank {} for {} s", peer, std::chrono::duration<double>(timeout_).count())));
    }
  }
}

bool SharedMemory::has_left(int peer) const {
  if (control().left[static_cast<size_t>(peer)]) return true;
  pollfd process{peers_[static_cast<size_t>(peer)].get(), POLLIN, 0};
  return ::poll(&process, 1, 0) > 0;
}

}  // namespace oarlock
