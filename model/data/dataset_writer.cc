#include "model/data/dataset_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace tailor::data {

/// Size and time of change: equal for a file that was not touched.
struct FileStamp {
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

namespace {

namespace fs = std::filesystem;
using JournalJson = nlohmann::json;

constexpr std::string_view kJournalName = "prepare.journal";
constexpr std::string_view kNewManifestName = "dataset.json.new";
constexpr std::uint64_t kJournalVersion = 1;
constexpr std::size_t kLineHashDigits = 16;

std::string shard_name(std::size_t split, std::size_t index) {
  return fmt::format("{}-{:05}.tokens", kSplitNames[split], index);
}

/// Whether `name` is one that a shard of ours has, with `suffix` behind it.
bool is_own_name(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  for (const std::string_view split : kSplitNames) {
    if (!name.starts_with(split) || name.size() <= split.size() + 1 || name[split.size()] != '-') {
      continue;
    }
    const std::string_view digits = name.substr(split.size() + 1);
    return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  return false;
}

FileStamp stamp_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {static_cast<std::uint64_t>(info.st_size),
          static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

struct StampedSource {
  ManifestSource source;
  FileStamp stamp;
};

/// A line of the journal: the state after a save.
struct Saved {
  CorpusPosition position;
  FileStamp stamp;          // of the file that is being read
  std::size_t sources = 0;  // done by then
  struct Split {
    std::size_t shards = 0;  // finished by then
    std::optional<TokenShardProgress> partial;
  };
  std::array<Split, 2> splits;
};

JournalJson position_to_json(const CorpusPosition& p) {
  return JournalJson::array(
      {p.file, p.offset, p.line, p.piece, p.documents, p.empty_documents, p.text_bytes});
}

CorpusPosition position_from_json(const JournalJson& json) {
  const auto at = [&](std::size_t i) { return json.at(i).get<std::uint64_t>(); };
  return {at(0), at(1), at(2), at(3), at(4), at(5), at(6)};
}

JournalJson stamp_to_json(const FileStamp& stamp) {
  return JournalJson::array({stamp.bytes, stamp.changed_ns});
}

FileStamp stamp_from_json(const JournalJson& json) {
  return {json.at(0).get<std::uint64_t>(), json.at(1).get<std::int64_t>()};
}

/// Everything that decides what is written, in one line.
JournalJson request_to_json(const DatasetRequest& request) {
  Sha256 names;
  for (const CorpusFile& file : request.files) {
    names.update(file.name);
    names.update("\n");
  }
  JournalJson settings = request.settings;
  return {{"journal", kJournalVersion},
          {"tokenizer", request.tokenizer.sha256},
          {"vocab_size", request.tokenizer.vocab_size},
          {"eos_id", request.tokenizer.eos_id},
          {"settings", settings},
          {"files", request.files.size()},
          {"file names", names.hex()}};
}

/// In what two requests differ, for a person; "" when they do not.
std::string difference(const JournalJson& before, const JournalJson& now) {
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key)) return key;
    if (before[key] == value) continue;
    if (value.is_object()) return difference(before[key], value);
    if (key == "tokenizer") return "another tokenizer";
    if (key == "file names") return "other source files";
    const auto text = [](const JournalJson& json) {
      return json.is_string() ? json.get<std::string>() : json.dump();
    };
    return fmt::format("{} {} then, {} now", key, text(before[key]), text(value));
  }
  return "";
}

/// The journal as it was read, up to the last whole line.
struct Journal {
  JournalJson request;
  std::vector<Saved> saves;
  std::vector<StampedSource> sources;
  std::array<std::vector<ManifestShard>, 2> shards;
  std::vector<std::uint64_t> ends;  // bytes of the file up to each save
  std::uint64_t request_end = 0;

