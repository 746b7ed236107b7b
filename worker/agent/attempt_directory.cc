// The files of attempt_directory.h.
#include "worker/agent/attempt_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

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

std::string AttemptDirectory::path_of(const std::string& trials_dir, const AttemptId& attempt) {
  return fmt::format("{}/{}/{}", trials_dir, attempt.trial.to_string(), attempt.number);
}

Result<AttemptDirectory> AttemptDirectory::create(const std::string& trials_dir,
                                                  const AttemptId& attempt) {
  const std::string path = path_of(trials_dir, attempt);
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
  const Status synced = sync_directory(parent);
  if (!synced) return error(synced);
  return AttemptDirectory(path);
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
  return write_file_atomic(file(kNote),
                           j.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
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
    return note;
  } catch (const json::exception& problem) {
    return error(Code::kDataLoss, fmt::format("{} is damaged: {}", file(kNote), problem.what()));
  }
}

Status AttemptDirectory::write_spec(const protocol::TrialSpec& spec) const {
  return write_file_atomic(file("spec.json"), protocol::to_json(spec));
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
  return sync_directory(path_);
}

std::vector<std::string> checkpoint_folders(const std::string& trials_dir,
                                            const AttemptId& attempt) {
  const std::string trial_dir = trials_dir + "/" + attempt.trial.to_string();
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names_in(trial_dir).value_or(std::vector<std::string>())) {
    const auto number = parse_number(name);
    if (number && *number != attempt.number) numbers.push_back(*number);
  }
  std::sort(numbers.rbegin(), numbers.rend());
  std::vector<std::string> folders;
  for (const std::uint32_t number : numbers) {
    std::string folder = fmt::format("{}/{}/checkpoints", trial_dir, number);
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
      const auto number = parse_number(name);
      if (!number) continue;
      const AttemptDirectory directory(AttemptDirectory::path_of(trials_dir, {*trial, *number}));
      Result<AttemptNote> note = directory.read_note();
      if (!note && note.error().code() == Code::kNotFound) continue;
      if (!note) {
        warnings->push_back(note.error().message());
        continue;
      }
      if (note->worker_name != worker_name) continue;
      if (note->ref.attempt != AttemptId{*trial, *number}) {
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
