#pragma once

namespace speclab::fixtures {

/// Calls of operator new and posix_memalign in this process, all threads. Not in a build for
/// AddressSanitizer, see allocation_test.cpp.
long allocations_so_far();

}  // namespace speclab::fixtures