  void add(const JournalJson& line, std::uint64_t end) {
    for (const JournalJson& entry : line.at("sources")) {
      StampedSource done;
      done.source = {entry.at(0).get<std::string>(),   entry.at(1).get<std::uint64_t>(),
                     entry.at(2).get<std::string>(),   entry.at(3).get<std::uint64_t>(),
                     entry.at(4).get<std::uint64_t>(), entry.at(5).get<std::uint64_t>(),
                     entry.at(6).get<std::uint64_t>(), entry.at(7).get<bool>()};
      done.stamp = stamp_from_json(entry.at(8));
      sources.push_back(std::move(done));
    }
    Saved saved;
    saved.position = position_from_json(line.at("position"));
    saved.stamp = stamp_from_json(line.at("stamp"));
    saved.sources = sources.size();
    for (std::size_t i = 0; i < 2; ++i) {
      const JournalJson& split = line.at("splits").at(i);
      for (const JournalJson& entry : split.at("shards")) {
        shards[i].push_back({entry.at(0).get<std::string>(), entry.at(1).get<std::string>(),
                             entry.at(2).get<std::uint64_t>(), entry.at(3).get<std::uint64_t>(),
                             entry.at(4).get<std::uint64_t>(), entry.at(5).get<std::uint64_t>(),
                             entry.at(6).get<std::uint32_t>()});
      }
      saved.splits[i].shards = shards[i].size();
      const JournalJson& partial = split.at("partial");
      if (partial.is_null()) continue;
      saved.splits[i].partial = {
          partial.at(0).get<std::uint64_t>(), partial.at(1).get<std::uint64_t>(),
          partial.at(2).get<std::uint64_t>(), partial.at(3).get<std::string>()};
    }
    saves.push_back(saved);
    ends.push_back(end);
  }

  /// Back to the state after the first `count` saves.
  void keep_saves(std::size_t count) {
    saves.resize(count);
    ends.resize(count);
    sources.resize(count == 0 ? 0 : saves.back().sources);
    for (std::size_t i = 0; i < 2; ++i) {
      shards[i].resize(count == 0 ? 0 : saves.back().splits[i].shards);
    }
  }
};

std::string with_hash(const JournalJson& line) {
  const std::string text = line.dump(-1, ' ', false, JournalJson::error_handler_t::replace);
  return sha256_hex(text).substr(0, kLineHashDigits) + " " + text + "\n";
}

/// nullopt without a whole first line. What comes after a torn line is not looked at.
std::optional<Journal> parse_journal(const std::string& content) {
  std::optional<Journal> journal;
  std::size_t at = 0;
  for (;;) {
    const std::size_t newline = content.find('\n', at);
    if (newline == std::string::npos || newline - at <= kLineHashDigits) return journal;
    const std::string_view hash = std::string_view(content).substr(at, kLineHashDigits);
    const std::string_view text = std::string_view(content).substr(
        at + kLineHashDigits + 1, newline - at - kLineHashDigits - 1);
    if (sha256_hex(text).substr(0, kLineHashDigits) != hash) return journal;
    at = newline + 1;
    // A line with its hash was written by a Tailor, but perhaps by another version.
    try {
      const JournalJson line = parse_json(text).value_or(nullptr);
      if (!journal) {
        if (line.at("journal") != kJournalVersion) return std::nullopt;
        journal.emplace();
        journal->request = line;
        journal->request_end = at;
      } else {
        journal->add(line, at);
      }
    } catch (const JournalJson::exception&) {
      return journal;
    }
  }
}

}  // namespace

struct DatasetWriter::Impl {
  DatasetRequest request;
  int folder_fd = -1;
  int journal_fd = -1;
  std::uint64_t journal_end = 0;
  std::optional<DatasetManifest> finished;
  CorpusPosition position;
  std::vector<ManifestSource> sources;
  std::vector<FileStamp> stamps;  // of the sources, when they were done
  std::size_t sources_saved = 0;
  std::vector<std::string> warnings;
  FileStamp current;  // of the file that is being read, when it was first seen
  std::uint64_t current_file = ~0ull;

  struct Split {
    std::vector<ManifestShard> shards;
    std::size_t shards_saved = 0;
    std::optional<TokenShardWriter> writer;
    std::uint64_t tokens = 0, documents = 0, text_bytes = 0;
  };
  std::array<Split, 2> splits;

  ~Impl() {
    if (journal_fd >= 0) ::close(journal_fd);
    if (folder_fd >= 0) ::close(folder_fd);  // and with it the lock
  }

  std::string path(std::string_view name) const {
    return (fs::path(request.folder) / name).string();
  }
  std::string new_path(std::size_t split, std::size_t index) const {
    return path(shard_name(split, index) + ".new");
  }

