#pragma once

namespace speclab {

/// From now on a mapped file that another process cuts off ends the program with exit code 2 and a sentence
/// that names the file, where the system would only say "Bus error". What had been recorded until then is on
/// the disk.
void report_mapped_file_faults();

}  // namespace speclab
