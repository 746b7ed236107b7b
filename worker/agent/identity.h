// Identity: the names by which a worker and its trials folder are known, kept in files so that they
// outlive restarts.
#pragma once

#include <string>

#include "base/status.h"

namespace tailor::agent {

/// The default name of the worker that owns `work_dir`: the host's name and a few random letters,
/// drawn once and kept in WORK_DIR/worker-name, so that workers on hosts of one name (containers)
/// differ. A folder that an earlier version used keeps the host's name alone, which its attempts
/// carry. Errors: the folder cannot be read or written.
Result<std::string> default_worker_name(const std::string& work_dir, const std::string& host);

/// The identity of a trials folder, from TRIALS_DIR/.tailor-folder, made when it is missing: the
/// same for all workers that share the folder, whoever comes first. Errors: the system's reason.
Result<std::string> folder_identity(const std::string& trials_dir);

/// The numeric address that this node has on the way to `target` (host:port): where others that
/// reach the same network reach it. Nothing is sent. "" when there is no way, or no such host.
std::string address_towards(const std::string& target);

}  // namespace tailor::agent