  Status lock_folder();
  Status open();
  Result<bool> is_same(const DatasetManifest& manifest, std::string* why) const;
  Status check_place_of_tokenizer() const;
  Status start_over();
  Status go_on(Journal journal);
  void drop_changed(Journal* journal) const;
  Status append_line(const JournalJson& line);
  Status finish_shard(std::size_t split);
  Status remove_earlier_tokenizer(const TokenizerIdentity& now) const;
  Result<DatasetManifest> publish();
  Status remove_own(const std::vector<std::string_view>& suffixes,
                    const std::vector<std::string>& keep = {});
};

Status DatasetWriter::Impl::lock_folder() {
  std::error_code code;
  fs::create_directories(request.folder, code);
  if (code) return errno_status(code.value(), "create the folder", request.folder);
  folder_fd = ::open(request.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) return errno_status(errno, "open the folder", request.folder);
  // Some network file systems know no locks: then there is none.
  if (::flock(folder_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("another process is writing {}: wait for it, or name another folder",
                              request.folder));
  }
  return Status::ok();
}

/// Whether a finished data set is the one that is asked for; `why` not, otherwise.
Result<bool> DatasetWriter::Impl::is_same(const DatasetManifest& manifest, std::string* why) const {
  if (manifest.tokenizer.sha256 != request.tokenizer.sha256 ||
      manifest.tokenizer.vocab_size != request.tokenizer.vocab_size ||
      manifest.tokenizer.eos_id != request.tokenizer.eos_id) {
    *why = "another tokenizer";
    return false;
  }
  if (manifest.settings != request.settings) {
    *why = difference(JournalJson(manifest.settings), JournalJson(request.settings));
    if (why->empty()) *why = "other settings";
    return false;
  }
  bool same_files = manifest.sources.size() == request.files.size();
  for (std::size_t i = 0; same_files && i < request.files.size(); ++i) {
    same_files = manifest.sources[i].name == utf8_name(request.files[i].name) &&
                 manifest.sources[i].bytes == request.files[i].bytes;
    *why = fmt::format("{} has changed", request.files[i].path);
  }
  if (manifest.sources.size() != request.files.size()) *why = "other source files";
  // Only now what takes long.
  for (std::size_t i = 0; same_files && i < request.files.size(); ++i) {
    TAILOR_ASSIGN_OR_RETURN(const std::string sha256, sha256_file(request.files[i].path));
    same_files = sha256 == manifest.sources[i].sha256;
    *why = fmt::format("{} has changed", request.files[i].path);
  }
  return same_files;
}

/// Files of ours are replaced, those of somebody else never.
Status DatasetWriter::Impl::check_place_of_tokenizer() const {
  const Result<DatasetManifest> before = load_manifest(request.folder);
  for (const tokenizers::TokenizerPart& part : request.tokenizer_parts) {
    const Result<std::string> there = sha256_file(path(part.file));
    if (!there && there.error().code() == Code::kNotFound) continue;
    if (there && *there == sha256_hex(part.content)) continue;
    const bool is_ours = there && before &&
                         std::any_of(before->tokenizer.files.begin(), before->tokenizer.files.end(),
                                     [&](const ManifestTokenizerFile& file) {
                                       return file.file == part.file && file.sha256 == *there;
                                     });
    if (is_ours) continue;
    return Status(
        Code::kAlreadyExists,
        fmt::format("{} is there already and is another tokenizer's; the data set keeps its "
                    "own under that name: move it away, or name another folder",
                    path(part.file)));
  }
  return Status::ok();
}

