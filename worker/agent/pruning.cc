// See pruning.h.
#include "worker/agent/pruning.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "base/file.h"
#include "protocol/convert.h"
#include "worker/agent/attempt_directory.h"
#include "worker/agent/checkpoint_files.h"

namespace tailor::agent {
namespace {

namespace fs = std::filesystem;

struct Checkpoint {
  fs::path path;
  std::int64_t step = 0;
  bool damaged = false;  ///< was put aside, or never became whole
};

/// What a trial's attempts of one generation left. In two generations the same number may be two
/// trials.
struct Generation {
  bool completed = false;
  std::vector<Checkpoint> checkpoints;  ///< newest first
};

/// What the folder of a trial looks like.
struct TrialFolder {
  fs::path path;
  bool in_use = false;
  WallMs changed_ms = 0;
  std::map<std::uint64_t, Generation> generations;
  bool completed() const { return !generations.empty() && generations.rbegin()->second.completed; }
};

WallMs changed_ms(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return std::int64_t{status.st_mtim.tv_sec} * 1000 + status.st_mtim.tv_nsec / 1'000'000;
}

std::uint64_t bytes_below(const fs::path& path) {
  std::uint64_t bytes = 0;
  std::error_code failure;
  for (fs::recursive_directory_iterator it(path, failure), end; !failure && it != end;
       it.increment(failure)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
  }
  return bytes;
}

/// True when the last report of an attempt says that the trial is completed. (The end that a worker
/// writes itself never does: there is no result in it.)
bool says_completed(const fs::path& attempt) {
  constexpr std::streamoff kTailBytes = 1 << 20;
  std::ifstream in(attempt / "reports.jsonl", std::ios::binary | std::ios::ate);
  if (!in) return false;
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::string line, last;
  while (std::getline(in, line)) last = line;
  const auto report = protocol::report_from_json(last);
  const auto* end = report ? std::get_if<protocol::EndReport>(&report->body) : nullptr;
  return end != nullptr && end->end == protocol::EndClass::kCompleted;
}

void look_at_checkpoints(const fs::path& folder, Generation& generation) {
  for (CheckpointFolder& one : checkpoints_in(folder.string())) {
    generation.checkpoints.push_back({std::move(one.path), one.step, false});
  }
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(kDamaged) || name.starts_with(kFetching))
      generation.checkpoints.push_back({at->path(), -1, true});
  }
}

TrialFolder look(const fs::path& path) {
  TrialFolder folder;
  folder.path = path;
  folder.changed_ms = changed_ms(path);
  std::error_code failure;
  for (fs::directory_iterator it(path, failure), end; !failure && it != end;
       it.increment(failure)) {
    const fs::path& attempt = it->path();
    std::error_code ignored;
    if (!fs::is_directory(attempt, ignored)) continue;
    folder.in_use = folder.in_use || fs::exists(attempt / "worker.json", ignored);
    for (const char* name : {"", "reports.jsonl", "log", "worker-done.json", "checkpoints"}) {
      folder.changed_ms = std::max(folder.changed_ms, changed_ms(attempt / name));
    }
    const auto number = folder_generation(attempt.filename().string());
    if (!number) continue;
    Generation& generation = folder.generations[*number];
    generation.completed = generation.completed || says_completed(attempt);
    look_at_checkpoints(attempt / "checkpoints", generation);
  }
  // Something that cannot be read may be in use.
  folder.in_use = folder.in_use || static_cast<bool>(failure);
  for (auto& [number, generation] : folder.generations) {
    std::sort(generation.checkpoints.begin(), generation.checkpoints.end(),
              [](const Checkpoint& a, const Checkpoint& b) { return a.step > b.step; });
  }
  return folder;
}

/// What may go of a trial that may go on: everything but the newest checkpoint that was read and is
/// whole. Nothing when there is none such, or nothing else.
std::vector<Checkpoint> superseded(const std::vector<Checkpoint>& checkpoints) {
  if (checkpoints.size() < 2) return {};
  const auto kept = std::find_if(checkpoints.begin(), checkpoints.end(), [](const Checkpoint& one) {
    return !one.damaged && verify_checkpoint_files(one.path.string());
  });
  if (kept == checkpoints.end()) return {};
  std::vector<Checkpoint> rest(checkpoints.begin(), kept);
  rest.insert(rest.end(), kept + 1, checkpoints.end());
  return rest;
}

bool remove(const fs::path& path, Pruned& pruned) {
  const std::uint64_t bytes = bytes_below(path);
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) {
    pruned.failures.push_back(errno_status(failure.value(), "remove", path.string()).message());
    return false;
  }
  pruned.bytes += bytes;
  return true;
}

/// When anything was last written to a folder without folders in it.
WallMs written_ms(const fs::path& folder) {
  WallMs latest = changed_ms(folder);
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    latest = std::max(latest, changed_ms(at->path()));
  }
  return latest;
}

/// Calls `visit` for each folder in `folder`, sorted by nothing; links are not followed.
template <typename Visit>
void for_each_folder(const fs::path& folder, const Visit& visit) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored)) found.push_back(at->path());
  }
  for (const fs::path& path : found) visit(path);
}

}  // namespace

Pruned prune_fetches(const std::string& trials_dir, WallMs now_ms) {
  constexpr std::int64_t kLeftAfterMs = 24ll * 3'600'000;
  Pruned pruned;
  for_each_folder(trials_dir, [&](const fs::path& trial) {
    if (!TrialId::parse(trial.filename().string())) return;
    for_each_folder(trial, [&](const fs::path& attempt) {
      for_each_folder(attempt / "checkpoints", [&](const fs::path& one) {
        if (!one.filename().string().starts_with(kFetching)) return;
        if (now_ms - written_ms(one) < kLeftAfterMs) return;
        if (remove(one, pruned)) ++pruned.checkpoints;
      });
    });
  });
  return pruned;
}

Result<Pruned> prune(const std::string& trials_dir, const PruneRules& rules, WallMs now_ms) {
  Pruned pruned;
  const auto is_old = [&](const TrialFolder& folder, std::int64_t after_ms) {
    return after_ms > 0 && now_ms - folder.changed_ms >= after_ms;
  };
  std::error_code failure;
  for (fs::directory_iterator it(trials_dir, failure), end; !failure && it != end;
       it.increment(failure)) {
    const auto trial = TrialId::parse(it->path().filename().string());
    std::error_code ignored;
    if (!trial || !fs::is_directory(it->path(), ignored)) continue;
    const TrialFolder folder = look(it->path());
    if (folder.in_use) continue;
    if (folder.completed() && is_old(folder, rules.folders_after_ms)) {
      if (remove(folder.path, pruned)) ++pruned.folders;
      continue;
    }
    if (!is_old(folder, rules.checkpoints_after_ms)) continue;
    for (const auto& [number, generation] : folder.generations) {
      const auto going =
          folder.completed() ? generation.checkpoints : superseded(generation.checkpoints);
      for (const Checkpoint& one : going) {
        if (remove(one.path, pruned)) ++pruned.checkpoints;
      }
    }
  }
  if (failure) return error(errno_status(failure.value(), "list", trials_dir));
  return pruned;
}

}  // namespace tailor::agent
