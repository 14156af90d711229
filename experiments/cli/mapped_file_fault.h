#pragma once

namespace speclab {

/// Installs a signal handler for reads of a mapped file that fail, because another process has shortened the
/// file or the disk cannot read it. After such a read, the handler ends the program with exit code 2 and a
/// message that names the file. Without the handler, the system only prints "Bus error". A run keeps its
/// finished lines: they are on the disk already.
void report_mapped_file_faults();

}  // namespace speclab