Status DatasetWriter::Impl::open() {
  TAILOR_RETURN_IF_ERROR(lock_folder());
  std::error_code code;
  // Killed while names were given: that is completed first.
  if (fs::exists(path(kNewManifestName), code)) {
    const Result<DatasetManifest> published = publish();
    if (!published) return published.error();
  }
  const Result<std::string> content = read_file(path(kJournalName), 4ull << 30);
  if (content) {
    if (std::optional<Journal> journal = parse_journal(*content)) {
      const std::string why = difference(journal->request, request_to_json(request));
      if (why.empty()) {
        TAILOR_RETURN_IF_ERROR(check_place_of_tokenizer());
        return go_on(std::move(*journal));
      }
      if (!request.overwrite) {
        return Status(Code::kFailedPrecondition,
                      fmt::format("{} holds an unfinished run of another request ({}): repeat that "
                                  "one to finish it, or --overwrite to start anew",
                                  request.folder, why));
      }
    }
    return start_over();
  }
  if (content.error().code() != Code::kNotFound) return content.error();
  if (request.overwrite) return start_over();
  if (fs::exists(path(kManifestName), code)) {
    TAILOR_ASSIGN_OR_RETURN(DatasetManifest manifest, load_manifest(request.folder));
    std::string why;
    TAILOR_ASSIGN_OR_RETURN(const bool same, is_same(manifest, &why));
    if (!same) {
      return Status(Code::kAlreadyExists,
                    fmt::format("{} holds another data set ({}): name another folder, or "
                                "--overwrite to replace it",
                                request.folder, why));
    }
    finished = std::move(manifest);
    return Status::ok();
  }
  for (const std::size_t split : {kTrain, kValidation}) {
    if (fs::exists(path(shard_name(split, 0)), code)) {
      return Status(Code::kAlreadyExists,
                    fmt::format("{} is there already: name another folder, or --overwrite to "
                                "replace it",
                                path(shard_name(split, 0))));
    }
  }
  return start_over();
}

Status DatasetWriter::Impl::remove_own(const std::vector<std::string_view>& suffixes,
                                       const std::vector<std::string>& keep) {
  std::error_code code;
  std::vector<fs::path> found;
  fs::directory_iterator entry(request.folder, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    const bool own = std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view suffix) {
      return is_own_name(name, suffix);
    });
    if (own && std::find(keep.begin(), keep.end(), name) == keep.end()) {
      found.push_back(entry->path());
    }
  }
  if (code) return errno_status(code.value(), "list", request.folder);
  for (const fs::path& file : found) {
    if (!fs::remove(file, code) && code) return errno_status(code.value(), "remove", file.string());
  }
  return Status::ok();
}

Status DatasetWriter::Impl::start_over() {
  TAILOR_RETURN_IF_ERROR(check_place_of_tokenizer());
  TAILOR_RETURN_IF_ERROR(remove_own({".tokens.new", ".tokens.new.partial"}));
  journal_fd = ::open(path(kJournalName).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (journal_fd < 0) return errno_status(errno, "create", path(kJournalName));
  TAILOR_RETURN_IF_ERROR(append_line(request_to_json(request)));
  return sync_directory(request.folder);
}

/// Goes back to before the first source that is not as it was when it was read.
void DatasetWriter::Impl::drop_changed(Journal* journal) const {
  std::size_t unchanged = 0;
  for (; unchanged < journal->sources.size(); ++unchanged) {
    const StampedSource& done = journal->sources[unchanged];
    const std::string& file = request.files[unchanged].path;
    const FileStamp stamp = stamp_of(file);
    if (stamp == done.stamp) continue;
    if (stamp.bytes != done.source.bytes) break;
    const Result<std::string> sha256 = sha256_file(file);  // touched, perhaps not altered
    if (!sha256 || *sha256 != done.source.sha256) break;
  }
  const auto holds = [&](const Saved& saved) {
    if (saved.sources > unchanged) return false;
    const bool inside = saved.position.offset > 0 || saved.position.piece > 0;
    return !inside || (saved.position.file < request.files.size() &&
                       stamp_of(request.files[saved.position.file].path) == saved.stamp);
  };
  std::size_t count = journal->saves.size();
  while (count > 0 && !holds(journal->saves[count - 1])) --count;
  journal->keep_saves(count);
}

Status DatasetWriter::Impl::go_on(Journal journal) {
  drop_changed(&journal);
  if (journal.saves.empty()) return start_over();
  const Saved& saved = journal.saves.back();
  std::vector<std::string> keep;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    Split& split = splits[i];
    split.shards = journal.shards[i];
    split.shards_saved = split.shards.size();
    for (std::size_t s = 0; s < split.shards.size(); ++s) {
      const ManifestShard& shard = split.shards[s];
      const Result<TokenShardReader> there = TokenShardReader::open(new_path(i, s));
      if (!there || there->info().sha256 != shard.sha256) {
        return Status(Code::kDataLoss,
                      fmt::format("{}, finished by the run that goes on here, is gone or altered: "
                                  "start anew with --overwrite",
                                  new_path(i, s)));
      }
      keep.push_back(shard.file + ".new");
      split.tokens += shard.tokens;
      split.documents += shard.documents;
      split.text_bytes += shard.text_bytes;
    }
    const std::optional<TokenShardProgress>& partial = saved.splits[i].partial;
    if (!partial) continue;
    const std::string file = new_path(i, split.shards.size());
    std::error_code code;
    // It may have been finished after the save.
    if (!fs::exists(file + ".partial", code)) fs::rename(file, file + ".partial", code);
    Result<TokenShardWriter> writer =
        TokenShardWriter::resume(file, request.tokenizer.vocab_size, request.tokenizer.eos_id,
                                 request.tokenizer.sha256, *partial);
    if (!writer) {
      return Status(writer.error().code(), writer.error().message() + " (with --overwrite)");
    }
    split.writer = std::move(*writer);
    keep.push_back(fs::path(file).filename().string() + ".partial");
    split.tokens += partial->token_count;
    split.documents += partial->document_count;
    split.text_bytes += partial->text_bytes;
  }
  TAILOR_RETURN_IF_ERROR(remove_own({".tokens.new", ".tokens.new.partial"}, keep));
  position = saved.position;
  current_file = position.file;
  current = saved.stamp;
  for (StampedSource& done : journal.sources) {
    sources.push_back(std::move(done.source));
    stamps.push_back(done.stamp);
  }
  sources_saved = sources.size();
  journal_fd = ::open(path(kJournalName).c_str(), O_RDWR | O_CLOEXEC);
  if (journal_fd < 0) return errno_status(errno, "open", path(kJournalName));
  journal_end = journal.ends.back();
  if (::ftruncate(journal_fd, static_cast<off_t>(journal_end)) != 0) {
    return errno_status(errno, "truncate", path(kJournalName));
  }
  return Status::ok();
}

