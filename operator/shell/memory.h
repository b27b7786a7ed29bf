// Keeps the resident memory at what is in use.
#pragma once

namespace oarlock::control {

// Few arenas, and large blocks given back when they are freed. Before the first thread.
void tune_allocator();

// Gives free heap back to the system. After a relist, which needs more for a moment.
void trim_heap();

// Forgets the clean pages of program text and constants, which the kernel brings back (from its page cache) as they are
// used: what only start-up needed (symbol tables, relocations, the TLS library's tables) stays out.
void forget_startup_pages();

}  // namespace oarlock::control
