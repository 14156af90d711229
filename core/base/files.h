#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

// Access to the user's files and folders. All functions throw Error with the path and the system's reason,
// never std::filesystem::filesystem_error: a missing permission or a name that is too long is not a bug.

/// Throws Error for errno `code`: "PATH: got No such file or directory, expected EXPECTED. ADVICE".
[[noreturn]] void fail_path(const std::filesystem::path& path, int code, std::string expected);

/// Whether the path exists. False when it, or a folder on the way to it, is
/// missing. Throws Error when the system cannot tell.
bool path_exists(const std::filesystem::path& path);

/// The entries of a folder, sorted by name. Empty when there is no such folder.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder);

/// Makes the folder and its missing parents, all or none. Returns those that it made, outermost first.
std::vector<std::filesystem::path> make_folders(const std::filesystem::path& folder);

/// Returns all bytes of a file or a pipe. A read that fails in the middle throws Error; it never returns a
/// part. `expected` completes the error message.
std::string read_whole_file(const std::filesystem::path& path, std::string_view expected = "a readable file");

}  // namespace speclab
