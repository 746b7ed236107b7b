// Small file helpers that do not lose data: whole-file read, atomic durable replace,
// directory sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailor {

/// The whole file. Errors: kNotFound; kUnavailable with the system's reason; kInvalidArgument when
/// the file is larger than `bytes_max` (a guard against being pointed at the wrong thing).
Result<std::string> read_file(const std::string& path, std::uint64_t bytes_max = 1ull << 32);

/// Fills `data` with up to `size` bytes of the open file `descriptor` from `offset` on; fewer come
/// only at the file's end. Returns how many. Errors: the system's reason, with `path`.
Result<std::size_t> read_at(int descriptor, void* data, std::size_t size, std::uint64_t offset,
                            std::string_view path);

/// The folder that holds the running program; empty where the system does not say.
std::string program_folder();

/// Writes a temporary file beside `path`, fsyncs it, renames it over `path`, fsyncs the folder: a
/// reader sees the old content or the new, also after a power cut. Errors: kResourceExhausted on a
/// full disk, kUnavailable otherwise; `path` is then as it was. `durable = false` skips both fsyncs
/// (still atomic for readers; for files that only matter while the process lives, such as leases).
Status write_file_atomic(const std::string& path, std::string_view content, bool durable = true);

/// `path` from the root on, without "." and "..", so that it means the same from every folder.
/// Folders that are symbolic links keep their names; where a ".." after one would then name another
/// folder, it is resolved as the system does. Need not exist. `path` as it is where the working
/// folder is not known.
std::string absolute_path(const std::string& path);

/// fsyncs a file that others have written. Errors: the system's reason.
Status sync_file(const std::string& path);

/// fsyncs a directory, so that renames and new names in it survive a power cut.
Status sync_directory(const std::string& path);

/// The Status for a failed system call on `path`: kNotFound, kResourceExhausted (ENOSPC, EDQUOT,
/// EFBIG), kPermissionDenied, kInvalidArgument (a path that no file can have) or kUnavailable, with
/// strerror and the path.
Status errno_status(int error_number, std::string_view action, std::string_view path);

}  // namespace tailor