Status DatasetWriter::Impl::append_line(const JournalJson& line) {
  const std::string text = with_hash(line);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::pwrite(journal_fd, text.data() + done, text.size() - done,
                                   static_cast<off_t>(journal_end + done));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return errno_status(errno, "write", path(kJournalName));
    }
    done += static_cast<std::size_t>(wrote);
  }
  if (::fsync(journal_fd) != 0) return errno_status(errno, "fsync", path(kJournalName));
  journal_end += text.size();
  return Status::ok();
}

Status DatasetWriter::Impl::finish_shard(std::size_t split) {
  Split& s = splits[split];
  if (!s.writer) return Status::ok();
  TAILOR_ASSIGN_OR_RETURN(const TokenShardInfo info, s.writer->finish());
  s.writer.reset();
  const std::string file = shard_name(split, s.shards.size());
  std::error_code code;
  const std::uintmax_t bytes = fs::file_size(new_path(split, s.shards.size()), code);
  if (code) return errno_status(code.value(), "stat", new_path(split, s.shards.size()));
  s.shards.push_back({file, info.sha256, info.token_count, info.document_count, info.text_bytes,
                      bytes, info.max_id});
  return Status::ok();
}

/// Of the data set that goes, what the new one has no file in place of.
Status DatasetWriter::Impl::remove_earlier_tokenizer(const TokenizerIdentity& now) const {
  const Result<DatasetManifest> before = load_manifest(request.folder);
  if (!before) return Status::ok();
  for (const ManifestTokenizerFile& file : before->tokenizer.files) {
    const bool is_replaced =
        std::any_of(now.files.begin(), now.files.end(),
                    [&](const ManifestTokenizerFile& other) { return other.file == file.file; });
    if (is_replaced) continue;
    const Result<std::string> there = sha256_file(path(file.file));
    if (!there || *there != file.sha256) continue;
    std::error_code code;
    if (!fs::remove(path(file.file), code) && code) {
      return errno_status(code.value(), "remove", path(file.file));
    }
  }
  return Status::ok();
}

