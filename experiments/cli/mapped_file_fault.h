#pragma once

namespace speclab {

/// Installs a handler for access to a mapped file that another process has shortened. The program then ends
/// with exit code 2 and a message that names the file; without the handler, the system only prints "Bus
/// error". Finished lines are already on the disk.
void report_mapped_file_faults();

}  // namespace speclab
