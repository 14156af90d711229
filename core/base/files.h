#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

// Access to the user's files and folders. A function that fails throws Error with the path and the system's
// reason. No function throws std::filesystem::filesystem_error, because main() would report that as a bug.

/// Throws Error for the errno value `code`: "PATH: got No such file or directory, expected EXPECTED. ADVICE".
[[noreturn]] void fail_path(const std::filesystem::path& path, int code, std::string expected);

/// Whether the path exists. Returns false when the path or one of its parent folders is missing. Throws Error
/// when the system cannot tell.
bool path_exists(const std::filesystem::path& path);

/// The entries of a folder, sorted by name. Empty when there is no such folder.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder);

/// Makes the folder and its missing parents. If one of them cannot be made, removes those that it made and
/// throws Error. Returns the folders that it made, outermost first.
std::vector<std::filesystem::path> make_folders(const std::filesystem::path& folder);

/// Returns all bytes of a file or a pipe. When a read fails in the middle, it throws Error and returns no
/// part of the file. `expected` is the "expected" part of the error message.
std::string read_whole_file(const std::filesystem::path& path, std::string_view expected = "a readable file");

}  // namespace speclab