/// Gives shards, tokenizer and manifest their names. May be killed and called again at any point.
Result<DatasetManifest> DatasetWriter::Impl::publish() {
  const std::string new_manifest = path(kNewManifestName);
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(new_manifest));
  TAILOR_ASSIGN_OR_RETURN(DatasetManifest manifest, parse_manifest(text, new_manifest));
  std::error_code code;
  TAILOR_RETURN_IF_ERROR(remove_earlier_tokenizer(manifest.tokenizer));
  if (!fs::remove(path(kManifestName), code) && code) {
    return error(errno_status(code.value(), "remove", path(kManifestName)));
  }
  for (const ManifestTokenizerFile& file : manifest.tokenizer.files) {
    fs::rename(path(file.file + ".new"), path(file.file), code);
    if (!code) continue;
    const Result<std::string> there = sha256_file(path(file.file));
    if (code == std::errc::no_such_file_or_directory && there && *there == file.sha256) {
      continue;  // named before the run was killed
    }
    return error(errno_status(code.value(), "rename onto", path(file.file)));
  }
  std::vector<std::string> names;
  for (const ManifestSplit& split : manifest.splits) {
    for (const ManifestShard& shard : split.shards) {
      names.push_back(shard.file);
      fs::rename(path(shard.file + ".new"), path(shard.file), code);
      if (!code) continue;
      const Result<TokenShardReader> there = TokenShardReader::open(path(shard.file));
      if (code == std::errc::no_such_file_or_directory && there &&
          there->info().sha256 == shard.sha256) {
        continue;  // named before the run was killed
      }
      return error(errno_status(code.value(), "rename onto", path(shard.file)));
    }
  }
  TAILOR_RETURN_IF_ERROR(remove_own({".tokens"}, names));
  TAILOR_RETURN_IF_ERROR(sync_directory(request.folder));
  if (!fs::remove(path(kJournalName), code) && code) {
    return error(errno_status(code.value(), "remove", path(kJournalName)));
  }
  fs::rename(new_manifest, path(kManifestName), code);
  if (code) return error(errno_status(code.value(), "rename onto", path(kManifestName)));
  TAILOR_RETURN_IF_ERROR(sync_directory(request.folder));
  return manifest;
}

DatasetWriter::DatasetWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DatasetWriter::~DatasetWriter() = default;
DatasetWriter::DatasetWriter(DatasetWriter&&) noexcept = default;
DatasetWriter& DatasetWriter::operator=(DatasetWriter&&) noexcept = default;

Result<DatasetWriter> DatasetWriter::open(DatasetRequest request) {
  auto impl = std::make_unique<Impl>();
  impl->request = std::move(request);
  TAILOR_RETURN_IF_ERROR(impl->open());
  return DatasetWriter(std::move(impl));
}

const std::optional<DatasetManifest>& DatasetWriter::finished() const { return impl_->finished; }
const CorpusPosition& DatasetWriter::position() const { return impl_->position; }
const std::vector<ManifestSource>& DatasetWriter::sources() const { return impl_->sources; }
std::uint64_t DatasetWriter::tokens(std::size_t split) const { return impl_->splits[split].tokens; }
std::uint64_t DatasetWriter::documents(std::size_t split) const {
  return impl_->splits[split].documents;
}
std::uint64_t DatasetWriter::text_bytes(std::size_t split) const {
  return impl_->splits[split].text_bytes;
}

Status DatasetWriter::append(std::size_t split, std::span<const std::uint32_t> ids,
                             std::uint64_t text_bytes, std::uint64_t documents) {
  if (ids.empty()) return Status::ok();
  Impl& w = *impl_;
  Impl::Split& s = w.splits[split];
  if (!s.writer) {
    TAILOR_ASSIGN_OR_RETURN(
        s.writer,
        TokenShardWriter::create(w.new_path(split, s.shards.size()), w.request.tokenizer.vocab_size,
                                 w.request.tokenizer.eos_id, w.request.tokenizer.sha256));
  }
  TAILOR_RETURN_IF_ERROR(s.writer->append(ids, text_bytes, documents));
  s.tokens += ids.size();
  s.text_bytes += text_bytes;
  s.documents += documents;
  return s.writer->token_count() >= w.request.shard_tokens ? w.finish_shard(split) : Status::ok();
}

