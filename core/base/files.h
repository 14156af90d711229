#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

// Files and folders of the user. Everything here throws Error with the path and the system's reason, never
// std::filesystem::filesystem_error: a missing permission or a name that is too long is no bug.

/// Throws Error for errno `code`: "PATH: got No such file or directory, expected EXPECTED. ADVICE".
[[noreturn]] void fail_path(const std::filesystem::path& path, int code, std::string expected);

/// Whether something stands at the path. False when it, or a folder on the way to it, is missing. Throws
/// Error when the system does not tell.
bool path_exists(const std::filesystem::path& path);

/// What stands in a folder, sorted by name; nothing when there is no such folder.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder);

/// Makes the folder and those above it, all or none. Returns the ones that were not there before, outermost
/// first.
std::vector<std::filesystem::path> make_folders(const std::filesystem::path& folder);

/// All bytes of a file or a pipe. A read that fails in the middle is an Error, not a shorter file.
std::string read_whole_file(const std::filesystem::path& path, std::string_view expected = "a readable file");

}  // namespace speclab
