// A part of oarlock-launcher only, which is statically linked and runs in images of which nothing is known. glibc would
// load the libraries that the image's /etc/nsswitch.conf names, and those were compiled for another glibc. It contains
// these two itself.
#include <nss.h>

namespace oarlock::cli {
namespace {

[[maybe_unused]] const int kHostLookup = ::__nss_configure_lookup("hosts", "files dns");

}  // namespace
}  // namespace oarlock::cli
