// The files of attempt_directory.h.
#include "worker/agent/attempt_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "protocol/convert.h"

namespace tailor::agent {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kNote = "worker.json";
constexpr const char* kDone = "worker-done.json";

std::optional<std::uint32_t> parse_number(const std::string& name) {
  if (name.empty() || name.size() > 9) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return value;
}

/// What the name of an attempt's folder says.
struct FolderName {
  std::uint32_t attempt = 0;
  std::uint64_t generation = 0;
  std::uint32_t first_rank = 0;
  friend auto operator<=>(const FolderName&, const FolderName&) = default;
};

std::string to_text(const FolderName& name) {
  std::string text = std::to_string(name.attempt);
  if (name.generation != 0) text += fmt::format("-{:x}", name.generation);
  if (name.first_rank != 0) text += fmt::format(".r{}", name.first_rank);
  return text;
}

std::optional<FolderName> parse_folder_name(const std::string& text) {
  FolderName name;
  std::string rest = text;
  if (const std::size_t dot = rest.find(".r"); dot != std::string::npos) {
    const auto rank = parse_number(rest.substr(dot + 2));
    if (!rank) return std::nullopt;
    name.first_rank = *rank;
    rest.resize(dot);
  }
  if (const std::size_t dash = rest.find('-'); dash != std::string::npos) {
    const char* const end = rest.data() + rest.size();
    const auto [at, failure] = std::from_chars(rest.data() + dash + 1, end, name.generation, 16);
    if (failure != std::errc() || at != end) return std::nullopt;
    rest.resize(dash);
  }
  const auto number = parse_number(rest);
  if (!number) return std::nullopt;
  name.attempt = *number;
  if (to_text(name) != text) return std::nullopt;  // one spelling alone
  return name;
}

std::optional<TrialId> parse_trial_folder(const std::string& name) {
  if (name.empty() || name.front() != TrialTag::kPrefix) return std::nullopt;
  return TrialId::parse(name);
}

/// The names in `folder`; empty when there is none.
Result<std::vector<std::string>> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    names.push_back(it->path().filename().string());
  }
  if (failure && failure != std::errc::no_such_file_or_directory) {
    return error(errno_status(failure.value(), "list", folder));
  }
  return names;
}

}  // namespace

std::string attempt_folder_name(const protocol::AttemptRef& ref, std::uint32_t first_rank) {
  return to_text({ref.attempt.number, generation_of(ref.token), first_rank});
}

std::optional<std::uint64_t> folder_generation(const std::string& name) {
  const auto parsed = parse_folder_name(name);
  return parsed ? std::optional(parsed->generation) : std::nullopt;
}

std::string AttemptDirectory::path_of(const std::string& trials_dir,
                                      const protocol::AttemptRef& ref, std::uint32_t first_rank) {
  return fmt::format("{}/{}/{}", trials_dir, ref.attempt.trial.to_string(),
                     attempt_folder_name(ref, first_rank));
}

Result<AttemptDirectory> AttemptDirectory::create(const std::string& trials_dir,
                                                  const protocol::AttemptRef& ref,
                                                  std::uint32_t first_rank) {
  const std::string path = path_of(trials_dir, ref, first_rank);
  const std::string parent = path.substr(0, path.find_last_of('/'));
  std::error_code failure;
  fs::create_directories(parent, failure);
  if (failure) return error(errno_status(failure.value(), "create", parent));
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno == EEXIST) {
      return error(Code::kAlreadyExists,
                   fmt::format("{} exists already: an attempt never reuses a folder", path));
    }
    return error(errno_status(errno, "create", path));
  }
  return AttemptDirectory(path);
}

Status AttemptDirectory::sync() const {
  for (const char* name : {"spec.json", kNote}) {
    TAILOR_RETURN_IF_ERROR(sync_file(file(name)));
  }
  TAILOR_RETURN_IF_ERROR(sync_directory(path_));
  const std::string trial = path_.substr(0, path_.find_last_of('/'));
  TAILOR_RETURN_IF_ERROR(sync_directory(trial));
  return sync_directory(trial.substr(0, trial.find_last_of('/')));
}

void AttemptDirectory::discard() const {
  for (const char* name : {"spec.json", "lease", "log", kNote}) ::unlink(file(name).c_str());
  ::rmdir(path_.c_str());  // empty, or it stays
}

Status AttemptDirectory::write_note(const AttemptNote& note) const {
  json j;
  j["worker"] = note.worker_name;
  j["trial"] = note.ref.attempt.trial.value;
  j["attempt"] = note.ref.attempt.number;
  j["token"] = note.ref.token;
  j["slots"] = note.slots;
  j["pid"] = note.process.pid;
  j["start_time"] = note.process.start_time;
  j["boot_id"] = note.process.boot_id;
  j["acked_sequence"] = note.acked_sequence;
  j["first_rank"] = note.gang.first_rank;
  j["ranks"] = note.gang.ranks;
  j["world"] = note.gang.world;
  j["progress_limit_ms"] = note.limits.progress_ms;
  j["time_limit_ms"] = note.limits.time_ms;
  j["started_ms"] = note.started_ms;
  j["cgroup"] = note.cgroup;
  return write_file_atomic(file(kNote),
                           j.dump(2, ' ', false, json::error_handler_t::replace) + "\n", false);
}