bool DatasetWriter::has_new_shard() const {
  return std::any_of(impl_->splits.begin(), impl_->splits.end(), [](const Impl::Split& split) {
    return split.shards.size() > split.shards_saved;
  });
}

void DatasetWriter::source_done(ManifestSource source) {
  Impl& w = *impl_;
  const std::size_t file = w.sources.size();
  TAILOR_CHECK(file < w.request.files.size());
  w.stamps.push_back(file == w.current_file ? w.current : stamp_of(w.request.files[file].path));
  w.sources.push_back(std::move(source));
}

Status DatasetWriter::save(const CorpusPosition& next) {
  Impl& w = *impl_;
  if (w.current_file != next.file) {
    w.current_file = next.file;
    w.current = next.file < w.request.files.size() ? stamp_of(w.request.files[next.file].path)
                                                   : FileStamp{};
  }
  JournalJson splits = JournalJson::array();
  for (Impl::Split& s : w.splits) {
    JournalJson shards = JournalJson::array();
    for (std::size_t i = s.shards_saved; i < s.shards.size(); ++i) {
      const ManifestShard& shard = s.shards[i];
      shards.push_back(JournalJson::array({shard.file, shard.sha256, shard.tokens, shard.documents,
                                           shard.text_bytes, shard.file_bytes, shard.max_id}));
    }
    JournalJson partial;
    if (s.writer) {
      TAILOR_ASSIGN_OR_RETURN(const TokenShardProgress progress, s.writer->save());
      partial = JournalJson::array(
          {progress.token_count, progress.text_bytes, progress.document_count, progress.sha256});
    }
    splits.push_back({{"shards", shards}, {"partial", partial}});
  }
  JournalJson done = JournalJson::array();
  for (std::size_t i = w.sources_saved; i < w.sources.size(); ++i) {
    const ManifestSource& source = w.sources[i];
    done.push_back(JournalJson::array(
        {source.name, source.bytes, source.sha256, source.documents, source.empty_documents,
         source.text_bytes, source.skipped_lines, source.skipped, stamp_to_json(w.stamps[i])}));
  }
  TAILOR_RETURN_IF_ERROR(sync_directory(w.request.folder));
  TAILOR_RETURN_IF_ERROR(w.append_line({{"position", position_to_json(next)},
                                        {"stamp", stamp_to_json(w.current)},
                                        {"sources", done},
                                        {"splits", splits}}));
  for (Impl::Split& s : w.splits) s.shards_saved = s.shards.size();
  w.sources_saved = w.sources.size();
  return Status::ok();
}

void DatasetWriter::warn(std::string sentence) { impl_->warnings.push_back(std::move(sentence)); }

Result<DatasetManifest> DatasetWriter::finish() {
  Impl& w = *impl_;
  TAILOR_CHECK(w.sources.size() == w.request.files.size(), "{} of {} sources", w.sources.size(),
               w.request.files.size());
  DatasetManifest manifest;
  manifest.tokenizer = w.request.tokenizer;
  manifest.passed_over = w.request.passed_over;
  manifest.warnings = w.warnings;
  manifest.tokenizer.files.clear();
  for (const tokenizers::TokenizerPart& part : w.request.tokenizer_parts) {
    TAILOR_RETURN_IF_ERROR(write_file_atomic(w.path(part.file + ".new"), part.content));
    manifest.tokenizer.files.push_back({part.file, part.content.size(), sha256_hex(part.content)});
  }
  manifest.settings = w.request.settings;
  manifest.sources = w.sources;
  for (const std::size_t split : {kTrain, kValidation}) {
    TAILOR_RETURN_IF_ERROR(w.finish_shard(split));
    manifest.splits[split].shards = w.splits[split].shards;
  }
  TAILOR_RETURN_IF_ERROR(write_file_atomic(w.path(kNewManifestName), format_manifest(manifest)));
  return w.publish();
}

void DatasetWriter::discard() {
  Impl& w = *impl_;
  for (Impl::Split& s : w.splits) s.writer.reset();
  (void)w.remove_own({".tokens.new", ".tokens.new.partial"});
  std::error_code ignored;
  fs::remove(w.path(kJournalName), ignored);
}

}  // namespace tailor::data
