#include "worker/trainer/carry.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "base/file.h"
#include "base/json.h"
#include "protocol/convert.h"

namespace tailor::trainer {
namespace {

namespace fs = std::filesystem;

/// How far the attempt's worker had brought its reports; nullopt when no worker had to do with it.
std::optional<std::uint64_t> acknowledged(const std::string& attempt) {
  for (const char* name : {"/worker.json", "/worker-done.json"}) {
    const Result<std::string> text = read_file(attempt + name, 1 << 20);
    if (!text) continue;
    const auto note = parse_json(*text);
    if (!note || !note->is_object()) continue;
    const auto found = note->find("acked_sequence");
    if (found != note->end() && found->is_number_unsigned()) return found->get<std::uint64_t>();
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<protocol::Report>> reports_to_carry(const std::string& directory,
                                                       const std::string& checkpoint,
                                                       std::int64_t step) {
  std::vector<protocol::Report> carried;
  if (checkpoint.empty()) return carried;
  const fs::path attempt = fs::path(absolute_path(checkpoint)).parent_path().parent_path();
  std::error_code failure;
  if (fs::equivalent(attempt, directory, failure)) return carried;
  const std::string path = attempt.string() + "/reports.jsonl";
  if (!fs::exists(path, failure)) return carried;
  std::ifstream in(path);
  if (!in) return error(errno_status(errno, "open", path));
  const std::optional<std::uint64_t> acked = acknowledged(attempt.string());
  if (!acked) return carried;  // run by hand: nobody stores reports
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    if (number <= *acked) continue;  // one line a report, numbered from 1
    auto report = protocol::report_from_json(line);
    if (!report) break;  // torn
    const auto* metric = std::get_if<protocol::MetricReport>(&report->body);
    const auto* saved = std::get_if<protocol::CheckpointReport>(&report->body);
    if ((metric != nullptr && metric->step <= step) || (saved != nullptr && saved->step <= step)) {
      carried.push_back(std::move(*report));
    }
  }
  if (in.bad()) return error(errno_status(EIO, "read", path));
  return carried;
}

}  // namespace tailor::trainer
