#include "operator/kube/socket_bio.h"

#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <new>

namespace oarlock::kube {
namespace {

int fd_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int result(BIO* bio, ssize_t n, bool reading) {
  BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (reading) {
      BIO_set_retry_read(bio);
    } else {
      BIO_set_retry_write(bio);
    }
  }
  if (n == 0 && reading) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(n);
}

int read(BIO* bio, char* data, int size) {
  return result(bio, ::recv(fd_of(bio), data, static_cast<size_t>(size), 0), true);
}

int write(BIO* bio, const char* data, int size) {
  return result(bio, ::send(fd_of(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL), false);
}

long control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

struct MethodFree {
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};

BIO_METHOD* new_method() {
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "oarlock socket");
  if (method == nullptr) throw std::bad_alloc();
  BIO_meth_set_read(method, read);
  BIO_meth_set_write(method, write);
  BIO_meth_set_ctrl(method, control);
  return method;
}

}  // namespace

BIO* new_socket_bio(int fd) {
  static const std::unique_ptr<BIO_METHOD, MethodFree> kMethod(new_method());
  BIO* bio = BIO_new(kMethod.get());
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace oarlock::kube
