#include "model/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "base/text.h"
#include "model/data/byte_source.h"

namespace tailor::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 256 << 10;

enum class Kind { kText, kJsonLines, kUnknown };

Kind kind_of(std::string_view name) {
  for (const std::string_view suffix : {".gz", ".zst"}) {
    if (name.ends_with(suffix)) {
      name.remove_suffix(suffix.size());
      break;
    }
  }
  for (const std::string_view suffix : {".txt", ".rst", ".md"}) {
    if (name.ends_with(suffix)) return Kind::kText;
  }
  return name.ends_with(".jsonl") ? Kind::kJsonLines : Kind::kUnknown;
}

/// All text files under `folder`, sorted by their names relative to it.
Result<std::vector<CorpusFile>> list_folder(const std::string& folder) {
  std::vector<CorpusFile> files;
  std::error_code code;
  fs::recursive_directory_iterator entry(folder, code);
  const fs::recursive_directory_iterator end;
  for (; !code && entry != end; entry.increment(code)) {
    std::error_code ignored;  // a dangling link is no text file
    if (!entry->is_regular_file(ignored)) continue;
    const std::string path = entry->path().string();
    if (kind_of(path) == Kind::kUnknown) continue;
    files.push_back({path, entry->path().lexically_relative(folder).generic_string()});
  }
  if (code) return error(errno_status(code.value(), "list", folder));
  std::sort(files.begin(), files.end(),
            [](const CorpusFile& a, const CorpusFile& b) { return a.name < b.name; });
  if (files.empty()) {
    return error(
        Code::kInvalidArgument,
        fmt::format("the folder {} holds no text: none of its files ends in .txt, .rst, .md or "
                    ".jsonl (each also with .gz or .zst)",
                    folder));
  }
  return files;
}

Status not_utf8(const std::string& path, std::uint64_t offset) {
  return Status(
      Code::kInvalidArgument,
      fmt::format("{} is not UTF-8: wrong byte at offset {}; convert it with iconv, or pass "
                  "over such files with --skip-bad",
                  path, offset));
}

/// Appends up to `size` bytes of `source`; returns false at the end.
Result<bool> append(ByteSource* source, std::size_t size, std::string* text) {
  const std::size_t before = text->size();
  text->resize(before + size);
  const Result<std::size_t> got = source->read(text->data() + before, size);
  text->resize(before + got.value_or(0));
  if (!got.has_value()) return error(got.error());
  return *got > 0;
}

/// Where to cut a full buffer: after its last newline, else before an unfinished UTF-8 sequence.
std::size_t cut_position(std::string_view text) {
  const std::size_t newline = text.rfind('\n');
  if (newline != std::string_view::npos) return newline + 1;
  std::size_t cut = text.size() - 1;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80 &&
         text.size() - cut < 4) {
    --cut;
  }
  return cut > 0 ? cut : text.size();
}

/// Reads one file and says what it holds. `sink` may be empty: then the file is only checked.
class FileReader {
 public:
  FileReader(const CorpusFile& file, const CorpusOptions& options, const CorpusSink& sink)
      : file_(file), options_(options), sink_(sink) {}

  Status run() {
    TAILOR_ASSIGN_OR_RETURN(source_, open_byte_source(file_.path));
    return kind_of(file_.path) == Kind::kJsonLines ? read_lines() : read_text();
  }

  const CorpusSummary& counted() const { return counted_; }

 private:
  Status emit(std::string document, std::string text, bool ends_document) {
    counted_.bytes += text.size();
    document_bytes_ += text.size();
    if (ends_document) {
      ++(document_bytes_ > 0 ? counted_.documents : counted_.empty_documents);
      const bool empty = document_bytes_ == 0;
      document_bytes_ = 0;
      if (empty) return Status::ok();
    }
    if (!sink_) return Status::ok();
    return sink_({std::move(document), std::move(text), ends_document});
  }

  Status read_text() {
    const std::size_t piece_bytes = std::max<std::size_t>(options_.piece_bytes, 16);
    std::uint64_t offset = 0;
    std::string text;
    for (bool more = true; more;) {
      while (more && text.size() < piece_bytes) {
        TAILOR_ASSIGN_OR_RETURN(
            more, append(source_.get(), std::min(kReadBytes, piece_bytes - text.size()), &text));
      }
      const std::size_t cut = more ? cut_position(text) : text.size();
      std::string rest = text.substr(cut);
      text.resize(cut);
      std::size_t bad_offset = 0;
      if (!is_valid_utf8(text, &bad_offset)) return not_utf8(file_.path, offset + bad_offset);
      offset += text.size();
      TAILOR_RETURN_IF_ERROR(emit(file_.name, std::move(text), !more));
      text = std::move(rest);
    }
    return Status::ok();
  }

