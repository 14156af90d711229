#pragma once

namespace speclab::fixtures {

/// Number of calls of operator new and posix_memalign by all threads of this process. Not in a build for
/// AddressSanitizer, see allocation_test.cpp.
long allocations_so_far();

}  // namespace speclab::fixtures