Result<AttemptNote> AttemptDirectory::read_note() const {
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(file(kNote), 1 << 20));
  try {
    const auto parsed = parse_json(text);
    if (!parsed) {
      return error(Code::kDataLoss,
                   fmt::format("{} is damaged: {}", file(kNote), parsed.error().message()));
    }
    const json& j = *parsed;
    AttemptNote note;
    note.worker_name = j.at("worker").get<std::string>();
    note.ref.attempt.trial.value = j.at("trial").get<std::uint64_t>();
    note.ref.attempt.number = j.at("attempt").get<std::uint32_t>();
    note.ref.token = j.at("token").get<FencingToken>();
    note.slots = j.at("slots").get<std::vector<std::uint32_t>>();
    note.process.pid = j.at("pid").get<pid_t>();
    note.process.start_time = j.at("start_time").get<std::uint64_t>();
    note.process.boot_id = j.at("boot_id").get<std::string>();
    note.acked_sequence = j.at("acked_sequence").get<std::uint64_t>();
    // Not in the notes of earlier versions.
    note.gang.first_rank = j.value("first_rank", note.gang.first_rank);
    note.gang.ranks = j.value("ranks", note.gang.ranks);
    note.gang.world = j.value("world", note.gang.world);
    note.limits.progress_ms = j.value("progress_limit_ms", note.limits.progress_ms);
    note.limits.time_ms = j.value("time_limit_ms", note.limits.time_ms);
    note.started_ms = j.value("started_ms", note.started_ms);
    note.cgroup = j.value("cgroup", note.cgroup);
    return note;
  } catch (const json::exception& problem) {
    return error(Code::kDataLoss, fmt::format("{} is damaged: {}", file(kNote), problem.what()));
  }
}

Status AttemptDirectory::write_spec(const protocol::TrialSpec& spec) const {
  return write_file_atomic(file("spec.json"), protocol::to_json(spec), false);
}

Status AttemptDirectory::write_lease(MonotonicMs deadline_ms) const {
  const std::string text = std::to_string(deadline_ms) + "\n";
  const Status written = write_file_atomic(file("lease"), text, false);
  if (written.code() != Code::kResourceExhausted) return written;
  const int fd = ::open(file("lease").c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return written;
  // Deadlines of one boot have the same number of digits but for rare growth, which only lengthens.
  const bool done = ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return done ? Status::ok() : written;
}

Status AttemptDirectory::write_end(const protocol::Report& report) const {
  return write_file_atomic(file("end.json"), protocol::to_json_line(report) + "\n");
}

Result<std::optional<protocol::Report>> AttemptDirectory::read_end() const {
  const Result<std::string> text = read_file(file("end.json"), 1 << 20);
  if (!text && text.error().code() == Code::kNotFound) return std::optional<protocol::Report>();
  if (!text) return error(text.error());
  TAILOR_ASSIGN_OR_RETURN(protocol::Report report, protocol::report_from_json(*text));
  return std::optional(std::move(report));
}

Status AttemptDirectory::finish() const {
  if (::rename(file(kNote).c_str(), file(kDone).c_str()) != 0) {
    return errno_status(errno, "rename", file(kNote));
  }
  return Status::ok();
}

std::vector<std::string> checkpoint_folders(const std::string& trials_dir,
                                            const protocol::AttemptRef& ref) {
  const std::string trial_dir = trials_dir + "/" + ref.attempt.trial.to_string();
  const std::string own = attempt_folder_name(ref);
  std::vector<FolderName> names;
  for (const std::string& text : names_in(trial_dir).value_or(std::vector<std::string>())) {
    const auto name = parse_folder_name(text);
    // Rank 0 alone writes checkpoints.
    if (name && name->first_rank == 0 && text != own) names.push_back(*name);
  }
  std::sort(names.begin(), names.end(), [](const FolderName& a, const FolderName& b) {
    return std::pair(a.generation, a.attempt) > std::pair(b.generation, b.attempt);
  });
  std::vector<std::string> folders;
  for (const FolderName& name : names) {
    std::string folder = fmt::format("{}/{}/checkpoints", trial_dir, to_text(name));
    std::error_code failure;
    if (fs::is_directory(folder, failure)) folders.push_back(std::move(folder));
  }
  return folders;
}

Result<std::vector<AttemptNote>> find_attempts(const std::string& trials_dir,
                                               const std::string& worker_name,
                                               std::vector<std::string>* warnings) {
  std::vector<AttemptNote> found;
  TAILOR_ASSIGN_OR_RETURN(const std::vector<std::string> trials, names_in(trials_dir));
  for (const std::string& trial_name : trials) {
    const auto trial = parse_trial_folder(trial_name);
    if (!trial) continue;
    for (const std::string& name :
         names_in(trials_dir + "/" + trial_name).value_or(std::vector<std::string>())) {
      const auto parsed = parse_folder_name(name);
      if (!parsed) continue;
      const AttemptDirectory directory(trials_dir + "/" + trial_name + "/" + name);
      Result<AttemptNote> note = directory.read_note();
      if (!note && note.error().code() == Code::kNotFound) continue;
      if (!note) {
        warnings->push_back(note.error().message());
        continue;
      }
      if (note->worker_name != worker_name) continue;
      if (note->ref.attempt != AttemptId{*trial, parsed->attempt} ||
          attempt_folder_name(note->ref, note->gang.first_rank) != name) {
        warnings->push_back(directory.path() + " holds the note of another attempt");
        continue;
      }
      found.push_back(*std::move(note));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const AttemptNote& a, const AttemptNote& b) { return a.ref < b.ref; });
  return found;
}

}  // namespace tailor::agent
