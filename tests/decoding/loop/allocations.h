#pragma once

namespace speclab::fixtures {

/// Number of calls of operator new and posix_memalign by all threads of this process. A build for
/// AddressSanitizer does not define it, see allocation_test.cpp.
long allocations_so_far();

}  // namespace speclab::fixtures
