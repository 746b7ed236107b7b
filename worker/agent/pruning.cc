// See pruning.h.
#include "worker/agent/pruning.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <variant>

#include "base/file.h"
#include "protocol/convert.h"
#include "worker/agent/attempt_directory.h"

namespace tailor::agent {
namespace {

namespace fs = std::filesystem;

struct Checkpoint {
  fs::path path;
  std::int64_t step = 0;
};

/// What the folder of a trial looks like.
struct TrialFolder {
  fs::path path;
  bool in_use = false;
  bool completed = false;
  WallMs changed_ms = 0;
  std::vector<Checkpoint> checkpoints;
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

/// True when an attempt of the trial says that it is completed: in its last report, or in the end
/// that its worker wrote.
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
    folder.completed = folder.completed || says_completed(attempt);
    for (const char* name : {"", "reports.jsonl", "log", "worker-done.json", "checkpoints"}) {
      folder.changed_ms = std::max(folder.changed_ms, changed_ms(attempt / name));
    }
    std::error_code inner;
    for (fs::directory_iterator at(attempt / "checkpoints", inner); !inner && at != end;
         at.increment(inner)) {
      const std::string name = at->path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos || name.size() > 18) continue;
      folder.checkpoints.push_back({at->path(), std::stoll(name)});
    }
  }
  // Something that cannot be read may be in use.
  folder.in_use = folder.in_use || static_cast<bool>(failure);
  std::sort(folder.checkpoints.begin(), folder.checkpoints.end(),
            [](const Checkpoint& a, const Checkpoint& b) { return a.step > b.step; });
  return folder;
}

}  // namespace

Result<Pruned> prune(const std::string& trials_dir, const PruneRules& rules, WallMs now_ms) {
  Pruned pruned;
  const auto remove = [&](const fs::path& path) {
    const std::uint64_t bytes = bytes_below(path);
    std::error_code failure;
    fs::remove_all(path, failure);
    if (failure) {
      pruned.failures.push_back(errno_status(failure.value(), "remove", path.string()).message());
      return false;
    }
    pruned.bytes += bytes;
    return true;
  };
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
    if (folder.completed && is_old(folder, rules.folders_after_ms)) {
      if (remove(folder.path)) ++pruned.folders;
      continue;
    }
    if (!is_old(folder, rules.checkpoints_after_ms)) continue;
    // The newest of a trial that may go on is what it goes on from.
    const std::size_t kept = folder.completed ? 0 : 1;
    for (std::size_t i = kept; i < folder.checkpoints.size(); ++i) {
      if (remove(folder.checkpoints[i].path)) ++pruned.checkpoints;
    }
  }
  if (failure) return error(errno_status(failure.value(), "list", trials_dir));
  return pruned;
}

}  // namespace tailor::agent
