// Generations: a database that was put back from a backup or a copy must not give out again the
// fencing tokens (and attempts' folders) of what lived after the backup. Internal to storage/.
//
// Each opening and each orderly close gives the file a new random name, in the counters row
// (`file_id`) and in PATH.id beside it, together with the file's inode and, once it is closed, the
// time of its last change. A file that is not the one that was here last does not fit what lies
// beside it: then the generation is raised and tokens begin at generation << kGenerationShift.
// `backup` marks its copies, so that one is recognised wherever it is put. Doubt raises the
// generation: that costs nothing but a number.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {

/// When the file was last changed, as its file system says; "" = it does not.
std::string last_change(const std::string& path);

/// Looks at the file that was just opened for writing, and names it anew. `changed` is its
/// `last_change` before that: migrations write. A raised generation is an
/// event row "database_restored" too. Returns what there is to say about that, "" = nothing.
/// Errors: those of writing; kResourceExhausted when no generation is left.
Result<std::string> settle_generation(Connection& db, const std::string& path,
                                      const std::string& changed);

/// Names the file anew, before its close. Returns the name; "" = it could not be, and nothing has
/// changed.
std::string rename_generation(Connection& db, const std::string& path);

/// Writes down how the file of that name was left. REQUIRES: its last connection is closed. Without
/// this, it is taken for one that was not closed.
void note_closed(const std::string& file_id, const std::string& path);

/// Marks a copy as a backup. No effect on an empty database.
void mark_backup(Connection& copy);

}  // namespace tailor::storage