  Status read_lines() {
    std::string buffer;
    std::size_t start = 0;  // of the line that is being looked for
    for (bool more = true; more;) {
      if (start > 0) buffer.erase(0, start);
      start = 0;
      const std::size_t scanned = buffer.size();
      TAILOR_ASSIGN_OR_RETURN(more, append(source_.get(), kReadBytes, &buffer));
      for (std::size_t newline = buffer.find('\n', scanned); newline != std::string::npos;
           newline = buffer.find('\n', start)) {
        TAILOR_RETURN_IF_ERROR(read_line(std::string_view(buffer).substr(start, newline - start)));
        start = newline + 1;
      }
      if (buffer.size() - start > options_.line_bytes_max) {
        return Status(Code::kInvalidArgument,
                      fmt::format("{}: line {} is longer than {} bytes: is it JSON lines?",
                                  file_.path, line_ + 1, options_.line_bytes_max));
      }
    }
    const std::string_view last = std::string_view(buffer).substr(start);
    return last.empty() ? Status::ok() : read_line(last);
  }

  Status read_line(std::string_view line) {
    ++line_;
    const std::uint64_t line_offset = line_offset_;
    line_offset_ += line.size() + 1;
    if (trim(line).empty()) return Status::ok();
    std::size_t bad_offset = 0;
    if (!is_valid_utf8(line, &bad_offset)) return not_utf8(file_.path, line_offset + bad_offset);
    const auto bad = [&](std::string_view reason) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}: line {} (offset {}) {}; each line must be an object with a string "
                      "\"text\"",
                      file_.path, line_, line_offset, reason));
    };
    const nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
    if (value.is_discarded()) return bad("is not JSON");
    if (!value.is_object()) return bad("is not an object");
    const auto text = value.find("text");
    if (text == value.end()) return bad("has no \"text\"");
    if (!text->is_string()) return bad("has a \"text\" that is no string");
    return emit(fmt::format("{}:{}", file_.name, line_), text->get<std::string>(), true);
  }

  const CorpusFile& file_;
  const CorpusOptions& options_;
  const CorpusSink& sink_;
  std::unique_ptr<ByteSource> source_;
  CorpusSummary counted_;
  std::uint64_t document_bytes_ = 0;  // of the document that is being read
  std::uint64_t line_ = 0;
  std::uint64_t line_offset_ = 0;
};

}  // namespace

Result<std::vector<CorpusFile>> list_corpus(const std::vector<std::string>& inputs) {
  if (inputs.empty()) return error(Code::kInvalidArgument, "no corpus is named");
  std::vector<CorpusFile> files;
  for (const std::string& input : inputs) {
    std::error_code code;
    const fs::file_status status = fs::status(input, code);
    if (status.type() == fs::file_type::not_found) {
      return error(Code::kNotFound, fmt::format("the corpus {} does not exist", input));
    }
    if (code) return error(errno_status(code.value(), "open", input));
    if (fs::is_directory(status)) {
      TAILOR_ASSIGN_OR_RETURN(const std::vector<CorpusFile> found, list_folder(input));
      files.insert(files.end(), found.begin(), found.end());
    } else if (kind_of(input) == Kind::kUnknown) {
      return error(
          Code::kInvalidArgument,
          fmt::format("{}: unknown kind of corpus; the name must end in .txt, .rst, .md or "
                      ".jsonl (each also with .gz or .zst)",
                      input));
    } else {
      files.push_back({input, fs::path(input).filename().string()});
    }
  }
  return files;
}

Result<CorpusSummary> read_corpus(const std::vector<CorpusFile>& files,
                                  const CorpusOptions& options, const CorpusSink& sink) {
  CorpusSummary summary;
  const CorpusSink nobody;
  for (const CorpusFile& file : files) {
    if (options.skip_bad) {
      const Status checked = FileReader(file, options, nobody).run();
      if (checked.code() == Code::kInvalidArgument || checked.code() == Code::kDataLoss) {
        summary.skipped.push_back(checked);
        continue;
      }
    }
    FileReader reader(file, options, sink);
    TAILOR_RETURN_IF_ERROR(reader.run());
    ++summary.files;
    summary.documents += reader.counted().documents;
    summary.bytes += reader.counted().bytes;
    summary.empty_documents += reader.counted().empty_documents;
  }
  if (summary.bytes == 0) {
    return error(
        Code::kInvalidArgument,
        fmt::format("the corpus is empty: {} file{} ({}{}) hold{} no text, {} skipped as bad",
                    files.size(), files.size() == 1 ? "" : "s",
                    files.empty() ? "" : files.front().path, files.size() > 1 ? " ..." : "",
                    files.size() == 1 ? "s" : "", summary.skipped.size()));
  }
  return summary;
}

}  // namespace tailor::data
